"""Every guard of the pass is needed: with the guard switched off, some program goes wrong.

A row of ROWS names a guard, the text in the source that holds it, what switches it off, and a program. What
the program returns fused is what it returns unfused; with the mutant it differs, or raises.

Guards that save work (sizes, layouts, runs of one node) have tests that count: test_fusion.py,
test_patterns.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.autograd import Engine, Node, engine
from lucid.autograd.record import RECORDED
from lucid.fusion import body, chains, chains_norm, cuda, guards, numpy_code, rewrite, sweep
from lucid.fusion.fuse import _signature
from lucid.fusion.region import Program
from lucid.ops.registry import OPS, op
from tests.fusion.helpers import LF
from tests.fusion.mutants import mutant

pytestmark = pytest.mark.usefixtures("small")


class Bench:
    """What programs are made of, on one device: the same numbers at each call."""

    def __init__(self, device: str) -> None:
        self.device, self.rng, self.leaves = device, np.random.default_rng(7), []

    def tensor(self, a: Any) -> Any:
        return lucid.tensor(a, device=self.device)

    def leaf(self, *shape: int, dtype: str = "float64") -> Any:
        x = self.tensor(self.rng.standard_normal(shape)).to(dtype).detach()
        self.leaves.append(x.requires_grad_())
        return x

    def grads(self, y: Any, **how: Any) -> list[Any]:
        """The gradients of the leaves, from a gradient of 1, 2, 3, ..."""
        g = self.tensor(np.arange(1.0, y.numel() + 1).reshape(y.shape)).to(y.dtype)
        y.backward(g, **how)
        found = [array(x.grad) for x in self.leaves]
        self.leaves.clear()
        return found


def array(t: Any) -> Any:
    return None if t is None else t.detach().cpu().numpy()


# ---- the graph: who may be absorbed ----


def used_elsewhere(b: Bench) -> Any:
    h = (b.leaf(4, 5) * 2.0).tanh()
    return b.grads((h * h).sum() + h.sum())


def two_roots(b: Bench) -> Any:
    h = (b.leaf(4, 5) * 2.0).tanh()
    y = (h * h).exp()
    lucid.autograd.backward([y, h], [b.tensor(np.ones((4, 5)))] * 2)
    return array(b.leaves[0].grad)


def hook_inside(b: Bench) -> Any:
    seen = []
    h = (b.leaf(4, 5) * 2.0).tanh()
    h.register_hook(lambda g: seen.append(array(g)))
    return b.grads((h * h).exp()), seen


def hook_behind_the_head(b: Bench) -> Any:
    seen = []
    y = ((b.leaf(4, 5) * 2.0).tanh() * 3.0).exp()
    y.grad_fn.register_hook(lambda gi, go: seen.append([array(g) for g in gi]))
    return b.grads(y), seen


def captured(b: Bench) -> Any:
    x = b.leaf(4, 5)
    h = (x * 2.0).tanh()
    return [array(g) for g in Engine.grad((h * h).exp(), np.ones((4, 5)), [h, x])]


def not_asked_for(b: Bench) -> Any:
    x, h = b.leaf(4, 5), (b.leaf(4, 5) * 2.0).tanh()
    (g,) = Engine.grad((x.exp() * h).sin(), np.ones((4, 5)), [x])
    return array(g), b.grads(h)  # what lies behind h is still there


def several_outputs(b: Bench) -> Any:
    p, q = (b.leaf(6, 4) * 2.0).split(3)
    return b.grads((p.tanh() * q.tanh()).exp())


def second_order(b: Bench) -> Any:
    x = b.leaf(4, 5)
    (g,) = lucid.autograd.grad(((x * 2.0).tanh() * x).sum(), x, create_graph=True)
    return b.grads(g)


def hidden_broadcast(b: Bench) -> Any:
    return b.grads((b.leaf(5).tanh() * b.leaf(4, 5)).exp())


def cast(b: Bench) -> Any:
    x, seen = b.leaf(4, 5, dtype="float32"), []
    h = x * 1.0
    h.register_hook(lambda g: seen.append(str(g.dtype)))
    return b.grads(-((-h).to(lucid.float64))), seen


def linear_and_cast(b: Bench) -> Any:
    x, w, c = (b.leaf(*s, dtype="float32") for s in ((4, 5), (6, 5), (6,)))
    return b.grads(LF.linear(x, w, c).to(lucid.float64) * 2.0)


def linear_used_elsewhere(b: Bench) -> Any:
    z = LF.linear(b.leaf(4, 5), b.leaf(6, 5), b.leaf(6))
    y = (z * 2.0).tanh() * 3.0
    lucid.autograd.backward([y, z], [b.tensor(np.ones((4, 6)))] * 2)
    return [array(x.grad) for x in b.leaves]


def columns_of_softmax(b: Bench) -> Any:
    return b.grads(LF.softmax(b.leaf(4, 5) * 2.0, 0) * 3.0)


def with_pattern(chain: tuple[str, ...], run: Any, f: Any, **how: Any) -> Any:
    def user_pattern(b: Bench) -> Any:
        pattern = fusion.register_pattern(fusion.Pattern("one", chain, run, min_size=1, **how))
        try:
            return f(b)
        finally:
            fusion.patterns.PATTERNS.remove(pattern)

    return user_pattern


# ---- arrays: what a kernel or a sweep may read ----


def magnitude_of_complex(b: Bench) -> Any:
    x = lucid.tensor(b.rng.standard_normal((4, 5)) + 1j, device=b.device, requires_grad=True)
    (x.abs() * 2.0).exp().backward(lucid.ones(4, 5, dtype="float64", device=b.device))
    return array(x.grad)


class Sends(Node):
    """Sends to a tensor what `what` makes of any gradient."""

    def __init__(self, x: Any, what: Any) -> None:
        super().__init__((x.edge,))
        self.what = what

    def apply(self, g: Any) -> Any:
        return (self.what(g),)


def met(kind: str, what: Any, dtype: str = "float64") -> Any:
    """A run or a norm whose gradient meets, at its receiver, what a node of the user's sent there."""

    def meets(b: Bench) -> Any:
        seen = []
        y = b.leaf(4, 5, dtype=dtype) + 1.0
        y.register_hook(lambda g: seen.append((str(g.dtype), array(g))))
        z = (y * 2.0).tanh() * 3.0 if kind == "run" else LF.layer_norm(y, (5,)).tanh()
        side = y.cumsum(0)
        side.edge.next_edges = (Sends(y, what),)
        return b.grads(z + side), seen

    return meets


