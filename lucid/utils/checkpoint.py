"""Activation checkpointing: memory for a second forward pass."""

from ..autograd.checkpoint import checkpoint as checkpoint
from ..autograd.checkpoint import checkpoint_sequential as checkpoint_sequential
