"""Operations as data: the forward, its formulas, and what follows from their signatures.

See README.md in this folder for the form of an op. Signatures are read here once, at import; nothing on the
per-op path inspects anything.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..storage.backend import Backend, on_new_backend
from .signature import declared

OPS: dict[str, Op] = {}

_RULES = (None, "promote", "float", "compare")
_VALUE_PARAMETERS = ("F", "g")


class A:
    """Describes a sample array: `A(shape, low=, high=, dtype=)` or `A(value=...)`."""

    __slots__ = ("shape", "low", "high", "dtype", "value")

    def __init__(
        self,
        shape: tuple[int, ...] = (),
        low: float | None = None,
        high: float | None = None,
        dtype: str = "float64",
        value: Any = None,
    ) -> None:
        self.shape, self.low, self.high, self.dtype, self.value = shape, low, high, dtype, value

    def __repr__(self) -> str:
        return f"A({self.value!r})" if self.value is not None else f"{self.dtype}{list(self.shape)}"


class Sample:
    """One call of an op for the generated tests: arguments in the order of the signature."""

    __slots__ = ("args", "kwargs", "avoid", "second", "complex")

    def __init__(
        self,
        *args: Any,
        avoid: tuple[float, ...] = (),
        second: bool = True,
        complex: bool = False,
        **kwargs: Any,
    ) -> None:
        self.args, self.kwargs, self.avoid, self.second, self.complex = args, kwargs, avoid, second, complex

    def __repr__(self) -> str:
        parts = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"Sample({', '.join(parts)})"


class Formula:
    """The derivative of an op with respect to one input, or to several that share work."""

    __slots__ = ("targets", "function", "names", "shared")

    def __init__(self, op: Op, targets: tuple[str, ...], function: Callable[..., Any], shared: bool) -> None:
        parameters = tuple(inspect.signature(function).parameters)
        if parameters[:2] != _VALUE_PARAMETERS:
            raise TypeError(f"op {op.name}: a formula starts with (F, g, ...), got ({', '.join(parameters)})")
        known = {
            *op.tensors,
            *op.statics,
            *op.outputs,
            *(f"{t}_{what}" for t in op.tensors for what in ("shape", "dtype")),
        }
        if shared:
            known.add("needs")
        for name in parameters[2:]:
            if name not in known:
                raise TypeError(
                    f"op {op.name}: the formula for {', '.join(targets)} names {name!r}; "
                    f"it may name {', '.join(sorted(known))}"
                )
        # Tracebacks and profiles then say "in tanh.grad[x]" instead of "<lambda>".
        function.__code__ = function.__code__.replace(co_name=f"{op.name}.grad[{','.join(targets)}]")
        self.targets, self.function, self.names, self.shared = targets, function, parameters[2:], shared


class Op:
    """One operation: what `@op` read from a forward function, and the formulas given to it."""

    def __init__(
        self,
        forward: Callable[..., Any],
        *,
        name: str | None = None,
        ufunc: str | None = None,
        dtype: str | None = None,
        broadcast: bool | None = None,
        pointwise: bool = False,
        view: bool | str = False,
        outputs: tuple[str, ...] = ("out",),
        diff: tuple[str, ...] | None = None,
        mask: tuple[str, ...] = (),
        holomorphic: bool = False,
        ordered: bool = False,
        method: bool | str = False,
        inplace: bool = False,
        public: bool = True,
        amp: str | None = None,
        samples: Sequence[Sample] = (),
        reference: Any = None,
        composite: bool = False,
    ) -> None:
        self.name = name or forward.__name__.rstrip("_")
        if dtype not in _RULES:
            raise ValueError(f"op {self.name}: dtype is one of {_RULES}, got {dtype!r}")
        self.forward, self.ufunc, self.dtype = forward, ufunc, dtype
        self.pointwise, self.view, self.outputs = pointwise, view, outputs
        self.broadcast = pointwise if broadcast is None else broadcast
        self.method: str | None = self.name if method is True else (method or None)
        self.inplace, self.public, self.amp = inplace, public, amp
        self.samples, self.reference, self.composite = tuple(samples), reference, composite
        self.doc = inspect.getdoc(forward) or ""
        self.module = forward.__module__
        parameters = list(inspect.signature(forward).parameters.values())[1:]
        self.parameters = parameters
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.tensors = tuple(p.name for p in parameters if p.annotation is p.empty)
        self.optional = frozenset(p.name for p in parameters if p.annotation is p.empty and p.default is None)
        self.statics = tuple(p.name for p in parameters if p.annotation is not p.empty)
        # Tensors that the dtype rule leaves alone (a condition, indices).
        self.mask = mask
        # Formulas written for real arrays; on complex ones the recorder takes conj(formula(conj(g))).
        self.holomorphic = holomorphic
        # It compares numbers by size, which complex ones do not have: the recorder refuses those.
        self.ordered = ordered
        self.diff = tuple(diff) if diff is not None else (outputs if dtype != "compare" else ())
        self.formulas: dict[str, Formula] = {}
        self.accelerated: dict[str, tuple[Callable[..., Any] | None, dict[Any, Callable[..., Any]]]] = {}
        self.plans: dict[int, Any] = {}
        self.record: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join(str(p) for p in self.parameters)})>"

    @property
    def node_name(self) -> str:
        """The name of the op's graph node, as PyTorch would write it: `TanhBackward`."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_")) + "Backward"

    @property
    def differentiable(self) -> bool:
        """Whether some input has a derivative."""
        return self.composite or bool(self.formulas)

    def grad(self, **formulas: Callable[..., Any]) -> Op:
        """The op itself, after giving it one formula per input."""
        for target, function in formulas.items():
            if target not in self.tensors:
                raise TypeError(
                    f"op {self.name}: has no tensor input {target!r} (it has {', '.join(self.tensors)})"
                )
            self.formulas[target] = Formula(self, (target,), function, shared=False)
        return self

    def grads(self, targets: tuple[str, ...], function: Callable[..., Any]) -> Op:
        """The op itself, after giving several inputs one formula that shares work between them."""
        formula = Formula(self, targets, function, shared=True)
        for target in targets:
            self.formulas[target] = formula
        return self

    def accelerate(
        self,
        device: str,
        forward: Callable[..., Any] | None = None,
        grads: dict[Any, Callable[..., Any]] | None = None,
    ) -> Op:
        """The op itself, after registering a faster raw path for one device.

        forward: called like the op's own forward (with `xp` first). grads: input name, or tuple of names, ->
        formula that may also name what only this forward returns. The generic formulas stay: they are the
        `create_graph` path and the reference in tests.
        """
        self.accelerated[device] = (forward, dict(grads or {}))
        self.plans.clear()
        for backend_ in Backend.instances():
            backend_.F.__dict__.pop(self.name, None)
        return self

    def raw(self, backend: Backend) -> Callable[..., Any]:
        """The op as a function on the raw arrays of one device."""
        if self.composite:
            return bind(self.forward, backend.F, self.name)
        forward = self.accelerated.get(backend.name, (None,))[0]
        if forward is not None:
            return bind(forward, backend.bare, self.name)
        if self.ufunc is not None:
            return getattr(backend.bare, self.ufunc)
        return bind(self.forward, backend.bare, self.name)


