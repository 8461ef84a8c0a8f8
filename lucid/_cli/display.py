"""What a training looks like: a live bar on a terminal, plain lines elsewhere, one line when quiet."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from lucid.examples.digits import Run, Settings

# heading, width, and the text of a row of the history, a column each
COLUMNS = (
    ("epoch", 7, lambda row, epochs: f"{row['epoch']}/{epochs}"),
    ("train loss", 12, lambda row, epochs: f"{row['train_loss']:.4f}"),
    ("accuracy", 10, lambda row, epochs: f"{row['train_accuracy']:.2%}"),
    ("test loss", 11, lambda row, epochs: f"{row['test_loss']:.4f}"),
    ("accuracy", 10, lambda row, epochs: f"{row['test_accuracy']:.2%}"),
    ("seconds", 9, lambda row, epochs: f"{row['seconds']:.2f}"),
)


class Display:
    """Says nothing until the closing line; the base of the others and the display of `--quiet`."""

    def __init__(self, settings: Settings, why: str) -> None:
        self.settings, self.why = settings, why
        self.console = Console(highlight=False, soft_wrap=True)

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def on_batch(self, epoch: int, seen: int, total: int, loss: float, accuracy: float) -> None:
        """Nothing; called after each step."""

    def on_epoch(self, row: dict[str, float]) -> None:
        """Nothing; called after each epoch."""

    def note(self, text: str) -> None:
        """Nothing; a remark of no consequence for the result."""

    def finish(self, run: Run, files: list[Path]) -> None:
        """Nothing; prints the closing line."""
        right, total = np.trace(run.confusion), run.confusion.sum()
        line = f"test accuracy {run.test_accuracy:.2%} ({right} of {total} images); see {files[0].parent}"
        self.console.print(Text(line))


class PlainDisplay(Display):
    """A line per epoch, for logs and pipes."""

    def __enter__(self) -> Display:
        s = self.settings
        amp = "" if s.amp == "off" else f", mixed precision {s.amp}"
        self.say(f"model {s.model}, batches of {s.batch_size}, learning rate {s.lr}, seed {s.seed}{amp}")
        self.say(f"device {s.device}: {self.why}")
        self.say("".join(heading.rjust(width) for heading, width, _ in COLUMNS), style="bold")
        return self

    def say(self, text: str, style: str = "") -> None:
        """Nothing; prints a line at once."""
        self.console.print(Text(text, style=style))
        self.console.file.flush()

    note = say

    def on_epoch(self, row: dict[str, float]) -> None:
        """Nothing; prints the row."""
        self.say("".join(text(row, self.settings.epochs).rjust(width) for _, width, text in COLUMNS))

    def finish(self, run: Run, files: list[Path]) -> None:
        """Nothing; prints the confusion table, the files and the closing line."""
        self.console.print(confusion_table(run.confusion))
        self.say(f"wrote {', '.join(path.name for path in files)}")
        super().finish(run, files)


class LiveDisplay(PlainDisplay):
    """The same lines above a bar with loss, accuracy, images/s and the time left."""

    def __enter__(self) -> Display:
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.2%}"),
            TextColumn("{task.fields[speed]:,.0f} images/s"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.task = self.progress.add_task("", total=None, epoch="", loss=0.0, accuracy=0.0, speed=0.0)
        self.first_epoch = 0
        self.started = time.perf_counter()
        super().__enter__()
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def on_batch(self, epoch: int, seen: int, total: int, loss: float, accuracy: float) -> None:
        """Nothing; moves the bar."""
        if seen <= self.settings.batch_size:
            self.started = time.perf_counter()  # the first step also warms up, so the speed leaves it out
        self.first_epoch = self.first_epoch or epoch
        self.progress.update(
            self.task,
            total=(self.settings.epochs - self.first_epoch + 1) * total,
            completed=(epoch - self.first_epoch) * total + seen,
            epoch=f"{epoch}/{self.settings.epochs}",
            loss=loss,
            accuracy=accuracy,
            speed=(seen - self.settings.batch_size) / max(time.perf_counter() - self.started, 1e-9),
        )


def make_display(settings: Settings, why: str, quiet: bool) -> Display:
    """The display that fits the standard output."""
    if quiet:
        return Display(settings, why)
    console = Console()
    live = console.is_terminal and not console.is_dumb_terminal
    return (LiveDisplay if live else PlainDisplay)(settings, why)


def confusion_table(confusion: np.ndarray) -> Table:
    """The counts [true digit, predicted digit] as a table, with the share of each digit that was right."""
    table = Table(title="true digit (rows) and predicted digit (columns)", title_justify="left")
    table.add_column("", style="bold")
    for digit in range(len(confusion)):
        table.add_column(str(digit), justify="right")
    table.add_column("right", justify="right")
    for digit, counts in enumerate(confusion):
        cells = [
            Text(str(count) if count else ".", style="green" if guess == digit else "red" if count else "dim")
            for guess, count in enumerate(counts)
        ]
        table.add_row(str(digit), *cells, f"{counts[digit] / max(counts.sum(), 1):.1%}")
    return table
