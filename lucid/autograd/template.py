"""The source of a recorder: the per-op path, written out for an op's signature.

Read `source` from the top; print `source(OPS["mul"], {}, plan_of)` to see a whole one. Locals of the
generated function start with an underscore, so that no argument of an op can collide with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops.registry import Op
from ..ops.signature import aliases, declared, opened
from .plan import Plan

INLINE = 2  # tensors up to which the node is built inline


def _signature(op: Op, scope: dict[str, Any]) -> str:
    own = declared(opened(op.parameters))
    scope.update(own.defaults)
    return own.with_keywords(keywords(op))


def keywords(op: Op) -> list[str]:
    """What the op's function takes beside its own arguments."""
    return [a for a, _ in aliases(op.parameters)] + ["out"] * takes_out(op)


def _renamed(op: Op) -> list[str]:
    return [f"    if {a} is not None: {b} = {a}" for a, b in aliases(op.parameters)]


def takes_out(op: Op) -> bool:
    """Whether the op's function takes `out=`: every one that computes something."""
    return not op.view and "out" not in op.tensors


def _out(op: Op) -> list[str]:
    """The way out of the function when the caller gives `out=`."""
    if not takes_out(op):
        return []
    args, named = declared(op.parameters).packed
    return [f"    if out is not None: return written(OP.name, out, OP.record, {args}, {named})"]


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
    lines = _renamed(op) + _out(op)
    statics = ", ".join(op.statics) + ("," if op.statics else "")
    lines.append("    _flags = get_flags()")
    lines.append(f"    if _flags > 1: return intercepted(OP, ({', '.join(t)},), ({statics}), _flags)")
    if op.broadcast and len(t) > 1 and op.dtype is not None:
        # The first operand is a tensor when an operator calls; a number there takes the
        # slower way through with_tensors.
        for i, name in list(enumerate(t))[1:]:
            others = ", ".join(t[:i] + t[i + 1 :])
            absent = f" and {name} is not None" if name in op.optional else ""
            lines.append(
                f"    if type({name}) is not Tensor and type({name}) is not Parameter{absent}: "
                f"{name} = operand(OP, {name}, ({others},))"
            )
    lines.append("    try:")
    for i, name in enumerate(t):
        absent = f" if {name} is not None else None" if name in op.optional else ""
        lines.append(f"        _a{i} = {name}.array{absent}")
    present = next(name for name in t if name not in op.optional)
    lines.append(f"        _b = {present}.backend")
    lines.append(f"    except AttributeError: return with_tensors(OP, ({', '.join(t)},), ({statics}))")
    conditions = []
    ruled = [i for i, name in enumerate(t) if name not in op.mask]
    for i, name in enumerate(t[1:], 1):
        same_device = f"{name}.backend is not _b"
        conditions.append(f"({name} is not None and {same_device})" if name in op.optional else same_device)
        if op.dtype is not None and i in ruled[1:]:
            first = f"_d is not _a{i}.dtype"
            conditions.append(first if name not in op.optional else f"({name} is not None and {first})")
    if op.dtype is not None and len(ruled) > 1:
        lines.append(f"    _d = _a{ruled[0]}.dtype")
    if conditions:
        lines.append(f"    if {' or '.join(conditions)}: return unified(OP, ({', '.join(t)},), ({statics}))")
    if op.ordered:
        lines.append(f"    if _d is C64 or _d is C128: need_order(OP.name, {t[0]})")
    if op.dtype == "float":
        # numpy's type numbers below 11 are bool and the integers; a tensor that requires grad is no integer.
        lines.append(
            f"    if not {t[0]}._requires_grad and _a0.dtype.num < 11: return floated(OP, ({', '.join(t)},), "
            f"({statics}))"
        )
    return lines


def _forward(op: Op) -> list[str]:
    arrays = {n: f"_a{i}" for i, n in enumerate(op.tensors)}
    call = _call_arguments(op, arrays)
    # Views and comparisons compute nothing that NumPy could warn of. Elsewhere silence costs 25 ns a call:
    # 3 % of `chain no-grad` in bench_overhead.py, and nothing to be seen in `chain forward + backward`.
    warns = not (op.view or op.dtype == "compare" and op.ufunc)
    run = f"run_quiet(raw_cpu, {call})" if warns else f"raw_cpu({call})"
    failed = (
        f"    except Exception as _error: _a = failed(OP, _error, ({', '.join(op.tensors)},), "
        f"({''.join(s + ', ' for s in op.statics)}))"
    )
    return ["    try:", f"        _a = {run} if _b is CPU else _b.F.{op.name}({call})", failed]


def _new_tensor(op: Op) -> list[str]:
    lines = [
        "    if type(_a) is not ndarray and type(_a) is not _b.ndarray: _a = _b.asarray(_a)",
        "    _out = new_tensor(Tensor); _out.array = _a; _out.backend = _b",
    ]
    statics = "".join(s + ", " for s in op.statics)
    if op.view:
        # A view of contiguous memory is sure to share it, unless the op says "maybe".
        sure = "" if op.view == "maybe" else "_a0.flags.c_contiguous or "
        x = op.tensors[0]
        lines += [
            f"    if {sure}_b.xp.may_share_memory(_a, _a0):",
            "        _s = _out._storage = new_view(ViewStorage); _s.array = _a; _s.backend = _b",
            f"        _s.root = ({x}._storage or {x}.storage).root; _out.base = ({x}, OP, ({statics}))",
            "        note_view(_s.root, _out)",
            "    else: _out._storage = _out.base = None",
        ]
    else:
        lines.append("    _out._storage = _out.base = None")
    lines.append("    _out._grad = _out.accumulate = None")
    return lines


