"""Linear algebra under PyTorch's names, argument orders and defaults: products, solutions, decompositions.

The functions of `lucid.linalg` and their older names at the top level. Matrices stand in the last two
dimensions; the others are a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, NamedTuple

from ..autograd.record import RECORDED as F
from ..errors import LucidError, ShapeError
from ..ops.linalg import check_matrix
from ..tensor import Tensor, _wrap
from .registry import public


class SVD(NamedTuple):
    """What `linalg.svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class OldSVD(NamedTuple):
    """What `svd` returns: V itself, not its conjugate transpose."""

    U: Tensor
    S: Tensor
    V: Tensor


class Eigen(NamedTuple):
    """What `linalg.eigh` and `linalg.eig` return."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """What `linalg.qr` returns."""

    Q: Tensor
    R: Tensor


class SlogDet(NamedTuple):
    """What `linalg.slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


class LU(NamedTuple):
    """What `linalg.lu` returns."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """What `linalg.lu_factor` returns."""

    LU: Tensor
    pivots: Tensor


class LUFactorEx(NamedTuple):
    """What `linalg.lu_factor_ex` returns."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class InverseEx(NamedTuple):
    """What `linalg.inv_ex` returns: info is 0 where the matrix was accepted, and 1 where it was not."""

    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """What `linalg.solve_ex` returns; info as in `InverseEx`."""

    result: Tensor
    info: Tensor


class CholeskyEx(NamedTuple):
    """What `linalg.cholesky_ex` returns; info as in `InverseEx`."""

    L: Tensor
    info: Tensor


