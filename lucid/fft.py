"""Fourier transforms: the functions of `torch.fft` by the same names."""

from __future__ import annotations

from typing import Any

from .functional import PUBLIC
from .functional.out import lookup

_PREFIX = "fft."


def __getattr__(name: str) -> Any:
    """The public function registered as `fft.<name>`."""
    found = lookup(_PREFIX + name)
    if found is None:
        raise AttributeError(f"module 'lucid.fft' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Every function registered under `fft.`."""
    return sorted(name.removeprefix(_PREFIX) for name in PUBLIC if name.startswith(_PREFIX))


__all__ = __dir__()  # noqa: PLE0605
