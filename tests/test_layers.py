"""The layers of the package: an import may only point to an earlier layer.

The list is the design's, as data.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lucid

PACKAGE = Path(lucid.__file__).parent
# Earlier layers know nothing of later ones. Modules in one row may know each other.
LAYERS = (
    ("errors",),
    ("storage",),
    ("kernel",),
    ("ops",),
    ("autograd",),
    ("fusion",),
    ("tensor", "functional"),
    ("linalg", "fft", "special", "random", "array_api", "distributions", "settings"),
    ("multiprocessing", "distributed"),
    ("nn",),
    ("func",),
    ("optim", "amp"),
    ("cuda", "backends", "accelerator", "utils"),
    ("io", "serialization"),
    ("profiler",),
    ("testing",),
    ("datasets",),
    ("examples",),
    ("_cli", "cli", "__main__"),
)
RANK = {name: i for i, row in enumerate(LAYERS) for name in row}
# Imports inside a function run on use, not at import: each needs a reason here.
ALLOWED_LATE = {
    ("autograd", "tensor"): "checkpoint and the in-place index write make tensors when called",
    ("storage", "testing"): "the simulated CUDA device is started from the backend",
    ("array_api", "cuda"): "the namespace lists the devices when asked",
    ("functional", "array_api"): "`Tensor.__array_namespace__` returns it",
    ("distributed", "io"): "objects travel in the format of checkpoints, of which nothing is executed",
}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path):
    """(layer imported, line, at module level) for each import of our own in a file."""
    tree = ast.parse(path.read_text())
    inside = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))
        for n in ast.walk(f)
    }
    guarded = {
        id(n)
        for i in ast.walk(tree)
        if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.unparse(i.test)
        for n in ast.walk(i)
    }
    package = ("lucid", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [a.name.split(".") for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [base] if len(base) > 1 else [[*base, a.name] for a in node.names]
        for name in names:
            if name[0] == "lucid" and len(name) > 1:
                yield name[1], node.lineno, id(node) not in inside


FILES = [
    p
    for p in sorted(PACKAGE.rglob("*.py"))
    if p.relative_to(PACKAGE).parts[0] not in ("__init__.py", "_kernels")
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_upwards(path):
    layer = layer_of(path)
    assert layer in RANK, f"{path.name}: add its layer {layer!r} to LAYERS"
    for target, line, top in imports_of(path):
        if target not in RANK:
            continue
        late_ok = not top and ((layer, target) in ALLOWED_LATE)
        assert RANK[target] <= RANK[layer] or late_ok, (
            f"{path}:{line}: {layer} imports {target}, which is a later layer"
        )


def test_the_checker_sees_a_wrong_import(tmp_path, monkeypatch):
    bad = tmp_path / "ops" / "bad.py"
    bad.parent.mkdir()
    bad.write_text("from ..tensor import Tensor\nfrom lucid.autograd import Engine\nimport lucid.nn\n")
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    assert [name for name, _, top in imports_of(bad) if top] == ["tensor", "autograd", "nn"]


def test_only_one_file_imports_cupy():
    users = [
        str(p.relative_to(PACKAGE))
        for p in FILES
        for n in ast.walk(ast.parse(p.read_text()))
        if (isinstance(n, ast.Import) and any(a.name.split(".")[0] in ("cupy", "cupyx") for a in n.names))
        or (
            isinstance(n, ast.ImportFrom)
            and not n.level
            and (n.module or "").split(".")[0] in ("cupy", "cupyx")
        )
    ]
    assert {u for u in users if not u.startswith("testing/")} <= {"storage/cupy_backend.py"}


def test_files_and_functions_stay_short():
    long = {str(p.relative_to(PACKAGE)): n for p in FILES if (n := len(p.read_text().splitlines())) > 600}
    assert not long


def test_importing_lucid_imports_no_heavy_package():
    import subprocess
    import sys

    heavy = "('cupy', 'cupyx', 'matplotlib', 'torch', 'rich', 'scipy', 'pytest', 'safetensors')"
    code = f"import sys, lucid; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert out.stdout.strip() == "[]"
