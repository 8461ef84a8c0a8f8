"""Worker processes of a DataLoader: what they do, and how a batch travels.

A batch is pickled with its arrays out of band (protocol 5). Below 16 KB everything goes through the worker's
pipe; above, arrays and pickle go into one block of shared memory and the pipe carries its name, so that a
worker never waits for a full pipe while its parent waits to send it indices. The parent copies the block and
removes it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import random
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ...errors import LucidError
from .dataset import IterableDataset

INLINE_BYTES = 1 << 14
_ALIGN = 64


@dataclass
class WorkerInfo:
    """What `get_worker_info` tells inside a worker: its number, how many there are, its seed, its copy of the
    dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """This worker's WorkerInfo; None in the main process.

    >>> import lucid
    >>> lucid.utils.data.get_worker_info() is None
    True
    """
    return _info


class WorkerError(LucidError):
    """An error in a worker process: one that died, took too long, or raised what cannot be sent."""


class Exhausted(Exception):
    """An iterable dataset has no more samples."""


class RemoteTraceback(Exception):
    """The traceback in the worker, as text: the cause of an exception that was raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Fetcher:
    """A batch from indices: the dataset's own batch where it has one, else its samples, collated.

    For an iterable dataset the indices only say how many samples to take.
    """

    def __init__(
        self, dataset: Any, collate_fn: Callable[[Any], Any], batched: bool, drop_last: bool, whole: bool
    ) -> None:
        self.dataset, self.collate_fn, self.batched, self.drop_last = dataset, collate_fn, batched, drop_last
        self.iterator = iter(dataset) if isinstance(dataset, IterableDataset) else None
        self.whole = getattr(dataset, "collated", None) if whole and batched else None

    def __call__(self, indices: Any) -> Any:
        try:
            return self._next(indices) if self.iterator is not None else self._at(indices)
        except StopIteration as error:
            # It would end the epoch as if the data were complete.
            raise RuntimeError("DataLoader: the dataset or collate_fn raised StopIteration") from error

    def _at(self, indices: Any) -> Any:
        if not self.batched:
            return self.collate_fn(self.dataset[indices])
        if self.whole is not None:
            batch = self.whole(indices)
            if batch is not None:
                return batch
        if hasattr(self.dataset, "__getitems__"):
            return self.collate_fn(self.dataset.__getitems__(indices))
        return self.collate_fn([self.dataset[i] for i in indices])

    def _next(self, indices: Any) -> Any:
        samples = list(itertools.islice(self.iterator, len(indices) if self.batched else 1))  # type: ignore[arg-type]
        if not samples or (self.batched and self.drop_last and len(samples) < len(indices)):
            raise Exhausted
        return self.collate_fn(samples if self.batched else samples[0])


# ---- how a batch travels ----


def pack(value: Any) -> tuple[Any, ...]:
    """(pickle,) of a small value; (None, name, sizes) of a large one that now lies in shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    if len(data) + sum(view.nbytes for view in views) <= INLINE_BYTES:
        return (pickle.dumps(value, protocol=5),)
    parts = [memoryview(data), *views]
    sizes = [part.nbytes for part in parts]
    block = shared_memory.SharedMemory(create=True, size=max(1, sum(map(_padded, sizes))))
    start, memory = 0, _buffer(block)
    for part, size in zip(parts, sizes, strict=True):
        memory[start : start + size] = part.cast("B")
        start += _padded(size)
    del memory
    block.close()
    return None, block.name, sizes


def _buffer(block: shared_memory.SharedMemory) -> memoryview:
    assert block.buf is not None  # None only after close().
    return block.buf


def unpack(message: tuple[Any, ...]) -> Any:
    """The value that `pack` took, in memory of its own; the shared block is removed."""
    if message[0] is not None:
        return pickle.loads(message[0])
    _, name, sizes = message
    block = shared_memory.SharedMemory(name=name)
    memory = bytearray(_buffer(block))
    block.close()
    block.unlink()
    view, start, parts = memoryview(memory), 0, []
    for size in sizes:
        parts.append(view[start : start + size])
        start += _padded(size)
    return pickle.loads(parts[0], buffers=parts[1:])


def discard(message: tuple[Any, ...]) -> None:
    """Nothing; removes the shared block of a message that nobody will read."""
    if message and message[0] is None:
        try:
            block = shared_memory.SharedMemory(name=message[1])
        except FileNotFoundError:
            return
        block.close()
        block.unlink()


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def pack_error(error: BaseException) -> tuple[Any, ...]:
    """An exception with its traceback as text; without the exception where it cannot be pickled and read
    back.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    try:
        data: bytes | None = pickle.dumps(error)
        pickle.loads(data)  # type: ignore[arg-type]
    except Exception:  # user exceptions with required arguments, open files, ...
        data = None
    return data, text


def unpack_error(message: tuple[Any, ...], worker: int) -> BaseException:
    """The exception of the worker, with its traceback as cause."""
    data, text = message
    where = f"in DataLoader worker {worker}:\n{text}"
    if data is None:
        return WorkerError(f"DataLoader: an exception that cannot be sent was raised {where}")
    error = pickle.loads(data)
    error.__cause__ = RemoteTraceback(where)
    return error


# ---- the worker process ----


def work(
    connection: Connection,
    number: int,
    count: int,
    dataset: Any,
    make: Callable[[Any], Fetcher],
    worker_init_fn: Callable[[int], Any] | None,
) -> None:
    """Nothing; serves requests until told to stop, or until the parent is gone.

    Requests: ("epoch", epoch, base seed), (epoch, batch number, indices), None to stop. Answers: (epoch,
    batch number, kind, message).
    """
    # The parent gets Ctrl-C too, and stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fetch: Fetcher | None = None
    failure: tuple[Any, ...] | None = None
    started = False
    while (request := _receive(connection)) is not None:
        if request[0] == "epoch":
            _, epoch, seed = request
            fetch, failure = None, None
            try:
                _seed_worker(number, count, seed + number, dataset)
                if worker_init_fn is not None and not started:
                    worker_init_fn(number)
                started = True
                fetch = make(dataset)
            except Exception as error:
                failure = pack_error(error)
            continue
        epoch, batch, indices = request
        try:
            if failure is not None:
                answer = (epoch, batch, "error", failure)
            else:
                answer = (epoch, batch, "data", pack(fetch(indices)))  # type: ignore[misc]
        except Exhausted:
            answer = (epoch, batch, "end", ())
        except Exception as error:
            answer = (epoch, batch, "error", pack_error(error))
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionError):
            discard(answer[3] if answer[2] == "data" else ())
            return


def _receive(connection: Connection) -> Any:
    try:
        while not connection.poll(2.0):
            # A forked worker holds copies of the parent's ends of other pipes: it sees no end of file when
            # the parent dies.
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                return None
        return connection.recv()
    except (EOFError, ConnectionError):
        return None


def _seed_worker(number: int, count: int, seed: int, dataset: Any) -> None:
    global _info
    from ...random import manual_seed

    manual_seed(seed)
    random.seed(seed)
    np.random.seed(np.random.SeedSequence(seed).generate_state(4))
    _info = WorkerInfo(number, count, seed, dataset)
