"""`ci/gpu_check` without a GPU: its steps on the simulated device, its clock on a pretended one, its report;
and `lucid kernels`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from lucid import cli
from lucid._cli import kernels
from lucid.errors import KernelError
from lucid.kernel import compile as compiling
from lucid.kernel import report as kernel_report
from lucid.testing import cusim

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "ci" / "gpu_check"
needs_compiler = pytest.mark.skipif(not cusim.available()[0], reason=cusim.available()[1])


def module(name: str, path: Path):
    """A module from a file that is in no package."""
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(path)))
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found  # dataclasses look their module up
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def gpu_check():
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # ci/gpu_check has no suffix: its cache would lie beside it
    yield module("ci_gpu_check", SCRIPT)
    sys.dont_write_bytecode = before


@pytest.fixture(scope="module")
def gpu_report():
    before = list(sys.path)
    yield module("gpu_report", ROOT / "benchmarks" / "gpu_report.py")
    sys.path[:] = before


# ---- steps ----


def test_the_limits_keep_it_below_ten_minutes(gpu_check):
    assert sum(step.limit for step in gpu_check.STEPS) <= 580


def test_the_steps_name_what_exists(gpu_check):
    for step in gpu_check.STEPS:
        for word in (*step.arguments, *step.sim):
            # The expectation file is there once a run on a GPU has written it.
            if word.startswith(("tests/", "benchmarks/", "ci/")) and not word.endswith(".json"):
                assert (ROOT / word).exists(), f"{step.name}: {word}"


def test_how_steps_end(gpu_check, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("LUCID_CUDA", "sim")
    say = "import os; print('{device}', os.environ.get('LUCID_CUDA')); print()"
    steps = (
        gpu_check.Step("good", ("-c", say), 30),
        gpu_check.Step("bad", ("-c", "print('== 1 failed =='); raise SystemExit(1)"), 30),
        gpu_check.Step("slow", ("-c", "import time; print('half', flush=True); time.sleep(30)"), 2),
        gpu_check.Step("low", ("-c", "print('accuracy 79.9%')"), 30, least=(r"accuracy ([\d.]+)%", 80.0)),
        gpu_check.Step("high", ("-c", "print('accuracy 80.1%')"), 30, least=(r"accuracy ([\d.]+)%", 80.0)),
    )
    found = list(gpu_check.outcomes(steps, tmp_path, False))
    assert [o.state for o in found] == ["ok", "failed", "timed out", "failed", "ok"]
    assert [o.line for o in found[:3]] == ["cuda None", "1 failed", "half"]
    assert found[3].line.endswith("of at least 80: accuracy 79.9%")
    assert (tmp_path / "1.log").read_text() == "cuda None\n\n"
    assert next(gpu_check.outcomes(steps, tmp_path, True)).line == "cuda-sim sim"
    assert (tmp_path / "simulated_1.log").exists()


def test_without_a_device_it_stops(gpu_check, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHON", sys.executable)
    steps = (
        gpu_check.Step("machine", ("-c", "raise SystemExit('no driver; install one')"), 30),
        gpu_check.Step("next", ("-c", "print(1)"), 30),
    )
    monkeypatch.setattr(gpu_check, "STEPS", steps)
    (tmp_path / "bandwidth.json").write_text("{}")
    (tmp_path / "simulated_bandwidth.json").write_text("{}")
    (tmp_path / "mine.json").write_text("{}")
    assert gpu_check.main(["--out", str(tmp_path)]) == 1
    assert "gpu_check: no usable CUDA device: no driver; install one" in capsys.readouterr().out
    assert not (tmp_path / "bandwidth.json").exists(), "what an earlier run has left must go"
    assert (tmp_path / "simulated_bandwidth.json").exists() and (tmp_path / "mine.json").exists()


@pytest.mark.parametrize("seconds,text", [("0", "2 skipped"), ("600", "2 passed")])
def test_tests_that_would_begin_too_late_are_skipped(tmp_path, seconds, text):
    path = tmp_path / "test_two.py"
    path.write_text("def test_one(): pass\ndef test_two(): pass\n")
    command = [sys.executable, str(SCRIPT), "--tests", seconds, "--rootdir", str(tmp_path), str(path)]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert text in done.stdout, done.stdout + done.stderr


@needs_compiler
def test_kernel_tests_that_launch_nothing_on_the_device_fail():
    command = [sys.executable, str(SCRIPT), "--kernel-tests", "60", "--device", "cuda-sim"]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "LUCID_CUDA": "sim"}
    done = subprocess.run(
        [*command, "tests/kernels/test_specs.py", "-k", "test_traffic"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    assert done.returncode != 0 and "no kernel was launched on the device" in done.stdout


@pytest.mark.slow
@needs_compiler
def test_a_simulated_run_goes_through_and_looks_like_none_on_a_gpu(gpu_check, tmp_path):
    picture = importlib.util.find_spec("matplotlib")
    environment = dict(os.environ) | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--sim", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = list(tmp_path.iterdir())
    assert files and all(path.name.startswith("simulated_") for path in files)
    for path in tmp_path.glob("*.json"):
        assert json.loads(path.read_text())["device"] == "simulated", path.name
    assert done.stdout.count("SIMULATED DEVICE, no GPU; simulated: no timing") == 1
    assert "TB/s" not in done.stdout and " s  " not in done.stdout
    report = json.loads((tmp_path / "simulated_report.json").read_text())
    assert {path.name for path in files if path.suffix != ".log"} == {
        f"simulated_{name}" for name in (*gpu_check.LEAVES, "digits") if picture or name != "report.png"
    }
    assert report["machine"]["copy bandwidth"] is None
    assert len(report["bandwidth"]) > 15 and all(row["us"] is None for row in report["bandwidth"])
    assert all(row["fused us"] is None and row["difference"] < 1e-4 for row in report["fusion"])
    assert all(row["cublas us"] is row["cublaslt us"] is None for row in report["products"])
    assert all(row["lucid us"] is None for row in report["host"])
    assert [step["state"] for step in report["steps"]] == ["ok"] * len(gpu_check.STEPS)


# ---- the clock, on a pretended device where time is what the calls say ----


class PretendedDevice:
    """As much of CuPy as the clock uses: each call takes `takes` milliseconds of device time."""

    def __init__(self):
        self.now, self.order, self.cuda = 0.0, [], self
        device = self

        class Event:
            def record(self):
                self.time = device.now

            def synchronize(self):
                pass

        self.Event = Event

    def RawKernel(self, code, name):
        return lambda grid, block, args: self.order.append("spin")

    def Device(self):
        return argparse.Namespace(synchronize=lambda: None)

    def get_elapsed_time(self, start, end):
        return end.time - start.time

    def work(self, name, takes):
        def run():
            self.now += takes
            self.order.append(name)

        return run


def test_the_clock_takes_medians_of_samples_in_turn(gpu_report, monkeypatch):
    monkeypatch.setattr("lucid.cuda.is_simulated", lambda: False)
    device = PretendedDevice()
    clock = gpu_report.Clock(argparse.Namespace(xp=device), repeats=5)
    times = clock.compare({"a": device.work("a", 0.1), "b": device.work("b", 1.0)})
    assert times == {"a": pytest.approx(100.0), "b": pytest.approx(1000.0)}
    # 6 calls each to warm up; then samples of 2 and 1 calls, each behind a busy device.
    assert device.order[12:18] == ["spin", "a", "a", "spin", "b", "spin"]
    device.order.clear()
    assert clock.compare({"a": device.work("a", 0.1)}, hidden=False)["a"] == pytest.approx(100.0)
    assert "spin" not in device.order
    assert clock.host(lambda: None, number=3) < 1e3


def test_the_clock_takes_no_time_of_a_simulation(gpu_report, monkeypatch):
    monkeypatch.setattr("lucid.cuda.is_simulated", lambda: True)
    device = PretendedDevice()
    clock = gpu_report.Clock(argparse.Namespace(xp=device))
    run = device.work("a", 0.1)
    assert (clock.compare({"a": run}), clock.one(run), clock.host(run)) == ({"a": None}, None, None)
    assert device.order == ["a"] * 3


# ---- the report ----


def parts(device: str = "NVIDIA H200") -> dict:
    """The parts of a made-up run on a GPU."""
    row = {"shape": [1], "dtype": "float32", "bytes": 10**9, "us": 300.0, "judged": True}
    return {
        "machine": {"copy bandwidth": 4.3e12, "torch": "2.13.0"},
        "bandwidth": [
            row | {"kernel": "copy", "share": 0.96},
            row | {"kernel": "copy", "share": 1.2, "judged": False},
            row | {"kernel": "softmax", "share": 0.5, "dtype": "bfloat16"},
            row | {"kernel": "silu_forward", "share": 0.9},
        ],
        "fusion": [
            {"pattern": "bias + gelu", "dtype": "float32", "difference": 0.0, "unfused / fused": 3.21}
            | {"torch / fused": 1.34},
            {"pattern": "softmax", "dtype": "float32", "error": "OutOfMemoryError: 3 GiB"},
        ],
        "host": [{"call": "op, recorded", "lucid us": 7.5, "torch us": 5.0, "torch / lucid": 0.67}],
    }


def written(folder: Path, device: str, simulated: bool) -> None:
    prefix = "simulated_" if simulated else ""
    for name, rows in parts().items():
        text = json.dumps({"device": device, "simulated": simulated, "rows": rows})
        (folder / f"{prefix}{name}.json").write_text(text)


def test_the_table(gpu_report, tmp_path, capsys):
    written(tmp_path, "NVIDIA H200", False)
    assert gpu_report.summary(tmp_path, False) == 0
    shown = {line.split("  ")[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert "lucid on NVIDIA H200" in shown and "share of a device copy (4.30 TB/s)" in shown
    assert shown["copy"][1:] == ["96%", "-", "95%"] and shown["softmax"][1:] == ["-", "50%", "75%"]
    assert "silu_forward" not in shown
    assert shown["bias + gelu float32"][-4:] == ["3.21", "-", "1.34", "-"]
    assert shown["op, recorded"][-3:] == ["7.50", "5.00", "0.67"]
    assert "problem: softmax: OutOfMemoryError: 3 GiB" in shown
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["device"], report["simulated"]) == ("NVIDIA H200", False)
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "report.png").read_bytes()[:4] == b"\x89PNG"


def test_the_goals_are_judged(gpu_report):
    found = parts()
    assert gpu_report.closing("bandwidth", found["bandwidth"], False) == (
        "4 of 4 rows measured, 1 below their goal"
    )
    assert gpu_report.goal("log_softmax_backward") == 0.75 and gpu_report.goal("max_pool") is None
    assert gpu_report.failures(found["fusion"]) == ["softmax: OutOfMemoryError: 3 GiB"]
    wrong = [{"pattern": "x", "dtype": "float32", "difference": 0.01}]
    assert gpu_report.failures(wrong) == ["x float32: fused and unfused gradients differ by 0.01"]
    assert gpu_report.failures([wrong[0] | {"dtype": "bfloat16"}]) == []


@pytest.mark.parametrize(
    "name,simulated,text",
    [
        ("simulated", False, "parts of different devices: simulated"),
        ("NVIDIA H200", True, "parts of different devices: NVIDIA H200"),
        (None, False, "there is no machine.json or other part in"),
    ],
)
def test_a_simulated_part_does_not_enter_a_report_of_a_gpu(
    gpu_report, tmp_path, capsys, name, simulated, text
):
    if name:
        written(tmp_path, name, simulated)
    assert gpu_report.summary(tmp_path, simulated) == 2
    assert text in capsys.readouterr().err and not list(tmp_path.glob("*report.json"))


def test_both_libraries_compute_the_same(gpu_report):
    torch = pytest.importorskip("torch")
    import lucid

    for name, (make, _, shape) in gpu_report.PATTERNS.items():
        grads = []
        for T in (lucid, torch):
            m = gpu_report.Maker(T, "cpu")
            m.backward(make(m, shape))()
            grads.append([leaf.grad.numpy() for leaf in m.leaves])
        for a, b in zip(*grads, strict=True):
            assert abs(a - b).max() <= 1e-4 * max(abs(b).max(), 1e-3), name
    ours, theirs = (gpu_report.calls_of(T, "cpu", True) for T in (lucid, torch))
    assert ours.keys() == theirs.keys()
    for run, _, _ in (*ours.values(), *theirs.values()):
        run()


# ---- lucid kernels ----


@pytest.fixture
def command(capsys):
    def run(*arguments):
        code = cli.main(["kernels", *arguments])
        return code, *capsys.readouterr()

    return run


def test_kernels_are_listed(command):
    code, out, _ = command()
    assert code == 0 and len(out.splitlines()) == len(kernel_report.KERNELS)
    assert out.splitlines()[0].split()[1:] == ["pointwise.cu", "2*n*s"]
    code, out, _ = command("softmax", "copy")
    assert "x T[rows*cols], *out T[rows*cols], rows i64, cols i32" in out and len(out.splitlines()) == 4
    assert json.loads(command("copy", "--json")[1])[0]["bytes"] == "2*n*s"


@pytest.mark.parametrize(
    "arguments,text",
    [
        (["sofmax"], "there is no kernel 'sofmax'; `lucid kernels` lists them all"),
        (["copy", "--sass"], "--sass needs --arch 90"),
        (["copy", "--arch", "90", "--dtype", "int8"], "--dtype: expected a comma list of float32, float64"),
    ],
)
def test_kernels_refuses(command, arguments, text):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "") and err.startswith("lucid kernels: error: ") and text in err


def test_kernels_without_nvrtc(command, monkeypatch):
    monkeypatch.setattr(compiling, "available", lambda: (False, "NVRTC is not installed; pip install it"))
    assert command("copy", "--arch", "90")[0::2] == (
        2,
        "lucid kernels: error: --arch: NVRTC is not installed; pip install it\n",
    )


@pytest.fixture
def nvrtc(monkeypatch):
    """A pretended NVRTC for sm_80 and sm_90."""
    monkeypatch.setattr(compiling, "available", lambda: (True, ""))
    monkeypatch.setattr(compiling, "supported_archs", lambda: (80, 90))
    monkeypatch.setattr(compiling, "nvrtc_version", lambda: "13.0")


def test_kernels_prints_what_they_take(command, monkeypatch, nvrtc):
    def measure(names, archs, dtypes, sass, progress):
        assert (names, archs, dtypes, sass) == (["copy"], (90, 80), ("float32",), False)
        return [kernel_report.Row("copy", "float32", arch, 32, 0, 0, arch - 80) for arch in archs]

    monkeypatch.setattr(kernel_report, "measure", measure)
    code, out, _ = command("copy", "--arch", "sm_90,8.0,90")
    assert code == 1 and "problem: copy float32 sm_90: 10 bytes of spills" in out
    assert "sm_80" in out and "NVRTC 13.0, 2 builds" in out
    assert json.loads(command("copy", "--arch", "90,80", "--json")[1])["rows"][0]["registers"] == 32
    assert "NVRTC 13.0 compiles for 80, 90, got '33'" in command("copy", "--arch", "33")[2]


def test_kernels_names_what_does_not_compile(command, monkeypatch, nvrtc):
    def measure(*args, **options):
        raise KernelError("kernel copy does not compile: kernels/pointwise.cu:7: expected a ;")

    monkeypatch.setattr(kernels.report, "measure", measure)
    code, _, err = command("copy", "--arch", "90")
    assert code == 1 and err == (
        "lucid kernels: kernel copy does not compile: kernels/pointwise.cu:7: expected a ;\n"
    )


@pytest.mark.skipif(not compiling.available()[0], reason=compiling.available()[1] or "installed")
def test_kernels_compiles(command):
    code, out, _ = command("copy", "--arch", "90")
    assert code == 0 and out.splitlines()[1].split()[:2] == ["copy", "float32"]


# ---- matrix products ----


def _products_row(**values):
    row = {"product": "linear", "dtype": "bfloat16", "shape": [8, 8, 8, 1], "epilogue": "bias", "work": 512}
    return row | {"cublas error": 1e-3, "cublaslt error": 1e-3} | values


def test_products_that_are_wrong_fail_the_report(gpu_report):
    good, bad = _products_row(), _products_row(**{"cublaslt error": 0.02})
    assert gpu_report.failures([good]) == []
    (text,) = gpu_report.failures([good, bad])
    assert text == "linear bfloat16 [8, 8, 8, 1]: error of cublaslt 0.02, of cublas 0.001"


@pytest.mark.parametrize(
    "ratios, least",
    [((1.1, 1.2, 1.3), 1), ((0.9, 1.2, 1.3), 2), ((1.5, 1.02, 1.03), 3), ((1.5, 1.5, 1.0), None)],
)
def test_the_table_is_proposed_from_measured_gains(gpu_report, ratios, least):
    rows = [_products_row(work=i + 1, **{"cublas / cublaslt": r}) for i, r in enumerate(ratios)]
    expected = f'Choice("cublaslt", (90, 91), ("bfloat16",), ("bias",), {least}, "ci/gpu_check, NVIDIA H200")'
    propose = gpu_report.gpu_products.proposals
    assert propose(rows, "NVIDIA H200", 90) == ([expected] if least else [])
    assert propose([*rows, _products_row(error="refused")], "NVIDIA H200", 90) == []


def test_products_run_on_the_simulated_device(tmp_path):
    environment = dict(os.environ) | {"LUCID_CUDA": "sim", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "benchmarks/gpu_report.py", "products", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "simulated_products.json").read_text())["rows"]
    assert {row["epilogue"] for row in rows} == {"", "bias", "relu_bias", "gelu_bias", "bgrad"}
    assert all(row["cublaslt us"] is None and row["cublaslt error"] < 0.01 for row in rows)
    assert "simulated: no timing" in done.stdout
