"""Two CUDA devices: work and results stay where the tensors are, whatever device is current.

On the simulator the second device is made for these tests. Its arrays refuse every operation while the other
device is current, as CuPy's do without peer access, so a forgotten switch is an error here, not a slow copy.
On a machine with GPUs they run where there are two.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.autograd import Function
from lucid.autograd.checkpoint import checkpoint
from lucid.autograd.node import Node
from lucid.errors import DeviceError
from lucid.nn import functional as F
from lucid.ops.registry import OPS
from lucid.storage import backend_of
from lucid.storage.backend import Backend
from lucid.testing import checks
from lucid.testing.samples import cases_of
from tests.cuda.places import ONE, TWO, both_devices, placed  # noqa: F401  (a fixture)

# ---- which device ----


def test_devices_and_the_current_one():
    assert lucid.cuda.device_count() == 2 and lucid.cuda.current_device() == 0
    with lucid.cuda.device(1):
        assert lucid.cuda.current_device() == 1
        assert placed(lucid.ones(2, device="cuda"), lucid.ones(2).cuda()) == [1, 1]
        with lucid.cuda.device(0):
            assert placed(lucid.ones(2, device="cuda")) == [0]
        assert lucid.cuda.current_device() == 1
    assert lucid.cuda.current_device() == 0
    with lucid.cuda.device_of(lucid.ones(1, device=TWO)):
        assert lucid.cuda.current_device() == 1
    lucid.cuda.set_device(1)
    assert lucid.cuda.current_device() == 1 and placed(lucid.ones(2, device="cuda")) == [1]
    assert backend_of("cuda") is backend_of(TWO)
    lucid.cuda.set_device("cuda:0")
    with pytest.raises(
        DeviceError, match=r"cuda:2: index out of range, there are 2 CUDA devices \(cuda:0 to cuda:1\)"
    ):
        lucid.ones(1, device="cuda:2")
    assert lucid.cuda.get_device_properties(1).name == lucid.cuda.get_device_name(TWO)
    lucid.cuda.synchronize(1)


def test_an_error_leaves_the_current_device_as_it_was():
    x = lucid.ones(3, device=TWO)
    with pytest.raises(lucid.errors.ShapeError):
        x @ lucid.ones(4, device=TWO)
    with pytest.raises(RuntimeError), lucid.cuda.device(1):
        raise RuntimeError
    assert lucid.cuda.current_device() == 0


def test_threads_have_a_current_device_each():
    seen = []

    def work():
        lucid.cuda.set_device(1)
        seen.append(placed(lucid.ones(2, device="cuda") * 2))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [[1]] and lucid.cuda.current_device() == 0


MAKERS = {
    "tensor": lambda: lucid.tensor([1.0, 2.0], device=TWO),
    "zeros": lambda: lucid.zeros(3, device=TWO),
    "full": lambda: lucid.full((2,), 5.0, device=TWO),
    "arange": lambda: lucid.arange(1, 9, 2, device=TWO),
    "linspace": lambda: lucid.linspace(0, 1, 5, device=TWO),
    "eye": lambda: lucid.eye(3, device=TWO),
    "rand": lambda: lucid.rand(3, device=TWO),
    "randn": lambda: lucid.randn(3, device=TWO),
    "randint": lambda: lucid.randint(0, 5, (3,), device=TWO),
    "randperm": lambda: lucid.randperm(5, device=TWO),
    "zeros_like": lambda: lucid.zeros_like(lucid.ones(2, device=TWO)),
    "new_ones": lambda: lucid.ones(1, device=TWO).new_ones(3),
    "tril": lambda: lucid.tril(lucid.ones(3, 3, device=TWO)),
    "from numpy": lambda: lucid.from_numpy(np.ones(3)).to(TWO),
    "pinned": lambda: lucid.ones(3).pin_memory().to(TWO, non_blocking=True),
    "bernoulli": lambda: lucid.bernoulli(lucid.full((5,), 0.5, device=TWO)),
    "multinomial": lambda: lucid.multinomial(lucid.ones(5, device=TWO), 2),
    "normal_": lambda: lucid.empty(4, device=TWO).normal_(1.0, 2.0),
    "setitem": lambda: _set(lucid.zeros(4, device=TWO)),
    "copy_": lambda: lucid.zeros(2, device=TWO).copy_(lucid.ones(2, device=ONE)),
    "embedding max_norm": lambda: F.embedding(_labels(2), lucid.ones(3, 2, device=TWO), max_norm=1.0),
    "batch_norm": lambda: nn.BatchNorm1d(3).to(TWO)(lucid.randn(4, 3, device=TWO)),
    "dropout": lambda: F.dropout(lucid.ones(100, device=TWO)),
    "rnn": lambda: nn.LSTM(3, 4).to(TWO)(lucid.randn(5, 2, 3, device=TWO))[0],
    "attention": lambda: nn.MultiheadAttention(4, 2).to(TWO)(*[lucid.randn(3, 1, 4, device=TWO)] * 3)[0],
    "gumbel": lambda: F.gumbel_softmax(lucid.randn(2, 3, device=TWO), hard=True),
    "cross entropy": lambda: F.cross_entropy(lucid.randn(4, 3, device=TWO), _labels(4)),
    "sort": lambda: lucid.randn(7, device=TWO).sort()[0],
    "where": lambda: lucid.where(lucid.ones(3, device=TWO) > 0, 1.0, 0.0),
    "clone": lambda: lucid.ones(3, device=TWO).clone(),
    "mask": lambda: lucid.ones(3, device=TWO)[lucid.tensor([True, False, True], device=TWO)],
}  # fmt: skip


def _labels(n):
    return lucid.arange(n, device=TWO) % 3


def _set(x):
    x[1] = 5.0
    x[lucid.tensor([2, 3], device=TWO)] = lucid.tensor([1.0, 2.0], device=TWO)
    return x


@pytest.mark.parametrize("name", MAKERS)
def test_results_lie_on_the_device_of_their_tensors(name):
    assert placed(MAKERS[name]()) == [1] and lucid.cuda.current_device() == 0


CASES = [case for name in sorted(OPS) for case in list(cases_of(OPS[name]))[:2]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_op_on_the_second_device(case, simulated):
    checks.devices_agree(case, TWO)
    if case.differentiable:
        checks.raw_equals_recorded(case, TWO)


# ---- gradients ----


class Split(nn.Module):
    """A network of two parts on two devices."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 8).to(ONE), nn.Linear(8, 3).to(TWO)

    def forward(self, x):
        h = F.gelu(self.first(x.to(ONE)))
        return self.second(h.to(TWO))


