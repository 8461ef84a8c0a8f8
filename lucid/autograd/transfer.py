"""Copies between devices, and their backward step."""

from __future__ import annotations

from typing import Any

from ..storage.backend import Backend
from ..storage.storage import Storage
from .impl import TensorImpl
from .mode import GRAD, mode
from .node import Node


class TransferNode(Node):
    """The backward step of a copy between devices: the gradient travels back."""

    __slots__ = ("backend", "source")
    node_name = "to_device"

    def __init__(self, edge: Any, backend: Backend, source: Backend) -> None:
        super().__init__((edge,))
        self.backend, self.source = backend, source

    def apply(self, g: Any) -> tuple[Any]:
        return (self.source.from_numpy(self.backend.to_numpy(g)),)

    def apply_for_graph(self, g: Any) -> tuple[Any]:
        return (g.to(self.source.device),)


def transfer(x: Any, target: Backend) -> Any:
    """`x` on another device, recorded: its gradient travels back."""
    source = x.storage.backend
    out = TensorImpl.from_storage(Storage(target.from_numpy(source.to_numpy(x.storage.array)), target))
    if mode.flags & GRAD and x.requires_grad:
        out.edge, out.requires_grad = TransferNode(x.gradient_edge(), target, source), True
    return out
