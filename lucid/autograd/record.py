"""RECORDED: op name -> function on tensors that runs the op and records its node.

Each recorder is generated for its op's signature from the pieces below, at its first use. The generated function is the whole per-op
path: read the storages, run the forward, make a Storage and a Tensor, and when an input requires grad one FuncOp (bench_overhead: record). For
ops of one or two tensors the node is built inline, once per needs-grad mask; longer ones call `build`. Print `source(OPS["mul"])` to see one.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..errors import DeviceError, DtypeError, IndexRangeError, LucidError, ShapeError
from ..ops.registry import OPS, Op
from ..storage.backend import backend_of
from ..storage.dtype import category, complex64, complex128, get_default_dtype, of_number, result_type
from ..storage.storage import Storage, ViewStorage
from .impl import TensorImpl, describe, leaf_edge, rebuild
from .mode import ANOMALY, GRAD, INTERCEPT, mode
from .node import BarrierOp, FuncOp, Port, next_sequence_nr
from .plan import NONE, Plan, compile_source

_INLINE = 2  # tensors up to which the node is built inline
_NUMBERS = (int, float, bool, complex)


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
        op.record.__doc__, op.record.__module__ = op.doc, "lucid"
        op.record.__qualname__ = op.record.__name__ = op.name
    return op.record


def _composite(op: Op) -> Any:
    from ..ops.registry import _bind
    return _bind(op.forward, RECORDED, op.name)


# ---- the generated source ----

def _signature(op: Op, scope: dict[str, Any]) -> str:
    parts, keyword_only = [], False
    for p in op.parameters:
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{p.name}")
            keyword_only = True
            continue
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        if p.default is p.empty:
            parts.append(p.name)
        else:
            scope[f"_d_{p.name}"] = p.default
            parts.append(f"{p.name}=_d_{p.name}")
    aliases = [(a, b) for a, b in (("axis", "dim"), ("keepdims", "keepdim")) if b in op.statics]
    if aliases and not keyword_only:
        parts.append("*")
    parts += [f"{alias}=None" for alias, _ in aliases]
    return ", ".join(parts)


def _call_arguments(op: Op, tensors: dict[str, str]) -> str:
    """The op's arguments in order, tensors replaced by the given expressions."""
    parts, keyword = [], False
    for p in op.parameters:
        value = tensors.get(p.name, p.name)
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{value}")
            keyword = True
        elif keyword or p.kind is p.KEYWORD_ONLY:
            parts.append(f"{p.name}={value}")
        else:
            parts.append(value)
    return ", ".join(parts)


def _enter(op: Op) -> list[str]:
    """Aliases, the feature slot, operands that are not tensors."""
    t = op.tensors
    lines = [f"    if {a} is not None: {b} = {a}" for a, b in (("axis", "dim"), ("keepdims", "keepdim")) if b in op.statics]
    statics = ", ".join(op.statics) + ("," if op.statics else "")
    lines.append("    _flags = mode.flags")
    lines.append(f"    if _flags > 1: return intercepted(OP, ({', '.join(t)},), ({statics}), _flags)")
    if op.broadcast and len(t) > 1 and op.dtype is not None:
        for i, name in enumerate(t):
            others = ", ".join(t[:i] + t[i + 1:])
            absent = f" and {name} is not None" if name in op.optional else ""
            lines.append(f"    if type({name}) is not Tensor and type({name}) is not Parameter{absent}: {name} = operand(OP, {name}, ({others},))")
    lines.append("    try:")
    for i, name in enumerate(t):
        absent = f" if {name} is not None else NONE" if name in op.optional else ""
        lines.append(f"        _s{i} = {name}.storage{absent}")
    lines.append(f"    except AttributeError: return with_tensors(OP, ({', '.join(t)},), ({statics}))")
    lines += [f"    _a{i} = _s{i}.array" for i in range(len(t))]
    lines.append(f"    _b = _s{0 if t[0] not in op.optional else next(i for i, n in enumerate(t) if n not in op.optional)}.backend")
    conditions = []
    ruled = [i for i, name in enumerate(t) if name not in op.mask]
    for i, name in enumerate(t[1:], 1):
        same_device = f"_s{i}.backend is not _b"
        conditions.append(f"(_s{i} is not NONE and {same_device})" if name in op.optional else same_device)
        if op.dtype is not None and i in ruled[1:]:
            first = f"_a{ruled[0]}.dtype is not _a{i}.dtype"
            conditions.append(first if name not in op.optional else f"(_s{i} is not NONE and {first})")
    if conditions:
        lines.append(f"    if {' or '.join(conditions)}: return unified(OP, ({', '.join(t)},), ({statics}))")
    if op.dtype == "float":
        # numpy's type numbers below 11 are bool and the integers; a tensor that requires grad is no integer.
        lines.append(f"    if not {t[0]}.requires_grad and _a0.dtype.num < 11: return floated(OP, ({', '.join(t)},), ({statics}))")
    return lines


