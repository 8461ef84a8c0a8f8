"""RawKernel and RawModule: the CUDA source runs on the CPU through lucid.testing.cusim."""

from __future__ import annotations

import bisect
import ctypes
from typing import Any

import numpy as np

from .. import cusim
from .array import is_scalar, ndarray, unsupported
from .cuda import CUDADriverError
from .memory import CURRENT, Adopted, Block, DevicePool, MemoryPointer, RedzoneError
from .state import COUNT, SETTINGS, NotInStandin

DEFAULT_DYNAMIC_SHARED = 48 * 1024
MAX_SHARED = 227 * 1024  # bytes per block, compute capability 9.0


class CompileException(Exception):
    """cupy.cuda.compiler.CompileException: the message of the compiler, with file and line."""

    def __init__(
        self, msg: str, source: str, name: str, options: tuple[str, ...], backend: str = "nvrtc"
    ) -> None:
        super().__init__(msg)
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend

    def get_message(self) -> str:
        """The message of the compiler."""
        return self._msg

    def __str__(self) -> str:
        return self._msg


def _check_options(options: Any) -> tuple[str, ...]:
    if not isinstance(options, tuple):
        raise TypeError(
            f"Argument 'options' has incorrect type (expected tuple, got {type(options).__name__})"
        )
    return options


class RawModule:
    """The kernels of a CUDA source; see cupy.RawModule."""

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: Any = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Any = None,
        jitify: Any = None,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if path is not None:
            raise NotInStandin("RawModule(path=...) loads a cubin, which a CPU cannot run: pass code=")
        if jitify or enable_cooperative_groups or translate_cucomplex:
            raise NotInStandin("jitify, cooperative groups and translate_cucomplex")
        if name_expressions is not None and backend != "nvrtc":
            raise ValueError(
                "only nvrtc supports retrieving the mangled names for the given name expressions"
            )
        self.code, self.options, self.backend = code, _check_options(options), backend
        self.name_expressions, self.file_path, self.enable_cooperative_groups = name_expressions, None, False
        self._modules: dict[tuple[str, bool], cusim.Module] = {}

    def _module(self) -> cusim.Module:
        key = (SETTINGS.mode, SETTINGS.coverage)
        if key not in self._modules:
            try:
                self._modules[key] = cusim.Module(
                    self.code or "",
                    self.options,
                    tuple(self.name_expressions or ()),
                    mode=SETTINGS.mode,
                    coverage=SETTINGS.coverage,
                )
            except cusim.CompileError as e:
                raise CompileException(
                    str(e), self.code or "", "kernel.cu", self.options, self.backend
                ) from e
        return self._modules[key]

    def compile(self, log_stream: Any = None) -> None:
        """Compiles now instead of at first use."""
        self._module()

    def get_function(self, name: str) -> RawKernel:
        """The kernel `name`: extern "C", or one of the name expressions."""
        m = self._module()
        if name not in m.kernels or not (m.has_c_linkage(name) or name in (self.name_expressions or ())):
            raise CUDADriverError(500, "CUDA_ERROR_NOT_FOUND: named symbol not found")
        return RawKernel._of(self, name)

    def get_global(self, name: str) -> Any:
        """Not modelled."""
        raise NotInStandin("RawModule.get_global")


