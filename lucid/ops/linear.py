"""Products of vectors and matrices beyond `matmul`.

Written in terms of it, so that every product runs in BLAS.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from ..errors import ShapeError
from ..kernel.products import matmul_of
from .common import check_tensors, named, normalize_dim
from .registry import Sample, composite, op


def _rank(name: str, *pairs: tuple[Any, int, str]) -> None:
    for x, n, argument in pairs:
        if getattr(x, "ndim", None) != n:
            check_tensors(name, **{argument: x})
            raise ShapeError(
                f"{name}: {argument} must have {n} dimension{'s' * (n > 1)}, got shape {tuple(x.shape)}; use "
                "matmul, which takes any number"
            )


@composite(method=True, amp="low", samples=[Sample((2, 3), (3, 4))], reference="numpy:matmul")
def mm(F, x, mat2):
    """The product of two matrices [n, k] and [k, m]: [n, m]. Raises ShapeError for other shapes.

    >>> import lucid
    >>> lucid.mm(lucid.tensor([[1.0, 2.0]]), lucid.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    _rank("mm", (x, 2, "x"), (mat2, 2, "mat2"))
    return F.matmul(x, mat2)


@composite(method=True, amp="low", samples=[Sample((2, 3, 4), (2, 4, 2))], reference="numpy:matmul")
def bmm(F, x, mat2):
    """The products of two batches of matrices [b, n, k] and [b, k, m]: [b, n, m].

    Raises ShapeError for other shapes: `matmul` broadcasts.

    >>> import lucid
    >>> lucid.bmm(lucid.ones(5, 2, 3), lucid.ones(5, 3, 4)).shape
    (5, 2, 4)
    """
    _rank("bmm", (x, 3, "x"), (mat2, 3, "mat2"))
    if x.shape[0] != mat2.shape[0]:
        raise ShapeError(
            f"bmm: the batches have sizes {x.shape[0]} and {mat2.shape[0]}; they must be equal (matmul "
            "broadcasts)"
        )
    return F.matmul(x, mat2)


@composite(method=True, amp="low", samples=[Sample((2, 3), (3,))], reference="numpy:matmul")
def mv(F, x, vec):
    """The product of a matrix [n, k] and a vector [k]: [n]. Raises ShapeError for other shapes.

    >>> import lucid
    >>> lucid.mv(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    _rank("mv", (x, 2, "x"), (vec, 1, "vec"))
    return F.matmul(x, vec)


@composite(method=True, samples=[Sample((3,), (3,))], reference="numpy:dot")
def dot(F, x, tensor):
    """The sum of x_i tensor_i of two vectors, 0-d. Nothing is conjugated: see `vdot`.

    Raises ShapeError for other shapes and for two lengths.

    >>> import lucid
    >>> lucid.dot(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
    tensor(11.)
    """
    _rank("dot", (x, 1, "x"), (tensor, 1, "tensor"))
    return F.matmul(x, tensor)


@composite(method=True, samples=[Sample((3,), (3,))], reference="numpy:vdot")
def vdot(F, x, other):
    """The sum of conj(x_i) other_i of two vectors, 0-d.

    Raises ShapeError for other shapes and for two lengths.

    >>> import lucid
    >>> lucid.vdot(lucid.tensor([1j, 2.0]), lucid.tensor([1j, 1.0]))
    tensor(3.+0.j, dtype=complex64)
    """
    _rank("vdot", (x, 1, "x"), (other, 1, "other"))
    return F.matmul(F.conj(x), other)


@composite(method=True, samples=[Sample((3,), (4,))], reference="numpy:outer")
def outer(F, x, vec2):
    """The products x_i vec2_j of two vectors: [n, m]. Raises ShapeError for other shapes.

    >>> import lucid
    >>> lucid.outer(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    _rank("outer", (x, 1, "x"), (vec2, 1, "vec2"))
    return F.reshape(x, (x.shape[0], 1)) * vec2


@composite(method=True, samples=[Sample((3,), (4,))], reference="numpy:outer")
def ger(F, x, vec2):
    """The products x_i vec2_j of two vectors: an older name of `outer`.

    >>> import lucid
    >>> lucid.ger(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    return F.outer(x, vec2)


@composite(
    method=True,
    samples=[Sample((2, 3), (4, 3)), Sample((3,), (3,)), Sample((2, 2, 3), (2, 3))],
    reference="numpy:inner",
)
def inner(F, x, other):
    """The sum of products over the last dimension of both: [*x.shape[:-1], *other.shape[:-1]].

    The plain product when one is 0-d. Raises ShapeError for last sizes that differ.

    >>> import lucid
    >>> lucid.inner(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    check_tensors("inner", x=x, other=other)
    if not x.ndim or not other.ndim:
        return x * other
    if x.shape[-1] != other.shape[-1]:
        raise ShapeError(
            f"inner: the last dimensions must be equal, got {tuple(x.shape)} and {tuple(other.shape)}"
        )
    return F.tensordot(x, other, ((x.ndim - 1,), (other.ndim - 1,)))


def _scaled(product_: Any, alpha: Any) -> Any:
    return product_ if alpha == 1 else product_ * alpha


def _blend(F: Any, name: str, x: Any, product_: Any, beta: Any, alpha: Any) -> Any:
    """beta x + alpha product; with beta 0 x is not read, so that its NaN stay out."""
    if beta == 0:
        return _scaled(product_, alpha)
    try:
        out = (x if beta == 1 else x * beta) + _scaled(product_, alpha)
    except ValueError:
        out = None
    if out is None or out.shape != product_.shape:
        raise ShapeError(
            f"{name}: input of shape {tuple(x.shape)} cannot be broadcast to the product's shape "
            f"{tuple(product_.shape)}"
        )
    return out


@composite(
    method=True,
    amp="low",
    samples=[Sample((2, 4), (2, 3), (3, 4), beta=0.5, alpha=2.0), Sample((4,), (2, 3), (3, 4))],
    reference=lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b),
)
@named("addmm")
def addmm(F, x, mat1, mat2, *, beta: float = 1, alpha: float = 1):
    """beta x + alpha mat1 @ mat2.

    mat1: [n, k]; mat2: [k, m]; x broadcasts to [n, m]; ShapeError otherwise. With beta = 0, x is not read.

    >>> import lucid
    >>> lucid.addmm(lucid.ones(2), lucid.eye(2), lucid.eye(2), beta=10)
    tensor([[11., 10.],
            [10., 11.]])
    """
    return _blend(F, "addmm", x, F.mm(mat1, mat2), beta, alpha)


@composite(
    method=True,
    amp="low",
    samples=[Sample((2,), (2, 3), (3,), beta=0.5, alpha=2.0)],
    reference=lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b),
)
@named("addmv")
def addmv(F, x, mat, vec, *, beta: float = 1, alpha: float = 1):
    """beta x + alpha mat @ vec.

    mat: [n, k]; vec: [k]; x broadcasts to [n]; ShapeError otherwise. With beta = 0, x is not read.

    >>> import lucid
    >>> lucid.addmv(lucid.ones(2), lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 10.0]))
    tensor([22., 44.])
    """
    return _blend(F, "addmv", x, F.mv(mat, vec), beta, alpha)


@composite(
    method=True,
    amp="low",
    samples=[Sample((2, 4), (3, 2, 3), (3, 3, 4), beta=0.5, alpha=2.0)],
    reference=lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b).sum(0),
)
@named("addbmm")
def addbmm(F, x, batch1, batch2, *, beta: float = 1, alpha: float = 1):
    """beta x + alpha times the sum over the batch of batch1 @ batch2.

    batch1: [b, n, k]; batch2: [b, k, m]; x broadcasts to [n, m]; ShapeError otherwise. With beta = 0, x is
    not read.

    >>> import lucid
    >>> lucid.addbmm(lucid.zeros(2, 2), lucid.ones(3, 2, 1), lucid.ones(3, 1, 2))
    tensor([[3., 3.],
            [3., 3.]])
    """
    _rank("addbmm", (batch1, 3, "batch1"), (batch2, 3, "batch2"))
    return _blend(F, "addbmm", x, F.tensordot(batch1, batch2, ((0, 2), (0, 1))), beta, alpha)


@composite(
    method=True, amp="low",
    samples=[Sample((3, 4), (3,), (4,), beta=0.5, alpha=2.0)],
    reference=lambda x, a, b, beta=1, alpha=1: beta * x + alpha * a[:, None] * b,
)
@named("addr")
def addr(F, x, vec1, vec2, *, beta: float = 1, alpha: float = 1):
    """beta x + alpha times the outer product of vec1 and vec2.

    vec1: [n]; vec2: [m]; x broadcasts to [n, m]; ShapeError otherwise. With beta = 0, x is not read.

    >>> import lucid
    >>> lucid.addr(lucid.ones(2, 2), lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
    tensor([[4., 5.],
            [7., 9.]])
    """
    return _blend(F, "addr", x, F.outer(vec1, vec2), beta, alpha)


@composite(
    method=True,
    amp="low",
    samples=[Sample((2, 2, 4), (2, 2, 3), (2, 3, 4), beta=0.5, alpha=2.0)],
    reference=lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b),
)
@named("baddbmm")
def baddbmm(F, x, batch1, batch2, *, beta: float = 1, alpha: float = 1):
    """beta x + alpha batch1 @ batch2.

    batch1: [b, n, k]; batch2: [b, k, m]; x broadcasts to [b, n, m]; ShapeError otherwise. With beta = 0, x is
    not read.

    >>> import lucid
    >>> lucid.baddbmm(lucid.ones(2), lucid.ones(3, 2, 4), lucid.ones(3, 4, 2))[0]
    tensor([[5., 5.],
            [5., 5.]])
    """
    return _blend(F, "baddbmm", x, F.bmm(batch1, batch2), beta, alpha)


