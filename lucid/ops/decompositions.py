"""Matrix decompositions over the last two dimensions, batched over the others.

Decompositions of Hermitian matrices are functions of the whole matrix: they read (x + x^H) / 2.
`from_triangle` alone carries the convention that one triangle stands for both.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from ..errors import IndexRangeError, LucidError, ShapeError
from .bounds import in_range
from .common import scipy_linalg
from .linalg import REAL_SQUARE as _SQUARE
from .linalg import H, attempt, broadcast_shapes, check_matrix, hermitian, triangular
from .registry import A, Sample, op

# ---- Hermitian matrices ----

_POSITIVE = A(value=[[2.0, 0.5, -0.3], [0.5, 1.5, 0.4], [-0.3, 0.4, 1.8]])


def _half(xp: Any, x: Any) -> Any:
    return (x + hermitian(xp, x)) * 0.5


@op(
    public=False,
    amp="full",
    samples=[
        Sample(_POSITIVE),
        Sample(A(value=[[[2.0, 0.5], [0.5, 1.5]], [[1.2, -0.7], [-0.7, 0.9]]])),
        Sample(_POSITIVE, complex=True),
    ],
    reference="numpy.linalg:cholesky",
)
def cholesky_lower(xp, x):
    """The lower triangular L with L L^H = (x + x^H) / 2.

    x: [..., n, n]. Raises LinAlgError for a matrix that is not positive definite, with its batch index.
    """
    check_matrix("linalg.cholesky", x)
    return attempt(
        "linalg.cholesky",
        "is not positive definite; check that it is symmetric, or add a small multiple of the identity",
        xp,
        xp.linalg.cholesky,
        _half(xp, x),
    )


def _cholesky_x(F, g, out):
    h = H(F, out)
    m = F.matmul(h, g)
    m = (F.tril(m) + F.tril(m, -1)) * 0.25
    half = F.triangular(h, m + H(F, m), True)
    return H(F, F.triangular(h, H(F, half), True))


cholesky_lower.grad(x=_cholesky_x)


@op(
    public=False,
    amp="full",
    dtype="promote",
    samples=[
        Sample((1, 2), A((1, 1), low=1.0, high=2.0), False),
        Sample((3, 1, 2), A((3, 1, 1), low=1.0, high=2.0), True),
    ],
)
def cholesky_solution(xp, x, y, upper: bool):
    """A^-1 x from A's Cholesky factor y, of which only one triangle is read.

    Its gradient with respect to y is not cut to that triangle, as in PyTorch; the samples are 1 x 1, where
    that makes no difference.
    """
    check_matrix("cholesky_solve", y)
    if x.ndim < 2 or x.shape[-2] != y.shape[-1]:
        raise ShapeError(
            f"cholesky_solve: expected B [..., n, k] and L [..., n, n], got {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    forward = triangular.forward
    if upper:
        return forward(xp, y, forward(xp, hermitian(xp, y), x, False), True)
    return forward(xp, hermitian(xp, y), forward(xp, y, x, False), True)


def _cholesky_solution_grads(F, g, y, out, x_shape, y_shape, upper, needs):
    gx = F.cholesky_solution(g, y, upper)
    gy = None
    if needs[1]:
        ga = -F.matmul(gx, H(F, out))
        ga = F.sum_to(ga + H(F, ga), y_shape)
        gy = F.matmul(y, ga) if upper else F.matmul(ga, y)
    return F.sum_to(gx, x_shape) if needs[0] else None, gy


cholesky_solution.grads(("x", "y"), _cholesky_solution_grads)


def _gaps(F: Any, w: Any) -> Any:
    """w_j - w_i as [..., i, j], with 1 where it is 0 (the diagonal and degenerate pairs)."""
    gap = F.unsqueeze(w, -2) - F.unsqueeze(w, -1)
    return F.where(F.eq(gap, 0.0), F.ones_like(gap), gap)


@op(
    public=False,
    outputs=("values", "vectors"),
    amp="full",
    samples=[Sample(_POSITIVE), Sample(A(value=[[[2.0, 0.5], [0.5, 1.5]], [[1.2, -0.7], [-0.7, 0.9]]]))],
    reference=lambda x: tuple(__import__("numpy").linalg.eigh(x)),
)
def eigh_full(xp, x):
    """(eigenvalues in ascending order, eigenvectors in columns) of (x + x^H) / 2.

    x: [..., n, n]. Returns [..., n] and [..., n, n]. The gradient of eigenvectors is defined up to their
    phase and for distinct eigenvalues.
    """
    check_matrix("linalg.eigh", x)
    return tuple(xp.linalg.eigh(_half(xp, x)))


def _eigh_x(F, g, values, vectors):
    gw, gv = g
    inner = F.matmul(H(F, vectors), gv)
    inner = (inner - H(F, inner)) * 0.5 / _gaps(F, values) + F.diag_embed(gw)
    return F.matmul(F.matmul(vectors, inner), H(F, vectors))


eigh_full.grad(x=_eigh_x)


@op(
    public=False,
    amp="full",
    samples=[Sample(_POSITIVE), Sample(_POSITIVE, complex=True)],
    reference=lambda x: __import__("numpy").linalg.eigvalsh(x),
)
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


# Real eigenvalues: LAPACK fixes the phase of complex vectors by a rule that is not smooth.
_REAL_EIGENVALUES = A(value=[[2.0, 0.5, -0.3], [0.2, 1.0, 0.4], [-0.1, 0.1, 3.0]])


@op(public=False, outputs=("values", "vectors"), amp="full", samples=[Sample(_REAL_EIGENVALUES)])
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
    inner = (inner - F.matmul(h, vectors) * F.unsqueeze(along, -2)) / F.conj(_gaps(F, values)) + F.diag_embed(
        gw
    )
    eye = F.diag_embed(F.ones_like(values))
    inner = F.where(F.ne(F.real(eye), 0.0), F.diag_embed(gw), inner)
    out = F.solve_matrix(h, F.matmul(inner, h))
    return out if x.dtype.kind == "c" else F.real(out)


eig_full.grad(x=_eig_x)

# ---- singular values ----


@op(
    public=False,
    outputs=("u", "s", "vh"),
    amp="full",
    samples=[Sample((3, 2)), Sample((2, 2, 3)), Sample((3, 3))],
)
def svd_full(xp, x, full: bool = False):
    """(u, s, vh) with x = u diag(s) vh and s in descending order.

    x: [..., m, n]; k = min(m, n). Returns [..., m, k], [..., k], [..., k, n], or square u and vh with `full`;
    only their first k columns and rows have a gradient. It is defined up to phases and for distinct singular
    values.
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


