"""The picture of a training by steps: the losses, and the accuracy where there is one."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lucid._cli.curves import COLORS, TITLES

PANELS = {"loss": ("train_loss", "test_loss"), "accuracy": ("test_accuracy",)}


def draw(history: list[dict[str, float]], path: Path) -> Path:
    """The path, after a PNG with a panel per kind of number was written there."""
    panels = {title: keys for title, keys in PANELS.items() if any(key in history[0] for key in keys)}
    figure = Figure(figsize=(4.5 * len(panels) + 0.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    steps = [row["step"] for row in history]
    for axes, (title, keys) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for key in keys:
            part = key.partition("_")[0]
            values = [row[key] for row in history]
            axes.plot(steps, values, color=COLORS[part], marker="o", markersize=3, label=part)
        axes.set(xlabel="step", title=TITLES[title])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        if title == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.savefig(path, dpi=120)
    return path
