"""From a list of samples to a batch."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ...errors import DtypeError, ShapeError
from ...storage.dtype import float64
from ...tensor import Tensor, _wrap, tensor

_TEXT = re.compile("[SaUO]")


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch of samples: tensors, arrays and numbers are stacked, containers are collated entry by entry.

    Floats become float64, ints int64; a tuple of a sample becomes a list; dicts and named tuples keep their
    type; strings stay a list.
    Raises ShapeError for samples of different shapes or lengths, DtypeError for other objects.

    >>> import lucid
    >>> lucid.utils.data.default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ['a', 'b']]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _stack(batch)
    if isinstance(first, (str, bytes)):  # np.str_ among them
        return list(batch)
    if isinstance(first, (np.ndarray, np.generic)):
        if _TEXT.search(first.dtype.str):
            raise DtypeError(
                f"default_collate: expected arrays of numbers, got {first.dtype}; pass a collate_fn of "
                "your own"
            )
        _check_shapes([a.shape for a in batch])
        return tensor(np.stack([np.asarray(a) for a in batch]))
    if isinstance(first, bool):
        return tensor(list(batch))
    if isinstance(first, int):
        return tensor(list(batch))
    if isinstance(first, float):
        return tensor(list(batch), dtype=float64)
    if isinstance(first, Mapping):
        return _filled(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(part) for part in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise ShapeError(
                "default_collate: samples of a batch have different lengths: "
                f"{sorted({len(s) for s in batch})}"
            )
        return [default_collate(part) for part in zip(*batch, strict=True)]
    raise DtypeError(
        "default_collate: expected tensors, arrays, numbers, strings, dicts or sequences, got "
        f"{type(first).__name__}; "
        "pass a collate_fn of your own"
    )


def _filled(like: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    # A mapping of the same type: a defaultdict keeps its factory.
    try:
        if isinstance(like, MutableMapping):
            made = copy.copy(like)
            made.update(entries)
            return made
        return type(like)(entries)  # type: ignore[call-arg]
    except TypeError:
        return entries


def _stack(batch: Sequence[Tensor]) -> Tensor:
    _check_shapes([t.shape for t in batch])
    if any(t.requires_grad for t in batch):
        from ...autograd.record import RECORDED

        return RECORDED.stack(*batch, dim=0)
    backend = batch[0].storage.backend
    return _wrap(backend.xp.stack([t.storage.array for t in batch]), backend)


def _check_shapes(shapes: list[Any]) -> None:
    if any(shape != shapes[0] for shape in shapes):
        raise ShapeError(
            "default_collate: samples of a batch have different shapes: "
            f"{', '.join(sorted({str(s) for s in shapes}))}; "
            "pad them, or pass a collate_fn of your own"
        )


def default_convert(sample: Any) -> Any:
    """A sample without a batch dimension: arrays become tensors, everything else stays.

    >>> import numpy as np
    >>> import lucid
    >>> lucid.utils.data.default_convert({"x": np.ones(2, "float32"), "name": "a"})
    {'x': tensor([1., 1.]), 'name': 'a'}
    """
    if isinstance(sample, (np.ndarray, np.generic)) and not _TEXT.search(sample.dtype.str):
        return tensor(sample)
    if isinstance(sample, Mapping):
        return {key: default_convert(value) for key, value in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*map(default_convert, sample))
    if isinstance(sample, (list, tuple)):
        return [default_convert(part) for part in sample]
    return sample
