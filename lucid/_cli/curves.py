"""The picture of a training: loss and accuracy over the epochs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

# Okabe and Ito's blue and orange, told apart under every common colour blindness.
COLORS = {"train": "#0072b2", "test": "#d55e00"}
TITLES = {"loss": "loss (cross entropy, nats)", "accuracy": "accuracy"}


def draw(history: list[dict[str, float]], path: Path) -> Path:
    """The path, after a PNG with two panels was written there."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    epochs = [row["epoch"] for row in history]
    for axes, what in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part, color in COLORS.items():
            values = [row[f"{part}_{what}"] for row in history]
            axes.plot(epochs, values, color=color, marker="o", markersize=3, label=part)
        axes.set(xlabel="epoch", title=TITLES[what])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        if what == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.savefig(path, dpi=120)
    return path
