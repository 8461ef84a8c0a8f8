"""Launching: a kernel's arguments are checked against its row in `specs`, made NumPy scalars, and queued."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import KernelError
from . import loader
from .specs import KERNELS, Argument, Kernel

Check = Callable[[tuple[Any, ...], dict[str, int]], tuple[Any, ...]]

NULL = np.uintp(0)
_SCALARS = {"i32": np.int32, "i64": np.int64, "u64": np.uint64}
_ARRAYS = {
    "W": ("int8", "int32"),
    "u8": ("uint8", "bool"),
    "i32": ("int32",),
    "i64": ("int64",),
    "u64": ("uint64",),
}
_DTYPES = {
    "float64": np.dtype("float64"),
    "float32": np.dtype("float32"),
    "float16": np.dtype("float16"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
_BITS = {np.int32: 31, np.int64: 63, np.uint64: 64}


def accumulator(dtype: Any) -> Any:
    """The dtype in which elements of `dtype` are summed: float64 for float64, else float32."""
    return _DTYPES["float64"] if dtype.itemsize == 8 else _DTYPES["float32"]


class Launcher:
    """Queues kernels on one device: called with a kernel's name, launch shape and arguments (see `calls`).

    Raises KernelError, before anything is queued, when an array has another dtype, device or size than the
    kernel reads, is not C-contiguous or not aligned, or a number does not fit; `Unavailable` when the kernel
    does not compile.
    """

    def __init__(self, backend: Any) -> None:
        self.backend, self.xp = backend, backend.xp
        self.sms = int(backend.properties()["multiProcessorCount"])
        self._index = backend.index
        self._ready: dict[Any, tuple[Any, Check]] = {}

    def __call__(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        dtype: Any,
        defines: tuple[str, ...] = (),
        **sizes: int,
    ) -> None:
        key = (name, dtype, defines)
        ready = self._ready.get(key)
        if ready is None:
            kernel = KERNELS[name]
            found = loader.function(self.backend, name, dtype.name, (*kernel.defines, *defines))
            check = checker(
                kernel, dtype, "LUCID_SCALAR" in defines, tuple(sizes), self.address, self.backend.ndarray
            )
            ready = self._ready[key] = found, check
        ready[0](grid, block, ready[1](args, sizes))

    def address(self, x: Any) -> int:
        """The device address of an array; KernelError when it lies on another device."""
        data = x.data
        if data.device_id != self._index:
            raise KernelError(
                f"kernel: expected an array on {self.backend.device}, got one on cuda:{data.device_id}; move "
                "it with .to()"
            )
        return int(data.ptr)

    def empty(self, shape: Any, dtype: Any) -> Any:
        """An uninitialised array on the device."""
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: Any, dtype: Any) -> Any:
        """An array of zeros on the device."""
        return self.xp.zeros(shape, dtype)

    def upload(self, x: Any) -> Any:
        """A copy of a NumPy array on the device."""
        return self.backend.from_numpy(x)


_launchers: dict[Any, Launcher] = {}


def launcher(backend: Any) -> Launcher:
    """The launcher of a backend's device."""
    found = _launchers.get(backend)
    if found is None:
        found = _launchers[backend] = Launcher(backend)
    return found


def checker(
    kernel: Kernel, dtype: Any, scalar: bool, extra: tuple[str, ...], address: Any, ndarray: type
) -> Check:
    """A function (args, sizes) -> arguments as `prepare` gives them, generated for one kernel and dtype.

    One condition, without loops and dictionaries, says whether all is well; when it does not hold, `prepare`
    says what is wrong. extra: the names in `sizes`.
    """
    names = [f"a_{a.name}" for a in kernel.parsed]
    known = {a.name: f"a_{a.name}" for a in kernel.parsed if a.size is None}
    known |= {name: f"sizes[{name!r}]" for name in extra}
    conditions, results, aligned = [], [], []
    for a, name in zip(kernel.parsed, names, strict=True):
        if a.size is None:
            results.append(f"wide.type({name})" if a.kind == "A" else f"{a.kind}({name})")
            if a.kind != "A":
                bits = _BITS[_SCALARS[a.kind]]
                conditions.append(f"{-(1 << bits) if a.kind != 'u64' else 0} <= {name} < {1 << bits}")
            continue
        results.append(f"NULL if {name} is None else {name}" if a.optional else name)
        own = {"T": "dtype", "A": "wide"}.get(a.kind)
        condition = f"isinstance({name}, ndarray) and {name}.flags.c_contiguous and "
        condition += f"{name}.dtype == {own}" if own else f"{name}.dtype in of_{a.kind}"
        words = set(re.findall(r"[A-Za-z_]\w*", a.size)) - {"if", "else"}
        if words <= set(known):
            size = re.sub(r"[A-Za-z_]\w*", lambda m: known.get(m[0], m[0]), a.size)
            condition += f" and {name}.size == ({size})"
        conditions.append(f"({name} is None or {condition})" if a.optional else condition)
        if kernel.vector and not scalar and a.kind == "T":
            aligned.append(
                f"(0 if {name} is None else address({name}))" if a.optional else f"address({name})"
            )
        else:
            conditions.append(
                f"({name} is None or address({name}) >= 0)" if a.optional else f"address({name}) >= 0"
            )
    if aligned:
        conditions.append(f"not ({' | '.join(aligned)}) & 15")
    source = (
        f"def check(args, sizes):\n    if len(args) != {len(names)}: return slow(args, sizes)\n"
        f"    {', '.join(names)}, = args\n    if not ({' and '.join(conditions)}): return slow(args, sizes)\n"
        f"    return ({', '.join(results)},)\n"
    )

    def slow(args: tuple[Any, ...], sizes: dict[str, int]) -> tuple[Any, ...]:
        return prepare(kernel, args, dtype, scalar, sizes, address, ndarray)

    scope = {
        "slow": slow,
        "dtype": dtype,
        "wide": accumulator(dtype),
        "ndarray": ndarray,
        "address": address,
        "NULL": NULL,
        **_SCALARS,
        **{f"of_{kind}": tuple(map(np.dtype, names_)) for kind, names_ in _ARRAYS.items()},
    }
    exec(compile(source, f"<lucid check {kernel.name}>", "exec"), scope)
    return scope["check"]


