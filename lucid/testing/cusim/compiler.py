"""From CUDA source to a shared object: preprocess, rewrite `__shared__`, compile with g++, keep in a cache.

The source is preprocessed first with no system header in reach, as NVRTC does it.  Kernels and shared arrays
are then found in the expanded text, so macro-made kernels and arrays in headers need no special case, and the
hash of that text covers every header.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
OWN = "/cusim"  # what our own headers are called in debug information, wherever they lie
STD = "-std=c++17"


class CompileError(RuntimeError):
    """A CUDA source that g++ refuses; `errors` holds (file, line, text) of each complaint."""

    def __init__(self, message: str, errors: list[tuple[str, int, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


@dataclass(frozen=True)
class Build:
    """What a compiled source is: the shared object, its kernels by name, which have C linkage, and the
    names of the parameters of each.
    """

    path: Path
    kernels: tuple[str, ...]
    extern_c: frozenset[str]
    parameters: dict[str, tuple[str, ...]]


def compiler() -> str | None:
    """The path of the C++ compiler ($LUCID_CXX, else g++), or None."""
    return shutil.which(os.environ.get("LUCID_CXX", "g++"))


def available() -> tuple[bool, str]:
    """(True, "") when kernels can run here, else (False, what is missing).

    >>> ok, reason = available()
    >>> ok or bool(reason)
    True
    """
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "AMD64"):
        return False, f"cusim runs on x86-64 Linux only, this is {platform.system()} on {platform.machine()}"
    if compiler() is None:
        return False, "cusim needs g++ (Debian: apt-get install g++), or another g++ named by $LUCID_CXX"
    return True, ""


def cache_dir() -> Path:
    """The folder of compiled kernels: $LUCID_CACHE/cusim, else ~/.cache/lucid/cusim; made if it is absent."""
    root = os.environ.get("LUCID_CACHE")
    path = Path(root) / "cusim" if root else Path.home() / ".cache" / "lucid" / "cusim"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        path = Path(tempfile.gettempdir()) / f"lucid-cusim-{os.getuid()}"
        path.mkdir(parents=True, exist_ok=True)
    return path


@functools.cache
def _version(cxx: str) -> str:
    return subprocess.run([cxx, "--version"], capture_output=True, text=True).stdout.split("\n")[0]


@functools.cache
def _own_sources() -> str:
    h = hashlib.sha256()
    for f in sorted([*HERE.glob("*.h"), *HERE.glob("*.cpp"), *INCLUDE.glob("*.h"), Path(__file__)]):
        h.update(f.read_bytes())
    return h.hexdigest()


@functools.cache
def _machine_flags() -> tuple[str, ...]:
    """-march=x86-64-v3 where the processor has it: AVX2 halves the time of elementwise kernels."""
    try:
        flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1].split())  # type: ignore[index]
    except (OSError, TypeError):
        return ()
    return ("-march=x86-64-v3",) if {"avx2", "fma", "bmi2", "f16c", "movbe", "abm"} <= flags else ()


# ---- reading the expanded source ------------------------------------------------------------------

_TOKEN = re.compile(
    r"""extern\s+"C"\s*\{|__global__|(?:extern\s+)?\b__shared__|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{};]"""
)
_ALIGN = re.compile(r"(?:__align__|alignas)\s*\(((?:[^()]|\([^()]*\))*)\)")


def _close(text: str, start: int) -> int:
    """The index just past the parenthesis that matches the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i + 1
    return len(text)


def _kernel_name(text: str, at: int) -> tuple[str, tuple[str, ...]] | None:
    """(name, names of parameters) of the function whose declaration goes on at `at`, after `__global__`."""
    while True:
        m = re.compile(r"[^({;]*\(").match(text, at)
        if m is None:
            return None
        words = re.findall(r"\w+", m[0])
        if not words:
            return None
        if words[-1] in ("__launch_bounds__", "__cluster_dims__", "__attribute__"):
            at = _close(text, m.end() - 1)
            continue
        given = _split(text[m.end() : _close(text, m.end() - 1) - 1])
        return words[-1], tuple((re.findall(r"\w+", part.split("=")[0]) or [""])[-1] for part in given)


