"""Matrix decompositions and solutions over the last two dimensions, batched over the others.

A formula writes `H(F, x)` for the conjugate transpose. Decompositions of Hermitian matrices are functions of the whole matrix (they read
(x + x^H) / 2); `from_triangle` alone carries the convention that one triangle stands for both.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

from ..errors import DtypeError, LucidError, ShapeError
from .common import scipy_linalg
from .registry import A, Sample, op


def H(F: Any, x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    return F.conj(F.transpose(x, -2, -1))


def _h(xp: Any, x: Any) -> Any:
    x = xp.swapaxes(x, -2, -1)
    return x.conj() if x.dtype.kind == "c" else x


def check_matrix(name: str, x: Any, square: bool = True) -> None:
    """Nothing; raises unless `x` holds floating (square) matrices."""
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"{name}: expected {'square ' * square}matrices [..., {'n, n' if square else 'm, n'}], got shape {tuple(x.shape)}")
    if x.dtype.kind in "iub":
        raise DtypeError(f"{name}: expected a floating or complex dtype, got {x.dtype.name}; convert it with .float() or .double()")


def _attempt(name: str, trouble: str, xp: Any, run: Callable[..., Any], *arrays: Any) -> Any:
    """`run(*arrays)`; where it fails, an error that names the first matrix of the batch on which it does."""
    try:
        out = run(*arrays)
        # CuPy reports no failure: its result is not finite. Reading that synchronises, as PyTorch's check does.
        if xp.__name__ == "numpy" or bool(xp.isfinite(out).all()):
            return out
    except xp.linalg.LinAlgError:
        pass
    x = arrays[0]
    for index in product(*map(range, x.shape[:-2])):
        try:
            part = run(x[index], *(a[index[-(a.ndim - 2):] if a.ndim > 2 else ()] for a in arrays[1:]))
            if bool(xp.isfinite(part).all()):
                continue
        except (xp.linalg.LinAlgError, IndexError):
            pass
        where = f" (batch index {index})" if index else ""
        raise LucidError(f"{name}: the input{where} {trouble}") from None
    return out


_SINGULAR = "is singular; use linalg.pinv or linalg.lstsq, or add a small multiple of the identity"
_SQUARE = A(value=[[2.0, 0.5, -0.3], [0.2, 1.5, 0.4], [-0.6, 0.1, 1.8]])
_BATCH = A(value=[[[2.0, 0.5], [-0.4, 1.5]], [[1.2, -0.7], [0.3, 0.9]]])
_COMPLEX = A(value=[[2.0 + 0.3j, 0.5 - 1j], [-0.4j, 1.5 + 0.2j]], dtype="complex128")
_SQUARES = [Sample(_SQUARE), Sample(_BATCH), Sample(_COMPLEX)]

# ---- inverses and solutions ----


@op(name="inverse", method=True, amp="full", samples=_SQUARES, reference="numpy.linalg:inv")
def inverse(xp, x):
    """The inverse of each matrix.

    x: [..., n, n]. Raises LucidError for a singular matrix, with its batch index.
    """
    check_matrix("inverse", x)
    return _attempt("inverse", _SINGULAR, xp, xp.linalg.inv, x)


def _inverse_x(F, g, out):
    h = H(F, out)
    return -F.matmul(F.matmul(h, g), h)


inverse.grad(x=_inverse_x)


@op(public=False, amp="full", dtype="promote", samples=[Sample(_SQUARE, (3, 2)), Sample(_BATCH, (2, 3)), Sample(_SQUARE, (2, 3, 1)), Sample(_COMPLEX, A(value=[[1j], [2.0]], dtype="complex128"))],
    reference="numpy.linalg:solve")
def solve_matrix(xp, x, y):
    """x^-1 y.

    x: [..., n, n]; y: [..., n, k]; leading dimensions broadcast. Raises LucidError for a singular matrix, with its batch index.
    """
    check_matrix("linalg.solve", x)
    if y.shape[-2] != x.shape[-1]:
        raise ShapeError(f"linalg.solve: A has {x.shape[-1]} rows but B {y.shape[-2]} (A: {tuple(x.shape)}, B: {tuple(y.shape)}); rows must match")
    lead = xp.broadcast_shapes(x.shape[:-2], y.shape[:-2]) if hasattr(xp, "broadcast_shapes") else xp.broadcast(x[..., :1, :1], y[..., :1, :1]).shape[:-2]
    if len(lead) > 0:
        x, y = xp.broadcast_to(x, (*lead, *x.shape[-2:])), xp.broadcast_to(y, (*lead, *y.shape[-2:]))
    if y.size == 0:
        return xp.zeros(y.shape, y.dtype)
    return _attempt("linalg.solve", _SINGULAR, xp, xp.linalg.solve, x, y)


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


@op(public=False, amp="full", dtype="promote", reference=_triangular_reference, samples=[
    Sample(_SQUARE, (3, 2), True), Sample(_BATCH, (2, 3), False), Sample(_SQUARE, (2, 3, 1), False, True),
    Sample(_COMPLEX, A(value=[[1j], [2.0]], dtype="complex128"), True)])
def triangular(xp, x, y, upper: bool, unit: bool = False):
    """x^-1 y for a triangular x; the other triangle, and with `unit` the diagonal, are not read.

    x: [..., n, n]; y: [..., n, k]; leading dimensions broadcast.
    """
    check_matrix("linalg.solve_triangular", x)
    if y.ndim < 2 or y.shape[-2] != x.shape[-1]:
        raise ShapeError(f"linalg.solve_triangular: A {tuple(x.shape)} and B {tuple(y.shape)} do not fit; A's size must be B's number of rows")
    n = x.shape[-1]
    if x.ndim == 2 and y.ndim == 2 and y.size:
        diagonal = x.diagonal()
        if not unit and not bool((diagonal != 0).all()):  # a check: reads the device
            raise LucidError(f"linalg.solve_triangular: the input {_SINGULAR}")
        return scipy_linalg(xp).solve_triangular(x, y, lower=not upper, unit_diagonal=unit, check_finite=False)
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
    return xp.matmul(_h(xp, vh) * s[..., None, :], _h(xp, u))


@op(public=False, amp="full", samples=[Sample((3, 2), 1e-12), Sample((2, 2, 4), 1e-12), Sample(_COMPLEX, 1e-12)],
    reference=lambda x, rtol, atol=0.0: __import__("numpy").linalg.pinv(x, rtol))
def pseudo_inverse(xp, x, rtol: float, atol: float = 0.0):
    """The Moore-Penrose inverse of each matrix; singular values up to max(atol, rtol * largest) count as zero.

    x: [..., m, n]. Returns [..., n, m]. The gradient is that of a matrix whose rank stays (Golub and Pereyra 1973).
    """
    check_matrix("linalg.pinv", x, square=False)
    return _pinv(xp, x, rtol, atol)


def _pinv_x(F, g, x, out):
    h, gh = H(F, out), H(F, g)
    rows = gh - F.matmul(x, F.matmul(out, gh))
    columns = gh - F.matmul(F.matmul(gh, out), x)
    return F.matmul(F.matmul(rows, out), h) + F.matmul(F.matmul(h, out), columns) - F.matmul(F.matmul(h, g), h)


pseudo_inverse.grad(x=_pinv_x)

# ---- determinants ----


@op(name="det", method=True, amp="full", samples=_SQUARES, reference="numpy.linalg:det")
def det(xp, x):
    """The determinant of each matrix.

    x: [..., n, n]. Returns [...].
    """
    check_matrix("linalg.det", x)
    return xp.asarray(xp.linalg.det(x))


@op(public=False, amp="full", samples=_SQUARES, reference=lambda x: __import__("numpy").linalg.det(x)[..., None, None] * __import__("numpy").linalg.inv(x).swapaxes(-1, -2))
def cofactor(xp, x):
    """The cofactors of each matrix, d det(x) / dx, also of a singular one.

    From the singular value decomposition: det(u vh) * u * (products of all other singular values) * vh, conjugated where complex.
    """
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    n = s.shape[-1]
    others = xp.where(xp.eye(n, dtype=bool), xp.ones((), s.dtype), s[..., None, :]).prod(-1)
    sign = xp.asarray(xp.linalg.det(xp.matmul(u, vh)))
    return sign[..., None, None] * xp.matmul(u * others[..., None, :], vh).conj()


def _one(F: Any, x: Any) -> Any:
    """One number per matrix as [..., 1, 1]."""
    return F.reshape(x, (*x.shape, 1, 1))


def _cofactor_x(F, g, x):
    b = F.conj(F.transpose(F.inverse(x), -2, -1))
    share = F.sum(g * F.conj(b), (-2, -1), True)
    return F.conj(_one(F, F.det(x))) * (share * b - F.matmul(F.matmul(b, F.transpose(g, -2, -1)), b))


det.grad(x=lambda F, g, x: _one(F, g) * F.conj(F.cofactor(x)))
cofactor.grad(x=_cofactor_x)


@op(name="slogdet", outputs=("sign", "logabsdet"), amp="full", samples=_SQUARES, method=True, reference=lambda x: tuple(__import__("numpy").linalg.slogdet(x)))
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
        size = F.complex(size, -F.imag(F.conj(turn) * sign))
    return _one(F, size) * H(F, F.inverse(x))


slogdet.grad(x=_slogdet_x)

# ---- Hermitian matrices ----


@op(public=False)
def from_triangle(xp, x, upper: bool):
    """The Hermitian matrix whose one triangle is that of `x`.

    Its gradient is passed on as it is: the input counts as Hermitian, as in PyTorch. (Not the derivative with respect to the triangle alone,
    hence without samples for the finite-difference tests.)
    """
    one = xp.triu(x, 1) if upper else xp.tril(x, -1)
    diagonal = x * xp.eye(x.shape[-1], dtype=x.real.dtype)
    return one + _h(xp, one) + (diagonal.real if x.dtype.kind == "c" else diagonal)


from_triangle.grad(x=lambda F, g: g)

_POSITIVE = A(value=[[2.0, 0.5, -0.3], [0.5, 1.5, 0.4], [-0.3, 0.4, 1.8]])
_HERMITIAN = A(value=[[2.0, 0.5 - 0.3j], [0.5 + 0.3j, 1.5]], dtype="complex128")


def _half(xp: Any, x: Any) -> Any:
    return (x + _h(xp, x)) * 0.5


@op(public=False, amp="full", samples=[Sample(_POSITIVE), Sample(A(value=[[[2.0, 0.5], [0.5, 1.5]], [[1.2, -0.7], [-0.7, 0.9]]])), Sample(_HERMITIAN)],
    reference="numpy.linalg:cholesky")
def cholesky_lower(xp, x):
    """The lower triangular L with L L^H = (x + x^H) / 2.

    x: [..., n, n]. Raises LucidError for a matrix that is not positive definite, with its batch index.
    """
    check_matrix("linalg.cholesky", x)
    return _attempt("linalg.cholesky", "is not positive definite; check that it is symmetric, or add a small multiple of the identity",
                    xp, xp.linalg.cholesky, _half(xp, x))


def _cholesky_x(F, g, out):
    h = H(F, out)
    m = F.matmul(h, g)
    m = (F.tril(m) + F.tril(m, -1)) * 0.25
    half = F.triangular(h, m + H(F, m), True)
    return H(F, F.triangular(h, H(F, half), True))


cholesky_lower.grad(x=_cholesky_x)


def _gaps(F: Any, w: Any) -> Any:
    """w_j - w_i as [..., i, j], with 1 where it is 0 (the diagonal and degenerate pairs)."""
    gap = F.unsqueeze(w, -2) - F.unsqueeze(w, -1)
    return F.where(F.eq(gap, 0.0), F.ones_like(gap), gap)


@op(public=False, outputs=("values", "vectors"), amp="full", samples=[Sample(_POSITIVE), Sample(A(value=[[[2.0, 0.5], [0.5, 1.5]], [[1.2, -0.7], [-0.7, 0.9]]]))],
    reference=lambda x: tuple(__import__("numpy").linalg.eigh(x)))
def eigh_full(xp, x):
    """(eigenvalues in ascending order, eigenvectors in columns) of (x + x^H) / 2.

    x: [..., n, n]. Returns [..., n] and [..., n, n]. The gradient of eigenvectors is defined up to their phase and for distinct eigenvalues.
    """
    check_matrix("linalg.eigh", x)
    return tuple(xp.linalg.eigh(_half(xp, x)))


def _eigh_x(F, g, values, vectors):
    gw, gv = g
    inner = F.matmul(H(F, vectors), gv)
    inner = (inner - H(F, inner)) * 0.5 / _gaps(F, values) + F.diag_embed(gw)
    return F.matmul(F.matmul(vectors, inner), H(F, vectors))


eigh_full.grad(x=_eigh_x)


@op(public=False, amp="full", samples=[Sample(_POSITIVE), Sample(_HERMITIAN)], reference=lambda x: __import__("numpy").linalg.eigvalsh(x))
def eigvalsh_full(xp, x):
    """The eigenvalues of (x + x^H) / 2 in ascending order.

    x: [..., n, n]. Returns [..., n].
    """
    check_matrix("linalg.eigvalsh", x)
    return xp.linalg.eigvalsh(_half(xp, x))


def _eigvalsh_x(F, g, x):
    vectors = F.eigh_full(x)[1]
    return F.matmul(vectors * F.unsqueeze(g, -2), H(F, vectors))


eigvalsh_full.grad(x=_eigvalsh_x)


@op(public=False, outputs=("values", "vectors"), amp="full", samples=[Sample(_SQUARE), Sample(_BATCH)])
def eig_full(xp, x):
    """(eigenvalues, eigenvectors of length 1 in columns) of each matrix, complex.

    x: [..., n, n]. Returns [..., n] and [..., n, n].
    """
    check_matrix("linalg.eig", x)
    dtype = "complex128" if x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1) == 8 else "complex64"
    values, vectors = xp.linalg.eig(x)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def _eig_x(F, g, x, values, vectors):
    gw, gv = g
    h = H(F, vectors)
    inner = F.matmul(h, gv)
    # Vectors of length 1: the part of the gradient along each vector is taken out.
    along = F.diagonal(F.real(inner), 0, -2, -1)
    inner = (inner - F.matmul(h, vectors) * F.unsqueeze(along, -2)) / F.conj(_gaps(F, values)) + F.diag_embed(gw)
    eye = F.diag_embed(F.ones_like(values))
    inner = F.where(F.ne(F.real(eye), 0.0), F.diag_embed(gw), inner)
    out = F.solve_matrix(h, F.matmul(inner, h))
    return out if x.dtype.kind == "c" else F.real(out)


eig_full.grad(x=_eig_x)

# ---- singular values ----


@op(public=False, outputs=("u", "s", "vh"), amp="full", samples=[Sample((3, 2)), Sample((2, 2, 3)), Sample((3, 3))])
def svd_full(xp, x, full: bool = False):
    """(u, s, vh) with x = u diag(s) vh and s in descending order.

    x: [..., m, n]; k = min(m, n). Returns [..., m, k], [..., k], [..., k, n], or square u and vh with `full`; only their first k columns and rows
    have a gradient. It is defined up to phases and for distinct singular values.
    """
    check_matrix("linalg.svd", x, square=False)
    return tuple(xp.linalg.svd(x, full_matrices=full))


def _svd_x(F, g, u, s, vh):
    gu, gs, gvh = g
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    u, gu = F.narrow(u, -1, 0, k), F.narrow(gu, -1, 0, k)
    vh, gvh = F.narrow(vh, -2, 0, k), F.narrow(gvh, -2, 0, k)
    uh, v = H(F, u), H(F, vh)
    skew_u, skew_v = F.matmul(uh, gu), F.matmul(vh, H(F, gvh))
    skew_u, skew_v = skew_u - H(F, skew_u), skew_v - H(F, skew_v)
    gap = _gaps(F, s * s)
    row, column = F.unsqueeze(s, -2), F.unsqueeze(s, -1)
    inner = skew_u / gap * row + column * (skew_v / gap)
    size = F.where(F.eq(s, 0.0), F.ones_like(s), s)
    diagonal = gs
    if u.dtype.kind == "c":
        # The gaps' diagonal is 1: take its share out, then add the phases that u and v share.
        phase = F.diagonal(skew_u, 0, -2, -1)
        diagonal = gs - F.diagonal(inner, 0, -2, -1) + phase / (2.0 * size)
    inner = inner + F.diag_embed(diagonal)
    out = F.matmul(F.matmul(u, inner), vh)
    if m > k:
        rest = gu / F.unsqueeze(size, -2)
        out = out + F.matmul(rest - F.matmul(u, F.matmul(uh, rest)), vh)
    if n > k:
        rest = gvh / F.unsqueeze(size, -1)
        out = out + F.matmul(u, rest - F.matmul(F.matmul(rest, v), vh))
    return out


svd_full.grad(x=_svd_x)


@op(public=False, amp="full", samples=[Sample((3, 2)), Sample((2, 2, 3), complex=True)], reference=lambda x: __import__("numpy").linalg.svd(x, compute_uv=False))
def svdvals_full(xp, x):
    """The singular values of each matrix in descending order.

    x: [..., m, n]. Returns [..., min(m, n)].
    """
    check_matrix("linalg.svdvals", x, square=False)
    return xp.linalg.svd(x, compute_uv=False)


def _svdvals_x(F, g, x):
    u, _, vh = F.svd_full(x)
    return F.matmul(u * F.unsqueeze(g, -2), vh)


svdvals_full.grad(x=_svdvals_x)

# ---- QR ----


@op(public=False, outputs=("q", "r"), amp="full", samples=[Sample((3, 2)), Sample((2, 2, 4), complex=True), Sample((3, 3))])
def qr_full(xp, x, mode: str = "reduced"):
    """(q, r) with x = q r, q's columns orthonormal and r upper triangular.

    x: [..., m, n]; k = min(m, n). mode 'reduced': [..., m, k] and [..., k, n]; 'complete': [..., m, m] and [..., m, n].
    """
    check_matrix("linalg.qr", x, square=False)
    if not x.size:
        k = min(x.shape[-2:]) if mode == "reduced" else x.shape[-2]
        eye = xp.broadcast_to(xp.eye(x.shape[-2], k, dtype=x.dtype), (*x.shape[:-2], x.shape[-2], k)).copy()
        return eye, xp.zeros((*x.shape[:-2], k, x.shape[-1]), x.dtype)
    return tuple(xp.linalg.qr(x, mode))


def _qr_x(F, g, q, r, mode):
    gq, gr = g
    m, n, k = q.shape[-2], r.shape[-1], r.shape[-2]
    if mode == "complete" and m > n:
        raise LucidError(f"linalg.qr: mode 'complete' has no derivative for {m} x {n} matrices (the last columns of q are arbitrary); use mode 'reduced'")
    beyond = None
    if n > k:
        # x = [x1, x2]: r2 = q^H x2, so x2 adds x2 r2's gradient to that of q.
        r2, gr2 = F.narrow(r, -1, k, n - k), F.narrow(gr, -1, k, n - k)
        beyond = F.matmul(q, gr2)
        gq = gq + F.matmul(F.matmul(q, r2), H(F, gr2))
        r, gr = F.narrow(r, -1, 0, k), F.narrow(gr, -1, 0, k)
    inner = F.matmul(gr, H(F, r)) - F.matmul(H(F, q), gq)
    inner = (F.triu(inner) + F.triu(inner, 1)) * 0.5
    full = gq + F.matmul(q, inner + H(F, inner))
    out = H(F, F.triangular(r, H(F, full), True))
    return out if beyond is None else F.cat(out, beyond, dim=-1)


qr_full.grad(x=_qr_x)

# ---- LU ----


def _permutation(xp: Any, pivots: Any, m: int) -> Any:
    """The row order [..., m] that the exchanges `pivots` (0-based) make."""
    lead = prod(pivots.shape[:-1])
    flat, rows = pivots.reshape(lead, -1), xp.arange(lead)
    order = xp.broadcast_to(xp.arange(m), (lead, m)).copy()
    for i in range(flat.shape[1]):
        j = flat[:, i]
        a, b = order[rows, i].copy(), order[rows, j].copy()
        order[rows, j] = a
        order[:, i] = b
    return order.reshape(*pivots.shape[:-1], m)


@op(public=False, outputs=("lu", "pivots", "order"), diff=("lu",), amp="full", samples=[Sample(_SQUARE), Sample((2, 2, 4)), Sample((4, 2))])
def lu_compact(xp, x):
    """(lu, pivots, order): both factors of x = P L U in one matrix, the row exchanges, and the row order that they make.

    x: [..., m, n]; k = min(m, n). lu: [..., m, n], L's unit diagonal not stored; pivots: int32 [..., k], from 1 as LAPACK's; order: int64 [..., m] with
    x[order] = L U.
    """
    check_matrix("linalg.lu_factor", x, square=False)
    m, k = x.shape[-2], min(x.shape[-2:])
    if not x.size:
        order = xp.broadcast_to(xp.arange(m), (*x.shape[:-2], m)).copy()
        return x.copy(), xp.zeros((*x.shape[:-2], k), "int32"), order
    lu, pivots = xp.empty(x.shape, x.dtype), xp.empty((*x.shape[:-2], k), "int64")
    for index in product(*map(range, x.shape[:-2])):
        lu[index], pivots[index] = scipy_linalg(xp).lu_factor(x[index], check_finite=False)
    return lu, (pivots + 1).astype("int32"), _permutation(xp, pivots, m)


@op(public=False, samples=[Sample((3, 2), A(value=[2, 0, 1], dtype="int64")), Sample((3, 2), A(value=[2, 0, 1], dtype="int64"), True)])
def permute_rows(xp, x, order, back: bool = False):
    """The rows of `x` [..., m, k] in `order` [..., m], or put back from it; leading dimensions broadcast."""
    if back:
        order = xp.argsort(order, axis=-1)
    lead = xp.broadcast(x[..., 0, 0], order[..., 0]).shape if x.shape[-1] else order.shape[:-1]
    x, order = xp.broadcast_to(x, (*lead, *x.shape[-2:])), xp.broadcast_to(order, (*lead, order.shape[-1]))
    return xp.take_along_axis(x, order[..., None], axis=-2)


permute_rows.grad(x=lambda F, g, order, x_shape, back: F.sum_to(F.permute_rows(g, order, not back), x_shape))


@op(public=False, diff=(), samples=[Sample(A(value=[3, 3, 3], dtype="int32"), 3)])
def pivots_to_order(xp, pivots, m: int):
    """The row order [..., m] that LAPACK's row exchanges `pivots` [..., k], from 1, make: int64."""
    return _permutation(xp, pivots.astype("int64") - 1, m)


