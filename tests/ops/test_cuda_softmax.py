"""Softmax along any dimension on CUDA: which kernel runs, launches, values of every dtype and layout."""

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid.kernel import calls
from lucid.testing import simulator

RNG = np.random.default_rng(0)
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
# shape, dim; with float32: columns, moved to rows (less than a pack side by side), rows.
COLUMNS = [((3, 5, 8), 1), ((70, 4), 0), ((2, 3, 4, 6), -3), ((2, 100, 7), 1), ((1, 9, 4), 1)]
MOVED = [((3, 5, 2), 1), ((6, 3), 0), ((2, 3, 1, 3), 1)]
ROWS = [((3, 5), -1), ((4, 9), 1), ((7,), 0)]


@pytest.fixture
def gpu(device):
    if device == "cpu":
        pytest.skip("CUDA paths")
    return device


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape, dim", COLUMNS + MOVED + ROWS, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_and_gradients(gpu, name, shape, dim, dtype):
    x, g = RNG.standard_normal(shape) * 3, RNG.standard_normal(shape)
    found = []
    for place, kind in (("cpu", "float64"), (gpu, dtype)):
        for layout in (lambda t: t, lambda t: t.permute(*range(t.ndim)[::-1]).contiguous().permute(
                *range(t.ndim)[::-1])):
            t = layout(lucid.tensor(x).to(getattr(lucid, dtype)).to(getattr(lucid, kind)).to(place))
            t = t.detach().requires_grad_()
            y = getattr(F, name)(t, dim)
            seed = layout(lucid.tensor(g).to(getattr(lucid, dtype)).to(y.dtype).to(place))
            (first,) = lucid.autograd.grad(y, [t], seed, create_graph=True)
            (raw,) = lucid.autograd.grad(getattr(F, name)(t, dim), [t], seed)
            (second,) = lucid.autograd.grad((first * seed).sum(), [t])
            found.append([v.detach().cpu().double().numpy() for v in (y, first, raw, second)])
            assert y.dtype == t.dtype and raw.shape == t.shape
    for results in found[1:]:
        for e, f in zip(found[0], results, strict=True):
            np.testing.assert_allclose(f, e, rtol=0, atol=TOLERANCE[dtype] * 8 * max(1.0, np.abs(e).max()))


@pytest.mark.parametrize("shape, dim", COLUMNS, ids=str)
def test_a_launch_each_way(gpu, shape, dim):
    if not simulator.is_on():
        pytest.skip("counts are those of the simulator")
    x = lucid.randn(*shape, device=gpu, requires_grad=True)
    g = lucid.ones(*shape, device=gpu)
    F.softmax(x, dim)
    with simulator.counted() as counts:
        y = F.softmax(x, dim)
    assert (counts["launches"], counts["raw"]) == (1, 1)
    with simulator.counted() as counts:
        lucid.autograd.grad(y, [x], g)
    assert (counts["launches"], counts["raw"]) == (1, 1)


def test_the_choice():
    class Launch:
        sms = 132

    for shape, dim, itemsize, expected in (
        ((8, 21, 512, 512), 1, 4, True),
        ((64, 1000, 4), 1, 4, True),      # a pack side by side
        ((64, 1000, 4), 1, 2, False),     # half of one
        ((1, 100_000, 64), 1, 4, False),  # one tile for a whole GPU
        ((1, 500, 64), 1, 4, True),       # short columns
    ):
        assert calls.columns_pay(Launch, shape, dim, itemsize) == expected


def test_nothing_to_normalize(gpu):
    for shape, dim in (((0, 3), 0), ((3, 0), 1), ((2, 0, 4), 0), ((), 0)):
        x = lucid.zeros(shape, device=gpu, requires_grad=True)
        y = F.softmax(x, dim)
        y.sum().backward()
        assert y.shape == x.shape == x.grad.shape
