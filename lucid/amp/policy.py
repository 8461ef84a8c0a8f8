"""Which ops run in which precision under autocast: what an op declares (`amp=`), and where a device differs.

"low": in the region's dtype. "full": in float32. "promote": in the widest dtype among the inputs. None: as
the inputs are. "own": computed in float32, given back in the dtype of the first input. float64 inputs are
never lowered, integers never touched. The rules are those of PyTorch's autocast op reference, its CUDA list
in the ops' own declarations. A composite op without a rule (einsum, group_norm) follows the rules of the ops
that it is made of; in one with a rule (addmm) the region ends at its inputs.
"""

from __future__ import annotations

from ..ops.registry import OPS, Op

# Normalisations whose result goes on in the dtype that came in, on every device: their float32 scale and
# shift do not widen it.
_OWN = ("batch_norm", "batch_norm_eval")

# PyTorch's list for the CPU leaves to their own dtype what its list for CUDA runs in float32: row-wise and
# elementwise ops whose CPU kernels compute in float32 inside. So do these here (`wide` in lucid/ops).
_CPU_AS_GIVEN = (
    "pow", "exp", "log", "sum", "mean", "tan", "asin", "acos", "sinh", "cosh", "exp2", "expm1", "log2",
    "log10", "log1p", "rsqrt", "reciprocal", "xlogy", "xlog1py", "erfinv", "lgamma", "digamma", "softplus",
    "var", "std", "logsumexp", "p_norm", "cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax",
    "safe_softmax",
)  # fmt: skip
# Products with vectors: PyTorch's list for the CPU lowers those of matrices alone.
_CPU_VECTORS = ("mv", "addmv", "addr", "bilinear")
_CPU_OWN = ("layer_norm", "rms_norm")

BY_DEVICE: dict[str, dict[str, str | None]] = {
    "cpu": dict.fromkeys(_CPU_AS_GIVEN + _CPU_VECTORS) | dict.fromkeys(_OWN + _CPU_OWN, "own"),
    "cuda": dict.fromkeys(_OWN, "own"),
}


def rule(op: Op, device_type: str) -> str | None:
    """The rule of an op on a kind of device: "low", "full", "promote", "own" or None."""
    how = BY_DEVICE[device_type].get(op.name, op.amp)
    # The recorder brings the inputs of most such ops to one dtype itself.
    return None if how == "promote" and op.dtype is not None else how


def table(device_type: str) -> dict[str, str]:
    """op name -> rule, for all ops that autocast touches on a kind of device.

    >>> table("cuda")["softmax"], table("cpu").get("softmax"), table("cpu")["linear"]
    ('full', None, 'low')
    """
    rules = {name: rule(op, device_type) for name, op in OPS.items()}
    return {name: r for name, r in rules.items() if r is not None}
