"""A group of ranks: agreement about each call, and the collectives on arrays in host memory.

Before data flows, every rank tells every other what it is about to do: group, number of the call, operation,
dtype, shape. Where they differ, each rank raises with the calls of all; arrays of up to 16 KB travel with
that message.

Sums are taken in the order of the ranks, each element on one rank (or on all, for small arrays) and in
float32 for float16 and bfloat16. So all ranks get the same bits, in every run.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any

import numpy as np

from ..errors import DistributedError, DtypeError
from ..storage.dtype import bfloat16, float16, float32, is_floating
from .wire import DATA, HEAD, Mesh

Array = np.ndarray[Any, Any]
# Up to so many bytes go with the message that announces the call: one round instead of two or three.
SMALL = 1 << 14


class ReduceOp(Enum):
    """How values of the ranks become one. AVG: the sum divided by their number, for floating dtypes.

    >>> import lucid.distributed as dist
    >>> [op.name for op in dist.ReduceOp]
    ['SUM', 'AVG', 'PRODUCT', 'MIN', 'MAX', 'BAND', 'BOR', 'BXOR']
    """

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


_UFUNCS = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


def check_op(name: str, op: Any, dtype: Any) -> ReduceOp:
    """The ReduceOp. Raises DtypeError for one that the dtype does not have."""
    if not isinstance(op, ReduceOp):
        raise DtypeError(f"{name}: op must be a ReduceOp, got {op!r}")
    bits = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    ordered = op in (ReduceOp.MIN, ReduceOp.MAX)
    if (
        (op is ReduceOp.AVG and not (is_floating(dtype) or dtype.kind == "c"))
        or (bits and dtype.kind not in "iub")
        or (ordered and dtype.kind == "c")
    ):
        raise DtypeError(f"{name}: {op.name} does not exist for {dtype.name}")
    return op


def combine(parts: Sequence[Array], op: ReduceOp) -> Array:
    """The parts reduced in their order: a new array of their dtype."""
    dtype = parts[0].dtype
    wide = float32 if dtype in (float16, bfloat16) else dtype
    out = parts[0].astype(wide)
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            _UFUNCS[op](out, part.astype(wide, copy=False), out=out)
        if op is ReduceOp.AVG:
            out /= len(parts)
    return out.astype(dtype, copy=False)


def raw(array: Array) -> Array:
    """The bytes of a contiguous array; shares its memory."""
    return array.reshape(-1).view(np.uint8)


class Worker:
    """The thread in which a process's calls run, one after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # A daemon: Ctrl-C must end a process whose peers hang.
        self._thread = threading.Thread(target=self._work, name="lucid.distributed", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """The future of a job that runs after those before it."""
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def stop(self) -> None:
        """Nothing; the thread ends after the jobs that are queued."""
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, future = found
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            del found, job, future


class ProcessGroup:
    """Some or all ranks of the job. The methods run in the worker's thread, on contiguous host arrays.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", rank=0, world_size=1)
    >>> group = dist.new_group([0])
    >>> group.rank(), group.size()
    (0, 1)
    >>> dist.destroy_process_group()
    """

    def __init__(self, name: str, ranks: Sequence[int], mesh: Mesh, worker: Worker, timeout: float,
                 backend: str = "gloo") -> None:
        self.name, self.ranks, self.mesh, self.worker = name, tuple(ranks), mesh, worker
        self.timeout, self.backend = timeout, backend
        self.others = [r for r in self.ranks if r != mesh.rank]
        self.number = 0
        self.nccl: Any = None

    def rank(self) -> int:
        """This process's number within the group."""
        return self.ranks.index(self.mesh.rank)

    def size(self) -> int:
        """The number of ranks in the group."""
        return len(self.ranks)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.name!r}, ranks {', '.join(map(str, self.ranks))}>"

    # ---- agreement ----

    def agree(self, op: str, dtype: Any, shape: Sequence[int], detail: Any = None,
              own: bytes = b"") -> dict[int, bytes]:
        """rank -> what it sent as `own`, once all ranks of the group have made the same call.

        Raises DistributedError on every rank where they differ.
        """
        number, self.number = self.number, self.number + 1
        call = [op, None if dtype is None else dtype.name, list(shape), detail]
        mine = json.dumps([self.name, number, *call]).encode()
        what = self._what([self.name, number, *call])
        message = len(mine).to_bytes(4, "big") + mine + own
        heads = self._exchange(
            {r: (HEAD, message) for r in self.others}, {r: (HEAD, None) for r in self.others}, what
        )
        theirs, small = {self.mesh.rank: mine}, {self.mesh.rank: own}
        for r, head in heads.items():
            n = int.from_bytes(head[:4], "big")
            theirs[r], small[r] = head[4 : 4 + n], head[4 + n :]
        if any(t != mine for t in theirs.values()):
            self._disagree(theirs)
        return small

    @staticmethod
    def _what(call: Sequence[Any]) -> str:
        """A call as text: of the JSON that announces it."""
        group, number, op, dtype, shape, detail = call
        return (op + (f" of {dtype}{shape}" if dtype else "") + (f" ({detail})" if detail is not None else "")
                + (f", call {number}" if number is not None else "") + f" of group {group!r}")

    def _disagree(self, theirs: dict[int, bytes]) -> None:
        by_call: dict[bytes, list[int]] = {}
        for r in sorted(theirs):
            by_call.setdefault(theirs[r], []).append(r)
        calls = "; ".join(
            f"rank {', '.join(map(str, ranks))} is in {self._what(json.loads(text))}"
            for text, ranks in by_call.items()
        )
        reason = (f"the ranks do not agree: {calls}. Every rank must make the same calls in the same order, "
                  "with tensors of one shape and dtype")
        self.mesh.fail(reason)
        raise DistributedError(f"distributed: {reason}")

    def _exchange(self, sends: dict[int, Any], receives: dict[int, Any], what: str) -> dict[int, Any]:
        return self.mesh.exchange(sends, receives, what, self.timeout)

    def _move(self, sends: dict[int, Array], receives: dict[int, Array], what: str) -> None:
        # Arrays: each is sent from, or read into, its own memory.
        self._exchange(
            {r: (DATA, raw(a).data) for r, a in sends.items()},
            {r: (DATA, raw(a).data) for r, a in receives.items()},
            f"{what} of group {self.name!r}",
        )

    # ---- collectives ----

    def barrier(self) -> None:
        """Nothing; all ranks have come here."""
        self.agree("barrier", None, ())

    def all_reduce(self, a: Array, op: ReduceOp, name: str = "all_reduce", shape: Any = None) -> None:
        """Nothing; `a` holds the reduction over all ranks."""
        small = a.nbytes <= SMALL
        own = self.agree(name, a.dtype, a.shape if shape is None else shape, op.value,
                         a.tobytes() if small else b"")
        flat = a.reshape(-1)
        if small:
            flat[...] = combine([np.frombuffer(own[r], a.dtype) for r in self.ranks], op)
            return
        n = self.size()
        bounds = [i * flat.size // n for i in range(n + 1)]
        chunks = {r: flat[bounds[i] : bounds[i + 1]] for i, r in enumerate(self.ranks)}
        mine = chunks[self.mesh.rank]
        parts = {r: np.empty_like(mine) for r in self.others}
        self._move({r: chunks[r] for r in self.others}, parts, name)
        parts[self.mesh.rank] = mine
        mine[...] = combine([parts[r] for r in self.ranks], op)
        del parts
        self._move({r: mine for r in self.others}, {r: chunks[r] for r in self.others}, name)

    def broadcast(self, a: Array, src: int) -> None:
        """Nothing; `a` holds what it holds on rank `src`."""
        small, root = a.nbytes <= SMALL, self.mesh.rank == src
        own = self.agree("broadcast", a.dtype, a.shape, f"src={src}", a.tobytes() if small and root else b"")
        if small:
            a.reshape(-1)[...] = np.frombuffer(own[src], a.dtype)
        elif root:
            self._move({r: a for r in self.others}, {}, "broadcast")
        else:
            self._move({}, {src: a}, "broadcast")

    def all_gather(self, outs: Sequence[Array], a: Array, name: str = "all_gather") -> None:
        """Nothing; outs[i] holds `a` of the group's rank i."""
        small = a.nbytes <= SMALL
        own = self.agree(name, a.dtype, a.shape, None, a.tobytes() if small else b"")
        if small:
            for out, r in zip(outs, self.ranks, strict=True):
                out.reshape(-1)[...] = np.frombuffer(own[r], a.dtype)
            return
        by_rank = dict(zip(self.ranks, outs, strict=True))
        by_rank[self.mesh.rank][...] = a
        self._move({r: a for r in self.others}, {r: by_rank[r] for r in self.others}, name)

    def gather(self, outs: Sequence[Array] | None, a: Array, dst: int) -> None:
        """Nothing; on rank `dst` outs[i] holds `a` of the group's rank i."""
        self.agree("gather", a.dtype, a.shape, f"dst={dst}")
        if self.mesh.rank != dst:
            self._move({dst: a}, {}, "gather")
            return
        assert outs is not None
        by_rank = dict(zip(self.ranks, outs, strict=True))
        by_rank[dst][...] = a
        self._move({}, {r: by_rank[r] for r in self.others}, "gather")

    def scatter(self, out: Array, parts: Sequence[Array] | None, src: int) -> None:
        """Nothing; `out` holds parts[i] of rank `src`, i this rank's number in the group."""
        self.agree("scatter", out.dtype, out.shape, f"src={src}")
        if self.mesh.rank != src:
            self._move({}, {src: out}, "scatter")
            return
        assert parts is not None
        by_rank = dict(zip(self.ranks, parts, strict=True))
        out[...] = by_rank[src]
        self._move({r: by_rank[r] for r in self.others}, {}, "scatter")

    def reduce_scatter(self, out: Array, parts: Sequence[Array], op: ReduceOp) -> None:
        """Nothing; `out` holds the reduction of parts[i] of all ranks, i this rank's number in the group."""
        self.agree("reduce_scatter", out.dtype, out.shape, op.value)
        out[...] = combine(self._all_to_all(parts, "reduce_scatter"), op)

    def all_to_all(self, outs: Sequence[Array], parts: Sequence[Array]) -> None:
        """Nothing; outs[i] holds the part that the group's rank i has for this one. All of one shape."""
        self.agree("all_to_all", parts[0].dtype, parts[0].shape)
        for out, part in zip(outs, self._all_to_all(parts, "all_to_all"), strict=True):
            out[...] = part

    def _all_to_all(self, parts: Sequence[Array], what: str) -> list[Array]:
        by_rank = dict(zip(self.ranks, parts, strict=True))
        mine = by_rank[self.mesh.rank]
        got = {r: np.empty_like(mine) for r in self.others}
        self._move({r: by_rank[r] for r in self.others}, got, what)
        got[self.mesh.rank] = mine
        return [got[r] for r in self.ranks]

    def send(self, a: Array, src: int, dst: int, tag: int) -> None:
        """Nothing; `a` of rank `src` is in `a` of rank `dst`. Both of them call it."""
        call = [self.name, None, "send", a.dtype.name, list(a.shape), f"rank {src} to {dst}, tag {tag}"]
        mine, what = json.dumps(call).encode(), self._what(call)
        other = dst if self.mesh.rank == src else src
        message = len(mine).to_bytes(4, "big") + mine
        head = self._exchange({other: (HEAD, message)}, {other: (HEAD, None)}, what)[other]
        theirs = head[4 : 4 + int.from_bytes(head[:4], "big")]
        if theirs != mine:
            self._disagree({self.mesh.rank: mine, other: theirs})
        if self.mesh.rank == src:
            self._move({dst: a}, {}, "send")
        else:
            self._move({}, {src: a}, "send")

    def objects(self, data: bytes | None, name: str, detail: Any, senders: Sequence[int],
                receivers: Sequence[int]) -> dict[int, bytes]:
        """rank -> its bytes, for each of `senders`, on the `receivers`."""
        own = self.agree(name, None, (), detail, len(data or b"").to_bytes(8, "big"))
        me = self.mesh.rank
        wanted = [r for r in senders if r != me] if me in receivers else []
        got = {r: np.empty(int.from_bytes(own[r], "big"), np.uint8) for r in wanted}
        mine = np.frombuffer(data or b"", np.uint8)
        sends = {r: mine for r in receivers if r != me} if me in senders else {}
        self._move(sends, got, name)
        found = {r: a.tobytes() for r, a in got.items()}
        if me in senders:
            found[me] = data or b""
        return found
