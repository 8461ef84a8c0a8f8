"""cublasLt through ctypes: its numbers and signatures, descriptors that own their handle, calls that raise.

What stands in the tables are facts of NVIDIA's headers, which are part of the library's binary interface:
cublasLt.h and cublas_api.h of nvidia-cublas 13.0.2.14 (CUDA 13.0), library_types.h of CUDA 13.0.
tests/cuda/test_cublaslt_api.py compares them with the headers, and with what the library itself takes,
wherever either is installed (`LUCID_CUBLASLT` names a library, `LUCID_CUBLASLT_HEADER` a header).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import (
    POINTER,
    byref,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

Row = tuple[int, Any]

# cudaDataType (library_types.h), by the name of the dtype.
DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5, "bfloat16": 14}
# cublasComputeType_t (cublas_api.h), and cublasOperation_t by the letter of a layout.
COMPUTE_TYPES = {"32F": 68, "64F": 70, "32F_FAST_16BF": 75, "32F_FAST_TF32": 77}
OPERATIONS = {"n": 0, "t": 1}
# cublasLtEpilogue_t, by our name. In lucid's products x is cublasLt's B: "bgrad" sums over its k.
EPILOGUES = {"": 1, "bias": 4, "relu_bias": 2 | 4, "gelu_bias": 32 | 4, "bgrad": 512}
EPILOGUE_NAMES = {
    "": "DEFAULT",
    "bias": "BIAS",
    "relu_bias": "RELU_BIAS",
    "gelu_bias": "GELU_BIAS",
    "bgrad": "BGRADB",
}
# cublasLtReductionScheme_t: partial sums in the compute type, added in a step of their own. The other two
# round them to the output's type (INPLACE = 1, OUTPUT_TYPE = 4).
REDUCTION_COMPUTE_TYPE = 2

# Attributes: number, type of the value.
DESC: dict[str, Row] = {
    "TRANSA": (3, c_int32),
    "TRANSB": (4, c_int32),
    "EPILOGUE": (7, c_uint32),
    "BIAS_POINTER": (8, c_void_p),
}
LAYOUT: dict[str, Row] = {
    "TYPE": (0, c_uint32),
    "ROWS": (2, c_uint64),
    "COLS": (3, c_uint64),
    "LD": (4, c_int64),
    "BATCH_COUNT": (5, c_int32),
    "STRIDED_BATCH_OFFSET": (6, c_int64),
}
PREFERENCE: dict[str, Row] = {
    "MAX_WORKSPACE_BYTES": (1, c_uint64),
    "REDUCTION_SCHEME_MASK": (3, c_uint32),
    "MIN_ALIGNMENT_A_BYTES": (5, c_uint32),
    "MIN_ALIGNMENT_B_BYTES": (6, c_uint32),
    "MIN_ALIGNMENT_C_BYTES": (7, c_uint32),
    "MIN_ALIGNMENT_D_BYTES": (8, c_uint32),
}
# cublasStatus_t.
STATUS = {
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
    16: "LICENSE_ERROR",
}


class Algo(ctypes.Structure):
    """cublasLtMatmulAlgo_t: opaque, 64 bytes."""

    _fields_ = [("data", c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", Algo),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


class Complex64(ctypes.Structure):
    """cuComplex."""

    _fields_ = [("x", c_float), ("y", c_float)]


class Complex128(ctypes.Structure):
    """cuDoubleComplex."""

    _fields_ = [("x", c_double), ("y", c_double)]


# The dtype's scale type (of alpha and beta), what a number of it is in C, and the compute type.
SCALES: dict[str, tuple[str, Any, str]] = {
    "float16": ("float32", c_float, "32F"),
    "bfloat16": ("float32", c_float, "32F"),
    "float32": ("float32", c_float, "32F"),
    "float64": ("float64", c_double, "64F"),
    "complex64": ("complex64", Complex64, "32F"),
    "complex128": ("complex128", Complex128, "64F"),
}

_HANDLE = POINTER(c_void_p)
_SET = (c_void_p, c_int, c_void_p, c_size_t)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_HANDLE,),
    "cublasLtDestroy": (c_void_p,),
    "cublasLtMatmulDescCreate": (_HANDLE, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": _SET,
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (_HANDLE, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": _SET,
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (_HANDLE,),
    "cublasLtMatmulPreferenceSetAttribute": _SET,
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    # handle, operation, layouts of A, B, C, D, preference, how many, results, how many were found
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, POINTER(Heuristic), POINTER(c_int)),
    # handle, operation, alpha, A, its layout, B, .., beta, C, .., D, .., algorithm, workspace, bytes, stream
    "cublasLtMatmul": (*(c_void_p,) * 12, POINTER(Algo), c_void_p, c_size_t, c_void_p),
}


class CublasLtError(RuntimeError):
    """A call of cublasLt that did not succeed; `status` is its cublasStatus_t."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name}: CUBLAS_STATUS_{STATUS.get(status, status)}")
        self.status = status


