"""Settings under PyTorch's names."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.autograd import Variable
from lucid.fusion import sweep


@pytest.fixture(autouse=True)
def _back():
    threads, dtype = lucid.get_num_threads(), lucid.get_default_dtype()
    yield
    lucid.set_printoptions(profile="default")
    lucid.set_num_threads(threads)
    lucid.set_default_dtype(dtype)
    lucid.set_default_device("cpu")


def test_printing():
    x = lucid.tensor([1 / 3, 2e4])
    before = repr(x)
    lucid.set_printoptions(precision=2)
    assert "3.33e-01" in repr(x)
    lucid.set_printoptions(sci_mode=False)
    assert repr(x) == "tensor([0.33, 20000.00])"
    lucid.set_printoptions(precision=1, sci_mode=True)
    assert repr(x) == "tensor([3.3e-01, 2.0e+04])"
    lucid.set_printoptions(profile="default")
    assert repr(x) == before
    long = lucid.arange(2000)
    assert "..." in repr(long)
    lucid.set_printoptions(profile="full")
    assert "..." not in repr(long)
    lucid.set_printoptions(profile="short")
    assert repr(long).replace(" ", "") == "tensor([0,1,...,1998,1999])"
    with pytest.raises(ValueError, match="profile is one of default, short, full, got 'long'"):
        lucid.set_printoptions(profile="long")


def test_threads_share_a_sweep(monkeypatch):
    monkeypatch.setattr(sweep, "BLOCK", 64)
    monkeypatch.setattr(sweep, "THREADED", 64)
    x = lucid.arange(1000.0) / 500
    grads = []
    for n in (1, 3):
        lucid.set_num_threads(n)
        assert lucid.get_num_threads() == n and (sweep.pool() is None) == (n == 1)
        y = x.clone().requires_grad_()
        (y.exp() * y.sin()).tanh().sum().backward()
        grads.append(y.grad.numpy())
    np.testing.assert_array_equal(*grads)
    for bad in (0, 1.5):
        with pytest.raises(ValueError, match="expected an integer of at least 1"):
            lucid.set_num_threads(bad)


def test_default_tensor_types(device):
    for given in (f"torch.{'cuda.' * (device != 'cpu')}DoubleTensor",
                  lucid.cuda.DoubleTensor if device != "cpu" else lucid.DoubleTensor):
        lucid.set_default_tensor_type(given)
        x = lucid.zeros(2)
        assert x.dtype == lucid.float64 and x.is_cuda == (device != "cpu")
        assert lucid.get_default_device().type == device.split(":")[0]
    for wrong in ("torch.LongTensor", lucid.LongTensor, "Float"):
        with pytest.raises(TypeError, match="expected a floating type such as 'FloatTensor'"):
            lucid.set_default_tensor_type(wrong)


def test_typed_constructors_of_a_device(device):
    if device == "cpu":
        pytest.skip("those of lucid.cuda")
    x = lucid.cuda.FloatTensor([1, 2])
    assert x.is_cuda and x.dtype == lucid.float32 and lucid.cuda.LongTensor(2, 3).shape == (2, 3)


def test_layouts(device):
    x = lucid.zeros(1, 2, 3, 3, device=device)
    assert x.to(memory_format=lucid.channels_last).contiguous(memory_format=lucid.contiguous_format) is x
    lucid.nn.Conv2d(2, 2, 1).to(memory_format=lucid.channels_last)
    lucid.zeros_like(x, memory_format=lucid.preserve_format)
    assert isinstance(lucid.channels_last_3d, lucid.memory_format) and isinstance(lucid.strided, lucid.layout)
    assert lucid.Size([2, 3]) == lucid.zeros(2, 3).shape and isinstance(x.shape, lucid.Size)


def test_small_names():
    assert lucid.is_nonzero(lucid.tensor([2])) and not lucid.is_nonzero(lucid.tensor(0.0))
    assert lucid.GradScaler is lucid.amp.GradScaler and lucid.is_autocast_available("cpu")
    assert issubclass(lucid.OutOfMemoryError, RuntimeError)
    assert lucid.autograd.profiler.record_function is lucid.profiler.record_function


def test_variables():
    x = lucid.ones(2)
    v = Variable(x, requires_grad=True)
    assert v.requires_grad and not x.requires_grad and isinstance(v, Variable) and isinstance(x, Variable)
    (v * 2).sum().backward()
    assert v.grad.tolist() == [2.0, 2.0] and not isinstance(2.0, Variable)
    x.add_(1)
    assert v.tolist() == [2.0, 2.0]  # the same memory
    with pytest.raises(RuntimeError, match="volatile is gone; run the computation under lucid.no_grad"):
        Variable(x, volatile=True)
    with pytest.raises(RuntimeError, match="expected a tensor, got list"):
        Variable([1.0])


def test_seeds_and_states_of_all_devices(device):
    if device == "cpu":
        pytest.skip("those of lucid.cuda")
    states = lucid.cuda.get_rng_state_all()
    a = lucid.rand(3, device=device)
    lucid.cuda.set_rng_state_all(states)
    assert a.tolist() == lucid.rand(3, device=device).tolist()
    lucid.cuda.seed_all()
    first = lucid.cuda.initial_seed()
    lucid.cuda.seed()
    assert lucid.cuda.initial_seed() != first
    lucid.cuda.init()
    assert lucid.cuda.is_initialized() and all(a.startswith("sm_") for a in lucid.cuda.get_arch_list())
    assert lucid.accelerator.memory_allocated() == lucid.cuda.memory_allocated()
    lucid.cuda.set_rng_state_all(states)


def test_versions_and_edges():
    x = lucid.ones(2, requires_grad=True)
    y = x.exp()
    edge = lucid.autograd.graph.get_gradient_edge(y)
    assert isinstance(edge, lucid.autograd.graph.GradientEdge)
    assert isinstance(edge.node, lucid.autograd.graph.Node) and edge.node is y.grad_fn
    lucid.autograd.graph.increment_version(y)
    with pytest.raises(RuntimeError, match="version"):
        y.sum().backward()
