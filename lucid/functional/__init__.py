"""Public functions on tensors, by topic. The list is explicit: a new file is one line here."""

from __future__ import annotations

import importlib

from .registry import PUBLIC as PUBLIC

MODULES = (
    *("methods", "basic", "creation", "convert", "random"),
    *("pointwise", "reduce", "calculus", "shape", "inplace", "diagonal", "join", "index", "order"),
    *("linalg", "decompositions", "factors", "products", "fft"),
    *("conv", "pool", "pool_fractional", "interpolate", "norm", "loss", "ctc", "embedding", "dropout"),
    *("attention", "windows", "questions", "histogram"),
    *("protocols", "einops_backend", "compat", "shared"),
)

for _name in MODULES:
    importlib.import_module(f"{__name__}.{_name}")

importlib.import_module(f"{__name__}.front").attach()
