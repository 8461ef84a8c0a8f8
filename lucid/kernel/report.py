"""Reports on the kernels: what there is, what each takes on each architecture, and whether that agrees with
the table in the repository.

`lucid kernels` prints `listing()` and `measure()`; `ci/kernels` runs `main`, which also compares with
ci/kernels_table.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from . import compile as compiling
from . import loader
from .specs import FLOATS, KERNELS

# The architecture whose disassembly is read, and how many registers above the table are a failure rather than
# another compiler's taste.
SASS_ARCH = 90
REGISTERS_MAY_GROW = 8


@dataclass(frozen=True, slots=True)
class Unit:
    """One compilation: a file, an element type, macros."""

    file: str
    dtype: str
    defines: tuple[str, ...]

    def kernels(self) -> list[str]:
        """The kernels that this compilation makes."""
        return [
            k.name
            for k in KERNELS.values()
            if k.file == self.file and self.dtype in k.dtypes and self.defines in k.builds(self.dtype)
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel in one dtype on one architecture: the largest figures over its builds."""

    kernel: str
    dtype: str
    arch: int
    registers: int
    shared: int
    stack: int
    spills: int
    load128: int | None = None  # the fewest over the vector builds; None: not disassembled
    store128: int | None = None
    float64: int | None = None
    builds: int = 1


def units(names: Iterable[str] | None = None, dtypes: Sequence[str] = FLOATS) -> list[Unit]:
    """All compilations of the named kernels (all kernels when None)."""
    chosen = KERNELS.values() if names is None else [_kernel(name) for name in names]
    return list(
        dict.fromkeys(
            Unit(k.file, d, b) for k in chosen for d in k.dtypes if d in dtypes for b in k.builds(d)
        )
    )


def _kernel(name: str) -> Any:
    if name not in KERNELS:
        from ..errors import KernelError

        raise KernelError(f"kernels: there is no {name!r}; lucid kernels lists them all")
    return KERNELS[name]


def listing() -> list[tuple[str, str, str, str]]:
    """(kernel, file, arguments, bytes) of every kernel."""
    return [(k.name, k.file, k.arguments, k.bytes) for k in KERNELS.values()]


def compile_unit(unit: Unit, archs: Sequence[int], sass: bool) -> list[Row]:
    """Rows of one compilation on each architecture. Raises KernelError with file and line."""
    rows = []
    for arch in archs:
        binary, resources = compiling.compile_file(unit.file, unit.dtype, unit.defines, arch)
        seen = sass and arch == SASS_ARCH and "LUCID_SCALAR" not in unit.defines
        code = compiling.disassemble(binary) if seen else {}
        for name in unit.kernels():
            r, i = resources[KERNELS[name].entry], code.get(KERNELS[name].entry)
            vector = KERNELS[name].wide > 0 and "LUCID_SCALAR" not in unit.defines
            rows.append(
                Row(
                    name,
                    unit.dtype,
                    arch,
                    r.registers,
                    r.shared,
                    r.stack,
                    r.spills + (i.local if i else 0),
                    i.load128 if i and vector else None,
                    i.store128 if i and vector else None,
                    i.float64 if i else None,
                )
            )
    return rows


def measure(
    names: Iterable[str] | None = None,
    archs: Sequence[int] = compiling.ARCHS,
    dtypes: Sequence[str] = FLOATS,
    *,
    sass: bool = True,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Row]:
    """One Row per kernel, dtype and architecture, by compiling every build. progress(done, of) is told of
    each compilation.

    sass: read 128-bit accesses and float64 arithmetic from the disassembly for sm_90, where cuobjdump is
    installed.
    """
    work = units(names, dtypes)
    wanted = None if names is None else set(names)
    sass = sass and compiling.disassembler() is not None
    jobs = [(unit, tuple(archs), sass) for unit in work]
    found: dict[tuple[str, str, int], Row] = {}
    number = processes or os.cpu_count() or 1
    if number == 1 or len(jobs) < 4:
        results: Iterable[list[Row]] = (compile_unit(*job) for job in jobs)
        _merge(results, found, len(jobs), progress)
    else:
        with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
            _merge(pool.map(_job, jobs, chunksize=4), found, len(jobs), progress)
    order = {name: i for i, name in enumerate(KERNELS)}
    return sorted(
        (r for r in found.values() if wanted is None or r.kernel in wanted),
        key=lambda r: (order[r.kernel], FLOATS.index(r.dtype), r.arch),
    )


