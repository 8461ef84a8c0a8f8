"""Convolutions on CUDA: columns by kernel and products, against the CPU's; blocks, launches, determinism."""

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid.ops import cuda_conv
from lucid.testing import simulator

RNG = np.random.default_rng(0)
DTYPES = ("float64", "float32", "float16", "bfloat16")
TOLERANCE = {"float64": 1e-10, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1.5e-1}


@pytest.fixture
def gpu(device):
    if device == "cpu":
        pytest.skip("CUDA paths")
    return device


def host(x):
    return x.detach().cpu().double().numpy()


def run(function, arrays, device, dtype):
    """The value, first and second derivatives of a function, on a device."""
    xs = [
        None
        if a is None
        else lucid.tensor(a).to(getattr(lucid, dtype)).to(device).detach().requires_grad_()
        for a in arrays
    ]
    given = [x for x in xs if x is not None]
    y = function(*xs)
    seed = lucid.tensor(np.random.default_rng(1).standard_normal(y.shape)).to(y.dtype).to(device)
    first = lucid.autograd.grad(y, given, seed, create_graph=True)
    total = sum((g * lucid.cos(x.detach())).sum() for g, x in zip(first, given, strict=True))
    second = lucid.autograd.grad(total, given, allow_unused=True)
    # First order as backward() takes it: on raw arrays.
    raw = lucid.autograd.grad(function(*xs), given, seed)
    return [host(v) for v in (y, *first, *raw, *(s for s in second if s is not None))]


def agree(function, arrays, device, dtype="float64"):
    exact = run(function, arrays, "cpu", "float64")
    found = run(function, arrays, device, dtype)
    for e, f in zip(exact, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=0, atol=TOLERANCE[dtype] * max(1.0, np.abs(e).max(initial=0)))


# input, weight, bias?, options
PLAIN = {
    "1d": ((3, 4, 11), (6, 4, 3), True, {"padding": 1}),
    "1d, stride and dilation": ((2, 3, 17), (4, 3, 3), False, {"stride": 2, "dilation": 3, "padding": 2}),
    "2d": ((3, 4, 7, 6), (5, 4, 3, 3), True, {"padding": 1}),
    "2d, one sample": ((1, 4, 7, 6), (5, 4, 3, 2), True, {"stride": (1, 2)}),
    "2d, groups": ((3, 4, 6, 5), (6, 2, 3, 2), True, {"groups": 2, "padding": (2, 0)}),
    "2d, each channel for itself": ((2, 4, 6, 5), (8, 1, 3, 3), False, {"groups": 4, "padding": 1}),
    "2d, same": ((2, 3, 6, 5), (4, 3, 2, 4), True, {"padding": "same"}),
    "2d, cells that no window sees": ((2, 2, 8, 8), (3, 2, 2, 2), True, {"stride": 3}),
    "3d": ((2, 2, 4, 5, 3), (3, 2, 2, 3, 2), True, {"stride": (1, 2, 1), "padding": (1, 0, 1)}),
    "3d, groups": ((2, 4, 5, 4, 6), (4, 2, 2, 2, 2), False, {"groups": 2, "dilation": (2, 1, 3)}),
    "1x1": ((3, 4, 5, 6), (5, 4, 1, 1), True, {}),
    "1x1, one sample": ((1, 4, 5, 6), (5, 4, 1, 1), False, {}),
    "1x1, groups": ((2, 4, 5, 6), (6, 2, 1, 1), True, {"groups": 2}),
    "1x1, stride": ((2, 3, 7, 6), (4, 3, 1, 1), True, {"stride": 2}),
    "1x1, padding": ((2, 3, 4, 4), (4, 3, 1, 1), False, {"padding": 1}),
}
TRANSPOSED = {
    "1d": ((3, 4, 6), (4, 5, 3), True, {}),
    "2d, stride": ((2, 3, 4, 5), (3, 4, 3, 2), True, {"stride": (2, 3), "padding": 1, "output_padding": 1}),
    "2d, groups and dilation": (
        (2, 4, 4, 3),
        (4, 3, 2, 3),
        True,
        {"groups": 2, "stride": 2, "padding": (1, 2), "dilation": (3, 2)},
    ),
    "3d": ((1, 2, 3, 2, 3), (2, 3, 2, 2, 2), False, {"stride": 2, "padding": 1}),
    "1x1": ((3, 4, 5), (4, 6, 1), True, {}),
}


def problem(kind, name):
    size, kernel, biased, options = (PLAIN if kind == "conv" else TRANSPOSED)[name]
    n = len(size) - 2
    f = getattr(F, f"{kind}{n}d")
    outs = kernel[0] if kind == "conv" else kernel[1] * options.get("groups", 1)
    arrays = [RNG.standard_normal(size), RNG.standard_normal(kernel), RNG.standard_normal(outs)]
    arrays = arrays if biased else arrays[:2]
    return (lambda x, w, b=None: f(x, w, b, **options)), arrays


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("dtype", DTYPES)
def test_convolution(gpu, name, dtype):
    agree(*problem("conv", name), gpu, dtype)


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_conv_transpose(gpu, name, dtype):
    agree(*problem("conv_transpose", name), gpu, dtype)


EVERY = [("conv", n) for n in PLAIN] + [("conv_transpose", n) for n in TRANSPOSED]


