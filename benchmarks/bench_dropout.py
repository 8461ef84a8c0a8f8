"""Dropout on the CPU: the mask kept for the backward pass, or computed again.

    python benchmarks/bench_dropout.py [n ...]

Forward + backward of n float32 elements, both forms in turn in each repeat, in CPU time; and the bytes that
the graph keeps.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import lucid
from lucid.autograd import Engine
from lucid.autograd.record import RECORDED as F
from lucid.storage.random import default_generator
from lucid.tensor import _wrap

P = 0.1


def kept(x: Any) -> Any:
    """Dropout with a mask that is stored: what `nn.functional.dropout` does on the CPU."""
    return lucid.nn.functional.dropout(x, P)


def recomputed(x: Any) -> Any:
    """Dropout from the place in the stream: what it does on CUDA."""
    state, skip = default_generator("cpu").draw(x.numel())
    return F.seeded_dropout(x, _wrap(state, x.storage.backend), skip, P)


def step(form: Any, x: Any, g: Any) -> tuple[float, int]:
    """(CPU seconds of forward and backward, bytes kept between them)."""
    start = time.process_time()
    y = form(x)
    held = sum(s.array.nbytes for s in y.grad_fn.saved)
    Engine.backward(y, g)
    return time.process_time() - start, held


def main(sizes: list[int]) -> None:
    """Nothing; prints a line per size."""
    for n in sizes:
        x = lucid.rand(n, requires_grad=True)
        g = lucid.ones(n).storage.array
        runs: dict[str, list[tuple[float, int]]] = {"kept": [], "recomputed": []}
        for _ in range(max(5, min(200, (1 << 24) // n))):
            for form in (kept, recomputed):
                runs[form.__name__].append(step(form, x, g))
        for name, found in runs.items():
            seconds = statistics.median(t for t, _ in found)
            print(f"{n:>10} {name:<11} {seconds / n * 1e9:8.2f} ns per element {found[0][1]:>10} bytes kept")


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [1 << 12, 1 << 16, 1 << 20, 1 << 23])
