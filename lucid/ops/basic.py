"""Casts, copies, sums, matrix products, and the shape changes between them."""

from __future__ import annotations

from typing import Any

from ..errors import DtypeError, ShapeError
from .common import Dim, Shape, in_dtype, is_low, keep_shape, normalize_dim, normalize_dims
from .common import sum_to as _sum_to
from .registry import OPS, Sample, op

DType = Any
_ANY = [Sample((3, 4)), Sample(()), Sample((0, 3)), Sample((2, 3), complex=True)]


# ---- casts, copies, constants ----


@op(public=False, pointwise=True, samples=[Sample((3,), "float64")])
def cast(xp, x, dtype: DType):
    """x in another dtype. The gradient is cast back (the real part of a complex one for a real x)."""
    if x.dtype.kind == "c" and xp.dtype(dtype).kind not in "cb":
        x = x.real
    return x.astype(dtype)


cast.grad(x=lambda F, g, x_dtype: F.cast(g, x_dtype))


@op(public=False, method=False, samples=_ANY)
def clone(xp, x):
    """A copy of x."""
    return xp.array(x, copy=True)


clone.grad(x=lambda F, g: g)


@op(public=False, diff=())
def detach(xp, x):
    """x as a constant."""
    return x.copy()


@op(public=False, diff=())
def zeros_like(xp, x):
    """Zeros of x's shape and dtype."""
    return xp.zeros(x.shape, x.dtype)


@op(public=False, diff=())
def ones_like(xp, x):
    """Ones of x's shape and dtype."""
    return xp.ones(x.shape, x.dtype)


@op(public=False, diff=())
def full_like(xp, x, value: Any):
    """An array of x's shape and dtype filled with a number."""
    return xp.full(x.shape, in_dtype("fill", value, x.dtype), x.dtype)


# ---- sums ----


@op(
    amp="full",
    method=False,
    samples=[
        Sample((3, 4)),
        Sample((3, 4), dim=1),
        Sample((3, 4), dim=(0, -1), keepdim=True),
        Sample(()),
        Sample((0, 3), dim=0),
    ],
    reference=lambda x, dim=None, keepdim=False: x.sum(axis=dim, keepdims=keepdim),
)
def sum(xp, x, dim: Dim = None, keepdim: bool = False):
    """Sum over `dim` (all dimensions when None).

    16-bit floats are accumulated in float32; integers and bools give int64.
    """
    dims = normalize_dims("sum", dim, x.ndim)
    if is_low(x.dtype):
        return xp.sum(x, axis=dims, dtype="float32", keepdims=keepdim).astype(x.dtype)
    return xp.add.reduce(x, axis=dims, dtype="int64" if x.dtype.num < 11 else None, keepdims=keepdim)


def _sum_x(F, g, x_shape, dim, keepdim):
    if not keepdim and len(x_shape):
        g = F.reshape(g, keep_shape(x_shape, normalize_dims("sum", dim, len(x_shape))))
    return F.expand(g, x_shape)


sum.grad(x=_sum_x)


@op(
    amp="full",
    method=False,
    samples=[Sample((3, 4)), Sample((3, 4), dim=1), Sample((3, 4), dim=(0, -1), keepdim=True), Sample(())],
    reference=lambda x, dim=None, keepdim=False: x.mean(axis=dim, keepdims=keepdim),
)
def mean(xp, x, dim: Dim = None, keepdim: bool = False):
    """Mean over `dim` (all dimensions when None). 16-bit floats are accumulated in float32."""
    if x.dtype.num < 11:
        raise DtypeError(
            f"mean: expected a floating or complex tensor, got {x.dtype.name}; "
            "convert first, for example x.float()"
        )
    dims = normalize_dims("mean", dim, x.ndim)
    count = 1
    for d in dims:
        count *= x.shape[d]
    wide = is_low(x.dtype)
    total = xp.sum(x, axis=dims, dtype="float32" if wide else None, keepdims=keepdim)
    total = total * (1.0 / count) if count else total * float("nan")
    return total.astype(x.dtype) if wide else total


