"""Matrix products by each provider of lucid/kernel/products.py: errors, times, and the rows of its table that
they speak for. A part of `benchmarks/gpu_report.py`.

On the simulated device the stand-in for cublasLt answers, at tiny sizes: the path runs, no time is taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from gpu_bandwidth import Clock, Row, text_of

from lucid.kernel import cublaslt, products
from lucid.ops.cuda_products import bias_grad
from lucid.storage.dtype import as_dtype

# How much faster cublaslt must be for a row of the table (the rule in lucid/kernel/products.py).
GAIN = 1.03
# (m, n, k, batch): a small layer, one of a GPT-2 block, a wide one; scores and values of 192 heads.
LAYERS = ((512, 1024, 1024, 1), (8192, 3072, 768, 1), (4096, 4096, 4096, 1))
HEADS = ((1024, 1024, 64, 192), (1024, 64, 1024, 192))
TINY, TINY_BATCH = (20, 16, 72, 1), (20, 16, 72, 3)
# The error of cublaslt may be so many times that of cublas, and so much more (relative to the largest).
TIMES, MORE = 4.0, {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}

# What both providers compute from F, x [m, k], w [n, k] and bias [n]; epilogue: that of the row.
Kind = Callable[[Any, Any, Any, Any], Any]


def _linear(activation: str) -> Kind:
    def run(F: Any, x: Any, w: Any, bias: Any) -> Any:
        out = products.linear(x, w, bias, activation)
        if out is not None:
            return out
        out = F.linear(x, w, bias)  # a provider without epilogues: as a program does it
        return F.relu(out) if activation == "relu" else F.gelu(out, "tanh") if activation else out

    return run


def _gradients(F: Any, x: Any, w: Any, bias: Any) -> Any:
    # Of weight and bias; the columns of x stand for the gradient of the output.
    found = products.weight_and_bias_grad(x, x)
    weight, bias = (F.matmul(x.T, x), bias_grad(F, x)) if found is None else found
    return F.cat(weight.reshape(-1), bias, dim=0)


KINDS: dict[str, tuple[Kind, str]] = {
    "x @ w.T": (lambda F, x, w, bias: products.matmul(x, w.swapaxes(-1, -2)), ""),
    "linear": (_linear(""), "bias"),
    "linear + relu": (_linear("relu"), "relu_bias"),
    "linear + gelu (tanh)": (_linear("gelu"), "gelu_bias"),
    "weight and bias gradient": (_gradients, "bgrad"),
}


def by_provider(backend: Any, clock: Clock, quick: bool) -> list[Row]:
    """One row per kind, dtype and shape: the largest error of each provider against float64, relative to the
    largest element; microseconds on the device and on the host; cublas / cublaslt.
    """
    rows = []
    for dtype in ("float32", "bfloat16") if quick else ("float32", "bfloat16", "float16"):
        for kind, (_, epilogue) in KINDS.items():
            plain = kind == "x @ w.T"
            shapes = LAYERS + HEADS if plain else LAYERS
            if clock.simulated:
                shapes = (TINY, TINY_BATCH) if plain else (TINY,)
            for shape in shapes:
                row: Row = {"product": kind, "dtype": dtype, "shape": list(shape), "epilogue": epilogue}
                try:
                    row |= _contest(backend, clock, kind, dtype, shape)
                except Exception as error:
                    row["error"] = text_of(error)
                rows.append(row)
                backend.release()
    return rows


def _contest(backend: Any, clock: Clock, kind: str, dtype: str, shape: tuple[int, ...]) -> Row:
    if cublaslt.why_not(backend):
        raise RuntimeError(cublaslt.why_not(backend))
    m, n, k, batch = shape
    lead = (batch,) if batch > 1 else ()
    x, w, bias = (_numbers(backend, size, dtype) for size in ((*lead, m, k), (*lead, n, k), (n,)))
    function = KINDS[kind][0]
    with products.using("cublas"):
        exact = function(backend.F, *(a.astype("float64") for a in (x, w, bias)))
    size = max(float(abs(exact).max()), 1e-30)
    row: Row = {"work": k * k * m if KINDS[kind][1] == "bgrad" else m * n * k * batch}
    contestants = {}
    for name in ("cublas", "cublaslt"):
        contestants[name] = _by(name, function, backend.F, x, w, bias)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a refusal is an error here: cublas would answer in its place
            got = contestants[name]()
        row[f"{name} error"] = float(abs(got.astype("float64") - exact).max()) / size
    for name, us in clock.compare(contestants).items():
        row |= {f"{name} us": us, f"{name} host us": clock.host(contestants[name], 20)}
    if row["cublaslt us"]:
        row["cublas / cublaslt"] = row["cublas us"] / row["cublaslt us"]
    return row


def _numbers(backend: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers in [-0.5, 0.5) without an order that sums could profit from."""
    xp, size = backend.xp, 1
    for length in shape:
        size *= length
    x = xp.arange(size, dtype="int64") * 7919 % 10007
    return (x.astype("float32") / 10007 - 0.5).astype(as_dtype(dtype)).reshape(shape)


def _by(name: str, function: Kind, *arguments: Any) -> Callable[[], Any]:
    def contestant() -> Any:
        with products.using(name):
            return function(*arguments)

    return contestant


def wrong(row: Row) -> str | None:
    """What is wrong with a row's result, or None."""
    got, other = row.get("cublaslt error"), row.get("cublas error")
    if got is None or got <= TIMES * other + MORE[row["dtype"]]:
        return None
    return (
        f"{row['product']} {row['dtype']} {row['shape']}: error of cublaslt {got:.2g}, of cublas {other:.2g}"
    )


def proposals(rows: list[Row], device: str, arch: int) -> list[str]:
    """The rows for `CHOICES` that the times speak for: per dtype and epilogue the least work from which on
    cublaslt is faster by GAIN in every row.
    """
    found = []
    for dtype, epilogue in dict.fromkeys((r["dtype"], r["epilogue"]) for r in rows):
        mine = [r for r in rows if (r["dtype"], r["epilogue"]) == (dtype, epilogue)]
        if any("error" in r or wrong(r) for r in mine):
            continue
        least = None
        for row in sorted(mine, key=lambda r: -r["work"]):
            if row.get("cublas / cublaslt", 0.0) < GAIN:
                break
            least = row["work"]
        if least is not None:
            found.append(
                f'Choice("cublaslt", ({arch}, {arch + 1}), ("{dtype}",), ("{epilogue}",), {least}, '
                f'"ci/gpu_check, {device}")'
            )
    return found
