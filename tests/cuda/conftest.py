"""The `cuda` fixture: device "cuda", real or simulated, for tests that make no sense on the CPU."""

from __future__ import annotations

import pytest

from lucid.ops.registry import OPS
from lucid.testing.plugin import why_not


def pytest_generate_tests(metafunc):
    if "cuda" not in metafunc.fixturenames:
        return
    names = [n for n in metafunc.config.getoption("--device").split(",") if n != "cpu"] or ["cuda"]
    params = []
    for name in names:
        reason = why_not(name, metafunc.config)
        marks = [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
        params.append(pytest.param("cuda", id=name, marks=marks))
    metafunc.parametrize("cuda", params)


@pytest.fixture
def simulated(cuda, request):
    """The simulator, for tests that count or that look into kernels."""
    from lucid.testing import simulator

    if not simulator.is_on():
        pytest.skip("counts are those of the simulator; run with --device cuda-sim")
    return simulator


@pytest.fixture(autouse=True)
def ops_as_before():
    """Kernels made by a test leave no op behind."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        del OPS[name]
