"""Kernel tests run on the CPU simulator; without g++ they are skipped, and say so."""

import numpy as np
import pytest

from lucid.testing import cusim


@pytest.fixture(autouse=True)
def _needs_simulator():
    ok, reason = cusim.available()
    if not ok:
        pytest.skip(reason)
    with np.errstate(all="ignore"):
        yield
