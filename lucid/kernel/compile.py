"""Compiling kernels without a GPU.

NVRTC through ctypes, with CuPy's options, and what ptxas and the disassembly say about the result.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import KernelError
from . import loader

ARCHS = (75, 80, 90, 100, 120)

# What CuPy 14 adds to a RawModule's own options (cupy/cuda/compiler.py); -v makes ptxas report registers,
# shared memory and spills.
_CUPY_OPTIONS = ("-ftz=true", "--device-as-default-execution-space", "--ptxas-options=-v")

# ptxas: one paragraph per kernel; "1024 bytes smem" is missing where there is none.
_RESOURCES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?\n.*?\n.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\n.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes, per thread (registers, bytes of stack and spills) and per block (bytes of shared
    memory).
    """

    registers: int
    shared: int
    stack: int
    spills: int


@dataclass(frozen=True, slots=True)
class Instructions:
    """Counts from a kernel's disassembly.

    128-bit loads and stores, all loads and stores, float64 arithmetic, accesses to local memory.
    """

    load128: int
    store128: int
    loads: int
    stores: int
    float64: int
    local: int


def _packaged(*parts: str) -> Iterator[Path]:
    # The wheels of CUDA 12 lie in nvidia/<part>/, those of 13 in nvidia/cu13/.
    for folder in sys.path:
        root = Path(folder or ".") / "nvidia"
        if root.is_dir():
            for place in sorted(root.iterdir(), reverse=True):
                yield place.joinpath(*parts)


@cache
def nvrtc_library() -> str | None:
    """The path of libnvrtc.

    From a wheel, a CUDA toolkit ($CUDA_PATH, /usr/local/cuda), or the loader's path; None when there is none.
    """
    for folder in _packaged("lib"):
        for path in sorted(folder.glob("libnvrtc.so.*")):
            return str(path)
    for root in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        for part in ("lib64", "lib", "targets/x86_64-linux/lib"):
            for path in sorted(Path(root, part).glob("libnvrtc.so.*")) if root else ():
                return str(path)
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        try:
            ctypes.CDLL(name)
            return name
        except OSError:
            continue
    return None


def available() -> tuple[bool, str]:
    """(True, "") when kernels can be compiled here, else (False, what to install)."""
    if nvrtc_library() is None:
        return False, "NVRTC is not installed; pip install 'nvidia-cuda-nvrtc==13.0.*'"
    return True, ""


@cache
def _nvrtc() -> ctypes.CDLL:
    ok, reason = available()
    if not ok:
        raise KernelError(f"kernels: cannot compile, {reason}")
    path = str(nvrtc_library())
    # NVRTC opens its built-in functions by bare name, which the loader finds only once they are loaded.
    for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")) if "/" in path else ():
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(path)


def nvrtc_version() -> str:
    """NVRTC's version: "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def supported_archs() -> tuple[int, ...]:
    """The compute capabilities, times ten, for which this NVRTC compiles."""
    number = ctypes.c_int()
    _nvrtc().nvrtcGetNumSupportedArchs(ctypes.byref(number))
    archs = (ctypes.c_int * number.value)()
    _nvrtc().nvrtcGetSupportedArchs(archs)
    return tuple(archs)


def _text(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(_nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(_nvrtc(), f"nvrtcGet{what}")(program, buffer)
    return buffer.raw


def cubin(code: str, options: tuple[str, ...], arch: int, name: str) -> tuple[bytes, str]:
    """(binary, compiler's log) of CUDA source text for an architecture (90 is sm_90).

    Raises KernelError with file and line.
    """
    lib, program = _nvrtc(), ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), code.encode(), name.encode(), 0, None, None)
    try:
        given = [o.encode() for o in (*options, *_CUPY_OPTIONS, f"-arch=sm_{arch}")]
        failed = lib.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        log = _text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if failed:
            raise loader.compile_error(f"{name} for sm_{arch}", log)
        return _text(program, "CUBIN"), log
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def compile_file(
    file: str, dtype: str, defines: tuple[str, ...], arch: int
) -> tuple[bytes, dict[str, Resources]]:
    """(binary, resources by entry point) of a kernel file for an element type, macros and an architecture."""
    binary, log = cubin(loader.source(file), loader.options(dtype, defines), arch, f"kernels/{file}")
    return binary, read_resources(log)


def read_resources(log: str) -> dict[str, Resources]:
    """Resources by entry point, from ptxas's report."""
    found = {}
    for m in _RESOURCES.finditer(log):
        shared = re.search(r"(\d+) bytes smem", m["rest"])
        found[m["name"]] = Resources(
            int(m["registers"]),
            int(shared[1]) if shared else 0,
            int(m["stack"]),
            int(m["stores"]) + int(m["loads"]),
        )
    return found


@cache
def disassembler() -> str | None:
    """The path of cuobjdump (with nvdisasm beside it), or None."""
    for folder in _packaged("bin"):
        if (folder / "cuobjdump").is_file() and (folder / "nvdisasm").is_file():
            return str(folder / "cuobjdump")
    found = shutil.which("cuobjdump")
    return found if found and shutil.which("nvdisasm") else None


def disassemble(binary: bytes) -> dict[str, Instructions]:
    """Instructions by entry point. Raises KernelError when cuobjdump is missing or fails."""
    tool = disassembler()
    if tool is None:
        raise KernelError(
            "kernels: cannot disassemble; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        path = f"{Path(tool).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        run = subprocess.run(
            [tool, "-sass", file.name], capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
    if run.returncode:
        raise KernelError(f"kernels: cuobjdump failed: {run.stderr.strip()[:500]}")
    result = {}
    for part in run.stdout.split("Function : ")[1:]:
        ops = _INSTRUCTION.findall(part)

        def count(pattern: str, ops: list[str] = ops) -> int:
            return sum(1 for o in ops if re.match(pattern, o))

        # DADD.. compute; F2F between widths and I2F.F64 convert.
        result[part.split()[0]] = Instructions(
            count(r"LDG.*\.128|LD\..*128"),
            count(r"STG.*\.128|ST\..*128"),
            count(r"LDG|LD\."),
            count(r"STG|ST\."),
            count(r"D(ADD|MUL|FMA|SETP)|F2F.*64|I2F.*F64|F2I.*F64|MUFU.*64"),
            count("LDL|STL"),
        )
    return result
