"""`out=` for public functions that have it in PyTorch, added where `lucid` and its namespaces look them up.

The functions themselves do not know of it, so methods and calls inside lucid pay nothing. An op's own
function (`lucid.exp`) takes `out=` by itself, see lucid/autograd/template.py, and so do its other names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..autograd.record import recorder
from ..ops.registry import OPS
from .front import front, needs_front
from .registry import PUBLIC

# fmt: off
OUT = frozenset(
    """
add addbmm addmm addmv addr aminmax argsort baddbmm bmm bucketize cat chain_matmul cholesky cholesky_inverse
cholesky_solve clamp clip column_stack complex concat concatenate conj_physical cross cummax cummin cumprod
cumsum diag diff div divide dot dstack float_power gather ger hstack index_reduce inner kron kthvalue ldexp
log_softmax lu_solve lu_unpack masked_select matrix_power max mean median min mm mode msort mv mvlgamma
nanmean nanmedian nanquantile nansum nonzero ormqr outer polar prod qr quantile range renorm row_stack
scatter scatter_reduce searchsorted softmax sort stack std sub subtract sum svd take_along_dim topk
triangular_solve true_divide var vdot vstack where

fft.fft fft.fft2 fft.fftfreq fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft
fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftfreq fft.rfftn

linalg.cholesky linalg.cholesky_ex linalg.cond linalg.cross linalg.det linalg.eig linalg.eigh linalg.eigvals
linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex linalg.lu linalg.lu_factor
linalg.lu_factor_ex linalg.lu_solve linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank
linalg.multi_dot linalg.norm linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.solve_ex
linalg.solve_triangular linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve linalg.vecdot
linalg.vector_norm
""".split()  # noqa: SIM905  (a list would take a line for each name)
)
# fmt: on

_made: dict[str, Callable[..., Any]] = {}


def lookup(name: str) -> Callable[..., Any] | None:
    """The public function `lucid.<name>` behind its front, with `out=` where it belongs; None for no name."""
    found = PUBLIC.get(name)
    if found is None:
        op = OPS.get(name)
        if op is None or not op.public:
            return None
        found = recorder(op)
    out = name in OUT and "out" not in inspect.signature(found).parameters
    if not out and not needs_front(found):
        return found
    made = _made.get(name)
    if made is None or made.__wrapped__ is not found:  # type: ignore[attr-defined]
        made = _made[name] = front(name, found, f"lucid.{name}".rpartition(".")[0], out)
    return made


def member(namespace: str, name: str) -> Callable[..., Any]:
    """The public function `lucid.<namespace>.<name>`; AttributeError where there is none."""
    found = lookup(f"{namespace}.{name}")
    if found is None:
        raise AttributeError(f"module 'lucid.{namespace}' has no attribute {name!r}")
    return found


def members(namespace: str) -> list[str]:
    """The names of all public functions of a namespace."""
    return sorted(name.removeprefix(f"{namespace}.") for name in PUBLIC if name.startswith(f"{namespace}."))
