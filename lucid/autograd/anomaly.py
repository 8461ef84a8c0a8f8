"""`detect_anomaly`: where a gradient that turned NaN, or a backward that failed, was recorded."""

from __future__ import annotations

import traceback
import weakref
from typing import Any

from ..errors import GradError
from .impl import TensorImpl
from .mode import ANOMALY, mode
from .node import FuncOp, Node, Port

_where: weakref.WeakKeyDictionary[Node, str] = weakref.WeakKeyDictionary()


def note(out: Any) -> None:
    """Nothing; remembers the stack at which the nodes of `out` were recorded, and watches
    their gradients for NaN.
    """
    for t in out if isinstance(out, tuple) else (out,):
        edge = t.edge if isinstance(t, TensorImpl) else None
        node = edge.node if type(edge) is Port else edge
        if isinstance(node, FuncOp) and node not in _where:
            _where[node] = "".join(traceback.format_list(traceback.extract_stack()[:-3][-8:]))
            node.register_hook(_Watch(node))


class _Watch:
    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = weakref.ref(node)

    def __call__(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        node = self.node()
        for i, g in enumerate(grad_inputs):
            if g is not None and node is not None and bool((g != g).any()):
                raise GradError(
                    f"{node.name()}: its gradient {i} contains NaN. The operation was recorded here (most "
                    f"recent call last):\n{_where.get(node, '')}"
                )


class detect_anomaly:
    """A context manager under which a NaN in a gradient raises an error that names its operation.

    The error also says where the operation was recorded. Slow (a stack and a check per operation): for
    finding a fault, not for training.

    >>> import lucid
    >>> x = lucid.tensor([2.0], requires_grad=True)
    >>> with lucid.autograd.detect_anomaly():
    ...     try:
    ...         (x * lucid.tensor([lucid.nan])).backward()
    ...     except lucid.errors.LucidError as error:
    ...         print(str(error)[:40])
    MulBackward: its gradient 0 contains NaN
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.before = 0

    def __enter__(self) -> detect_anomaly:
        self.before = mode.flags & ANOMALY
        mode.flags |= ANOMALY
        return self

    def __exit__(self, *_: object) -> None:
        mode.flags = (mode.flags & ~ANOMALY) | self.before


class set_detect_anomaly(detect_anomaly):
    """`detect_anomaly` as a switch: `set_detect_anomaly(True)`.

    >>> import lucid
    >>> switch = lucid.autograd.set_detect_anomaly(False)
    """

    def __init__(self, mode_: bool, check_nan: bool = True) -> None:
        super().__init__()
        self.before = mode.flags & ANOMALY
        mode.flags = (mode.flags & ~ANOMALY) | (ANOMALY if mode_ else 0)
