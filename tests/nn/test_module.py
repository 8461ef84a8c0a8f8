"""`Module`: registration, state, hooks, conversion, text, copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.errors import DtypeError, LucidError


class Net(nn.Module):
    """Two layers, a buffer, and one tied weight."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)
        self.scale = nn.Parameter(lucid.tensor(2.0))
        self.register_buffer("seen", lucid.tensor(0))
        self.register_buffer("scratch", lucid.zeros(2), persistent=False)

    def forward(self, x, shift=0.0):
        return self.second(self.first(x).relu()) * self.scale + shift


def test_registration():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "first.weight", "first.bias", "second.weight",
                                                      "second.bias"]
    assert [n for n, _ in net.named_buffers()] == ["seen", "scratch"]
    assert [n for n, _ in net.named_children()] == ["first", "second"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "second"]
    assert list(net.state_dict()) == ["scale", "seen", "first.weight", "first.bias", "second.weight",
                                      "second.bias"]
    net.third = net.first
    assert len(list(net.parameters())) == 5 and len(list(net.modules())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 7
    net.scale = None
    assert net.scale is None and "scale" not in net.state_dict()
    with pytest.raises(DtypeError, match="is a parameter; assign an nn.Parameter or None, got float"):
        net.scale = 1.0
    del net.third
    assert not hasattr(net, "third")
    net.note = "text"
    net.note = nn.Parameter(lucid.zeros(1))
    assert isinstance(net.note, nn.Parameter) and "note" not in net.__dict__
    net.mean = nn.Buffer(lucid.ones(2), persistent=False)
    assert "mean" in dict(net.named_buffers()) and "mean" not in net.state_dict()
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = net.nothing
    with pytest.raises(KeyError, match="non-empty string without"):
        net.add_module("a.b", nn.ReLU())
    with pytest.raises(KeyError, match="already has an attribute 'forward'"):
        net.register_buffer("forward", None)
    with pytest.raises(DtypeError, match="'bad' must be a Parameter or None, got Tensor; use nn.Parameter"):
        net.register_parameter("bad", lucid.ones(2))


def test_before_init():
    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.ReLU()
    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first"):
        Early()
    with pytest.raises(NotImplementedError, match="Bare: defines no forward"):
        type("Bare", (nn.Module,), {})()(1)


def test_get_by_path():
    net = nn.Sequential(Net(), nn.ReLU())
    assert net.get_submodule("0.first") is net[0].first and net.get_submodule("") is net
    assert net.get_parameter("0.first.bias") is net[0].first.bias
    assert net.get_buffer("0.seen") is net[0].seen
    net.set_submodule("0.first", nn.Linear(3, 4, bias=False))
    assert net[0].first.bias is None
    with pytest.raises(AttributeError, match="Net has no module 'third' .it has first, second."):
        net.get_submodule("0.third")


def test_state_dict_shares_memory_and_round_trips():
    a, b = Net(), Net()
    state = a.state_dict()
    assert not any(t.requires_grad for t in state.values())
    state["first.bias"].storage.array[0] = 7.0
    assert a.first.bias[0].item() == 7.0
    assert a.state_dict(keep_vars=True)["scale"] is a.scale
    assert list(a.state_dict(prefix="x."))[0] == "x.scale"
    before, address = b.first.weight, b.first.weight.data_ptr()
    assert str(b.load_state_dict(state)) == "<All keys matched successfully>"
    assert b.first.weight is before and before.data_ptr() == address
    for key, value in a.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), b.state_dict()[key].numpy())
    b.load_state_dict({k: v.clone() for k, v in state.items()}, assign=True)
    assert b.first.weight is not before and isinstance(b.first.weight,
                                                       nn.Parameter) and b.first.weight.requires_grad


