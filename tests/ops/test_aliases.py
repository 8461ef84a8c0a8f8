"""NumPy's names `axis` and `keepdims`: every function and method with `dim` and `keepdim` takes them."""

from __future__ import annotations

import inspect

import pytest

import lucid
from lucid.functional import PUBLIC
from lucid.functional.out import lookup
from lucid.ops.registry import OPS

NAMES = sorted({*PUBLIC, *(n for n, op in OPS.items() if op.public)})
# Aliases of an op (which takes the names), and facts that compute nothing.
NOT_SHOWN = {"nn.functional.glu", "special.logsumexp", "size", "stride"}
m = lucid.tensor([[2.0, 0.5, 0.25], [0.5, 3.0, 0.125], [0.25, 0.125, 4.0]])
i = lucid.tensor([[0, 1, 2]])


def lacks(function):
    """NumPy's names that a signature lacks."""
    found = inspect.signature(function).parameters
    named = {n for n, p in found.items() if p.kind is not p.VAR_POSITIONAL}
    return [a for a, b in (("axis", "dim"), ("keepdims", "keepdim")) if b in named and a not in named]


def test_functions_take_axis_and_keepdims():
    assert not [n for n in NAMES if n not in NOT_SHOWN and lacks(lookup(n))]


def test_methods_take_axis_and_keepdims():
    methods = {n: getattr(lucid.Tensor, n) for n in dir(lucid.Tensor) if not n.startswith("_")}
    assert not [
        n for n, f in methods.items()
        if callable(f) and n not in NOT_SHOWN and not n.endswith("_") and lacks(f)
    ]  # fmt: skip


CALLS = [
    ("max", (), {"keepdim": True}), ("median", (), {}), ("nansum", (), {"keepdim": True}), ("cumsum", (), {}),
    ("var", (), {"keepdim": True}), ("softmax", (), {}), ("sort", (), {}), ("squeeze", (), {}),
    ("unsqueeze", (), {}), ("logsumexp", (), {"keepdim": True}), ("gather", (), {"index": i}),
    ("index_select", (), {"index": i[0]}), ("narrow", (), {"start": 0, "length": 2}), ("topk", (2,), {}),
    ("chunk", (2,), {}), ("unbind", (), {}), ("aminmax", (), {"keepdim": True}), ("log_softmax", (), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_they_mean_what_dim_and_keepdim_mean(name, args, kwargs):
    numpy = {"keepdims" if k == "keepdim" else k: v for k, v in kwargs.items()}
    for function in (getattr(lucid, name), getattr(lucid.Tensor, name)):
        right, found = function(m, *args, dim=1, **kwargs), function(m, *args, axis=1, **numpy)
        assert repr(found) == repr(right)


def test_in_place_methods_take_axis():
    assert m.clone().cumsum_(axis=1).tolist() == m.cumsum(1).tolist()
    assert m.clone().index_fill_(axis=1, index=i[0], value=0.0).sum().item() == 0


@pytest.mark.parametrize(
    ("run", "text"),
    [(lambda: m.unsqueeze(), "unsqueeze: expected an integer as dim, got nothing (it was not given)"),
     (lambda: lucid.cumsum(m), "cumsum: expected an integer as dim, got nothing (it was not given)"),
     (lambda: m.gather(0), "gather: expected a tensor or a number, got nothing (it was not given)")],
)  # fmt: skip
def test_what_is_not_given_is_named(run, text):
    with pytest.raises(lucid.errors.DtypeError) as caught:
        run()
    assert str(caught.value).startswith(text)


WRITTEN = {
    "relu_": (), "relu6_": (), "elu_": (2.0,), "celu_": (2.0,), "selu_": (), "leaky_relu_": (0.1,),
    "hardtanh_": (-0.5, 0.5), "threshold_": (0.0, 7.0),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in WRITTEN if f"nn.functional.{n}" in PUBLIC])
def test_in_place_functions_write_what_the_function_returns(name):
    F, x = lucid.nn.functional, m - 1.0
    right = getattr(F, name.removesuffix("_"))(x, *WRITTEN[name])
    assert getattr(F, name)(x, *WRITTEN[name]) is x and x.tolist() == right.tolist()
    for space in (lucid, lucid.Tensor):
        y = m - 1.0
        if hasattr(space, name):
            assert getattr(space, name)(y, *WRITTEN[name]) is y and y.tolist() == right.tolist()
