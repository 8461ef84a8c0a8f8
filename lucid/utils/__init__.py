"""Tools around training: data loading, checkpointing of activations."""

from . import data as data
