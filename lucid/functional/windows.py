"""Windows for signals, under PyTorch's names: computed in float64, returned in the dtype asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, category, get_default_dtype
from ..tensor import Tensor, _wrap
from .registry import public

_Shape = Callable[[Any], Any]  # of the angle 2 pi i / n as a float64 tensor


def _window(
    name: str, length: int, periodic: bool, dtype: Any, device: Any, requires_grad: bool, shape: _Shape
) -> Tensor:
    """The window of `shape` at `length` points of a period; not `periodic`: symmetric, its ends being one."""
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    if category(wanted) != 2:
        raise DtypeError(f"{name}: expected a floating dtype, got {wanted.name}")
    if not isinstance(length, int) or length < 0:
        raise ShapeError(f"{name}: expected a window_length of at least 0, got {length!r}")
    backend = backend_of(device)
    if length <= 1:
        return _wrap(backend.xp.ones(length, wanted), backend, requires_grad)
    period = length if periodic else length - 1
    angle = backend.xp.arange(length, dtype="float64") * (2.0 * math.pi / period)
    out = shape(_wrap(angle, backend)).to(dtype=wanted)
    return out.requires_grad_(True) if requires_grad else out


@public()
def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None,
                    device: Any = None, requires_grad: bool = False) -> Tensor:
    """The triangle 1 - |2 i / n - 1| at window_length points; n is their number, one less if not periodic.

    Raises DtypeError for a dtype that is not floating, ShapeError for a negative length.

    >>> import lucid
    >>> lucid.bartlett_window(5, periodic=False)
    tensor([0. , 0.5, 1. , 0.5, 0. ])
    """  # fmt: skip
    return _window("bartlett_window", window_length, periodic, dtype, device, requires_grad,
                   lambda a: 1.0 - F.abs(a / math.pi - 1.0))  # fmt: skip


@public()
def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
                   dtype: Any = None, layout: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Tensor:
    """alpha - beta cos(2 pi i / n) at window_length points; n as in `bartlett_window`.

    >>> import lucid
    >>> lucid.hamming_window(4)
    tensor([0.08, 0.54, 1.  , 0.54])
    """  # fmt: skip
    return _window("hamming_window", window_length, periodic, dtype, device, requires_grad,
                   lambda a: alpha - beta * F.cos(a))  # fmt: skip


@public()
def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None,
                device: Any = None, requires_grad: bool = False) -> Tensor:
    """(1 - cos(2 pi i / n)) / 2 at window_length points; n as in `bartlett_window`.

    >>> import lucid
    >>> lucid.hann_window(4)
    tensor([0. , 0.5, 1. , 0.5])
    """  # fmt: skip
    return _window("hann_window", window_length, periodic, dtype, device, requires_grad,
                   lambda a: 0.5 - 0.5 * F.cos(a))  # fmt: skip


@public()
def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None,
                    device: Any = None, requires_grad: bool = False) -> Tensor:
    """0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n) at window_length points; n as in `bartlett_window`.

    >>> import lucid
    >>> lucid.blackman_window(4).round(decimals=4)
    tensor([-0.  ,  0.34,  1.  ,  0.34])
    """  # fmt: skip
    return _window("blackman_window", window_length, periodic, dtype, device, requires_grad,
                   lambda a: 0.42 - 0.5 * F.cos(a) + 0.08 * F.cos(2.0 * a))  # fmt: skip


@public()
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None,
                  layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - (2 i / n - 1)^2)) / I0(beta) at window_length points; n as in `bartlett_window`.

    >>> import lucid
    >>> lucid.kaiser_window(3, periodic=False, beta=0.0)
    tensor([1., 1., 1.])
    """  # fmt: skip

    def bell(a: Tensor) -> Tensor:
        inside = F.clamp_min(1.0 - (a / math.pi - 1.0) ** 2, 0.0)
        return F.i0(beta * F.sqrt(inside)) / F.i0(F.full_like(a, beta))

    return _window("kaiser_window", window_length, periodic, dtype, device, requires_grad, bell)
