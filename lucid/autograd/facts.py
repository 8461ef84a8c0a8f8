"""What a tensor is: shape, dtype, device, and how its elements lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import IndexRangeError
from ..storage.device import Device
from ..storage.dtype import is_differentiable
from .impl import TensorImpl


def _at(name: str, values: tuple[int, ...], dim: Any) -> int:
    """The value of one dimension."""
    try:
        return values[dim]
    except (IndexError, TypeError):
        raise IndexRangeError(
            f"{name}: expected dim as an integer in [{-len(values)}, {len(values) - 1}], got {dim!r}"
        ) from None


class TensorFacts(TensorImpl):
    """The questions that a tensor answers without computing anything: a base class of `Tensor`."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self.array.shape

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension.

        >>> import lucid
        >>> lucid.zeros(2, 3).size(), lucid.zeros(2, 3).size(1)
        ((2, 3), 3)
        """
        return self.array.shape if dim is None else _at("size", self.array.shape, dim)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.array.ndim

    def dim(self) -> int:
        """The number of dimensions.

        >>> import lucid
        >>> lucid.zeros(2, 3).dim()
        2
        """
        return self.array.ndim

    def numel(self) -> int:
        """The number of elements.

        >>> import lucid
        >>> lucid.zeros(2, 3).numel()
        6
        """
        return self.array.size

    nelement = numel

    @property
    def dtype(self) -> Any:
        """The data type: a NumPy dtype."""
        return self.array.dtype

    @property
    def device(self) -> Device:
        """The device that holds the data."""
        return self.backend.device

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.backend.device.type == "cuda"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.array.itemsize

    def element_size(self) -> int:
        """Bytes per element.

        >>> import lucid
        >>> lucid.zeros(2, dtype=lucid.float64).element_size()
        8
        """
        return self.array.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.array.nbytes

    def stride(self, dim: int | None = None) -> Any:
        """Elements between neighbours along each dimension, or along one.

        >>> import lucid
        >>> lucid.zeros(2, 3).stride(), lucid.zeros(2, 3).t().stride(0)
        ((3, 1), 1)
        """
        strides = tuple(s // max(self.itemsize, 1) for s in self.array.strides)
        return strides if dim is None else _at("stride", strides, dim)

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps.

        >>> import lucid
        >>> lucid.zeros(2, 3).is_contiguous(), lucid.zeros(2, 3).t().is_contiguous()
        (True, False)
        """
        return bool(self.array.flags.c_contiguous)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a real floating one.

        >>> import lucid
        >>> lucid.tensor([1.0]).is_floating_point(), lucid.tensor([1]).is_floating_point()
        (True, False)
        """
        return is_differentiable(self.dtype) and self.dtype.kind != "c"

    def is_complex(self) -> bool:
        """Whether the dtype is complex.

        >>> import lucid
        >>> lucid.tensor([1j]).is_complex()
        True
        """
        return self.dtype.kind == "c"

    def data_ptr(self) -> int:
        """The address of the first element: equal for tensors that share memory from their start.

        >>> import lucid
        >>> x = lucid.zeros(2, 3)
        >>> x.data_ptr() == x.view(3, 2).data_ptr(), x.data_ptr() == x.clone().data_ptr()
        (True, False)
        """
        a = self.array
        return a.ctypes.data if isinstance(a, np.ndarray) else a.data.ptr
