"""Where the values and dtypes of CuPy's functions are not NumPy's: one wrapper for each difference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .array import BFLOAT16
from .state import COUNT, HERE, UndefinedOnDevice, arrival, names

# sums that CuPy accumulates in float32 for half types
_WIDE = names(
    """
    sum prod mean var std cumsum cumprod nansum nanmean nanvar nanstd nanprod trace matmul dot
    tensordot einsum inner vdot outer kron average convolve correlate
    """
)
_PRODUCTS = names("matmul dot tensordot einsum inner vdot kron")
# whose tables have no bfloat16: CuPy takes the first row that it fits, float32's
_NO_BFLOAT16 = names("where tril triu")
# made by Thrust, which has no bfloat16
_SORTS = names("sort argsort lexsort unique isin in1d partition argpartition")
_LINALG_FLOAT = names(
    """
    cholesky inv pinv solve lstsq det slogdet qr svd svdvals eigh eigvalsh eig eigvals matrix_rank
    tensorsolve tensorinv
    """
)
# whose result the library says to have made or not
_WITH_INFO = names("cholesky inv solve eigh eigvalsh eig eigvals svd qr")


def as_cupy(module: str, name: str, impl: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function `impl` with the differences of CuPy's function `name`."""
    if name in _WIDE:
        impl = _widened(impl, name in _PRODUCTS)
    if name == "bincount":
        impl = _bincount
    if name in _NO_BFLOAT16:
        impl = _float32_for_bfloat16(impl)
    if name in ("var", "std"):
        impl = _spread(impl, name)
    if name in ("cumsum", "cumprod"):
        impl = _scan(impl)
    if name == "irfftn":
        impl = _irfftn
    if name in _SORTS:
        impl = _sort(impl, name)
    if module == "cupy.linalg" and name in _LINALG_FLOAT:
        impl = _silent_linalg(impl, name)
    return impl


def _widened(impl: Callable[..., Any], product: bool) -> Callable[..., Any]:
    """Half types are added up in float32 and rounded once, as cuBLAS and CuPy's reductions do."""

    @functools.wraps(impl)
    def f(*args: Any, **kw: Any) -> Any:
        narrow = [
            a.dtype for a in _host_arrays(args) if a.dtype.char == "E" or (product and a.dtype.char == "e")
        ]
        if not narrow:
            return impl(*args, **kw)
        if product and any(a.dtype == BFLOAT16 and a.ndim > 2 for a in _host_arrays(args)):
            # matmul in CuPy 14's _core/_routines_linalg.pyx hands such batches to its kernel for integers.
            raise UndefinedOnDevice("a product of batches of bfloat16: CuPy has none; go through float32")
        others = [a.dtype for a in _host_arrays(args) if a.dtype not in narrow and a.dtype.kind in "fc"]
        back = kw.pop("dtype", None) or (narrow[0] if not others and len(set(narrow)) == 1 else None)
        out = kw.pop("out", None)
        r = impl(*_to_float32(args), **kw)
        r = np.asarray(r) if back is None else np.asarray(r).astype(back)
        if out is not None:
            out[...] = r
        return r

    return f


def _bincount(x: Any, weights: Any = None, minlength: Any = None) -> Any:
    """Weights are added by atomics: in any order."""
    order = slice(None) if weights is None else arrival(x.size)
    return np.bincount(x[order], None if weights is None else weights[order], minlength or 0)


def _float32_for_bfloat16(impl: Callable[..., Any]) -> Callable[..., Any]:
    def f(*args: Any, **kw: Any) -> Any:
        if not any(a.dtype == BFLOAT16 for a in _host_arrays(args)):
            return impl(*args, **kw)
        return impl(*(np.float32(a) if type(a) is float else _to_float32(a) for a in args), **kw)

    return f


