"""Automatic differentiation: the graph, the engine, grad modes, hooks, user functions.

`lucid.autograd.backward` and `grad` are PyTorch's; `Engine`, `Node`, `Edge`, `AccumulateGrad` and `FuncOp`
are the parts that they are made of.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from .mode import enable_grad as enable_grad
from .mode import inference_mode as inference_mode
from .mode import no_grad as no_grad
from .mode import set_grad_enabled as set_grad_enabled
from .node import AccumulateGrad as AccumulateGrad
from .node import Edge as Edge
from .node import FuncOp as FuncOp
from .node import Node as Node

AutogradNode = FuncOp

# Imported on first use: these need the recorder, which is above this package's light parts.
_LAZY = {
    "Engine": "engine",
    "Function": "function",
    "once_differentiable": "function",
    "backward": "functional",
    "grad": "functional",
    "gradcheck": "numerical",
    "gradgradcheck": "numerical",
    "detect_anomaly": "anomaly",
    "set_detect_anomaly": "anomaly",
    "RemovableHandle": "hooks",
    "RECORDED": "record",
    "Variable": "functional",
}
_MODULES = (
    "anomaly",
    "checkpoint",
    "engine",
    "function",
    "functional",
    "graph",
    "hooks",
    "mode",
    "node",
    "numerical",
    "record",
)


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return getattr(_importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name == "profiler":  # PyTorch's older path
        return _importlib.import_module("lucid.profiler")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
