"""Public names: functions on tensors that combine ops, and the methods that they give to `Tensor`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..storage.backend import Backend
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


def on_its_device(function: _F) -> _F:
    """The function; where there are several CUDA devices, that of its first tensor is the current one while
    it runs. For functions that calculate with raw arrays.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not Backend.several:
            return function(*args, **kwargs)
        first = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
        if first is None:
            return function(*args, **kwargs)
        with first.backend.guard():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
