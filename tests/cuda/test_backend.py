"""The CUDA backend: transfers, zero-copy exchange, devices, streams, events, generators, switches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import lucid
from lucid import backends
from lucid.errors import DeviceError, DtypeError, GradError, LucidError
from lucid.storage import Device, backend_of
from lucid.storage.backend import Backend

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(cuda, dtype):
    x = (lucid.arange(24).reshape(2, 3, 4) % 5).to(dtype)
    there = x.to(cuda)
    assert there.device == Device("cuda", 0) and there.is_cuda and there.dtype == x.dtype
    np.testing.assert_array_equal(there.cpu().numpy(), x.numpy())
    assert there.to(cuda) is there and there.cuda() is there and x.cpu() is x


@pytest.mark.parametrize(
    "layout", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[::-1], lambda a: a[1:2, 1:2]]
)
def test_layouts_survive_the_transfer(cuda, layout):
    a = layout(np.arange(12.0).reshape(3, 4))
    there = lucid.from_numpy(a).to(cuda)
    np.testing.assert_array_equal(there.cpu().numpy(), a)
    b = layout(lucid.arange(12.0, device=cuda).reshape(3, 4).array)
    np.testing.assert_array_equal(backend_of(cuda).to_numpy(b), layout(np.arange(12.0).reshape(3, 4)))


def test_the_gradient_travels_back(cuda):
    x = lucid.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x.to(cuda) ** 3).sum().backward()
    assert x.grad.device.type == "cpu"
    np.testing.assert_allclose(x.grad.numpy(), [3.0, 12.0, 27.0])
    y = lucid.tensor([2.0], device=cuda, requires_grad=True)
    (g,) = lucid.autograd.grad((y.cpu() ** 3).sum(), y, create_graph=True)
    (second,) = lucid.autograd.grad(g.sum(), y)
    assert second.is_cuda and second.item() == 12.0


def test_a_transfer_to_the_device_is_a_copy(cuda):
    a = np.ones(3)
    x = lucid.from_numpy(a).to(cuda)
    a[:] = 5
    np.testing.assert_array_equal(x.cpu().numpy(), [1.0, 1.0, 1.0])


def test_two_devices_do_not_mix(cuda):
    with pytest.raises(DeviceError, match=r"add: expected all tensors on one device.*cuda:0.*\.to\(device\)"):
        lucid.ones(3) + lucid.ones(3, device=cuda)
    # A 0-d tensor may meet any device.
    assert (lucid.tensor(2.0) * lucid.ones(3, device=cuda)).is_cuda


def test_pinned_memory(cuda):
    backend = backend_of(cuda)
    a = np.arange(6.0).reshape(2, 3)
    pinned = backend.pin(a)
    assert backend.is_pinned(pinned) and backend.is_pinned(pinned[1]) and not backend.is_pinned(a)
    assert backend.pin(pinned) is pinned
    there = backend.from_numpy(pinned, non_blocking=True)
    back = backend.to_numpy(there, non_blocking=True)
    backend.synchronize()
    np.testing.assert_array_equal(back, a)
    assert backend.is_pinned(back)
    strided = backend.from_numpy(pinned[:, ::2], non_blocking=True)
    np.testing.assert_array_equal(backend.to_numpy(strided), a[:, ::2])


def test_non_blocking_does_not_wait(simulated):
    backend = backend_of("cuda")
    there = backend.from_numpy(np.ones(4))
    with simulated.counted() as counts:
        backend.to_numpy(there, non_blocking=True)
        backend.from_numpy(backend.pin(np.ones(4)), non_blocking=True)
    assert counts["syncs"] == 0 and counts["d2h_bytes"] == 32 and counts["h2d_bytes"] == 32


def test_pinned_tensors_travel_without_waiting(simulated, monkeypatch):
    cpu = {place: b for place, b in Backend._all.items() if place.type == "cpu"}
    monkeypatch.setattr(Backend, "_all", cpu)  # nobody has used the device yet
    x = lucid.arange(6.0).reshape(2, 3)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.tolist() == x.tolist()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    with simulated.counted() as counts:
        there = pinned.to("cuda", non_blocking=True)
        also = x.cuda(non_blocking=True)
        back = (there + also).to("cpu", non_blocking=True)
    assert counts["syncs"] == 0 and counts["h2d_bytes"] == counts["d2h_bytes"] * 2 == 48
    lucid.cuda.synchronize()
    assert back.is_pinned() and back.tolist() == (2 * x).tolist()
    with pytest.raises(DeviceError, match="pin_memory: expected a tensor on the CPU, got one on cuda:0"):
        there.pin_memory()


def test_cupy_arrays_are_shared(cuda):
    xp = backend_of(cuda).xp
    a = xp.arange(6, dtype=xp.float32).reshape(2, 3)
    x, y = lucid.from_cupy(a), lucid.as_tensor(a)
    assert x.array is a and y.array is a and x.device == Device("cuda", 0)
    a[0, 0] = 9
    assert x[0, 0].item() == 9.0
    assert lucid.as_tensor(a, dtype="float64").dtype == np.float64
    assert lucid.as_tensor(a, device="cpu").device.type == "cpu"
    with pytest.raises(DtypeError, match="from_cupy: expected a CuPy array, got ndarray"):
        lucid.from_cupy(np.ones(3))
    with pytest.raises(DtypeError, match="from_cupy: expected a CuPy array, got list"):
        lucid.from_cupy([1.0])


def test_the_array_interface_of_another_library(cuda):
    xp = backend_of(cuda).xp
    a = xp.arange(6, dtype=xp.float64)

    class Foreign:
        __cuda_array_interface__ = a.__cuda_array_interface__

    x = lucid.as_tensor(Foreign())
    a[2] = -1.0
    assert x.is_cuda and x[2].item() == -1.0
    assert xp.asarray(x.array).data.ptr == a.data.ptr


def test_the_array_interface_of_a_tensor(cuda):
    xp = backend_of(cuda).xp
    x = lucid.arange(6.0, device=cuda).reshape(2, 3).T
    y = xp.asarray(x)
    assert y.data.ptr == x.data_ptr() and y.shape == (3, 2)
    x[0, 1] = -1.0
    assert float(y[0, 1]) == -1.0
    assert not hasattr(lucid.ones(2), "__cuda_array_interface__")
    with pytest.raises(GradError, match=r"the tensor requires grad; use \.detach\(\)"):
        xp.asarray(lucid.ones(2, device=cuda, requires_grad=True))


def test_dlpack(cuda):
    x = lucid.arange(4.0, device=cuda)
    assert x.__dlpack_device__() == (2, 0)
    xp = backend_of(cuda).xp
    assert lucid.from_dlpack(x.array).data_ptr() == x.data_ptr()
    for y in (xp.from_dlpack(x.array), xp.from_dlpack(x), lucid.from_dlpack(x).array):
        assert y.data.ptr == x.data_ptr() and y.shape == (4,) and y.dtype == x.dtype
    t = lucid.arange(6.0, device=cuda).reshape(2, 3).T
    z = lucid.from_dlpack(t)
    assert z.is_cuda and z.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    z[0, 0] = 7.0
    assert t[0, 0].item() == 7.0
    with pytest.raises((TypeError, BufferError, RuntimeError)):
        np.from_dlpack(x.array)


def test_pickle_and_deepcopy(cuda):
    import copy

    x = lucid.tensor([1.0, 2.0], device=cuda, requires_grad=True)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (
            y.device == x.device
            and y.requires_grad
            and y.tolist() == [1.0, 2.0]
            and y.data_ptr() != x.data_ptr()
        )


def test_numpy_of_a_cuda_tensor_names_the_cure(cuda):
    with pytest.raises(LucidError, match=r"numpy: the tensor is on cuda:0; use \.cpu\(\)\.numpy\(\)"):
        lucid.ones(2, device=cuda).numpy()
    assert "device='cuda:0'" in repr(lucid.ones(2, device=cuda))


# ---- lucid.cuda ----


def test_devices(cuda):
    assert lucid.cuda.is_available() and lucid.cuda.device_count() >= 1 and lucid.cuda.current_device() == 0
    assert backend_of("cuda") is backend_of("cuda:0") is backend_of(Device("cuda", 0))
    with lucid.cuda.device(0), lucid.cuda.device(None), lucid.cuda.device_of(lucid.ones(1)):
        assert lucid.cuda.current_device() == 0
    lucid.cuda.set_device("cuda:0")
    properties = lucid.cuda.get_device_properties()
    assert properties.name == lucid.cuda.get_device_name(0) and properties.total_memory > 1 << 20
    assert lucid.cuda.get_device_capability() == (properties.major, properties.minor)
    assert isinstance(lucid.cuda.is_bf16_supported(), bool)
    lucid.cuda.synchronize()
    with pytest.raises(DeviceError, match="expected a CUDA device, got cpu"):
        lucid.cuda.synchronize("cpu")
    with lucid.device("cuda"):
        assert lucid.ones(2).is_cuda


def test_the_simulated_device_says_so(simulated):
    assert lucid.cuda.get_device_name() == "simulated CUDA device (CPU)" and lucid.cuda.is_simulated()


def test_streams_and_events(cuda):
    s = lucid.cuda.Stream()
    assert lucid.cuda.current_stream() == lucid.cuda.default_stream() != s
    start, end = (lucid.cuda.Event(enable_timing=True) for _ in range(2))
    assert start.query()
    with lucid.cuda.stream(s):
        assert lucid.cuda.current_stream() == s
        start.record()
        y = lucid.ones(1000, device=cuda) * 2
        end.record(s)
    with lucid.cuda.stream(None):
        assert lucid.cuda.current_stream() == lucid.cuda.default_stream()
    lucid.cuda.current_stream().wait_stream(s)
    end.wait()
    end.synchronize()
    s.synchronize()
    assert y.sum().item() == 2000.0 and s.query() and end.query() and start.elapsed_time(end) >= 0
    with s:
        assert lucid.cuda.current_stream() == s
    same = lucid.cuda.ExternalStream(s.cuda_stream)
    assert same.cuda_stream == s.cuda_stream
    with pytest.raises(LucidError, match="the end event was not made with enable_timing=True"):
        start.elapsed_time(s.record_event())
    with pytest.raises(LucidError, match="the start event was not recorded"):
        lucid.cuda.Event(enable_timing=True).elapsed_time(end)


def test_seeds(cuda):
    lucid.cuda.manual_seed(5)
    a = lucid.rand(7, device=cuda)
    state = lucid.cuda.get_rng_state()
    b = lucid.rand(7, device=cuda)
    lucid.cuda.set_rng_state(state)
    np.testing.assert_array_equal(lucid.rand(7, device=cuda).cpu().numpy(), b.cpu().numpy())
    lucid.cuda.manual_seed_all(5)
    assert lucid.cuda.initial_seed() == 5
    np.testing.assert_array_equal(lucid.rand(7, device=cuda).cpu().numpy(), a.cpu().numpy())
    # The same numbers as on the CPU.
    lucid.manual_seed(5)
    np.testing.assert_array_equal(lucid.rand(7).numpy(), a.cpu().numpy())
    np.testing.assert_array_equal(backend_of(cuda).new_generator(5).uniform((7,)).get(), a.cpu().numpy())


def test_tf32_switch(cuda):
    matmul = backends.cuda.matmul
    assert not matmul.allow_tf32 and backends.get_float32_matmul_precision() == "highest"
    try:
        backends.set_float32_matmul_precision("high")
        linalg = backend_of(cuda).xp._core._routines_linalg
        assert matmul.allow_tf32 and linalg.get_compute_type("f") == linalg.COMPUTE_TYPE_TF32
        matmul.allow_tf32 = False
        assert linalg.get_compute_type("f") == linalg.COMPUTE_TYPE_DEFAULT
    finally:
        matmul.allow_tf32 = False
    with pytest.raises(ValueError, match="expected one of highest, high, medium, got 'low'"):
        backends.set_float32_matmul_precision("low")


def test_scipy_functions(cuda):
    x = lucid.tensor([0.5, 1.0], device=cuda)
    np.testing.assert_allclose(lucid.erf(x).cpu().numpy(), [0.5204998778, 0.8427007929], rtol=1e-6)
    assert backend_of(cuda).scipy("special").__name__ == "cupyx.scipy.special"


def test_pinned_memory_may_be_written_to_once_a_copy_has_returned(cuda):
    x = lucid.arange(4, dtype=lucid.float32).pin_memory()
    y = x.to(cuda)
    x.zero_()
    z = lucid.as_tensor(x.numpy(), device=cuda)
    x.fill_(7.0)
    lucid.cuda.synchronize()  # the stand-in tells here of memory that changed under a copy
    assert y.tolist() == [0.0, 1.0, 2.0, 3.0] and z.tolist() == [0.0] * 4
