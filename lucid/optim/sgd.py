"""Stochastic gradient descent, averaged or not."""

from __future__ import annotations

from typing import Any

from ..kernel.multi_tensor import sgd_numbers
from . import rules
from .elementwise import Elementwise, Kernel
from .optimizer import Params, in_range


class SGD(Elementwise):
    """p -= lr buf with buf = momentum buf + (1 - dampening) (g + weight_decay p).

    With nesterov p -= lr (g + momentum buf). The first step takes buf = g, without dampening (as PyTorch
    does). Polyak 1964; Sutskever et al. 2013. Raises ShapeError for a negative lr, momentum or weight_decay,
    or nesterov without momentum.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.8, -1.6], requires_grad=True)
    """

    _captured = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        in_range(
            "SGD",
            lr=(lr, lr >= 0),
            momentum=(momentum, momentum >= 0),
            weight_decay=(decay, decay >= 0),
            nesterov=(group["nesterov"], not group["nesterov"] or (momentum > 0 and group["dampening"] == 0)),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _loaded(self, param: Any, entry: dict[str, Any]) -> dict[str, Any]:
        loaded = super()._loaded(param, entry)
        if loaded.get("momentum_buffer") is not None:
            loaded.setdefault("step", 1)
        return loaded

    def _rule(
        self, group: dict[str, Any], state: dict[str, Any]
    ) -> tuple[Any, tuple[float, ...], tuple[Any, ...], float]:
        momentum, lr, decay = group["momentum"], group["lr"], group["weight_decay"]
        if not momentum:
            return rules.sgd, (lr,), (), decay
        keep = 1.0 if state["step"] == 1 else 1.0 - group["dampening"]
        return rules.sgd_momentum, (lr, momentum, keep), (group["nesterov"], keep != 1.0), decay

    def _kernel(self, group: dict[str, Any]) -> Kernel:
        options = ("lr", "weight_decay", "maximize", "momentum", "dampening", "nesterov")
        return "sgd_momentum" if group["momentum"] else "sgd", sgd_numbers(*(group[o] for o in options))


class ASGD(Elementwise):
    """SGD whose state "ax" is the average of the parameters from step `t0` on (Polyak and Juditsky 1992).

    eta = lr / (1 + lambd lr step)^alpha; p -= eta (g + lambd p). Raises ShapeError for options out of their
    range.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.ASGD([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.8, -1.6], requires_grad=True)
    """

    _shared = False
    _numbers = ("step", "eta", "mu")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                lambd=lambd,
                alpha=alpha,
                t0=t0,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        in_range(
            "ASGD",
            lr=(group["lr"], group["lr"] >= 0),
            weight_decay=(group["weight_decay"], group["weight_decay"] >= 0),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("ax",)

    def _new_state(self, group: dict[str, Any], param: Any) -> dict[str, Any]:
        return super()._new_state(group, param) | {"eta": group["lr"], "mu": 1.0}

    def _rule(
        self, group: dict[str, Any], state: dict[str, Any]
    ) -> tuple[Any, tuple[float, ...], tuple[Any, ...], float]:
        lr, lambd, eta, mu, step = group["lr"], group["lambd"], state["eta"], state["mu"], state["step"]
        state["eta"] = lr / (1.0 + lambd * lr * step) ** group["alpha"]
        state["mu"] = 1.0 / max(1.0, step - group["t0"])
        return rules.asgd, (eta, 1.0 - lambd * eta, mu), (), group["weight_decay"]


class Rprop(Elementwise):
    """Steps whose sizes follow only the signs of the gradients; for full batches (Riedmiller and Braun 1993).

    etas: factors after a turn and after no turn; step_sizes: the smallest and the largest step. Raises
    ShapeError for options out of their range.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.Rprop([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9, -1.9], requires_grad=True)
    """

    _spare = 2

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                etas=etas,
                step_sizes=step_sizes,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        down, up = group["etas"]
        in_range("Rprop", lr=(group["lr"], group["lr"] >= 0), etas=(group["etas"], 0 < down < 1 < up))

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "prev", "step_size"

    def _new_state(self, group: dict[str, Any], param: Any) -> dict[str, Any]:
        # A complex parameter's step is lr for both parts.
        lr = complex(group["lr"], group["lr"]) if param.dtype.kind == "c" else group["lr"]
        return {"step": 0, "prev": self._filled(param, 0.0), "step_size": self._filled(param, lr)}

    def _rule(
        self, group: dict[str, Any], state: dict[str, Any]
    ) -> tuple[Any, tuple[float, ...], tuple[Any, ...], float]:
        (down, up), (low, high) = group["etas"], group["step_sizes"]
        return rules.rprop, (up - 1.0, 1.0 - down, low, high), (), 0.0
