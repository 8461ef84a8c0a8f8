"""Pinned memory, and copies to the device beside the computation."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import lucid
from lucid.testing import simulator
from lucid.utils.data import DataLoader, Prefetcher, TensorDataset

Pair = collections.namedtuple("Pair", "x y")


class Own:
    """A batch of the user's own kind."""

    def __init__(self, batch):
        self.x, self.pins = lucid.stack([b[0] for b in batch]), 0

    def pin_memory(self):
        self.x, self.pins = self.x.pin_memory(), self.pins + 1
        return self


def data(n=10):
    return TensorDataset(lucid.arange(3 * n, dtype=lucid.float32).reshape(n, 3), lucid.arange(n))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_lie_in_pinned_memory_where_there_is_a_gpu(device, workers):
    lucid.zeros(1, device=device)
    gpu = lucid.cuda.is_available()
    loader = DataLoader(data(), batch_size=4, pin_memory=True, num_workers=workers)
    assert len(loader) == len(iter(loader)) == 3
    seen = list(loader)
    assert [y.tolist() for _, y in seen] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all(t.is_pinned() == gpu and t.device.type == "cpu" for batch in seen for t in batch)
    assert not any(t.is_pinned() for batch in DataLoader(data(), batch_size=4) for t in batch)

    def collate(batch):
        return {"pair": Pair(*batch[0]), "names": ["a"], "n": 3, "own": Own(batch)}

    batch = next(iter(DataLoader(data(), batch_size=2, pin_memory=True, collate_fn=collate)))
    assert isinstance(batch["pair"], Pair) and batch["names"] == ["a"] and batch["n"] == 3
    assert batch["pair"].x.is_pinned() == batch["own"].x.is_pinned() == gpu and batch["own"].pins == gpu


@pytest.mark.parametrize("workers", [0, 2])
def test_prefetched_batches_are_the_loaders(device, workers):
    batches = Prefetcher(DataLoader(data(), batch_size=4, num_workers=workers, pin_memory=True), device)
    assert len(batches) == 3
    for _ in range(2):
        # Kept, so that memory which is reused too early would be seen.
        kept = [(x * 1, y, x) for x, y in batches]
        assert all(str(t.device) == str(lucid.zeros(1, device=device).device) for row in kept for t in row)
        x = np.arange(30, dtype="f4").reshape(10, 3)
        for i, (product, y, own) in enumerate(kept):
            np.testing.assert_array_equal(product.numpy(force=True), x[4 * i : 4 * i + 4])
            np.testing.assert_array_equal(own.numpy(force=True), x[4 * i : 4 * i + 4])
            np.testing.assert_array_equal(y.numpy(force=True), np.arange(10)[4 * i : 4 * i + 4])


def test_a_loop_goes_on_after_the_batch_that_was_given_last(device):
    def loader():
        lucid.manual_seed(0)
        return Prefetcher(DataLoader(data(), batch_size=2, shuffle=True), device)

    whole = [y.tolist() for _, y in loader()]
    for stop in range(1, 5):
        batches = loader()
        seen = []
        for _, y in batches:
            seen.append(y.tolist())
            if len(seen) == stop:
                state = batches.state_dict()
                break
        rest = loader()
        rest.load_state_dict(state)
        assert seen + [y.tolist() for _, y in rest] == whole, stop
    batches = loader()
    list(batches)
    assert batches.state_dict()["batches"] == 0


def test_the_host_does_not_wait(device):
    if device == "cpu" or not simulator.is_on():
        pytest.skip("waits are counted on the simulated device")
    batches = iter(Prefetcher(DataLoader(data(), batch_size=2), device))
    next(batches)
    with simulator.counted() as counts:
        x, y = next(batches)
        (x + x).sum()
    assert counts["syncs"] == 0 and counts["d2h_bytes"] == 0
    # One batch: the third, copied while the second is at work.
    assert counts["h2d_bytes"] == 2 * 3 * 4 + 2 * 8


def test_copies_are_ordered_after_the_work_that_reads_their_memory(device, monkeypatch):
    """Each begins after all work queued so far, from pinned memory; each batch is waited for on the device.
    """
    if device == "cpu":
        pytest.skip("nothing is copied")
    calls = []
    for name in ("wait_stream", "wait_event"):
        own = getattr(lucid.cuda.Stream, name)
        monkeypatch.setattr(lucid.cuda.Stream, name,
                            lambda self, x, own=own, name=name: (calls.append(name), own(self, x))[1])
    to = lucid.Tensor.to

    def moved(self, *args, **kwargs):
        calls.append((self.is_pinned(), kwargs))
        return to(self, *args, **kwargs)

    monkeypatch.setattr(lucid.Tensor, "to", moved)
    loader = DataLoader(lucid.arange(6.0), batch_size=2)
    for _ in Prefetcher(loader, device):
        calls.append("given")
    copy = ["wait_stream", "wait_event", (True, {"non_blocking": True})]
    assert calls == copy + 2 * [*copy, "wait_event", "given"] + ["wait_event", "given"]


def test_errors_of_the_loader_come_through(device):
    def bad():
        yield lucid.ones(2)
        raise KeyError("row 7")

    seen = []
    with pytest.raises(KeyError, match="row 7"):
        for x in Prefetcher(bad(), device):
            seen.append(x)
    assert len(seen) == 1


def test_batches_that_are_there_already(device):
    x = lucid.arange(4.0, device=device)
    assert [b.tolist() for b in Prefetcher([x], device)] == [[0.0, 1.0, 2.0, 3.0]]
    loader = DataLoader(TensorDataset(x), batch_size=2, pin_memory=True)
    assert [b.device for (b,) in loader] == [x.device] * 2


def test_what_can_move_moves_by_itself(device):
    packed = lucid.nn.utils.rnn.pack_sequence([lucid.ones(3, 2), lucid.ones(2, 2)])
    (found,) = Prefetcher([{"text": "a", "packed": packed}], device)
    assert found["text"] == "a" and found["packed"].data.device.type == lucid.device(device).type
    assert found["packed"].batch_sizes.device.type == "cpu"  # lengths are for the host
