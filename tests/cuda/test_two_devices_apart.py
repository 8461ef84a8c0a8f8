"""Two CUDA devices: streams, events, copies, generators, memory and exchange of each."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import DeviceError
from lucid.storage import Device, backend_of
from tests.cuda.places import ONE, TWO, both_devices, placed  # noqa: F401  (a fixture)

# ---- streams and events ----


def test_streams_belong_to_a_device():
    s = lucid.cuda.Stream(1)
    assert s.device == Device("cuda", 1) and lucid.cuda.current_device() == 0
    assert lucid.cuda.current_stream(1) != s
    with lucid.cuda.stream(s):
        assert lucid.cuda.current_device() == 1
        assert lucid.cuda.current_stream() == s == lucid.cuda.current_stream(1)
        assert lucid.cuda.current_stream(0) == lucid.cuda.default_stream(0)
        assert placed(lucid.ones(3, device="cuda") * 2) == [1]
    assert lucid.cuda.current_device() == 0 and lucid.cuda.current_stream(1) != s
    with s, s:
        assert lucid.cuda.current_stream() == s
    assert lucid.cuda.current_device() == 0
    lucid.cuda.set_stream(s)
    assert lucid.cuda.current_device() == 1 and lucid.cuda.current_stream(1) == s
    lucid.cuda.set_stream(lucid.cuda.default_stream(1))
    lucid.cuda.set_device(0)


def test_events_belong_to_a_device():
    s, other = lucid.cuda.Stream(1), lucid.cuda.Stream(0)
    event = s.record_event()
    assert event.device == Device("cuda", 1) and lucid.cuda.current_device() == 0
    other.wait_stream(s)
    other.wait_event(event)
    with pytest.raises(
        DeviceError, match=r"event: made on cuda:0, .* stream of cuda:1; make it within .*device\(1\)"
    ):
        lucid.cuda.Event().record(s)


def test_a_copy_between_devices_keeps_the_order(simulated):
    """It waits for the source's stream, and the source's later work for it."""
    one, two = lucid.cuda.Stream(0), lucid.cuda.Stream(1)
    with one:
        x = lucid.arange(5.0, device=ONE) * 2
    lucid.cuda.set_stream(two)
    try:
        with one:
            before = len(one.cupy.waited), len(two.cupy.waited)
            y = x.to(TWO)
    finally:
        lucid.cuda.set_stream(lucid.cuda.default_stream(1))
        lucid.cuda.set_device(0)
    assert placed(y) == [1] and y.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert (len(one.cupy.waited), len(two.cupy.waited)) == (before[0] + 1, before[1] + 1)
    (ready,), (done,) = two.cupy.waited[-1:], one.cupy.waited[-1:]
    assert (ready.device_id, ready.stream) == (0, one.cuda_stream)
    assert (done.device_id, done.stream) == (1, two.cuda_stream)


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:1]])
def test_copies_between_devices(layout):
    x = layout(lucid.arange(12.0, device=ONE).reshape(3, 4))
    y = x.to(TWO)
    np.testing.assert_array_equal(y.cpu().numpy(), x.cpu().numpy())
    assert y.device == Device("cuda", 1) and y.to(TWO) is y and y.cuda(1) is y
    assert placed(y.cuda()) == [0], "the current device, as in PyTorch"
    y += 1
    assert x.sum().item() != y.sum().item() or not x.numel()


# ---- generators, memory, exchange ----


def test_generators():
    lucid.cuda.manual_seed_all(7)
    a, b = lucid.rand(6, device=ONE), lucid.rand(6, device=TWO)
    assert a.tolist() == b.tolist() and placed(a, b) == [0, 1]
    one = lucid.cuda.get_rng_state(0)
    c = lucid.rand(6, device=TWO)
    assert lucid.cuda.get_rng_state(0) == one != lucid.cuda.get_rng_state(1)
    lucid.cuda.set_rng_state(one, 1)
    assert lucid.rand(6, device=TWO).tolist() == c.tolist()
    with lucid.cuda.device(1):
        lucid.cuda.manual_seed(3)
        assert lucid.cuda.initial_seed() == 3
    assert lucid.cuda.initial_seed() == 7
    lucid.manual_seed(9)
    assert lucid.cuda.get_rng_state(0) == lucid.cuda.get_rng_state(1) == (9, 0)
    generator = lucid.Generator(TWO).manual_seed(1)
    assert placed(lucid.randn(4, generator=generator, device=TWO)) == [1]
    with pytest.raises(DeviceError, match="expected one on cuda:0, got one on cuda:1"):
        lucid.randn(4, generator=generator, device=ONE)


def test_memory_figures():
    before = [lucid.cuda.memory_allocated(i) for i in (0, 1)]
    lucid.cuda.reset_peak_memory_stats(1)
    peak = lucid.cuda.max_memory_allocated(0)
    x = lucid.zeros(1 << 20, device=TWO)
    assert [lucid.cuda.memory_allocated(i) for i in (0, 1)] == [before[0], before[1] + (4 << 20)]
    assert lucid.cuda.max_memory_allocated(1) >= before[1] + (4 << 20)
    assert lucid.cuda.max_memory_allocated(0) == peak
    assert "memory of cuda:1" in lucid.cuda.memory_summary(1) and "1048576" in lucid.cuda.memory_summary(1)
    assert "1048576" not in lucid.cuda.memory_summary(0)
    with lucid.cuda.device(1):
        assert lucid.cuda.memory_allocated() == before[1] + (4 << 20)
        lucid.cuda.empty_cache()
    assert x.is_cuda


def test_running_out_of_memory_on_one_device_leaves_the_other():
    lucid.cuda.set_per_process_memory_fraction(1e-4, 1)
    try:
        with pytest.raises(lucid.errors.OutOfMemoryError, match="out of memory on cuda:1"):
            lucid.zeros(1 << 24, device=TWO)
        assert lucid.cuda.current_device() == 0
        assert placed(lucid.zeros(1 << 20, device=ONE)) == [0]
    finally:
        lucid.cuda.set_per_process_memory_fraction(0, 1)
    assert placed(lucid.zeros(1 << 20, device=TWO)) == [1]


def test_dlpack_and_the_array_interface():
    x = lucid.arange(4.0, device=TWO)
    assert x.__dlpack_device__() == (2, 1)
    xp = backend_of(TWO).bare
    with lucid.cuda.device(1):
        foreign = xp.from_dlpack(x)
    y = lucid.from_dlpack(x)
    assert y.device == Device("cuda", 1) and y.data_ptr() == x.data_ptr() == foreign.data.ptr
    y += 1
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    z = lucid.as_tensor(foreign)
    assert z.device == Device("cuda", 1) and z.array is foreign

    class Foreign:
        __cuda_array_interface__ = foreign.__cuda_array_interface__

    assert placed(lucid.as_tensor(Foreign())) == [1]


def test_saving_and_pickling(tmp_path):
    import copy
    import pickle

    x = lucid.arange(4.0, device=TWO)
    lucid.save({"x": x}, tmp_path / "x.lucid")
    assert placed(pickle.loads(pickle.dumps(x)), copy.deepcopy(x)) == [1, 1]
    assert placed(lucid.load(tmp_path / "x.lucid", map_location=TWO)["x"]) == [1]
    assert lucid.load(tmp_path / "x.lucid")["x"].device.type == "cpu"
