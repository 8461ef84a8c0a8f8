"""Reading and writing a module's state: everything is checked before anything is written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..autograd.hooks import HookTable, RemovableHandle
from ..errors import LucidError
from ..storage.dtype import is_differentiable
from ..tensor import Tensor, tensor
from . import _hooks
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


class StateMethods:
    """The part of `Module` that reads and writes its state."""

    # What state_dict()._metadata says of this class's state; PyTorch's numbers.
    _version = 1

    def _complete_state(self, state_dict: dict[str, Any], prefix: str, version: int | None) -> None:
        """Nothing; adds what states of an older version of the class lack."""

    # ---- out ----

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "",
                   keep_vars: bool = False) -> Any:
        """Dotted name -> tensor for all parameters and persistent buffers.

        The tensors are detached but share memory with the module's.

        >>> import lucid
        >>> {name: value.shape for name, value in lucid.nn.Linear(3, 2).state_dict().items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        if args:
            given: tuple[Any, ...] = (destination, prefix, keep_vars)
            destination, prefix, keep_vars = (*args, *given[len(args):])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in _table(self, "_state_dict_pre_hooks"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self.__dict__["_modules"].items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook, may_replace in _table(self, "_state_dict_hooks"):
            new = hook(self, destination, prefix, metadata)
            if new is not None and not may_replace:
                raise LucidError("state_dict_post_hook: the hook must return None; change the dictionary")
            destination = destination if new is None else new
        return destination

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Nothing; adds the module's own state, without its children's. Override it together with
        `_load_from_state_dict`.
        """
        for key, table, name in _own_slots(self, prefix):
            if table is EXTRA:
                destination[key] = self.get_extra_state()
            else:
                value = self.__dict__[table][name]
                destination[key] = value if keep_vars or is_lazy(value) else value.detach()

    # ---- in ----

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> IncompatibleKeys:
        """(missing_keys, unexpected_keys), after copying the tensors into parameters and buffers.

        Everything is checked first: an error lists all keys that are missing or unexpected and all shapes
        that differ, and leaves the module as it was (but for what hooks and overridden
        `_load_from_state_dict`s do). strict=False accepts missing and unexpected keys, not other shapes.
        `assign` puts the given tensors in place of the old ones.
        """
        return _load(self, state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any],
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Nothing; reads the module's own state, without its children's, and adds to the lists. Override it
        for state that has changed its form.
        """
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        for key, table, name in _own_slots(self, prefix):
            if key not in state_dict:
                missing_keys.append(key)
                continue
            problem = None if table is EXTRA else _problem(key, self.__dict__[table][name], state_dict[key])
            if problem:
                error_msgs.append(problem)
            else:
                _write(self, table, name, state_dict[key], assign)

    def get_extra_state(self) -> Any:
        """What state_dict() stores besides tensors; define it with `set_extra_state`."""
        raise NotImplementedError(f"{type(self).__name__}: defines no get_extra_state")

    def set_extra_state(self, state: Any) -> None:
        """Nothing; takes what `get_extra_state` gave."""
        raise NotImplementedError(f"{type(self).__name__}: has no set_extra_state for the extra state in the "
                                  "state_dict")

    # ---- hooks ----

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; `hook(module, prefix, keep_vars)` runs before the module's state is read."""
        return _add(self, "_state_dict_pre_hooks", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; `hook(module, state_dict, prefix, local_metadata)` runs after the state of the module and
        its children was read, and may change the dictionary.
        """
        return _add(self, "_state_dict_hooks", (hook, False))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; as `register_state_dict_post_hook`, and the hook may return another dictionary."""
        return _add(self, "_state_dict_hooks", (hook, True))

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)` runs before the state is loaded, and may rename and add keys in a copy of the dictionary.
        """
        return _add(self, "_load_state_dict_pre_hooks", (hook, True))

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any],
                                           with_module: bool = False) -> RemovableHandle:
        """A handle; as `register_load_state_dict_pre_hook`, without the module as first argument."""
        return _add(self, "_load_state_dict_pre_hooks", (hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; `hook(module, incompatible_keys)` runs after the state was loaded, and may change the
        lists of missing and unexpected keys, which are an error afterwards when strict.
        """
        return _add(self, "_load_state_dict_post_hooks", hook)


def _table(module: Any, name: str) -> list[Any]:
    # Most modules have no such hooks, and no tables for them.
    return list(module.__dict__.get(name, {}).values())


def _add(module: Any, name: str, hook: Any) -> RemovableHandle:
    return _hooks.add(module.__dict__.setdefault(name, HookTable()), hook)


def _own_slots(module: Any, prefix: str) -> Iterator[tuple[str, str, str]]:
    """(key, table, name) of every tensor in a module's own state."""
    for name, value in module._parameters.items():
        if value is not None:
            yield prefix + name, "_parameters", name
    for name, value in module._buffers.items():
        if value is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, "_buffers", name
    if type(module).get_extra_state is not StateMethods.get_extra_state:
        yield prefix + EXTRA, EXTRA, EXTRA


def _walk(module: Any, prefix: str) -> Iterator[tuple[Any, str]]:
    """(module, prefix of its keys) of a module and all below, shared ones as often as they occur."""
    yield module, prefix
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, f"{prefix}{name}.")


def _load(module: Any, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    if not isinstance(state_dict, Mapping):
        raise LucidError(f"load_state_dict: expected a dictionary, got {type(state_dict).__name__}")
    state = OrderedDict(state_dict)  # which hooks may change
    known_metadata: Any = getattr(state_dict, "_metadata", {})
    missing: list[str] = []
    unexpected: list[str] = []
    problems: list[str] = []
    modules = list(_walk(module, ""))
    own: list[tuple[Any, str, dict[str, Any]]] = []  # those that load themselves
    for m, prefix in modules:
        metadata = {**known_metadata.get(prefix[:-1], {}), "assign_to_params_buffers": assign}
        m._complete_state(state, prefix, metadata.get("version"))
        for hook, with_module in _table(m, "_load_state_dict_pre_hooks"):
            hook(*(m,) * with_module, state, prefix, metadata, strict, missing, unexpected, problems)
        if type(m)._load_from_state_dict is not StateMethods._load_from_state_dict:
            own.append((m, prefix, metadata))
    writes, known = _plan(modules, state, missing, problems)
    hooks = [(hook, m) for m, _ in reversed(modules) for hook in _table(m, "_load_state_dict_post_hooks")]
    loose = tuple(prefix for _, prefix, _ in own)
    unexpected += [k for k in state if k not in known and k.rpartition(".")[0] not in {p[:-1] for p in loose}]
    if problems or (strict and not hooks and (missing or unexpected)):
        _refuse(module, missing, unexpected, problems, strict, "was left as it was")
    for owner, table, name, value in writes:
        _write(owner, table, name, value, assign)
    for m, prefix, metadata in own:
        m._load_from_state_dict(state, prefix, metadata, strict, missing, unexpected, problems)
    keys = IncompatibleKeys(missing, unexpected)
    for hook, m in hooks:
        hook(m, keys)
    if problems or (strict and (missing or unexpected)):
        _refuse(module, missing, unexpected, problems, strict, "has loaded all else")
    return keys


def _plan(modules: list[tuple[Any, str]], state: Mapping[str, Any], missing: list[str],
          problems: list[str]) -> tuple[list[tuple[Any, str, str, Any]], set[str]]:
    """(what to write where, the keys of the state that the modules know)."""
    writes, known = [], set()
    for m, prefix in modules:
        loads_itself = type(m)._load_from_state_dict is not StateMethods._load_from_state_dict
        for key, table, name in _own_slots(m, prefix):
            known.add(key)
            if loads_itself:
                continue
            if key not in state:
                missing.append(key)
                continue
            if table is not EXTRA:
                problem = _problem(key, m.__dict__[table][name], state[key])
                if problem:
                    problems.append(problem)
            writes.append((m, table, name, state[key]))
    return writes, known


def _refuse(module: Any, missing: list[str], unexpected: list[str], problems: list[str], strict: bool,
            how: str) -> None:
    """Nothing; raises with all that does not fit."""
    lines = list(problems)
    if strict and unexpected:
        lines.insert(0, f"unexpected keys: {', '.join(map(repr, unexpected))}")
    if strict and missing:
        lines.insert(0, f"missing keys: {', '.join(map(repr, missing))}")
    hint = " (strict=False skips missing and unexpected keys)" if strict and (missing or unexpected) else ""
    raise LucidError(f"load_state_dict: {type(module).__name__} {how}{hint}:\n    " + "\n    ".join(lines))


def _problem(key: str, target: Tensor, value: Any) -> str | None:
    if not isinstance(value, (Tensor, np.ndarray)):
        return f"{key!r}: expected a tensor, got {type(value).__name__}"
    if is_lazy(target) or is_lazy(value):
        return None
    # PyTorch's checkpoints hold some 0-d tensors as [1].
    if tuple(value.shape) != tuple(target.shape) and (tuple(value.shape), target.ndim) != ((1,), 0):
        return f"{key!r}: expected shape {tuple(target.shape)}, got {tuple(value.shape)}"
    if value.dtype.kind == "c" and target.dtype.kind != "c":
        return f"{key!r}: a {value.dtype.name} tensor does not fit into {target.dtype.name}"
    return None


def _write(owner: Any, table: str, name: str, value: Any, assign: bool) -> None:
    if table is EXTRA:
        owner.set_extra_state(value)
        return
    target = owner.__dict__[table][name]
    if is_lazy(value):
        return
    if assign:
        new = value if isinstance(value, Tensor) else tensor(value)
        new = new if is_lazy(target) or new.shape == target.shape else new.reshape(target.shape)
        if table == "_parameters":
            new = new if isinstance(new, Parameter) else Parameter(new.detach(),
                                                                   target.requires_grad
                                                                   and is_differentiable(new.dtype))
        owner.__dict__[table][name] = new
        return
    if is_lazy(target):
        target.materialize(tuple(value.shape))
    value = value.reshape(target.shape)
    storage = target.storage
    if isinstance(value, Tensor):
        array, source = value.storage.array, value.storage.backend
        if source is not storage.backend:
            array = storage.backend.from_numpy(source.to_numpy(array))
    else:
        array = storage.backend.from_numpy(value)
    storage.array[...] = array.astype(storage.array.dtype, copy=False)
    storage.version += 1
