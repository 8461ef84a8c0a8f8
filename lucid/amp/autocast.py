"""`autocast`: a region in which each op runs in the precision that suits it.

A region stands in the recorder's interceptor slot (autograd/mode.py), so that outside of one an op pays
nothing. It casts the tensors of an op by its rule (policy.py) and calls on; the casts are recorded, so a
weight's gradient comes back in float32.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd.impl import TensorImpl, leaf_edge
from ..autograd.mode import GRAD, INTERCEPT, mode
from ..autograd.node import Node
from ..autograd.record import RECORDED as F
from ..errors import DtypeError
from ..ops.registry import Op
from ..storage.device import Device
from ..storage.dtype import as_dtype, bfloat16, float16, float32
from ..storage.storage import Storage
from .policy import rule

_F = TypeVar("_F", bound=Callable[..., Any])
_DEFAULT = {"cuda": float16, "cpu": bfloat16}
_LOW = (float16, bfloat16)


class WeightCast(Node):
    """The node of a weight's cached cast. It keeps nothing, so several backward passes may go through it."""

    __slots__ = ("backend", "low")
    node_name = "cast"

    def __init__(self, weight: TensorImpl, low: Any) -> None:
        super().__init__((leaf_edge(weight),))
        self.backend, self.low = weight.storage.backend, low

    def name(self) -> str:
        """The name of an ordinary cast's node."""
        return "CastBackward"

    def apply(self, g: Any) -> Any:
        return (g.astype(float32),)

    def apply_for_graph(self, g: Any) -> Any:
        return (F.cast(g, float32),)


class _Handler:
    """The interceptor of one region: `handler(op, tensors, statics, call)`."""

    __slots__ = ("device_type", "dtype", "rules", "cache")
    # A checkpointed segment runs its second time under the same handler.
    recomputes = True

    def __init__(self, device_type: str, dtype: Any, cache: dict[Any, Any] | None) -> None:
        self.device_type, self.dtype, self.cache = device_type, dtype, cache
        # op -> rule, filled as ops come by.
        self.rules: dict[Op, str | None] = {}

    def __call__(
        self, op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...], call: Callable[..., Any]
    ) -> Any:
        try:
            how = self.rules[op]
        except KeyError:
            how = self.rules[op] = rule(op, self.device_type)
        if how is None:
            return call(tensors, statics)
        if how == "low":
            return call(tuple(map(self._lowered, tensors)), statics)
        if how == "promote":
            mixed = len({self._is_low(t) for t in tensors if self._mine(t)}) > 1
            return call(tuple(map(self._raised, tensors)) if mixed else tensors, statics)
        out = call(tuple(map(self._raised, tensors)), statics)
        return out if how == "full" or not self._is_low(tensors[0]) else _in_dtype(out, tensors[0].dtype)

    def _mine(self, t: Any) -> bool:
        return isinstance(t, TensorImpl) and t.storage.backend.device.type == self.device_type

    def _is_low(self, t: Any) -> bool:
        return self._mine(t) and t.storage.array.dtype in _LOW

    def _raised(self, t: Any) -> Any:
        return F.cast(t, float32) if self._is_low(t) else t

    def _lowered(self, t: Any) -> Any:
        if not self._mine(t):
            return t
        dtype = t.storage.array.dtype
        if dtype is self.dtype or not (dtype is float32 or dtype in _LOW):
            return t
        if self.cache is None or not t.requires_grad or t.edge is not None or dtype is not float32:
            return F.cast(t, self.dtype)
        return self._cached(t)

    def _cached(self, weight: Any) -> Any:
        """The cast of a leaf, made once per region; made anew when the leaf was written to since."""
        # Under no_grad the cast has no history, so it is another entry than the one that training uses.
        key = (id(weight), mode.flags & GRAD)
        storage = weight.storage
        found = self.cache.get(key)  # type: ignore[union-attr]
        if (
            found is not None
            and found[0] is weight
            and found[1] is storage.array
            and found[2] == storage.version
        ):
            return found[3]
        with storage.backend.guard():
            low = storage.array.astype(self.dtype)
        edge = WeightCast(weight, self.dtype) if mode.flags & GRAD else None
        cast = TensorImpl.from_storage(Storage(low, storage.backend), edge)
        self.cache[key] = (weight, storage.array, storage.version, cast)  # type: ignore[index]
        return cast