class Library:
    """The functions of cublasLt, each raising CublasLtError unless it succeeds. table: a loaded library, or
    whatever has functions of these names.
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        for name, argtypes in SIGNATURES.items():
            function = getattr(table, name)
            function.argtypes, function.restype = argtypes, c_int
        table.cublasLtGetVersion.restype = c_size_t
        self.version = int(table.cublasLtGetVersion())
        # Called for every product; its status is looked at there.
        self.matmul = table.cublasLtMatmul
        self.set_desc = table.cublasLtMatmulDescSetAttribute

    def call(self, name: str, *args: Any) -> None:
        """Nothing; calls a function, and raises when it fails."""
        status = getattr(self.table, name)(*args)
        if status:
            raise CublasLtError(name, status)

    def handle(self) -> int:
        """A new cublasLtHandle_t, for the current device."""
        found = c_void_p()
        self.call("cublasLtCreate", byref(found))
        return int(found.value or 0)

    def operation(self, compute: str, scale: str) -> Descriptor:
        """A new cublasLtMatmulDesc_t."""
        return Descriptor(self, "cublasLtMatmulDesc", DESC, COMPUTE_TYPES[compute], DATA_TYPES[scale])

    def layout(self, dtype: str, rows: int, columns: int, lead: int, batch: int, step: int) -> Descriptor:
        """A new cublasLtMatrixLayout_t of a column-major matrix, or of `batch` matrices
        `step` elements apart.
        """
        found = Descriptor(self, "cublasLtMatrixLayout", LAYOUT, DATA_TYPES[dtype], rows, columns, lead)
        if batch > 1:
            found.set("BATCH_COUNT", batch)
            found.set("STRIDED_BATCH_OFFSET", step)
        return found

    def preference(self) -> Descriptor:
        """A new cublasLtMatmulPreference_t."""
        return Descriptor(self, "cublasLtMatmulPreference", PREFERENCE)


class Descriptor:
    """A descriptor of cublasLt, destroyed with this object. `value` is its address."""

    __slots__ = ("library", "kind", "attributes", "value")

    def __init__(self, library: Library, kind: str, attributes: dict[str, Row], *args: int) -> None:
        self.library, self.kind, self.attributes, self.value = library, kind, attributes, None
        found = c_void_p()
        library.call(f"{kind}Create", byref(found), *args)
        self.value = found.value

    def set(self, attribute: str, value: int) -> None:
        """Nothing; sets an attribute."""
        number, ctype = self.attributes[attribute]
        held = ctype(value)
        self.library.call(f"{self.kind}SetAttribute", self.value, number, byref(held), ctypes.sizeof(held))

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.value and not ends():  # the library may be gone before its descriptors
            getattr(self.library.table, f"{self.kind}Destroy")(self.value)
            self.value = None
