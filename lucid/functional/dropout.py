"""Dropout under PyTorch's names: masks come from the default generator of the input's device, and are the
same on every device.
"""

from __future__ import annotations

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..storage.dtype import is_floating
from ..storage.random import default_generator
from ..tensor import Tensor, _wrap
from .registry import public

# Devices on which the mask of `dropout` is kept for the backward pass, a byte per element, and not computed
# again from 16 bytes. On one core forward and backward then take 8.4 ns per element of float32, not 15.3
# (bench_dropout: 1M elements). A GPU makes the words while it waits for memory.
KEEPS_MASK = ("cpu",)


def _check(name: str, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ShapeError(f"{name}: p must be a probability in [0, 1], got {p}")


def _mask(input: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    # bool, True with probability 1 - p.
    backend = input.storage.backend
    return _wrap(default_generator(backend).bernoulli_mask(shape, 1.0 - p), backend)


def _finish(input: Tensor, out: Tensor, inplace: bool) -> Tensor:
    return input.copy_(out) if inplace else out


@public("nn.functional.dropout")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The input with each element zero with probability `p` and divided by 1 - p otherwise.

    When not `training`, the input itself. Srivastava et al. 2014, JMLR 15. Raises ShapeError for a p outside
    [0, 1].

    >>> import lucid
    >>> x = lucid.nn.functional.dropout(lucid.ones(1000), p=0.5)
    >>> sorted(set(x.tolist()))
    [0.0, 2.0]
    """
    _check("dropout", p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return _finish(input, input * 0.0, inplace)
    backend = input.storage.backend
    if backend.name in KEEPS_MASK or not is_floating(input.dtype):
        return _finish(input, F.dropout(input, _mask(input, input.shape, p), p), inplace)
    state, skip = default_generator(backend).draw(input.numel())
    return _finish(input, F.seeded_dropout(input, _wrap(state, backend), skip, p), inplace)


@public("dropout")
def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout` with `torch.dropout`'s arguments.

    >>> import lucid
    >>> lucid.dropout(lucid.ones(2), 0.5, train=False)
    tensor([1., 1.])
    """
    return dropout(input, p, train)


def _features(name: str, input: Tensor, ndims: tuple[int, int], p: float, training: bool,
              inplace: bool) -> Tensor:
    # Whole channels: the mask has size 1 behind the channel dimension. The smaller of `ndims` is an input
    # without batch.
    _check(name, p)
    if input.ndim not in ndims:
        raise ShapeError(f"{name}: expected an input of {ndims[0]} or {ndims[1]} dimensions, got shape "
                         f"{tuple(input.shape)}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return _finish(input, input * 0.0, inplace)
    kept = 1 if input.ndim == ndims[0] else 2
    shape = input.shape[:kept] + (1,) * (input.ndim - kept)
    return _finish(input, F.dropout(input, _mask(input, shape, p), p), inplace)


@public("nn.functional.dropout1d")
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The input with whole channels dropped: [N, C, L] or [C, L] (Tompson et al. 2015, arXiv:1411.4280).

    Raises ShapeError for other shapes and a p outside [0, 1].

    >>> import lucid
    >>> x = lucid.nn.functional.dropout1d(lucid.ones(1, 100, 3))
    >>> bool((x.amin(2) == x.amax(2)).all())    # a channel is dropped as a whole
    True
    """
    return _features("dropout1d", input, (2, 3), p, training, inplace)


@public("nn.functional.dropout2d")
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The input with whole channels dropped: [N, C, H, W]; three dimensions are [N, C, L], as in PyTorch.

    Raises ShapeError for other shapes and a p outside [0, 1].

    >>> import lucid
    >>> x = lucid.nn.functional.dropout2d(lucid.ones(1, 100, 2, 2))
    >>> bool((x.amin((2, 3)) == x.amax((2, 3))).all())    # a channel is dropped as a whole
    True
    """
    return _features("dropout2d", input, (2, 3) if input.ndim == 3 else (3, 4), p, training, inplace)


@public("nn.functional.dropout3d")
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The input with whole channels dropped: [N, C, D, H, W] or [C, D, H, W].

    Raises ShapeError for other shapes and a p outside [0, 1].

    >>> import lucid
    >>> lucid.nn.functional.dropout3d(lucid.ones(1, 3, 2, 2, 2)).shape
    (1, 3, 2, 2, 2)
    """
    return _features("dropout3d", input, (4, 5), p, training, inplace)


def _alpha(name: str, input: Tensor, shape: tuple[int, ...], p: float, training: bool,
           inplace: bool) -> Tensor:
    _check(name, p)
    if input.dtype.kind in "iub":
        raise DtypeError(f"{name}: expected a floating tensor, got {input.dtype.name}; convert it with "
                         ".float()")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return _finish(input, input * 0.0, inplace)
    return _finish(input, F.alpha_dropout(input, _mask(input, shape, p), p), inplace)


@public("nn.functional.alpha_dropout")
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout to selu's lower limit that keeps mean 0 and variance 1.

    Klambauer et al. 2017, arXiv:1706.02515. Raises DtypeError for integers, ShapeError for a p outside [0,
    1].

    >>> import lucid
    >>> x = lucid.nn.functional.alpha_dropout(lucid.zeros(1000), p=0.5, training=True)
    >>> len(set(x.tolist()))
    2
    """
    return _alpha("alpha_dropout", input, input.shape, p, training, inplace)


@public("nn.functional.feature_alpha_dropout")
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False,
                          inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels: [N, C, ...]; errors as of `alpha_dropout`.

    >>> import lucid
    >>> lucid.nn.functional.feature_alpha_dropout(lucid.zeros(1, 3, 4), training=True).shape
    (1, 3, 4)
    """
    shape = input.shape[:2] + (1,) * (input.ndim - 2)
    return _alpha("feature_alpha_dropout", input, shape, p, training, inplace)
