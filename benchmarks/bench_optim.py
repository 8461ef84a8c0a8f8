"""Optimiser steps on the CPU, alone and against PyTorch in the same run.

    pytest benchmarks/bench_optim.py                 pytest-benchmark groups (lucid alone)
    python benchmarks/bench_optim.py [--json FILE]   interleaved with PyTorch, medians of milliseconds, ratios

Sets of float32 parameters: `gpt` the 28 tensors of a two-layer GPT (8.5M elements), `small` a hundred layers
of 64 to 64 with bias (200 tensors, 0.4M elements), `tiny` 200 tensors of 8 elements. PyTorch runs as it does
by default on the CPU (a tensor at a time), with foreach=True, and with fused=True (a compiled kernel).
Each has a process of its own, and they take turns (bench_common.py).
`cpu` is processor time, which counts all threads and no other process; ratios are lucid's over PyTorch's,
medians over the repeats. LUCID_THREADS and OMP_NUM_THREADS set the threads. On CUDA times come from
`ci/gpu_check`; what can be counted without a GPU (launches, transfers) is in tests/cuda/test_no_wait.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bench_common import parser, race, write

import lucid

Shapes = list[tuple[int, ...]]


def gpt(layers: int = 2, width: int = 512, words: int = 4096, length: int = 256) -> Shapes:
    """The shapes of a GPT's parameters."""
    norm = [(width,), (width,)]
    attention = [(3 * width, width), (3 * width,), (width, width), (width,)]
    mlp = [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [(words, width), (length, width), *(norm + attention + norm + mlp) * layers, *norm]


SETS: dict[str, Shapes] = {"gpt": gpt(), "small": [(64, 64), (64,)] * 100, "tiny": [(8,)] * 200}
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 1e-3}),
    "sgd momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 1e-3}),
    "adamw": ("AdamW", {"lr": 1e-3}),
}


def step_of(library: Any, optimizer: str, shapes: Shapes, **how: Any) -> Callable[[], None]:
    """One step of an optimiser, repeated on the same gradients; `library` is lucid or PyTorch."""
    rng = np.random.default_rng(0)
    params = []
    for shape in shapes:
        p = library.tensor(rng.standard_normal(shape).astype("f") * 0.02, requires_grad=True)
        p.grad = library.tensor(rng.standard_normal(shape).astype("f") * 1e-3)
        params.append(p)
    name, options = OPTIMIZERS[optimizer]
    step: Callable[[], None] = getattr(library.optim, name)(params, **options, **how).step
    return step


def clip_of(library: Any, shapes: Shapes) -> Callable[[], None]:
    """clip_grad_norm_ with a norm below the limit, as in most steps."""
    params = []
    for shape in shapes:
        params.append(library.tensor(np.zeros(shape, "f"), requires_grad=True))
        params[-1].grad = library.tensor(np.full(shape, 1e-6, "f"))
    return lambda: library.nn.utils.clip_grad_norm_(params, 1.0)


# ---- pytest-benchmark ----


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("which", SETS)
def test_step(benchmark: Any, optimizer: str, which: str) -> None:
    benchmark.group = f"{optimizer} {which}"
    benchmark(step_of(lucid, optimizer, SETS[which]))


# ---- against PyTorch ----


def contestant(row: str, who: str) -> Callable[[], None]:
    """The step of a row ("adamw gpt") by "lucid", "torch", or PyTorch's "foreach" or "fused"."""
    library, how = lucid, {} if who in ("lucid", "torch") else {who: True}
    if who != "lucid":
        import torch as library
    what, which = row.rsplit(" ", 1)
    shapes = SETS[which]
    return clip_of(library, shapes) if what == "clip" else step_of(library, what, shapes, **how)


def compare(scale: float = 1.0) -> list[dict[str, Any]]:
    """All rows, milliseconds."""
    rows: list[dict[str, Any]] = []
    for which in SETS:
        repeats = int((15 if which == "gpt" else 60) * scale)
        for what in (*OPTIMIZERS, "clip"):
            names = ("lucid", "torch") if what == "clip" else ("lucid", "torch", "foreach", "fused")
            found = race("bench_optim", f"{what} {which}", names, repeats, 1 if which == "gpt" else 5)
            for kind in ("wall", "cpu"):
                found[kind] = {who: seconds * 1e3 for who, seconds in found[kind].items()}
            rows.append(found)
    return rows


def main(argv: list[str] | None = None) -> None:
    """Prints the table."""
    a = parser(__doc__).parse_args(argv)
    result = compare(a.scale)
    names = ("torch", "foreach", "fused")
    heads = " ".join(f"{n:>8}" for n in names)
    print(f"{'row':20} {'wall':>8} {'cpu':>8}   wall over {heads}   cpu over {heads}   (ms)")
    for r in result:
        over = [
            " ".join(f"{r[what][n]:8.2f}" if n in r[what] else " " * 8 for n in names)
            for what in ("wall ratio", "cpu ratio")
        ]
        own = f"{r['wall']['lucid']:8.3f} {r['cpu']['lucid']:8.3f}"
        print(f"{r['row']:20} {own}             {over[0]}            {over[1]}")
    write(a.json, result)


if __name__ == "__main__":
    main()
