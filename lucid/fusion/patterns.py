"""The chains that fuse, as data.

A row names ops, the consumer first, in the order in which the gradient passes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import LucidError
from ..ops.registry import OPS
from . import chains

# Elements of a saved array below which the pass leaves a graph alone (bench_fusion: pass, log_softmax + nll).
MIN_SIZE = 32_768
# Elements from which a run pays. On CUDA it saves launches from the start. On the CPU arrays that fit in the
# last cache gain nothing: a chain of 5 in float32 took 1.0 of the unfused time at 1M elements, 0.69 at 4M,
# 0.55 at 10M (bench_fusion: size sweep).
RUN_SIZE = {"cpu": 1 << 21, "cuda": MIN_SIZE}
# Elements from which a function under `@fuse` runs fused: on one core exp(-x*x).sum() breaks even at 300k
# (bench_fusion: bell).
FUSE_SIZE = {"cpu": 1 << 19, "cuda": 1}
# Pointwise nodes in a run from which it is worth a sweep. One node alone gains nothing.
MIN_RUN = 2


@dataclass(frozen=True)
class Pattern:
    """One row: `chain` of op names, and how it runs.

    run: function(nodes, g) -> one gradient per edge of the last node, or None to say that these arrays do not
    fit. min_size: from how many elements of its largest saved array; devices: on which devices.

    >>> import lucid
    >>> lucid.fusion.Pattern("tanh_exp", ("tanh", "exp"), run=lambda nodes, g: None).devices
    ('cpu', 'cuda')
    """

    name: str
    chain: tuple[str, ...]
    run: Callable[[tuple[Any, ...], Any], Any]
    min_size: int = MIN_SIZE
    devices: tuple[str, ...] = ("cpu", "cuda")


# A run of pointwise nodes that ends in one of these hands it a gradient made in one sweep, with the bias
# gradient summed on the way.
TAILS = ("linear",)
# Ops that are not pointwise by their signature, but whose derivative is: a mask that is
# broadcast to the one input.
MASKS = ("masked_fill",)
# Ops along the last dimension whose derivative needs a sum over its row: they stand in runs as well.
# Attention scores, dropout <- softmax <- mask <- scale, are one such run: one pass over rows.
ROW_OPS = ("softmax", "log_softmax")

# Activations whose derivative times g, summed over rows, is one kernel (kernels/bias_grad.cu).
ACTIVATIONS = ("relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid")

PATTERNS: list[Pattern] = [
    Pattern("log_softmax_nll", ("nll_loss", "log_softmax"), chains.log_softmax_nll),
    # From where two threads pay: on one, the saved pass over dz costs what the second masking does.
    Pattern("batch_norm_relu", ("relu", "batch_norm"), chains.batch_norm_relu, 1 << 22, ("cpu",)),
    *(
        Pattern(f"linear_{name}", (name, "linear"), chains.linear_activation, devices=("cuda",))
        for name in ACTIVATIONS
    ),
]

# What is no row of its own, and why.
NOT_ROWS = {
    "softmax <- mask <- scale": (
        "a run: ROW_OPS and MASKS stand in runs (dropout before, any pointwise work behind them too), "
        "one pass over rows"
    ),
    "add + activation, bias + activation": (
        "runs of pointwise nodes; the bias gradient is a second output, summed in the same pass"
    ),
    "dropout + add": (
        "the sum hands its gradient on unread, dropout's backward is one pass: nothing to save; "
        "with a `linear` behind it is a run with a tail"
    ),
    "conv + batch_norm + relu": (
        "batch_norm_relu, then the convolution by its own products: dz must be in memory for them"
    ),
    "batch_norm + relu on CUDA": (
        "a kernel with the mask in both of its passes moves 7 n instead of 8 n elements; "
        "kernels/batch_norm.cu has none"
    ),
    "norm + residual add": (
        "the sum hands its gradient on unread; what meets at the norm's input is summed by the engine, "
        "in place from the second on. Joined in norm_backward it would be 4 n instead of 6 n elements; "
        "kernels/norm.cu has no such argument"
    ),
    "cross_entropy": "one op already, with one kernel",
    "linear + activation on the CPU": (
        "one formula before a product: the sweep would only add a copy (bench_fusion: linear + relu)"
    ),
}


def check(pattern: Pattern) -> None:
    """Nothing; raises when a pattern names an op that does not exist or cannot be in a chain."""
    if len(pattern.chain) < 2:
        raise LucidError(
            f"fusion pattern {pattern.name!r}: expected a chain of at least two ops, got {pattern.chain}"
        )
    for name in pattern.chain:
        op = OPS.get(name)
        if op is None:
            raise LucidError(
                f"fusion pattern {pattern.name!r}: there is no op {name!r}; "
                "see lucid.ops.registry.OPS for the names"
            )
        if len(op.diff) > 1 or op.composite:
            raise LucidError(
                f"fusion pattern {pattern.name!r}: op {name!r} "
                f"{'is written in other ops' if op.composite else 'has several outputs'} and makes no node "
                "that a chain can hold"
            )


def register_pattern(pattern: Pattern) -> Pattern:
    """The pattern, after it was checked and added in front of the others.

    Raises LucidError for an unknown op name or a name already taken. chain: the consumer first.

    >>> import lucid
    >>> pattern = lucid.fusion.Pattern("sin_cosh", ("sin", "cosh"), run=lambda nodes, g: None)
    >>> lucid.fusion.register_pattern(pattern).chain  # doctest: +SKIP
    ('sin', 'cosh')
    """
    check(pattern)
    if any(p.name == pattern.name for p in PATTERNS):
        raise LucidError(f"fusion pattern {pattern.name!r}: that name is taken")
    PATTERNS.insert(0, pattern)
    return pattern
