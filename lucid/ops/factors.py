"""LDL and packed QR factors in LAPACK's layout, a matrix at a time: no array module has them for a batch."""

from __future__ import annotations

from itertools import product
from typing import Any

from ..errors import IndexRangeError
from .common import Shape
from .linalg import broadcast_shapes, check_matrix
from .registry import A, Sample, op

# Bunch and Kaufman, Some stable methods for calculating inertia and solving symmetric linear systems,
# Math. Comp. 31 (1977): the bound on an element's growth is least for this ratio.
_ALPHA = (1.0 + 17.0**0.5) / 8.0
_SYMMETRIC = A(value=[[0.1, 2.0, -0.3], [2.0, 0.2, 0.4], [-0.3, 0.4, 3.0]])


def _exchange(a: Any, i: int, j: int) -> None:
    if i != j:
        a[[i, j]] = a[[j, i]]


def _pivot(xp: Any, s: Any) -> tuple[int, int]:
    """(row to bring to the front, size of the pivot block) for what is left of a matrix.

    Reads numbers of the device: which block comes next depends on them, in every implementation.
    """
    # LAPACK's size of a complex number, so that the choices are LAPACK's.
    if s.dtype.kind == "c":
        s = xp.abs(s.real) + xp.abs(s.imag)
    first = float(abs(s[0, 0]))
    column = xp.abs(s[1:, 0])
    if not column.size or not (largest := float(column.max())) > first * _ALPHA or largest == 0.0:
        return 0, 1
    row = 1 + int(column.argmax())
    beside = xp.abs(s[row])
    beside[row] = 0
    most = float(beside.max())
    if first * most >= _ALPHA * largest * largest:
        return 0, 1
    return row, 1 if float(abs(s[row, row])) >= _ALPHA * most else 2


def _ldl(xp: Any, x: Any, hermitian: bool) -> tuple[Any, list[int]]:
    n = x.shape[-1]
    out, pivots = xp.tril(x), [0] * n
    mirrored = xp.tril(x, -1).T
    s = out + (mirrored.conj() if hermitian else mirrored)
    rounded = hermitian and x.dtype.kind == "c"
    k = 0
    while k < n:
        if rounded:
            s -= 1j * xp.diag(xp.diagonal(s).imag)
        row, size = _pivot(xp, s)
        _exchange(s, size - 1, row)
        _exchange(s.T, size - 1, row)
        block, below = s[:size, :size], s[size:, :size]
        low = below / block[0, 0] if size == 1 and abs(block[0, 0]) > 0 else below
        if size == 2 and below.size:
            low = xp.linalg.solve(block.T, below.T).T
        out[k : k + size, k : k + size], out[k + size :, k : k + size] = xp.tril(block), low
        pivots[k : k + size] = [k + row + 1] if size == 1 else [-(k + row + 1)] * 2
        s = s[size:, size:] - low @ (below.conj().T if hermitian else below.T)
        k += size
    return out, pivots


@op(public=False, outputs=("ld", "pivots"), diff=(), amp="full", samples=[Sample(_SYMMETRIC)])
def ldl_compact(xp, x, hermitian: bool = False):
    """(ld, pivots) of each symmetric (or Hermitian) matrix; only its lower triangle is read.

    x: [..., n, n]. ld: L's unit diagonal not stored, D's blocks of one or two rows on the diagonal; pivots:
    int32 [..., n], from 1, a pair of equal negative ones for a block of two, as LAPACK's sytrf.
    """
    check_matrix("linalg.ldl_factor", x)
    ld, pivots = xp.empty(x.shape, x.dtype), xp.empty(x.shape[:-1], "int32")
    for index in product(*map(range, x.shape[:-2])):
        factors, exchanges = _ldl(xp, x[index], hermitian)
        ld[index], pivots[index] = factors, xp.asarray(exchanges, "int32")
    return ld, pivots


