"""Arrays in memory that several processes share.

A region is a file without a name (memfd, or an unlinked temporary file) mapped into memory: it lives as long
as some process maps it, and nothing is left when all are gone, killed ones too. Another process gets it by
its file descriptor.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from typing import Any, NamedTuple

import numpy as np

from ..errors import LucidError

# id of a mapping -> its file descriptor, closed with the mapping.
_files: dict[int, int] = {}


class Place(NamedTuple):
    """Where an array lies: its region's file and bytes, its own offset, shape and strides."""

    fd: int
    size: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


def _map(fd: int, size: int) -> mmap.mmap:
    region = mmap.mmap(fd, size)
    key = id(region)
    _files[key] = fd

    def forget() -> None:
        os.close(_files.pop(key))

    weakref.finalize(region, forget).atexit = False
    return region


def _region_of(array: Any) -> mmap.mmap | None:
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, mmap.mmap) and id(array) in _files else None


def is_shared(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array lies in a region of this module."""
    return _region_of(array) is not None


def share(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of an array in shared memory; the array itself when it lies there."""
    if is_shared(array):
        return array
    size = max(array.nbytes, 1)
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("lucid")
    elif os.name == "posix":
        fd, path = tempfile.mkstemp(prefix="lucid-")
        os.unlink(path)
    else:
        raise LucidError("share_memory_: this system cannot pass file descriptors between processes; tensors "
                         "are copied there")
    os.ftruncate(fd, size)
    out = np.frombuffer(_map(fd, size), array.dtype, math.prod(array.shape)).reshape(array.shape)
    out[...] = array
    return out


def place(array: np.ndarray[Any, Any]) -> Place | None:
    """Where a shared array lies; None for an array elsewhere."""
    region = _region_of(array)
    if region is None:
        return None
    start = np.frombuffer(region, np.uint8).ctypes.data
    return Place(_files[id(region)], len(region), array.ctypes.data - start, array.shape, array.strides,
                 array.dtype)


def attach(found: Place) -> np.ndarray[Any, Any]:
    """The array at a place whose file descriptor belongs to this process, which keeps it."""
    region = _map(found.fd, found.size)
    return np.ndarray(found.shape, found.dtype, region, found.offset, found.strides)
