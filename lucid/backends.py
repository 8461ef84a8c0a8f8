"""Switches of the libraries below: `lucid.backends.cuda.matmul`, `lucid.backends.cudnn`,
`set_float32_matmul_precision`; and whether CUDA may add in any order.

>>> from lucid import backends
>>> backends.get_float32_matmul_precision()
'highest'
>>> backends.cuda.matmul.provider
'default'
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from .kernel import products
from .storage.order import fixed_order

# CuPy reads this variable at its first float32 product; later the backend is told directly.
_VARIABLE = "CUPY_TF32"
PRECISIONS = ("highest", "high", "medium")


class _Matmul:
    """How products of matrices are computed on CUDA."""

    @property
    def allow_tf32(self) -> bool:
        """Whether those of float32 may use TF32 tensor cores (compute capability 8.0 on): mantissas of 10
        bits instead of 23, sums in float32.
        """
        return products.precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allow: Any) -> None:
        _set_precision("high" if allow else "highest")

    @property
    def provider(self) -> str:
        """Who computes them: "default" (the table in lucid/kernel/products.py), "cublas" or "cublaslt"; what
        cublaslt does not support goes to cublas. LUCID_GEMM sets the start value. cublaslt has not yet been
        run on a GPU.
        """
        return products.preferred()

    @provider.setter
    def provider(self, name: str) -> None:
        products.preferred(name)


class _Cuda(ModuleType):
    """`lucid.backends.cuda`."""

    matmul = _Matmul()

    @staticmethod
    def preferred_blas_library(backend: str | None = None) -> str:
        """`matmul.provider` under PyTorch's name: what it is, after setting it to `backend` unless None."""
        return products.preferred(backend)

    @staticmethod
    def is_built() -> bool:
        """Whether CuPy is installed; whether there is a device says `lucid.cuda.is_available`."""
        import importlib.util

        return importlib.util.find_spec("cupy") is not None


class _Cudnn(ModuleType):
    """`lucid.backends.cudnn`: PyTorch's switches of cuDNN, which is not used here.

    Convolutions are lucid's own kernels and matrix products: each has one algorithm, so there is nothing to
    search for (`benchmark`), and it gives the same bits in every run (`deterministic`). Both may be set and
    change nothing. `allow_tf32` permits TF32 in convolutions, which follow `cuda.matmul.allow_tf32`; False
    forbids it, and with it that of all products.

    >>> from lucid.backends import cudnn
    >>> cudnn.benchmark = True
    >>> cudnn.is_available(), cudnn.allow_tf32
    (False, True)
    """

    enabled = True
    benchmark = False
    benchmark_limit = 10
    deterministic = False
    _tf32 = True

    @property
    def allow_tf32(self) -> bool:
        """Whether convolutions may use TF32."""
        return self._tf32

    @allow_tf32.setter
    def allow_tf32(self, allow: Any) -> None:
        self._tf32 = bool(allow)
        if not allow:
            cuda.matmul.allow_tf32 = False

    @staticmethod
    def is_available() -> bool:
        """False: cuDNN is not used."""
        return False

    @staticmethod
    def version() -> None:
        """None: cuDNN is not used."""

    @contextmanager
    def flags(self, enabled: bool = True, benchmark: bool = False, benchmark_limit: int = 10,
              deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
        """A context with these settings."""
        given = dict(enabled=enabled, benchmark=benchmark, benchmark_limit=benchmark_limit,
                     deterministic=deterministic, allow_tf32=allow_tf32)
        before, matmul = {name: getattr(self, name) for name in given}, cuda.matmul.allow_tf32
        try:
            for name, value in given.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            if matmul:
                cuda.matmul.allow_tf32 = True


class _Mps(ModuleType):
    """`lucid.backends.mps`: Apple's GPUs, for which there is no backend."""

    @staticmethod
    def is_available() -> bool:
        """False."""
        return False

    @staticmethod
    def is_built() -> bool:
        """False."""
        return False


def _submodule(kind: type[ModuleType]) -> Any:
    # In sys.modules, so that `import lucid.backends.cudnn as cudnn` finds it.
    name = f"{__name__}.{kind.__name__[1:].lower()}"
    return sys.modules.setdefault(name, kind(name, kind.__doc__))


cuda: _Cuda = _submodule(_Cuda)
cudnn: _Cudnn = _submodule(_Cudnn)
mps: _Mps = _submodule(_Mps)


def _set_precision(precision: str) -> None:
    products.precision(precision)
    allow = precision != "highest"
    os.environ[_VARIABLE] = str(int(allow))
    backend = sys.modules.get("lucid.storage.cupy_backend")
    if backend is not None:
        backend.set_tf32(allow)
    if allow:
        cudnn._tf32 = True


def set_float32_matmul_precision(precision: str) -> None:
    """Nothing; sets how products of float32 matrices are computed on CUDA.

    precision: "highest" is float32, "high" may use TF32, "medium" also parts in bfloat16 (with cublaslt; in
    cublas it is "high"). The CPU does not change. Raises ValueError for another word.

    >>> import lucid
    >>> lucid.set_float32_matmul_precision("highest")
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"set_float32_matmul_precision: expected one of {', '.join(PRECISIONS)}, got {precision!r}"
        )
    _set_precision(precision)


def get_float32_matmul_precision() -> str:
    """The precision of float32 matrix products: "highest", "high" or "medium".

    >>> import lucid
    >>> lucid.get_float32_matmul_precision()
    'highest'
    """
    return products.precision()


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
