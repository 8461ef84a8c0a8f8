"""Convolution, pooling and products, alone, against NumPy by hand, and against PyTorch in the same run.

    pytest benchmarks/bench_conv.py                  pytest-benchmark groups (lucid alone)
    python benchmarks/bench_conv.py [--json FILE]    interleaved with NumPy and PyTorch, medians, as ratios

Rows: `conv 3x3` is a 3x3 convolution of 32 to 64 channels with padding 1 on 32 x 32 pixels at batch 32,
forward and backward for input, weight and bias (3.6 GFLOP); `lenet` is a training step of LeNet-5 (LeCun et
al. 1998) with ReLU and max pooling at batch 64; `max_pool` is 2x2 on [64, 6, 28, 28], forward and backward;
`einsum` contracts four matrices. NumPy by hand is im2col into buffers that are kept, which is the most that a
script could do. Each has a process of its own, and they take turns (bench_common.py); the ratio is the median
over repeats of lucid / PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import parser, race, write

import lucid
import lucid.nn.functional as LF

CONV = ((32, 32, 32, 32), (64, 32, 3, 3), (64,), (32, 64, 32, 32))
EINSUM = ("ab,bc,cd,de->ae", ((64, 256), (256, 16), (16, 256), (256, 64)))


def arrays(shapes: Any) -> list[Any]:
    """Normal float32 arrays."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype("f") for s in shapes]


def lucid_conv() -> Callable[[], None]:
    """One convolution layer, forward and backward."""
    *inputs, g = (lucid.tensor(a) for a in arrays(CONV))
    for v in inputs:
        v.requires_grad_()

    def step() -> None:
        for v in inputs:
            v.grad = None
        lucid.conv2d(*inputs, padding=1).backward(g)

    return step


def numpy_conv() -> Callable[[], None]:
    """The same by hand: im2col into kept buffers, one product per sample, col2im by slices."""
    x, w, b, g = arrays(CONV)
    n, c, h, _ = x.shape
    o = w.shape[0]
    padded, gp = (np.zeros((n, c, h + 2, h + 2), "f") for _ in range(2))
    columns, gc = (np.empty((n, c, 3, 3, h, h), "f") for _ in range(2))
    flat, gflat = (v.reshape(n, c * 9, h * h) for v in (columns, gc))
    out, gw = np.empty((n, o, h * h), "f"), np.empty((n, o, c * 9), "f")
    weight, g = w.reshape(o, -1), g.reshape(n, o, h * h)
    cells = [(i, j, slice(i, i + h), slice(j, j + h)) for i in range(3) for j in range(3)]

    def step() -> None:
        padded[:, :, 1:-1, 1:-1] = x
        for i, j, rows, cols in cells:
            columns[:, :, i, j] = padded[:, :, rows, cols]
        np.matmul(weight, flat, out)
        np.add(out, b[:, None], out)
        np.matmul(g, flat.transpose(0, 2, 1), gw)
        gw.sum(0)
        g.sum((0, 2))
        np.matmul(weight.T, g, gflat)
        gp[:] = 0
        for i, j, rows, cols in cells:
            gp[:, :, rows, cols] += gc[:, :, i, j]

    return step


def torch_conv(torch: Any) -> Callable[[], None]:
    """The same in PyTorch."""
    *inputs, g = (torch.tensor(a) for a in arrays(CONV))
    for v in inputs:
        v.requires_grad_()

    def step() -> None:
        for v in inputs:
            v.grad = None
        torch.nn.functional.conv2d(*inputs, padding=1).backward(g)

    return step


def lenet(nn: Any) -> list[Any]:
    """The layers of LeNet-5; `nn` is lucid's or PyTorch's."""
    return [
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    ]


def lenet_step(library: Any, functional: Any) -> Callable[[], None]:
    """One training step of LeNet-5 at batch 64."""
    model = library.nn.Sequential(*lenet(library.nn))
    opt = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    x = library.tensor(rng.standard_normal((64, 1, 28, 28)).astype("f"))
    y = library.tensor(rng.integers(0, 10, 64))

    def step() -> None:
        opt.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        opt.step()

    return step


def pool_step(library: Any, functional: Any) -> Callable[[], None]:
    """2x2 max pooling, forward and backward."""
    (a,) = arrays([(64, 6, 28, 28)])
    x = library.tensor(a, requires_grad=True)

    def step() -> None:
        x.grad = None
        functional.max_pool2d(x, 2).sum().backward()

    return step


def einsum_step(library: Any) -> Callable[[], None]:
    """A chain of four matrices, forward and backward."""
    equation, shapes = EINSUM
    inputs = [library.tensor(a, requires_grad=True) for a in arrays(shapes)]

    def step() -> None:
        for v in inputs:
            v.grad = None
        library.einsum(equation, *inputs).sum().backward()

    return step


# ---- pytest-benchmark ----


def test_conv_3x3(benchmark: Any) -> None:
    benchmark.group = "conv 3x3"
    benchmark(lucid_conv())


def test_conv_3x3_numpy(benchmark: Any) -> None:
    benchmark.group = "conv 3x3"
    benchmark(numpy_conv())


def test_lenet(benchmark: Any) -> None:
    benchmark.group = "lenet"
    benchmark(lenet_step(lucid, LF))


def test_max_pool(benchmark: Any) -> None:
    benchmark.group = "max_pool"
    benchmark(pool_step(lucid, LF))


def test_einsum(benchmark: Any) -> None:
    benchmark.group = "einsum"
    benchmark(einsum_step(lucid))


# ---- against NumPy and PyTorch ----


def contestant(row: str, who: str) -> Callable[[], None]:
    """The step of a row by "lucid", "numpy" or "torch"."""
    if row == "conv 3x3" and who != "torch":
        return lucid_conv() if who == "lucid" else numpy_conv()
    library, functional = lucid, LF
    if who == "torch":
        import torch as library
        import torch.nn.functional as functional
    if row == "conv 3x3":
        return torch_conv(library)
    return {
        "lenet": lambda: lenet_step(library, functional),
        "max_pool": lambda: pool_step(library, functional),
        "einsum": lambda: einsum_step(library),
    }[row]()


# Row -> (contestants, repeats, steps per repeat).
BOTH = ("lucid", "torch")
ROWS = {
    "conv 3x3": (("lucid", "numpy", "torch"), 20, 1),
    "lenet": (BOTH, 40, 2),
    "max_pool": (BOTH, 40, 5),
    "einsum": (BOTH, 40, 20),
}


def compare(scale: float = 1.0) -> list[dict[str, Any]]:
    """All rows, milliseconds."""
    rows = []
    for name, (names, repeats, inner) in ROWS.items():
        found = race("bench_conv", name, names, int(repeats * scale), inner)
        times = {who: seconds * 1e3 for who, seconds in found["wall"].items()}
        rows.append({"row": name, **times, "ratio": found["wall ratio"]["torch"]})
    return rows


def main(argv: list[str] | None = None) -> None:
    """Prints the table."""
    a = parser(__doc__).parse_args(argv)
    result = compare(a.scale)
    print(f"{'row':12} {'lucid':>9} {'numpy':>9} {'torch':>9} {'ratio':>7}   (ms)")
    for r in result:
        hand = f"{r['numpy']:9.2f}" if "numpy" in r else " " * 9
        print(f"{r['row']:12} {r['lucid']:9.2f} {hand} {r['torch']:9.2f} {r['ratio']:7.2f}")
    write(a.json, result)


if __name__ == "__main__":
    main()
