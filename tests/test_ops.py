"""Every op, from its samples: values, first and second order, masks, layouts, devices, 16-bit floats.

See lucid/testing/checks.py.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import lucid
from lucid.errors import GradcheckError
from lucid.ops.registry import OPS, Op, Sample
from lucid.storage import backend_of
from lucid.testing import checks
from lucid.testing.samples import Case, cases_of

CASES = [case for op in OPS.values() for case in cases_of(op)]
DIFFERENTIABLE = [case for case in CASES if case.op.differentiable]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_forward(case, device):
    checks.forward(case, device)
    checks.no_aliasing(case, device)
    checks.no_grad_same(case, device)
    checks.devices_agree(case, device)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=repr)
def test_first_order(case, device):
    checks.first_order(case, device)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=repr)
def test_second_order(case, device):
    checks.second_order(case, device)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=repr)
def test_paths_agree(case, device):
    checks.raw_equals_recorded(case, device)
    checks.masks(case, device)
    checks.layouts(case, device)
    checks.accelerated_equals_generic(case, device)


def _low(case):
    return (
        any(a is not None and a.dtype == np.float64 for a in case.arrays)
        and case.dtype == "float64"
        and not case.op.module.endswith(("linalg", "fft"))
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "case",
    [next(cases_of(op)) for op in OPS.values() if op.pointwise and op.samples and _low(next(cases_of(op)))],
    ids=repr,
)
def test_low_precision(case, dtype, device):
    checks.low_precision(case, device, dtype)


def test_every_op_is_sampled_and_documented():
    # Kernels of users (lucid.cuda.kernel, its examples) are ops too, but not ours.
    own = [op for op in OPS.values() if op.module.startswith("lucid.ops")]
    constants = {"detach", "zeros_like", "ones_like", "full_like"}
    assert not [op.name for op in own if not op.samples and op.name not in constants]
    assert not [op.name for op in own if not op.doc.split("\n")[0].endswith((".", ":"))]


class _Restricted:
    """A namespace that knows ops only; a formula that reaches for anything else fails."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        assert name in OPS, f"a formula used F.{name}, which is no op"
        return getattr(self._inner, name)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.formulas], ids=lambda op: op.name)
def test_formulas_use_ops_only(op):
    forbidden = {"np", "numpy", "xp", "cupy", "scipy", "item", "astype", "tolist", "copy", "numpy_"}
    for formula in op.formulas.values():
        names = set(formula.function.__code__.co_names)
        assert not names & forbidden, f"{op.name}: the formula uses {names & forbidden}"


def test_a_wrong_formula_is_caught():
    wrong = Op(lambda xp, x: xp.sin(x), name="wrong_sin", samples=[Sample((3,))])
    OPS["wrong_sin"] = wrong
    try:
        wrong.grad(x=lambda F, g, x: g * F.cos(x) * 1.0005)
        with pytest.raises(GradcheckError, match="input 0"):
            checks.first_order(Case(wrong, wrong.samples[0], 0), "cpu")
    finally:
        del OPS["wrong_sin"]
        vars(backend_of("cpu").F).pop("wrong_sin", None)


def test_signatures_are_explicit():
    for op in OPS.values():
        if op.public:
            parameters = inspect.signature(getattr(lucid, op.name)).parameters.values()
            assert not any(p.kind is p.VAR_KEYWORD for p in parameters), op.name