def _node(op: Op, mask: int, plan: Plan, indent: str) -> list[str]:
    """The statements that make the node for one mask."""
    storage = {n: f"_s{i}" for i, n in enumerate(op.tensors)} | {op.outputs[0]: "_s"}
    kept = [storage[n] for n in plan.keep]
    # Only what is kept needs a storage, that is, a version.
    made = [f"_s{op.tensors.index(n)} = {n}._storage or {n}.storage" for n in plan.keep if n in op.tensors]
    if op.outputs[0] in plan.keep:
        made.append(
            "_s = _out.storage"
            if op.view
            else (
                "_s = _out._storage = new_storage(Storage); _s.array = _a; _s.version = 0; "
                "_s.backend = _b; _s.views = None"
            )
        )
    static = [
        f"_a{op.tensors.index(n[:-6])}.{n[-5:]}"
        if n[-6:] in ("_shape", "_dtype") and n[:-6] in op.tensors
        else n
        for n in plan.static
    ]
    lines = [f"_n = new_node(FuncOp); _n.plan = plan{mask}; _n.F = _b.F; _n.hooks = None"]
    if kept:
        lines += made
        lines.append(
            f"_n.saved = ({', '.join(kept)},); _n.versions = ({' + '.join(f'{k}.version' for k in kept)}) "
            f"and ({', '.join(f'{k}.version' for k in kept)},)"
        )
    else:
        lines.append("_n.saved = (); _n.versions = 0")
    if static:
        lines.append(f"_n.static = ({', '.join(static)},)")
    if op.broadcast:
        shapes = [f"_a{i}.shape" for i in range(len(op.tensors))]
        lines.append(
            f"_n.shapes = None if {shapes[0]} == {shapes[1]} else ({', '.join(shapes)})"
            if len(shapes) == 2
            else "_n.shapes = None"
        )
    edges = [f"{t}.edge or {t}.accumulate or leaf_edge({t})" for t in plan.targets]
    lines.append(f"_n.edges = ({', '.join(edges)},); _n.sequence_nr = next_sequence_nr()")
    # All tensors under a dtype rule have one dtype by now, `_d`; it is also the result's.
    if op.dtype is None or len([t for t in op.tensors if t not in op.mask]) == 1:
        lines.append("_d = _a.dtype")
    if op.holomorphic:
        lines.append("if _d is C64 or _d is C128: _n.plan = _n.plan.conjugated")
    if op.name != "cast":
        lines.append("if _d is BF16: _n.plan = _n.plan.low")
    lines.append("_out.edge = _n; _out._requires_grad = True; return _out")
    return [indent + line for line in lines]


def source(op: Op, scope: dict[str, Any], plan_of: Callable[[Op, int], Plan]) -> str:
    """The source of an op's recorder.

    What it names besides its arguments is put into `scope` or expected there.
    """
    t = op.tensors
    head = f"def {op.name}({_signature(op, scope)}):"
    if op.variadic or len(op.outputs) > 1:
        return "\n".join([head, *_general(op)])
    lines = [head, *_enter(op), *_forward(op), *_new_tensor(op)]
    diff = [i for i, n in enumerate(t) if n in op.formulas]
    if diff and len(t) <= INLINE and not op.optional:
        lines += ["    if _flags:", *_inline(op, diff, scope, plan_of)]
    elif diff:
        storages = ", ".join(
            f"NONE if {n} is None else {n}.storage" if n in op.optional else f"{n}._storage or {n}.storage"
            for n in t
        )
        statics = "".join(s + ", " for s in op.statics)
        lines += [
            "    if _flags:",
            f"        _mask = {' | '.join(_bit(op, i) for i in diff)}",
            "        if _mask:",
            f"            build(OP, _mask, ({', '.join(t)},), ({storages},), ({statics}), (_out,), _b)",
            "            return _out",
        ]
    lines.append("    _out.edge = None; _out._requires_grad = False; return _out")
    return "\n".join(lines)


def _inline(op: Op, diff: list[int], scope: dict[str, Any], plan_of: Callable[[Op, int], Plan]) -> list[str]:
    """The branches over which of one or two tensors require grad, a node in each."""
    t = op.tensors

    def node(mask: int, indent: int) -> list[str]:
        plan = scope[f"plan{mask}"] = plan_of(op, mask)
        return _node(op, mask, plan, " " * indent)

    if len(diff) == 1:
        i = diff[0]
        return [f"        if {t[i]}._requires_grad:", *node(1 << i, 12)]
    return [
        f"        if {t[0]}._requires_grad:",
        f"            if {t[1]}._requires_grad:",
        *node(3, 16),
        *node(1, 12),
        f"        elif {t[1]}._requires_grad:",
        *node(2, 12),
    ]


def _bit(op: Op, i: int) -> str:
    name = op.tensors[i]
    return (
        f"({name} is not None and {name}._requires_grad) << {i}"
        if name in op.optional
        else f"{name}._requires_grad << {i}"
    )


def _general(op: Op) -> list[str]:
    """The body for ops of any number of tensors or several outputs."""
    tensors = f"tuple({op.tensors[0]})" if op.variadic else f"({', '.join(op.tensors)},)"
    statics = f"({''.join(s + ', ' for s in op.statics)})"
    return [*_renamed(op), *_out(op), f"    return general(OP, {tensors}, {statics})"]