class LeastSquares(NamedTuple):
    """What `linalg.lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class TriangularSolution(NamedTuple):
    """What `triangular_solve` returns."""

    solution: Tensor
    cloned_coefficient: Tensor


def mH(x: Tensor) -> Tensor:
    """The conjugate transpose of each matrix."""
    return F.conj(F.transpose(x, -2, -1))


def _new(x: Tensor, shape: tuple[int, ...], dtype: Any, value: float = 0) -> Tensor:
    backend = x.storage.backend
    return _wrap(backend.xp.full(shape, value, dtype), backend)


def _eye(x: Tensor, n: int, m: int | None = None) -> Tensor:
    backend = x.storage.backend
    return _wrap(backend.xp.eye(n, m, dtype=x.dtype), backend)


def _float(x: Tensor) -> Tensor:
    return F.cast(x, "float32") if x.dtype.kind in "iub" else x


def _column(x: Tensor) -> Tensor:
    return F.unsqueeze(x, -1)


# ---- norms ----


@public("linalg.vector_norm")
def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """(sum |x|^ord)^(1/ord) over `dim` (all dimensions when None).

    The largest size for inf, the smallest for -inf, the number of nonzeros for 0. The gradient at a norm of 0
    is 0. Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.linalg.vector_norm(lucid.tensor([3.0, 4.0]))
    tensor(5.)
    """
    x = F.cast(x, dtype) if dtype is not None else _float(x)
    return F.p_norm(x, float(ord), dim, keepdim)


@public("linalg.matrix_norm")
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of the matrices in the two dimensions `dim`.

    ord: 'fro' (root of the sum of squares), 'nuc' (sum of singular values), 2 / -2 (largest, smallest
    singular value), 1 / -1 (largest, smallest column sum of sizes), inf / -inf (the same of rows). Raises
    ShapeError for another ord and for fewer than 2 dimensions.

    >>> import lucid
    >>> lucid.linalg.matrix_norm(lucid.tensor([[3.0, 0.0], [0.0, 4.0]]), 2)
    tensor(4.)
    """
    A = F.cast(A, dtype) if dtype is not None else _float(A)
    if A.ndim < 2 or len(dim) != 2 or dim[0] % A.ndim == dim[1] % A.ndim:
        raise ShapeError(
            f"linalg.matrix_norm: expected matrices and two different dimensions, got shape {A.shape} and "
            f"dim={tuple(dim)}"
        )
    rows, columns = dim[0] % A.ndim, dim[1] % A.ndim
    if ord == "fro":
        return F.p_norm(A, 2.0, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        order = (*(i for i in range(A.ndim) if i not in (rows, columns)), rows, columns)
        s = F.svdvals_full(F.permute(A, order))
        out = F.sum(s, -1) if ord == "nuc" else F.amax(s, -1) if ord == 2 else F.amin(s, -1)
    elif ord in (1, -1, inf, -inf):
        summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = F.p_norm(A, 1.0, summed, True)
        out = (F.amax if ord > 0 else F.amin)(sums, other, True)
        out = F.reshape(out, tuple(m for i, m in enumerate(A.shape) if i not in (rows, columns)))
    else:
        raise ShapeError(
            f"linalg.matrix_norm: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}"
        )
    if not keepdim:
        return out
    return F.reshape(out, tuple(1 if i in (rows, columns) else m for i, m in enumerate(A.shape)))


@public("linalg.norm")
def linalg_norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A vector or matrix norm.

    Of vectors when `dim` is an int, of matrices when it is a pair; see `vector_norm` and `matrix_norm`.
    Without `dim`, ord=None flattens the input and takes its 2-norm; another ord takes 1-d input as a vector
    and 2-d input as a matrix. Raises ShapeError for an ord without dim and more dimensions.

    >>> import lucid
    >>> lucid.linalg.norm(lucid.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None:
        if A.ndim not in (1, 2):
            raise ShapeError(
                f"linalg.norm: ord={ord!r} without dim needs a vector or a matrix, got shape {A.shape}; give "
                "dim"
            )
        dim = (0,) if A.ndim == 1 else (0, 1)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, dims, keepdim, dtype=dtype)
    return matrix_norm(A, ord, dims, keepdim, dtype=dtype)


@public("linalg.cond")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of each matrix [..., m, n]: [...].

    The largest over the smallest singular value, or norm(A) * norm(A^-1) for another norm `p` of square
    matrices.

    >>> import lucid
    >>> lucid.linalg.cond(lucid.tensor([[2.0, 0.0], [0.0, 8.0]]))
    tensor(4.)
    """
    if p in (None, 2, -2):
        s = F.svdvals_full(A)
        large, small = F.select(s, -1, 0), F.select(s, -1, s.shape[-1] - 1)
        return small / large if p == -2 else large / small
    return F.mul(matrix_norm(A, p), matrix_norm(F.inverse(A), p))


# ---- inverses and solutions ----


@public("linalg.inv")
def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix [..., n, n]. Raises LucidError for a singular one, with its batch index.

    >>> import lucid
    >>> lucid.linalg.inv(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5 , 0.  ],
            [0.  , 0.25]])
    """
    return F.inverse(A)


def _no_info(x: Tensor) -> Tensor:
    return _new(x, x.shape[:-2], "int32")


def _checked(name: str, x: Tensor, run: Any, check_errors: bool) -> Any:
    """(run(), info): where the matrices are refused and errors are not asked for, NaN and info 1."""
    try:
        return run(), _no_info(x)
    except LucidError:
        if check_errors or not isinstance(x, Tensor):
            raise
        return None, _new(x, x.shape[:-2], "int32", 1)


@public("linalg.inv_ex")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseEx:
    """(inverse, info): like `linalg.inv`, but a singular matrix is no error.

    It gives NaN and a positive info, for the whole batch.

    >>> import lucid
    >>> lucid.linalg.inv_ex(lucid.zeros(2, 2)).info
    tensor(1, dtype=int32)
    """
    check_matrix("linalg.inv_ex", A)
    out, info = _checked("linalg.inv_ex", A, lambda: F.inverse(A), check_errors)
    return InverseEx(_new(A, A.shape, A.dtype, float("nan")) if out is None else out, info)


def _vector_right(A: Tensor, B: Tensor) -> bool:
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])


