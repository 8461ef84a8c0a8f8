"""The list of assumptions about CuPy, and those about the dtypes and values of its functions.

`lucid.testing.conformance` holds the others and runs all. Where CuPy differs from NumPy, a check here says
how: `lucid.storage.corrected` puts it right, and has nothing to do any more once the check fails.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Check = tuple[str, Any, Callable[[Any], Any]]
CHECKS: list[Check] = []
ON_GPU: list[Check] = []


def expect(
    expected: Any, among: list[Check] | None = None
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator that makes a check of a function of CuPy: its result must equal `expected`."""

    def add(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        (CHECKS if among is None else among).append((function.__name__, expected, function))
        return function

    return add


def raised(function: Callable[[], Any]) -> str:
    """The class name of what `function` raises, or "nothing"."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "nothing"


# ---- dtypes ----


@expect(["bfloat16", "float32", "float32", "bfloat16", "float32", "float32", "bfloat16"])
def bfloat16_beside_numbers(cp: Any) -> Any:
    x = cp.ones((4, 4), ml_dtypes.bfloat16)
    found = (x * 2, x * 2.0, cp.maximum(x, 0.5), x**2, cp.where(x > 0, x, x), cp.tril(x), cp.add(x, True))
    return [r.dtype.name for r in found]


@expect(["NotImplementedError", "NotImplementedError", "NotImplementedError", "TypeError"])
def bfloat16_is_not_sorted_nor_clipped(cp: Any) -> Any:
    x = cp.ones(4, ml_dtypes.bfloat16)
    sorts = [raised(lambda f=f: f(x)) for f in (cp.sort, cp.argsort, cp.unique)]  # type: ignore[misc]
    return [*sorts, raised(lambda: cp.clip(x, 0.0, None))]


@expect(["TypeError", "TypeError", 3.0])
def only_0d_arrays_are_numbers(cp: Any) -> Any:
    return [raised(lambda: float(cp.ones(1))), raised(lambda: int(cp.ones((1, 1)))), float(cp.full((), 3.0))]


@expect([["c_contiguous", "f_contiguous", "owndata"], "AttributeError"])
def flags_know_the_layout_alone(cp: Any) -> Any:
    flags = cp.ones(3).flags
    names = ("c_contiguous", "f_contiguous", "owndata", "writeable")
    return [[n for n in names if hasattr(flags, n)], raised(lambda: flags.writeable)]


# ---- values ----


@expect([10.0, "nan", 0.0])
def quotients_of_floats_are_rounded_first(cp: Any) -> Any:
    x = cp.asarray(np.array([1.0, 5.0]))
    y = cp.asarray(np.array([0.1, np.inf]))
    return [float((x // y)[0]), str(float((x % y)[1])), float(abs((x % y)[0]))]


@expect([False, False, True, True])
def a_filled_zero_has_no_sign(cp: Any) -> Any:
    x, y = cp.ones(2), cp.full(2, -0.0)
    x[...] = -0.0
    number, row = cp.asarray(-0.0), cp.asarray(np.array([-0.0]))
    return [bool(cp.signbit(a.reshape(-1)[0])) for a in (number, x, y, row)]


@expect(["LinAlgError"] * 4 + [True])
def linalg_raises_when_told_to(cp: Any) -> Any:
    # What it returns otherwise is what the library left; nothing may be read from it.
    errstate = importlib.import_module("cupyx").errstate
    one, two = cp.zeros((2, 2)), cp.stack([cp.eye(2), cp.zeros((2, 2))])
    with errstate(linalg="raise"):
        found = [
            raised(f)
            for f in (
                lambda: cp.linalg.inv(one),
                lambda: cp.linalg.inv(two),
                lambda: cp.linalg.solve(two, cp.ones((2, 2, 1))),
                lambda: cp.linalg.cholesky(cp.asarray(np.array([[1.0, 2.0], [2.0, 1.0]]))),
            )
        ]
        fine = cp.linalg.inv(2 * cp.eye(2))
    return [*found, bool((fine == 0.5 * cp.eye(2)).all())]


@expect(["ValueError", "NotImplementedError", "nothing"])
def what_linalg_and_reductions_refuse(cp: Any) -> Any:
    two = cp.stack([cp.eye(2), cp.eye(2)])
    return [
        raised(lambda: cp.linalg.solve(two, cp.ones((2, 1)))),
        raised(lambda: cp.maximum.reduce(cp.ones(3))),
        raised(lambda: cp.add.reduce(cp.ones(3))),
    ]


# ---- memory ----


@expect([True, False, "nothing", [1.0, 1.0]])
def pinned_memory_is_known_by_its_address(cp: Any) -> Any:
    pinned = importlib.import_module("cupyx").zeros_pinned(2, "float64")
    pinned[:] = 1.0
    known = [bool(cp.cuda.pinned_memory.is_memory_pinned(a.ctypes.data)) for a in (pinned, np.ones(2))]
    x = cp.asarray(pinned, blocking=True)
    pinned[:] = 2.0  # too late for a copy that was waited for
    return [*known, raised(lambda: cp.cuda.Device().synchronize()), x.tolist()]


@expect(["ValueError", "RuntimeError"])
def what_allocators_and_copies_refuse(cp: Any) -> Any:
    allocator = cp.cuda.get_allocator()
    with cp.cuda.using_allocator(allocator):
        found = raised(lambda: cp.cuda.set_allocator(allocator))
    return [found, raised(lambda: cp.zeros((3, 2))[:, :1].set(np.zeros((3, 1))))]


# ---- 16-bit floats, shared memory, spectra ----


@expect(["float64", "bfloat16", "float16", "float32"])
def dtypes_of_means_and_variances(cp: Any) -> Any:
    low, half = cp.ones((2, 3), ml_dtypes.bfloat16), cp.ones((2, 3), "float16")
    found = (low.var(1), low.mean(1), half.mean(1), half.astype("float32").var(1))
    return [r.dtype.name for r in found]


_TURNED = (
    'extern "C" __global__ void turned(float* x, int n) { extern __shared__ float tile[]; '
    "for (int i = threadIdx.x; i < n; i += blockDim.x) tile[n - 1 - i] = x[i]; __syncthreads(); "
    "for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[i]; }"
)


@expect(["CUDADriverError", True, 0.0])
def shared_memory_beyond_48_kib_is_asked_for(cp: Any) -> Any:
    kernel = cp.RawModule(code=_TURNED, options=("-std=c++17",)).get_function("turned")
    n = 16 << 10
    x = cp.arange(n, dtype="float32")
    refused = raised(lambda: kernel((1,), (64,), (x, np.int32(n)), shared_mem=4 * n))
    kernel.max_dynamic_shared_size_bytes = 4 * n
    kernel((1,), (64,), (x, np.int32(n)), shared_mem=4 * n)
    most = cp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    return [refused, 4 * n <= most, float(x[n - 1])]


@expect([True, True], ON_GPU)
def half_spectra_ignore_imaginary_ends(cp: Any) -> Any:
    # NumPy's irfft does not read the imaginary part of the first and, for an even size, the last frequency.
    x = cp.asarray(np.array([1.0 + 2.0j, 3.0 - 1.0j, 2.0 + 5.0j]))
    real = x.copy()
    real[0], real[2] = real[0].real, real[2].real
    same = [bool(cp.allclose(cp.fft.irfft(x, n), cp.fft.irfft(real, n))) for n in (4,)]
    odd = x.copy()
    odd[0] = odd[0].real
    return [*same, bool(cp.allclose(cp.fft.irfft(x, 5), cp.fft.irfft(odd, 5)))]


@expect([2052.0, 2052.0], ON_GPU)
def sums_of_halves_named_float32(cp: Any) -> Any:
    # 2048 + 1 is 2048 in float16: a sum in 16 bits may lose the ones. lucid always names the dtype.
    x = cp.ones(5, "float16")
    x[0] = 2048
    return [float(x.sum(dtype="float32")), float(x.reshape(1, 5).sum(1, dtype="float32")[0])]
