"""Fused against unfused backward passes on the CPU, and against PyTorch eager where it is installed; on CUDA
launches and bytes, counted by the simulator.

    python -m pytest benchmarks/bench_fusion.py        pytest-benchmark groups: fused / unfused per pattern
                                                       and size
    python benchmarks/bench_fusion.py [--json FILE]    tables of interleaved medians; the targets
                                      [--figure FILE]  speed-up against size (CPU), launches and bytes (CUDA)
                                      [--quick]        fewer sizes
                                      [--only NAME..]  bell, blocks, pass, sweep, cuda

Rows of PATTERN are backward passes alone (the forward ran once, retain_graph=True). `bell` is
exp(-x*x).sum(), forward and backward, also as an `@lucid.fuse` function. `pass` is the cost of looking at a
graph of 1,000 nodes of 8 elements, where nothing fuses. Every repeat times each contestant once; ratios are
of medians.

PyTorch runs in a process of its own, as it does without lucid: importing lucid tells malloc to keep freed
blocks, which serves all of a process. Much of what PyTorch takes at 10M elements is its allocator: `torch
here` is the same step inside this process. A timing of the simulator means nothing, so there is none; times
on CUDA come from `ci/gpu_check`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
import lucid.nn.functional as LF
from lucid import fusion
from lucid.autograd import Engine

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 21, 1 << 22, 10_000_000)
DEVICE = "cpu"
LEAVES: list[Any] = []


def leaf(*shape: int) -> Any:
    """A float32 leaf of normal numbers; kept alive until the next row (a graph holds its leaves weakly)."""
    a = np.random.default_rng(0).standard_normal(shape).astype("f")
    LEAVES.append(lucid.tensor(a, device=DEVICE).requires_grad_())
    return LEAVES[-1]


def backward_of(out: Any) -> Callable[[], None]:
    """A backward pass from `out` that can be repeated; gradients are dropped each time."""
    seed = lucid.ones(*out.shape, device=DEVICE)
    inputs = list(LEAVES)
    LEAVES.clear()

    def run() -> None:
        for t in inputs:
            t.grad = None
        Engine.backward(out, seed, retain_graph=True)

    return run


# ---- what is measured: name -> function of a number of elements; the tensor whose backward is timed ----


def _square(n: int) -> tuple[int, int]:
    side = max(16, int(n**0.5))
    return side, side


def _chain(n: int) -> Any:
    return ((leaf(n) * 0.5).tanh() * 2.0).sigmoid() * 3.0


def _bell(n: int) -> Any:
    x = leaf(n)
    return (-x * x).exp()


def _linear(activation: str, n: int, **how: Any) -> Any:
    """Few input features: the passes over what leaves the layer weigh as much as the products."""
    x, weight, bias = leaf(n // 64, 16), leaf(64, 16), leaf(64)
    return getattr(LF, activation)(LF.linear(x, weight, bias), **how)


def _bias_gelu(n: int) -> Any:
    side = _square(n)
    return LF.gelu(leaf(*side) + leaf(side[1]))


def _dropout_add(n: int) -> Any:
    return leaf(n) + LF.dropout(leaf(n).tanh(), 0.1)


def _conv(n: int) -> Any:
    z = LF.conv2d(leaf(max(1, n // (64 * 256)), 16, 16, 16), leaf(64, 16, 1, 1))
    return LF.relu(LF.batch_norm(z, None, None, leaf(64), leaf(64), training=True))


def _batch_norm(n: int) -> Any:
    x = leaf(max(1, n // (64 * 256)), 64, 16, 16)
    return LF.relu(LF.batch_norm(x, None, None, leaf(64), leaf(64), training=True))


def _norm(name: str, n: int) -> Any:
    x, weight = leaf(n // 512, 512) * 1.0, leaf(512)
    y = LF.layer_norm(x, (512,), weight, None) if name == "layer" else LF.rms_norm(x, (512,), weight)
    return x + y.tanh()


def _nll(n: int) -> Any:
    side = _square(n)
    target = lucid.tensor(np.arange(side[0]) % side[1], device=DEVICE)
    return LF.nll_loss(LF.log_softmax(leaf(*side), -1), target).reshape(1)


def _scores(n: int) -> Any:
    side = _square(n)
    mask = lucid.tensor(np.tril(np.ones(side, bool)) == 0, device=DEVICE)
    return LF.softmax((leaf(*side) * 0.1).masked_fill(mask, -1e9), -1)


def _attention(n: int) -> Any:
    """Heads of 64 features over 128 places; n elements of scores."""
    q, k, v = (leaf(max(1, n >> 14), 128, 64) for _ in range(3))
    if fusion.enabled():
        return LF.scaled_dot_product_attention(q, k, v)
    return LF.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v


PATTERN: dict[str, Callable[[int], Any]] = {
    "pointwise chain of 5": _chain,
    "exp(-x*x)": _bell,
    "residual + relu": lambda n: LF.relu(leaf(n).tanh() + leaf(n)),
    "bias + gelu": _bias_gelu,
    "dropout + add": _dropout_add,
    "linear + relu": lambda n: _linear("relu", n),
    "linear + leaky_relu": lambda n: _linear("leaky_relu", n),
    "linear + gelu": lambda n: _linear("gelu", n),
    "linear + gelu (tanh)": lambda n: _linear("gelu", n, approximate="tanh"),
    "linear + silu": lambda n: _linear("silu", n),
    "linear + tanh": lambda n: _linear("tanh", n),
    "linear + sigmoid": lambda n: _linear("sigmoid", n),
    "conv + batch_norm + relu": _conv,
    "batch_norm + relu": _batch_norm,
    "layer_norm + residual": lambda n: _norm("layer", n),
    "rms_norm + residual": lambda n: _norm("rms", n),
    "log_softmax + nll": _nll,
    "scale + mask + softmax": _scores,
    "attention": _attention,
}
# Panels of the figure.
FAMILIES: dict[str, tuple[str, ...]] = {
    "pointwise": tuple(PATTERN)[:5],
    "linear, 16 to 64 features": tuple(PATTERN)[5:12],
    "norms": tuple(PATTERN)[12:16],
    "losses and attention": tuple(PATTERN)[16:],
}


def pair(name: str, n: int) -> dict[str, Callable[[], None]]:
    """The fused and the unfused backward pass of a row. Recorded apart: attention is another graph."""
    found = {}
    for mode in ("fused", "unfused"):
        with fusion.enabled(mode == "fused"):
            found[mode] = switched(backward_of(PATTERN[name](n)), mode == "fused")
    return found


def switched(run: Callable[[], None], on: bool) -> Callable[[], None]:
    """`run` with fusion on or off."""

    def f() -> None:
        with fusion.enabled(on):
            run()

    return f


def medians(contestants: dict[str, Callable[[], Any]], repeats: int, pause: float = 0.0) -> dict[str, float]:
    """Median seconds per contestant, interleaved. One that returns a number has measured itself. pause:
    seconds before each, in which threads of the one before go to sleep.
    """
    for f in contestants.values():
        f()
    times: dict[str, list[float]] = {k: [] for k in contestants}
    for _ in range(repeats):
        for k, f in contestants.items():
            time.sleep(pause)
            start = time.perf_counter()
            own = f()
            times[k].append(own if isinstance(own, float) else time.perf_counter() - start)
    return {k: statistics.median(v) for k, v in times.items()}


# ---- rows ----


def sweep(sizes: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    """A row per pattern and size."""
    rows = []
    for name in PATTERN:
        for n in sizes:
            t = medians(pair(name, n), max(5, min(repeats, (repeats << 22) // n)))
            rows.append(
                {
                    "pattern": name,
                    "elements": n,
                    "fused ms": t["fused"] * 1e3,
                    "unfused ms": t["unfused"] * 1e3,
                    "speed-up": t["unfused"] / t["fused"],
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


TORCH = """
import sys, time, torch
xs = {}
for line in sys.stdin:
    n = int(line)
    x = xs.get(n)
    if x is None:
        x = xs[n] = torch.randn(n, requires_grad=True)
    x.grad = None
    start = time.perf_counter()
    (-x * x).exp().sum().backward()
    print(time.perf_counter() - start, flush=True)