def prepare(
    kernel: Kernel,
    args: tuple[Any, ...],
    dtype: Any,
    scalar: bool,
    sizes: dict[str, int],
    address: Any,
    ndarray: type,
) -> tuple[Any, ...]:
    """The arguments as the kernel takes them.

    Arrays, NumPy scalars and null addresses. Raises KernelError for what does not fit.
    """
    if len(args) != len(kernel.parsed):
        raise KernelError(
            f"kernel {kernel.name}: takes {len(kernel.parsed)} arguments ({kernel.arguments}), got "
            f"{len(args)}"
        )
    if dtype.name not in kernel.dtypes:
        raise KernelError(f"kernel {kernel.name}: is made for {', '.join(kernel.dtypes)}, got {dtype.name}")
    names = {**sizes, **{a.name: v for a, v in zip(kernel.parsed, args, strict=True) if type(v) is int}}
    result = []
    for argument, value in zip(kernel.parsed, args, strict=True):
        if argument.size is None:
            result.append(_scalar(kernel, argument, value, dtype))
        elif value is None:
            if not argument.optional:
                raise KernelError(f"kernel {kernel.name}: {argument.name} must be an array, got None")
            result.append(NULL)
        else:
            _check_array(kernel, argument, value, dtype, names, ndarray)
            # Elements are read by packs of 16 bytes, single numbers and accumulators of rows one by one.
            align = (
                16
                if kernel.vector and not scalar and argument.kind == "T" and value.size > 1
                else value.dtype.itemsize
            )
            if address(value) % align:
                raise KernelError(
                    f"kernel {kernel.name}: {argument.name} must start at a multiple of {align} bytes, got "
                    f"address {address(value):#x}; "
                    "launch the form with LUCID_SCALAR"
                )
            result.append(value)
    return tuple(result)


def _scalar(kernel: Kernel, argument: Argument, value: Any, dtype: Any) -> Any:
    if argument.kind == "A":
        return accumulator(dtype).type(value)
    kind = _SCALARS[argument.kind]
    if not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
        raise KernelError(f"kernel {kernel.name}: {argument.name} must fit in {argument.kind}, got {value}")
    return kind(value)


def _check_array(
    kernel: Kernel, argument: Argument, value: Any, dtype: Any, names: dict[str, int], ndarray: type[Any]
) -> None:
    if not isinstance(value, ndarray):
        raise KernelError(
            f"kernel {kernel.name}: {argument.name} must be a device array, got {type(value).__name__}"
        )
    expected = (
        (dtype.name,)
        if argument.kind == "T"
        else (accumulator(dtype).name,)
        if argument.kind == "A"
        else _ARRAYS[argument.kind]
    )
    if value.dtype.name not in expected:
        raise KernelError(
            f"kernel {kernel.name}: {argument.name} must be {' or '.join(expected)}, got {value.dtype.name}"
        )
    if not value.flags.c_contiguous:
        raise KernelError(
            f"kernel {kernel.name}: {argument.name} must be C-contiguous, got shape {value.shape} with "
            f"strides {value.strides}; "
            "a kernel sees only the address"
        )
    try:
        size = eval(str(argument.size), {}, names)
    except NameError:
        return
    if value.size != size:
        raise KernelError(
            f"kernel {kernel.name}: {argument.name} must have {size} elements ({kernel.arguments}), got "
            f"{value.size}"
        )
