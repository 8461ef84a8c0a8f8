"""RECORDED: op name -> function on tensors that runs the op and records its node.

Each recorder is generated for its op's signature (template.py), at its first use. The generated function is
the whole per-op path: read the arrays, run the forward, make a Tensor, and when an input
requires grad one FuncOp (bench_overhead: record). For ops of one or two tensors the node is built inline,
once per needs-grad mask; longer ones call `build`. Print `template.source` of an op to see one.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..errors import DeviceError, LucidError, ShapeError
from ..ops.common import need_order
from ..ops.describe import document
from ..ops.registry import OPS, Op
from ..ops.signature import declared, shown
from ..storage.backend import backend_of
from ..storage.dtype import bfloat16, complex64, complex128, get_default_dtype, result_type
from ..storage.numpy_backend import NumpyBackend, is_busy
from ..storage.storage import Storage, ViewStorage
from .arguments import RAW
from .impl import TensorImpl, describe, leaf_edge, rebuild
from .mode import ANOMALY, GRAD, INTERCEPT, get_flags, mode
from .node import BarrierOp, FuncOp, Port, next_sequence_nr
from .operands import explained, operand
from .plan import NONE, Plan, compile_source
from .template import keywords, source


class Recorded:
    """`F` on tensors: op name -> recording function. Filled on first use."""

    def __getattr__(self, name: str) -> Any:
        op = OPS.get(name)
        if op is None:
            raise AttributeError(f"F.{name}: there is no op of that name")
        function = self.__dict__[name] = recorder(op)
        return function


RECORDED = Recorded()


def recorder(op: Op) -> Any:
    """The public function of an op: runs it on tensors and records it."""
    if op.record is None:
        op.record = _composite(op) if op.composite else _generate(op)
        op.record.__doc__, op.record.__module__ = document(op), "lucid"
        op.record.__qualname__ = op.record.__name__ = op.name
        if not op.composite and any(p.name == "dim" and p.default is p.empty for p in op.parameters):
            setattr(op.record, "__signature__", shown(op.parameters, keywords(op)))  # noqa: B010  (for help())
    return op.record


def _composite(op: Op) -> Any:
    """The op as a function on tensors, made of recorded ops. One with a rule for autocast asks it first."""
    own = declared(op.parameters)
    tensors = op.tensors[0] if op.variadic else f"({', '.join(op.tensors)},)"
    statics = f"({', '.join(op.statics)},)" if op.statics else "()"
    lines = [
        f"def {op.name}({', '.join(own.parameters)}):",
        "    try:",
        f"        if get_flags() & {INTERCEPT}: return composed(OP, {tensors}, {statics})",
        f"        return forward(F, {own.passed})",
        "    except RAW as _error:",
        f"        refuse(OP, _error, {tensors}, {statics})",
        "        raise",
    ]
    if op.amp is None:
        del lines[2]
    scope = dict(_SCOPE, OP=op, forward=op.forward, F=RECORDED, RAW=RAW, refuse=_refuse, composed=composed)
    return compile_source("\n".join(lines) + "\n", op.name, scope | own.defaults)


def _refuse(op: Op, error: Exception, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> None:
    """Nothing; raises why a composite failed, in its words, unless `error` says so itself."""
    if isinstance(error, LucidError):
        return
    for i, t in enumerate(tensors):
        if not isinstance(t, TensorImpl) and not (t is None and _optional(op, i)):
            operand(op, t, ())
    raise explained(op, error, tensors, statics) from error


def composed(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The result of an op made of others under autocast, which casts its inputs and leaves the ops within
    alone; profiler and anomaly mode see those.
    """
    before, flags = mode.interceptors, mode.flags
    casting = [h for h in before if getattr(h, "recomputes", False)]
    others = tuple(h for h in before if h not in casting)
    mode.interceptors = others
    mode.flags = flags if others else flags & ~INTERCEPT
    try:

        def call(ts: tuple[Any, ...], st: tuple[Any, ...], depth: int = len(casting)) -> Any:
            if depth:
                return casting[depth - 1](op, ts, st, lambda t, s: call(t, s, depth - 1))
            return _run_composed(op, ts, st)

        return call(tensors, statics)
    finally:
        mode.interceptors, mode.flags = before, flags


