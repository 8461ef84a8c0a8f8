"""The `lucid` command: what it prints, writes and refuses, and that a resumed training is exact."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import lucid
from lucid import cli
from lucid._cli import devices, driver, info
from lucid._cli.display import Display
from lucid.examples import digits

ROOT = Path(__file__).parents[1]


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs `lucid WORDS...` in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        code = cli.main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine without CuPy, NVIDIA driver and simulated device."""
    monkeypatch.delenv("LUCID_CUDA", raising=False)
    monkeypatch.setattr(lucid.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices, "cupy_version", lambda: None)
    monkeypatch.setattr(info, "cupy_version", lambda: None)
    monkeypatch.setattr(driver, "nvidia_smi", lambda *arguments: None)


def train(command, out, *words, model="mlp"):
    """The history.json of a training on the CPU that must succeed."""
    code, _, err = command(
        "train", "digits", "--device", "cpu", "--model", model, "--out", out, "--quiet", *words
    )
    assert (code, err) == (0, "")
    return json.loads((out / "history.json").read_text())


def numbers(report):
    """The rows of a history without the times, which no seed decides."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in report["epochs"]]


def assert_same_training(first, second):
    assert numbers(json.loads((first / "history.json").read_text())) == numbers(
        json.loads((second / "history.json").read_text())
    )
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


# ---- lucid train digits: the results ----


def test_training_writes_weights_history_curves_and_checkpoint(command, tmp_path):
    out = tmp_path / "a b" / "run"
    report = train(command, out, "--epochs", 2, "--seed", 3, "--batch-size", 64, "--lr", 0.004)
    assert report["args"] == {
        "model": "mlp",
        "device": "cpu",
        "epochs": 2,
        "batch_size": 64,
        "lr": 0.004,
        "seed": 3,
        "amp": "off",
    }
    assert [row["epoch"] for row in report["epochs"]] == [1, 2]
    assert set(report["epochs"][0]) == {
        "epoch",
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "seconds",
    }
    assert report["epochs"][1]["train_loss"] < report["epochs"][0]["train_loss"]
    assert report["test_accuracy"] == report["epochs"][-1]["test_accuracy"] > 0.8
    assert {name: value.shape for name, value in load_file(out / "model.safetensors").items()} == {
        "1.weight": (512, 64),
        "1.bias": (512,),
        "4.weight": (10, 512),
        "4.bias": (10,),
    }
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".png") == [
        "checkpoint.safetensors",
        "history.json",
        "model.safetensors",
    ]


def test_curves_are_drawn(command, tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    train(command, tmp_path, "--epochs", 1)
    picture = imread(tmp_path / "curves.png")
    assert picture.shape[0] > 300 and picture.shape[1] > 800 and picture.std() > 0.01


def test_without_matplotlib_the_rest_is_written(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lucid._cli.curves", None)
    code, out, _ = command(
        "train", "digits", "--model", "mlp", "--device", "cpu", "--epochs", 1, "--out", tmp_path
    )
    assert code == 0 and "no curves.png: matplotlib is not installed" in out
    assert (tmp_path / "model.safetensors").exists() and not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(("model", "bound"), [("mlp", 0.97), ("cnn", 0.98)])
def test_reaches_the_accuracy_it_is_known_for(command, tmp_path, model, bound):
    assert train(command, tmp_path, model=model)["test_accuracy"] >= bound


def test_saved_weights_are_the_model_that_was_measured(command, tmp_path):
    report = train(command, tmp_path, "--epochs", 1)
    model = digits.mlp()
    model.load_state_dict({k: lucid.tensor(v) for k, v in load_file(tmp_path / "model.safetensors").items()})
    part = digits.digits_split(0)
    _, predicted = digits.evaluate(model, part.test_images, part.test_labels)
    assert np.mean(predicted == part.test_labels) == report["test_accuracy"]


def test_same_seed_same_numbers(command, tmp_path):
    first = train(command, tmp_path / "a", "--epochs", 2, "--seed", 7)
    again = train(command, tmp_path / "b", "--epochs", 2, "--seed", 7)
    other = train(command, tmp_path / "c", "--epochs", 2, "--seed", 8)
    assert numbers(first) == numbers(again) != numbers(other)
    assert_same_training(tmp_path / "a", tmp_path / "b")


# ---- interruption and resume ----


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_resumed_training_equals_one_without_interruption(command, tmp_path, model):
    train(command, tmp_path / "straight", "--epochs", 4, model=model)
    train(command, tmp_path / "resumed", "--epochs", 2, model=model)
    train(command, tmp_path / "resumed", "--epochs", 4, "--resume", model=model)
    assert_same_training(tmp_path / "straight", tmp_path / "resumed")


@pytest.mark.parametrize("stop", [(1, 3), (3, 5)], ids=["first epoch", "third epoch"])
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(command, tmp_path, monkeypatch, stop):
    train(command, tmp_path / "straight", "--epochs", 4, "--lr", 0.002)

    batches = []

    def interrupt(self, epoch, *values):
        batches.append(epoch)
        if epoch == stop[0] and batches.count(epoch) == stop[1]:
            raise KeyboardInterrupt

    out = tmp_path / "stopped here"
    with monkeypatch.context() as patch:
        patch.setattr(Display, "on_batch", interrupt)
        code, _, err = command(
            *(
                "train",
                "digits",
                "--model",
                "mlp",
                "--device",
                "cpu",
                "--epochs",
                4,
                "--lr",
                0.002,
                "--out",
                out,
            )
        )
    assert code == 130
    words = shlex.split(err.strip().removeprefix("stopped; go on with: "))
    words = words[words.index("train") :]
    assert words == ["train", "digits", "--out", str(out), "--device", "cpu", "--resume"]

    assert command(*words)[0] == 0
    assert_same_training(tmp_path / "straight", out)


def test_a_finished_training_resumes_to_itself(command, tmp_path):
    train(command, tmp_path, "--epochs", 1)
    before = (tmp_path / "model.safetensors").read_bytes()
    report = train(command, tmp_path, "--resume")
    assert len(report["epochs"]) == 1 and (tmp_path / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("amp", ["float16", "bfloat16"])
def test_mixed_precision_learns_and_resumes(command, tmp_path, amp):
    whole = train(command, tmp_path / "whole", "--epochs", 4, "--amp", amp)
    assert whole["test_accuracy"] > 0.9 and whole["args"]["amp"] == amp
    plain = train(command, tmp_path / "plain", "--epochs", 1)
    assert numbers(plain) != numbers(whole)[:1]
    train(command, tmp_path / "parts", "--epochs", 2, "--amp", amp)
    parts = train(command, tmp_path / "parts", "--epochs", 4, "--resume")
    assert numbers(parts) == numbers(whole)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "rnn"], r"argument --model: invalid choice: 'rnn' \(choose from '?cnn'?, '?mlp'?\)"),
        (["--epochs", "0"], "argument --epochs: expected a whole number of at least 1, got '0'"),
        (["--epochs", "two"], "argument --epochs: expected a whole number of at least 1, got 'two'"),
        (["--batch-size", "-4"], "argument --batch-size: expected a whole number of at least 1, got '-4'"),
        (["--lr", "0"], "argument --lr: expected a number above 0, got '0'"),
        (["--lr", "nan"], "argument --lr: expected a number above 0, got 'nan'"),
        (["--lr", "fast"], "argument --lr: expected a number above 0, got 'fast'"),
        (["--seed", "-1"], "argument --seed: expected a whole number from 0 to 4294967295, got '-1'"),
        (["--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
        (["--amp", "int8"], "argument --amp: invalid choice: 'int8'"),
        (["--frobnicate"], r"unrecognized arguments: --frobnicate \(see lucid train digits --help\)"),
    ],
)
def test_bad_arguments_give_one_line(command, words, message):
    code, out, err = command("train", "digits", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.match(r"lucid( train digits)?: error: " + message, err)


def test_unknown_command_gives_one_line(command):
    code, _, err = command("tarin")
    assert code == 2 and re.match(r"lucid: error: argument COMMAND: invalid choice: 'tarin'.*\n\Z", err)


def test_unwritable_folder_gives_one_line(command, tmp_path):
    (tmp_path / "file").write_text("")
    for out, why in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "run", "Not a directory")):
        code, _, err = command("train", "digits", "--device", "cpu", "--out", out)
        assert (code, err) == (2, f"lucid train digits: error: --out {out}: cannot write there: {why}\n")


def test_full_disk_gives_one_line(command, tmp_path, monkeypatch):
    def fail(state, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lucid, "save", fail)
    code, _, err = command("train", "digits", "--device", "cpu", "--out", tmp_path)
    assert code == 2 and "cannot write there: [Errno 28] No space left on device\n" in err


def test_cuda_without_a_gpu_gives_one_line(command, no_gpu, tmp_path):
    code, _, err = command("train", "digits", "--device", "cuda", "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "--device cuda: no CUDA device here: no NVIDIA driver found" in err


def test_resume_without_checkpoint_gives_one_line(command, tmp_path):
    code, _, err = command("train", "digits", "--resume", "--out", tmp_path / "never")
    assert (code, err.count("\n")) == (2, 1)
    assert (
        f"no checkpoint to resume from: {tmp_path / 'never' / 'checkpoint.safetensors'} does not exist" in err
    )
    assert not (tmp_path / "never").exists()


def damage(path, how):
    content = path.read_bytes()
    if how == "foreign":
        lucid.save({"something": 1}, path)
    else:
        path.write_bytes(
            {"empty": b"", "cut": content[: len(content) // 2], "noise": b"\x80garbage" * 100}[how]
        )


@pytest.mark.parametrize("how", ["empty", "cut", "noise", "foreign"])
def test_corrupt_checkpoint_gives_one_line(command, tmp_path, how):
    train(command, tmp_path, "--epochs", 1)
    damage(tmp_path / "checkpoint.safetensors", how)
    code, _, err = command("train", "digits", "--resume", "--epochs", 2, "--out", tmp_path, "--device", "cpu")
    assert (code, err.count("\n")) == (2, 1)
    assert str(tmp_path / "checkpoint.safetensors") in err and "; train without resume" in err


def test_resume_refuses_what_contradicts_the_checkpoint(command, tmp_path):
    train(command, tmp_path, "--epochs", 2)
    for words, message in (
        (["--model", "cnn"], "was trained with --model mlp, not cnn; leave --model out"),
        (["--batch-size", 7], "was trained with --batch-size 32, not 7; leave --batch-size out"),
        (["--lr", 1], "was trained with --lr 0.003, not 1.0; leave --lr out"),
        (["--seed", 9], "was trained with --seed 0, not 9; leave --seed out"),
        (["--amp", "float16"], "was trained with --amp off, not float16; leave --amp out"),
        (["--epochs", 1], "has 2 epochs already, more than --epochs 1"),
    ):
        code, _, err = command("train", "digits", "--resume", "--out", tmp_path, *words)
        assert (code, err.count("\n")) == (2, 1) and f"--resume: {tmp_path} {message}" in err


# ---- what a training looks like ----


def test_plain_lines_without_a_terminal(command, no_gpu, tmp_path):
    code, out, _ = command("train", "digits", "--model", "mlp", "--epochs", 2, "--out", tmp_path)
    lines = out.splitlines()
    assert code == 0 and "\x1b" not in out
    assert lines[0] == "model mlp, batches of 32, learning rate 0.003, seed 0"
    assert lines[1].startswith("device cpu: no CUDA device: no NVIDIA driver found")
    assert re.fullmatch(r" +1/2 +\d\.\d{4} +\d+\.\d\d% +\d\.\d{4} +\d+\.\d\d% +\d+\.\d\d", lines[3])
    assert "true digit (rows) and predicted digit (columns)" in out
    assert re.fullmatch(
        rf"test accuracy \d+\.\d\d% \(\d+ of 359 images\); see {re.escape(str(tmp_path))}", lines[-1]
    )


def test_a_live_bar_on_a_terminal(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    _, out, _ = command(
        "train", "digits", "--model", "mlp", "--device", "cpu", "--epochs", 2, "--out", tmp_path
    )
    assert "images/s" in out and "epoch 2/2" in out and "\x1b[" in out
    assert "device cpu: asked for" in out


def test_confusion_table_counts_every_test_image(command, tmp_path):
    code, out, _ = command(
        "train", "digits", "--model", "mlp", "--device", "cpu", "--epochs", 1, "--out", tmp_path
    )
    rows = [
        re.findall(r"[\d.]+(?=%)|\d+|\.", line)
        for line in out.splitlines()
        if re.match(r"[│|] \d [│|]", line)
    ]
    counts = np.array([[int(cell) if cell != "." else 0 for cell in row[1:11]] for row in rows])
    assert counts.shape == (10, 10) and counts.sum() == 359
    report = json.loads((tmp_path / "history.json").read_text())
    assert np.trace(counts) / 359 == report["test_accuracy"]


# ---- lucid info ----


def test_info_names_versions_devices_and_what_is_missing(command, no_gpu):
    code, out, _ = command("info")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines())
    assert code == 0
    assert rows["lucid"] == lucid.__version__ and rows["libraries numpy"] == np.__version__
    assert rows["blas library"] and rows["blas threads"]
    assert rows["cuda cupy"] == "not installed" and rows["cuda devices"] == "none"
    assert "pip install 'cupy-cuda13x[ctk]'" in rows["cuda with a driver"]


def test_info_as_json(command, no_gpu, monkeypatch):
    code, out, _ = command("info", "--json")
    facts = json.loads(out)
    assert code == 0 and facts["lucid"] == lucid.__version__
    assert facts["cuda"]["simulated"] is False and facts["cuda"]["devices"] == []
    monkeypatch.setenv("LUCID_CUDA", "sim")
    assert json.loads(command("info", "--json")[1])["cuda"]["simulated"] is True


def test_info_finds_the_kernels():
    assert (ROOT / "kernels").is_dir()
    assert Path(info.kernels_directory()).is_dir()


def test_info_survives_a_closed_pipe():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = f"set -o pipefail; {shlex.quote(sys.executable)} -u -m lucid info | head -n 1 >/dev/null"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment)
    assert done.returncode in (0, 141) and done.stderr == ""


# ---- which CuPy fits the driver ----

QUERY = "580.65.06, NVIDIA H200\n580.65.06, NVIDIA H200\n"


@pytest.mark.parametrize(
    ("query", "header", "extra", "reason"),
    [
        (QUERY, "| CUDA Version: 13.0     |", "cuda13", "NVIDIA H200, driver 580.65.06, CUDA 13"),
        (QUERY, "| CUDA UMD Version: 14.1 |", "cuda13", "CUDA 14"),
        (QUERY, "no version here", "cuda13", "CUDA 13"),
        ("535.1, T4\n", "| CUDA Version: 12.2     |", "cuda12", "T4, driver 535.1, CUDA 12"),
        (
            "470.1, K80\n",
            "| CUDA Version: 11.4     |",
            "",
            "CUDA 11: too old, CuPy needs a driver for CUDA 12",
        ),
        ("470.1, K80\n", "no version here", "", "CUDA unknown: too old"),
        ("NVIDIA-SMI has failed\n", "", "", "no NVIDIA driver found"),
        (None, None, "", "no NVIDIA driver found"),
    ],
)
def test_the_extra_fits_the_driver(monkeypatch, query, header, extra, reason):
    monkeypatch.setattr(driver, "nvidia_smi", lambda *arguments: query if arguments else header)
    found, why = driver.cupy_extra(driver.nvidia_driver())
    assert found == extra and reason in why


def test_the_driver_script_needs_nothing_installed(tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\n[ $# -gt 0 ] && echo "580.1, NVIDIA H200" || echo "CUDA Version: 13.0"\n')
    smi.chmod(0o755)
    for path, out in ((f"{tmp_path}:/bin:/usr/bin", "cuda13\n"), (str(tmp_path / "empty"), "\n")):
        done = subprocess.run(
            [sys.executable, "-I", "-S", driver.__file__], capture_output=True, text=True, env={"PATH": path}
        )
        assert (done.returncode, done.stdout) == (0, out) and done.stderr.count("\n") == 1


def test_a_hanging_or_failing_nvidia_smi_is_no_driver(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: sys.executable)
    assert driver.nvidia_smi("-c", "print('fine')") == "fine\n"
    assert driver.nvidia_smi("-c", "raise SystemExit(9)") is None

    def hang(*arguments, **options):
        raise subprocess.TimeoutExpired("nvidia-smi", 30)

    monkeypatch.setattr(subprocess, "run", hang)
    assert driver.nvidia_smi() is None


def test_what_is_missing_comes_with_the_command(monkeypatch):
    recent = driver.Driver("580.1", 13, ("NVIDIA H200",))
    old = driver.Driver("470.1", 11, ("K80",))
    monkeypatch.setattr(devices, "cupy_version", lambda: None)
    assert (
        devices.why_no_cuda(recent)
        == "CuPy is not installed (NVIDIA H200, driver 580.1, CUDA 13); pip install 'cupy-cuda13x[ctk]'"
    )
    monkeypatch.setattr(devices, "cupy_version", lambda: "cupy-cuda13x 14.2.0")
    assert "cupy-cuda13x 14.2.0 finds no device on NVIDIA H200" in devices.why_no_cuda(recent)
    assert "cupy-cuda13x 14.2.0 is installed, but K80" in devices.why_no_cuda(old)


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.delenv("LUCID_CUDA", raising=False)
    monkeypatch.setattr(lucid.cuda, "is_available", lambda: True)
    monkeypatch.setattr(lucid.cuda, "get_device_name", lambda index: "NVIDIA H200")
    assert devices.choose_device("auto") == devices.choose_device("cuda") == ("cuda", "NVIDIA H200")
    assert devices.choose_device("cpu") == ("cpu", "asked for")


# ---- the command tree ----


@pytest.mark.parametrize("words", [[], ["train"]] + [row[0].split() for row in cli.COMMANDS], ids=" ".join)
def test_every_command_has_help(command, words):
    code, out, err = command(*words, "--help")
    assert (code, err) == (0, "") and out.startswith(" ".join(["usage: lucid", *words]))


def test_version_and_module_form(command):
    assert command("--version")[:2] == (0, f"lucid {lucid.__version__}\n")
    # In a process of its own: the import hook of pytest, through which plugins go, has no get_code for runpy.
    command_line = [sys.executable, "-m", "lucid", "--version"]
    run = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stdout == f"lucid {lucid.__version__}\n"
