"""What `ci/mutate` runs: every mutant of the CUDA sources against the scenarios of its file.

    ci/mutate                            all files; only what has changed since the last run is run again
    ci/mutate softmax.cu layer_norm      some, by file or kernel
    ci/mutate --sample 40 lucid.cuh      40 mutants of each file, always the same ones
    ci/mutate --list pool.cu             the mutants, without running them

A mutant is killed by the compiler, by values (a formula in float64, in four orders of threads; arrays of more
than 2^32 elements), by the checked mode, or by taking too long. Survivors are compared with
kernels/mutants.toml, which says of each why it computes the same; one that is not there fails the command.
Results are kept in $LUCID_CACHE/mutants (~/.cache/lucid/mutants).
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from lucid.kernel import calls, calls_spatial, loader, multi_tensor, specs
from lucid.kernel.specs import KERNELS
from lucid.testing import cusim
from lucid.testing.cusim import compiler
from lucid.testing.cusim import module as cusim_module
from lucid.testing.cusim.mutants import Mutant, mutants
from tests.kernels import formulas, scenarios, scenarios_tensors, sim, test_large, test_pointwise
from tests.kernels.sim import Sim

KILLED = ("compiler", "values", "checked", "timeout")
SURVIVED, BROKEN = "survived", "broken"
# Seconds of processor time for a launch and for all trials of a mutant; of any time for these.
LAUNCH_LIMIT, LIMIT, PATIENCE = 5.0, 600.0, 7200.0

Trial = Callable[[], None]


# ---- trials ----


def _values(scenario, dtype, odd) -> Trial:
    return lambda: scenario(Sim(), dtype, odd)


def _checked(scenario, dtype, odd) -> Trial:
    return lambda: scenario(Sim("random", 5, mode="checked"), dtype, odd)


def _large(file: str) -> list[Trial]:
    t = test_large
    row_sizes = (1, 1024, 4096, 8192)
    of_file: dict[str, list[Trial]] = {
        "pointwise.cu": [lambda a=a: t.test_element_by_element(*a) for a in ((0, 0), (1, 0), (0, 1))],
        "dropout.cu": [lambda a=a: t.test_dropout(a) for a in (0, 1)],
        "bias_grad.cu": [
            *(lambda c=c: t.test_bias_gradient(c) for c in (64, 1)),
            t.test_bias_gradient_of_wide_rows,
            t.test_finish_of_column_sums,
        ],
        "softmax.cu": [lambda c=c: t.test_rows(c) for c in row_sizes],
        "cross_entropy.cu": [lambda c=c: t.test_rows(c) for c in row_sizes],
        "norm.cu": [
            *(
                lambda c=c, n=n: t.test_norms(n, c)
                for c in (1, 256, 4096, 16384)
                for n in ("layer_norm", "rms_norm")
            ),
            t.test_norm_weight,
        ],
        "batch_norm.cu": [lambda i=i: t.test_batch_norm_just_below(i) for i in (1, 1024)],
        "segment.cu": [t.test_sums_by_index],
        "pool.cu": [t.test_windows, t.test_planes_of_more_than_2_31_cells],
        "columns.cu": [t.test_columns, t.test_planes_of_more_than_2_31_cells],
        "optimizer.cu": [
            lambda n=n, o=o: t.test_optimisers(n, o) for n in ("sgd_momentum", "adam_amsgrad") for o in (0, 1)
        ],
        "windows.cuh": [
            t.test_windows,
            t.test_columns,
            t.test_planes_of_one_cell,
            t.test_planes_of_more_than_2_31_cells,
        ],
        "gradients.cu": [lambda o=o: t.test_gradients(o) for o in (0, 1)],
        "softmax_columns.cu": [
            lambda: t.test_columns_of_softmax(65535, 9, 8192),
            lambda: t.test_columns_of_softmax(1, 2, t.MOST + 255),
        ],
    }
    if file == "lucid.cuh":
        return [
            trial
            for name in ("pointwise.cu", "dropout.cu", "softmax.cu", "norm.cu")
            for trial in of_file[name]
        ]
    return of_file.get(file, [])


def _header() -> list[Trial]:
    # Conversions bit by bit, and the stream of random words.
    t = test_pointwise
    names = ("float16", "bfloat16")
    each = (t.test_conversions_are_exact_for_every_bit_pattern, t.test_rounding_is_to_nearest_even)
    return [*(lambda f=f, d=d: f(d) for f in each for d in names), t.test_philox_is_the_generators_stream]


def trials(file: str) -> Iterator[tuple[str, Trial]]:
    """(kind of death, trial) of a file's mutants, cheap ones first."""
    for scenario in scenarios.FILES[file]:
        yield from (("values", _values(scenario, "float32", odd)) for odd in (0, 1))
    if file == "lucid.cuh":
        yield from (("values", trial) for trial in _header())
    for scenario in scenarios.FILES[file]:
        yield from (
            ("values", _values(scenario, d, odd))
            for d, odd in (("float16", 0), ("bfloat16", 1), ("float64", 0))
        )
    yield from (("values", trial) for trial in _large(file))
    for scenario in scenarios.FILES[file]:
        yield from (
            ("checked", _checked(scenario, d, odd))
            for d, odd in (("float32", 0), ("float32", 1), ("bfloat16", 0), ("bfloat16", 1), ("float64", 0))
        )


