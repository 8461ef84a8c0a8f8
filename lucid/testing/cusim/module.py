"""Modules of kernels: loading, checking arguments, launching, reading reports."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import LucidError
from . import compiler
from .compiler import build

ORDERS = {"forward": 0, "reverse": 1, "random": 2}
MODES = ("fast", "checked")
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_STATIC_SHARED = 48 * 1024  # bytes; the limit of every architecture
MAX_SHARED = 227 * 1024  # bytes per block, compute capability 9.0
TIMEOUT = float(os.environ.get("LUCID_CUSIM_TIMEOUT", "60"))  # seconds of processor time per launch
_lock = threading.RLock()  # the state of a module is global to it
# Libraries whose fibers hold stacks, the one that ran last at the end. A block of 1,024 threads with
# barriers takes 2,048 of the 65,530 memory mappings that Linux gives a process.
_with_stacks: dict[Path, Any] = {}
_MOST_WITH_STACKS = 12


def _make_room(path: Path, lib: Any) -> None:
    """Nothing; takes the stacks back from the libraries that have not run for longest."""
    _with_stacks.pop(path, None)
    _with_stacks[path] = lib
    while len(_with_stacks) > _MOST_WITH_STACKS:
        _with_stacks.pop(next(iter(_with_stacks))).cusim_release()


class KernelError(LucidError):
    """A launch that is refused, or did something a GPU would not forgive; `reports` holds the findings."""

    def __init__(self, message: str, reports: Sequence[Report] = ()) -> None:
        super().__init__(message)
        self.reports = tuple(reports)


@dataclass(frozen=True)
class Report:
    """One finding: what, where in the source, which block and thread met it first, and how often it came.

    callers: (file, line) of the calls that lead there, innermost first, when the place lies in a function
    that was inlined.
    """

    kind: str
    text: str
    file: str
    line: int
    block: tuple[int, int, int]
    thread: int
    times: int
    callers: tuple[tuple[str, int], ...] = ()

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """(file, line) of the access and of its callers, innermost first."""
        return (self.file, self.line), *self.callers

    def __str__(self) -> str:
        who = f"block {self.block}" + (f" thread {self.thread}" if self.thread >= 0 else "")
        more = f", {self.times} times" if self.times > 1 else ""
        chain = "".join(f", called from {file}:{line}" for file, line in self.callers)
        return f"{self.file}:{self.line}: {self.kind}: {self.text} [{who}{more}]{chain}"


@dataclass(frozen=True)
class Traffic:
    """Memory requests of one source line: 32-byte sectors of a warp (global) or wavefronts (shared).

    callers: as those of a Report.
    """

    file: str
    line: int
    space: str
    access: str
    bytes: int
    requests: int
    units: int
    ideal: int
    conflicts: int
    callers: tuple[tuple[str, int], ...] = ()

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """(file, line) of the access and of its callers, innermost first."""
        return (self.file, self.line), *self.callers


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter: `kind` is f, i, u, b, e (half), E (bfloat16), P (pointer) or V (a struct)."""

    kind: str
    pointer: bool
    const: bool
    size: int
    align: int

    def __str__(self) -> str:
        names = {
            "f": "float",
            "i": "int",
            "u": "uint",
            "b": "bool",
            "e": "half",
            "E": "bfloat16",
            "P": "pointer",
        }
        base = names.get(self.kind, "struct") + str(8 * self.size)
        return ("const " if self.const else "") + base + ("*" if self.pointer else "")


class _Param(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char),
        ("pointer", ctypes.c_byte),
        ("constant", ctypes.c_byte),
        ("pad", ctypes.c_byte),
        ("size", ctypes.c_int),
        ("align", ctypes.c_int),
    ]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_ulong),
        ("seed", ctypes.c_ulong),
        ("order", ctypes.c_int),
        ("ftz", ctypes.c_int),
        ("timeout", ctypes.c_double),
        ("first", ctypes.c_ulong),
        ("last", ctypes.c_ulong),
    ]


