"""Linear algebra: the functions of `torch.linalg` by the same names."""

from __future__ import annotations

from typing import Any

from .errors import LinAlgError as LinAlgError
from .functional import PUBLIC
from .functional.out import lookup

_PREFIX = "linalg."


def __getattr__(name: str) -> Any:
    """The public function registered as `linalg.<name>`."""
    found = lookup(_PREFIX + name)
    if found is None:
        raise AttributeError(f"module 'lucid.linalg' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Every function registered under `linalg.`."""
    return sorted(name.removeprefix(_PREFIX) for name in PUBLIC if name.startswith(_PREFIX))


__all__ = ["LinAlgError", *__dir__()]  # noqa: PLE0604
