"""lucid: automatic differentiation in PyTorch's programming model on NumPy and CuPy arrays.

>>> import lucid
>>> x = lucid.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x ** 2).sum().backward()
>>> x.grad
tensor([2., 4., 6.])
"""

from __future__ import annotations

import importlib as _importlib
import math as _math
from typing import Any as _Any

from . import autograd as autograd
from . import errors as errors
from .autograd.mode import enable_grad as enable_grad
from .autograd.mode import inference_mode as inference_mode
from .autograd.mode import is_grad_enabled as is_grad_enabled
from .autograd.mode import no_grad as no_grad
from .autograd.mode import set_grad_enabled as set_grad_enabled
from .storage.device import Device as device  # noqa: F401  (exported)
from .storage.device import set_default_device as set_default_device
from .storage.dtype import bfloat16 as bfloat16
from .storage.dtype import bool_ as bool  # noqa: F401  (exported)
from .storage.dtype import complex64 as complex64
from .storage.dtype import complex128 as complex128
from .storage.dtype import float16 as float16
from .storage.dtype import float32 as float32
from .storage.dtype import float64 as float64
from .storage.dtype import get_default_dtype as get_default_dtype
from .storage.dtype import int8 as int8
from .storage.dtype import int16 as int16
from .storage.dtype import int32 as int32
from .storage.dtype import int64 as int64
from .storage.dtype import set_default_dtype as set_default_dtype
from .storage.dtype import uint8 as uint8
from .tensor import Parameter as Parameter
from .tensor import Tensor as Tensor
from .tensor import is_tensor as is_tensor
from .tensor import tensor as tensor

__version__ = "0.1.0"

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
cfloat, cdouble = complex64, complex128
pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None

_NO_NAMES = (type(annotations), type(_math))  # what stands in this module without being its content
_SUBMODULES = frozenset(
    (
        "accelerator",
        "amp",
        "array_api",
        "autograd",
        "backends",
        "cuda",
        "datasets",
        "distributed",
        "distributions",
        "errors",
        "examples",
        "fft",
        "func",
        "functional",
        "fusion",
        "io",
        "linalg",
        "multiprocessing",
        "nn",
        "optim",
        "profiler",
        "random",
        "serialization",
        "settings",
        "special",
        "testing",
        "utils",
    )
)
_SETTINGS = (
    *("Size", "channels_last", "channels_last_3d", "contiguous_format", "get_default_device"),
    *("get_num_threads", "layout", "memory_format", "preserve_format"),
    *("set_default_tensor_type", "set_num_threads", "set_printoptions", "strided"),
)
_AMP = ("GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled")
_ELSEWHERE = {
    "manual_seed": ".random",
    "seed": ".random",
    "initial_seed": ".random",
    "get_rng_state": ".random",
    "set_rng_state": ".random",
    "Generator": ".storage.random",
    "set_float32_matmul_precision": ".backends",
    "get_float32_matmul_precision": ".backends",
    "use_deterministic_algorithms": ".backends",
    "are_deterministic_algorithms_enabled": ".backends",
    **dict.fromkeys(_SETTINGS, ".settings"),
    **dict.fromkeys(_AMP, ".amp"),
    "OutOfMemoryError": ".errors",
    "save": ".io",
    "load": ".io",
}

from . import fusion as fusion  # noqa: E402  (puts the pass into the engine)
from .functional import PUBLIC as _PUBLIC  # noqa: E402  (attaches the methods that are overloads)
from .functional.out import lookup as _lookup  # noqa: E402
from .fusion import fuse as fuse  # noqa: E402


def __getattr__(name: str) -> _Any:
    """Public functions and submodules, made at their first use: recorders are generated, and nn is
    imported, only when asked for.
    """
    found = _lookup(name)
    if found is None:
        if name in _SUBMODULES:
            return _importlib.import_module(f"{__name__}.{name}")
        if name in _ELSEWHERE:
            found = getattr(_importlib.import_module(_ELSEWHERE[name], __name__), name)
        else:
            raise AttributeError(f"module 'lucid' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Every public name."""
    from .autograd.record import OPS

    names = (
        {n for n, v in globals().items() if not n.startswith("_") and type(v) not in _NO_NAMES}
        | {n for n in _PUBLIC if "." not in n}
        | {n for n, op in OPS.items() if op.public}
    )
    return sorted(names | _SUBMODULES | set(_ELSEWHERE))
