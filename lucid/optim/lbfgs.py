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
    read back at each evaluation, which synchronises a GPU. Raises DtypeError without a closure.

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
        lr: float = 1,
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
                left = group["max_eval"] - evaluations
                t, loss, new = strong_wolfe(phi, t, loss, g, slope, tolerance, max_steps=left)
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
            return [tensor.storage.array for tensor in state.get(key) or []]

        if state.get("prev_flat_grad") is not None:  # a state of PyTorch
            state["pending"] = [state["prev_flat_grad"], state["d"] * float(state["t"])]
        for key in ("d", "t", "ro", "al", "prev_flat_grad", "prev_loss"):
            state.pop(key, None)
        self.y, self.s = arrays("old_dirs"), arrays("old_stps")
        self.scale = float(state.get("H_diag", 1.0))
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


_Point = tuple[float, float, Any, float]  # t, f, gradient, f'


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[float, float] | None = None) -> float:
    # Of the cubic through (f, f') at a and b, kept inside the bounds (those two when None): (3.59) of Nocedal
    # and Wright.
    low, high = bounds or (min(a[0], b[0]), max(a[0], b[0]))
    if a[0] > b[0]:
        a, b = b, a
    width = b[0] - a[0]
    if not width:
        return a[0]
    d1 = a[3] + b[3] - 3.0 * (b[1] - a[1]) / width
    square = d1 * d1 - a[3] * b[3]
    if not square >= 0.0:
        return 0.5 * (low + high)
    d2 = math.sqrt(square)
    if b[3] - a[3] + 2.0 * d2 == 0.0:
        return 0.5 * (low + high)
    return min(max(b[0] - width * (b[3] + d2 - d1) / (b[3] - a[3] + 2.0 * d2), low), high)


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
    3.6 (zoom), with the safeguards that PyTorch and minFunc have, so that the same points are tried: at most
    1 + max_steps of them.
    """
    before: _Point = (0.0, f0, g0, slope)
    for count in range(max_steps):
        now: _Point = (t, *phi(t))
        if not math.isfinite(now[1]):
            # Out of the domain: halve, like a backtracking search.
            t = 0.5 * (before[0] + t)
            continue
        rises = now[1] > f0 + c1 * t * slope or (count > 1 and now[1] >= before[1])
        if not rises and abs(now[3]) <= -c2 * slope:
            return now[:3]
        if rises or now[3] >= 0:
            return _zoom(phi, before, now, f0, slope, c1, c2, tolerance, max_steps - count)
        # Extrapolate, by at least 1 % and at most to ten times the step.
        t, before = _cubic_minimum(before, now, (t + 0.01 * (t - before[0]), 10.0 * t)), now
    value, g, _ = phi(t)
    return (t, value, g) if value < f0 else (0.0, f0, g0)


def _zoom(
    phi: _Evaluate,
    a: _Point,
    b: _Point,
    f0: float,
    slope: float,
    c1: float,
    c2: float,
    tolerance: float,
    max_steps: int,
) -> tuple[float, float, Any]:
    # The minimum lies between `low`, the best point so far, and `high`.
    low, high = (a, b) if a[1] <= b[1] else (b, a)
    slow = False
    for _ in range(max_steps):
        left, right = min(low[0], high[0]), max(low[0], high[0])
        if right - left < tolerance:
            break
        t = _cubic_minimum(low, high)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            # The second trial in a row so close to an end, or one at the end, is moved away from it.
            if slow or not left < t < right:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                slow = False
            else:
                slow = True
        else:
            slow = False
        now: _Point = (t, *phi(t))
        if now[1] > f0 + c1 * t * slope or now[1] >= low[1] or not math.isfinite(now[1]):
            high = now
            if high[1] < low[1]:
                low, high = high, low
            continue
        if abs(now[3]) <= -c2 * slope:
            return now[:3]
        if now[3] * (high[0] - low[0]) >= 0:
            high = low
        low = now
    return low[:3]
