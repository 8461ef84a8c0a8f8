"""The chains that fuse, as data.

A row names ops, the consumer first, in the order in which the gradient passes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import LucidError
from ..ops.registry import OPS
from . import chains, chains_norm, sweep

# Elements of a saved array below which the pass leaves a graph alone (bench_fusion: pass, log_softmax + nll).
MIN_SIZE = 32_768
# Elements from which a run pays. On CUDA it saves launches from the start. On the CPU from where a second
# thread pays; on one core arrays that fit in the last cache gain nothing. A chain of 5 in float32, on two
# threads and on one, took 0.97 and 1.05 of the unfused time at 0.5M elements, 0.60 and 0.91 at 1M, 0.41 and
# 0.70 at 2M (bench_fusion: sweep).
RUN_SIZE = {"cpu": sweep.THREADED if sweep.width() > 1 else 1 << 21, "cuda": MIN_SIZE}
# Elements from which a function under `@fuse` runs fused, where it ends in a sum and where not. On one core
# exp(-x*x).sum() takes 0.9 of the plain time at 0.26M; exp(-x*x) 0.96 at 1M, (x * 0.5).tanh() * 2 + x 1.03 at
# 4M, on two threads 0.99 and 0.79 at 1M (bench_fusion: bell).
FUSE_SIZE = {"cpu": 1 << 18, "cuda": 1}
MAP_SIZE = {"cpu": 1 << 20 if sweep.width() > 1 else 1 << 22, "cuda": 1}
# Elements from which linear + activation pays.
LINEAR_SIZE = dict(RUN_SIZE)
# Elements from which batch norm + relu pays: on two threads and on one 0.91 and 0.91 of the unfused time at
# 0.5M, 0.61 and 0.91 at 1M, 0.48 and 0.76 at 4M (bench_fusion: sweep).
CHANNEL_SIZE = {"cpu": 1 << 19, "cuda": MIN_SIZE}
# Elements from which it pays to add a residual's gradient in a norm's pass: a speed-up of 0.94 at 0.26M and
# 1M, 1.05 and 1.08 at 2M (bench_fusion: layer_norm + residual, rms_norm + residual).
NORM_SIZE = {"cpu": 1 << 21, "cuda": MIN_SIZE}
# Pointwise nodes in a run from which it is worth a sweep. One node alone gains nothing.
MIN_RUN = 2


@dataclass(frozen=True)
class Pattern:
    """One row: `chain` of op names, how it runs, from how many elements of its largest array, and where.

    min_size: a number, or one per device; of the node at position `sized_by` alone, where that is given.
    devices: on which devices.

    run: function(nodes, g) -> one gradient per edge that leaves the chain, in the order of its nodes, or None
    to say that these arrays do not fit. side_edges: whether a node before the last may have other edges than
    the one to the next (to a weight). joins: `run` takes a third argument, the gradient that waits for the
    receiver of the first edge, and gives it back added to its own: for a chain whose gradient meets another
    there, as a norm's does behind a residual. Such a chain may be one op long. cost: (launches, arrays of the
    gradient's size that they move), unfused and fused, of all that is no product, on CUDA where every
    gradient is wanted: for `explain`, and held to the simulator's counters by a test.

    >>> import lucid
    >>> lucid.fusion.Pattern("tanh_exp", ("tanh", "exp"), run=lambda nodes, g: None).devices
    ('cpu', 'cuda')
    """

    name: str
    chain: tuple[str, ...]
    run: Callable[..., Any]
    min_size: int | dict[str, int] = MIN_SIZE
    devices: tuple[str, ...] = ("cpu", "cuda")
    side_edges: bool = False
    joins: bool = False
    sized_by: int | None = None
    cost: tuple[tuple[int, int], tuple[int, int]] | None = None

    def least(self, device: str) -> int:
        """The size from which the row pays on a device."""
        return self.min_size if isinstance(self.min_size, int) else self.min_size[device]

    def pays(self, nodes: tuple[Any, ...]) -> bool:
        """Whether an array that the nodes saved has the size from which the row pays."""
        least = self.least(nodes[0].F.backend.name)
        if self.sized_by is not None:
            nodes = (nodes[self.sized_by],)
        return any(s.array is not None and s.array.size >= least for n in nodes for s in n.saved or ())


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
    Pattern(
        "log_softmax_nll",
        ("nll_loss", "log_softmax"),
        chains.log_softmax_nll,
        sized_by=1,
        cost=((20, 10), (8, 2)),
    ),
    *(
        Pattern(
            f"conv_{norm}_relu",
            ("relu", norm, "convolution"),
            chains_norm.conv_batch_norm_relu,
            CHANNEL_SIZE,
            side_edges=True,
            cost=cost,
        )
        for norm, cost in (("batch_norm", ((5, 9), (4, 7))), ("batch_norm_eval", ((14, 13), (7, 4))))
    ),
    *(
        Pattern(f"{norm}_relu", ("relu", norm), chains_norm.batch_norm_relu, CHANNEL_SIZE, cost=cost)
        for norm, cost in (("batch_norm", ((4, 8), (3, 7))), ("batch_norm_eval", ((13, 12), (2, 4))))
    ),
    *(
        Pattern(
            f"{norm}_residual",
            (norm,),
            chains_norm.norm_residual,
            NORM_SIZE,
            joins=True,
            cost=((3, 6), (2, 4)),
        )
        for norm in ("layer_norm", "rms_norm")
    ),
    # By the activation: a large weight alone makes no large pass.
    *(
        Pattern(
            f"linear_{name}",
            (name, "linear"),
            chains.linear_activation,
            LINEAR_SIZE,
            sized_by=0,
            cost=((3, 4), (2, 3)),
        )
        for name in ACTIVATIONS
    ),
]

@functools.cache
def sizes(device: str) -> dict[str, int]:
    """Op -> the size from which a run or a row with it may pay, for the ops in rows."""
    least: dict[str, int] = {}
    for p in PATTERNS:
        if device in p.devices:
            for name in p.chain:
                least[name] = min(least.get(name, RUN_SIZE[device]), p.least(device))
    return least


# Chains that fuse as runs, without a kernel of their own: name -> ops, the consumer first, where a tuple
# stands for any one of its ops. (A test walks them; `explain` shows the names.)
RUNS: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "residual + activation": ((*ACTIVATIONS,), "add"),
    "bias + activation": ((*ACTIVATIONS,), "add"),
    "dropout + add": ("add", "dropout"),
    "scale + mask + softmax": ("softmax", ("masked_fill", "where", "add"), ("mul", "div")),
}


def check(pattern: Pattern) -> None:
    """Nothing; raises when a pattern names an op that does not exist or cannot be in a chain."""
    if len(pattern.chain) < (1 if pattern.joins else 2):
        raise LucidError(
            f"fusion pattern {pattern.name!r}: expected a chain of at least two ops (one with joins=True), "
            f"got {pattern.chain}"
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
        raise LucidError(f"fusion pattern {pattern.name!r}: that name is taken; choose another")
    PATTERNS.insert(0, pattern)
    sizes.cache_clear()
    return pattern
