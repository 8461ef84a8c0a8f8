"""Character-level text for `gpt` and `lstm`: random pieces to train on, the loss on the test part, and text
that the model writes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import lucid
from lucid import nn
from lucid.datasets import python_topics, read_text, text_split
from lucid.examples.common import Settings, Task, setting
from lucid.nn import functional as F


@dataclass(frozen=True)
class TextSettings(Settings):
    """Settings of a model of text."""

    context: int = setting(96, "characters that the model sees")
    text: str = setting("", "a UTF-8 file (default: Python's documentation topics)")
    sample: int = setting(400, "characters of the text that the model writes at the end")


def cross_entropy(logits: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
    """Mean cross entropy of logits [n, t, vocabulary] and characters [n, t], in nats per character."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def build(settings: TextSettings, make: Callable[[int], nn.Module]) -> Task:
    """The task of predicting the next character, for the model that make(vocabulary size) gives."""
    text = read_text(settings.text) if settings.text else python_topics()
    train, test, vocabulary = text_split(text)
    size, device = settings.context, settings.device
    if min(len(train), len(test)) <= size + 1:
        raise ValueError(
            f"the text has {len(text)} characters, too few for pieces of {size}; give a longer one"
        )
    model = make(len(vocabulary)).to(device)

    def pieces(numbers: np.ndarray, starts: np.ndarray) -> tuple[lucid.Tensor, lucid.Tensor]:
        at = starts[:, None] + np.arange(size + 1)
        found = lucid.tensor(numbers[at]).to(device)
        return found[:, :-1], found[:, 1:]

    def batch() -> tuple[lucid.Tensor, lucid.Tensor]:
        starts = lucid.randint(0, len(train) - size - 1, (settings.batch_size,)).numpy()
        return pieces(train, starts)

    def measure() -> dict[str, float]:
        # About 64 pieces, evenly over the test part; always the same.
        starts = np.linspace(0, len(test) - size - 1, 64).astype(int)
        losses = []
        for part in np.array_split(starts, max(64 // settings.batch_size, 1)):
            x, y = pieces(test, part)
            losses.append(cross_entropy(model(x), y).item() * len(part))
        return {"test_loss": sum(losses) / len(starts)}

    def sample() -> str:
        lucid.manual_seed(settings.seed)
        start = vocabulary.encode("\n" if "\n" in vocabulary.characters else text[0])
        return write(model, start, settings.sample, size, vocabulary.decode)

    return Task(model, batch, cross_entropy, measure, zlib.crc32(text.encode()), sample)


def write(
    model: nn.Module,
    start: np.ndarray,
    length: int,
    context: int,
    decode: Callable[[list[int]], str],
    temperature: float = 0.7,
) -> str:
    """`length` characters after `start`, each drawn from the model's distribution of the next one."""
    device = next(model.parameters()).device
    numbers = [int(i) for i in start]
    with lucid.no_grad():
        for _ in range(length):
            x = lucid.tensor([numbers[-context:]]).to(device)
            probabilities = F.softmax(model(x)[0, -1].float() / temperature, dim=-1)
            numbers.append(int(lucid.multinomial(probabilities, 1).item()))
    return decode(numbers[len(start) :])