def _forward(op: Op) -> list[str]:
    arrays = {n: f"_a{i}" for i, n in enumerate(op.tensors)}
    call = _call_arguments(op, arrays)
    failed = f"    except Exception as _error: raise explained(OP, _error, ({', '.join(op.tensors)},), ({''.join(s + ', ' for s in op.statics)})) from _error"
    return ["    try:", f"        _a = (raw_cpu if _b is CPU else _b.F.{op.name})({call})", failed]


def _new_tensor(op: Op) -> list[str]:
    lines = ["    if type(_a) is not ndarray and type(_a) is not _b.ndarray: _a = _b.asarray(_a)", "    _out = new_tensor(Tensor)"]
    statics = "".join(s + ", " for s in op.statics)
    if op.view:
        # A view of contiguous memory is sure to share it, unless the op says "maybe".
        sure = "" if op.view == "maybe" else "_a0.flags.c_contiguous or "
        lines += [f"    if {sure}_b.xp.may_share_memory(_a, _a0):",
                  "        _s = _out.storage = new_view(ViewStorage); _s.array = _a; _s.root = _s0.root; _s.backend = _b",
                  f"        _out.base = ({op.tensors[0]}, OP, ({statics}))",
                  "        note_view(_s.root, _out)",
                  "    else:",
                  "        _s = _out.storage = new_storage(Storage); _s.array = _a; _s.version = 0; _s.backend = _b; _s.views = None; _out.base = None"]
    else:
        lines.append("    _s = _out.storage = new_storage(Storage); _s.array = _a; _s.version = 0; _s.backend = _b; _s.views = None; _out.base = None")
    lines.append("    _out.grad = _out.accumulate = None")
    return lines


def _node_inline(op: Op, mask: int, plan: Plan, indent: str) -> list[str]:
    """The statements that make the node for one mask."""
    storage = {n: f"_s{i}" for i, n in enumerate(op.tensors)} | {op.outputs[0]: "_s"}
    kept = [storage[n] for n in plan.keep]
    static = [f"_a{op.tensors.index(n[:-6])}.{n[-5:]}" if n[-6:] in ("_shape", "_dtype") and n[:-6] in op.tensors else n for n in plan.static]
    lines = [f"_n = new_node(FuncOp); _n.plan = plan{mask}; _n.F = _b.F; _n.hooks = None"]
    if kept:
        lines.append(f"_n.saved = ({', '.join(kept)},); _n.versions = ({' + '.join(f'{k}.version' for k in kept)}) and ({', '.join(f'{k}.version' for k in kept)},)")
    else:
        lines.append("_n.saved = (); _n.versions = 0")
    if static:
        lines.append(f"_n.static = ({', '.join(static)},)")
    if op.broadcast:
        shapes = [f"_a{i}.shape" for i in range(len(op.tensors))]
        lines.append(f"_n.shapes = None if {shapes[0]} == {shapes[1]} else ({', '.join(shapes)})" if len(shapes) == 2 else "_n.shapes = None")
    edges = [f"{t}.edge or leaf_edge({t})" for t in plan.targets]
    lines.append(f"_n.edges = ({', '.join(edges)},); _n.sequence_nr = next_sequence_nr()")
    if op.holomorphic:
        lines.append("_d = _a.dtype")
        lines.append("if _d is C64 or _d is C128: _n.plan = _n.plan.conjugated")
    lines.append("_out.edge = _n; _out.requires_grad = True; return _out")
    return [indent + line for line in lines]