def _mean_x(F, g, x_shape, dim, keepdim):
    dims = normalize_dims("mean", dim, len(x_shape))
    count = 1
    for d in dims:
        count *= x_shape[d]
    if not keepdim and len(x_shape):
        g = F.reshape(g, keep_shape(x_shape, dims))
    return F.expand(g / max(count, 1), x_shape)


mean.grad(x=_mean_x)


@op(public=False, samples=[Sample((3, 4), (1, 4)), Sample((2, 3), ())])
def sum_to(xp, x, shape: Shape):
    """x summed over the dimensions along which `shape` was broadcast to x's shape."""
    return _sum_to(x, tuple(shape))


sum_to.grad(x=lambda F, g, x_shape: F.expand(g, x_shape))


# ---- shape changes ----


@op(
    view=True,
    public=False,
    samples=[Sample((3, 4), (2, 6)), Sample((3, 4), (-1,)), Sample((), (1, 1)), Sample((0, 3), (3, 0))],
)
def reshape(xp, x, shape: Shape):
    """x with another shape of the same size; one entry may be -1. A view where the memory allows it."""
    try:
        out = x.reshape(shape)
        if out.shape != shape and min(shape) < -1:  # which NumPy takes for -1
            raise ValueError
        return out
    except ValueError:
        raise ShapeError(
            f"reshape: a tensor of shape {x.shape} ({x.size} elements) does not fit shape {tuple(shape)}; "
            "sizes must multiply to the same number, one may be -1"
        ) from None


reshape.grad(x=lambda F, g, x_shape: F.reshape(g, x_shape))


@op(view=True, public=False, samples=[Sample((2, 3, 4), 0, 2), Sample((2, 3), -1, -2), Sample((), 0, 0)])
def transpose(xp, x, dim0: int, dim1: int):
    """x with two dimensions exchanged: a view."""
    if x.ndim == 0:
        normalize_dim("transpose", dim0, 0), normalize_dim("transpose", dim1, 0)
        return x.reshape(())
    a, b = normalize_dims("transpose", dim0, x.ndim)[0], normalize_dims("transpose", dim1, x.ndim)[0]
    return xp.swapaxes(x, a, b)


transpose.grad(x=lambda F, g, dim0, dim1: F.transpose(g, dim0, dim1))


@op(
    view=True,
    public=False,
    samples=[Sample((2, 3, 4), (2, 0, 1)), Sample((2, 3, 4), (-1, 1, 0)), Sample((), ())],
)
def permute(xp, x, dims: Shape):
    """x with its dimensions in the order `dims`: a view."""
    if len(dims) != x.ndim:
        raise ShapeError(
            f"permute: expected {x.ndim} dimensions for a tensor of shape {x.shape}, got {tuple(dims)}"
        )
    return x.transpose(normalize_dims("permute", dims, x.ndim)) if x.ndim else x.reshape(())


def _permute_x(F, g, dims):
    n = len(dims)
    inverse = [0] * n
    for i, d in enumerate(dims):
        inverse[d % n] = i
    return F.permute(g, tuple(inverse))


permute.grad(x=_permute_x)


def _broadcast(xp: Any, x: Any, shape: Shape) -> Any:
    """x broadcast to `shape`: a view that may be written where x may (see `check_writable`)."""
    if xp.__name__ != "numpy":
        return xp.broadcast_to(x, shape)
    extra = len(shape) - x.ndim
    if extra < 0 or not x.flags.c_contiguous or not x.size or x.dtype.isbuiltin != 1:
        out = xp.broadcast_to(x, shape)
        out.flags.writeable = x.flags.writeable
        return out
    # NumPy's own function takes nine times as long.
    strides = [0] * extra
    for n, size, stride in zip(shape[extra:], x.shape, x.strides, strict=True):
        if n != size and size != 1:
            raise ValueError
        strides.append(stride if n == size else 0)
    return xp.ndarray(shape, x.dtype, x, 0, strides)


@op(
    view=True,
    public=False,
    samples=[Sample((3, 1), (3, 4)), Sample((4,), (2, 3, 4)), Sample((), (2,)), Sample((3, 1), (-1, 2))],
)
def expand(xp, x, shape: Shape):
    """x broadcast to `shape` without copying; -1 keeps a size."""
    extra = len(shape) - x.ndim
    sizes = tuple(x.shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(shape))
    try:
        return _broadcast(xp, x, sizes)
    except ValueError:
        raise ShapeError(
            f"expand: a tensor of shape {x.shape} cannot be broadcast to {tuple(shape)}; "
            "sizes must match or be 1, counted from the end"
        ) from None