def norm_that_comes_first(b: Bench) -> Any:
    y, w = b.leaf(4, 5) + 1.0, b.leaf(5)
    return b.grads(LF.layer_norm(y, (5,), w, None).tanh() + LF.layer_norm(y, (5,), w, None).exp())


# ---- chains ----


def nll(target: Any, dim: int = -1, *shape: int) -> Any:
    def nll_loss(b: Bench) -> Any:
        return b.grads(LF.nll_loss(LF.log_softmax(b.leaf(*shape), dim), b.tensor(np.asarray(target))))

    return nll_loss


def complex_linear(b: Bench) -> Any:
    x, w = (b.tensor(b.rng.standard_normal(s) + 1j).requires_grad_() for s in ((4, 5), (6, 5)))
    b.leaves = [x, w]
    return b.grads(LF.linear(x, w, b.tensor(np.zeros(6) + 1j)).tanh())


def norm_of_frozen(b: Bench) -> Any:
    x, w = b.leaf(5).detach(), b.leaf(5)
    b.leaves = [w]
    return b.grads(LF.layer_norm(x, (5,), w, None).tanh() + w.cumsum(0))


def bias_of_frozen_norm(b: Bench) -> Any:
    x, mean, var = b.tensor(b.rng.standard_normal((4, 3))), b.tensor(np.zeros(3)), b.tensor(np.ones(3))
    return b.grads(LF.relu(LF.batch_norm(x, mean, var, None, b.leaf(3), training=False)))


# ---- what is kept of one group must not serve another ----


def then(*programs: Any) -> Any:
    def one_after_the_other(b: Bench) -> Any:
        return [p(b) for p in programs]

    return one_after_the_other


def slope(k: Any, dtype: str = "float64") -> Any:
    return lambda b: b.grads(LF.leaky_relu(b.leaf(4, 5, dtype=dtype).tanh(), k) * 2.0)


def factors(*order: int) -> Any:
    """A product with two frozen factors in some order: the same nodes, other saved arrays."""

    def f(b: Bench) -> Any:
        x, *by = b.leaf(4, 5), *(b.leaf(4, 5).detach() for _ in range(2))
        b.leaves = [x]
        for i in order:
            x = x * by[i]
        return b.grads(x)

    return f


