"""CUDA kernels of the `kernels/` folder.

What there is (`specs`), loading and compiling (`loader`, `compile`), launching (`launch`), and one function
per kernel (`calls`).
"""

from __future__ import annotations

from .launch import Launcher, launcher
from .loader import Unavailable
from .specs import KERNELS

__all__ = ["KERNELS", "Launcher", "Unavailable", "launcher"]
