"""Matrix products on CUDA: `matmul` and `linear` by the providers of `kernel.products`.

A separate path, so that on the CPU the two ops call NumPy with nothing in between.
"""

from __future__ import annotations

from typing import Any

from ..kernel import products
from .cuda_kernels import attempt, calls, launch_for
from .registry import OPS


def _is_array(x: Any) -> bool:
    # A fused run calls formulas with symbols.
    return getattr(type(x), "flags", None) is not None


def _matmul(xp, x, y):
    fits = x.ndim and y.ndim and x.dtype == y.dtype and x.shape[-1] == y.shape[-2 if y.ndim > 1 else 0]
    # What does not fit: the op's own errors.
    return products.matmul(x, y) if fits else OPS["matmul"].forward(xp, x, y)


def _linear(xp, x, weight, bias=None):
    if not (
        x.ndim
        and x.shape[-1] == weight.shape[-1]
        and x.dtype == weight.dtype
        and (bias is None or bias.shape == weight.shape[:-1])
    ):
        return OPS["linear"].forward(xp, x, weight, bias)
    if bias is not None and bias.dtype == x.dtype and bias.flags.c_contiguous:
        out = products.linear(x, weight, bias)
        if out is not None:
            return out
    out = products.matmul(x, weight.T)
    if bias is not None:
        out += bias
    return out


def bias_grad(F: Any, g: Any) -> Any:
    """The sum of g [..., out] over its rows, by a kernel where it fits."""
    total = attempt(calls.column_sum, launch_for(g) if g.ndim > 1 else None, g)
    return OPS["linear"].formulas["bias"].function(F, g) if total is None else total


def _rows(a: Any) -> Any:
    rows = 1
    for n in a.shape[:-1]:
        rows *= n
    return a.reshape(rows, a.shape[-1])


def _linear_grads(F, g, x, weight_shape, needs):
    """(gradient of weight, gradient of bias), in one product where a provider sums g on its way."""
    if needs[0] and needs[1] and len(weight_shape) == 2 and g.ndim > 1 and _is_array(g):
        both = products.weight_and_bias_grad(_rows(g), _rows(x))
        if both is not None:
            return both
    formula = OPS["linear"].formulas["weight"].function
    return (
        formula(F, g, x, weight_shape) if needs[0] else None,
        bias_grad(F, g) if needs[1] else None,
    )


OPS["matmul"].accelerate("cuda", _matmul)
OPS["linear"].accelerate("cuda", _linear, {("weight", "bias"): _linear_grads, "bias": bias_grad})
