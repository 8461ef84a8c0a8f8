"""Modules that only hold the arguments of one function: each is a row of function, arguments, doc."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from . import functional as F
from .module import Module

REQUIRED = inspect.Parameter.empty


class FunctionModule(Module):
    """A module that calls `nn.functional.<function>` with the arguments it was made with.

    `class ELU(FunctionModule, function="elu", alpha=1.0, inplace=False)` takes alpha and inplace, in that
    order, and keeps them as attributes, which may be changed later. Names in `skip` are attributes that the
    function does not take.
    """

    function: ClassVar[str] = ""
    names: ClassVar[tuple[str, ...]] = ()
    passed: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[tuple[str, ...]] = ()
    positional: ClassVar[bool] = False
    signature: ClassVar[inspect.Signature] = inspect.Signature()

    def __init_subclass__(cls, function: str = "", shown: tuple[str, ...] | None = None,
                          positional: bool = False, skip: tuple[str, ...] = (), **arguments: Any) -> None:
        super().__init_subclass__()
        if not function:
            return
        cls.function, cls.names, cls.positional = function, tuple(arguments), positional
        cls.passed = tuple(n for n in arguments if n != "inplace" and n not in skip)
        cls.shown = tuple(n for n in arguments if n != "inplace") if shown is None else shown
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(n, either, default=d) for n, d in arguments.items()]
        cls.signature = inspect.Signature(parameters)
        cls.__signature__ = cls.signature  # type: ignore[attr-defined]  # what help() and inspect show

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}{self.signature}: {error}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        d = self.__dict__
        values = {n: d[n] for n in self.passed}
        if d.get("inplace"):
            values["inplace"] = True
        return getattr(F, self.function)(*inputs, **values)

    def extra_repr(self) -> str:
        if self.positional:
            return ", ".join(str(getattr(self, n)) for n in self.shown)
        parts = [f"{n}={getattr(self, n)!r}" for n in self.shown]
        return ", ".join(parts + ["inplace=True"] if self.__dict__.get("inplace") else parts)
