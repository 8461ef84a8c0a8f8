"""Tensors from and to other libraries by DLPack, without a copy (dmlc.github.io/dlpack)."""

from __future__ import annotations

from ..functional.convert import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
