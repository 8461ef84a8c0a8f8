"""Per-op overhead and small training steps, alone and against PyTorch in the same process.

    pytest benchmarks/bench_overhead.py                     pytest-benchmark groups (lucid alone)
    python benchmarks/bench_overhead.py [--json FILE]       interleaved with PyTorch, medians, as ratios
    python benchmarks/bench_overhead.py --deep [--nodes N]  a chain of a million nodes: time and bytes each

Rows: `chain` is 999 ops (mul, add, tanh) on 8 float32 elements; `mlp` is one training step of 784-256-256-10
(ReLU, cross entropy, SGD with momentum) at batch 1 and 128, and of 784-2048x3-10 at batch 512. PyTorch runs
with its default number of threads. Each repeat times every contestant in turn, so that a slow moment of the
machine meets both; the ratio is the median over repeats of lucid / PyTorch.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import parser, write

import lucid
import lucid.nn.functional as LF
from lucid import nn
from lucid.autograd import Engine

CHAIN = 333
TARGETS = {
    "chain forward + backward": 0.65,
    "chain no-grad": 0.60,
    "mlp batch 128": 0.65,
    "mlp batch 1": 0.95,
    "mlp 2048 batch 512": 0.65,
}


def chain(tanh: Callable[..., Any], x: Any, w: Any, b: Any) -> Any:
    """tanh(h * w + b), CHAIN times."""
    h = x
    for _ in range(CHAIN):
        h = tanh(h * w + b)
    return h


def chain_arrays() -> list[Any]:
    """x, w, b of the chain."""
    return [a.astype("f") for a in np.random.default_rng(0).standard_normal((3, 8))]


def lucid_chain() -> tuple[Callable[[], Any], Callable[[Any], None], Callable[[], Any]]:
    """(forward, backward of its result, forward without grad) in lucid."""
    xs = [lucid.tensor(a, requires_grad=True) for a in chain_arrays()]
    tanh, ones = lucid.tanh, np.ones(8, "f")

    def no_grad() -> Any:
        with lucid.no_grad():
            return chain(tanh, *xs)
    return lambda: chain(tanh, *xs), lambda h: Engine.backward(h, ones), no_grad


def lucid_step(sizes: tuple[int, ...], batch: int) -> Callable[[], None]:
    """One training step of an MLP in lucid."""
    lucid.manual_seed(0)
    layers: list[Any] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    opt = lucid.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    x = lucid.tensor(rng.standard_normal((batch, sizes[0])).astype("f"))
    y = lucid.tensor(rng.integers(0, sizes[-1], batch))

    def step() -> None:
        opt.zero_grad()
        loss = LF.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return step


MLPS = {
    "mlp batch 1": ((784, 256, 256, 10), 1),
    "mlp batch 128": ((784, 256, 256, 10), 128),
    "mlp 2048 batch 512": ((784, 2048, 2048, 2048, 10), 512),
}


# ---- pytest-benchmark ----

def test_chain_forward_backward(benchmark: Any) -> None:
    forward, backward, _ = lucid_chain()
    benchmark.group = "chain of 999 tiny ops"
    benchmark(lambda: backward(forward()))


def test_chain_no_grad(benchmark: Any) -> None:
    benchmark.group = "chain of 999 tiny ops"
    benchmark(lucid_chain()[2])


def test_mlp_batch_1(benchmark: Any) -> None:
    benchmark.group = "mlp step"
    benchmark(lucid_step(*MLPS["mlp batch 1"]))


def test_mlp_batch_128(benchmark: Any) -> None:
    benchmark.group = "mlp step"
    benchmark(lucid_step(*MLPS["mlp batch 128"]))


# ---- against PyTorch ----

def torch_chain(torch: Any) -> tuple[Callable[[], Any], Callable[[Any], None], Callable[[], Any]]:
    """(forward, backward, forward without grad) in PyTorch."""
    xs = [torch.tensor(a, requires_grad=True) for a in chain_arrays()]
    ones = torch.ones(8)

    def no_grad() -> Any:
        with torch.no_grad():
            return chain(torch.tanh, *xs)
    return lambda: chain(torch.tanh, *xs), lambda h: h.backward(ones), no_grad


def torch_step(torch: Any, sizes: tuple[int, ...], batch: int) -> Callable[[], None]:
    """The same training step in PyTorch."""
    layers: list[Any] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((batch, sizes[0])).astype("f"))
    y = torch.tensor(rng.integers(0, sizes[-1], batch))

    def step() -> None:
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return step


def interleaved(contestants: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds per contestant and repeat; each contestant times itself."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            times[name].append(run())
    return times


def timed(f: Callable[[], Any], inner: int = 1) -> Callable[[], float]:
    """A contestant that runs `f` `inner` times."""
    def run() -> float:
        start = time.perf_counter()
        for _ in range(inner):
            f()
        return (time.perf_counter() - start) / inner
    return run


def row(
    name: str,
    mine: Callable[[], Any],
    theirs: Callable[[], Any],
    repeats: int,
    inner: int,
    unit: float,
    per: float = 1.0,
) -> dict[str, Any]:
    """One line of the table."""
    mine(), theirs()
    t = interleaved({"lucid": timed(mine, inner), "torch": timed(theirs, inner)}, repeats)
    ratio = statistics.median(a / b for a, b in zip(t["lucid"], t["torch"], strict=True))
    return {
        "row": name,
        "lucid": statistics.median(t["lucid"]) * unit / per,
        "torch": statistics.median(t["torch"]) * unit / per,
        "ratio": ratio,
        "target": TARGETS.get(name),
    }


def compare(scale: float = 1.0) -> list[dict[str, Any]]:
    """All rows against PyTorch."""
    import torch
    mine, theirs = lucid_chain(), torch_chain(torch)
    n = 3 * CHAIN
    rows = [
        row("chain forward", mine[0], theirs[0], int(60 * scale), 1, 1e6, n),
        row(
            "chain forward + backward",
            lambda: mine[1](mine[0]()),
            lambda: theirs[1](theirs[0]()),
            int(100 * scale),
            1,
            1e6,
            n,
        ),
        row("chain no-grad", mine[2], theirs[2], int(100 * scale), 1, 1e6, n),
    ]
    for name, (sizes, batch) in MLPS.items():
        big = sizes[1] > 1000
        rows.append(
            row(
                name,
                lucid_step(sizes, batch),
                torch_step(torch, sizes, batch),
                int((8 if big else 60) * scale),
                1 if big else 20,
                1e3,
            )
        )
    return rows


def deep(nodes: int) -> dict[str, float]:
    """A chain of `nodes` ops on one element: microseconds and bytes per node to build, run backward and free.
    """
    x, w = lucid.ones(1, requires_grad=True), lucid.ones(1, requires_grad=True)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    t0 = time.perf_counter()
    h = x
    for _ in range(nodes // 2):
        h = h * w + x
    t1 = time.perf_counter()
    Engine.backward(h, np.ones(1, "f"), retain_graph=True)
    t2 = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del h
    t3 = time.perf_counter()
    return {
        "nodes": nodes,
        "forward us": (t1 - t0) / nodes * 1e6,
        "backward us": (t2 - t1) / nodes * 1e6,
        "free us": (t3 - t2) / nodes * 1e6,
        "total us": (t3 - t0) / nodes * 1e6,
        "peak bytes": (peak - before) * 1024 / nodes,
    }


def main(argv: list[str] | None = None) -> None:
    """Prints the table."""
    p = parser(__doc__)
    p.add_argument("--deep", action="store_true", help="the million-node chain instead")
    p.add_argument("--nodes", type=int, default=1_000_000)
    a = p.parse_args(argv)
    if a.deep:
        result: Any = deep(a.nodes)
        print("  ".join(f"{k} {v:,.2f}" for k, v in result.items()))
    else:
        result = compare(a.scale)
        print(
            f"{'row':28} {'lucid':>10} {'torch':>10} {'ratio':>7} {'target':>7}   (chain: us per op; "
            "mlp: ms per step)"
        )
        for r in result:
            print(
                f"{r['row']:28} {r['lucid']:10.3f} {r['torch']:10.3f} {r['ratio']:7.2f} "
                f"{r['target'] or '':>7}"
            )
    write(a.json, result)


if __name__ == "__main__":
    main()
