"""The checks for a machine with a GPU, on whatever device there is: what CuPy does, and the script itself."""

from __future__ import annotations

import json

import pytest

from lucid.storage import backend_of
from lucid.testing import conformance


@pytest.mark.parametrize("name", [name for name, _, _ in conformance.CHECKS])
def test_cupy_is_what_lucid_assumes(cuda, name):
    _, expected, function = next(c for c in conformance.CHECKS if c[0] == name)
    assert function(backend_of(cuda).cupy) == expected


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
