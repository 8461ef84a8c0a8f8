"""Kernel tests run on the CPU simulator; without g++ they are skipped, and say so."""

import numpy as np
import pytest

from lucid.testing import cusim
from tests.kernels.sim import crowded, in_child


def pytest_pyfunc_call(pyfuncitem):
    """True after the test has run; in a child process once the simulator has taken much of
    this one's room for mappings.
    """
    if not crowded():
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    in_child(lambda: pyfuncitem.obj(**arguments) and None)
    return True


# What the gates found, for the summary: (kind, of what) -> text.
_TABLE = {}


@pytest.fixture(scope="session")
def kernel_table():
    """A dictionary whose entries the run prints at its end."""
    return _TABLE


def pytest_terminal_summary(terminalreporter):
    if _TABLE:
        terminalreporter.section("kernels on the simulator")
        for (_, what), text in sorted(_TABLE.items()):
            terminalreporter.write_line(f"{what:28} {text}")


@pytest.fixture(autouse=True)
def _needs_simulator():
    ok, reason = cusim.available()
    if not ok:
        pytest.skip(reason)
    with np.errstate(all="ignore"):
        yield
