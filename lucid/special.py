"""Special functions: `torch.special`'s names, differentiable, on every device.

>>> import lucid
>>> lucid.special.erf(lucid.tensor([0.0, 1.0]))
tensor([0.    , 0.8427])
"""

from __future__ import annotations

from typing import Any

from .functional import PUBLIC
from .functional.out import lookup

_PREFIX = "special."


def __getattr__(name: str) -> Any:
    """The public function registered as `special.<name>`."""
    found = lookup(_PREFIX + name)
    if found is None:
        raise AttributeError(f"module 'lucid.special' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Every function registered under `special.`."""
    return sorted(name.removeprefix(_PREFIX) for name in PUBLIC if name.startswith(_PREFIX))


__all__ = __dir__()  # noqa: PLE0605
