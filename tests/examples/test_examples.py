"""The examples learn, say what they write, go on exactly, and refuse what does not fit."""

import importlib.util
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.cli import main
from lucid.errors import CheckpointError
from lucid.examples import common, gpt, lstm, resnet

SMALL = {
    resnet: dict(steps=12, every=5, batch_size=16, width=4),
    lstm: dict(steps=12, every=5, batch_size=4, context=16, width=8, hidden=16, sample=20, lr=3e-2),
    gpt: dict(steps=12, every=5, batch_size=4, context=16, width=16, layers=2, heads=2, sample=20, lr=1e-2),
}
IDS = [m.__name__.rpartition(".")[2] for m in SMALL]


def weights(run):
    return {k: v.numpy().copy() for k, v in run.task.model.to("cpu").state_dict().items()}


@pytest.mark.parametrize("example", SMALL, ids=IDS)
@pytest.mark.parametrize("amp", ["off", "bfloat16", "float16"])
def test_learns(example, amp, device, tmp_path):
    settings = example.Settings(**SMALL[example], amp=amp, device=device)
    losses = []
    run = common.train(example.build, settings, tmp_path, on_step=lambda step, loss: losses.append(loss))
    assert len(losses) == 12 and np.mean(losses[-3:]) < np.mean(losses[:2])
    assert [row["step"] for row in run.history] == [5, 10, 12]
    assert run.history[0]["train_loss"] == pytest.approx(np.mean(losses[:5]))
    assert run.history[-1]["train_loss"] == pytest.approx(np.mean(losses[10:]))
    assert all(p.dtype == lucid.float32 for p in run.task.model.parameters())
    if run.task.sample:
        assert len(run.task.sample()) == 20 and run.task.sample() == run.task.sample()


@pytest.mark.parametrize("amp", ["off", "float16"])
@pytest.mark.parametrize("example", SMALL, ids=IDS)
def test_stopped_and_resumed_is_as_never_stopped(example, amp, tmp_path, monkeypatch):
    # A scale that grows within the run.
    monkeypatch.setattr(lucid.amp, "GradScaler", partial(lucid.amp.GradScaler, growth_interval=3))
    settings = example.Settings(**SMALL[example], amp=amp)
    whole = common.train(example.build, settings, tmp_path / "a")

    def stop(step, loss):
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        common.train(example.build, settings, tmp_path / "b", on_step=stop)
    rest = common.train(example.build, settings, tmp_path / "b", resume=True)
    expected = weights(whole)
    for name, array in weights(rest).items():
        assert (array == expected[name]).all(), name
    states = [lucid.load(tmp_path / name / common.CHECKPOINT)["state"] for name in "ab"]
    assert states[0]["scaler"] == states[1]["scaler"] and states[0]["schedule"] == states[1]["schedule"]
    assert amp == "off" or states[0]["scaler"]["scale"] > 2**16
    for a, b in zip(whole.history, rest.history, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    settings = gpt.Settings(**SMALL[gpt])
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        common.train(gpt.build, settings, tmp_path, resume=True)
    common.train(gpt.build, settings, tmp_path)
    with pytest.raises(CheckpointError, match="was made with seed=0, not 1"):
        common.train(gpt.build, gpt.Settings(**SMALL[gpt], seed=1), tmp_path, resume=True)
    content = lucid.load(tmp_path / common.CHECKPOINT)
    lucid.save({**content, "data_crc": 1}, tmp_path / common.CHECKPOINT)
    with pytest.raises(CheckpointError, match="made with other data"):
        common.train(gpt.build, settings, tmp_path, resume=True)
    lucid.save({"a": 1}, tmp_path / common.CHECKPOINT)
    with pytest.raises(CheckpointError, match="is no checkpoint of this program"):
        common.train(gpt.build, settings, tmp_path, resume=True)


def line(example, out, *more):
    name = example.__name__.rpartition(".")[2]
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in SMALL[example].items()]
    return ["train", name, "--device", "cpu", "--out", str(out), *flags, *more]


@pytest.mark.parametrize("example", SMALL, ids=IDS)
def test_command(example, tmp_path, capsys):
    assert main(line(example, tmp_path)) == 0
    said = capsys.readouterr().out
    assert "train loss" in said and "test loss" in said and "after 12 steps" in said
    report = json.loads((tmp_path / "history.json").read_text())
    assert report["settings"]["steps"] == 12 and len(report["history"]) == 3
    assert set(lucid.load(tmp_path / "model.safetensors")) == set(
        example.build(example.Settings(**SMALL[example])).model.state_dict()
    )
    if example is not resnet:
        sample = (tmp_path / "sample.txt").read_text()
        assert len(sample) == 20 and sample in said
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_command_resumes_and_refuses(tmp_path, capsys):
    assert main(line(gpt, tmp_path, "--quiet")) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert main(["train", "gpt", "--device", "cpu", "--out", str(tmp_path), "--resume", "--quiet"]) == 0
    assert capsys.readouterr().out == out
    for more, words in (
        (
            ["train", "gpt", "--out", str(tmp_path), "--resume", "--steps", "99"],
            "was trained with --steps 12, not 99",
        ),
        (["train", "lstm", "--out", str(tmp_path), "--resume"], "belongs to another example"),
        (["train", "gpt", "--out", str(tmp_path / "x"), "--resume"], "no checkpoint to resume from"),
        (["train", "gpt", "--heads", "3"], "width must be a multiple of heads"),
        (["train", "gpt", "--dropout", "1"], "from 0 to less than 1"),
        (["train", "gpt", "--amp", "float8"], "invalid choice"),
        (["train", "lstm", "--text", str(tmp_path / "none.txt")], "none.txt"),
    ):
        assert (
            main([*more, "--device", "cpu"] + ([] if "--out" in more else ["--out", str(tmp_path / "y")]))
            == 2
        )
        assert words in capsys.readouterr().err


def test_own_text(tmp_path):
    (tmp_path / "t.txt").write_text("abcd" * 400)
    run = common.train(
        lstm.build,
        lstm.Settings(**{**SMALL[lstm], "steps": 60, "every": 60}, text=str(tmp_path / "t.txt")),
        tmp_path,
    )
    assert run.history[-1]["test_loss"] < 0.3
    assert "abcdabcd" in run.task.sample()
    (tmp_path / "t.txt").write_text("abcd" * 20)
    with pytest.raises(ValueError, match="too few for pieces of 16"):
        lstm.build(lstm.Settings(**SMALL[lstm], text=str(tmp_path / "t.txt")))


def test_killed_at_random_moments():
    spec = importlib.util.spec_from_file_location("kill_resume", Path(__file__).with_name("kill_resume.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["kill_resume"] = module
    spec.loader.exec_module(module)
    trials, _ = module.run(trials=3)
    assert [t.equal for t in trials] == [True] * 3
    assert any(0 < k < 60 for t in trials for k in t.kept), "no kill fell into a training"