def _sort(impl: Callable[..., Any], name: str) -> Callable[..., Any]:
    def f(*args: Any, **kw: Any) -> Any:
        for a in _host_arrays(args):
            if a.dtype == BFLOAT16:
                raise NotImplementedError("Sorting arrays with dtype 'bfloat16' is not supported")
            if "partition" in name and a.dtype.kind in "fc" and np.isnan(a).any():
                raise UndefinedOnDevice(f"{name} of NaN: CuPy's comparisons have no place for it; sort")
        return impl(*args, **kw)

    return f


def _spread(impl: Callable[..., Any], name: str) -> Callable[..., Any]:
    def f(a: Any, axis: Any = None, dtype: Any = None, *args: Any, **kw: Any) -> Any:
        if a.dtype == np.float16 and dtype is None:
            raise UndefinedOnDevice(f"{name} of float16: CuPy sums squares in float16; go through float32")
        if a.dtype == BFLOAT16 and dtype is None:
            return np.asarray(impl(a.astype(np.float32), axis, np.float64, *args, **kw))
        return impl(a, axis, dtype, *args, **kw)

    return f


def _scan(impl: Callable[..., Any]) -> Callable[..., Any]:
    def f(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if BFLOAT16 in (a.dtype, dtype) and dtype in (None, BFLOAT16):
            raise UndefinedOnDevice("a scan in bfloat16: CuPy's kernel does not compile; name a dtype")
        return impl(a, axis, dtype, out)

    return f


def _irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
    out = np.fft.irfftn(a, s, axes, norm)
    if axes is None or len(axes) > 1:
        again = np.fft.rfftn(out, axes=axes, norm=norm)
        if a.shape == again.shape and not np.allclose(a, again, atol=1e-4 * (1 + np.abs(a).max())):
            raise UndefinedOnDevice("irfftn over several axes of a spectrum that is not Hermitian: see cuFFT")
    return out


def _host_arrays(x: Any) -> list[np.ndarray]:
    if isinstance(x, np.ndarray):
        return [x]
    return [a for e in x for a in _host_arrays(e)] if isinstance(x, (list, tuple)) else []


def _to_float32(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.astype(np.float32) if x.dtype.char in "eE" else x
    return type(x)(_to_float32(e) for e in x) if isinstance(x, (list, tuple)) else x


def _silent_linalg(impl: Callable[..., Any], name: str) -> Callable[..., Any]:
    """CuPy raises for shapes and dtypes; for values only within `cupyx.errstate(linalg="raise")`, where it
    waits for the device. Else it goes on with what the library left: a finite triangle in the place of a
    Cholesky factor, old memory in that of one inverse of a batch, infinities for a single matrix.
    """

    def f(a: Any, *args: Any, **kw: Any) -> Any:
        if a.dtype.char in "eE":
            raise TypeError(f"array type {a.dtype.name} is unsupported in linalg")
        if name == "solve":
            _check_solve(a, args[0])
        COUNT.syncs += HERE.linalg == "raise"
        try:
            return impl(a, *args, **kw)
        except np.linalg.LinAlgError as e:
            if not any(w in str(e) for w in ("Singular", "positive definite", "converge")):
                raise
            if HERE.linalg == "raise" and name in _WITH_INFO:
                raise np.linalg.LinAlgError(f"Error reported by {name} in cuSOLVER. devInfo = 1.") from None
            shape = args[0].shape if name == "solve" else a.shape
            dt = a.dtype if a.dtype.kind in "fc" else np.float64
            if name == "cholesky":
                return np.tril(a)
            return np.ones(shape, dt) if a.ndim > 2 else np.full(shape, np.inf, dt)

    return f


def _check_solve(a: np.ndarray, b: np.ndarray) -> None:
    if b.ndim > 1 and a.shape[:-1] != b.shape[:-1]:
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
    if a.size and not b.size:
        if a.ndim > 2:
            raise ZeroDivisionError  # of batched_gesv: a range of addresses with step 0
        raise UndefinedOnDevice("solve for no right side: cuSOLVER gets a null address")
