"""Settings of a program under PyTorch's names: how tensors are printed, threads, default types, layouts."""

from __future__ import annotations

from enum import Enum
from typing import Any

from .errors import DtypeError
from .fusion import sweep as _sweep
from .storage.device import Device, default_device, set_default_device
from .storage.dtype import set_default_dtype
from .tensor import PRINT, Tensor


class memory_format(Enum):
    """The order of a tensor's dimensions in memory, which functions accept and do not use.

    Here it is always that of the shape, or of what a tensor views.

    >>> import lucid
    >>> x = lucid.zeros(1, 3, 4, 4).to(memory_format=lucid.channels_last)
    >>> x.is_contiguous()
    True
    """

    contiguous_format = 0
    channels_last = 1
    channels_last_3d = 2
    preserve_format = 3


class layout(Enum):
    """How a tensor is stored: always strided.

    >>> import lucid
    >>> lucid.strided
    <layout.strided: 0>
    """

    strided = 0


contiguous_format = memory_format.contiguous_format
channels_last = memory_format.channels_last
channels_last_3d = memory_format.channels_last_3d
preserve_format = memory_format.preserve_format
strided = layout.strided
Size = tuple

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 75},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 75},
    "full": {"precision": 4, "threshold": 1 << 62, "edgeitems": 3, "linewidth": 75},
}


def set_printoptions(precision: int | None = None, threshold: int | None = None,
                     edgeitems: int | None = None, linewidth: int | None = None, profile: str | None = None,
                     sci_mode: bool | None = None) -> None:
    """Nothing; sets how tensors are printed.

    precision: digits. threshold: up to so many elements are printed in full, of more `edgeitems` at each end
    of a dimension. profile: "default", "short" or "full". sci_mode: True for numbers with exponents, False
    for none.

    >>> import lucid
    >>> lucid.set_printoptions(precision=2)
    >>> lucid.tensor([1 / 3])
    tensor([0.33])
    >>> lucid.set_printoptions(profile="default")
    """
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile is one of {', '.join(_PROFILES)}, got {profile!r}")
        PRINT.clear()
        PRINT.update(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    PRINT.update({name: value for name, value in given.items() if value is not None})
    if sci_mode is not None:
        PRINT["sci_mode"] = sci_mode


def get_default_device() -> Device:
    """The device on which new tensors are made when none is named.

    >>> import lucid
    >>> lucid.get_default_device()
    device(type='cpu')
    """
    return default_device()


_TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"}


def set_default_tensor_type(t: Any) -> None:
    """Nothing; sets the default dtype and device from one of PyTorch's tensor types.

    t: a name ("torch.cuda.FloatTensor") or a type. New programs call `set_default_dtype` and
    `set_default_device`.

    >>> import lucid
    >>> lucid.set_default_tensor_type("torch.DoubleTensor")
    >>> lucid.zeros(1).dtype.name
    'float64'
    >>> lucid.set_default_tensor_type(lucid.FloatTensor)
    """
    name = t if isinstance(t, str) else f"{getattr(t, 'prefix', '')}{getattr(t, '__name__', t)}"
    *path, last = str(name).split(".")
    kind = _TYPES.get(last.removesuffix("Tensor"))
    if kind is None or not last.endswith("Tensor"):
        raise DtypeError(f"set_default_tensor_type: expected a floating type such as 'FloatTensor' or "
                         f"'cuda.DoubleTensor', got {t!r}")
    set_default_dtype(kind)
    set_default_device("cuda" if "cuda" in path else "cpu")


def get_num_threads() -> int:
    """The number of threads that share a long elementwise computation on the CPU.

    >>> import lucid
    >>> lucid.get_num_threads() >= 1
    True
    """
    return _sweep.width()


def set_num_threads(n: int) -> None:
    """Nothing; so many threads share a long elementwise computation on the CPU.

    Matrix products are those of NumPy's BLAS, which reads OMP_NUM_THREADS when it starts.

    >>> import lucid
    >>> before = lucid.get_num_threads()
    >>> lucid.set_num_threads(1)
    >>> lucid.set_num_threads(before)
    """
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"set_num_threads: expected an integer of at least 1, got {n!r}")
    with _sweep._lock:
        _sweep._threads, _sweep._pool = n, None


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero (waits for the device).

    >>> import lucid
    >>> lucid.is_nonzero(lucid.tensor([0.0]))
    False
    """
    return bool(input)