# ---- contractions ----


@composite(
    public=False,
    samples=[Sample((2, 3, 4), (4, 3, 2), ((1, 2), (1, 0))), Sample((2, 3), (4,), ((), ()))],
    reference=lambda x, y, dims: __import__("numpy").tensordot(x, y, dims),
)
def tensordot(F, x, y, dims: tuple):
    """The sum over pairs of dimensions. dims: (dimensions of x, dimensions of y).

    Returns the other dimensions of x, then those of y.
    """
    left, right = (
        [normalize_dim("tensordot", int(d), v.ndim) for d in ds] for ds, v in zip(dims, (x, y), strict=True)
    )
    # A size of 1 that meets a larger one broadcasts: the larger is summed.
    x = _sum_where(F, x, [i for i, j in zip(left, right, strict=False) if y.shape[j] == 1 != x.shape[i]])
    y = _sum_where(F, y, [j for i, j in zip(left, right, strict=False) if x.shape[i] == 1 != y.shape[j]])
    if len(left) != len(right) or any(x.shape[i] != y.shape[j] for i, j in zip(left, right, strict=True)):
        raise ShapeError(
            f"tensordot: dims {dims} pair sizes {[x.shape[i] for i in left]} with "
            f"{[y.shape[j] for j in right]} (shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}); paired sizes must be equal"
        )
    free_x, free_y = [i for i in range(x.ndim) if i not in left], [j for j in range(y.ndim) if j not in right]
    shape = (*(x.shape[i] for i in free_x), *(y.shape[j] for j in free_y))
    inner_size = prod(x.shape[i] for i in left)
    a = F.reshape(F.permute(x, (*free_x, *left)), (prod(x.shape[i] for i in free_x), inner_size))
    b = F.reshape(F.permute(y, (*right, *free_y)), (inner_size, prod(y.shape[j] for j in free_y)))
    return F.reshape(F.matmul(a, b), shape)


