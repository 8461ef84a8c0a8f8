"""What a training by steps looks like: a live bar on a terminal, plain lines elsewhere, one line when
quiet.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from lucid.examples.common import Settings

# key of a history row -> heading, width, format
COLUMNS: dict[str, tuple[str, int, str]] = {
    "step": ("step", 8, "{:.0f}"),
    "train_loss": ("train loss", 12, "{:.4f}"),
    "test_loss": ("test loss", 12, "{:.4f}"),
    "test_accuracy": ("test accuracy", 15, "{:.2%}"),
    "seconds": ("seconds", 9, "{:.1f}"),
}


class StepDisplay:
    """Says nothing until the closing line; the base of the others and the display of `--quiet`."""

    def __init__(self, settings: Settings, about: str) -> None:
        self.settings, self.about = settings, about
        self.console = Console(highlight=False, soft_wrap=True)

    def __enter__(self) -> StepDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def on_step(self, step: int, loss: float) -> None:
        """Nothing; called after each step."""

    def on_row(self, row: dict[str, float]) -> None:
        """Nothing; called with each row of the history."""

    def note(self, text: str) -> None:
        """Nothing; a remark of no consequence for the result."""

    def finish(self, row: dict[str, float], files: list[Path], sample: str | None) -> None:
        """Nothing; prints the closing line."""
        named = [f"{COLUMNS[k][0]} {COLUMNS[k][2].format(v)}" for k, v in row.items() if k.startswith("test")]
        self.console.print(Text(f"{', '.join(named)} after {row['step']:.0f} steps; see {files[0].parent}"))


class PlainSteps(StepDisplay):
    """A line per row of the history, for logs and pipes."""

    headed = False

    def __enter__(self) -> StepDisplay:
        self.say(self.about)
        return self

    def say(self, text: str, style: str = "") -> None:
        """Nothing; prints a line at once."""
        self.console.print(Text(text, style=style))
        self.console.file.flush()

    note = say

    def on_row(self, row: dict[str, float]) -> None:
        """Nothing; prints the row, before the first one the headings."""
        columns = {key: COLUMNS[key] for key in row}
        if not self.headed:
            self.say("".join(heading.rjust(width) for heading, width, _ in columns.values()), style="bold")
            self.headed = True
        self.say("".join(form.format(row[key]).rjust(width) for key, (_, width, form) in columns.items()))

    def finish(self, row: dict[str, float], files: list[Path], sample: str | None) -> None:
        """Nothing; prints the sample, the files and the closing line."""
        if sample is not None:
            self.say("\na sample of the model:", style="bold")
            self.say(sample + "\n")
        self.say(f"wrote {', '.join(path.name for path in files)}")
        super().finish(row, files, sample)


class LiveSteps(PlainSteps):
    """The same lines above a bar with the loss, the speed and the time left."""

    def __enter__(self) -> StepDisplay:
        self.progress = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.4f}"),
            TextColumn("{task.fields[speed]:.1f} steps/s"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.bar = self.progress.add_task("", total=self.settings.steps, loss=0.0, speed=0.0)
        self.first, self.started = 0, time.perf_counter()
        super().__enter__()
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def on_step(self, step: int, loss: float) -> None:
        """Nothing; moves the bar."""
        if not self.first:
            self.first, self.started = step, time.perf_counter()
        speed = (step - self.first) / max(time.perf_counter() - self.started, 1e-9)
        self.progress.update(self.bar, completed=step, loss=loss, speed=speed)


def make_display(settings: Settings, about: str, quiet: bool) -> StepDisplay:
    """The display that fits the standard output."""
    kind: Any = StepDisplay
    if not quiet:
        console = Console()
        kind = LiveSteps if console.is_terminal and not console.is_dumb_terminal else PlainSteps
    return kind(settings, about)
