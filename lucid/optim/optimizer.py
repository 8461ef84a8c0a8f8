"""The base of all optimisers: parameter groups, state, hooks and checkpoints."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd.hooks import HookTable, RemovableHandle
from ..autograd.mode import enable_grad
from ..autograd.transfer import moved
from ..errors import CheckpointError, DtypeError, GradError, LucidError, ShapeError
from ..storage.backend import Backend
from ..storage.dtype import float32, is_differentiable
from ..tensor import Tensor, _wrap

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class Optimizer:
    """Groups of parameters, each with its options, and a state per parameter.

    params: tensors; or dicts with "params" and options that replace `defaults`; or (name, tensor) pairs. A
    subclass implements `_step_group(group)`; its updates happen in place, without a graph. Raises DtypeError
    or ShapeError for what are no parameters.

    PyTorch's options of implementation: fused=None or True lets a kernel step all parameters of a dtype in
    one launch (on CUDA, all but Adafactor, Muon and LBFGS), fused=False keeps to one operation after the
    other. capturable: the launch of SGD, Adam and AdamW can always be captured; LucidError for the others.
    foreach changes nothing. differentiable=True raises LucidError.

    >>> import lucid
    >>> a, b = lucid.nn.Parameter(lucid.zeros(2)), lucid.nn.Parameter(lucid.zeros(3))
    >>> optimizer = lucid.optim.SGD([{"params": [a]}, {"params": [b], "lr": 1.0}], lr=0.1)
    >>> [group["lr"] for group in optimizer.param_groups]
    [0.1, 1.0]
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._before, self._after = HookTable(), HookTable()
        self._known: set[int] = set()
        if isinstance(params, Tensor):
            raise DtypeError(
                "optim: expected an iterable of tensors or dicts, got one tensor; put it into a list"
            )
        groups: list[Any] = list(params)
        if not groups:
            raise ShapeError("optim: expected at least one parameter, got an empty list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Nothing; the parameters in `group["params"]` are optimised too, with the group's options over the
        defaults.
        """
        if not isinstance(group, dict) or "params" not in group:
            raise DtypeError(f"add_param_group: expected a dict with 'params', got {type(group).__name__}")
        if isinstance(group["params"], set):
            raise DtypeError("add_param_group: a set has no order that is the same in each run; give a list")
        given = group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        names = None
        if params and isinstance(params[0], tuple):
            names = [name for name, _ in params]
            params = [param for _, param in params]
        seen: set[int] = set()
        for param in params:
            self._check_parameter(param)
            if id(param) in seen or id(param) in self._known:
                raise GradError(
                    f"add_param_group: a parameter of shape {param.shape} is given twice; give each once"
                )
            seen.add(id(param))
        complete = {**self.defaults, **group, "params": params}
        if names is not None:
            complete["param_names"] = names
        self._check_options(complete)
        self._check_implementation(complete)
        self._known |= seen
        self.param_groups.append(complete)

    @staticmethod
    def _check_parameter(param: Any) -> None:
        if not isinstance(param, Tensor):
            raise DtypeError(f"optim: expected tensors, got {type(param).__name__}")
        if not is_differentiable(param.dtype):
            raise DtypeError(
                f"optim: expected floating parameters, got one of dtype {param.dtype.name}, shape "
                f"{param.shape}"
            )
        if param.edge is not None:
            raise GradError(
                f"optim: expected leaves, got the result of an operation, shape {param.shape}; "
                "optimise the tensor that it was made from, or its .detach()"
            )

    def _check_options(self, group: dict[str, Any]) -> None:
        """Nothing; a subclass raises when an option of the group is out of range."""

    # Whether a kernel makes the step, with all numbers that change in device memory.
    _captured = False

    def _check_implementation(self, group: dict[str, Any]) -> None:
        name = type(self).__name__
        if group.get("differentiable"):
            raise LucidError(
                f"{name}: differentiable=True is not supported, a step writes to the parameters without a "
                "graph; to differentiate through an update, compute it, as in w = w - lr * g with g from "
                "lucid.autograd.grad(loss, w, create_graph=True)"
            )
        if group.get("fused") and group.get("foreach"):
            raise LucidError(f"{name}: fused and foreach cannot both be True; leave foreach out")
        if group.get("capturable") and (not self._captured or group.get("fused") is False):
            cure = "leave fused=False out" if self._captured else "SGD, Adam and AdamW can"
            raise LucidError(f"{name}: capturable=True, but this step cannot be captured; {cure}")

    # ---- gradients and steps ----

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing; every `.grad` is None afterwards (or filled with zeros, in place)."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param.grad = None
                elif param.grad is not None:
                    if param.grad.edge is not None:
                        param.grad = param.grad.detach()
                    param.grad.storage.array[...] = 0
                    param.grad.storage.version += 1

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """What `closure` returns (it computes the loss and its gradients anew), after one update of every
        parameter.
        """
        for before in tuple(self._before.values()):
            before(self, (), {"closure": closure})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._step_groups()
        for after in tuple(self._after.values()):
            after(self, (), {"closure": closure})
        return loss

    def _step_groups(self) -> None:
        for group in self.param_groups:
            self._step_group(group)

    def _step_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__}._step_group")

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; `hook(optimizer, args, kwargs)` runs before each step."""
        return _register(self._before, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """A handle; `hook(optimizer, args, kwargs)` runs after each step."""
        return _register(self._after, hook)

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number: {...}}, "param_groups": [...]}: copies, which later steps leave alone.

        Parameters are numbered over all groups; a group's "params" are numbers.
        """
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                number[id(param)] = len(number)
            groups.append(
                {key: _copied(value) for key, value in group.items() if key != "params"}
                | {"params": [number[id(param)] for param in group["params"]]}
            )
        state = {
            number[id(param)]: _copied(values) for param, values in self.state.items() if id(param) in number
        }
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing; state and options become copies of those in `state_dict`, on the parameters' devices.

        Raises CheckpointError, before anything is changed, when groups, parameters or shapes differ.
        """
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= state_dict.keys():
            raise CheckpointError(
                "load_state_dict: expected a dict with 'state' and 'param_groups' as state_dict() gives it"
            )
        saved = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in self.param_groups]
        if sizes != [len(group["params"]) for group in saved]:
            raise CheckpointError(
                f"load_state_dict: this optimizer has groups of {sizes} parameters, the checkpoint of "
                f"{[len(group['params']) for group in saved]}; build it for the same model and groups"
            )
        params = [param for group in self.param_groups for param in group["params"]]
        keys = [key for group in saved for key in group["params"]]
        found = state_dict["state"]
        # JSON turns the numbers into strings; both are taken.
        values = [found.get(key, found.get(str(key))) for key in keys]
        state = {
            param: self._loaded(param, entry)
            for param, entry in zip(params, values, strict=True)
            if entry is not None
        }
        groups = [
            {key: _copied(value) for key, value in new.items() if key != "params"} | {"params": old["params"]}
            for old, new in zip(self.param_groups, saved, strict=True)
        ]
        for old, new in zip(self.param_groups, groups, strict=True):
            for key, value in old.items():
                new.setdefault(key, value)
        # In place where possible: a scheduler or a caller may hold the lists and dicts themselves.
        self.state.clear()
        self.state.update(state)
        for old, new in zip(self.param_groups, groups, strict=True):
            old.clear()
            old.update(new)
        self._forget()

    # Names of state entries that are Python numbers.
    _numbers: tuple[str, ...] = ("step",)

    def _loaded(self, param: Tensor, entry: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in entry.items():
            if key in self._numbers:
                value = value.item() if isinstance(value, Tensor) else value
                result[key] = int(value) if key == "step" else value
            elif isinstance(value, Tensor):
                if not self._fits(key, value.shape, param.shape):
                    raise CheckpointError(
                        f"load_state_dict: {key!r} of a parameter of shape {param.shape} has shape "
                        f"{value.shape}; the checkpoint belongs to another model"
                    )
                source, target = value.storage.backend, param.storage.backend
                array = value.storage.array
                if source is not target:
                    array = moved(array, source, target)
                with target.guard():
                    result[key] = _wrap(array.astype(state_dtype(param), "C", copy=True), target)
            else:
                result[key] = _copied(value)
        return result

    def _fits(self, key: str, shape: tuple[int, ...], param_shape: tuple[int, ...]) -> bool:
        return shape == param_shape

    def _forget(self) -> None:
        """Nothing; a subclass drops what it cached about the state."""


def _register(table: HookTable, hook: Callable[..., Any]) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    return handle


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        with value.backend.guard():
            return _wrap(value.array.copy(), value.backend)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return value


def state_dtype(param: Tensor) -> Any:
    """The dtype of a parameter's state: its own, float32 for 16-bit parameters."""
    return float32 if param.dtype.itemsize == 2 else param.dtype


def in_range(optimizer: str, **checks: tuple[float, bool]) -> None:
    """Nothing; ShapeError naming the first option whose check is False: `lr=(value, value >= 0)`."""
    for name, (value, good) in checks.items():
        if not good:
            raise ShapeError(f"{optimizer}: option {name}={value} is out of range; see the class's docstring")


def guard(backend: Backend) -> Any:
    """A context in which, of several GPUs, that of `backend` is the current one."""
    return backend.guard() if Backend.several else _NOTHING


_NOTHING = contextlib.nullcontext()


def bias_correction(beta: float, step: int) -> float:
    """1 - beta^step."""
    return 1.0 - math.pow(beta, step)
