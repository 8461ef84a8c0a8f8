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
        return (moved(g, self.backend, self.source),)

    def apply_for_graph(self, g: Any) -> tuple[Any]:
        return (g.to(self.source.device),)


def moved(array: Any, source: Backend, target: Backend, non_blocking: bool = False) -> Any:
    """A raw array of one device on another; between two GPUs without the detour through the host."""
    if source.name == target.name == "cuda":
        return target.from_device(array)  # type: ignore[attr-defined]
    return target.from_numpy(source.to_numpy(array, non_blocking), non_blocking)


def transfer(x: Any, target: Backend, non_blocking: bool = False) -> Any:
    """`x` on another device, recorded: its gradient travels back."""
    source = x.backend
    out = TensorImpl.from_storage(Storage(moved(x.array, source, target, non_blocking), target))
    if mode.flags & GRAD and x._requires_grad:
        out.edge, out._requires_grad = TransferNode(x.gradient_edge(), target, source), True
    return out
