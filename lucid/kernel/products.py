"""Matrix products on CUDA: every op's product goes through here, to the provider that a table names.

A provider is data: a name, what it can do (`supports`), how it does it (`run`). Two are there: "cublas",
cuBLAS as CuPy calls it, which takes every product without an epilogue; and "cublaslt" (`kernel/cublaslt.py`),
which also takes transposed and 16-bit batches as they lie, adds a bias or applies an activation while it
writes, and can be captured in a CUDA graph.

Which one runs: the first row of `CHOICES` that fits. **Rule: a row names another provider than "cublas" only
after `ci/gpu_check` has run on that architecture, for the dtypes, epilogues and sizes where it was at least 3
% faster there; the row's `source` says which run.** cublaslt has not yet been run on a GPU, so no row names
it. `preferred(name)`, `using(name)`, the variable LUCID_GEMM and `lucid.backends.cuda.matmul.provider`
override the table; what the preferred provider does not support still goes to "cublas".

On NumPy nothing goes through here: `matmul_of(numpy)` is `numpy.matmul`.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from ..storage.backend import backend_of
from ..storage.device import Device

EPILOGUES = ("", "bias", "relu_bias", "gelu_bias", "bgrad")


class Product(NamedTuple):
    """What is to be computed: `batch` products of [m, k] and [k, n].

    arch: compute capability times ten. dtype: of the operands and the result, by name. layouts: how x and y
    lie: "n" row by row, "t" column by column, "?" otherwise. epilogue: "" nothing; "bias": + bias[n];
    "relu_bias", "gelu_bias": the activation (GELU in its tanh form) of that; "bgrad":
    also the sum of x over k.
    """

    arch: int
    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    layouts: str = "nn"
    epilogue: str = ""


@dataclass(frozen=True)
class Provider:
    """One way to compute products.

    supports(product): whether it can. run(spec, x, y, bias, out): the result, in `out` unless None; with
    epilogue "bgrad" a pair. x: [m, k] or [batch, m, k], y likewise. Raises `Refused` when the library says
    no.
    """

    name: str
    supports: Callable[[Product], bool]
    run: Callable[[Spec, Any, Any, Any, Any], Any]


class Refused(RuntimeError):
    """A library that does not take a product after all; "cublas" takes it then."""


@dataclass(slots=True)
class Spec:
    """A product with the strides of its operands, the provider chosen for it, and what that one keeps.

    leads: elements from one row (of a "t" operand: column) to the next. steps: elements from one matrix of
    the batch to the next, 0 where an operand serves all.
    """

    product: Product
    leads: tuple[int, int]
    steps: tuple[int, int]
    backend: Any
    provider: Provider
    plans: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """A row of the table: provider for products of these dtypes and epilogues, on architectures in [arch[0],
    arch[1]), with at least `work` multiplications (m n k batch).
    """

    provider: str
    arch: tuple[int, int] = (0, 1000)
    dtypes: tuple[str, ...] = ()
    epilogues: tuple[str, ...] = EPILOGUES
    work: int = 0
    source: str = ""

    def fits(self, p: Product) -> bool:
        """Whether the row speaks of a product; no dtypes: all of them."""
        return (
            self.arch[0] <= p.arch < self.arch[1]
            and (not self.dtypes or p.dtype in self.dtypes)
            and p.epilogue in self.epilogues
            and p.m * p.n * p.k * p.batch >= self.work
        )


# The first row that fits and whose provider supports the product.
CHOICES: tuple[Choice, ...] = (Choice("cublas", source="CuPy's own; the rule above"),)
PROVIDERS: dict[str, Provider] = {}


# ---- choosing ----


class _Preferred(threading.local):
    name: str | None = None  # of `using`, in this thread


_local = _Preferred()
_preferred = [os.environ.get("LUCID_GEMM", "default").lower()]
_precision = ["high" if os.environ.get("CUPY_TF32") == "1" else "highest"]
_specs: dict[Any, Spec] = {}
_others = [any(row.provider != "cublas" for row in CHOICES)]
# So many products are remembered; their descriptors hold a kilobyte each.
MOST = 4096


def _checked(name: str) -> str:
    if name != "default" and name not in PROVIDERS:
        raise ValueError(f"matmul provider: expected one of default, {', '.join(PROVIDERS)}, got {name!r}")
    return name


def preferred(name: str | None = None) -> str:
    """The provider that all threads prefer ("default": the table's), set to `name` unless None."""
    if name is not None:
        _preferred[0] = _checked(name)
        forget()
    return _preferred[0]


@contextmanager
def using(name: str) -> Iterator[None]:
    """A context in which this thread prefers a provider."""
    before, _local.name = _local.name, _checked(name)
    try:
        yield
    finally:
        _local.name = before


def precision(name: str | None = None) -> str:
    """How float32 products are computed: "highest" in float32, "high" with TF32 tensor cores, "medium" also
    with bfloat16 parts (cublaslt only; in cublas it is "high"). Set to `name` unless None.
    """
    if name is not None:
        _precision[0] = name
        forget()
    return _precision[0]


def forget() -> None:
    """Nothing; every product is chosen and planned anew at its next call."""
    _specs.clear()
    _others[0] = any(row.provider != "cublas" for row in CHOICES)


def _plain() -> bool:
    # Whether nothing but cublas can be chosen: then no product is looked at.
    name = _local.name or _preferred[0]
    return name == "cublas" or name == "default" and not _others[0]


def choose(p: Product, name: str | None = None) -> Provider:
    """The provider for a product; `name` is preferred where it supports it."""
    name = name or _local.name or _checked(_preferred[0])
    if name != "default" and PROVIDERS[name].supports(p):
        return PROVIDERS[name]
    for row in CHOICES if name == "default" else ():
        if row.fits(p) and PROVIDERS[row.provider].supports(p):
            return PROVIDERS[row.provider]
    return PROVIDERS["cublas"]


def _layout(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[str, int]:
    """How the last two dimensions lie: ("n" or "t", elements from row to row), ("?", 0) when neither."""
    rows, columns = shape[-2:]
    r, c = strides[-2:]
    if columns == 1 or c == size:
        if rows == 1:
            return "n", columns
        if r % size == 0 and r >= columns * size:
            return "n", r // size
    if rows == 1 or r == size:
        if columns == 1:
            return "t", rows
        if c % size == 0 and c >= rows * size:
            return "t", c // size
    return "?", 0


def _arch(backend: Any) -> int:
    found = backend.properties()
    return 10 * int(found["major"]) + int(found["minor"])


def _spec(x: Any, y: Any, epilogue: str) -> Spec:
    """The remembered spec of operands of 2 dimensions, or of 3 with equal batches."""
    name = _local.name
    key = (x.data.device_id, x.dtype, x.shape, x.strides, y.shape, y.strides, epilogue, name)
    found = _specs.get(key)
    if found is None:
        if len(_specs) >= MOST:
            _specs.clear()
        found = _specs[key] = _make_spec(x, y, epilogue, name)
    return found


def _make_spec(x: Any, y: Any, epilogue: str, name: str | None) -> Spec:
    backend: Any = backend_of(Device("cuda", x.data.device_id))
    size = x.dtype.itemsize
    (lay_x, lead_x), (lay_y, lead_y) = (_layout(a.shape, a.strides, size) for a in (x, y))
    batch = x.shape[0] if x.ndim == 3 else 1
    steps = tuple(a.strides[0] // size if batch > 1 else 0 for a in (x, y))
    if any(a.strides[0] % size or a.strides[0] < 0 for a in (x, y) if batch > 1):
        lay_x = "?"
    m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
    p = Product(_arch(backend), x.dtype.name, m, n, k, batch, lay_x + lay_y, epilogue)
    return Spec(p, (lead_x, lead_y), steps, backend, choose(p, name))  # type: ignore[arg-type]


def _run(spec: Spec, x: Any, y: Any, bias: Any = None, out: Any = None) -> Any:
    """The spec's result, None for an epilogue that its provider does not have."""
    if spec.provider.name == "cublas" and spec.product.epilogue:
        return None
    try:
        return spec.provider.run(spec, x, y, bias, out)
    except Refused as error:
        warnings.warn(f"{error}; cublas computes this product from now on", RuntimeWarning, stacklevel=4)
        spec.provider = PROVIDERS["cublas"]
        return _run(spec, x, y, bias, out)


# ---- products ----


def matmul(x: Any, y: Any, out: Any = None) -> Any:
    """x @ y of arrays of one dtype on one CUDA device, with NumPy's rules for dimensions; in `out`, a
    contiguous array of the result's shape and dtype that overlaps neither, unless None.

    16-bit floats are summed in float32 and rounded once.
    """
    nx, ny = x.ndim, y.ndim
    if nx > 2 and ny == 2 and x.size and y.size:
        # One product over all rows, not a batch of them.
        rows, shape = prod(x.shape[:-1]), (*x.shape[:-1], y.shape[-1])
        flat = None if out is None else out.reshape(rows, y.shape[-1])
        return matmul(x.reshape(rows, x.shape[-1]), y, flat).reshape(shape)
    if nx < 2 or ny < 2 or _plain() or not x.size or not y.size:
        return _by_cupy(x, y, out)
    if nx == 2 and ny == 2:
        return _run(_spec(x, y, ""), x, y, None, out)
    found = _batched(x, y, out)
    return _by_cupy(x, y, out) if found is None else found


def _batched(x: Any, y: Any, out: Any) -> Any:
    """The product of batches, None where they do not fit together or in one stride each."""
    lead = x.shape[:-2]
    if lead != y.shape[:-2]:
        lead = _broadcast(lead, y.shape[:-2])
        if lead is None:
            return None
    batch = prod(lead)
    x3, y3 = _one_stride(x, lead, batch), _one_stride(y, lead, batch)
    if x3 is None or y3 is None:
        return None
    spec = _spec(x3, y3, "")
    if spec.provider.name == "cublas":
        return None  # CuPy takes any number of dimensions itself
    shape = (x.shape[-2], y.shape[-1])
    flat = None if out is None else out.reshape(batch, *shape)
    return _run(spec, x3, y3, None, flat).reshape(*lead, *shape)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    if any(i != j and i != 1 and j != 1 for i, j in zip(a, b, strict=True)):
        return None
    return tuple(j if i == 1 else i for i, j in zip(a, b, strict=True))


def _one_stride(a: Any, lead: tuple[int, ...], batch: int) -> Any:
    """`a` as a view [batch, rows, columns] of the broadcast batch `lead`, or None."""
    own = prod(a.shape[:-2])
    shape = (own, *a.shape[-2:])
    if own == 1:
        flat = a.reshape(shape)
        return (
            flat
            if batch == 1
            else backend_of(Device("cuda", a.data.device_id)).xp.broadcast_to(flat, (batch, *shape[1:]))
        )
    if own != batch:
        return None  # a part of the leading dimensions broadcasts
    # A view only: CuPy's reshape copies where the memory does not allow one.
    step, strides = a.strides[-3], a.strides
    for i in range(a.ndim - 3, -1, -1):
        if a.shape[i] != 1 and strides[i] != step:
            return None
        step *= a.shape[i]
    return a.reshape(shape)


def linear(x: Any, weight: Any, bias: Any, activation: str = "") -> Any:
    """activation(x @ weight.T + bias) in one call of a library, None where no provider does that.

    x: [..., in]; weight: [out, in]; bias: [out]; activation: "", "relu", or "gelu" (the tanh form).
    """
    if _plain() or weight.ndim != 2 or not x.size or not weight.size or x.ndim < 2:
        return None
    rows = x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])
    turned = weight.T
    epilogue = f"{activation}_bias" if activation else "bias"
    out = _run(_spec(rows, turned, epilogue), rows, turned, bias)
    return out if out is None or x.ndim == 2 else out.reshape(*x.shape[:-1], weight.shape[0])


def weight_and_bias_grad(g: Any, x: Any) -> tuple[Any, Any] | None:
    """(g.T @ x, the sum of g over its rows) in one call, None where no provider does that.

    g: [rows, out]; x: [rows, in].
    """
    if _plain() or not g.size or not x.size:
        return None
    turned = g.T
    return _run(_spec(turned, x, "bgrad"), turned, x)


def matmul_of(xp: Any) -> Callable[[Any, Any], Any]:
    """The function for matrix products of an array module's arrays."""
    return xp.matmul if xp.__name__ == "numpy" else matmul


# ---- cublas, as CuPy calls it ----


def _by_cupy(x: Any, y: Any, out: Any = None) -> Any:
    """CuPy's product.

    For two matrices of 16-bit floats it is cuBLAS's with sums in float32; batches, vectors and single numbers
    it would sum in 16 bits, or refuse bfloat16 (cupy 14, _core/_routines_linalg.pyx), so they go through
    float32. One pair of a batch goes as matrices: CuPy copies transposed operands of a batch.
    """
    xp = backend_of(Device("cuda", x.data.device_id)).xp
    if x.ndim == y.ndim == 3 and len(x) == len(y) == 1:
        shape = (1, x.shape[1], y.shape[2])
        return _by_cupy(x[0], y[0], None if out is None else out.reshape(shape[1:])).reshape(shape)
    low = x.dtype.itemsize == 2 and x.dtype.kind not in "iu"
    if low and (x.ndim != 2 or y.ndim != 2 or x.shape[0] == y.shape[1] == 1):
        found = xp.matmul(x.astype("float32"), y.astype("float32"))
        if out is None:
            return found.astype(x.dtype)
        out[...] = found
        return out
    return xp.matmul(x, y) if out is None else xp.matmul(x, y, out=out)


PROVIDERS["cublas"] = Provider(
    "cublas", lambda p: not p.epilogue, lambda spec, x, y, bias, out: _by_cupy(x, y, out)
)
