"""What the larger examples share: settings, the loop, the checkpoint. The loop is the whole interface: 30
lines, no trainer class.

An example gives a `Task`: its model, a random batch, the loss, and what to measure on the test part.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import lucid
from lucid import nn, optim
from lucid.errors import CheckpointError
from lucid.io import replaced

CHECKPOINT = "checkpoint.safetensors"
AMP = {"off": None, "float16": lucid.float16, "bfloat16": lucid.bfloat16}
# Far apart, so that the streams of neighbouring seeds do not meet.
SEED_STRIDE = 1_000_003


def setting(default: Any, about: str, **more: Any) -> Any:
    """A dataclass field with its help line, which the command line shows."""
    return field(default=default, metadata={"help": about, **more})


@dataclass(frozen=True)
class Settings:
    """What decides the numbers of a run: two runs with equal settings on one machine give equal numbers."""

    device: str = "cpu"
    steps: int = setting(300, "optimizer steps")
    batch_size: int = setting(32, "samples per step")
    lr: float = setting(1e-3, "highest learning rate: reached after a tenth of the steps, then a cosine to 0")
    seed: int = setting(0, "same seed, same numbers", least=0)
    amp: str = setting("off", "mixed precision", choices=tuple(AMP))
    every: int = setting(50, "steps between two looks at the test part, and between two checkpoints")


@dataclass
class Task:
    """A model and its data. `batch()` draws (x, y) from the default generator; `test()` gives names and
    numbers.
    """

    model: nn.Module
    batch: Callable[[], tuple[lucid.Tensor, lucid.Tensor]]
    loss: Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]
    test: Callable[[], dict[str, float]]
    data_crc: int
    sample: Callable[[], str] | None = None


@dataclass
class Run:
    """A finished training: a row of `history` has step, train_loss, what `Task.test` gave, and seconds."""

    settings: Settings
    task: Task
    history: list[dict[str, float]]


def train(
    build: Callable[[Any], Task],
    settings: Settings,
    out: str | Path,
    resume: bool = False,
    on_step: Callable[[int, float], None] = lambda *values: None,
    on_row: Callable[[dict[str, float]], None] = lambda row: None,
) -> Run:
    """The trained model as a `Run`; `out` receives a checkpoint before the first and after every `every`
    steps.

    With `resume` the training goes on after the last checkpoint, and ends with the numbers, bit for bit, of
    one that was never interrupted. Raises CheckpointError where there is no checkpoint, or not one of this
    run.
    """
    lucid.manual_seed(settings.seed)
    task, low = build(settings), AMP[settings.amp]
    model = task.model
    optimizer = optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, settings.steps))
    scaler = lucid.amp.GradScaler(settings.device, enabled=settings.amp == "float16")
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
    path = Path(out) / CHECKPOINT
    path.parent.mkdir(parents=True, exist_ok=True)
    history = restore(path, settings, task, parts) if resume else []
    if not resume:
        save(path, settings, task, parts, history)

    first = int(history[-1]["step"]) if history else 0
    loss_sum, started = 0.0, time.perf_counter()
    for step in range(first + 1, settings.steps + 1):
        # Batch and dropout depend on the seed and the step alone: no other state than the parts' goes into a
        # checkpoint.
        lucid.manual_seed(settings.seed + SEED_STRIDE * step)
        model.train()
        x, y = task.batch()
        with lucid.amp.autocast(settings.device, low, enabled=low is not None):
            loss = task.loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()

        loss_sum += loss.item()
        on_step(step, loss.item())
        if step % settings.every == 0 or step == settings.steps:
            count = (step - 1) % settings.every + 1
            model.eval()
            with lucid.no_grad():
                row = {"step": step, "train_loss": loss_sum / count, **task.test()}
            history.append({**row, "seconds": time.perf_counter() - started})
            save(path, settings, task, parts, history)
            on_row(history[-1])
            loss_sum, started = 0.0, time.perf_counter()
    model.eval()
    return Run(settings, task, history)


def rate(step: int, steps: int) -> float:
    """The share of the highest learning rate: a line up over a tenth of the steps, times half a cosine down
    to 0.
    """
    return min((step + 1) * 10 / steps, 1.0) * 0.5 * (1.0 + math.cos(math.pi * step / steps))


# ---- checkpoints ----


def save(
    path: Path, settings: Settings, task: Task, parts: dict[str, Any], history: list[dict[str, float]]
) -> None:
    """Nothing; writes all that `restore` needs, as one file that is whole or not there."""
    state = {name: part.state_dict() for name, part in parts.items()}
    lucid.save(
        {"settings": asdict(settings), "data_crc": task.data_crc, "history": history, "state": state}, path
    )


def read(path: Path) -> dict[str, Any]:
    """What `save` wrote. Raises CheckpointError where the file is missing, damaged or something else."""
    if not path.is_file():
        raise CheckpointError(
            f"no checkpoint to resume from: {path} does not exist; train without resume first"
        )
    content = lucid.load(path)
    if not isinstance(content, dict) or set(content) != {"settings", "data_crc", "history", "state"}:
        raise CheckpointError(f"{path} is no checkpoint of this program; train without resume")
    return content


def restore(path: Path, settings: Settings, task: Task, parts: dict[str, Any]) -> list[dict[str, float]]:
    """The history in the checkpoint, after its states went into the parts. The device may be another one."""
    content = read(path)
    given = asdict(settings)
    for name, value in content["settings"].items():
        if name != "device" and given.get(name) != value:
            raise CheckpointError(f"{path} was made with {name}={value!r}, not {given.get(name)!r}")
    if content["data_crc"] != task.data_crc:
        raise CheckpointError(f"{path} was made with other data; train without resume")
    try:
        for name, part in parts.items():
            part.load_state_dict(content["state"][name])
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{path} does not fit the model: {str(error).splitlines()[0]}") from error
    return list(content["history"])


def save_results(run: Run, out: str | Path) -> list[Path]:
    """The files written: model.safetensors (the weights), history.json, and sample.txt where there is a
    sample.
    """
    files = [Path(out) / "model.safetensors", Path(out) / "history.json"]
    lucid.save(run.task.model.state_dict(), files[0])
    texts = {
        files[1]: json.dumps({"settings": asdict(run.settings), "history": run.history}, indent=2) + "\n"
    }
    if run.task.sample is not None:
        files.append(Path(out) / "sample.txt")
        texts[files[2]] = run.task.sample()
    for file, text in texts.items():
        with replaced(file) as stream:
            stream.write(text.encode())
    return files
