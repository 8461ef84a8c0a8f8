"""Fused against unfused backward passes, on the CPU, and against PyTorch eager where it is installed.

    pytest benchmarks/bench_fusion.py                    pytest-benchmark groups: fused / unfused per pattern
    python benchmarks/bench_fusion.py [--json FILE]      interleaved medians and a table
                                      [--figure FILE]    and speed-up against size as a figure

Rows of PATTERN are backward passes alone (the forward ran once, retain_graph=True). `bell` is
exp(-x*x).sum(), forward and backward, also as an `@lucid.fusion.fuse` function. `pass` is the cost of looking
at a graph of 1,000 nodes of 8 elements, where nothing fuses. On CUDA times come from `ci/gpu_check` only;
what can be counted without a GPU, launches and bytes, is in `lucid.fusion.explain`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
import lucid.nn.functional as LF
from lucid import fusion
from lucid.autograd import Engine

SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 10_000_000)


LEAVES: list[Any] = []


def leaf(*shape: int) -> Any:
    """A float32 leaf of normal numbers; kept alive until the next row (a graph holds its leaves weakly)."""
    LEAVES.append(
        lucid.tensor(np.random.default_rng(0).standard_normal(shape).astype("f"), requires_grad=True)
    )
    return LEAVES[-1]


def backward_of(out: Any) -> Callable[[], None]:
    """A backward pass from `out` that can be repeated; gradients are dropped each time."""
    seed = np.ones(out.shape, "f")
    inputs = list(LEAVES)
    LEAVES.clear()

    def run() -> None:
        for t in inputs:
            t.grad = None
        Engine.backward(out, seed, retain_graph=True)

    return run


def _square(n: int) -> tuple[int, int]:
    side = max(16, int(n**0.5))
    return side, side


# name -> function of a size that returns the tensor whose backward is timed.
PATTERN: dict[str, Callable[[int], Any]] = {
    "pointwise chain of 5": lambda n: ((leaf(n) * 0.5).tanh() * 2.0).sigmoid() * 3.0,
    "exp(-x*x)": lambda n: (lambda x: (-x * x).exp())(leaf(n)),
    "bias + gelu": lambda n: (lambda s: LF.gelu(leaf(*s) + leaf(s[1])))(_square(n)),
    "residual + relu": lambda n: LF.relu(leaf(n) * 1.0 + leaf(n) * 1.0),
    "linear + relu": lambda n: (lambda s: LF.relu(LF.linear(leaf(*s), leaf(64, s[1]), leaf(64))))(_square(n)),
    "linear + gelu": lambda n: (lambda s: LF.gelu(LF.linear(leaf(s[0], 64), leaf(s[1], 64), leaf(s[1]))))(
        _square(n)
    ),
    "log_softmax + nll": lambda n: (
        lambda s: LF.nll_loss(LF.log_softmax(leaf(*s), -1), lucid.tensor(np.arange(s[0]) % s[1])).reshape(1)
    )(_square(n)),
}


def _scores(n: int) -> Any:
    side = _square(n)
    mask = lucid.tensor(np.tril(np.ones(side, bool)) == 0)
    return LF.softmax((leaf(*side) * 0.1).masked_fill(mask, -1e9), -1)


def _batch_norm(n: int) -> Any:
    x = leaf(max(1, n // (64 * 256)), 64, 16, 16)
    return LF.relu(LF.batch_norm(x, None, None, leaf(64), leaf(64), training=True))


PATTERN |= {"scale + mask + softmax": _scores, "batch_norm + relu": _batch_norm}


def medians(contestants: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds per contestant, interleaved."""
    for f in contestants.values():
        f()
    times: dict[str, list[float]] = {k: [] for k in contestants}
    for _ in range(repeats):
        for k, f in contestants.items():
            start = time.perf_counter()
            f()
            times[k].append(time.perf_counter() - start)
    return {k: statistics.median(v) for k, v in times.items()}


def switched(run: Callable[[], None], on: bool) -> Callable[[], None]:
    """`run` with fusion on or off."""

    def f() -> None:
        with fusion.enabled(on):
            run()

    return f


