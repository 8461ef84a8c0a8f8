"""PyTorch's inner module paths (`nn.modules.linear.Linear`) for code that names them: all lead to the classes
of `lucid.nn`.

>>> from lucid import nn
>>> from lucid.nn.modules.linear import Linear
>>> Linear is nn.Linear
True
"""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

from .. import nn as _nn
from . import _hooks
from . import conv as _conv
from . import loss as _loss
from . import norm as _norm

_PATHS = (
    *("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout"),
    *("flatten", "fold", "instancenorm", "lazy", "linear", "loss", "module", "normalization", "padding"),
    *("pixelshuffle", "pooling", "rnn", "sparse", "transformer", "upsampling", "utils"),
)
# Base classes that programs test for, and the helpers of `nn.modules.utils`.
_INNER: dict[str, Any] = {
    "_BatchNorm": _norm._BatchNorm,
    "_ConvNd": _conv._ConvNd,
    "_InstanceNorm": _norm._InstanceNorm,
    "_Loss": _loss._Loss,
    "_NormBase": _norm._NormBase,
    "_single": partial(_conv.tuple_of, 1),
    "_pair": partial(_conv.tuple_of, 2),
    "_triple": partial(_conv.tuple_of, 3),
    "_quadruple": partial(_conv.tuple_of, 4),
    "register_module_forward_pre_hook": _hooks.register_module_forward_pre_hook,
    "register_module_forward_hook": _hooks.register_module_forward_hook,
    "register_module_full_backward_pre_hook": _hooks.register_module_full_backward_pre_hook,
    "register_module_full_backward_hook": _hooks.register_module_full_backward_hook,
    "_ntuple": lambda n, name="parse": partial(_conv.tuple_of, n),
}


def __getattr__(name: str) -> Any:
    if name in _INNER:
        return _INNER[name]
    try:
        return getattr(_nn, name)
    except AttributeError:
        raise AttributeError(f"lucid.nn has no class {name!r}") from None


for _path in _PATHS:
    _module = ModuleType(
        f"{__name__}.{_path}", f"The classes of `lucid.nn` under PyTorch's path `nn.modules.{_path}`."
    )
    _module.__getattr__ = __getattr__  # type: ignore[method-assign]
    sys.modules[_module.__name__] = globals()[_path] = _module
