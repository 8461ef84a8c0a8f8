"""Tools around training: data loading, checkpointing of activations, TensorBoard."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from . import data as data

_LAZY = ("_pytree", "checkpoint", "tensorboard")


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["checkpoint", "data", "tensorboard"]
