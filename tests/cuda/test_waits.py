"""Which ops wait for the device, forward or backward: the list is complete, each entry with its reason."""

from __future__ import annotations

import warnings

import pytest

import lucid
from lucid.autograd.engine import Engine
from lucid.ops.registry import OPS
from lucid.testing import cases_of, checks

SIZE = "the size of the result depends on the values"
SINGULAR = "raises for a singular or indefinite matrix, as PyTorch does"
PIVOTS = "each step chooses its pivot by the values"
WAITS = {
    "bincount": SIZE,
    "histc": "min = max = 0 asks for the range of the values; bincount",
    "masked_gather": SIZE,
    "masked_scatter": "the number of elements that are read depends on the mask",
    "nonzero": SIZE,
    "unique_flat": SIZE,
    "unique_rows": SIZE,
    "unique_runs": SIZE,
    "scatter_extreme": "the last of each run of a sort is picked by nonzero",
    "scatter_groups": "the groups of a sort are found by nonzero",
    "scatter_prod": "scatter_groups",
    "scatter_reduce": "scatter_extreme, scatter_prod",
    "matrix_exp": "the number of squarings depends on the norm",
    "inverse": SINGULAR,
    "solve_matrix": SINGULAR,
    "triangular": SINGULAR,
    "cofactor": SINGULAR,
    "slogdet": SINGULAR,
    "cholesky_lower": SINGULAR,
    "cholesky_solution": SINGULAR,
    "eig_full": SINGULAR,
    "qr_full": SINGULAR,
    "lu_compact": SINGULAR,
    "ldl_compact": PIVOTS,
    "ldl_solve": PIVOTS,
} | dict.fromkeys((n for n in OPS if "_polynomial_" in n), "the number of steps is the largest degree")


def waits(simulated, case):
    """Whether a call of the case's op, or its backward pass, waits for the device or copies to the host."""
    checks.call(case, checks.tensors_of(case, "cuda"))
    tensors = checks.tensors_of(case, "cuda")
    with simulated.counted() as counts:
        outs = [o for o in checks.call(case, tensors) if o.requires_grad]
        if outs:
            Engine.backward(outs, [lucid.ones_like(o) for o in outs])
    return counts["syncs"] + counts["d2h_bytes"] > 0


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_an_op_waits_only_where_it_must(simulated, op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = any([waits(simulated, case) for case in cases_of(op)])
    if found:
        assert op.name in WAITS, f"{op.name} waits for the device: avoid it, or give the reason in WAITS"
    else:
        assert op.name not in WAITS, f"{op.name} does not wait: take it off the list"
