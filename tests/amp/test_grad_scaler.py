"""GradScaler: the numbers of PyTorch's, one look at the device per step."""

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.amp import GradScaler
from lucid.errors import DtypeError, GradError, LucidError


def setup(device="cpu", **options):
    lucid.manual_seed(0)
    model = nn.Linear(4, 2).to(device)
    options = {"init_scale": 8.0, "growth_interval": 2, **options}
    return model, lucid.optim.SGD(model.parameters(), lr=0.5), GradScaler(device, **options)


def one(model, optimizer, scaler, factor=1.0):
    optimizer.zero_grad()
    x = lucid.ones(3, 4).to(model.weight.device)
    scaler.scale((model(x) * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_steps_are_those_without_a_scale(device):
    results = []
    for enabled in (True, False):
        model, optimizer, scaler = setup(device, enabled=enabled)
        for _ in range(5):
            one(model, optimizer, scaler)
        results.append(model.weight.tolist())
    assert results[0] == results[1]


def test_grows_backs_off_and_skips(device):
    model, optimizer, scaler = setup(device)
    scales = []
    for factor in (1, 1, 1, float("inf"), 1, float("nan"), 1, 1):
        before = model.weight.tolist()
        one(model, optimizer, scaler, factor)
        assert (model.weight.tolist() == before) == (not np.isfinite(factor))
        scales.append(scaler.get_scale())
    assert scales == [8, 16, 16, 8, 8, 4, 4, 8]


def test_same_as_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    finite = rng.random(40) > 0.2
    scales = {}
    for key, lib in (("torch", torch), ("lucid", lucid)):
        w = lib.nn.Parameter(lib.tensor([1.0]))
        optimizer = lib.optim.SGD([w], lr=0.01)
        scaler = lib.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3, growth_factor=1.5)
        scales[key] = []
        for good in finite:
            optimizer.zero_grad()
            scaler.scale(w * (1.0 if good else float("inf"))).sum().backward()
            scaler.step(optimizer)
            scaler.update()
            scales[key].append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"], w.item()))
    assert np.allclose(scales["torch"], scales["lucid"])
    assert scaler.state_dict().keys() == lucid.amp.GradScaler("cpu").state_dict().keys()


def test_unscale_before_clipping():
    model, optimizer, scaler = setup()
    scaler.scale(model(lucid.ones(3, 4)).sum()).backward()
    assert model.weight.grad.tolist() == [[24.0] * 4] * 2
    scaler.unscale_(optimizer)
    assert model.weight.grad.tolist() == [[3.0] * 4] * 2
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    clipped = model.weight.grad.tolist()
    with pytest.raises(GradError, match="were unscaled already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert model.weight.grad.tolist() == clipped
    with pytest.raises(GradError, match="called twice"):
        scaler.step(optimizer)
    with pytest.raises(GradError, match=r"went into a step\(\)"):
        scaler.unscale_(optimizer)
    scaler.update()
    scaler.unscale_(optimizer)


def test_two_optimizers_share_the_scale():
    model, optimizer, scaler = setup()
    other = nn.Linear(4, 2)
    second = lucid.optim.SGD(other.parameters(), lr=0.5)
    x = lucid.ones(3, 4)
    kept = other.weight.tolist(), model.weight.tolist()
    scaler.scale(model(x).sum() + (other(x) * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.step(second)
    scaler.update()
    assert other.weight.tolist() == kept[0] and model.weight.tolist() != kept[1]
    assert scaler.get_scale() == 4


def test_scales_structures():
    _, _, scaler = setup()
    a, b = scaler.scale([lucid.tensor(1.0), (lucid.tensor(2.0),)])
    assert a.item() == 8 and b[0].item() == 16
    with pytest.raises(DtypeError, match="expected a tensor"):
        scaler.scale(3.0)


def test_state_goes_on_exactly():
    model, optimizer, scaler = setup()
    one(model, optimizer, scaler)
    fresh = GradScaler("cpu")
    fresh.load_state_dict(scaler.state_dict())
    assert fresh.state_dict() == scaler.state_dict()
    one(model, optimizer, fresh)
    assert fresh.get_scale() == 16
    with pytest.raises(ValueError, match="disabled scaler"):
        fresh.load_state_dict({})
    assert GradScaler("cpu", enabled=False).state_dict() == {}


def test_misuse_is_named():
    model, optimizer, scaler = setup()
    with pytest.raises(GradError, match="no parameter of this optimizer has a gradient"):
        scaler.step(optimizer)
    scaler = GradScaler("cpu")
    with pytest.raises(GradError, match="no gradients were unscaled"):
        scaler.update()
    with pytest.raises(GradError, match="closure"):
        scaler.step(optimizer, lambda: None)
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler(growth_factor=1.0)
    w = nn.Parameter(lucid.ones(2, dtype=lucid.float16))
    low = lucid.optim.SGD([w], lr=1.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(DtypeError, match="float16 parameters"):
        scaler.unscale_(low)


def test_scale_on_the_device_goes_on_as_on_the_host(device, monkeypatch):
    """With the kernel, and with array operations where it does not compile."""
    from lucid.kernel import multi_tensor

    finite = np.random.default_rng(1).random(30) > 0.25
    runs = []
    for kernels in (True, False):
        if not kernels:
            monkeypatch.setattr(multi_tensor, "usable", lambda *a: None)
        for where in (device, "cpu"):
            w = nn.Parameter(lucid.tensor([1.0, 2.0], device=where))
            optimizer = lucid.optim.SGD([w], lr=0.01)
            scaler = GradScaler(where, init_scale=2.0**125, growth_interval=3, growth_factor=4.0)
            scales = []
            for i, good in enumerate(finite):
                optimizer.zero_grad()
                scaler.scale(w * (1e-30 if good else float("inf"))).sum().backward()
                if i % 3 == 0:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                scales.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"], *w.tolist()))
                if i == 10:
                    # A checkpoint and a set scale reach the device.
                    scaler.load_state_dict({**scaler.state_dict(), "scale": 64.0})
                if i == 20:
                    scaler.update(2.0**120)
            runs.append(scales)
    for other in runs[1:]:
        assert other == runs[0]


def test_two_optimizers_on_the_device(device):
    """One of them overflows: it alone is held back, and the scale shrinks once."""
    scaler = GradScaler(device, init_scale=8.0)
    params = [nn.Parameter(lucid.ones(3, device=device)) for _ in range(2)]
    optimizers = [lucid.optim.AdamW([p], lr=0.5, weight_decay=0.0) for p in params]
    for p, g in zip(params, (8.0, float("nan")), strict=True):
        p.grad = lucid.full((3,), g, device=device)
        scaler.scale(p.grad)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert params[0].tolist() == pytest.approx([0.5] * 3) and params[1].tolist() == [1.0] * 3
    assert scaler.get_scale() == 4.0
    assert params[0].grad.tolist() == [1.0] * 3


def test_the_scale_of_a_graph_that_is_kept(device):
    """A loss that was scaled before update() cannot go backward again after it in silence."""
    w = nn.Parameter(lucid.ones(2, device=device))
    optimizer, scaler = lucid.optim.SGD([w], lr=0.1), GradScaler(device, init_scale=8.0)
    loss = scaler.scale((w * 2.0).sum())
    loss.backward(retain_graph=True)
    assert w.grad.tolist() == [16.0, 16.0]
    scaler.step(optimizer)
    scaler.update()
    w.grad = None
    if device == "cpu":
        loss.backward()
        assert w.grad.tolist() == [16.0, 16.0]
    else:
        with pytest.raises(LucidError, match="version"):
            loss.backward()


def test_one_look_at_the_device_per_step(monkeypatch):
    model, optimizer, scaler = setup()
    deep = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
    optimizer = lucid.optim.SGD(deep.parameters(), lr=0.1)
    backend = deep[0].weight.storage.backend
    looks = []
    monkeypatch.setattr(backend, "to_numpy", lambda a: (looks.append(a.shape), a)[1], raising=False)
    scaler.scale(deep(lucid.ones(2, 4)).sum()).backward()
    looks.clear()
    scaler.step(optimizer)
    scaler.update()
    assert looks == [()]
