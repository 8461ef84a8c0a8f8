"""Learning-rate schedules that cycle, and the momentum that moves against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError
from .optimizer import Optimizer
from .schedule import LRScheduler, per_group


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _check_momentum(name: str, optimizer: Optimizer) -> None:
    if any("momentum" not in group and "betas" not in group for group in optimizer.param_groups):
        raise ShapeError(
            f"{name}: the optimizer has no momentum or betas to cycle; pass cycle_momentum=False"
        )


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr in step_size_up steps and down in step_size_down, again and again.

    Smith 2017, arXiv:1506.01186. mode: "triangular"; "triangular2" (the height halves each cycle);
    "exp_range" (height times gamma^step); or scale_fn of the cycle or the step (scale_mode "cycle",
    "iterations"). cycle_momentum: the momentum runs from max_momentum to base_momentum and back. Raises
    ShapeError for an optimiser without momentum then.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.CyclicLR(
    ...     optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2, cycle_momentum=False)
    >>> rates = []
    >>> for _ in range(6):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.5]
    """

    _transient = ("optimizer", "scale_fn")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ShapeError(f"CyclicLR: mode is 'triangular', 'triangular2' or 'exp_range', got {mode!r}")
        lows = per_group("CyclicLR", "base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                group["lr"] = low
        self.max_lrs = per_group("CyclicLR", "max_lr", max_lr, optimizer)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size, self.step_ratio = (
            float(step_size_up + down),
            float(step_size_up) / float(step_size_up + down),
        )
        self.mode, self.gamma, self.scale_fn, self.scale_mode = mode, gamma, scale_fn, scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _check_momentum("CyclicLR", optimizer)
            self.base_momentums = per_group("CyclicLR", "base_momentum", base_momentum, optimizer)
            self.max_momentums = per_group("CyclicLR", "max_momentum", max_momentum, optimizer)
            if last_epoch == -1:
                for group, high in zip(optimizer.param_groups, self.max_momentums, strict=True):
                    _set_momentum(group, high)
        super().__init__(optimizer, last_epoch)
        # Also where another schedule of this optimizer has left another initial rate.
        self.base_lrs = lows

    def _scale(self, cycle: float) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        return {
            "triangular": 1.0,
            "triangular2": 0.5 ** (cycle - 1.0),
            "exp_range": self.gamma**self.last_epoch,
        }[self.mode]

    def get_lr(self) -> list[float]:
        cycle = math.floor(1.0 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = (
            x / self.step_ratio if x <= self.step_ratio else (x - 1.0) / (self.step_ratio - 1.0)
        ) * self._scale(cycle)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]


class OneCycleLR(LRScheduler):
    """One rise to max_lr and one long fall: for `total_steps` steps, or epochs * steps_per_epoch.

    Smith and Topin 2019, arXiv:1708.07120. From max_lr / div_factor up in the first `pct_start` of the steps,
    down to max_lr / div_factor / final_div_factor at the end; with three_phase down to the start first.
    anneal_strategy: "cos" or "linear". The momentum moves from max_momentum to base_momentum and back.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0, momentum=0.9)
    >>> schedule = lucid.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 3))
    ...     schedule.step()
    >>> rates
    [0.04, 0.76, 0.905, 0.345]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if not epochs or not steps_per_epoch:
                raise ShapeError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0 or not 0.0 <= pct_start <= 1.0 or anneal_strategy not in ("cos", "linear"):
            raise ShapeError(
                "OneCycleLR: expected total_steps > 0, 0 <= pct_start <= 1, anneal_strategy 'cos' or "
                f"'linear', got {total_steps}, "
                f"{pct_start}, {anneal_strategy!r}"
            )
        self.total_steps, self.anneal_strategy, self.cycle_momentum = (
            total_steps,
            anneal_strategy,
            cycle_momentum,
        )
        peak = float(pct_start * total_steps) - 1.0
        # (end step, rate at its start, rate at its end, momentum at its start, at its end) per phase; names
        # are options of the group.
        up = (peak, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            self.phases = [
                up,
                (
                    2.0 * pct_start * total_steps - 2.0,
                    "max_lr",
                    "initial_lr",
                    "base_momentum",
                    "max_momentum",
                ),
                (total_steps - 1.0, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self.phases = [up, (total_steps - 1.0, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        if cycle_momentum:
            _check_momentum("OneCycleLR", optimizer)
        if last_epoch == -1:
            for group, high in zip(
                optimizer.param_groups, per_group("OneCycleLR", "max_lr", max_lr, optimizer), strict=True
            ):
                group.update(
                    initial_lr=high / div_factor, max_lr=high, min_lr=high / div_factor / final_div_factor
                )
                if cycle_momentum:
                    group.update(max_momentum=max_momentum, base_momentum=base_momentum)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ShapeError(
                f"OneCycleLR: step {step} of a schedule of {self.total_steps} steps; make the schedule longer"
            )
        start = 0.0
        for phase in self.phases:
            end, rate0, rate1, momentum0, momentum1 = phase
            if step <= end or phase is self.phases[-1]:
                break
            start = end
        done = (step - start) / (end - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[rate0], group[rate1], done))
            if self.cycle_momentum:
                _set_momentum(group, self._between(group[momentum0], group[momentum1], done))
        return rates

    def _between(self, first: float, last: float, done: float) -> float:
        if self.anneal_strategy == "linear":
            return first + (last - first) * done
        return last + (first - last) / 2.0 * (1.0 + math.cos(math.pi * done))
