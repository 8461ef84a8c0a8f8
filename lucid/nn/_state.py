"""Reading and writing a module's state: everything is checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import LucidError
from ..storage.dtype import is_differentiable
from ..tensor import Tensor, tensor
from .parameter import Parameter, is_lazy

EXTRA = "_extra_state"


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class IncompatibleKeys(_Keys):
    """What `load_state_dict` did not find, and what it had no place for."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    __str__ = __repr__


def _has_extra(module: Any) -> bool:
    from .module import Module
    return type(module).get_extra_state is not Module.get_extra_state


def _slots(module: Any, prefix: str) -> Iterator[tuple[str, Any, str, str]]:
    # (key, owner, table, name) of every tensor in the state, shared modules and tensors as often as they
    # occur.
    for name, value in module._parameters.items():
        if value is not None:
            yield prefix + name, module, "_parameters", name
    for name, value in module._buffers.items():
        if value is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, module, "_buffers", name
    if _has_extra(module):
        yield prefix + EXTRA, module, EXTRA, EXTRA
    for name, child in module._modules.items():
        if child is not None:
            yield from _slots(child, f"{prefix}{name}.")


def collect(module: Any, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """Nothing; adds the state of `module` to `destination`."""
    for key, owner, table, name in _slots(module, prefix):
        if table is EXTRA:
            destination[key] = owner.get_extra_state()
        else:
            value = owner.__dict__[table][name]
            destination[key] = value if keep_vars or is_lazy(value) else value.detach()


def load(module: Any, state: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """The keys that did not match, after writing those that did; see `Module.load_state_dict`."""
    if not isinstance(state, Mapping):
        raise LucidError(f"load_state_dict: expected a dictionary, got {type(state).__name__}")
    missing, problems, writes, known = [], [], [], set()
    for key, owner, table, name in _slots(module, ""):
        known.add(key)
        if key not in state:
            missing.append(key)
            continue
        value = state[key]
        if table is not EXTRA:
            problem = _problem(key, owner.__dict__[table][name], value)
            if problem:
                problems.append(problem)
        writes.append((owner, table, name, value))
    unexpected = [key for key in state if key not in known]
    if strict and unexpected:
        problems.insert(0, f"unexpected keys: {', '.join(map(repr, unexpected))}")
    if strict and missing:
        problems.insert(0, f"missing keys: {', '.join(map(repr, missing))}")
    if problems:
        hint = " (strict=False skips missing and unexpected keys)" if strict and (missing
                                                                                  or unexpected) else ""
        raise LucidError(f"load_state_dict: {type(module).__name__} was left as it was{hint}:\n    "
                         + "\n    ".join(problems))
    for owner, table, name, value in writes:
        if table is EXTRA:
            owner.set_extra_state(value)
        else:
            _write(owner, table, name, value, assign)
    return IncompatibleKeys(missing, unexpected)


def _problem(key: str, target: Tensor, value: Any) -> str | None:
    if not isinstance(value, (Tensor, np.ndarray)):
        return f"{key!r}: expected a tensor, got {type(value).__name__}"
    if is_lazy(target) or is_lazy(value):
        return None
    if tuple(value.shape) != tuple(target.shape):
        return f"{key!r}: expected shape {tuple(target.shape)}, got {tuple(value.shape)}"
    if value.dtype.kind == "c" and target.dtype.kind != "c":
        return f"{key!r}: a {value.dtype.name} tensor does not fit into {target.dtype.name}"
    return None


def _write(owner: Any, table: str, name: str, value: Any, assign: bool) -> None:
    target = owner.__dict__[table][name]
    if is_lazy(value):
        return
    if assign:
        new = value if isinstance(value, Tensor) else tensor(value)
        if table == "_parameters":
            new = new if isinstance(new, Parameter) else Parameter(new.detach(),
                                                                   target.requires_grad
                                                                   and is_differentiable(new.dtype))
        owner.__dict__[table][name] = new
        return
    if is_lazy(target):
        target.materialize(tuple(value.shape))
    storage = target.storage
    if isinstance(value, Tensor):
        array, source = value.storage.array, value.storage.backend
        if source is not storage.backend:
            array = storage.backend.from_numpy(source.to_numpy(array))
    else:
        array = storage.backend.from_numpy(value)
    storage.array[...] = array.astype(storage.array.dtype, copy=False)
    storage.version += 1
