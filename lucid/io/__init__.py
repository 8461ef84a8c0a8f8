"""Checkpoints: `save` and `load`."""

from .atomic import replaced as replaced
from .checkpoint import load as load
from .checkpoint import save as save