def _generate(op: Op) -> Any:
    t = op.tensors
    scope = dict(_SCOPE, OP=op, Tensor=TensorImpl.tensor_class, Parameter=_PARAMETER[0] if _PARAMETER else None, CPU=CPU)
    scope["raw_cpu"] = getattr(CPU.F, op.name)
    head = f"def {op.name}({_signature(op, scope)}):"
    if op.variadic or len(op.outputs) > 1:
        return compile_source("\n".join([head, *_general(op)]), op.name, scope)
    lines = [head, *_enter(op), *_forward(op), *_new_tensor(op)]
    diff = [i for i, n in enumerate(t) if n in op.formulas]
    if diff and len(t) <= _INLINE and not op.optional:
        for mask in range(1, 1 << len(t)):
            if all(mask >> i & 1 and i in diff for i in range(len(t)) if mask >> i & 1):
                scope[f"plan{mask}"] = plan_of(op, mask)
        lines.append("    if _flags:")
        if len(t) == 1 or len(diff) == 1:
            i = diff[0]
            lines += [f"        if {t[i]}.requires_grad:", *_node_inline(op, 1 << i, scope[f"plan{1 << i}"], " " * 12)]
        else:
            lines += [f"        if {t[0]}.requires_grad:", f"            if {t[1]}.requires_grad:", *_node_inline(op, 3, scope["plan3"], " " * 16),
                      *_node_inline(op, 1, scope["plan1"], " " * 12), f"        elif {t[1]}.requires_grad:", *_node_inline(op, 2, scope["plan2"], " " * 12)]
    elif diff:
        bits = " | ".join(_bit(op, i) for i in diff)
        lines += ["    if _flags:", f"        _mask = {bits}", "        if _mask:",
                  f"            build(OP, _mask, ({', '.join(t)},), ({', '.join(f'_s{i}' for i in range(len(t)))},), ({''.join(x + ', ' for x in op.statics)}), (_out,), _b)",
                  "            return _out"]
    lines.append("    _out.edge = None; _out.requires_grad = False; return _out")
    return compile_source("\n".join(lines), op.name, scope)


def _bit(op: Op, i: int) -> str:
    name = op.tensors[i]
    return f"({name} is not None and {name}.requires_grad) << {i}" if name in op.optional else f"{name}.requires_grad << {i}"


def _general(op: Op) -> list[str]:
    """The body for ops of any number of tensors or several outputs."""
    tensors = f"tuple({op.tensors[0]})" if op.variadic else f"({', '.join(op.tensors)},)"
    statics = f"({''.join(s + ', ' for s in op.statics)})"
    aliases = [f"    if {a} is not None: {b} = {a}" for a, b in (("axis", "dim"), ("keepdims", "keepdim")) if b in op.statics]
    return [*aliases, f"    return general(OP, {tensors}, {statics})"]


# ---- what the generated functions call off the fast path ----

def plan_of(op: Op, mask: int) -> Plan:
    """The plan of one needs-grad mask, made at first use."""
    plan = op.plans.get(mask)
    if plan is None:
        plan = op.plans[mask] = Plan(op, mask)
        plan.rebuild, plan.graph_F, plan.graph_wrap = rebuild, RECORDED, TensorImpl.from_storage
    return plan