def test_failed_load_changes_nothing_and_lists_everything():
    net = Net()
    good = {k: v.clone() + 1 for k, v in net.state_dict().items()}
    bad = dict(good)
    del bad["second.bias"]
    bad["extra"] = lucid.zeros(1)
    bad["first.weight"] = lucid.zeros(5, 5)
    bad["scale"] = 3.0
    before = {k: v.clone().numpy() for k, v in net.state_dict().items()}
    with pytest.raises(LucidError) as caught:
        net.load_state_dict(bad)
    text = str(caught.value)
    for part in ("missing keys: 'second.bias'", "unexpected keys: 'extra'",
                 "'first.weight': expected shape (4, 3), got (5, 5)",
                 "'scale': expected a tensor, got float"):
        assert part in text
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])
    del bad["first.weight"], bad["scale"]
    result = net.load_state_dict(bad, strict=False)
    assert result.missing_keys == ["scale", "first.weight",
                                   "second.bias"] and result.unexpected_keys == ["extra"]
    np.testing.assert_array_equal(net.first.bias.detach().numpy(), good["first.bias"].numpy())


def test_extra_state():
    class Counting(nn.Linear):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]
    a, b = nn.Sequential(Counting(2, 2)), nn.Sequential(Counting(2, 2))
    a[0].count = 5
    b.load_state_dict(a.state_dict())
    assert b[0].count == 5 and "0._extra_state" in a.state_dict()


def test_loading_after_a_forward_is_noticed_by_backward():
    net = nn.Linear(2, 2)
    x = lucid.ones(1, 2, requires_grad=True)
    loss = net(x).sum()
    net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()})
    with pytest.raises(lucid.errors.SavedValueError, match="changed in place"):
        loss.backward()


def test_modes_and_gradients():
    net = nn.Sequential(Net(), nn.Dropout(0.5))
    assert net.eval() is net and not net[1].training and not net[0].first.training
    assert net.train()[0].training
    net(lucid.ones(2, 3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.numpy().any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not net(lucid.ones(2, 3)).requires_grad
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "Net", "Dropout", "Sequential"]


def test_conversion_keeps_parameters(device):
    net = Net()
    weight = net.first.weight
    (net(lucid.ones(1, 3))).sum().backward()
    assert net.double() is net and net.first.weight is weight
    assert weight.dtype == lucid.float64 and weight.grad.dtype == lucid.float64
    assert net.seen.dtype == lucid.int64
    assert net.half().first.bias.dtype == lucid.float16 and net.bfloat16().first.bias.dtype == lucid.bfloat16
    net.to(device, lucid.float32)
    assert net.first.weight is weight and weight.device.type == device
    assert net.seen.device == weight.device
    assert net(lucid.ones(1, 3, device=device)).device == weight.device
    storage = weight.storage
    net.to(device)
    assert weight.storage is storage
    assert net.to(lucid.zeros(1, dtype="float64", device=device)).scale.dtype == lucid.float64
    assert net.float().cpu().first.weight.device == lucid.device("cpu")
    with pytest.raises(DtypeError, match="expected a floating or complex dtype, got int64"):
        net.to(lucid.int64)


def test_forward_hooks():
    net = nn.Linear(2, 2)
    log = []
    handles = [
        net.register_forward_pre_hook(lambda m, args: log.append("pre") or (args[0] * 2,)),
        net.register_forward_hook(lambda m, args, out: log.append("post") or out + 1),
        net.register_forward_hook(lambda m, args, out: log.append("first"), prepend=True),
    ]
    x = lucid.ones(1, 2)
    expected = nn.functional.linear(x * 2, net.weight, net.bias) + 1
    np.testing.assert_allclose(net(x).detach().numpy(), expected.detach().numpy())
    assert log == ["pre", "first", "post"]
    for h in handles:
        h.remove()
    net(x)
    assert len(log) == 3
    kw = Net()
    kw.register_forward_pre_hook(lambda m, args, kwargs: (args, {"shift": 10.0}), with_kwargs=True)
    kw.register_forward_hook(lambda m, args, kwargs, out: log.append(kwargs["shift"]), with_kwargs=True)
    assert (kw(lucid.ones(1, 3), shift=1.0)
            - kw.forward(lucid.ones(1, 3), shift=10.0)).abs().max().item() == 0 and log[-1] == 10.0


def test_always_called_hook():
    net, log = nn.Linear(2, 2), []
    net.register_forward_hook(lambda m, args, out: log.append("always"), always_call=True)
    net.register_forward_hook(lambda m, args, out: log.append("never"))
    with pytest.raises(LucidError):
        net(lucid.ones(1, 3))
    assert log == ["always"]


class Twice(nn.Module):
    """Uses its input twice."""

    def forward(self, x, y):
        return x * x + x * y, 3


def test_backward_hooks_sum_all_uses():
    torch = pytest.importorskip("torch")

    class TorchTwice(torch.nn.Module):
        def forward(self, x, y):
            return x * x + x * y, 3

    def run(lib, module, make):
        log = []
        module.register_full_backward_pre_hook(lambda m, g: log.append(("pre", g[0].tolist(), g[1])))
        module.register_full_backward_hook(lambda m, gi, go: log.append([g.tolist() for g in (*gi, go[0])]))
        module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10, None))
        x, y = make([1.0, 2.0], True), make([5.0, 7.0], False)
        out, _ = module(x, y)
        # The output is used twice too.
        (out.sum() + (out * out).sum()).backward()
        return log, x.grad.tolist()

    ours = run(lucid, Twice(), lambda v, r: lucid.tensor(v, dtype="float64", requires_grad=r))
    theirs = run(torch, TorchTwice(), lambda v, r: torch.tensor(v, dtype=torch.float64, requires_grad=r))
    assert ours == theirs


