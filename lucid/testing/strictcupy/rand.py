"""`cupy.random`: CuPy's names, parameters and dtypes.  The numbers are NumPy's, not a GPU's."""

from __future__ import annotations

from typing import Any

import numpy as np

from .array import adopt, ndarray, unsupported
from .state import COUNT, NotInStandin, api


def _device(a: Any, dtype: Any = None) -> ndarray:
    COUNT.launches += 1
    a = np.asarray(a)
    return adopt(a if dtype is None else a.astype(dtype))


def _float(dtype: Any) -> np.dtype:
    dt = np.dtype(dtype)
    if dt not in (np.float32, np.float64):
        raise TypeError(f"Unsupported dtype {dt}: cupy.random makes float32 and float64")
    return dt


class Generator:
    """The methods that cupy.random.Generator has: no `normal`, `permutation`, `choice`, ... ."""

    def __init__(self, bit_generator: Any = None) -> None:
        self._g = np.random.default_rng(bit_generator)
        self.bit_generator = bit_generator

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> ndarray:
        """Uniform in [0, 1)."""
        return _into(out, _device(self._g.random(size, _float(dtype))))

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> ndarray:
        """Normal with mean 0 and variance 1."""
        return _into(out, _device(self._g.standard_normal(size, _float(dtype))))

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Uniform in [low, high)."""
        return _device(self._g.uniform(low, high, size), _float(dtype))

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> ndarray:
        """Integers in [low, high)."""
        return _device(self._g.integers(low, high, size, dtype, endpoint))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> ndarray:
        """Exponential."""
        return _device(self._g.exponential(scale, size))

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "inv", out: Any = None
    ) -> ndarray:
        """Exponential with scale 1."""
        return _into(out, _device(self._g.standard_exponential(size, _float(dtype))))

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> ndarray:
        """Gamma."""
        return _device(self._g.gamma(_host(shape), _host(scale), size))

    def standard_gamma(
        self, shape: Any, size: Any = None, dtype: Any = np.float64, out: Any = None
    ) -> ndarray:
        """Gamma with scale 1."""
        return _into(out, _device(self._g.standard_gamma(_host(shape), size), dtype))

    def beta(self, a: Any, b: Any, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Beta."""
        return _device(self._g.beta(_host(a), _host(b), size), dtype)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> ndarray:
        """Poisson."""
        return _device(self._g.poisson(_host(lam), size))

    def binomial(self, n: Any, p: Any, size: Any = None) -> ndarray:
        """Binomial."""
        return _device(self._g.binomial(_host(n), _host(p), size))

    def chisquare(self, df: Any, size: Any = None) -> ndarray:
        """Chi-square."""
        return _device(self._g.chisquare(_host(df), size))

    def geometric(self, p: Any, size: Any = None) -> ndarray:
        """Geometric."""
        return _device(self._g.geometric(_host(p), size))

    def power(self, a: Any, size: Any = None) -> ndarray:
        """Power."""
        return _device(self._g.power(_host(a), size))

    def dirichlet(self, alpha: Any, size: Any = None) -> ndarray:
        """Dirichlet."""
        return _device(self._g.dirichlet(_host(alpha), size))


def _host(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        raise unsupported(x)
    return x._a if type(x) is ndarray else x


def _into(out: Any, r: ndarray) -> ndarray:
    if out is None:
        return r
    out._a[...] = r._a
    return out


class RandomState:
    """The legacy generator; see cupy.random.RandomState."""

    def __init__(self, seed: Any = None, method: Any = None) -> None:
        self.seed(seed)

    def seed(self, seed: Any = None) -> None:
        """Starts the sequence anew."""
        self._g = np.random.default_rng(None if seed is None else int(_host(seed)))

    def rand(self, *size: int, dtype: Any = float) -> ndarray:
        """Uniform in [0, 1)."""
        return _device(self._g.random(size), _float(dtype))

    def random_sample(self, size: Any = None, dtype: Any = float) -> ndarray:
        """Uniform in [0, 1)."""
        return _device(self._g.random(size), _float(dtype))

    def randn(self, *size: int, dtype: Any = float) -> ndarray:
        """Normal with mean 0 and variance 1."""
        return _device(self._g.standard_normal(size), _float(dtype))

    def standard_normal(self, size: Any = None, dtype: Any = float) -> ndarray:
        """Normal with mean 0 and variance 1."""
        return _device(self._g.standard_normal(size), _float(dtype))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Normal."""
        return _device(self._g.normal(_host(loc), _host(scale), size), _float(dtype))

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Uniform in [low, high)."""
        return _device(self._g.uniform(_host(low), _host(high), size), _float(dtype))

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> ndarray:
        """Integers in [low, high)."""
        return _device(self._g.integers(low, high, size), dtype)

    def exponential(self, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Exponential."""
        return _device(self._g.exponential(_host(scale), size), dtype)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Gamma."""
        return _device(self._g.gamma(_host(shape), _host(scale), size), dtype)

    def beta(self, a: Any, b: Any, size: Any = None, dtype: Any = float) -> ndarray:
        """Beta."""
        return _device(self._g.beta(_host(a), _host(b), size), dtype)

    def poisson(self, lam: Any = 1.0, size: Any = None, dtype: Any = int) -> ndarray:
        """Poisson."""
        return _device(self._g.poisson(_host(lam), size), dtype)

    def binomial(self, n: Any, p: Any, size: Any = None, dtype: Any = int) -> ndarray:
        """Binomial."""
        return _device(self._g.binomial(_host(n), _host(p), size), dtype)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Laplace."""
        return _device(self._g.laplace(_host(loc), _host(scale), size), dtype)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Gumbel."""
        return _device(self._g.gumbel(_host(loc), _host(scale), size), dtype)

    def permutation(self, a: Any) -> ndarray:
        """A permutation of range(a), or a shuffled copy."""
        return _device(self._g.permutation(a if isinstance(a, (int, np.integer)) else _host(a)))

    def shuffle(self, a: Any) -> None:
        """Shuffles along the first axis in place."""
        if type(a) is not ndarray:
            raise TypeError("The array must be cupy.ndarray")
        COUNT.launches += 1
        self._g.shuffle(a._a)

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> ndarray:
        """A sample of `a`."""
        return _device(self._g.choice(_host(a), size, replace, _host(p)))


_state = RandomState()


def default_rng(seed: Any = None) -> Generator:
    """A new Generator."""
    return Generator(seed)


def _module_function(name: str) -> Any:
    spec = api()["modules"]["cupy.random"][name]
    method = {"random": "random_sample", "ranf": "random_sample", "sample": "random_sample"}.get(name, name)
    if spec["kind"] != "function" or not hasattr(RandomState, method):
        raise NotInStandin(f"cupy.random.{name}")

    def f(*args: Any, **kw: Any) -> Any:
        return getattr(_state, method)(*args, **kw)

    f.__name__ = name
    return f


def get_random_state() -> RandomState:
    """The state behind the functions of the module."""
    return _state


def lookup(name: str) -> Any:
    """What `cupy.random.<name>` is."""
    own = {
        "Generator": Generator,
        "RandomState": RandomState,
        "default_rng": default_rng,
        "get_random_state": get_random_state,
        "XORWOW": _bits,
        "MRG32k3a": _bits,
        "Philox4x3210": _bits,
    }
    return own[name] if name in own else _module_function(name)


def _bits(seed: Any = None, *, size: int = -1) -> Any:
    return seed
