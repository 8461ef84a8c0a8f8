"""Memory of the device: figures, the peak, and what happens when there is none left."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import lucid
from lucid.errors import OutOfMemoryError
from lucid.storage import backend_of

MIB = 1 << 20


@pytest.fixture(autouse=True)
def settled(request):
    gc.collect()
    yield
    gc.collect()


def test_figures(cuda):
    lucid.cuda.empty_cache()
    before = lucid.cuda.memory_allocated()
    x = lucid.zeros(MIB, device=cuda)
    assert lucid.cuda.memory_allocated() - before == 4 * MIB
    assert lucid.cuda.memory_reserved() >= lucid.cuda.memory_allocated()
    del x
    assert lucid.cuda.memory_allocated() == before
    reserved = lucid.cuda.memory_reserved()
    lucid.cuda.empty_cache()
    assert lucid.cuda.memory_reserved() <= reserved - 4 * MIB
    free, total = lucid.cuda.mem_get_info()
    assert 0 < free <= total
    assert set(lucid.cuda.memory_stats()) == {"allocated", "peak", "reserved", "limit", "free", "total"}


def test_peak(cuda):
    lucid.ones(1, device=cuda) * 2 * 3  # the numbers are kept as arrays from now on
    lucid.cuda.reset_peak_memory_stats()
    before = lucid.cuda.memory_allocated()
    assert lucid.cuda.max_memory_allocated() == before
    x = lucid.zeros(4, MIB, device=cuda)
    y = x * 2
    del y
    for _ in range(50):
        x[0] * 3
    peak = lucid.cuda.max_memory_allocated() - before
    assert 32 * MIB * 63 / 64 <= peak <= 32 * MIB
    lucid.cuda.reset_peak_memory_stats()
    assert lucid.cuda.max_memory_allocated() - before == 16 * MIB


def test_the_peak_is_never_more_than_a_64th_too_low(cuda):
    rng = np.random.default_rng(0)
    pool = backend_of(cuda).xp.get_default_memory_pool()
    lucid.cuda.reset_peak_memory_stats()
    held, true = [], pool.used_bytes()
    for _ in range(2000):
        if held and rng.random() < 0.48:
            held.pop(int(rng.integers(len(held))))
        else:
            held.append(lucid.empty(int(rng.integers(1, 5000)), device=cuda))
        true = max(true, pool.used_bytes())
    assert true * 63 / 64 <= lucid.cuda.max_memory_allocated() <= true


def test_summary(cuda):
    x = lucid.zeros(3, MIB, device=cuda)
    text = lucid.cuda.memory_summary()
    assert "memory of cuda:0" in text and "allocated" in text and "1 x float32[3, 1048576] (12.0 MiB)" in text
    assert "largest" not in lucid.cuda.memory_summary(abbreviated=True)
    assert x.is_cuda


@pytest.fixture
def limited(cuda):
    """A device with 64 MiB more than what is in use."""
    lucid.cuda.empty_cache()
    pool = backend_of(cuda).xp.get_default_memory_pool()
    pool.set_limit(size=pool.total_bytes() + 64 * MIB)
    yield pool
    pool.set_limit(size=0)


def test_out_of_memory_says_what_is_held_and_the_process_goes_on(limited, cuda):
    held = [lucid.zeros(4, MIB, device=cuda) for _ in range(2)]
    cached = lucid.zeros(4, MIB, device=cuda)
    del cached
    with pytest.raises(OutOfMemoryError) as caught:
        lucid.zeros(12, MIB, device=cuda)
    text = str(caught.value)
    assert "out of memory on cuda:0: 48.0 MiB (50331648 bytes) were asked for" in text
    assert (
        "2 x float32[4, 1048576] (32.0 MiB)" in text
        and "try: a smaller batch" in text
        and "limit of the pool" in text
    )
    assert isinstance(caught.value, MemoryError)
    # The cache was released, and what fits still runs.
    assert limited.total_bytes() - limited.used_bytes() == 0
    assert (held[0] + 1).sum().item() == 4 * MIB


def test_out_of_memory_in_an_op_and_in_backward(limited, cuda):
    x = lucid.ones(3, MIB, device=cuda, requires_grad=True)
    with pytest.raises(OutOfMemoryError, match="out of memory on cuda:0"):
        kept = [x * 2 for _ in range(10)]
    kept = None
    gc.collect()
    y = (x.expand(1, 3, MIB) * 2).sum()
    limited.set_limit(size=limited.used_bytes() + MIB)
    with pytest.raises(OutOfMemoryError):
        y.backward(retain_graph=True)
    assert x.grad is None and kept is None
    limited.set_limit(size=limited.used_bytes() + 64 * MIB)
    y.backward()
    assert x.grad.sum().item() == 6 * MIB


def test_training_goes_on_with_a_smaller_batch(limited, cuda):
    """Out of memory in the middle of a step: what it held is free again, and the next step is right."""
    nn = lucid.nn
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1)).to(cuda)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        optimizer.zero_grad()
        model(lucid.ones(batch, 256, device=cuda)).mean().backward()
        optimizer.step()

    step(8)
    before, weights = limited.used_bytes(), model[2].weight.detach().cpu()
    with pytest.raises(OutOfMemoryError) as caught:
        step(1 << 15)
    text = str(caught.value)
    assert "MiB (" in text and "were asked for; arrays hold" in text and "the cache held" in text
    assert "largest tensors: " in text and "float32[32768, " in text
    del caught
    gc.collect()
    assert limited.used_bytes() <= before
    assert lucid.equal(model[2].weight.detach().cpu(), weights), "the failed step changed a parameter"
    step(1 << 10)
    assert not lucid.equal(model[2].weight.detach().cpu(), weights)


def test_a_fraction_of_the_device(cuda):
    pool = backend_of(cuda).xp.get_default_memory_pool()
    try:
        lucid.cuda.set_per_process_memory_fraction(0.5)
        assert 0 < pool.get_limit() <= lucid.cuda.mem_get_info()[1] // 2 + 1
    finally:
        lucid.cuda.set_per_process_memory_fraction(0)
    assert pool.get_limit() == 0
    with pytest.raises(ValueError, match=r"expected a fraction in \[0, 1\], got 2"):
        lucid.cuda.set_per_process_memory_fraction(2)