def build(op: Op, mask: int, tensors: tuple[Any, ...], storages: tuple[Any, ...], statics: tuple[Any, ...], outs: tuple[Any, ...], backend: Any) -> FuncOp:
    """The node of an op whose forward has run, set as the edge of its differentiable outputs."""
    plan = plan_of(op, 1 if op.variadic else mask)
    several = len(op.diff) > 1
    n: Any = BarrierOp.__new__(BarrierOp) if several else FuncOp.__new__(FuncOp)
    if op.holomorphic and outs[0].storage.array.dtype.kind == "c":
        plan = plan.conjugated
    n.plan, n.F, n.hooks = plan, backend.F, None
    named = dict(zip(op.outputs, outs, strict=True))
    values = dict(zip(op.statics, statics, strict=True))
    if op.variadic:
        name = op.tensors[0]
        pick: dict[str, Any] = {name: _Several(storages)}
        values[f"{name}_shape"] = tuple(s.array.shape for s in storages)
        values[f"{name}_dtype"] = tuple(s.array.dtype for s in storages)
        n.edges = tuple((t.edge or leaf_edge(t)) if t.requires_grad else None for t in tensors)
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
            named[d].edge, named[d].requires_grad = Port(n, i), True
    else:
        named[op.diff[0]].edge, named[op.diff[0]].requires_grad = n, True
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
    for t in tensors:
        if not isinstance(t, TensorImpl) and t is not None:
            return with_tensors(op, tensors, statics)
    backend = next(t for t in tensors if t is not None).storage.backend
    present = [t for t in tensors if t is not None]
    if any(t.storage.backend is not backend for t in present) or op.dtype is not None and _differ(op, tensors):
        return unified(op, tensors, statics)
    if op.dtype == "float" and present[0].storage.array.dtype.num < 11:
        return floated(op, tensors, statics)
    storages = tuple(NONE if t is None else t.storage for t in tensors)
    try:
        arrays = _run_raw(op, backend, storages, statics)
    except Exception as error:
        raise explained(op, error, tensors, statics) from error
    outs = tuple(_output(op, a, tensors, statics, backend) for a in (arrays if len(op.outputs) > 1 else (arrays,)))
    if flags and op.formulas:
        if op.variadic:
            mask = int(any(t.requires_grad for t in tensors))
        else:
            mask = sum(1 << i for i, (n, t) in enumerate(zip(op.tensors, tensors, strict=True)) if t is not None and t.requires_grad and n in op.formulas)
        if mask:
            build(op, mask, tensors, storages, statics, outs, backend)
    return outs if len(op.outputs) > 1 else outs[0]


def _differ(op: Op, tensors: tuple[Any, ...]) -> bool:
    """Whether the tensors under the op's dtype rule have different dtypes."""
    names = op.tensors * (len(tensors) if op.variadic else 1)
    return len({t.storage.array.dtype for n, t in zip(names, tensors, strict=True) if t is not None and n not in op.mask}) > 1


