"""What lucid does on the CUDA device of this machine, as a table, JSON and a figure; `ci/gpu_check` calls it.

    python benchmarks/gpu_report.py PART... --out DIR       measures (machine bandwidth fusion products host)
    python benchmarks/gpu_report.py summary --out DIR       table, report.json, report.png

machine: names, versions, clocks, and the bandwidth of a device copy. bandwidth: each kernel at three shapes
as a share of that copy, with the bytes of lucid/kernel/specs.py. fusion: backward passes with fusion on and
off, and PyTorch's where it is installed with CUDA. products: matrix products by cublas and by cublaslt. host:
what an op and a launch cost the CPU.

Times are medians of 30 samples after a warm-up, contestants in turn. Device times come from CUDA events
around calls that were queued while the device was kept busy, so that no launch is waited for; "eager" times
from events around the same calls as a program makes them. With LUCID_CUDA=sim everything runs at tiny sizes
on the simulated device, no time is taken, and every file is called simulated_*.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import gpu_products  # noqa: E402
from gpu_bandwidth import Clock, Launcher, Recorder, Row, Shape, bandwidth, calls, text_of  # noqa: E402

import lucid  # noqa: E402
from lucid import fusion  # noqa: E402
from lucid.storage.backend import backend_of  # noqa: E402
from lucid.testing import simulator  # noqa: E402

NO_TIMING = "simulated: no timing"
# Least share of the copy bandwidth, by the beginning of a kernel's name; the longest that fits counts.
GOALS = {
    "copy": 0.95,
    "layer_norm_backward": 0.70,
    "rms_norm_backward": 0.70,
    "softmax": 0.75,
    "log_softmax": 0.75,
    "cross_entropy": 0.75,
    "relu_bias_grad": 0.80,
    "gelu_bias_grad": 0.80,
    "adam": 0.80,
    "dropout": 0.70,
}


# ---- machine ----


def machine(backend: Any, clock: Clock, quick: bool) -> Row:
    """Names, versions, clocks; bytes per second (read + write) of a device copy at three sizes."""
    cp, found = backend.xp, backend.properties()
    free = cp.cuda.runtime.memGetInfo()[0]
    sizes = (1 << 12,) if clock.simulated else (1 << 24, 1 << 28, min(1 << 30, int(free) // 8 & ~0xFFF))
    copies = []
    for size in sizes:
        x = cp.zeros(size // 4, "float32")
        out = cp.empty_like(x)
        us = clock.one(lambda x=x, out=out: cp.copyto(out, x))
        copies.append({"bytes": size, "us": us, "bandwidth": us and 2 * size / us * 1e6})
    return {
        "lucid": lucid.__version__,
        "cupy": cp.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": getattr(peer(clock.simulated)[0], "__version__", None) or peer(clock.simulated)[1],
        "multiprocessors": int(found["multiProcessorCount"]),
        "compute capability": f"{found['major']}.{found['minor']}",
        "memory": int(cp.cuda.runtime.memGetInfo()[1]),
        "cuda driver": int(cp.cuda.runtime.driverGetVersion()),
        "cuda runtime": int(cp.cuda.runtime.runtimeGetVersion()),
        "nvidia-smi": None if clock.simulated else smi(),
        "copy": copies,
        "copy bandwidth": copies[-1]["bandwidth"],
    }


def smi() -> dict[str, str]:
    """Driver, clocks, power and temperature as nvidia-smi gives them; empty without nvidia-smi."""
    names = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
    if shutil.which("nvidia-smi") is None:
        return {}
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader", "--id=0"],
        capture_output=True,
        text=True,
    )
    return dict(zip(names.split(","), (v.strip() for v in done.stdout.split(",")), strict=False))


def peer(simulated: bool) -> tuple[Any, str]:
    """(PyTorch, "") where it is installed with CUDA, else (None, why not)."""
    if simulated:
        return None, NO_TIMING
    try:
        import torch
    except ImportError:
        return None, "not installed"
    return (torch, "") if torch.cuda.is_available() else (None, f"{torch.__version__} finds no CUDA device")


# ---- fused, unfused, PyTorch ----


class Maker:
    """The same tensors in lucid or PyTorch: `T` is the library, `F` its functions."""

    def __init__(self, T: Any, device: str, dtype: str = "float32") -> None:
        self.T, self.F, self.device, self.dtype = T, T.nn.functional, device, getattr(T, dtype)
        self.leaves: list[Any] = []

    def leaf(self, *shape: int) -> Any:
        """A leaf of normal numbers, each time others."""
        rng = np.random.default_rng(len(self.leaves))
        values = rng.standard_normal(shape, np.float32)
        self.leaves.append(self.T.tensor(values, dtype=self.dtype, device=self.device, requires_grad=True))
        return self.leaves[-1]

    def index(self, n: int, high: int) -> Any:
        """n integers in [0, high)."""
        return self.T.tensor(np.random.default_rng(1).integers(0, high, n), device=self.device)

    def backward(self, out: Any) -> Callable[[], None]:
        """A backward pass from `out` that can be repeated."""
        # Not ones: the outputs of a norm or a softmax have a constant sum, whose gradient is zero.
        values = np.random.default_rng(2).standard_normal(tuple(out.shape), np.float32)
        leaves, seed = self.leaves, self.T.tensor(values, dtype=self.dtype, device=self.device)

        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            out.backward(seed, retain_graph=True)

        return run


def _norm(name: str) -> Callable[[Maker, Shape], Any]:
    def make(m: Maker, s: Shape) -> Any:
        affine = [m.leaf(s[1]) for _ in range(2 if name == "layer_norm" else 1)]
        return getattr(m.F, name)(m.leaf(*s), (s[1],), *affine)

    return make


def _squares(m: Maker, s: Shape) -> Any:
    x = m.leaf(*s)
    return (-x * x).exp()


# name -> (the graph whose backward pass is timed, its shape, a tiny one). One text serves both libraries.
PATTERNS: dict[str, tuple[Callable[[Maker, Shape], Any], Shape, Shape]] = {
    "pointwise chain of 5": (
        lambda m, s: ((m.leaf(*s) * 0.5).tanh() * 2.0).sigmoid() * 3.0,
        (1 << 24,),
        (500,),
    ),
    "exp(-x*x)": (_squares, (1 << 24,), (500,)),
    "bias + gelu": (lambda m, s: m.F.gelu(m.leaf(*s) + m.leaf(s[1])), (8192, 3072), (20, 16)),
    "residual + relu": (lambda m, s: m.F.relu(m.leaf(*s) * 1.0 + m.leaf(*s) * 1.0), (1 << 24,), (500,)),
    "linear + relu": (
        lambda m, s: m.F.relu(m.F.linear(m.leaf(*s), m.leaf(s[1], s[1]), m.leaf(s[1]))),
        (512, 1024),
        (20, 16),
    ),
    "linear + relu, wide": (
        lambda m, s: m.F.relu(m.F.linear(m.leaf(*s), m.leaf(s[1], s[1]), m.leaf(s[1]))),
        (4096, 4096),
        (20, 16),
    ),
    "linear + gelu": (
        lambda m, s: m.F.gelu(m.F.linear(m.leaf(*s), m.leaf(4 * s[1], s[1]), m.leaf(4 * s[1]))),
        (8192, 768),
        (20, 8),
    ),
    "log_softmax + nll": (
        lambda m, s: m.F.nll_loss(m.F.log_softmax(m.leaf(*s), -1), m.index(*s)).reshape(1),
        (8192, 50304),
        (9, 40),
    ),
    "cross_entropy": (
        lambda m, s: m.F.cross_entropy(m.leaf(*s), m.index(*s)).reshape(1),
        (8192, 50304),
        (9, 40),
    ),
    "softmax": (lambda m, s: m.F.softmax(m.leaf(*s), -1), (16384, 4096), (9, 40)),
    "layer_norm": (_norm("layer_norm"), (16384, 4096), (9, 64)),
    "rms_norm": (_norm("rms_norm"), (16384, 4096), (9, 64)),
    "batch_norm": (
        lambda m, s: m.F.batch_norm(m.leaf(*s), None, None, m.leaf(s[1]), m.leaf(s[1]), training=True),
        (128, 64, 56, 56),
        (3, 4, 4, 4),
    ),
    "max_pool2d": (lambda m, s: m.F.max_pool2d(m.leaf(*s), 3, 2, 1), (128, 64, 56, 56), (2, 3, 8, 8)),
    "embedding": (
        lambda m, s: m.F.embedding(m.index(s[0], s[1]), m.leaf(*s[1:])),
        (32768, 50257, 768),
        (20, 9, 8),
    ),
}


def comparison(backend: Any, clock: Clock, quick: bool) -> list[Row]:
    """One row per pattern and dtype: microseconds fused, unfused, in PyTorch; ratios; the difference between
    the fused and the unfused gradients, relative to the largest.
    """
    torch, rows = peer(clock.simulated)[0], []
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = False
    for dtype in ("float32",) if quick else ("float32", "bfloat16"):
        for name, (make, shape, tiny) in PATTERNS.items():
            row: Row = {"pattern": name, "dtype": dtype, "shape": list(tiny if clock.simulated else shape)}
            try:
                row |= _contest(make, tuple(row["shape"]), dtype, clock, torch)
            except Exception as error:  # out of memory on a small GPU, most likely
                row["error"] = text_of(error)
            rows.append(row)
            backend.release()
            if torch is not None:
                torch.cuda.empty_cache()
    return rows


def _contest(make: Callable[..., Any], shape: Shape, dtype: str, clock: Clock, torch: Any) -> Row:
    mine = Maker(lucid, "cuda", dtype)
    run = mine.backward(make(mine, shape))
    contestants = {"fused": switched(run, True), "unfused": switched(run, False)}
    row: Row = {"difference": difference(contestants, mine.leaves)}
    if torch is not None:
        theirs = Maker(torch, "cuda", dtype)
        contestants["torch"] = theirs.backward(make(theirs, shape))
    for kind, hidden in (("us", True), ("eager us", False)):
        times = clock.compare(contestants, hidden)
        row |= {f"{name} {kind}": t for name, t in times.items()}
        for other in ("unfused", "torch"):
            if times.get(other):
                row[f"{other} / fused" + (", eager" if not hidden else "")] = times[other] / times["fused"]
    return row


def switched(run: Callable[[], None], on: bool) -> Callable[[], None]:
    """`run` with fusion on or off."""

    def with_switch() -> None:
        with fusion.enabled(on):
            run()

    return with_switch


def difference(contestants: dict[str, Callable[[], None]], leaves: list[Any]) -> float:
    """The largest difference between gradients with fusion on and off, relative to the largest gradient."""
    grads = []
    for run in contestants.values():
        run()
        grads.append([leaf.grad.float() for leaf in leaves])
    return max(
        float((a - b).abs().max().item()) / max(float(b.abs().max().item()), 1e-30)
        for a, b in zip(*grads, strict=True)
    )


# ---- the host ----


def host(backend: Any, clock: Clock, quick: bool) -> list[Row]:
    """One row per kind of call: microseconds of the CPU in lucid, and in PyTorch where it has the like."""
    launch, x = Recorder(backend), backend.xp.ones(100, "float32")
    calls.activation(launch, "silu", x)
    raw, _ = launch.again("silu_forward")
    grid, block, args, dtype, defines, sizes = launch.seen["silu_forward"]
    checked = Launcher(backend)
    mine: dict[str, Callable[[], Any]] = {
        "CuPy ufunc x + x": lambda: x + x,
        "launch of a compiled kernel": raw,
        "launch with its checks": lambda: checked("silu_forward", grid, block, args, dtype, defines, **sizes),
        "launch with checks and a new result": lambda: calls.activation(checked, "silu", x),
    }
    rows = [{"call": name, "lucid us": clock.host(run)} for name, run in mine.items()]
    torch = peer(clock.simulated)[0]
    ours = calls_of(lucid, "cuda", quick)
    theirs = {} if torch is None else calls_of(torch, "cuda", quick)
    for name, (run, per, number) in ours.items():
        us = clock.host(run, number)
        row = {"call": name, "lucid us": us and us / per}
        if name in theirs:
            us = clock.host(theirs[name][0], number)
            row |= {"torch us": us and us / per}
            row["torch / lucid"] = row["torch us"] / row["lucid us"]
        rows.append(row)
    return rows


def calls_of(T: Any, device: str, quick: bool) -> dict[str, tuple[Callable[[], Any], int, int]]:
    """name -> (function, operations in it, calls that fit into the device's queue), in lucid or PyTorch."""
    m, chain = Maker(T, device), 10 if quick else 100
    x, y = m.leaf(100), m.leaf(100)
    seed = T.ones_like(x)
    model = T.nn.Sequential(T.nn.Linear(64, 32), T.nn.ReLU(), T.nn.Linear(32, 10)).to(device)
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = m.leaf(128, 64).detach(), m.index(128, 10)

    def without_grad() -> Any:
        with T.no_grad():
            return x * y

    def forward_backward() -> None:
        h = x
        for _ in range(chain):
            h = T.tanh(h * y + x)
        h.backward(seed)

    def step() -> None:
        optimizer.zero_grad()
        m.F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return {
        "op, no grad": (without_grad, 1, 200),
        "op, recorded": (lambda: x * y, 1, 200),
        "op, forward + backward": (forward_backward, 3 * chain, 1),
        "training step 64-32-10, AdamW": (step, 1, 5),
    }


# ---- files, table, figure ----

PARTS: dict[str, Callable[[Any, Clock, bool], Any]] = {
    "machine": machine,
    "bandwidth": lambda b, clock, quick: bandwidth(
        b, clock, quick, machine(b, clock, quick)["copy bandwidth"]
    ),
    "fusion": comparison,
    "products": gpu_products.by_provider,
    "host": host,
}


def prefix(simulated: bool) -> str:
    """How the names of files begin."""
    return "simulated_" if simulated else ""


def named(name: str, simulated: bool) -> str:
    """What stands in the field "device" of every file: never the name of a GPU for a simulated run."""
    return "simulated" if simulated else name


def failures(part: Any) -> list[str]:
    """The rows of a part that could not be measured, or whose gradients differ."""
    rows: Iterable[Row] = part if isinstance(part, list) else ()
    found = []
    for row in rows:
        name = str(row.get("kernel") or row.get("pattern") or row.get("product") or row.get("call"))
        if "error" in row:
            found.append(f"{name}: {row['error']}")
        elif "product" in row and gpu_products.wrong(row):
            found.append(str(gpu_products.wrong(row)))
        # bfloat16 rounds at 2^-8; a fused run keeps float32 in between, so it may be that much better.
        elif row.get("difference", 0.0) > (1e-4 if row.get("dtype") == "float32" else 5e-2):
            found.append(
                f"{name} {row['dtype']}: fused and unfused gradients differ by {row['difference']:.2g}"
            )
    return found


def goal(kernel: str) -> float | None:
    """The share of the copy bandwidth that a kernel should reach."""
    fits = [name for name in GOALS if kernel.startswith(name)]
    return GOALS[max(fits, key=len)] if fits else None


def lines(report: Row) -> list[str]:
    """The report as text: what passed, shares of copy, ratios, host cost."""
    simulated = report["device"] == "simulated"
    out = [f"lucid on {'SIMULATED DEVICE, no GPU; ' + NO_TIMING if simulated else report['device']}"]
    for step in report.get("steps", ()):
        seconds = "" if simulated else f"{step['seconds']:.1f} s"
        out.append(f"{step['state']:<9}{seconds:>9}  {step['name']:<38}{step['line'][:60]}")
    copy = (report.get("machine") or {}).get("copy bandwidth")
    out += _shares(
        report.get("bandwidth") or [], NO_TIMING if simulated else f"{(copy or 0) / 1e12:.2f} TB/s"
    )
    for part, (title, key, columns) in TABLES.items():
        if report.get(part):
            title += f" ({NO_TIMING})" if simulated else ""
            rows = [[_cell(row.get(c), ".2f") for c in columns] for row in report[part]]
            widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
            names = [title, *(f"{row[key]} {row.get('dtype', '')}" for row in report[part])]
            for name, cells in zip(names, [columns, *rows], strict=True):
                out.append(f"{name:<62}" + "  ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)))
            out.insert(len(out) - len(names), "")
    out += [f"problem: {text}" for part in PARTS for text in failures(report.get(part))]
    return [line.rstrip() for line in out]


TABLES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "fusion": (
        "backward pass, times the fused one's",
        "pattern",
        ("unfused / fused", "unfused / fused, eager", "torch / fused", "torch / fused, eager"),
    ),
    "products": (
        "matrix products, us",
        "product",
        ("shape", "cublas us", "cublaslt us", "cublas / cublaslt", "cublas host us", "cublaslt host us"),
    ),
    "host": ("host, us per call", "call", ("lucid us", "torch us", "torch / lucid")),
}


def _shares(rows: list[Row], copy: str) -> list[str]:
    """The table of the kernels that have a goal: the best share among the shapes that are judged."""
    kernels = dict.fromkeys(str(r["kernel"]) for r in rows if "error" not in r)
    named = [k for k in kernels if goal(k) and not k.endswith("finish")]
    out = ["", f"share of a device copy ({copy})".ljust(46) + "float32  bfloat16     goal"] if named else []
    for kernel in named:
        best = [_cell(_best(rows, kernel, dtype), ".0%") for dtype in ("float32", "bfloat16")]
        out.append(f"{kernel:<43}{best[0]:>10}{best[1]:>10}{goal(kernel):>9.0%}")
    return out


def _cell(value: Any, form: str) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value))
    return "-" if value is None else format(value, form)


