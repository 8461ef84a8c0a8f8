"""Per-op overhead and small training steps, alone and against PyTorch in the same run.

    pytest benchmarks/bench_overhead.py                     pytest-benchmark groups (lucid alone)
    python benchmarks/bench_overhead.py [--json FILE]       interleaved with PyTorch, medians, as ratios
    python benchmarks/bench_overhead.py --deep [--nodes N]  a chain of a million nodes: time and bytes each

Rows: `chain` is 999 ops (mul, add, tanh) on 8 float32 elements; `mlp` is one training step of 784-256-256-10
(ReLU, cross entropy, SGD with momentum) at batch 1 and 128, and of 784-2048x3-10 at batch 512. Both run with
their default number of threads, each in a process of its own (bench_common.py), in turns; the ratio is the
median over repeats of lucid / PyTorch.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import parser, race, write

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


def contestant(row: str, who: str) -> Callable[[], Any]:
    """The step of a row by "lucid" or "torch"."""
    if who == "torch":
        import torch
    if row in MLPS:
        return lucid_step(*MLPS[row]) if who == "lucid" else torch_step(torch, *MLPS[row])
    forward, backward, no_grad = lucid_chain() if who == "lucid" else torch_chain(torch)
    return {
        "chain forward": forward,
        "chain forward + backward": lambda: backward(forward()),
        "chain no-grad": no_grad,
    }[row]


# Row -> (repeats, steps per repeat).
ROWS = {
    "chain forward": (60, 3),
    "chain forward + backward": (60, 3),
    "chain no-grad": (60, 5),
    "mlp batch 1": (60, 20),
    "mlp batch 128": (60, 10),
    "mlp 2048 batch 512": (8, 1),
}


def compare(scale: float = 1.0) -> list[dict[str, Any]]:
    """All rows against PyTorch."""
    rows = []
    for name, (repeats, inner) in ROWS.items():
        found = race("bench_overhead", name, ("lucid", "torch"), int(repeats * scale), inner)
        unit = 1e6 / (3 * CHAIN) if name.startswith("chain") else 1e3
        rows.append(
            {
                "row": name,
                **{who: seconds * unit for who, seconds in found["wall"].items()},
                "ratio": found["wall ratio"]["torch"],
                "target": TARGETS.get(name),
            }
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
