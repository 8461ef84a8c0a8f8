"""Update rules: pure functions on flat real arrays of one parameter (or a part of it), in place.

Each takes `(xp, p, g, <state arrays>, <scratch arrays>, <constants>)`. `p` and the state are updated; `g`,
the gradient after weight decay and sign, is only read; `t`, `u` are scratch of p's size. Constants are 0-d
arrays of p's dtype on the CPU (a Python float costs a ufunc call 0.2 us more) and Python floats on a GPU (no
transfer). Nothing here reads a value back.
"""

from __future__ import annotations

from typing import Any

Array = Any


def sgd(xp: Any, p: Array, g: Array, t: Array, lr: Any) -> None:
    """p -= lr g."""
    xp.multiply(g, lr, out=t)
    xp.subtract(p, t, out=p)


def sgd_momentum(
    xp: Any,
    p: Array,
    g: Array,
    buf: Array,
    t: Array,
    lr: Any,
    momentum: Any,
    keep: Any,
    nesterov: bool,
    dampened: bool,
) -> None:
    """buf = momentum buf + keep g; p -= lr buf, or lr (g + momentum buf) with nesterov. `dampened`: whether
    keep is not 1.
    """
    xp.multiply(buf, momentum, out=buf)
    if dampened:
        xp.multiply(g, keep, out=t)
        xp.add(buf, t, out=buf)
    else:
        xp.add(buf, g, out=buf)
    if nesterov:
        xp.multiply(buf, momentum, out=t)
        xp.add(t, g, out=t)
        xp.multiply(t, lr, out=t)
    else:
        xp.multiply(buf, lr, out=t)
    xp.subtract(p, t, out=p)


def _lerp(xp: Any, x: Array, y: Array, weight: Any, t: Array) -> None:
    xp.subtract(y, x, out=t)
    xp.multiply(t, weight, out=t)
    xp.add(x, t, out=x)


def _decay_square(xp: Any, v: Array, g: Array, beta: Any, rest: Any, t: Array) -> None:
    # v = beta v + rest g^2
    xp.multiply(v, beta, out=v)
    xp.multiply(g, g, out=t)
    xp.multiply(t, rest, out=t)
    xp.add(v, t, out=v)


def adam(
    xp: Any,
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    v_max: Array | None,
    t: Array,
    step_size: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    shrink: Any,
    decoupled: bool,
) -> None:
    """m = lerp(m, g, rest1); v = beta2 v + rest2 g^2; p = shrink p - step_size m / (sqrt(v) + eps).

    v_max: the largest v so far, in the denominator in place of v (amsgrad: Reddi, Kale, Kumar 2018).
    step_size = lr sqrt(1 - beta2^t) / (1 - beta1^t) and eps is multiplied by sqrt(1 - beta2^t): the bias
    corrections of Kingma and Ba 2015 (section 2, "more efficient") without a pass over the array.
    """
    if decoupled:
        xp.multiply(p, shrink, out=p)
    _lerp(xp, m, g, rest1, t)
    _decay_square(xp, v, g, beta2, rest2, t)
    if v_max is not None:
        xp.maximum(v_max, v, out=v_max)
    xp.sqrt(v if v_max is None else v_max, out=t)
    _adam_step(xp, p, m, t, step_size, eps)


def _adam_step(xp: Any, p: Array, m: Array, t: Array, step_size: Any, eps: Any) -> None:
    xp.add(t, eps, out=t)
    xp.divide(m, t, out=t)
    xp.multiply(t, step_size, out=t)
    xp.subtract(p, t, out=p)


def nadam(
    xp: Any,
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    t: Array,
    u: Array,
    g_size: Any,
    m_size: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    shrink: Any,
    decoupled: bool,
) -> None:
    """p -= (g_size g + m_size m) / (sqrt(v) + eps): Adam with Nesterov momentum (Dozat 2016)."""
    if decoupled:
        xp.multiply(p, shrink, out=p)
    _lerp(xp, m, g, rest1, t)
    _decay_square(xp, v, g, beta2, rest2, t)
    xp.sqrt(v, out=t)
    xp.add(t, eps, out=t)
    xp.multiply(g, g_size, out=u)
    xp.divide(u, t, out=u)
    xp.subtract(p, u, out=p)
    xp.divide(m, t, out=t)
    xp.multiply(t, m_size, out=t)
    xp.subtract(p, t, out=p)


def radam(
    xp: Any,
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    t: Array,
    step_size: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    shrink: Any,
    decoupled: bool,
    rectified: bool,
) -> None:
    """p -= step_size m / (sqrt(v) + eps) once the variance is tractable, p -= step_size m before (Liu et al.
    2020).
    """
    if decoupled:
        xp.multiply(p, shrink, out=p)
    _lerp(xp, m, g, rest1, t)
    _decay_square(xp, v, g, beta2, rest2, t)
    if rectified:
        xp.sqrt(v, out=t)
        _adam_step(xp, p, m, t, step_size, eps)
    else:
        xp.multiply(m, step_size, out=t)
        xp.subtract(p, t, out=p)


def adamax(
    xp: Any,
    p: Array,
    g: Array,
    m: Array,
    norm: Array,
    t: Array,
    step_size: Any,
    rest1: Any,
    beta2: Any,
    eps: Any,
) -> None:
    """norm = max(beta2 norm, |g| + eps); p -= step_size m / norm (Kingma and Ba 2015, section 7)."""
    _lerp(xp, m, g, rest1, t)
    xp.multiply(norm, beta2, out=norm)
    xp.absolute(g, out=t)
    xp.add(t, eps, out=t)
    xp.maximum(norm, t, out=norm)
    xp.divide(m, norm, out=t)
    xp.multiply(t, step_size, out=t)
    xp.subtract(p, t, out=p)