def test_backward_hook_without_differentiable_input_and_with_graph():
    net, log = nn.Linear(2, 1), []
    handle = net.register_full_backward_hook(lambda m, gi, go: log.append((gi, go[0].tolist())))
    net(lucid.ones(1, 2)).sum().backward()
    assert log == [((None,), [[1.0]])] and net.weight.grad is not None
    handle.remove()
    net(lucid.ones(1, 2)).sum().backward()
    assert len(log) == 1


def test_backward_hook_in_second_order():
    torch = pytest.importorskip("torch")

    def run(lib, module, x):
        module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        g, = lib.autograd.grad(module(x).sum(), [x], create_graph=True)
        second, = lib.autograd.grad((g * g).sum(), [x])
        return g.detach().numpy(), second.numpy()

    theirs, ours = torch.nn.Tanh(), nn.Tanh()
    values = np.array([[0.3, -1.2]])
    for a, b in zip(run(lucid, ours, lucid.tensor(values, requires_grad=True)),
                    run(torch, theirs, torch.tensor(values, requires_grad=True)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_backward_hook_that_returns_too_few():
    net = nn.Linear(2, 1)
    net.register_full_backward_hook(lambda m, gi, go: ())
    with pytest.raises(lucid.errors.GradError, match="must return 1 gradients"):
        net(lucid.ones(1, 2, requires_grad=True)).sum().backward()


def test_copies_are_apart():
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other is not net and list(other.state_dict()) == list(net.state_dict())
        np.testing.assert_array_equal(other.first.weight.detach().numpy(), net.first.weight.detach().numpy())
        assert isinstance(other.first.weight, nn.Parameter) and other.first.weight.requires_grad
        other.first.weight.storage.array[...] = 0
        assert net.first.weight.detach().numpy().any()
        other(lucid.ones(1, 3)).sum().backward()
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    again = pickle.loads(pickle.dumps(layer.eval()))
    x = lucid.randn(3, 1, 4)
    np.testing.assert_allclose(again(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-6)
    lazy = copy.deepcopy(nn.LazyLinear(3))
    assert lazy(lucid.ones(2, 5)).shape == (2, 3)


def test_tied_weights_stay_tied_in_a_copy():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    other = copy.deepcopy(net)
    assert other[1].weight is other[0].weight and len(list(other.parameters())) == 3


def test_repr():
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.ModuleList([nn.ReLU(), nn.ReLU(inplace=True)]),
                              nn.Sequential()))
    assert text == """Sequential(
  (0): Linear(in_features=2, out_features=3, bias=True)
  (1): ModuleList(
    (0): ReLU()
    (1): ReLU(inplace=True)
  )
  (2): Sequential()
)"""
