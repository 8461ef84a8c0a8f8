"""A program on the CPU: one sweep over cache-sized blocks, every intermediate result in cache."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from .body import Body, finished, row_index, shaped, text_of
from .numpy_code import compiled
from .region import COLUMN, FULL, REPEAT, ROW, SCALAR

# Bytes of a float array per block. A thread that finishes an operation waits for the interpreter lock where
# the other holds it, some 50 us; long operations meet seldom: bias + gelu on 16.7M float32 takes 38 ms on two
# threads in blocks of 256 KB, 30 in 512 KB, 28 in 1 MB, 30 in 2 MB (bench_fusion: blocks). One thread takes
# the same time from 256 KB to 2 MB within 5 %.
BLOCK = 1 << 20
# Elements from which a second thread pays: waking it and waiting for it takes 100 us (bench_fusion: sweep).
THREADED = 3 << 18


def _thread_count() -> int:
    for name in ("LUCID_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value):
            return int(value)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 4)


_threads = _thread_count()
_pool: Any = None
_lock = threading.Lock()


def _forget_pool() -> None:
    # A forked process has the executor, but not its threads.
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def pool() -> Any:
    """Threads that share work; None on a machine with one core. A sweep takes one less: the calling thread
    works as well.
    """
    global _pool
    if _threads < 2:
        return None
    with _lock:
        if _pool is None:
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(_threads, thread_name_prefix="lucid-sweep")
    return _pool


def block_size(size: int, itemsize: int = 4) -> int:
    """Elements per block for arrays of `size` elements: about BLOCK bytes, and as many blocks for each
    thread.
    """
    threads = _threads if size >= THREADED else 1
    return max(1, -(-size // (threads * max(1, round(size * itemsize / (threads * BLOCK))))))


def width() -> int:
    """The number of threads that share a sweep."""
    return _threads


def shared(function: Any, starts: range, size: int) -> list[Any]:
    """What `function` makes of each of `starts`, in their order: it takes an iterator of them and gives an
    iterator of results. Where `size` elements pay each thread runs it once and takes the next start that is
    left, so that one that begins late, or shares its core, holds up no other. The calling thread works too.
    """
    left = iter(range(len(starts)))  # shared: `next` is atomic

    def work() -> list[tuple[int, Any]]:
        mine: list[int] = []

        def feed() -> Iterator[int]:
            for i in left:
                mine.append(i)
                yield starts[i]

        with np.errstate(all="ignore"):  # the caller's does not reach other threads
            results = list(function(feed()))
        return list(zip(mine, results, strict=True))

    threads = pool() if size >= THREADED and len(starts) > 1 else None
    waiting = [threads.submit(work) for _ in range(min(_threads, len(starts)) - 1)] if threads else []
    try:
        found = work()
        for w in waiting:
            found += w.result()
    finally:
        for w in waiting:  # also after an error: they write to arrays of the caller
            w.exception()
    return [result for _, result in sorted(found, key=itemgetter(0))]


# Columns below which rows are added several at a time: NumPy's call per row costs as much as 500 additions.
_WIDE = 512


def column_sum(r: Any) -> Any:
    """The sum of [rows, columns] over its rows."""
    rows, cols = r.shape
    k = _WIDE // max(cols, 1)
    if k < 2 or rows < 4 * k or not r.flags.c_contiguous:
        return np.add.reduce(r, 0)
    whole = rows - rows % k
    part = np.add.reduce(r[:whole].reshape(-1, k * cols), 0)
    total = np.add.reduce(part.reshape(k, cols), 0)
    return total if whole == rows else total + np.add.reduce(r[whole:], 0)


class Sweep:
    """One execution of a body: its inputs as [rows, width] views, the outputs, and partial sums per thread.

    wanted: positions of the results to compute. Where nothing lies along rows or columns alone the region is
    one row, cut into blocks. consume: takes (first row, last row, block) of the one result that is written in
    full, in place of an array of all blocks, on this thread.
    """

    def __init__(self, body: Body, wanted: list[int], F: Any, consume: Any = None) -> None:
        self.body, self.F, self.wanted, self.consume = body, F, wanted, consume
        every = body.out_kinds()
        self.kinds = [every[i] for i in wanted]
        self.flat = consume is None and (
            not body.shape
            or not body.trace.row_sums()
            and all(k in (FULL, SCALAR) for k in (*body.kinds, *self.kinds))
        )
        self.width = body.size if self.flat else body.shape[-1]
        self.rows = 1 if self.flat else body.size // max(self.width, 1)
        self.inputs = [self._place(v, k) for v, k in zip(body.inputs, body.kinds, strict=True)]
        self.index = {i: row_index(body.inputs[i].shape, body.shape) for i in body.repeat}
        low = body.dtype.itemsize == 2
        self.work = np.dtype("float32") if low else body.dtype
        axes = {FULL: "c" if self.flat else "cr", ROW: "c", COLUMN: "r", SCALAR: ""}
        given = tuple(
            axes[k] if k != REPEAT else "cr" if v.shape[-1] != 1 else "r"
            for v, k in zip(body.inputs, body.kinds, strict=True)
        )
        # The trace itself belongs to one dtype.
        key = (given, axes[FULL], *self.kinds, *map(text_of, (body.results[i] for i in wanted)))
        code = body.trace.codes.get(key)
        if code is None:
            code = body.trace.codes[key] = compiled(
                body.trace,
                list(given),
                [low and v.dtype == body.dtype for v in body.inputs],
                axes[FULL],
                [body.results[i] for i in wanted],
                [k == FULL for k in self.kinds],
                not low,
            )
        self.code = code
        self.outs = [
            np.empty(body.shape, body.dtype) if k == FULL and consume is None else None for k in self.kinds
        ]
        self.views = [o.reshape(self._view(FULL)) for o in self.outs if o is not None]

    def _view(self, kind: str) -> tuple[int, ...]:
        if self.flat:
            return (self.width,)
        return {FULL: (self.rows, self.width), ROW: (1, self.width), COLUMN: (self.rows, 1)}[kind]

    def _place(self, v: Any, kind: str) -> Any:
        if kind == SCALAR:
            return v.reshape(())
        return v.reshape(-1, v.shape[-1]) if kind == REPEAT else v.reshape(self._view(kind))

    def run(self) -> list[Any]:
        """The arrays of the wanted results; sums in the shapes of their outputs."""
        n = self.width if self.flat else self.rows
        size = block_size(self.body.size, self.work.itemsize) // (1 if self.consume is None else 2)
        step = max(1, size // (1 if self.flat else max(self.width, 1)))
        blocks = range(0, n, step)
        alone = self.body.alone or self.consume is not None
        partial = shared(
            lambda starts: self._blocks(starts, step, n), blocks, 0 if alone else self.body.size
        )
        return [self._result(k, partial) for k in range(len(self.wanted))]

    def _blocks(self, starts: Iterator[int], step: int, n: int) -> Iterator[dict[int, Any]]:
        """The sums of the blocks that start at `starts`, computed with scratch of its own."""
        code, size = self.code, step if self.flat else step * self.width
        scratch = [np.empty(size, self.work) for _ in range(code.scratch)]
        masks = [np.empty(size, bool) for _ in range(code.masks)]
        constants = [np.full(size, c, self.work) for c in code.constants]
        shape: Any = None
        whole = None if self.consume is None else np.empty((step, self.width), self.body.dtype)
        bits = f"i{self.work.itemsize}"
        for i in starts:
            j = min(i + step, n)
            if shape is None or shape[0] != j - i:
                shape = (j - i,) if self.flat else (j - i, self.width)
                m = (j - i) * (1 if self.flat else self.width)
                S, M, K = ([a[:m].reshape(shape) for a in group] for group in (scratch, masks, constants))
            V = [self._slice(k, v, i, j) for k, v in enumerate(self.inputs)]
            O = [o[i:j] for o in self.views] if whole is None else [whole[: j - i]]
            found = code.run(self.F, V, O, S, M, K, self.width, bits)
            if self.consume is not None:
                self.consume(i, j, O[0])
            yield self._sums(found, shape) if found else {}

    def _slice(self, k: int, v: Any, i: int, j: int) -> Any:
        if k in self.index:
            rows = self.index[k][i:j]
            first = rows[0]
            return (
                v[first : first + j - i] if np.array_equal(rows, np.arange(first, first + j - i)) else v[rows]
            )
        return v[i:j] if v.ndim and (self.flat or v.shape[0] == self.rows) else v

    def _sums(self, found: Any, shape: tuple[int, ...]) -> dict[int, Any]:
        """A block's results that are wanted as sums, summed, by their places."""
        sums = {}
        for k, r in zip((k for k, kind in enumerate(self.kinds) if kind != FULL), found, strict=True):
            r = np.asarray(r)
            if r.shape != shape:
                r = np.broadcast_to(r, shape)
            kind = self.kinds[k]
            sums[k] = (
                np.add.reduce(r, 1)
                if kind == COLUMN
                else column_sum(r)
                if kind == ROW
                else np.add.reduce(r, None)
            )
        return sums

    def _result(self, k: int, blocks: list[dict[int, Any]]) -> Any:
        """The output, sums added in the order of their blocks: two runs give the same bits.

        Sums along rows of different blocks are different elements.
        """
        if self.kinds[k] == FULL:
            return self.outs[k]
        shape: Any = self.body.outs[self.wanted[k]]
        dtype = self.body.dtype
        if not blocks:
            return np.zeros(shape, dtype)
        if self.kinds[k] == COLUMN:
            return shaped(np.concatenate([b[k] for b in blocks]).astype(dtype, copy=False), shape)
        total = blocks[0][k]
        for b in blocks[1:]:
            total = total + b[k]
        return shaped(np.asarray(total, dtype), shape)


def run(body: Body, F: Any) -> list[Any]:
    """The arrays of a body's outputs."""
    return finished(body, lambda b, wanted: Sweep(b, wanted, F).run(), F)
