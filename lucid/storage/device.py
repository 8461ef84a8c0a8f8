"""Devices by name: `Device("cuda", 0)`, parsing, and the default device."""

from __future__ import annotations

import threading
from typing import Any

from ..errors import DeviceError

TYPES = ("cpu", "cuda")


class Device:
    """A place where arrays live: `Device("cpu")`, `Device("cuda:1")`, `Device("cuda", 1)`.

    Usable in a `with` statement, where it becomes the default device for new tensors.

    >>> import lucid
    >>> lucid.device("cuda", 1)
    device(type='cuda', index=1)
    >>> lucid.device("cuda:1") == lucid.device("cuda", 1)
    True
    """

    __slots__ = ("type", "index", "_outer")
    type: str
    index: int | None

    def __init__(self, type: str | int | Device, index: int | None = None) -> None:
        if isinstance(type, Device):
            index = type.index if index is None else index
            type = type.type
        elif isinstance(type, int):
            index = type
            type = "cuda"
        elif isinstance(type, str) and ":" in type:
            if index is not None:
                raise DeviceError(f"device: {type!r} already names an index; drop index={index}")
            type, _, number = type.partition(":")
            if not number.isdigit():
                raise DeviceError(f"device: expected 'cpu', 'cuda' or 'cuda:N', got {type + ':' + number!r}")
            index = int(number)
        if type not in TYPES:
            raise DeviceError(
                f"device: expected one of {', '.join(TYPES)} (with ':N' for one GPU of several), got {type!r}"
            )
        if type == "cpu" and index not in (None, 0):
            raise DeviceError(f"device: there is one 'cpu', got index {index}")
        self.type, self.index = type, None if type == "cpu" else index
        self._outer: list[Any] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})"
            if self.index is None
            else f"device(type={self.type!r}, index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __enter__(self) -> Device:
        self._outer.append(default_device())
        set_default_device(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_default_device(self._outer.pop())

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.type, self.index)


class _Default(threading.local):
    device = Device("cpu")


_default = _Default()


def default_device() -> Device:
    """The device on which new tensors are made when none is named (per thread)."""
    return _default.device


def set_default_device(device: Device | str) -> None:
    """Nothing; new tensors of this thread are made on `device` from now on. Raises DeviceError for none.

    >>> import lucid
    >>> lucid.set_default_device("cpu")
    >>> lucid.zeros(2).device
    device(type='cpu')
    """
    _default.device = Device(device)
