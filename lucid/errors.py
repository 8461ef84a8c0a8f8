"""The exceptions of lucid: each is also the built-in that a PyTorch or NumPy user would catch.

Every message says: the operation, what was expected, what came, what to do.
"""

from __future__ import annotations


class LucidError(RuntimeError):
    """Base of every error that lucid raises itself."""


class ShapeError(LucidError, ValueError):
    """Shapes that do not fit together, or a `dim` out of range for a shape."""


class DtypeError(LucidError, TypeError):
    """A dtype, or a kind of argument, that an operation cannot take."""


class DivisionError(LucidError, ZeroDivisionError):
    """Integers divided by 0."""


class DeviceError(LucidError):
    """A device that is not there, or tensors on different devices."""


class IndexRangeError(LucidError, IndexError):
    """An index, target or dimension outside its range."""


class LinAlgError(LucidError, ValueError):
    """A matrix that a decomposition or a solution cannot take: singular, or not positive definite."""


class GradError(LucidError):
    """A backward pass that cannot be run as asked."""


class FreedGraphError(GradError):
    """A backward pass through nodes whose saved values are gone."""


class SavedValueError(GradError):
    """A saved value that was changed in place after the forward pass."""


class InplaceError(GradError):
    """An in-place operation that would make a gradient wrong."""


class GradcheckError(LucidError, AssertionError):
    """An analytic derivative that differs from the numerical one."""


class CheckpointError(LucidError):
    """A checkpoint file that cannot be read, or does not fit the module."""


class KernelError(LucidError):
    """A CUDA kernel that does not compile, or got arguments it cannot take."""


class DistributedError(LucidError):
    """A collective that failed: a rank that died, hangs, or made another call than the others."""


class OutOfMemoryError(LucidError, MemoryError):
    """A device without room for an array."""
