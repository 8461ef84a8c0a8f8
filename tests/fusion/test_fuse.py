"""`@fuse`: forward and backward as the plain function's, one kernel or sweep each; what cannot be fused runs
as it is, and says why.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.fusion import sweep
from lucid.fusion.capture import capture
from lucid.fusion.symbols import NoCudaForm
from lucid.testing import simulator

pytestmark = pytest.mark.usefixtures("small")
LF = lucid.nn.functional
RNG = np.random.default_rng(0)
DTYPES = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 3e-1}


def arr(*shape):
    return RNG.uniform(0.2, 1.2, shape)


def leaf(a, device, dtype="float64"):
    return lucid.tensor(a, device=device).to(dtype).detach().requires_grad_()


def host(t):
    return t.detach().cpu().numpy().astype("f8")


def same(function, arrays, device, dtype="float64", fused=True, tol=None):
    """Value and gradients of the fused and the plain function agree; it was fused, or not."""
    results = []
    f = fusion.fuse(function)
    for g in (f, function):
        xs = [leaf(a, device, dtype) for a in arrays]
        fusion.reset_stats()
        with fusion.enabled(False):
            y = g(*xs)
            y.backward(
                lucid.tensor(np.random.default_rng(5).standard_normal(y.shape), device=device).to(y.dtype)
            )
        if g is f:
            assert bool(fusion.stats().by_name) == fused, fusion.stats()
        assert all(x.grad.dtype == x.dtype and x.grad.shape == x.shape for x in xs)
        results.append([host(y), *(host(x.grad) for x in xs)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol or DTYPES[dtype], atol=tol or DTYPES[dtype])


FUNCTIONS = {
    "bell": (lambda x: (-x * x).exp(), 1),
    "two": (lambda x, y: (x * y).tanh() * 2.0 + y, 2),
    "unused": (lambda x, y: x.sigmoid() * 1.5, 1),
    "choice": (lambda x, y: lucid.where(x > y, x * 2.0, y.sin()), 2),
    "sum": (lambda x: (-x * x).exp().sum(), 1),
    "mean": (lambda x, y: (x * y).sqrt().mean(), 2),
    "powers": (lambda x: x**3 + x**0.5 + 1 / x - 2.0**x, 1),
    "constant": (lambda x: x * 0.0 + 1.0, 1),
    "activations": (lambda x: x.relu() + LF.leaky_relu(-x, 0.1) + LF.softplus(x), 1),
    "kept": (lambda x: x, 1),
    "gelu": (lambda x: LF.gelu(x * 2.0 - 1.0) * 2.0, 1),
    "gelu of one": (lambda x, y: LF.gelu(y) * x, 2),
    "silu and others": (lambda x: LF.silu(x - 0.7) + LF.elu(x - 0.7, 0.5) + LF.gelu(x, "tanh"), 1),
    "bounds": (lambda x, y: (x * 2.0).clamp(0.5, 1.5) + lucid.maximum(x, y).relu(), 2),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33,), (8, 16), (2, 3, 5), (1, 1), ()], ids=str)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("unused",)])
def test_fused_is_the_function(device, name, shape, dtype):
    f, n = FUNCTIONS[name]
    if (
        device != "cpu"
        and simulator.is_on()
        and name in ("sum", "mean", "choice", "constant", "kept")
        and dtype in ("float32", "float16")
    ):
        pytest.skip("the other dtypes tell the same")
    tol = {"float16": 6e-2, "bfloat16": 0.5}.get(dtype) if name in ("powers", "sum", "mean") else None
    same(f, [arr(*shape) for _ in range(n)], device, dtype, True, tol)


@pytest.mark.parametrize("shapes", [((6, 5), ()), ((), (6, 5)), ((6, 5), (1, 1)), ((7,), (1,))], ids=str)
@pytest.mark.parametrize("name", ["two", "mean", "gelu of one"])
def test_tensors_of_one_element(device, name, shapes):
    same(FUNCTIONS[name][0], [arr(*s) for s in shapes], device)


def test_it_stands_in_the_main_namespace():
    assert lucid.fuse is fusion.fuse


def test_empty(device):
    same(lambda x: (x * 2.0).exp(), [np.zeros((0, 3))], device, fused=False)


def test_masks_numbers_and_names(device):
    m = lucid.tensor(RNG.random((6, 5)) > 0.5, device=device)

    @fusion.fuse
    def f(x, mask, k, kind):
        return lucid.where(mask, x * k, x.sin() if kind == "sin" else x.cos())

    for k, kind in ((2.0, "sin"), (3.0, "sin"), (3.0, "cos")):
        x, z = (leaf(a, device) for a in [arr(6, 5)] * 2)
        f(x, m, k, kind).sum().backward()
        f.__wrapped__(z, m, k, kind).sum().backward()
        np.testing.assert_allclose(host(x.grad), host(z.grad))
    assert fusion.stats().by_name["f"] == 6 and not fusion.stats().fell_back


def test_non_contiguous_arguments(device):
    a = arr(5, 7)
    x, z = leaf(a, device), leaf(a, device)
    fusion.fuse(lambda x: (x * x).tanh())(x.transpose(0, 1)).sum().backward()
    (z * z).tanh().sum().backward()
    np.testing.assert_allclose(host(x.grad), host(z.grad))


def test_a_change_of_an_outside_number_is_seen(device):
    scale = 2.0

    @fusion.fuse
    def f(x):
        return x * scale

    x = leaf(arr(4), device)
    np.testing.assert_allclose(host(f(x)), 2 * host(x))
    scale = 5.0
    np.testing.assert_allclose(host(f(x)), 5 * host(x))


def branch(x):
    return x * 2.0 if float(x.sum()) > 1.0 else x * 3.0


def noise(x):
    return x * lucid.rand(*x.shape, device=x.device, dtype=x.dtype)


def in_place(x):
    y = x * 1.0
    y.mul_(3.0)
    return y.exp()


@pytest.mark.parametrize(
    "f",
    [branch, in_place, lambda x: x.cumsum(-1), lambda x: x.sum(0, keepdim=True) * x],
    ids=["branch", "in_place", "cumsum", "sum"],
)
def test_what_is_not_pointwise_runs_as_it_is(device, f):
    same(f, [arr(4, 3)], device, fused=False)


def test_random_functions_and_constants_run_as_they_are(device):
    c = lucid.tensor(arr(4), device=device)
    for f in (noise, lambda x: x * c):
        fusion.reset_stats()
        fusion.fuse(f)(leaf(arr(4), device)).sum().backward()
        assert fusion.stats().fell_back and not fusion.stats().by_name


def test_mixed_dtypes_run_as_they_are(device):
    f = fusion.fuse(lambda x, y: x * y)
    out = f(leaf(arr(4), device, "float32"), leaf(arr(4), device))
    assert out.dtype == lucid.float64 and "dtypes" in next(iter(fusion.stats().fell_back))


def test_a_kernel_that_does_not_compile_runs_the_function(device, monkeypatch):
    if device == "cpu":
        pytest.skip("a kernel")
    from lucid.errors import KernelError
    from lucid.fusion import cuda

    def fail(*args):
        raise KernelError("broken")

    monkeypatch.setattr(cuda, "_launch", fail)
    x = leaf(arr(4), device)
    np.testing.assert_allclose(host(fusion.fuse(lambda x: x.exp())(x)), np.exp(host(x)))


def test_retain_graph_factors_and_no_grad(device):
    f = fusion.fuse(lambda x: (-x * x).exp().sum())
    a = arr(6, 5)
    expected = -2 * a * np.exp(-a * a)
    x = leaf(a, device)
    y = f(x) * 3.0
    y.backward(retain_graph=True)
    np.testing.assert_allclose(host(x.grad), 3 * expected)
    y.backward()
    np.testing.assert_allclose(host(x.grad), 6 * expected)
    with lucid.no_grad():
        assert not f(x).requires_grad
    np.testing.assert_allclose(float(f(x)), np.exp(-a * a).sum())


def test_arguments_that_need_no_gradient(device):
    f = fusion.fuse(lambda x, y: (x * y).sum())
    x, y = leaf(arr(5), device), lucid.tensor(arr(5), device=device)
    f(x, y).backward()
    np.testing.assert_allclose(host(x.grad), host(y))
    (g,) = lucid.autograd.grad(fusion.fuse(lambda x, y: x * 2.0)(x, leaf(arr(5), device)).sum(), x)
    np.testing.assert_allclose(host(g), 2.0)


def test_changes_in_place_before_backward_are_seen(device):
    x = leaf(arr(5), device)
    h = x * 1.0
    y = fusion.fuse(lambda x: x * x)(h)
    h.mul_(2.0)
    with pytest.raises(lucid.errors.SavedValueError):
        y.sum().backward()


@pytest.mark.parametrize("f", [lambda x: (-x * x).exp(), lambda x: (x.tanh() * x).sum()])
def test_second_order(device, f):
    fused = fusion.fuse(f)
    x = leaf(arr(3, 4), device)
    assert lucid.autograd.gradcheck(fused, x) and lucid.autograd.gradgradcheck(fused, x)


def test_shapes_that_differ_are_refused(device):
    with pytest.raises(lucid.errors.ShapeError, match="one shape"):
        fusion.fuse(lambda a, b: a + b)(lucid.ones(3, device=device), lucid.ones(2, device=device))
    with pytest.raises(lucid.errors.ShapeError, match="only pointwise functions"):
        fusion.fuse(lambda a: a[:2])(lucid.ones(5, device=device))


def test_many_blocks_on_several_threads_repeat_bit_for_bit(monkeypatch):
    a = RNG.standard_normal(1000).astype("f")

    def step():
        x = leaf(a, "cpu", "float32")
        fusion.fuse(lambda x: (-x * x).exp().mean())(x).backward()
        y = leaf(a, "cpu", "float32")
        s = leaf(np.array(0.5), "cpu", "float32")
        fusion.fuse(lambda y, s: (y * s).tanh())(y, s).sum().backward()
        return [host(t.grad) for t in (x, y, s)]

    whole = step()
    monkeypatch.setattr(sweep, "BLOCK", 64)
    monkeypatch.setattr(sweep, "THREADED", 128)
    monkeypatch.setattr(sweep, "_threads", 3)
    monkeypatch.setattr(sweep, "_pool", None)
    first, second = step(), step()
    for w, p, q in zip(whole, first, second, strict=True):
        assert p.tobytes() == q.tobytes()
        np.testing.assert_allclose(p, w, rtol=1e-5)


def test_one_kernel_forward_and_one_backward(device):
    if device == "cpu" or not simulator.is_on():
        pytest.skip("launches are counted on the simulated device")
    x, y = leaf(arr(8, 8), device, "float32"), leaf(arr(8, 8), device, "float32")
    f = fusion.fuse(lambda x, y: ((x * y).tanh() * 2.0 + y).exp())
    f(x, y)
    seed = lucid.ones(8, 8, device=device)
    with simulator.counted() as forward:
        out = f(x, y)
    with simulator.counted() as backward:
        out.backward(seed)
    assert forward["launches"] == forward["raw"] == 1
    assert backward["launches"] == backward["raw"] == 1


def test_captures_say_why_not():
    x = lucid.ones(3)
    with pytest.raises(NoCudaForm, match="op cumsum"):
        capture(lambda x: x.cumsum(0), (x,), "cpu")
    with pytest.raises(NoCudaForm, match="work on a sum"):
        capture(lambda x: x * x.sum(), (x,), "cpu")
    with pytest.raises(NoCudaForm, match="result of type"):
        capture(lambda x: 3.0, (x,), "cpu")
    with pytest.raises(NoCudaForm, match="not a pointwise function"):
        capture(lambda x: x > 0, (x,), "cpu")
