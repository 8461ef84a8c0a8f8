"""Writes api.json, the public surface of the CuPy that is installed: `python snapshot.py > api.json`.

Needs CuPy but no GPU.  For each module: every public name with its kind, the parameters of functions and the
type table of ufuncs; for each class: its attributes with their parameters.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pathlib
import re
import sys
from typing import Any

MODULES = [
    "cupy",
    "cupy.linalg",
    "cupy.fft",
    "cupy.random",
    "cupy.cuda",
    "cupy.testing",
    "cupy.lib.stride_tricks",
    "cupy.cuda.runtime",
    "cupyx",
    "cupyx.scipy.special",
    "cupyx.scipy.linalg",
    "cupyx.scipy.signal",
    "cupyx.scipy.ndimage",
    "cupyx.profiler",
]
CLASSES = [
    "cupy.ndarray",
    "cupy.ufunc",
    "cupy.RawKernel",
    "cupy.RawModule",
    "cupy.random.Generator",
    "cupy.random.RandomState",
    "cupy.cuda.Device",
    "cupy.cuda.Stream",
    "cupy.cuda.Event",
    "cupy.cuda.Graph",
    "cupy.cuda.MemoryPool",
    "cupy.cuda.MemoryPointer",
    "cupy.cuda.PinnedMemoryPool",
]
UFUNC_METHODS = ("at", "reduce", "accumulate", "reduceat", "outer")


def parameters(f: Any) -> list[str] | None:
    """Names of the parameters of `f`, with * and ** where it has them; None when they cannot be found out."""
    try:
        s = inspect.signature(f)
    except (ValueError, TypeError):
        m = re.match(
            r"\s*(?:[\w. ]*\s)?[\w.]*\((.*?)\)", (f.__doc__ or "").split("\n")[0]
        )  # Cython's embedsignature
        if not m:
            return None
        names = [p.split("=")[0].split(":")[0].strip() for p in m[1].split(",")]
        return [n.replace("\\", "").split()[-1] for n in names if n and n != "/"]
    star: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [star.get(p.kind, "") + p.name for p in s.parameters.values()]


def describe(o: Any, same_as_numpy: bool) -> dict[str, Any]:
    """The entry of one public name."""
    import cupy

    if isinstance(o, cupy.ufunc):
        return {"kind": "ufunc", "nin": o.nin, "nout": o.nout, "types": " ".join(o.types)}
    if inspect.ismodule(o):
        return {"kind": "module"}
    entry: dict[str, Any] = {
        "kind": "class" if inspect.isclass(o) else "function" if callable(o) else "constant"
    }
    if same_as_numpy:
        entry["numpy"] = True
    if entry["kind"] == "function":
        entry["parameters"] = parameters(o)
    return entry


def from_source(name: str) -> dict[str, Any]:
    """Names of a module that cannot be imported without CUDA's libraries, read from its source."""
    import cupy

    root = pathlib.Path(cupy.__file__).parent.parent
    folder = root.joinpath(*name.split("."))
    out: dict[str, Any] = {}
    for node in ast.walk(ast.parse((folder / "__init__.py").read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        path = root.joinpath(*node.module.split(".")).with_suffix(".py")
        if not path.exists():
            continue
        defs = {d.name: d for d in ast.walk(ast.parse(path.read_text())) if isinstance(d, ast.FunctionDef)}
        for a in node.names:
            if a.name in defs and not a.name.startswith("_"):
                g = defs[a.name].args
                out[a.asname or a.name] = {
                    "kind": "function",
                    "parameters": [x.arg for x in (*g.args, *g.kwonlyargs)],
                }
    return out


def snapshot() -> dict[str, Any]:
    """The whole description, as it stands in api.json."""
    import cupy
    import numpy

    out: dict[str, Any] = {"cupy": cupy.__version__, "numpy": numpy.__version__, "modules": {}, "classes": {}}
    for name in MODULES:
        try:
            twin = importlib.import_module("numpy" + name[4:]) if name.split(".")[0] == "cupy" else None
        except ImportError:
            twin = None
        try:
            m = importlib.import_module(name)
        except (ImportError, OSError):
            out["modules"][name] = from_source(name)
            continue
        names = {}
        for n in sorted(x for x in dir(m) if not x.startswith("_") and x not in ("annotations", "np")):
            try:
                o = getattr(m, n)
            except (ImportError, AttributeError, OSError):  # a lazily loaded CUDA library
                names[n] = {"kind": "module"}
                continue
            names[n] = describe(o, twin is not None and getattr(twin, n, None) is o)
        out["modules"][name] = names
    for name in CLASSES:
        module, _, cls = name.rpartition(".")
        c = getattr(importlib.import_module(module), cls)
        public = (n for n in sorted(dir(c)) if not n.startswith("_") or n.startswith("__"))
        out["classes"][name] = {
            n: parameters(getattr(c, n)) if callable(getattr(c, n, None)) else None for n in public
        }
    return out


def dumps(s: dict[str, Any]) -> str:
    """JSON with one name per line, so that two versions of CuPy can be compared line by line."""
    lines = [f'{{"cupy": {json.dumps(s["cupy"])}, "numpy": {json.dumps(s["numpy"])},']
    for part in ("modules", "classes"):
        lines.append(f'"{part}": {{')
        blocks = []
        for m, names in s[part].items():
            rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(v, sort_keys=True)}" for n, v in names.items())
            blocks.append(f" {json.dumps(m)}: {{\n{rows}\n }}")
        lines.append(",\n".join(blocks))
        lines.append("}," if part == "modules" else "}}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its array.py is not the standard library's
    sys.stdout.write(dumps(snapshot()))