def test_a_network_on_two_devices_trains_as_on_one():
    lucid.manual_seed(0)
    split = Split()
    whole = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3))
    whole.load_state_dict(dict(zip(whole.state_dict(), split.state_dict().values(), strict=True)))
    x = lucid.randn(16, 5)
    target = lucid.tensor(np.arange(16) % 3)
    losses = []
    for net, device in ((split, TWO), (whole, "cpu")):
        optimizer = optim.AdamW(net.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), target.to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    for p, q in zip(split.parameters(), whole.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().cpu().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert placed(*split.parameters()) == [0, 0, 1, 1]
    assert placed(*(p.grad for p in split.parameters())) == [0, 0, 1, 1]
    assert lucid.cuda.current_device() == 0


def _interleaved(one, two, elsewhere):
    """A graph whose nodes alternate between the devices, with sums on both."""
    h, k = one * 2.0, two * 3.0
    for _ in range(3):
        h, k = h.tanh() + k.to(elsewhere[0]) * one, (k * h.to(elsewhere[1])).sigmoid() + two
    return (h.sum() + k.to(elsewhere[0]).sum()).to(elsewhere[1])


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
def test_backward_over_interleaved_devices(create, fuse):
    values = np.random.default_rng(0).standard_normal((2, 40))
    found = []
    for elsewhere in ((ONE, TWO), ("cpu", "cpu")):
        one, two = (
            lucid.tensor(v, device=d, requires_grad=True) for v, d in zip(values, elsewhere, strict=True)
        )
        with lucid.fusion.enabled(fuse):
            out = _interleaved(one, two, elsewhere)
            grads = lucid.autograd.grad(out, [one, two], create_graph=create)
            if create:
                grads += lucid.autograd.grad(
                    (grads[0] ** 2).sum().to(elsewhere[1]) + (grads[1] ** 2).sum(), [one, two]
                )
        if elsewhere[0] != "cpu":
            assert placed(*grads) == [0, 1] * (len(grads) // 2)
        found.append([g.detach().cpu().numpy() for g in grads])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_gradients_are_summed_on_their_leaf_s_device():
    x, y = lucid.ones(4, device=TWO, requires_grad=True), lucid.ones(4, device=ONE, requires_grad=True)
    for _ in range(2):  # the second pass adds to `.grad` in place
        loss = (x * x).sum() + (x * y.to(TWO)).sum() + (y.to(TWO) * 3).sum()
        loss.to("cpu").backward()
    assert placed(x.grad, y.grad) == [1, 0]
    assert x.grad.tolist() == [6.0] * 4 and y.grad.tolist() == [8.0] * 4


def test_hooks_see_tensors_of_their_device():
    seen = []
    x = lucid.ones(3, device=ONE, requires_grad=True)
    h = (x * 2).to(TWO)
    h.register_hook(lambda g: seen.append(placed(g)) or g * 2)
    x.register_hook(lambda g: seen.append(placed(g)))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(placed(p.grad)))
    (h * h).sum().backward()
    assert seen == [[1], [0], [0]] and x.grad.tolist() == [16.0] * 3


class Across(Function):
    """Two outputs on two devices, gradients for inputs on both."""

    @staticmethod
    def forward(ctx, x, y):
        return (x + y.to(ONE)) * 2, (x.to(TWO) - y) * 3

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h.to(ONE) * 3, g.to(TWO) * 2 - h * 3


def test_a_function_of_the_user_s_may_span_devices():
    x = lucid.ones(3, device=ONE, requires_grad=True)
    y = lucid.ones(3, device=TWO, requires_grad=True)
    a, b = Across.apply(x, y)
    assert placed(a, b) == [0, 1]
    (a.sum() + (b * y).sum().to(ONE) + (x * x).sum()).backward()
    assert placed(x.grad, y.grad) == [0, 1]
    assert x.grad.tolist() == [2 + 3 + 2.0] * 3 and y.grad.tolist() == [2 - 3 + 0.0] * 3


def test_only_one_output_of_such_a_function_is_used():
    x = lucid.ones(3, device=ONE, requires_grad=True)
    _, b = Across.apply(x, lucid.ones(3, device=TWO))
    b.sum().backward()
    assert placed(x.grad) == [0] and x.grad.tolist() == [3.0] * 3


def test_checkpoint_on_two_devices():
    x = lucid.ones(3, device=ONE, requires_grad=True)

    def part(h):
        return F.dropout((h * 2).to(TWO), 0.5).to(ONE)

    checkpoint(part, x).sum().backward()
    assert placed(x.grad) == [0] and set(x.grad.tolist()) <= {0.0, 4.0}


# ---- what does not fit together ----


@pytest.mark.parametrize(
    "function, name",
    [
        (lambda x, y: x + y, "add"),
        (lambda x, y: x @ y, "matmul"),
        (lambda x, y: lucid.cat([x, y]), "cat"),
        (lambda x, y: lucid.where(x > 0, x, y), "where"),
        (lambda x, y: F.linear(x, y.reshape(1, 3)), "linear"),
        (lambda x, y: F.cross_entropy(x.reshape(1, 3), y.long()[:1] * 0), "cross_entropy"),
        (lambda x, y: x.detach().add_(y), "add"),
    ],
)
def test_tensors_on_two_devices_in_one_op(function, name):
    x, y = lucid.ones(3, device=ONE, requires_grad=True), lucid.ones(3, device=TWO)
    match = rf"{name}_?: expected all tensors on one device, got .*cuda:0.*cuda:1.*; move them with \.to"
    with pytest.raises(DeviceError, match=match):
        function(x, y)


def test_a_number_on_another_device_comes_along():
    out = lucid.ones(3, device=TWO) * lucid.tensor(2.0, device=ONE)
    assert placed(out) == [1] and out.tolist() == [2.0] * 3


def test_seeds_on_another_device():
    x = lucid.ones(3, device=TWO, requires_grad=True)
    with pytest.raises(DeviceError, match=r"grad_seed is on cuda:0, the root on cuda:1; .*\.to\('cuda:1'\)"):
        (x * 2).backward(lucid.ones(3, device=ONE))


def test_accumulate_grad_names_both_devices():
    x = lucid.ones(3, device=TWO, requires_grad=True)
    x.grad = lucid.ones(3, device=TWO)
    x.data = lucid.ones(3, device=ONE)  # the gradient stays where it is
    text = r"accumulate_grad: the leaf is on cuda:0, its `\.grad` on cuda:1; move it with \.to\('cuda:0'\)"
    with pytest.raises(DeviceError, match=text):
        (x * 2).sum().backward()

    class Stray(Node):
        def apply(self, g):
            return (backend_of(TWO).xp.ones(3, "float32"),)

    x.grad = None
    out = x * 1
    out.edge = Stray((out.edge.edges[0],))
    with pytest.raises(DeviceError, match="the leaf is on cuda:0, its gradient on cuda:1"):
        out.backward(lucid.ones(3, device=ONE))
    assert x.grad is None


def test_accumulate_grad_with_a_grad_on_the_cpu():
    x = lucid.ones(3, requires_grad=True)
    x.grad = lucid.ones(3)
    x.data = lucid.ones(3, device=ONE)
    with pytest.raises(DeviceError, match=r"the leaf is on cuda:0, its `\.grad` on cpu"):
        (x * 2).sum().backward()


class Strayed(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.to(TWO)


def test_a_function_that_returns_a_gradient_elsewhere():
    x = lucid.ones(3, device=ONE, requires_grad=True)
    text = r"Strayed: backward returned a gradient on cuda:1 for argument 0, which is on cuda:0"
    with pytest.raises(DeviceError, match=text):
        Strayed.apply(x).sum().backward()


# ---- optimizers, scaler, kernels, products ----


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "LBFGS"])
def test_optimizers_over_two_devices(name):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s) for s in ((3, 2), (4,), (2, 2), (5,))]
    results = []
    for devices in ((ONE, TWO, ONE, TWO), ("cpu",) * 4):
        if name == "LBFGS":
            devices = (devices[1],) * 4
        params = [lucid.tensor(v, device=d, requires_grad=True) for v, d in zip(values, devices, strict=True)]
        optimizer = getattr(optim, name)(params, lr=0.1)

        def closure(params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = sum((p**4).sum().cpu() for p in params)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        optimizer.step(closure)
        if devices[0] != "cpu":
            assert [f"cuda:{i}" for i in placed(*params)] == list(devices)
        results.append([p.detach().cpu().numpy() for p in params])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_clipping_over_two_devices():
    params = [lucid.ones(2, device=d, requires_grad=True) for d in (ONE, TWO)]
    for p in params:
        p.grad = lucid.full((2,), 3.0, device=p.device)
    total = nn.utils.clip_grad_norm_(params, 1.0)
    assert placed(total) == [0] and total.item() == pytest.approx(6.0)
    for p in params:
        np.testing.assert_allclose(p.grad.cpu().numpy(), 0.5, rtol=1e-5)
    nn.utils.clip_grad_value_(params, 0.25)
    assert placed(*(p.grad for p in params)) == [0, 1] and params[1].grad.tolist() == [0.25, 0.25]


def test_the_grad_scaler_over_two_devices():
    scaler = lucid.amp.GradScaler("cuda", init_scale=4.0)
    params = [lucid.ones(2, device=d, requires_grad=True) for d in (ONE, TWO)]
    optimizer = optim.SGD(params, lr=1.0)
    scaler.scale(params[0].sum() + params[1].sum().to(ONE)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert [p.tolist() for p in params] == [[0.0, 0.0]] * 2
    optimizer.zero_grad()
    scaler.scale((params[1] / 0.0).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert params[1].tolist() == [0.0, 0.0] and scaler.get_scale() == 2.0


def test_autocast_on_the_second_device():
    layer = nn.Linear(4, 3).to(TWO)
    with lucid.autocast("cuda", dtype=lucid.bfloat16):
        out = layer(lucid.ones(2, 4, device=TWO))
    assert out.dtype == lucid.bfloat16
    out.sum().backward()
    assert placed(out, layer.weight.grad, layer.bias.grad) == [1, 1, 1]


def test_a_kernel_of_the_user_s_on_both_devices():
    cube = lucid.cuda.kernel(
        """
        extern "C" __global__ void cube_two(const scalar_t* x, scalar_t* out, long long n) {
          long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
          if (i < n) out[i] = x[i] * x[i] * x[i];
        }
        """,
        sizes={"n": lambda x: x.size},
        backward={"x": lambda F, g, x: 3.0 * g * x * x},
    )
    for device in (ONE, TWO, ONE):
        x = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
        out = cube(x)
        out.sum().backward()
        assert placed(out, x.grad) == [int(device[-1])] * 2
        assert out.tolist() == [1.0, 8.0] and x.grad.tolist() == [3.0, 12.0]


@pytest.mark.parametrize("provider", ["cublas", "cublaslt"])
def test_products_on_both_devices(provider, simulated):
    from lucid.kernel import products
    from lucid.testing.strictcupy.cublaslt import LIBRARY

    before = len(LIBRARY.calls)
    with products.using(provider):
        for device in (ONE, TWO):
            layer, x = nn.Linear(100, 3).to(device), lucid.randn(5, 100, device=device)
            layer(x).sum().backward()
            assert placed(layer.weight.grad) == [int(device[-1])]
    calls = LIBRARY.calls[before:]
    if provider == "cublaslt":
        one, two = calls[: len(calls) // 2], calls[len(calls) // 2 :]
        assert {c.handle for c in one}.isdisjoint(c.handle for c in two), "a handle per device"
        assert {c.workspace for c in one if c.workspace}.isdisjoint(c.workspace for c in two)


def test_one_device_needs_no_guards(simulated):
    """With one device nothing is wrapped."""
    with simulated.devices(1):
        backend = backend_of("cuda:0")
        assert (
            not Backend.several and backend.xp is backend.bare and "Guarded" not in type(backend.F).__name__
        )
    assert Backend.several and backend_of("cuda:0").xp is not backend_of("cuda:0").bare
