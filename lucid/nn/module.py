"""`Module`: the base class of layers and models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from ..autograd.hooks import HookTable, RemovableHandle
from ..errors import DtypeError
from ..storage.backend import backend_of
from ..storage.device import Device
from ..storage.dtype import as_dtype, is_differentiable, is_floating
from ..tensor import Tensor, _wrap
from . import _hooks
from ._state import StateMethods
from .parameter import Buffer, Parameter, is_lazy

T = TypeVar("T")

_TABLES = ("_parameters", "_buffers", "_modules")


class Module(StateMethods):
    """A layer or model: holds parameters, buffers and modules, which are registered as they are assigned.

    Subclasses call `super().__init__()` first and define `forward`.

    >>> import lucid
    >>> class Scale(lucid.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = lucid.nn.Parameter(lucid.tensor(2.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(lucid.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    forward: Callable[..., Any]

    def __init__(self) -> None:
        self.__dict__.update(training=True, _parameters={}, _buffers={}, _modules={},
                             _non_persistent_buffers_set=set(), _forward_pre_hooks=HookTable(),
                             _forward_hooks=HookTable(), _backward_pre_hooks=HookTable(),
                             _backward_hooks=HookTable())

    # ---- calling ----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        d = self.__dict__
        if not (d["_forward_hooks"] or d["_forward_pre_hooks"] or d["_backward_hooks"]
                or d["_backward_pre_hooks"] or _hooks.GLOBAL):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        d = self.__dict__
        called: set[int] = set()
        result = None
        try:
            first = [*_hooks.everywhere("forward_pre"), *d["_forward_pre_hooks"].values()]
            for hook, with_kwargs, _ in first:
                new = hook(self, args, kwargs) if with_kwargs else hook(self, args)
                if new is None:
                    continue
                if with_kwargs:
                    if not (isinstance(new, tuple) and len(new) == 2):
                        raise DtypeError("forward_pre_hook: with_kwargs=True must return (args, kwargs) or "
                                         f"None, got {type(new).__name__}")
                    args, kwargs = new
                else:
                    args = new if isinstance(new, tuple) else (new,)
            backward = None
            pre = [*_hooks.everywhere("backward_pre"), *d["_backward_pre_hooks"].values()]
            post = [*_hooks.everywhere("backward"), *d["_backward_hooks"].values()]
            if pre or post:
                backward = _hooks.BackwardHooks(self, pre, post)
                args = backward.inputs(args)
            result = self.forward(*args, **kwargs)
            for key, (hook, with_kwargs, _) in self._all_forward_hooks():
                called.add(key)
                new = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if new is None else new
            return result if backward is None else backward.outputs(result)
        except Exception:
            # Hooks with always_call run although the call failed; their own errors do not hide the first one.
            for key, (hook, with_kwargs, always) in self._all_forward_hooks():
                if always and key not in called:
                    with contextlib.suppress(Exception):
                        hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            raise

    def _all_forward_hooks(self) -> list[tuple[int, Any]]:
        everywhere = [(key, entry) for key, (kind, entry) in _hooks.GLOBAL.items() if kind == "forward"]
        return everywhere + list(self.__dict__["_forward_hooks"].items())

    def _unimplemented(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: defines no forward; write def forward(self, ...) "
                                  "in the class")

    forward = _unimplemented

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: there is nothing to compile (see `lucid.compile`)."""

    # ---- hooks ----

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """A handle; `hook(module, args)` runs before forward and may return new arguments.

        with_kwargs: `hook(module, args, kwargs)`, which may return new (args, kwargs).
        """
        return _hooks.add(self.__dict__["_forward_pre_hooks"], (hook, with_kwargs, False), prepend)

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                              with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
        """A handle; `hook(module, args, output)` runs after forward and may return another output.

        with_kwargs: `hook(module, args, kwargs, output)`. always_call: also when the call fails.
        """
        return _hooks.add(self.__dict__["_forward_hooks"], (hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """A handle; `hook(module, grad_input, grad_output)` runs in backward and may return new grad_input.

        They are tuples, for the positional inputs and the outputs. A gradient is the sum over all uses of
        that input inside the module, and of that output outside of it. None stands for an input or output
        that gets none.
        """
        return _hooks.add(self.__dict__["_backward_hooks"], hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Callable[..., Any],
                                        prepend: bool = False) -> RemovableHandle:
        """A handle; `hook(module, grad_output)` runs before the module's backward and may return new ones."""
        return _hooks.add(self.__dict__["_backward_pre_hooks"], hook, prepend)

    # ---- registration ----

    def _check_name(self, what: str, name: str, table: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: cannot assign a {what} before Module.__init__(); "
                                 "call super().__init__() first")
        if not isinstance(name, str) or not name or "." in name:
            raise KeyError(f"{what}: the name must be a non-empty string without '.', got {name!r}")
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"{what}: {type(self).__name__} already has an attribute {name!r}; choose another "
                           "name or delete it first")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Nothing; adds a parameter (None: a name kept free, absent from parameters() and state_dict())."""
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise DtypeError(f"register_parameter: {name!r} must be a Parameter or None, got "
                             f"{type(param).__name__}; use nn.Parameter(...)")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Nothing; adds a tensor that is part of the state but not trained.

        It is left out of state_dict() when not `persistent`.
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DtypeError(f"register_buffer: {name!r} must be a Tensor or None, got "
                             f"{type(tensor).__name__}")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent
         else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Nothing; adds a child module."""
        if module is not None and not isinstance(module, Module):
            raise DtypeError(f"add_module: {name!r} must be a Module or None, got {type(module).__name__}")
        self._check_name("module", name, "_modules")
        self._modules[name] = module

    register_module = add_module

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        if isinstance(value, Parameter):
            self._make_room(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._make_room(name, "_modules")
            self.add_module(name, value)
        elif isinstance(value, Buffer):
            self._make_room(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif "_parameters" in d and (name in d["_parameters"] or name in d["_modules"]):
            table = "_parameters" if name in d["_parameters"] else "_modules"
            if value is not None:
                raise DtypeError(f"{type(self).__name__}.{name} is a "
                                 f"{'parameter' if table == '_parameters' else 'module'}; assign "
                                 f"{'an nn.Parameter' if table == '_parameters' else 'a Module'} or None, "
                                 f"got {type(value).__name__} "
                                 f"(del it first to use the name for something else)")
            d[table][name] = None
        elif "_buffers" in d and name in d["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise DtypeError(f"{type(self).__name__}.{name} is a buffer; assign a Tensor or None, got "
                                 f"{type(value).__name__}")
            d["_buffers"][name] = value
        else:
            object.__setattr__(self, name, value)

    def _make_room(self, name: str, table: str) -> None:
        # An attribute that becomes a parameter (buffer, module) leaves its old place.
        d = self.__dict__
        if "_parameters" not in d:
            raise AttributeError(f"{type(self).__name__}: cannot assign {name!r} before Module.__init__(); "
                                 "call super().__init__() first")
        d.pop(name, None)
        for other in _TABLES:
            if other != table:
                d[other].pop(name, None)
        d["_non_persistent_buffers_set"].discard(name)

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        for table in _TABLES:
            found = d.get(table)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for table in _TABLES:
            if name in self.__dict__[table]:
                del self.__dict__[table][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = set(dir(type(self))) | set(self.__dict__)
        for table in _TABLES:
            names.update(self.__dict__[table])
        return sorted(n for n in names if n.isidentifier())

    # ---- what it holds ----

    def named_modules(self, memo: set[Any] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) for itself ('') and every module below, in order, each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Itself and every module below, each once."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) for each direct child, each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        return (m for _, m in self.named_children())

    def _named_members(self, table: str, prefix: str, recurse: bool,
                       remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix,
                                     remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in module.__dict__[table].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) for every parameter, each once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter, each once.

        >>> import lucid
        >>> [p.shape for p in lucid.nn.Linear(3, 2).parameters()]
        [(2, 3), (2,)]
        """
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) for every buffer, each once."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; itself for ''. AttributeError names the part that is missing."""
        module: Module = self
        for part in target.split(".") if target else ():
            found = module._modules.get(part)
            if found is None:
                raise AttributeError(f"get_submodule({target!r}): {type(module).__name__} has no module "
                                     f"{part!r} (it has {', '.join(module._modules) or 'none'})")
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Nothing; puts a module at a dotted path (with `strict`, only where one is already)."""
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and name not in parent._modules:
            raise AttributeError(f"set_submodule({target!r}): {type(parent).__name__} has no module {name!r}")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        return self._get("_parameters", "parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        return self._get("_buffers", "buffer", target)

    def _get(self, table: str, what: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = module.__dict__[table]
        if name not in found:
            raise AttributeError(f"get_{what}({target!r}): {type(module).__name__} has no {what} {name!r} "
                                 f"(it has {', '.join(found) or 'none'})")
        return found[name]

    # ---- copies ----

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        self.__dict__.update(state)

    # ---- changing all of it ----

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """The module itself, after `fn` was called on every child (children first) and on itself."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Parameters stay the same objects, so that optimisers keep them; their memory is replaced.
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, p in self._parameters.items():
            if p is None:
                continue
            if is_lazy(p):
                p.storage = fn(p.detach()).storage
                continue
            old, grad = p.detach(), p.grad
            new = fn(old)
            if is_differentiable(new.dtype) or not p.requires_grad:
                if new is not old:
                    p.data = new
                    p.grad = None if grad is None else fn(grad.detach())
            else:
                raise DtypeError(f"{type(self).__name__}.{name}: a parameter that requires grad cannot "
                                 f"become {new.dtype.name}")
        for name, b in self._buffers.items():
            if b is not None and is_lazy(b):
                b.storage = fn(b.detach()).storage
            elif b is not None:
                self._buffers[name] = fn(b)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The module itself on another device and/or its floating tensors in another dtype.

        `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.
        """
        device, dtype = _parse_to(args, kwargs)
        if dtype is not None and not is_differentiable(dtype):
            raise DtypeError(f"Module.to: expected a floating or complex dtype, got {dtype.name}")

        def move(t: Tensor) -> Tensor:
            return t.to(device=device,
                        dtype=dtype if dtype is not None and is_differentiable(t.dtype) else None)
        return self._apply(move)

    def type(self, dst_type: Any) -> Self:
        """The module itself with every tensor in another dtype."""
        return self._apply(lambda t: t.to(dtype=dst_type))

    def _floats(self, dtype: str) -> Self:
        return self._apply(lambda t: t.to(dtype=dtype) if is_floating(t.dtype) else t)

    def float(self) -> Self:
        """The module itself with floating tensors in float32."""
        return self._floats("float32")

    def double(self) -> Self:
        """The module itself with floating tensors in float64."""
        return self._floats("float64")

    def half(self) -> Self:
        """The module itself with floating tensors in float16."""
        return self._floats("float16")

    def bfloat16(self) -> Self:
        """The module itself with floating tensors in bfloat16."""
        return self._floats("bfloat16")

    def cpu(self) -> Self:
        """The module itself in host memory."""
        return self._apply(lambda t: t.to("cpu"))

    def cuda(self, device: Any = None) -> Self:
        """The module itself on a CUDA device (the current one by default)."""
        target = Device("cuda") if device is None else Device(device)
        return self._apply(lambda t: t.to(target))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """The module itself on a device, its values not set."""
        def empty(t: Tensor) -> Tensor:
            backend = backend_of(device)
            return _wrap(backend.xp.empty(t.shape, t.dtype), backend)
        return self._apply(empty, recurse)

    def share_memory(self) -> Self:
        """The module itself, its parameters and buffers moved to memory that other processes can share: see
        `Tensor.share_memory_`.
        """
        for t in (*self.parameters(), *self.buffers()):
            t.share_memory_()
        return self

    def train(self, mode: bool = True) -> Self:
        """The module itself, with every module below, in training mode (dropout on, batch statistics)."""
        if not isinstance(mode, bool):
            raise DtypeError(f"train: expected a bool, got {type(mode).__name__}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Self:
        """The module itself in evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """The module itself, after setting whether its parameters require grad."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing; drops the gradients of all parameters, or fills them with zeros."""
        for p in self.parameters():
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                p.grad = p.grad.detach()
                p.grad.storage.array[...] = 0
                p.grad.storage.version += 1

    # ---- text ----

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands in the parentheses of the module's repr; override it."""
        return ""

    def __repr__(self) -> str:
        own = self.extra_repr()
        own_lines = own.split("\n") if own else []
        lines = [f"({name}): {_indent(repr(child))}" for name, child in self._modules.items()]
        if not lines and len(own_lines) <= 1:
            return f"{self._get_name()}({own})"
        return f"{self._get_name()}(\n  " + "\n  ".join(own_lines + lines) + "\n)"


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    kwargs.pop("non_blocking", None)
    kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"Module.to: unexpected arguments {', '.join(kwargs)}; it takes device, dtype or a "
                        "tensor")
    for a in args:
        if isinstance(a, Tensor):
            device, dtype = a.device, a.dtype
        elif isinstance(a, (bool, type(None))):
            continue
        elif isinstance(a, Device) or (isinstance(a, str) and a.split(":")[0] in ("cpu", "cuda")):
            device = a
        elif isinstance(a, int):
            device = Device("cuda", a)
        else:
            dtype = a
    return device, None if dtype is None else as_dtype(dtype)
