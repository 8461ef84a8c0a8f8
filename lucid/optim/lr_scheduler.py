"""Learning-rate schedules: each sets `group["lr"]` of an optimiser when its `step()` is called, once per
epoch or per batch.

Most compute the next rate from the present one, so that several can act on one optimiser (`ChainedScheduler`)
and a change by hand is kept; `closed_form` gives the rate of any epoch directly. A schedule's state is plain
numbers: `state_dict` and `load_state_dict` resume it exactly, together with the optimiser's.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from ..errors import CheckpointError, ShapeError
from .composed import ChainedScheduler as ChainedScheduler
from .composed import SequentialLR as SequentialLR
from .cyclic import CyclicLR as CyclicLR
from .cyclic import OneCycleLR as OneCycleLR
from .optimizer import Optimizer
from .schedule import LRScheduler as LRScheduler
from .schedule import per_group

# The name that programs from before PyTorch 2.0 derive from.
_LRScheduler = LRScheduler
Number = int | float
Lambdas = Callable[[int], float] | Sequence[Callable[[int], float]]


class LambdaLR(LRScheduler):
    """initial_lr * lr_lambda(epoch). lr_lambda: one function, or one per group.

    Of the state are the attributes of a callable object, not functions.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    _transient = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambdas, last_epoch: int = -1) -> None:
        self.lr_lambdas = per_group(type(self).__name__, "lr_lambda", lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lr_lambdas": [_attributes(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        kept = state_dict.get("lr_lambdas") or [None] * len(self.lr_lambdas)
        if len(kept) != len(self.lr_lambdas):
            raise CheckpointError(
                f"{type(self).__name__}.load_state_dict: expected {len(self.lr_lambdas)} entries of "
                f"lr_lambdas, got {len(kept)}"
            )
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for f, attributes in zip(self.lr_lambdas, kept, strict=True):
            if attributes is not None:
                vars(f).update(attributes)


def _attributes(f: Any) -> dict[str, Any] | None:
    if isinstance(f, (FunctionType, MethodType, partial)) or not hasattr(f, "__dict__"):
        return None
    return dict(vars(f))


class MultiplicativeLR(LambdaLR):
    """lr * lr_lambda(epoch) from epoch 1 on. lr_lambda: one function, or one per group.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def get_lr(self) -> list[float]:
        if self._initial:
            return self._present()
        return [rate * f(self.last_epoch) for f, rate in zip(self.lr_lambdas, self._present(), strict=True)]


class StepLR(LRScheduler):
    """lr * gamma after every `step_size` epochs.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise ShapeError(f"StepLR: expected step_size >= 1, got {step_size}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._times(1.0 if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma)

    def closed_form(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """lr * gamma at each of `milestones` (epochs; one named twice counts twice).

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        milestones = state_dict.get("milestones")
        if isinstance(milestones, dict):  # PyTorch counts them
            state_dict = {**state_dict, "milestones": sorted(Counter(milestones).elements())}
        super().load_state_dict(state_dict)

    def get_lr(self) -> list[float]:
        return self._times(self.gamma ** Counter(self.milestones)[self.last_epoch])

    def closed_form(self) -> list[float]:
        return [base * self.gamma ** bisect_right(self.milestones, self.last_epoch) for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """initial_lr * factor before epoch `total_iters`, initial_lr from then on.

    Raises ShapeError for a factor outside (0, 1].

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3.0, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0.0 < factor <= 1.0:
            raise ShapeError(f"ConstantLR: expected 0 < factor <= 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._times(self.factor)
        return self._times(1.0 / self.factor if self.last_epoch == self.total_iters else 1.0)

    def closed_form(self) -> list[float]:
        return [base * (self.factor if self.last_epoch < self.total_iters else 1.0) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """initial_lr times a factor that runs from start_factor to end_factor in `total_iters` epochs: a warm-up.

    Raises ShapeError for factors outside [0, 1] or a start at 0.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3.0,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0.0 < start_factor <= 1.0 or not 0.0 <= end_factor <= 1.0:
            raise ShapeError(
                f"LinearLR: expected 0 < start_factor <= 1 and 0 <= end_factor <= 1, got {start_factor}, "
                f"{end_factor}"
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        start, change = self.start_factor, self.end_factor - self.start_factor
        if self.last_epoch == 0:
            return self._times(start)
        if self.last_epoch > self.total_iters:
            return self._present()
        return self._times(1.0 + change / (self.total_iters * start + (self.last_epoch - 1) * change))

    def closed_form(self) -> list[float]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [
            base * (self.start_factor + (self.end_factor - self.start_factor) * done)
            for base in self.base_lrs
        ]


class ExponentialLR(LRScheduler):
    """lr * gamma after every epoch.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._times(self.gamma if self.last_epoch > 0 else 1.0)

    def closed_form(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """initial_lr * (1 - epoch / total_iters)^power, 0 from epoch `total_iters` on.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._present()
        left = [1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1)]
        return self._times((left[0] / left[1]) ** self.power)

    def closed_form(self) -> list[float]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """eta_min + (initial_lr - eta_min) (1 + cos(pi epoch / T_max)) / 2.

    Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(schedule.get_last_lr()[0], 3))
    ...     schedule.step()
    >>> rates
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._present()
        low, period = self.eta_min, self.T_max
        if (self.last_epoch - 1 - period) % (2 * period) == 0:
            # The rate is eta_min: the ratio below would be 0 / 0.
            rise = (1.0 - math.cos(math.pi / period)) / 2.0
            return [
                rate + (base - low) * rise for rate, base in zip(self._present(), self.base_lrs, strict=True)
            ]
        now, before = (
            1.0 + math.cos(math.pi * epoch / period) for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return [now / before * (rate - low) + low for rate in self._present()]

    def closed_form(self) -> list[float]:
        share = (1.0 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2.0
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """A cosine from initial_lr to eta_min in T_0 epochs, again in T_0 T_mult, ...

    Loshchilov and Hutter 2017, arXiv:1608.03983. `step(epoch)` takes fractions: `step(epoch + batch /
    batches)`. Raises ShapeError for T_0 or T_mult below 1.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not (isinstance(T_0, int) and isinstance(T_mult, int)) or T_0 <= 0 or T_mult < 1:
            raise ShapeError(
                f"CosineAnnealingWarmRestarts: expected integers T_0 > 0 and T_mult >= 1, got {T_0}, {T_mult}"
            )
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: Number = last_epoch
        if last_epoch > 0:
            self._find(last_epoch)
        super().__init__(optimizer, last_epoch)

    def _find(self, epoch: Number) -> None:
        # The period that `epoch` lies in, and how far.
        if self.T_mult == 1:
            self.T_cur, self.T_i = epoch % self.T_0, self.T_0
            return
        # After n periods T_0 (T_mult^n - 1) / (T_mult - 1) epochs have passed.
        n, passed, length = 0, 0, self.T_0
        while passed + length <= epoch:
            n, passed, length = n + 1, passed + length, length * self.T_mult
        self.T_cur, self.T_i = epoch - passed, length

    def get_lr(self) -> list[float]:
        share = (1.0 + math.cos(math.pi * self.T_cur / self.T_i)) / 2.0
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        self._step_count += 1
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ShapeError(f"CosineAnnealingWarmRestarts.step: expected an epoch >= 0, got {epoch}")
        else:
            self._find(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())


class WarmupCosineLR(LRScheduler):
    """Linear from 0 to initial_lr in `warmup_steps`, then a cosine to initial_lr * min_factor.

    The end is reached at `total_steps`. The first step has initial_lr / warmup_steps: no step is wasted at 0.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.WarmupCosineLR(optimizer, warmup_steps=2, total_steps=4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        min_factor: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= warmup_steps < total_steps:
            raise ShapeError(
                f"{type(self).__name__}: expected 0 <= warmup_steps < total_steps, got {warmup_steps}, "
                f"{total_steps}"
            )
        self.warmup_steps, self.total_steps, self.min_factor = warmup_steps, total_steps, min_factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch < self.warmup_steps:
            factor = (self.last_epoch + 1) / self.warmup_steps
        else:
            done = min(1.0, (self.last_epoch - self.warmup_steps) / (self.total_steps - self.warmup_steps))
            factor = self.min_factor + (1.0 - self.min_factor) * self._left(done)
        return [base * factor for base in self.base_lrs]

    def _left(self, done: float) -> float:
        return (1.0 + math.cos(math.pi * done)) / 2.0


class WarmupLinearLR(WarmupCosineLR):
    """Like `WarmupCosineLR`, with a straight line down.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.WarmupLinearLR(optimizer, warmup_steps=2, total_steps=4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def _left(self, done: float) -> float:
        return 1.0 - done


class ReduceLROnPlateau(LRScheduler):
    """lr * factor when a metric has not improved for more than `patience` epochs.

    Call `step(metric)` once per epoch. mode: "min" or "max". An improvement is a change by more than
    `threshold`, relative ("rel") or absolute ("abs"). cooldown: epochs after a reduction that do not count.
    min_lr: a floor, or one per group; reductions below eps are skipped.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ShapeError(f"ReduceLROnPlateau: expected factor < 1, got {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ShapeError(
                "ReduceLROnPlateau: mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', got "
                f"{mode!r}, {threshold_mode!r}"
            )
        self.optimizer = optimizer
        self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.min_lrs = per_group("ReduceLROnPlateau", "min_lr", min_lr, optimizer)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = self._present()

    def is_better(self, metric: float) -> bool:
        """Whether `metric` improves on the best so far by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1.0)
        return metric > self.best + margin if sign > 0 else metric < self.best - margin

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        metric = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.best in (math.inf, -math.inf) and metric == metric or self.is_better(metric):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, low in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = max(group["lr"] * self.factor, low)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._present()
