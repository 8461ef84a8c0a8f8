"""`lucid train digits`: reads the arguments, calls lucid.examples.digits, shows and saves what came out."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from lucid._cli.devices import choose_device
from lucid._cli.display import Display, make_display
from lucid._cli.usage import UsageError
from lucid.errors import CheckpointError
from lucid.examples import digits
from lucid.examples.common import AMP

FIXED_BY_CHECKPOINT = ("model", "batch_size", "lr", "seed", "amp")
SEEDS = 2**32


def at_least_one(text: str) -> int:
    """The whole number in `text`, at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """The number in `text`, above 0 and finite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def seed(text: str) -> int:
    """The whole number in `text`, from 0 to 2**32 - 1."""
    if not text.strip().isdecimal() or int(text) >= SEEDS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {SEEDS - 1}, got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing; the parser knows the arguments of `lucid train digits` afterwards.

    Those that a checkpoint fixes default to None, so that `--resume` can tell "not given" from a value.
    """
    base, add = digits.Settings(), parser.add_argument
    add("--model", choices=sorted(digits.MODELS), help=f"the network (default: {base.model})")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: the GPU where there is one")
    add("--epochs", type=at_least_one, metavar="N", help=f"default: {base.epochs}")
    add("--batch-size", type=at_least_one, metavar="N", help=f"default: {base.batch_size}")
    add("--lr", type=positive, metavar="X", help=f"learning rate (default: {base.lr})")
    add("--seed", type=seed, metavar="N", help=f"same seed, same numbers (default: {base.seed})")
    add("--amp", choices=tuple(AMP), help=f"mixed precision (default: {base.amp})")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="for the results (default: runs/digits-MODEL); replaces older ones",
    )
    add("--resume", action="store_true", help="go on from the checkpoint in DIR")
    add("--quiet", action="store_true", help="print the closing line only")


def run(args: argparse.Namespace) -> int:
    """0 after a whole training, 130 after Ctrl-C. Raises UsageError for what the user can put right."""
    out = args.out or Path("runs") / f"digits-{args.model or digits.Settings().model}"
    settings, why = read_settings(args, out)
    check_writable(out)
    display = make_display(settings, why, quiet=args.quiet)
    try:
        with display:
            finished = digits.train(settings, out, args.resume, display.on_batch, display.on_epoch)
        files = digits.save_results(finished, out)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"--out {out}: cannot write there: {error}") from error
    except KeyboardInterrupt:
        print(f"\nstopped; go on with: {resume_command(args, out)}", file=sys.stderr)
        return 130
    files += draw_curves(finished, out, display)
    display.finish(finished, files)
    return 0


def read_settings(args: argparse.Namespace, out: Path) -> tuple[digits.Settings, str]:
    """The settings of this run and why it takes that device: arguments over checkpoint over defaults."""
    given = {name: getattr(args, name) for name in (*FIXED_BY_CHECKPOINT, "epochs")}
    base = asdict(digits.Settings())
    if args.resume:
        base = resumed_settings(out, given)
    base |= {name: value for name, value in given.items() if value is not None}
    base["device"], why = choose_device(args.device)
    return digits.Settings(**base), why


def resumed_settings(out: Path, given: dict[str, object]) -> dict[str, object]:
    """The settings in the checkpoint of `out`. Raises UsageError where `given` contradicts them."""
    try:
        state = digits.read_checkpoint(out / digits.CHECKPOINT)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    for name in FIXED_BY_CHECKPOINT:
        flag, old, new = "--" + name.replace("_", "-"), state["settings"][name], given[name]
        if new not in (None, old):
            raise UsageError(f"--resume: {out} was trained with {flag} {old}, not {new}; leave {flag} out")
    done, asked = len(state["history"]), given["epochs"]
    if asked is not None and asked < done:  # type: ignore[operator]
        raise UsageError(f"--resume: {out} has {done} epochs already, more than --epochs {asked}")
    return state["settings"]


def check_writable(out: Path) -> None:
    """Nothing; makes the folder. Raises UsageError where no file can be written in it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(f"--out {out}: cannot write there: {error.strerror}") from error


def resume_command(args: argparse.Namespace, out: Path) -> str:
    """The command line that goes on with this run."""
    program = ["lucid"] if Path(sys.argv[0]).stem == "lucid" else [sys.executable, "-m", "lucid"]
    device = [] if args.device == "auto" else ["--device", args.device]
    return shlex.join([*program, "train", "digits", "--out", str(out), *device, "--resume"])


def draw_curves(finished: digits.Run, out: Path, display: Display) -> list[Path]:
    """The picture of the training, as a list of one path; empty where matplotlib is missing."""
    try:
        from lucid._cli.curves import draw
    except ImportError:
        display.note("no curves.png: matplotlib is not installed (pip install matplotlib)")
        return []
    return [draw(finished.history, out / "curves.png")]
