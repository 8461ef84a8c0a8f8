"""Bytes and floor times of the project's kernels, and what share of the copy bandwidth a measured time is.

    python benchmarks/roofline.py                                             all kernels at usual sizes, on
    an H200
    python benchmarks/roofline.py softmax adam --dtype bfloat16 --md          some of them, as a Markdown
    table
    python benchmarks/roofline.py --gpu a100                                  another GPU; or --bandwidth
    3.35e12
    python benchmarks/roofline.py --achieved layer_norm_backward 0.115 rows=16384 cols=4096 --dtype bfloat16
    python benchmarks/roofline.py --cards softmax.cu                          what the cards in kernels/ say
    of bytes and floors; tests/kernels/test_cards.py holds them to it

A kernel's bytes come from its row in lucid/kernel/specs.py: what it must read and write once. Its floor is
bytes over the copy bandwidth, which is measured (read + write of a large array), not the vendor's peak: no
kernel that touches each byte once can be faster, unless its arrays stay in the L2 cache (60 MB on an H200;
such rows are marked). No floor contains the time of a launch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lucid.kernel.specs import FLOATS, KERNELS

# Copy bandwidth in bytes per second and L2 cache in bytes. h200: measured; the others: 0.90 of the vendor's
# peak, as `clone` reaches on an H100.
GPUS = {
    "h200": (4.3e12, 60e6),
    "h100": (0.90 * 3.35e12, 50e6),
    "a100": (0.90 * 2.04e12, 40e6),
    "l4": (0.90 * 0.30e12, 48e6),
    "rtx4090": (0.90 * 1.01e12, 72e6),
    "rtx5090": (0.90 * 1.79e12, 96e6),
    "t4": (0.90 * 0.32e12, 4e6),
}

_ROWS = ({"rows": 65536, "cols": 768}, {"rows": 16384, "cols": 4096})
_LOGITS = ({"rows": 8192, "cols": 50304},)
_IMAGES = {"n": 256 * 64 * 112 * 112, "inputs": 256 * 64 * 112 * 112, "outputs": 256 * 64 * 56 * 56}
_CHANNELS = {
    "count": 256 * 56 * 56,
    "channels": 64,
    "parts": 98,
    "n": 256 * 64 * 56 * 56,
    "rows": 65536,
    "cols": 1024,
}
# Sizes by the beginning of a kernel's name; the longest that fits counts.
SIZES: dict[str, tuple[dict[str, int], ...]] = {
    "": ({"n": 1 << 26},),
    **{
        f"{name}_bias_grad": ({"rows": 8192, "cols": 3072}, {"rows": 16384, "cols": 16384})
        for name in ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh")
    },
    "column_sum": ({"rows": 8192, "cols": 3072},),
    "column_sum_finish": ({"parts": 128, "cols": 3072},),
    "softmax": _ROWS,
    "log_softmax": (*_ROWS, *_LOGITS),
    **{
        f"{name}_columns": ({"outer": 64, "n": 21, "inner": 256 * 256},)
        for name in ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
    },
    "layer_norm": _ROWS,
    "rms_norm": _ROWS,
    "norm_backward_weight": _ROWS,
    "cross_entropy": _LOGITS,
    "cross_entropy_finish": ({"rows": 8192},),
    "batch_norm": (_CHANNELS,),
    "segment": ({"n": 65536, "rows": 50257, "cols": 768},),
    "index_add": ({"n": 65536, "rows": 50257, "cols": 768},),
    "segment_sum_flat": ({"n": 1 << 22, "rows": 1 << 20},),
    "max_pool": (_IMAGES,),
    "avg_pool": (_IMAGES,),
    "max_pool_backward": (_IMAGES,),
    "avg_pool_backward": (_IMAGES,),
    "im2col": ({"inputs": 64 * 256 * 14 * 14, "n": 64 * 256 * 9 * 14 * 14},),
    "col2im": ({"n": 64 * 256 * 14 * 14, "inputs": 64 * 256 * 9 * 14 * 14},),
    "sgd": ({"n": 124_000_000},),
    "adam": ({"n": 124_000_000},),
    "gradient": ({"n": 124_000_000},),
    "gradient_norm_finish": ({"blocks": 7569},),
    "loss_scale": ({},),
}
# Forward pooling is called with the results as n.
SIZES["max_pool"] = SIZES["avg_pool"] = ({**_IMAGES, "n": _IMAGES["outputs"]},)


def sizes_of(name: str) -> tuple[dict[str, int], ...]:
    """The usual sizes of a kernel's launch."""
    return SIZES[max((prefix for prefix in SIZES if name.startswith(prefix)), key=len)]


def floor_us(nbytes: float, bandwidth: float) -> float:
    """Microseconds below which so many bytes cannot be moved."""
    return nbytes / bandwidth * 1e6


