"""Fourier transforms: the functions of `torch.fft` by the same names."""

from __future__ import annotations

from typing import Any

from .functional.out import member, members


def __getattr__(name: str) -> Any:
    """The public function registered as `fft.<name>`."""
    found = globals()[name] = member("fft", name)
    return found


def __dir__() -> list[str]:
    """Every function registered under `fft.`."""
    return members("fft")


__all__ = __dir__()  # noqa: PLE0605
