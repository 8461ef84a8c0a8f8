"""Mutants of the pass: a function with one text in its source replaced by another."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def mutant(function: Any, old: str, new: str) -> Iterator[None]:
    """A context in which `old`, which stands once in the source of `function`, reads `new`.

    The function keeps its identity, so whoever imported it gets the mutant.
    """
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{function.__qualname__}: {old!r} stands there {source.count(old)} times"
    scope: dict[str, Any] = {}
    exec(compile(source.replace(old, new), f"<mutant of {function.__name__}>", "exec"),
         dict(function.__globals__), scope)  # fmt: skip
    kept = function.__code__
    function.__code__ = scope[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = kept
