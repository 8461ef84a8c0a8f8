"""Embeddings under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import IndexRangeError, ShapeError
from ..ops.bounds import tally
from ..ops.embedding import check_indices
from ..ops.reduce import wide
from ..tensor import Tensor, _wrap
from .registry import on_its_device, public


def _renormalize(weight: Tensor, indices: Any, max_norm: float, norm_type: float) -> None:
    # Rows in use whose norm exceeds max_norm are scaled down to it, in place and outside the graph.
    xp, storage = weight.storage.backend.xp, weight.storage
    rows = xp.unique(indices)
    used = wide(storage.array[rows])
    norm = (abs(used) ** norm_type).sum(1, keepdims=True) ** (1.0 / norm_type)
    # 1e-7 keeps the quotient finite, as in PyTorch.
    storage.array[rows] = xp.where(norm > max_norm, used * (max_norm / (norm + 1e-7)),
                                   used).astype(storage.array.dtype)
    storage.version += 1


@public("nn.functional.embedding")
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """weight[input]: the rows of a table.

    input: integers of any shape, in [0, rows); weight: [rows, d]. Returns [*input.shape, d]. Row
    `padding_idx` gets no gradient. With `max_norm`, rows in use are first scaled down to that norm, in place.
    `sparse` is accepted and has no effect: gradients are dense. Raises IndexRangeError for an index out of
    range, DtypeError for others than integers.

    >>> import lucid
    >>> table = lucid.tensor([[0.0, 0.1], [1.0, 1.1]])
    >>> lucid.nn.functional.embedding(lucid.tensor([1, 0, 1]), table)
    tensor([[1. , 1.1],
            [0. , 0.1],
            [1. , 1.1]])
    """
    padding_idx = _padding("embedding", padding_idx, weight)
    if max_norm is not None:
        with weight.backend.guard():
            used = check_indices(weight.backend.xp, "embedding", input.array, weight.shape[0])
            _renormalize(weight, used, max_norm, norm_type)
    return F.embedding(weight, input, padding_idx, scale_grad_by_freq)


def _padding(name: str, padding_idx: int | None, weight: Tensor) -> int:
    if padding_idx is None:
        return -1
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise ShapeError(f"{name}: padding_idx must lie in [{-rows}, {rows - 1}] for {rows} rows, got "
                         f"{padding_idx}")
    return padding_idx % rows


@public("embedding")
def embedding_(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
               sparse: bool = False) -> Tensor:
    """`nn.functional.embedding` with `torch.embedding`'s arguments.

    >>> import lucid
    >>> lucid.embedding(lucid.tensor([[0.0, 0.1], [1.0, 1.1]]), lucid.tensor([1]))
    tensor([[1. , 1.1]])
    """
    return F.embedding(weight, indices, padding_idx, scale_grad_by_freq)


@public("nn.functional.one_hot")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 [*shape, num_classes]: 1 at the class, 0 elsewhere; -1 takes one more than the largest class.

    Raises DtypeError for others than integers, IndexRangeError for a class out of range.

    >>> import lucid
    >>> lucid.nn.functional.one_hot(lucid.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    return F.one_hot(tensor, num_classes)


@public("nn.functional.embedding_bag")
@on_its_device
def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
                  norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
                  sparse: bool = False, per_sample_weights: Tensor | None = None,
                  include_last_offset: bool = False, padding_idx: int | None = None) -> Tensor:
    """[bags, d]: the sum, mean or maximum of the rows of each bag, without those at `padding_idx`.

    input: [B, n], one bag per row, or [n] with `offsets` [B], where each bag starts (and the last ends, with
    `include_last_offset`). per_sample_weights: the input's shape, multiplies the rows (mode 'sum' alone). An
    empty bag gives zeros. Raises ShapeError, DtypeError or IndexRangeError for others.

    >>> import lucid
    >>> table = lucid.tensor([[1.0], [10.0], [100.0]])
    >>> lucid.nn.functional.embedding_bag(lucid.tensor([[0, 1], [2, 2]]), table, mode="sum")
    tensor([[ 11.],
            [200.]])
    """
    name = "embedding_bag"
    if mode not in ("sum", "mean", "max"):
        raise ShapeError(f"{name}: mode must be 'sum', 'mean' or 'max', got {mode!r}")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ShapeError(f"{name}: per_sample_weights needs mode='sum' and the input's shape "
                         f"{tuple(input.shape)}, got mode={mode!r} and "
                         f"shape {tuple(per_sample_weights.shape)}")
    backend = weight.storage.backend
    indices, bags, count = _bags(input, offsets, include_last_offset)
    if padding_idx is not None:
        padding_idx = _padding(name, padding_idx, weight)
        kept = indices != padding_idx
        indices, bags = indices[kept], bags[kept]
    if max_norm is not None:
        indices = check_indices(backend.xp, name, indices, weight.shape[0])
        _renormalize(weight, indices, max_norm, norm_type)
    rows = F.embedding(weight, _wrap(indices, backend), -1, scale_grad_by_freq)
    if per_sample_weights is not None:
        factors = F.reshape(per_sample_weights, (-1, 1))
        if padding_idx is not None:
            factors = F.embedding(factors, _wrap(backend.xp.nonzero(kept)[0], backend))
        rows = rows * factors
    if mode == "max":
        return F.bag_max(rows, _wrap(bags, backend), count)[0]
    total = F.embedding_backward(rows, _wrap(bags, backend), count)
    if mode == "sum":
        return total
    sizes = backend.xp.maximum(tally(backend.xp, bags, count), 1).astype(rows.dtype)
    return total / _wrap(sizes.reshape(-1, 1), backend)


def _bags(input: Tensor, offsets: Tensor | None, include_last: bool) -> tuple[Any, Any, int]:
    # (indices [n], the bag of each [n], number of bags).
    xp, indices = input.storage.backend.xp, input.storage.array
    if indices.ndim == 2:
        if offsets is not None:
            raise ShapeError("embedding_bag: a 2-d input has one bag per row; leave offsets out")
        return indices.reshape(-1), xp.repeat(xp.arange(indices.shape[0]), indices.shape[1]), indices.shape[0]
    if indices.ndim != 1 or offsets is None:
        raise ShapeError("embedding_bag: expected an input [B, n], or [n] with offsets, got shape "
                         f"{tuple(indices.shape)} and offsets "
                         f"{None if offsets is None else tuple(offsets.shape)}")
    ends, n = offsets.storage.array, indices.shape[0]
    first, last = (int(ends[0]), int(ends[-1])) if ends.size else (0, 0)
    if first != 0:
        raise ShapeError(f"embedding_bag: offsets must start at 0, got {first}")
    if last > n:
        raise IndexRangeError(f"embedding_bag: offsets must lie in [0, {n}] for {n} indices, got {last}")
    starts = ends
    if include_last:
        starts, indices, n = ends[:-1], indices[:last], last
    return indices, xp.searchsorted(starts, xp.arange(n), side="right") - 1, starts.shape[0]
