"""Switches of the libraries below: `lucid.backends.cuda.matmul.allow_tf32`, `lucid.backends.cudnn`,
`set_float32_matmul_precision`.

>>> from lucid import backends
>>> backends.get_float32_matmul_precision()
'highest'
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

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
        if allow:
            cudnn._tf32 = True


class _Cuda(ModuleType):
    """`lucid.backends.cuda`."""

    matmul = _Matmul()

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


def set_float32_matmul_precision(precision: str) -> None:
    """Nothing; "highest" computes products of float32 matrices in float32, "high" and "medium" may use TF32
    on CUDA. The CPU does not change.
    """
    if precision not in _TF32:
        raise ValueError(
            f"set_float32_matmul_precision: expected one of {', '.join(_TF32)}, got {precision!r}"
        )
    cuda.matmul.allow_tf32 = _TF32[precision]


def get_float32_matmul_precision() -> str:
    """ "highest" or "high"."""
    return "high" if cuda.matmul.allow_tf32 else "highest"
