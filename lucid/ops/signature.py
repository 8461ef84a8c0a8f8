"""Parameters as source, for functions that are generated with another's signature."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple


class Declared(NamedTuple):
    """Parameters of a function that is to be generated.

    parameters: as its `def` declares them; positional, keyword: names that hand them on (`*names` for a
    variadic one); defaults: what the declarations name.
    """

    parameters: list[str]
    positional: list[str]
    keyword: list[str]
    defaults: dict[str, Any]

    @property
    def passed(self) -> str:
        """The arguments of a call that hands all of them on."""
        return ", ".join([*self.positional, *(f"{name}={name}" for name in self.keyword)])

    @property
    def packed(self) -> tuple[str, str]:
        """The same as a tuple and a dictionary."""
        return (
            f"({''.join(f'{name}, ' for name in self.positional)})",
            f"dict({', '.join(f'{name}={name}' for name in self.keyword)})",
        )

    def with_keywords(self, names: Iterable[str]) -> str:
        """The declaration with more keyword arguments, None by default."""
        more = [f"{name}=None" for name in names]
        star = ["*"] if more and not any(p.startswith("*") for p in self.parameters) else []
        return ", ".join([*self.parameters, *star, *more])


def declared(parameters: Iterable[inspect.Parameter]) -> Declared:
    """The source of parameters: equal declarations, with the defaults as objects.

    >>> import inspect
    >>> declared(inspect.signature(lambda x, dim=0, *, keepdim=False: x).parameters.values()).parameters
    ['x', 'dim=_d_dim', '*', 'keepdim=_d_keepdim']
    """
    found = Declared([], [], [], {})
    only = False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            found.parameters.append(f"*{p.name}")
            found.positional.append(f"*{p.name}")
            only = True
            continue
        if p.kind is p.KEYWORD_ONLY and not only:
            found.parameters.append("*")
            only = True
        if p.default is not p.empty:
            found.defaults[f"_d_{p.name}"] = p.default
        found.parameters.append(p.name if p.default is p.empty else f"{p.name}=_d_{p.name}")
        (found.keyword if only else found.positional).append(p.name)
    return found
