"""A training step asks the device for work and for nothing else: it never waits, and copies nothing to or
from the host.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.nn import functional as F


class Attention(nn.Module):
    """One pre-norm transformer block with its embedding and output layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(
            16, 4, 32, dropout=0.1, batch_first=True, norm_first=True, activation="gelu"
        )
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 20)

    def forward(self, x):
        return self.head(self.norm(self.block(self.embedding(x)))).flatten(0, 1)


def mlp():
    net = nn.Sequential(
        nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)
    )
    return net, np.random.default_rng(0).standard_normal((8, 12), np.float32), np.arange(8) % 10


def cnn():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    return net, np.random.default_rng(0).standard_normal((4, 1, 8, 8), np.float32), np.arange(4)


def transformer():
    return Attention(), np.arange(12).reshape(2, 6), np.arange(12)


def rnn():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(5, 7, batch_first=True), nn.Linear(7, 3)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    return Net(), np.random.default_rng(0).standard_normal((4, 6, 5), np.float32), np.arange(4) % 3


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer, "rnn": rnn}
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=1e-3),
    "adamw": lambda p: optim.AdamW(p, lr=1e-3),
}

# Those whose kernel is made from their rule (optim/traced.py).
TRACED = ("RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Lion")


def setup(name, device, optimizer="adamw"):
    lucid.manual_seed(0)
    net, x, target = MODELS[name]()
    net = net.to(device)
    opt = (OPTIMIZERS.get(optimizer) or getattr(optim, optimizer))(list(net.parameters()))
    x, target = lucid.tensor(x, device=device), lucid.tensor(target, device=device)
    # The weights were drawn on the CPU; the masks of both devices start at the same place of the stream.
    lucid.manual_seed(1)

    def step():
        opt.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        opt.step()
        return loss

    return net, step


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_never_waits(simulated, name):
    net, step = setup(name, "cuda")
    step()
    with simulated.counted() as counts:
        loss = step()
    assert counts["syncs"] == 0 and counts["d2h_bytes"] == 0, counts
    # Queued without a wait: the seed of a dropout mask, 176 bytes of Philox keys per mask, and the addresses
    # of the gradients for the optimiser's launch where they are other ones than before.
    sent = counts["h2d_bytes"]
    addresses = 8 * len(list(net.parameters()))
    assert any(left % 176 == 0 and 0 <= left <= 4 * 176 for left in (sent, sent - addresses)), counts
    assert loss.is_cuda


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, *TRACED])
def test_no_optimiser_waits(simulated, optimizer):
    _, step = setup("mlp", "cuda", optimizer)
    step()
    with simulated.counted() as counts:
        step()
    assert counts["syncs"] == 0 and counts["d2h_bytes"] == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimiser_asks_for_one_launch(simulated, optimizer):
    """With gradients that keep their place a step is one launch and nothing else; a new learning rate is 32
    bytes.
    """
    lucid.manual_seed(0)
    net = mlp()[0].to("cuda")
    opt = OPTIMIZERS[optimizer](list(net.parameters()))
    for p in net.parameters():
        p.grad = lucid.ones_like(p)
    opt.step()
    for _ in range(2):
        with simulated.counted() as counts:
            opt.step()
        assert counts == {"launches": 1, "raw": 1, "syncs": 0, "h2d_bytes": 0, "d2h_bytes": 0}
    opt.param_groups[0]["lr"] *= 0.5
    with simulated.counted() as counts:
        opt.step()
    assert counts["raw"] == 1 and counts["syncs"] == 0 and counts["h2d_bytes"] == 8 * 4


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_launch_can_be_replayed(simulated, optimizer, monkeypatch):
    """Queued again with the same arguments, as a captured graph would, a step goes on as the optimiser does:
    it counts, and follows the learning rate.
    """
    from lucid.kernel.launch import Launcher

    seen = []
    call = Launcher.__call__

    def recording(*arguments, **how):
        seen.append((arguments, how))
        call(*arguments, **how)

    monkeypatch.setattr(Launcher, "__call__", recording)
    runs = []
    for replayed in (False, True):
        lucid.manual_seed(0)
        net = mlp()[0].to("cuda")
        params = list(net.parameters())
        opt = OPTIMIZERS[optimizer](params)
        for p in params:
            p.grad = lucid.zeros_like(p)
        for step in range(6):
            for i, p in enumerate(params):
                p.grad.fill_(np.sin(step + i))
            opt.param_groups[0]["lr"] = 0.01 / (1 + step)
            if replayed and step >= 2:
                opt.send_numbers()
                ((arguments, how),) = seen
                call(*arguments, **how)
            else:
                seen.clear()
                opt.step()
        runs.append([p.detach().cpu().numpy() for p in params])
        assert all(opt.state[p]["step"] == 6 for p in params)
    for a, b in zip(*runs, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_step_with_loss_scale_and_clipping_never_waits(simulated):
    """unscale, norm, clip, step and the next scale: a launch each, the norm two; a step that overflows is
    left out without a look at the device.
    """
    lucid.manual_seed(0)
    net = mlp()[0].to("cuda")
    opt = optim.AdamW(net.parameters())
    scaler = lucid.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    grads = [lucid.ones_like(p) for p in net.parameters()]
    for p, g in zip(net.parameters(), grads, strict=True):
        p.grad = g

    def step():
        scaler.scale(grads[0])
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()

    step()
    for bad in (False, True):
        if bad:
            grads[1].array[0] = np.inf
        before = [p.detach().cpu().numpy() for p in net.parameters()]
        with simulated.counted() as counts:
            step()
        assert counts["syncs"] == counts["h2d_bytes"] == counts["d2h_bytes"] == 0
        assert counts["raw"] == 6 and counts["launches"] == 6 + 2
        after = [p.detach().cpu().numpy() for p in net.parameters()]
        for a, b in zip(before, after, strict=True):
            assert np.array_equal(a, b) == bad
    assert scaler.get_scale() == 8.0 and int(opt.state[next(net.parameters())]["step"].item()) == 2


@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_cpus(cuda, name):
    """Five steps, dropout included, give the losses and weights of the CPU within float32's rounding."""
    runs = {}
    for device in ("cpu", cuda):
        net, step = setup(name, device, "sgd")
        losses = [step().item() for _ in range(5)]
        runs[device] = losses, {k: v.detach().cpu().numpy() for k, v in net.state_dict().items()}
    np.testing.assert_allclose(runs[cuda][0], runs["cpu"][0], rtol=2e-5)
    for key, value in runs["cpu"][1].items():
        np.testing.assert_allclose(runs[cuda][1][key], value, rtol=1e-3, atol=2e-5, err_msg=key)


def test_evaluation_does_not_wait(simulated):
    net, _ = setup("mlp", "cuda")
    net.eval()
    x = lucid.ones(8, 12, device="cuda")
    net(x)
    with lucid.no_grad(), simulated.counted() as counts:
        net(x).argmax(1)
    assert counts["syncs"] == counts["d2h_bytes"] == counts["h2d_bytes"] == 0


def test_the_counters_see_a_wait(simulated):
    x = lucid.ones(3, device="cuda")
    for wait in (
        lambda: x.sum().item(),
        lambda: bool((x > 0).all()),
        lambda: x.tolist(),
        lambda: x.nonzero(),
        lambda: repr(x),
        x.cpu,
    ):
        with simulated.counted() as counts:
            wait()
        assert counts["syncs"] >= 1, wait


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits(cuda, model, tmp_path, monkeypatch):
    """The example trains on the device as on the CPU: two epochs, the same history within rounding.

    Without dropout: on the CPU its masks and the order of the batches come from one stream, on a GPU from
    two.
    """
    from lucid.examples import digits

    build = digits.MODELS[model]
    monkeypatch.setitem(
        digits.MODELS, model, lambda: nn.Sequential(*(m for m in build() if not isinstance(m, nn.Dropout)))
    )
    for device in ("cpu", cuda):
        (tmp_path / device).mkdir()
    runs = [
        digits.train(digits.Settings(model=model, device=device, epochs=2, batch_size=128), tmp_path / device)
        for device in ("cpu", cuda)
    ]
    for a, b in zip(*(run.history for run in runs), strict=True):
        for key in ("train_loss", "test_loss"):
            assert a[key] == pytest.approx(b[key], rel=2e-3), key
        assert a["test_accuracy"] == pytest.approx(b["test_accuracy"], abs=0.01)
    assert next(iter(runs[1].model.parameters())).is_cuda and runs[1].test_accuracy > 0.8