def _sum_where(F: Any, x: Any, dims: list[int]) -> Any:
    return F.sum(x, tuple(dims), True) if dims else x


def _parse(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; an ellipsis stands for labels '0', '1', ...

    Counted from the right.
    """
    if "->" in equation:
        left, right = equation.replace(" ", "").split("->")
    else:
        left, right = equation.replace(" ", ""), None
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(
            f"einsum: equation {equation!r} names {len(terms)} operands but {len(ranks)} were given"
        )
    inputs, widest = [], 0
    for term, rank in zip(terms, ranks, strict=True):
        head, dots, tail = term.partition("...")
        extra = rank - len(head) - len(tail)
        if (
            (head + tail).strip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
            or extra < 0
            or (extra and not dots)
        ):
            raise ShapeError(
                f"einsum: term {term!r} of {equation!r} does not fit an operand of {rank} dimensions; one "
                "letter per dimension, '...' for the rest"
            )
        widest = max(widest, extra)
        inputs.append([*head, *(str(i) for i in range(extra - 1, -1, -1)), *tail])
    ellipsis = [str(i) for i in range(widest - 1, -1, -1)]
    if right is None:
        flat = [c for term in inputs for c in term if not c.isdigit()]
        return inputs, ellipsis + sorted(c for c in set(flat) if flat.count(c) == 1)
    head, dots, tail = right.partition("...")
    output = [*head, *(ellipsis if dots else ()), *tail]
    known = {c for term in inputs for c in term}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise ShapeError(
            f"einsum: the result {right!r} of {equation!r} must name each letter once, and only letters of "
            "the operands"
        )
    return inputs, output


@lru_cache(512)
def _path(
    inputs: tuple[tuple[str, ...], ...], output: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
) -> list[tuple[int, ...]]:
    """The order of pairwise contractions by the greedy method (Smith and Gray 2018, opt_einsum; NumPy's)."""
    import numpy as np

    names = {
        c: chr(ord("a") + i) if i < 26 else chr(ord("A") + i - 26)
        for i, c in enumerate(sorted({c for t in inputs for c in t}))
    }
    equation = (
        ",".join("".join(names[c] for c in t) for t in inputs) + "->" + "".join(names[c] for c in output)
    )
    dummies = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    return [tuple(step) for step in np.einsum_path(equation, *dummies, optimize="greedy")[0][1:]]


def _diagonals(F: Any, x: Any, labels: list[str]) -> tuple[Any, list[str]]:
    """`x` with each label once: repeated labels become diagonals."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(
                    f"einsum: {label!r} stands for sizes {x.shape[i]} and {x.shape[j]} in one operand; they "
                    "must be equal"
                )
            x = F.diagonal(x, 0, i, j)
            labels = [c for k, c in enumerate(labels) if k not in (i, j)] + [label]
    return x, labels


def _reduce(F: Any, x: Any, labels: list[str], keep: set[str]) -> tuple[Any, list[str]]:
    """`x` summed over the labels that are not kept."""
    dims = tuple(i for i, c in enumerate(labels) if c not in keep)
    return (F.sum(x, dims), [c for c in labels if c in keep]) if dims else (x, labels)


def _contract(F: Any, x: Any, lx: list[str], y: Any, ly: list[str], keep: set[str]) -> tuple[Any, list[str]]:
    """The product of two operands, summed over the labels that are not kept."""
    size_x, size_y = dict(zip(lx, x.shape, strict=True)), dict(zip(ly, y.shape, strict=True))
    for c in sorted(set(lx) & set(ly)):
        if size_x[c] != size_y[c] and 1 not in (size_x[c], size_y[c]):
            raise ShapeError(
                f"einsum: {c!r} stands for sizes {size_x[c]} and {size_y[c]}; they must be equal, or one of "
                "them 1"
            )
    # A size of 1 that meets a larger one broadcasts: the label belongs to the larger operand alone.
    x, lx = _drop(F, x, lx, [c for c in lx if size_x[c] == 1 and size_y.get(c, 1) > 1])
    y, ly = _drop(F, y, ly, [c for c in ly if size_y[c] == 1 and size_x.get(c, 1) > 1])
    x, lx = _reduce(F, x, lx, keep | set(ly))
    y, ly = _reduce(F, y, ly, keep | set(lx))
    both = [c for c in lx if c in ly]
    batch, summed = [c for c in both if c in keep], [c for c in both if c not in keep]
    rows, columns = [c for c in lx if c not in both], [c for c in ly if c not in both]
    x = F.permute(x, tuple(lx.index(c) for c in (*batch, *rows, *summed)))
    y = F.permute(y, tuple(ly.index(c) for c in (*batch, *summed, *columns)))
    lead, mid = x.shape[: len(batch)], x.shape[len(batch) : len(batch) + len(rows)]
    tail = y.shape[len(batch) + len(summed) :]
    if not summed:
        out = F.reshape(x, (*lead, *mid, *(1,) * len(columns))) * F.reshape(
            y, (*lead, *(1,) * len(rows), *tail)
        )
        return out, batch + rows + columns
    inner_size = prod(x.shape[len(batch) + len(rows) :])
    many = (prod(lead),) if batch else ()
    out = F.matmul(
        F.reshape(x, (*many, prod(mid), inner_size)), F.reshape(y, (*many, inner_size, prod(tail)))
    )
    return F.reshape(out, (*lead, *mid, *tail)), batch + rows + columns


def _drop(F: Any, x: Any, labels: list[str], gone: list[str]) -> tuple[Any, list[str]]:
    if not gone:
        return x, labels
    kept = [i for i, c in enumerate(labels) if c not in gone]
    return F.reshape(x, tuple(x.shape[i] for i in kept)), [labels[i] for i in kept]


def _einsum_reference(*arrays: Any, equation: str) -> Any:
    import numpy as np

    return np.einsum(equation, *arrays)


@composite(
    public=False,
    reference=_einsum_reference,
    samples=[
        Sample((2, 3), (3, 4), equation="ij,jk->ik"),
        Sample((3, 3), equation="ii->i"),
        Sample((2, 3, 4), (2, 4, 5), (5, 2), equation="...ij,...jk,kl->...il"),
    ],
)
def einsum(F, *tensors, equation: str):
    """The sum of products that `equation` describes, as matrix products in a greedy order.

    Letters name dimensions, '...' the ones without a letter (they broadcast); without '->' the result has the
    letters that occur once, sorted.
    """
    inputs, output = _parse(equation, [t.ndim for t in tensors])
    terms = [_diagonals(F, t, labels) for t, labels in zip(tensors, inputs, strict=True)]
    if len(terms) > 2:
        steps = _path(
            tuple(tuple(c) for _, c in terms), tuple(output), tuple(tuple(t.shape) for t, _ in terms)
        )
    else:
        steps = [(0, 1)] * (len(terms) - 1)
    for step in steps:
        chosen = [terms[i] for i in sorted(step)]
        terms = [t for i, t in enumerate(terms) if i not in step]
        (out, labels), *others = chosen
        for k, (y, ly) in enumerate(others):
            rest = [c for _, c in terms] + [c for _, c in others[k + 1 :]] + [output]
            out, labels = _contract(F, out, labels, y, ly, {c for group in rest for c in group})
        terms.append((out, labels))
    ((out, labels),) = terms
    out, labels = _reduce(F, out, labels, set(output))
    return F.permute(out, tuple(labels.index(c) for c in output))


# ---- products of vectors ----


@op(
    public=False,
    dtype="promote",
    broadcast=True,
    samples=[Sample((2, 3), (2, 3), -1), Sample((3, 1), (3, 4), 0), Sample((2, 3), (3,), -1, complex=True)],
    reference=lambda x, y, dim: __import__("numpy").cross(x, y, axis=dim),
)
def cross_product(xp, x, y, dim: int):
    """The vector product x X y along a dimension of size 3, counted from the end; the others broadcast."""
    if x.shape[dim] != 3 or y.shape[dim] != 3:
        raise ShapeError(
            f"cross: dimension {dim} must have size 3 in both inputs, got {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    return xp.cross(x, y, axis=dim)


cross_product.grad(
    x=lambda F, g, y, dim: F.cross_product(F.conj(y), g, dim),
    y=lambda F, g, x, dim: F.cross_product(g, F.conj(x), dim),
)


@composite(
    public=False,
    amp="promote",
    samples=[Sample((2, 3), (2, 4), (5, 3, 4), (5,))],
    reference=lambda x1, x2, w, b: __import__("numpy").einsum("bi,oij,bj->bo", x1, w, x2) + b,
)
def bilinear(F, x, y, weight, bias=None):
    """sum over i, j of x_i weight[o, i, j] y_j + bias[o].

    x: [..., in1]; y: [..., in2]; weight: [out, in1, in2]; bias: [out]. Returns [..., out].
    """
    if (
        weight.ndim != 3
        or not x.ndim
        or not y.ndim
        or x.shape[-1] != weight.shape[1]
        or y.shape[-1] != weight.shape[2]
        or x.shape[:-1] != y.shape[:-1]
    ):
        raise ShapeError(
            "bilinear: expected x [..., in1], y [..., in2] and weight [out, in1, in2], got "
            f"{tuple(x.shape)}, {tuple(y.shape)} and {tuple(weight.shape)}"
        )
    out_size, n, m = weight.shape
    flat = F.reshape(x, (prod(x.shape[:-1]), n))
    mixed = F.matmul(flat, F.reshape(F.permute(weight, (1, 0, 2)), (n, out_size * m)))
    out = F.matmul(F.reshape(mixed, (flat.shape[0], out_size, m)), F.reshape(y, (flat.shape[0], m, 1)))
    out = F.reshape(out, (*x.shape[:-1], out_size))
    return out if bias is None else out + bias


# ---- distances ----


@op(
    public=False,
    dtype="float",
    samples=[Sample((3, 2), (4, 2)), Sample((2, 3, 2), (4, 2))],
    reference=lambda x, y: __import__("numpy").sqrt(((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1)),
)
def euclidean_distances(xp, x, y):
    """The Euclidean distances between the rows of `x` and those of `y`, from |x|^2 + |y|^2 - 2 x.y.

    One matrix product.

    x: [..., n, k]; y: [..., m, k]; leading dimensions broadcast. Returns [..., n, m]. A distance of 0 has
    gradient 0. Distances much smaller than the rows lose digits: their square is a difference of large
    numbers.
    """
    square = (
        (x * x).sum(-1)[..., :, None]
        + (y * y).sum(-1)[..., None, :]
        - 2 * matmul_of(xp)(x, xp.swapaxes(y, -1, -2))
    )
    return xp.sqrt(xp.maximum(square, 0))


def _distance_grads(F, g, x, y, out, x_shape, y_shape, needs):
    zero = F.eq(out, 0.0)
    share = F.where(zero, 0.0, g / F.where(zero, F.ones_like(out), out))
    gx = gy = None
    if needs[0]:
        gx = F.sum_to(x * F.sum(share, -1, True) - F.matmul(share, y), x_shape)
    if needs[1]:
        share = F.transpose(share, -2, -1)
        gy = F.sum_to(y * F.sum(share, -1, True) - F.matmul(share, x), y_shape)
    return gx, gy


euclidean_distances.grads(("x", "y"), _distance_grads)


# ---- constant derivatives ----


@op(public=False, view=True, samples=[Sample((2, 3), (4,))])
def beside(xp, x, y):
    """`x`, as a function of `y` as well whose derivative is 0.

    A formula that yields a constant loses the graph; PyTorch's stays in it, and differentiating it once more
    gives 0, not an error. With `beside` the formulas of pooling, padding and gathers do the same.
    """
    return x[...]


beside.grad(x=lambda F, g, y: F.beside(g, y), y=lambda F, g, y: F.zeros_like(y))
