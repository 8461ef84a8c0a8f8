"""The kernels of `kernels/` registered as the CUDA paths of ops.

Every path looks at its arrays first: one floating dtype, C-contiguous, not empty, the layout that the kernel
reads. What does not fit, and a kernel that
does not compile on a device, runs by the op's generic formula.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np  # for its dtypes alone

from ..errors import IndexRangeError
from ..kernel import calls
from ..kernel.launch import Launcher, launcher
from ..kernel.loader import Unavailable
from ..kernel.specs import FLOATS
from ..storage import deferred
from ..storage.backend import backend_of
from ..storage.device import Device
from ..storage.dtype import as_dtype
from .attention import grads_in_place
from .bounds import waits_not
from .loss import check_reduction
from .registry import OPS

_MOST_COLUMNS = 1 << 30
# A set: the name of a dtype takes NumPy a microsecond to make.
_FLOATS = frozenset(map(as_dtype, FLOATS))
# Names the build of a kernel without floating arguments.
_ANY = as_dtype("float32")
_WORDS = np.dtype("uint64")
_launch_on: dict[int, Launcher] = {}


def launch_for(*arrays: Any) -> Launcher | None:
    """The launcher for arrays that a kernel can take (None among them is left out); None when it cannot.

    They must be of one floating dtype, C-contiguous, not empty, and arrays: a fused run calls formulas with
    symbols.
    """
    first = arrays[0]
    if getattr(type(first), "flags", None) is None or first.dtype not in _FLOATS:
        return None
    for x in arrays:
        if x is not None and (x.dtype != first.dtype or not x.size or not x.flags.c_contiguous):
            return None
    return launch_on(first)


def launch_on(x: Any) -> Launcher:
    """The launcher of an array's device."""
    index = x.data.device_id
    found = _launch_on.get(index)
    if found is None:
        found = _launch_on[index] = launcher(backend_of(Device("cuda", index)))
    return found


def attempt(function: Callable[..., Any], launch: Any, *args: Any) -> Any:
    """function(launch, *args), or None when there is no launcher or the kernel does not compile (which was
    warned of).
    """
    if launch is None:
        return None
    try:
        return function(launch, *args)
    except Unavailable:
        return None


def _solid(x: Any) -> Any:
    # A gradient from `sum` is a broadcast view: a copy of it costs less than the launches that the kernel
    # saves.
    return x if x is None or getattr(type(x), "flags", None) is None or x.flags.c_contiguous else x.copy()


# ---- activations ----


def _activation_grad(name: str, kernel: str, by: str) -> Callable[..., Any]:
    generic = OPS[name].formulas["x"].function

    def by_out(F, g, out):
        dx = attempt(calls.activation_backward, launch_for(g, out), kernel, g, out)
        return generic(F, g, out) if dx is None else dx

    def by_x(F, g, x):
        dx = attempt(calls.activation_backward, launch_for(g, x), kernel, g, x)
        return generic(F, g, x) if dx is None else dx

    return by_out if by == "out" else by_x


def _activation(name: str) -> Callable[..., Any]:
    op = OPS[name]

    def forward(xp, x):
        out = attempt(calls.activation, launch_for(x), name, x)
        return op.forward(xp, x) if out is None else out

    return forward


def _gelu_kernel(approximate: str) -> str:
    return "gelu_tanh" if approximate == "tanh" else "gelu"


def _gelu(xp, x, approximate="none"):
    known = approximate in ("none", "tanh")
    out = attempt(calls.activation, launch_for(x), _gelu_kernel(approximate), x) if known else None
    return OPS["gelu"].forward(xp, x, approximate) if out is None else out


def _gelu_x(F, g, x, approximate):
    dx = attempt(calls.activation_backward, launch_for(g, x), _gelu_kernel(approximate), g, x)
    return OPS["gelu"].formulas["x"].function(F, g, x, approximate) if dx is None else dx


def _leaky_relu(xp, x, negative_slope=0.01):
    out = attempt(calls.activation, launch_for(x), "leaky_relu", x, negative_slope)
    return OPS["leaky_relu"].forward(xp, x, negative_slope) if out is None else out


def _leaky_relu_x(F, g, x, negative_slope):
    dx = attempt(calls.activation_backward, launch_for(g, x), "leaky_relu", g, x, negative_slope)
    return OPS["leaky_relu"].formulas["x"].function(F, g, x, negative_slope) if dx is None else dx


def _dropout(xp, x, mask, p):
    fits = mask.shape == x.shape and mask.dtype == bool and mask.flags.c_contiguous
    out = attempt(calls.masked_scale, launch_for(x), x, mask, 1.0 / (1.0 - p)) if fits else None
    return OPS["dropout"].forward(xp, x, mask, p) if out is None else out


def _state(state: Any) -> Any:
    return state if state.dtype is _WORDS else state.astype(_WORDS)


