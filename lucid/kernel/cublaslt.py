"""The provider "cublaslt": products by cublasLt, with epilogues, on the current stream, in own workspace.

**Not yet run on a GPU.** Its calls are checked on the CPU against a stand-in for the library that reads every
descriptor and computes with NumPy (`lucid.testing.strictcupy.cublaslt`), and its numbers against NVIDIA's
headers; `ci/gpu_check` compares it with cuBLAS and times both on the device. Until such a run no row of
`products.CHOICES` names it.

cublasLt works on column-major matrices, lucid's lie row by row. A row-major [m, n] is a column-major [n, m],
so D = out^T [n, m] = y^T x^T: cublasLt's A is y, its B is x, a row-major operand goes in as it lies ("N") and
a transposed view with its transposition asked for ("T"): nothing is copied. A bias along out's columns is one
along D's rows, as cublasLt wants it; BGRADB sums x over k.

What is computed per call: one descriptor set and one algorithm per (shape, strides, dtype, epilogue,
alignment, precision), kept in the product's `Spec`. Sums are made in float32 (float64), split sums added in
that type (`REDUCTION_COMPUTE_TYPE`), so that results do not depend on the order in which blocks finish. No
call waits for the device, and a stream that is being captured takes them like any other.
"""

from __future__ import annotations

import threading
from ctypes import byref, c_int, c_void_p, sizeof
from typing import Any

from . import cublaslt_api as api
from . import products
from .products import Product, Provider, Refused, Spec

# Bytes of workspace by compute capability, from this one on: what PyTorch and NVIDIA's notes
# give Hopper, and 4 MiB.
WORKSPACE = ((90, 32 << 20), (0, 4 << 20))
# Alignments that plans tell apart from 16 bytes on, which is the widest access; 256 is
# cublasLt's own default.
_ALIGNED = (256, 16)
_EPILOGUE_DTYPES = ("float32", "float16", "bfloat16")
_LARGEST = 2**31 - 1

_lock = threading.Lock()
_library: list[Any] = []  # [Library or the reason why there is none]
_handles: dict[int, int] = {}
_workspaces: dict[tuple[int, int], Any] = {}


def library(backend: Any) -> api.Library | None:
    """cublasLt as CuPy has loaded it, None where it cannot be had (`why_not` says why)."""
    with _lock:
        if not _library:
            try:
                _library.append(api.Library(backend.library("cublasLt")))
            except (OSError, AttributeError) as error:
                _library.append(f"{type(error).__name__}: {error}")
    found = _library[0]
    return found if isinstance(found, api.Library) else None


def why_not(backend: Any) -> str:
    """Why cublasLt cannot be used, "" when it can."""
    return "" if library(backend) is not None else f"cublasLt cannot be loaded ({_library[0]})"


def workspace_bytes(arch: int) -> int:
    """Bytes of workspace on an architecture."""
    return next(size for first, size in WORKSPACE if arch >= first)


def supports(p: Product) -> bool:
    """Whether cublasLt takes a product, as far as its documentation says; `run` raises Refused where its
    heuristics say otherwise.
    """
    if p.dtype not in api.DATA_TYPES or "?" in p.layouts or max(p.m, p.n, p.k, p.batch) > _LARGEST:
        return False
    if p.epilogue and (p.batch > 1 or p.dtype not in _EPILOGUE_DTYPES):
        return False
    return p.epilogue in api.EPILOGUES and p.arch >= (80 if p.dtype == "bfloat16" else 70)


def compute_type(dtype: str, precision: str) -> str:
    """cublasComputeType_t for a dtype; the precision is that of float32 products (`products.precision`)."""
    if dtype in ("float32", "complex64") and precision != "highest":
        return "32F_FAST_16BF" if precision == "medium" and dtype == "float32" else "32F_FAST_TF32"
    return api.SCALES[dtype][2]