def _job(job: tuple[Unit, tuple[int, ...], bool]) -> list[Row]:
    return compile_unit(*job)


def _merge(
    results: Iterable[list[Row]],
    found: dict[tuple[str, str, int], Row],
    of: int,
    progress: Callable[[int, int], None],
) -> None:
    for done, rows in enumerate(results, 1):
        for row in rows:
            key = (row.kernel, row.dtype, row.arch)
            found[key] = _worse(found[key], row) if key in found else row
        progress(done, of)


def _worse(a: Row, b: Row) -> Row:
    def pick(choose: Callable[..., int], x: int | None, y: int | None) -> int | None:
        return choose(x, y) if x is not None and y is not None else x if y is None else y

    return Row(
        a.kernel,
        a.dtype,
        a.arch,
        max(a.registers, b.registers),
        max(a.shared, b.shared),
        max(a.stack, b.stack),
        max(a.spills, b.spills),
        pick(min, a.load128, b.load128),
        pick(min, a.store128, b.store128),
        pick(max, a.float64, b.float64),
        a.builds + b.builds,
    )


# ---- judging ----


def problems(rows: Iterable[Row]) -> list[str]:
    """What no kernel may do: spill, use float64 outside float64, lose its 128-bit accesses."""
    found = []
    for r in rows:
        where = f"{r.kernel} {r.dtype} sm_{r.arch}"
        if r.spills or r.stack:
            found.append(f"{where}: {r.spills} bytes of spills, {r.stack} bytes of stack; expected none")
        if r.float64 and r.dtype != "float64":
            found.append(f"{where}: {r.float64} float64 instructions; expected none")
        if r.load128 is not None and r.load128 < KERNELS[r.kernel].wide:
            found.append(f"{where}: {r.load128} loads of 128 bits; expected {KERNELS[r.kernel].wide} or more")
        if r.store128 is not None and r.store128 < KERNELS[r.kernel].wide_stores:
            found.append(
                f"{where}: {r.store128} stores of 128 bits; expected {KERNELS[r.kernel].wide_stores} or more"
            )
        if r.shared > 48 * 1024:
            found.append(f"{where}: {r.shared} bytes of static shared memory; every GPU has 49152")
    return found


def as_table(rows: Iterable[Row]) -> dict[str, Any]:
    """The table of the repository: kernel -> dtype -> architecture -> [registers, bytes of shared memory]."""
    table: dict[str, Any] = {}
    for r in rows:
        table.setdefault(r.kernel, {}).setdefault(r.dtype, {})[str(r.arch)] = [r.registers, r.shared]
    return {"nvrtc": compiling.nvrtc_version(), "kernels": table}


def differences(rows: Iterable[Row], table: dict[str, Any]) -> list[str]:
    """Where rows are worse than the table.

    More shared memory, or registers beyond what another compiler version may take.
    """
    found = []
    for r in rows:
        entry = table["kernels"].get(r.kernel, {}).get(r.dtype, {}).get(str(r.arch))
        where = f"{r.kernel} {r.dtype} sm_{r.arch}"
        if entry is None:
            found.append(f"{where}: not in the table; run ci/kernels --update")
        elif r.registers > entry[0] + REGISTERS_MAY_GROW or r.shared > entry[1]:
            found.append(
                f"{where}: {r.registers} registers, {r.shared} bytes of shared memory; the table has "
                f"{entry[0]} and {entry[1]}"
            )
    return found


