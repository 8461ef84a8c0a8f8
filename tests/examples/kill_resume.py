"""Kills trainings at random moments (SIGKILL) and resumes them: the end must be bit for bit that of an
uninterrupted run.

    python tests/examples/kill_resume.py --trials 20 --figure kill_resume.png
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from lucid.errors import CheckpointError
from lucid.examples import common

ROOT = Path(__file__).parents[2]
# Small enough for a second or two; dropout, batch norm and a scheduler are in.
ARGUMENTS = {
    "resnet": "--steps 60 --every 4 --batch-size 8 --width 4",
    "gpt": (
        "--steps 60 --every 4 --batch-size 2 --context 16 --width 16 --layers 2 --heads 2 --dropout 0.2 "
        "--sample 20"
    ),
    "lstm": "--steps 60 --every 4 --batch-size 2 --context 12 --width 8 --hidden 8 --sample 20",
}


@dataclass
class Trial:
    """One training that was killed: the steps in the checkpoint after each kill, and whether its end was
    equal.
    """

    example: str
    kept: list[int] = field(default_factory=list)
    equal: bool = False


def start(example: str, out: Path, *more: str) -> subprocess.Popen:
    """The process of `lucid train <example>` with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "lucid", "train", example, "--device", "cpu", "--quiet", "--out", str(out)]
    return subprocess.Popen(
        [*line, *more], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen) -> None:
    """Nothing; waits, and raises with the process's words when it fails."""
    _, error = process.communicate(timeout=600)
    if process.returncode:
        raise RuntimeError(error.decode())


def result(out: Path) -> tuple[bytes, str, list[dict[str, float]]]:
    """What two equal trainings have in common: weights, sample, history without its times."""
    rows = common.read(out / common.CHECKPOINT)["history"]
    sample = out / "sample.txt"
    text = sample.read_text() if sample.exists() else ""
    return (
        (out / "model.safetensors").read_bytes(),
        text,
        [{k: v for k, v in row.items() if k != "seconds"} for row in rows],
    )


def steps_kept(out: Path) -> int:
    """The steps in the checkpoint of a folder; -1 where there is none yet. A damaged one raises."""
    if not (out / common.CHECKPOINT).exists():
        return -1
    history = common.read(out / common.CHECKPOINT)["history"]
    return int(history[-1]["step"]) if history else 0


def reference(example: str, out: Path) -> tuple[bytes, str, list[dict[str, float]]]:
    """The result of a run that nobody disturbs."""
    finish(start(example, out, *ARGUMENTS[example].split()))
    return result(out)


def one(example: str, out: Path, rng: random.Random, kills: int = 2) -> Trial:
    """A training that is killed `kills` times, each at a random moment, and then left to finish."""
    trial = Trial(example)
    for _ in range(kills):
        process = start(example, out, *_how(example, out))
        # So many checkpoints later, and somewhere in the steps, or the write, that follow.
        _wait_for_writes(process, out / common.CHECKPOINT, rng.randint(1, 5))
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        trial.kept.append(steps_kept(out))
    finish(start(example, out, *_how(example, out)))
    return trial


def _wait_for_writes(process: subprocess.Popen, path: Path, writes: int) -> None:
    seen = path.stat().st_mtime_ns if path.exists() else 0
    while writes and process.poll() is None:
        now = path.stat().st_mtime_ns if path.exists() else 0
        if now != seen:
            seen, writes = now, writes - 1
        time.sleep(0.001)


def _how(example: str, out: Path) -> list[str]:
    return ["--resume"] if steps_kept(out) >= 0 else ARGUMENTS[example].split()


def run(trials: int, seed: int = 0) -> tuple[list[Trial], dict[str, list[dict[str, float]]]]:
    """(the trials, the undisturbed history of each example)."""
    rng = random.Random(seed)
    found, histories = [], {}
    with tempfile.TemporaryDirectory() as folder:
        references = {}
        for i in range(trials):
            example = list(ARGUMENTS)[i % len(ARGUMENTS)]
            if example not in references:
                references[example] = reference(example, Path(folder) / example)
                histories[example] = references[example][2]
            out = Path(folder) / f"trial{i}"
            trial = one(example, out, rng)
            try:
                trial.equal = result(out) == references[example]
            except CheckpointError as error:
                print(error)
            print(
                f"trial {i}: {example}, killed with {trial.kept} steps kept, equal: {trial.equal}", flush=True
            )
            found.append(trial)
    return found, histories


def draw(trials: list[Trial], histories: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Nothing; writes a picture: each example's loss, and where its killed runs went on."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(histories), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (example, rows) in zip(
        figure.subplots(1, len(histories), squeeze=False)[0], histories.items(), strict=True
    ):
        mine = [t for t in trials if t.example == example]
        loss = {0: rows[0]["train_loss"]} | {row["step"]: row["train_loss"] for row in rows}
        axes.plot(
            [r["step"] for r in rows], [r["train_loss"] for r in rows], color="#0072b2", label="undisturbed"
        )
        kept = [k for t in mine for k in t.kept if k >= 0]
        axes.plot(kept, [loss[k] for k in kept], "x", color="#d55e00", label="killed, resumed here")
        equal = sum(t.equal for t in mine)
        axes.set(
            title=f"{example}: {equal} of {len(mine)} runs end bit-equal",
            xlabel="step",
            ylabel="training loss",
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    trials, histories = run(args.trials, args.seed)
    if args.figure:
        draw(trials, histories, args.figure)
    good = sum(t.equal for t in trials)
    print(f"{good} of {len(trials)} killed runs ended bit-equal to an undisturbed one")
    sys.exit(good != len(trials))
