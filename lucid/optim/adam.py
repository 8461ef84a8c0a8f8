"""Adam and its kin: running means of the gradient and of its square, with bias correction."""

from __future__ import annotations

import math
from typing import Any

from ..kernel.multi_tensor import adam_numbers
from . import rules
from .elementwise import Elementwise, Kernel
from .optimizer import Params, bias_correction, in_range

_Rule = tuple[Any, tuple[float, ...], tuple[Any, ...], float]


class _Moments(Elementwise):
    """Shared by the family: the state "exp_avg", "exp_avg_sq", checks of lr, betas, eps, weight_decay, and
    weight decay in the gradient or apart from it.
    """

    def _check_options(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        in_range(
            type(self).__name__,
            lr=(group["lr"], group["lr"] >= 0),
            betas=(group["betas"], 0 <= beta1 < 1 and 0 <= beta2 < 1),
            eps=(group.get("eps", 0.0), group.get("eps", 0.0) >= 0),
            weight_decay=(group["weight_decay"], group["weight_decay"] >= 0),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq"

    @staticmethod
    def _decay(group: dict[str, Any]) -> tuple[bool, float, float]:
        """(whether p shrinks by itself, its factor then, the weight of p in the gradient)."""
        decay = group["weight_decay"]
        decoupled = bool(decay) and group["decoupled_weight_decay"]
        return decoupled, 1.0 - group["lr"] * decay, 0.0 if decoupled else decay


class Adam(_Moments):
    """p -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) (Kingma and Ba 2015, arXiv:1412.6980).

    m, v: running means of g and g^2 with factors `betas`. weight_decay is added to the gradient;
    `decoupled_weight_decay=True` makes it AdamW. amsgrad: the largest v so far (Reddi et al. 2018). On CUDA
    one launch steps all parameters of a dtype (see `Optimizer` for fused, foreach, capturable,
    differentiable). Raises ShapeError for options out of their range.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.Adam([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9, -1.9], requires_grad=True)
    """

    _captured = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                amsgrad=amsgrad,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
                fused=fused,
                decoupled_weight_decay=decoupled_weight_decay,
            ),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None

    def _kernel(self, group: dict[str, Any]) -> Kernel:
        name = "adamw" if group["decoupled_weight_decay"] else "adam"
        options = (group[o] for o in ("eps", "weight_decay", "maximize"))
        numbers = adam_numbers(group["lr"], *group["betas"], *options)
        return f"{name}_amsgrad" if group["amsgrad"] else name, numbers

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        (beta1, beta2), step = group["betas"], state["step"]
        root = math.sqrt(bias_correction(beta2, step))
        decoupled, shrink, decay = self._decay(group)
        size = group["lr"] * root / bias_correction(beta1, step)
        numbers = (size, 1.0 - beta1, beta2, 1.0 - beta2, group["eps"] * root, shrink)
        return rules.adam, numbers, (decoupled,), decay


class AdamW(Adam):
    """Adam with p = (1 - lr weight_decay) p before each step in place of a term in the gradient.

    Loshchilov and Hutter 2019, arXiv:1711.05101. Errors as of Adam.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.AdamW([w], lr=0.1, weight_decay=0.5)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.85, -1.8 ], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )


class NAdam(_Moments):
    """Adam with Nesterov momentum and the schedule mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2).

    Dozat 2016. Errors as of Adam.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.NAdam([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.8944, -1.8944], requires_grad=True)
    """

    _spare = 2
    _shared = False
    _numbers = ("step", "mu_product")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                momentum_decay=momentum_decay,
                decoupled_weight_decay=decoupled_weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _new_state(self, group: dict[str, Any], param: Any) -> dict[str, Any]:
        return super()._new_state(group, param) | {"mu_product": 1.0}

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        (beta1, beta2), lr, step = group["betas"], group["lr"], state["step"]
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
        product = state["mu_product"] = state["mu_product"] * mu
        root = math.sqrt(bias_correction(beta2, step))
        decoupled, shrink, decay = self._decay(group)
        numbers = (
            lr * root * (1.0 - mu) / (1.0 - product),
            lr * root * mu_next / (1.0 - product * mu_next),
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            group["eps"] * root,
            shrink,
        )
        return rules.nadam, numbers, (decoupled,), decay


class RAdam(_Moments):
    """Adam whose steps wait for a variance that can be trusted (Liu et al. 2020, arXiv:1908.03265).

    rho_t = 2 / (1 - beta2) - 1 - 2 t beta2^t / (1 - beta2^t); while it is at most 5, p -= lr m / (1 -
    beta1^t). Errors as of Adam.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.RAdam([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.8, -1.6], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                decoupled_weight_decay=decoupled_weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        (beta1, beta2), lr, step = group["betas"], group["lr"], state["step"]
        correction = bias_correction(beta2, step)
        limit = 2.0 / (1.0 - beta2) - 1.0
        rho = limit - 2.0 * step * beta2**step / correction
        size = lr / bias_correction(beta1, step)
        if rho > 5.0:
            size *= math.sqrt(
                (rho - 4.0) * (rho - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * rho) * correction
            )
        decoupled, shrink, decay = self._decay(group)
        numbers = (size, 1.0 - beta1, beta2, 1.0 - beta2, group["eps"], shrink)
        return rules.radam, numbers, (decoupled, rho > 5.0), decay


class Adamax(_Moments):
    """norm = max(beta2 norm, |g| + eps); p -= lr / (1 - beta1^t) m / norm (Kingma and Ba 2015, section 7).

    Errors as of Adam.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.Adamax([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9, -1.9], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_inf"

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        beta1, beta2 = group["betas"]
        numbers = (group["lr"] / bias_correction(beta1, state["step"]), 1.0 - beta1, beta2, group["eps"])
        return rules.adamax, numbers, (), group["weight_decay"]


class Lion(_Moments):
    """p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p); m = beta2 m + (1 - beta2) g.

    Chen et al. 2023, arXiv:2302.06675. One state array; use an lr 3 to 10 times below AdamW's and a
    weight_decay as much above (section 5 of the paper). Errors as of Adam.

    >>> import lucid
    >>> w = lucid.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = lucid.optim.Lion([w], lr=0.1)
    >>> (w * w).sum().backward(); optimizer.step()
    >>> w
    tensor([ 0.9, -1.9], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("exp_avg",)

    def _rule(self, group: dict[str, Any], state: dict[str, Any]) -> _Rule:
        (beta1, beta2), lr = group["betas"], group["lr"]
        return rules.lion, (lr, 1.0 - beta1, 1.0 - beta2, 1.0 - lr * group["weight_decay"]), (), 0.0