"""


class Torch:
    """PyTorch eager in a process of its own: `step(n)` -> seconds of exp(-x*x).sum() forward and backward."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def step(self, n: int) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(n, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """Nothing; ends the process."""
        self.process.communicate()


def bells(repeats: int) -> list[dict[str, Any]]:
    """exp(-x*x).sum(), forward + backward: ms; unfused, by the pass, as functions under @fuse, in PyTorch."""
    rows = []
    try:
        import torch
    except ImportError:
        torch = None
    other = None if torch is None else Torch()
    for n in (1_000_000, 10_000_000):
        x = leaf(n)
        LEAVES.clear()

        def step(f: Callable[[Any], Any], x: Any = x) -> None:
            x.grad = None
            out = f(x)
            (out.sum() if out.ndim else out).backward()

        contestants: dict[str, Callable[[], Any]] = {
            "unfused": switched(lambda step=step: step(bell.__wrapped__), False),
            "pass": lambda step=step: step(bell.__wrapped__),
            "@fuse": lambda step=step: step(bell),
            "@fuse sum": lambda step=step: step(bell_sum),
        }
        if other is not None:
            p = torch.tensor(x.detach().numpy(), requires_grad=True)

            def torch_step(p: Any = p) -> None:
                p.grad = None
                (-p * p).exp().sum().backward()

            contestants |= {"torch": lambda n=n: other.step(n), "torch here": torch_step}
        t = medians(contestants, repeats, 0.003)
        rows.append({"elements": n, **{k: v * 1e3 for k, v in t.items()}})
    if other is not None:
        other.close()
    return rows


def pass_cost(repeats: int) -> dict[str, float]:
    """Microseconds per node of a backward of 1,000 tiny nodes with the pass on and off."""
    x, w, b = (leaf(8) for _ in range(3))
    h = x
    for _ in range(333):
        h = (h * w + b).tanh()
    run = backward_of(h)
    t = medians({"on": switched(run, True), "off": switched(run, False)}, repeats * 20)
    # 1,000 nodes: milliseconds of the pass are microseconds per node.
    return {"on us/node": t["on"] * 1e3, "off us/node": t["off"] * 1e3, "ratio": t["on"] / t["off"]}


BLOCKS: dict[str, Callable[[], Any]] = {
    "gelu 4096 x 4096": lambda: LF.gelu(leaf(4096, 4096) * 1.0),
    "bias + gelu 4096 x 4096": lambda: LF.gelu(leaf(4096, 4096) + leaf(4096)),
    "linear + relu 512 x 2048 -> 2048": lambda: LF.relu(
        LF.linear(leaf(512, 2048), leaf(2048, 2048), leaf(2048))
    ),
    "linear + relu 65536 x 16 -> 64": lambda: LF.relu(LF.linear(leaf(65536, 16), leaf(64, 16), leaf(64))),
    "linear + relu 262144 x 16 -> 16": lambda: LF.relu(LF.linear(leaf(1 << 18, 16), leaf(16, 16), leaf(16))),
}


def blocks(repeats: int) -> list[dict[str, Any]]:
    """Single shapes: a GELU block, and linear + relu where the products weigh most and least."""
    rows = []
    for name, make in BLOCKS.items():
        run = backward_of(make())
        t = medians({"fused": switched(run, True), "unfused": switched(run, False)}, repeats)
        rows.append({"row": name, "fused ms": t["fused"] * 1e3, "unfused ms": t["unfused"] * 1e3})
        rows[-1]["ratio"] = t["fused"] / t["unfused"]
    return rows


def targets(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What the project asks of the rows, for two cores."""
    found = []

    def target(name: str, value: float, most: float) -> None:
        met = "yes" if value <= most else "NO"
        found.append({"target": name, "measured": value, "at most": most, "met": met})

    for r, most in zip(result["bell"], (0.9, 0.15), strict=True):
        if "torch" in r:
            target(f"exp(-x*x).sum() {r['elements']:,}, @fuse sum / torch", r["@fuse sum"] / r["torch"], most)
        for k in ("@fuse", "@fuse sum"):
            target(f"exp(-x*x).sum() {r['elements']:,}, {k} / unfused", r[k] / r["unfused"], 1.0)
    for r, most in zip(result["blocks"], (0.5, 0.5, 1.0, 1 / 1.1, 1 / 1.1), strict=True):
        target(f"{r['row']}, fused / unfused", r["ratio"], most)
    target("pass on / off, 1,000 tiny nodes", result["pass"]["ratio"], 1.05)
    return found