@op(
    public=False,
    amp="full",
    samples=[Sample((3, 2)), Sample((2, 2, 3), complex=True)],
    reference=lambda x: __import__("numpy").linalg.svd(x, compute_uv=False),
)
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


@op(
    public=False,
    outputs=("q", "r"),
    amp="full",
    samples=[Sample((3, 2)), Sample((2, 2, 4), complex=True), Sample((3, 3))],
)
def qr_full(xp, x, mode: str = "reduced"):
    """(q, r) with x = q r, q's columns orthonormal and r upper triangular.

    x: [..., m, n]; k = min(m, n). mode 'reduced': [..., m, k] and [..., k, n]; 'complete': [..., m, m] and
    [..., m, n].
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
        raise LucidError(
            f"linalg.qr: mode 'complete' has no derivative for {m} x {n} matrices (the last columns of q are "
            "arbitrary); use mode 'reduced'"
        )
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
    flat, rows = pivots.reshape(lead, pivots.shape[-1]), xp.arange(lead)
    order = xp.broadcast_to(xp.arange(m), (lead, m)).copy()
    for i in range(flat.shape[1]):
        j = flat[:, i]
        a, b = order[rows, i].copy(), order[rows, j].copy()
        order[rows, j] = a
        order[:, i] = b
    return order.reshape(*pivots.shape[:-1], m)


@op(
    public=False,
    outputs=("lu", "pivots", "order"),
    diff=("lu",),
    amp="full",
    samples=[Sample(_SQUARE), Sample((2, 2, 4)), Sample((4, 2))],
)
def lu_compact(xp, x):
    """(lu, pivots, order).

    Both factors of x = P L U in one matrix, the row exchanges, and the row order that they make.

    x: [..., m, n]; k = min(m, n). lu: [..., m, n], L's unit diagonal not stored; pivots: int32 [..., k], from
    1 as LAPACK's; order: int64 [..., m] with x[order] = L U.
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


@op(
    public=False,
    samples=[
        Sample((3, 2), A(value=[2, 0, 1], dtype="int64")),
        Sample((3, 2), A(value=[2, 0, 1], dtype="int64"), True),
    ],
)
def permute_rows(xp, x, order, back: bool = False):
    """The rows of `x` [..., m, k] in `order` [..., m], or put back from it; leading dimensions broadcast."""
    if back:
        order = xp.argsort(order, axis=-1)
    lead = broadcast_shapes(x.shape[:-2], order.shape[:-1])
    x, order = xp.broadcast_to(x, (*lead, *x.shape[-2:])), xp.broadcast_to(order, (*lead, order.shape[-1]))
    return xp.take_along_axis(x, order[..., None], axis=-2)


permute_rows.grad(x=lambda F, g, order, x_shape, back: F.sum_to(F.permute_rows(g, order, not back), x_shape))


@op(public=False, diff=(), samples=[Sample(A(value=[3, 3, 3], dtype="int32"), 3)])
def pivots_to_order(xp, pivots, m: int):
    """The row order [..., m] that LAPACK's row exchanges `pivots` [..., k], from 1, make: int64."""
    if not pivots.ndim or pivots.shape[-1] > m or pivots.dtype.kind not in "iu":
        raise ShapeError(
            f"lu_solve: expected integer pivots [..., k] with k at most the {m} rows, got "
            f"{pivots.dtype.name} {tuple(pivots.shape)}"
        )
    pivots = in_range(
        xp,
        pivots.astype("int64"),
        1,
        m + 1,
        lambda bad: IndexRangeError(
            f"lu_solve: pivots must lie in [1, {m}], got {bad}; pass those of lu_factor"
        ),
    )
    return _permutation(xp, pivots - 1, m)


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
