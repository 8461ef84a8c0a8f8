"""Module hooks: tables, and the backward hooks of one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.function import Function
from ..autograd.hooks import HookTable, RemovableHandle
from ..errors import GradError
from ..tensor import Tensor, _wrap

Hook = Callable[..., Any]


def add(table: HookTable, hook: Any, prepend: bool = False) -> RemovableHandle:
    """A handle for `hook` in `table`, first in the order when `prepend`."""
    handle = RemovableHandle(table)
    before = dict(table) if prepend else {}
    if prepend:
        table.clear()
    table[handle.id] = hook
    table.update(before)
    return handle


# Hooks on the calls of all modules: (kind, as in a module's own table).
GLOBAL = HookTable()


def everywhere(kind: str) -> list[Any]:
    """The global hooks of one kind: "forward_pre", "forward", "backward_pre" or "backward"."""
    return [entry for k, entry in GLOBAL.values() if k == kind]


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """A handle; `hook(module, args)` runs before the forward of every module, before the module's own hooks.

    >>> import lucid
    >>> from lucid.nn.modules.module import register_module_forward_pre_hook
    >>> with register_module_forward_pre_hook(lambda module, args: print(type(module).__name__)):
    ...     y = lucid.nn.Sequential(lucid.nn.ReLU(), lucid.nn.Tanh())(lucid.zeros(1))
    Sequential
    ReLU
    Tanh
    """
    return add(GLOBAL, ("forward_pre", (hook, False, False)))


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """A handle; `hook(module, args, output)` runs after the forward of every module and may return another
    output.
    """
    return add(GLOBAL, ("forward", (hook, with_kwargs, always_call)))


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """A handle; `hook(module, grad_output)` runs before the backward of every module."""
    return add(GLOBAL, ("backward_pre", hook))


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """A handle; `hook(module, grad_input, grad_output)` runs in the backward of every module."""
    return add(GLOBAL, ("backward", hook))


class Pass(Function):
    """The tensors themselves: one node through which all gradients of a module's inputs or outputs go."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return grads


def _through_node(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, list[int]]:
    # (values with their differentiable tensors passed through one node, that node or None, the places of
    # those tensors).
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
    if not places:
        return values, None, places
    passed = Pass.apply(*[values[i] for i in places])
    passed = passed if isinstance(passed, tuple) else (passed,)
    out = list(values)
    for i, t in zip(places, passed, strict=True):
        out[i] = t
    node = passed[0].grad_fn
    return (tuple(out), node, places) if node is not None else (values, None, [])


class BackwardHooks:
    """The backward hooks of one call of a module.

    Inputs and outputs each go through one node. A tensor that the module uses twice, or whose output is used
    twice, so reaches the hooks as one summed gradient.
    """

    def __init__(self, module: Any, pre: list[Hook], post: list[Hook]) -> None:
        self.module, self.pre, self.post = module, pre, post
        self.like: list[Any] = []
        self.places: list[int] = []
        self.has_inputs = False
        self.grad_output: tuple[Any, ...] | None = None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call forward with."""
        self.like = [(a.shape, a.dtype, a.storage.backend) if isinstance(a, Tensor) else None for a in args]
        args, node, self.places = _through_node(args)
        if node is not None:
            self.has_inputs = True
            node.register_hook(self._on_inputs)
        return args

    def outputs(self, result: Any) -> Any:
        """The result to return from the call."""
        single = not isinstance(result, (tuple, list))
        values, node, places = _through_node((result,) if single else tuple(result))
        if node is None:
            return result
        size = len(values)

        def on_outputs(grads: tuple[Any, ...]) -> Any:
            full: list[Any] = [None] * size
            for i, g in zip(places, grads, strict=True):
                full[i] = g
            grad_output = tuple(full)
            for hook in self.pre:
                new = hook(self.module, grad_output)
                if new is not None:
                    grad_output = _checked("full_backward_pre_hook", new, size)
            self.grad_output = grad_output
            if not self.has_inputs:
                self._run((None,) * len(self.like))
                self.grad_output = None
            return tuple(grad_output[i] for i in places)

        node.register_prehook(on_outputs)
        if single:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def _run(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.post:
            new = hook(self.module, grad_input, self.grad_output)
            if new is not None:
                grad_input = _checked("full_backward_hook", new, len(grad_input))
        return grad_input

    def _on_inputs(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> Any:
        if self.grad_output is None:
            # A second derivative came by the values inside, not through the module's output.
            return None
        # Every tensor input has a gradient here, zeros where none flows, as in PyTorch.
        full: list[Any] = [like and _wrap(like[2].xp.zeros(*like[:2]), like[2]) for like in self.like]
        for i, g in zip(self.places, grad_inputs, strict=True):
            full[i] = full[i] if g is None else g
        result = self._run(tuple(full))
        self.grad_output = None
        return tuple(result[i] for i in self.places)


def _checked(name: str, new: Any, size: int) -> tuple[Any, ...]:
    new = new if isinstance(new, (tuple, list)) else (new,)
    if len(new) != size:
        raise GradError(f"{name}: the hook must return {size} gradients (or None for no change), got "
                        f"{len(new)}")
    return tuple(new)
