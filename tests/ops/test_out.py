"""`out=`: every function that takes it writes what it would return, and refuses what PyTorch refuses."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

import lucid
from lucid.autograd.record import recorder
from lucid.autograd.template import takes_out
from lucid.errors import DeviceError, DtypeError, GradError, InplaceError, LucidError, ShapeError
from lucid.functional.out import OUT, lookup
from lucid.ops.registry import OPS
from lucid.testing.samples import cases_of

FIRST = [next(iter(cases_of(op)), None) for op in OPS.values() if takes_out(op) and not op.composite]
CASES = [case for case in FIRST if case is not None]


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def check(function, args, kwargs):
    """With empty and with fitting tensors in `out`, the function writes what it returns without."""
    plain = outputs(function(*args, **kwargs))
    for shape in ((0,), None):
        outs = tuple(
            lucid.empty(o.shape if shape is None else shape, dtype=o.dtype, device=o.device) for o in plain
        )
        before = [o.data_ptr() for o in outs]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = function(*args, **kwargs, out=outs if len(outs) > 1 else outs[0])
        for o, p, r, pointer in zip(outs, plain, outputs(result), before, strict=True):
            assert r is o and o._version == 1 and o.shape == p.shape
            assert shape is not None or o.data_ptr() == pointer
            np.testing.assert_array_equal(o.cpu().numpy(), p.cpu().numpy())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.op.name)
def test_ops(case, device):
    values = [None if a is None else lucid.tensor(a, device=device) for a in case.arrays]
    args, kwargs = case.arguments(values)
    check(recorder(case.op), args, kwargs)


def arguments(device):
    """Argument lists of which one suits each function."""
    m = lucid.tensor([[2.0, 0.5, 0.25], [0.5, 3.0, 0.125], [0.25, 0.125, 4.0]], device=device)
    v, i, b = m[0], lucid.tensor([0, 2], device=device), lucid.stack([m, m])
    i3 = lucid.tensor([[0, 1, 2]], device=device)
    return [
        (m,), (v,), (i,), (m, m), (m, v), (v, v), (b, b), (m, 1), (m, 2), (m, 0.5), (i, i), ([m, m],),
        (5,), (1, 5), (m, 1, i), (m, 1, i3), (m, m > 1), (m > 1, m, m), (v, m), (m, b, b), (m, m, m), (v,
        m, v), (m, v, v), (m, 0, i3, m), (m, 0, i3, m, "sum"), (m, 2.0, 0, 1.0), (m, i3[0].int()), (m,
        i3[0].int(), m), (b.reshape(2, 3, 3), 2), (m, m[:, 0], m),
    ]  # fmt: skip


NEEDS = {
    "linalg.solve_triangular": {"upper": True},
    "linalg.tensorinv": {"ind": 1},
    "cross": {"dim": 0},
    "index_reduce": {},
}
SPECIAL = {
    "lu_unpack": lambda m: lucid.linalg.lu_factor(m),
    "linalg.lu_solve": lambda m: (*lucid.linalg.lu_factor(m), m),
    "lu_solve": lambda m: (m, *lucid.linalg.lu_factor(m)),
    "ormqr": lambda m: (m, m[0], m),
    "linalg.householder_product": lambda m: (m, m[0]),
    "index_reduce": lambda m: (m, 0, lucid.tensor([0, 1, 0], device=m.device), m, "prod"),
    "scatter_reduce": lambda m: (m, 0, lucid.tensor([[0, 1, 2]], device=m.device), m, "sum"),
}


@pytest.mark.parametrize("name", sorted(OUT))
def test_functions(name, device):
    function = lookup(name)
    matrix = arguments(device)[0][0]
    kwargs = NEEDS.get(name, {})
    if list(inspect.signature(function).parameters)[0] in ("n", "start"):
        kwargs = {"device": device}
    for args in [SPECIAL[name](matrix)] if name in SPECIAL else arguments(device):
        try:
            function(*args, **kwargs)
        except (LucidError, TypeError, AttributeError, ValueError):
            continue
        return check(function, args, kwargs)
    raise AssertionError(f"{name}: none of the argument lists suits it")


FUNCTIONS = {
    "exp": (lucid.exp, lambda x: (x,)),
    "sum": (lucid.sum, lambda x: (x, 0)),
    "stack": (lucid.stack, lambda x: ([x, x],)),
    "linalg.inv": (lucid.linalg.inv, lambda x: (lucid.diag(x),)),
    "special.i1": (lucid.special.i1, lambda x: (x,)),
    "norm": (lucid.norm, lambda x: (x,)),
    "normalize": (lucid.nn.functional.normalize, lambda x: (x[None],)),
}


@pytest.fixture(params=FUNCTIONS)
def call(request, device):
    function, args = FUNCTIONS[request.param]
    own = request.param.rpartition(".")[2]

    def run(out, requires_grad=False):
        x = lucid.tensor([1.0, 2.0, 3.0], device=device, requires_grad=requires_grad)
        return function(*args(x), out=out)

    run.name = own
    return run


def test_another_shape_gets_new_memory_with_a_warning(call, device):
    out = lucid.ones(7, 5, device=device)
    view = out[0]
    with pytest.warns(UserWarning, match=rf"^\S*{call.name}: out has shape \(7, 5\) and the result"):
        assert call(out) is out
    assert out.shape == call(lucid.empty(0, device=device)).shape and view.tolist() == [1.0] * 5


def test_a_wider_dtype_is_kept_and_a_narrower_kind_refused(call, device):
    out = lucid.empty(0, dtype=lucid.float64, device=device)
    assert call(out).dtype == lucid.float64
    with pytest.raises(
        DtypeError, match=rf"{call.name}: a result of float32 cannot be stored in an out of int64"
    ):
        call(lucid.empty(0, dtype=lucid.int64, device=device))


def test_tensors_that_require_grad_are_refused(call, device):
    with pytest.raises(GradError, match=rf"{call.name}: out= records no derivative"):
        call(lucid.empty(0, device=device), requires_grad=True)
    with pytest.raises(GradError, match=rf"{call.name}: out= records no derivative"):
        call(lucid.empty(0, device=device, requires_grad=True))
    with lucid.no_grad():
        out = call(lucid.empty(0, device=device), requires_grad=True)
    assert not out.requires_grad and out.grad_fn is None


def test_what_is_no_tensor_is_refused(call):
    with pytest.raises(DtypeError, match=rf"{call.name}: expected out to be a tensor, got ndarray"):
        call(np.zeros(3))


def test_an_expanded_out_is_refused(device):
    with pytest.raises(InplaceError, match="exp: several elements of the tensor"):
        lucid.exp(lucid.ones(3, device=device), out=lucid.ones(1, device=device).expand(3))


def test_another_device_is_refused(device):
    if device == "cpu":
        pytest.skip("needs two devices")
    with pytest.raises(DeviceError, match=f"exp: the result is on {device}:0 and out on cpu"):
        lucid.exp(lucid.ones(3, device=device), out=lucid.empty(3, device="cpu"))


def test_the_number_of_tensors_in_out(device):
    x = lucid.ones(3, 3, device=device)
    with pytest.raises(ShapeError, match="sort: expected 2 tensors in out, got 1"):
        lucid.sort(x, out=(x,))
    with pytest.raises(ShapeError, match="sort: expected 2 tensors in out, got 1"):
        lucid.sort(x, out=lucid.empty(0, device=device))


def test_an_input_may_be_the_output(device):
    x = lucid.tensor([1.0, 2.0, 3.0], device=device)
    flipped = x.flip(0)
    lucid.add(x, flipped, out=x)
    assert x.tolist() == [4.0, 4.0, 4.0]
    y = lucid.tensor([1.0, 2.0, 3.0], device=device)
    lucid.cumsum(y, 0, out=y)
    assert y.tolist() == [1.0, 3.0, 6.0]


def test_a_saved_value_that_out_overwrites_is_noticed(device):
    w = lucid.ones(3, device=device, requires_grad=True)
    x = lucid.ones(3, device=device)
    loss = (w * x).sum()
    lucid.exp(lucid.ones(3, device=device), out=x)
    with pytest.raises(lucid.errors.SavedValueError):
        loss.backward()


def test_methods_and_calls_inside_do_not_pass_through_out():
    assert lucid.Tensor.sum is not lucid.sum and lucid.sum.__wrapped__ is lucid.Tensor.sum
    assert lucid.exp is lucid.Tensor.exp
