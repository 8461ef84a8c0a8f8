"""The Fourier transform extension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from .. import fft as _f
from ..tensor import Tensor

_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
_SHIFTS = ("fftshift", "ifftshift")

__all__ = [*_ONE, *_SEVERAL, *_SHIFTS, "fftfreq", "rfftfreq"]  # noqa: PLE0604

Norm = Literal["backward", "ortho", "forward"]


def _one(name: str) -> Callable[..., Tensor]:
    transform = getattr(_f, name)

    def function(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        return transform(x, n, axis, norm)

    return _named(function, name)


def _several(name: str) -> Callable[..., Tensor]:
    transform = getattr(_f, name)

    def function(
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm = "backward",
    ) -> Tensor:
        return transform(x, s, axes, norm)

    return _named(function, name)


def _shift(name: str) -> Callable[..., Tensor]:
    shift = getattr(_f, name)

    def function(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
        return shift(x, axes)

    return _named(function, name)


def _named(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`lucid.fft.{name}` with the standard's argument names."
    return function


globals().update({name: _one(name) for name in _ONE})
globals().update({name: _several(name) for name in _SEVERAL})
globals().update({name: _shift(name) for name in _SHIFTS})


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft`'s n outputs for samples at distance d."""
    return _f.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft`'s outputs for n samples at distance d."""
    return _f.rfftfreq(n, d, dtype=dtype, device=device)
