"""Switches of the libraries below: `lucid.backends.cuda.matmul.allow_tf32` and
`set_float32_matmul_precision`; and whether CUDA may add in any order.

>>> from lucid import backends
>>> backends.get_float32_matmul_precision()
'highest'
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .storage.order import fixed_order

# CuPy reads this variable at its first float32 product; later the backend is told directly.
_VARIABLE = "CUPY_TF32"
# "medium" would allow products of bfloat16 halves, which CuPy's cuBLAS calls do not offer: it is "high" here.
_TF32 = {"highest": False, "high": True, "medium": True}


class _Matmul:
    """How products of float32 matrices are computed on CUDA."""

    @property
    def allow_tf32(self) -> bool:
        """Whether they may use TF32 tensor cores (compute capability 8.0 on): mantissas of 10 bits instead of
        23, sums in float32.
        """
        backend = sys.modules.get("lucid.storage.cupy_backend")
        return os.environ.get(_VARIABLE) == "1" if backend is None else bool(backend.get_tf32())

    @allow_tf32.setter
    def allow_tf32(self, allow: Any) -> None:
        os.environ[_VARIABLE] = str(int(bool(allow)))
        backend = sys.modules.get("lucid.storage.cupy_backend")
        if backend is not None:
            backend.set_tf32(bool(allow))


class _Cuda:
    """`lucid.backends.cuda`."""

    matmul = _Matmul()


cuda = _Cuda()


def set_float32_matmul_precision(precision: str) -> None:
    """Nothing; "highest" computes products of float32 matrices in float32, "high" and "medium" in TF32.

    That is on CUDA; the CPU does not change. Raises LucidError for another word.

    >>> import lucid
    >>> lucid.set_float32_matmul_precision("highest")
    """
    if precision not in _TF32:
        raise ValueError(
            f"set_float32_matmul_precision: expected one of {', '.join(_TF32)}, got {precision!r}"
        )
    cuda.matmul.allow_tf32 = _TF32[precision]


def get_float32_matmul_precision() -> str:
    """The precision of float32 matrix products: "highest" or "high".

    >>> import lucid
    >>> lucid.get_float32_matmul_precision()
    'highest'
    """
    return "high" if cuda.matmul.allow_tf32 else "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Nothing; sums by index on CUDA have a fixed order from now on, or with False none.

    Then they (the backward passes of indexing and embeddings, `index_add`, `scatter_add`, ...) are atomic
    additions, which need no sort and differ in the last place from run to run. The default is True: two runs
    give the same bits. warn_only is PyTorch's and has no effect.

    >>> import lucid
    >>> lucid.use_deterministic_algorithms(True)
    >>> lucid.are_deterministic_algorithms_enabled()
    True
    """
    fixed_order(bool(mode))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether sums by index have a fixed order on CUDA, as by default.

    >>> import lucid
    >>> lucid.are_deterministic_algorithms_enabled()
    True
    """
    return fixed_order()
