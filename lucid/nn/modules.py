"""PyTorch's inner module paths (`nn.modules.linear.Linear`) for code that names them: all lead to the classes
of `lucid.nn`.

>>> from lucid import nn
>>> from lucid.nn.modules.linear import Linear
>>> Linear is nn.Linear
True
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .. import nn as _nn

_PATHS = (
    *(
        "activation",
        "batchnorm",
        "container",
        "conv",
        "distance",
        "dropout",
        "flatten",
        "fold",
        "instancenorm",
    ),
    *("linear", "loss", "module", "normalization", "padding", "pixelshuffle", "pooling", "rnn", "sparse"),
    *("transformer", "upsampling"),
)


def __getattr__(name: str) -> Any:
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
