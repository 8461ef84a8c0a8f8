"""The module tree: `cupy`, `cupyx` and their submodules, with the names of the real ones (api.json)."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import types
from typing import Any

import numpy as np

from . import cuda, functions, rand, raw
from .array import adopt, is_scalar, ndarray, unsupported
from .memory import DEFAULT_POOL, OutOfMemoryError
from .operators import install_operators
from .state import COUNT, HERE, DeviceSynchronized, NotInStandin, api
from .ufunc import ufunc

# NumPy or SciPy module that computes each device module
_BEHIND = {
    "cupy": "numpy",
    "cupy.linalg": "numpy.linalg",
    "cupy.fft": "numpy.fft",
    "cupyx.scipy.special": "scipy.special",
    "cupyx.scipy.linalg": "scipy.linalg",
    "cupyx.scipy.signal": "scipy.signal",
    "cupyx.scipy.ndimage": "scipy.ndimage",
}
_CONSTANTS = {
    "Inf": np.inf,
    "Infinity": np.inf,
    "PINF": np.inf,
    "infty": np.inf,
    "NINF": -np.inf,
    "NAN": np.nan,
    "NaN": np.nan,
    "PZERO": 0.0,
    "NZERO": -0.0,
}


class Module(types.ModuleType):
    """A module whose names are looked up in the snapshot of the real one at first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        spec = api()["modules"].get(self.__name__, {}).get(name)
        if spec is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = _resolve(self.__name__, name, spec)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *api()["modules"].get(self.__name__, {})})


def _resolve(module: str, name: str, spec: dict[str, Any]) -> Any:
    own = functions.OWN.get(module, {}).get(name)
    if own is not None:
        return own
    if module == "cupy.random":
        return rand.lookup(name)
    if spec.get("numpy") or (module == "cupy" and name in _CONSTANTS):
        return _CONSTANTS.get(name, getattr(np, name, None))
    behind = _BEHIND.get(module)
    impl = None
    if behind is not None:
        try:
            impl = getattr(importlib.import_module(behind), name, None)
        except ImportError as e:
            raise NotInStandin(f"{module}.{name} needs {behind}") from e
    if impl is not None and spec["kind"] == "ufunc":
        return ufunc(name, spec) if module == "cupy" else Special(module, name, spec, impl)
    if impl is not None and spec["kind"] == "function" and name not in functions.CALLBACKS:
        return functions.function(module, name, spec, impl)
    raise NotInStandin(f"{module}.{name} exists in CuPy {api()['cupy']} but not in the stand-in")


class Special:
    """A ufunc of cupyx.scipy.special: SciPy's values, the dtypes of CuPy's type table."""

    def __init__(self, module: str, name: str, spec: dict[str, Any], impl: Any) -> None:
        self.name = self.__name__ = name
        self.types, self.nin, self.nout, self._impl = spec["types"].split(), spec["nin"], spec["nout"], impl
        self._result = functools.cache(self._find)

    def _find(self, dtypes: tuple[np.dtype, ...]) -> np.dtype:
        for t in self.types:
            ins, out = t.split("->")
            if "E" not in t and all(np.can_cast(d, c, "safe") for d, c in zip(dtypes, ins, strict=True)):
                return np.dtype(out[0])
        raise TypeError(f"Wrong type ({dtypes}) of arguments for cupyx_scipy_special_{self.name}")

    def __call__(self, *args: Any, out: Any = None) -> Any:
        u = []
        for x in args[: self.nin]:
            if type(x) is not ndarray and not is_scalar(x):
                raise unsupported(x)
            u.append(x._a if type(x) is ndarray else x)
        COUNT.launches += 1
        arrays = [x.dtype for x in u if isinstance(x, np.ndarray)]
        weak = np.result_type(*u)
        dt = self._result(
            tuple(
                x.dtype
                if isinstance(x, np.ndarray)
                else (arrays[0] if arrays and arrays[0].kind == "f" else weak)
                for x in u
            )
        )
        COUNT.moved(u)
        with np.errstate(all="ignore"):
            r = np.asarray(self._impl(*u)).astype(dt, copy=False)
        if out is None:
            return adopt(np.ascontiguousarray(r) if r.ndim else r)
        out._a[...] = r
        return out


def _tree() -> dict[str, Module]:
    names = [
        "cupy",
        "cupy.linalg",
        "cupy.fft",
        "cupy.random",
        "cupy.cuda",
        "cupy.cuda.runtime",
        "cupy.testing",
        "cupy.lib",
        "cupy.lib.stride_tricks",
        "cupyx",
        "cupyx.scipy",
        "cupyx.scipy.special",
        "cupyx.scipy.linalg",
        "cupyx.scipy.signal",
        "cupyx.scipy.ndimage",
        "cupyx.profiler",
    ]
    tree: dict[str, Module] = {}
    for n in names:
        m = tree[n] = Module(n)
        m.__path__ = []  # a package: `import cupy.linalg` looks no further
        parent, _, last = n.rpartition(".")
        if parent:
            setattr(tree[parent], last, m)
    return tree