def wires(swapped: bool) -> Any:
    """The same nodes, with other edges between them."""

    def f(b: Bench) -> Any:
        x, y = b.leaf(4, 5), b.leaf(4, 5)
        p, q = (y, x) if swapped else (x, y)
        return b.grads((x.tanh() * p).exp() * (y.tanh() * q))

    return f


def gelu(dtype: str) -> Any:
    return lambda b: b.grads(LF.gelu(b.leaf(4, 5, dtype=dtype)) * 2.0)


def maybe_met(joined: bool) -> Any:
    def f(b: Bench) -> Any:
        y, w = b.leaf(5, 5) + 1.0, b.leaf(5, 5)
        z = (y * 2.0).tanh() * 3.0
        return b.grads(z + LF.linear(y, w) if joined else z)

    return f


def maybe_biased(biased: bool) -> Any:
    def f(b: Bench) -> Any:
        x, w, c = b.leaf(4, 5), b.leaf(6, 5), b.leaf(6)
        return b.grads((LF.linear(x, w, c if biased else c.detach()) * 2.0).tanh() * 3.0)

    return f


def product(*shape: int, wide: int = 5) -> Any:
    def f(b: Bench) -> Any:
        x, y = b.leaf(4, wide), b.leaf(*shape[:-1], wide).detach() if shape else b.leaf().detach()
        b.leaves = [x]
        return b.grads((x * y).tanh() * y)

    return f


def summed(*shape: int) -> Any:
    return lambda b: (lambda x, y: b.grads(((x + y).tanh() + y) * 2.0))(b.leaf(4, 5), b.leaf(*shape))


def repeated(*shape: int) -> Any:
    def f(b: Bench) -> Any:
        x, y = b.leaf(2, 3, 4, 5), b.leaf(*shape).detach()
        b.leaves = [x]
        return b.grads((x * y).tanh() * y)

    return f


def log_softmax_of(uniform: bool) -> Any:
    def f(b: Bench) -> Any:
        y = LF.log_softmax(b.leaf(4, 5) * 2.0, -1)
        return b.grads(y.sum() if uniform else y)

    return f


def fused_function(b: Bench) -> Any:
    f = fusion.fuse(lambda x, y: (x * y).tanh() * y)
    results = []
    for k in range(2):
        x, y = b.leaf(4, 5), b.leaf(4, 5)
        b.leaves = [(x, y)[k]]
        results += b.grads(f(x.detach() if k else x, y if k else y.detach()))
    return results


def outside_number(b: Bench) -> Any:
    results = []
    f = fusion.fuse(lambda x: x * scale)
    for scale in (2.0, 3.0):  # noqa: B007
        results += b.grads(f(b.leaf(4, 5)))
    return results


def one_or_many(b: Bench) -> Any:
    f = fusion.fuse(lambda x, y: (x * y).tanh() if x.shape == y.shape else (x + y).tanh())
    return [b.grads(f(b.leaf(4, 5), b.leaf(*s))) for s in ((4, 5), (1, 1), (4, 5))]


class Scale:
    def __init__(self, k: float) -> None:
        self.k = k


def scaled_by(xp, x, how: Any):
    return x * how.k


def by_objects(b: Bench) -> Any:
    """An op of the user's with an argument that is no number."""
    op(pointwise=True, public=False)(scaled_by).grad(x=lambda F, g, how: g * how.k)
    try:
        return [b.grads(RECORDED.scaled_by(b.leaf(4, 5), Scale(k)).tanh() * 2.0) for k in (0.1, 0.3)]
    finally:
        del OPS["scaled_by"]


# ---- buffers ----


def handed_on(b: Bench) -> Any:
    """`add` gives its gradient to two receivers as one array; both get another one."""
    x, y = b.leaf(4, 5).cumsum(1), b.leaf(4, 5).cumsum(1)
    z = x.cumsum(0)
    lucid.autograd.backward([((x + y) * 2.0).tanh() * 3.0, z], [b.tensor(np.ones((4, 5)))] * 2)
    return [array(t.grad) for t in b.leaves]


def choices(b: Bench) -> Any:
    m = b.tensor(b.rng.random((4, 5)) > 0.5)
    x = b.leaf(4, 5)
    return b.grads(lucid.where(m, (x * 2.0).tanh(), x.sin()).exp())


class Row(NamedTuple):
    guard: str
    function: Any
    old: str
    new: str
    program: Callable[[Bench], Any]
    device: str = "cpu"


