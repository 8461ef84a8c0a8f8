"""A small GPT (Radford et al. 2019) that learns Python's documentation character by character and then writes
some.

The command line for it is `lucid train gpt`.

>>> from lucid.examples import common, gpt                                             # doctest: +SKIP
>>> run = common.train(gpt.build, gpt.Settings(steps=800), out="runs/gpt")             # doctest: +SKIP
>>> print(run.task.sample())                                                           # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass

import lucid
from lucid import nn
from lucid.examples import characters
from lucid.examples.common import Task, setting
from lucid.nn import functional as F


class Block(nn.Module):
    """Self-attention, then a two-layer network, each added to its normalised input. x: [n, t, width]."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        n, t, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (p.reshape(n, t, self.heads, width // self.heads).transpose(1, 2) for p in parts)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = self.out(h.transpose(1, 2).reshape(n, t, width))
        x = x + F.dropout(h, self.dropout, self.training)
        return x + F.dropout(self.mlp(self.norm2(x)), self.dropout, self.training)


class GPT(nn.Module):
    """Logits [n, t, vocabulary] of the next character, from characters [n, t] with t up to `context`."""

    def __init__(
        self, vocabulary: int, context: int, width: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                # Each layer adds two terms to the stream: their weights start smaller the more layers there
                # are.
                last = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(p, 0.0, 0.02 / (2 * layers) ** 0.5 if last else 0.02)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        h = self.token(x) + self.position(lucid.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


@dataclass(frozen=True)
class Settings(characters.TextSettings):
    """Settings of the GPT."""

    steps: int = setting(800, "optimizer steps")
    batch_size: int = setting(24, "pieces of text per step")
    context: int = setting(64, "characters that the model sees")
    lr: float = setting(3e-3, "highest learning rate: reached after a tenth of the steps, then a cosine to 0")
    layers: int = setting(4, "blocks")
    width: int = setting(128, "size of a character's vector")
    heads: int = setting(4, "attention heads, a divisor of the width")
    dropout: float = setting(0.0, "share of each block's output that is dropped", least=0.0)


def build(settings: Settings) -> Task:
    """The model and its data."""
    s = settings
    if s.width % s.heads:
        raise ValueError(f"width must be a multiple of heads, got width {s.width} and heads {s.heads}")
    return characters.build(s, lambda n: GPT(n, s.context, s.width, s.layers, s.heads, s.dropout))
