"""Every public function answers its example with one argument made wrong: by a result, or by an error in its
own words. What NumPy or Python would say about arrays inside never comes through.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re

import numpy as np
import pytest

import lucid
from lucid import Tensor, tensor
from lucid.errors import LucidError
from lucid.functional import PUBLIC

# Functions of the session, whose examples change it, and one whose arguments are functions.
SESSION = {"seed", "manual_seed", "set_rng_state", "compile"}
NAMES = sorted(n for n in PUBLIC if not n.endswith("_") and n.split(".")[-1] not in SESSION)


def holder(name):
    """The namespace that holds a public name, and its last part."""
    path, _, last = f"lucid.{name}".rpartition(".")
    return importlib.import_module(path), last


def calls_of(name, monkeypatch):
    """The arguments of the calls in the docstring's example that returned."""
    where, last = holder(name)
    function, calls = getattr(where, last), []

    def record(*args, **kwargs):
        out = function(*args, **kwargs)
        calls.append((args, kwargs))
        return out

    monkeypatch.setattr(where, last, record)
    scope = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            with contextlib.suppress(Exception):
                exec(compile(example.source, name, "single"), scope)
    monkeypatch.undo()
    return calls


def wrong(value):
    """Values to put in the place of an argument: other shapes, dtypes and ranges."""
    if isinstance(value, Tensor):
        a = value.detach().cpu().numpy()
        for shape in ((2, *a.shape), (2, 3, *a.shape), (), (0,), (0,) * a.ndim, a.shape[1:], (*a.shape, 1)):
            yield tensor(np.ones(shape, a.dtype))
        for d in range(a.ndim):
            yield tensor(np.ones([n + (i == d) for i, n in enumerate(a.shape)], a.dtype))
        for dtype in ("complex64", "bool", "int64", "float32"):
            yield tensor(a.astype(dtype))
        if a.dtype.kind == "i":
            yield from (tensor(a + 100), tensor(a - 100))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (7, -9, 0)
    elif isinstance(value, float):
        yield from (-1.5, lucid.nan)
    elif isinstance(value, str):
        yield "nonsense"
    elif isinstance(value, (tuple, list)):
        kind = tuple if isinstance(value, tuple) else list
        yield kind(value[:-1])
        for i, v in enumerate(value):
            for w in wrong(v):
                yield kind([*value[:i], w, *value[i + 1 :]])


def shown(args, kwargs):
    """The call's arguments, short."""
    return [f"{v.dtype}{list(v.shape)}" if isinstance(v, Tensor) else v for v in args], kwargs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_errors_are_in_the_functions_words(name, monkeypatch):
    where, last = holder(name)
    function = getattr(where, last)
    for args, kwargs in calls_of(name, monkeypatch)[:4]:
        places = [*range(len(args)), *kwargs]
        for place in places:
            for value in wrong(args[place] if isinstance(place, int) else kwargs[place]):
                given, named = [*args], dict(kwargs)
                (given if isinstance(place, int) else named)[place] = value
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        function(*given, **named)
                except NotImplementedError:
                    pass
                except LucidError as error:
                    assert re.match(r"[\w.]+: ", str(error)), (error, shown(given, named))
                    assert "the arguments do not fit together" not in str(error), shown(given, named)
                except Exception as error:
                    raise AssertionError(f"{name}: {shown(given, named)} gives {error!r}") from error


def test_a_raw_error_is_found(monkeypatch):
    def broken(x):
        """Its first element.

        >>> import lucid
        >>> lucid.abs(lucid.tensor([1.0]))
        """
        return x.array[0]

    monkeypatch.setattr(lucid, "abs", broken)
    with pytest.raises(AssertionError, match="abs: .* gives IndexError"):
        test_errors_are_in_the_functions_words("abs", pytest.MonkeyPatch())