def bind(function: Callable[..., Any], first: Any, name: str) -> Callable[..., Any]:
    """The function with its first argument given."""
    # A closure with *args costs 160 ns a call; a generated one of the same arity costs 40
    # (bench_overhead: raw call).
    own = declared(list(inspect.signature(function).parameters.values())[1:])
    source = f"def {name}({', '.join(own.parameters)}):\n    return _function(_first, {own.passed})\n"
    scope = {"_function": function, "_first": first, **own.defaults}
    exec(compile(source, f"<lucid raw {name}>", "exec"), scope)
    return scope[name]


class RawNamespace:
    """`F` on raw arrays: op name -> function on the arrays of one device. Filled on first use."""

    def __init__(self, backend: Backend) -> None:
        self.__dict__["backend"] = backend

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op_ = OPS.get(name)
        if op_ is None:
            raise AttributeError(f"F.{name}: there is no op of that name")
        function = self.__dict__[name] = op_.raw(self.__dict__["backend"])
        return function


on_new_backend(RawNamespace)


def _register(op_: Op) -> Op:
    other = OPS.get(op_.name)
    if other is not None:
        raise ValueError(f"op {op_.name} is defined twice: in {other.module} and in {op_.module}")
    OPS[op_.name] = op_
    return op_


def op(**options: Any) -> Callable[[Callable[..., Any]], Op]:
    """A decorator that makes an op of a forward function `f(xp, tensors..., statics...)`."""
    return lambda forward: _register(Op(forward, **options))


def composite(**options: Any) -> Callable[[Callable[..., Any]], Op]:
    """A decorator that makes an op of a function `f(F, tensors..., statics...)` written in other ops."""
    return lambda forward: _register(Op(forward, composite=True, **options))


def reference_of(op_: Op) -> Callable[..., Any] | None:
    """The independent implementation that an op's tests compare with, or None."""
    if isinstance(op_.reference, str):
        module, _, name = op_.reference.partition(":")
        return getattr(importlib.import_module(module), name)
    return op_.reference
