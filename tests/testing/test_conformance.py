"""What lucid takes for granted about CuPy, on the stand-in; and what the program says when it is not so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lucid.testing import conformance, cusim, strictcupy

ROOT = Path(__file__).parents[2]
NAMES = [name for name, _, _ in conformance.CHECKS]
needs_compiler = pytest.mark.skipif(not cusim.available()[0], reason=cusim.available()[1])


@pytest.fixture
def cp():
    """The stand-in for CuPy, for the length of a test."""
    if sys.modules.get("cupy") is not None and not strictcupy.installed():
        pytest.skip("the real cupy is imported in this process; ci/gpu_check runs the checks on it")
    before = strictcupy.installed()
    yield strictcupy.install()
    if not before:
        strictcupy.uninstall()


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The finished program on the simulated device."""
    environment = dict(os.environ) | {"LUCID_CUDA": "sim", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lucid.testing.conformance", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def test_names_are_unique():
    names = NAMES + [name for name, _, _ in conformance.ON_GPU]
    assert len(set(names)) == len(names) > 25


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check[0])
@needs_compiler
def test_the_standin_does_what_is_assumed(cp, check):
    assert conformance.run(cp, [check]) == [
        {"name": check[0], "expected": check[1], "got": check[1], "ok": True}
    ]


def test_another_result_and_an_error_are_rows(cp):
    class Wrong:
        def __getattr__(self, name):
            return getattr(cp, name)

        def may_share_memory(self, x, y):
            return True

    found = {row["name"]: row for row in conformance.run(Wrong()) if not row["ok"]}
    assert found["views_and_copies"]["got"] == [True] * 4
    # What the stand-in does not model is refused by name, and is no reason to stop.
    rows = conformance.run(cp, conformance.ON_GPU)
    refused = next(row for row in rows if row["name"] == "what_can_be_captured")
    assert not refused["ok"] and "NotInStandin: stream capture" in refused["got"]


@needs_compiler
def test_the_file_of_a_simulated_run_says_so(tmp_path):
    path = tmp_path / "c.json"
    done = program("--json", str(path), "--expected", str(tmp_path / "absent.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("hold on simulated CUDA device (CPU)")
    report = json.loads(path.read_text())
    assert (report["device"], report["simulated"], report["gpu_only"]) == ("simulated", True, [])
    assert [row["name"] for row in report["checks"]] == NAMES and all(row["ok"] for row in report["checks"])

    report["device"] = "NVIDIA H200"
    report["checks"][0]["got"] = "something else"
    del report["checks"][1]  # a check that the earlier run did not have
    path.write_text(json.dumps(report))
    done = program("--expected", str(path))
    assert done.returncode == 1 and done.stdout.splitlines()[-1].endswith("1 changed")
    assert f"changed: {NAMES[0]}: something else on NVIDIA H200, now ['bfloat16'" in done.stdout


def test_tuples_of_a_file_are_lists(tmp_path):
    path = tmp_path / "c.json"
    rows = [{"name": "a", "got": [(), 1]}]
    path.write_text(json.dumps({"device": "x", "checks": rows}))
    assert conformance.changes(rows, path) == []
