"""The recorded graph: its nodes, edges and saved values, as objects and as text."""

from __future__ import annotations

from typing import Any

from .engine import _collect
from .impl import TensorImpl, gradient_edge
from .multi_grad import register_multi_grad_hook as register_multi_grad_hook
from .node import AccumulateGrad, Edge, FuncOp, Port
from .node import Node as Node
from .saved import save_on_cpu as save_on_cpu
from .saved import saved_tensors_hooks as saved_tensors_hooks

GradientEdge = Edge


def get_gradient_edge(tensor: TensorImpl) -> Edge:
    """The edge (node, output number) by which a gradient of the tensor enters the graph.

    >>> import lucid
    >>> from lucid.autograd.graph import get_gradient_edge
    >>> y = lucid.tensor(3.0, requires_grad=True).exp()
    >>> get_gradient_edge(y).node.name()
    'ExpBackward'
    """
    return tensor.gradient_edge()


def increment_version(tensor: Any) -> None:
    """Nothing; tells autograd that the data of a tensor (or of several) was written to by other means.

    >>> import lucid
    >>> from lucid.autograd.graph import increment_version
    >>> x = lucid.zeros(2)
    >>> increment_version(x)
    >>> x._version
    1
    """
    for t in (tensor,) if isinstance(tensor, TensorImpl) else tensor:
        t.storage.version += 1


def nodes_of(root: TensorImpl) -> list[Any]:
    """The nodes that a backward pass from `root` would run, in its order.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> [node.name() for node in lucid.autograd.graph.nodes_of((x * 2).exp())]
    ['ExpBackward', 'MulBackward', 'AccumulateGrad']
    """
    return [n for n in _collect([gradient_edge(root)]) if not isinstance(n, Port)]


def saved_bytes(root: TensorImpl) -> int:
    """Bytes of the arrays that the graph of `root` keeps for its backward pass, each counted once.

    >>> import lucid
    >>> x = lucid.zeros(100, requires_grad=True)
    >>> lucid.autograd.graph.saved_bytes(x.exp())    # the result, 100 float32
    400
    """
    seen: dict[int, int] = {}
    for n in nodes_of(root):
        if isinstance(n, FuncOp):
            for s in n.saved or ():
                for part in s if isinstance(s, tuple) else (s,):
                    if part.array is not None:
                        seen[id(part.root)] = part.root.array.nbytes
    return sum(seen.values())


def to_dot(root: TensorImpl) -> str:
    """The graph of `root` in Graphviz' dot language.

    One box per node, labelled with its name and, for leaves, their shape.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> print(lucid.autograd.graph.to_dot(x.exp()).splitlines()[0])
    digraph lucid {
    """
    order = nodes_of(root)
    number = {n: i for i, n in enumerate(order)}
    lines = ["digraph lucid {", "  rankdir=TB; node [shape=box, fontname=monospace];"]
    for n, i in number.items():
        leaf = n.variable if isinstance(n, AccumulateGrad) else None
        label = n.name() if leaf is None else f"{n.name()}\\n{list(leaf.storage.array.shape)}"
        lines.append(f'  n{i} [label="{label}"];')
    for n, i in number.items():
        for edge in n.next_edges:
            if edge is not None:
                suffix = f' [label="{edge.input_nr}"]' if edge.input_nr else ""
                lines.append(f"  n{i} -> n{number[edge.node]}{suffix};")
    return "\n".join([*lines, "}"])
