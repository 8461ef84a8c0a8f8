"""Indices out of range are an error on a GPU too: raised without waiting, at the next read of the device,
never a silent wrap.
"""

from __future__ import annotations

import pytest

import lucid
from lucid.autograd.record import RECORDED
from lucid.errors import IndexRangeError, ShapeError
from lucid.nn import functional as F
from lucid.storage import backend_of, deferred


def on(d, *values):
    return lucid.tensor(values, device=d)


def ones(d, *shape):
    return lucid.ones(*shape, device=d, requires_grad=True)


def written(x, index, value):
    x = x.clone()
    x[index] = value
    return x


ROWS = r"indices must lie in \[0, 3\] for 4 rows, got"
CLASSES = r"targets .* \[0, 2\] .* got"
THREE = r"is out of range for dim 0 of size 3"
UNPOOL = r"max_unpool: an index lies outside the output size \(4,\) \(found"
# What takes indices -> (a call with one out of range, what the error says).
BAD = {
    "embedding": (lambda d: F.embedding(on(d, 0, 7), ones(d, 4, 3)), f"embedding: {ROWS} 7"),
    "embedding, negative": (lambda d: F.embedding(on(d, 0, -1), ones(d, 4, 3)), f"embedding: {ROWS} -1"),
    "embedding_backward": (
        lambda d: RECORDED.embedding_backward(ones(d, 2, 3), on(d, 0, 7), 4),
        f"embedding_backward: {ROWS} 7",
    ),
    "embedding_backward, negative": (
        lambda d: RECORDED.embedding_backward(ones(d, 2, 3), on(d, -1, 0), 4),
        f"embedding_backward: {ROWS} -1",
    ),
    "embedding_backward, by frequency": (
        lambda d: RECORDED.embedding_backward(ones(d, 2, 3), on(d, 0, 7), 4, 1, True),
        f"embedding_backward: {ROWS} 7",
    ),
    "embedding_bag": (lambda d: F.embedding_bag(on(d, [0, 7]), ones(d, 4, 3)), f"embedding.*: {ROWS} 7"),
    "embedding_bag, maximum": (
        lambda d: F.embedding_bag(on(d, [0, 7]), ones(d, 4, 3), mode="max"),
        f"embedding.*: {ROWS} 7",
    ),
    "one_hot": (lambda d: F.one_hot(on(d, 0, 5), 3), r"one_hot: indices must lie in \[0, 2\].* got 5"),
    "cross_entropy": (lambda d: F.cross_entropy(ones(d, 2, 3), on(d, 0, -1)), f"cross_entropy: {CLASSES} -1"),
    "cross_entropy, smooth": (
        lambda d: F.cross_entropy(ones(d, 2, 3), on(d, 0, 3), label_smoothing=0.1),
        f"cross_entropy: {CLASSES} 3",
    ),
    "cross_entropy, weighted": (
        lambda d: F.cross_entropy(ones(d, 2, 3), on(d, 0, 3), weight=on(d, 1.0, 2.0, 3.0)),
        f"cross_entropy: {CLASSES} 3",
    ),
    "cross_entropy, images": (
        lambda d: F.cross_entropy(ones(d, 2, 3, 2), on(d, [0, 3], [1, 1])),
        f"cross_entropy: {CLASSES} 3",
    ),
    "nll_loss": (lambda d: F.nll_loss(ones(d, 2, 3), on(d, 0, 3)), f"nll_loss: {CLASSES} 3"),
    "nll_loss, images": (
        lambda d: F.nll_loss(ones(d, 2, 3, 2), on(d, [0, -5], [1, 1])),
        f"nll_loss: {CLASSES} -5",
    ),
    "multi_margin_loss": (lambda d: F.multi_margin_loss(ones(d, 2, 3), on(d, 0, 3)), "3"),
    "multilabel_margin_loss": (
        lambda d: F.multilabel_margin_loss(ones(d, 2, 3), on(d, [0, 3, -1], [1, 1, 1])),
        "3",
    ),
    "ctc_loss": (
        lambda d: F.ctc_loss(ones(d, 4, 1, 3), on(d, [1, 9]), on(d, 4), on(d, 2)),
        "ctc_loss: .*9",
    ),
    "gather": (
        lambda d: lucid.gather(ones(d, 2, 3), 1, on(d, [5])),
        "gather: index 5 is out of range for dim 1 of size 3",
    ),
    "take_along_dim": (lambda d: lucid.take_along_dim(ones(d, 2, 3), on(d, [5], [0]), 1), "index 5 is out"),
    "getitem": (lambda d: ones(d, 3)[on(d, 0, -4)], f"getitem: index -4 {THREE}"),
    "getitem, two": (lambda d: ones(d, 4, 3)[on(d, 0, 1), on(d, 0, 3)], "getitem: index 3 .* dim 1"),
    "setitem": (lambda d: written(ones(d, 3), on(d, 0, 3), ones(d, 2)), f"index 3 {THREE}"),
    "setitem, a number": (lambda d: written(ones(d, 3), on(d, 0, 3), 2.0), f"index 3 {THREE}"),
    "setitem, no gradient": (
        lambda d: written(ones(d, 3).detach(), on(d, 0, 3), on(d, 1.0, 2.0)),
        f"index 3 {THREE}",
    ),
    "index_put": (lambda d: ones(d, 3).index_put((on(d, 0, 3),), ones(d, 2)), f"index 3 {THREE}"),
    "index_put, added": (
        lambda d: ones(d, 3).index_put((on(d, 0, 3),), ones(d, 2), True),
        f"index 3 {THREE}",
    ),
    "index_select": (lambda d: ones(d, 3).index_select(0, on(d, 3)), f"index_select: index 3 {THREE}"),
    "index_add": (
        lambda d: ones(d, 3, 2).index_add(0, on(d, 0, 3), ones(d, 2, 2)),
        f"index_add: index 3 {THREE}",
    ),
    "index_copy": (lambda d: ones(d, 3, 2).index_copy(0, on(d, 0, 3), ones(d, 2, 2)), f"index 3 {THREE}"),
    "index_fill": (lambda d: ones(d, 3, 2).index_fill(0, on(d, 0, 3), 2.0), f"index_fill: index 3 {THREE}"),
    "index_reduce": (
        lambda d: ones(d, 3, 2).index_reduce(0, on(d, 0, 3), ones(d, 2, 2), "amax"),
        "index 3 is out of range",
    ),
    "scatter": (lambda d: ones(d, 3).scatter(0, on(d, 0, 3), ones(d, 2)), f"scatter: index 3 {THREE}"),
    "scatter, a number": (lambda d: ones(d, 3).scatter(0, on(d, 0, 3), 2.0), f"scatter: index 3 {THREE}"),
    "scatter_add": (lambda d: ones(d, 3).scatter_add(0, on(d, 9), ones(d, 1)), f"index 9 {THREE}"),
    **{
        f"scatter_reduce, {r}": (
            lambda d, r=r: ones(d, 3).scatter_reduce(0, on(d, 9, 1), ones(d, 2), r),
            f"scatter_(add|reduce): index 9 {THREE}",
        )
        for r in ("sum", "mean", "prod", "amax", "amin")
    },
    "take": (lambda d: lucid.take(ones(d, 2, 2), on(d, -5)), "take: index -5 is out of range"),
    "put": (lambda d: ones(d, 2, 2).put(on(d, 4), ones(d, 1)), "put: index 4 is out of range"),
    "put, added": (lambda d: ones(d, 2, 2).put(on(d, -5), ones(d, 1), True), "put: index -5 is out of range"),
    "bincount": (lambda d: lucid.bincount(on(d, 0, -1)), "-1"),
    "max_unpool": (lambda d: F.max_unpool1d(ones(d, 1, 1, 2), on(d, [[0, 9]]), 2), rf"{UNPOOL} 9\)"),
    "lu_unpack": (
        lambda d: lucid.lu_unpack(ones(d, 2, 2), lucid.tensor([1, 5], dtype=lucid.int32, device=d)),
        "5",
    ),
}
# Those whose answer the host needs for the shape or the course of the work: they wait.
AT_ONCE = {"ctc_loss", "bincount", "multilabel_margin_loss", "multi_margin_loss", "lu_unpack"}