expand.grad(x=lambda F, g, x_shape: F.sum_to(g, x_shape))


# ---- products ----


@op(
    holomorphic=True,
    amp="low",
    method=True,
    samples=[
        Sample((3, 4), (4, 2)),
        Sample((2, 3, 4), (2, 4, 5)),
        Sample((3,), (3,)),
        Sample((2, 3), (3,)),
        Sample((3,), (3, 2)),
        Sample((2, 1, 3, 4), (5, 4, 2)),
        Sample((2, 3), (3, 2), complex=True),
    ],
    reference="numpy:matmul",
)
def matmul(xp, x, y):
    """Matrix product of the last two dimensions; 1-d operands are vectors, leading dimensions broadcast.

    x: [..., n, k] or [k]; y: [..., k, m] or [k], of one dtype. Returns [..., n, m], without n or m where a
    vector stood. Raises ShapeError for inner sizes that differ, DtypeError for two dtypes. Products of
    float16 and bfloat16 are summed in float32.

    >>> import lucid
    >>> lucid.matmul(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 10.0]))
    tensor([21., 43.])
    >>> (lucid.ones(5, 2, 3) @ lucid.ones(3, 4)).shape
    (5, 2, 4)
    """
    if not x.ndim or not y.ndim:
        raise ShapeError(
            f"matmul: expected tensors of at least 1 dimension, got shapes {x.shape} and {y.shape}; "
            "use mul for scalars"
        )
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ShapeError(
            f"matmul: x.shape[-1] must equal y.shape[{-2 if y.ndim > 1 else 0}], got {x.shape[-1]} and "
            f"{inner} (x: {x.shape}, y: {y.shape})"
        )
    if x.dtype != y.dtype:
        raise DtypeError(
            f"matmul: expected one dtype, got {x.dtype.name} and {y.dtype.name}; convert one of them"
        )
    if x.dtype.num >= 256:  # bfloat16: numpy has no BLAS for it
        return xp.matmul(x.astype("float32"), y.astype("float32")).astype(x.dtype)
    if x.dtype.kind == "e" or x.dtype.name == "float16":
        return xp.matmul(x.astype("float32"), y.astype("float32")).astype(x.dtype)
    try:
        return xp.matmul(x, y)
    except ValueError:
        raise ShapeError(
            f"matmul: the dimensions before the last two do not broadcast together: {x.shape[:-2]} and "
            f"{y.shape[:-2]} (x: {x.shape}, y: {y.shape})"
        ) from None


def _rows(F, x):
    """x with its leading dimensions in one. Not reshape(-1, n): n may be 0."""
    if x.ndim == 2:
        return x
    rows = 1
    for n in x.shape[:-1]:
        rows *= n
    return F.reshape(x, (rows, x.shape[-1]))


def _matmul_x(F, g, x_shape, y):
    if y.ndim == 1:
        full = F.reshape(g, (*g.shape, 1)) * y if len(x_shape) > 1 else g * y
        return F.sum_to(full, x_shape)
    if len(x_shape) == 1:
        full = F.matmul(F.reshape(g, (*g.shape[:-1], 1, g.shape[-1])), F.transpose(y, -1, -2))
        return F.sum_to(F.reshape(full, (*full.shape[:-2], full.shape[-1])), x_shape)
    return F.sum_to(F.matmul(g, F.transpose(y, -1, -2)), x_shape)


def _matmul_y(F, g, x, y_shape):
    if x.ndim == 1:
        full = (
            F.reshape(x, (x.shape[0], 1)) * F.reshape(g, (*g.shape[:-1], 1, g.shape[-1]))
            if len(y_shape) > 1
            else g * x
        )
        return F.sum_to(full, y_shape)
    if len(y_shape) == 1:
        full = x * F.reshape(g, (*g.shape, 1))
        return F.sum_to(full, y_shape)
    if len(y_shape) == 2 and x.ndim > 2:
        # One product over all rows instead of a batch of products that would be summed.
        return F.matmul(F.transpose(_rows(F, x), 0, 1), _rows(F, g))
    return F.sum_to(F.matmul(F.transpose(x, -1, -2), g), y_shape)