def sweep(sizes: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    """A row per pattern and size."""
    rows = []
    for name, make in PATTERN.items():
        for n in sizes:
            run = backward_of(make(n))
            t = medians(
                {"fused": switched(run, True), "unfused": switched(run, False)},
                max(3, repeats * 10 // max(1, n >> 20) // 4 if n >> 20 else repeats),
            )
            rows.append(
                {
                    "pattern": name,
                    "elements": n,
                    "fused ms": t["fused"] * 1e3,
                    "unfused ms": t["unfused"] * 1e3,
                    "ratio": t["fused"] / t["unfused"],
                }
            )
    return rows


@fusion.fuse
def bell(x: Any) -> Any:
    """exp(-x*x), fused forward and backward."""
    return (-x * x).exp()


@fusion.fuse
def bell_sum(x: Any) -> Any:
    """exp(-x*x).sum(): value and gradient in one sweep."""
    return (-x * x).exp().sum()


def bells(repeats: int) -> list[dict[str, Any]]:
    """exp(-x*x).sum(), forward + backward, fused and not, and in PyTorch eager."""
    rows = []
    for n in (1_000_000, 10_000_000):
        x = leaf(n)

        def step(f: Callable[[Any], Any], x: Any = x) -> None:
            x.grad = None
            out = f(x)
            (out.sum() if out.ndim else out).backward()

        contestants: dict[str, Callable[[], Any]] = {
            "unfused": switched(lambda step=step: step(bell.__wrapped__), False),
            "fused": lambda step=step: step(bell.__wrapped__),
            "@fuse": lambda step=step: step(bell),
            "@fuse sum": lambda step=step: step(bell_sum),
        }
        try:
            import torch

            p = torch.tensor(x.detach().numpy(), requires_grad=True)

            def torch_step(p: Any = p) -> None:
                p.grad = None
                (-p * p).exp().sum().backward()

            contestants["torch"] = torch_step
        except ImportError:
            pass
        t = medians(contestants, repeats)
        rows.append(
            {
                "elements": n,
                **{k: v * 1e3 for k, v in t.items()},
                **(
                    {f"{k} / torch": t[k] / t["torch"] for k in ("@fuse", "@fuse sum")}
                    if "torch" in t
                    else {}
                ),
            }
        )
    return rows


def pass_cost(repeats: int) -> dict[str, float]:
    """Seconds of a backward of 1,000 tiny nodes with the pass on and off."""
    x, w, b = (leaf(8) for _ in range(3))
    h = x
    for _ in range(333):
        h = (h * w + b).tanh()
    run = backward_of(h)
    t = medians({"on": switched(run, True), "off": switched(run, False)}, repeats * 10)
    return {"on us/node": t["on"] * 1e3, "off us/node": t["off"] * 1e3, "ratio": t["on"] / t["off"]}


def blocks(repeats: int) -> list[dict[str, Any]]:
    """The issue's own shapes: a GELU block of 4096 x 4096, and linear + relu at batch 512, 2048 wide."""
    rows = []
    makers: dict[str, Callable[[], Any]] = {
        "gelu 4096 x 4096, pointwise": lambda: LF.gelu(leaf(4096, 4096) * 1.0),
        "bias + gelu 4096 x 4096": lambda: LF.gelu(leaf(4096, 4096) + leaf(4096)),
        "linear + relu 512 x 2048 -> 2048": lambda: LF.relu(
            LF.linear(leaf(512, 2048), leaf(2048, 2048), leaf(2048))
        ),
        "linear + relu 65536 x 16 -> 64": lambda: LF.relu(LF.linear(leaf(65536, 16), leaf(64, 16), leaf(64))),
    }
    for name, make in makers.items():
        run = backward_of(make())
        t = medians({"fused": switched(run, True), "unfused": switched(run, False)}, repeats)
        rows.append(
            {
                "row": name,
                "fused ms": t["fused"] * 1e3,
                "unfused ms": t["unfused"] * 1e3,
                "ratio": t["fused"] / t["unfused"],
            }
        )
    return rows


# ---- pytest-benchmark ----


def pytest_generate_tests(metafunc: Any) -> None:
    if "pattern" in metafunc.fixturenames:
        metafunc.parametrize("pattern", list(PATTERN))
        metafunc.parametrize("mode", ["fused", "unfused"])


def test_pattern(benchmark: Any, pattern: str, mode: str) -> None:
    benchmark.group = f"{pattern}, 1M elements, backward"
    benchmark(switched(backward_of(PATTERN[pattern](1 << 20)), mode == "fused"))


# ---- table and figure ----


def figure(rows: list[dict[str, Any]], path: str) -> None:
    """Speed-up against size, a line per pattern."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(8, 5))
    for name in PATTERN:
        mine = [r for r in rows if r["pattern"] == name]
        ax.plot([r["elements"] for r in mine], [1 / r["ratio"] for r in mine], marker="o", label=name)
    ax.axhline(1.0, color="0.6", linewidth=1)
    ax.set_xscale("log")
    ax.set_xlabel("elements (float32)")
    ax.set_ylabel("unfused / fused time of the backward pass, CPU")
    ax.legend(frameon=False, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    fig.savefig(path, dpi=120)


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Prints rows as a table."""
    print(f"\n{title}")
    keys = list(rows[0])
    print("  ".join(f"{k:>24}" if i == 0 else f"{k:>13}" for i, k in enumerate(keys)))
    for r in rows:
        print(
            "  ".join(
                f"{r[k]:>24}"
                if i == 0 and isinstance(r[k], str)
                else f"{r[k]:>13,.3f}"
                if isinstance(r[k], float)
                else f"{r[k]:>13,}"
                for i, k in enumerate(keys)
            )
        )


def main(argv: list[str] | None = None) -> None:
    """Prints the tables; writes JSON and the figure where asked."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json")
    p.add_argument("--figure")
    p.add_argument("--repeats", type=int, default=15)
    p.add_argument("--quick", action="store_true", help="three sizes only")
    a = p.parse_args(argv)
    result = {
        "sweep": sweep(SIZES[1:4] if a.quick else SIZES, a.repeats),
        "bell": bells(a.repeats),
        "blocks": blocks(max(3, a.repeats // 3)),
        "pass": pass_cost(a.repeats),
    }
    show("backward, fused against unfused", result["sweep"])
    show("exp(-x*x).sum(), forward + backward, ms", result["bell"])
    show("blocks", result["blocks"])
    show("cost of the pass on a graph where nothing fuses", [result["pass"]])
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f, indent=1)
    if a.figure:
        figure(result["sweep"], a.figure)


if __name__ == "__main__":
    main()
