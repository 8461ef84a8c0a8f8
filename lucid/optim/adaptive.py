"""Optimisers that scale each element by a running size of its gradients, without bias correction."""

from __future__ import annotations

from typing import Any

from . import rules
from .elementwise import Elementwise
from .optimizer import Params, in_range

_Rule = tuple[Any, tuple[float, ...], tuple[Any, ...], float]


class RMSprop(Elementwise):
    """v = alpha v + (1 - alpha) g^2; p -= lr g / (sqrt(v) + eps) (Tieleman and Hinton 2012).

    centered: the variance about the running mean in place of v; momentum: on the scaled gradient (Graves
    2013, arXiv:1308.0850). Raises ShapeError for options out of their range.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.RMSprop([w], lr=0.01)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9, -1.9], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                alpha=alpha,
                eps=eps,
                centered=centered,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        in_range(
            "RMSprop",
            lr=(group["lr"], group["lr"] >= 0),
            eps=(group["eps"], group["eps"] >= 0),
            alpha=(group["alpha"], group["alpha"] >= 0),
            momentum=(group["momentum"], group["momentum"] >= 0),
            weight_decay=(group["weight_decay"], group["weight_decay"] >= 0),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        if not (group["centered"] or group["momentum"]):
            return ("square_avg",)
        return (
            "square_avg",
            "grad_avg" if group["centered"] else None,
            "momentum_buffer" if group["momentum"] else None,
        )

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        rule = rules.rmsprop_full if group["centered"] or group["momentum"] else rules.rmsprop
        return (
            rule,
            (group["lr"], group["alpha"], 1.0 - group["alpha"], group["eps"], group["momentum"]),
            (),
            group["weight_decay"],
        )


class Adagrad(Elementwise):
    """total += g^2; p -= lr / (1 + (step - 1) lr_decay) g / (sqrt(total) + eps) (Duchi et al. 2011).

    Raises ShapeError for options out of their range.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.Adagrad([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9, -1.9], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                lr_decay=lr_decay,
                eps=eps,
                weight_decay=weight_decay,
                initial_accumulator_value=initial_accumulator_value,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        in_range(
            "Adagrad",
            **{
                name: (group[name], group[name] >= 0)
                for name in ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
            },
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("sum",)

    def _new_state(self, group: dict[str, Any], param: Any) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        return {
            "step": 0,
            "sum": self._filled(param, complex(start, start) if param.dtype.kind == "c" else start),
        }

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        lr = group["lr"] / (1.0 + (state["step"] - 1) * group["lr_decay"])
        return rules.adagrad, (lr, group["eps"]), (), group["weight_decay"]


class Adadelta(Elementwise):
    """p -= lr g sqrt(change + eps) / sqrt(v + eps), both running means with factor rho.

    Zeiler 2012, arXiv:1212.5701. Raises ShapeError for options out of their range.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.Adadelta([w])
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9968, -1.9968], requires_grad=True)
    """

    _spare = 2

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                rho=rho,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        in_range(
            "Adadelta",
            lr=(group["lr"], group["lr"] >= 0),
            rho=(group["rho"], 0 <= group["rho"] <= 1),
            eps=(group["eps"], group["eps"] >= 0),
            weight_decay=(group["weight_decay"], group["weight_decay"] >= 0),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "square_avg", "acc_delta"

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        return (
            rules.adadelta,
            (group["lr"], group["rho"], 1.0 - group["rho"], group["eps"]),
            (),
            group["weight_decay"],
        )
