"""Every public function and method, called with what it cannot take: an error of lucid's, or a result.

Never an AttributeError or a TypeError from inside. What each error says stands in the tables of
test_error_messages*.py; here stand the wrong kinds of arguments, for all functions alike.
"""

from __future__ import annotations

import inspect
import pickle
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.autograd.arguments import fits, word
from lucid.errors import DtypeError, LucidError
from lucid.functional import PUBLIC
from lucid.functional.out import lookup
from lucid.ops.registry import OPS

# Python's own words for a call with the wrong number or names of arguments.
SIGNATURE = re.compile(
    r"missing \d+ required|takes .*\d+ .*positional|takes no arguments|unexpected keyword|multiple values"
)
m = lucid.tensor([[2.0, 0.5, 0.25], [0.5, 3.0, 0.125], [0.25, 0.125, 4.0]])
v, i, i3, x4 = m[0], lucid.tensor([0, 2]), lucid.tensor([[0, 1, 2]]), lucid.ones(2, 3, 4, 4)
b = lucid.stack([m, m])
GOOD = [
    (m,), (v,), (i,), (m, m), (m, v), (v, v), (b, b), (m, 1), (m, 2), (m, 0.5), (i, i), ([m, m],), (5,),
    (1, 5),
    (m, 1, i), (m, 1, i3), (m, m > 1), (m > 1, m, m), (v, m), (m, b, b), (m, m, m), (v, m, v), (m, 0, i3, m),
    (m, 0, i3, m, "sum"), (m, 2.0, 0, 1.0), (x4,), (x4, 2), (x4, lucid.ones(3, 3, 2, 2)), (x4, x4),
    (x4[0], lucid.ones(4, 3, 2)), (b, lucid.ones(3, 3, 1)), (x4[:1, :1, None], x4[:1, :1, None]), (i, m),
    (x4[:1, :1, None], 2), (x4, (2, 2)), (m, i), ((2, 3),), ("ij,jk", m, m), (m, [0, 1]), (m, (3, 3)),
    (m, 0, 1), (m, 0, 0, 1), (2, 3), (m, 0, i, m[:2]), (m, (i, i), v[:2]), (m, m > 1, 0.0),
    (m, (3, 1), (1, 1)),
    (m, i.int(), m[:2]), (lucid.tensor([1j]),), (0.0, 1.0, 3), (x4[:, :1], (2, 2)), (i, m, m), (1, 5, (2,)),
]  # fmt: skip
BAD = {
    "text": "x",
    "none": None,
    "list": [1.0, "a"],
    "object": object(),
    "dict": {"a": 1},
    "objects": np.ones((2, 2), dtype=object),
    "rank": lucid.ones(2, 3, 4, 5, 6, 7),
    "0-d": lucid.tensor(1.0),
    "bools": lucid.tensor([True, False]),
    "empty": lucid.ones(0),
    "complex": lucid.tensor([1j, 2j]),
    "integers": lucid.tensor([3, 1]),
    "float16": lucid.ones(3, dtype=lucid.float16),
    "number": 3,
    "negative": -7,
    "float": 0.5,
    "pair": (1, 2),
}
NAMES = sorted(
    {*(n for n in PUBLIC if not n.startswith("utils.")), *(n for n, op in OPS.items() if op.public)}
)
NAMES = [n for n in NAMES if n not in ("compile", "set_printoptions")]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fresh(args):
    """The arguments, tensors copied: some functions write into them."""
    return [a.clone() if isinstance(a, lucid.Tensor) else a for a in args]


def call(function, args):
    """Nothing; raises AssertionError for an error that is not one of lucid."""
    try:
        function(*fresh(args))
    except (LucidError, NotImplementedError) as error:
        assert re.match(r"[\w.]+( cuda(:-?\d+)?)?: .", str(error)), f"no name in front: {error}"
    except TypeError as error:
        assert SIGNATURE.search(str(error)), f"{args}: {error!r}"
    except Exception as error:
        raise AssertionError(f"{args}: {error!r}") from error


def works(function, args):
    try:
        function(*fresh(args))
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_functions(name):
    function = lookup(name)
    for bad in BAD.values():
        for count in (1, 2, 3):
            call(function, (bad,) * count)
    good = next((args for args in GOOD if works(function, args)), None)
    if good is not None:
        for bad in BAD.values():
            for place in range(len(good)):
                call(function, (*good[:place], bad, *good[place + 1 :]))
            call(function, (*good, bad))


# What runs hooks or Python functions of the user, makes tensors of storages, or needs a GPU.
NOT_CALLED = {
    "cuda", "apply_", "map_", "map2_", "backward", "register_hook", "register_post_accumulate_grad_hook",
    "from_storage",
    "share_memory_",
}  # fmt: skip
METHODS = sorted(n for n in dir(lucid.Tensor) if not n.startswith("_") and n not in NOT_CALLED)
OPERATORS = [
    f"__{n}__"
    for n in (
        *("getitem", "add", "sub", "rsub", "mul", "truediv", "rtruediv", "pow", "rpow", "matmul", "rmatmul"),
        *("and", "or", "lshift", "floordiv", "mod", "eq", "lt", "iadd", "imul", "contains"),
    )
]


