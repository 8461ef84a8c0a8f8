"""The engine's promises, by their numbers in the design (order 1-4, backward 5-11, grad
12-15, recording 16-19).
"""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import lucid
from lucid.autograd import AccumulateGrad, Edge, Engine, FuncOp, Node
from lucid.autograd.engine import _collect
from lucid.autograd.record import RECORDED as F
from lucid.errors import FreedGraphError, GradError, SavedValueError, ShapeError
from lucid.storage import backend_of


def leaf(device, *values, dtype="float64"):
    return lucid.tensor(
        list(values) if len(values) > 1 else values[0], dtype=dtype, device=device, requires_grad=True
    )


def host(t):
    return t.detach().cpu().numpy()


class Double(Node):
    """A raw user node: doubles the gradient."""

    def apply(self, g):
        return (g * 2.0,)


def attach(t, node_class=Double):
    """`t`'s value as the output of a user's node above it."""
    out = t.detach()
    out.edge, out.requires_grad = node_class((t.gradient_edge(),)), True
    return out


# ---- order ----


def test_1_deep_graphs_need_no_recursion(device):
    x = leaf(device, 1.0, dtype="float32")
    h = x
    for _ in range(50_000):
        h = h + x
    h.backward()
    assert host(x.grad) == 50_001
    del h
    gc.collect()


def test_1_highest_sequence_nr_runs_first(device):
    seen = []

    class Spy(Node):
        def apply(self, g):
            seen.append(self.tag)
            return (g,)

    x = leaf(device, 1.0, 2.0)
    nodes = []
    for tag in "abc":
        out = attach(x, Spy)
        out.edge.tag = tag
        nodes.append(out)
    total = nodes[2] + nodes[0] + nodes[1]
    total.sum().backward()
    assert seen == ["c", "b", "a"]


def test_1_ties_and_numbers_set_by_hand_keep_a_topological_order(device):
    x = leaf(device, 1.0, 3.0)
    a = attach(x)
    b = attach(a)
    a.edge.sequence_nr = b.edge.sequence_nr = 7
    for numbers in ((7, 7), (9, 3)):
        a.edge.sequence_nr, b.edge.sequence_nr = numbers
        x.grad = None
        Engine.backward(b, np.ones(2), retain_graph=True)
        np.testing.assert_array_equal(host(x.grad), [4.0, 4.0])


def test_1_cycle_is_refused(device):
    a, b = Double(), Double()
    a.next_edges, b.next_edges = (Edge(b, 0),), (Edge(a, 0),)
    root = lucid.ones(1, device=device)
    root.edge, root.requires_grad = a, True
    with pytest.raises(GradError, match="cycle"):
        Engine.backward(root)
    a.next_edges = b.next_edges = ()


def test_2_each_node_runs_once_on_the_sum(device):
    calls = []

    class Count(Node):
        def apply(self, g):
            calls.append(host(lucid.as_tensor(g) if not isinstance(g, lucid.Tensor) else g))
            return (g,)

    x = leaf(device, 1.0, 2.0)
    mid = attach(x, Count)
    (mid * 2.0 + mid * 3.0 + mid).sum().backward()
    assert len(calls) == 1
    np.testing.assert_array_equal(calls[0], [6.0, 6.0])
    np.testing.assert_array_equal(host(x.grad), [6.0, 6.0])


def test_2_sums_never_write_into_foreign_buffers(device):
    x = leaf(device, 1.0, 2.0)
    seed = backend_of(device).xp.ones(2)
    y = x + x + x
    Engine.backward(y, seed)
    np.testing.assert_array_equal(backend_of(device).to_numpy(seed), [1.0, 1.0])


def test_3_an_exception_leaves_nothing_behind_and_a_retry_is_right(device):
    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    mid = x * w
    fail = [True]

    def hook(g):
        if fail[0]:
            raise KeyError("user")

    mid.register_hook(hook)
    loss = (mid * mid).sum() + w.sum()
    with pytest.raises(KeyError):
        loss.backward(retain_graph=True)
    assert x.grad is None and w.grad is None and lucid.is_grad_enabled()
    fail[0] = False
    loss.backward()
    np.testing.assert_allclose(host(x.grad), 2 * np.array([3, 8.0]) * [3, 4])


def test_3_a_failing_leaf_hook_leaves_every_grad_as_it_was(device):
    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)

    def fail(g):
        raise KeyError("user")

    w.register_hook(fail)
    with pytest.raises(KeyError):
        (x * w).sum().backward()
    assert x.grad is None and w.grad is None


