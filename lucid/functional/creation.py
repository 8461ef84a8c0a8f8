"""New tensors: filled with a value or a range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.inplace import check_writable, write
from ..autograd.out import written
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import in_dtype
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, category, get_default_dtype, int64
from ..tensor import Tensor, _wrap, tensor
from .registry import public

Shape = tuple[int, ...]


def shape_of(name: str, size: tuple[Any, ...]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` as (2, 3); ShapeError for a negative size."""
    if len(size) == 1 and not isinstance(size[0], (int, np.integer, Tensor)):
        size = tuple(size[0])
    shape = tuple(int(n) for n in size)
    if any(n < 0 for n in shape):
        raise ShapeError(f"{name}: expected sizes >= 0, got {shape}")
    return shape


def given(out: Any, result: Tensor, name: str) -> Tensor:
    """`out` with `result` written into it; `result` when out is None."""
    return result if out is None else written(name, out, lambda: result, (), {})


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, (int, float, complex, np.number, np.bool_)):
        raise DtypeError(f"{name}: expected a number to fill with, got {type(value).__name__} {value!r}")


def _number_dtype(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return as_dtype(bool)
    if isinstance(value, (int, np.integer)):
        return int64
    return as_dtype(complex) if isinstance(value, (complex, np.complexfloating)) else get_default_dtype()


def _new(
    name: str, size: tuple[Any, ...], fill: str, dtype: Any, device: Any, requires_grad: bool, out: Any
) -> Tensor:
    backend = backend_of(device if out is None else out.device)
    wanted = (get_default_dtype() if out is None else out.dtype) if dtype is None else as_dtype(dtype)
    return given(
        out,
        _wrap(getattr(backend.xp, fill)(shape_of(name, size), dtype=wanted), backend, requires_grad),
        name,
    )


@public()
def zeros(
    *size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros.

    size: numbers or one tuple. dtype: the default dtype when None. device: the default device when None. out:
    a tensor that is written instead. Raises ShapeError for a negative size.

    >>> import lucid
    >>> lucid.zeros(2, 3).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _new("zeros", size, "zeros", dtype, device, requires_grad, out)


@public()
def ones(
    *size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones; arguments and errors as of `zeros`.

    >>> import lucid
    >>> lucid.ones(3, dtype=lucid.int64)
    tensor([1, 1, 1])
    """
    return _new("ones", size, "ones", dtype, device, requires_grad, out)


@public()
def empty(
    *size: Any,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor whose values are whatever its memory holds; write before reading.

    Arguments and errors as of `zeros`.

    >>> import lucid
    >>> lucid.empty(2, 3).shape
    (2, 3)
    """
    return _new("empty", size, "empty", dtype, device, requires_grad, out)


@public()
def full(
    size: Any,
    fill_value: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with every element `fill_value`.

    size: a tuple. dtype: that of the Python number (bool, int64, the default float, complex) when None.
    Raises ShapeError for a negative size.

    >>> import lucid
    >>> lucid.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    backend = backend_of(device if out is None else out.device)
    fill_value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    wanted = (_number_dtype(fill_value) if out is None else out.dtype) if dtype is None else as_dtype(dtype)
    shape = shape_of("full", (size,))
    _check_number("full", fill_value)
    fill_value = in_dtype("full", fill_value, wanted)
    return given(
        out,
        _wrap(backend.quietly(backend.xp.full, shape, fill_value, dtype=wanted), backend, requires_grad),
        "full",
    )


@public()
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialised tensor whose neighbours along dimension i lie stride[i] elements apart.

    Raises ShapeError for a negative size or stride, or another number of strides than sizes.

    >>> import lucid
    >>> lucid.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    backend, shape = backend_of(device), shape_of("empty_strided", (size,))
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    if len(stride) != len(shape) or any(s < 0 for s in stride):
        raise ShapeError(
            f"empty_strided: expected {len(shape)} strides >= 0 for size {shape}, got {tuple(stride)}"
        )
    length = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if all(shape) else 0
    memory = backend.xp.empty(length, dtype=wanted)
    array = backend.xp.lib.stride_tricks.as_strided(memory, shape, tuple(s * wanted.itemsize for s in stride))
    return _wrap(array, backend, requires_grad)


@public()
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The identity matrix [n, m] (m = n when None). Raises ShapeError for a negative size.

    >>> import lucid
    >>> lucid.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    backend = backend_of(device if out is None else out.device)
    rows, columns = shape_of("eye", (n, n if m is None else m))
    array = backend.xp.eye(rows, columns, dtype=get_default_dtype() if dtype is None else as_dtype(dtype))
    return given(out, _wrap(array, backend, requires_grad), "eye")


@public()
def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below `end`: ceil((end - start) / step) numbers. `arange(end)` starts at 0.

    int64 when all three are integers, else the default dtype; computed as start + i step in float64. Raises
    ShapeError for a step of 0 and for one that does not lead to `end`.

    >>> import lucid
    >>> lucid.arange(0, 10, 3)
    tensor([0, 3, 6, 9])
    >>> lucid.arange(0.0, 1.0, 0.25)
    tensor([0.  , 0.25, 0.5 , 0.75])
    """
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (v.item() if isinstance(v, (Tensor, np.generic)) else v for v in (start, end, step))
    if step == 0 or not all(math.isfinite(v) for v in (start, end, step)):
        raise ShapeError(
            f"arange: expected finite bounds and a step other than 0, got start={start}, end={end}, "
            f"step={step}"
        )
    if (end - start) * step < 0:
        raise ShapeError(f"arange: a step of {step} does not lead from start={start} to end={end}")
    whole = all(isinstance(v, int) for v in (start, end, step))
    wanted = (int64 if whole else get_default_dtype()) if dtype is None else as_dtype(dtype)
    n = -(-(end - start) // step) if whole else math.ceil((end - start) / step)
    backend = backend_of(device if out is None else out.device)
    with backend.guard():
        array = backend.xp.arange(n, dtype="int64" if whole else "float64")
        if step != 1:
            array *= step
        if start:
            array += start
        array = backend.quietly(array.astype, wanted, copy=False)
    return given(out, _wrap(array, backend, requires_grad), "arange")


@public("range")
def range_(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to and including `end`, in the default dtype: an older form of `arange`.

    >>> import lucid
    >>> lucid.range(1, 3)
    tensor([1., 2., 3.])
    """
    start, end = (0, start) if end is None else (start, end)
    n = math.floor((end - start) / step) + 1
    return arange(
        start, start + step * (n - 0.5), step, dtype=dtype, device=device, requires_grad=requires_grad
    )


@public()
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from start to end, both included, at equal distances.

    start + i (end - start) / (steps - 1), computed in float64. Raises ShapeError for steps < 0.

    >>> import lucid
    >>> lucid.linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    return _spaced("linspace", start, end, steps, None, dtype, device, requires_grad, out)


@public()
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """base to the power of `steps` exponents from start to end. Raises ShapeError for steps < 0.

    >>> import lucid
    >>> lucid.logspace(0, 3, 4)
    tensor([   1.,   10.,  100., 1000.])
    """
    return _spaced("logspace", start, end, steps, base, dtype, device, requires_grad, out)


def _spaced(
    name: str,
    start: Any,
    end: Any,
    steps: int,
    base: float | None,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    out: Any,
) -> Tensor:
    if steps < 0:
        raise ShapeError(f"{name}: expected steps >= 0, got {steps}")
    start, end = (v.item() if isinstance(v, Tensor) else v for v in (start, end))
    backend = backend_of(device if out is None else out.device)
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    wanted = (as_dtype(complex) if is_complex else get_default_dtype()) if dtype is None else as_dtype(dtype)

    def numbers() -> Any:
        exponent = backend.xp.linspace(start, end, steps, dtype="complex128" if is_complex else "float64")
        return (exponent if base is None else base**exponent).astype(wanted)

    return given(out, _wrap(backend.quietly(numbers), backend, requires_grad), name)


def _like(name: str, fill: str, example: str) -> Callable[..., Tensor]:
    def like(
        x: Tensor,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        backend = x.storage.backend if device is None else backend_of(device)
        array = getattr(backend.xp, fill)(x.shape, dtype=x.dtype if dtype is None else as_dtype(dtype))
        return _wrap(array, backend, requires_grad)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = (
        f"`{fill}` with the shape, and unless given the dtype and device, of `x`.\n\n"
        f">>> import lucid\n{example}"
    )
    return public(name)(like)


zeros_like = _like("zeros_like", "zeros", ">>> lucid.zeros_like(lucid.tensor([1, 2]))\ntensor([0, 0])")
ones_like = _like("ones_like", "ones", ">>> lucid.ones_like(lucid.tensor([1, 2]))\ntensor([1, 1])")
empty_like = _like("empty_like", "empty", ">>> lucid.empty_like(lucid.tensor([1, 2])).shape\n(2,)")


@public()
def full_like(
    x: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`full` with the shape, and unless given the dtype and device, of `x`.

    >>> import lucid
    >>> lucid.full_like(lucid.zeros(2, dtype=lucid.int64), 7)
    tensor([7, 7])
    """
    return full(
        x.shape,
        fill_value,
        dtype=x.dtype if dtype is None else dtype,
        device=x.device if device is None else device,
        requires_grad=requires_grad,
    )


# ---- methods ----


def new_zeros(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Zeros with the dtype and device of the tensor unless given.

    >>> import lucid
    >>> lucid.tensor([1, 2]).new_zeros(3)
    tensor([0, 0, 0])
    """
    return zeros(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_ones(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Ones with the dtype and device of the tensor unless given.

    >>> import lucid
    >>> lucid.tensor([1, 2]).new_ones(3)
    tensor([1, 1, 1])
    """
    return ones(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_empty(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialised tensor with the dtype and device of the tensor unless given.

    >>> import lucid
    >>> lucid.tensor([1, 2]).new_empty(3).dtype
    dtype('int64')
    """
    return empty(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A filled tensor with the dtype and device of the tensor unless given.

    >>> import lucid
    >>> lucid.tensor([1, 2]).new_full((3,), 7)
    tensor([7, 7, 7])
    """
    return full(
        size, fill_value, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
    )


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A copy of `data` with the dtype and device of the tensor unless given.

    >>> import lucid
    >>> lucid.tensor([1, 2]).new_tensor([3.9])
    tensor([3])
    """
    return tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


@public("zero_")
def zero_(self: Tensor) -> Tensor:
    """The tensor itself, filled with zeros. Raises InplaceError for a leaf that requires grad.

    >>> import lucid
    >>> lucid.tensor([1.0, 2.0]).zero_()
    tensor([0., 0.])
    """
    return _filled(self, 0, "zero_")


@public("fill_")
def fill_(self: Tensor, value: Any) -> Tensor:
    """The tensor itself, filled with `value`: a number, or a 0-d tensor, to which the gradient flows.

    Raises InplaceError for a leaf that requires grad, ShapeError for a tensor with dimensions, DtypeError for
    a complex value in a real tensor.

    >>> import lucid
    >>> lucid.tensor([1.0, 2.0]).fill_(7)
    tensor([7., 7.])
    """
    return _filled(self, value, "fill_")


@public("fill")
def fill(x: Tensor, value: Any) -> Tensor:
    """A tensor of x's shape, dtype and device with every element `value`; errors as of `fill_`.

    >>> import lucid
    >>> lucid.fill(lucid.tensor([1.0, 2.0]), 7)
    tensor([7., 7.])
    """
    return _filled(F.clone(x), value, "fill")


def _filled(x: Tensor, value: Any, name: str) -> Tensor:
    check_writable(x, name)
    backend = x.storage.backend
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(f"{name}: expected a number or a 0-d tensor, got shape {value.shape}")
        filler = F.expand(F.cast(value, x.dtype) if value.dtype != x.dtype else value, x.shape)
    else:
        if isinstance(value, complex) and category(x.dtype) != 3:
            raise DtypeError(f"{name}: a complex value {value} does not fit a tensor of {x.dtype.name}")
        _check_number(name, value)
        # A 0-d array seen with strides of 0: nothing of x's size is allocated.
        number = backend.quietly(backend.xp.asarray(value).astype, x.dtype)
        filler = _wrap(backend.xp.broadcast_to(number, x.shape), backend)
    if x.requires_grad:
        # What x was made of gets a gradient of zeros, as in PyTorch.
        everywhere = _wrap(backend.xp.broadcast_to(backend.xp.asarray(True), x.shape), backend)
        filler = F.where(everywhere, filler, x)
    return write(x, filler, name)


for _function in (new_zeros, new_ones, new_empty, new_full, new_tensor, zero_, fill_):
    setattr(Tensor, _function.__name__, _function)