@public("linalg.solve")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (X A = B when not `left`).

    A: [..., n, n]; B: [..., n, k], or vectors [..., n]. Raises LucidError for a singular matrix, with its
    batch index.

    >>> import lucid
    >>> lucid.linalg.solve(lucid.tensor([[2.0, 0.0], [0.0, 4.0]]), lucid.tensor([2.0, 2.0]))
    tensor([1. , 0.5])
    """
    if left and _vector_right(A, B):
        return F.squeeze(F.solve_matrix(A, _column(B)), -1)
    if not left:
        return F.transpose(F.solve_matrix(F.transpose(A, -2, -1), F.transpose(B, -2, -1)), -2, -1)
    return F.solve_matrix(A, B)


@public("linalg.solve_ex")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """(X, info): like `linalg.solve`, but a singular matrix is no error.

    It gives NaN and a positive info, for the whole batch.

    >>> import lucid
    >>> lucid.linalg.solve_ex(lucid.zeros(2, 2), lucid.ones(2)).info
    tensor(1, dtype=int32)
    """
    check_matrix("linalg.solve_ex", A)
    out, info = _checked("linalg.solve_ex", A, lambda: solve(A, B, left=left), check_errors)
    if out is None:
        out = _new(B, B.shape, (B if B.dtype.kind in "fc" else A).dtype, float("nan"))
    return SolveEx(out, info)


@public("linalg.solve_triangular")
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A X = B (X A = B when not `left`) for triangular A; its other triangle is not read.

    A: [..., n, n]; B: [..., n, k]. unitriangular: the diagonal counts as ones. Raises ShapeError for sizes
    that do not fit, LucidError for a zero on the diagonal.

    >>> import lucid
    >>> A, B = lucid.tensor([[1.0, 1.0], [5.0, 2.0]]), lucid.tensor([[3.0], [4.0]])
    >>> lucid.linalg.solve_triangular(A, B, upper=True)
    tensor([[1.],
            [2.]])
    """
    if left:
        return F.triangular(A, B, upper, unitriangular)
    return F.transpose(
        F.triangular(F.transpose(A, -2, -1), F.transpose(B, -2, -1), not upper, unitriangular), -2, -1
    )


@public(method=True)
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """(X with A X = b for triangular A, A): an older name of `linalg.solve_triangular`.

    transpose: A^T X = b; errors as there.

    >>> import lucid
    >>> lucid.triangular_solve(lucid.tensor([[3.0], [4.0]]), lucid.tensor([[1.0, 1.0], [0.0, 2.0]])).solution
    tensor([[1.],
            [2.]])
    """
    matrix = F.transpose(A, -2, -1) if transpose else A
    return TriangularSolution(F.triangular(matrix, b, upper != transpose, unitriangular), F.clone(A))


def _rtol(A: Tensor) -> float:
    import numpy as np

    return max(A.shape[-2:]) * float(np.finfo(A.dtype).eps) if A.dtype.kind in "fc" else 0.0