def table(names: list[str], dtypes: list[str], bandwidth: float, cache: float) -> list[list[str]]:
    """The rows of the table, headings first."""
    out = [["kernel", "sizes", "dtype", "MB", "floor us", "in L2"]]
    for name in names:
        kernel = KERNELS[name]
        used = {n for n in compile(kernel.bytes, "", "eval").co_names if n not in ("s", "a")}
        for sizes in sizes_of(name):
            shown = " ".join(f"{k}={v}" for k, v in sizes.items() if k in used)
            for dtype in dtypes:
                nbytes = kernel.traffic(dtype, **sizes)
                out.append(
                    [
                        name,
                        shown,
                        dtype,
                        f"{nbytes / 1e6:.1f}",
                        f"{floor_us(nbytes, bandwidth):.1f}",
                        "yes" if nbytes < cache else "",
                    ]
                )
    return out


def show(rows: list[list[str]], markdown: bool) -> str:
    """The rows as text."""
    if markdown:
        return "\n".join(
            "| " + " | ".join(r) + " |" + ("\n|" + " --- |" * len(r) if i == 0 else "")
            for i, r in enumerate(rows)
        )
    width = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(r, width, strict=True))
        ).rstrip()
        for r in rows
    )


def cards(file: str) -> list[str]:
    """The lines of a source's card that state bytes and floors: one per entry point, or per kernel where
    kernels of one entry point differ. float32, first of the usual sizes, H200.
    """
    bandwidth, cache = GPUS["h200"]
    found: dict[tuple[str, str], list[str]] = {}
    for kernel in KERNELS.values():
        if kernel.file == file:
            found.setdefault((kernel.entry, _floor(kernel.name, bandwidth, cache)), []).append(kernel.name)
    entries = [entry for entry, _ in found]
    return [
        f"// bytes {entry if entries.count(entry) == 1 else ', '.join(names)}: {text}"
        for (entry, text), names in found.items()
    ]


def _floor(name: str, bandwidth: float, cache: float) -> str:
    kernel, sizes = KERNELS[name], sizes_of(name)[0]
    used = {n: v for n, v in sizes.items() if n in compile(kernel.bytes, "", "eval").co_names}
    nbytes = kernel.traffic("float32", **sizes)
    shown = "".join(f"{n}={v} " for n, v in used.items())
    where = "in the L2 cache of" if nbytes < cache else "on"
    cost = f"{nbytes / 1e6:.4g} MB, floor {floor_us(nbytes, bandwidth):.4g} us"
    return f"{kernel.bytes}; {shown}float32: {cost} {where} an H200"


def share(name: str, dtype: str, milliseconds: float, bandwidth: float, **sizes: int) -> float:
    """Achieved bandwidth over copy bandwidth for a measured time of one launch.

    >>> round(share("copy", "float32", 0.125, 4.3e12, n=1 << 26), 3)
    0.999
    """
    return KERNELS[name].traffic(dtype, **sizes) / (milliseconds * 1e-3) / bandwidth


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", help="names of kernels (default: all)")
    parser.add_argument("--gpu", choices=GPUS, default="h200")
    parser.add_argument("--bandwidth", type=float, help="copy bandwidth in bytes per second")
    parser.add_argument("--dtype", help="comma list (default: float32,bfloat16)", default="float32,bfloat16")
    parser.add_argument("--cards", metavar="FILE", help="the lines of the card of kernels/FILE")
    parser.add_argument("--md", action="store_true", help="a Markdown table")
    parser.add_argument(
        "--achieved",
        nargs="+",
        metavar=("KERNEL MS", "SIZE=N"),
        help="a kernel, its time in milliseconds, its sizes",
    )
    args = parser.parse_args(argv)
    bandwidth, cache = args.bandwidth or GPUS[args.gpu][0], GPUS[args.gpu][1]
    dtypes = args.dtype.split(",")
    for name in [*args.kernels, *(args.achieved or [])[:1]]:
        if name not in KERNELS:
            parser.error(f"there is no kernel {name!r}; there are {', '.join(KERNELS)}")
    if not set(dtypes) <= set(FLOATS):
        parser.error(f"--dtype: expected a comma list of {', '.join(FLOATS)}, got {args.dtype}")
    if args.cards:
        print("\n".join(cards(args.cards)))
        return 0
    if args.achieved:
        if len(args.achieved) < 2:
            parser.error(
                "--achieved: expected a kernel, milliseconds and sizes, as softmax 0.15 rows=16384 cols=4096"
            )
        name, ms, *given = args.achieved
        sizes = {k: int(v) for k, v in (g.split("=") for g in given)} or sizes_of(name)[0]
        nbytes = KERNELS[name].traffic(dtypes[0], **sizes)
        print(
            f"{name} {dtypes[0]} {' '.join(f'{k}={v}' for k, v in sizes.items())}: {nbytes / 1e6:.1f} MB in "
            f"{ms} ms = {nbytes / float(ms) * 1e-9:.2f} TB/s = "
            f"{share(name, dtypes[0], float(ms), bandwidth, **sizes):.0%} of copy ({args.gpu}: "
            f"{bandwidth / 1e12:.2f} TB/s); floor {floor_us(nbytes, bandwidth):.1f} us"
        )
        return 0
    if not args.md:
        print(f"{args.gpu}: copy bandwidth {bandwidth / 1e12:.2f} TB/s")
    print(show(table(args.kernels or list(KERNELS), dtypes, bandwidth, cache), args.md))
    return 0


if __name__ == "__main__":
    sys.exit(main())
