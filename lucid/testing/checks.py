"""What every op must satisfy, as functions on a case; tests/test_ops.py runs them all on every device.

Each raises AssertionError with the op, the sample and the two values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.engine import Engine
from ..autograd.numerical import gradcheck, gradgradcheck
from ..autograd.record import recorder
from ..ops.registry import reference_of
from ..storage.backend import backend_of
from ..tensor import Tensor, _wrap
from .samples import Case

# The same formula in float64 on another device or in another order of sums.
RTOL, ATOL = 1e-9, 1e-10


def _host(device: str, a: Any) -> np.ndarray[Any, Any]:
    return np.asarray(backend_of(device).to_numpy(a))


def _tuple(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)


def tensors_of(
    case: Case, device: str, requires: list[int] | None = None, layout: Any = None, dtype: Any = None
) -> list[Any]:
    """The case's tensors on a device; those at `requires` (all differentiable ones by default) require grad.
    """
    requires = case.differentiable if requires is None else requires
    backend = backend_of(device)
    return [
        None if a is None else _wrap(layout(backend.xp, a) if layout else a, backend, i in requires)
        for i, a in enumerate(case.device_arrays(device, dtype))
    ]


def call(case: Case, values: list[Any]) -> tuple[Any, ...]:
    """The recorded op's outputs."""
    args, kwargs = case.arguments(values)
    return _tuple(recorder(case.op)(*args, **kwargs))


def _function(case: Case, device: str) -> Any:
    fixed = tensors_of(case, device, [])

    def f(*xs: Any) -> Any:
        values = list(fixed)
        for i, x in zip(case.differentiable, xs, strict=True):
            values[i] = x
        outs = [
            o
            for o, name in zip(
                call(case, values), case.op.outputs if not case.op.composite else ("out",) * 99, strict=False
            )
            if case.op.composite or name in case.op.diff
        ]
        return outs[0] if len(outs) == 1 else outs

    return f


def forward(case: Case, device: str) -> None:
    """The op agrees with its reference, runs on both paths alike, and leaves its inputs as they were."""
    values = case.device_arrays(device)
    before = [None if a is None else a.copy() for a in values]
    raw = _tuple(case.raw(device, values))
    for a, b in zip(values, before, strict=True):
        if a is not None:
            np.testing.assert_array_equal(
                _host(device, a), _host(device, b), err_msg=f"{case}: changed its input"
            )
    outs = call(case, tensors_of(case, device))
    for r, o in zip(raw, outs, strict=True):
        np.testing.assert_array_equal(
            _host(device, r),
            _host(device, o.storage.array),
            err_msg=f"{case}: raw and recorded forward differ",
        )
        assert o.device.type == backend_of(device).device.type
    reference = reference_of(case.op)
    if reference is not None:
        args, kwargs = case.arguments([None if a is None else a.copy() for a in case.arrays])
        for r, e in zip(raw, _tuple(reference(*args, **kwargs)), strict=False):
            np.testing.assert_allclose(
                _host(device, r),
                np.asarray(e),
                rtol=1e-7,
                atol=1e-9,
                err_msg=f"{case}: differs from its reference",
            )


def no_aliasing(case: Case, device: str) -> None:
    """The output of an op that is no view shares no memory with its inputs; a view of contiguous memory does,
    and shares its version.
    """
    tensors = tensors_of(case, device)
    for o in call(case, tensors):
        for t in tensors:
            if t is None or not t.numel() or not o.numel():
                continue
            shares = (
                backend_of(device).xp.may_share_memory(o.storage.array, t.storage.array)
                and o.storage.array.base is not None
                or o.storage.array is t.storage.array
            )
            if shares and not case.op.composite:
                assert o.storage.root is t.storage.root, (
                    f"{case}: the output shares memory with an input but not its version; "
                    "declare view=True or copy"
                )


