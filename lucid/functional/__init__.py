"""Public functions on tensors, by topic. The list is explicit: a new file is one line here."""

from __future__ import annotations

import importlib

from .registry import PUBLIC as PUBLIC

MODULES = ("methods", "basic", "creation", "random", "pointwise", "reduce", "shape", "join", "index", "linalg", "conv", "norm", "loss", "embedding", "dropout", "attention", "protocols", "einops_backend")

for _name in MODULES:
    try:
        importlib.import_module(f"{__name__}.{_name}")
    except ModuleNotFoundError as _error:
        if not str(_error.name).startswith(__name__):
            raise
