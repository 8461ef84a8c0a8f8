"""Optimisers that see a matrix: Adafactor's factored second moments, Muon's orthogonal updates."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from ..storage.dtype import REAL_OF
from ..tensor import Tensor, _wrap
from .optimizer import Optimizer, Params, guard, in_range, state_dtype


def _working(param: Tensor, grad: Any, maximize: bool) -> tuple[Any, Any]:
    # (p, g) in the dtype of the state; p is the parameter's own array unless it has 16 bits.
    array, dtype = param.storage.array, state_dtype(param)
    g = grad.storage.array.astype(dtype, copy=False)
    return array.astype(dtype, copy=False), -g if maximize else g


def _finish(param: Tensor, p: Any) -> None:
    if p is not param.storage.array:
        param.storage.array[...] = p
    param.storage.version += 1


class Adafactor(Optimizer):
    """Adam without first moments, whose second moments of a matrix are a row and a column.

    Shazeer and Stern 2018, arXiv:1804.04235. A [n, m] parameter has n + m numbers of state. alpha = max(eps2,
    rms(p)) min(lr, 1 / sqrt(t)); u = g / sqrt(v), clipped to rms(u) <= d; p -= alpha u. v decays with 1 -
    t^beta2_decay. eps: (floor of v; None: the dtype's epsilon, and floor of rms(p)). Raises ShapeError for
    options out of their range.

    >>> import lucid
    >>> w = lucid.ones(2, 3, requires_grad=True)
    >>> optimizer = lucid.optim.Adafactor([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([[0.9, 0.9, 0.9],
            [0.9, 0.9, 0.9]], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                beta2_decay=beta2_decay,
                eps=eps,
                d=d,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        in_range(
            "Adafactor",
            lr=(group["lr"], group["lr"] >= 0),
            beta2_decay=(group["beta2_decay"], group["beta2_decay"] <= 0),
            d=(group["d"], group["d"] >= 1),
            weight_decay=(group["weight_decay"], group["weight_decay"] >= 0),
        )
        for param in group["params"]:
            if param.dtype in REAL_OF:
                raise ShapeError(
                    f"Adafactor: expected real parameters, got {param.dtype.name} of shape {param.shape}"
                )

    def _fits(self, key: str, shape: tuple[int, ...], param_shape: tuple[int, ...]) -> bool:
        expected = {"row_var": (*param_shape[:-1], 1), "col_var": (*param_shape[:-2], 1, *param_shape[-1:])}
        return shape == expected.get(key, param_shape)

    def _step_group(self, group: dict[str, Any]) -> None:
        for param in group["params"]:
            if param.grad is not None and param.storage.array.size:
                with guard(param.storage.backend):
                    self._update(group, param)

    def _update(self, group: dict[str, Any], param: Tensor) -> None:
        lr, decay, (eps1, eps2) = group["lr"], group["weight_decay"], group["eps"]
        xp = param.storage.backend.xp
        p, g = _working(param, param.grad, group["maximize"])
        state = self.state.get(param) or self.state.setdefault(param, self._new_state(param))
        step = state["step"] = state["step"] + 1
        if eps1 is None:
            eps1 = float(xp.finfo(state_dtype(param)).eps)
        # 0-d arrays stay on the device: no value is read back.
        alpha = xp.maximum(xp.sqrt(xp.vdot(p, p) / p.size), eps2) * min(lr, 1.0 / math.sqrt(step))
        if decay:
            p *= 1.0 - lr * decay
        v = self._second_moment(xp, g, state, step ** group["beta2_decay"], eps1)
        u = g / xp.sqrt(xp.maximum(v, eps1 * eps1))
        clip = xp.maximum(xp.sqrt(xp.vdot(u, u) / u.size) / group["d"], 1.0)
        u *= alpha / clip
        p -= u
        _finish(param, p)

    @staticmethod
    def _second_moment(xp: Any, g: Any, state: dict[str, Any], rest: float, eps1: float) -> Any:
        if g.ndim < 2:
            v = state["variance"].storage.array
            v += rest * (g * g - v)
            return v
        row, col = state["row_var"].storage.array, state["col_var"].storage.array
        square = g * g
        row += rest * (square.mean(-1, keepdims=True) - row)
        col += rest * (square.mean(-2, keepdims=True) - col)
        return row * col / xp.maximum(row.mean(-2, keepdims=True), eps1)

    def _new_state(self, param: Tensor) -> dict[str, Any]:
        backend, shape = param.storage.backend, param.shape
        names = ("variance",) if len(shape) < 2 else ("row_var", "col_var")
        shapes = {"variance": shape, "row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:])}
        return {"step": 0} | {
            n: _wrap(backend.xp.zeros(shapes[n], dtype=state_dtype(param)), backend) for n in names
        }


class Muon(Optimizer):
    """Momentum whose update is replaced by the nearest semi-orthogonal matrix, by Newton-Schulz steps.

    Jordan 2024. For the 2-d weights of hidden layers; give biases, embeddings and the output layer to AdamW.
    adjust_lr_fn: "original" scales lr by sqrt(max(1, rows / columns)), "match_rms_adamw" by 0.2
    sqrt(max(rows, columns)) (Liu 2025). The iteration runs in the dtype of the state (float32 or float64),
    where PyTorch's uses bfloat16. Raises ShapeError for other than 2-d parameters.

    >>> import lucid
    >>> w = lucid.eye(2, requires_grad=True)
    >>> optimizer = lucid.optim.Muon([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w.shape
    (2, 2)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                weight_decay=weight_decay,
                momentum=momentum,
                nesterov=nesterov,
                ns_coefficients=ns_coefficients,
                eps=eps,
                ns_steps=ns_steps,
                adjust_lr_fn=adjust_lr_fn,
                maximize=maximize,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        in_range(
            "Muon",
            lr=(group["lr"], group["lr"] >= 0),
            momentum=(group["momentum"], group["momentum"] >= 0),
            weight_decay=(group["weight_decay"], group["weight_decay"] >= 0),
            adjust_lr_fn=(
                group["adjust_lr_fn"],
                group["adjust_lr_fn"] in (None, "original", "match_rms_adamw"),
            ),
        )
        for param in group["params"]:
            if len(param.shape) != 2 or param.dtype in REAL_OF:
                raise ShapeError(
                    f"Muon: expected real matrices, got shape {param.shape}, dtype {param.dtype.name}; "
                    "give other parameters to AdamW"
                )

    def _step_group(self, group: dict[str, Any]) -> None:
        for param in group["params"]:
            if param.grad is not None:
                with guard(param.storage.backend):
                    self._update(group, param)

    def _update(self, group: dict[str, Any], param: Tensor) -> None:
        momentum, lr, (rows, columns) = group["momentum"], group["lr"], param.shape
        backend = param.storage.backend
        p, g = _working(param, param.grad, group["maximize"])
        state = self.state.get(param)
        if state is None:
            zeros = backend.xp.zeros(param.shape, dtype=state_dtype(param))
            state = self.state[param] = {"momentum_buffer": _wrap(zeros, backend)}
        buf = state["momentum_buffer"].storage.array
        buf += (1.0 - momentum) * (g - buf)
        update = g + momentum * (buf - g) if group["nesterov"] else buf
        update = orthogonalize(backend.xp, update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        if group["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        else:
            scale = math.sqrt(max(1.0, rows / columns))
        p *= 1.0 - lr * group["weight_decay"]
        update *= lr * scale
        p -= update
        _finish(param, p)


def orthogonalize(xp: Any, x: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """A new matrix with x's singular vectors and all singular values near 1 (0.7 to 1.2 for the usual
    coefficients).

    x = a x + (b A + c A A) x with A = x x^T: a quintic Newton-Schulz iteration on x / |x|.
    """
    a, b, c = coefficients
    wide = x.T if x.shape[0] > x.shape[1] else x
    wide = wide / xp.maximum(xp.sqrt((wide * wide).sum()), eps)
    for _ in range(steps):
        gram = wide @ wide.T
        wide = a * wide + (b * gram + c * (gram @ gram)) @ wide
    return wide.T if x.shape[0] > x.shape[1] else wide
