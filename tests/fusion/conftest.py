"""Fusion tests run on small arrays: the size below which the pass stays out of the way is lowered for
them.
"""

from __future__ import annotations

import pytest

from lucid import fusion
from lucid.fusion import patterns, rewrite
from lucid.testing import simulator


@pytest.fixture
def small(monkeypatch):
    for sizes in (patterns.FUSE_SIZE, patterns.MAP_SIZE, patterns.RUN_SIZE):
        for device in sizes:
            monkeypatch.setitem(sizes, device, 1)
    for p in patterns.PATTERNS:
        monkeypatch.setitem(p.__dict__, "min_size", 1)
    monkeypatch.setattr(rewrite, "MIN_SIZE", 1)
    patterns.sizes.cache_clear()
    fusion.reset_stats()
    yield
    patterns.sizes.cache_clear()


@pytest.fixture
def counted(device):
    if device == "cpu" or not simulator.is_on():
        pytest.skip("launches are counted on the simulated device")
