"""Tensors in shared memory: `Tensor.share_memory_`, and how such a tensor travels between processes."""

from __future__ import annotations

from typing import Any

from ..errors import LucidError
from ..storage import shared
from ..storage.backend import backend_of
from ..storage.storage import Storage, ViewStorage
from ..tensor import Tensor, _wrap


def share_memory_(x: Tensor) -> Tensor:
    """The tensor itself, its data moved to memory that other processes can share.

    A process that gets the tensor, as an argument of a `lucid.multiprocessing.Process` or through a queue,
    then sees the writes of all others; a tensor elsewhere arrives as a copy. A process that puts it into a
    queue must live until it was taken out. Gradients are not shared. The tensor must own its memory, on the
    CPU.

    >>> import lucid
    >>> lucid.zeros(3).share_memory_().is_shared()
    True
    """
    if x.device.type != "cpu":
        raise LucidError(f"share_memory_: the tensor is on {x.device}, whose memory is not shared between "
                         "processes; share a CPU tensor, or send a copy")
    if shared.is_shared(x.array):
        return x
    if x.base is not None or isinstance(x.storage, ViewStorage):
        raise LucidError("share_memory_: the tensor is a view of another one's memory; share that one, or "
                         "a clone()")
    x.storage = Storage(shared.share(x.array), x.backend)
    register(type(x))
    return x


def is_shared(x: Tensor) -> bool:
    """Whether the data lies in memory that other processes can share.

    >>> import lucid
    >>> lucid.zeros(3).is_shared()
    False
    """
    return x.device.type == "cpu" and shared.is_shared(x.array)


def register(cls: type[Tensor]) -> None:
    """Nothing; from now on multiprocessing sends shared tensors of this class as references to their memory.
    """
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(cls, _reduce)


def _reduce(x: Tensor) -> Any:
    found = shared.place(x.array) if x.device.type == "cpu" else None
    if found is None:
        return x.__reduce__()
    from multiprocessing.reduction import DupFd

    return _attached, (type(x), DupFd(found.fd), found[1:], x.requires_grad and x.is_leaf)


def _attached(cls: Any, fd: Any, rest: Any, requires_grad: bool) -> Tensor:
    register(cls)
    return _wrap(shared.attach(shared.Place(fd.detach(), *rest)), backend_of("cpu"), requires_grad, cls)


setattr(Tensor, "share_memory_", share_memory_)  # noqa: B010  (as lucid.functional.methods)
setattr(Tensor, "is_shared", is_shared)  # noqa: B010
