"""Parametrizations: a parameter or buffer that is computed from others at each use.

`register_parametrization(module, "weight", Symmetric())` moves the parameter to
`module.parametrizations.weight.original` and makes `module.weight` the result of `Symmetric()(original)`. The
names, and so the keys of a state_dict, are PyTorch's.

The module becomes an instance of a subclass of its class, with one property for each parametrized name. Such
a module can be copied and pickled.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...errors import DtypeError, LucidError, ShapeError
from ...tensor import Tensor
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

# (id of the list, name) -> value inside `cached()`; None outside.
_cache: ContextVar[dict[int, tuple[Any, Tensor]] | None] = ContextVar("lucid_parametrize", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """A context in which each parametrized tensor is computed once, at its first use.

    For modules that read a parameter often (a recurrent layer). The values are those of the first use: do
    not step an optimizer inside.

    >>> import lucid
    >>> from lucid.nn.utils import parametrize, parametrizations
    >>> layer = parametrizations.weight_norm(lucid.nn.Linear(3, 2))
    >>> with parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    if _cache.get() is not None:
        yield
        return
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, first applied first, with the tensor that they start from.

    original: that tensor, a parameter or buffer; original0, original1, ... when the first parametrization's
    `right_inverse` gives several.

    >>> import lucid
    >>> layer = lucid.nn.utils.parametrizations.weight_norm(lucid.nn.Linear(3, 2))
    >>> layer.parametrizations.weight
    ParametrizationList(
      (0): _WeightNorm()
    )
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not len(modules):
            raise ValueError("ParametrizationList: expected at least one module, got none")
        super().__init__(modules)
        self.unsafe = unsafe
        value: Any = original.detach() if isinstance(original, Parameter) else original
        for module in reversed(list(self)):
            value = _inverse(module, value)
        self.is_tensor = isinstance(value, Tensor)
        if not self.is_tensor and not (
            isinstance(value, Sequence) and value and all(isinstance(v, Tensor) for v in value)
        ):
            raise DtypeError(
                "register_parametrization: right_inverse must return a tensor or a sequence of tensors, "
                f"got {type(value).__name__}"
            )
        self.ntensors = 1 if self.is_tensor else len(value)
        trained = isinstance(original, Parameter)
        if self.is_tensor and not unsafe:
            _check_same("right_inverse", value, original)
        for name, v in zip(self._names(), (value,) if self.is_tensor else value, strict=True):
            if trained and self.is_tensor:
                # The parameter that optimizers know stays the same object.
                original.data = v.detach()
                self.register_parameter(name, original)  # type: ignore[arg-type]
            elif trained and v.is_floating_point():
                self.register_parameter(name, Parameter(v.detach().clone(), original.requires_grad))
            else:
                self.register_buffer(name, v)
        if not unsafe:
            _check_same("the parametrization", self(), original)

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def _originals(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self._names())

    def forward(self) -> Tensor:
        modules = iter(self)
        value = next(modules)(*self._originals())
        for module in modules:
            value = module(value)
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Nothing; sets the originals so that the parametrized tensor becomes `value`, through the
        `right_inverse` of each parametrization, last first.
        """
        new: Any = value.detach()
        for module in reversed(list(self)):
            if getattr(module, "right_inverse", None) is None:
                raise LucidError(
                    f"parametrize: {type(module).__name__} has no right_inverse, so the parametrized tensor "
                    "cannot be assigned; define right_inverse(value), or assign to the original"
                )
            new = module.right_inverse(new)
        for name, v in zip(self._names(), (new,) if self.is_tensor else new, strict=True):
            old = getattr(self, name)
            if not isinstance(v, Tensor) or v.dtype != old.dtype:
                raise DtypeError(f"parametrize: right_inverse must give {old.dtype.name} for {name!r}, got "
                                 f"{v.dtype.name if isinstance(v, Tensor) else type(v).__name__}")
            old.data = v.detach().clone()


def _inverse(module: Module, value: Any) -> Any:
    inverse = getattr(module, "right_inverse", None)
    if inverse is None:
        return value
    try:
        return inverse(value)
    except NotImplementedError:  # It has none with these settings: the present value is the original.
        return value


def _check_same(what: str, new: Any, old: Tensor) -> None:
    if not isinstance(new, Tensor):
        raise DtypeError(f"register_parametrization: {what} must return a tensor, got {type(new).__name__}")
    for attribute, error in (("dtype", DtypeError), ("shape", ShapeError)):
        a, b = getattr(new, attribute), getattr(old, attribute)
        if a != b:
            raise error(f"register_parametrization: {what} must keep the {attribute} {b}, got {a}; "
                        "unsafe=True allows it")


# ---- the class of a parametrized module ----


def _property(name: str) -> property:
    def get(self: Module) -> Tensor:
        found = self._modules["parametrizations"][name]  # type: ignore[index]
        cache = _cache.get()
        if cache is None:
            return found()
        # The list is kept beside its value, so that its id stays its own.
        entry = cache.get(id(found))
        if entry is None:
            entry = cache[id(found)] = (found, found())
        return entry[1]

    def set_(self: Module, value: Tensor) -> None:
        self._modules["parametrizations"][name].right_inverse(value)  # type: ignore[index]

    return property(get, set_, doc=f"The parametrized {name}.")


def _setattr(self: Module, name: str, value: Any) -> None:
    if name in self._modules["parametrizations"]._modules:  # type: ignore[union-attr]
        object.__setattr__(self, name, value)
    else:
        Module.__setattr__(self, name, value)


def _reduce(self: Module, protocol: Any) -> Any:
    names = list(self._modules["parametrizations"]._modules)  # type: ignore[union-attr]
    return _rebuild, (type_before_parametrizations(self), names), self.__dict__


def _rebuild(base: type[Module], names: list[str]) -> Any:
    return copyreg.__newobj__(_subclass(base, names))  # type: ignore[attr-defined]


def _subclass(base: type[Module], names: list[str]) -> type[Module]:
    body: dict[str, Any] = {"__setattr__": _setattr, "__reduce_ex__": _reduce, "__module__": base.__module__,
                            "__doc__": base.__doc__, "_lucid_parametrized": base}
    return type(f"Parametrized{base.__name__}", (base,), body | {name: _property(name) for name in names})


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations: any, or of one tensor.

    >>> import lucid
    >>> from lucid.nn.utils import parametrize, parametrizations
    >>> layer = parametrizations.weight_norm(lucid.nn.Linear(3, 2))
    >>> parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict) or "_lucid_parametrized" not in type(module).__dict__:
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class that a module had before it was parametrized.

    >>> import lucid
    >>> from lucid.nn.utils import parametrize, parametrizations
    >>> parametrize.type_before_parametrizations(parametrizations.weight_norm(lucid.nn.Linear(3, 2))).__name__
    'Linear'
    """
    return type(module).__dict__.get("_lucid_parametrized", type(module))


