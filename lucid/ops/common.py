"""Array helpers that several op files share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any, TypeVar

from ..errors import DivisionError, DtypeError, IndexRangeError, LucidError, ShapeError
from ..storage.backend import scipy_linalg as scipy_linalg
from ..storage.backend import special as special

Shape = tuple[int, ...]
Dim = int | Sequence[int] | None
_Function = TypeVar("_Function", bound=Callable[..., Any])


def normalize_dim(name: str, dim: int, ndim: int) -> int:
    """`dim` counted from the front. A 0-d shape accepts 0 and -1, as in PyTorch."""
    n = max(ndim, 1)
    try:
        within = -n <= dim < n
    except TypeError:
        raise DtypeError(f"{name}: expected an integer as dim, got {type(dim).__name__} {dim!r}") from None
    if not within:
        raise IndexRangeError(
            f"{name}: dim must lie in [{-n}, {n - 1}] for a tensor of {ndim} dimensions, got {dim}"
        )
    return dim + n if dim < 0 else dim


def normalize_dims(name: str, dim: Dim, ndim: int) -> Shape:
    """`dim` as a tuple counted from the front: None and () are all dimensions."""
    if dim is None:
        return tuple(range(ndim))
    try:
        if isinstance(dim, int) or not isinstance(dim, Sequence):
            d = normalize_dim(name, index(dim), ndim)
            return (d,) if ndim else ()
        dims = tuple(normalize_dim(name, index(d), ndim) for d in dim)
    except TypeError:
        raise DtypeError(f"{name}: dim must be integers, got {type(dim).__name__} {dim!r}") from None
    if len(set(dims)) != len(dims):
        raise ShapeError(
            f"{name}: dim names a dimension twice: {tuple(dim)} for a tensor of {ndim} dimensions"
        )
    if not ndim:
        return ()
    return dims or tuple(range(ndim))


def need_order(name: str, x: Any) -> None:
    """Nothing; raises DtypeError for complex numbers, which have no order."""
    if x.dtype.kind == "c":
        raise DtypeError(
            f"{name}: complex numbers have no order, got {x.dtype.name}; take x.real, x.imag or x.abs()"
        )


def in_dtype(name: str, value: Any, dtype: Any) -> Any:
    """The number as an array of `dtype` holds it: negative integers wrap around in unsigned ones.

    Raises DtypeError for a number that has no place among integers.
    """
    if dtype.kind not in "iu" or not isinstance(value, (int, float)):
        return value
    count = 1 << 8 * dtype.itemsize
    least, most = (1 - count, count - 1) if dtype.kind == "u" else (-count // 2, count // 2 - 1)
    if not least <= value <= most:  # nan neither
        raise DtypeError(f"{name}: {value} does not fit in {dtype.name}; take a wider dtype, such as int64")
    return int(value) % count if dtype.kind == "u" else int(value)


def no_zeros(name: str, xp: Any, x: Any, y: Any) -> None:
    """Nothing; raises DivisionError for x / y of integers with a zero in y, which no integer can answer.

    Not checked on a GPU, where it would wait for the device; the quotient is then the device's.
    """
    if xp.__name__ == "numpy" and y.dtype.num < 11 and x.size and not y.all():
        raise DivisionError(f"{name}: integers cannot be divided by 0; convert with .float() for inf and nan")


def check_tensors(name: str, **values: Any) -> None:
    """Nothing; raises DtypeError for a value that is no tensor (nor array): for ops made of others."""
    for argument, value in values.items():
        if not hasattr(value, "ndim"):
            raise DtypeError(
                f"{name}: expected a tensor as {argument}, got {type(value).__name__} {value!r}; "
                "make a tensor of it with lucid.tensor(...)"
            )


def named(name: str) -> Callable[[_Function], _Function]:
    """A decorator: errors that ops raise inside the function carry its name, for functions made of other ops.
    """

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except LucidError as error:
                raise renamed(error, name) from error

        return call  # type: ignore[return-value]

    return decorate


def renamed(error: LucidError, name: str) -> LucidError:
    """The same error in the name of another op: "mul: shapes ..." becomes "trapezoid: shapes ..."."""
    message = str(error)
    return (
        error if message.startswith(name) else type(error)(f"{name}: {message.partition(': ')[2] or message}")
    )


def keep_shape(shape: Shape, dims: Shape) -> Shape:
    """`shape` with size 1 at `dims`: what a reduction with keepdim gives."""
    return tuple(1 if i in dims else n for i, n in enumerate(shape))


def is_low(dtype: Any) -> bool:
    """Whether `dtype` is a 16-bit float, whose sums must be accumulated in float32."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def sum_to(x: Any, shape: Shape) -> Any:
    """`x` summed over the dimensions along which `shape` was broadcast to `x.shape`."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    dims = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and x.shape[i + extra] != 1
    )
    if dims:
        x = x.sum(dims, dtype="float32").astype(x.dtype) if is_low(x.dtype) else x.sum(dims)
    return x.reshape(shape)