class _Report(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char * 32),
        ("text", ctypes.c_char * 200),
        ("file", ctypes.c_char_p),
        ("line", ctypes.c_int),
        ("pc", ctypes.c_ulong),
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_int),
        ("times", ctypes.c_int),
    ]


class _Region(ctypes.Structure):
    _fields_ = [
        ("lo", ctypes.c_size_t),
        ("hi", ctypes.c_size_t),
        ("readonly", ctypes.c_int),
        ("argument", ctypes.c_int),
    ]


class _Segment(ctypes.Structure):
    _fields_ = [("lo", ctypes.c_size_t), ("hi", ctypes.c_size_t)]


class _Traffic(ctypes.Structure):
    _fields_ = [
        ("pc", ctypes.c_ulong),
        ("kind", ctypes.c_int),
        ("shared", ctypes.c_int),
        ("bytes", ctypes.c_int),
        ("requests", ctypes.c_long),
        ("units", ctypes.c_long),
        ("ideal", ctypes.c_long),
        ("conflicts", ctypes.c_long),
    ]


# dtype names that a parameter kind takes, by kind + size; kernels that convert half precision by bit
# arithmetic declare it as unsigned short
_ACCEPTS = {
    "f4": {"float32"},
    "f8": {"float64"},
    "e2": {"float16"},
    "E2": {"bfloat16"},
    "b1": {"bool"},
    "i1": {"int8"},
    "i2": {"int16"},
    "i4": {"int32"},
    "i8": {"int64"},
    "u1": {"uint8", "bool"},
    "u2": {"uint16", "float16", "bfloat16"},
    "u4": {"uint32"},
    "u8": {"uint64"},
}


def _as_dim(value: Any) -> tuple[int, int, int]:
    dims = tuple(int(v) for v in (value if isinstance(value, Sequence) else (value,)))
    return (*dims, 1, 1, 1)[:3]  # type: ignore[return-value]


