"""What the tests of chains and runs share."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.testing import simulator

LF = lucid.nn.functional
DTYPES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
RNG = np.random.default_rng(0)


def arr(*shape):
    return RNG.standard_normal(shape)


def gradients(f, arrays, device, dtype, on):
    """(gradients in float64, statistics of the pass) of f(*tensors) with a fixed gradient."""
    xs = [lucid.tensor(a, device=device).to(dtype).detach().requires_grad_() for a in arrays]
    fusion.reset_stats()
    with fusion.enabled(on):
        y = f(*xs)
        y.backward(lucid.tensor(np.random.default_rng(5).standard_normal(y.shape), device=device).to(y.dtype))
    assert all(x.grad.dtype == x.dtype and x.grad.shape == x.shape for x in xs)
    return [x.grad.cpu().numpy().astype("f8") for x in xs], fusion.stats()


def same(f, arrays, device, dtype="float64", expect=None, tol=None):
    """Fused and unfused agree, and `expect` ran (None: nothing fused)."""
    fused, stats = gradients(f, arrays, device, dtype, True)
    plain, _ = gradients(f, arrays, device, dtype, False)
    assert list(stats.by_name) == ([expect] if expect else []), stats
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol or DTYPES[dtype], atol=tol or DTYPES[dtype])


def few(device, dtype, every):
    """Nothing; leaves out cases of the simulated device: each is a kernel to compile, and holds the memory
    maps of its threads' stacks.
    """
    if device != "cpu" and simulator.is_on() and not every and dtype != "bfloat16":
        pytest.skip("the other dtypes tell the same")


def launches(f, *arrays):
    """(kernels of our own, all operations) of the backward pass on the simulated device, fused and not."""
    return [(c["raw"], c["launches"]) for c in counts(f, *arrays)]


def counts(f, *arrays):
    """What the backward pass asks of the simulated device, fused and not."""
    found = []
    for on in (True, False):
        xs = [lucid.tensor(a, device="cuda").to("float32").detach().requires_grad_() for a in arrays]
        y = f(*xs)
        seed = lucid.ones(*y.shape, device="cuda")
        with fusion.enabled(on), simulator.counted(moved=True) as c:
            y.backward(seed)
        found.append(c)
    return found