def _in_dtype(out: Any, dtype: Any) -> Any:
    """The result with its first output in `dtype`."""
    return (F.cast(out[0], dtype), *out[1:]) if isinstance(out, tuple) else F.cast(out, dtype)


class autocast:
    """A context manager or decorator: ops inside run in float16 or bfloat16, float32, or as they are.

    Which ops do what stands in policy.py. device_type: "cuda" or "cpu"; tensors of other devices are left
    alone. dtype: float16 on CUDA and bfloat16 on the CPU when None; float32 disables the region with a
    warning, others are DtypeErrors. enabled=False: the region is as if there were no autocast outside it
    either. cache_enabled: a float32 weight is cast once per outermost region, not
    at each use. Backward runs outside: each gradient has the dtype of its forward value. Regions nest; each
    thread has its own.

    >>> import lucid
    >>> x, w = lucid.ones(2, 3), lucid.ones(4, 3, requires_grad=True)
    >>> with lucid.amp.autocast("cpu", dtype=lucid.bfloat16):
    ...     y = lucid.nn.functional.linear(x, w)
    >>> y.dtype.name
    'bfloat16'
    >>> y.sum().backward()
    >>> w.grad.dtype.name
    'float32'
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        kind = device_type if device_type in _DEFAULT else Device(device_type).type
        if dtype is None:
            dtype = _DEFAULT[kind]
        dtype = as_dtype(dtype)
        if enabled and dtype is float32:
            # Programs that take the dtype from their settings come here with it.
            warnings.warn("autocast: float32 is what ops run in anyway; the region is disabled", stacklevel=2)
            enabled = False
        if enabled and dtype not in _LOW:
            raise DtypeError(
                f"autocast: dtype must be float16 or bfloat16, got {dtype.name}; leave autocast out for it"
            )
        self.device, self.fast_dtype, self.enabled = kind, dtype, bool(enabled)
        self.cache_enabled = True if cache_enabled is None else bool(cache_enabled)
        self._before: list[tuple[Any, ...]] = []

    def __enter__(self) -> autocast:
        before = mode.interceptors
        outer = [h for h in before if isinstance(h, _Handler) and h.device_type == self.device]
        others = tuple(h for h in before if h not in outer)
        self._before.append(before)
        if self.enabled:
            cache = None if not self.cache_enabled else _shared_cache(outer, self.fast_dtype)
            others = (*others, _Handler(self.device, self.fast_dtype, cache))
        _set(others)
        return self

    def __exit__(self, *_: object) -> None:
        _set(self._before.pop())

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.fast_dtype, self.enabled, self.cache_enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def _shared_cache(outer: list[_Handler], dtype: Any) -> dict[Any, Any]:
    # A nested region of the same dtype goes on with the casts of the outer one.
    same = [h.cache for h in outer if h.dtype is dtype and h.cache is not None]
    return same[-1] if same else {}


def _set(handlers: tuple[Any, ...]) -> None:
    mode.interceptors = handlers
    mode.flags = mode.flags | INTERCEPT if handlers else mode.flags & ~INTERCEPT


def _region(device_type: str | None) -> _Handler | None:
    for handler in reversed(mode.interceptors):
        if isinstance(handler, _Handler) and device_type in (None, handler.device_type):
            return handler
    return None


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether ops of this thread are inside a region for `device_type` (any device when None).

    >>> import lucid
    >>> with lucid.amp.autocast("cpu"):
    ...     lucid.amp.is_autocast_enabled("cpu"), lucid.amp.is_autocast_enabled("cuda")
    (True, False)
    """
    return _region(device_type) is not None


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype of the region for `device_type`, or the one that a region would have by default.

    >>> import lucid
    >>> lucid.amp.get_autocast_dtype("cpu")
    dtype(bfloat16)
    """
    region = _region(device_type)
    return _DEFAULT[device_type] if region is None else region.dtype


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast(device_type)` means something: for "cpu" and "cuda".

    >>> import lucid
    >>> lucid.amp.is_autocast_available("cpu")
    True
    """
    return device_type in _DEFAULT