def test_4_threads_run_independent_graphs(device):
    results, errors = {}, []

    def work(k):
        try:
            for _ in range(20):
                x = leaf(device, float(k), 2.0)
                with lucid.no_grad() if k % 2 else lucid.enable_grad():
                    y = (x * x).sum()
                assert y.requires_grad == (k % 2 == 0)
                if not k % 2:
                    y.backward()
                    results[k] = host(x.grad)[0]
        except Exception as error:  # shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors and results == {0: 0.0, 2: 4.0, 4: 8.0} and lucid.is_grad_enabled()


# ---- backward ----


def test_5_seeds(device):
    x = leaf(device, 1.0, 2.0)
    with pytest.raises(GradError, match=r"expected a grad_seed.*float64\[2\]"):
        Engine.backward(x * 2.0)
    with pytest.raises(ShapeError, match=r"shape \(2,\), got \(3,\)"):
        Engine.backward(x * 2.0, np.ones(3))
    Engine.backward(x * 2.0, np.array([1, 2], np.int32))
    np.testing.assert_array_equal(host(x.grad), [2.0, 4.0])
    one = leaf(device, 3.0)
    (one.reshape(1, 1) * 2.0).backward()
    assert host(one.grad) == 2.0


def test_6_root_without_grad_fn(device):
    x = leaf(device, 1.0, 2.0)
    Engine.backward(x, np.array([3.0, 4.0]))
    Engine.backward(x, np.array([1.0, 1.0]))
    np.testing.assert_array_equal(host(x.grad), [4.0, 5.0])
    with pytest.raises(GradError, match="does not and has no grad_fn"):
        Engine.backward(lucid.ones(1, device=device))


def test_7_freed_graph_raises_and_names_the_cure(device):
    x = leaf(device, 1.0, 2.0)
    mid = x * x
    a, b = mid.sum(), (mid * mid).sum()
    a.backward()
    assert a.grad_fn is None and not a.is_leaf
    for root in (a, b, a * 2.0):
        with pytest.raises(FreedGraphError, match="retain_graph=True"):
            root.backward()
    np.testing.assert_array_equal(host(x.grad), [2.0, 4.0])


def test_7_saved_values_are_freed_right_after_each_node(device):
    x = leaf(device, 1.0, 2.0)
    first = x.exp()
    node = first.grad_fn
    seen = []
    x2 = first * 3.0
    x2.grad_fn.register_hook(lambda gi, go: seen.append(node.saved is not None))
    x.register_hook(lambda g: seen.append(node.saved is None))
    x2.sum().backward()
    assert seen == [True, True]