@public("linalg.pinv")
def pinv(
    A: Tensor,
    rcond: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:
    """The Moore-Penrose inverse of each matrix [..., m, n]: [..., n, m].

    Singular values up to max(atol, rtol * largest) count as zero; rtol is max(m, n) * eps by default, 0 when
    atol is given. hermitian: only the lower triangle is read.

    >>> import lucid
    >>> lucid.linalg.pinv(lucid.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.5, 0. ],
            [0. , 0. ]])
    """
    check_matrix("linalg.pinv", A, square=False)
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        rtol = _rtol(A) if not atol else 0.0
    if isinstance(rtol, Tensor):
        rtol = float(rtol.item())
    if isinstance(atol, Tensor):
        atol = float(atol.item())
    return F.pseudo_inverse(A, float(rtol), float(atol or 0.0), hermitian)


@public(method=True)
def pinverse(x: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose inverse of each matrix: an older name of `linalg.pinv`.

    >>> import lucid
    >>> lucid.pinverse(lucid.tensor([[2.0], [0.0]]))
    tensor([[0.5, 0. ]])
    """
    return pinv(x, rtol=rcond)


@public("linalg.matrix_rank")
def matrix_rank(
    A: Tensor,
    tol: float | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:
    """The number of singular values above max(atol, rtol * largest), int64.

    A: [..., m, n]; returns [...]; atol, rtol: numbers or [...]. rtol is max(m, n) * eps by default, 0 when
    atol is given.

    >>> import lucid
    >>> lucid.linalg.matrix_rank(lucid.tensor([[1.0, 1.0], [1.0, 1.0]]))
    tensor(1)
    """
    s = F.detach(F.svdvals_full(A))
    if not s.shape[-1]:
        return _new(A, s.shape[:-1], "int64")
    atol = tol if atol is None else atol
    given = isinstance(atol, Tensor) or bool(atol)
    rtol = (0.0 if given else _rtol(A)) if rtol is None else rtol
    limit = F.maximum(F.mul(F.amax(s, -1), rtol), 0.0 if atol is None else atol)
    return F.sum(F.cast(F.gt(s, F.unsqueeze(limit, -1)), "int64"), -1)


@public("linalg.lstsq")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """(solution, residuals, rank, singular_values) of min |A X - B|.

    A: [..., m, n]; B: [..., m, k], or vectors [..., m]. The solution of least norm, from the pseudo-inverse,
    whatever the driver. residuals: sums of squares per column where m > n and the rank is full, else empty.
    singular_values: empty unless the driver is 'gelsd' or 'gelss'.

    >>> import lucid
    >>> A, B = lucid.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), lucid.tensor([1.0, 3.0, 5.0])
    >>> lucid.linalg.lstsq(A, B).solution    # the line 1 + 2 t
    tensor([1., 2.])
    """
    vector = _vector_right(A, B)
    right = _column(B) if vector else B
    solution = F.matmul(pinv(A, rtol=rcond), right)
    rank = matrix_rank(A, rtol=rcond) if driver != "gels" else _new(A, (0,), "int64")
    residuals = _new(A, (0,), A.dtype)
    m, n = A.shape[-2:]
    if m > n and driver != "gelsy" and (driver == "gels" or bool((rank.storage.array == n).all())):
        size = F.abs(F.matmul(A, solution) - right)
        residuals = F.sum(size * size, -2)
        residuals = F.squeeze(residuals, -1) if vector else residuals
    values = F.svdvals_full(A) if driver in ("gelss", "gelsd") else _new(A, (0,), A.dtype)
    return LeastSquares(F.squeeze(solution, -1) if vector else solution, residuals, rank, values)


@public("linalg.tensorinv")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A as a map: [*first ind sizes, *rest] with equal products gives [*rest, *first].

    Raises ShapeError where the products differ, LucidError for a singular map.

    >>> import lucid
    >>> lucid.linalg.tensorinv(lucid.eye(6).reshape(6, 2, 3), ind=1).shape
    (2, 3, 6)
    """
    first, rest = A.shape[:ind], A.shape[ind:]
    if ind < 1 or prod(first) != prod(rest):
        raise ShapeError(
            f"linalg.tensorinv: the first ind={ind} sizes and the others must have the same product, got "
            f"shape {A.shape}"
        )
    return F.reshape(F.inverse(F.reshape(A, (prod(first), prod(rest)))), (*rest, *first))


@public("linalg.tensorsolve")
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with tensordot(A, X) = B. A: [*B.shape, *X.shape], after moving `dims` to its end.

    Raises ShapeError for sizes that do not fit, LucidError for a singular map.

    >>> import lucid
    >>> lucid.linalg.tensorsolve(2 * lucid.eye(6).reshape(2, 3, 6), lucid.ones(2, 3))
    tensor([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    if dims is not None:
        moved = [d % A.ndim for d in dims]
        A = F.permute(A, (*(i for i in range(A.ndim) if i not in moved), *moved))
    shape = A.shape[B.ndim :]
    if prod(shape) != prod(B.shape) or prod(A.shape) != prod(shape) ** 2:
        raise ShapeError(
            f"linalg.tensorsolve: A {A.shape} must have sizes [*B.shape, *X.shape] with equal products, got "
            f"B {B.shape}"
        )
    return F.reshape(F.solve_matrix(F.reshape(A, (-1, prod(shape))), F.reshape(B, (-1, 1))), shape)
