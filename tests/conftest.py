"""The simulated CUDA device stays for a whole run, whatever a test of the simulator itself takes away."""

from __future__ import annotations

import os

import pytest

from lucid.testing import strictcupy


@pytest.fixture(autouse=True)
def _simulator_stays():
    if os.environ.get("LUCID_CUDA") == "sim" and not strictcupy.installed():
        strictcupy.install()
    yield