matmul.grad(x=_matmul_x, y=_matmul_y)


@op(
    holomorphic=True,
    amp="low",
    samples=[
        Sample((3, 4), (2, 4), (2,)),
        Sample((2, 3, 4), (5, 4), None),
        Sample((4,), (2, 4), (2,)),
        Sample((1, 4), (2, 4), (2,)),
        Sample((3, 4), (4,), None),
    ],
    reference=lambda x, weight, bias=None: x @ weight.T + (0 if bias is None else bias),
)
def linear(xp, x, weight, bias=None):
    """x @ weight.T + bias, over the last dimension.

    x: [..., in]. weight: [out, in]. bias: [out] or None, all of one dtype. Returns [..., out]. Raises
    ShapeError for sizes that do not fit, DtypeError for two dtypes.

    >>> import lucid
    >>> weight, bias = lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([0.0, 100.0])
    >>> lucid.linear(lucid.tensor([1.0, 10.0]), weight, bias)
    tensor([ 21., 143.])
    """
    try:
        fits = x.shape[-1] == weight.shape[-1]
    except IndexError:  # 0-d
        fits = False
    if not fits:
        raise ShapeError(
            f"linear: x.shape[-1] must equal weight.shape[-1], got x {x.shape} and weight {weight.shape}; "
            "weight is [out features, in features]"
        )
    if bias is not None and bias.shape != weight.shape[:-1]:
        raise ShapeError(f"linear: bias must have shape {weight.shape[:-1]}, got {bias.shape}")
    if x.dtype != weight.dtype:
        raise DtypeError(
            f"linear: expected one dtype, got x {x.dtype.name} and weight {weight.dtype.name}; "
            "convert one of them, or use autocast"
        )
    if x.dtype.itemsize == 2:
        out = xp.matmul(x.astype("float32"), weight.T.astype("float32"))
        return (out if bias is None else out + bias).astype(x.dtype)
    # One matrix product: numpy runs a product of 3-d operands batch by batch.
    try:
        out = (
            xp.matmul(x.reshape(x.size // max(x.shape[-1], 1), x.shape[-1]), weight.T).reshape(
                *x.shape[:-1], *weight.shape[:-1]
            )
            if x.ndim > 2
            else xp.matmul(x, weight.T)
        )
    except ValueError:
        raise ShapeError(
            f"linear: expected a weight [out features, in features] or [in features], got {weight.shape}"
        ) from None
    if bias is not None:
        out += bias
    return out


def _linear_x(F, g, weight):
    return F.matmul(g, weight) if weight.ndim == 2 else F.reshape(g, (*g.shape, 1)) * weight


def _linear_weight(F, g, x, weight_shape):
    if len(weight_shape) == 1:
        return F.sum_to(F.reshape(g, (*g.shape, 1)) * x, weight_shape)
    g, x = _rows(F, g), _rows(F, x)
    if g.shape[0] == 1:
        # One row: an outer product by broadcasting is 5 times faster than numpy's matmul with inner size 1
        # (bench_overhead: mlp batch 1).
        return F.reshape(g, (g.shape[1], 1)) * x
    return F.matmul(F.transpose(g, 0, 1), x)


linear.grad(x=_linear_x, weight=_linear_weight, bias=lambda F, g: F.sum_to(g, g.shape[-1:]) if g.ndim else g)


# ---- writing through a view ----


@op(
    public=False,
    samples=[Sample((3, 4), (4, 3), ("transpose", (0, 1))), Sample((6,), (2, 3), ("reshape", ((2, 3),)))],
)
def view_put(xp, x, value, view: tuple[Any, ...]):
    """x with `value` in the region that a view op shows. view: (name of the view op, its static arguments).
    """
    out = x.copy()
    OPS[view[0]].forward(xp, out, *view[1])[...] = value
    return out


def _view_put_x(F, g, view):
    return F.view_put(g, F.zeros_like(getattr(F, view[0])(g, *view[1])), view)


view_put.grad(x=_view_put_x, value=lambda F, g, view: getattr(F, view[0])(g, *view[1]))
