"""Sources of kernels, their compilation per element type through the device's RawModule, and errors with file
and line.
"""

from __future__ import annotations

import hashlib
import re
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import KernelError
from .specs import KERNELS

MACRO = {"float64": "LUCID_F64", "float32": "LUCID_F32", "float16": "LUCID_F16", "bfloat16": "LUCID_BF16"}

_lock = threading.RLock()
_modules: dict[Any, Any] = {}
_functions: dict[Any, Any] = {}
_failed: dict[Any, Unavailable] = {}

# NVRTC: `file(12): error: text`; gcc and others: `file:12: text` or `file:12:5: error: text`.
_PLACE = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*)(?:\((?P<a>\d+)\)|:(?P<b>\d+))(?::\d+)?: "
    r"(?:fatal )?(?:error: )?(?P<text>.+)$",
    re.M,
)


class Unavailable(KernelError):
    """A kernel that does not compile on a device; the op's generic formula serves in its place."""


@cache
def source_folder() -> Path:
    """The folder of the .cu files: `lucid/_kernels` of an installed package, else `kernels/` of the checkout.

    Raises KernelError when there is neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_kernels", package.parent / "kernels"):
        if (folder / "lucid.cuh").is_file():
            return folder
    raise KernelError(
        f"kernels: expected CUDA sources in {package / '_kernels'} or {package.parent / 'kernels'}, found "
        "neither; install lucid again"
    )


@cache
def header_hash() -> str:
    """A digest of all shared headers.

    Part of the options, because CuPy's cache on disk sees only the .cu file itself.
    """
    digest = hashlib.sha256()
    for path in sorted(source_folder().glob("*.cuh")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def source(file: str) -> str:
    """The text of a CUDA source, named for messages."""
    path = source_folder() / file
    try:
        return f'#line 1 "kernels/{file}"\n{path.read_text()}'
    except OSError as error:
        raise KernelError(
            f"kernels: {path} cannot be read ({error.strerror}); install lucid again"
        ) from error


def options(dtype: str, defines: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Compiler options for one element type: language, headers and macros."""
    return (
        "-std=c++17",
        f"-I{source_folder()}",
        f"-D{MACRO[dtype]}",
        f"-DLUCID_HEADERS={header_hash()}",
        *(f"-D{d}" for d in defines),
    )


def first_error(log: str) -> tuple[str, int, str]:
    """(file, line, text) of the first complaint in a compiler's log; ("", 0, log) when none is recognised."""
    for m in _PLACE.finditer(log):
        if "warning" not in m["text"][:12]:
            return m["file"], int(m["a"] or m["b"]), m["text"]
    return "", 0, log.strip()[:500]


def compile_error(what: str, log: str) -> KernelError:
    """A KernelError that names file, line and complaint."""
    file, line, text = first_error(log)
    where = f"{file}:{line}: " if file else ""
    return KernelError(
        f"kernel {what} does not compile: {where}{text}; send this message with your CuPy and CUDA versions "
        "(`lucid info`)"
    )


def from_source(
    backend: Any, code: str, entry: str, option: tuple[str, ...] = ("-std=c++17",), what: str = ""
) -> Any:
    """The compiled function `entry` of CUDA source text.

    For kernels that are generated. Not cached. Raises KernelError.
    """
    module = backend.xp.RawModule(code=code, options=option)
    try:
        return module.get_function(entry)
    except Exception as error:
        raise compile_error(what or entry, _log(error)) from error


def _log(error: Exception) -> str:
    # CuPy's CompileException, or an error of the driver: neither class can be imported here.
    message = getattr(error, "get_message", None)
    return str(error if message is None else message())


def function(backend: Any, name: str, dtype: str, defines: tuple[str, ...]) -> Any:
    """The compiled kernel `name` for an element type, on the backend's device; compiled once.

    Raises Unavailable when it does not compile; the first time with a warning that names it.
    """
    key = (backend.device, name, dtype, defines)
    found = _functions.get(key)
    if found is not None:
        return found
    with _lock:
        if key in _failed:
            raise _failed[key]
        kernel = KERNELS[name]
        place = (backend.device, kernel.file, dtype, defines)
        try:
            module = _modules.get(place)
            if module is None:
                module = _modules[place] = backend.xp.RawModule(
                    code=source(kernel.file), options=options(dtype, defines)
                )
            found = _functions[key] = module.get_function(kernel.entry)
            return found
        except Exception as error:
            _modules.pop(place, None)
            what = f"{name} ({dtype}, {backend.device})"
            failure = _failed[key] = Unavailable(str(compile_error(what, _log(error))))
            warnings.warn(
                f"{failure}. Its op runs by its generic formula, more slowly", RuntimeWarning, stacklevel=3
            )
            raise failure from error


def clear() -> None:
    """Nothing; forgets all compiled kernels and failures (tests)."""
    with _lock:
        for cached in (_modules, _functions, _failed):
            cached.clear()
        source.cache_clear()
        header_hash.cache_clear()