def _lu_x(F, g, lu, order):
    m, n = lu.shape[-2:]
    k = min(m, n)
    top = F.narrow(F.narrow(lu, -2, 0, k), -1, 0, k)
    upper, g_upper = F.triu(top), F.narrow(F.narrow(g, -2, 0, k), -1, 0, k)
    lh, uh = H(F, top), H(F, upper)
    g_low, g_up, right, below = F.tril(g_upper, -1), F.triu(g_upper), None, None
    if n > k:
        u2, gu2 = F.narrow(lu, -1, k, n - k), F.narrow(g, -1, k, n - k)
        right = F.triangular(lh, gu2, True, True)
        g_low = g_low - F.matmul(right, H(F, u2))
    if m > k:
        l2, gl2 = F.narrow(lu, -2, k, m - k), F.narrow(g, -2, k, m - k)
        below = H(F, F.triangular(upper, H(F, gl2), True))
        g_up = g_up - F.matmul(H(F, l2), below)
    eye = F.diag_embed(F.ones_like(F.diagonal(top, 0, -2, -1)))
    unit = H(F, F.tril(top, -1) + eye)
    inner = F.tril(F.matmul(unit, g_low), -1) + F.triu(F.matmul(g_up, uh))
    inner = F.triangular(lh, inner, True, True)
    out = H(F, F.triangular(upper, H(F, inner), True))
    if right is not None:
        out = F.cat(out, right, dim=-1)
    if below is not None:
        out = F.cat(out, below, dim=-2)
    return F.permute_rows(out, order, True)