def _split(text: str, sep: str = ",") -> list[str]:
    parts, depth, last = [], 0, 0
    for i, ch in enumerate(text):
        depth += (ch in "([{<") - (ch in ")]}>")
        if ch == sep and not depth:
            parts.append(text[last:i])
            last = i + 1
    return [*parts, text[last:]]


def _shared_array(declaration: str, dynamic: bool, depth: int, before: str) -> str:
    """C++ for one `__shared__` declaration (without the keyword and the semicolon)."""
    aligns = [f"(unsigned)({a})" for a in _ALIGN.findall(before) + _ALIGN.findall(declaration)]
    text = re.sub(r"\b(?:volatile|static|extern)\b", " ", _ALIGN.sub(" ", declaration))
    first, *more = _split(text)
    m = re.match(r"^(.*?)([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$", first.strip(), re.S)
    if m is None or not m[1].strip():
        raise CompileError(f"cusim cannot read the declaration `__shared__ {' '.join(declaration.split())};`")
    base, out = m[1].strip(), []
    for name, dims in [(m[2], m[3])] + [_declarator(d, declaration) for d in more]:
        if dynamic:
            out.append(f"{base}* const {name} = ({base}*)cusim_dyn;")
            continue
        if depth == 0:
            raise CompileError(
                f"cusim: declare the shared array `{name}` inside a function, not at file scope"
            )
        type_, tag = f"cusim_type_{name}", f"cusim_tag_{name}"
        align = " | ".join([f"(unsigned)alignof({type_})", *aligns])
        out.append(
            f"struct {tag} {{}}; typedef {base} {type_}{dims.strip()}; "
            f"{type_}& {name} = cusim::shared<{type_}, {tag}>({align});"
        )
    return " ".join(out) + "\n" * declaration.count("\n")


def _declarator(text: str, declaration: str) -> tuple[str, str]:
    m = re.match(r"^\s*([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$", text, re.S)
    if m is None:
        raise CompileError(f"cusim cannot read the declaration `__shared__ {' '.join(declaration.split())};`")
    return m[1], m[2]


def rewrite(text: str) -> tuple[str, dict[str, tuple[str, ...]], set[str]]:
    """(text without `__shared__`, names of parameters by non-template kernel, kernels with C linkage)."""
    out: list[str] = []
    kernels: dict[str, tuple[str, ...]] = {}
    extern_c: set[str] = set()
    scopes: list[bool] = []  # per open brace: is it an `extern "C" {`
    last = statement = pos = 0
    while (m := _TOKEN.search(text, pos)) is not None:
        token, pos = m[0], m.end()
        if token.startswith("extern") and token.endswith("{"):
            scopes.append(True)
            statement = pos
        elif token == "{":
            scopes.append(False)
            statement = pos
        elif token in "};":
            if token == "}" and scopes:
                scopes.pop()
            statement = pos
        elif token == "__global__":
            before = text[statement : m.start()]
            found = _kernel_name(text, pos)
            if found and not re.search(r"\btemplate\b", before) and found[0] not in kernels:
                name, kernels[name] = found[0], found[1]
                if re.search(r'extern\s+"C"', before) or any(scopes):
                    extern_c.add(name)
        elif token.endswith("__shared__"):
            end = text.index(";", pos)
            before = text[statement : m.start()]
            lead = re.search(r"(?:\b(?:static|extern)\s+|(?:__align__|alignas)\s*\([^;]*\)\s*)*$", before)
            start = statement + lead.start() if lead else m.start()
            dynamic = "extern" in token or "extern" in text[start : m.start()]
            depth = sum(not c for c in scopes)
            new = _shared_array(text[pos:end], dynamic, depth, text[start : m.start()])
            out += [text[last:start], new]
            last = pos = end + 1
            statement = pos
    out.append(text[last:])
    return "".join(out), kernels, extern_c