class Module:
    """The kernels of one CUDA source, ready to run on host memory.

    code: CUDA C++ source; options: as for cupy.RawModule (-D, -I, -std); name_expressions: template kernels.
    mode: "fast" or "checked" (bounds, races, alignment, uninitialised shared memory: about 20 times slower).
    coverage: count the executed lines, see `lucid.testing.cusim.coverage`.
    ftz: flush subnormals to zero, as CuPy compiles.  fma: contract a*b+c, as CuPy compiles; off by default
    because results are then those of the written formula.

    >>> import numpy as np
    >>> m = Module('extern "C" __global__ void twice(float* x, int n) {'
    ...            ' int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.f; }')
    >>> x = np.arange(3, dtype=np.float32)
    >>> m.launch("twice", 1, 32, (x, np.int32(3)))
    >>> x.tolist()
    [0.0, 2.0, 4.0]
    """

    def __init__(
        self,
        code: str,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] = (),
        *,
        filename: str = "kernel.cu",
        mode: str = "fast",
        coverage: bool = False,
        ftz: bool = True,
        fma: bool = False,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"cusim: mode must be one of {MODES}, got {mode!r}")
        self.checked, self.ftz, self.filename = mode == "checked", ftz, filename
        self._build = build(
            code,
            tuple(options),
            tuple(name_expressions),
            filename=filename,
            checked=self.checked,
            coverage=coverage,
            fma=fma,
        )
        self.path = self._build.path
        self.kernels = self._build.kernels
        self._lib = ctypes.PyDLL(str(self.path))  # keeps the GIL: one launch at a time
        self._lib.cusim_reports.restype = ctypes.POINTER(_Report)
        self._lib.cusim_static_shared.restype = ctypes.c_size_t
        self._calls = {n: getattr(self._lib, f"cusim_call_{i}") for i, n in enumerate(self.kernels)}
        self._params = {n: self._read_params(i) for i, n in enumerate(self.kernels)}
        self._static: dict[str, int] = {}
        if coverage:
            from .coverage import register

            register(self)

    @classmethod
    def from_file(cls, path: str | Path, options: Sequence[str] = (), **kwargs: Any) -> Module:
        """The Module of the CUDA file at `path`; its folder is on the include path."""
        path = Path(path)
        kwargs.setdefault("filename", str(path))
        return cls(path.read_text(), (*options, f"-I{path.parent}"), **kwargs)

    def _read_params(self, i: int) -> tuple[Parameter, ...]:
        out = (_Param * compiler._MAX_PARAMS)()
        n = getattr(self._lib, f"cusim_params_{i}")(out)
        return tuple(
            Parameter(p.kind.decode(), bool(p.pointer), bool(p.constant), p.size, p.align) for p in out[:n]
        )

    def has_c_linkage(self, name: str) -> bool:
        """Whether `name` is found by its plain name, i.e. declared extern "C"."""
        return name in self._build.extern_c

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """The parameters of the kernel `name`."""
        if name not in self._params:
            raise KernelError(
                f"{self.filename} has no kernel {name!r}; it has {', '.join(self.kernels) or 'none'}"
            )
        return self._params[name]

    def static_shared_bytes(self, name: str) -> int | None:
        """Bytes of static shared memory that `name` used in its latest launch; None before the first."""
        return self._static.get(name)

    def launch(
        self,
        name: str,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        order: str = "random",
        seed: int = 0,
        memory: Sequence[np.ndarray] = (),
        timeout: float | None = None,
        blocks: range | None = None,
    ) -> None:
        """Runs the kernel `name` and returns when it has ended; nothing is returned.

        grid, block: int or up to three.  args: C-contiguous NumPy arrays for pointers (None for a null
        pointer, an int for an address), NumPy scalars or Python numbers (int64, float64) for values.
        shared_mem: bytes of dynamic shared memory.  order: of threads and blocks, with `seed` for "random".
        memory: further arrays that the kernel reaches through pointers in memory (checked mode).
        timeout: seconds of processor time, else $LUCID_CUSIM_TIMEOUT, else 60; 0 for no limit.
        blocks: the numbers (x fastest) of those that run, of all that `grid` has; None: all.
        Raises KernelError for a wrong launch and for whatever the run found.
        """
        params = self.parameters(name)
        grid3, block3 = self._check_config(name, grid, block, shared_mem, order)
        every = range(math.prod(grid3))
        part = every if blocks is None else blocks
        if not part or part.step != 1 or part[0] not in every or part[-1] not in every:
            raise KernelError(f"{name}: blocks must be a part of {every}, got {blocks}")
        values, regions = self._convert(name, params, args)
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(v) for v in values])
        config = _Config(
            (ctypes.c_uint * 3)(*grid3),
            (ctypes.c_uint * 3)(*block3),
            shared_mem,
            seed,
            ORDERS[order],
            int(self.ftz),
            TIMEOUT if timeout is None else timeout,
            part.start,
            part.stop,
        )
        with _lock:
            if self.checked:
                extra = [(m.ctypes.data, m.ctypes.data + m.nbytes, 0, -1) for m in memory]
                self._set_regions(params, args, regions + extra)
            _make_room(self.path, self._lib)
            found = self._lib.cusim_launch(self._calls[name], pointers, ctypes.byref(config))
            self._static[name] = self._lib.cusim_static_shared()
            reports = self._read_reports(found, self._build.parameters.get(name, ())) if found else []
        if reports:
            raise KernelError(f"{name}<<<{grid3}, {block3}>>>: " + "\n".join(map(str, reports)), reports)
        if self._static[name] > MAX_STATIC_SHARED:
            raise KernelError(
                f"{name}: {self._static[name]} bytes of static shared memory, a GPU has {MAX_STATIC_SHARED}"
            )

    def _check_config(self, name: str, grid: Any, block: Any, shared_mem: int, order: str) -> tuple[Any, Any]:
        grid3, block3 = _as_dim(grid), _as_dim(block)
        if order not in ORDERS:
            raise ValueError(f"cusim: order must be one of {tuple(ORDERS)}, got {order!r}")
        if min(grid3) < 1 or any(g > m for g, m in zip(grid3, MAX_GRID, strict=True)):
            raise KernelError(f"{name}: grid {grid3} must lie between (1, 1, 1) and {MAX_GRID}")
        n = block3[0] * block3[1] * block3[2]
        if min(block3) < 1 or n > MAX_THREADS or block3[2] > 64:
            raise KernelError(
                f"{name}: block {block3} has {n} threads; allowed are 1 to {MAX_THREADS}, at most 64 in z"
            )
        if not 0 <= shared_mem <= MAX_SHARED:
            raise KernelError(
                f"{name}: {shared_mem} bytes of dynamic shared memory; a block has at most {MAX_SHARED}"
            )
        return grid3, block3

    def _convert(
        self, name: str, params: Sequence[Parameter], args: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        if len(args) != len(params):
            raise KernelError(
                f"{name} takes {len(params)} arguments ({', '.join(map(str, params))}), got {len(args)}"
            )
        values, regions = [], []
        for i, (a, p) in enumerate(zip(args, params, strict=True)):
            if p.pointer:
                address = self._pointer(name, i, a, p)
                values.append(ctypes.c_void_p(address))
                if isinstance(a, np.ndarray):
                    regions.append((address, address + a.nbytes, int(p.const), i))
            else:
                values.append(self._scalar(name, i, a, p))
        return values, regions

    def _pointer(self, name: str, i: int, a: Any, p: Parameter) -> int:
        if a is None:
            return 0
        if not isinstance(a, np.ndarray):
            if isinstance(a, (int, np.integer)) and not isinstance(a, (bool, np.bool_)):
                return int(a)
            raise KernelError(f"{name}: argument {i} is {type(a).__name__} {a!r}, the kernel takes {p}")
        if not a.flags.c_contiguous:
            raise KernelError(
                f"{name}: argument {i} of shape {a.shape} and strides {a.strides} is not C-contiguous; "
                "a kernel sees only the address: pass ascontiguousarray(x)"
            )
        accepted = _ACCEPTS.get(f"{p.kind}{p.size}")
        if p.kind == "P":
            accepted = {"uint64", "int64"}
        if accepted is not None and a.dtype.name not in accepted:
            raise KernelError(f"{name}: argument {i} is an array of {a.dtype.name}, the kernel takes {p}")
        if a.size and a.ctypes.data % p.align:
            raise KernelError(
                f"{name}: argument {i} starts at an address that is no multiple of {p.align} bytes, "
                f"the kernel takes {p}"
            )
        return int(a.ctypes.data)

    def _scalar(self, name: str, i: int, a: Any, p: Parameter) -> Any:
        if isinstance(a, np.ndarray) and a.size == 1 and p.kind != "V":
            a = a.reshape(())[()]
        v = np.asarray(a) if not isinstance(a, np.ndarray) else a
        same_kind = v.dtype.name in _ACCEPTS.get(f"{p.kind}{p.size}", ()) and not (
            p.kind == "u" and v.dtype.kind not in "ub"
        )
        if p.kind in "iu" and v.dtype.kind in "iu" and v.dtype.itemsize == p.size:
            n = int(v)
            same_kind = -(2 ** (8 * p.size - 1)) * (p.kind == "i") <= n < 2 ** (8 * p.size - (p.kind == "i"))
        if p.kind == "V":
            same_kind = v.nbytes == p.size
        if not same_kind:
            raise KernelError(
                f"{name}: argument {i} is {type(a).__name__} {a!r} ({v.dtype.name}), the kernel takes {p}; "
                "pass a NumPy scalar of that type"
            )
        return (ctypes.c_char * max(1, v.nbytes)).from_buffer_copy(v.tobytes())

    def _set_regions(self, params: Sequence[Parameter], args: Sequence[Any], regions: list[Any]) -> None:
        """Tells the checks which memory is legal, and their granule: the smallest element in play."""
        regions = [r for r in regions if r[1] > r[0]]
        sizes = [p.size for p in params if p.pointer and p.kind in "fiubeE"]
        sizes += [a.itemsize for a in args if isinstance(a, np.ndarray) and a.ndim]
        bits = min([2, *((s & -s).bit_length() - 1 for s in sizes if s)])
        segments: list[list[int]] = []
        for lo, hi, *_ in sorted(regions):
            if segments and lo <= segments[-1][1]:
                segments[-1][1] = max(segments[-1][1], hi)
            else:
                segments.append([lo, hi])
        segments = [[lo & ~3, hi] for lo, hi in segments]
        self._lib.cusim_regions(
            (_Region * max(1, len(regions)))(*[_Region(*r) for r in regions]),
            len(regions),
            (_Segment * max(1, len(segments)))(*[_Segment(*s) for s in segments]),
            len(segments),
            bits,
        )

    def _locate(self, pcs: Sequence[int]) -> dict[int, tuple[tuple[str, int], ...]]:
        """Source positions of offsets into the shared object: frames outside cusim's headers, innermost
        first.
        """
        pcs = sorted(set(pcs))
        if not pcs:
            return {}
        return dict(zip(pcs, _addr2line(str(self.path), tuple(pcs), self.filename), strict=True))

    def _read_reports(self, n: int, names: tuple[str, ...]) -> list[Report]:
        def named(m: re.Match[str]) -> str:
            return f"{m[0]} ({names[int(m[1])]})" if int(m[1]) < len(names) else m[0]

        raw = self._lib.cusim_reports()[:n]
        where = self._locate([r.pc for r in raw if not r.file and r.pc])
        out = []
        for r in raw:
            unknown = ((self.filename, 0),)
            (file, line), *callers = ((r.file.decode(), r.line),) if r.file else where.get(r.pc, unknown)
            out.append(
                Report(
                    r.kind.decode(),
                    re.sub(r"\bargument (\d+)$", named, r.text.decode(errors="replace")),
                    file,
                    line,
                    tuple(r.block),
                    r.thread,
                    r.times,
                    tuple(callers),
                )
            )
        return out

    def collect_traffic(self, on: bool = True) -> None:
        """Starts (and clears) or stops counting sectors and bank conflicts; checked mode only."""
        if not self.checked:
            raise ValueError("cusim: memory traffic is counted in checked mode only; use mode='checked'")
        self._lib.cusim_want_stats(int(on))

    def traffic(self) -> list[Traffic]:
        """Memory traffic per source line since `collect_traffic`, in the order of the source."""
        raw = (_Traffic * 256)()
        rows = list(raw[: self._lib.cusim_stats(raw, 256)])
        where = self._locate([r.pc for r in rows if r.pc])
        kinds = ("read", "write", "atomic")
        out = []
        for r in rows:
            (file, line), *callers = where.get(r.pc, ((self.filename, 0),))
            space = "shared" if r.shared else "global"
            counts = (r.bytes, r.requests, r.units, r.ideal, r.conflicts)
            out.append(Traffic(file, line, space, kinds[r.kind], *counts, tuple(callers)))
        return sorted(out, key=lambda t: (t.file, t.line, t.access))


@functools.lru_cache(maxsize=256)
def _addr2line(path: str, pcs: tuple[int, ...], filename: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    cmd = ["addr2line", "-a", "-i", "-e", path, *(hex(p) for p in pcs)]
    try:
        text = subprocess.run(cmd, capture_output=True, text=True).stdout
    except OSError:
        return tuple(((filename, 0),) for _ in pcs)
    out = []
    for frames in re.split(r"^0x[0-9a-f]+\n", text, flags=re.M)[1:]:
        lines = [f.split(" (")[0].rsplit(":", 1) for f in frames.strip().split("\n") if ":" in f]
        mine = [(f, int(n) if n.isdigit() else 0) for f, n in lines if f != "??"]
        mine = [(f, n) for f, n in mine if not f.startswith(f"{compiler.OWN}/") and f != "cusim_tail.h"]
        # "./" is where it was compiled (compiler.build).
        short = [(filename if f.endswith("/" + filename) else re.sub(r"^(\./)+", "", f), n) for f, n in mine]
        out.append(tuple(short) or ((filename, 0),))
    return tuple(out)