@pytest.mark.parametrize("kind, name", EVERY)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_blocks_of_samples(gpu, kind, name, dtype, monkeypatch):
    """One sample's columns at a time."""
    monkeypatch.setattr(cuda_conv, "_GPU_BLOCK_BYTES", 1)
    agree(*problem(kind, name), gpu, dtype)


def test_blocks_are_added_up_in_float32(gpu, monkeypatch):
    monkeypatch.setattr(cuda_conv, "_GPU_BLOCK_BYTES", 1)
    x = lucid.tensor(RNG.uniform(1, 2, (256, 2, 6))).to(lucid.bfloat16)
    w = lucid.tensor(RNG.standard_normal((3, 2, 3))).to(lucid.bfloat16)
    found = []
    for place, dtype in ((gpu, lucid.bfloat16), ("cpu", lucid.float64)):
        leaf = w.to(dtype).to(place).detach().requires_grad_()
        F.conv1d(x.to(dtype).to(place), leaf).sum().backward()
        found.append(host(leaf.grad))
    np.testing.assert_allclose(*found, rtol=2**-7)


def test_negative_padding_and_what_is_not_contiguous(gpu):
    from lucid.autograd.record import RECORDED

    def cut(x, w):
        return RECORDED.convolution(x, w, None, (2, 1), ((-1, 2), (1, -1)), (1, 2), 1)

    agree(cut, [RNG.standard_normal((2, 3, 8, 7)), RNG.standard_normal((4, 3, 2, 2))], gpu)
    agree(
        lambda x, w: F.conv2d(x.transpose(2, 3), w.permute(3, 0, 1, 2), padding=1),
        [RNG.standard_normal((2, 3, 8, 7)), RNG.standard_normal((3, 2, 2, 4))],
        gpu,
    )
    agree(lambda x, w: F.conv1d(x, w), [RNG.standard_normal((3, 9)), RNG.standard_normal((4, 3, 2))], gpu)


def test_no_samples_and_complex_numbers(gpu):
    w = lucid.ones(4, 3, 2, device=gpu, requires_grad=True)
    out = F.conv1d(lucid.zeros(0, 3, 5, device=gpu), w)
    assert out.shape == (0, 4, 4)
    out.sum().backward()
    assert not w.grad.any()
    x = RNG.standard_normal((2, 3, 6)) + 1j * RNG.standard_normal((2, 3, 6))
    k = RNG.standard_normal((4, 3, 2)) + 0.5j
    found = F.conv1d(lucid.tensor(x, device=gpu), lucid.tensor(k, device=gpu))
    np.testing.assert_allclose(
        found.cpu().numpy(), F.conv1d(lucid.tensor(x), lucid.tensor(k)).numpy(), atol=1e-12
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_unfold_and_fold(gpu, dtype):
    x = RNG.standard_normal((2, 3, 6, 5))
    options = {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 1)}
    agree(lambda x: F.unfold(x, **options).square(), [x], gpu, dtype)
    columns = F.unfold(lucid.tensor(x), **options)
    arrays = [RNG.standard_normal(columns.shape)]
    agree(lambda c: F.fold(c, (6, 5), **options).square(), arrays, gpu, dtype)


def launches(function):
    with simulator.counted() as counts:
        result = function()
    assert counts["syncs"] == 0 and counts["h2d_bytes"] == counts["d2h_bytes"] == 0
    return counts["launches"], counts["raw"], result


@pytest.mark.parametrize(
    "size, kernel, expected",
    [
        # Columns, product, bias on the way to [samples, channels, cells]; g turned, product, cells of x;
        # columns, g turned, product; the bias's sum.
        ((4, 3, 8, 8), (5, 3, 3, 3), ((3, 1), (3, 1), (3, 1))),
        # One sample needs no turning: columns, product, bias; product, cells; columns, product.
        ((1, 3, 8, 8), (5, 3, 3, 3), ((3, 1), (2, 1), (2, 1))),
        # No columns but for the weight: product, bias; product; x and g turned, product.
        ((4, 3, 8, 8), (5, 3, 1, 1), ((2, 0), (1, 0), (3, 1))),
        ((1, 3, 8, 8), (5, 3, 1, 1), ((2, 0), (1, 0), (1, 0))),
    ],
    ids=str,
)
def test_launches(gpu, size, kernel, expected):
    if not simulator.is_on():
        pytest.skip("counts are those of the simulator")
    arrays = [lucid.randn(*shape, device=gpu) for shape in (size, kernel, kernel[:1])]
    found = []
    for leaf in (2, 0, 1):
        xs = [x.detach().requires_grad_(i == leaf) for i, x in enumerate(arrays)]
        *counts, y = launches(lambda xs=xs: F.conv2d(*xs, padding=kernel[-1] // 2))
        if leaf == 2:
            found.append(tuple(counts))
            continue
        g = lucid.ones_like(y)
        found.append(launches(lambda y=y, x=xs[leaf], g=g: lucid.autograd.grad(y, [x], g))[:2])
    assert tuple(found) == expected


def test_the_same_bits_in_every_order_of_threads(gpu):
    if not simulator.is_on():
        pytest.skip("orders of threads are those of the simulator")
    function, arrays = problem("conv", "2d, groups")
    results = []
    for order, seed in simulator.ORDERS:
        with simulator.configured(order=order, seed=seed):
            results.append(run(function, arrays, gpu, "float32"))
    for other in results[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(results[0], other, strict=True))