def open_(guard: Any, condition: str, program: Any, device: str = "cpu") -> Row:
    return Row(guard.__name__, guard, f"return {condition}", "return True", program, device)


TAIL = """e.plan.op.name in TAILS
            and edge_refusal(head, n, k, e) is None
            and free(e, 1)"""
BOTH = lambda nodes, g: (g, g)
KEY = "(recipe, *taken, *goals, repr(static) if _plain(static) else None)"
CODE = "key = (given, axes[FULL], *self.kinds, *map(text_of, (body.results[i] for i in wanted)))"
SHAPED, TYPED = guards.waits_in_the_same_shape, guards.waits_in_the_same_dtype
ROWS = [
    open_(guards.single_consumer, "outside == 0", used_elsewhere),
    open_(guards.single_consumer, "outside == 0", two_roots),
    open_(guards.not_hooked, "n.hooks is None", hook_inside),
    open_(guards.not_captured, "wanted is None or n not in wanted", captured),
    open_(guards.same_shape, "may_pass(n, k)", hidden_broadcast),
    open_(guards.no_cast, 'n.plan.op.name != "cast" != e.plan.op.name', cast),
    Row("a root counts", rewrite.consumers_of, "counts[r] += 1", "pass", two_roots),
    Row("head without hook", rewrite.match, "(n.hooks is not None and n.hooks.post)", "False",
        hook_behind_the_head),
    Row("in the walk", rewrite.match, "n not in counts", "False", not_asked_for),
    Row("one output", rewrite._run_at, "e.__class__ is not FuncOp or not joins(e)", "not joins(e)",
        several_outputs),
    Row("no graph", engine._sweep, "if not create:\n            for", "if 1:\n            for", second_order),
    Row("edges to the side", rewrite._follow, "len(edges) != 1 and not pattern.side_edges", "False",
        with_pattern(("mul", "tanh"), BOTH, lambda b: b.grads(b.leaf(4, 5) * b.leaf(4, 5).tanh()))),
    Row("one way on", rewrite._follow, "len(behind) != 1", "not behind",
        with_pattern(("mul", "tanh"), lambda nodes, g: (g, g), side_edges=True,
                     f=lambda b: b.grads(b.leaf(4, 5).tanh() * b.leaf(4, 5).tanh()))),
    Row("rows of softmax", rewrite.joins, "n.static[-1] in (-1, n.saved[0].array.ndim - 1)", "True",
        columns_of_softmax),
    Row("tail without cast", rewrite._run_at, TAIL, TAIL.replace("edge_refusal(head, n, k, e) is None", "1"),
        linear_and_cast, "cuda"),
    Row("tail is free", rewrite._run_at, TAIL, TAIL.replace("free(e, 1)", "True"), linear_used_elsewhere),
    Row("same_dtype", guards.same_dtype, 'v.dtype == dtype or', "True or", magnitude_of_complex),
    open_(guards.something_waits, "waiting is not None", norm_that_comes_first),
    open_(SHAPED, "bool(waiting.shape == shape)", met("run", lambda g: g[:1])),
    open_(SHAPED, "bool(waiting.shape == shape)", met("norm", lambda g: g[:1])),
    open_(TYPED, "bool(waiting.dtype == dtype)", met("run", lambda g: g.astype("f8"), "float32")),
    open_(TYPED, "bool(waiting.dtype == dtype)", met("norm", lambda g: g.astype("f8"), "float32")),
    open_(TYPED, "bool(waiting.dtype == dtype)", met("run", lambda g: g.astype("f4")), "cuda"),
    Row("static", Program.__init__, KEY, "(recipe, *taken, *goals)", then(slope(0.1), slope(0.3))),
    Row("static said in full", Program.__init__, "repr(static) if _plain(static) else None", "0",
        by_objects),
    Row("saved arrays", Program.__init__, KEY, KEY.replace("*taken, ", ""),
        then(factors(0, 1, 0), factors(0, 1, 1), factors(1, 1, 0))),
    Row("goals", Program.__init__, KEY, KEY.replace("*goals, ", ""), then(wires(False), wires(True))),
    Row("dtype", body._traced, "(program.key, dtype, joined)", "(program.key, joined)",
        then(gelu("float32"), gelu("float64"))),
    Row("joined", body._traced, "(program.key, dtype, joined)", "(program.key, dtype)",
        then(maybe_met(False), maybe_met(True))),
    Row("row output", Program.add_row_output, 'self.key = self.key and ("rows", *self.key)', "pass",
        then(maybe_biased(False), maybe_biased(True))),
    Row("layout of inputs", sweep.Sweep.__init__, CODE, CODE.replace("given, ", ""),
        then(log_softmax_of(True), log_softmax_of(False))),
    Row("layout of results", sweep.Sweep.__init__, CODE, CODE.replace("*self.kinds, ", ""),
        then(summed(4, 5), summed(5), summed(4, 1), summed())),
    Row("results", sweep.Sweep.__init__, CODE, "key = (given, axes[FULL], *self.kinds)", fused_function),
    Row("kernel: layout of inputs", cuda._launch, "*body.kinds,", "",
        then(product(4, 5), product(5)), "cuda"),
    Row("kernel: repeats", cuda._launch, "*((i, len(r), body.inputs[i].shape[-1] != 1) for i, r in"
        " body.repeat.items()),", "", then(repeated(3, 1, 5), repeated(2, 1, 4, 1)), "cuda"),
    Row("kernel: layout of results", cuda._launch, "*(kinds[i] for i in wanted),", "",
        then(summed(5), summed(4, 5)), "cuda"),
    Row("kernel: results", cuda._launch, "*map(text_of, (body.results[i] for i in wanted)),", "",
        fused_function, "cuda"),
    Row("kernel: source", cuda.compiled, "(backend.device, source, dtype, defines)",
        "(backend.device, dtype, defines)", then(product(4, 5), summed(4, 5)), "cuda"),
    Row("kernel: dtype", cuda.compiled, "(backend.device, source, dtype, defines)",
        "(backend.device, source, defines)", then(slope(0.1), slope(0.1, "float32")), "cuda"),
    Row("kernel: width of packs", cuda.compiled, "(backend.device, source, dtype, defines)",
        "(backend.device, source, dtype)", then(product(5, wide=8), product(5)), "cuda"),
    Row("outside numbers", _signature, ", outside_numbers(function)", "", outside_number),
    Row("argument's shape", _signature, "a.shape == shape, len(a.shape)", "len(a.shape)", one_or_many),
    Row("owned buffers", engine._walk, "elif e in owned and not create:", "elif not create:", handed_on),
    Row("scratch apart", numpy_code._Writer.step, "if op not in APART:\n", "if True:\n", choices),
    Row("nll of rows", chains.log_softmax_nll, "target.ndim != 1", "0", nll([[0, 1], [2, 0]], 1, 2, 3, 2)),
    Row("nll along rows", chains.log_softmax_nll, "log_softmax.static[0] % 2 != 1", "False",
        nll([0, 0, 1], 0, 3, 3)),
    Row("real activation", chains.linear_activation,
        'array_refusal(program.values, program.kinds, program.shape, g.dtype, "cpu") is not None', "False",
        complex_linear),
    Row("a norm's own x", chains_norm.norm_residual, "if not needs[0]", "if False", norm_of_frozen),
    Row("kept statistics", chains_norm._masked_norm, "if var is None", "if False", bias_of_frozen_norm),
]  # fmt: skip


