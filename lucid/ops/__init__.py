"""Operations, by topic. The list is explicit: a new file is one line here."""

from __future__ import annotations

import importlib

MODULES = (
    *("arithmetic", "basic", "pointwise", "pointwise_binary", "trigonometry", "activation"),
    *("special", "polynomials"),
    *("reduce", "scan", "shape", "diagonal", "index", "scatter", "sort"),
    *("linear", "linalg", "decompositions", "factors", "fft"),
    *("conv", "pool", "interpolate", "softmax", "norm", "loss", "ctc", "attention", "embedding", "rnn"),
    *("random", "cuda_kernels", "cuda_kernels_spatial", "cuda_conv", "cuda_products"),
)

for _name in MODULES:
    importlib.import_module(f"{__name__}.{_name}")
