"""Tables of vectors that are looked up by index."""

from __future__ import annotations

from typing import Any, Self

from ..errors import ShapeError
from ..tensor import Parameter, Tensor
from . import functional as F
from . import init
from ._make import empty_parameter
from .module import Module


def _padding(name: str, padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ShapeError(f"{name}: padding_idx must lie in [{-rows}, {rows - 1}], got {padding_idx}")
    return padding_idx % rows


class _Table(Module):
    def _setup(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, weight: Tensor | None,
               device: Any, dtype: Any) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _padding(type(self).__name__, padding_idx, num_embeddings)
        if weight is None:
            self.weight = empty_parameter((num_embeddings, embedding_dim), device, dtype)
            self.reset_parameters()
        elif tuple(weight.shape) != (num_embeddings, embedding_dim):
            raise ShapeError(f"{type(self).__name__}: the weight must be [{num_embeddings}, "
                             f"{embedding_dim}], got shape {tuple(weight.shape)}")
        else:
            self.weight = Parameter(weight)

    def reset_parameters(self) -> None:
        """Nothing; draws the vectors from the standard normal distribution, with zeros at padding_idx."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.storage.array[self.padding_idx] = 0

    def _repr(self, padding: str = "") -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}{padding}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        return text + (", scale_grad_by_freq=True" if self.scale_grad_by_freq else "")

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Self:
        """A layer with the given vectors [rows, d]; not trained when `freeze`."""
        if embeddings.ndim != 2:
            raise ShapeError(f"{cls.__name__}.from_pretrained: expected [rows, features], got shape "
                             f"{tuple(embeddings.shape)}")
        make: Any = cls
        layer: Self = make(*embeddings.shape, _weight=embeddings, **options)
        layer.weight.requires_grad = not freeze
        return layer


class Embedding(_Table):
    """weight[input]: integers of any shape -> [*shape, embedding_dim].

    weight: [num_embeddings, embedding_dim], standard normal at first, zeros at padding_idx, whose row gets no
    gradient. Raises IndexRangeError for an index out of range.

    >>> import lucid
    >>> lucid.nn.Embedding(10, 3)(lucid.tensor([[1, 2], [4, 5]])).shape
    (2, 2, 3)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._setup(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.weight.requires_grad = not _freeze

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
                           self.scale_grad_by_freq, self.sparse)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return self._repr(padding) + (", sparse=True" if self.sparse else "")


class EmbeddingBag(_Table):
    """The sum, mean or maximum of each bag's vectors: [B, n] or ([n], offsets [B]) -> [B, embedding_dim].

    See nn.functional.embedding_bag.

    >>> import lucid
    >>> table = lucid.tensor([[1.0], [10.0], [100.0]])
    >>> lucid.nn.EmbeddingBag.from_pretrained(table, mode="sum")(lucid.tensor([[0, 1], [2, 2]]))
    tensor([[ 11.],
            [200.]])
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
                 padding_idx: int | None = None, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset
        self._setup(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None,
                per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type,
                               self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
                               self.include_last_offset, self.padding_idx)

    def extra_repr(self) -> str:
        return self._repr() + f", mode={self.mode!r}" + ("" if self.padding_idx is None
                                                         else f", padding_idx={self.padding_idx}")