class RawKernel:
    """One kernel; call it with (grid, block, args, shared_mem=0); see cupy.RawKernel."""

    def __init__(
        self,
        code: str,
        name: str,
        options: Any = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: Any = None,
    ) -> None:
        self._init(
            RawModule(
                code=code,
                options=options,
                backend=backend,
                translate_cucomplex=translate_cucomplex,
                enable_cooperative_groups=enable_cooperative_groups,
                jitify=jitify,
            ),
            name,
        )

    def _init(self, module: RawModule, name: str) -> None:
        self._owner, self.name = module, name
        self.code, self.options, self.backend = module.code, module.options, module.backend
        self._max_dynamic = DEFAULT_DYNAMIC_SHARED
        self.preferred_shared_memory_carveout = -1
        self.max_threads_per_block, self.num_regs, self.local_size_bytes, self.const_size_bytes = (
            1024,
            0,
            0,
            0,
        )

    @classmethod
    def _of(cls, module: RawModule, name: str) -> RawKernel:
        k = cls.__new__(cls)
        k._init(module, name)
        return k

    def compile(self, log_stream: Any = None) -> None:
        """Compiles now instead of at first use."""
        self._owner.compile()

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The most dynamic shared memory that a launch may ask for; 48 KiB unless set."""
        return self._max_dynamic

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, n: int) -> None:
        if n > MAX_SHARED:
            raise CUDADriverError(1, "CUDA_ERROR_INVALID_VALUE: invalid argument")
        self._max_dynamic = int(n)

    @property
    def shared_size_bytes(self) -> int:
        """Static shared memory that the latest launch used; 0 before the first."""
        return self._owner._module().static_shared_bytes(self.name) or 0

    @property
    def attributes(self) -> dict[str, int]:
        """The attributes that are modelled."""
        return {
            "max_threads_per_block": 1024,
            "shared_size_bytes": self.shared_size_bytes,
            "max_dynamic_shared_size_bytes": self._max_dynamic,
        }

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, stream: Any = None) -> None:
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError(
                f"grid and block must be tuples, got {type(grid).__name__} and {type(block).__name__}"
            )
        if shared_mem > self._max_dynamic:
            raise CUDADriverError(
                1,
                f"CUDA_ERROR_INVALID_VALUE: invalid argument ({shared_mem} bytes of dynamic shared memory; "
                f"set {self.name}.max_dynamic_shared_size_bytes, now {self._max_dynamic})",
            )
        m = self._owner._module()
        params = m.parameters(self.name)
        guards = _Guards()
        values = [guards.array(a) if type(a) is ndarray else _argument(a) for a in args]
        for i, (a, p) in enumerate(zip(values, params, strict=False)):
            if isinstance(a, np.ndarray) and not p.pointer and p.kind != "V":
                raise cusim.KernelError(f"{self.name}: argument {i} is a device array, the kernel takes {p}")
        COUNT.launches += 1
        COUNT.raw += 1
        COUNT.moved(a._raw for a in args if type(a) is ndarray)
        try:
            m.launch(
                self.name,
                grid,
                block,
                values,
                shared_mem=int(shared_mem),
                order=SETTINGS.order,
                seed=SETTINGS.seed + COUNT.raw,
                memory=_reachable(params, args),
            )
        except cusim.KernelError as e:
            if "grid (" in str(e) or " threads; allowed" in str(e):
                raise CUDADriverError(1, f"CUDA_ERROR_INVALID_VALUE: invalid argument ({e})") from e
            raise
        try:
            guards.finish()
            for a in args:
                if isinstance(getattr(a, "_mem", None), Block):
                    a._mem.check()
        except RedzoneError as e:
            raise RedzoneError(f"{self.name}<<<{grid}, {block}>>>: {e}; mode 'checked' says where") from None


class _Guards:
    """Redzones for arrays whose memory is NumPy's: the kernel works on a copy in a block."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Adopted, Block, np.ndarray]] = {}

    def array(self, x: ndarray) -> np.ndarray:
        """What the kernel gets for `x`."""
        if not isinstance(x._mem, Adopted) or SETTINGS.mode == "checked" or not x._a.flags.c_contiguous:
            return x._a  # checked mode stops before the first access outside
        owner = x._mem.owner
        lo, hi = np.lib.array_utils.byte_bounds(owner)
        if id(x._mem) not in self._blocks:
            block = Block(_SCRATCH, hi - lo)
            memory: Any = (ctypes.c_char * (hi - lo)).from_address(lo) if hi > lo else b""
            original = np.ndarray(hi - lo, np.uint8, memory)
            block.buffer[...] = original
            self._blocks[id(x._mem)] = (x._mem, block, original)
        block = self._blocks[id(x._mem)][1]
        return np.ndarray(
            x.shape, x.dtype, block.buffer.data if hi > lo else None, x._a.ctypes.data - lo if x.size else 0
        )

    def finish(self) -> None:
        """Copies back, and raises RedzoneError when the kernel wrote outside."""
        for _, block, original in self._blocks.values():
            original[...] = block.buffer
            block.check()


_SCRATCH = DevicePool()


def _argument(a: Any) -> Any:
    if isinstance(a, MemoryPointer):
        return np.uint64(a.ptr)
    if isinstance(a, np.ndarray):
        if a.size != 1 and a.dtype.kind != "V":
            raise TypeError(
                f"You are trying to pass a numpy.ndarray of shape {a.shape} as a kernel parameter. "
                "Only numpy.ndarrays of size one can be passed by value."
            )
        return a.reshape(())[()]
    if isinstance(a, bool):
        return np.bool_(a)
    if isinstance(a, int):
        return np.int64(a)
    if isinstance(a, float):
        return np.float64(a)
    if isinstance(a, complex):
        return np.complex128(a)
    if a is None or is_scalar(a) or isinstance(a, np.void):
        return a
    raise unsupported(a)


def _reachable(params: Any, args: Any) -> list[np.ndarray]:
    """The memory of the arrays whose addresses the launch was given, in tables or as numbers: what the kernel
    may touch in checked mode beside its array arguments.

    A table is an array for a parameter `T**` or `unsigned long long*`. An address stands for the whole array
    in which it lies; numbers that lie in no live array are none.
    """
    if SETTINGS.mode != "checked":
        return []
    listed: set[int] = set()
    for p, a in zip(params, args, strict=False):
        if p.pointer and type(a) is ndarray:
            if p.kind == "P" or (p.kind == "u" and p.size == 8):
                listed.update(a._raw.reshape(-1).tolist())
        elif p.pointer and isinstance(a, (int, np.integer, MemoryPointer)):
            listed.add(int(a))
    listed.discard(0)
    if not listed:
        return []
    live = sorted((b.start, b.start + b.nbytes) for b in list(CURRENT.pool.here()._live) if b.nbytes)
    starts = [start for start, _ in live]
    found = {live[i - 1] for a in listed if (i := bisect.bisect_right(starts, a)) and a < live[i - 1][1]}
    return [
        np.ndarray(end - start, np.uint8, (ctypes.c_char * (end - start)).from_address(start))
        for start, end in found
    ]