def first_order(case: Case, device: str) -> None:
    """The gradients agree with central differences in random directions."""
    xs = [t for i, t in enumerate(tensors_of(case, device)) if i in case.differentiable]
    if xs:
        gradcheck(_function(case, device), xs, rtol=1e-4, atol=1e-6)


def second_order(case: Case, device: str) -> None:
    """The second derivatives agree with central differences of the first."""
    xs = [t for i, t in enumerate(tensors_of(case, device)) if i in case.differentiable]
    if xs and case.sample.second:
        gradgradcheck(_function(case, device), xs, rtol=1e-4, atol=1e-6)


def _grads(
    case: Case,
    device: str,
    requires: list[int],
    create_graph: bool = False,
    layout: Any = None,
    dtype: Any = None,
) -> list[Any]:
    tensors = tensors_of(case, device, requires, layout, dtype)
    outs = [o for o in call(case, tensors) if o.requires_grad]
    if not outs:
        return [None] * len(requires)
    rng = np.random.default_rng(1)
    seeds = [
        _wrap(
            backend_of(device).from_numpy(np.asarray(rng.standard_normal(o.shape), o.dtype)),
            o.storage.backend,
        )
        for o in outs
    ]
    return [
        None if g is None else _host(device, g.storage.array)
        for g in Engine.grad(outs, seeds, [tensors[i] for i in requires], create_graph=create_graph)
    ]


def _equal(case: Case, a: list[Any], b: list[Any], what: str, rtol: float = RTOL, atol: float = ATOL) -> None:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert (x is None) == (y is None), f"{case}: {what}: gradient {i} is None on one side only"
        if x is not None:
            assert x.shape == y.shape and x.dtype == y.dtype, (
                f"{case}: {what}: gradient {i} is {x.dtype}{x.shape} against {y.dtype}{y.shape}"
            )
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=f"{case}: {what}")


def raw_equals_recorded(case: Case, device: str) -> None:
    """First-order gradients are the same on raw arrays and recorded (create_graph)."""
    if case.differentiable:
        _equal(
            case,
            _grads(case, device, case.differentiable),
            _grads(case, device, case.differentiable, create_graph=True),
            "raw against recorded",
        )


def masks(case: Case, device: str) -> None:
    """Each input's gradient is the same whichever other inputs require grad."""
    which = case.differentiable
    full = _grads(case, device, which)
    for bits in range(1, (1 << min(len(which), 4)) - 1):
        chosen = [i for k, i in enumerate(which) if bits >> k & 1]
        _equal(
            case,
            _grads(case, device, chosen),
            [g for i, g in zip(which, full, strict=True) if i in chosen],
            f"with only inputs {chosen} requiring grad",
        )


def _strided(xp: Any, a: Any) -> Any:
    """The same values in memory with gaps (every second element of a larger array)."""
    if not a.ndim:
        return a
    wide = xp.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    xp.copyto(wide[..., ::2], a)
    return wide[..., ::2]


def layouts(case: Case, device: str) -> None:
    """Values and gradients do not depend on how the inputs lie in memory."""
    dense = call(case, tensors_of(case, device))
    loose = call(case, tensors_of(case, device, layout=_strided))
    for a, b in zip(dense, loose, strict=True):
        np.testing.assert_allclose(
            _host(device, a.storage.array),
            _host(device, b.storage.array),
            rtol=RTOL,
            atol=ATOL,
            err_msg=f"{case}: non-contiguous input",
        )
    if case.differentiable:
        _equal(
            case,
            _grads(case, device, case.differentiable),
            _grads(case, device, case.differentiable, layout=_strided),
            "non-contiguous inputs",
        )


def no_grad_same(case: Case, device: str) -> None:
    """Without recording the outputs are the same, and carry no history."""
    from ..autograd.mode import no_grad

    with no_grad():
        outs = call(case, tensors_of(case, device))
    for o, r in zip(outs, call(case, tensors_of(case, device)), strict=True):
        assert not o.requires_grad and o.grad_fn is None
        np.testing.assert_array_equal(_host(device, o.storage.array), _host(device, r.storage.array))


