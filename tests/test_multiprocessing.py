"""Tensors between processes: copies, shared memory, spawn and its errors."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import lucid
from lucid import multiprocessing as mp
from lucid import nn
from lucid.storage import shared

FORK = mp.get_context("fork")


def run(folder, text):
    """The output of a script in a fresh process."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120,
                          cwd=os.getcwd(), env={**os.environ, "PYTHONPATH": os.getcwd()})
    return done


def test_queue_copies(device):
    queue = FORK.Queue()
    x = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    queue.put(x)
    y = queue.get(timeout=60)
    assert y.tolist() == [1.0, 2.0] and y.requires_grad and y.device == x.device
    with lucid.no_grad():
        y.zero_()
    assert x.tolist() == [1.0, 2.0]


def test_shared_memory_is_the_same_memory():
    x = lucid.arange(6.0).reshape(2, 3).clone()
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared() and x[1].is_shared()
    queue, answer, done = FORK.Queue(), FORK.Queue(), FORK.Event()

    def child():
        y = queue.get()
        y += 10
        answer.put(y[1])  # a view of it travels too
        done.wait(60)  # memory that is sent stays with its sender until it has arrived

    process = FORK.Process(target=child)
    process.start()
    queue.put(x)
    row = answer.get(timeout=60)
    done.set()
    process.join()
    assert row.tolist() == [13.0, 14.0, 15.0] and row.is_shared()
    row.zero_()
    assert x.tolist() == [[10.0, 11.0, 12.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "complex128", "bool"])
def test_any_dtype(dtype):
    x = lucid.ones(3, 2, dtype=dtype).share_memory_()
    found = shared.attach(shared.place(x.array)._replace(fd=os.dup(shared.place(x.array).fd)))
    assert found.dtype == x.dtype and (found == x.array).all()
    found[1] = 0
    assert not x.array[1].any()


def test_nothing_is_left_open():
    def files():
        return len(os.listdir("/proc/self/fd"))

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("counts open files in /proc")
    gc.collect()
    before = files()
    x = lucid.ones(1000).share_memory_()
    view = x[3:]
    assert files() > before
    del x
    assert view.sum().item() == 997
    del view
    gc.collect()
    assert files() == before


def test_what_cannot_be_shared():
    x = lucid.ones(3)
    with pytest.raises(lucid.errors.LucidError, match="the tensor is a view"):
        x.detach().share_memory_()
    with pytest.raises(ValueError, match="only 'file_descriptor'"):
        mp.set_sharing_strategy("file_system")


def test_cuda_memory_is_not_shared(device):
    if device == "cpu":
        pytest.skip("the message for other devices")
    x = lucid.ones(3, device=device)
    assert not x.is_shared()
    with pytest.raises(lucid.errors.LucidError, match="whose memory is not shared between processes"):
        x.share_memory_()


def test_a_shared_model_is_trained_by_several_processes(tmp_path):
    done = run(tmp_path, """
        import lucid as torch
        import lucid.multiprocessing as mp
        from lucid import nn

        def train(rank, model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()

        if __name__ == "__main__":
            mp.set_start_method("spawn", force=True)
            model = nn.Linear(2, 1)
            with torch.no_grad():
                model.weight.zero_(), model.bias.zero_()
            model.share_memory()
            for rank in range(2):  # one after the other: updates of two at once could be lost
                p = mp.Process(target=train, args=(rank, model))
                p.start()
                p.join()
            print(model.weight.tolist(), model.bias.tolist(), p.exitcode)
        """)
    assert done.stdout.split("\n")[0] == "[[-3.0, -3.0]] [-3.0] 0", done.stderr


def test_module_share_memory():
    model = nn.BatchNorm1d(3).share_memory()
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
    assert isinstance(model.weight, nn.Parameter)
    before = model.running_mean.array.copy()
    model(lucid.randn(4, 3)).sum().backward()
    assert model.running_mean.is_shared() and not np.array_equal(before, model.running_mean.array)


SPAWN = """
    import os, signal, sys, time
    import lucid as torch
    import lucid.multiprocessing as mp

    def work(index, kind, out):
        if kind == "ok":
            out[index] += index + 1
        elif kind == "raises" and index == 1:
            raise ValueError("no luck")
        elif kind == "exits" and index == 1:
            sys.exit(3)
        elif kind == "killed" and index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            time.sleep(60)  # is ended by the one that fails

    if __name__ == "__main__":
        out = torch.zeros(3).share_memory_()
        mp.spawn(work, args=("ok", out), nprocs=3)
        print(out.tolist())
        for kind in ("raises", "exits", "killed"):
            start = time.time()
            try:
                mp.spawn(work, args=(kind, out), nprocs=2)
            except mp.ProcessException as error:
                print(type(error).__name__, error.error_index, str(error).replace("\\n", "|"))
                assert time.time() - start < 40
    """


def test_spawn(tmp_path):
    done = run(tmp_path, SPAWN)
    lines = done.stdout.splitlines()
    assert lines[0] == "[1.0, 2.0, 3.0]", done.stderr
    assert re.fullmatch(r"ProcessRaisedException 1 process 1 of spawn raised an exception:\|.*"
                        r"ValueError: no luck\|", lines[1])
    assert lines[2] == "ProcessExitedException 1 process 1 of spawn ended with exit code 3"
    assert lines[3] == "ProcessExitedException 1 process 1 of spawn was ended by SIGKILL"
