"""Nested containers as a list of leaves and their structure, and back: PyTorch's `torch.utils._pytree`.

Containers are lists, tuples, named tuples, dicts, OrderedDicts, defaultdicts and deques, and what
`register_pytree_node` adds. All else is a leaf, also None.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

PyTree = Any


class _Kind(NamedTuple):
    flatten: Callable[[Any], tuple[list[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]


def _items(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


_KINDS: dict[type, _Kind] = {
    list: _Kind(lambda x: (list(x), None), lambda values, _: list(values)),
    tuple: _Kind(lambda x: (list(x), None), lambda values, _: tuple(values)),
    dict: _Kind(_items, lambda values, keys: dict(zip(keys, values, strict=True))),
    OrderedDict: _Kind(_items, lambda values, keys: OrderedDict(zip(keys, values, strict=True))),
    defaultdict: _Kind(
        lambda d: (list(d.values()), [d.default_factory, list(d)]),
        lambda values, c: defaultdict(c[0], zip(c[1], values, strict=True)),
    ),
    deque: _Kind(lambda x: (list(x), x.maxlen), lambda values, maxlen: deque(values, maxlen=maxlen)),
}
_NAMED = _Kind(lambda x: (list(x), type(x)), lambda values, kind: kind(*values))


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def register_pytree_node(cls: type, flatten_fn: Callable[[Any], tuple[list[Any], Any]],
                         unflatten_fn: Callable[[Iterable[Any], Any], Any], **_: Any) -> None:
    """Nothing; instances of `cls` are containers from now on.

    flatten_fn(instance) gives (children, context), unflatten_fn(children, context) the instance.
    """
    if cls in _KINDS:
        raise ValueError(f"register_pytree_node: {cls.__name__} is registered already")
    _KINDS[cls] = _Kind(flatten_fn, unflatten_fn)


@dataclass
class TreeSpec:
    """The structure of a tree without its leaves. type: the container's, None for a leaf."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]

    @property
    def num_leaves(self) -> int:
        """The number of leaves below."""
        return 1 if self.type is None else sum(c.num_leaves for c in self.children_specs)

    @property
    def num_nodes(self) -> int:
        """The number of containers and leaves, this one included."""
        return 1 + sum(c.num_nodes for c in self.children_specs)

    @property
    def num_children(self) -> int:
        """The number of direct children."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it stands for a leaf."""
        return self.type is None


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __repr__(self) -> str:
        return "*"


def _kind_of(tree: Any, is_leaf: Callable[[Any], bool] | None) -> tuple[Any, _Kind] | None:
    if is_leaf is not None and is_leaf(tree):
        return None
    kind = type(tree)
    if _is_named_tuple(kind) and kind not in _KINDS:
        return kind, _NAMED
    found = _KINDS.get(kind)
    return None if found is None else (kind, found)


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves, structure) of a tree. is_leaf: a container for which it is true is a leaf.

    >>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
    >>> leaves
    [1, 2, 3]
    >>> tree_unflatten(["x", "y", "z"], spec)
    {'a': ['x', 'y'], 'b': ('z',)}
    """
    found = _kind_of(tree, is_leaf)
    if found is None:
        return [tree], LeafSpec()
    kind, how = found
    children, context = how.flatten(tree)
    leaves: list[Any] = []
    specs = []
    for child in children:
        more, spec = tree_flatten(child, is_leaf)
        leaves += more
        specs.append(spec)
    return leaves, TreeSpec(kind, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of that structure with these leaves. Raises ValueError for another number of them."""
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: the structure has {treespec.num_leaves} leaves, got {len(values)}"
        )
    rest = iter(values)

    def build(spec: TreeSpec) -> Any:
        if spec.type is None:
            return next(rest)
        how = _KINDS.get(spec.type, _NAMED)
        return how.unflatten([build(c) for c in spec.children_specs], spec.context)

    return build(treespec)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree,
             is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """The tree with `func(leaf, ...)` in place of each leaf; further trees of the same structure give further
    arguments.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = []
    for rest in rests:
        more, other = tree_flatten(rest, is_leaf)
        if other != spec:
            raise ValueError(f"tree_map: the trees have different structures: {spec} and {other}")
        others.append(more)
    return tree_unflatten([func(*values) for values in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree,
              is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """The tree itself, after `func` was called on each leaf."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: PyTree,
                  is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """The tree with `func(leaf)` in place of each leaf of that type (or those types)."""
    return tree_map(lambda x: func(x) if isinstance(x, type_or_types) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree,
             is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether `pred` is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree,
             is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether `pred` is true of some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))
