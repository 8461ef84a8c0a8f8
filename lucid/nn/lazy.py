"""Modules that take sizes from their first input."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ShapeError
from .module import Module
from .parameter import is_lazy


class LazyModuleMixin(Module):
    """Gives its parameters their shapes in the first call, then becomes an instance of `cls_to_become`.

    A subclass defines `initialize_parameters(*inputs)`.

    >>> import lucid
    >>> layer = lucid.nn.LazyLinear(2)
    >>> layer.has_uninitialized_params()
    True
    >>> layer(lucid.zeros(5, 3)).shape, type(layer).__name__
    ((5, 2), 'Linear')
    """

    cls_to_become: ClassVar[type[Module] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(_infer, with_kwargs=True).id

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(is_lazy(p) for p in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Nothing; gives the parameters that have none their shapes from the inputs."""
        raise NotImplementedError(f"{type(self).__name__}: define initialize_parameters(*inputs)")


def _infer(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    # Also where a state_dict has set all shapes: the sizes that the module shows come from the input.
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise ShapeError(f"{type(module).__name__}: initialize_parameters left parameters without a shape")
    # By id and not by handle: a handle could not be pickled or copied with the module.
    module.__dict__["_forward_pre_hooks"].pop(module._initialize_hook)
    del module._initialize_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become
