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


class _Nothing:
    def __repr__(self) -> str:
        return "(it was not given)"


_Nothing.__name__ = "nothing"  # as messages name what came
NOTHING = _Nothing()
ALIASES = (("axis", "dim"), ("keepdims", "keepdim"))  # NumPy's names of arguments


def aliases(parameters: Iterable[inspect.Parameter]) -> list[tuple[str, str]]:
    """NumPy's names, each with PyTorch's, that a function of these parameters does not take itself."""
    names = {p.name: p.kind for p in parameters}
    several = inspect.Parameter.VAR_POSITIONAL
    return [(a, b) for a, b in ALIASES if a not in names and names.get(b, several) is not several]


def opened(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters; where `dim` has no default, it and what follows have NOTHING as theirs, since `axis`
    may be given instead.
    """
    found, after = [], False
    for p in parameters:
        after |= p.name == "dim"
        bare = after and p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        found.append(p.replace(default=NOTHING) if bare else p)
    return found


def shown(parameters: Iterable[inspect.Parameter], more: Iterable[str]) -> inspect.Signature:
    """The signature with more keyword arguments, None by default, as `help` shows it."""
    own = list(parameters)
    own += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in more]
    return inspect.Signature(sorted(own, key=lambda p: p.kind))


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