def _seeded_dropout(xp, x, state, skip, p):
    solid = _solid(x)
    out = attempt(calls.dropout, launch_for(solid), solid, _state(state), 1.0 - p, skip)
    return OPS["seeded_dropout"].forward(xp, x, state, skip, p) if out is None else out


def _philox_mask(xp, state, skip, shape, keep):
    out = None
    if prod(shape):
        out = attempt(calls.dropout_mask, launch_on(state), shape, _state(state), keep, _ANY, skip)
    return OPS["philox_mask"].forward(xp, state, skip, shape, keep) if out is None else out


for _name, _by in (("relu", "out"), ("tanh", "out"), ("sigmoid", "out"), ("silu", "x")):
    OPS[_name].accelerate(
        "cuda",
        _activation(_name) if _name in ("sigmoid", "silu") else None,
        {"x": _activation_grad(_name, _name, _by)},
    )
OPS["gelu"].accelerate("cuda", _gelu, {"x": _gelu_x})
OPS["leaky_relu"].accelerate("cuda", _leaky_relu, {"x": _leaky_relu_x})
OPS["dropout"].accelerate("cuda", _dropout)
OPS["seeded_dropout"].accelerate("cuda", _seeded_dropout)
OPS["philox_mask"].accelerate("cuda", _philox_mask)


# ---- rows ----


def _along(launch: Any, by_rows: Any, by_columns: Any, name: str, arrays: Any, dim: int) -> Any:
    """A kernel of rows or of columns on arrays of one shape: along `dim` where they lie, or moved to the end.
    """
    shape = arrays[0].shape
    dim %= len(shape)
    if dim == len(shape) - 1:
        return by_rows(launch, name, *arrays)
    if calls.columns_pay(launch, shape, dim, arrays[0].dtype.itemsize):
        return by_columns(launch, name, *arrays, dim)
    xp = launch.xp
    found = by_rows(launch, name, *(xp.ascontiguousarray(xp.moveaxis(a, dim, -1)) for a in arrays))
    return xp.ascontiguousarray(xp.moveaxis(found, -1, dim))


