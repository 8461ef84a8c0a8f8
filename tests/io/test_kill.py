"""A save that is killed (SIGKILL) between any two of its system calls leaves the old checkpoint or the new
one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys

import numpy as np
import pytest

import lucid

TRACEME, SYSCALL = 0, 24
WHOLE, PARTS = {}, {"max_shard_bytes": 900}


def content(epoch):
    """Four tensors and a number that all say `epoch`."""
    tensors = {f"w{i}": lucid.tensor(np.full(100, epoch, "float32")) for i in range(4)}
    return {"model": tensors, "epoch": epoch}


def killed_at(ptrace, step, save):
    """Whether `save()`, in a process of its own, was killed at its system call stop number `step`; False
    where it ended before.
    """
    pid = os.fork()
    if not pid:
        try:
            ptrace(TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            save()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    for _ in range(step):
        if not os.WIFSTOPPED(status):
            return False
        ptrace(SYSCALL, pid, None, None)
        _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace of Linux")
@pytest.mark.parametrize(("old", "new"), [(WHOLE, WHOLE), (WHOLE, PARTS), (PARTS, WHOLE), (PARTS, PARTS)],
                         ids=["file over file", "parts over file", "file over parts", "parts over parts"])
def test_killed_between_any_two_system_calls(old, new, tmp_path):
    library = ctypes.CDLL(None, use_errno=True)
    ptrace = library.ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    ptrace.restype = ctypes.c_long
    before, folder = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    lucid.save(content(1), before / "c.safetensors", **old)
    found = []
    for step in range(1, 100_000):
        shutil.copytree(before, folder)
        path = folder / "c.safetensors"
        killed = killed_at(ptrace, step, lambda path=path: lucid.save(content(2), path, **new))
        state = lucid.load(path)
        epoch = state["epoch"]
        assert all((w.numpy() == epoch).all() and w.shape == (100,) for w in state["model"].values()), step
        found.append(epoch)
        # The next save works as if nothing had happened.
        lucid.save(content(3), path, **new)
        assert lucid.load(path)["epoch"] == 3
        shutil.rmtree(folder)
        if not killed:
            break
    else:
        pytest.fail("the save does not end")
    if len(found) < 10:
        pytest.skip("this machine does not allow ptrace")
    # First the old one, from one moment on the new one.
    change = found.index(2)
    assert found == [1] * change + [2] * (len(found) - change) and change > 10
