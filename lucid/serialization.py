"""`save` and `load` under PyTorch's module name, and the classes that a `.pt` file may contain.

Loading never executes code: lucid's own files hold tensors and plain data, and of PyTorch's `.pt` files
tensors and plain containers are read, nothing else (`weights_only` is always on). A class that is listed here
is the exception that the program itself allows: an object of it in a `.pt` file is built, by the class's own
`__new__`, `__init__`, `__reduce__` or `__setstate__`. List classes that hold data (a dataclass of settings,
`argparse.Namespace`), none that act when they are made.

>>> import argparse
>>> with safe_globals([argparse.Namespace]):
...     get_safe_globals()
[<class 'argparse.Namespace'>]
>>> get_safe_globals()
[]
"""

from __future__ import annotations

from typing import Any

from .io.checkpoint import load as load
from .io.checkpoint import save as save
from .io.pt import SAFE

Entry = Any  # A class, or (class, its name in the file).


def _named(entry: Entry) -> tuple[str, type]:
    cls, name = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, None)
    if not isinstance(cls, type):
        raise TypeError(f"safe_globals: expected classes, or (class, 'module.name'), got {entry!r}; a "
                        "function could do anything when a file calls it")
    return name or f"{cls.__module__}.{cls.__qualname__}", cls


def add_safe_globals(safe_globals: list[Entry]) -> None:
    """Nothing; objects of these classes are built from `.pt` files from now on.

    An entry is a class, or (class, "module.name") for one that files know under another name.

    >>> import argparse
    >>> from lucid import serialization
    >>> serialization.add_safe_globals([argparse.Namespace])
    >>> serialization.clear_safe_globals()
    """
    SAFE.update([_named(entry) for entry in safe_globals])


def get_safe_globals() -> list[type]:
    """The classes that are allowed.

    >>> from lucid import serialization
    >>> serialization.get_safe_globals()
    []
    """
    return list(SAFE.values())


def clear_safe_globals() -> None:
    """Nothing; no class is allowed any more.

    >>> from lucid import serialization
    >>> serialization.clear_safe_globals()
    """
    SAFE.clear()


class safe_globals:
    """A context in which objects of these classes are built from `.pt` files; see `add_safe_globals`.

    >>> import argparse
    >>> from lucid import serialization
    >>> with serialization.safe_globals([argparse.Namespace]):
    ...     serialization.get_safe_globals()
    [<class 'argparse.Namespace'>]
    """

    def __init__(self, safe_globals: list[Entry]) -> None:
        self._added = dict([_named(entry) for entry in safe_globals])

    def __enter__(self) -> None:
        self._before = dict(SAFE)
        SAFE.update(self._added)

    def __exit__(self, *_: object) -> None:
        SAFE.clear()
        SAFE.update(self._before)
