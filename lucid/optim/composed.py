"""Schedules that are made of others: one after the other, and several at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..errors import CheckpointError, ShapeError
from .optimizer import Optimizer
from .schedule import LRScheduler


class _Composite(LRScheduler):
    """Schedules in `self.schedulers`, whose states are part of the state."""

    _transient = ("optimizer", "schedulers")
    schedulers: list[Any]

    def _take(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> None:
        """Nothing; keeps the schedules. Raises ShapeError for those that do not fit."""
        from .lr_scheduler import ReduceLROnPlateau

        name = type(self).__name__
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ShapeError(f"{name}: all schedulers must belong to one optimizer")
        if any(isinstance(s, ReduceLROnPlateau) for s in schedulers):
            raise ShapeError(f"{name}: ReduceLROnPlateau needs a metric at each step; step it on its own")
        self.optimizer, self.schedulers = optimizer, list(schedulers)

    def _reset(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]

    def _rewind(self) -> None:
        for scheduler in self.schedulers:
            scheduler._rewind()

    def _begin(self) -> None:
        self._rewind_to_start()
        self._start()

    def _rewind_to_start(self) -> None:
        self._reset()
        for scheduler in self.schedulers:
            if isinstance(scheduler, _Composite):
                scheduler._rewind_to_start()
            else:
                scheduler.last_epoch = -1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        children = state_dict.get("_schedulers", [])
        if len(children) != len(self.schedulers):
            raise CheckpointError(
                f"{type(self).__name__}.load_state_dict: expected the states of {len(self.schedulers)} "
                "schedulers, "
                f"got {len(children)}"
            )
        for child, state in zip(self.schedulers, children, strict=True):
            child.load_state_dict(state)
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_schedulers"})


class SequentialLR(_Composite):
    """One schedule after the other.

    `schedulers[i + 1]` takes over, from its epoch 0, at epoch `milestones[i]`. Raises ShapeError unless there
    is one milestone less than schedules, all of one optimiser.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> warm = lucid.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=9)
    >>> decay = lucid.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> schedule = lucid.optim.lr_scheduler.SequentialLR(optimizer, [warm, decay], milestones=[2])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ShapeError(
                "SequentialLR: expected at least one scheduler and one milestone less than schedulers, got "
                f"{len(schedulers)} and {len(milestones)}"
            )
        self._take(schedulers, optimizer)
        self._milestones = list(milestones)
        # Each has set the rates when it was made; only the first may have.
        self._reset()
        self._rewind()
        self._start()
        self.last_epoch = last_epoch + 1

    def _start(self) -> None:
        self.last_epoch = 0
        self.schedulers[0]._start()
        self._last_lr = self.schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self.schedulers[index]
        if index and self._milestones[index - 1] == self.last_epoch:
            scheduler._begin()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composite):
    """Several schedules at once: each `step()` steps all of them in order.

    Raises ShapeError for none and for schedules of several optimisers.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> halve = lucid.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> drop = lucid.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.25)
    >>> schedule = lucid.optim.lr_scheduler.ChainedScheduler([halve, drop])
    >>> schedule.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.0625]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ShapeError("ChainedScheduler: expected at least one scheduler")
        self._take(schedulers, optimizer or schedulers[0].optimizer)
        self._last_lr = self._present()

    def _start(self) -> None:
        for scheduler in self.schedulers:
            scheduler._start()
        self._last_lr = self._present()

    def step(self, epoch: int | None = None) -> None:
        for scheduler in self.schedulers:
            scheduler.step()
        self._last_lr = self._present()
