"""The DataLoader with worker processes: order, seeds, errors, deaths, time limits, nothing left behind."""

from __future__ import annotations

import glob
import os
import random
import signal
import time

import numpy as np
import pytest

import lucid
from lucid.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WorkerError, get_worker_info
from lucid.utils.data import worker as worker_module


class Rows(Dataset):
    def __init__(self, n=24, width=4000, action=None):
        self.n, self.width, self.action = n, width, action

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.action is not None:
            self.action(i)
        return np.full(self.width, i, "float32"), i


class Draws(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return np.array([get_worker_info().id, random.random(), np.random.random(), lucid.rand(1).item()])


class Shared(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 10 + info.id, info.num_workers))


def _fail(i):
    if i == 5:
        raise KeyError("row 5 is damaged")


def _die(i):
    if i == 5:
        os.kill(os.getpid(), signal.SIGKILL)


def _sleep(i):
    if i == 5:
        time.sleep(30)


class Unsendable(Exception):
    def __init__(self, a, b):
        super().__init__("cannot be sent")


def _unsendable(i):
    raise Unsendable(1, 2)


def _blocks():
    return set(glob.glob("/dev/shm/psm_*"))


@pytest.mark.parametrize("width", [3, 50_000])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_and_order_equal_one_process(width, workers):
    before = _blocks()

    def run(n):
        lucid.manual_seed(0)
        return list(DataLoader(Rows(24, width), batch_size=5, shuffle=True, num_workers=n))

    for a, b in zip(run(0), run(workers), strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x.numpy(), y.numpy())
            y.array[...] += 1  # The memory is the batch's own.
    assert _blocks() <= before


def test_whole_batches_in_workers():
    data = TensorDataset(lucid.arange(10), lucid.zeros(10, 4096))
    batches = list(DataLoader(data, batch_size=4, num_workers=2))
    assert [b[0].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_seeds_differ_by_worker_and_epoch_and_repeat():
    def run():
        lucid.manual_seed(3)
        loader = DataLoader(Draws(), num_workers=2)
        return [np.concatenate([b.numpy() for b in loader]) for _ in range(2)]

    a, b = run()
    again, _ = run()
    np.testing.assert_array_equal(a, again)
    assert set(a[:, 0]) == {0.0, 1.0}
    for column in (1, 2, 3):
        assert len(np.unique(np.concatenate([a[:, column], b[:, column]]))) == 16


@pytest.mark.parametrize("persistent", [False, True])
def test_iterable_datasets_and_epochs(persistent):
    loader = DataLoader(Shared(), batch_size=3, num_workers=2, persistent_workers=persistent)
    for _ in range(3):
        assert sorted(x for b in loader for x in b.tolist()) == list(range(10))


def test_persistent_workers_live_on_and_others_end():
    loader = DataLoader(Rows(), num_workers=2, persistent_workers=True)
    list(loader)
    pids = [p.pid for p in loader._pool.processes]
    next(iter(loader))  # An epoch that is given up.
    assert [b[1].item() for b in loader] == list(range(24))
    assert [p.pid for p in loader._pool.processes] == pids
    old = iter(loader)
    next(old)
    next(iter(loader))
    with pytest.raises(WorkerError, match="another iteration"):
        next(old)
    processes = loader._pool.processes
    del loader, old
    assert not any(p.is_alive() for p in processes)


def test_giving_up_an_epoch_ends_its_workers():
    before = _blocks()
    iterator = iter(DataLoader(Rows(60, 50_000), num_workers=2))
    next(iterator)
    processes = iterator.pool.processes
    del iterator
    assert not any(p.is_alive() for p in processes)
    assert _blocks() <= before


def test_errors_keep_their_type_and_the_workers_traceback():
    loader = DataLoader(Rows(action=_fail), num_workers=2)
    with pytest.raises(KeyError, match="row 5 is damaged") as caught:
        list(loader)
    assert "in DataLoader worker 1" in str(caught.value.__cause__) and "in _fail" in str(
        caught.value.__cause__
    )
    with pytest.raises(WorkerError, match="Unsendable: cannot be sent"):
        list(DataLoader(Rows(action=_unsendable), num_workers=1))
    # After an error the loader starts anew.
    loader.dataset.action = None
    assert len(list(loader)) == 24


def test_a_dead_worker_is_an_error_and_no_hang():
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker 1 \(pid \d+\) died \(killed by SIGKILL\)"):
        list(DataLoader(Rows(action=_die), num_workers=2))
    assert time.monotonic() - start < 10


def test_timeout():
    start = time.monotonic()
    with pytest.raises(WorkerError, match="batch 5 did not come from worker 1 within timeout=0.5"):
        list(DataLoader(Rows(action=_sleep), num_workers=2, timeout=0.5))
    assert time.monotonic() - start < 15


def test_worker_init_fn_and_its_errors():
    def init(number):
        worker_module._info_of_test = number * 10

    class Reads(Rows):
        def __getitem__(self, i):
            return worker_module._info_of_test

    assert sorted({b.item() for b in DataLoader(Reads(), num_workers=2, worker_init_fn=init)}) == [0, 10]

    def bad(number):
        raise ValueError("no licence for worker 0")

    with pytest.raises(ValueError, match="no licence"):
        list(DataLoader(Rows(), num_workers=1, worker_init_fn=bad))


def test_large_requests_do_not_block():
    # Indices and answers that both exceed a pipe's buffer: 64 KB.
    loader = DataLoader(
        range(200_000),
        batch_size=50_000,
        num_workers=1,
        prefetch_factor=4,
        shuffle=True,
        collate_fn=lambda samples: [list(samples)] * 3,
    )
    assert sum(len(b[0]) for b in loader) == 200_000


def test_resume_with_workers():
    lucid.manual_seed(0)
    loader, taken, state = DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=2), [], None
    for i, batch in enumerate(loader):
        taken.append(batch[1].tolist())
        if i == 1:
            state = loader.state_dict()
    resumed = DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=2)
    resumed.load_state_dict(state)
    assert [b[1].tolist() for b in resumed] == taken[2:]


def test_spawned_workers():
    loader = DataLoader(Rows(4, 10), num_workers=1, multiprocessing_context="spawn")
    assert [b[1].item() for b in loader] == [0, 1, 2, 3]


def test_pack_and_unpack():
    value = {
        "x": np.arange(10_000.0),
        "t": lucid.ones(3, 5000),
        "s": "text",
        "e": np.zeros((0, 3)),
        "f": np.asfortranarray(np.ones((90, 90))),
    }
    message = worker_module.pack(value)
    assert message[0] is None
    back = worker_module.unpack(message)
    np.testing.assert_array_equal(back["x"], value["x"])
    assert (
        back["t"].shape == (3, 5000)
        and back["s"] == "text"
        and back["e"].shape == (0, 3)
        and back["f"].flags.f_contiguous
    )
    assert worker_module.pack([1])[0] is not None
    message = worker_module.pack(value)
    worker_module.discard(message)
    worker_module.discard(message)
