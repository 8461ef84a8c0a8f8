"""Determinants, Cholesky, QR, LU, eigenvalues and singular values under PyTorch's names."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..ops.linalg import check_matrix
from ..tensor import Tensor
from .linalg import (
    LU,
    QR,
    SVD,
    CholeskyEx,
    Eigen,
    LUFactor,
    LUFactorEx,
    OldSVD,
    SlogDet,
    _checked,
    _eye,
    _new,
    _no_info,
    mH,
)
from .registry import public


@public("linalg.det")
def det(A: Tensor) -> Tensor:
    """The determinant of each matrix [..., n, n]: [...]. Raises ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.linalg.det(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(-2.)
    """
    return F.det(A)


@public("linalg.slogdet", "slogdet", method="slogdet")
def slogdet(A: Tensor) -> SlogDet:
    """(sign, log |det|) of each matrix [..., n, n]: two tensors [...]; (0, -inf) for a singular one.

    >>> import lucid
    >>> lucid.linalg.slogdet(lucid.tensor([[0.0, 1.0], [1.0, 0.0]]))
    SlogDet(sign=tensor(-1.), logabsdet=tensor(0.))
    """
    return SlogDet(*F.slogdet(A))


@public(method=True)
def logdet(x: Tensor) -> Tensor:
    """The logarithm of the determinant of each matrix [..., n, n].

    NaN where it is negative, -inf where it is 0.

    >>> import lucid
    >>> lucid.logdet(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor(2.0794)
    """
    sign, logabsdet = F.slogdet(x)
    if x.dtype.kind == "c":
        return logabsdet + F.log(sign)
    return F.where(F.lt(sign, 0.0), F.full_like(logabsdet, float("nan")), logabsdet)


# ---- Cholesky ----


@public("linalg.cholesky")
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular L with L L^H = A, or with `upper` the U with U^H U = A.

    A: positive definite matrices [..., n, n], of which only the lower (upper) triangle is read. Raises
    LucidError for a matrix that is not positive definite, with its batch index.

    >>> import lucid
    >>> lucid.linalg.cholesky(lucid.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    check_matrix("linalg.cholesky", A)
    out = F.cholesky_lower(F.from_triangle(A, upper))
    return mH(out) if upper else out


@public("cholesky", method=True)
def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor of each matrix: an older name of `linalg.cholesky`.

    >>> import lucid
    >>> lucid.cholesky(lucid.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    return linalg_cholesky(x, upper=upper)


@public("linalg.cholesky_ex")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """(L, info): like `linalg.cholesky`, but a matrix that is not positive definite is no error.

    It gives NaN and a positive info, for the whole batch.

    >>> import lucid
    >>> lucid.linalg.cholesky_ex(-lucid.eye(2)).info
    tensor(1, dtype=int32)
    """
    check_matrix("linalg.cholesky_ex", A)
    out, info = _checked("linalg.cholesky_ex", A, lambda: linalg_cholesky(A, upper=upper), check_errors)
    return CholeskyEx(_new(A, A.shape, A.dtype, float("nan")) if out is None else out, info)


@public(method=True)
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, from A's Cholesky factor L. B: [..., n, k]; L: [..., n, n], else ShapeError.

    >>> import lucid
    >>> lucid.cholesky_solve(lucid.tensor([[4.0], [9.0]]), lucid.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor([[1.],
            [1.]])
    """
    return F.cholesky_solution(B, L, upper)


@public(method=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """A^-1 from A's Cholesky factor L [..., n, n]. Raises ShapeError for other shapes.

    >>> import lucid
    >>> lucid.cholesky_inverse(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.25  , 0.    ],
            [0.    , 0.0625]])
    """
    check_matrix("cholesky_inverse", L)
    return cholesky_solve(F.zeros_like(L) + _eye(L, L.shape[-1]), L, upper)


# ---- QR ----


@public("linalg.qr")
def linalg_qr(A: Tensor, mode: str = "reduced") -> QR:
    """(Q, R) of each matrix [..., m, n] with A = Q R, k = min(m, n).

    mode: 'reduced' (Q [..., m, k]), 'complete' (Q [..., m, m]; no gradient when m > n) or 'r' (R alone, Q
    empty, no gradient). Raises ShapeError for another mode.

    >>> import lucid
    >>> Q, R = lucid.linalg.qr(lucid.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> R.abs()
    tensor([[5. , 2.2],
            [0. , 0.4]])
    """
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"linalg.qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if mode == "r":
        return QR(_new(A, (0,), A.dtype), F.detach(F.qr_full(A)[1]))
    return QR(*F.qr_full(A, mode))


@public("qr", method=True)
def qr(x: Tensor, some: bool = True) -> QR:
    """(Q, R) of each matrix: an older name of `linalg.qr`.

    >>> import lucid
    >>> Q, R = lucid.qr(lucid.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> lucid.allclose(Q.T @ Q, lucid.eye(2), atol=1e-6)
    True
    """
    return linalg_qr(x, "reduced" if some else "complete")


@public("linalg.householder_product", "orgqr", method="orgqr")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of H_1 H_2 ... H_k with H_i = I - tau_i v_i v_i^H.

    A: [..., m, n], v_i in column i below the diagonal (1 on it, 0 above); tau: [..., k], k <= n <= m, else
    ShapeError.

    >>> import lucid
    >>> lucid.linalg.householder_product(lucid.tensor([[1.0], [0.0]]), lucid.tensor([2.0]))
    tensor([[-1.],
            [ 0.]])
    """
    check_matrix("linalg.householder_product", A, square=False)
    m, n = A.shape[-2:]
    if m < n or not tau.ndim or tau.shape[-1] > n:
        raise ShapeError(
            "linalg.householder_product: expected A [..., m, n] and tau [..., k] with m >= n >= k, got "
            f"{A.shape} and {tau.shape}"
        )
    return _reflect(A, tau, F.zeros_like(A) + _eye(A, m, n), False)


def _reflect(A: Tensor, tau: Tensor, out: Tensor, adjoint: bool) -> Tensor:
    """H_1 ... H_k out, or its adjoint H_k^H ... H_1^H out."""
    k, out = tau.shape[-1], F.beside(F.beside(out, A), tau)
    vectors = F.tril(A, -1) + _eye(A, *A.shape[-2:])
    for i in range(k) if adjoint else range(k - 1, -1, -1):
        v = F.narrow(vectors, -1, i, 1)
        t = F.unsqueeze(F.narrow(tau, -1, i, 1), -1)
        out = out - F.matmul(v * (F.conj(t) if adjoint else t), F.matmul(mH(v), out))
    return out


@public(method=True)
def ormqr(x: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of the full Q = H_1 ... H_k of `householder_product` with a matrix.

    x: [..., m, k] (of more columns than rows the first m count); tau: [..., k]; other: [..., m, n] (`left`)
    or [..., n, m]. transpose: Q's conjugate transpose instead.

    >>> import lucid
    >>> lucid.ormqr(lucid.tensor([[1.0], [0.0]]), lucid.tensor([2.0]), lucid.eye(2))
    tensor([[-1.,  0.],
            [ 0.,  1.]])
    """
    check_matrix("ormqr", x, square=False)
    check_matrix("ormqr", other, square=False)
    if tau.shape[-1:] != (min(x.shape[-2:]),):
        raise ShapeError(f"ormqr: expected tau [..., k] for x [..., m, k], got {tau.shape} and {x.shape}")
    x = x if tau.shape[-1] == x.shape[-1] else F.narrow(x, -1, 0, tau.shape[-1])
    if left:
        return _reflect(x, tau, other, transpose)
    return mH(_reflect(x, tau, mH(other), not transpose))


# ---- LU ----


@public("linalg.lu_factor")
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """(LU, pivots) of each matrix [..., m, n].

    Both factors of A = P L U in one, and LAPACK's row exchanges (from 1, int32 [..., min(m, n)]). Raises
    ShapeError for pivot=False, which is unstable.

    >>> import lucid
    >>> LU, pivots = lucid.linalg.lu_factor(lucid.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> LU, pivots
    (tensor([[4.  , 4.  ],
            [0.25, 1.  ]]), tensor([2, 2], dtype=int32))
    """
    _pivoted("linalg.lu_factor", pivot)
    packed, pivots, _ = F.lu_compact(A)
    return LUFactor(packed, pivots)


def _pivoted(name: str, pivot: bool) -> None:
    if not pivot:
        raise ShapeError(
            f"{name}: pivot=False is not available (unstable without row exchanges); use pivot=True"
        )


@public("linalg.lu_factor_ex")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """(LU, pivots, info): like `linalg.lu_factor`, with an info of zeros.

    >>> import lucid
    >>> lucid.linalg.lu_factor_ex(lucid.eye(2)).info
    tensor(0, dtype=int32)
    """
    packed, pivots = lu_factor(A, pivot=pivot)
    return LUFactorEx(packed, pivots, _no_info(A))


@public("lu", method=True)
def lu(x: Tensor, pivot: bool = True, get_infos: bool = False, out: None = None) -> Any:
    """(LU, pivots), or with `get_infos` (LU, pivots, info): an older name of `linalg.lu_factor`.

    >>> import lucid
    >>> LU, pivots = lucid.lu(lucid.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> pivots
    tensor([2, 2], dtype=int32)
    """
    packed, pivots = lu_factor(x, pivot=pivot)
    return (packed, pivots, _no_info(x)) if get_infos else (packed, pivots)


@public("lu_unpack")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LU:
    """(P, L, U) from what `lu_factor` returns; what is not asked for is empty.

    LU_data: [..., m, n]; LU_pivots: [..., min(m, n)], from 1. Returns [..., m, m], [..., m, k] and [..., k,
    n].

    >>> import lucid
    >>> P, L, U = lucid.lu_unpack(*lucid.linalg.lu_factor(lucid.tensor([[1.0, 2.0], [4.0, 4.0]])))
    >>> P @ L @ U
    tensor([[1., 2.],
            [4., 4.]])
    """
    check_matrix("lu_unpack", LU_data, square=False)
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    empty = _new(LU_data, (0,), LU_data.dtype)
    low, up = empty, empty
    if unpack_data:
        low = F.tril(F.narrow(LU_data, -1, 0, k), -1) + _eye(LU_data, m, k)
        up = F.triu(F.narrow(LU_data, -2, 0, k))
    if not unpack_pivots:
        return LU(empty, low, up)
    order = F.pivots_to_order(LU_pivots, m)
    return LU(F.permute_rows(_eye(LU_data, m), order, True), low, up)


@public("linalg.lu")
def linalg_lu(A: Tensor, *, pivot: bool = True) -> LU:
    """(P, L, U) of each matrix [..., m, n] with A = P L U: row order, unit lower and upper triangular.

    >>> import lucid
    >>> P, L, U = lucid.linalg.lu(lucid.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> L, U
    (tensor([[1.  , 0.  ],
            [0.25, 1.  ]]), tensor([[4., 4.],
            [0., 1.]]))
    """
    return lu_unpack(*lu_factor(A, pivot=pivot))


@public("linalg.lu_solve")
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B (X A = B when not `left`; A^H for A with `adjoint`), from A's `lu_factor`.

    B: [..., n, k], else ShapeError.

    >>> import lucid
    >>> LU, pivots = lucid.linalg.lu_factor(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> lucid.linalg.lu_solve(LU, pivots, lucid.tensor([[2.0], [2.0]]))
    tensor([[1. ],
            [0.5]])
    """
    check_matrix("linalg.lu_solve", LU)
    check_matrix("linalg.lu_solve", B, square=False)
    if B.shape[-2 if left else -1] != LU.shape[-1]:
        raise ShapeError(
            f"linalg.lu_solve: LU {LU.shape} and B {B.shape} do not fit; LU's size must be B's number of "
            f"{'rows' if left else 'columns'}"
        )
    if not left:
        return mH(linalg_lu_solve(LU, pivots, mH(B), adjoint=not adjoint))
    order = F.pivots_to_order(pivots, LU.shape[-2])
    if adjoint:
        h = mH(LU)
        return F.permute_rows(F.triangular(h, F.triangular(h, B, False), True, True), order, True)
    return F.triangular(LU, F.triangular(LU, F.permute_rows(B, order), False, True), True)


@public("lu_solve", method=True)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X with A X = b, from A's `lu_factor`: an older name of `linalg.lu_solve`.

    >>> import lucid
    >>> LU, pivots = lucid.linalg.lu_factor(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> lucid.lu_solve(lucid.tensor([[2.0], [2.0]]), LU, pivots)
    tensor([[1. ],
            [0.5]])
    """
    return linalg_lu_solve(LU_data, LU_pivots, b)


# ---- eigenvalues ----


def _triangle(name: str, UPLO: str) -> bool:
    if UPLO not in ("L", "U", "l", "u"):
        raise ShapeError(f"{name}: UPLO must be 'L' or 'U', got {UPLO!r}")
    return UPLO in "Uu"


@public("linalg.eigh")
def eigh(A: Tensor, UPLO: str = "L") -> Eigen:
    """(eigenvalues in ascending order, eigenvectors in columns) of each Hermitian matrix [..., n, n].

    Only the triangle UPLO is read. The gradient of eigenvectors is defined up to their phase and where
    eigenvalues differ.

    >>> import lucid
    >>> lucid.linalg.eigh(lucid.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    check_matrix("linalg.eigh", A)
    return Eigen(*F.eigh_full(F.from_triangle(A, _triangle("linalg.eigh", UPLO))))


@public("linalg.eigvalsh")
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of each Hermitian matrix [..., n, n] in ascending order.

    Only the triangle UPLO is read.

    >>> import lucid
    >>> lucid.linalg.eigvalsh(lucid.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    check_matrix("linalg.eigvalsh", A)
    return F.eigvalsh_full(F.from_triangle(A, _triangle("linalg.eigvalsh", UPLO)))


@public("linalg.eig")
def eig(A: Tensor) -> Eigen:
    """(eigenvalues, eigenvectors of length 1 in columns) of each matrix [..., n, n], complex, in no order.

    >>> import lucid
    >>> values, vectors = lucid.linalg.eig(lucid.tensor([[0.0, -1.0], [1.0, 0.0]]))
    >>> values.imag.sort().values
    tensor([-1.,  1.])
    """
    return Eigen(*F.eig_full(A))


@public("linalg.eigvals")
def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of each matrix [..., n, n], complex, in no order.

    >>> import lucid
    >>> lucid.linalg.eigvals(lucid.tensor([[3.0, 0.0], [0.0, 3.0]]))
    tensor([3.+0.j, 3.+0.j], dtype=complex64)
    """
    return F.eig_full(A)[0]


# ---- singular values ----


@public("linalg.svd")
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """(U, S, Vh) of each matrix [..., m, n] with A = U diag(S) Vh and S in descending order.

    full_matrices: square U and Vh; only their first min(m, n) columns and rows have a gradient. It is defined
    up to phases and where singular values differ. The driver is accepted and not used.

    >>> import lucid
    >>> U, S, Vh = lucid.linalg.svd(lucid.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> S
    tensor([4., 3.])
    """
    return SVD(*F.svd_full(A, full_matrices))


@public("svd", method=True)
def svd(x: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVD:
    """(U, S, V) of each matrix.

    An older form of `linalg.svd` with V instead of its conjugate transpose; zeros for U and V without
    `compute_uv`.

    >>> import lucid
    >>> U, S, V = lucid.svd(lucid.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> (U * S) @ V.T
    tensor([[3., 0.],
            [0., 4.]])
    """
    if not compute_uv:
        m, n = x.shape[-2:]
        lead = x.shape[:-2]
        return OldSVD(_new(x, (*lead, m, m), x.dtype), F.svdvals_full(x), _new(x, (*lead, n, n), x.dtype))
    u, s, vh = F.svd_full(x, not some)
    return OldSVD(u, s, mH(vh))


@public("linalg.svdvals")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values of each matrix [..., m, n] in descending order.

    The driver is accepted and not used.

    >>> import lucid
    >>> lucid.linalg.svdvals(lucid.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.])
    """
    return F.svdvals_full(A)


@public("linalg.matrix_exp")
def linalg_matrix_exp(A: Tensor) -> Tensor:
    """The exponential of each matrix [..., n, n]: `matrix_exp` under its name in `linalg`.

    >>> import lucid
    >>> lucid.linalg.matrix_exp(lucid.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return F.matrix_exp(A)