lu_compact.grad(x=_lu_x)

# ---- the matrix exponential ----

# The degree-13 diagonal Pade approximant is exact to double precision up to this 1-norm (Higham 2005, table 2.3).
_THETA_13 = 5.371920351148152
_PADE_13 = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0, 670442572800.0,
            33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0)


@op(name="matrix_exp", method=True, amp="full", samples=[Sample((3, 3)), Sample((2, 2, 2), complex=True)])
def matrix_exp(xp, x):
    """The exponential of each matrix, by scaling and squaring (Higham 2005, SIAM J. Matrix Anal. 26).

    x: [..., n, n].
    """
    check_matrix("matrix_exp", x)
    if not x.size:
        return x.copy()
    norm = xp.abs(x).sum(-2).max(-1)
    times = xp.maximum(xp.ceil(xp.log2(xp.maximum(norm, 1e-300) / _THETA_13)), 0.0)
    x = x / (2.0 ** times)[..., None, None].astype(x.real.dtype)
    b, eye = _PADE_13, xp.eye(x.shape[-1], dtype=x.dtype)
    x2 = xp.matmul(x, x)
    x4 = xp.matmul(x2, x2)
    x6 = xp.matmul(x4, x2)
    u = xp.matmul(x, xp.matmul(x6, b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * eye)
    v = xp.matmul(x6, b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * eye
    out = xp.linalg.solve(v - u, v + u)
    for i in range(int(times.max())):  # the number of squarings is needed on the host
        out = xp.where((times > i)[..., None, None], xp.matmul(out, out), out)
    return out


def _matrix_exp_x(F, g, x):
    # exp([[A, E], [0, A]]) has the derivative of exp at A in direction E as its upper right block.
    h, n = H(F, x), x.shape[-1]
    zero = F.zeros_like(h)
    block = F.cat(F.cat(h, g, dim=-1), F.cat(zero, h, dim=-1), dim=-2)
    return F.narrow(F.narrow(F.matrix_exp(block), -2, 0, n), -1, n, n)


matrix_exp.grad(x=_matrix_exp_x)
