"""SummaryWriter hands everything to the installed writer, tensors as arrays; without one it says what to
install.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import lucid
from lucid.utils.tensorboard import SummaryWriter


class Recorder:
    """A writer as tensorboardX's: remembers what it is asked to write."""

    def __init__(self, log_dir=None, **options):
        self.log_dir, self.options, self.calls, self.open = log_dir, options, [], True

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        self.calls.append((tag, scalar_value, global_step))

    def add_histogram(self, tag, values, global_step=None):
        self.calls.append((tag, values, global_step))

    def add_hparams(self, hparam_dict, metric_dict):
        self.calls.append((hparam_dict, metric_dict))

    def close(self):
        self.open = False


def install(monkeypatch, name):
    """Makes `name` the only importable module with a writer."""
    for writer in ("tensorboardX", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, writer, None)  # `import` raises ImportError
    if name is not None:
        module = types.ModuleType(name)
        module.SummaryWriter = Recorder
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("name", ["tensorboardX", "torch.utils.tensorboard"])
def test_calls_reach_the_writer_with_arrays(monkeypatch, device, name):
    install(monkeypatch, name)
    weight = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    with SummaryWriter("runs/first", flush_secs=5) as writer:
        writer.add_scalar("loss", weight.sum(), global_step=3)
        writer.add_scalar("lr", 0.1, 4)
        writer.add_histogram("w", weight, global_step=lucid.tensor(5))
        writer.add_hparams({"lr": 0.1}, {"best": lucid.tensor(0.5), "all": [lucid.ones(2), "x"]})
        own = writer._own
        assert (writer.log_dir, own.options, own.open) == ("runs/first", {"flush_secs": 5}, True)
    assert not own.open
    loss, lr, histogram, (hparams, metrics) = own.calls
    assert loss[0] == "loss" and loss[2] == 3 and type(loss[1]) is np.ndarray and loss[1] == 3.0
    assert lr == ("lr", 0.1, 4)
    np.testing.assert_array_equal(histogram[1], [1.0, 2.0])
    assert histogram[2] == 5 and hparams == {"lr": 0.1}
    assert type(metrics["best"]) is np.ndarray and metrics["all"][0].tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError, match="nothing"):
        writer.nothing()


def test_the_first_writer_found_is_used(monkeypatch):
    install(monkeypatch, "tensorboardX")
    other = types.ModuleType("torch.utils.tensorboard")
    other.SummaryWriter = object
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", other)
    assert type(SummaryWriter()._own) is Recorder


def test_without_a_writer_it_says_what_to_install(monkeypatch):
    install(monkeypatch, None)
    with pytest.raises(ImportError, match="no TensorBoard writer is installed; pip install tensorboardX"):
        SummaryWriter()


def test_utils_has_its_modules():
    assert lucid.utils.tensorboard.SummaryWriter is SummaryWriter
    assert lucid.utils.checkpoint.checkpoint is lucid.autograd.checkpoint.checkpoint
    assert lucid.utils._pytree.tree_leaves([1]) == [1]
    assert {"checkpoint", "data", "tensorboard"} <= set(dir(lucid.utils))