def first(out):
    return out[0] if isinstance(out, tuple) else out


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
    done = []
    with pytest.raises((IndexRangeError, ShapeError), match=message):
        done.append(first(call(cuda)))
        lucid.cuda.synchronize() if read == "synchronize" else getattr(done[0], read)()
    assert done or name in AT_ONCE
    # Once, and the device goes on.
    lucid.ones(2, device=cuda).cpu()
    lucid.cuda.synchronize()


@pytest.mark.parametrize("name", BAD)
def test_raised_at_once_on_request(cuda, name):
    call, message = BAD[name]
    deferred.blocking(True)
    with pytest.raises((IndexRangeError, ShapeError), match=message):
        call(cuda)


def test_the_check_does_not_wait(simulated):
    table, index = lucid.ones(4, 3, device="cuda", requires_grad=True), lucid.tensor([0, 3], device="cuda")
    with simulated.counted() as counts:
        (table[index].sum() + F.embedding(index, table).sum()).backward()
    assert counts["syncs"] == counts["d2h_bytes"] == 0
    lucid.cuda.synchronize()


@pytest.mark.parametrize("deterministic", (True, False))
@pytest.mark.parametrize("name", [name for name in BAD if name not in AT_ONCE])
def test_backward_stays_inside_its_arrays(simulated, name, deterministic):
    """No kernel reads or writes outside before the error is seen, by atomic additions neither."""
    call, message = BAD[name]
    lucid.use_deterministic_algorithms(deterministic)
    try:
        with simulated.configured(mode="checked"):
            out = first(call("cuda"))
            if out.requires_grad:
                out.sum().backward()
    finally:
        lucid.use_deterministic_algorithms(True)
    with pytest.raises((IndexRangeError, ShapeError), match=message):
        lucid.cuda.synchronize()


def test_the_gradient_of_an_embedding_waits_for_no_check(simulated):
    """Its own check looks at the ends of the sorted indices: no pass over them."""
    g, index = lucid.ones(5, 3, device="cuda"), lucid.tensor([0, 3, 1, 3, 2], device="cuda")
    with simulated.counted() as counts:
        out = RECORDED.embedding_backward(g, index, 4)
    assert counts["syncs"] == 0 and out.tolist() == [[1.0] * 3, [1.0] * 3, [1.0] * 3, [2.0] * 3]
    with simulated.counted():
        RECORDED.embedding_backward(g, index, 4)
        (least, most, low, high, _), = deferred._noted[0]
    assert (int(least), int(most), low, high) == (0, 3, 0, 4) and least.base.size == 2


def test_many_unanswered_checks_wait_once(simulated, monkeypatch):
    monkeypatch.setattr(deferred, "MOST", 20)
    table, index = lucid.ones(4, 3, device="cuda"), lucid.tensor([0, 3], device="cuda")
    with simulated.counted() as counts:
        for _ in range(50):
            F.embedding(index, table)
    assert counts["syncs"] == 2 and len(deferred._noted[backend_of("cuda").index]) == 10