@pytest.mark.parametrize("name", [n for n in METHODS if callable(getattr(lucid.Tensor, n))] + OPERATORS)
def test_methods(name):
    for x in (m, i):
        for bad in BAD.values():
            if name == "requires_grad_" and isinstance(bad, np.ndarray):
                continue  # NumPy refuses to call an array true
            if name.startswith("new_") and isinstance(bad, lucid.Tensor):
                continue  # a tensor of sizes: much memory, and no error
            for count in (1, 2, 3) if name not in OPERATORS else (1,):
                call(getattr(x.clone(), name), (bad,) * count)
            for good in ((1,), (0, i3, m)) if name not in OPERATORS else ():
                for place in range(len(good)):
                    call(getattr(x.clone(), name), (*good[:place], bad, *good[place + 1 :]))


@pytest.mark.parametrize("bad", BAD)
def test_setitem(bad):
    call(m.clone().__setitem__, (0, BAD[bad]))
    call(m.clone().__setitem__, (BAD[bad], 0.0))


MESSAGES = [
    (lambda: lucid.zeros_like("x"),
     "zeros_like: expected a tensor as x, got str 'x'; make a tensor of it with lucid.tensor(...)"),
    (lambda: lucid.nn.functional.max_pool2d("x", 2), "nn.functional.max_pool2d: expected a tensor as x"),
    (lambda: lucid.nn.functional.max_pool2d(x4, "x"), "max_pool2d: "),
    (lambda: lucid.stack("x"), "stack: expected "),
    (lambda: lucid.cat([m, "x"]), "cat: expected a tensor or a number, got str 'x'"),
    (lambda: lucid.flatten(m, "x"), "flatten: expected an integer as dim, got str 'x'"),
    (lambda: lucid.tril(m, (1, 2)), "tril: expected an integer as diagonal, got tuple (1, 2)"),
    (lambda: lucid.topk(v, (1, 2)), "topk: expected an integer as k, got tuple (1, 2)"),
    (lambda: lucid.matrix_power(m, (1, 2)), "matrix_power: expected an integer as n, got tuple (1, 2)"),
    (lambda: m.scatter_(0, "x", m), "scatter_: expected a tensor as index, got str 'x'; make a tensor of it"),
    (lambda: m.size(7), "size: expected dim as an integer in [-2, 1], got 7"),
    (lambda: m.stride("x"), "stride: expected dim as an integer in [-2, 1], got 'x'"),
    (lambda: m.reshape("x"), "reshape: expected integers, or one sequence of them, got tuple ('x',)"),
    (lambda: lucid.mm(m, "x"), "mm: expected a tensor"),
    (lambda: lucid.exp_("x"), "exp_: expected a tensor as x, got str 'x'; only a tensor is written"),
    (lambda: lucid.frexp(None), "frexp: expected a tensor or a number, got NoneType None"),
    (lambda: m.to([1]), "dtype: expected one of bool, uint8"),
    (lambda: lucid.device({}), "device: expected one of cpu, cuda (with ':N' for one GPU of several), got"),
    (lambda: m + np.ones(3, object), "add: expected an array of numbers or bools, got a NumPy array of"),
    (lambda: lucid.nn.functional.gelu(m, 3), "gelu: "),
]  # fmt: skip


@pytest.mark.parametrize(("run", "message"), MESSAGES)
def test_messages_name_function_argument_and_value(run, message):
    with pytest.raises(LucidError) as caught:
        run()
    assert str(caught.value).startswith(message), str(caught.value)


def test_the_first_error_is_the_cause():
    with pytest.raises(DtypeError) as caught:
        lucid.zeros_like("x")
    assert isinstance(caught.value.__cause__, AttributeError)


def test_errors_of_the_users_own_functions_pass():
    def distance(a, b):
        raise AttributeError("mine")

    with pytest.raises(AttributeError, match="^mine$"):
        lucid.nn.functional.triplet_margin_with_distance_loss(m, m, m, distance_function=distance)


KINDS = [
    (lucid.Tensor, "x", "a tensor"), (lucid.Tensor | None, None, ""), (lucid.Tensor | None, 3, "a tensor"),
    (int, True, ""), (int, 2.5, "an integer"), (int, np.int64(2), ""), (int, lucid.tensor(2), ""),
    (int | Sequence[int], "x", "an integer or a sequence of integers"), (int | Sequence[int], (1, 2), ""),
    (int | Sequence[int], (1, "x"), "an integer or a sequence of integers"),
    (float, "x", "a number"), (bool, "x", "True or False"), (str, 3, "a string"), (Any, "x", ""),
    (lucid.Tensor | Any, "x", ""), (tuple[int, ...], (1, "x"), "a sequence of integers"),
    (Sequence[lucid.Tensor], [m, 3], "a sequence of tensors"), (lucid.Generator, 3, "a Generator"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "words"), KINDS)
def test_what_an_annotation_asks_for(kind, value, words):
    assert fits(value, kind) == (not words)
    assert not words or word(kind) == words


def test_functions_can_be_pickled_and_show_their_arguments():
    for function in (
        *(lucid.sum, lucid.exp, lucid.flatten, lucid.linalg.inv, lucid.absolute, lucid.special.expit),
        *(lucid.nn.functional.conv2d, lucid.Tensor.flatten),
    ):
        assert pickle.loads(pickle.dumps(function)) is function
    assert list(inspect.signature(lucid.flatten).parameters) == ["x", "start_dim", "end_dim"]
    assert list(inspect.signature(m.flatten).parameters) == ["start_dim", "end_dim"]