def _best(rows: list[Row], kernel: str, dtype: str) -> float | None:
    mine = [r for r in rows if r["kernel"] == kernel and r.get("dtype") == dtype]
    shares = [r["share"] for r in mine if r["judged"] and r["share"]]
    return max(shares, default=None)


def draw(report: Row, path: Path) -> str:
    """What was drawn, or why not: shares of copy and ratios as a PNG. Needs matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return (
            "no figure: matplotlib is not installed; draw it on any machine from the JSON files: "
            "python benchmarks/gpu_report.py summary --out DIR"
        )
    simulated = report["device"] == "simulated"
    rows = [r for r in report.get("bandwidth") or () if "error" not in r]
    kernels = list(dict.fromkeys(r["kernel"] for r in rows))
    patterns = [r for r in report.get("fusion") or () if "error" not in r]
    figure = Figure(figsize=(13, 2 + 0.2 * max(len(kernels), len(patterns))), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for offset, dtype in ((-0.2, "float32"), (0.2, "bfloat16")):
        shares = [_best(rows, k, dtype) or 0.0 for k in kernels]
        left.barh([i + offset for i in range(len(kernels))], shares, 0.4, label=dtype)
    left.set(yticks=range(len(kernels)), yticklabels=kernels, xlim=(0, 1.05), xlabel="share of a device copy")
    names = [f"{r['pattern']}, {r['dtype']}" for r in patterns]
    for offset, other in ((-0.2, "unfused / fused"), (0.2, "torch / fused")):
        ratios = [r.get(other) or 0.0 for r in patterns]
        right.barh([i + offset for i in range(len(names))], ratios, 0.4, label=other)
    right.axvline(1.0, color="0.5", linewidth=1)
    right.set(
        yticks=range(len(names)), yticklabels=names, xlabel="device time of the backward pass, times fused"
    )
    for axes in (left, right):
        axes.invert_yaxis()
        axes.tick_params(labelsize=7)
        axes.legend(frameon=False)
        if simulated:
            axes.text(
                0.5, 0.5, "SIMULATED\nno timing", transform=axes.transAxes, ha="center", color="red", size=24
            )
    figure.suptitle(lines({"device": report["device"]})[0], color="red" if simulated else "black")
    figure.savefig(path, dpi=100)
    return f"figure: {path}"


def summary(out: Path, simulated: bool) -> int:
    """The exit code; prints the table, writes report.json and report.png from what the parts have left."""
    start = prefix(simulated)
    files = {name: out / f"{start}{name}.json" for name in (*PARTS, "conformance", "steps")}
    parts = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    if not parts:
        print(f"gpu_report: there is no {start}machine.json or other part in {out}", file=sys.stderr)
        return 2
    names = {part["device"] for part in parts.values()}
    if len(names) > 1 or ("simulated" in names) != simulated:
        print(
            f"gpu_report: {out} holds parts of different devices: {', '.join(sorted(names))}", file=sys.stderr
        )
        return 2
    report: Row = {
        "device": names.pop(),
        "simulated": simulated,
        **{n: p["rows" if "rows" in p else "checks"] for n, p in parts.items()},
    }
    (out / f"{start}report.json").write_text(json.dumps(report, indent=1))
    print("\n".join([*lines(report), draw(report, out / f"{start}report.png")]))
    return 0


def main(argv: list[str] | None = None) -> int:
    """The exit code: 1 when a row could not be measured or gradients differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=(*PARTS, "summary"), help="what to measure")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu_check", help="folder for the files")
    parser.add_argument("--quick", action="store_true", help="float32 and the most important kernels only")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    code = 0
    for part in args.parts:
        if part == "summary":
            code = max(code, summary(args.out, simulator.asked_for()))
            continue
        backend: Any = backend_of("cuda")
        clock = Clock(backend)
        device = named(backend.properties()["name"], clock.simulated)
        rows = PARTS[part](backend, clock, args.quick)
        (args.out / f"{prefix(clock.simulated)}{part}.json").write_text(
            json.dumps({"device": device, "simulated": clock.simulated, "rows": rows}, indent=1)
        )
        print("\n".join(lines({"device": device, part: rows})))
        if part == "products" and not clock.simulated:
            arch = int(backend.xp.cuda.Device().compute_capability)
            print("rows for lucid/kernel/products.py:", *gpu_products.proposals(rows, device, arch), sep="\n")
        print(closing(part, rows, clock.simulated))
        code = max(code, int(bool(failures(rows))))
    return code


def closing(part: str, rows: Any, simulated: bool) -> str:
    """The last line of a part: what `ci/gpu_check` shows of it."""
    bad = len(failures(rows))
    if part == "machine":
        return (
            NO_TIMING
            if simulated
            else f"copy {rows['copy bandwidth'] / 1e12:.2f} TB/s, torch {rows['torch']}"
        )
    text = f"{len(rows) - bad} of {len(rows)} rows measured"
    if part == "bandwidth" and not simulated:
        below = [r for r in rows if r.get("judged") and goal(r["kernel"]) and r["share"] < goal(r["kernel"])]
        text += f", {len(below)} below their goal"
    return f"{text}; {NO_TIMING}" if simulated else text


if __name__ == "__main__":
    sys.exit(main())
