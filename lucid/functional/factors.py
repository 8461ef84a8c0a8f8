"""LDL and packed QR factors, and decompositions of low rank by random projections, under PyTorch's names."""

from __future__ import annotations

from typing import NamedTuple

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, LinAlgError, ShapeError
from ..ops.common import check_tensors
from ..ops.linalg import check_matrix
from ..tensor import Tensor
from .decompositions import linalg_svd, qr
from .linalg import OldSVD, _no_info, mH
from .random import randn
from .registry import public


class LDLFactor(NamedTuple):
    """What `linalg.ldl_factor` returns."""

    LD: Tensor
    pivots: Tensor


class LDLFactorEx(NamedTuple):
    """What `linalg.ldl_factor_ex` returns."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


class PackedQR(NamedTuple):
    """What `geqrf` returns."""

    a: Tensor
    tau: Tensor


@public("linalg.ldl_factor")
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactor:
    """(LD, pivots) of each symmetric matrix [..., n, n], definite or not, for `linalg.ldl_solve`.

    hermitian: of each Hermitian matrix. Only the lower triangle of A is read. Layout and pivots (int32 [...,
    n]) are those of LAPACK's sytrf and hetrf (Bunch and Kaufman 1977). No derivative, as in PyTorch; use
    `linalg.solve` for one. Raises LinAlgError where D is singular.

    >>> import lucid
    >>> A = lucid.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> LD, pivots = lucid.linalg.ldl_factor(A)
    >>> lucid.linalg.ldl_solve(LD, pivots, lucid.tensor([[2.0], [4.0]]))
    tensor([[2.],
            [1.]])
    """
    ld, pivots = F.ldl_compact(A.detach() if isinstance(A, Tensor) else A, hermitian)
    if ld.numel() and bool((F.eq(F.diagonal(ld, 0, -2, -1), 0.0) & (pivots > 0)).any()):
        raise LinAlgError(
            "linalg.ldl_factor: a block of D is 0, the matrix is singular; use linalg.pinv or linalg.lstsq, "
            "or linalg.ldl_factor_ex, which only reports it"
        )
    return LDLFactor(ld, pivots)


@public("linalg.ldl_factor_ex")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorEx:
    """(LD, pivots, info): `linalg.ldl_factor` with an info [...] of 0, or the place (from 1) of D's first 0.

    check_errors: raise as `linalg.ldl_factor` does.

    >>> import lucid
    >>> lucid.linalg.ldl_factor_ex(lucid.zeros(1, 1)).info
    tensor(1, dtype=int32)
    """
    if check_errors:
        return LDLFactorEx(*ldl_factor(A, hermitian=hermitian), _no_info(A))
    ld, pivots = F.ldl_compact(A.detach() if isinstance(A, Tensor) else A, hermitian)
    zero = F.eq(F.diagonal(ld, 0, -2, -1), 0.0) & (pivots > 0)
    if not zero.shape[-1]:
        return LDLFactorEx(ld, pivots, _no_info(A))
    place = F.argmax(zero.int(), -1) + 1
    return LDLFactorEx(ld, pivots, F.where(zero.any(-1), place, F.zeros_like(place)).int())


@public("linalg.ldl_solve")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A X = B, from A's `linalg.ldl_factor`. B: [..., n, k]; leading dimensions broadcast.

    Differentiable in B. Raises ShapeError where sizes differ.

    >>> import lucid
    >>> LD, pivots = lucid.linalg.ldl_factor(lucid.tensor([[4.0]]))
    >>> lucid.linalg.ldl_solve(LD, pivots, lucid.tensor([[2.0]]))
    tensor([[0.5]])
    """
    check_tensors("linalg.ldl_solve", LD=LD, pivots=pivots, B=B)
    check_matrix("linalg.ldl_solve", LD)
    check_matrix("linalg.ldl_solve", B, square=False)
    n = LD.shape[-1]
    if B.shape[-2] != n or not pivots.ndim or pivots.shape[-1] != n:
        raise ShapeError(
            f"linalg.ldl_solve: expected pivots [..., {n}] and B [..., {n}, k] for LD of shape {LD.shape}, "
            f"got {pivots.shape} and {B.shape}"
        )
    if pivots.dtype.kind not in "iu":
        raise DtypeError(f"linalg.ldl_solve: expected integer pivots, got {pivots.dtype.name}")
    return F.ldl_solve(LD.detach(), pivots, B, hermitian)


@public(method=True)
def geqrf(x: Tensor) -> PackedQR:
    """(a, tau): the QR decomposition of each matrix [..., m, n] as LAPACK packs it, for `ormqr`.

    R stands on and above a's diagonal, below it the vectors of the reflections whose product is Q
    (`linalg.householder_product`). No derivative, as in PyTorch; use `linalg.qr` for one.

    >>> import lucid
    >>> x = lucid.tensor([[3.0, 1.0], [4.0, 2.0]])
    >>> a, tau = lucid.geqrf(x)
    >>> lucid.ormqr(a, tau, a.triu())    # Q R
    tensor([[3., 1.],
            [4., 2.]])
    """
    return PackedQR(*F.geqrf(x.detach() if isinstance(x, Tensor) else x))


# ---- low rank ----


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """q orthonormal columns whose span holds nearly all of A's range: Halko, Martinsson and Tropp 2011,
    algorithm 4.4.
    """
    guess = randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    Q = qr(F.matmul(A, guess))[0]
    for _ in range(niter):
        Q = qr(F.matmul(mH(A), Q))[0]
        Q = qr(F.matmul(A, Q))[0]
    return Q


@public("svd_lowrank")
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> OldSVD:
    """(U, S, V) of the q largest singular values of each matrix A - M, nearly.

    A: [..., m, n]; M: broadcastable to it. niter: rounds that sharpen the random projection. Random numbers
    from the default generator of A's device.

    >>> import lucid
    >>> A = lucid.outer(lucid.tensor([3.0, 4.0]), lucid.tensor([1.0, 0.0, 0.0]))
    >>> lucid.svd_lowrank(A, q=1).S
    tensor([5.])
    """
    check_matrix("svd_lowrank", A, square=False)
    A = A if M is None else A - M
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ShapeError(f"svd_lowrank: expected q from 0 to {min(m, n)} for shape {A.shape}, got {q}")
    wide, rounds = m < n, 2 if niter is None else niter
    A = mH(A) if wide else A
    Q = _basis(A, q, rounds)
    U, S, Vh = linalg_svd(F.matmul(mH(Q), A), full_matrices=False)
    U, V = F.matmul(Q, U), mH(Vh)
    return OldSVD(V, S, U) if wide else OldSVD(U, S, V)


@public("pca_lowrank")
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> OldSVD:
    """(U, S, V): `svd_lowrank` of A without the mean of its columns; V's columns are the principal axes.

    A: [..., m, n], samples in rows. q: 6 by default, at most min(m, n). center: False leaves A as it is.

    >>> import lucid
    >>> A = lucid.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    >>> lucid.pca_lowrank(A, q=1).S
    tensor([2.])
    """
    check_matrix("pca_lowrank", A, square=False)
    q = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A - F.mean(A, dim=-2, keepdim=True) if center else A, q, niter)

