"""`ufunc`: CuPy's type tables and parameters around NumPy's loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from .array import BFLOAT16, adopt, cast, is_scalar, ndarray, unsupported
from .indexing import index
from .state import COUNT, NotInStandin, arrival

# dtypes for which CuPy has an atomic (cupy/_core/_routines_indexing.pyx)
AT_DTYPES = {
    "add": ("int32", "float16", "float32", "float64", "uint32", "uint64", "int64"),
    "subtract": ("int32", "uint32"),
    "maximum": ("int32", "float32", "float64", "uint32", "int64", "uint64"),
    "minimum": ("int32", "float32", "float64", "uint32", "int64", "uint64"),
    "bitwise_and": ("int32", "int64", "uint32", "uint64"),
    "bitwise_or": ("int32", "int64", "uint32", "uint64"),
    "bitwise_xor": ("int32", "int64", "uint32", "uint64"),
}
_REDUCE = ("add", "multiply")


def _floor_divide(x: Any, y: Any, **kw: Any) -> Any:
    """Of floats: the floor of the rounded quotient (_floor_divide of CuPy's carray.cuh)."""
    out = np.floor_divide(x, y, **kw)
    return np.floor(np.true_divide(x, y)).astype(out.dtype) if out.dtype.kind in "fV" else out


def _remainder(x: Any, y: Any, **kw: Any) -> Any:
    """Of floats: what `_floor_divide` leaves, in the arithmetic of their type."""
    out = np.remainder(x, y, **kw)
    return (x - _floor_divide(x, y) * y).astype(out.dtype) if out.dtype.kind in "fV" else out


_QUOTIENTS = {
    **dict.fromkeys(("floor_divide",), _floor_divide),
    **dict.fromkeys(("remainder", "mod"), _remainder),
}


class ufunc:
    """An element-wise function with the type table of the real one; see cupy.ufunc."""

    def __init__(self, name: str, spec: dict[str, Any]) -> None:
        self.name = self.__name__ = name
        self.nin, self.nout, self.nargs = spec["nin"], spec["nout"], spec["nin"] + spec["nout"]
        self.types = spec["types"].split()
        self.__doc__ = f"cupy.{name}, computed by NumPy."
        numpys = getattr(np, name)
        self._np = _QUOTIENTS.get(name, numpys)
        self._order = {"order": "C"} if isinstance(numpys, np.ufunc) else {}  # CuPy's results are C-ordered
        known = [t.replace("E", "") for t in self.types]
        chars = {c for t in known for c in t.split("->")[1]} - {"E"}
        self._out = {np.dtype(c) for c in chars}
        complex_in = any(set("FD") & set(t.split("->")[0]) for t in self.types)
        self._refuses_complex = not complex_in and any("F" in t for t in getattr(numpys, "types", ()))
        self._bfloat16 = any("E" in t for t in self.types) and BFLOAT16 is not None
        if any(t.endswith("E") for t in self.types) and BFLOAT16 is not None:
            self._out.add(BFLOAT16)

    def __repr__(self) -> str:
        return f"<ufunc 'cupy_{self.name}'>"

    def __call__(self, *args: Any, **kw: Any) -> Any:
        if kw or len(args) != self.nin:
            return self._general(args, kw)
        u = []
        for x in args:
            if type(x) is ndarray:
                u.append(x._a)
            elif is_scalar(x):
                u.append(x)
            else:
                raise unsupported(x)
        COUNT.launches += 1
        return self._wrap(self._compute(u, {}))

    def _compute(self, u: list[Any], kw: dict[str, Any]) -> Any:
        if BFLOAT16 is not None:
            u = self._widen(u)
        if self._refuses_complex and any(np.iscomplexobj(x) for x in u):
            raise TypeError(f"Wrong type (complex) of arguments for cupy_{self.name}")
        with np.errstate(all="ignore"):  # a GPU never warns
            r = self._np(*u, **self._order, **kw)
        for x in r if self.nout > 1 else (r,):
            if x.dtype not in self._out:
                raise TypeError(
                    f"Wrong type ({[str(getattr(v, 'dtype', type(v))) for v in u]}) of arguments "
                    f"for cupy_{self.name}"
                )
        COUNT.moved((*u, *(r if self.nout > 1 else (np.asarray(r),))))
        return r

    def _widen(self, u: list[Any]) -> list[Any]:
        """Beside bfloat16 a Python int or bool takes that type, and a float makes both float32: CuPy asks
        NumPy's `result_type`, for which bfloat16 and a float have float64 in common.
        """
        if not any(type(x) is np.ndarray and x.dtype == BFLOAT16 for x in u):
            return u
        if not self._bfloat16:
            raise TypeError(f"Wrong type (bfloat16) of arguments for cupy_{self.name}")
        if self.nin == 2 and not any(type(x) is np.ndarray and x.dtype != BFLOAT16 for x in u):
            return [
                np.asarray(x, BFLOAT16)
                if type(x) in (int, bool)
                else np.float32(x)
                if type(x) is float
                else x
                for x in u
            ]
        return u

    def _wrap(self, r: Any) -> Any:
        if self.nout > 1:
            return tuple(adopt(np.asarray(x)) for x in r)
        return adopt(r if type(r) is np.ndarray else np.asarray(r))

    def _general(self, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        out, dtype, casting = kw.pop("out", None), kw.pop("dtype", None), kw.pop("casting", "same_kind")
        if kw:
            raise TypeError(f"Wrong arguments {kw}")  # CuPy has no where=, order=, subok=
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(f"Wrong number of arguments for {self!r}")
        if len(args) > self.nin:
            if out is not None:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            out, args = args[self.nin :], args[: self.nin]
        outs = () if out is None else out if isinstance(out, tuple) else (out,)
        for x in outs:
            if type(x) is not ndarray:
                raise unsupported(x)
        u = []
        for x in args:
            if type(x) is not ndarray and not is_scalar(x):
                raise unsupported(x)
            u.append(x._a if type(x) is ndarray else x)
        COUNT.launches += 1
        r = self._compute(u, {} if dtype is None else {"dtype": dtype, "casting": casting})
        if not outs:
            return self._wrap(r)
        for o, x in zip(outs, r if self.nout > 1 else (r,), strict=True):
            self._store(o, x, casting)
        return outs if self.nout > 1 else outs[0]

    def _store(self, o: ndarray, x: Any, casting: str) -> None:
        if np.broadcast_shapes(o.shape, np.shape(x)) != o.shape:
            raise ValueError(f"Out shape is mismatched: expected {np.shape(x)}, got {o.shape}")
        if not _can_cast(x.dtype, o.dtype, casting):
            raise TypeError(
                f"output (typecode '{x.dtype.char}') could not be coerced to provided output parameter "
                f"(typecode '{o.dtype.char}') according to the casting rule \"{casting}\""
            )
        with np.errstate(all="ignore"):
            o._a[...] = x

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        """In place and unbuffered: a[indices] op= b, repeated indices included."""
        allowed = AT_DTYPES.get(self.name)
        if allowed is None:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if type(a) is not ndarray:
            raise unsupported(a)
        if a.dtype.name not in allowed:
            raise TypeError(f"cupy.{self.name}.at only supports {', '.join(allowed)} as data type")
        if type(b) is not ndarray and not is_scalar(b):
            raise unsupported(b)
        COUNT.launches += 1
        value = cast(b._a, a.dtype) if type(b) is ndarray else b
        places = np.arange(a.size).reshape(a.shape)[index(indices, a.shape)[0]]
        order = arrival(places.size)
        at = np.unravel_index(places.reshape(-1)[order], a.shape)
        with np.errstate(all="ignore"):
            self._np.at(a._a, at, np.broadcast_to(value, places.shape).reshape(-1)[order])

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        """The reduction of `array` along `axis`."""
        if self.name not in _REDUCE:
            raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")
        return self._via("reduce", array, axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """The running reduction of `array` along `axis`."""
        if self.name not in ("add", "multiply"):
            raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")
        return self._via("accumulate", array, axis, dtype, out)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Reductions of the slices between `indices`."""
        if self.name != "add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        if type(indices) is not ndarray:
            raise unsupported(indices)
        return self._via("reduceat", array, indices._a, axis, dtype, out)

    def _via(self, method: str, array: Any, *args: Any) -> Any:
        if type(array) is not ndarray:
            raise unsupported(array)
        COUNT.launches += 1
        o = next((x for x in args if type(x) is ndarray), None)
        with np.errstate(all="ignore"):
            r = getattr(self._np, method)(array._a, *(None if x is o else x for x in args))
        COUNT.moved((array._a, np.asarray(r)))
        if o is None:
            return adopt(np.asarray(r))
        o._a[...] = r
        return o

    def outer(self, a: Any, b: Any, **kw: Any) -> Any:
        """The function of every pair of elements."""
        if type(a) is not ndarray or type(b) is not ndarray:
            raise NotInStandin("outer of scalars")
        return self(a[(..., *(None,) * b.ndim)], b, **kw)


def _can_cast(src: np.dtype, dst: np.dtype, casting: str) -> bool:
    if src == dst or (BFLOAT16 is not None and BFLOAT16 in (src, dst) and {src.kind, dst.kind} <= {"f", "V"}):
        return True
    return np.can_cast(src, dst, casting)  # type: ignore[arg-type]