def lines(rows: Sequence[Row]) -> list[str]:
    """The rows as a text table: registers on each architecture, then what is the same on all."""
    archs = sorted({r.arch for r in rows})
    grouped: dict[tuple[str, str], dict[int, Row]] = {}
    for r in rows:
        grouped.setdefault((r.kernel, r.dtype), {})[r.arch] = r
    heads = " ".join(f"sm_{a}".rjust(6) for a in archs)
    out = [
        f"{'kernel':36} {'dtype':9} {heads}  {'shared':>6} {'spills':>6} {'ld128':>5} {'st128':>5} "
        f"{'builds':>6}"
    ]
    for (kernel, dtype), by_arch in grouped.items():
        registers = " ".join(f"{by_arch[a].registers:6d}" if a in by_arch else " " * 6 for a in archs)
        worst = max(by_arch.values(), key=lambda r: (r.spills, r.shared))
        seen = by_arch.get(SASS_ARCH, worst)
        wide = " ".join("    -" if n is None else f"{n:5d}" for n in (seen.load128, seen.store128))
        out.append(
            f"{kernel:36} {dtype:9} {registers}  {worst.shared:6d} {worst.spills:6d} {wide} {worst.builds:6d}"
        )
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of ci/kernels.

    0 when every kernel compiles for every architecture and keeps its promises.
    """
    parser = argparse.ArgumentParser(
        prog="ci/kernels",
        description="compiles every kernel and compares what it takes with ci/kernels_table.json",
    )
    parser.add_argument("kernels", nargs="*", help="names of kernels (default: all)")
    parser.add_argument(
        "--arch", default=",".join(map(str, compiling.ARCHS)), help="compute capabilities, as 75,90"
    )
    parser.add_argument("--dtype", default=",".join(FLOATS), help="element types, as float32,bfloat16")
    parser.add_argument(
        "--table",
        type=Path,
        default=loader.source_folder().parent / "ci" / "kernels_table.json",
        help="the table to compare with",
    )
    parser.add_argument("--update", action="store_true", help="write the table instead of comparing with it")
    parser.add_argument("--no-sass", action="store_true", help="leave the disassembly out")
    args = parser.parse_args(argv)
    ok, reason = compiling.available()
    if not ok:
        print(f"ci/kernels: {reason}", file=sys.stderr)
        return 2
    archs = tuple(int(a) for a in args.arch.split(","))

    def progress(done: int, of: int) -> None:
        if sys.stderr.isatty():
            print(
                f"\r{done} of {of} compilations", end="" if done < of else "\n", file=sys.stderr, flush=True
            )

    rows = measure(
        args.kernels or None, archs, tuple(args.dtype.split(",")), sass=not args.no_sass, progress=progress
    )
    print("\n".join(lines(rows)))
    found = problems(rows)
    if not args.no_sass and compiling.disassembler() is None:
        found.append(
            "no cuobjdump: 128-bit accesses and float64 arithmetic were not looked at; pip install "
            "nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    if args.update:
        args.table.write_text(_dump(_merged(args.table, as_table(rows))))
    else:
        found += differences(rows, json.loads(args.table.read_text()))
    print(f"NVRTC {compiling.nvrtc_version()}, {sum(r.builds for r in rows)} builds, {len(found)} problems")
    for text in found:
        print(text)
    return 1 if found else 0


def _merged(path: Path, new: dict[str, Any]) -> dict[str, Any]:
    old = json.loads(path.read_text()) if path.exists() else {"kernels": {}}
    kernels = {name: old["kernels"].get(name, {}) for name in KERNELS}
    for name, dtypes in new["kernels"].items():
        for dtype, archs in dtypes.items():
            kernels[name] = {**kernels[name], dtype: {**kernels[name].get(dtype, {}), **archs}}
    return {"nvrtc": new["nvrtc"], "kernels": kernels}


def _dump(table: dict[str, Any]) -> str:
    # One line per kernel and dtype: a change of one kernel is a change of its lines.
    body = ",\n".join(
        f'    "{name}": {{\n'
        + ",\n".join(f'      "{d}": {json.dumps(a)}' for d, a in dtypes.items())
        + "\n    }"
        for name, dtypes in table["kernels"].items()
    )
    return f'{{\n  "nvrtc": "{table["nvrtc"]}",\n  "kernels": {{\n{body}\n  }}\n}}\n'


if __name__ == "__main__":
    sys.exit(main())
