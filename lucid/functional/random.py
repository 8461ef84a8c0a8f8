"""Random tensors. The same seed gives the same numbers on every device (see storage/random.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..autograd.inplace import check_writable, write
from ..errors import DtypeError, ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, category, float32, float64, get_default_dtype, int64
from ..storage.random import Generator, generator_for
from ..tensor import Tensor, _wrap
from .creation import given, shape_of
from .registry import on_its_device, public
from .shape import broadcast_shapes


def _device(device: Any, generator: Generator | None, out: Any = None) -> Any:
    if out is not None:
        return backend_of(out.device)
    return backend_of(generator.device if device is None and generator is not None else device)


@public()
def rand(
    *size: Any,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1).

    size: numbers or one tuple. generator: the device's own when None. dtype: the default dtype when None. The
    same seed gives the same numbers on every device. Raises ShapeError for a negative size.

    >>> import lucid
    >>> x = lucid.rand(2, 3)
    >>> x.shape, bool(((x >= 0) & (x < 1)).all())
    ((2, 3), True)
    """
    backend = _device(device, generator, out)
    return given(
        out,
        _wrap(
            generator_for(generator, backend).uniform(shape_of("rand", size), dtype=dtype),
            backend,
            requires_grad,
        ),
        "rand",
    )


@public()
def randn(
    *size: Any,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Normal numbers with mean 0 and standard deviation 1; arguments and errors as of `rand`.

    A complex dtype has variance 1/2 in each part.

    >>> import lucid
    >>> lucid.randn(2, 3).shape
    (2, 3)
    """
    backend = _device(device, generator, out)
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    shape, source = shape_of("randn", size), generator_for(generator, backend)
    if wanted.kind == "c":
        real = float64 if wanted.itemsize == 16 else float32
        array = source.normal((*shape, 2), std=math.sqrt(0.5), dtype=real).view(wanted).reshape(shape)
    else:
        array = source.normal(shape, dtype=wanted)
    return given(out, _wrap(array, backend, requires_grad), "randn")


@public()
def randint(
    low: Any,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high), int64 unless given: `randint(high, size)` or `randint(low, high, size)`.

    Raises ShapeError for low >= high and for a size that is no tuple.

    >>> import lucid
    >>> x = lucid.randint(0, 10, (3,))
    >>> x.dtype, bool(((x >= 0) & (x < 10)).all())
    (dtype('int64'), True)
    """
    if size is None:
        if high is None or isinstance(high, (int, np.integer)):
            raise ShapeError(
                "randint: expected randint(high, size) or randint(low, high, size) with a tuple as size"
            )
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low  # randint(high, size=...)
    if low >= high:
        raise ShapeError(f"randint: expected low < high, got low={low}, high={high}")
    backend = _device(device, generator, out)
    array = generator_for(generator, backend).integers(
        int(low), int(high), shape_of("randint", (size,)), int64
    )
    return given(
        out,
        _wrap(array.astype(int64 if dtype is None else as_dtype(dtype), copy=False), backend, requires_grad),
        "randint",
    )


@public()
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """0 .. n - 1 in random order, int64 unless given. Raises ShapeError for n < 0.

    >>> import lucid
    >>> lucid.randperm(4).sort().values
    tensor([0, 1, 2, 3])
    """
    backend = _device(device, generator, out)
    shape_of("randperm", (n,))
    array = generator_for(generator, backend).permutation(int(n))
    return given(
        out,
        _wrap(array.astype(int64 if dtype is None else as_dtype(dtype), copy=False), backend, requires_grad),
        "randperm",
    )


@public()
def rand_like(
    x: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`rand` with the shape, and unless given the dtype and device, of `x`.

    >>> import lucid
    >>> lucid.rand_like(lucid.zeros(2, 3)).shape
    (2, 3)
    """
    return rand(
        x.shape,
        generator=generator,
        dtype=dtype or x.dtype,
        device=device or x.device,
        requires_grad=requires_grad,
    )


@public()
def randn_like(
    x: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randn` with the shape, and unless given the dtype and device, of `x`.

    >>> import lucid
    >>> lucid.randn_like(lucid.zeros(2, 3)).shape
    (2, 3)
    """
    return randn(
        x.shape,
        generator=generator,
        dtype=dtype or x.dtype,
        device=device or x.device,
        requires_grad=requires_grad,
    )


@public()
def randint_like(
    x: Tensor,
    low: Any,
    high: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randint` with the shape, and unless given the dtype and device, of `x`: integers in [low, high).

    >>> import lucid
    >>> lucid.randint_like(lucid.zeros(2, 3), 10).dtype
    dtype('float32')
    """
    low, high = (0, low) if high is None else (low, high)
    return randint(
        low,
        high,
        x.shape,
        generator=generator,
        dtype=dtype or x.dtype,
        device=device or x.device,
        requires_grad=requires_grad,
    )


@public()
@on_its_device
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers: of `size` for numbers mean and std, or one per element of tensors mean and std.

    Tensors broadcast together. Raises ShapeError for a negative std and for numbers without a size.

    >>> import lucid
    >>> lucid.normal(0.0, 1.0, (2, 3)).shape
    (2, 3)
    >>> lucid.normal(lucid.tensor([0.0, 100.0]), 0.0)
    tensor([  0., 100.])
    """
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    if not tensors:
        if size is None:
            raise ShapeError("normal: give size, or tensors for mean or std")
        if std < 0:
            raise ShapeError(f"normal: expected a standard deviation >= 0, got {std}")
        backend = _device(device, generator, out)
        array = generator_for(generator, backend).normal(
            shape_of("normal", (size,)), float(mean), float(std), dtype
        )
        return given(out, _wrap(array, backend, requires_grad), "normal")
    backend = tensors[0].storage.backend
    mean, std = (v.storage.array if isinstance(v, Tensor) else v for v in (mean, std))
    if backend.name == "cpu" and (np.asarray(std) < 0).any():
        raise ShapeError("normal: expected standard deviations >= 0")
    shape = broadcast_shapes(*(t.shape for t in tensors))
    array = generator_for(generator, backend).normal(shape, dtype=tensors[0].dtype)
    return given(
        out,
        _wrap(backend.xp.asarray(array * std + mean).astype(tensors[0].dtype, copy=False), backend),
        "normal",
    )


def _check_probabilities(name: str, x: Tensor) -> None:
    # Only where reading costs no synchronisation.
    if x.storage.backend.name == "cpu" and not ((x.storage.array >= 0) & (x.storage.array <= 1)).all():
        raise ShapeError(
            f"{name}: expected probabilities in [0, 1], got a tensor of shape {x.shape} with others"
        )


@public(method=True)
@on_its_device
def bernoulli(
    x: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Any = None
) -> Tensor:
    """1 with probability x (or p, with the shape of x), else 0, in the dtype of x. Not differentiable.

    Raises ShapeError for probabilities outside [0, 1] (on the CPU).

    >>> import lucid
    >>> lucid.bernoulli(lucid.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    backend = x.storage.backend
    source = generator_for(generator, backend)
    if p is not None:
        return given(out, _wrap(source.bernoulli_mask(x.shape, p).astype(x.dtype), backend), "bernoulli")
    _check_probabilities("bernoulli", x)
    # Uniforms of the same precision or more: p = 1 always gives 1, p = 0 always 0.
    draws = source.uniform(x.shape, dtype=float64 if x.dtype == float64 else float32)
    return given(
        out, _wrap(backend.xp.asarray(draws < x.storage.array).astype(x.dtype), backend), "bernoulli"
    )


@public(method=True)
@on_its_device
def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the weights in each row of `x`: int64 [..., num_samples].

    x: [n] or [rows, n], floating weights >= 0 that need not sum to 1. Without replacement: the smallest of
    exponentials divided by weights (Efraimidis and Spirakis 2006). Raises ShapeError for other weights, and
    for more samples than there are weights above 0.

    >>> import lucid
    >>> lucid.multinomial(lucid.tensor([0.0, 1.0, 0.0]), 3, replacement=True)
    tensor([1, 1, 1])
    """
    if x.ndim not in (1, 2) or category(x.dtype) != 2:
        raise ShapeError(
            f"multinomial: expected floating weights [n] or [rows, n], got {x.dtype.name} {x.shape}"
        )
    backend = x.storage.backend
    xp, n = backend.xp, x.shape[-1]
    if not n:
        raise ShapeError(f"multinomial: expected at least one weight, got shape {x.shape}")
    if num_samples < 1 or (num_samples > n and not replacement):
        raise ShapeError(
            f"multinomial: cannot draw {num_samples} of {n} without replacement; pass replacement=True"
        )
    weights = x.storage.array.astype("float64").reshape(-1, n)
    if backend.name == "cpu":
        enough = (weights > 0).sum(1) >= (1 if replacement else num_samples)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and enough.all()):
            raise ShapeError(
                "multinomial: expected finite weights >= 0, with as many above 0 in each row as are drawn"
            )
    source, rows = generator_for(generator, backend), weights.shape[0]
    if replacement:
        total = xp.cumsum(weights, axis=1)
        # One search for all rows: row i lies in [i, i + 1). The factor keeps u + i below i + 1 after
        # rounding.
        offset = xp.arange(rows, dtype="float64").reshape(rows, 1)
        draws = source.uniform((rows, num_samples), dtype=float64) * (1.0 - 2.0**-30) + offset
        found = xp.searchsorted(
            (total / total[:, -1:] + offset).reshape(-1), draws.reshape(-1), side="right"
        ).reshape(rows, num_samples)
        index = found - offset.astype("int64") * n
    else:
        keys = source.exponential((rows, n), dtype=float64)
        keys /= xp.maximum(weights, 1e-300)
        index = xp.argsort(keys, axis=1)[:, :num_samples]
    return _wrap(index.astype("int64").reshape(*x.shape[:-1], num_samples), backend)


@public()
def poisson(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers with the rates x, in its dtype; drawn on the host, so equal on all devices.

    >>> import lucid
    >>> lucid.poisson(lucid.tensor([0.0, 0.0]))
    tensor([0., 0.])
    """
    backend = x.storage.backend
    rates = backend.to_numpy(x.storage.array)
    if not (rates >= 0).all():
        raise ShapeError("poisson: expected rates >= 0")
    draws = generator_for(generator, backend).host().poisson(rates.astype("float64"))
    return _wrap(backend.from_numpy(np.asarray(draws).astype(x.dtype)), backend)


@public()
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`, in their dtype; drawn on the host.

    count, prob: floating, broadcast together. Raises ShapeError for counts below 0 or probabilities outside
    [0, 1].

    >>> import lucid
    >>> lucid.binomial(lucid.tensor([3.0, 3.0]), lucid.tensor([0.0, 1.0]))
    tensor([0., 3.])
    """
    backend = count.storage.backend
    n, p = (backend.to_numpy(t.storage.array) for t in (count, prob))
    try:
        np.broadcast_shapes(n.shape, p.shape)
    except ValueError:
        raise ShapeError(f"binomial: shapes {n.shape} and {p.shape} do not broadcast together") from None
    if not ((n >= 0).all() and (p >= 0).all() and (p <= 1).all()):
        raise ShapeError("binomial: expected counts of at least 0 and probabilities in [0, 1]")
    draws = generator_for(generator, backend).host().binomial(n.astype("int64"), p.astype("float64"))
    return _wrap(backend.from_numpy(np.asarray(draws).astype(count.dtype)), backend)


# ---- methods that fill a tensor ----


def _write(x: Tensor, array: Any, name: str) -> Tensor:
    return write(x, _wrap(array, x.storage.backend), name)


@on_its_device
def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """The tensor itself, filled with uniform numbers in [a, b). Raises ShapeError for a > b.

    >>> import lucid
    >>> x = lucid.empty(3).uniform_(2.0, 3.0)
    >>> bool(((x >= 2) & (x < 3)).all())
    True
    """
    check_writable(self, "uniform_")
    if a > b:
        raise ShapeError(f"uniform_: expected a <= b, got {a}, {b}")
    return _write(
        self, generator_for(generator, self.storage.backend).uniform(self.shape, a, b, self.dtype), "uniform_"
    )


@on_its_device
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """The tensor itself, filled with normal numbers. Raises ShapeError for std < 0.

    >>> import lucid
    >>> lucid.empty(2).normal_(5.0, 0.0)
    tensor([5., 5.])
    """
    check_writable(self, "normal_")
    if std < 0:
        raise ShapeError(f"normal_: expected std >= 0, got {std}")
    if self.dtype.kind == "c":
        return _write(
            self,
            randn(self.shape, generator=generator, dtype=self.dtype, device=self.device).array * std + mean,
            "normal_",
        )
    return _write(
        self,
        generator_for(generator, self.storage.backend).normal(self.shape, mean, std, self.dtype),
        "normal_",
    )


@on_its_device
def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """The tensor itself, filled with exp of normal numbers of that mean and std.

    >>> import lucid
    >>> bool((lucid.empty(3).log_normal_() > 0).all())
    True
    """
    check_writable(self, "log_normal_")
    backend = self.storage.backend
    return _write(
        self,
        backend.xp.exp(generator_for(generator, backend).normal(self.shape, mean, std, self.dtype)),
        "log_normal_",
    )


@on_its_device
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """The tensor itself, filled with exponential numbers > 0 of rate `lambd`.

    Raises ShapeError for lambd <= 0.

    >>> import lucid
    >>> bool((lucid.empty(3).exponential_() > 0).all())
    True
    """
    check_writable(self, "exponential_")
    if not lambd > 0:
        raise ShapeError(f"exponential_: expected lambd > 0, got {lambd}")
    return _write(
        self,
        generator_for(generator, self.storage.backend).exponential(self.shape, lambd, self.dtype),
        "exponential_",
    )


@on_its_device
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """The tensor itself, filled with 1 with probability p (a number, or a tensor that broadcasts), else 0.

    Raises ShapeError for probabilities outside [0, 1] in a tensor (on the CPU).

    >>> import lucid
    >>> lucid.empty(2).bernoulli_(lucid.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    check_writable(self, "bernoulli_")
    backend = self.storage.backend
    source = generator_for(generator, backend)
    if isinstance(p, Tensor):
        _check_probabilities("bernoulli_", p)
        return _write(
            self,
            (source.uniform(self.shape, dtype=float64) < p.storage.array).astype(self.dtype),
            "bernoulli_",
        )
    return _write(self, source.bernoulli_mask(self.shape, p).astype(self.dtype), "bernoulli_")


@on_its_device
def random_(
    self: Tensor, low: int | None = None, high: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """The tensor itself, filled with integers: `random_()`, `random_(high)`, `random_(low, high)`.

    Without bounds: all of the dtype's (for floats: those that it holds exactly). Raises DtypeError for
    complex numbers.

    >>> import lucid
    >>> x = lucid.empty(3).random_(5, 7)
    >>> bool(((x == 5) | (x == 6)).all())
    True
    """
    check_writable(self, "random_")
    kind = category(self.dtype)
    if kind == 3:
        raise DtypeError(f"random_: expected a real dtype, got {self.dtype.name}")
    if high is None:
        low, high = 0, low
    if high is None:
        if kind == 2:
            high = 2 ** {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[self.dtype.name] + 1
        else:
            high = 2 if kind == 0 else int(np.iinfo(self.dtype).max) + 1
    array = generator_for(generator, self.storage.backend).integers(
        int(low or 0), int(high), self.shape, int64
    )
    return _write(self, array.astype(self.dtype), "random_")


@on_its_device
def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """The tensor itself, filled with Cauchy numbers: median + sigma tan(pi (u - 1/2)).

    >>> import lucid
    >>> lucid.empty(3).cauchy_().shape
    (3,)
    """
    check_writable(self, "cauchy_")
    backend = self.storage.backend
    u = generator_for(generator, backend).uniform(self.shape, dtype=float64)
    return _write(self, (median + sigma * backend.xp.tan(math.pi * (u - 0.5))).astype(self.dtype), "cauchy_")


@on_its_device
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """The tensor itself, filled with numbers of trials up to the first success of probability p.

    Raises ShapeError for a p outside (0, 1).

    >>> import lucid
    >>> bool((lucid.empty(3).geometric_(0.5) >= 1).all())
    True
    """
    check_writable(self, "geometric_")
    if not 0.0 < p < 1.0:
        raise ShapeError(f"geometric_: expected 0 < p < 1, got {p}")
    backend = self.storage.backend
    # ceil(E / -log(1 - p)) of an exponential E > 0.
    draws = generator_for(generator, backend).exponential(self.shape, -math.log1p(-p), float64)
    return _write(self, backend.xp.ceil(draws).astype(self.dtype), "geometric_")


for _function in (uniform_, normal_, log_normal_, exponential_, bernoulli_, random_, cauchy_, geometric_):
    setattr(Tensor, _function.__name__, _function)
