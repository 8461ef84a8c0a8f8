"""Weight norm: a weight as direction and length (Salimans and Kingma 2016, arXiv:1602.07868)."""

from __future__ import annotations

from typing import Any, TypeVar

from ...errors import LucidError
from ...functional.norm import vector_norm
from ...tensor import Parameter, Tensor
from ..module import Module

M = TypeVar("M", bound=Module)


def _length(v: Tensor, dim: int | None) -> Tensor:
    # The norm over all dimensions but `dim`, kept as size 1; over all for None.
    axes = tuple(i for i in range(v.ndim) if dim is None or i != dim % v.ndim)
    return vector_norm(v, 2, axes, keepdim=dim is not None)


class WeightNorm:
    """The hook that computes `name` from `name`_g and `name`_v before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def weight(self, module: Module) -> Tensor:
        """g v / |v|."""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return v * (g / _length(v, self.dim))

    def __call__(self, module: Module, args: Any) -> None:
        module.__dict__[self.name] = self.weight(module)

    def find(self, module: Module) -> int | None:
        """The id under which a module has a hook for the same name."""
        hooks = module.__dict__["_forward_pre_hooks"]
        return next((k for k, (h, *_) in hooks.items() if isinstance(h, WeightNorm) and h.name == self.name),
                    None)


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """The module, whose parameter `name` is from now on g v / |v| of two parameters `name`_g and `name`_v.

    The norm runs over all dimensions but `dim` (over all for None). Raises LucidError for a second weight
    norm of the same parameter.

    >>> import lucid
    >>> layer = lucid.nn.utils.weight_norm(lucid.nn.Linear(3, 2))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    hook = WeightNorm(name, None if dim == -1 else dim)
    if hook.find(module) is not None:
        raise LucidError(f"weight_norm: {type(module).__name__}.{name} has weight norm already; "
                         "remove_weight_norm first")
    weight = module.get_parameter(name)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(_length(weight.detach(), hook.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    module.__dict__[name] = hook.weight(module)
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """The module, whose `name` is one parameter again, with its present value.

    Raises LucidError for a module without weight norm.

    >>> import lucid
    >>> layer = lucid.nn.utils.weight_norm(lucid.nn.Linear(3, 2))
    >>> [name for name, _ in lucid.nn.utils.remove_weight_norm(layer).named_parameters()]
    ['bias', 'weight']
    """
    hook = WeightNorm(name, None)
    key = hook.find(module)
    if key is None:
        raise LucidError(f"remove_weight_norm: {type(module).__name__}.{name} has no weight norm")
    found = module.__dict__["_forward_pre_hooks"].pop(key)[0]
    value = found.weight(module).detach()
    for part in (f"{name}_g", f"{name}_v"):
        delattr(module, part)
    module.__dict__.pop(name, None)
    module.register_parameter(name, Parameter(value))
    return module
