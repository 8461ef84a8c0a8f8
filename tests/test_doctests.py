"""The examples in docstrings run, of every module and of every op."""

import doctest
import importlib
import pkgutil

import pytest

import lucid
from lucid.functional.registry import PUBLIC
from lucid.ops.registry import OPS

NEEDS_CUPY = {"lucid.storage.cupy_backend"}
RUNS_ON_IMPORT = {"lucid.__main__"}
FOUND = {"lucid", *(module.name for module in pkgutil.walk_packages(lucid.__path__, "lucid."))}
MODULES = sorted(FOUND - NEEDS_CUPY - RUNS_ON_IMPORT)
RUNNER = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
FINDER = doctest.DocTestFinder(exclude_empty=True)


def run(tests):
    """Runs examples; the report of those that fail is the message."""
    report = []
    for test in tests:
        RUNNER.run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_module(name):
    found = FINDER.find(importlib.import_module(name))
    # Names that `lucid` looks up on first use are examined below; here its `bool` and `sum` hide Python's.
    run(test for test in found if name != "lucid" or test.name == name)


def test_examples_of_ops_and_public_functions():
    # What a decorator of another module wrapped, doctest takes for that module's.
    docs = {op.doc: op.name for op in OPS.values()} | {f.__doc__ or "": name for name, f in PUBLIC.items()}
    parser = doctest.DocTestParser()
    run(parser.get_doctest(doc, {}, name, None, 0) for doc, name in docs.items() if ">>>" in doc)


def test_a_wrong_example_is_reported():
    with pytest.raises(AssertionError, match=r"Expected:\s+3\s+Got:\s+2"):
        run([doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)])