def activations(file: str, text: str, line: int) -> tuple[str, ...]:
    """The activations that a change in a line of a file can touch: of activations.cuh those whose functions
    use the line's, of others one for all.
    """
    if file != "activations.cuh":
        return ("gelu",)
    lines = text.split("\n")
    starts = {
        m[1]: n for n, t in enumerate(lines, 1) if (m := re.match(r"(?:DEVICE accum_t|#define) (\w+)", t))
    }
    owner = max((n, name) for name, n in starts.items() if n <= line)[1]
    ends = sorted([*starts.values(), len(lines) + 1])
    bodies = {name: lines[n - 1 : ends[ends.index(n) + 1] - 1] for name, n in starts.items()}
    reached = {owner}
    for _ in starts:  # as deep as functions call each other
        reached |= {
            name for name, body in bodies.items() if reached & set(re.findall(r"\w+", " ".join(body)))
        }
    return tuple(a for a in specs.ACTIVATIONS if reached & {f"{a}_value", f"{a}_slope"})


def _outcome(file: str, text: str, line: int) -> tuple[str, str]:
    # (outcome, the first line of what killed it), in a child process.
    scenarios.ACTIVATIONS = activations(file, text, line) or specs.ACTIVATIONS
    with np.errstate(all="ignore"):
        for kind, trial in trials(file):
            try:
                trial()
            except cusim.CompileError as error:
                return "compiler", str(error)
            except cusim.KernelError as error:
                slow = any(r.kind == "timeout" for r in error.reports)
                return "timeout" if slow else kind, str(error)
            except (OSError, MemoryError):
                raise
            except Exception as error:
                return kind, f"{type(error).__name__}: {error}"
    return SURVIVED, ""


# ---- one mutant in a child process ----


def _spent(process: int) -> float:
    """Seconds of processor time of a process and of its children that have ended: a busy machine kills no
    mutant.
    """
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Workshop:
    """A folder of sources in which one file changes, and a cache of what is compiled from them."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lucid-mutants-"))
        self.sources, self.cache = self.folder / "kernels", self.folder / "cache"
        shutil.copytree(loader.source_folder(), self.sources)
        (self.cache / "cusim").mkdir(parents=True)
        for runtime in compiler.cache_dir().glob("runtime-*.o"):
            shutil.copy(runtime, self.cache / "cusim")
        self.kept = set(os.listdir(self.cache / "cusim"))
        self.began = False

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, file: str, text: str, line: int = 1, keep: bool = False) -> tuple[str, str]:
        """(outcome, what killed it) of kernels/`file` with another text, which differs in `line`. keep: what
        it compiles stays.
        """
        original = (self.sources / file).read_text()
        (self.sources / file).write_text(text)
        try:
            return self._in_child(file, text, line)
        finally:
            (self.sources / file).write_text(original)
            made = set(os.listdir(self.cache / "cusim")) - self.kept
            for name in () if keep else made:
                (self.cache / "cusim" / name).unlink(missing_ok=True)
            self.kept |= made if keep else set()

    def _in_child(self, file: str, text: str, line: int) -> tuple[str, str]:
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            try:
                os.setpgid(0, 0)  # its compilers end with it
                os.environ["LUCID_CACHE"] = str(self.cache)
                cusim_module.TIMEOUT = LAUNCH_LIMIT
                loader.clear()
                loader.source_folder = lambda: self.sources  # type: ignore[assignment]
                sim.crowded = lambda: False
                answer.write_text(json.dumps(_outcome(file, text, line)))
            except BaseException:
                answer.write_text(json.dumps([BROKEN, traceback.format_exc()]))
            finally:
                os._exit(0)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and _spent(child) < LIMIT:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                if answer.exists():
                    outcome, why = json.loads(answer.read_text())
                    if outcome == BROKEN:
                        raise RuntimeError(f"ci/mutate cannot run kernels/{file}:\n{why}")
                    return outcome, why.split("\n")[0][:200]
                return "values", f"the process ended with status {status}"
            time.sleep(0.01)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "timeout", f"more than {LIMIT:g} s of processor time, or {PATIENCE:g} s"


# ---- results of earlier runs ----


# Modules that judge a mutant: only what a file's trials use of them counts.
_JUDGES = (scenarios, scenarios_tensors, formulas, test_large, test_pointwise)
_JUDGES += (calls, calls_spatial, multi_tensor)


@cache
def _definitions() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Top-level name -> (its source, the names it uses) in each of the modules."""
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for part in _JUDGES:
        text = inspect.getsource(part)
        for node in ast.parse(text).body:
            inside = list(ast.walk(node))
            used = {n.id for n in inside if isinstance(n, ast.Name)}
            used |= {n.attr for n in inside if isinstance(n, ast.Attribute)}
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            for target in (n for t in targets for n in ast.walk(t)):
                name = getattr(target, "id", None) or getattr(target, "name", None)
                if isinstance(target, (ast.Name, ast.FunctionDef, ast.ClassDef)) and name:
                    entry = ast.get_source_segment(text, node) or "", frozenset(used)
                    found.setdefault(name, []).append(entry)
                if not isinstance(node, ast.Assign):
                    break
    return found