def _public(case: Case, a: tuple[Any, ...], b: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Pairs of outputs to compare: all but floating ones without a derivative, which only serve a device's
    own gradient.
    """
    names = case.op.outputs if not case.op.composite and len(a) > 1 else ("out",) * len(a)
    diff = case.op.diff or names
    return [
        (x, y)
        for x, y, n in zip(a, b, names, strict=True)
        if case.op.composite or len(a) == 1 or n in diff or x.dtype.num < 11
    ]


def devices_agree(case: Case, device: str) -> None:
    """The device gives the CPU's values and gradients."""
    if device == "cpu":
        return
    for a, b in _public(case, call(case, tensors_of(case, device)), call(case, tensors_of(case, "cpu"))):
        np.testing.assert_allclose(
            _host(device, a.storage.array),
            b.storage.array,
            rtol=1e-7,
            atol=1e-9,
            err_msg=f"{case}: device values",
        )
    if case.differentiable:
        _equal(
            case,
            _grads(case, device, case.differentiable),
            _grads(case, "cpu", case.differentiable),
            "device gradients",
            1e-7,
            1e-9,
        )


def accelerated_equals_generic(case: Case, device: str) -> None:
    """A device's accelerated path gives the generic formulas' values and gradients."""
    fast = case.op.accelerated.get(device)
    if fast is None:
        return
    op = case.op
    values, grads = call(case, tensors_of(case, device)), _grads(case, device, case.differentiable)
    held, op.accelerated = op.accelerated, {}
    record, op.record = op.record, None
    plans = dict(op.plans)
    op.plans.clear()
    backend_of(device).F.__dict__.pop(op.name, None)
    try:
        generic, slow = call(case, tensors_of(case, device)), _grads(case, device, case.differentiable)
    finally:
        op.accelerated, op.record = held, record
        op.plans.clear()
        op.plans.update(plans)
        backend_of(device).F.__dict__.pop(op.name, None)
    for a, b in _public(case, values, generic):
        np.testing.assert_allclose(
            _host(device, a.storage.array),
            _host(device, b.storage.array),
            rtol=1e-7,
            atol=1e-9,
            err_msg=f"{case}: accelerated forward",
        )
    _equal(case, grads, slow, "accelerated gradients", 1e-7, 1e-9)


def low_precision(case: Case, device: str, dtype: str) -> None:
    """In a 16-bit dtype the error against float64 stays within the dtype's rounding of inputs,
    intermediate results and output.

    The bound is on the norm: 40 units in the last place times the size of the data, plus what the rounded
    inputs themselves cause.
    """
    from ..storage.dtype import as_dtype

    d = as_dtype(dtype)
    eps = 2.0**-10 if dtype == "float16" else 2.0**-7
    rounded = [
        None
        if a is None
        else a.astype(d).astype(a.dtype)
        if as_dtype(a.dtype).num >= 11 and a.dtype.kind != "c"
        else a
        for a in case.arrays
    ]
    exact = _tuple(case.raw("cpu", rounded))
    for got, want in zip(call(case, tensors_of(case, device, [], dtype=d)), exact, strict=True):
        g, w = _host(device, got.storage.array).astype(np.float64), np.asarray(want, np.float64)
        if not w.size or not np.isfinite(w).all() or np.abs(w).max() > 1e4:
            continue
        if as_dtype(got.dtype).num >= 11:
            np.testing.assert_allclose(
                g,
                w,
                rtol=40 * eps,
                atol=40 * eps * max(1.0, float(np.abs(w).max())),
                err_msg=f"{case}: {dtype}",
            )


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor (for users' own checks)."""
    return isinstance(x, Tensor)


ALL = (
    forward,
    no_aliasing,
    first_order,
    second_order,
    raw_equals_recorded,
    masks,
    layouts,
    no_grad_same,
    devices_agree,
    accelerated_equals_generic,
)
