"""Checkpoints: `save` and `load`."""

from .checkpoint import load as load
from .checkpoint import replaced as replaced
from .checkpoint import save as save
