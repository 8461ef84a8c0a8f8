"""Spectral norm as a hook (PyTorch's older form; `parametrizations.spectral_norm` is the newer one)."""

from __future__ import annotations

from typing import Any, TypeVar

from ...autograd.mode import no_grad
from ...errors import LucidError
from ...tensor import Parameter, Tensor
from ..functional import normalize
from ..module import Module
from .parametrizations import _output_dim, _SpectralNorm

M = TypeVar("M", bound=Module)


class _OldOrder(_SpectralNorm):
    # The older form goes from u to v and back, the newer one from v to u: other weights in training.
    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._v.copy_(normalize(matrix.T @ self._u, dim=0, eps=self.eps))
                self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))


class SpectralNorm:
    """The hook that computes `name` from `name`_orig before each forward; `name`_u and `name`_v hold the
    power iteration's vectors.
    """

    def __init__(self, name: str, norm: _SpectralNorm) -> None:
        self.name, self.norm = name, norm

    def weight(self, module: Module) -> Tensor:
        """The weight divided by its largest singular value."""
        norm = self.norm
        # The vectors are the module's buffers: those that state_dict and .to() know.
        norm._buffers["_u"], norm._buffers["_v"] = (module._buffers[f"{self.name}_{v}"] for v in "uv")
        norm.training = module.training
        return norm(getattr(module, f"{self.name}_orig"))

    def __call__(self, module: Module, args: Any) -> None:
        module.__dict__[self.name] = self.weight(module)

    @staticmethod
    def find(module: Module, name: str) -> int | None:
        """The id under which a module has this hook for a name."""
        hooks = module.__dict__["_forward_pre_hooks"]
        return next((k for k, (h, *_) in hooks.items() if isinstance(h, SpectralNorm) and h.name == name),
                    None)


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> M:
    """The module, whose parameter `name` is from now on `name`_orig over its largest singular value.

    Miyato et al. 2018, arXiv:1802.05957. The value is found by `n_power_iterations` steps before each forward
    in training mode. Raises LucidError for a weight of less than 2 dimensions, and one that is so normalised
    already.

    >>> import lucid
    >>> layer = lucid.nn.utils.spectral_norm(lucid.nn.Linear(3, 2))
    >>> for _ in range(50):
    ...     out = layer(lucid.ones(3))
    >>> round(lucid.linalg.svdvals(layer.weight)[0].item(), 3)
    1.0
    """
    if SpectralNorm.find(module, name) is not None:
        raise LucidError(f"spectral_norm: {type(module).__name__}.{name} has spectral norm already")
    weight = module.get_parameter(name)
    if weight.ndim < 2:
        raise LucidError(f"spectral_norm: expected a weight of at least 2 dimensions, got {weight.ndim}")
    norm = _OldOrder(weight, n_power_iterations, _output_dim(module) if dim is None else dim, eps)
    hook = SpectralNorm(name, norm)
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    for v in "uv":
        module.register_buffer(f"{name}_{v}", norm._buffers[f"_{v}"])
    module.__dict__[name] = weight.detach()
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """The module, whose `name` is one parameter again, with its present value.

    Raises LucidError for a module without.

    >>> import lucid
    >>> layer = lucid.nn.utils.spectral_norm(lucid.nn.Linear(3, 2))
    >>> sorted(n for n, _ in lucid.nn.utils.remove_spectral_norm(layer).named_parameters())
    ['bias', 'weight']
    """
    key = SpectralNorm.find(module, name)
    if key is None:
        raise LucidError(f"remove_spectral_norm: {type(module).__name__}.{name} has no spectral norm")
    hook = module.__dict__["_forward_pre_hooks"].pop(key)[0]
    training, module.training = module.training, False
    value = hook.weight(module).detach()
    module.training = training
    for part in (f"{name}_orig", f"{name}_u", f"{name}_v"):
        delattr(module, part)
    module.__dict__.pop(name, None)
    module.register_parameter(name, Parameter(value))
    return module