def _ldl_solve(xp: Any, ld: Any, pivots: list[int], b: Any, hermitian: bool) -> Any:
    # LAPACK's sytrs: the exchanges stand between the columns of L, they are not gathered in one permutation.
    b, n, steps, k = b.copy(), len(pivots), [], 0
    while k < n:
        if not 1 <= abs(pivots[k]) <= n:
            raise IndexRangeError(
                f"linalg.ldl_solve: pivots must lie in [1, {n}], or be their negatives, got {pivots[k]}; "
                "pass those of ldl_factor"
            )
        size = 1 if pivots[k] > 0 else 2
        steps.append((k, size, abs(pivots[k]) - 1))
        k += size
    for k, size, row in steps:
        _exchange(b, k + size - 1, row)
        end = k + size
        b[end:] -= ld[end:, k:end] @ b[k:end]
        block = ld[k:end, k:end]
        if size == 1:
            b[k:end] /= block
            continue
        off = block[1, 0]
        upper = off.conj() if hermitian else off
        det = block[0, 0] * block[1, 1] - off * upper
        first = (block[1, 1] * b[k] - upper * b[k + 1]) / det
        b[k + 1] = (block[0, 0] * b[k + 1] - off * b[k]) / det
        b[k] = first
    for k, size, row in reversed(steps):
        end = k + size
        low = ld[end:, k:end]
        b[k:end] -= (low.conj().T if hermitian else low.T) @ b[end:]
        _exchange(b, k + size - 1, row)
    return b


def _reference(ld: Any, pivots: Any, b: Any, hermitian: bool = False) -> Any:
    from scipy.linalg import lapack

    return lapack.dsytrs(ld, pivots, b, lower=1)[0]


_LD = A(value=[[0.5, 0.0, 0.0], [2.0, 0.25, 0.0], [0.3, -0.4, 3.0]])


@op(
    public=False,
    amp="full",
    samples=[
        Sample(_LD, A(value=[-2, -2, 3], dtype="int32"), (3, 2)),
        Sample(_LD, A(value=[2, 3, 3], dtype="int32"), (3, 2), True),
    ],
    reference=_reference,
)
def ldl_solve(xp, ld, pivots, b, hermitian: bool = False):
    """X with A X = B from A's `ldl_factor`. b: [..., n, k]; leading dimensions broadcast."""
    lead = broadcast_shapes(broadcast_shapes(ld.shape[:-2], pivots.shape[:-1]), b.shape[:-2])
    shape: Shape = (*lead, *b.shape[-2:])
    ld = xp.broadcast_to(ld, (*lead, *ld.shape[-2:]))
    pivots = xp.broadcast_to(pivots, (*lead, pivots.shape[-1]))
    b, out = xp.broadcast_to(b, shape), xp.empty(shape, b.dtype)
    exchanges = pivots.tolist()  # waits for the device: the exchanges are the program
    for index in product(*map(range, lead)):
        own = exchanges
        for i in index:
            own = own[i]
        out[index] = _ldl_solve(xp, ld[index], own, b[index], hermitian)
    return out


def _ldl_solve_b(F, g, ld, pivots, b_shape, hermitian):
    # A is its own transpose, or its own adjoint.
    solved = F.ldl_solve(ld, pivots, g, True) if hermitian else F.conj(F.ldl_solve(ld, pivots, F.conj(g)))
    return F.sum_to(solved, b_shape)


ldl_solve.grad(b=_ldl_solve_b)


def _packed_reference(x: Any) -> Any:
    from scipy.linalg import lapack

    return lapack.dgeqrf(x)[:2]


@op(public=False, outputs=("a", "tau"), diff=(), amp="full", samples=[Sample((4, 3)), Sample((2, 3))],
    reference=_packed_reference)  # fmt: skip
def geqrf(xp, x):
    """(a, tau): R on and above a's diagonal, below it the vectors of the reflections whose product is Q.

    A reflection is I - tau v v^H, with v 1 on the diagonal and 0 above.

    x: [..., m, n]. Returns [..., m, n] and [..., min(m, n)].
    """
    check_matrix("geqrf", x, square=False)
    a, tau = xp.empty(x.shape, x.dtype), xp.empty((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
    for index in product(*map(range, x.shape[:-2])):
        packed, tau[index] = xp.linalg.qr(x[index], "raw")
        a[index] = packed.T
    return a, tau


__all__ = ["geqrf", "ldl_compact", "ldl_solve"]