def version(file: str) -> str:
    """A digest of all that judges the mutants of a file."""
    definitions, seen = _definitions(), set()
    queue = [s.__name__ for s in scenarios.FILES[file]]
    queue += sorted({n for trial in _large(file) for n in (trial.__name__, *trial.__code__.co_names)})
    queue += ["_header"] if file == "lucid.cuh" else []
    digest = hashlib.sha256()
    while queue:
        name = queue.pop()
        if name in seen or name not in definitions:
            continue
        seen.add(name)
        for source, used in definitions[name]:
            digest.update(source.encode())
            queue += sorted(used)
    for text in (
        inspect.getsource(sim),
        inspect.getsource(trials),
        inspect.getsource(activations),
        compiler._own_sources(),
    ):
        digest.update(text.encode())
    for kernel in KERNELS.values():
        digest.update(repr(kernel).encode() if kernel.file == file or file.endswith(".cuh") else b"")
    return digest.hexdigest()


class Results:
    """Outcomes by mutant, kept on disk: a mutant runs again when its source, a header or what judges it has
    changed.
    """

    def __init__(self, file: str) -> None:
        root = compiler.cache_dir().parent / "mutants"
        root.mkdir(parents=True, exist_ok=True)
        self.path = root / f"{file}.json"
        self.file, self.version = file, version(file)
        try:
            self.known = json.loads(self.path.read_text())
        except (OSError, ValueError):
            self.known = {}
        headers = sorted(p for p in loader.source_folder().glob("*.cuh") if p.name != file)
        self.headers = "".join(p.read_text() for p in headers)

    def key(self, text: str) -> str:
        sources = text + self.headers
        if self.file.endswith(".cuh"):
            sources += "".join(p.read_text() for p in sorted(loader.source_folder().glob("*.cu")))
        return hashlib.sha256((sources + self.version).encode()).hexdigest()[:32]

    def save(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.known, indent=0))
        os.replace(part, self.path)


# ---- survivors that are explained ----


def explanations(path: Path) -> list[dict]:
    """The rows of kernels/mutants.toml: file, line (its code), change (one or several), why."""
    rows = tomllib.loads(path.read_text()).get("equivalent", []) if path.exists() else []
    for row in rows:
        row["change"] = [row["change"]] if isinstance(row["change"], str) else row["change"]
    return rows


def explained(rows: Iterable[dict], file: str, mutant: Mutant) -> str | None:
    """Why a survivor is no fault, or None."""
    for row in rows:
        if row["file"] == file and row["line"] == mutant.code and mutant.change in row["change"]:
            return row["why"]
    return None


def stale(rows: Iterable[dict], file: str, survivors: Iterable[Mutant]) -> list[str]:
    """Explanations of mutants that are killed, or that there are not."""
    alive = {(m.code, m.change) for m in survivors}
    return [
        f"{file}: {row['line']}  [{change}]"
        for row in rows
        if row["file"] == file
        for change in row["change"]
        if (row["line"], change) not in alive
    ]


# ---- the whole ----