TREE = _tree()
cupy = TREE["cupy"]
cupyx = TREE["cupyx"]


def _rsqrt(x: Any) -> Any:
    return cupy.reciprocal(cupy.sqrt(x))


@contextlib.contextmanager
def _errstate(**kw: Any) -> Any:
    unknown = set(kw) - {"divide", "over", "under", "invalid", "linalg", "fallback_mode"}
    if unknown:
        raise TypeError(f"errstate() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    before, HERE.linalg = HERE.linalg, kw.get("linalg") or HERE.linalg
    try:
        yield
    finally:
        HERE.linalg = before


@contextlib.contextmanager
def _allow_synchronize(allow: bool) -> Any:
    before = COUNT.syncs_allowed
    COUNT.syncs_allowed = bool(allow)
    try:
        yield
    finally:
        COUNT.syncs_allowed = before


def _memoize(for_each_device: bool = False) -> Any:
    return lambda f: functools.cache(f)


def _assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0, err_msg: str = "", verbose: bool = True
) -> None:
    np.testing.assert_allclose(
        functions.asnumpy(actual), functions.asnumpy(desired), rtol, atol, err_msg=err_msg, verbose=verbose
    )


def _assert_array_equal(
    x: Any, y: Any, err_msg: str = "", verbose: bool = True, strides_check: bool = False, **kw: Any
) -> None:
    np.testing.assert_array_equal(
        functions.asnumpy(x), functions.asnumpy(y), err_msg=err_msg, verbose=verbose
    )


class _ComputeTypes:
    """cupy._core._routines_linalg: how products of a dtype may be computed.  Remembered, without effect."""

    COMPUTE_TYPE_DEFAULT, COMPUTE_TYPE_TF32 = 1, 7

    def __init__(self) -> None:
        self._types: dict[str, int] = {}

    def set_compute_type(self, dtype: Any, compute_type: int) -> None:
        """Sets the compute type of a dtype."""
        self._types[np.dtype(dtype).char] = int(compute_type)

    def get_compute_type(self, dtype_char: str) -> int:
        """The compute type of a dtype, by its character."""
        tf32 = dtype_char == "f" and os.environ.get("CUPY_TF32") == "1"
        return self._types.setdefault(
            dtype_char, self.COMPUTE_TYPE_TF32 if tf32 else self.COMPUTE_TYPE_DEFAULT
        )


def _own() -> dict[str, dict[str, Any]]:
    """What has an implementation of its own, by module."""
    top = {
        "__version__": api()["cupy"],
        "ndarray": ndarray,
        "ufunc": ufunc,
        "RawKernel": raw.RawKernel,
        "RawModule": raw.RawModule,
        "is_available": lambda: True,
        "memoize": _memoize,
        "AxisError": np.exceptions.AxisError,
        "exceptions": np.exceptions,
        "ComplexWarning": np.exceptions.ComplexWarning,
        "get_default_memory_pool": lambda: DEFAULT_POOL,
        "get_default_pinned_memory_pool": lambda: cuda.PINNED_POOL,
        "_core": types.SimpleNamespace(ndarray=ndarray, ufunc=ufunc, _routines_linalg=_ComputeTypes()),
    }
    compiler = types.SimpleNamespace(CompileException=raw.CompileException)
    extensions = {
        "rsqrt": _rsqrt,
        "errstate": _errstate,
        "allow_synchronize": _allow_synchronize,
        "DeviceSynchronized": DeviceSynchronized,
        "scatter_add": lambda a, slices, value: cupy.add.at(a, slices, value),
        "scatter_max": lambda a, slices, value: cupy.maximum.at(a, slices, value),
        "scatter_min": lambda a, slices, value: cupy.minimum.at(a, slices, value),
    }
    return {
        "cupy": top,
        "cupy.cuda": {**cuda.CUDA, "compiler": compiler, "OutOfMemoryError": OutOfMemoryError},
        "cupy.cuda.runtime": cuda.RUNTIME,
        "cupy.linalg": {"LinAlgError": np.linalg.LinAlgError},
        "cupyx": {**cuda.PINNED, **extensions},
        "cupy.testing": {"assert_allclose": _assert_allclose, "assert_array_equal": _assert_array_equal},
    }


for _module, _names in _own().items():
    for _name, _value in _names.items():
        setattr(TREE[_module], _name, _value)
install_operators(cupy, functions.check_call)
