"""Storage: one array on one device, and the version that every in-place write raises."""

from __future__ import annotations

from typing import Any

from .backend import Backend


class Storage:
    """An array, its backend, and a version counter.

    `views` lists weak references to the tensors that view this memory while they are part of a graph;
    None until there is one.
    """

    # One is made per recorded op: slots only, and no __init__ on that path (`new_storage` plus four stores;
    # bench_overhead: record).
    __slots__ = ("array", "version", "backend", "views")
    array: Any
    version: int
    backend: Backend
    views: list[Any] | None

    def __init__(self, array: Any, backend: Backend) -> None:
        self.array, self.version, self.backend, self.views = array, 0, backend, None

    @property
    def root(self) -> Storage:
        """The storage that owns the memory: itself."""
        return self


class ViewStorage:
    """An array that shares the memory, and so the version, of another storage."""

    __slots__ = ("array", "root", "backend")
    array: Any
    root: Storage
    backend: Backend

    def __init__(self, array: Any, base: Storage | ViewStorage) -> None:
        self.array, self.root, self.backend = array, base.root, base.backend

    @property
    def version(self) -> int:
        """The version of the memory, shared with every other view of it."""
        return self.root.version

    @version.setter
    def version(self, value: int) -> None:
        self.root.version = value

    @property
    def views(self) -> list[Any] | None:
        """The tensors that view the root's memory."""
        return self.root.views
