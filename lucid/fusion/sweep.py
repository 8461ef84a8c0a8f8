"""A program on the CPU: one sweep over cache-sized blocks, every intermediate result in cache."""

from __future__ import annotations

import os
import threading
from math import prod
from typing import Any

import numpy as np

from .region import COLUMN, FULL, ROW, SCALAR, Program, kind_of

# Elements per block: 512 KB of float32, so that a formula's temporaries stay in cache and a thread holds the interpreter lock
# rarely enough for two to pay (five operations on 10M elements: 14.7 ms in blocks of 64k on one thread, 14.8 on two; of 128k 15.6 and 9.2).
BLOCK = 131_072
# Below this a second thread costs more than it brings (hand-over of the interpreter lock).
THREADED = 8 * BLOCK
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


def _column_sums(a: Any) -> Any:
    """Sum over rows, accumulated in float32 at least."""
    return np.add.reduce(a, 0, dtype=np.float32 if a.dtype.itemsize == 2 else None)


class Sweep:
    """One execution of a program: arrays as [rows, width] views, output buffers, and partial sums per thread."""

    def __init__(self, program: Program, g: Any, F: Any) -> None:
        self.program, self.F = program, F
        shape = program.shape
        size = prod(shape)
        flat = all(k in (FULL, SCALAR) for k in program.kinds) and all(
            o is None or o == shape or prod(o) == 1 for o in program.outs
        )
        self.width = size if flat else shape[-1]
        self.rows = 1 if flat else size // max(self.width, 1)
        self.flat = flat
        # The gradient of a sum is one number broadcast to the whole shape: it stays one number.
        uniform = g.size and not any(g.strides)
        self.g = np.asarray(g[(0,) * g.ndim]) if uniform else np.ascontiguousarray(g).reshape(self._view(FULL))
        self.values = [self._place(v, k) for v, k in zip(program.values, program.kinds, strict=True)]
        self.outs: list[Any] = [None] * len(program.outs)
        self.views: list[Any] = [None] * len(program.outs)
        self.kinds = [FULL if o is None else kind_of(o, shape) or FULL for o in program.outs]
        self.partial: list[dict[int, Any]] = []

    def _view(self, kind: str) -> tuple[int, ...]:
        if self.flat:
            return (self.width,)
        return {FULL: (self.rows, self.width), ROW: (1, self.width), COLUMN: (self.rows, 1), SCALAR: (1, 1)}[kind]

    def _place(self, v: Any, kind: str) -> Any:
        return v.reshape(()) if kind == SCALAR else v.reshape(self._view(kind))

    def run(self) -> list[Any]:
        """The gradients of the outputs, in the shapes that their edges expect."""
        n = self.width if self.flat else self.rows
        step = BLOCK if self.flat else max(1, BLOCK // max(self.width, 1))
        shape = self.program.shape
        # The first block tells the dtypes of the outputs.
        first = self._block(0, min(step, n))
        size = self.rows * self.width
        for i, (r, kind) in enumerate(zip(first, self.kinds, strict=True)):
            if kind in (FULL, COLUMN):
                # An array of its own in the final shape: a view of one would be copied by AccumulateGrad.
                self.outs[i] = np.empty(shape if kind == FULL else self.program.outs[i], self._dtype(r))
                self.views[i] = self.outs[i].reshape(self._view(kind))
        sums: dict[int, Any] = {}
        self._store(first, 0, min(step, n), sums)
        self.partial = [sums]
        rest = range(step, n, step)
        threads = pool() if size >= THREADED and len(rest) > 1 else None
        if threads is None:
            self._range(rest, step, n, sums)
        else:
            share = -(-len(rest) // _threads)
            parts = [rest[i : i + share] for i in range(0, len(rest), share)]
            self.partial += [{} for _ in parts]
            # The sums of the parts are added in their order: two runs give the same bits.
            list(threads.map(lambda a: self._range(a[0], step, n, a[1]), zip(parts, self.partial[1:], strict=True)))
        return [self._result(i) for i in range(len(self.outs))]

    def _dtype(self, r: Any) -> Any:
        # bfloat16 (a dtype of ml_dtypes, number 256 and up) becomes float32 beside a Python number.
        return self.g.dtype if self.g.dtype.num >= 256 else r.dtype

    def _range(self, starts: range, step: int, n: int, sums: dict[int, Any]) -> None:
        with np.errstate(all="ignore"):
            for i in starts:
                self._store(self._block(i, min(i + step, n)), i, min(i + step, n), sums)

    def _slice(self, v: Any, i: int, j: int) -> Any:
        return v[i:j] if v.ndim and (self.flat or v.shape[0] == self.rows) else v

    def _block(self, i: int, j: int) -> list[Any]:
        """The outputs of one block."""
        program, F = self.program, self.F
        values = [self._slice(v, i, j) for v in self.values]
        waiting: list[Any] = [None] * len(program.steps)
        waiting[0] = self._slice(self.g, i, j)
        outs: list[Any] = [None] * len(self.outs)
        for k, step in enumerate(program.steps):
            g = waiting[k]
            waiting[k] = None
            for formula, sources, results in step.calls:
                args = [values[s] if what == "value" else s for what, s in sources]
                found = formula.function(F, g, *args)
                for r, goal in zip(found if formula.shared else (found,), results, strict=True):
                    if goal is None or r is None:
                        continue
                    where, m = goal
                    box = waiting if where == "node" else outs
                    box[m] = r if box[m] is None else box[m] + r
                    if where == "both":
                        outs[-1] = outs[m]
        return outs

    def _store(self, results: list[Any], i: int, j: int, sums: dict[int, Any]) -> None:
        for k, (r, kind) in enumerate(zip(results, self.kinds, strict=True)):
            if kind == FULL:
                self.views[k][i:j] = r
                continue
            if not self.flat:
                r = np.broadcast_to(r, (j - i, self.width))
            elif kind == SCALAR:
                r = np.broadcast_to(r, (j - i,))
            if kind == COLUMN:
                self.views[k][i:j] = np.add.reduce(r, 1, keepdims=True)
            else:
                part = _column_sums(r) if kind == ROW else np.add.reduce(r, None, dtype=np.float32 if r.dtype.itemsize == 2 else None)
                sums[k] = (part, r.dtype) if k not in sums else (sums[k][0] + part, r.dtype)

    def _result(self, k: int) -> Any:
        kind, shape = self.kinds[k], self.program.outs[k]
        if kind in (FULL, COLUMN):
            return self.outs[k]
        total, dtype = None, None
        for part in self.partial:
            if k in part:
                total, dtype = (part[k][0] if total is None else total + part[k][0]), part[k][1]
        return np.asarray(total, self.g.dtype if self.g.dtype.num >= 256 else dtype).reshape(shape)


def run(program: Program, g: Any, F: Any) -> list[Any]:
    """The gradients of a program's outputs for the gradient `g` of its head."""
    return Sweep(program, g, F).run()