def test_7_retain_graph_and_create_graph_keep_it(device):
    x = leaf(device, 1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward(create_graph=True)
    y.backward()
    np.testing.assert_array_equal(host(x.grad), [6.0, 12.0])


def test_8_several_roots_share_a_subgraph(device):
    x = leaf(device, 1.0, 2.0)
    mid = x * x
    lucid.autograd.backward([mid.sum(), (mid * 3.0).sum()])
    np.testing.assert_array_equal(host(x.grad), [8.0, 16.0])
    y = x * 1.0
    lucid.autograd.backward([y, y], [lucid.ones(2, device=device, dtype="float64")] * 2)
    np.testing.assert_array_equal(host(x.grad), [10.0, 18.0])


def test_9_accumulate_grad_is_a_barrier_that_writes_once(device):
    x = leaf(device, 1.0, 2.0)
    assert AccumulateGrad.is_barrier
    writes = []
    x.register_post_accumulate_grad_hook(lambda t: writes.append(host(t.grad)))
    (x + x * 2.0 + x * x).sum().backward()
    assert len(writes) == 1
    np.testing.assert_array_equal(writes[0], [5.0, 7.0])


def test_9_dtype_dead_leaves_and_frozen_leaves(device):
    half = leaf(device, 1.0, 2.0, dtype="float16")
    wide = half.to(lucid.float64) * 2.0
    wide.sum().backward()
    assert half.grad.dtype == lucid.float16
    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    y = (x * w).sum()
    del w
    x2 = leaf(device, 5.0)
    z = y + x2
    x2.requires_grad_(False)
    z.backward()
    np.testing.assert_array_equal(host(x.grad), [3.0, 4.0])
    assert x2.grad is None


def test_9_no_two_tensors_share_a_gradient_buffer(device):
    xp = backend_of(device).xp
    x, y = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    seed = lucid.ones(2, dtype="float64", device=device)
    s = x + y
    s.retain_grad()
    s.backward(seed)
    arrays = [x.grad.array, y.grad.array, s.grad.array, seed.array]
    for i, a in enumerate(arrays):
        for b in arrays[i + 1 :]:
            assert not xp.may_share_memory(a, b)
    e = leaf(device, 1.0, 2.0)
    out = e.exp()  # its gradient for a seed of ones equals its saved output
    out.backward(seed)
    assert not xp.may_share_memory(e.grad.array, out.array)


def test_9_transposed_gradients_are_stored_in_c_order(device):
    w = lucid.ones(3, 2, dtype="float64", device=device, requires_grad=True)
    (w.transpose(0, 1) * lucid.ones(2, 3, dtype="float64", device=device)).sum().backward()
    assert w.grad.is_contiguous()


def test_9_gradients_accumulate_in_place(device):
    x = leaf(device, 1.0, 2.0)
    (x * 2.0).sum().backward()
    grad, address = x.grad, x.grad.data_ptr()
    (x * 3.0).sum().backward()
    assert x.grad is grad and grad.data_ptr() == address and grad._version == 1
    np.testing.assert_array_equal(host(grad), [5.0, 5.0])


def test_10_one_grad_slot_with_its_own_grad_fn(device):
    x = leaf(device, 2.0)
    (x**3).backward(create_graph=True)
    assert x.grad.grad_fn is not None and host(x.grad) == 12.0
    first = x.grad
    x.grad = None
    first.backward()
    assert host(x.grad) == 12.0
    y = leaf(device, 2.0)
    opt = lucid.optim.SGD([y], lr=0.5)
    (y**2).backward(create_graph=True)
    opt.step()
    assert host(y) == 0.0


def test_11_wrong_number_of_gradients_names_the_node(device):
    class Bad(Node):
        node_name = "bad_node"

        def apply(self, g):
            return (g, g)

    x = leaf(device, 1.0, 2.0)
    with pytest.raises(GradError, match="bad_node: returned 2 gradients for 1 edges"):
        Engine.backward(attach(x, Bad), np.ones(2))

    class Silent(Node):
        def apply(self, g):
            return None

    Engine.backward(attach(x, Silent), np.ones(2))
    assert x.grad is None


# ---- grad ----


def test_12_grad_writes_no_grad_and_hooks_still_run(device):
    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    mid = x * w
    seen = []
    mid.register_hook(lambda g: seen.append(1))
    (g,) = Engine.grad((mid * mid).sum(), None, [x])
    assert x.grad is None and w.grad is None and seen == [1]
    np.testing.assert_allclose(host(g), 2 * np.array([3.0, 8.0]) * [3, 4])


def test_13_inputs_leaves_interiors_duplicates_and_outsiders(device):
    x, out = leaf(device, 1.0, 2.0), leaf(device, 5.0)
    mid = x * 3.0
    y = (mid * mid).sum()
    a, b, c, d = Engine.grad(y, None, [x, mid, x, out], retain_graph=True)
    np.testing.assert_array_equal(host(a), [18.0, 36.0])
    np.testing.assert_array_equal(host(b), [6.0, 12.0])
    np.testing.assert_array_equal(host(c), host(a))
    assert d is None and not backend_of(device).xp.may_share_memory(a.array, c.array)
    with pytest.raises(GradError, match="input 0.*allow_unused=True"):
        lucid.autograd.grad(y, [out])
    assert y.grad_fn is not None and y.grad_fn.saved is not None
    (g,) = lucid.autograd.grad(y, [out], allow_unused=True, materialize_grads=True, retain_graph=True)
    assert host(g) == 0.0
    with pytest.raises(GradError, match="does not require grad"):
        lucid.autograd.grad(y, [lucid.ones(1, device=device)])


def test_13_outputs_of_a_node_with_several(device):
    x = leaf(device, 3.0, 1.0, 2.0, 4.0)
    a, b = x.split(2)
    y = (a * b).sum()
    ga, gx = Engine.grad(y, None, [a, x])
    np.testing.assert_array_equal(host(ga), [2.0, 4.0])
    np.testing.assert_array_equal(host(gx), [2.0, 4.0, 3.0, 1.0])


def test_14_a_capture_does_not_stop_the_walk_and_dead_branches_do_not_run(device):
    class Never(Node):
        def apply(self, g):
            raise AssertionError("ran")

    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    mid = x * 2.0
    off = attach(w, Never)
    y = (mid * mid + off).sum()
    gm, gx = Engine.grad(y, None, [mid, x])
    np.testing.assert_array_equal(host(gx), 2 * host(gm))


def test_15_captured_gradients_are_not_written_to_later(device):
    x = leaf(device, 1.0, 2.0)
    a = x * 1.0
    b = a + x  # the gradient of b flows on to a and to x as the same buffer
    y = (b * 2.0).sum()
    gb, ga, gx = Engine.grad(y, None, [b, a, x])
    np.testing.assert_array_equal(host(gb), [2.0, 2.0])
    np.testing.assert_array_equal(host(ga), [2.0, 2.0])
    np.testing.assert_array_equal(host(gx), [4.0, 4.0])
    xp = backend_of(device).xp
    assert not xp.may_share_memory(gb.array, ga.array)


# ---- recording ----


def test_16_raw_node_without_recordable_formula_raises_by_name(device):
    class Opaque(Node):
        node_name = "opaque"

        def apply(self, g):
            return (g,)

    x = leaf(device, 1.0, 2.0)
    with pytest.raises(GradError, match="opaque.*create_graph"):
        Engine.backward(attach(x, Opaque), np.ones(2), create_graph=True)


def test_16_user_node_with_apply_for_graph(device):
    class Square(Node):
        def apply(self, g):
            return (g * 2.0 * self.x.array,)

        def apply_for_graph(self, g):
            return (g * 2.0 * self.x,)

    x = leaf(device, 1.0, 3.0)
    out = attach(x, Square)
    out.edge.x = x
    (g,) = Engine.grad(out, np.ones(2), [x], create_graph=True)
    (h,) = Engine.grad(g, np.ones(2), [x])
    np.testing.assert_array_equal(host(h), [2.0, 2.0])


def test_16_third_order(device):
    x = leaf(device, 0.7)
    (g1,) = lucid.autograd.grad(x.exp() * x, x, create_graph=True)
    (g2,) = lucid.autograd.grad(g1, x, create_graph=True)
    (g3,) = lucid.autograd.grad(g2, x)
    np.testing.assert_allclose(host(g3), np.exp(0.7) * (0.7 + 3), rtol=1e-12)


def test_17_dropping_the_output_frees_the_graph_by_counting_alone(device):
    gc.collect()
    gc.disable()
    try:
        x = leaf(device, 1.0, 2.0)
        y = ((x * x).exp().tanh() * x).sum()
        nodes = [weakref.ref(n) for n in _collect([y.grad_fn])]
        hidden = weakref.ref(y.grad_fn)
        del y
        assert hidden() is None and all(n() is None for n in nodes if not isinstance(n(), AccumulateGrad))
        probe = weakref.ref(x)
        del x
        assert probe() is None
    finally:
        gc.enable()


def test_17_a_loop_without_backward_does_not_grow(device):
    w = leaf(device, 1.0, 2.0)
    gc.collect()
    counts = []
    for _ in range(3):
        for _ in range(50):
            (w * w + w).exp().sum()
        gc.collect()
        counts.append(sum(issubclass(type(o), (Node, lucid.Tensor)) for o in gc.get_objects()))
    assert counts[1] == counts[2]


def test_17_saved_value_changed_in_place(device):
    x = leaf(device, 1.0, 2.0)
    h = x * 1.0
    y = h * h
    h.add_(1.0)
    other = leaf(device, 1.0)
    with pytest.raises(
        SavedValueError, match=r"MulBackward: its input '[xy]' \(float64\[2\], .*version 1, saved at 0.*clone"
    ):
        (y.sum() + other).backward()
    assert x.grad is None and other.grad is None
    z = x.exp()
    z.mul_(2.0)
    with pytest.raises(SavedValueError, match="ExpBackward: its output"):
        z.sum().backward()


def test_17_mul_keeps_only_what_its_gradients_need(device):
    x = leaf(device, 1.0, 2.0)
    c = lucid.ones(2, dtype="float64", device=device)
    y = x * c
    assert isinstance(y.grad_fn, FuncOp) and y.grad_fn.plan.keep == ("y",) and len(y.grad_fn.next_edges) == 1
    assert (x + c).grad_fn.saved == ()


def test_names_and_numbers(device):
    x = leaf(device, 1.0, 2.0)
    y = F.linear(x.reshape(1, 2), x.reshape(1, 2))
    assert y.grad_fn.node_name == "linear" and y.grad_fn.name() == "LinearBackward"
    assert (x.reshape(1, 2) @ x.reshape(2, 1)).grad_fn.node_name == "matmul"
    assert Node().node_name == "unknown"
    edge = y.grad_fn.next_edges[0]
    assert isinstance(edge, Edge) and edge.input_nr == 0 and edge.node.node_name == "reshape"
    leaf_node = (x * 2.0).grad_fn.next_edges[0].node
    assert isinstance(leaf_node, AccumulateGrad) and leaf_node.variable is x and leaf_node.is_barrier
    with pytest.raises(TypeError, match="no instances"):
        Engine()
