"""What stands in for libcublasLt: C functions that read every descriptor as the library would, refuse what it
would refuse, and compute with NumPy on the addresses they are given.

The numbers are written down here a second time, from NVIDIA's cublasLt.h, so that a wrong one in
`lucid.kernel.cublaslt_api` does not agree with itself. `LIBRARY.calls` keeps what each product was asked for.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

# CUBLAS_STATUS_*
SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15
VERSION = 130002
# cudaDataType -> dtype, dtype in which it is summed
_TYPES: dict[int, tuple[Any, Any]] = {
    0: (np.float32, np.float32),  # CUDA_R_32F
    1: (np.float64, np.float64),  # CUDA_R_64F
    2: (np.float16, np.float32),  # CUDA_R_16F
    4: (np.complex64, np.complex64),  # CUDA_C_32F
    5: (np.complex128, np.complex128),  # CUDA_C_64F
    14: (ml_dtypes.bfloat16, np.float32),  # CUDA_R_16BF
}
# CUBLAS_COMPUTE_* -> data types, and scale types by data type where it is not the type itself
_COMPUTE = {68: (0, 2, 4, 14), 77: (0, 4), 75: (0,), 70: (1, 5)}
_SCALE = {2: 0, 14: 0}
# CUBLASLT_EPILOGUE_*
_DEFAULT, _RELU, _BIAS, _GELU, _BGRADB = 1, 2, 4, 32, 512
_EPILOGUES = (_DEFAULT, _BIAS, _RELU | _BIAS, _GELU | _BIAS, _BGRADB)
# Attributes: number -> name, type.
_ATTRIBUTES: dict[str, dict[int, tuple[str, Any]]] = {
    "operation": {
        0: ("compute", c_int32),
        1: ("scale", c_int32),
        3: ("transa", c_int32),
        4: ("transb", c_int32),
        7: ("epilogue", c_uint32),
        8: ("bias", c_uint64),
    },
    "layout": {
        0: ("type", c_uint32),
        2: ("rows", c_uint64),
        3: ("cols", c_uint64),
        4: ("ld", c_int64),
        5: ("batch", c_int32),
        6: ("step", c_int64),
    },
    "preference": {
        1: ("workspace", c_uint64),
        3: ("reduction", c_uint32),
        5: ("align_a", c_uint32),
        6: ("align_b", c_uint32),
        7: ("align_c", c_uint32),
        8: ("align_d", c_uint32),
    },
}


@dataclass
class Descriptor:
    """What lies behind a descriptor's address."""

    kind: str
    values: dict[str, int]


@dataclass
class Call:
    """One product: as the library sees it, column by column."""

    operation: dict[str, int]
    a: dict[str, int]
    b: dict[str, int]
    d: dict[str, int]
    alpha: complex
    beta: complex
    workspace: int
    workspace_bytes: int
    stream: int
    handle: int
    preference: dict[str, int] = field(default_factory=dict)


class _Refusal(Exception):
    """The status to return."""

    def __init__(self, status: int) -> None:
        self.status = status


def _require(condition: Any, status: int = INVALID_VALUE) -> None:
    if not condition:
        raise _Refusal(status)


