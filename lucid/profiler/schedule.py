"""When a profile records: `schedule`, and where its traces go: `tensorboard_trace_handler`."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any


class ProfilerActivity(Enum):
    """What to time. CPU: the host. CUDA: the device, for which the profiler waits after each event.

    >>> from lucid.profiler import ProfilerActivity, profile
    >>> with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    ...     pass
    """

    CPU = 0
    CUDA = 2


class ProfilerAction(Enum):
    """What a profile does in a step. RECORD_AND_SAVE: records, and hands over the trace after the step.

    >>> from lucid.profiler import ProfilerAction, schedule
    >>> schedule(wait=1, warmup=0, active=1)(0) is ProfilerAction.NONE
    True
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """A function that gives the action of a step.

    First come skip_first steps of nothing, then cycles of `wait` steps of nothing, `warmup` steps whose
    events are thrown away and `active` recorded ones. repeat: the number of cycles, 0 for no end.
    skip_first_wait: not 0: the first cycle has no `wait`.

    >>> from lucid.profiler import schedule
    >>> plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError(
            "schedule: expected wait, warmup, repeat, skip_first >= 0 and active > 0, got "
            f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"schedule: expected a step >= 0, got {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat and step >= cycle * repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name: str | os.PathLike[str], worker_name: str | None = None,
                              use_gzip: bool = False) -> Callable[[Any], None]:
    """A function for `on_trace_ready` that writes each trace to a file for TensorBoard.

    The name, `<dir_name>/<worker>.<time>.pt.trace.json`, is the one by which its profiler plugin finds it.
    worker_name: host and process number when None.

    >>> import tempfile
    >>> from lucid.profiler import profile, tensorboard_trace_handler
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with profile(on_trace_ready=tensorboard_trace_handler(folder)):
    ...         pass
    """
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(profile: Any) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{worker}.{time.time_ns()}.pt.trace.json"
        profile.export_chrome_trace(path)
        if use_gzip:
            with open(path, "rb") as source, gzip.open(f"{path}.gz", "wb") as target:
                shutil.copyfileobj(source, target)
            path.unlink()

    return write
