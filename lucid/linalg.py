"""Linear algebra: the functions of `torch.linalg` by the same names."""

from __future__ import annotations

from typing import Any

from .errors import LinAlgError as LinAlgError
from .functional.out import member, members


def __getattr__(name: str) -> Any:
    """The public function registered as `linalg.<name>`."""
    found = globals()[name] = member("linalg", name)
    return found


def __dir__() -> list[str]:
    """Every function registered under `linalg.`."""
    return members("linalg")


__all__ = ["LinAlgError", *__dir__()]  # noqa: PLE0604
