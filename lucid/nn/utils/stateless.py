"""A module's forward with other parameters than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import LucidError
from ...tensor import Tensor
from ..module import Module

_Values = Mapping[str, Tensor]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: _Values | Sequence[_Values],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with the given tensors in the places of its parameters and buffers.

    parameter_and_buffer_dicts: tensors by their dotted names, or several such dicts. args: a tuple, or the
    only argument. tie_weights: a tensor that the module holds under several names is replaced under all of
    them. strict: every name must be given. Afterwards the module has its own tensors again; gradients
    reach the given ones. Raises LucidError for names that the module does not have, or that are missing
    (strict), or two values for one tied weight.

    >>> import lucid
    >>> layer = lucid.nn.Linear(1, 1)
    >>> w, b = lucid.tensor([[2.0]], requires_grad=True), lucid.tensor([1.0])
    >>> y = lucid.func.functional_call(layer, {"weight": w, "bias": b}, lucid.ones(1, 1))
    >>> y.backward()
    >>> y.item(), w.grad
    (3.0, tensor([[1.]]))
    """
    values = _merged(parameter_and_buffer_dicts)
    places = _places(module)
    unknown = sorted(set(values) - set(places))
    if unknown:
        raise LucidError(f"functional_call: {type(module).__name__} has no parameter or buffer "
                         f"{', '.join(unknown)}")
    if tie_weights:
        values = _tied(values, places)
    if strict and len(values) < len(places):
        raise LucidError(f"functional_call: strict=True, but there is no value for "
                         f"{', '.join(sorted(set(places) - set(values)))}")
    if args is None:
        args = ()
    before = [(*places[name][:2], places[name][0][places[name][1]]) for name in values]
    try:
        for name, value in values.items():
            table, key = places[name]
            table[key] = value
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for table, key, own in before:
            table[key] = own


def _merged(dicts: _Values | Sequence[_Values]) -> dict[str, Tensor]:
    if isinstance(dicts, Mapping):
        return dict(dicts)
    merged: dict[str, Tensor] = {}
    for part in dicts:
        twice = sorted(set(merged) & set(part))
        if twice:
            raise LucidError(f"functional_call: {', '.join(twice)} stands in two of the dicts")
        merged.update(part)
    return merged


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    # Where each parameter and buffer is held, by dotted name.
    return {
        f"{path}.{key}" if path else key: (table, key)
        for path, part in module.named_modules(remove_duplicate=False)
        for table in (part._parameters, part._buffers)
        for key, held in table.items()
        if held is not None
    }


def _tied(values: dict[str, Tensor], places: dict[str, tuple[dict[str, Any], str]]) -> dict[str, Tensor]:
    names: dict[int, list[str]] = {}
    for name, (table, key) in places.items():
        names.setdefault(id(table[key]), []).append(name)
    found = dict(values)
    for group in names.values():
        given = {id(values[n]): values[n] for n in group if n in values}
        if len(given) > 1:
            raise LucidError(f"functional_call: {' and '.join(group)} are one tied weight, but their values "
                             "differ; give one, or pass tie_weights=False")
        for n in group if given else ():
            found[n] = next(iter(given.values()))
    return found
