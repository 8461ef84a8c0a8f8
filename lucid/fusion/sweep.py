"""A program on the CPU: one sweep over cache-sized blocks, every intermediate result in cache."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from .body import Body, finished, row_index
from .numpy_code import compiled
from .region import COLUMN, FULL, REPEAT, ROW, SCALAR

# Elements per block: 1 MB of float32, so that the scratch of a step or two stays in cache and a thread holds
# the # interpreter lock rarely enough for two to pay (five operations on 10M elements: 14.7 ms in blocks of
# 64k on one # thread, 14.8 on two; of 128k 15.6 and 9.2). From 64k to 512k one thread takes the same time
# within 5 %.
BLOCK = 1 << 18
# Below this a second thread costs more than it brings (hand-over of the interpreter lock).
THREADED = 4 * BLOCK
_threads = int(os.environ.get("LUCID_THREADS", "0")) or min(os.cpu_count() or 1, 4)
_pool: Any = None
_lock = threading.Lock()


def pool() -> Any:
    """The threads that share a sweep; None on a machine with one core."""
    global _pool
    if _threads < 2:
        return None
    with _lock:
        if _pool is None:
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(_threads, thread_name_prefix="lucid-sweep")
    return _pool


def width() -> int:
    """The number of those threads."""
    return _threads


def shared(function: Any, starts: range, size: int) -> list[Any]:
    """The results of `function` on consecutive parts of `starts`, one per thread where `size` elements
    pay.
    """
    threads = pool() if size >= THREADED and len(starts) > 1 else None
    if threads is None:
        return [function(starts)]
    share = -(-len(starts) // _threads)
    return list(threads.map(function, (starts[i : i + share] for i in range(0, len(starts), share))))


class Sweep:
    """One execution of a body: its inputs as [rows, width] views, the outputs, and partial sums per thread.

    wanted: positions of the results to compute. Where nothing lies along rows or columns alone the region is
    one row, cut into blocks.
    """

    def __init__(self, body: Body, wanted: list[int], F: Any) -> None:
        self.body, self.F, self.wanted = body, F, wanted
        every = body.out_kinds()
        self.kinds = [every[i] for i in wanted]
        self.flat = (
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
        self.code = compiled(
            body.trace,
            [
                axes[k] if k != REPEAT else "cr" if v.shape[-1] != 1 else "r"
                for v, k in zip(body.inputs, body.kinds, strict=True)
            ],
            [low and v.dtype == body.dtype for v in body.inputs],
            axes[FULL],
            [body.results[i] for i in wanted],
            [k == FULL for k in self.kinds],
            not low,
        )
        self.outs = [np.empty(body.shape, body.dtype) if k == FULL else None for k in self.kinds]
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
        step = max(1, BLOCK // (1 if self.flat else max(self.width, 1)))
        blocks = range(0, n, step)
        partial = shared(lambda part: self._range(part, step, n), blocks, self.body.size)
        return [self._result(k, partial) for k in range(len(self.wanted))]

    def _range(self, starts: range, step: int, n: int) -> dict[int, Any]:
        """The sums of the blocks that start at `starts`, computed with scratch of its own."""
        sums: dict[int, Any] = {}
        code, size = self.code, step if self.flat else step * self.width
        scratch = [np.empty(size, self.work) for _ in range(code.scratch)]
        masks = [np.empty(size, bool) for _ in range(code.masks)]
        shape: Any = None
        with np.errstate(all="ignore"):
            for i in starts:
                j = min(i + step, n)
                if shape is None or shape[0] != j - i:
                    shape = (j - i,) if self.flat else (j - i, self.width)
                    m = (j - i) * (1 if self.flat else self.width)
                    S, M = ([a[:m].reshape(shape) for a in group] for group in (scratch, masks))
                V = [self._slice(k, v, i, j) for k, v in enumerate(self.inputs)]
                found = code.run(self.F, V, [o[i:j] for o in self.views], S, M, self.width)
                if found:
                    self._add(found, shape, sums)
        return sums

    def _slice(self, k: int, v: Any, i: int, j: int) -> Any:
        if k in self.index:
            rows = self.index[k][i:j]
            first = rows[0]
            return (
                v[first : first + j - i] if np.array_equal(rows, np.arange(first, first + j - i)) else v[rows]
            )
        return v[i:j] if v.ndim and (self.flat or v.shape[0] == self.rows) else v

    def _add(self, found: Any, shape: tuple[int, ...], sums: dict[int, Any]) -> None:
        """Nothing; adds a block's results that are wanted as sums.

        COLUMN sums of different blocks are different elements.
        """
        for k, r in zip((k for k, kind in enumerate(self.kinds) if kind != FULL), found, strict=True):
            r = np.asarray(r)
            kind = self.kinds[k]
            if r.shape != shape:
                r = np.broadcast_to(r, shape)
            if kind == COLUMN:
                sums.setdefault(k, []).append(np.add.reduce(r, 1))
                continue
            part = np.add.reduce(r, 0 if kind == ROW else None)
            sums[k] = part if k not in sums else sums[k] + part

    def _result(self, k: int, partial: list[dict[int, Any]]) -> Any:
        """The output, sums added in the order of their blocks: two runs give the same bits."""
        if self.kinds[k] == FULL:
            return self.outs[k]
        shape, dtype = self.body.outs[self.wanted[k]], self.body.dtype
        parts = [p[k] for p in partial if k in p]
        if not parts:
            return np.zeros(shape, dtype)
        if self.kinds[k] == COLUMN:
            return np.concatenate([a for p in parts for a in p]).astype(dtype).reshape(shape)
        total = parts[0]
        for p in parts[1:]:
            total = total + p
        return np.asarray(total, dtype).reshape(shape)


def run(body: Body, F: Any) -> list[Any]:
    """The arrays of a body's outputs."""
    return finished(body, lambda b, wanted: Sweep(b, wanted, F).run(), F)
