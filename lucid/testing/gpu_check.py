"""All that can only be told on a GPU, in one run: what `ci/gpu_check` starts.

Each row of STEPS is a command with a time limit. The outcome goes to a JSON file, a table of it is printed
last. `--simulate` runs the same steps on the simulated device, to try the script itself where there is no
GPU; the report then says so, and its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

# The simulator runs kernels on the CPU.
SLOWER = 5
ROOT = Path(__file__).resolve().parents[2]
DEVICE = "{device}"  # "cuda" or "cuda-sim": the name that pytest gives it
OUT = "{out}"


@dataclass(frozen=True)
class Step:
    """One command: what it shows, its arguments after `python`, and its limit in seconds. A step whose
    `needs` is not there is left out.
    """

    name: str
    arguments: tuple[str, ...]
    limit: int
    needs: str = ""


def _tests(name: str, limit: int, *paths: str) -> Step:
    return Step(name, ("-m", "pytest", "-q", "--no-header", "--device", DEVICE, *paths), limit, paths[0])


# In this order: what is wrong first explains what is wrong later. The limits add up to less than ten minutes.
STEPS = (
    Step("conformance of CuPy", ("-m", "lucid.testing.conformance", "--json", f"{OUT}/conformance.json"), 60),
    _tests("device: transfers, memory, streams, kernel()", 100, "tests/cuda"),
    _tests("kernels", 120, "tests/kernels"),
    _tests("ops: values, first and second order", 150, "tests/test_ops.py"),
    _tests("engine, nn, optim", 100, "tests/autograd", "tests/nn", "tests/optim"),
    Step(
        "training on digits",
        (
            "-m",
            "lucid",
            "train",
            "digits",
            "--device",
            "cuda",
            "--epochs",
            "3",
            "--quiet",
            "--out",
            f"{OUT}/digits",
        ),
        60,
    ),
)


@dataclass
class Outcome:
    """How a step ended: "ok", "failed", "timed out" or "left out"; in how many seconds; its last line."""

    name: str
    state: str
    seconds: float
    line: str


def run(steps: tuple[Step, ...], out: Path, simulate: bool) -> Iterator[Outcome]:
    """The outcome of each step, as it ends. What a step prints goes to a file of `out`."""
    environment = dict(os.environ) | ({"LUCID_CUDA": "sim"} if simulate else {})
    for number, step in enumerate(steps, 1):
        if step.needs and not (ROOT / step.needs).exists():
            yield Outcome(step.name, "left out", 0.0, f"{step.needs} is not in this checkout")
            continue
        device = "cuda-sim" if simulate else "cuda"
        command = [
            sys.executable,
            *(a.format(device=device, out=out) if "{" in a else a for a in step.arguments),
        ]
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=step.limit * (SLOWER if simulate else 1),
            )
            state, text = "ok" if done.returncode == 0 else "failed", done.stdout + done.stderr
        except subprocess.TimeoutExpired as expired:
            state, text = "timed out", _text(expired.stdout) + _text(expired.stderr)
        (out / f"{number}.log").write_text(text)
        lines = [line for line in text.splitlines() if line.strip()]
        yield Outcome(step.name, state, time.perf_counter() - started, lines[-1].strip("= ") if lines else "")


def _text(part: bytes | str | None) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else part or ""


def main(arguments: list[str] | None = None) -> int:
    """0 when every step ends well, else 1."""
    parser = argparse.ArgumentParser(
        prog="ci/gpu_check", description="Checks lucid on the CUDA device of this machine."
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "gpu_check", help="for the report and the logs"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="use the simulated device: tries this script only"
    )
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if given.simulate:
        os.environ["LUCID_CUDA"] = "sim"
    from ..errors import DeviceError
    from ..storage.backend import backend_of

    try:
        name = backend_of("cuda").properties()["name"]  # type: ignore[attr-defined]
    except DeviceError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1
    outcomes = []
    for outcome in run(STEPS, out, given.simulate):
        outcomes.append(outcome)
        print(f"... {outcome.name}: {outcome.state}", flush=True)
    report = {"device": name, "simulated": given.simulate, "steps": [asdict(o) for o in outcomes]}
    (out / "report.json").write_text(json.dumps(report, indent=1))
    print(f"\n{name}{' (no GPU: times mean nothing)' if given.simulate else ''}; details in {out}")
    for o in outcomes:
        print(f"{o.state:<10}{o.seconds:>7.1f} s  {o.name:<48}{o.line[:80]}")
    return int(any(o.state in ("failed", "timed out") for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