# ---- CUDA, counted ----


def counted(n: int = 1 << 16) -> list[dict[str, Any]]:
    """Launches and megabytes of each backward pass on the simulated device."""
    global DEVICE
    from lucid.testing import simulator

    DEVICE = "cuda"
    rows = []
    for name in PATTERN:
        row: dict[str, Any] = {"pattern": name, "elements": n}
        for mode, run in reversed(pair(name, n).items()):
            run()
            with simulator.counted(moved=True) as c:
                run()
            row |= {f"{mode} launches": c["launches"], f"{mode} MB": c["bytes"] / 1e6}
        rows.append(row)
    return rows


def on_the_simulator() -> list[dict[str, Any]] | str:
    """`counted` in a process whose device "cuda" is the simulated one, or why not."""
    done = subprocess.run(
        [sys.executable, __file__, "--counted"],
        env={**os.environ, "LUCID_CUDA": "sim"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


# ---- pytest-benchmark ----


def pytest_generate_tests(metafunc: Any) -> None:
    if "pattern" in metafunc.fixturenames:
        metafunc.parametrize("pattern", list(PATTERN))
        metafunc.parametrize("elements", [1 << 18, 1 << 20, 1 << 22])
        metafunc.parametrize("mode", ["fused", "unfused"])


def test_pattern(benchmark: Any, pattern: str, elements: int, mode: str) -> None:
    benchmark.group = f"{pattern}, {elements:,} elements, backward"
    benchmark.pedantic(pair(pattern, elements)[mode], rounds=10, warmup_rounds=2)


def test_pass(benchmark: Any) -> None:
    benchmark.group = "cost of the pass, 1,000 nodes of 8 elements"
    cost = benchmark.pedantic(lambda: pass_cost(3), rounds=1)
    benchmark.extra_info.update(cost)


# ---- tables and figure ----


def figure(result: dict[str, Any], path: str) -> None:
    """Speed-up against size, a panel per family; launches and bytes on CUDA beside them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig = plt.figure(figsize=(15, 8.5), layout="constrained")
    fig.suptitle("Backward passes, fused against unfused (float32)", fontsize=13)
    grid = fig.add_gridspec(2, 4, width_ratios=(1.25, 1.25, 1, 1))
    shared = None
    for k, (family, names) in enumerate(FAMILIES.items()):
        ax = shared = fig.add_subplot(grid[k // 2, k % 2], sharex=shared, sharey=shared)
        for name in names:
            mine = [r for r in result["sweep"] if r["pattern"] == name]
            x, y = ([r[key] for r in mine] for key in ("elements", "speed-up"))
            ax.plot(x, y, marker="o", markersize=4, label=name)
        ax.axhline(1.0, color="0.5", linewidth=1)
        ax.set_xscale("log")
        ax.set_title(family, fontsize=11, loc="left")
        ax.legend(frameon=False, fontsize=8, loc="upper left")
        ax.spines[["top", "right"]].set_visible(False)
        if k > 1:
            ax.set_xlabel("elements")
        if k % 2 == 0:
            ax.set_ylabel("speed-up on the CPU: unfused / fused time")
    rows = result.get("cuda")
    for k, (what, unit) in enumerate((("launches", "launches"), ("MB", "MB read and written"))):
        ax = fig.add_subplot(grid[:, 2 + k])
        if not isinstance(rows, list):
            ax.text(0.5, 0.5, f"not counted:\n{rows}", ha="center", va="center", wrap=True, fontsize=8)
            ax.set_axis_off()
            continue
        places = range(len(rows) - 1, -1, -1)
        for shift, mode, color in ((0.2, "unfused", "0.75"), (-0.2, "fused", "tab:blue")):
            values = [r[f"{mode} {what}"] for r in rows]
            bars = ax.barh([p + shift for p in places], values, 0.38, color=color, label=mode)
            ax.bar_label(bars, fmt="%d" if what == "launches" else "%.1f", fontsize=7, padding=2)
        ax.set_yticks(list(places), [r["pattern"] for r in rows] if k == 0 else [], fontsize=8)
        ax.margins(x=0.12, y=0.01)
        ax.set_xlabel(unit)
        ax.spines[["top", "right"]].set_visible(False)
        if k == 0:
            ax.set_title(f"CUDA, counted at {rows[0]['elements']:,} elements", fontsize=11, loc="left")
            ax.legend(frameon=False, fontsize=9, loc="center right")
    fig.savefig(path, dpi=110)


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Prints rows as a table."""

    def text(v: Any) -> str:
        return v if isinstance(v, str) else f"{v:,.3f}" if isinstance(v, float) else f"{v:,}"

    cells = [list(rows[0]), *([text(v) for v in r.values()] for r in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    left = isinstance(next(iter(rows[0].values())), str)
    print(f"\n{title}")
    for line in cells:
        first = f"{line[0]:<{widths[0]}}" if left else f"{line[0]:>{widths[0]}}"
        print("  ".join([first, *(f"{c:>{w}}" for c, w in zip(line[1:], widths[1:], strict=True))]))


def main(argv: list[str] | None = None) -> None:
    """Prints the tables; writes JSON and the figure where asked."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json")
    p.add_argument("--figure")
    p.add_argument("--repeats", type=int, default=15)
    p.add_argument("--quick", action="store_true", help="three sizes only")
    p.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--only", nargs="*", choices=("sweep", "bell", "blocks", "pass", "cuda"))
    a = p.parse_args(argv)
    if a.counted:
        print(json.dumps(counted()))
        return
    parts: dict[str, Callable[[], Any]] = {
        "bell": lambda: bells(a.repeats),
        "blocks": lambda: blocks(max(5, a.repeats // 2)),
        "pass": lambda: pass_cost(a.repeats),
        "sweep": lambda: sweep(SIZES[1::2] if a.quick else SIZES, a.repeats),
        "cuda": on_the_simulator,
    }
    result: dict[str, Any] = {}
    titles = {
        "sweep": "backward, fused against unfused, CPU",
        "bell": "exp(-x*x).sum(), forward + backward, ms",
        "blocks": "blocks, backward, CPU",
        "pass": "cost of the pass on a graph where nothing fuses",
        "cuda": "CUDA, counted on the simulated device (no times: a simulation has none)",
    }
    for name, run in parts.items():
        if a.only and name not in a.only:
            continue
        rows = result[name] = run()
        if isinstance(rows, str):
            print(f"\n{titles[name]}: {rows}")
        else:
            show(titles[name], rows if isinstance(rows, list) else [rows])
        sys.stdout.flush()
    if {"bell", "blocks", "pass"} <= set(result):
        result["targets"] = targets(result)
        show(f"targets (for two cores; here {os.cpu_count()})", result["targets"])
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f, indent=1)
    if a.figure:
        figure(result, a.figure)


if __name__ == "__main__":
    main()
