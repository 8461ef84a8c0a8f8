"""Indices out of range are an error on a GPU too: raised without waiting, at the next read of the device,
never a silent wrap.
"""

from __future__ import annotations

import pytest

import lucid
from lucid.errors import IndexRangeError
from lucid.nn import functional as F
from lucid.storage import backend_of, deferred


def on(d, *values):
    return lucid.tensor(values, device=d)


BAD = {
    "embedding": (
        lambda d: F.embedding(on(d, 0, 7), lucid.ones(4, 3, device=d)),
        r"embedding: indices must lie in \[0, 3\] for 4 rows, got 7",
    ),
    "cross_entropy": (
        lambda d: F.cross_entropy(lucid.ones(2, 3, device=d), on(d, 0, -1)),
        r"cross_entropy: targets .* \[0, 2\] .* got -1",
    ),
    "gather": (
        lambda d: lucid.gather(lucid.ones(2, 3, device=d), 1, on(d, [5])),
        "gather: index 5 is out of range for dim 1 of size 3",
    ),
    "getitem": (
        lambda d: lucid.ones(3, device=d)[on(d, 0, -4)],
        "getitem: index -4 is out of range for dim 0 of size 3",
    ),
    "index_select": (
        lambda d: lucid.ones(3, device=d).index_select(0, on(d, 3)),
        "index_select: index 3 is out of range",
    ),
    "scatter_add": (
        lambda d: lucid.zeros(3, device=d).scatter_add(0, on(d, 9), lucid.ones(1, device=d)),
        "index 9 is out of range for dim 0 of size 3",
    ),
}


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    before = deferred.blocking()
    deferred.blocking(False)
    yield
    deferred.blocking(before)
    deferred._noted.clear()


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("read", ["cpu", "tolist", "synchronize"])
def test_raised_at_the_next_read(cuda, name, read):
    call, message = BAD[name]
    out = call(cuda)
    with pytest.raises(IndexRangeError, match=message):
        lucid.cuda.synchronize() if read == "synchronize" else getattr(out, read)()
    # Once, and the device goes on.
    out.cpu()
    lucid.cuda.synchronize()


@pytest.mark.parametrize("name", BAD)
def test_raised_at_once_on_request(cuda, name):
    call, message = BAD[name]
    deferred.blocking(True)
    with pytest.raises(IndexRangeError, match=message):
        call(cuda)


def test_the_check_does_not_wait(simulated):
    table, index = lucid.ones(4, 3, device="cuda", requires_grad=True), lucid.tensor([0, 3], device="cuda")
    with simulated.counted() as counts:
        (table[index].sum() + F.embedding(index, table).sum()).backward()
    assert counts["syncs"] == counts["d2h_bytes"] == 0
    lucid.cuda.synchronize()


def test_backward_stays_inside_its_arrays(cuda):
    table = lucid.ones(4, 3, device=cuda, requires_grad=True)
    F.embedding(lucid.tensor([0, 9], device=cuda), table).sum().backward()
    with pytest.raises(IndexRangeError, match="got 9"):
        table.grad.cpu()


def test_many_unanswered_checks_wait_once(simulated, monkeypatch):
    monkeypatch.setattr(deferred, "MOST", 20)
    table, index = lucid.ones(4, 3, device="cuda"), lucid.tensor([0, 3], device="cuda")
    with simulated.counted() as counts:
        for _ in range(50):
            F.embedding(index, table)
    assert counts["syncs"] == 2 and len(deferred._noted[backend_of("cuda").index]) == 10
