"""Fourier transforms: the functions of `torch.fft` by the same names."""

from __future__ import annotations

from .functional import PUBLIC

_PREFIX = "fft."
globals().update(
    {name.removeprefix(_PREFIX): function for name, function in PUBLIC.items() if name.startswith(_PREFIX)}
)

__all__ = sorted(name.removeprefix(_PREFIX) for name in PUBLIC if name.startswith(_PREFIX))  # noqa: PLE0605
