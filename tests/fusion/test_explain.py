"""`explain` on runs with every pointwise op."""

from __future__ import annotations

import pytest

import lucid
from lucid import fusion
from lucid.autograd.record import recorder
from lucid.ops.registry import OPS
from lucid.testing import cases_of

POINTWISE = [op for op in OPS.values() if op.pointwise and op.diff and len(op.outputs) == 1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: op.name)
def test_every_pointwise_op_is_explained(op, device):
    for case in cases_of(op):
        if case.dtype != "float64":
            continue
        given = [
            None if a is None else lucid.tensor(a.astype("f") if a.dtype.kind == "f" else a, device=device)
            for a in case.arrays
        ]
        for t in given:
            if t is not None and t.is_floating_point():
                t.requires_grad_()
        args, kwargs = case.arguments(given)
        y = recorder(op)(*args, **kwargs)
        if y.requires_grad:
            assert "nodes" in str(fusion.explain((y * 2.0).exp().abs().sum()))
