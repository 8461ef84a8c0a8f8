"""The Python array API standard (2024.12) on tensors: what `x.__array_namespace__()` returns.

Functions have the standard's names, argument names and dtype rules, and record derivatives like the
functions of `lucid` that they call. Two differences from `lucid` itself: 0-d tensors take part in
type promotion like any other array (in PyTorch they count only when their kind is higher), and
reductions take any number of axes.

What is not there: the dtypes uint16, uint32 and uint64, and `x.size` as a number (it is PyTorch's method; use
`math.prod(x.shape)`). Operators promote 0-d tensors by PyTorch's rule. `floor_divide` gives NaN for infinite
dividends, as NumPy and PyTorch do.

>>> import lucid
>>> x = lucid.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
>>> xp = x.__array_namespace__()
>>> xp.var(x, axis=0, correction=1)
tensor([2. , 4.5], grad_fn=<VarBackward>)
"""

from __future__ import annotations

from math import e, inf, nan, pi

from ..storage.dtype import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from ..storage.dtype import bool_ as bool
from . import fft, linalg
from ._creation import *  # noqa: F403
from ._creation import __all__ as _creation
from ._dtypes import __array_namespace_info__, astype, can_cast, finfo, iinfo, isdtype, result_type
from ._elementwise import *  # noqa: F403
from ._elementwise import __all__ as _elementwise
from ._manipulation import *  # noqa: F403
from ._manipulation import __all__ as _manipulation
from ._reductions import *  # noqa: F403
from ._reductions import __all__ as _reductions
from .linalg import matmul, matrix_transpose, tensordot, vecdot

__array_api_version__ = "2024.12"
newaxis = None

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "astype",
    "bfloat16",
    "bool",
    "can_cast",
    "complex128",
    "complex64",
    "e",
    "fft",
    "finfo",
    "float16",
    "float32",
    "float64",
    "iinfo",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "isdtype",
    "linalg",
    "matmul",
    "matrix_transpose",
    "nan",
    "newaxis",
    "pi",
    "result_type",
    "tensordot",
    "uint8",
    "vecdot",
]
__all__ += [*_creation, *_elementwise, *_manipulation, *_reductions]
