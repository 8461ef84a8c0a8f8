"""Limited-memory BFGS: a quasi-Newton method for full batches and smooth losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..autograd.mode import enable_grad
from ..errors import DtypeError, ShapeError
from ..storage.dtype import REAL_OF
from ..tensor import _wrap
from .optimizer import Optimizer, Params, guard, state_dtype

_Evaluate = Callable[[float], tuple[float, Any, float]]


class LBFGS(Optimizer):
    """Steps along -H g, where H approximates the inverse Hessian from the last `history_size` steps.

    Liu and Nocedal 1989; Nocedal and Wright 2006, algorithm 7.4 (two loops), initial H scaled as in (7.20).
    One `step(closure)` makes up to `max_iter` iterations and `max_eval` (None: 1.25 max_iter) evaluations of
    the closure, which clears the gradients, computes the loss, calls backward and returns the loss. It ends
    early when max |g| <= tolerance_grad, or when loss or step change by less than tolerance_change.
    line_search_fn: None (a step of lr) or "strong_wolfe". One parameter group, real parameters. The loss is
    read back at each evaluation, which synchronises a GPU. Raises DtypeError without a closure. Raises
    DtypeError without a closure.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - 3) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> w
    tensor([3., 3.], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                max_iter=max_iter,
                max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                tolerance_grad=tolerance_grad,
                tolerance_change=tolerance_change,
                history_size=history_size,
                line_search_fn=line_search_fn,
            ),
        )
        if len(self.param_groups) != 1:
            raise ShapeError(f"LBFGS: expected one parameter group, got {len(self.param_groups)}")

    def _check_options(self, group: dict[str, Any]) -> None:
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise DtypeError(
                f"LBFGS: line_search_fn is None or 'strong_wolfe', got {group['line_search_fn']!r}"
            )
        dtypes = {p.dtype for p in group["params"]}
        if len(dtypes) > 1 or dtypes & REAL_OF.keys():
            raise DtypeError(
                "LBFGS: expected parameters of one real dtype, got "
                f"{', '.join(sorted(d.name for d in dtypes))}"
            )

    def _fits(self, key: str, shape: tuple[int, ...], param_shape: tuple[int, ...]) -> bool:
        return True  # The state holds vectors over all parameters.

    # ---- parameters as one vector ----

    def _vector(self, what: str) -> Any:
        params = self.param_groups[0]["params"]
        xp = params[0].storage.backend.xp
        parts = []
        for p in params:
            tensor, dtype = (p if what == "params" else p.grad), state_dtype(p)
            if tensor is None:
                parts.append(xp.zeros(math.prod(p.shape), dtype=dtype))
            else:
                parts.append(tensor.storage.array.reshape(-1).astype(dtype, copy=False))
        return xp.concatenate(parts)

    def _write(self, x: Any) -> None:
        start = 0
        for p in self.param_groups[0]["params"]:
            size = math.prod(p.shape)
            p.storage.array[...] = x[start : start + size].reshape(p.shape)
            p.storage.version += 1
            start += size

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The loss at the start of the step."""
        if closure is None:
            raise DtypeError(
                "LBFGS.step: expected a closure that computes the loss and its gradients, got None"
            )
        for before in tuple(self._before.values()):
            before(self, (), {"closure": closure})
        with guard(self.param_groups[0]["params"][0].storage.backend):
            loss = self._minimise(closure)
        for after in tuple(self._after.values()):
            after(self, (), {"closure": closure})
        return loss

    def _minimise(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        first = group["params"][0]
        xp = first.storage.backend.xp
        state = self.state.setdefault(first, {"func_evals": 0, "n_iter": 0})
        evaluations = 0

        def evaluate() -> tuple[Any, float, Any]:
            nonlocal evaluations
            evaluations += 1
            state["func_evals"] += 1
            with enable_grad():
                loss = closure()
            return loss, float(loss), self._vector("grad")

        original, loss, g = evaluate()
        if float(xp.abs(g).max()) <= group["tolerance_grad"]:
            return original
        history = _History(state, group["history_size"])
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = history.direction(xp, g)
            t = min(1.0, 1.0 / float(xp.abs(g).sum())) * group["lr"] if state["n_iter"] == 1 else group["lr"]
            slope = float(xp.vdot(g, direction))
            if slope > -group["tolerance_change"]:
                break
            x, before = self._vector("params"), loss
            if group["line_search_fn"] == "strong_wolfe":

                def phi(t: float, x: Any = x, direction: Any = direction) -> tuple[float, Any, float]:
                    self._write(x + t * direction)
                    _, value, gradient = evaluate()
                    return value, gradient, float(xp.vdot(gradient, direction))

                tolerance = group["tolerance_change"] / max(float(xp.abs(direction).max()), 1e-300)
                t, loss, new = strong_wolfe(phi, t, loss, g, slope, tolerance)
                self._write(x + t * direction)
            else:
                self._write(x + t * direction)
                new = g
                if iteration != group["max_iter"]:
                    _, loss, new = evaluate()
            history.add(xp, g, new, direction, t)
            g = new
            step_size = float(xp.abs(t * direction).max())
            if (
                iteration == group["max_iter"]
                or evaluations >= group["max_eval"]
                or float(xp.abs(g).max()) <= group["tolerance_grad"]
                or step_size <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        history.store(first.storage.backend)
        return original


class _History:
    # Pairs y = g_new - g, s = t d of the last steps, kept in the optimizer's state between calls.

    def __init__(self, state: dict[str, Any], size: int) -> None:
        self.state, self.size = state, size

        def arrays(key: str) -> list[Any]:
            return [tensor.storage.array for tensor in state.get(key, [])]

        self.y, self.s = arrays("old_dirs"), arrays("old_stps")
        self.scale = state.get("H_diag", 1.0)
        # Without a line search the last iteration evaluates nothing: its pair is completed by the next call's
        # first gradient.
        self.pending = state.get("pending")
        if self.pending is not None:
            self.pending = tuple(tensor.storage.array for tensor in self.pending)

    def add(self, xp: Any, g: Any, new: Any, direction: Any, t: float) -> None:
        self.pending = (g, t * direction)
        if new is not g:
            self.complete(xp, new)

    def complete(self, xp: Any, new: Any) -> None:
        if self.pending is None:
            return
        g, s = self.pending
        self.pending = None
        y = new - g
        ys = float(xp.vdot(y, s))
        # The curvature condition: without it H would not be positive definite.
        if ys > 1e-10:
            self.y, self.s = [*self.y, y][-self.size :], [*self.s, s][-self.size :]
            self.scale = ys / float(xp.vdot(y, y))

    def direction(self, xp: Any, g: Any) -> Any:
        self.complete(xp, g)
        q = -g
        rho = [1.0 / float(xp.vdot(y, s)) for y, s in zip(self.y, self.s, strict=True)]
        alphas = []
        for y, s, r in zip(reversed(self.y), reversed(self.s), reversed(rho), strict=True):
            alpha = float(xp.vdot(s, q)) * r
            alphas.append(alpha)
            q = q - alpha * y
        q = q * self.scale
        for y, s, r, alpha in zip(self.y, self.s, rho, reversed(alphas), strict=True):
            q = q + s * (alpha - float(xp.vdot(y, q)) * r)
        return q

    def store(self, backend: Any) -> None:
        self.state["old_dirs"] = [_wrap(y, backend) for y in self.y]
        self.state["old_stps"] = [_wrap(s, backend) for s in self.s]
        self.state["H_diag"] = self.scale
        self.state["pending"] = None if self.pending is None else [_wrap(a, backend) for a in self.pending]


def _cubic_minimum(a: float, fa: float, da: float, b: float, fb: float, db: float) -> float:
    # Of the cubic through (f, f') at a and b, kept inside [a, b]: Nocedal and Wright (3.59).
    low, high = min(a, b), max(a, b)
    if a == b:
        return a
    d1 = da + db - 3.0 * (fa - fb) / (a - b)
    square = d1 * d1 - da * db
    if not square >= 0.0:
        return 0.5 * (low + high)
    d2 = math.copysign(math.sqrt(square), b - a)
    if db - da + 2.0 * d2 == 0.0:
        return 0.5 * (low + high)
    return min(max(b - (b - a) * (db + d2 - d1) / (db - da + 2.0 * d2), low), high)


def strong_wolfe(
    phi: _Evaluate,
    t: float,
    f0: float,
    g0: Any,
    slope: float,
    tolerance: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    max_steps: int = 25,
) -> tuple[float, float, Any]:
    """(t, f, g) with f(t) <= f(0) + c1 t f'(0) and |f'(t)| <= c2 |f'(0)|, or the best point found.

    phi(t) gives (f, gradient, f'); slope is f'(0) < 0. Nocedal and Wright 2006, algorithms 3.5 (bracket) and
    3.6 (zoom).
    """
    low = (0.0, f0, g0, slope)
    for count in range(max_steps):
        now = (t, *phi(t))
        if not math.isfinite(now[1]):
            # Out of the domain: halve, like a backtracking search.
            t = 0.5 * (low[0] + t)
            continue
        if now[1] > f0 + c1 * t * slope or (count and now[1] >= low[1]):
            return _zoom(phi, low, now, f0, slope, c1, c2, tolerance, max_steps - count - 1)
        if abs(now[3]) <= -c2 * slope:
            return now[0], now[1], now[2]
        if now[3] >= 0:
            return _zoom(phi, now, low, f0, slope, c1, c2, tolerance, max_steps - count - 1)
        # Extrapolate, by at least 1 % and at most ten times the step.
        guess = _cubic_minimum(low[0], low[1], low[3], t, now[1], now[3])
        least, most = t + 0.01 * (t - low[0]), 10.0 * t
        low, t = now, min(max(guess, least), most) if guess > t else min(2.0 * t, most)
    return low[0], low[1], low[2]


def _zoom(
    phi: _Evaluate,
    low: Any,
    high: Any,
    f0: float,
    slope: float,
    c1: float,
    c2: float,
    tolerance: float,
    max_steps: int,
) -> tuple[float, float, Any]:
    # `low` is the best point that satisfies the first condition; the minimum lies between it and `high`.
    for _ in range(max_steps):
        width = abs(high[0] - low[0])
        if width <= tolerance:
            break
        t = _cubic_minimum(low[0], low[1], low[3], high[0], high[1], high[3])
        # A trial too close to an end makes no progress: keep a tenth away.
        margin = 0.1 * width
        t = min(max(t, min(low[0], high[0]) + margin), max(low[0], high[0]) - margin)
        now = (t, *phi(t))
        if now[1] > f0 + c1 * t * slope or now[1] >= low[1] or not math.isfinite(now[1]):
            high = now
            continue
        if abs(now[3]) <= -c2 * slope:
            return now[0], now[1], now[2]
        if now[3] * (high[0] - low[0]) >= 0:
            high = low
        low = now
    return low[0], low[1], low[2]
