"""Products and distances beyond `matmul` under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..ops.common import named, normalize_dim
from ..ops.linalg import broadcast_shapes
from ..storage.dtype import int64, result_type
from ..tensor import Tensor, _wrap
from .linalg import _column, _eye
from .registry import public

# ---- products ----


@public()
def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products that `equation` describes, as matrix products in a greedy order.

    Letters name dimensions; '...' stands for the ones without a letter; without '->' the result has the
    letters that occur once, sorted. Operands may be one list; also `einsum(x, [0, 1], y, [1, 2], [0, 2])`
    with numbers (and Ellipsis) for letters. Dtypes are promoted. Raises ShapeError for an equation that does
    not fit its operands.

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
    if len({o.dtype for o in operands}) > 1:
        dtype = result_type([(o.dtype, 2 if o.ndim else 1) for o in operands])
        operands = tuple(o if o.dtype == dtype else F.cast(o, dtype) for o in operands)
    return F.einsum(*operands, equation=equation)


def _from_sublists(arguments: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    def term(labels: Sequence[Any]) -> str:
        return "".join(
            "..." if c is Ellipsis else chr(ord("A") + c) if c < 26 else chr(ord("a") + c - 26)
            for c in labels
        )

    pairs = len(arguments) // 2
    equation = ",".join(term(arguments[2 * i + 1]) for i in range(pairs))
    if len(arguments) % 2:
        equation += "->" + term(arguments[-1])
    return equation, tuple(arguments[2 * i] for i in range(pairs))


@public()
def tensordot(x: Tensor, y: Tensor, dims: Any = 2, out: None = None) -> Tensor:
    """The sum of products over pairs of dimensions.

    dims: n for the last n of x with the first n of y, or (dimensions of x, dimensions of y). Returns the
    other dimensions of x, then those of y. Raises ShapeError for paired sizes that differ.

    >>> import lucid
    >>> lucid.tensordot(lucid.ones(2, 3, 4), lucid.ones(3, 4, 5)).shape
    (2, 5)
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(x.ndim, y.ndim):
            raise ShapeError(
                f"tensordot: dims={dims} must lie in [0, {min(x.ndim, y.ndim)}] for shapes {x.shape} and "
                f"{y.shape}"
            )
        dims = (range(x.ndim - dims, x.ndim), range(dims))
    left, right = ((d,) if isinstance(d, int) else tuple(d) for d in dims)
    return F.tensordot(x, y, (left, right))


