"""Modules that hold modules or parameters."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from ..errors import IndexRangeError
from ..tensor import Tensor
from .module import Module, _indent
from .parameter import Parameter


def _place(owner: Any, index: Any, size: int) -> int:
    # `index` counted from the front; IndexRangeError outside.
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexRangeError(f"{type(owner).__name__}: index {i} is out of range for {size} entries")
    return i % size


class _Numbered(Module):
    """Children under the names "0", "1", ...: what Sequential and ModuleList share."""

    def _values(self) -> list[Module]:
        return list(self._modules.values())  # type: ignore[arg-type]

    def _replace(self, modules: Iterable[Module]) -> None:
        new: dict[str, Module | None] = {}
        for i, m in enumerate(modules):
            if not isinstance(m, Module):
                raise TypeError(f"{type(self).__name__}: entry {i} must be a Module, got {type(m).__name__}")
            new[str(i)] = m
        self.__dict__["_modules"] = new

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._like(list(self._modules.items())[index])
        return self._values()[_place(self, index, len(self))]

    def _like(self, items: list[tuple[str, Any]]) -> Any:
        return type(self)([m for _, m in items])  # type: ignore[call-arg]

    def __setitem__(self, index: Any, module: Module) -> None:
        name = list(self._modules)[_place(self, index, len(self))]
        setattr(self, name, module)

    def __delitem__(self, index: Any) -> None:
        values = self._values()
        if isinstance(index, slice):
            del values[index]
        else:
            del values[_place(self, index, len(self))]
        self._replace(values)

    def __dir__(self) -> list[str]:
        return [n for n in super().__dir__() if not n.isdigit()]

    def append(self, module: Module) -> Self:
        """The container itself, with one module more at its end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """The container itself, with more modules at its end."""
        for m in list(modules):
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """The container itself, with a module before position `index`."""
        values = self._values()
        if not -len(values) <= index <= len(values):
            raise IndexRangeError(f"{type(self).__name__}: index {index} is out of range for {len(values)} "
                                  "entries")
        values.insert(index, module)
        self._replace(values)
        return self

    def pop(self, index: int = -1) -> Module:
        """The module at `index`, which is taken out."""
        module = self[index]
        del self[index]
        return module

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)


class Sequential(_Numbered):
    """Applies its modules one after the other. Takes modules, or one dictionary of named modules.

    >>> import lucid
    >>> model = lucid.nn.Sequential(lucid.nn.Linear(4, 3), lucid.nn.ReLU(), lucid.nn.Linear(3, 2))
    >>> model(lucid.zeros(5, 4)).shape
    (5, 2)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        single = len(args) == 1 and isinstance(args[0], Mapping)
        for name, module in args[0].items() if single else enumerate(args):
            self.add_module(str(name), module)

    def _like(self, items: list[tuple[str, Any]]) -> Any:
        return type(self)(dict(items))

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        if times <= 0:
            raise ValueError(f"Sequential: can be repeated 1 or more times, got {times}")
        return Sequential(*(m for _ in range(times) for m in self))

    __rmul__ = __mul__


class ModuleList(_Numbered):
    """A list of modules that registers them.

    >>> import lucid
    >>> layers = lucid.nn.ModuleList([lucid.nn.Linear(2, 2) for _ in range(3)])
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def insert(self, index: int, module: Module) -> None:
        """Nothing; puts a module before position `index`."""
        super().insert(index, module)

    def __repr__(self) -> str:
        # Equal neighbours are printed once, as PyTorch does.
        groups: list[list[Any]] = []
        for i, text in enumerate(repr(m) for m in self):
            if groups and groups[-1][2] == text:
                groups[-1][1] = i
            else:
                groups.append([i, i, text])
        if not groups:
            return f"{self._get_name()}()"
        lines = [f"({a}): {_indent(t)}" if a == b else f"({a}-{b}): {b - a + 1} x {_indent(t)}" for a, b,
                 t in groups]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules that registers them.

    >>> import lucid
    >>> heads = lucid.nn.ModuleDict({"a": lucid.nn.Linear(2, 1), "b": lucid.nn.Linear(2, 3)})
    >>> heads["b"](lucid.zeros(5, 2)).shape
    (5, 3)
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Nothing; takes all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """The module under `key`, which is taken out."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The keys."""
        return self._modules.keys()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def items(self) -> Any:
        """(key, module) pairs."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Nothing; adds modules, replacing those with the same keys."""
        for key, module in modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules:
            self[key] = module


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key: str, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    size = "x".join(map(str, value.shape)) if value.ndim else ""
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    place = f" ({value.device})" if value.is_cuda else ""
    return f"  ({key}): {kind} containing: [lucid.{value.dtype.name} of size {size}{place}]"


class ParameterList(Module):
    """A list of parameters that registers them; tensors become parameters.

    >>> import lucid
    >>> weights = lucid.nn.ParameterList([lucid.zeros(2), lucid.zeros(3)])
    >>> [p.shape for p in weights.parameters()]
    [(2,), (3,)]
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._size))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ParameterList([self[i] for i in range(self._size)[index]])
        return getattr(self, str(_place(self, index, self._size)))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_place(self, index, self._size)), _as_parameter(value))

    def append(self, value: Any) -> Self:
        """The list itself, with one value more at its end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """The list itself, with more values at its end."""
        for value in list(values):
            self.append(value)
        return self

    __iadd__ = extend

    def __dir__(self) -> list[str]:
        return [n for n in super().__dir__() if not n.isdigit()]

    def extra_repr(self) -> str:
        return "\n".join(_line(str(i), v) for i, v in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters that registers them; tensors become parameters.

    >>> import lucid
    >>> weights = lucid.nn.ParameterDict({"scale": lucid.ones(2)})
    >>> weights["scale"].requires_grad
    True
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __or__(self, other: Any) -> ParameterDict:
        new = self.copy()
        new.update(other)
        return new

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def values(self) -> list[Any]:
        """The values."""
        return [self[k] for k in self._keys]

    def items(self) -> list[tuple[str, Any]]:
        """(key, value) pairs."""
        return [(k, self[k]) for k in self._keys]

    def get(self, key: str, default: Any = None) -> Any:
        """The value under `key`, or the default."""
        return self[key] if key in self._keys else default

    def pop(self, key: str) -> Any:
        """The value under `key`, which is taken out."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """The last (key, value), which is taken out."""
        if not self._keys:
            raise KeyError("ParameterDict: popitem of an empty dictionary")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under `key`, which is `default` from now on where there was none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dictionary with these keys and one value."""
        return ParameterDict((k, default) for k in keys)

    def copy(self) -> ParameterDict:
        """A new dictionary of the same values."""
        return ParameterDict(self.items())

    def clear(self) -> None:
        """Nothing; takes all values out."""
        for key in list(self._keys):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Nothing; adds values, replacing those with the same keys."""
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_line(k, v) for k, v in self.items())
