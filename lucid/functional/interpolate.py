"""Padding, interpolation, grid sampling and pixel shuffling under PyTorch's names and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import floor, prod
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..tensor import Tensor, _wrap
from .pool import _adaptive_avg
from .registry import on_its_device, public

# ---- padding ----

_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "circular"}


def _check_pad(x: Tensor, pad: tuple[int, ...], mode: str) -> None:
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ShapeError(
            f"pad: expected (low, high) pairs, last dimension first, for at most {x.ndim} dimensions, got "
            f"{pad}"
        )
    if mode == "constant":
        return
    if mode not in _PAD_MODES:
        raise ShapeError(f"pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}")
    if len(pad) // 2 not in (x.ndim - 1, x.ndim - 2):
        raise ShapeError(
            f"pad: mode {mode!r} pads all spatial dimensions of [batch, channels, *sizes] or [channels, "
            "*sizes], got "
            f"{len(pad) // 2} pairs for shape {x.shape}"
        )
    for i in range(0, len(pad), 2):
        n = x.shape[x.ndim - 1 - i // 2]
        limit = {"reflect": n - 1, "circular": n, "replicate": None if n else 0}[mode]
        if limit is not None and max(pad[i], pad[i + 1]) > limit:
            raise ShapeError(
                f"pad: mode {mode!r} can add at most {limit} cells to a dimension of size {n}, got {pad} for "
                f"shape {x.shape}"
            )
        if n + pad[i] + pad[i + 1] < 1:
            raise ShapeError(
                f"pad: nothing is left of a dimension of size {n} after padding by {pad[i], pad[i + 1]}"
            )


@public("nn.functional.pad")
def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`x` with cells added around it, or cut off where a number is negative.

    pad: (low, high) of the last dimension, then of the one before it, and so on. mode: 'constant' (`value`, 0
    when None), 'reflect' (mirrored at the border cell), 'replicate' (the border cell) or 'circular' (the
    other side); the last three pad the spatial dimensions only. Raises ShapeError for pairs that do not fit.

    >>> import lucid
    >>> lucid.nn.functional.pad(lucid.tensor([[1., 2., 3.]]), (1, 1), mode="reflect")
    tensor([[2., 1., 2., 3., 2.]])
    """
    pads = tuple(int(p) for p in pad)
    _check_pad(x, pads, mode)
    if mode == "constant":
        return F.pad_constant(x, pads, 0 if value is None else value)
    if value:
        raise ShapeError(f"pad: mode {mode!r} takes no value, got {value}; use mode 'constant'")
    for i in range(0, len(pads), 2):
        dim = x.ndim - 1 - i // 2
        low, high = pads[i], pads[i + 1]
        if mode == "circular" and min(low, high) < 0:
            # What is cut off does not come round again.
            x = F.pad_constant(x, (0, 0) * (i // 2) + (min(low, 0), min(high, 0)))
            low, high = max(low, 0), max(high, 0)
        if low or high:
            n = x.shape[dim]
            resample = F.resample if mode == "circular" else F.resample_beside
            x = resample(x, dim, ("pad", n, n + low + high, low, _PAD_MODES[mode]))
    return x


@public()
def constant_pad_nd(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`x` with cells of `value` around it: `nn.functional.pad` in its constant mode.

    >>> import lucid
    >>> lucid.constant_pad_nd(lucid.tensor([1, 2]), (1, 2), 7)
    tensor([7, 1, 2, 7, 7])
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ShapeError(
            f"constant_pad_nd: expected pairs of sizes for at most {x.ndim} dimensions, got {tuple(pad)}"
        )
    return F.pad_constant(x, tuple(int(p) for p in pad), value)


# ---- interpolation ----

_PLAIN = ("nearest", "nearest-exact", "area")
_RANKS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}


def _output_size(x: Tensor, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    own, n = x.shape[2:], x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ShapeError("interpolate: give either size or scale_factor, and not both")
    given = size if size is not None else scale_factor
    given = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    if len(given) != n:
        raise ShapeError(f"interpolate: expected {n} numbers for an input of shape {x.shape}, got {given}")
    if size is not None:
        target, scales = tuple(int(v) for v in given), (0.0,) * n
    else:
        scales = tuple(float(v) for v in given)
        target = tuple(floor(m * s) for m, s in zip(own, scales, strict=True))
    if min(target) < 1 or min(own) < 1:
        raise ShapeError(f"interpolate: input and output sizes must be positive, got {own} and {target}")
    return target, scales


def _check_mode(
    x: Tensor, size: Any, mode: str, align_corners: bool | None, recompute: bool | None, antialias: bool
) -> None:
    if x.ndim not in (3, 4, 5):
        raise ShapeError(f"interpolate: expected [batch, channels, 1 to 3 sizes], got shape {x.shape}")
    plain = mode in _PLAIN
    if not plain and _RANKS.get(mode) != x.ndim:
        raise ShapeError(
            f"interpolate: mode {mode!r} does not fit an input of shape {x.shape}; modes: nearest, "
            "nearest-exact, area for any, "
            "linear for 3-d, bilinear and bicubic for 4-d, trilinear for 5-d input"
        )
    if plain and align_corners is not None:
        raise ShapeError(f"interpolate: align_corners has no meaning in mode {mode!r}; leave it None")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ShapeError(f"interpolate: antialias works in modes 'bilinear' and 'bicubic', got {mode!r}")
    if recompute and size is not None:
        raise ShapeError("interpolate: recompute_scale_factor needs scale_factor, not size")


@public("nn.functional.interpolate")
def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """`x` resampled to another size.

    x: [batch, channels, *sizes]. size: the new sizes, or scale_factor: how many times larger (one number for
    all dimensions, or one each). mode: 'nearest', 'nearest-exact', 'linear' (3-d input), 'bilinear' or
    'bicubic' (4-d), 'trilinear' (5-d), 'area'. align_corners: whether the corner cells' centres, rather than
    their outer edges, coincide. antialias: 'bilinear' and 'bicubic' with a kernel as wide as the reduction.
    Raises ShapeError for a mode that does not fit the input.

    >>> import lucid
    >>> lucid.nn.functional.interpolate(lucid.tensor([[[1., 3.]]]), scale_factor=2, mode="linear")
    tensor([[[1. , 1.5, 2.5, 3. ]]])
    """
    _check_mode(x, size, mode, align_corners, recompute_scale_factor, antialias)
    plain = mode in _PLAIN
    target, scales = _output_size(x, size, scale_factor)
    if recompute_scale_factor:
        scales = (0.0,) * len(scales)
    if mode == "area":
        return _adaptive_avg("interpolate", x.ndim - 2, x, target)
    align = bool(align_corners)
    for axis, (n, m, scale) in enumerate(zip(x.shape[2:], target, scales, strict=True), 2):
        spec: tuple[Any, ...]
        if plain:
            spec = ("nearest", n, m, scale, 0.5 if mode == "nearest-exact" else 0.0)
        elif antialias:
            spec = ("antialias", n, m, align, scale, mode == "bicubic")
        else:
            spec = ("cubic" if mode == "bicubic" else "linear", n, m, align, scale)
        if n != m or scale not in (0.0, 1.0):
            x = F.resample(x, axis, spec)
    return x


@public("nn.functional.upsample")
def upsample(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`x` resampled to another size: an older name of `interpolate`.

    >>> import lucid
    >>> lucid.nn.functional.upsample(lucid.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(x, size, scale_factor, mode, align_corners)


@public("nn.functional.upsample_nearest")
def upsample_nearest(x: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`x` resampled by taking the nearest cell: `interpolate(mode="nearest")`.

    >>> import lucid
    >>> lucid.nn.functional.upsample_nearest(lucid.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(x, size, scale_factor)


@public("nn.functional.upsample_bilinear")
def upsample_bilinear(x: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`x` resampled bilinearly with aligned corners: `interpolate(mode="bilinear", align_corners=True)`.

    >>> import lucid
    >>> lucid.nn.functional.upsample_bilinear(lucid.tensor([[[[1.0, 3.0]]]]), size=(1, 3))
    tensor([[[[1., 2., 3.]]]])
    """
    return interpolate(x, size, scale_factor, "bilinear", True)


# ---- grid sampling ----


def _reflect(x: Any, low: float, high: float) -> Tensor:
    """`x` mirrored at both ends until it lies in [low, high]."""
    span = high - low
    if span <= 0:
        return F.zeros_like(x)
    away = F.abs(x - low)
    flips = F.floor(away / span)
    rest = away - flips * span
    return F.where(F.eq(F.remainder(flips, F.full_like(flips, 2.0)), 0.0), rest + low, (span + low) - rest)


def _inside(x: Tensor, n: int, padding_mode: str, align_corners: bool) -> Tensor:
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        x = _reflect(x, 0.0, n - 1.0) if align_corners else _reflect(x, -0.5, n - 0.5)
    return F.clamp(x, 0.0, n - 1.0)


def _cubic_weights(t: Any) -> list[Tensor]:
    """Keys' cubic kernel (1981) with a = -0.75 at distances t + 1, t, 1 - t and 2 - t."""
    a = -0.75
    near = lambda s: ((a + 2) * s - (a + 3)) * s * s + 1
    far = lambda s: ((a * s - 5 * a) * s + 8 * a) * s - 4 * a
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _taps(
    x: Tensor, n: int, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """The cells that coordinate `x` along one dimension reads, each with its weight."""
    if mode == "bicubic":
        low = F.detach(F.floor(x))
        return [
            (_inside(low + float(i), n, padding_mode, align_corners), w)
            for i, w in zip(range(-1, 3), _cubic_weights(x - low), strict=True)
        ]
    x = _inside(x, n, padding_mode, align_corners)
    if mode == "nearest":
        return [(F.round(F.detach(x)), None)]
    low = F.detach(F.floor(x))
    return [(low, low + 1 - x), (low + 1, x - low)]


@public("nn.functional.grid_sample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The cells of `x` at the coordinates in `grid`, interpolated (Jaderberg et al. 2015, arXiv:1506.02025).

    x: [batch, channels, *sizes] with 2 or 3 sizes; grid: [batch, *output sizes, 2 or 3], coordinates in [-1,
    1] with the last dimension first (x, y, z). mode: 'bilinear', 'nearest' or 'bicubic' (2 sizes).
    padding_mode: what lies outside: 'zeros', 'border' or 'reflection'. Returns [batch, channels, *output
    sizes]. Raises ShapeError for others.

    >>> import lucid
    >>> x = lucid.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> lucid.nn.functional.grid_sample(x, lucid.zeros(1, 1, 1, 2), align_corners=True)    # the centre
    tensor([[[[2.5]]]])
    """
    n = x.ndim - 2
    if n not in (2, 3) or grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != n:
        raise ShapeError(
            "grid_sample: expected x [batch, channels, 2 or 3 sizes] and grid [batch, *output sizes, 2 or "
            f"3], got {x.shape} and {grid.shape}"
        )
    if (
        mode not in ("bilinear", "nearest", "bicubic")
        or padding_mode not in ("zeros", "border", "reflection")
        or (mode == "bicubic" and n == 3)
    ):
        raise ShapeError(
            "grid_sample: mode is 'bilinear', 'nearest' or (4-d input) 'bicubic', padding_mode 'zeros', "
            "'border' or 'reflection'; "
            f"got {mode!r} and {padding_mode!r} for shape {x.shape}"
        )
    size, align, points = x.shape[2:], bool(align_corners), grid.shape[1:-1]
    flat = F.reshape(x, (*x.shape[:2], prod(size)))
    taps = []
    for axis, m in enumerate(size):
        c = F.reshape(F.select(grid, -1, n - 1 - axis), (x.shape[0], prod(points)))
        c = (c + 1.0) * ((m - 1) / 2) if align else ((c + 1.0) * float(m) - 1.0) * 0.5
        taps.append(_taps(c, m, mode, padding_mode, align))
    out: Any = None
    for corner in product(*taps):
        term = _corner(flat, corner, size)
        out = term if out is None else out + term
    return F.reshape(out, (*x.shape[:2], *points))


def _corner(flat: Tensor, corner: tuple[tuple[Tensor, Tensor | None], ...], size: tuple[int, ...]) -> Tensor:
    index: Any = 0
    weight: Any = None
    inside: Any = None
    for (cell, w), m in zip(corner, size, strict=True):
        here = F.logical_and(F.ge(cell, 0.0), F.le(cell, m - 1.0))
        inside = here if inside is None else F.logical_and(inside, here)
        index = index * m + F.where(here, cell, 0.0)
        if w is not None:
            weight = w if weight is None else weight * w
    values = F.take_cells(flat, F.cast(index, "int64"))
    shape = (flat.shape[0], 1, -1)
    if weight is not None:
        values = values * F.reshape(weight, shape)
    return F.where(F.reshape(inside, shape), values, 0.0)


@public("grid_sampler")
def grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample` with its modes as numbers.

    0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border, 2 reflection.

    >>> import lucid
    >>> lucid.grid_sampler(lucid.ones(1, 1, 2, 2), lucid.zeros(1, 1, 1, 2), 0, 0, True)
    tensor([[[[1.]]]])
    """
    if interpolation_mode not in (0, 1, 2) or padding_mode not in (0, 1, 2):
        raise ShapeError(
            "grid_sampler: interpolation_mode and padding_mode must be 0, 1 or 2, got "
            f"{interpolation_mode!r} and {padding_mode!r}"
        )
    return grid_sample(
        x,
        grid,
        ("bilinear", "nearest", "bicubic")[interpolation_mode],
        ("zeros", "border", "reflection")[padding_mode],
        align_corners,
    )


@public("nn.functional.affine_grid")
@on_its_device
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for `grid_sample` that applies the affine maps `theta`.

    theta: [batch, 2, 3] with size [batch, channels, height, width], or [batch, 3, 4] with 3 sizes, floating.
    Returns [batch, *sizes, 2 or 3]. Raises ShapeError or DtypeError for others.

    >>> import lucid
    >>> theta = lucid.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])    # the identity
    >>> lucid.nn.functional.affine_grid(theta, (1, 1, 1, 2), align_corners=True)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
    n = len(size) - 2
    if n not in (2, 3) or theta.shape != (size[0], n, n + 1):
        raise ShapeError(
            f"affine_grid: expected theta of shape ({size[0]}, {n}, {n + 1}) for size {tuple(size)}, got "
            f"{theta.shape}"
        )
    if min(size) < 1:
        raise ShapeError(f"affine_grid: sizes must be positive, got {tuple(size)}")
    if theta.dtype.kind in "iub":
        raise DtypeError(f"affine_grid: expected a floating theta, got {theta.dtype.name}; convert it first")
    backend = theta.storage.backend
    xp, sizes = backend.xp, tuple(int(m) for m in size[2:])
    base = xp.ones((*sizes, n + 1), theta.dtype)
    for axis, m in enumerate(sizes):
        line = xp.linspace(-1.0, 1.0, m) if m > 1 else xp.zeros(1)
        line = line if align_corners else line * ((m - 1) / m)
        base[..., n - 1 - axis] = line.reshape(-1, *(1,) * (n - 1 - axis))
    flat = _wrap(base.reshape(1, -1, n + 1), backend)
    return F.reshape(F.matmul(flat, F.transpose(theta, 1, 2)), (size[0], *sizes, n))


# ---- shuffles ----


@public("pixel_shuffle", "nn.functional.pixel_shuffle")
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Channels rearranged into pixels: [..., c * r * r, h, w] becomes [..., c, h * r, w * r].

    Shi et al. 2016, arXiv:1609.05158. Raises ShapeError for channels that are no multiple of r^2.

    >>> import lucid
    >>> lucid.pixel_shuffle(lucid.tensor([1, 2, 3, 4]).reshape(4, 1, 1), 2)
    tensor([[[1, 2],
             [3, 4]]])
    """
    r = upscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: expected [..., channels, height, width] with channels a multiple of {r} ** 2, "
            f"got {x.shape}"
        )
    *lead, c, h, w = x.shape
    k = len(lead)
    split = F.reshape(x, (*lead, c // (r * r), r, r, h, w))
    mixed = F.permute(split, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return F.reshape(mixed, (*lead, c // (r * r), h * r, w * r))


@public("pixel_unshuffle", "nn.functional.pixel_unshuffle")
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """Pixels rearranged into channels: the inverse of `pixel_shuffle`.

    Raises ShapeError for sizes that are no multiple of the factor.

    >>> import lucid
    >>> lucid.pixel_unshuffle(lucid.zeros(1, 4, 6), 2).shape
    (4, 2, 3)
    """
    r = downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise ShapeError(
            "pixel_unshuffle: expected [..., channels, height, width] with height and width multiples of "
            f"{r}, got {x.shape}"
        )
    *lead, c, h, w = x.shape
    k = len(lead)
    split = F.reshape(x, (*lead, c, h // r, r, w // r, r))
    mixed = F.permute(split, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return F.reshape(mixed, (*lead, c * r * r, h // r, w // r))


@public("channel_shuffle", "nn.functional.channel_shuffle", "nn.functional.native_channel_shuffle")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels of `groups` groups interleaved (Zhang et al. 2017, arXiv:1707.01083).

    x: [batch, channels, *sizes], channels a multiple of groups, else ShapeError.

    >>> import lucid
    >>> lucid.channel_shuffle(lucid.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            "channel_shuffle: expected [batch, channels, *sizes] with channels a multiple of "
            f"groups={groups}, got {x.shape}"
        )
    split = F.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    return F.reshape(F.transpose(split, 1, 2), x.shape)
