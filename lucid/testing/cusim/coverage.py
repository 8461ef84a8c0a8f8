"""Line coverage of CUDA sources: which lines of a .cu the launches so far have executed (gcov counts)."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .compiler import INCLUDE

if TYPE_CHECKING:
    from .module import Module

_modules: dict[str, ctypes.PyDLL] = {}  # path of the shared object -> its library
_counts: dict[str, dict[int, int]] = {}  # source file -> line -> executions


@dataclass(frozen=True)
class FileCoverage:
    """Executed and executable lines of one source file."""

    file: str
    counts: dict[int, int] = field(repr=False)

    @property
    def missing(self) -> tuple[int, ...]:
        """Lines with code that never ran."""
        return tuple(sorted(n for n, c in self.counts.items() if not c))

    @property
    def percent(self) -> float:
        """Executed lines in percent of those with code."""
        return 100.0 * sum(c > 0 for c in self.counts.values()) / max(1, len(self.counts))


def register(module: Module) -> None:
    """Lets `coverage` ask a module that was compiled with coverage=True."""
    if not _modules:
        atexit.register(_discard)
    _modules[str(module.path)] = module._lib


def _discard() -> None:
    """Writes the counts to nowhere: libgcov would else write them into the cache when the process ends."""
    with tempfile.TemporaryDirectory() as tmp:
        for lib in _modules.values():
            _dump(lib, tmp)


def _dump(lib: ctypes.PyDLL, folder: str) -> None:
    before = os.environ.get("GCOV_PREFIX")
    os.environ["GCOV_PREFIX"] = folder  # read by libgcov when it writes
    try:
        lib.cusim_gcov_dump()
    finally:
        if before is None:
            del os.environ["GCOV_PREFIX"]
        else:
            os.environ["GCOV_PREFIX"] = before


def _collect(path: str, lib: ctypes.PyDLL) -> None:
    notes = Path(path).with_suffix(".gcno")
    with tempfile.TemporaryDirectory() as tmp:
        _dump(lib, tmp)
        lib.cusim_gcov_reset()
        data = next(Path(tmp).rglob("*.gcda"), None)
        if data is None or not notes.exists():
            raise RuntimeError(
                f"cusim: no coverage data for {path}; delete it from the cache and compile again"
            )
        shutil.copy(notes, data.with_suffix(".gcno"))
        p = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(data)], capture_output=True, text=True, cwd=tmp
        )
        if p.returncode:
            raise RuntimeError(f"cusim: gcov failed: {p.stderr.strip()}")
        for f in json.loads(p.stdout)["files"]:
            lines = _counts.setdefault(f["file"], {})
            for row in f["lines"]:
                n = row["line_number"]
                lines[n] = lines.get(n, 0) + row["count"]


def coverage(files: Iterable[str] | None = None) -> dict[str, FileCoverage]:
    """FileCoverage by source file, of all launches of modules with coverage=True in this process.

    files: names, or ends of names, of the sources wanted; all user sources when None.
    """
    for path, lib in _modules.items():
        _collect(path, lib)
    own = {"cusim_tail.h", *(h.name for h in INCLUDE.glob("*.h"))}
    names = [n for n in _counts if Path(n).name not in own]
    if files is not None:
        wanted = tuple(files)
        names = [n for n in names if n.endswith(wanted)]
    return {n: FileCoverage(n, dict(sorted(_counts[n].items()))) for n in sorted(names)}


def reset_coverage() -> None:
    """Forgets what has run so far."""
    for path, lib in _modules.items():
        _collect(path, lib)
    _counts.clear()
