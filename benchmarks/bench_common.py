"""What the benchmarks share: contestants in processes of their own, the command line, and the file.

A benchmark has a function `contestant(row, who)`, the step that `who` (lucid, torch, ...) makes in a row.
Each contestant gets a process of its own, since libraries in one process meet each other's memory and
threads: importing lucid changes malloc for all, and the threads of a product wait awake for the next one on
the cores that the other library wants. They take turns, so that a slow moment of the machine meets all.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

# Seconds between two turns: threads that wait for work give up their cores after 25 ms at most.
PAUSE = 0.03
# Importing lucid, as a benchmark does at its top, is to leave another library's process as it is.
LEAVE = {"LUCID_MALLOC": "default", "LUCID_GC": "default", "LUCID_BLAS": "default"}


class Contestant:
    """A step of a benchmark in a process of its own."""

    def __init__(self, module: str, row: str, who: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, module, row, who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ if who == "lucid" else {**os.environ, **LEAVE},
        )

    def __call__(self, inner: int = 1) -> tuple[float, float]:
        """Seconds of wall and processor time per step, of `inner` steps after one that is not counted."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(inner, file=self.process.stdin, flush=True)
        wall, cpu = self.process.stdout.readline().split()
        return float(wall), float(cpu)

    def close(self) -> None:
        """Nothing; ends the process."""
        self.process.communicate()


def race(module: str, row: str, names: Sequence[str], repeats: int, inner: int = 1) -> dict[str, Any]:
    """{"wall" and "cpu": seconds per step by name, medians; "wall ratio" and "cpu ratio": the medians of
    lucid's over each other's in the same repeat}.
    """
    with contextlib.ExitStack() as stack:
        steps = {name: Contestant(module, row, name) for name in names}
        for step in steps.values():
            stack.callback(step.close)
            step()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for _ in range(max(3, repeats)):
            for name, step in steps.items():
                time.sleep(PAUSE)
                times[name].append(step(inner))
    found: dict[str, Any] = {"row": row}
    for k, what in enumerate(("wall", "cpu")):
        found[what] = {name: statistics.median(t[k] for t in ts) for name, ts in times.items()}
        found[f"{what} ratio"] = {
            name: statistics.median(a[k] / b[k] for a, b in zip(times["lucid"], ts, strict=True))
            for name, ts in times.items()
            if name != "lucid"
        }
    return found


def serve(module: str, row: str, who: str) -> None:
    """Nothing; the process of a contestant: reads numbers of steps, answers with times."""
    step = importlib.import_module(module).contestant(row, who)
    for line in sys.stdin:
        inner = int(line)
        step()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(inner):
            step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(wall / inner, cpu / inner, flush=True)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark: `--json`, `--scale`. doc: its help, as it is written."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", help="write the rows to this file")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies the number of repeats")
    return p


def write(path: str | None, rows: Any) -> None:
    """Nothing; the rows and the versions go to a JSON file, where a path is given."""
    if path is not None:
        with open(path, "w") as f:
            json.dump({"python": sys.version.split()[0], "numpy": np.__version__, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    serve(*sys.argv[1:])
