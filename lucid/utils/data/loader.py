"""DataLoader: batches of a dataset, in this process or from worker processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import connection, resource_tracker
from types import GenericAlias
from typing import Any

from ... import cuda
from ...errors import CheckpointError, DtypeError, ShapeError
from ...random import Generator
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler, Shuffling, draw_seed
from .transfer import pinned
from .worker import Exhausted, Fetcher, WorkerError, discard, unpack, unpack_error, work

# What decides which samples make a batch; a change would come too late.
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader:
    """An iterable of batches.

    dataset: with `__getitem__` and `__len__`, or an IterableDataset. batch_size: None gives single samples.
    shuffle, sampler, batch_sampler: the order; generator: its randomness (the CPU's default generator when
    None), of which each epoch takes two numbers: the seed of the order and the seed of the workers.
    drop_last: leave out a shorter last batch. collate_fn: a batch from a list of samples. num_workers:
    processes that load; each loads `prefetch_factor` batches ahead, batches come in the same order as
    without. Worker i seeds `random`, NumPy and lucid with base seed + i in each epoch; worker_init_fn(i) runs
    once in it. persistent_workers: they live on between epochs. timeout: seconds to wait for a batch (0: no
    limit). pin_memory: where there is a GPU, the tensors of a batch lie in pinned memory, from which
    `.to("cuda", non_blocking=True)` copies without waiting (see also `Prefetcher`).

    An exception in a worker is raised here, with the worker's traceback as its cause. A worker that died
    raises WorkerError. `state_dict()` in the middle of an epoch and `load_state_dict()` on an equal loader
    resume after the last batch that was given.

    >>> import lucid
    >>> from lucid.utils.data import TensorDataset
    >>> data = TensorDataset(lucid.arange(5))
    >>> [batch[0].tolist() for batch in lucid.utils.data.DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
    ) -> None:
        if num_workers < 0 or timeout < 0:
            raise ShapeError(
                f"DataLoader: expected num_workers >= 0 and timeout >= 0, got {num_workers}, {timeout}"
            )
        if not num_workers and (prefetch_factor is not None or persistent_workers):
            raise ShapeError("DataLoader: prefetch_factor and persistent_workers need num_workers > 0")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ShapeError(f"DataLoader: expected prefetch_factor >= 1, got {prefetch_factor}")
        self.dataset, self.num_workers, self.timeout, self.generator = (
            dataset,
            num_workers,
            timeout,
            generator,
        )
        self.pin_memory, self.worker_init_fn, self.persistent_workers = (
            pin_memory,
            worker_init_fn,
            persistent_workers,
        )
        self.prefetch_factor = (prefetch_factor or 2) if num_workers else None
        self.multiprocessing_context = multiprocessing_context
        self.iterable = isinstance(dataset, IterableDataset)
        self._choose_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.batched = self.batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self.batched else default_convert)
        self._pool: _Pool | None = None
        # How far the epoch under way has come; no reference to the epoch itself, which would keep its
        # workers.
        self._progress: dict[str, Any] = dict(_BETWEEN)
        self._resume: dict[str, Any] | None = None
        self._made = True

    def __class_getitem__(cls, item: Any) -> GenericAlias:
        # `DataLoader[int]` in programs that annotate PyTorch's.
        return GenericAlias(cls, item)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_made"):
            raise ValueError(f"DataLoader: {name} cannot change in a loader that is made; make another one")
        super().__setattr__(name, value)

    def _choose_order(
        self, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        if sampler is not None and shuffle:
            raise ShapeError("DataLoader: a sampler decides the order; give either sampler or shuffle=True")
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ShapeError(
                "DataLoader: an IterableDataset has an order of its own; shuffle, sampler and "
                "batch_sampler do not apply"
            )
        if batch_sampler is not None:
            if batch_size not in (1, None) or shuffle or sampler is not None or drop_last:
                raise ShapeError(
                    "DataLoader: batch_sampler replaces batch_size, shuffle, sampler and drop_last; give "
                    "it alone"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ShapeError("DataLoader: drop_last needs a batch_size")
        if sampler is None:
            if self.iterable:
                sampler = _Endless()
            elif batch_sampler is None:
                if not hasattr(self.dataset, "__len__"):
                    raise DtypeError(
                        f"DataLoader: the dataset, a {type(self.dataset).__name__}, has no __len__; define "
                        "it, or derive from IterableDataset for data without indices"
                    )
                sampler = (
                    RandomSampler(self.dataset, generator=self.generator)
                    if shuffle
                    else SequentialSampler(self.dataset)
                )
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler = (
            batch_size,
            drop_last,
            sampler,
            batch_sampler,
        )

    def __len__(self) -> int:
        if not self.iterable:
            return len(self.batch_sampler if self.batched else self.sampler)
        try:
            n = len(self.dataset)
        except (TypeError, NotImplementedError):
            raise DtypeError(
                "DataLoader: the length of an IterableDataset without __len__ is not known"
            ) from None
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        resume, self._resume = self._resume, None
        epoch = (_WorkerEpoch if self.num_workers else _Epoch)(self, resume)
        return _Pinned(epoch) if self.pin_memory and cuda.is_available() else epoch

    def _fetcher(self, dataset: Any) -> Fetcher:
        return Fetcher(
            dataset, self.collate_fn, self.batched, self.drop_last, self.collate_fn is default_collate
        )

    def _shuffling(self) -> Shuffling | None:
        # The sampler whose seed orders the epoch.
        for candidate in (self.batch_sampler, self.sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(candidate, Shuffling):
                return candidate
        return None

    def state_dict(self) -> dict[str, Any]:
        """{"batches", "order_seed", "base_seed"}: where the latest epoch stands; 0 and None between epochs.
        Plain numbers.
        """
        return dict(self._progress)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing; the next iteration goes on after the batches that `state_dict` counts, in the order of its
        epoch.

        Batches of an iterable dataset are loaded and dropped to get there; those of others are not loaded.
        """
        if (
            not isinstance(state_dict, dict)
            or not {"batches", "order_seed", "base_seed"} <= state_dict.keys()
        ):
            raise CheckpointError(
                "DataLoader.load_state_dict: expected 'batches', 'order_seed' and 'base_seed' as "
                "state_dict() gives them"
            )
        self._resume = dict(state_dict) if state_dict["base_seed"] is not None else None


class _Endless:
    # Indices for iterable datasets: only their number counts.
    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


_END = object()
_BETWEEN = {"batches": 0, "order_seed": None, "base_seed": None}


class _Epoch:
    """One pass over the data in this process; the base of the pass with workers."""

    def __init__(self, loader: DataLoader, resume: dict[str, Any] | None) -> None:
        self.loader = loader
        shuffling = loader._shuffling()
        if resume is not None and shuffling is not None:
            shuffling.resume_seed = resume["order_seed"]
        self.finished = False
        self.indices = iter(loader.batch_sampler if loader.batched else loader.sampler)
        # The seed of the order is drawn when the sampler starts: now, so that state_dict() knows it and the
        # draws have a fixed order.
        first = next(self.indices, _END)
        if first is not _END:
            self.indices = itertools.chain((first,), self.indices)
        self.base_seed = draw_seed(loader.generator) if resume is None else resume["base_seed"]
        self.progress = loader._progress = {
            "batches": 0,
            "order_seed": shuffling.epoch_seed if shuffling is not None else None,
            "base_seed": self.base_seed,
        }
        self._begin()
        if resume is not None:
            self._skip(resume["batches"])

    def _begin(self) -> None:
        self.fetch = self.loader._fetcher(self.loader.dataset)

    def _skip(self, batches: int) -> None:
        if self.loader.iterable:
            for _ in range(batches):
                next(self, None)
        else:
            self.progress["batches"] = sum(1 for _ in itertools.islice(self.indices, batches))

    def _end(self) -> None:
        self.finished = True
        self.progress.update(_BETWEEN)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        indices = _END if self.finished else next(self.indices, _END)
        try:
            if indices is _END:
                raise Exhausted
            batch = self.fetch(indices)
        except Exhausted:
            self._end()
            raise StopIteration from None
        self.progress["batches"] += 1
        return batch


class _Pinned:
    """An epoch whose batches are moved to pinned memory."""

    def __init__(self, epoch: _Epoch) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.epoch)

    def __next__(self) -> Any:
        return pinned(next(self.epoch))


class _Pool:
    """Worker processes and the pipes to them; closed by `close()`, and when the pool is dropped or the
    program ends.
    """

    def __init__(self, loader: DataLoader) -> None:
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        # One tracker of shared memory for all: a worker that starts its own would have blocks removed when it
        # ends.
        resource_tracker.ensure_running()
        self.connections: list[Any] = []
        self.processes: list[Any] = []
        self.epoch = 0
        self.close = weakref.finalize(self, _close_workers, self.connections, self.processes, os.getpid())
        for number in range(loader.num_workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work,
                daemon=True,
                name=f"lucid-data-{number}",
                args=(
                    theirs,
                    number,
                    loader.num_workers,
                    loader.dataset,
                    _Maker(loader),
                    loader.worker_init_fn,
                ),
            )
            process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)


def _close_workers(connections: list[Any], processes: list[Any], owner: int) -> None:
    if os.getpid() != owner:  # A forked copy of the pool.
        return
    for conn in connections:
        with contextlib.suppress(OSError):
            conn.send(None)
    deadline = time.monotonic() + 1.0
    for process, conn in zip(processes, connections, strict=True):
        # A worker may be sending an answer, or busy with one: read until it ends, then end it.
        while process.is_alive() and time.monotonic() < deadline:
            connection.wait([conn, process.sentinel], timeout=0.1)
            if not _drain(conn):
                process.join(0.1)
        if process.is_alive():
            process.terminate()
            process.join(1.0)
            if process.is_alive():
                process.kill()
        process.join()
        _drain(conn)
        conn.close()


def _drain(conn: Any) -> bool:
    # Whether there may be more; blocks in answers that nobody wants are removed.
    try:
        while conn.poll():
            answer = conn.recv()
            if answer[2] == "data":
                discard(answer[3])
        return True
    except (EOFError, OSError):
        return False


class _Maker:
    # Makes a Fetcher in the worker; holds no loader, so that it can be sent to one.
    def __init__(self, loader: DataLoader) -> None:
        self.options = (
            loader.collate_fn,
            loader.batched,
            loader.drop_last,
            loader.collate_fn is default_collate,
        )

    def __call__(self, dataset: Any) -> Fetcher:
        return Fetcher(dataset, *self.options)


class _WorkerEpoch(_Epoch):
    """One pass with workers: batch n is asked of the workers in turn, answers are put into order."""

    def _begin(self) -> None:
        loader = self.loader
        pool = loader._pool or _Pool(loader)
        if loader.persistent_workers:
            loader._pool = pool
        self.pool = pool
        pool.epoch += 1
        self.epoch = pool.epoch
        self.active = deque(
            range(loader.num_workers)
        )  # Workers that still have data; the next to be asked stands first.
        self.sent = self.wanted = 0  # The next batch to ask for, and to give.
        self.owner: dict[int, int] = {}  # Batches under way -> worker.
        self.ready: dict[int, tuple[int, str, Any]] = {}  # Answers that came before their turn.
        for number in self.active:
            self._send(number, ("epoch", self.epoch, self.base_seed))

    def _send(self, number: int, message: Any) -> None:
        try:
            self.pool.connections[number].send(message)
        except OSError:
            self._died(number)

    def _ask(self) -> None:
        # Keeps prefetch_factor batches per worker under way.
        limit = self.loader.prefetch_factor * len(self.active)  # type: ignore[operator]
        while self.active and len(self.owner) + len(self.ready) < limit:
            indices = next(self.indices, _END)
            if indices is _END:
                return
            number = self.active[0]
            self.active.rotate(-1)
            self.owner[self.sent] = number
            self._send(number, (self.epoch, self.sent, indices))
            self.sent += 1

    def __next__(self) -> Any:
        if self.finished:
            raise StopIteration
        if self.epoch != self.pool.epoch:
            self.finished = True
            raise WorkerError(
                "DataLoader: another iteration has taken over the persistent workers of this one; use a "
                "second DataLoader, or "
                "persistent_workers=False"
            )
        try:
            batch = self._next()
        except BaseException:
            # The workers' state is unknown (Ctrl-C may have hit in the middle of a message): the next epoch
            # starts new ones.
            self._close()
            raise
        if batch is _END:
            self._end()
            if not self.loader.persistent_workers:
                self._close()
            raise StopIteration
        self.progress["batches"] += 1
        return batch

    def _next(self) -> Any:
        while True:
            self._ask()
            if self.wanted in self.ready:
                number, kind, message = self.ready.pop(self.wanted)
                self.wanted += 1
                if kind == "error":
                    raise unpack_error(message, number)
                if kind == "data":
                    return unpack(message)
            elif not self.owner and not self.ready:
                return _END
            else:
                self._wait()

    def _wait(self) -> None:
        conns, processes = self.pool.connections, self.pool.processes
        timeout = self.loader.timeout or None
        done = connection.wait([*conns, *(p.sentinel for p in processes)], timeout)
        if not done:
            owner = self.owner.get(self.wanted)
            raise WorkerError(
                f"DataLoader: batch {self.wanted} did not come from worker {owner} within "
                f"timeout={timeout} s; raise timeout "
                "(0: no limit) or make the dataset faster"
            )
        for number, conn in enumerate(conns):
            if conn in done:
                try:
                    epoch, batch, kind, message = conn.recv()
                except (EOFError, OSError):
                    self._died(number)
                if epoch != self.epoch:
                    # Left over from an epoch that was given up.
                    if kind == "data":
                        discard(message)
                    continue
                del self.owner[batch]
                self.ready[batch] = (number, kind, message)
                if kind == "end" and number in self.active:
                    self.active.remove(number)
        for number, process in enumerate(processes):
            if process.sentinel in done and not conns[number].poll():
                self._died(number)

    def _died(self, number: int) -> None:
        process = self.pool.processes[number]
        process.join(1.0)
        code = process.exitcode
        why = (
            f"killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"exit code {code}"
        )
        raise WorkerError(
            f"DataLoader: worker {number} (pid {process.pid}) died ({why}) while batch {self.wanted} was "
            "awaited; a killed worker "
            "often means that memory ran out: try fewer workers, or num_workers=0 to see the error"
        )

    def _close(self) -> None:
        self.finished = True
        self._discard()
        if self.loader._pool is self.pool:
            self.loader._pool = None
        self.pool.close()

    def _discard(self) -> None:
        for _, kind, message in self.ready.values():
            if kind == "data":
                discard(message)
        self.ready.clear()

    def __del__(self) -> None:
        # Given up in the middle. Persistent workers go on: their late answers are dropped by the next epoch.
        if not getattr(self, "finished", True) and hasattr(self, "ready") and not sys.is_finalizing():
            self._discard()
