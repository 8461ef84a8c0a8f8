"""Linear algebra under PyTorch's names, argument orders and defaults: products, solutions, decompositions.

The functions of `lucid.linalg` and their older names at the top level. Matrices stand in the last two dimensions; the others are a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, prod
from typing import Any, NamedTuple

from ..autograd.record import RECORDED as F
from ..errors import LucidError, ShapeError
from ..ops.linalg import broadcast_shapes
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


class WithInfo(NamedTuple):
    """What the `_ex` functions return: info is 0 where the matrix was accepted, and 1 where it was not."""
    result: Tensor
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


# ---- products ----

@public()
def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products that `equation` describes, as matrix products in a greedy order.

    Letters name dimensions; '...' stands for the ones without a letter; without '->' the result has the letters that occur once, sorted. Operands may be
    one list; also `einsum(x, [0, 1], y, [1, 2], [0, 2])` with numbers (and Ellipsis) for letters.

    >>> import lucid
    >>> lucid.einsum("ij,j->i", lucid.tensor([[1., 2.], [3., 4.]]), lucid.tensor([1., 10.]))
    tensor([21., 43.])
    """
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise ShapeError("einsum: expected at least one operand after the equation")
    return F.einsum(*operands, equation=equation)


def _from_sublists(arguments: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    def term(labels: Sequence[Any]) -> str:
        return "".join("..." if c is Ellipsis else chr(ord("A") + c) if c < 26 else chr(ord("a") + c - 26) for c in labels)
    pairs = len(arguments) // 2
    equation = ",".join(term(arguments[2 * i + 1]) for i in range(pairs))
    if len(arguments) % 2:
        equation += "->" + term(arguments[-1])
    return equation, tuple(arguments[2 * i] for i in range(pairs))


@public()
def tensordot(x: Tensor, y: Tensor, dims: Any = 2, out: None = None) -> Tensor:
    """The sum of products over pairs of dimensions.

    dims: n for the last n of x with the first n of y, or (dimensions of x, dimensions of y). Returns the other dimensions of x, then those of y.
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: dims={dims} must lie in [0, {min(x.ndim, y.ndim)}] for shapes {x.shape} and {y.shape}")
        dims = (range(x.ndim - dims, x.ndim), range(dims))
    left, right = ((d,) if isinstance(d, int) else tuple(d) for d in dims)
    return F.tensordot(x, y, (left, right))


def _dot_order(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    return _dot_order_cached(sizes)


@lru_cache(256)
def _dot_order_cached(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """Where to split each chain of matrices for the fewest multiplications (Cormen et al., Introduction to Algorithms, 14.2)."""
    n = len(sizes) - 1
    cost = {(i, i): (0, 0) for i in range(n)}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = min((cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))

    def tree(i: int, j: int) -> Any:
        return i if i == j else (tree(i, cost[i, j][1]), tree(cost[i, j][1] + 1, j))
    return tree(0, n - 1)


@public()
def spmm(x: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices: a name of `mm` in PyTorch, where `x` may also be sparse."""
    return F.mm(x, mat2)


@public("linalg.multi_dot")
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the order of the fewest multiplications. The first and the last may be vectors."""
    if len(tensors) < 2:
        raise ShapeError(f"linalg.multi_dot: expected at least 2 tensors, got {len(tensors)}")
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    mats = [F.unsqueeze(t, 0) if i == 0 and first else F.unsqueeze(t, 1) if i == len(tensors) - 1 and last else t for i, t in enumerate(tensors)]
    for a, b in zip(mats, mats[1:], strict=False):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ShapeError(f"linalg.multi_dot: expected a chain of matrices that fit, got shapes {[t.shape for t in tensors]}")

    def build(node: Any) -> Tensor:
        return mats[node] if isinstance(node, int) else F.matmul(build(node[0]), build(node[1]))
    out = build(_dot_order((mats[0].shape[0], *(m.shape[1] for m in mats))))
    shape = out.shape[1 if first else 0:1 if last else 2]
    return F.reshape(out, shape) if first or last else out


@public()
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices in the order of the fewest multiplications: an older name of `linalg.multi_dot`."""
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


@public("linalg.matrix_power", "matrix_power", method=True)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied with itself n times; the identity for n = 0, powers of the inverse for n < 0. A: [..., k, k]."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"linalg.matrix_power: expected square matrices [..., k, k], got shape {A.shape}")
    if n == 0:
        return F.zeros_like(A) + _eye(A, A.shape[-1])
    if n < 0:
        A, n = F.inverse(A), -n
    out: Tensor | None = None
    while True:
        if n & 1:
            out = A if out is None else F.matmul(out, A)
        n >>= 1
        if not n:
            return F.clone(A) if out is A else out  # type: ignore[return-value]
        A = F.matmul(A, A)


@public("cross", method=True)
def cross(x: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along a dimension of size 3, by default the first such one; see `linalg.cross`."""
    if dim is None:
        sizes = broadcast_shapes(x.shape, other.shape)
        if 3 not in sizes:
            raise ShapeError(f"cross: no dimension has size 3 in {x.shape} and {other.shape}")
        dim = sizes.index(3)
    return linalg_cross(x, other, dim=dim)


@public("linalg.cross")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product of 3-vectors along `dim`; the other dimensions broadcast."""
    if input.ndim != other.ndim:
        raise ShapeError(f"linalg.cross: expected inputs with the same number of dimensions, got {input.shape} and {other.shape}")
    dim = dim % input.ndim - input.ndim
    shape = broadcast_shapes(input.shape, other.shape)
    return F.cross_product(F.expand(input, shape) if input.shape != shape else input, F.expand(other, shape) if other.shape != shape else other, dim)


@public("linalg.vecdot")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of conj(x) y along `dim`, with broadcasting."""
    return F.sum(F.conj(x) * y, dim)


@public("linalg.matmul")
def linalg_matmul(x: Tensor, other: Tensor) -> Tensor:
    """The matrix product: `matmul` under its name in `linalg`."""
    return F.matmul(x, other)


@public("linalg.diagonal")
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices in the last two dimensions: a view."""
    return F.diagonal(A, offset, dim1, dim2)


@public("linalg.vander")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element (N: the last size): [..., n, N]."""
    x = x if x.ndim else F.reshape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count < 2:
        raise ShapeError(f"linalg.vander: expected N > 1, got N={count} for shape {x.shape}")
    one = F.ones_like(_column(x))
    powers = [one]
    for _ in range(count - 1):
        powers.append(powers[-1] * _column(x))
    return F.cat(*powers, dim=-1)


@public("bilinear", "nn.functional.bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """sum over i, j of input1_i weight[o, i, j] input2_j + bias[o].

    input1: [..., in1]; input2: [..., in2]; weight: [out, in1, in2]; bias: [out]. Returns [..., out].
    """
    return F.bilinear(input1, input2, weight, bias)


# ---- norms ----

@public("linalg.vector_norm")
def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """(sum |x|^ord)^(1/ord) over `dim` (all dimensions when None): the largest size for inf, the smallest for -inf, the number of nonzeros for 0."""
    x = F.cast(x, dtype) if dtype is not None else _float(x)
    return F.p_norm(x, float(ord), dim, keepdim)


@public("linalg.matrix_norm")
def matrix_norm(A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A norm of the matrices in the two dimensions `dim`.

    ord: 'fro' (root of the sum of squares), 'nuc' (sum of singular values), 2 / -2 (largest, smallest singular value), 1 / -1 (largest, smallest column
    sum of sizes), inf / -inf (the same of rows).
    """
    A = F.cast(A, dtype) if dtype is not None else _float(A)
    if A.ndim < 2 or len(dim) != 2 or dim[0] % A.ndim == dim[1] % A.ndim:
        raise ShapeError(f"linalg.matrix_norm: expected matrices and two different dimensions, got shape {A.shape} and dim={tuple(dim)}")
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
        raise ShapeError(f"linalg.matrix_norm: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")
    if not keepdim:
        return out
    return F.reshape(out, tuple(1 if i in (rows, columns) else m for i, m in enumerate(A.shape)))


@public("linalg.norm")
def linalg_norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A vector or matrix norm: of vectors when `dim` is an int, of matrices when it is a pair; see `vector_norm` and `matrix_norm`.

    Without `dim`, ord=None flattens the input and takes its 2-norm; another ord takes 1-d input as a vector and 2-d input as a matrix.
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None:
        if A.ndim not in (1, 2):
            raise ShapeError(f"linalg.norm: ord={ord!r} without dim needs a vector or a matrix, got shape {A.shape}; give dim")
        dim = (0,) if A.ndim == 1 else (0, 1)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, dims, keepdim, dtype=dtype)
    return matrix_norm(A, ord, dims, keepdim, dtype=dtype)


@public("linalg.cond")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of each matrix: the largest over the smallest singular value, or norm(A) * norm(A^-1) for another norm `p`."""
    if p in (None, 2, -2):
        s = F.svdvals_full(A)
        large, small = F.select(s, -1, 0), F.select(s, -1, s.shape[-1] - 1)
        return small / large if p == -2 else large / small
    return matrix_norm(A, p) * matrix_norm(F.inverse(A), p)


# ---- distances ----

@public()
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm distances between the rows of x1 [..., n, k] and those of x2 [..., m, k]: [..., n, m].

    The Euclidean distance is taken from a matrix product when n or m exceeds 25 (`compute_mode` "use_mm_for_euclid_dist" always, "donot_use_..." never),
    which is fast but rounds distances much smaller than the rows.
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: expected x1 [..., n, k] and x2 [..., m, k], got {x1.shape} and {x2.shape}")
    if p < 0:
        raise ShapeError(f"cdist: p must not be negative, got {p}")
    many = max(x1.shape[-2], x2.shape[-2]) > 25
    if p == 2 and (compute_mode == "use_mm_for_euclid_dist" or (many and compute_mode == "use_mm_for_euclid_dist_if_necessary")):
        return F.euclidean_distances(x1, x2)
    difference = F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3)
    if not difference.shape[-1]:
        return F.sum(difference, -1)
    return F.p_norm(difference, float(p), -1)


@public("pdist", "nn.functional.pdist")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of rows i < j of x [n, k], in the order (0, 1), (0, 2), ..., (1, 2), ...: [n (n - 1) / 2]."""
    if x.ndim != 2 or p < 0:
        raise ShapeError(f"pdist: expected a matrix [n, k] and p >= 0, got shape {x.shape} and p={p}")
    backend = x.storage.backend
    n = x.shape[0]
    i, j = (_wrap(backend.asarray(v), backend) for v in _pairs(n))
    difference = F.index_select(x, 0, i) - F.index_select(x, 0, j)
    return F.p_norm(difference, float(p), -1) if x.shape[1] else F.sum(difference, -1)


@lru_cache(16)
def _pairs(n: int) -> Any:
    import numpy as np
    return np.triu_indices(n, 1)


# ---- inverses and solutions ----

@public("linalg.inv")
def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix [..., n, n]. Raises LucidError for a singular one, with its batch index."""
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
def inv_ex(A: Tensor, *, check_errors: bool = False) -> WithInfo:
    """(inverse, info): like `linalg.inv`, but a singular matrix gives NaN and a positive info instead of an error, for the whole batch."""
    out, info = _checked("linalg.inv_ex", A, lambda: F.inverse(A), check_errors)
    return WithInfo(_new(A, A.shape, A.dtype, float("nan")) if out is None else out, info)


def _vector_right(A: Tensor, B: Tensor) -> bool:
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])


@public("linalg.solve")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (X A = B when not `left`).

    A: [..., n, n]; B: [..., n, k], or vectors [..., n]. Raises LucidError for a singular matrix, with its batch index.
    """
    if left and _vector_right(A, B):
        return F.squeeze(F.solve_matrix(A, _column(B)), -1)
    if not left:
        return F.transpose(F.solve_matrix(F.transpose(A, -2, -1), F.transpose(B, -2, -1)), -2, -1)
    return F.solve_matrix(A, B)


@public("linalg.solve_ex")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> WithInfo:
    """(X, info): like `linalg.solve`, but a singular matrix gives NaN and a positive info instead of an error, for the whole batch."""
    out, info = _checked("linalg.solve_ex", A, lambda: solve(A, B, left=left), check_errors)
    return WithInfo(_new(B, B.shape, B.dtype, float("nan")) if out is None else out, info)


@public("linalg.solve_triangular")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B (X A = B when not `left`) for triangular A; its other triangle is not read.

    A: [..., n, n]; B: [..., n, k]. unitriangular: the diagonal counts as ones.
    """
    if left:
        return F.triangular(A, B, upper, unitriangular)
    return F.transpose(F.triangular(F.transpose(A, -2, -1), F.transpose(B, -2, -1), not upper, unitriangular), -2, -1)


@public(method=True)
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> TriangularSolution:
    """(X with A X = b for triangular A, A): an older name of `linalg.solve_triangular`."""
    matrix = F.transpose(A, -2, -1) if transpose else A
    return TriangularSolution(F.triangular(matrix, b, upper != transpose, unitriangular), F.clone(A))


def _rtol(A: Tensor) -> float:
    import numpy as np
    return max(A.shape[-2:]) * float(np.finfo(A.dtype).eps) if A.dtype.kind in "fc" else 0.0


@public("linalg.pinv")
def pinv(A: Tensor, rcond: float | None = None, hermitian: bool = False, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The Moore-Penrose inverse of each matrix [..., m, n]: [..., n, m].

    Singular values up to max(atol, rtol * largest) count as zero; rtol is max(m, n) * eps by default, 0 when atol is given.
    """
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
    """The Moore-Penrose inverse of each matrix: an older name of `linalg.pinv`."""
    return pinv(x, rtol=rcond)


@public("linalg.matrix_rank")
def matrix_rank(A: Tensor, tol: float | None = None, hermitian: bool = False, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The number of singular values above max(atol, rtol * largest), int64; rtol is max(m, n) * eps by default, 0 when atol is given."""
    s = F.detach(F.svdvals_full(A))
    atol = tol if atol is None else atol
    rtol = (_rtol(A) if not atol else 0.0) if rtol is None else rtol
    limit = F.maximum(F.amax(s, -1, True) * rtol, F.full_like(F.amax(s, -1, True), float(atol or 0.0)))
    return F.sum(F.cast(F.gt(s, limit), "int64"), -1)


@public("linalg.lstsq")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """(solution, residuals, rank, singular_values) of min |A X - B|.

    A: [..., m, n]; B: [..., m, k], or vectors [..., m]. The solution of least norm, from the pseudo-inverse, whatever the driver. residuals: sums of squares
    per column where m > n and the rank is full, else empty. singular_values: empty unless the driver is 'gelsd' or 'gelss'.
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
    """The inverse of A as a map: [*first ind sizes, *rest] with equal products gives [*rest, *first]."""
    first, rest = A.shape[:ind], A.shape[ind:]
    if ind < 1 or prod(first) != prod(rest):
        raise ShapeError(f"linalg.tensorinv: the first ind={ind} sizes and the others must have the same product, got shape {A.shape}")
    return F.reshape(F.inverse(F.reshape(A, (prod(first), prod(rest)))), (*rest, *first))


@public("linalg.tensorsolve")
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with tensordot(A, X) = B. A: [*B.shape, *X.shape], after moving `dims` to its end."""
    if dims is not None:
        moved = [d % A.ndim for d in dims]
        A = F.permute(A, (*(i for i in range(A.ndim) if i not in moved), *moved))
    shape = A.shape[B.ndim:]
    if prod(shape) != prod(B.shape) or prod(A.shape) != prod(shape) ** 2:
        raise ShapeError(f"linalg.tensorsolve: A {A.shape} must have sizes [*B.shape, *X.shape] with equal products, got B {B.shape}")
    return F.reshape(F.solve_matrix(F.reshape(A, (-1, prod(shape))), F.reshape(B, (-1, 1))), shape)


from . import decompositions as decompositions  # noqa: E402  (the other parts of this topic; they use the helpers above)
from . import fft as fft  # noqa: E402