def _dot_order(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    return _dot_order_cached(sizes)


@lru_cache(256)
def _dot_order_cached(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """Where to split each chain of matrices for the fewest multiplications (Cormen et al. 2022, 14.2)."""
    n = len(sizes) - 1
    cost = {(i, i): (0, 0) for i in range(n)}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = min(
                (cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def tree(i: int, j: int) -> Any:
        return i if i == j else (tree(i, cost[i, j][1]), tree(cost[i, j][1] + 1, j))

    return tree(0, n - 1)


@public()
def spmm(x: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices: a name of `mm` in PyTorch, where `x` may also be sparse.

    >>> import lucid
    >>> lucid.spmm(lucid.eye(2), lucid.tensor([[1.0], [2.0]]))
    tensor([[1.],
            [2.]])
    """
    return F.mm(x, mat2)


@public("linalg.multi_dot")
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the order of the fewest multiplications.

    The first and the last may be vectors. Raises ShapeError for sizes that do not fit and fewer than 2
    tensors.

    >>> import lucid
    >>> lucid.linalg.multi_dot([lucid.ones(10, 100), lucid.ones(100, 5), lucid.ones(5, 50)]).shape
    (10, 50)
    """
    if len(tensors) < 2:
        raise ShapeError(f"linalg.multi_dot: expected at least 2 tensors, got {len(tensors)}")
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    mats = [
        F.unsqueeze(t, 0) if i == 0 and first else F.unsqueeze(t, 1) if i == len(tensors) - 1 and last else t
        for i, t in enumerate(tensors)
    ]
    for a, b in zip(mats, mats[1:], strict=False):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ShapeError(
                "linalg.multi_dot: expected a chain of matrices that fit, got shapes "
                f"{[t.shape for t in tensors]}"
            )

    def build(node: Any) -> Tensor:
        return mats[node] if isinstance(node, int) else F.matmul(build(node[0]), build(node[1]))

    out = build(_dot_order((mats[0].shape[0], *(m.shape[1] for m in mats))))
    shape = out.shape[1 if first else 0 : 1 if last else 2]
    return F.reshape(out, shape) if first or last else out


@public()
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices in the order of the fewest multiplications.

    An older name of `linalg.multi_dot`.

    >>> import lucid
    >>> lucid.chain_matmul(lucid.ones(2, 3), lucid.ones(3, 4), lucid.ones(4, 5)).shape
    (2, 5)
    """
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


@public("linalg.matrix_power", "matrix_power", method=True)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied with itself n times; the identity for n = 0, powers of the inverse for n < 0.

    A: [..., k, k], else ShapeError.

    >>> import lucid
    >>> lucid.matrix_power(lucid.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"linalg.matrix_power: expected square matrices [..., k, k], got shape {A.shape}")
    if n == 0:
        return F.beside(F.zeros_like(A) + _eye(A, A.shape[-1]), A)
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
@named("cross")
def cross(x: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along a dimension of size 3, by default the first such one; see `linalg.cross`.

    Raises ShapeError where no dimension has size 3.

    >>> import lucid
    >>> lucid.cross(lucid.tensor([1.0, 0.0, 0.0]), lucid.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if dim is None:
        sizes = broadcast_shapes(x.shape, other.shape)
        if 3 not in sizes:
            raise ShapeError(f"cross: no dimension has size 3 in {x.shape} and {other.shape}")
        dim = sizes.index(3)
    return linalg_cross(x, other, dim=dim)


@public("linalg.cross")
@named("linalg.cross")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product of 3-vectors along `dim`; the other dimensions broadcast.

    Raises ShapeError for another size along `dim` and for different numbers of dimensions.

    >>> import lucid
    >>> lucid.linalg.cross(lucid.tensor([1.0, 0.0, 0.0]), lucid.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if input.ndim != other.ndim:
        raise ShapeError(
            f"linalg.cross: expected inputs with the same number of dimensions, got {input.shape} and "
            f"{other.shape}"
        )
    dim = normalize_dim("linalg.cross", dim, input.ndim) - input.ndim
    shape = broadcast_shapes(input.shape, other.shape)
    return F.cross_product(
        F.expand(input, shape) if input.shape != shape else input,
        F.expand(other, shape) if other.shape != shape else other,
        dim,
    )


@public("linalg.vecdot")
@named("linalg.vecdot")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of conj(x) y along `dim`, with broadcasting.

    >>> import lucid
    >>> lucid.linalg.vecdot(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    return F.sum(F.conj(x) * y, dim)


@public("linalg.matmul")
def linalg_matmul(x: Tensor, other: Tensor) -> Tensor:
    """The matrix product: `matmul` under its name in `linalg`.

    >>> import lucid
    >>> lucid.linalg.matmul(lucid.tensor([[1.0, 2.0]]), lucid.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    return F.matmul(x, other)


@public("linalg.diagonal")
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices in the last two dimensions: a view.

    >>> import lucid
    >>> lucid.linalg.diagonal(lucid.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return F.diagonal(A, offset, dim1, dim2)


@public("linalg.vander")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element (N: the last size): [..., n, N]. Raises ShapeError for N < 2.

    >>> import lucid
    >>> lucid.linalg.vander(lucid.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    x = x if x.ndim else F.reshape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count < 2:
        raise ShapeError(f"linalg.vander: expected N > 1, got N={count} for shape {x.shape}")
    x = x if x.dtype.kind not in "iub" else x.to(int64)
    one = F.ones_like(_column(x))
    powers = [one]
    for _ in range(count - 1):
        powers.append(powers[-1] * _column(x))
    return F.cat(*powers, dim=-1)


@public("bilinear", "nn.functional.bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """sum over i, j of input1_i weight[o, i, j] input2_j + bias[o].

    input1: [..., in1]; input2: [..., in2]; weight: [out, in1, in2]; bias: [out]. Returns [..., out]. Raises
    ShapeError for others.

    >>> import lucid
    >>> lucid.bilinear(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]), lucid.eye(2).reshape(1, 2, 2))
    tensor([11.])
    """
    return F.bilinear(input1, input2, weight, bias)


# ---- distances ----


@public()
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor:
    """The p-norm distances between the rows of x1 [..., n, k] and those of x2 [..., m, k]: [..., n, m].

    The Euclidean distance is taken from a matrix product when n or m exceeds 25 (`compute_mode`
    "use_mm_for_euclid_dist" always, "donot_use_..." never), which is fast but rounds distances much smaller
    than the rows. Raises ShapeError for other shapes and p < 0.

    >>> import lucid
    >>> lucid.cdist(lucid.tensor([[0.0, 0.0]]), lucid.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([[5., 1.]])
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: expected x1 [..., n, k] and x2 [..., m, k], got {x1.shape} and {x2.shape}")
    if p < 0:
        raise ShapeError(f"cdist: p must not be negative, got {p}")
    many = max(x1.shape[-2], x2.shape[-2]) > 25
    if p == 2 and (
        compute_mode == "use_mm_for_euclid_dist"
        or (many and compute_mode == "use_mm_for_euclid_dist_if_necessary")
    ):
        return F.euclidean_distances(x1, x2)
    difference = F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3)
    if not difference.shape[-1]:
        return F.sum(difference, -1)
    return F.p_norm(difference, float(p), -1)


@public("pdist", "nn.functional.pdist")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of rows i < j of x [n, k], in the order (0, 1), (0, 2), ..., (1, 2).

    Returns [n (n - 1) / 2]. Raises ShapeError for other shapes and p < 0.

    >>> import lucid
    >>> lucid.pdist(lucid.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    tensor([5.    , 1.    , 4.2426])
    """
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
