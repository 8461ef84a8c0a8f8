"""Averages of a model's weights over the steps of a training, and the schedule that goes with them.

Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima and Better Generalization", arXiv:1803.05407.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..autograd.mode import no_grad
from ..errors import ShapeError
from ..nn.module import Module
from ..nn.norm import _BatchNorm
from ..tensor import Tensor, tensor
from .optimizer import Optimizer
from .schedule import LRScheduler, per_group

Average = Callable[[Tensor, Tensor, Any], Tensor]
AverageAll = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_swa_avg_fn() -> Average:
    """The running mean: (average, new, n) -> average + (new - average) / (n + 1).

    >>> import lucid
    >>> mean = lucid.optim.swa_utils.get_swa_avg_fn()
    >>> mean(lucid.tensor([1.0]), lucid.tensor([4.0]), 2)
    tensor([2.])
    """
    return lambda average, new, n: average + (new - average) / (n + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The exponential mean: (average, new, n) -> decay average + (1 - decay) new. Needs 0 <= decay <= 1.

    >>> import lucid
    >>> mean = lucid.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> mean(lucid.tensor([1.0]), lucid.tensor([5.0]), 1)
    tensor([2.])
    """
    if not 0.0 <= decay <= 1.0:
        raise ShapeError(f"get_ema_avg_fn: expected 0 <= decay <= 1, got {decay}")
    return lambda average, new, n: average * decay + new * (1.0 - decay)


def get_swa_multi_avg_fn() -> AverageAll:
    """The running mean of several tensors, in place: (averages, new ones, n) -> nothing.

    >>> import lucid
    >>> averages = [lucid.tensor([1.0])]
    >>> lucid.optim.swa_utils.get_swa_multi_avg_fn()(averages, [lucid.tensor([4.0])], 2)
    >>> averages
    [tensor([2.])]
    """
    return _each(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageAll:
    """The exponential mean of several tensors, in place; see get_ema_avg_fn.

    >>> import lucid
    >>> averages = [lucid.tensor([1.0])]
    >>> lucid.optim.swa_utils.get_ema_multi_avg_fn(0.75)(averages, [lucid.tensor([5.0])], 1)
    >>> averages
    [tensor([2.])]
    """
    return _each(get_ema_avg_fn(decay))


def _each(average: Average) -> AverageAll:
    def run(averages: Sequence[Tensor], new: Sequence[Tensor], n: Any) -> None:
        with no_grad():
            for a, b in zip(averages, new, strict=True):
                a.copy_(average(a, b, n))

    return run


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that the model had.

    `update_parameters(model)` takes the model's present ones in: the first time they are copied, later
    averaged by avg_fn(average, new, n) or multi_avg_fn(averages, new ones, n) of floating tensors, equally
    weighted when both are None; integers are copied. use_buffers: buffers are averaged, too, else copied.

    >>> import lucid
    >>> model = lucid.nn.Linear(1, 1, bias=False)
    >>> mean = lucid.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = lucid.nn.init.constant_(model.weight, value)
    ...     mean.update_parameters(model)
    >>> mean.module.weight.item(), mean.n_averaged.item()
    (3.0, 3)
    """

    n_averaged: Tensor

    def __init__(self, model: Module, device: Any = None, avg_fn: Average | None = None,
                 multi_avg_fn: AverageAll | None = None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ShapeError("AveragedModel: give either avg_fn or multi_avg_fn")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Nothing; the averages take the parameters of `model` in."""
        own, new = self._tensors(self.module), self._tensors(model)
        moved = [b.detach().to(a.device) for a, b in zip(own, new, strict=True)]
        first = not int(self.n_averaged)
        means = [(a, b) for a, b in zip(own, moved, strict=True) if not first and a.is_floating_point()]
        for a, b in zip(own, moved, strict=True):
            if first or not a.is_floating_point():
                a.detach().copy_(b)
        if means:
            average = self.multi_avg_fn or _each(self.avg_fn or get_swa_avg_fn())
            average([a.detach() for a, _ in means], [b for _, b in means], self.n_averaged)
        if not self.use_buffers:
            for a, b in zip(self.module.buffers(), model.buffers(), strict=True):
                a.detach().copy_(b.detach().to(a.device))
        self.n_averaged += 1

    def _tensors(self, model: Module) -> list[Tensor]:
        return list(itertools.chain(model.parameters(), model.buffers() if self.use_buffers else ()))


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Nothing; the model's batch norms have the statistics of the whole loader afterwards.

    loader: batches, or lists and tuples whose first entry is the model's input.

    >>> import lucid
    >>> norm = lucid.nn.BatchNorm1d(1)
    >>> lucid.optim.swa_utils.update_bn([lucid.tensor([[1.0], [3.0]]), lucid.tensor([[5.0], [7.0]])], norm)
    >>> norm.running_mean
    tensor([4.])
    """
    norms = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not norms:
        return
    training = model.training
    model.train()
    try:
        for m in norms:
            m.reset_running_stats()
            m.momentum = None  # the cumulative average
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for m, momentum in norms.items():
            m.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """From the present rate to swa_lr in `anneal_epochs` epochs, along a cosine or a line, then constant.

    swa_lr: one rate, or one per group; anneal_strategy: "cos" or "linear". Raises ShapeError for others.

    >>> import lucid
    >>> optimizer = lucid.optim.SGD([lucid.nn.Parameter(lucid.zeros(1))], lr=1.0)
    >>> schedule = lucid.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10,
                 anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ShapeError(f"SWALR: anneal_strategy is 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ShapeError(f"SWALR: expected an integer anneal_epochs >= 0, got {anneal_epochs}")
        rates = per_group("SWALR", "swa_lr", swa_lr, optimizer)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        # How far the rate has come after `step` steps.
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1.0 - math.cos(math.pi * t)) / 2.0

    def get_lr(self) -> list[float]:
        step = self._step_count - 1 if self.anneal_epochs else max(1, self._step_count - 1)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group, rate in zip(self.optimizer.param_groups, self._present(), strict=True):
            goal = group["swa_lr"]
            # Solved for the rate that the annealing started from, so that other changes are kept.
            start = goal if before == 1.0 else (rate - before * goal) / (1.0 - before)
            rates.append(goal * now + start * (1.0 - now))
        return rates