def lion(
    xp: Any, p: Array, g: Array, m: Array, t: Array, lr: Any, rest1: Any, rest2: Any, shrink: Any
) -> None:
    """p = shrink p - lr sign(lerp(m, g, rest1)); m = lerp(m, g, rest2) (Chen et al. 2023)."""
    xp.multiply(p, shrink, out=p)
    xp.subtract(g, m, out=t)
    xp.multiply(t, rest1, out=t)
    xp.add(t, m, out=t)
    xp.sign(t, out=t)
    xp.multiply(t, lr, out=t)
    xp.subtract(p, t, out=p)
    _lerp(xp, m, g, rest2, t)


def rmsprop(
    xp: Any, p: Array, g: Array, v: Array, t: Array, lr: Any, alpha: Any, rest: Any, eps: Any, momentum: Any
) -> None:
    """v = alpha v + rest g^2; p -= lr g / (sqrt(v) + eps) (Tieleman and Hinton 2012)."""
    _decay_square(xp, v, g, alpha, rest, t)
    xp.sqrt(v, out=t)
    xp.add(t, eps, out=t)
    xp.divide(g, t, out=t)
    xp.multiply(t, lr, out=t)
    xp.subtract(p, t, out=p)


def rmsprop_full(
    xp: Any,
    p: Array,
    g: Array,
    v: Array,
    mean: Array | None,
    buf: Array | None,
    t: Array,
    lr: Any,
    alpha: Any,
    rest: Any,
    eps: Any,
    momentum: Any,
) -> None:
    """RMSprop with the variance about the running mean (`mean`), momentum (`buf`), or both (Graves 2013)."""
    _decay_square(xp, v, g, alpha, rest, t)
    if mean is None:
        xp.sqrt(v, out=t)
    else:
        _lerp(xp, mean, g, rest, t)
        xp.multiply(mean, mean, out=t)
        xp.subtract(v, t, out=t)
        xp.sqrt(t, out=t)
    xp.add(t, eps, out=t)
    xp.divide(g, t, out=t)
    if buf is not None:
        xp.multiply(buf, momentum, out=buf)
        xp.add(buf, t, out=buf)
        xp.multiply(buf, lr, out=t)
    else:
        xp.multiply(t, lr, out=t)
    xp.subtract(p, t, out=p)


def adagrad(xp: Any, p: Array, g: Array, total: Array, t: Array, lr: Any, eps: Any) -> None:
    """total += g^2; p -= lr g / (sqrt(total) + eps) (Duchi, Hazan, Singer 2011)."""
    xp.multiply(g, g, out=t)
    xp.add(total, t, out=total)
    xp.sqrt(total, out=t)
    xp.add(t, eps, out=t)
    xp.divide(g, t, out=t)
    xp.multiply(t, lr, out=t)
    xp.subtract(p, t, out=p)


def adadelta(
    xp: Any,
    p: Array,
    g: Array,
    v: Array,
    change: Array,
    t: Array,
    u: Array,
    lr: Any,
    rho: Any,
    rest: Any,
    eps: Any,
) -> None:
    """delta = g sqrt(change + eps) / sqrt(v + eps); p -= lr delta (Zeiler 2012)."""
    _decay_square(xp, v, g, rho, rest, t)
    xp.add(v, eps, out=t)
    xp.sqrt(t, out=t)
    xp.add(change, eps, out=u)
    xp.sqrt(u, out=u)
    xp.divide(u, t, out=u)
    xp.multiply(u, g, out=u)
    _decay_square(xp, change, u, rho, rest, t)
    xp.multiply(u, lr, out=u)
    xp.subtract(p, u, out=p)


def rprop(
    xp: Any,
    p: Array,
    g: Array,
    previous: Array,
    size: Array,
    t: Array,
    u: Array,
    up: Any,
    down: Any,
    low: Any,
    high: Any,
) -> None:
    """Each element's step grows by 1 + up while its gradient keeps its sign, shrinks by 1 - down when it
    turns.

    After a turn the gradient counts as 0 (Riedmiller and Braun 1993).
    """
    xp.multiply(g, previous, out=t)
    xp.sign(t, out=t)
    # size *= 1 + up max(t, 0) + down min(t, 0); previous = g (1 + min(t, 0))
    xp.maximum(t, 0, out=u)
    xp.multiply(u, up, out=u)
    xp.minimum(t, 0, out=t)
    xp.add(t, 1, out=previous)
    xp.multiply(previous, g, out=previous)
    xp.multiply(t, down, out=t)
    xp.add(u, t, out=u)
    xp.add(u, 1, out=u)
    xp.multiply(size, u, out=size)
    xp.maximum(size, low, out=size)
    xp.minimum(size, high, out=size)
    xp.sign(previous, out=t)
    xp.multiply(t, size, out=t)
    xp.subtract(p, t, out=p)


def asgd(xp: Any, p: Array, g: Array, average: Array, t: Array, eta: Any, shrink: Any, mu: Any) -> None:
    """p = shrink p - eta g; average = lerp(average, p, mu) (Polyak and Juditsky 1992)."""
    xp.multiply(p, shrink, out=p)
    xp.multiply(g, eta, out=t)
    xp.subtract(p, t, out=p)
    _lerp(xp, average, p, mu, t)