# ---- compiling ------------------------------------------------------------------------------------


def _excerpt(filename: str, code: str, name: str, line: int) -> str:
    if name == filename:
        lines = code.split("\n")
    else:
        try:
            lines = Path(name).read_text().split("\n")
        except OSError:
            return ""
    return f"\n    {lines[line - 1].strip()}" if 0 < line <= len(lines) else ""


def _failure(stderr: str, filename: str, code: str) -> CompileError:
    """A CompileError with file:line of the user's source, made from what g++ wrote."""
    errors = []
    for m in re.finditer(r"^(.*?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", stderr, re.M):
        name = m[1]
        if Path(name).parent != INCLUDE:
            errors.append((name, int(m[2]), m[3]))
    shown = [f"{n}:{i}: {t}{_excerpt(filename, code, n, i)}" for n, i, t in errors[:8]]
    text = "\n".join(shown) if shown else stderr.strip()[-3000:]
    return CompileError(f"the CUDA source {filename} does not compile:\n{text}", errors)


def _run(cmd: list[str], source: str, filename: str, code: str) -> str:
    p = subprocess.run(cmd, input=source, capture_output=True, text=True)
    if p.returncode:
        raise _failure(p.stderr, filename, code)
    return p.stdout


def _flags(checked: bool, coverage: bool, fma: bool) -> list[str]:
    flags = [
        "-fPIC",
        "-w",
        "-g1",
        "-gdwarf-4",
        "-fno-strict-aliasing",
        "-fvisibility=hidden",
        "-fno-exceptions",
        "-fno-rtti",
        "-fno-gnu-unique",
        "-fno-threadsafe-statics",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-delete-null-pointer-checks",
        "-fno-diagnostics-show-caret",
        "-nostdinc",
        "-nostdinc++",
    ]
    if checked:
        flags += ["-O1", "-fno-tree-sra", "-fsanitize=thread", "-DCUSIM_CHECK"]
    else:
        flags += ["-O1"] if coverage else ["-O2"]
        flags += _machine_flags()
    if coverage:
        flags += ["--coverage", "-fno-inline"]
    flags += ["-mfma", "-ffp-contract=fast"] if fma else ["-ffp-contract=off"]
    return flags


