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
    """The determinant of each matrix [..., n, n]: [...]."""
    return F.det(A)


@public("linalg.slogdet", "slogdet", method="slogdet")
def slogdet(A: Tensor) -> SlogDet:
    """(sign, log |det|) of each matrix [..., n, n]."""
    return SlogDet(*F.slogdet(A))


@public(method=True)
def logdet(x: Tensor) -> Tensor:
    """The logarithm of the determinant of each matrix [..., n, n].

    NaN where it is negative, -inf where it is 0.
    """
    sign, logabsdet = F.slogdet(x)
    if x.dtype.kind == "c":
        return logabsdet + F.log(sign)
    return F.where(F.lt(sign, 0.0), F.full_like(logabsdet, float("nan")), logabsdet)


# ---- Cholesky ----


@public("linalg.cholesky")
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular L with L L^H = A, or with `upper` the U with U^H U = A.

    A: positive definite matrices [..., n, n].

    Only A's lower (upper) triangle is read. Raises LucidError for a matrix that is not positive definite,
    with its batch index.
    """
    check_matrix("linalg.cholesky", A)
    out = F.cholesky_lower(F.from_triangle(A, upper))
    return mH(out) if upper else out


@public("cholesky", method=True)
def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor of each matrix: an older name of `linalg.cholesky`."""
    return linalg_cholesky(x, upper=upper)


@public("linalg.cholesky_ex")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """(L, info): like `linalg.cholesky`, but a matrix that is not positive definite is no error.

    It gives NaN and a positive info, for the whole batch.
    """
    check_matrix("linalg.cholesky_ex", A)
    out, info = _checked("linalg.cholesky_ex", A, lambda: linalg_cholesky(A, upper=upper), check_errors)
    return CholeskyEx(_new(A, A.shape, A.dtype, float("nan")) if out is None else out, info)


@public(method=True)
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, from A's Cholesky factor L. B: [..., n, k]; L: [..., n, n]."""
    return F.cholesky_solution(B, L, upper)


@public(method=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """A^-1 from A's Cholesky factor L [..., n, n]."""
    check_matrix("cholesky_inverse", L)
    return cholesky_solve(F.zeros_like(L) + _eye(L, L.shape[-1]), L, upper)


# ---- QR ----


@public("linalg.qr")
def linalg_qr(A: Tensor, mode: str = "reduced") -> QR:
    """(Q, R) of each matrix [..., m, n] with A = Q R, k = min(m, n).

    mode: 'reduced' (Q [..., m, k]), 'complete' (Q [..., m, m]; no gradient when m > n) or 'r' (R alone, Q
    empty, no gradient).
    """
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"linalg.qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if mode == "r":
        return QR(_new(A, (0,), A.dtype), F.detach(F.qr_full(A)[1]))
    return QR(*F.qr_full(A, mode))


@public("qr", method=True)
def qr(x: Tensor, some: bool = True) -> QR:
    """(Q, R) of each matrix: an older name of `linalg.qr`."""
    return linalg_qr(x, "reduced" if some else "complete")


@public("linalg.householder_product", "orgqr", method="orgqr")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of H_1 H_2 ... H_k with H_i = I - tau_i v_i v_i^H.

    A: [..., m, n], v_i in column i below the diagonal (1 on it, 0 above); tau: [..., k], k <= n <= m.
    """
    check_matrix("linalg.householder_product", A, square=False)
    m, n = A.shape[-2:]
    if m < n or tau.shape[-1] > n:
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
    """The product of the full Q = H_1 ...

    H_k of `householder_product` (its conjugate transpose with `transpose`) with a matrix.

    x: [..., m, k]; tau: [..., k]; other: [..., m, n] (`left`) or [..., n, m].
    """
    check_matrix("ormqr", x, square=False)
    check_matrix("ormqr", other, square=False)
    if left:
        return _reflect(x, tau, other, transpose)
    return mH(_reflect(x, tau, mH(other), not transpose))


# ---- LU ----


@public("linalg.lu_factor")
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """(LU, pivots) of each matrix [..., m, n].

    Both factors of A = P L U in one, and LAPACK's row exchanges (from 1).
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
    """(LU, pivots, info): like `linalg.lu_factor`, with an info of zeros."""
    packed, pivots = lu_factor(A, pivot=pivot)
    return LUFactorEx(packed, pivots, _no_info(A))


@public("lu", method=True)
def lu(x: Tensor, pivot: bool = True, get_infos: bool = False, out: None = None) -> Any:
    """(LU, pivots), or with `get_infos` (LU, pivots, info): an older name of `linalg.lu_factor`."""
    packed, pivots = lu_factor(x, pivot=pivot)
    return (packed, pivots, _no_info(x)) if get_infos else (packed, pivots)


@public("lu_unpack")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LU:
    """(P, L, U) from what `lu_factor` returns; what is not asked for is empty."""
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
    """(P, L, U) of each matrix [..., m, n] with A = P L U."""
    return lu_unpack(*lu_factor(A, pivot=pivot))


@public("linalg.lu_solve")
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B (X A = B when not `left`; A^H for A with `adjoint`), from A's `lu_factor`.

    B: [..., n, k].
    """
    check_matrix("linalg.lu_solve", LU)
    check_matrix("linalg.lu_solve", B, square=False)
    if not left:
        return mH(linalg_lu_solve(LU, pivots, mH(B), adjoint=not adjoint))
    order = F.pivots_to_order(pivots, LU.shape[-2])
    if adjoint:
        h = mH(LU)
        return F.permute_rows(F.triangular(h, F.triangular(h, B, False), True, True), order, True)
    return F.triangular(LU, F.triangular(LU, F.permute_rows(B, order), False, True), True)


@public("lu_solve", method=True)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X with A X = b, from A's `lu_factor`: an older name of `linalg.lu_solve`."""
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
    """
    check_matrix("linalg.eigh", A)
    return Eigen(*F.eigh_full(F.from_triangle(A, _triangle("linalg.eigh", UPLO))))


@public("linalg.eigvalsh")
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of each Hermitian matrix [..., n, n] in ascending order.

    Only the triangle UPLO is read.
    """
    check_matrix("linalg.eigvalsh", A)
    return F.eigvalsh_full(F.from_triangle(A, _triangle("linalg.eigvalsh", UPLO)))


@public("linalg.eig")
def eig(A: Tensor) -> Eigen:
    """(eigenvalues, eigenvectors of length 1 in columns) of each matrix [..., n, n], complex, in no order."""
    return Eigen(*F.eig_full(A))


@public("linalg.eigvals")
def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of each matrix [..., n, n], complex, in no order."""
    return F.eig_full(A)[0]


# ---- singular values ----


@public("linalg.svd")
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """(U, S, Vh) of each matrix [..., m, n] with A = U diag(S) Vh and S in descending order.

    full_matrices: square U and Vh; only their first min(m, n) columns and rows have a gradient. It is defined
    up to phases and where singular values differ. The driver is accepted and not used.
    """
    return SVD(*F.svd_full(A, full_matrices))


@public("svd", method=True)
def svd(x: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVD:
    """(U, S, V) of each matrix.

    An older form of `linalg.svd` with V instead of its conjugate transpose; zeros for U and V without
    `compute_uv`.
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
    """
    return F.svdvals_full(A)


@public("linalg.matrix_exp")
def linalg_matrix_exp(A: Tensor) -> Tensor:
    """The exponential of each matrix [..., n, n]: `matrix_exp` under its name in `linalg`."""
    return F.matrix_exp(A)
