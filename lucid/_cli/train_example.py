"""`lucid train gpt|lstm|resnet`: one command each, whose arguments are the fields of the example's
Settings.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from lucid._cli.devices import choose_device
from lucid._cli.steps import StepDisplay, make_display
from lucid._cli.train_digits import at_least_one, check_writable, positive, seed
from lucid._cli.usage import UsageError
from lucid.errors import CheckpointError
from lucid.examples import common


def command(
    name: str,
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """(add_arguments, run) of `lucid train <name>`."""
    example = import_module(f"lucid.examples.{name}")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Nothing; the parser knows the arguments afterwards. Settings default to None: "not given"."""
        parser.add_argument(
            "--device",
            choices=("auto", "cpu", "cuda"),
            default="auto",
            help="auto: the GPU where there is one",
        )
        for field in fields(example.Settings):
            if field.name != "device":
                flag = "--" + field.name.replace("_", "-")
                parser.add_argument(flag, **_argument(field))
        parser.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help=f"for the results (default: runs/{name}); replaces older ones",
        )
        parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR")
        parser.add_argument("--quiet", action="store_true", help="print the closing line only")

    return add_arguments, lambda args: run(name, example, args)


def _argument(field: Any) -> dict[str, Any]:
    more = field.metadata
    about = f"{more['help']} (default: {field.default})" if field.default != "" else more["help"]
    if "choices" in more:
        return {"choices": more["choices"], "help": about}
    if field.name == "seed":
        return {"type": seed, "metavar": "N", "help": about}
    if isinstance(field.default, str):
        return {"metavar": "FILE", "help": about}
    if isinstance(field.default, int):
        return {"type": at_least_one, "metavar": "N", "help": about}
    return {"type": share if more.get("least") == 0.0 else positive, "metavar": "X", "help": about}


def share(text: str) -> float:
    """The number in `text`, from 0 up to but not including 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to less than 1, got {text!r}")
    return value


def run(name: str, example: Any, args: argparse.Namespace) -> int:
    """0 after a whole training, 130 after Ctrl-C. Raises UsageError for what the user can put right."""
    out = args.out or Path("runs") / name
    settings, about = read_settings(name, example, args, out)
    check_writable(out)
    display = make_display(settings, about, quiet=args.quiet)
    try:
        with display:
            finished = common.train(
                example.build, settings, out, args.resume, display.on_step, display.on_row
            )
        files = common.save_results(finished, out)
    except (CheckpointError, ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"--out {out}: cannot write there: {error}") from error
    except KeyboardInterrupt:
        print(f"\nstopped; go on with: {resume_command(name, args, out)}", file=sys.stderr)
        return 130
    sample = files[2].read_text(encoding="utf-8") if len(files) > 2 else None
    files += draw_curves(finished, out, display)
    display.finish(finished.history[-1], files, sample)
    return 0


def read_settings(name: str, example: Any, args: argparse.Namespace, out: Path) -> tuple[Any, str]:
    """The settings of this run, and the opening line: arguments over checkpoint over defaults."""
    given = {f.name: getattr(args, f.name) for f in fields(example.Settings) if f.name != "device"}
    base = asdict(example.Settings())
    if args.resume:
        base = resumed_settings(out, given, set(base))
    base |= {key: value for key, value in given.items() if value is not None}
    base["device"], why = choose_device(args.device)
    shown = ", ".join(f"{key} {value}" for key, value in base.items() if key != "device" and value != "")
    return example.Settings(**base), f"{name} on {base['device']} ({why}): {shown}"


def resumed_settings(out: Path, given: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The settings in the checkpoint of `out`. Raises UsageError where `given` contradicts them."""
    path = out / common.CHECKPOINT
    try:
        settings = common.read(path)["settings"]
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    if set(settings) != names:
        raise UsageError(f"--resume: {path} belongs to another example")
    for key, new in given.items():
        flag, old = "--" + key.replace("_", "-"), settings[key]
        if new not in (None, old):
            raise UsageError(f"--resume: {out} was trained with {flag} {old}, not {new}; leave {flag} out")
    return settings


def resume_command(name: str, args: argparse.Namespace, out: Path) -> str:
    """The command line that goes on with this run."""
    program = ["lucid"] if Path(sys.argv[0]).stem == "lucid" else [sys.executable, "-m", "lucid"]
    device = [] if args.device == "auto" else ["--device", args.device]
    return shlex.join([*program, "train", name, "--out", str(out), *device, "--resume"])


def draw_curves(finished: common.Run, out: Path, display: StepDisplay) -> list[Path]:
    """The picture of the training, as a list of one path; empty where matplotlib is missing."""
    try:
        from lucid._cli.loss_curve import draw
    except ImportError:
        display.note("no curves.png: matplotlib is not installed (pip install matplotlib)")
        return []
    return [draw(finished.history, out / "curves.png")]
