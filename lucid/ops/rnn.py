"""Recurrent layers: one op per layer and direction, with backpropagation through time in its formula.

Time is the first dimension. `mask` [T, N, 1], bool, says which steps of a sequence are real: where it is
False the state stays. `reverse` runs from the last step to the first. What the gates were is a further
output, which the CPU's own gradients use instead of computing it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np  # for the CPU paths alone

from ..errors import ShapeError
from ..kernel.products import matmul_of
from .common import is_low
from .pointwise import wide
from .registry import A, Sample, op
from .softmax import cast_like

_FLOAT32 = np.dtype("float32")
_MASK = A(value=[[[True], [True]], [[True], [True]], [[True], [False]]])


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _check(name: str, gx: Any, h0: Any, w_hh: Any, gates: int) -> None:
    hidden = h0.shape[-1]
    if gx.ndim != 3 or h0.shape != (gx.shape[1],
                                    hidden) or gx.shape[2] != gates * hidden or w_hh.shape != (gates * hidden,
                                                                                               hidden):
        raise ShapeError(f"{name}: expected gx [T, N, {gates} H], h0 [N, H] and w_hh [{gates} H, H], got "
                         f"{list(gx.shape)}, {list(h0.shape)} and {list(w_hh.shape)}")


def _sigmoid_(xp: Any, x: Any) -> None:
    # In place: (1 + tanh(x / 2)) / 2, which cannot overflow.
    x *= 0.5
    xp.tanh(x, out=x)
    x *= 0.5
    x += 0.5


def _split(F: Any, x: Any, n: int) -> list[Any]:
    size = x.shape[-1] // n
    return [F.narrow(x, -1, i * size, size) for i in range(n)]


def _float32(F: Any, *tensors: Any) -> list[Any]:
    # Gradients of 16-bit states are summed over all steps in float32.
    return [t if t is None or not is_low(t.dtype) else F.cast(t, _FLOAT32) for t in tensors]


def _back(F: Any, grads: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
    # The gradients in the dtype of the incoming one.
    return tuple(d if d is None else cast_like(F, d, g) for d in grads)


def _before(F: Any, states: Any, first: Any, t: int, reverse: bool) -> Any:
    # The state that step t started from.
    last = states.shape[0] - 1
    if t == (last if reverse else 0):
        return first
    return F.select(states, 0, t + 1 if reverse else t - 1)


def _live(F: Any, mask: Any, t: int) -> Any:
    return None if mask is None else F.select(mask, 0, t)


def _stacked(F: Any, parts: list[Any], reverse: bool) -> Any:
    # Gradients in the order of time; they were made from the last processed step to the first.
    return F.stack(*(parts if reverse else parts[::-1]), dim=0)


def _weight(F: Any, dg: Any, states: Any, first: Any, reverse: bool) -> Any:
    # sum over t of dg[t]^T h[t - 1], as one product.
    steps = states.shape[0]
    start = F.reshape(first, (1, *first.shape))
    rest = F.narrow(states, 0, 1 if reverse else 0, steps - 1)
    before = F.cat(*((rest, start) if reverse else (start, rest)), dim=0)
    return F.matmul(F.transpose(F.reshape(dg, (-1, dg.shape[-1])), 0, 1),
                    F.reshape(before, (-1, before.shape[-1])))


# ---- lstm (Hochreiter and Schmidhuber 1997): gates i, f, g, o ----

@op(public=False, amp="low", outputs=("out", "cells", "acts"), diff=("out", "cells"),
    samples=[Sample((3, 2, 8), (2, 2), (2, 2), (8, 2), None, False),
             Sample((3, 2, 8), (2, 2), (2, 2), (8, 2), _MASK, True)])
def lstm(xp, gx, h0, c0, w_hh, mask=None, reverse: bool = False):
    """(hidden states, cell states, gates) of all steps: c = f c + i g, h = o tanh(c), from gx[t] + w_hh h.

    gx: [T, N, 4 H], the input's part of the gates with both biases; h0, c0: [N, H]; w_hh: [4 H, H]. States:
    [T, N, H].
    """
    _check("lstm", gx, h0, w_hh, 4)
    dtype, gx, h0, c0, w_hh = gx.dtype, wide(gx), wide(h0), wide(c0), wide(w_hh)
    steps, n, width = gx.shape
    size = width // 4
    out, cells = xp.empty((steps, n, size), gx.dtype), xp.empty((steps, n, size), gx.dtype)
    acts = xp.empty(gx.shape, gx.dtype)
    h, c, w, mm = h0, c0, w_hh.T, matmul_of(xp)
    for t in _order(steps, reverse):
        a = acts[t]
        xp.add(mm(h, w), gx[t], out=a)
        _sigmoid_(xp, a[:, : 2 * size])
        _sigmoid_(xp, a[:, 3 * size :])
        g = a[:, 2 * size : 3 * size]
        xp.tanh(g, out=g)
        new_c = cells[t]
        xp.multiply(a[:, size : 2 * size], c, out=new_c)
        new_c += a[:, :size] * g
        new_h = xp.multiply(xp.tanh(new_c), a[:, 3 * size :], out=out[t])
        if mask is not None:
            cells[t] = xp.where(mask[t], new_c, c)
            out[t] = xp.where(mask[t], new_h, h)
        h, c = out[t], cells[t]
    return tuple(a.astype(dtype, copy=False) for a in (out, cells, acts))


def _lstm_time(F: Any, g: Any, gates: Any, h0: Any, c0: Any, w_hh: Any, mask: Any, out: Any, cells: Any,
               reverse: bool) -> Any:
    # gates(t) gives (i, f, g, o) of a step.
    g_out, g_cells = g
    dh = dc = None
    parts = []
    for t in reversed(_order(out.shape[0], reverse)):
        i, f, z, o = gates(t)
        before = _before(F, cells, c0, t, reverse)
        live = _live(F, mask, t)
        dh = F.select(g_out, 0, t) if dh is None else dh + F.select(g_out, 0, t)
        dc = F.select(g_cells, 0, t) if dc is None else dc + F.select(g_cells, 0, t)
        # Where the mask is False the carried cell stands here; what follows is not used there.
        tc = F.tanh(F.select(cells, 0, t))
        d = dc + dh * o * (1.0 - tc * tc)
        dg = F.cat(d * z * (i * (1.0 - i)), d * before * (f * (1.0 - f)), d * i * (1.0 - z * z),
                   dh * tc * (o * (1.0 - o)), dim=-1)
        if live is not None:
            dg = F.where(live, dg, 0.0)
        parts.append(dg)
        back, kept = F.matmul(dg, w_hh), d * f
        dh, dc = (back, kept) if live is None else (F.where(live, back, dh), F.where(live, kept, dc))
    dgx = _stacked(F, parts, reverse)
    return dgx, dh, dc, _weight(F, dgx, out, h0, reverse)


def _lstm_grads(F, g, gx, h0, c0, w_hh, mask, out, cells, reverse, needs):
    gx, h0, c0, w_hh, out, cells = _float32(F, gx, h0, c0, w_hh, out, cells)
    w = F.transpose(w_hh, 0, 1)

    def gates(t):
        i, f, z, o = _split(F, F.select(gx, 0, t) + F.matmul(_before(F, out, h0, t, reverse), w), 4)
        return F.sigmoid(i), F.sigmoid(f), F.tanh(z), F.sigmoid(o)
    return _back(F, _lstm_time(F, _float32(F, *g), gates, h0, c0, w_hh, mask, out, cells, reverse), g[0])


def _lstm_grads_saved(F, g, h0, c0, w_hh, mask, out, cells, acts, reverse, needs):
    h0, c0, w_hh, out, cells, acts = _float32(F, h0, c0, w_hh, out, cells, acts)
    grads = _lstm_time(F, _float32(F, *g), lambda t: np.split(acts[t], 4, axis=-1), h0, c0, w_hh, mask, out,
                       cells, reverse)
    return _back(F, grads, g[0])


lstm.grads(("gx", "h0", "c0", "w_hh"), _lstm_grads)
lstm.accelerate("cpu", None, {("gx", "h0", "c0", "w_hh"): _lstm_grads_saved})


# ---- gru (Cho et al. 2014): gates r, z, n ----

@op(public=False, amp="low", outputs=("out", "acts"), diff=("out",),
    samples=[Sample((3, 2, 6), (2, 2), (6, 2), (6,), None, False),
             Sample((3, 2, 6), (2, 2), (6, 2), None, _MASK, True)])
def gru(xp, gx, h0, w_hh, b_hh=None, mask=None, reverse: bool = False):
    """(hidden states, gates) of all steps: n = tanh(gx_n + r (w_n h + b_n)), h = (1 - z) n + z h.

    gx: [T, N, 3 H]; h0: [N, H]; w_hh: [3 H, H]; b_hh: [3 H] or None. States: [T, N, H].
    """
    _check("gru", gx, h0, w_hh, 3)
    dtype, gx, h0, w_hh = gx.dtype, wide(gx), wide(h0), wide(w_hh)
    steps, n, width = gx.shape
    size = width // 3
    # The fourth part is w_n h + b_n.
    out, acts = xp.empty((steps, n, size), gx.dtype), xp.empty((steps, n, 4 * size), gx.dtype)
    h, w, mm = h0, w_hh.T, matmul_of(xp)
    for t in _order(steps, reverse):
        a, hw = acts[t], mm(h, w)
        if b_hh is not None:
            hw += b_hh
        rz = xp.add(gx[t][:, : 2 * size], hw[:, : 2 * size], out=a[:, : 2 * size])
        _sigmoid_(xp, rz)
        a[:, 3 * size :] = hw[:, 2 * size :]
        new = a[:, 2 * size : 3 * size]
        xp.multiply(a[:, :size], a[:, 3 * size :], out=new)
        new += gx[t][:, 2 * size :]
        xp.tanh(new, out=new)
        out[t] = new + a[:, size : 2 * size] * (h - new)
        if mask is not None:
            out[t] = xp.where(mask[t], out[t], h)
        h = out[t]
    return out.astype(dtype, copy=False), acts.astype(dtype, copy=False)


def _gru_time(F: Any, g: Any, gates: Any, h0: Any, w_hh: Any, b_hh: Any, mask: Any, out: Any,
              reverse: bool) -> Any:
    # gates(t) gives (r, z, n, w_n h + b_n) of a step.
    dh = None
    parts, recurrent = [], []
    for t in reversed(_order(out.shape[0], reverse)):
        r, z, n, hn = gates(t)
        before = _before(F, out, h0, t, reverse)
        live = _live(F, mask, t)
        dh = F.select(g, 0, t) if dh is None else dh + F.select(g, 0, t)
        dn = dh * (1.0 - z) * (1.0 - n * n)
        drz = F.cat(dn * hn * (r * (1.0 - r)), dh * (before - n) * (z * (1.0 - z)), dim=-1)
        dx, dw = F.cat(drz, dn, dim=-1), F.cat(drz, dn * r, dim=-1)
        if live is not None:
            dx, dw = F.where(live, dx, 0.0), F.where(live, dw, 0.0)
        parts.append(dx)
        recurrent.append(dw)
        back = F.matmul(dw, w_hh) + dh * z
        dh = back if live is None else F.where(live, back, dh)
    dgh = _stacked(F, recurrent, reverse)
    bias = None if b_hh is None else F.sum(dgh, dim=(0, 1))
    return _stacked(F, parts, reverse), dh, _weight(F, dgh, out, h0, reverse), bias


def _gru_grads(F, g, gx, h0, w_hh, b_hh, mask, out, reverse, needs):
    g32, gx, h0, w_hh, b_hh, out = _float32(F, g, gx, h0, w_hh, b_hh, out)
    w = F.transpose(w_hh, 0, 1)

    def gates(t):
        xr, xz, xn = _split(F, F.select(gx, 0, t), 3)
        hw = F.matmul(_before(F, out, h0, t, reverse), w)
        hr, hz, hn = _split(F, hw if b_hh is None else hw + b_hh, 3)
        r = F.sigmoid(xr + hr)
        return r, F.sigmoid(xz + hz), F.tanh(xn + r * hn), hn
    return _back(F, _gru_time(F, g32, gates, h0, w_hh, b_hh, mask, out, reverse), g)


def _gru_grads_saved(F, g, h0, w_hh, b_hh, mask, out, acts, reverse, needs):
    g32, h0, w_hh, b_hh, out, acts = _float32(F, g, h0, w_hh, b_hh, out, acts)
    grads = _gru_time(F, g32, lambda t: np.split(acts[t], 4, axis=-1), h0, w_hh, b_hh, mask, out, reverse)
    return _back(F, grads, g)


gru.grads(("gx", "h0", "w_hh", "b_hh"), _gru_grads)
gru.accelerate("cpu", None, {("gx", "h0", "w_hh", "b_hh"): _gru_grads_saved})


# ---- the plain recurrent net (Elman 1990) ----

@op(public=False, amp="low", samples=[Sample((3, 2, 4), (2, 4), (4, 4), None, False, False),
                                      Sample((3, 2, 4), (2, 4), (4, 4), _MASK, True, False)])
def elman(xp, gx, h0, w_hh, mask=None, reverse: bool = False, relu: bool = False):
    """The states h = tanh(gx[t] + w_hh h), or relu of it, of all steps.

    gx: [T, N, H], with both biases; h0: [N, H]; w_hh: [H, H].
    """
    _check("rnn", gx, h0, w_hh, 1)
    dtype, gx, h0, w_hh = gx.dtype, wide(gx), wide(h0), wide(w_hh)
    out, h, w = xp.empty(gx.shape, gx.dtype), h0, w_hh.T
    mm = matmul_of(xp)
    for t in _order(gx.shape[0], reverse):
        new = xp.add(mm(h, w), gx[t], out=out[t])
        if relu:
            xp.maximum(new, 0, out=new)
        else:
            xp.tanh(new, out=new)
        if mask is not None:
            out[t] = xp.where(mask[t], new, h)
        h = out[t]
    return out.astype(dtype, copy=False)


def _elman_grads(F, g, h0, w_hh, mask, out, reverse, relu, needs):
    g32, h0, w_hh, out = _float32(F, g, h0, w_hh, out)
    dh = None
    parts = []
    for t in reversed(_order(out.shape[0], reverse)):
        h, live = F.select(out, 0, t), _live(F, mask, t)
        dh = F.select(g32, 0, t) if dh is None else dh + F.select(g32, 0, t)
        d = F.where(F.gt(h, 0), dh, 0.0) if relu else dh * (1.0 - h * h)
        if live is not None:
            d = F.where(live, d, 0.0)
        parts.append(d)
        back = F.matmul(d, w_hh)
        dh = back if live is None else F.where(live, back, dh)
    dgx = _stacked(F, parts, reverse)
    return _back(F, (dgx, dh, _weight(F, dgx, out, h0, reverse)), g)


elman.grads(("gx", "h0", "w_hh"), _elman_grads)
