"""Every schedule against torch.optim.lr_scheduler over 60 epochs, and its exact resume."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lucid
from lucid import optim
from lucid.errors import CheckpointError, ShapeError
from lucid.optim import lr_scheduler as ours

CASES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.95**e),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9 + 0.01 * (e % 3)),
    "step": lambda s, o: s.StepLR(o, 7, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 8, 8, 20], 0.5),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 6),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.8, 9),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, 12, 1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 9, 1e-3),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 1e-3),
    "restarts_1": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, 6),
    "cyclic_2": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, mode="triangular2"),
    "cyclic_exp": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, mode="exp_range", gamma=0.98),
    "cyclic_fn": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 4, scale_fn=lambda x: 1 / (1 + x), scale_mode="iterations"
    ),
    "one_cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=60),
    "one_cycle_3": lambda s, o: s.OneCycleLR(
        o, 0.3, epochs=12, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 5), s.CosineAnnealingLR(o, 20), s.ExponentialLR(o, 0.9)], [5, 20]
    ),
    "sequential_step": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 100), s.StepLR(o, 3, 0.5)], [6]),
    "sequential_cyclic": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=3), s.CyclicLR(o, 0.01, 0.1, 5)], [3]
    ),
    "sequential_one_cycle": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 3), s.OneCycleLR(o, 0.2, total_steps=60)], [3]
    ),
    "sequential_multiplicative": lambda s, o: s.SequentialLR(
        o, [s.MultiplicativeLR(o, lambda e: 0.9), s.MultiplicativeLR(o, lambda e: 0.8)], [3]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.95)]),
}
MAKE = {"lucid": lambda: (ours, optim, lambda: lucid.tensor([1.0], requires_grad=True))}


def _optimizer(module, make, kind="SGD"):
    options = dict(momentum=0.9) if kind == "SGD" else {}
    return getattr(module, kind)([{"params": [make()]}, {"params": [make()], "lr": 0.02}], lr=0.05, **options)


def _lucid(kind="SGD"):
    return _optimizer(optim, lambda: lucid.tensor([1.0], requires_grad=True), kind)


def _numbers(optimizer):
    return [(g["lr"], g["betas"][0] if "betas" in g else g["momentum"]) for g in optimizer.param_groups]


def _run(scheduler, optimizer, epochs):
    rows = [_numbers(optimizer)]
    for _ in range(epochs):
        scheduler.step()
        rows.append(_numbers(optimizer))
        assert scheduler.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
    return np.array(rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("case", CASES)
def test_60_epochs_equal_torch(case, kind):
    torch = pytest.importorskip("torch")
    theirs = _optimizer(torch.optim, lambda: torch.ones(1, requires_grad=True), kind)
    expected = _run(CASES[case](torch.optim.lr_scheduler, theirs), theirs, 60)
    optimizer = _lucid(kind)
    np.testing.assert_allclose(
        _run(CASES[case](ours, optimizer), optimizer, 60), expected, rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize("case", CASES)
def test_resume_is_exact(case):
    optimizer = _lucid()
    scheduler = CASES[case](ours, optimizer)
    _run(scheduler, optimizer, 11)
    states = optimizer.state_dict(), scheduler.state_dict()
    expected = _run(scheduler, optimizer, 20)
    fresh = _lucid()
    resumed = CASES[case](ours, fresh)
    fresh.load_state_dict(states[0])
    resumed.load_state_dict(states[1])
    np.testing.assert_array_equal(_run(resumed, fresh, 20), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_goes_on_from_a_state_of_torch(case):
    torch = pytest.importorskip("torch")
    theirs = _optimizer(torch.optim, lambda: torch.ones(1, requires_grad=True))
    scheduler = CASES[case](torch.optim.lr_scheduler, theirs)
    _run(scheduler, theirs, 11)
    optimizer = _lucid()
    resumed = CASES[case](ours, optimizer)
    groups = [{**g, "params": [i]} for i, g in enumerate(theirs.param_groups)]
    optimizer.load_state_dict({"state": {}, "param_groups": groups})
    resumed.load_state_dict(scheduler.state_dict())
    np.testing.assert_allclose(_run(resumed, optimizer, 30), _run(scheduler, theirs, 30), rtol=1e-9)


@pytest.mark.parametrize(
    "case",
    (
        "lambda multiplicative step multistep constant linear exponential polynomial cosine restarts "
        "restarts_1 cyclic one_cycle"
    ).split(),
)
@pytest.mark.parametrize("done", [3, 7, 8, 11])
def test_resume_by_last_epoch(case, done):
    # The optimizer's state holds the rates; the schedule is told how many epochs are over.
    first = _lucid()
    scheduler = CASES[case](ours, first)
    _run(scheduler, first, done)
    state = first.state_dict()
    expected = _run(scheduler, first, 20)
    fresh = _lucid()
    fresh.load_state_dict(state)

    class At:
        """The schedules with one argument more."""

        def __getattr__(self, name):
            return lambda *args, **kwargs: getattr(ours, name)(*args, **kwargs, last_epoch=done - 1)
    np.testing.assert_allclose(_run(CASES[case](At(), fresh), fresh, 20), expected, rtol=1e-12)


def test_schedules_of_schedules():
    def rates(make, epochs):
        optimizer = _lucid()
        return _run(make(ours, optimizer), optimizer, epochs)[:, 0, 0] / 0.05
    k = np.arange(9)
    both = 0.1 ** (k // 3) * 0.9**k
    found = rates(lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.5, 9), s.ChainedScheduler(
        [s.StepLR(o, 3), s.ExponentialLR(o, 0.9)])], [4]), 12)
    np.testing.assert_allclose(found, np.concatenate([[0.5] * 4, both]))
    found = rates(lambda s, o: s.SequentialLR(o, [s.SequentialLR(o, [s.ConstantLR(o, 0.5, 9),
                  s.ExponentialLR(o, 0.9)], [2]), s.StepLR(o, 3)], [4]), 12)
    np.testing.assert_allclose(found, np.concatenate([[0.5, 0.5, 1, 0.9], 0.1 ** (k // 3)]))
    found = rates(lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.5, 9), s.SequentialLR(
        o, [s.StepLR(o, 3), s.ExponentialLR(o, 0.9)], [5])], [4]), 12)
    np.testing.assert_allclose(found, np.concatenate([[0.5] * 4, 0.1 ** (k[:5] // 3), 0.9 ** k[:4]]))


class Halving:
    """A callable with a state."""

    rate = 0.5

    def __call__(self, epoch):
        return self.rate**epoch


def test_callable_objects_are_part_of_the_state():
    first, second = _lucid(), _lucid()
    function = Halving()
    function.rate = 0.25
    state = ours.LambdaLR(first, [function, lambda e: 1.0]).state_dict()
    assert state["lr_lambdas"] == [{"rate": 0.25}, None]
    resumed = ours.LambdaLR(second, [Halving(), lambda e: 1.0])
    resumed.load_state_dict(state)
    resumed.step()
    assert second.param_groups[0]["lr"] == 0.25 * 0.05


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau_equals_torch(mode, threshold_mode):
    torch = pytest.importorskip("torch")
    options = dict(
        mode=mode,
        factor=0.5,
        patience=2,
        threshold=0.01,
        threshold_mode=threshold_mode,
        cooldown=1,
        min_lr=1e-3,
    )
    theirs = _optimizer(torch.optim, lambda: torch.ones(1, requires_grad=True))
    optimizer = _lucid()
    a = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    b = ours.ReduceLROnPlateau(optimizer, **options)
    for i in range(60):
        metric = math.exp(-0.1 * i) + 0.3 * math.sin(i) + 0.5
        a.step(metric)
        b.step(lucid.tensor(metric, dtype="float64"))
        np.testing.assert_allclose(
            [g["lr"] for g in optimizer.param_groups], [g["lr"] for g in theirs.param_groups]
        )


def test_plateau_takes_nan_as_no_improvement():
    optimizer = _lucid()
    scheduler = ours.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    for metric in (math.nan, math.nan, math.nan):
        scheduler.step(metric)
    assert optimizer.param_groups[0]["lr"] == 0.025


def test_fractional_epochs_of_warm_restarts():
    optimizer = _lucid()
    scheduler = ours.CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=2)
    for epoch, expected in (
        (0.5, 0.05 * (1 + math.cos(math.pi / 4)) / 2),
        (2.0, 0.05),
        (4.0, 0.025),
        (6.0, 0.05),
    ):
        scheduler.step(epoch)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-12)


def test_warmups():
    optimizer = _lucid()
    scheduler = ours.WarmupCosineLR(optimizer, 4, 12, min_factor=0.1)
    rates = _run(scheduler, optimizer, 14)[:, 0, 0] / 0.05
    np.testing.assert_allclose(rates[:5], [0.25, 0.5, 0.75, 1.0, 1.0])
    np.testing.assert_allclose(rates[[8, 12, 14]], [0.55, 0.1, 0.1])
    optimizer = _lucid()
    scheduler = ours.WarmupLinearLR(optimizer, 2, 10)
    np.testing.assert_allclose(
        _run(scheduler, optimizer, 10)[[0, 2, 6, 10], 0, 0] / 0.05, [0.5, 1.0, 0.5, 0.0], atol=1e-15
    )


def test_what_is_refused():
    optimizer = _lucid()
    with pytest.raises(CheckpointError, match="'initial_lr'"):
        ours.StepLR(optimizer, 3, last_epoch=5)
    with pytest.raises(ShapeError, match="step_size >= 1, got 0"):
        ours.StepLR(optimizer, 0)
    plateau = ours.ReduceLROnPlateau(optimizer)
    for make in (lambda s: ours.ChainedScheduler([s]), lambda s: ours.SequentialLR(optimizer, [s], [])):
        with pytest.raises(ShapeError, match="ReduceLROnPlateau needs a metric at each step"):
            make(plateau)
    with pytest.raises(ShapeError, match="at least one scheduler and one milestone less .*, got 0 and 0"):
        ours.SequentialLR(optimizer, [], [])
    with pytest.raises(ShapeError, match="all schedulers must belong to one optimizer"):
        ours.SequentialLR(optimizer, [ours.StepLR(_lucid(), 3)], [])
    with pytest.raises(ShapeError, match="one per parameter group"):
        ours.LambdaLR(optimizer, [lambda e: 1.0])
    with pytest.raises(CheckpointError, match="belongs to another schedule"):
        ours.StepLR(optimizer, 3).load_state_dict({"T_max": 1})
    scheduler = ours.OneCycleLR(optimizer, 0.1, total_steps=2)
    scheduler.step()
    scheduler.step()
    with pytest.raises(ShapeError, match="step 3 of a schedule of 2 steps"):
        scheduler.step()
