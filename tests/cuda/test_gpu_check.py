"""The checks for a machine with a GPU, on whatever device there is: what CuPy does, and the script itself."""

from __future__ import annotations

import json
import sys

import pytest

from lucid.storage import backend_of
from lucid.testing import conformance, gpu_check


@pytest.mark.parametrize("name", [name for name, _, _ in conformance.CHECKS])
def test_cupy_is_what_lucid_assumes(cuda, name):
    _, expected, function = next(c for c in conformance.CHECKS if c[0] == name)
    assert function(backend_of(cuda).xp) == expected


def test_the_report_of_conformance(cuda, tmp_path, capsys, monkeypatch):
    assert conformance.main(["--json", str(tmp_path / "c.json")]) == 0
    report = json.loads((tmp_path / "c.json").read_text())
    assert len(report["checks"]) == len(conformance.CHECKS) and report["device"]
    monkeypatch.setattr(
        conformance, "CHECKS", [("wrong", [1], lambda cp: [2]), ("broken", 1, lambda cp: cp.no_such_name)]
    )
    assert conformance.main([]) == 1
    printed = capsys.readouterr().out
    assert "wrong: expected [1], got [2]" in printed and "broken: expected 1, got AttributeError" in printed
    assert "0 of 2 assumptions" in printed


def test_the_limits_keep_the_check_below_ten_minutes():
    assert sum(step.limit for step in gpu_check.STEPS) <= 600


def test_the_script(cuda, tmp_path, capsys, monkeypatch):
    steps = (
        gpu_check.Step("good", ("-c", "print('fine {device}')"), 20),
        gpu_check.Step("bad", ("-c", "import sys; print('=== 1 failed ==='); sys.exit(1)"), 20),
        gpu_check.Step("slow", ("-c", "import time; time.sleep(30)"), 1),
        gpu_check.Step("absent", ("-c", ""), 1, needs="tests/no_such_folder"),
    )
    monkeypatch.setattr(gpu_check, "STEPS", steps)
    monkeypatch.setattr(gpu_check, "SLOWER", 1)
    monkeypatch.setenv("LUCID_CUDA", "sim" if "lucid.testing.strictcupy" in sys.modules else "")
    simulate = ["--simulate"] if "lucid.testing.strictcupy" in sys.modules else []
    assert gpu_check.main(["--out", str(tmp_path), *simulate]) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert [s["state"] for s in report["steps"]] == ["ok", "failed", "timed out", "left out"]
    assert report["steps"][0]["line"].startswith("fine cuda") and report["steps"][1]["line"] == "1 failed"
    assert "left out" in capsys.readouterr().out.splitlines()[-1]
