"""CUDA kernels of the `kernels/` folder.

What there is (`specs`), loading and compiling (`loader`, `compile`), launching (`launch`), and one function
per kernel (`calls`); matrix products and who computes them (`products`, `cublaslt`).
"""

from __future__ import annotations

from . import cublaslt as cublaslt
from . import products as products
from .launch import Launcher, launcher
from .loader import Unavailable
from .specs import KERNELS

__all__ = ["KERNELS", "Launcher", "Unavailable", "launcher"]
