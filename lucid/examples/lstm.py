"""An LSTM that learns Python's documentation character by character and then writes some.

The command line for it is `lucid train lstm`.
"""

from __future__ import annotations

from dataclasses import dataclass

import lucid
from lucid import nn
from lucid.examples import characters
from lucid.examples.common import Task, setting


class CharLSTM(nn.Module):
    """Logits [n, t, vocabulary] of the next character, from characters [n, t]; each piece starts without
    memory.
    """

    def __init__(self, vocabulary: int, width: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        h, _ = self.lstm(self.token(x))
        return self.head(h)


@dataclass(frozen=True)
class Settings(characters.TextSettings):
    """Settings of the LSTM."""

    steps: int = setting(500, "optimizer steps")
    batch_size: int = setting(32, "pieces of text per step")
    lr: float = setting(1e-2, "highest learning rate: reached after a tenth of the steps, then a cosine to 0")
    layers: int = setting(2, "layers")
    width: int = setting(64, "size of a character's vector")
    hidden: int = setting(192, "size of the memory of a layer")
    dropout: float = setting(0.1, "share of what goes from layer to layer that is dropped", least=0.0)


def build(settings: Settings) -> Task:
    """The model and its data."""
    s = settings
    return characters.build(s, lambda n: CharLSTM(n, s.width, s.hidden, s.layers, s.dropout))
