"""The examples' models train as PyTorch's do: the very source of each class, with the import changed, on the
same data and weights.
"""

import inspect
import textwrap

import numpy as np
import pytest

import lucid
from lucid.datasets import digits_split, text_split
from lucid.examples import digits, gpt, lstm, resnet
from lucid.examples.common import rate

torch = pytest.importorskip("torch")
STEPS = 50


def in_pytorch(*things):
    """The last of some classes or functions, its source run with PyTorch in lucid's place."""
    scope = {"lucid": torch, "nn": torch.nn, "F": torch.nn.functional, "CLASSES": 10}
    for thing in things:
        exec(textwrap.dedent(inspect.getsource(thing)), scope)
    return scope[things[-1].__name__]


def digit_batches(rng):
    part = digits_split()
    for _ in range(STEPS):
        i = rng.integers(0, len(part.train_labels), 16)
        yield part.train_images[i], part.train_labels[i]


def text_batches(rng):
    train, _, _ = text_split()
    for _ in range(STEPS):
        at = rng.integers(0, len(train) - 17, 4)[:, None] + np.arange(17)
        yield train[at][:, :-1], train[at][:, 1:]


# name -> (its classes or functions, arguments of the last, batches)
MODELS = {
    "mlp": ((digits.mlp,), (), digit_batches),
    "cnn": ((digits.cnn,), (), digit_batches),
    "resnet": ((resnet.Residual, resnet.ResNet), (4,), digit_batches),
    "lstm": ((lstm.CharLSTM,), (103, 8, 12, 2, 0.0), text_batches),
    "gpt": ((gpt.Block, gpt.GPT), (103, 16, 16, 2, 4, 0.0), text_batches),
}


def curve(lib, model, dtype, batches, device="cpu"):
    """The losses of a training with everything that the examples use: AdamW, a schedule, clipping."""
    for module in model.modules():
        if type(module).__name__ == "Dropout":
            module.p = 0.0  # the two libraries draw other masks
    optimizer = lib.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
    schedule = lib.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, STEPS))
    losses = []
    for x, y in batches(np.random.default_rng(0)):
        x = lib.tensor(x.astype(dtype) if x.dtype.kind == "f" else x).to(device)
        logits = model(x)
        y = lib.tensor(y).to(device)
        loss = lib.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_loss_curve_is_pytorchs(name, dtype, device):
    things, arguments, batches = MODELS[name]
    lucid.manual_seed(0)
    model = things[-1](*arguments).to(getattr(lucid, dtype))
    other = in_pytorch(*things)(*arguments).to(getattr(torch, dtype))
    other.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in model.state_dict().items()})
    ours = curve(lucid, model.to(device), dtype, batches, device)
    theirs = curve(torch, other, dtype, batches)
    assert theirs[-5:].mean() < 0.9 * theirs[:5].mean(), "nothing was learned"
    difference = np.abs(ours - theirs) / theirs
    # Measured: 6e-16 and 3e-7; the limits leave room for other BLAS libraries.
    assert difference[0] < (1e-13 if dtype == "float64" else 1e-6)
    assert difference.max() < (1e-12 if dtype == "float64" else 1e-4), difference
