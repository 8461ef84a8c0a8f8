"""Inverses, solutions, determinants and the exponential of matrices.

Matrices stand in the last two dimensions; the others are a batch.

A formula writes `H(F, x)` for the conjugate transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from ..errors import DtypeError, LinAlgError, ShapeError
from ..kernel.products import matmul_of
from .common import Shape, is_low, scipy_linalg
from .registry import A, Sample, op


def H(F: Any, x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    return F.conj(F.transpose(x, -2, -1))


def hermitian(xp: Any, x: Any) -> Any:
    x = xp.swapaxes(x, -2, -1)
    return x.conj() if x.dtype.kind == "c" else x


def check_matrix(name: str, x: Any, square: bool = True) -> None:
    """Nothing; raises unless `x` holds (square) matrices of a dtype that LAPACK has: no 16-bit floats."""
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(
            f"{name}: expected {'square ' * square}matrices [..., {'n, n' if square else 'm, n'}], got shape "
            f"{tuple(x.shape)}"
        )
    if x.dtype.kind in "iub":
        raise DtypeError(
            f"{name}: expected a floating or complex dtype, got {x.dtype.name}; convert it with .float() or "
            ".double()"
        )
    if is_low(x.dtype):
        raise DtypeError(
            f"{name}: LAPACK and cuSOLVER have no 16-bit floats, got {x.dtype.name}; convert it with .float()"
        )


def broadcast_shapes(a: Shape, b: Shape) -> Shape:
    """The shape that two shapes broadcast to. (CuPy has no such function.)"""
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
    if any(i != j and 1 not in (i, j) for i, j in zip(a, b, strict=True)):
        raise ShapeError(f"shapes {a} and {b} do not broadcast; sizes must be equal or 1")
    return tuple(j if i == 1 else i for i, j in zip(a, b, strict=True))


def attempt(name: str, trouble: str, xp: Any, run: Callable[..., Any], *arrays: Any) -> Any:
    """`run(*arrays)`; where it fails, an error that names the first matrix of the batch on which it does."""
    try:
        # On CUDA the library's report is read, which waits for the device, as PyTorch's check does.
        return run(*arrays)
    except xp.linalg.LinAlgError:
        pass
    x = arrays[0]
    for index in product(*map(range, x.shape[:-2])):
        try:
            run(x[index], *(a[index[-(a.ndim - 2) :] if a.ndim > 2 else ()] for a in arrays[1:]))
        except (xp.linalg.LinAlgError, IndexError):
            where = f" (batch index {index})" if index else ""
            raise LinAlgError(f"{name}: the input{where} {trouble}") from None
    raise LinAlgError(f"{name}: an input of the batch {trouble}")


_SINGULAR = "is singular; use linalg.pinv or linalg.lstsq, or add a small multiple of the identity"
REAL_SQUARE = A(value=[[2.0, 0.5, -0.3], [0.2, 1.5, 0.4], [-0.6, 0.1, 1.8]])
_BATCH = A(value=[[[2.0, 0.5], [-0.4, 1.5]], [[1.2, -0.7], [0.3, 0.9]]])
_SQUARES = [Sample(REAL_SQUARE, complex=True), Sample(_BATCH), Sample((2, 2), complex=True)]

# ---- inverses and solutions ----


@op(name="inverse", method=True, amp="full", samples=_SQUARES, reference="numpy.linalg:inv")
def inverse(xp, x):
    """The inverse of each matrix.

    x: [..., n, n], floating or complex. Raises ShapeError or DtypeError for others, LinAlgError for a
    singular matrix, with its batch index.

    >>> import lucid
    >>> lucid.inverse(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5 , 0.  ],
            [0.  , 0.25]])
    """
    check_matrix("inverse", x)
    return attempt("inverse", _SINGULAR, xp, xp.linalg.inv, x)


def _inverse_x(F, g, out):
    h = H(F, out)
    return -F.matmul(F.matmul(h, g), h)


inverse.grad(x=_inverse_x)


@op(
    public=False,
    amp="full",
    dtype="promote",
    samples=[
        Sample(REAL_SQUARE, (3, 2)),
        Sample(_BATCH, (2, 3)),
        Sample(REAL_SQUARE, (2, 3, 1)),
        Sample((2, 2), (2, 1), complex=True),
    ],
    reference="numpy.linalg:solve",
)
def solve_matrix(xp, x, y):
    """x^-1 y.

    x: [..., n, n]; y: [..., n, k]; leading dimensions broadcast. Raises LinAlgError for a singular matrix,
    with its batch index.
    """
    check_matrix("linalg.solve", x)
    if y.ndim < 2:
        raise ShapeError(f"linalg.solve: expected B [..., n, k] or [..., n], got shape {tuple(y.shape)}")
    if y.shape[-2] != x.shape[-1]:
        raise ShapeError(
            f"linalg.solve: A has {x.shape[-1]} rows but B {y.shape[-2]} (A: {tuple(x.shape)}, B: "
            f"{tuple(y.shape)}); rows must match"
        )
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if len(lead) > 0:
        x, y = xp.broadcast_to(x, (*lead, *x.shape[-2:])), xp.broadcast_to(y, (*lead, *y.shape[-2:]))
    if y.size == 0:
        return xp.zeros(y.shape, y.dtype)
    return attempt("linalg.solve", _SINGULAR, xp, xp.linalg.solve, x, y)


def _solve_grads(F, g, x, out, x_shape, y_shape, needs):
    gy = F.solve_matrix(H(F, x), g)
    gx = F.sum_to(-F.matmul(gy, H(F, out)), x_shape) if needs[0] else None
    return gx, F.sum_to(gy, y_shape) if needs[1] else None


solve_matrix.grads(("x", "y"), _solve_grads)


def _triangular_reference(x: Any, y: Any, upper: bool, unit: bool = False) -> Any:
    import numpy as np

    x = np.triu(x) if upper else np.tril(x)
    if unit:
        x = x - x * np.eye(x.shape[-1]) + np.eye(x.shape[-1])
    return np.linalg.solve(x, y)


@op(
    public=False,
    amp="full",
    dtype="promote",
    reference=_triangular_reference,
    samples=[
        Sample(REAL_SQUARE, (3, 2), True),
        Sample(_BATCH, (2, 3), False),
        Sample(REAL_SQUARE, (2, 3, 1), False, True),
        Sample((2, 2), (2, 1), True, complex=True),
    ],
)
def triangular(xp, x, y, upper: bool, unit: bool = False):
    """x^-1 y for a triangular x; the other triangle, and with `unit` the diagonal, are not read.

    x: [..., n, n]; y: [..., n, k]; leading dimensions broadcast.
    """
    check_matrix("linalg.solve_triangular", x)
    if y.ndim < 2 or y.shape[-2] != x.shape[-1]:
        raise ShapeError(
            f"linalg.solve_triangular: A {tuple(x.shape)} and B {tuple(y.shape)} do not fit; A's size must "
            "be B's number of rows"
        )
    n = x.shape[-1]
    if x.ndim == 2 and y.ndim == 2 and y.size:
        diagonal = x.diagonal()
        if not unit and not bool((diagonal != 0).all()):  # a check: reads the device
            raise LinAlgError(f"linalg.solve_triangular: the input {_SINGULAR}")
        return scipy_linalg(xp).solve_triangular(
            x, y, lower=not upper, unit_diagonal=unit, check_finite=False
        )
    x = xp.triu(x) if upper else xp.tril(x)
    if unit:
        eye = xp.eye(n, dtype=x.dtype)
        x = xp.where(eye != 0, eye, x)
    return solve_matrix.forward(xp, x, y)


def _triangular_grads(F, g, x, out, x_shape, y_shape, upper, unit, needs):
    gy = F.triangular(H(F, x), g, not upper, unit)
    gx = None
    if needs[0]:
        full = F.sum_to(-F.matmul(gy, H(F, out)), x_shape)
        gx = F.triu(full, 1 if unit else 0) if upper else F.tril(full, -1 if unit else 0)
    return gx, F.sum_to(gy, y_shape) if needs[1] else None


triangular.grads(("x", "y"), _triangular_grads)


def _pinv(xp: Any, x: Any, rtol: float, atol: float) -> Any:
    if not x.size:
        return xp.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    keep = s > xp.maximum(atol, rtol * s[..., :1])
    s = xp.where(keep, 1.0 / xp.where(keep, s, 1.0), 0.0).astype(s.dtype)
    return matmul_of(xp)(hermitian(xp, vh) * s[..., None, :], hermitian(xp, u))


@op(
    public=False,
    amp="full",
    samples=[Sample((3, 2), 1e-12), Sample((2, 2, 4), 1e-12), Sample((2, 2), 1e-12, complex=True)],
    reference=lambda x, rtol, atol=0.0, one_triangle=False: __import__("numpy").linalg.pinv(x, rtol),
)
def pseudo_inverse(xp, x, rtol: float, atol: float = 0.0, one_triangle: bool = False):
    """The Moore-Penrose inverse of each matrix.

    Singular values up to max(atol, rtol * largest) count as zero.

    x: [..., m, n]. Returns [..., n, m]. The gradient is that of a matrix whose rank stays (Golub and Pereyra
    1973). one_triangle: only the lower triangle is read; the gradient is that at a Hermitian x.
    """
    check_matrix("linalg.pinv", x, square=one_triangle)
    return _pinv(xp, from_triangle.forward(xp, x, False) if one_triangle else x, rtol, atol)


def _pinv_x(F, g, x, out):
    h, gh = H(F, out), H(F, g)
    rows = gh - F.matmul(x, F.matmul(out, gh))
    columns = gh - F.matmul(F.matmul(gh, out), x)
    return (
        F.matmul(F.matmul(rows, out), h) + F.matmul(F.matmul(h, out), columns) - F.matmul(F.matmul(h, g), h)
    )


pseudo_inverse.grad(x=_pinv_x)

# ---- determinants ----


@op(name="det", method=True, amp="full", samples=_SQUARES, reference="numpy.linalg:det")
def det(xp, x):
    """The determinant of each matrix.

    x: [..., n, n], floating or complex, else ShapeError or DtypeError. Returns [...].

    >>> import lucid
    >>> lucid.det(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(-2.)
    """
    check_matrix("linalg.det", x)
    return xp.asarray(xp.linalg.det(x))


@op(
    public=False,
    amp="full",
    samples=_SQUARES,
    reference=lambda x: (
        __import__("numpy").linalg.det(x)[..., None, None]
        * __import__("numpy").linalg.inv(x).swapaxes(-1, -2)
    ),
)
def cofactor(xp, x):
    """The cofactors of each matrix, d det(x) / dx, also of a singular one.

    From the singular value decomposition: det(u vh) * u * (products of all other singular values) * vh,
    conjugated where complex.
    """
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    n, mm = s.shape[-1], matmul_of(xp)
    others = xp.where(xp.eye(n, dtype=bool), xp.ones((), s.dtype), s[..., None, :]).prod(-1)
    sign = xp.asarray(xp.linalg.det(mm(u, vh)))
    return sign[..., None, None] * mm(u * others[..., None, :], vh).conj()


def _one(F: Any, x: Any) -> Any:
    """One number per matrix as [..., 1, 1]."""
    return F.reshape(x, (*x.shape, 1, 1))


def _cofactor_x(F, g, x):
    b = F.conj(F.transpose(F.inverse(x), -2, -1))
    share = F.sum(g * b, (-2, -1), True)
    return F.conj(_one(F, F.det(x))) * (share * b - F.matmul(F.matmul(b, F.transpose(g, -2, -1)), b))


det.grad(x=lambda F, g, x: _one(F, g) * F.conj(F.cofactor(x)))
cofactor.grad(x=_cofactor_x)


@op(
    name="slogdet",
    outputs=("sign", "logabsdet"),
    amp="full",
    samples=_SQUARES,
    method=True,
    reference=lambda x: tuple(__import__("numpy").linalg.slogdet(x)),
)
def slogdet(xp, x):
    """(sign, log |det|) of each matrix; (0, -inf) for a singular one.

    x: [..., n, n]. Returns two tensors [...].
    """
    check_matrix("linalg.slogdet", x)
    sign, logabsdet = xp.linalg.slogdet(x)
    return xp.asarray(sign), xp.asarray(logabsdet)


def _slogdet_x(F, g, x, sign):
    turn, size = g
    if x.dtype.kind == "c":
        size = F.complex(size, F.reshape(F.real(F.conj(turn) * sign * 1j), size.shape))
    return _one(F, size) * H(F, F.inverse(x))


slogdet.grad(x=_slogdet_x)

# ---- Hermitian matrices ----


@op(public=False, samples=[Sample((1, 1), False), Sample((3, 1, 1), True)])
def from_triangle(xp, x, upper: bool):
    """The Hermitian matrix whose one triangle is that of `x`.

    Its gradient is passed on as it is: the input counts as Hermitian, as in PyTorch. That is not the
    derivative with respect to the triangle alone; the samples are 1 x 1, where the two agree.
    """
    one = xp.triu(x, 1) if upper else xp.tril(x, -1)
    diagonal = x * xp.eye(x.shape[-1], dtype=x.real.dtype)
    return one + hermitian(xp, one) + (diagonal.real if x.dtype.kind == "c" else diagonal)


from_triangle.grad(x=lambda F, g: g)

# ---- the matrix exponential ----

# The degree-13 diagonal Pade approximant is exact to double precision up to this 1-norm (Higham 2005, table
# 2.3).
_THETA_13 = 5.371920351148152
_PADE_13 = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)


@op(name="matrix_exp", method=True, amp="full", samples=[Sample((3, 3)), Sample((2, 2, 2), complex=True)])
def matrix_exp(xp, x):
    """The exponential of each matrix, by scaling and squaring (Higham 2005, SIAM J. Matrix Anal. 26).

    x: [..., n, n], floating or complex, else ShapeError or DtypeError. Returns x's shape.

    >>> import lucid
    >>> lucid.matrix_exp(lucid.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    check_matrix("matrix_exp", x)
    if not x.size:
        return x.copy()
    if is_low(x.dtype):
        return matrix_exp.forward(xp, x.astype("float32")).astype(x.dtype)
    norm = xp.abs(x).sum(-2).max(-1)
    times = xp.maximum(xp.ceil(xp.log2(xp.maximum(norm, 1e-300) / _THETA_13)), 0.0)
    x = x / (2.0**times)[..., None, None].astype(x.real.dtype)
    b, eye, mm = _PADE_13, xp.eye(x.shape[-1], dtype=x.dtype), matmul_of(xp)
    x2 = mm(x, x)
    x4 = mm(x2, x2)
    x6 = mm(x4, x2)
    u = mm(x, mm(x6, b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * eye)
    v = mm(x6, b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * eye
    out = xp.linalg.solve(v - u, v + u)
    for i in range(int(times.max())):  # the number of squarings is needed on the host
        out = xp.where((times > i)[..., None, None], mm(out, out), out)
    return out


def _matrix_exp_x(F, g, x):
    # exp([[A, E], [0, A]]) has the derivative of exp at A in direction E as its upper right block.
    h, n = H(F, x), x.shape[-1]
    zero = F.zeros_like(h)
    block = F.cat(F.cat(h, g, dim=-1), F.cat(zero, h, dim=-1), dim=-2)
    return F.narrow(F.narrow(F.matrix_exp(block), -2, 0, n), -1, n, n)


matrix_exp.grad(x=_matrix_exp_x)