def files_of(names: Iterable[str]) -> list[str]:
    """The sources named by file or by kernel; all when there are no names."""
    every = list(scenarios.FILES)
    found = []
    for name in names:
        if name not in every and name not in KERNELS:
            raise SystemExit(f"ci/mutate: there is no file and no kernel {name!r}; files: {', '.join(every)}")
        found.append(name if name in every else KERNELS[name].file)
    return list(dict.fromkeys(found)) or every


def run_file(file: str, sample: int, rows: list[dict], fresh: bool, verbose: bool) -> tuple[list[str], int]:
    """(the file's row of the table, number of survivors that nobody has explained)."""
    text = (loader.source_folder() / file).read_text()
    every = mutants(text)
    chosen = every if not sample or sample >= len(every) else random.Random(0).sample(every, sample)
    chosen = sorted(chosen, key=lambda m: (m.line, m.column))
    results, workshop = Results(file), Workshop()
    outcomes: dict[Mutant, str] = {}
    saved = time.monotonic()
    try:
        for number, mutant in enumerate(chosen):
            changed = mutant.apply(text)
            key = results.key(changed)
            found = None if fresh else results.known.get(key)
            if found is None:
                if not workshop.began:
                    _baseline(workshop, file, text)
                found = results.known[key] = list(workshop.run(file, changed, mutant.line))
                if time.monotonic() - saved > 20:
                    results.save()
                    saved = time.monotonic()
                if sys.stderr.isatty():
                    print(f"\r{file}: {number + 1} of {len(chosen)} ", end="", file=sys.stderr, flush=True)
            outcomes[mutant] = found[0]
            if verbose:
                print(f"{file}:{mutant}: {found[0]}: {found[1]}", flush=True)
    finally:
        results.save()
        workshop.close()
    counts = Counter(outcomes.values())
    survivors = [m for m, outcome in outcomes.items() if outcome == SURVIVED]
    unknown = [m for m in survivors if explained(rows, file, m) is None]
    for mutant in unknown:
        print(f"survived: kernels/{file}:{mutant}")
    if len(chosen) == len(every):
        for gone in stale(rows, file, survivors):
            print(f"explained in kernels/mutants.toml, but killed or gone: {gone}")
    row = [file, f"{len(chosen)} of {len(every)}", *(str(counts[k]) for k in KILLED)]
    return [*row, str(len(survivors) - len(unknown)), str(len(unknown))], len(unknown)


def _baseline(workshop: Workshop, file: str, text: str) -> None:
    # Also compiles what no mutant of this file changes.
    workshop.began = True
    outcome, why = workshop.run(file, text, keep=True)
    if outcome != SURVIVED:
        raise SystemExit(f"ci/mutate: kernels/{file} itself does not pass ({outcome}): {why}")


def show(rows: list[list[str]]) -> str:
    """The table: how many mutants of each file died of what."""
    head = ["file", "mutants", *KILLED, "equivalent", "survived"]
    total = ["all", "", *(str(sum(int(r[i]) for r in rows)) for i in range(2, len(head)))]
    total[1] = " of ".join(str(sum(int(r[1].split(" of ")[i]) for r in rows)) for i in (0, 1))
    table = [head, *rows, *([total] if len(rows) > 1 else [])]
    width = [max(len(r[i]) for r in table) for i in range(len(head))]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, width, strict=True)))
        for r in table
    )


def main(argv: list[str] | None = None) -> int:
    """0 when every survivor is explained."""
    parser = argparse.ArgumentParser(
        prog="ci/mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="files of kernels/, or kernels (default: all files)")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N mutants of each file (seed 0)")
    parser.add_argument("--fresh", action="store_true", help="run again what is known")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    parser.add_argument("--verbose", action="store_true", help="print what becomes of each mutant")
    args = parser.parse_args(argv)
    files = files_of(args.names)
    if args.list:
        for file in files:
            for mutant in mutants((loader.source_folder() / file).read_text()):
                print(f"kernels/{file}:{mutant}")
        return 0
    ok, reason = cusim.available()
    if not ok:
        print(f"ci/mutate: {reason}", file=sys.stderr)
        return 2
    os.nice(10)
    known = explanations(loader.source_folder() / "mutants.toml")
    table, unknown = [], 0
    for file in files:
        row, number = run_file(file, args.sample, known, args.fresh, args.verbose)
        table.append(row)
        unknown += number
        print(f"{file}: {row[1]} mutants, {number} survive unexplained", file=sys.stderr, flush=True)
    print(show(table))
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
