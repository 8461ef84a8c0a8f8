"""Collectives between real processes, against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lucid.distributed.process_group import ReduceOp, check_op, combine
from lucid.errors import DtypeError
from lucid.storage.dtype import bfloat16

EVERYTHING = """
    device = os.environ.get("DEVICE", "cpu")

    def data(rank, size, dtype="float32"):
        g = np.random.default_rng([rank, size])
        return (g.normal(size=size) * 100).astype(dtype)

    def tensor(a):
        return torch.tensor(a, device=device)

    def host(t):
        return t.detach().cpu().numpy()

    def check(t, expected):
        np.testing.assert_array_equal(host(t), expected)

    def every(size, dtype="float32"):
        return [data(r, size, dtype) for r in range(WORLD)]

    # On both sides of the size up to which data travels with the announcement (16 KB), and in pieces (1 MB).
    for size in (1, 7, 5000, 300_001):
        ranks = every(size)
        total = ranks[0].copy()
        for a in ranks[1:]:
            total += a  # in the order of the ranks
        for op, expected in (
            (dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total / np.float32(WORLD)),
            (dist.ReduceOp.MIN, np.minimum.reduce(ranks)), (dist.ReduceOp.MAX, np.maximum.reduce(ranks)),
        ):
            x = tensor(ranks[RANK])
            version = x._version
            dist.all_reduce(x, op)
            check(x, expected)
            assert x._version == version + 1
        x = tensor(ranks[RANK])
        work = dist.all_reduce(x, async_op=True)
        y = tensor(ranks[RANK])
        dist.all_reduce(y, dist.ReduceOp.PRODUCT)  # behind the one under way
        assert work.wait() and work.is_completed() and work.is_success() and work.result() == [x]
        check(x, total)
        for src in (0, WORLD - 1):
            x = tensor(ranks[RANK])
            dist.broadcast(x, src)
            check(x, ranks[src])
            x = tensor(ranks[RANK])
            dist.reduce(x, src)
            check(x, total if RANK == src else ranks[RANK])
            outs = [tensor(np.zeros(size, "float32")) for _ in ranks] if RANK == src else None
            dist.gather(tensor(ranks[RANK]), outs, src)
            for out, a in zip(outs or (), ranks):
                check(out, a)
            x = tensor(np.zeros(size, "float32"))
            dist.scatter(x, [tensor(a * 2) for a in ranks] if RANK == src else None, src)
            check(x, ranks[RANK] * 2)
        outs = [tensor(np.zeros(size, "float32")) for _ in ranks]
        dist.all_gather(outs, tensor(ranks[RANK]))
        for out, a in zip(outs, ranks):
            check(out, a)
        x = tensor(np.zeros(size * WORLD, "float32"))
        dist.all_gather_into_tensor(x, tensor(ranks[RANK]))
        check(x, np.concatenate(ranks))
        # Rank r's part for rank i is its data times i + 1.
        parts = [tensor(ranks[RANK] * np.float32(i + 1)) for i in range(WORLD)]
        expected = ranks[0] * np.float32(RANK + 1)
        for a in ranks[1:]:
            expected = expected + a * np.float32(RANK + 1)
        x = tensor(np.zeros(size, "float32"))
        dist.reduce_scatter(x, parts)
        check(x, expected)
        x = tensor(np.zeros(size, "float32"))
        dist.reduce_scatter_tensor(x, torch.cat(parts))
        check(x, expected)
        outs = [tensor(np.zeros(size, "float32")) for _ in ranks]
        dist.all_to_all(outs, parts)
        for out, a in zip(outs, ranks):
            check(out, a * np.float32(RANK + 1))
        if RANK == 0:
            dist.send(tensor(ranks[0]), 1, tag=3)
            x = tensor(np.zeros(size, "float32"))
            assert dist.recv(x, 1) == 1
            check(x, ranks[1])
        elif RANK == 1:
            x = tensor(np.zeros(size, "float32"))
            dist.recv(x, 0, tag=3)
            check(x, ranks[0])
            dist.send(tensor(ranks[1]), 0)

    # Other dtypes and layouts.
    for dtype in ("float64", "int32", "uint8", "complex64"):
        ranks = every(9, "float64")
        with np.errstate(all="ignore"):
            ranks = [(a % 50).astype(dtype) for a in ranks]
        x = tensor(ranks[RANK])
        dist.all_reduce(x)
        total = ranks[0]
        for a in ranks[1:]:
            total = total + a
        check(x, total)
    flags = tensor(np.array([RANK == 0, True, False]))
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    check(flags, [True, True, False])
    bits = tensor(np.array([1 << RANK, 7]))
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    check(bits, [(1 << WORLD) - 1, 7])
    table = tensor(np.zeros((4, 6), "float32"))
    dist.all_reduce(table[:, ::2].copy_(torch.ones(4, 3) * (RANK + 1)))  # a view that is not contiguous
    check(table[:, ::2], np.full((4, 3), sum(range(1, WORLD + 1))))
    check(table[:, 1::2], np.zeros((4, 3)))
    scalar = tensor(np.float32(RANK))
    dist.all_reduce(scalar)
    assert scalar.shape == () and scalar.item() == sum(range(WORLD))
    empty = tensor(np.zeros((0, 3), "float32"))
    dist.all_reduce(empty), dist.broadcast(empty, 0)
    dist.gather(empty, [empty] * WORLD if RANK == 0 else None)

    # Objects.
    objects = [None, None]
    if RANK == 0:
        objects = [{"rank": RANK, "w": torch.arange(3) * RANK, "t": (1, None, "x")}, RANK]
    dist.broadcast_object_list(objects, 0)
    assert objects[0]["t"] == (1, None, "x") and objects[0]["w"].tolist() == [0, 0, 0] and objects[1] == 0
    found = [None] * WORLD
    dist.all_gather_object(found, {"rank": RANK, "long": "x" * (RANK * 100_000)})
    assert [(f["rank"], len(f["long"])) for f in found] == [(r, r * 100_000) for r in range(WORLD)]
    found = [None] * WORLD
    dist.gather_object([RANK], found if RANK == 0 else None)
    assert found == ([[r] for r in range(WORLD)] if RANK == 0 else [None] * WORLD)

    # Groups.
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (RANK, WORLD, "gloo")
    assert dist.get_node_local_rank() == RANK and dist.is_torchelastic_launched()
    pair = dist.new_group([0, WORLD - 1])
    if RANK in (0, WORLD - 1):
        x = tensor(data(RANK, 5))
        dist.all_reduce(x, group=pair)
        check(x, data(0, 5) + data(WORLD - 1, 5))
        assert dist.get_world_size(pair) == 2 and dist.get_group_rank(pair, WORLD - 1) == 1
        assert dist.get_process_group_ranks(pair) == [0, WORLD - 1]
        x = tensor(np.float32(RANK))
        dist.broadcast(x, group_src=1, group=pair)
        assert x.item() == WORLD - 1
    else:
        assert pair == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
        dist.all_reduce(tensor(np.zeros(5)), group=pair)  # not a member: nothing happens
    dist.barrier()
    dist.monitored_barrier(timeout=30)
    dist.destroy_process_group()
    assert not dist.is_initialized()
    print("all is well", flush=True)
    """


def test_three_processes(launch):
    assert launch(EVERYTHING, 3).stdout.count("all is well") == 3


def test_tensors_on_a_device(launch, device):
    if device == "cpu":
        pytest.skip("the CPU is tested with three processes")
    done = launch(EVERYTHING, 2, env={"DEVICE": device})
    assert done.stdout.count("all is well") == 2


def test_all_ranks_and_runs_get_the_same_bits(launch):
    text = """
        import hashlib
        digest = hashlib.sha256()
        for size, dtype in ((1000, "float32"), (40_000, "float32"), (40_000, "bfloat16"), (9000, "float16")):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT):
                x = torch.tensor(np.random.default_rng(RANK).normal(size=size)).to(dtype=dtype)
                dist.all_reduce(x, op)
                digest.update(x.array.tobytes())
        dist.barrier()
        print(digest.hexdigest(), flush=True)
        """
    # Not by lines: those of several processes may run into each other.
    digests = [d for _ in range(2) for d in re.findall(r"[0-9a-f]{64}", launch(text, 3).stdout)]
    assert len(digests) == 6 and len(set(digests)) == 1


def test_low_dtypes_are_summed_in_float32():
    # 1 + 256 * (1/256): in bfloat16 each step would be rounded away.
    parts = [np.array([1.0], bfloat16), *[np.array([1 / 256], bfloat16)] * 256]
    assert combine(parts, ReduceOp.SUM)[0] == 2.0 and combine(parts, ReduceOp.SUM).dtype == bfloat16


def test_reductions_that_do_not_exist():
    for op, dtype, text in ((ReduceOp.AVG, "int64", "AVG does not exist for int64"),
                            (ReduceOp.BAND, "float32", "BAND does not exist for float32"),
                            (ReduceOp.MAX, "complex64", "MAX does not exist for complex64")):
        with pytest.raises(DtypeError, match=f"all_reduce: {text}"):
            check_op("all_reduce", op, np.dtype(dtype))
    with pytest.raises(DtypeError, match="op must be a ReduceOp, got 'sum'"):
        check_op("all_reduce", "sum", np.dtype("float32"))
