"""CuPy's module as the ops need it: what its functions do otherwise than NumPy's, put right in one place.

Everything else comes through as it is. Each correction names the place in CuPy 14.2 that makes it necessary;
a check of `lucid.testing.assumptions` tells, on a GPU, whether it still is.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_NUMBERS = (int, float, bool)


class Corrected:
    """`cupy`, with functions in the place of those whose results differ from NumPy's."""

    def __init__(self, cp: Any, cupyx: Any) -> None:
        self.__dict__.update(_cp=cp, __name__=cp.__name__, __path__=[], linalg=_Linalg(cp.linalg, cupyx))

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(self._cp, name)
        return found

    # ---- bfloat16 ----

    def where(self, condition: Any, *choices: Any) -> Any:
        """cupy.where, whose table has no bfloat16 and so makes float32 of it (_sorting/search.py,
        _where_ufunc): here the bits are chosen.
        """
        for a in choices:
            if getattr(a, "dtype", None) == _BFLOAT16:
                bits = [_bits(a) for a in choices]
                if not any(b is None for b in bits):
                    return self._cp.where(condition, *bits).view(_BFLOAT16)
                break
        return self._cp.where(condition, *choices)

    def tril(self, m: Any, k: int = 0) -> Any:
        """cupy.tril, which calls `where` (_creation/matrix.py)."""
        return _by_bits(self._cp.tril, m, k)

    def triu(self, m: Any, k: int = 0) -> Any:
        """cupy.triu, likewise."""
        return _by_bits(self._cp.triu, m, k)

    # ---- quotients of floats ----

    def remainder(self, x: Any, y: Any, out: Any = None) -> Any:
        """The remainder with the sign of y, exact as `fmod`.

        CuPy takes x - floor(x / y) y in the arithmetic of the type (_core/_routines_math.pyx): NaN
        for an infinite y, and wrong in all digits for a large quotient.
        """
        if not (_floats(x) or _floats(y)):
            return self._cp.remainder(x, y) if out is None else self._cp.remainder(x, y, out=out)
        dtype, (x, y) = _widened(x, y)
        return _stored(self._remainder(x, y), dtype, out)

    def _remainder(self, x: Any, y: Any) -> Any:
        cp = self._cp
        r = cp.fmod(x, y)
        r = cp.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)
        return cp.where(r == 0, cp.copysign(r, y), r)

    def floor_divide(self, x: Any, y: Any, out: Any = None) -> Any:
        """The largest whole number <= x / y of the exact quotient.

        CuPy takes the floor of the rounded one (carray.cuh, _floor_divide): 1.0 // 0.1 would be 10.
        """
        if not (_floats(x) or _floats(y)):
            return self._cp.floor_divide(x, y) if out is None else self._cp.floor_divide(x, y, out=out)
        cp = self._cp
        dtype, (x, y) = _widened(x, y)
        near = cp.true_divide(x, y)
        rest = cp.fmod(x, y)
        whole = cp.rint(cp.true_divide(x - rest, y))  # whole but for its own rounding
        whole = cp.where((rest != 0) & ((rest < 0) != (y < 0)), whole - 1, whole)
        whole = cp.where(whole == 0, cp.copysign(whole, near), whole)
        return _stored(cp.where(y == 0, near, whole), dtype, out)

    # ---- numbers ----

    def asarray(self, a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        """cupy.asarray, which loses the sign of a single -0.0: `fill` clears the memory for all that equals 0
        (_core/core.pyx).
        """
        if _is_minus_zero(a):
            return self._cp.asarray(np.asarray(a, dtype).reshape(1), *args, **kwargs).reshape(())
        return self._cp.asarray(a, dtype, *args, **kwargs)


class _Linalg:
    """`cupy.linalg`, where a factorisation that failed raises, as NumPy's does.

    CuPy reads the library's report only when asked (linalg/_util.py); what it returns otherwise is what the
    library left, which need not be NaN.
    """

    def __init__(self, linalg: Any, cupyx: Any) -> None:
        self.__dict__.update(_linalg=linalg, _cupyx=cupyx, __name__=linalg.__name__, __path__=[])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._linalg, name)
        if name in ("inv", "solve", "cholesky"):
            function, errstate = found, self._cupyx.errstate

            def found(*args: Any) -> Any:
                with errstate(linalg="raise"):
                    return function(*args)

        self.__dict__[name] = found
        return found


def _bits(a: Any) -> Any:
    """bfloat16 numbers as their 16 bits, a Python number as the bits of its bfloat16; else None."""
    if getattr(a, "dtype", None) == _BFLOAT16:
        return a.view(np.uint16)
    return np.asarray(a, _BFLOAT16).view(np.uint16)[()] if type(a) in _NUMBERS else None


def _by_bits(function: Any, m: Any, k: int) -> Any:
    return function(m, k) if m.dtype != _BFLOAT16 else function(m.view(np.uint16), k).view(_BFLOAT16)


def _floats(x: Any) -> bool:
    return type(x) is float or getattr(x, "dtype", np.dtype(bool)).kind in "fV"


def _widened(x: Any, y: Any) -> tuple[Any, tuple[Any, Any]]:
    """(16-bit dtype of the result or None, operands in float32 where it is one)."""
    dtypes = {a.dtype for a in (x, y) if hasattr(a, "dtype")}
    low = dtypes.pop() if len(dtypes) == 1 else None
    if low is None or low.itemsize != 2:
        return None, (x, y)
    return low, tuple(a.astype(np.float32) if hasattr(a, "dtype") else a for a in (x, y))


def _stored(found: Any, dtype: Any, out: Any) -> Any:
    if out is None:
        return found if dtype is None else found.astype(dtype)
    out[...] = found
    return out


def _is_minus_zero(a: Any) -> bool:
    if type(a) is float:
        return a == 0.0 and str(a)[0] == "-"
    if not isinstance(a, (np.ndarray, np.generic, complex)) or np.ndim(a) or a != 0:
        return False
    a = np.asarray(a)
    return a.dtype.kind in "fcV" and bool(np.signbit(a.real) or (a.dtype.kind == "c" and np.signbit(a.imag)))
