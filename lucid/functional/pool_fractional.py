"""Fractional max pooling (Graham 2014, arXiv:1412.6071): windows at random places, any size of output."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import check_tensors
from ..tensor import Tensor, _wrap
from .conv import sizes
from .random import rand
from .registry import public


def _targets(name: str, spatial: tuple[int, ...], output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    n = len(spatial)
    if (output_size is None) == (output_ratio is None):
        raise ShapeError(
            f"{name}: expected one of output_size and output_ratio, got output_size={output_size} and "
            f"output_ratio={output_ratio}"
        )
    if output_size is not None:
        return sizes(name, "output_size", output_size, n)
    ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
    if len(ratios) != n or not all(0 < r < 1 for r in ratios):
        raise ShapeError(f"{name}: expected {n} ratios in (0, 1) as output_ratio, got {output_ratio}")
    return tuple(int(size * r) for size, r in zip(spatial, ratios, strict=True))


def _starts(xp: Any, u: Any, size: int, out: int, kernel: int) -> Any:
    """int64 [..., out]: where the windows along one dimension start, from one number in [0, 1) per plane."""
    if out == 1:
        return xp.full((*u.shape, 1), size - kernel, "int64")
    step = (size - kernel) / (out - 1)
    u = u[..., None]
    starts = ((xp.arange(out) + u) * step).astype("int64") - (u * step).astype("int64")
    starts[..., -1] = size - kernel
    return starts


def _fractional(
    name: str, n: int, x: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    check_tensors(name, x=x)
    if x.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{name}: expected an input [batch, channels, {n} sizes] or [channels, {n} sizes], got {x.shape}"
        )
    if x.dtype.kind in "iubc":
        raise DtypeError(f"{name}: expected a floating tensor, got {x.dtype.name}; convert it with .float()")
    kernel, spatial = sizes(name, "kernel_size", kernel_size, n), x.shape[-n:]
    out = _targets(name, spatial, output_size, output_ratio)
    planes = (x.shape[0] if x.ndim == n + 2 else 1, x.shape[-n - 1])
    if any(o < 1 or k < 1 or o + k - 1 > size for o, k, size in zip(out, kernel, spatial, strict=True)):
        raise ShapeError(
            f"{name}: {out} windows of {kernel} do not fit in the sizes {spatial}; output + kernel - 1 must "
            "not exceed the input"
        )
    if samples is None:
        samples = rand(*planes, n, dtype=x.dtype if x.dtype.itemsize > 2 else "float32", device=x.device)
    elif samples.shape != (*planes, n):
        raise ShapeError(f"{name}: expected _random_samples of shape {(*planes, n)}, got {samples.shape}")
    backend, array = x.backend, x.array.reshape(*planes, *spatial)
    xp, u = backend.xp, samples.array
    flat: Any = 0
    for d in range(n):
        # PyTorch's order: the first number of a plane places the windows along the last of two dimensions.
        own = u[..., n - 1 - d if n == 2 else d]
        place = _starts(xp, own, spatial[d], out[d], kernel[d])[..., None] + xp.arange(kernel[d])
        shape = [*planes, *(1,) * n, *(1,) * n]
        shape[2 + d], shape[2 + n + d] = out[d], kernel[d]
        flat = flat * spatial[d] + place.reshape(shape)
    flat = flat.reshape(*planes, *out, -1)
    rows = array.reshape(*planes, -1)
    windows = xp.take_along_axis(rows, flat.reshape(*planes, -1), -1).reshape(flat.shape)
    best = xp.take_along_axis(flat, windows.argmax(-1)[..., None], -1)[..., 0]
    index = _wrap(best.reshape(*planes, -1), backend)
    values = F.gather(F.reshape(x, (*planes, -1)), -1, index)
    shape_out = (*x.shape[:-n], *out)
    return F.reshape(values, shape_out), F.reshape(index, shape_out)


@public("nn.functional.fractional_max_pool2d_with_indices")
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool2d` and the place of each maximum in the flattened plane, int64.

    >>> import lucid
    >>> x = lucid.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> lucid.nn.functional.fractional_max_pool2d_with_indices(x, 2, output_size=1)
    (tensor([[[4.]]]), tensor([[[3]]]))
    """
    return _fractional(
        "fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples
    )


@public("nn.functional.fractional_max_pool2d")
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest element of each of `output_size` windows of `kernel_size` at random places.

    input: [N, C, H, W] or [C, H, W]. output_ratio: the output's size as a part of the input's, instead. The
    windows start at floor(alpha (i + u)) - floor(alpha u) with alpha = (size - kernel) / (output - 1) and one
    u in [0, 1) per plane and dimension (_random_samples: [N, C, 2], for W and H). return_indices: also the
    place of each maximum in the flattened plane.

    >>> import lucid
    >>> x = lucid.arange(25.0).reshape(1, 5, 5)
    >>> lucid.nn.functional.fractional_max_pool2d(x, 2, output_ratio=0.6).shape
    (1, 3, 3)
    """
    found = fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return found if return_indices else found[0]


@public("nn.functional.fractional_max_pool3d_with_indices")
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool3d` and the place of each maximum in the flattened volume, int64.

    >>> import lucid
    >>> x = lucid.arange(8.0).reshape(1, 2, 2, 2)
    >>> lucid.nn.functional.fractional_max_pool3d_with_indices(x, 2, output_size=1)[1].item()
    7
    """
    return _fractional(
        "fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples
    )


@public("nn.functional.fractional_max_pool3d")
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d` with three sizes: [N, C, D, H, W] or [C, D, H, W]; _random_samples: [N, C, 3].

    >>> import lucid
    >>> x = lucid.arange(64.0).reshape(1, 4, 4, 4)
    >>> lucid.nn.functional.fractional_max_pool3d(x, 2, output_size=(2, 3, 3)).shape
    (1, 2, 3, 3)
    """
    found = fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return found if return_indices else found[0]
