"""Special functions: `torch.special`'s names, differentiable, on every device.

>>> import lucid
>>> lucid.special.erf(lucid.tensor([0.0, 1.0]))
tensor([0.    , 0.8427])
"""

from __future__ import annotations

from typing import Any

from .functional.out import member, members


def __getattr__(name: str) -> Any:
    """The public function registered as `special.<name>`."""
    found = globals()[name] = member("special", name)
    return found


def __dir__() -> list[str]:
    """Every function registered under `special.`."""
    return members("special")


__all__ = __dir__()  # noqa: PLE0605
