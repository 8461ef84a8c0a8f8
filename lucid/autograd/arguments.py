"""Which argument of a call is not what its annotation asks for, and errors that say so.

Nothing is checked before a call. One that fails inside with an error of Python's or NumPy's comes here, and
leaves as an error of lucid's that names the function, what was expected and what came.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

import numpy as np

from ..errors import DtypeError, IndexRangeError, LucidError, ShapeError
from ..ops.describe import listed
from .impl import TensorImpl, describe

# What code says that met a value it was not written for. Of anything else (warnings, NotImplementedError,
# MemoryError) the function that raised it knows best.
RAW = (
    *(AttributeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError, NameError),
    *(BufferError, StopIteration),
)


def kind_of(error: Exception) -> type[LucidError]:
    """The class of lucid's errors that stands for one of Python's or NumPy's."""
    kinds = {IndexError: IndexRangeError, ValueError: ShapeError}
    kinds |= dict.fromkeys((TypeError, AttributeError), DtypeError)
    return next((ours for theirs, ours in kinds.items() if isinstance(error, theirs)), LucidError)


def refuse(
    name: str, function: Callable[..., Any], error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Nothing; raises the error that says, in the words of `name`, why `function(*args, **kwargs)` failed.

    Returns for an error that says so itself, for a wrong number of arguments, and where a function of the
    caller may have raised it.
    """
    if isinstance(error, LucidError):
        return
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        return
    if any(callable(v) and not isinstance(v, type) for v in given.values()):
        return
    text = unlike(function, given)
    if text is not None:
        raise DtypeError(f"{name}: {text}") from error
    came = ", ".join(f"{k}: {describe(v)}" for k, v in given.items() if v is not None)
    raise kind_of(error)(f"{name}: the arguments do not fit together: got {came} ({error})") from error


def unlike(function: Callable[..., Any], given: Mapping[str, Any]) -> str | None:
    """Which of the arguments is not what the function's annotation says, or None."""
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except NameError:  # an annotation for type checkers only
        return None
    for key, value in given.items():
        p = parameters[key]
        for v in value if p.kind is p.VAR_POSITIONAL else (value,):
            if not fits(v, p.annotation):
                cure = (
                    "; make a tensor of it with lucid.tensor(...)"
                    if p.annotation is TensorImpl.tensor_class
                    else ""
                )
                return f"expected {word(p.annotation)} as {key}, got {describe(v)}{cure}"
    return None


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of the kind that an annotation names; True where nothing is known of the kind.

    A 0-d tensor is also a number.
    """
    if kind is Any or kind is inspect.Parameter.empty:
        return True
    inner, origin = get_args(kind), get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, k) for k in inner)
    if origin in (Sequence, list, tuple):
        several = isinstance(value, Sequence) and not isinstance(value, str)
        return several and all(fits(v, inner[0]) for v in value)
    if kind is None or kind is types.NoneType:
        return value is None
    if origin is not None or not isinstance(kind, type):
        return True
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind][0]) or isinstance(value, TensorImpl) and value.array.size == 1
    return isinstance(value, kind)


_NUMBERS: dict[Any, tuple[Any, str]] = {
    bool: ((bool, np.bool_, int), "True or False"),
    int: ((int, np.integer), "an integer"),
    float: ((int, float, complex, np.number, np.bool_), "a number"),
    complex: ((int, float, complex, np.number, np.bool_), "a number"),
}


def word(kind: Any) -> str:
    """What an annotation asks for, in a message's words: "an integer or a sequence of integers"."""
    inner, origin = get_args(kind), get_origin(kind)
    if origin in (Union, types.UnionType):
        return listed(tuple(dict.fromkeys(word(k) for k in inner if k is not types.NoneType)), "or")
    if origin in (Sequence, list, tuple):
        return f"a sequence of {word(inner[0]).split(' ', 1)[-1]}s"
    if kind in _NUMBERS:
        return _NUMBERS[kind][1]
    known = {str: "a string", TensorImpl.tensor_class: "a tensor", Any: "a value"}
    return known.get(kind) or f"a {getattr(kind, '__name__', kind)}"
