"""Every public name has a docstring with an example, and the example runs as it stands when it is pasted."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import pydoc
from pathlib import Path

import pytest

import lucid
from lucid.autograd import inplace
from lucid.ops.registry import OPS
from lucid.tensor import Tensor

# Packages and modules of the public API; what else there is, is reached through these.
NAMESPACES = [
    "lucid",
    *(f"lucid.{name}" for name in ("accelerator", "amp", "autograd", "backends", "cuda", "datasets")),
    *(f"lucid.{name}" for name in ("distributed", "distributions", "errors", "fft", "func", "fusion", "io")),
    *(f"lucid.{name}" for name in ("linalg", "multiprocessing", "optim", "profiler", "random")),
    *(f"lucid.{name}" for name in ("serialization", "settings", "special", "testing", "utils")),
    *(f"lucid.array_api{name}" for name in ("", ".fft", ".linalg")),
    *(f"lucid.autograd.{name}" for name in ("functional", "graph")),
    *(f"lucid.nn{name}" for name in ("", ".functional", ".init", ".parallel")),
    *(f"lucid.nn.utils{name}" for name in ("", ".parametrizations", ".parametrize", ".rnn", ".stateless")),
    *(f"lucid.optim.{name}" for name in ("lr_scheduler", "swa_utils")),
    *(f"lucid.utils.{name}" for name in ("checkpoint", "data", "dlpack", "tensorboard")),
]
# Implementation, and programs.
ELSEWHERE = [
    *(f"lucid.{name}" for name in ("examples", "functional", "kernel", "ops", "storage")),
    *(f"lucid.testing.{name}" for name in ("cusim", "strictcupy")),
]


def names_of(module):
    """The public names of a module: those it defines, and those it imports in the form `x as x`."""
    if not hasattr(module, "__file__") or "__getattr__" in vars(module) and module is not lucid.autograd:
        return [n for n in dir(module) if not n.startswith("_")]
    names = set(getattr(module, "__all__", ())) | set(getattr(module, "_LAZY", ()))
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname for a in node.names if a.asname == a.name}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return sorted(n for n in names if not n.startswith("_"))


def documented(module):
    """{name: function or class} of what needs a docstring."""
    found = {n: getattr(module, n) for n in names_of(module)}
    own = {n: v for n, v in found.items() if callable(v) and not inspect.ismodule(v)}
    return {n: v for n, v in own.items() if str(getattr(v, "__module__", "")).partition(".")[0] == "lucid"}


def doc_of(value):
    """The docstring of a function, or of a class without what it inherits."""
    doc = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    return inspect.cleandoc(doc or "")


def needs_no_example(value):
    """Whether a name is of one of the kinds that need no example of their own."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return True  # who raises it says so
    if str(value.__module__).startswith("lucid.array_api"):
        return True  # the standard documents its functions; the package has an example
    # In-place forms: the docstring is generated and names the function whose result is written.
    return doc_of(value) == inspect.cleandoc(inplace.document(value.__name__))


def lacking(found):
    """What is wrong, a line each."""
    report = [f"{n}: no docstring" for n, v in found.items() if not doc_of(v)]
    report += [
        f"{n}: no example (>>>)"
        for n, v in found.items()
        if doc_of(v) and ">>>" not in doc_of(v) and not needs_no_example(v)
    ]
    return report + [
        f"{n}: the first line is no sentence"
        for n, v in found.items()
        if doc_of(v) and not doc_of(v).split("\n")[0].endswith((".", ":", "..."))
    ]


@pytest.mark.parametrize("name", NAMESPACES)
def test_public_names_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    assert lacking(documented(module)) == []


def tensor_methods():
    """{name: method} of `Tensor` that can be called; properties and slots are described in one line."""
    # The slots: what the engine keeps with a tensor (lucid/autograd/impl.py).
    mine = [
        n for n in dir(Tensor) if not n.startswith("_") and not inspect.isdatadescriptor(getattr(Tensor, n))
    ]
    return {n: getattr(Tensor, n) for n in mine if callable(getattr(Tensor, n)) and n != "tensor_class"}


