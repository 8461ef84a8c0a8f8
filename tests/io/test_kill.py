"""A save that is killed (SIGKILL) between any two of its system calls leaves the old checkpoint or the new
one.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

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
        # The next save works as if nothing had happened, and leaves nothing of the killed one.
        lucid.save(content(3), path, **new)
        assert lucid.load(path)["epoch"] == 3
        names = os.listdir(folder)
        parts = [re.sub(r"[0-9a-f]{8}", "*", name) for name in sorted(names)]
        wanted = [f"c-0000{i}-of-00002-*.safetensors" for i in (1, 2)] + ["c.safetensors.index.json"]
        assert parts == (["c.safetensors"] if new is WHOLE else wanted), step
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


SAVER = """
import sys, lucid
state = {f"w{i}": lucid.zeros(100_000) for i in range(20)}
print("ready", flush=True)
while True:
    lucid.save(state, sys.argv[1], **eval(sys.argv[2]))
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("how", [WHOLE, {"max_shard_bytes": 800_000}], ids=["file", "parts"])
def test_what_killed_programs_leave_goes_with_the_next_save(how, tmp_path):
    """Also where a program of the same process number, or another file of the folder, is alive."""
    path, left = tmp_path / "c.safetensors", 0
    for attempt in range(40):
        command = [sys.executable, "-c", SAVER, str(path), repr(how)]
        program = subprocess.Popen(command, stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        program.stdout.readline()
        threading.Event().wait(0.02 + 0.013 * (attempt % 7))
        program.kill()
        program.wait()
        left += len(list(tmp_path.glob(".*.tmp")))
        if left:
            break
    # What a dead process of this one's number would have left.
    (tmp_path / f".c.safetensors.{os.getpid()}.00000000.tmp").write_bytes(b"half")
    (tmp_path / ".other.safetensors.1.00000000.tmp").write_bytes(b"not ours")
    lucid.save(content(3), path, **how)
    assert left and lucid.load(path)["epoch"] == 3
    assert [f.name for f in tmp_path.glob(".*")] == [".other.safetensors.1.00000000.tmp"]


@pytest.mark.skipif(os.name != "posix", reason="file locks")
def test_nothing_of_a_save_under_way_or_of_another_index_is_removed(tmp_path):
    path = tmp_path / "c.safetensors"
    lucid.save(content(1), path, **PARTS)
    # A second index over the same parts, and a checkpoint whose parts begin alike.
    shutil.copy(f"{path}.index.json", tmp_path / "best.safetensors.index.json")
    lucid.save(content(2), tmp_path / "c", **PARTS)
    with lucid.io.replaced(path) as stream:
        stream.write(b"")
        lucid.save(content(3), path, **PARTS)
        assert len(list(tmp_path.glob(".c.safetensors.*.tmp"))) == 1
        lucid.save(content(4), path)
    assert lucid.load(tmp_path / "best.safetensors.index.json")["epoch"] == 1
    assert lucid.load(tmp_path / "c.index.json")["epoch"] == 2
    assert not list(tmp_path.glob(".*"))


def test_parts_that_are_being_written_stay(tmp_path, monkeypatch):
    """Two saves in parts to one path at the same time: the one that ends last is whole."""
    path, inner = tmp_path / "c.safetensors", []
    write = lucid.io.checkpoint.write

    def slow(stream, arrays, tree):
        write(stream, arrays, tree)
        if len(inner) == 1:
            inner.append(None)
            lucid.save(content(2), path, **PARTS)
        inner.append(None)

    monkeypatch.setattr(lucid.io.checkpoint, "write", slow)
    lucid.save(content(1), path, **PARTS)
    assert lucid.load(path)["epoch"] == 1 and len(inner) == 5
    assert len(list(tmp_path.iterdir())) == 3
