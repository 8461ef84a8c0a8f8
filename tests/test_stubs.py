"""The generated stubs say what the registry says, and name all that is public."""

import ast
import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

import lucid
from lucid.tensor import Tensor

ROOT = Path(__file__).parents[1]
NAMESPACES = ("fft", "linalg", "special", "nn.functional")


def generator():
    """The module ci/stubs.py."""
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "ci" / "stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def defined(body):
    """The names that statements define."""
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {a.name for a in node.names if a.asname == a.name}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets}
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names


def stub(name):
    return ast.parse((ROOT / "lucid" / f"{name}.pyi").read_text()).body


def test_stubs_are_up_to_date():
    old = [p.name for p, text in generator().stubs().items() if not p.exists() or p.read_text() != text]
    assert not old, f"{', '.join(old)}: run python ci/stubs.py"


def test_every_public_name_is_in_the_stub():
    assert set(dir(lucid)) - defined(stub("__init__")) == set()
    for name in dir(lucid):
        getattr(lucid, name)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_public_name_is_in_the_stub_of_the_namespace(namespace):
    module = importlib.import_module(f"lucid.{namespace}")
    named = defined(stub(namespace.replace(".", "/")))
    found = {n: getattr(module, n) for n in {*dir(module), *vars(module)} if not n.startswith("_")}
    found = {n: v for n, v in found.items() if getattr(v, "__module__", "") != "lucid.functional.out"}
    ours = {n for n, v in found.items() if inspect.isclass(v) and v.__module__.startswith("lucid")}
    there = {n for n, v in found.items() if inspect.isfunction(v)} | ours
    assert there and there == {name for name in named if not name.startswith("_")}


def test_every_method_is_in_the_stub():
    (methods,) = (node for node in stub("_methods") if isinstance(node, ast.ClassDef))
    source = ast.parse((ROOT / "lucid" / "tensor.py").read_text()).body
    (own,) = (node for node in source if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    python = ("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__")
    there = {n for n in vars(Tensor) if n not in python}
    assert there == defined(methods.body) | defined(own.body)
