"""The calls that go to NCCL, on a stand-in for it: names, arguments, dtypes. No GPU runs here."""

from __future__ import annotations

import ctypes
import types

import numpy as np
import pytest

import lucid
import lucid.distributed as dist
from lucid.errors import DistributedError
from lucid.storage.backend import backend_of

# ncclDataType_t and ncclRedOp_t (nccl.h).
CODES = dict(NCCL_INT8=0, NCCL_UINT8=1, NCCL_INT32=2, NCCL_INT64=4, NCCL_FLOAT16=6, NCCL_FLOAT32=7,
             NCCL_FLOAT64=8, NCCL_BFLOAT16=9, NCCL_SUM=0, NCCL_PROD=1, NCCL_MAX=2, NCCL_MIN=3)
SIZES = {0: 1, 1: 1, 2: 4, 4: 8, 6: 2, 7: 4, 8: 8, 9: 2}


class Communicator:
    """A group of one device: every collective is a copy."""

    calls: list = []

    def __init__(self, ndev, commId, rank):  # noqa: N803  (CuPy's names)
        assert (ndev, rank) == (1, 0) and commId == tuple(range(-64, 64))

    def _copy(self, name, source, target, count, dtype, *rest):
        self.calls.append((name, count, dtype, *rest[:-1]))
        assert isinstance(rest[-1], int)  # the stream
        if source != target:
            ctypes.memmove(target, source, count * SIZES[dtype])

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):  # noqa: N802
        self._copy("allReduce", sendbuf, recvbuf, count, datatype, op, stream)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._copy("broadcast", sendbuff, recvbuff, count, datatype, root, stream)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):  # noqa: N802
        self._copy("allGather", sendbuf, recvbuf, count, datatype, stream)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):  # noqa: N802
        self._copy("reduceScatter", sendbuf, recvbuf, recvcount, datatype, op, stream)

    def destroy(self):
        self.calls.append(("destroy",))


@pytest.fixture
def group(device, monkeypatch):
    if device == "cpu":
        pytest.skip("tensors on the CPU do not go to NCCL")
    if not lucid.cuda.is_simulated():
        pytest.skip("a stand-in for NCCL needs the simulated device")
    nccl = types.SimpleNamespace(available=True, NcclCommunicator=Communicator,
                                 get_unique_id=lambda: tuple(range(-64, 64)), **CODES)
    monkeypatch.setattr(backend_of(device).xp.cuda, "nccl", nccl, raising=False)
    Communicator.calls = []
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    yield device
    dist.destroy_process_group()
    assert Communicator.calls[-1] == ("destroy",)


def test_calls(group):
    x = lucid.arange(6.0, device=group).reshape(2, 3)
    version = x._version
    dist.all_reduce(x)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x._version == version + 2
    assert dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()
    dist.broadcast(x.T, 0)  # not contiguous: through a copy
    np.testing.assert_array_equal(x.cpu().numpy(), np.arange(6.0).reshape(2, 3))
    out = lucid.zeros(2, 3, device=group)
    dist.all_gather_into_tensor(out, x)
    np.testing.assert_array_equal(out.cpu().numpy(), x.cpu().numpy())
    out.zero_()
    dist.reduce_scatter_tensor(out, x, dist.ReduceOp.PRODUCT)
    np.testing.assert_array_equal(out.cpu().numpy(), x.cpu().numpy())
    for dtype, code in (("float64", 8), ("float16", 6), ("bfloat16", 9), ("int32", 2), ("bool", 1)):
        dist.broadcast(lucid.ones(2, dtype=dtype, device=group), 0)
        assert Communicator.calls[-1] == ("broadcast", 2, code, 0)
    z = lucid.ones(2, dtype="complex64", device=group)
    dist.all_reduce(z)
    assert Communicator.calls == [
        ("allReduce", 6, 7, 0), ("allReduce", 6, 7, 0), ("allReduce", 6, 7, 2), ("broadcast", 6, 7, 0),
        ("allGather", 6, 7), ("reduceScatter", 6, 7, 1), *Communicator.calls[6:11], ("allReduce", 4, 7, 0),
    ]  # fmt: skip


def test_what_stays_on_the_sockets(group):
    y = lucid.ones(3)
    dist.all_reduce(y)
    outs = [lucid.zeros(2, device=group)]
    dist.gather(lucid.ones(2, device=group), outs)
    assert outs[0].tolist() == [1.0, 1.0]
    dist.barrier()
    assert Communicator.calls == []
    dist.all_reduce(y.to(group))  # makes the communicator, which the fixture sees destroyed


def test_what_nccl_does_not_have(group):
    with pytest.raises(DistributedError, match="nccl: arrays of int16 cannot be sent; convert them first"):
        dist.broadcast(lucid.ones(2, dtype="int16", device=group), 0)
    with pytest.raises(DistributedError, match="nccl: there is no reduction 'bor' for int32"):
        dist.all_reduce(lucid.ones(2, dtype="int32", device=group), dist.ReduceOp.BOR)


def test_without_nccl():
    if dist.is_nccl_available():
        pytest.skip("there is NCCL")
    with pytest.raises(DistributedError, match="there is no NCCL .* use backend='gloo'"):
        dist.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
