"""Public names: functions on tensors that combine ops, and the methods that they give to `Tensor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..tensor import Tensor

PUBLIC: dict[str, Callable[..., Any]] = {}

_F = TypeVar("_F", bound=Callable[..., Any])


def public(*names: str, method: bool | str | tuple[str, ...] = False) -> Callable[[_F], _F]:
    """A decorator that publishes a function as `lucid.<name>` and, with `method`, as `Tensor.<name>`.

    names: dotted below `lucid` ("linalg.norm", "nn.functional.pad"); the function's
    own name when none is given.
    method: True for the function's own name, or the method's name or names. A public function
    replaces the op of the same name.
    """
    def publish(function: _F) -> _F:
        own = function.__name__.rstrip("_")
        for name in names or (own,):
            if name in PUBLIC:
                raise ValueError(
                    f"lucid.{name} is published twice: by {PUBLIC[name].__module__} and "
                    f"{function.__module__}"
                )
            PUBLIC[name] = function
        methods = (own,) if method is True else (method,) if isinstance(method, str) else method or ()
        for name in methods:
            setattr(Tensor, name, function)
        return function
    return publish