class Plan:
    """Descriptors and algorithm for one product."""

    __slots__ = ("library", "handle", "operation", "layouts", "algo", "workspace", "scales", "lock")

    def __init__(self, lib: api.Library, spec: Spec, aligned: int, pointer: int) -> None:
        p = spec.product
        scale, number, _ = api.SCALES[p.dtype]
        self.library, self.lock = lib, threading.Lock()
        self.handle = _handle(lib, spec.backend)
        self.operation = lib.operation(compute_type(p.dtype, products.precision()), scale)
        self.operation.set("TRANSA", api.OPERATIONS[p.layouts[1]])
        self.operation.set("TRANSB", api.OPERATIONS[p.layouts[0]])
        self.operation.set("EPILOGUE", api.EPILOGUES[p.epilogue])
        if pointer:
            # The heuristics read its alignment.
            self.operation.set("BIAS_POINTER", pointer)
        a = (p.n, p.k) if p.layouts[1] == "n" else (p.k, p.n)
        b = (p.k, p.m) if p.layouts[0] == "n" else (p.m, p.k)
        self.layouts = (
            lib.layout(p.dtype, *a, spec.leads[1], p.batch, spec.steps[1]),
            lib.layout(p.dtype, *b, spec.leads[0], p.batch, spec.steps[0]),
            lib.layout(p.dtype, p.n, p.m, p.n, p.batch, p.m * p.n),
        )
        self.scales = number(1.0), number(0.0)
        self.algo, self.workspace = self._algorithm(spec, aligned)

    def _algorithm(self, spec: Spec, aligned: int) -> tuple[api.Algo, int]:
        lib, p = self.library, spec.product
        preference = lib.preference()
        preference.set("MAX_WORKSPACE_BYTES", workspace_bytes(p.arch))
        preference.set("REDUCTION_SCHEME_MASK", api.REDUCTION_COMPUTE_TYPE)
        for matrix in "ABCD":
            preference.set(f"MIN_ALIGNMENT_{matrix}_BYTES", aligned)
        found, count = api.Heuristic(), c_int()
        a, b, d = (layout.value for layout in self.layouts)
        lib.call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self.handle, self.operation.value, a, b, d, d, preference.value),
            *(1, byref(found), byref(count)),
        )
        if not count.value or found.state:
            raise api.CublasLtError("cublasLtMatmulAlgoGetHeuristic", found.state or 15)
        return found.algo, int(found.workspace)

    def __call__(self, a: int, b: int, d: int, pointer: int, workspace: int, size: int, stream: int) -> None:
        """Nothing; queues the product on a stream. Addresses of A, B, D, of bias or its gradient, and of the
        workspace.
        """
        layout_a, layout_b, layout_d = (layout.value for layout in self.layouts)
        one, zero = self.scales
        with self.lock:  # another thread's bias must not come between
            if pointer:
                self._set_pointer(pointer)
            status = self.library.matmul(
                *(self.handle, self.operation.value, byref(one), a, layout_a, b, layout_b),
                *(byref(zero), d, layout_d, d, layout_d, byref(self.algo), workspace, size, stream),
            )
        if status:
            raise api.CublasLtError("cublasLtMatmul", status)

    def _set_pointer(self, pointer: int) -> None:
        held = c_void_p(pointer)
        number = api.DESC["BIAS_POINTER"][0]
        status = self.library.set_desc(self.operation.value, number, byref(held), sizeof(held))
        if status:
            raise api.CublasLtError("cublasLtMatmulDescSetAttribute", status)


def _handle(lib: api.Library, backend: Any) -> int:
    with _lock:
        found = _handles.get(backend.index)
        if found is None:
            with backend.guard():
                found = _handles[backend.index] = lib.handle()
    return found


def _workspace(spec: Spec, stream: int) -> Any:
    # One per stream: products on different streams may overlap.
    key = (spec.backend.index, stream)
    found = _workspaces.get(key)
    if found is None:
        size = workspace_bytes(spec.product.arch)
        found = _workspaces[key] = spec.backend.xp.empty(size, "uint8")
    return found


def release() -> None:
    """Nothing; workspaces go back to the pool, handles and plans are made anew at the next product."""
    products.forget()
    with _lock:
        _workspaces.clear()
        lib = _library[0] if _library else None
        if isinstance(lib, api.Library):
            for handle in _handles.values():
                lib.table.cublasLtDestroy(handle)
        _handles.clear()
        _library.clear()


def run(spec: Spec, x: Any, y: Any, bias: Any, out: Any) -> Any:
    """The product; with epilogue "bgrad" a pair of it and the sum of x over k.

    x, y: as in `Provider`; bias: [n], contiguous.
    """
    lib = library(spec.backend)
    if lib is None:
        raise Refused(why_not(spec.backend))
    p, xp = spec.product, spec.backend.xp
    if out is None:
        out = xp.empty((p.batch, p.m, p.n) if x.ndim == 3 else (p.m, p.n), x.dtype)
    if p.epilogue == "bgrad":
        bias = xp.empty(p.m, x.dtype)
    a, b, d = y.data.ptr, x.data.ptr, out.data.ptr
    pointer = 0 if bias is None else bias.data.ptr
    together = a | b | d | pointer
    aligned = next((n for n in _ALIGNED if not together % n), together & -together)
    try:
        plan = spec.plans.get(aligned)
        if plan is None:
            plan = spec.plans[aligned] = Plan(lib, spec, aligned, pointer)
        stream = spec.backend.stream()
        held = _workspace(spec, stream) if plan.workspace else None
        workspace, size = (0, 0) if held is None else (held.data.ptr, held.nbytes)
        plan(a, b, d, pointer, workspace, size, stream)
    except api.CublasLtError as error:
        raise Refused(f"cublaslt does not take {_text(p)} ({error})") from error
    return (out, bias) if p.epilogue == "bgrad" else out


def _text(p: Product) -> str:
    batch = f" x {p.batch}" if p.batch > 1 else ""
    return (
        f"the product {p.dtype} [{p.m}, {p.k}] @ [{p.k}, {p.n}]{batch}, layouts {p.layouts}, "
        f"epilogue {p.epilogue or 'none'}, sm_{p.arch}"
    )


products.PROVIDERS["cublaslt"] = Provider("cublaslt", supports, run)
