"""Parameters as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...autograd.record import RECORDED as F
from ...autograd.transfer import moved
from ...errors import ShapeError
from ...tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters joined into one 1-d tensor (recorded: gradients flow back).

    >>> import lucid
    >>> layer = lucid.nn.Linear(3, 2)
    >>> lucid.nn.utils.parameters_to_vector(layer.parameters()).shape
    (8,)
    """
    return F.cat(*(F.reshape(p, (-1,)) for p in parameters), dim=0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Nothing; writes the parts of a 1-d tensor into the parameters.

    Raises ShapeError unless the vector has as many elements as they.

    >>> import lucid
    >>> p = lucid.nn.Parameter(lucid.zeros(2))
    >>> lucid.nn.utils.vector_to_parameters(lucid.tensor([1.0, 2.0]), [p])
    >>> p.tolist()
    [1.0, 2.0]
    """
    items = list(parameters)
    total = sum(math.prod(p.shape) for p in items)
    if vec.ndim != 1 or vec.shape[0] != total:
        raise ShapeError(f"vector_to_parameters: the parameters have {total} elements, got a vector of shape "
                         f"{tuple(vec.shape)}")
    source, start = vec.storage.array, 0
    for p in items:
        size = math.prod(p.shape)
        storage = p.storage
        part = source[start : start + size].reshape(p.shape)
        if storage.backend is not vec.backend:
            part = moved(part, vec.backend, storage.backend)
        with storage.backend.guard():
            storage.array[...] = part.astype(storage.array.dtype, copy=False)
        storage.version += 1
        start += size
