"""Trees, against PyTorch's where it is installed."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import lucid
from lucid.utils import _pytree as pytree

Point = namedtuple("Point", "x y")
TREE = {
    "b": [1, (2, None)],
    "a": OrderedDict(z=3, y=Point(4, [5])),
    "c": defaultdict(list, k=6),
    "d": deque([7, 8], maxlen=3),
    "e": (),
}


def test_flatten_and_back():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, None, 3, 4, 5, 6, 7, 8] and spec.num_leaves == 9
    back = pytree.tree_unflatten([x and -x for x in leaves], spec)
    assert back["a"]["y"] == Point(-4, [-5]) and back["d"].maxlen == 3 and back["c"].default_factory is list
    assert type(back["a"]) is OrderedDict and back["e"] == () and back["b"] == [-1, (-2, None)]
    assert pytree.tree_structure(back) == spec != pytree.tree_structure([1])
    with pytest.raises(ValueError, match="the structure has 9 leaves, got 1"):
        pytree.tree_unflatten([1], spec)


def test_leaves_are_pytorchs():
    torch_tree = pytest.importorskip("torch.utils._pytree")
    assert pytree.tree_leaves(TREE) == torch_tree.tree_leaves(TREE)
    spec = torch_tree.tree_structure(TREE)
    ours = pytree.tree_structure(TREE)
    assert (ours.num_leaves, ours.num_nodes, ours.num_children) == (
        spec.num_leaves, spec.num_nodes, spec.num_children,
    )  # fmt: skip


def test_map():
    x = {"x": lucid.ones(2), "n": 3}
    assert pytree.tree_map_only(lucid.Tensor, lambda t: t.sum().item(), x) == {"x": 2.0, "n": 3}
    assert pytree.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert pytree.tree_map(str, [(1, 2), 3], is_leaf=lambda t: isinstance(t, tuple)) == ["(1, 2)", "3"]
    assert pytree.tree_all(bool, [1, (2,)]) and not pytree.tree_any(bool, [0, {"a": None}])
    with pytest.raises(ValueError, match="different structures"):
        pytree.tree_map(max, [1, 2], [1])


def test_own_containers():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda xs, _: Pair(*xs))
    try:
        pair = pytree.tree_map(lambda v: v * 2, [Pair(1, (2,))])[0]
        assert (pair.a, pair.b) == (2, (4,))
        with pytest.raises(ValueError, match="registered already"):
            pytree.register_pytree_node(Pair, None, None)
    finally:
        del pytree._KINDS[Pair]