def outcome(row: Row) -> Any:
    body._traces.clear()
    cuda._functions.clear()
    return row.program(Bench(row.device))


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        tol = 1e-5 if a.dtype == np.float32 else 1e-10
        return a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, tol, tol)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.guard}, {r.program.__name__}".replace(" ", "_"))
def test_without_a_guard_a_program_goes_wrong(row, device):
    if row.device != device:
        pytest.skip("a guard of the other device")
    with fusion.enabled(False):
        plain = outcome(row)
    assert agree(outcome(row), plain)
    with mutant(row.function, row.old, row.new):
        try:
            found = outcome(row)
        except Exception:
            return
    assert not agree(found, plain)


def test_every_guard_with_a_name_has_a_row():
    named = {g.__name__ for table in (guards.GUARDS, guards.EDGE_GUARDS, guards.ARRAY_GUARDS,
                                      guards.JOIN_GUARDS) for g in table}  # fmt: skip
    assert named - {row.guard for row in ROWS} == {
        "same_device",  # edges set by hand alone lead to another: test_nodes_of_another_device_are_refused
        "broadcasts",  # three ranges cost more than they save: test_a_mask_of_three_ranges...
        "contiguous",  # a copy costs more than it saves: test_arrays_that_do_not_fit_are_refused
    }
