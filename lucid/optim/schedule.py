"""The base of all learning-rate schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import CheckpointError, DtypeError, ShapeError
from .optimizer import Optimizer


class LRScheduler:
    """The base: counts epochs from 0 and writes what `get_lr` returns.

    last_epoch: -1, or the epoch that a resumed run has done. A subclass gives `get_lr()`, a list with one
    rate per group, for `self.last_epoch`.

    >>> import lucid
    >>> class Halving(lucid.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [rate * 0.5**self.last_epoch for rate in self.base_lrs]
    >>> schedule = Halving(lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0))
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    # Attributes that are no part of the state: rebuilt by the constructor.
    _transient: tuple[str, ...] = ("optimizer",)
    # True while the rates are set for the first time.
    _initial = False
    # Programs that subclass PyTorch's base class ask for this one, to warn of calls from outside of step().
    _get_lr_called_within_step = True

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DtypeError(f"{type(self).__name__}: expected an optimizer, got {type(optimizer).__name__}")
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise CheckpointError(
                    f"{type(self).__name__}: last_epoch={last_epoch} resumes a run, but group {number} has "
                    "no "
                    "'initial_lr'; load the optimizer's state first"
                )
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: list[float] = []
        self._start()

    def _start(self) -> None:
        self._step_count, self._initial = 0, True
        self.step()
        del self._initial

    def _rewind(self) -> None:
        # Before epoch 0, as if the schedule had not started.
        self.last_epoch -= 1

    def _begin(self) -> None:
        # Epoch 0 of a schedule that takes over from another.
        self.step(0)

    def get_lr(self) -> list[float]:
        """The rate of each group in epoch `last_epoch`, given its present rate."""
        raise NotImplementedError(f"{type(self).__name__}.get_lr")

    def closed_form(self) -> list[float]:
        """The rate of each group in epoch `last_epoch`, from its initial rate alone."""
        return self.get_lr()

    def get_last_lr(self) -> list[float]:
        """The rates set last, one per group."""
        return list(self._last_lr)

    def step(self, epoch: int | None = None) -> None:
        """Nothing; goes on by one epoch, or to `epoch`, and sets the rates."""
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            resumed = self._initial and self.last_epoch > 0
            self._set(self._resumed() if resumed else self.get_lr())
        else:
            self.last_epoch = epoch
            self._set(self.closed_form())

    def _resumed(self) -> list[float]:
        # The rates of a resumed run. The optimizer has them; those that are computed from the present ones
        # would be one step ahead.
        relative = type(self).closed_form is not LRScheduler.closed_form
        return self._present() if relative else self.get_lr()

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _present(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _times(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._present()]

    def state_dict(self) -> dict[str, Any]:
        """All numbers of the schedule; functions and the optimizer are left out."""
        return {key: _plain(value) for key, value in vars(self).items() if key not in self._transient}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing; the schedule goes on where `state_dict` was taken. The optimizer's rates come with its own
        state. States of PyTorch's schedules are taken, too.
        """
        own = {key: value for key, value in state_dict.items() if key in vars(self)}
        unknown = [key for key in state_dict if key not in own and key[0] != "_" and key not in _PYTORCHS]
        unknown += [key for key in own if key in self._transient]
        if unknown:
            raise CheckpointError(
                f"{type(self).__name__}.load_state_dict: unknown entries {', '.join(map(str, unknown))}; "
                "the state belongs to another schedule"
            )
        vars(self).update({key: _plain(value) for key, value in own.items()})


# What only PyTorch's states hold, besides names that start with "_"; the constructor has the same here.
_PYTORCHS = ("verbose", "use_beta1", "mode_worse", "default_min_lr")


def _plain(value: Any) -> Any:
    return (
        list(value) if isinstance(value, (list, tuple)) else dict(value) if isinstance(value, dict) else value
    )


def per_group(name: str, what: str, value: Any, optimizer: Optimizer) -> list[Any]:
    """One value for each parameter group: `value` itself when it is a list, else repeated."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ShapeError(
            f"{name}: expected {groups} values of {what}, one per parameter group, got {len(value)}"
        )
    return list(value)
