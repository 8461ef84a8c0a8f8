"""The kernels as data: one row per kernel, read by the launcher (checks), the tests, ci/kernels and the
roofline.

`arguments` names each parameter in order: `name type[size]`, a `*` before a name that the kernel writes, a
`?` after one that may be null.
Types: T the element type, A its accumulator (float32; float64 for float64), W int8 or int32 as the macros
say, u8 i32 i64 u64. Sizes are products of integer arguments, or of names that
the launch gives (`G`, `blocks`); where a name is not known the size is not checked. `bytes` is the traffic
that the kernel cannot avoid, in the same
names and s, a: the sizes of T and A.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FLOATS = ("float32", "float64", "float16", "bfloat16")
ACTIVATIONS = ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh")

_CELLS = ((), ("LUCID_SMALL",))
_ROW_THREADS = (("LUCID_THREADS=32",), ("LUCID_THREADS=256",), ("LUCID_THREADS=512",))
# Threads and elements per thread of norm_backward, smallest rows first. float64 has no room in registers for
# 16 elements in 512 threads.
NORM_SHAPES = ((32, 8), (128, 8), (256, 8), (256, 16), (512, 16))
NORM_SHAPES_64 = ((32, 8), (128, 8), (256, 8), (512, 8))
_NORM, _NORM_64 = (
    tuple((f"LUCID_THREADS={t}", f"LUCID_ELEMENTS={e}") for t, e in shapes)
    for shapes in (NORM_SHAPES, NORM_SHAPES_64)
)

_ARGUMENT = re.compile(r"(\*?)(\w+)(\??) (T|A|W|u8|i32|i64|u64)(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter: `size` is an expression for its number of elements, None for a scalar."""

    name: str
    kind: str
    size: str | None
    written: bool
    optional: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: its source, parameters, the macros that make it, and what it costs.

    defines: macros that every launch has. variants: groups of macros of which a launch names one;
    variants_64: those of float64, where they differ. vector: whether the kernel has 128-bit accesses, and a
    second form with -DLUCID_SCALAR for addresses and rows that are no multiple of 16 bytes.
    """

    name: str
    file: str
    entry: str
    arguments: str
    bytes: str
    defines: tuple[str, ...] = ()
    variants: tuple[tuple[str, ...], ...] = ((),)
    vector: bool = True
    # 128-bit loads and stores that the disassembly must show, at least, in every dtype.
    wide: int = 1
    wide_stores: int = 1
    dtypes: tuple[str, ...] = FLOATS
    variants_64: tuple[tuple[str, ...], ...] | None = None
    parsed: tuple[Argument, ...] = field(init=False)

    def __post_init__(self) -> None:
        parsed = []
        for part in self.arguments.split(", "):
            m = _ARGUMENT.fullmatch(part)
            if m is None:
                raise ValueError(f"kernel {self.name}: cannot read the argument {part!r}")
            parsed.append(Argument(m[2], m[4], m[5], bool(m[1]), bool(m[3])))
        object.__setattr__(self, "parsed", tuple(parsed))

    def traffic(self, dtype: str, **sizes: int) -> int:
        """Bytes that a launch moves, at least."""
        s = {"float64": 8, "float32": 4}.get(dtype, 2)
        return int(eval(self.bytes, {"s": s, "a": max(s, 4), **sizes}))

    def builds(self, dtype: str) -> list[tuple[str, ...]]:
        """All groups of macros with which the kernel is compiled for a dtype."""
        forms: list[tuple[str, ...]] = [(), ("LUCID_SCALAR",)] if self.vector else [()]
        variants = self.variants if dtype != "float64" or self.variants_64 is None else self.variants_64
        return [(*self.defines, *v, *f) for v in variants for f in forms]


_WINDOWS = ", ".join(f"{name}{axis} i32" for name in "nokspd" for axis in range(3))
_TABLES = (
    "params u64[tensors], grads u64[tensors], first? u64[tensors], second? u64[tensors], "
    "third? u64[tensors], steps u64[tensors], sizes i64[tensors], line i32[tensors], "
    "block_tensor i32[blocks], block_start i64[blocks], hyper A[8*lines], scale? A[1], skip? i32[1], "
    "chunk i64"
)
_GRADS = (
    "grads u64[tensors], sizes i64[tensors], block_tensor i32[blocks], block_start i64[blocks], chunk i64"
)
_NORMS = (("LUCID_NORM=2",), ("LUCID_NORM=1",), ("LUCID_NORM=0",))


def _activation(name: str, what: str) -> Kernel:
    slope = (f"LUCID_SLOPE={name}_slope",)
    if what == "forward":
        return Kernel(
            f"{name}_forward",
            "pointwise.cu",
            "activation_forward",
            "x T[n], *out T[n], slope A, n i64",
            "2*n*s",
            (f"LUCID_VALUE={name}_value",),
        )
    if what == "backward":
        return Kernel(
            f"{name}_backward",
            "pointwise.cu",
            "activation_backward",
            "g T[n], v T[n], *dx T[n], slope A, n i64",
            "3*n*s",
            slope,
            wide=2,
        )
    return Kernel(
        f"{name}_bias_grad",
        "bias_grad.cu",
        "bias_grad",
        "g T[rows*cols], v T[rows*cols], *dz T[rows*cols], *partial A[G*cols], slope A, rows i64, cols i64",
        "3*rows*cols*s",
        slope,
        wide=2,
    )


_X = "x T[rows*cols]"
_G = "g T[rows*cols]"
_NORM_STATS = "mean? A[rows], rstd A[rows]"

DATA = (
    *(_activation(name, "forward") for name in ("leaky_relu", "sigmoid", "silu", "gelu", "gelu_tanh")),
    *(_activation(name, "backward") for name in ACTIVATIONS),
    *(_activation(name, "bias") for name in ACTIVATIONS),
    Kernel(
        "masked_scale",
        "pointwise.cu",
        "masked_scale",
        "x T[n], mask u8[n], *out T[n], scale A, n i64",
        "n*(2*s+1)",
    ),
    Kernel("copy", "pointwise.cu", "copy", "x T[n], *out T[n], n i64", "2*n*s"),
    Kernel(
        "column_sum",
        "bias_grad.cu",
        "column_sum",
        f"{_G}, *partial A[G*cols], rows i64, cols i64",
        "rows*cols*s",
    ),
    Kernel(
        "column_sum_finish",
        "bias_grad.cu",
        "column_sum_finish",
        "partial A[outputs*parts*cols], *first T[cols], *second? T[cols], parts i64, cols i64",
        "parts*cols*a",
        vector=False,
        wide=0,
    ),
    Kernel(
        "softmax",
        "softmax.cu",
        "softmax",
        f"{_X}, *out T[rows*cols], rows i64, cols i32",
        "2*rows*cols*s",
        variants=_ROW_THREADS,
        wide=2,
    ),
    Kernel(
        "log_softmax",
        "softmax.cu",
        "log_softmax",
        f"{_X}, *out T[rows*cols], rows i64, cols i32",
        "2*rows*cols*s",
        variants=_ROW_THREADS,
        wide=2,
    ),
    Kernel(
        "softmax_backward",
        "softmax.cu",
        "softmax_backward",
        f"{_G}, out T[rows*cols], *dx T[rows*cols], rows i64, cols i32",
        "3*rows*cols*s",
        variants=_ROW_THREADS,
        wide=4,
    ),
    Kernel(
        "softmax_backward_inplace",
        "softmax.cu",
        "softmax_backward_inplace",
        "*g T[rows*cols], out T[rows*cols], rows i64, cols i32",
        "3*rows*cols*s",
        variants=_ROW_THREADS,
        wide=4,
    ),
    Kernel(
        "log_softmax_backward",
        "softmax.cu",
        "log_softmax_backward",
        f"{_G}, out T[rows*cols], *dx T[rows*cols], rows i64, cols i32",
        "3*rows*cols*s",
        variants=_ROW_THREADS,
        wide=3,
    ),
    *(
        Kernel(
            f"{name}_columns",
            "softmax_columns.cu",
            f"{name}_columns",
            "x T[outer*n*inner], *out T[outer*n*inner], outer i64, n i64, inner i64",
            "2*outer*n*inner*s",
            wide=2,
        )
        for name in ("softmax", "log_softmax")
    ),
    *(
        Kernel(
            f"{name}_backward_columns",
            "softmax_columns.cu",
            f"{name}_backward_columns",
            "g T[outer*n*inner], out T[outer*n*inner], *dx T[outer*n*inner], outer i64, n i64, inner i64",
            "3*outer*n*inner*s",
            wide=3,
        )
        for name in ("softmax", "log_softmax")
    ),
    Kernel(
        "cross_entropy",
        "cross_entropy.cu",
        "cross_entropy",
        f"{_X}, target i64[rows], weight? T[cols], *loss A[rows], *counted A[rows], *lse A[rows], *all "
        "A[rows], *flag u64[1], smoothing A, "
        "ignore_index i64, rows i64, cols i32",
        "rows*cols*s",
        variants=_ROW_THREADS,
        wide_stores=0,
    ),
    Kernel(
        "cross_entropy_finish",
        "cross_entropy.cu",
        "cross_entropy_finish",
        "loss A[rows], counted A[rows], *out T[1], *total A[1], mean i32, rows i64",
        "2*rows*a",
        variants=(("LUCID_THREADS=512",),),
        vector=False,
        wide=0,
    ),
    Kernel(
        "cross_entropy_backward",
        "cross_entropy.cu",
        "cross_entropy_backward",
        f"g T[rows if per_row else 1], {_X}, target i64[rows], weight? T[cols], lse A[rows], all A[rows], "
        "total? A[1], *dx T[rows*cols], smoothing A, ignore_index i64, per_row i32, "
        "rows i64, cols i32",
        "2*rows*cols*s",
        variants=_ROW_THREADS,
    ),
    Kernel(
        "cross_entropy_gradient",
        "cross_entropy.cu",
        "cross_entropy_gradient",
        f"g A[1], {_X}, target i64[rows], weight? T[cols], *loss A[rows], *dx T[rows*cols], *flag u64[1], "
        "smoothing A, ignore_index i64, rows i64, "
        "cols i32",
        "2*rows*cols*s",
        variants=_ROW_THREADS,
    ),
    *(
        kernel
        for prefix, defines in (("layer", ()), ("rms", ("LUCID_RMS",)))
        for kernel in (
            Kernel(
                f"{prefix}_norm",
                "norm.cu",
                "norm_forward",
                f"{_X}, weight? T[cols], bias? T[cols], *out T[rows*cols], *mean? A[rows], *rstd A[rows], "
                "eps A, rows i64, cols i32",
                "2*rows*cols*s",
                defines,
                _ROW_THREADS,
                wide=2,
            ),
            Kernel(
                f"{prefix}_norm_backward",
                "norm.cu",
                "norm_backward",
                f"{_G}, {_X}, weight? T[cols], {_NORM_STATS}, join? T[rows*cols], *dx? T[rows*cols], "
                "*partial? A[(1+biased)*G*cols], biased i32, rows i64, cols i32",
                "3*rows*cols*s",
                defines,
                _NORM,
                wide=3,
                variants_64=_NORM_64,
            ),
            Kernel(
                f"{prefix}_norm_backward_x",
                "norm.cu",
                "norm_backward_x",
                f"{_G}, {_X}, weight? T[cols], {_NORM_STATS}, join? T[rows*cols], *dx T[rows*cols], "
                "rows i64, cols i32",
                "3*rows*cols*s",
                defines,
                (("LUCID_THREADS=512",),),  # for rows that are too long for norm_backward
                wide=5,
            ),
        )
    ),
    Kernel(
        "norm_backward_weight",
        "norm.cu",
        "norm_backward_weight",
        f"{_G}, {_X}, {_NORM_STATS}, *partial A[(1+biased)*G*cols], biased i32, rows i64, cols i64",
        "2*rows*cols*s",
        wide=2,
    ),
    Kernel(
        "batch_norm_partial",
        "batch_norm.cu",
        "batch_norm_partial",
        "x T[count*channels], *partial A[3*G*channels], channels i32, count i32, inner i32",
        "count*channels*s",
        variants=(("LUCID_THREADS=256",),),
        wide_stores=0,
    ),
    Kernel(
        "batch_norm_partial_columns",
        "batch_norm.cu",
        "batch_norm_partial_columns",
        f"{_X}, *partial A[3*G*cols], rows i64, cols i64",
        "rows*cols*s",
    ),
    Kernel(
        "batch_norm_statistics",
        "batch_norm.cu",
        "batch_norm_statistics",
        "partial A[3*parts*channels], weight? T[channels], *mean A[channels], *var A[channels], *scale "
        "A[channels], eps A, parts i64, channels i64",
        "3*parts*channels*a",
        vector=False,
        wide=0,
    ),
    Kernel(
        "batch_norm_apply",
        "batch_norm.cu",
        "batch_norm_apply",
        "x T[n], mean A[channels], scale A[channels], bias? T[channels], *out T[n], channels i32, inner "
        "i32, n i64",
        "2*n*s",
    ),
    Kernel(
        "batch_norm_backward_partial",
        "batch_norm.cu",
        "batch_norm_backward_partial",
        "g T[count*channels], x? T[count*channels], out? T[count*channels], mean? A[channels], var? "
        "A[channels], weight? T[channels], *dx? T[count*channels], *partial? A[2*G*channels], eps A, "
        "channels i32, count i32, inner i32",
        "2*count*channels*s",
        variants=(("LUCID_THREADS=256",),),
        wide=3,
    ),
    Kernel(
        "batch_norm_backward_partial_columns",
        "batch_norm.cu",
        "batch_norm_backward_partial_columns",
        f"{_G}, x? T[rows*cols], out? T[rows*cols], mean? A[cols], var? A[cols], weight? T[cols], *dx? "
        "T[rows*cols], *partial? A[2*G*cols], eps A, rows i64, cols i64",
        "2*rows*cols*s",
        wide=3,
    ),
    Kernel(
        "batch_norm_backward_finish",
        "batch_norm.cu",
        "batch_norm_backward_finish",
        "partial A[2*parts*channels], weight? T[channels], var A[channels], *dweight T[channels], *dbias "
        "T[channels], *coefficients? A[3*channels], eps A, "
        "count i64, parts i64, channels i64",
        "2*parts*channels*a",
        vector=False,
        wide=0,
    ),
    Kernel(
        "batch_norm_backward_apply",
        "batch_norm.cu",
        "batch_norm_backward_apply",
        "g T[n], x T[n], out? T[n], mean A[channels], coefficients A[3*channels], *dx T[n], channels i32, "
        "inner i32, n i64",
        "3*n*s",
        wide=3,
    ),
    Kernel(
        "dropout",
        "dropout.cu",
        "dropout",
        "x T[n], *out T[n], state u64[2], skip u64, threshold u64, scale A, n i64",
        "2*n*s",
    ),
    Kernel(
        "dropout_mask",
        "dropout.cu",
        "dropout_mask",
        "*mask u8[n], state u64[2], skip u64, threshold u64, n i64",
        "n",
        wide=0,
        wide_stores=0,
    ),
    Kernel(
        "segment_bounds",
        "segment.cu",
        "segment_bounds",
        "sorted i64[n], *start i64[rows+1], rows i64, n i64",
        "8*(n+rows)",
        vector=False,
        wide=0,
    ),
    Kernel(
        "segment_sum",
        "segment.cu",
        "segment_sum",
        "src T[n*cols], order i64[n], start i64[rows+1], base? T[rows*cols], *out T[rows*cols], alpha A, "
        "skip i64, by_count i32, rows i64, cols i64",
        "(n+rows)*cols*s+8*(n+rows)",
    ),
    Kernel(
        "segment_sum_flat",
        "segment.cu",
        "segment_sum_flat",
        "src T[n], order i64[n], start i64[rows+1], base? T[rows], *out T[rows], alpha A, rows i64",
        "(n+rows)*s+8*(n+rows)",
        vector=False,
        wide=0,
    ),
    Kernel(
        "index_add_atomic",
        "segment.cu",
        "index_add_atomic",
        "src T[n*cols], index i64[n], *out A[rows*cols], alpha A, n i64, rows i64, cols i64",
        "n*cols*(s+2*a)+8*n",
        vector=False,
        wide=0,
    ),
    Kernel(
        "max_pool",
        "pool.cu",
        "max_pool",
        f"x T[inputs], *out T[n], *window W[n], n i64, {_WINDOWS}",
        "(inputs+n)*s+n",
        variants=_CELLS,
        vector=False,
        wide=0,
    ),
    Kernel(
        "max_pool_backward",
        "pool.cu",
        "max_pool_backward",
        f"g T[outputs], window W[outputs], *dx T[n], n i64, {_WINDOWS}",
        "(n+outputs)*s+outputs",
        variants=_CELLS,
        vector=False,
        wide=0,
    ),
    Kernel(
        "avg_pool",
        "pool.cu",
        "avg_pool",
        f"x T[inputs], *out T[n], padded i32, divisor i32, n i64, {_WINDOWS}",
        "(inputs+n)*s",
        vector=False,
        wide=0,
    ),
    Kernel(
        "avg_pool_backward",
        "pool.cu",
        "avg_pool_backward",
        f"g T[outputs], *dx T[n], padded i32, divisor i32, n i64, {_WINDOWS}",
        "(n+outputs)*s",
        vector=False,
        wide=0,
    ),
    Kernel(
        "im2col",
        "columns.cu",
        "im2col",
        f"x T[inputs], *cols T[n], batch i32, channels i32, {_WINDOWS}",
        "(inputs+n)*s",
        vector=False,
        wide=0,
    ),
    Kernel(
        "col2im",
        "columns.cu",
        "col2im",
        f"cols T[inputs], *x T[n], batch i32, channels i32, {_WINDOWS}",
        "(inputs+n)*s",
        vector=False,
        wide=0,
    ),
    Kernel("sgd", "optimizer.cu", "sgd", _TABLES, "3*n*s", vector=False, wide=2),
    Kernel(
        "sgd_momentum",
        "optimizer.cu",
        "sgd",
        _TABLES,
        "n*(3*s+2*a)",
        ("LUCID_MOMENTUM",),
        vector=False,
        wide=3,
    ),
    *(
        Kernel(
            name,
            "optimizer.cu",
            "adam",
            _TABLES,
            f"n*(3*s+{4 + 2 * amsgrad}*a)",
            (*("LUCID_DECOUPLED",) * (name[:5] == "adamw"), *("LUCID_AMSGRAD",) * amsgrad),
            vector=False,
            wide=4 + amsgrad,
        )
        for name, amsgrad in (("adam", 0), ("adamw", 0), ("adam_amsgrad", 1), ("adamw_amsgrad", 1))
    ),
    Kernel(
        "gradient_norm",
        "gradients.cu",
        "gradient_norm",
        f"{_GRADS}, *partial A[blocks]",
        "n*s",
        variants=_NORMS,
        vector=False,
        wide_stores=0,
    ),
    Kernel(
        "gradient_norm_finish",
        "gradients.cu",
        "gradient_norm_finish",
        "partial A[blocks], *total A[1], blocks i64",
        "blocks*a",
        variants=_NORMS,
        vector=False,
        wide=0,
        wide_stores=0,
    ),
    Kernel(
        "gradient_clip",
        "gradients.cu",
        "gradient_clip",
        f"{_GRADS}, total A[1], limit A",
        "2*n*s",
        vector=False,
    ),
    Kernel(
        "gradient_unscale",
        "gradients.cu",
        "gradient_unscale",
        f"{_GRADS}, scale A[1], *found i32[1]",
        "2*n*s",
        vector=False,
    ),
    Kernel(
        "loss_scale",
        "gradients.cu",
        "loss_scale",
        "*scale A[1], *good i32[1], found i32[1], growth A, backoff A, interval i32",
        "16",
        vector=False,
        wide=0,
        wide_stores=0,
        dtypes=("float32",),
    ),
)

KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in DATA}