def _run_raw(op: Op, backend: Any, storages: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    if op.variadic:
        return getattr(backend.F, op.name)(*[s.array for s in storages], **dict(zip(op.statics, statics, strict=True)))
    values = dict(zip(op.tensors, (s.array for s in storages), strict=True)) | dict(zip(op.statics, statics, strict=True))
    args = [values[p.name] for p in op.parameters if p.kind is not p.KEYWORD_ONLY]
    return getattr(backend.F, op.name)(*args, **{p.name: values[p.name] for p in op.parameters if p.kind is p.KEYWORD_ONLY})


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


def operand(op: Op, value: Any, others: tuple[Any, ...]) -> Any:
    """A tensor for an operand that is not one: numbers become cached 0-d tensors beside the tensors they meet."""
    if isinstance(value, TensorImpl):
        return value
    beside = max((o for o in others if isinstance(o, TensorImpl)), key=lambda o: category(o.storage.array.dtype), default=None)
    kind = type(value)
    if kind in _NUMBERS or isinstance(value, (np.number, np.bool_)):
        if beside is None:
            return _constant(value, of_number(value, get_default_dtype()) if kind is not int and kind is not bool else result_type([(np.asarray(value).dtype, 0)]), backend_of())
        array = beside.storage.array
        dtype = array.dtype if kind is float and array.dtype.num >= 11 else of_number(value, array.dtype)
        return _constant(value, dtype, beside.storage.backend)
    if isinstance(value, np.ndarray):
        return TensorImpl.from_storage(Storage((beside.storage.backend if beside is not None else backend_of()).from_numpy(value), beside.storage.backend if beside is not None else backend_of()))
    raise DtypeError(f"{op.name}: expected a tensor or a number, got {describe(value)}; make a tensor of it with lucid.tensor(...)")


_constants: dict[Any, Any] = {}


def _constant(value: Any, dtype: Any, backend: Any) -> Any:
    # 0-d arrays cost numpy 203 ns where a Python float costs 432 (notes: peers_cpu). Zero is not cached, since 0.0 == -0.0.
    key = (value, dtype, backend.device)
    found = _constants.get(key)
    if found is None:
        found = TensorImpl.from_storage(Storage(backend.asarray(_checked(value, dtype)), backend))
        if value != 0 and value == value and type(value) in (int, float):
            if len(_constants) > 1024:
                _constants.clear()
            _constants[key] = found
    return found


def _checked(value: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore"):
        if dtype.kind in "iu" and isinstance(value, int):
            return np.array(value & ((1 << 8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").astype(dtype)
        return np.array(value, dtype)


def with_tensors(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The op's result after numbers and NumPy arrays among its tensors became tensors; raises for anything else."""
    others = tuple(t for t in tensors if isinstance(t, TensorImpl))
    optional = [not op.variadic and n in op.optional for n in (op.tensors if not op.variadic else op.tensors * len(tensors))]
    ready = tuple(t if isinstance(t, TensorImpl) or (t is None and o) else operand(op, t, others) for t, o in zip(tensors, optional, strict=True))
    return _call(op, ready, statics)


def _call(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    if op.variadic:
        return recorder(op)(*tensors, **dict(zip(op.statics, statics, strict=True)))
    values = dict(zip(op.tensors, tensors, strict=True)) | dict(zip(op.statics, statics, strict=True))
    args = [values[p.name] for p in op.parameters if p.kind is not p.KEYWORD_ONLY]
    return recorder(op)(*args, **{p.name: values[p.name] for p in op.parameters if p.kind is p.KEYWORD_ONLY})


def unified(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The op's result after its tensors were brought to one device and, where the op asks for it, one dtype."""
    present = [t for t in tensors if t is not None]
    backends = {t.storage.backend for t in present if t.ndim}
    backend = backends.pop() if backends else present[0].storage.backend
    if backends:
        raise DeviceError(f"{op.name}: expected all tensors on one device, got {', '.join(describe(t) for t in present)}; move them with .to(device)")
    if any(t.storage.backend is not backend for t in present):
        # A 0-d tensor may meet tensors of another device, as in PyTorch.
        tensors = tuple(t if t is None or t.storage.backend is backend else t.to(backend.device) for t in tensors)
    if op.dtype is not None:
        names = op.tensors * (len(tensors) if op.variadic else 1)
        ruled = [n not in op.mask and t is not None for n, t in zip(names, tensors, strict=True)]
        dtype = result_type([(t.storage.array.dtype, 2 if t.ndim else 1) for t, r in zip(tensors, ruled, strict=True) if r])
        tensors = tuple(t if not r or t.storage.array.dtype is dtype else RECORDED.cast(t, dtype) for t, r in zip(tensors, ruled, strict=True))
        if op.dtype == "float" and dtype.num < 11:
            return floated(op, tensors, statics)
    return _call(op, tensors, statics)


def floated(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """The op's result after integer tensors became the default float."""
    dtype = get_default_dtype()
    return _call(op, tuple(t if t is None or t.storage.array.dtype.num >= 11 else RECORDED.cast(t, dtype) for t in tensors), statics)


def explained(op: Op, error: Exception, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Exception:
    """The error to raise instead of one from inside a forward: with the op's name and its arguments."""
    if isinstance(error, (LucidError, NotImplementedError, MemoryError)):
        return error
    names = op.tensors if not op.variadic else tuple(f"{op.tensors[0]}[{i}]" for i in range(len(tensors)))
    given = [f"{n}: {'None' if t is None else describe(t)}" for n, t in zip(names, tensors, strict=True)]
    given += [f"{n}={v!r}" for n, v in zip(op.statics, statics, strict=True) if v is not None]
    kind = IndexRangeError if isinstance(error, IndexError) else DtypeError if isinstance(error, TypeError) else ShapeError if isinstance(error, ValueError) else LucidError
    return kind(f"{op.name}: {error} (got {', '.join(given)})")


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


_PARAMETER: list[Any] = []
CPU = backend_of("cpu")
_SCOPE: dict[str, Any] = {
    "mode": mode, "Storage": Storage, "ViewStorage": ViewStorage, "FuncOp": FuncOp, "NONE": NONE, "ndarray": np.ndarray,
    "new_storage": Storage.__new__, "new_view": ViewStorage.__new__, "new_node": FuncOp.__new__, "new_tensor": TensorImpl.__new__,
    "next_sequence_nr": next_sequence_nr, "leaf_edge": leaf_edge, "build": build, "general": general, "intercepted": intercepted, "operand": operand,
    "with_tensors": with_tensors, "unified": unified, "floated": floated, "C64": complex64, "C128": complex128, "explained": explained, "note_view": note_view,
}