def test_methods_of_tensors_are_documented():
    assert lacking(tensor_methods()) == []
    properties = {n: v for n in dir(Tensor) if isinstance(v := getattr(Tensor, n), property) and n[0] != "_"}
    assert properties and [n for n, v in properties.items() if not v.__doc__] == []


@pytest.mark.parametrize("name", NAMESPACES)
def test_methods_of_classes_are_documented(name):
    bare = []
    for n, cls in documented(importlib.import_module(name)).items():
        for m, f in vars(cls).items() if inspect.isclass(cls) and cls is not Tensor else ():
            # `forward` and `extra_repr` do what the class says.
            plain = not m.startswith("_") and inspect.isfunction(f) and m not in ("forward", "extra_repr")
            if plain and not inspect.getdoc(getattr(cls, m)):
                bare.append(f"{n}.{m}")
    assert bare == []


def run(doc, name):
    """The report of the examples in a docstring that fail, run in a module of their own."""
    report = []
    test = doctest.DocTestParser().get_doctest(doc, {"__name__": "__main__"}, name, None, 0)
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=report.append)
    return "".join(report)


SEEN = set()


def run_new(found, where):
    """Nothing; runs every example that was not run before under another name."""
    docs = {doc_of(v): n for n, v in found.items() if ">>>" in doc_of(v)}
    new = {doc: n for doc, n in docs.items() if doc not in SEEN}
    SEEN.update(new)
    report = "".join(run(doc, f"{where}.{n}") for doc, n in new.items())
    assert not report, report


@pytest.mark.parametrize("name", NAMESPACES)
def test_examples_run_as_they_stand(name):
    run_new(documented(importlib.import_module(name)), name)


def test_examples_of_methods_run_as_they_stand():
    run_new(tensor_methods(), "Tensor")


def test_no_module_is_forgotten():
    inside = {m.name for m in pkgutil.walk_packages(lucid.__path__, "lucid.") if "._" not in m.name}
    packages = {m for m in inside if importlib.util.find_spec(m).submodule_search_locations}
    assert sorted(packages - {*NAMESPACES, *ELSEWHERE}) == []
    # The other modules of a package are reached through the package.
    single = {m for m in inside - packages if m.count(".") == 1}
    assert sorted(single - {"lucid.cli", "lucid.tensor"} - set(NAMESPACES)) == []


def test_help_reads_well():
    text = pydoc.plain(pydoc.render_doc(lucid.maximum))
    for part in (
        "maximum(x, y, *, out=None)",
        "The larger of x and y",
        "broadcast together, else ShapeError",
        ">>> lucid.max",
    ):
        assert part in text
    assert "axis=None" in pydoc.plain(pydoc.render_doc(lucid.logsumexp))
    assert "arctan2(x, y)" in pydoc.plain(pydoc.render_doc(lucid.arctan2)).replace("atan2", "arctan2")
    assert "tanh_(x" in pydoc.plain(pydoc.render_doc(Tensor.tanh_))


def test_an_ops_options_are_part_of_its_docstring():
    from lucid.ops.describe import facts

    assert facts(OPS["tanh"])[:2] == ["x: any shape; returns the same.", "Integers become the default float."]
    assert "Not differentiable." in facts(OPS["argmax"])
    assert "Autocast runs it in 16 bits." in facts(OPS["matmul"])
    assert facts(OPS["eq"])[:2] == [
        "x and y broadcast together, else ShapeError; returns their common shape.",
        "Returns bools.",
    ]
    # The example stays the last part.
    assert lucid.tanh.__doc__.rstrip().endswith("tensor([-0.7616,  0.    ,  0.7616])")


def test_what_is_missing_is_reported():
    def bare(x): ...

    def words(x):
        """x."""

    def wrong(x):
        """x.

        >>> 1 + 1
        3
        """

    bare.__module__ = words.__module__ = "lucid.nn"
    assert lacking({"bare": bare, "words": words}) == ["bare: no docstring", "words: no example (>>>)"]
    assert "Got:\n    2" in run(doc_of(wrong), "wrong")
