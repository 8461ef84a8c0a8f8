"""einops on tensors: `rearrange`, `reduce`, `repeat`, `pack`, `einsum`, with gradients.

einops asks every subclass of its AbstractBackend that exists when it first meets a type. This one is made
when einops is imported, before or after lucid; lucid itself does not import it.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from ..autograd.record import RECORDED as F
from ..tensor import Tensor, tensor
from .creation import arange
from .products import einsum

_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "any": "any", "all": "all"}
_MODULE = "einops._backends"


class Methods:
    """What einops asks of a framework, as functions on tensors."""

    framework_name = "lucid"

    def is_appropriate_type(self, x: Any) -> bool:
        return isinstance(x, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return tensor(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.numpy(force=True)

    def arange(self, start: int, stop: int) -> Tensor:
        return arange(start, stop)

    def reshape(self, x: Tensor, shape: Any) -> Tensor:
        return F.reshape(x, tuple(shape))

    def transpose(self, x: Tensor, axes: Any) -> Tensor:
        return F.permute(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Any) -> Tensor:
        if operation != "prod":
            return getattr(F, _REDUCTIONS[operation])(x, tuple(axes))
        for axis in sorted(axes, reverse=True):
            x = F.prod(x, axis)
        return x

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return F.stack(*tensors, dim=0)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return F.unsqueeze(x, new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        sizes = [-1] * n_axes
        for position, length in pos2len.items():
            x, sizes[position] = F.unsqueeze(x, position), length
        return F.expand(x, tuple(sizes))

    def tile(self, x: Tensor, repeats: Any) -> Tensor:
        return F.repeat(x, tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return F.cat(*tensors, dim=axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)


def _register(backends: Any) -> None:
    backends.LucidBackend = type("LucidBackend", (Methods, backends.AbstractBackend), {})


class _Watch:
    """An import finder that finds nothing; it registers the backend as soon as einops has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                _register(module)

            loader.exec_module = exec_module
        return spec


if _MODULE in sys.modules:
    _register(sys.modules[_MODULE])
else:
    sys.meta_path.insert(0, _Watch())
