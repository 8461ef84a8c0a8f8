"""With several CUDA devices: an array module and raw ops that make their own device the current one."""

from __future__ import annotations

import functools
from typing import Any


class Guarded:
    """A function, or a module and all that is in it, with a device made current around each call.

    Classes and constants come through as they are, and so does `cuda`, whose functions speak of devices.
    """

    def __init__(self, inner: Any, guard: Any) -> None:
        self.__dict__.update(_inner=inner, _guard=guard, __name__=getattr(inner, "__name__", ""))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._guard():
            return self._inner(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != "cuda" and not isinstance(found, type) and (callable(found) or hasattr(found, "__path__")):
            found = Guarded(found, self._guard)
        self.__dict__[name] = found
        return found


class GuardedOps:
    """`F` with a device made current around each call."""

    def __init__(self, inner: Any, guard: Any) -> None:
        self.__dict__.update(_inner=inner, _guard=guard, backend=inner.backend)

    def __getattr__(self, name: str) -> Any:
        function, guard = getattr(self._inner, name), self._guard
        # Kept here alone, so that whoever replaces an op has one place to clear.
        vars(self._inner).pop(name, None)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with guard():
                return function(*args, **kwargs)

        self.__dict__[name] = guarded
        return guarded