def _publish(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """folder/name; `make` fills it under another name first, so that other processes never see a part."""
    path = folder / name
    if not path.exists():
        part = folder / f".{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        try:
            make(part)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path


def _runtime(cxx: str, checked: bool) -> Path:
    """The object file of runtime.cpp."""
    flags = [
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-w",
        "-g1",
        "-gdwarf-4",
        "-fvisibility=hidden",
        "-fno-exceptions",
        "-fcf-protection=none",
    ]
    if checked:
        flags.append("-DCUSIM_CHECK")
    key = hashlib.sha256(repr((flags, _own_sources(), _version(cxx))).encode()).hexdigest()[:24]

    def make(part: Path) -> None:
        cmd = [
            cxx,
            *flags,
            f"-ffile-prefix-map={HERE}={OWN}",
            "-c",
            str(HERE / "runtime.cpp"),
            "-o",
            str(part),
        ]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode:
            raise CompileError(f"cusim's own runtime does not compile:\n{p.stderr[-3000:]}")

    return _publish(cache_dir(), f"runtime-{key}.o", make)


_TAIL = """
CUSIM_EXPORT void cusim_call_{i}(void** a) {{ cusim::call(&{f}, a); }}
CUSIM_EXPORT int cusim_params_{i}(cusim::Param* p) {{ return cusim::describe(&{f}, p); }}
"""
_GCOV = """
extern "C" void __gcov_dump(void);
extern "C" void __gcov_reset(void);
extern "C" __attribute__((visibility("default"))) void cusim_gcov_dump() { __gcov_dump(); }
extern "C" __attribute__((visibility("default"))) void cusim_gcov_reset() { __gcov_reset(); }
"""
_MAX_PARAMS = 64


def build(
    code: str,
    options: tuple[str, ...] = (),
    name_expressions: tuple[str, ...] = (),
    *,
    filename: str = "kernel.cu",
    checked: bool = False,
    coverage: bool = False,
    fma: bool = False,
) -> Build:
    """A Build of the CUDA source `code`; takes about 0.2 s, and 20 ms when the cache has it.

    `options` may hold -D, -U, -I, -std and `-include`; what only NVRTC understands is ignored.
    Raises CompileError with file:line of `code` or of the header at fault.
    """
    ok, reason = available()
    if not ok:
        raise CompileError(reason)
    cxx = compiler() or ""
    front, std = _front_options(options)
    line = f'# 1 "{filename}"\n'
    expanded = _run(
        [
            cxx,
            "-E",
            std,
            "-nostdinc",
            "-nostdinc++",
            "-fno-diagnostics-show-caret",
            f"-I{INCLUDE}",
            "-imacros",
            str(INCLUDE / "cusim_site.h"),
            *front,
            "-x",
            "c++",
            "-",
        ],
        line + code,
        filename,
        code,
    )
    expanded = re.sub(
        r'^# \d+ "(?:<(?:stdin|built-in|command-line)>|[^"]*/cusim_site\.h)".*\n', "", expanded, flags=re.M
    )
    text, kernels, extern_c = rewrite(expanded)
    names = (*kernels, *(n for n in name_expressions if n not in kernels))
    tail = "".join(_TAIL.format(i=i, f=n) for i, n in enumerate(names)) + (_GCOV if coverage else "")
    source = f'#include "cusim.h"\n{text}\n# 1 "cusim_tail.h"\n{tail}'
    flags = [*_flags(checked, coverage, fma), std]
    key = hashlib.sha256(repr((source, flags, _version(cxx), _own_sources())).encode()).hexdigest()[:24]
    folder = cache_dir()

    def make(part: Path) -> None:
        runtime = _runtime(cxx, checked)
        obj = folder / f"{part.name}.o"
        notes = obj.with_suffix(".gcno")
        try:
            # From every process, checkout and folder the same.
            maps = [f"-fdebug-prefix-map={os.getcwd()}=.", f"-ffile-prefix-map={HERE}={OWN}"]
            same = [f"-frandom-seed={key}", *maps]
            _run(
                [cxx, *flags, *same, f"-I{INCLUDE}", "-x", "c++", "-c", "-", "-o", str(obj)],
                source,
                filename,
                code,
            )
            # linked without -fsanitize=thread, which would pull in libtsan
            link = [cxx, "-shared", "-Wl,-Bsymbolic", str(obj), str(runtime), "-o", str(part), "-lm", "-ldl"]
            p = subprocess.run([*link, *(["--coverage"] if coverage else [])], capture_output=True, text=True)
            if p.returncode:
                raise CompileError(f"{filename} does not link:\n{p.stderr[-2000:]}")
            if coverage:
                os.replace(notes, folder / f"{key}.gcno")
        finally:
            obj.unlink(missing_ok=True)
            notes.unlink(missing_ok=True)

    return Build(_publish(folder, f"{key}.so", make), names, frozenset(extern_c), kernels)


def _front_options(options: tuple[str, ...]) -> tuple[list[str], str]:
    """Options for the preprocessor, and the language standard (never below C++17)."""
    front, std, take = [], STD, False
    for o in options:
        if take:
            front.append(o)
            take = False
        elif o in ("-I", "-D", "-U", "-include", "--include-path", "--define-macro"):
            front.append({"--include-path": "-I", "--define-macro": "-D"}.get(o, o))
            take = True
        elif o.startswith(("-I", "-D", "-U")):
            front.append(o)
        elif o.startswith("--include-path="):
            front.append("-I" + o.split("=", 1)[1])
        elif o.startswith("--define-macro="):
            front.append("-D" + o.split("=", 1)[1])
        elif re.fullmatch(r"--?std=c\+\+(20|23|2a|2b)", o):
            std = "-" + o.lstrip("-")
    return front, std