class CublasLt:
    """A table of the library's functions.

    `refuse(operation, a, b, d)`: whether the heuristics find nothing.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.why: list[str] = []  # the Python errors behind INVALID_VALUE
        self.live: dict[int, Descriptor] = {}
        self.handles: set[int] = set()
        self.refuse: Any = None
        self._next = 1 << 12
        self._algorithms: list[tuple[Any, ...]] = []
        for name, (function, *types) in self._functions().items():
            setattr(self, name, CFUNCTYPE(c_int, *types)(self._guarded(function)))
        self.cublasLtGetVersion = CFUNCTYPE(c_size_t)(lambda: VERSION)

    def _guarded(self, function: Any) -> Any:
        def call(*args: Any) -> int:
            try:
                function(*[0 if a is None else a for a in args])
            except _Refusal as refusal:
                return refusal.status
            except Exception as error:
                self.why.append(f"{type(error).__name__}: {error}")
                return INVALID_VALUE
            return SUCCESS

        return call

    def _functions(self) -> dict[str, tuple[Any, ...]]:
        address, out = c_void_p, POINTER(c_void_p)
        found: dict[str, tuple[Any, ...]] = {
            "cublasLtCreate": (self._create_handle, out),
            "cublasLtDestroy": (lambda handle: self.handles.remove(handle), address),
            "cublasLtMatmulDescCreate": (self._create_operation, out, c_int, c_int),
            "cublasLtMatrixLayoutCreate": (self._create_layout, out, c_int, c_uint64, c_uint64, c_int64),
            "cublasLtMatmulPreferenceCreate": (self._create_preference, out),
            "cublasLtMatmulAlgoGetHeuristic": (
                *(self._heuristic, *(address,) * 7, c_int),
                *(c_void_p, POINTER(c_int)),
            ),
            "cublasLtMatmul": (self._matmul, *(address,) * 14, c_size_t, address),
        }
        for kind, name in (
            ("operation", "MatmulDesc"),
            ("layout", "MatrixLayout"),
            ("preference", "MatmulPreference"),
        ):
            set_ = lambda d, n, value, size, kind=kind: self._set(kind, d, n, value, size)
            found[f"cublasLt{name}SetAttribute"] = (set_, address, c_int, address, c_size_t)
            found[f"cublasLt{name}Destroy"] = (lambda d: self.live.pop(d), address)
        return found

    # ---- descriptors ----

    def _new(self, out: Any, kind: str, **values: int) -> None:
        self._next += 64
        self.live[self._next] = Descriptor(kind, values)
        out[0] = self._next

    def _create_handle(self, out: Any) -> None:
        self._next += 64
        self.handles.add(self._next)
        out[0] = self._next

    def _create_operation(self, out: Any, compute: int, scale: int) -> None:
        _require(compute in _COMPUTE and scale in _TYPES)
        self._new(out, "operation", compute=compute, scale=scale, transa=0, transb=0, epilogue=1, bias=0)

    def _create_layout(self, out: Any, type_: int, rows: int, cols: int, ld: int) -> None:
        _require(type_ in _TYPES and rows > 0 and cols > 0 and ld >= rows)
        self._new(out, "layout", type=type_, rows=rows, cols=cols, ld=ld, batch=1, step=0)

    def _create_preference(self, out: Any) -> None:
        aligned = dict.fromkeys(("align_a", "align_b", "align_c", "align_d"), 256)
        self._new(out, "preference", workspace=0, reduction=7, **aligned)

    def _set(self, kind: str, address: int, number: int, value: int, size: int) -> None:
        descriptor = self.live[address]
        _require(descriptor.kind == kind and number in _ATTRIBUTES[kind])
        name, ctype = _ATTRIBUTES[kind][number]
        _require(size == ctypes.sizeof(ctype))
        descriptor.values[name] = ctype.from_address(value).value

    def _get(self, kind: str, address: int) -> dict[str, int]:
        descriptor = self.live[address]
        _require(descriptor.kind == kind)
        return dict(descriptor.values)

    # ---- products ----

    def _problem(self, operation: int, a: int, b: int, c: int, d: int) -> tuple[dict[str, int], ...]:
        """The descriptors of a product that fit each other."""
        op, layouts = self._get("operation", operation), [self._get("layout", x) for x in (a, b, c, d)]
        la, lb, lc, ld = layouts
        type_ = la["type"]
        _require(all(x["type"] == type_ and x["batch"] == la["batch"] for x in layouts) and lc == ld)
        _require(type_ in _COMPUTE[op["compute"]] and op["scale"] == _SCALE.get(type_, type_))
        m, k = (la["cols"], la["rows"]) if op["transa"] else (la["rows"], la["cols"])
        k2, n = (lb["cols"], lb["rows"]) if op["transb"] else (lb["rows"], lb["cols"])
        _require(k == k2 and (ld["rows"], ld["cols"]) == (m, n))
        _require(op["epilogue"] in _EPILOGUES, NOT_SUPPORTED)
        if op["epilogue"] != _DEFAULT:
            _require(type_ in (0, 2, 14) and ld["batch"] == 1, NOT_SUPPORTED)
            _require(op["bias"])
        _require(ld["batch"] == 1 or ld["step"] >= ld["ld"] * ld["cols"])
        return op, la, lb, ld

    def _heuristic(self, handle: int, operation: int, *rest: Any) -> None:
        a, b, c, d, preference, wanted, results, count = rest
        _require(handle in self.handles and wanted >= 1)
        problem = self._problem(operation, a, b, c, d)
        pref = self._get("preference", preference)
        if self.refuse is not None and self.refuse(*problem):
            count[0] = 0
            raise _Refusal(NOT_SUPPORTED)
        depth = problem[2]["cols"] if problem[0]["transb"] else problem[2]["rows"]
        bytes_ = min(pref["workspace"], 4096) if depth >= 64 else 0
        self._algorithms.append((operation, a, b, d, pref))
        # cublasLtMatmulHeuristicResult_t: algorithm [64], workspace [8], state [4], waves [4], reserved [16]
        raw = np.zeros(96, np.uint8)
        raw[:8].view(np.uint64)[0] = len(self._algorithms)
        raw[64:72].view(np.uint64)[0] = bytes_
        ctypes.memmove(results, raw.ctypes.data, 96)
        count[0] = 1

    def _matmul(self, handle: int, operation: int, alpha: int, *rest: int) -> None:
        a, desc_a, b, desc_b, beta, c, desc_c, d, desc_d, algo, workspace, size, stream = rest
        _require(handle in self.handles and c == d)
        op, la, lb, ld = self._problem(operation, desc_a, desc_b, desc_c, desc_d)
        number = c_uint64.from_address(algo).value
        planned, *layouts, pref = self._algorithms[number - 1]
        _require(planned == operation and layouts == [desc_a, desc_b, desc_d])
        for address, which in ((a, "a"), (b, "b"), (d, "d"), (op["bias"], "d")):
            _require(address % pref[f"align_{which}"] == 0)
        depth = lb["cols"] if op["transb"] else lb["rows"]
        _require(depth < 64 or (workspace and size >= min(pref["workspace"], 4096)))
        scale = _TYPES[op["scale"]][0]
        one, zero = (_matrix(x, scale, 1, 1, 1)[0, 0] for x in (alpha, beta))
        _require(zero == 0)
        given = complex(one), complex(zero)
        self.calls.append(Call(op, la, lb, ld, *given, workspace, size, stream, handle, pref))
        dtype, wide = _TYPES[ld["type"]]
        item = np.dtype(dtype).itemsize
        for i in range(ld["batch"]):
            x, y, out = (
                _matrix(at + i * lay["step"] * item, dtype, lay["rows"], lay["cols"], lay["ld"])
                for at, lay in ((a, la), (b, lb), (d, ld))
            )
            x, y = (x.T if op["transa"] else x).astype(wide), (y.T if op["transb"] else y).astype(wide)
            found = one * (x @ y)
            if op["epilogue"] & _BIAS:
                found += _matrix(op["bias"], dtype, ld["rows"], 1, ld["rows"]).astype(wide)
            if op["epilogue"] & _RELU:
                found = np.maximum(found, 0)
            if op["epilogue"] & _GELU:
                found = 0.5 * found * (1 + np.tanh(np.sqrt(2 / np.pi) * (found + 0.044715 * found**3)))
            if op["epilogue"] == _BGRADB:
                _matrix(op["bias"], dtype, ld["cols"], 1, ld["cols"])[:, 0] = y.sum(0).astype(dtype)
            out[...] = found.astype(dtype)


def _matrix(address: int, dtype: Any, rows: int, cols: int, ld: int) -> np.ndarray:
    """The column-major matrix at an address."""
    item = np.dtype(dtype).itemsize
    memory: Any = (ctypes.c_char * (((cols - 1) * ld + rows) * item)).from_address(address)
    return np.ndarray((rows, cols), dtype, memory, 0, (item, ld * item))


LIBRARY = CublasLt()