def _softmax(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    op = OPS[name]
    generic = op.formulas["x"].function

    def fits(x, dim):
        return x.ndim and -x.ndim <= dim < x.ndim and 0 < x.shape[dim] <= _MOST_COLUMNS

    def forward(xp, x, dim):
        out = None
        if fits(x, dim):
            solid = _solid(x)
            kernels = calls.softmax, calls.softmax_columns
            out = attempt(_along, launch_for(solid), *kernels, name, (solid,), dim)
        return op.forward(xp, x, dim) if out is None else out

    def gradient(F, g, out, dim):
        dx = None
        if getattr(type(g), "flags", None) is not None and fits(out, dim):
            solid = _solid(g), _solid(out)
            kernels = calls.softmax_backward, calls.softmax_backward_columns
            dx = attempt(_along, launch_for(*solid), *kernels, name, solid, dim)
        return generic(F, g, out, dim) if dx is None else dx

    return forward, gradient


for _name in ("softmax", "log_softmax"):
    _forward, _gradient = _softmax(_name)
    OPS[_name].accelerate("cuda", _forward, {"x": _gradient})


def _slope_in_place(ds: Any, p: Any) -> None:
    solid = p if p.flags.c_contiguous else p.copy()
    fits = 0 < p.shape[-1] <= _MOST_COLUMNS
    if not fits or attempt(calls.softmax_backward_inplace, launch_for(ds, solid), ds, solid) is None:
        ds -= (ds * p).sum(-1, keepdims=True)
        ds *= p


def _attention_grads(F, g, q, k, v, mask, scale, aux, needs):
    return grads_in_place(F, g, q, k, v, aux, mask, scale, needs, _slope_in_place)


OPS["attention"].accelerate("cuda", None, {("q", "k", "v", "mask"): _attention_grads})


def _cross_entropy(xp, x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """(loss, saved): as the generic op, but `saved` is what the backward kernel reads, not softmax(x)."""
    fits = (
        x.ndim == 2
        and 0 < x.shape[-1] <= _MOST_COLUMNS
        and target.dtype.kind in "iu"
        and target.shape == x.shape[:1]
        and (weight is None or weight.shape == x.shape[1:])
    )
    solid = _solid(x) if fits else x
    launch = launch_for(solid) if fits else None
    if launch is not None:
        check_reduction("cross_entropy", reduction)
        target = xp.ascontiguousarray(target.astype("int64", copy=False))
        weight = None if weight is None else xp.ascontiguousarray(weight.astype(x.dtype, copy=False))
        found = attempt(
            calls.cross_entropy, launch, solid, target, weight, ignore_index, label_smoothing, reduction
        )
        if found is not None:
            _report_target(xp, found[2].view("int64"), x.shape[1], ignore_index)
            return found[:2]
    return OPS["cross_entropy"].forward(
        xp, x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def _report_target(xp: Any, flag: Any, classes: int, ignore_index: int) -> None:
    # The kernel has left a target out of range in `flag`; it is read where the host waits for the device
    # anyway.
    def error(bad: int) -> Exception:
        return IndexRangeError(
            f"cross_entropy: targets must lie in [0, {classes - 1}] for {classes} classes (ignore_index is "
            f"{ignore_index}), got {bad}"
        )

    if waits_not(xp):
        deferred.note(xp, flag, 0, 1, error)
    else:
        bad = int(flag[0])
        if bad:
            raise error(bad)


def _cross_entropy_x(F, g, x, p, target, weight, ignore_index, reduction, label_smoothing):
    dx = None
    if x.ndim == 2 and p.ndim == 1:  # the kernel ran forward
        xp = F.backend.xp
        t = xp.ascontiguousarray(target.astype("int64", copy=False))
        w = None if weight is None else xp.ascontiguousarray(weight.astype(x.dtype, copy=False))
        solid, logits = _solid(g), _solid(x)
        dx = attempt(
            calls.cross_entropy_backward,
            launch_for(logits, solid),
            solid,
            logits,
            t,
            w,
            p,
            ignore_index,
            label_smoothing,
            reduction,
        )
    return (
        OPS["cross_entropy"]
        .formulas["x"]
        .function(F, g, x, target, weight, ignore_index, reduction, label_smoothing)
        if dx is None
        else dx
    )


OPS["cross_entropy"].accelerate("cuda", _cross_entropy, {"x": _cross_entropy_x})


# ---- norms ----


def _norm(name: str, x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    k = len(normalized_shape)
    cols = prod(normalized_shape)
    fits = (
        k
        and x.shape[-k:] == normalized_shape
        and 0 < cols <= _MOST_COLUMNS
        and all(v is None or v.shape == normalized_shape for v in (weight, bias))
    )
    found = (
        attempt(calls.norm, launch_for(x, weight, bias), name, x, weight, bias, eps, cols) if fits else None
    )
    if found is None:
        return None
    stats = x.shape[: x.ndim - k] + (1,) * k
    return tuple(v.reshape(stats) if i else v for i, v in enumerate(found) if v is not None)


def _layer_norm(xp, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    found = _norm("layer_norm", x, normalized_shape, weight, bias, eps)
    return OPS["layer_norm"].forward(xp, x, normalized_shape, weight, bias, eps) if found is None else found


def _rms_norm(xp, x, normalized_shape, weight=None, eps=1e-6):
    found = _norm("rms_norm", x, normalized_shape, weight, None, eps)
    return OPS["rms_norm"].forward(xp, x, normalized_shape, weight, eps) if found is None else found


def norm_kernel(
    name: str,
    F: Any,
    g: Any,
    x: Any,
    normalized_shape: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    needs: Any,
    join: Any = None,
) -> Any:
    """The gradients of "layer_norm" or "rms_norm" by its kernel, `join` added to that of x; None where the
    arrays do not fit.
    """
    cols, solid = prod(normalized_shape), _solid(g)
    mean, rstd = (None if v is None else v.reshape(-1) for v in (mean, rstd))
    if not 0 < cols <= _MOST_COLUMNS:
        return None
    grads = attempt(
        calls.norm_backward,
        launch_for(solid, x, weight, join),
        name,
        solid,
        x,
        weight,
        mean,
        rstd,
        cols,
        (*needs, False)[:3],
        join,
    )
    # A view would be copied where it becomes a leaf's gradient.
    return grads and tuple(
        v if v is None or i == 0 or len(normalized_shape) == 1 else v.reshape(normalized_shape)
        for i, v in enumerate(grads[: len(needs)])
    )


def _norm_grads(
    name: str,
    F: Any,
    g: Any,
    x: Any,
    normalized_shape: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    eps: float,
    needs: Any,
) -> Any:
    grads = norm_kernel(name, F, g, x, normalized_shape, weight, mean, rstd, needs)
    if grads is None:
        return OPS[name].formulas["x"].function(F, g, x, normalized_shape, weight, eps, needs)
    return grads


def _layer_norm_grads(F, g, x, normalized_shape, weight, eps, mean, rstd, needs):
    return _norm_grads("layer_norm", F, g, x, normalized_shape, weight, mean, rstd, eps, needs)


def _rms_norm_grads(F, g, x, normalized_shape, weight, eps, rstd, needs):
    return _norm_grads("rms_norm", F, g, x, normalized_shape, weight, None, rstd, eps, needs)


OPS["layer_norm"].accelerate("cuda", _layer_norm, {("x", "weight", "bias"): _layer_norm_grads})
OPS["rms_norm"].accelerate("cuda", _rms_norm, {("x", "weight"): _rms_norm_grads})
