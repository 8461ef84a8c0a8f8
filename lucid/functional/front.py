"""What stands before a public function where users find it: NumPy's names, errors in its words, `out=`.

A function of lucid.functional reads `x.ndim` without asking what `x` is. Calls inside lucid go to the
function itself; `lucid.<name>` and `Tensor.<name>` are fronts, which explain what failed after it failed: a
call that succeeds pays for one frame (some 50 ns) and no check. Recorders explain their errors themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..autograd.arguments import RAW, refuse
from ..autograd.out import written
from ..ops.signature import aliases, declared, opened, shown
from ..tensor import Tensor
from .methods import LazyMethod

# Methods so short, and called so often, that the frame would show (bench_overhead). They hand their arguments
# to ops, which explain themselves, or check them.
BARE = frozenset(
    (
        *("add", "sub", "subtract", "div", "divide", "sum", "mean", "reshape", "view", "permute"),
        *("transpose", "expand", "clone", "contiguous"),
    )
)


def front(
    name: str, function: Callable[..., Any], home: str = "lucid", out: bool = False
) -> Callable[..., Any]:
    """`function` as users call it by `name`: `axis` for `dim`, and with `out` its result goes where they say.

    home: what holds it ("lucid.linalg", "lucid.Tensor"), where pickle looks for it.
    """
    parameters = inspect.signature(function).parameters.values()
    own, source, renamed = name.rpartition(".")[2], declared(opened(parameters)), aliases(parameters)
    more = [a for a, _ in renamed] + ["out"] * out
    args, keywords = source.packed
    lines = [
        f"def {own}({source.with_keywords(more)}):",
        *(f"    if {a} is not None: {b} = {a}" for a, b in renamed),
        f"    if out is not None: return _written({name!r}, out, _function, {args}, {keywords})" * out,
        f"    try: return _function({source.passed})",
        "    except _RAW as _error:",
        f"        _refuse({name!r}, _function, _error, {args}, {keywords})",
        "        raise",
    ]
    scope: dict[str, Any] = {"_function": function, "_written": written, "_RAW": RAW, "_refuse": refuse}
    scope.update(source.defaults)
    exec(compile("\n".join(lines), f"<lucid {name}>", "exec"), scope)
    made = scope[own]
    made.__doc__, made.__module__ = function.__doc__, home.removesuffix(".Tensor")
    made.__qualname__ = f"Tensor.{own}" if home.endswith(".Tensor") else own
    made.__wrapped__, made.__signature__ = function, shown(parameters, more)
    return made


def needs_front(function: Any) -> bool:
    """Whether a function is one of lucid.functional that does not explain its errors: not a recorder, not one
    that hands `*args, **kwargs` to a recorder.
    """
    if not inspect.isfunction(function) or not function.__module__.startswith("lucid.functional"):
        return False
    code = function.__code__
    return not code.co_filename.startswith("<lucid") and (
        hasattr(function, "__wrapped__") or not code.co_flags & inspect.CO_VARKEYWORDS
    )


class Front(LazyMethod):
    """Stands for a method's front until its first use."""

    __slots__ = ("function",)

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name, lambda: front(name, function, "lucid.Tensor"))
        self.function = function


def attach() -> None:
    """Nothing; puts fronts before the methods that lucid.functional gave to `Tensor`."""
    for name, function in list(vars(Tensor).items()):
        if not name.startswith("__") and name not in BARE and needs_front(function):
            setattr(Tensor, name, Front(name, function))