# ---- on and off ----


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Module:
    """The module, whose parameter or buffer `tensor_name` is from now on `parametrization(original)`.

    A second parametrization of the same tensor is applied to the result of the first. `right_inverse(value)`,
    where the parametrization has it, gives the original that belongs to the present value; it may return
    several tensors, which `forward` then takes. It is what `module.weight = value` uses. A parametrization
    must keep dtype and shape unless `unsafe`.

    >>> import lucid
    >>> class Symmetric(lucid.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = lucid.nn.Linear(3, 3)
    >>> layer = lucid.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
        return module
    table = next((t for t in (module._parameters, module._buffers) if t.get(tensor_name) is not None), None)
    if table is None:
        raise ValueError(
            f"register_parametrization: {type(module).__name__} has no parameter or buffer {tensor_name!r}"
        )
    original: Any = table[tensor_name]
    made = ParametrizationList([parametrization], original, unsafe)
    made.train(module.training)
    del table[tensor_name]
    if not is_parametrized(module):
        module.register_module("parametrizations", ModuleDict())
    module._modules["parametrizations"][tensor_name] = made  # type: ignore[index]
    _renew_class(module)
    return module


def _renew_class(module: Module) -> None:
    base = type_before_parametrizations(module)
    names = list(module._modules["parametrizations"]._modules)  # type: ignore[union-attr]
    module.__class__ = _subclass(base, names) if names else base


def _append(module: Module, name: str, parametrization: Module, unsafe: bool) -> None:
    found: Any = module._modules["parametrizations"][name]  # type: ignore[index]
    if unsafe:
        found.unsafe = True
    old = getattr(module, name)
    if not found.unsafe:
        _check_same("the parametrization", parametrization(old), old)
        if getattr(parametrization, "right_inverse", None) is not None:
            _check_same("right_inverse", parametrization.right_inverse(old.detach()), old)
    # The new one is the last: its inverse, then those of the others, give the originals.
    if getattr(parametrization, "right_inverse", None) is not None and all(
        getattr(m, "right_inverse", None) is not None for m in found
    ):
        found.right_inverse(parametrization.right_inverse(old.detach()))
    found.append(parametrization)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """The module, whose `tensor_name` is a plain parameter or buffer again.

    It has the parametrized value, or that of the original with leave_parametrized=False (which a
    parametrization of several originals does not allow).

    >>> import lucid
    >>> from lucid.nn.utils import parametrize, parametrizations
    >>> layer = parametrizations.weight_norm(lucid.nn.Linear(3, 2))
    >>> [n for n, _ in parametrize.remove_parametrizations(layer, "weight").named_parameters()]
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"remove_parametrizations: {type(module).__name__} has no parametrization of {tensor_name!r}"
        )
    parametrizations: Any = module._modules["parametrizations"]
    found = parametrizations[tensor_name]
    originals = found._originals()
    first = originals[0]
    trained = any(isinstance(o, Parameter) for o in originals)
    if leave_parametrized:
        value = found().detach().clone()
        if found.is_tensor:
            # The same object as before, for the optimizer that holds it.
            first.data = value
        else:
            first = Parameter(value) if trained else value
    elif not found.is_tensor:
        raise ValueError(
            f"remove_parametrizations: {tensor_name!r} has {found.ntensors} originals and no single value of "
            "before; use leave_parametrized=True"
        )
    del parametrizations[tensor_name]
    _renew_class(module)
    if not len(parametrizations):
        del module._modules["parametrizations"]
    if trained:
        module.register_parameter(tensor_name, first)
    else:
        module.register_buffer(tensor_name, first)
    return module