def _run_composed(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    args, keywords = _arguments(op, tensors, statics)
    return op.forward(RECORDED, *args, **keywords)


def _generate(op: Op) -> Any:
    scope = dict(_SCOPE, OP=op, Tensor=TensorImpl.tensor_class, Parameter=PARAMETER[0], CPU=CPU)
    scope["raw_cpu"] = getattr(CPU.F, op.name)
    return compile_source(source(op, scope, plan_of), op.name, scope)


# ---- what the generated functions call off the fast path ----


def plan_of(op: Op, mask: int) -> Plan:
    """The plan of one needs-grad mask, made at first use."""
    plan = op.plans.get(mask)
    if plan is None:
        plan = op.plans[mask] = Plan(op, mask)
        plan.rebuild, plan.graph_F, plan.graph_wrap = rebuild, RECORDED, TensorImpl.from_storage
    return plan


def build(
    op: Op,
    mask: int,
    tensors: tuple[Any, ...],
    storages: tuple[Any, ...],
    statics: tuple[Any, ...],
    outs: tuple[Any, ...],
    backend: Any,
) -> FuncOp:
    """The node of an op whose forward has run, set as the edge of its differentiable outputs."""
    plan = plan_of(op, 1 if op.variadic else mask)
    several = len(op.diff) > 1
    n: Any = BarrierOp.__new__(BarrierOp) if several else FuncOp.__new__(FuncOp)
    if op.holomorphic and outs[0].storage.array.dtype.kind == "c":
        plan = plan.conjugated
    elif not several and not op.variadic and not op.optional and outs[0].storage.array.dtype is bfloat16:
        plan = plan.low
    n.plan, n.F, n.hooks = plan, backend.F, None
    named = dict(zip(op.outputs, outs, strict=True))
    values = dict(zip(op.statics, statics, strict=True))
    if op.variadic:
        name = op.tensors[0]
        pick: dict[str, Any] = {name: _Several(storages)}
        values[f"{name}_shape"] = tuple(s.array.shape for s in storages)
        values[f"{name}_dtype"] = tuple(s.array.dtype for s in storages)
        n.edges = tuple((t.edge or leaf_edge(t)) if t._requires_grad else None for t in tensors)
    else:
        pick = dict(zip(op.tensors, storages, strict=True))
        for name, s in pick.items():
            values[f"{name}_shape"] = None if s is NONE else s.array.shape
            values[f"{name}_dtype"] = None if s is NONE else s.array.dtype
        by_name = dict(zip(op.tensors, tensors, strict=True))
        n.edges = tuple(by_name[t].edge or leaf_edge(by_name[t]) for t in plan.targets)
    n.saved = tuple(pick[k] if k in pick else named[k].storage for k in plan.keep)
    versions = tuple(s.version for s in n.saved)
    n.versions = versions if any(versions) else 0
    n.static = tuple(values[k] for k in plan.static)
    n.shapes = tuple(values[f"{t}_shape"] for t in op.tensors) if op.broadcast else None
    n.sequence_nr = next_sequence_nr()
    if several:
        n.meta = tuple((named[d].storage.array.shape, named[d].storage.array.dtype) for d in op.diff)
        for i, d in enumerate(op.diff):
            named[d].edge, named[d]._requires_grad = Port(n, i), True
    else:
        named[op.diff[0]].edge, named[op.diff[0]]._requires_grad = n, True
    return n


class _Several(tuple[Any, ...]):
    """The storages of a variadic op's tensors, saved as one value."""

    __slots__ = ()

    @property
    def version(self) -> int:
        return sum(s.version for s in self)

    @property
    def array(self) -> Any:
        return self[0].array

    @property
    def backend(self) -> Any:
        return self[0].backend


def general(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The result of any op: the recorder without code made for its arity."""
    flags = mode.flags
    if flags > 1:
        return intercepted(op, tensors, statics, flags)
    if op.variadic and not tensors:
        raise ShapeError(f"{op.name}: expected at least one tensor, got none")
    for i, t in enumerate(tensors):
        if not isinstance(t, TensorImpl) and not (t is None and _optional(op, i)):
            return with_tensors(op, tensors, statics)
    backend = next(t for t in tensors if t is not None).storage.backend
    present = [t for t in tensors if t is not None]
    if (
        any(t.storage.backend is not backend for t in present)
        or op.dtype is not None
        and _differ(op, tensors)
    ):
        return unified(op, tensors, statics)
    if op.dtype == "float" and present[0].storage.array.dtype.num < 11:
        return floated(op, tensors, statics)
    storages = tuple(NONE if t is None else t.storage for t in tensors)
    try:
        arrays = _run_raw(op, backend, storages, statics)
    except Exception as error:
        raise explained(op, error, tensors, statics) from error
    outs = tuple(
        _output(op, a, tensors, statics, backend) for a in (arrays if len(op.outputs) > 1 else (arrays,))
    )
    if flags and op.formulas:
        if op.variadic:
            mask = int(any(t._requires_grad for t in tensors))
        else:
            mask = sum(
                1 << i
                for i, (n, t) in enumerate(zip(op.tensors, tensors, strict=True))
                if t is not None and t._requires_grad and n in op.formulas
            )
        if mask:
            build(op, mask, tensors, storages, statics, outs, backend)
    return outs if len(op.outputs) > 1 else outs[0]


def _differ(op: Op, tensors: tuple[Any, ...]) -> bool:
    """Whether the tensors under the op's dtype rule have different dtypes."""
    names = op.tensors * (len(tensors) if op.variadic else 1)
    return (
        len(
            {
                t.storage.array.dtype
                for n, t in zip(names, tensors, strict=True)
                if t is not None and n not in op.mask
            }
        )
        > 1
    )


def _run_raw(op: Op, backend: Any, storages: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    args, keywords = _arguments(op, tuple(s.array for s in storages), statics)
    return backend.quietly(getattr(backend.F, op.name), *args, **keywords)


def failed(op: Op, error: Exception, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The raw result of an op whose forward raised `error`: run again where another thread was in the way,
    else the error is raised in the op's words.
    """
    if not is_busy(error):
        raise explained(op, error, tensors, statics) from error
    try:
        return _run_raw(op, CPU, tuple(NONE if t is None else t.storage for t in tensors), statics)
    except Exception as other:
        raise explained(op, other, tensors, statics) from other


def _output(op: Op, array: Any, tensors: tuple[Any, ...], statics: tuple[Any, ...], backend: Any) -> Any:
    if type(array) is not backend.ndarray:
        array = backend.asarray(array)
    if op.view and backend.xp.may_share_memory(array, tensors[0].storage.array):
        out = TensorImpl.from_storage(ViewStorage(array, tensors[0].storage))
        out.base = (tensors[0], None if len(op.outputs) > 1 else op, statics)
        note_view(out.storage.root, out)
        return out
    return TensorImpl.from_storage(Storage(array, backend))


def note_view(root: Storage, view: Any) -> None:
    """Nothing; remembers a view, so that an in-place write can renew its place in the graph."""
    views = root.views
    if views is None:
        root.views = [weakref.ref(view)]
        return
    views.append(weakref.ref(view))
    # Parameters are viewed anew in every step: forget dead views each time the list has doubled.
    if len(views) >= 16 and not len(views) & (len(views) - 1):
        views[:] = [v for v in views if v() is not None]


def _optional(op: Op, i: int) -> bool:
    """Whether tensor `i` of an op may be None."""
    return not op.variadic and op.tensors[i] in op.optional


def with_tensors(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The op's result after numbers and NumPy arrays among its tensors became
    tensors; raises for anything else.
    """
    others = tuple(t for t in tensors if isinstance(t, TensorImpl))
    ready = tuple(
        t if isinstance(t, TensorImpl) or (t is None and _optional(op, i)) else operand(op, t, others)
        for i, t in enumerate(tensors)
    )
    return _call(op, ready, statics)


def _call(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    args, keywords = _arguments(op, tensors, statics)
    return recorder(op)(*args, **keywords)


def _arguments(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    """(positional, keyword) arguments of an op's function."""
    if op.variadic:
        return tensors, dict(zip(op.statics, statics, strict=True))
    values = dict(zip(op.tensors, tensors, strict=True)) | dict(zip(op.statics, statics, strict=True))
    args = [values[p.name] for p in op.parameters if p.kind is not p.KEYWORD_ONLY]
    return args, {p.name: values[p.name] for p in op.parameters if p.kind is p.KEYWORD_ONLY}


def unified(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The op's result after its tensors were brought to one device and, where the op asks for it, one dtype.
    """
    present = [t for t in tensors if t is not None]
    backends = {t.storage.backend for t in present if t.ndim}
    backend = backends.pop() if backends else present[0].storage.backend
    if backends:
        raise DeviceError(
            f"{op.name}: expected all tensors on one device, got {', '.join(describe(t) for t in present)}; "
            "move them with .to(device)"
        )
    if any(t.storage.backend is not backend for t in present):
        # A 0-d tensor may meet tensors of another device, as in PyTorch.
        tensors = tuple(
            t if t is None or t.storage.backend is backend else t.to(backend.device) for t in tensors
        )
    if op.dtype is not None:
        names = op.tensors * (len(tensors) if op.variadic else 1)
        ruled = [n not in op.mask and t is not None for n, t in zip(names, tensors, strict=True)]
        dtype = result_type(
            [(t.storage.array.dtype, 2 if t.ndim else 1) for t, r in zip(tensors, ruled, strict=True) if r]
        )
        tensors = tuple(
            t if not r or t.storage.array.dtype is dtype else RECORDED.cast(t, dtype)
            for t, r in zip(tensors, ruled, strict=True)
        )
        if op.dtype == "float" and dtype.num < 11:
            return floated(op, tensors, statics)
    return _call(op, tensors, statics)


def floated(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The op's result after integer tensors became the default float."""
    dtype = get_default_dtype()
    return _call(
        op,
        tuple(
            t if t is None or t.storage.array.dtype.num >= 11 else RECORDED.cast(t, dtype) for t in tensors
        ),
        statics,
    )


def intercepted(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...], flags: int) -> Any:
    """The op's result when autocast, the profiler or anomaly mode listen in this thread."""
    handlers = mode.interceptors if flags & INTERCEPT else ()
    mode.flags = flags & GRAD
    try:

        def call(ts: tuple[Any, ...], st: tuple[Any, ...], depth: int = len(handlers)) -> Any:
            if depth:
                return handlers[depth - 1](op, ts, st, lambda t, s: call(t, s, depth - 1))
            return general(op, ts, st) if op.variadic else _call(op, ts, st)

        out = call(tensors, statics)
    finally:
        mode.flags = flags
    if flags & ANOMALY:
        from .anomaly import note

        note(out)
    return out


PARAMETER: list[Any] = [None]  # the Parameter class, once lucid.tensor has made it


def _written(*args: Any) -> Any:
    from .out import written  # which itself needs the in-place checks, and they the recorder

    return written(*args)


CPU: NumpyBackend = backend_of("cpu")  # type: ignore[assignment]
_SCOPE: dict[str, Any] = {
    "get_flags": get_flags,
    "Storage": Storage,
    "ViewStorage": ViewStorage,
    "FuncOp": FuncOp,
    "NONE": NONE,
    "ndarray": np.ndarray,
    "new_storage": Storage.__new__,
    "new_view": ViewStorage.__new__,
    "new_node": FuncOp.__new__,
    "new_tensor": TensorImpl.__new__,
    "next_sequence_nr": next_sequence_nr,
    "leaf_edge": leaf_edge,
    "build": build,
    "general": general,
    "intercepted": intercepted,
    "operand": operand,
    "with_tensors": with_tensors,
    "unified": unified,
    "floated": floated,
    "C64": complex64,
    "C128": complex128,
    "BF16": bfloat16,
    "failed": failed,
    "written": _written,
    "run_quiet": CPU.run,
    "note_view": note_view,
    "need_order": need_order,
}
