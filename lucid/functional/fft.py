"""Fourier transforms under PyTorch's names, argument orders and defaults: the functions of `lucid.fft`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import COMPLEX_OF, as_dtype, get_default_dtype
from ..tensor import Tensor, _wrap
from .registry import on_its_device, public

Sizes = int | Sequence[int] | None
Dims = int | Sequence[int] | None

_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _norm(name: str, norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in _SWAPPED:
        raise ShapeError(f"fft.{name}: norm must be 'backward', 'forward' or 'ortho', got {norm!r}")
    return norm


def _plan(name: str, x: Tensor, s: Sizes, dim: Dims) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(dimensions from the front, size of each; -1 for the input's own)."""
    s = (s,) if isinstance(s, int) else s
    if dim is None:
        dims = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    else:
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if not dims and name.lstrip("i")[0] in "rh":
        raise ShapeError(f"fft.{name}: expected at least one dimension to transform, got shape {x.shape}")
    if not all(-x.ndim <= d < x.ndim for d in dims):
        raise ShapeError(f"fft.{name}: dim {dims} is out of range for shape {x.shape}")
    dims = tuple(d % x.ndim for d in dims)
    sizes = (-1,) * len(dims) if s is None else tuple(int(n) for n in s)
    if len(set(dims)) != len(dims) or len(sizes) != len(dims):
        raise ShapeError(
            f"fft.{name}: expected different dimensions and one size for each, got dim {dims} and s {sizes}"
        )
    if any(n < 1 and n != -1 for n in sizes):
        raise ShapeError(f"fft.{name}: sizes must be positive, got {sizes}")
    empty = [d for d, n in zip(dims, sizes, strict=True) if n == -1 and not x.shape[d]]
    if empty:
        raise ShapeError(
            f"fft.{name}: nothing to transform along dimension {empty[0]} of size 0 (shape {x.shape}); "
            "give a size"
        )
    return dims, sizes


def _resize(x: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """`x` cut off or filled with zeros at the end of each dimension."""
    change = [0] * x.ndim
    for d, n in zip(dims, sizes, strict=True):
        if n != -1:
            change[d] = n - x.shape[d]
    if not any(change):
        return x
    return F.pad_constant(x, tuple(v for c in reversed(change) for v in (0, c)))


def _as_float(name: str, x: Tensor) -> Tensor:
    if x.dtype.kind == "c":
        raise DtypeError(f"fft.{name}: expected a real tensor, got {x.dtype.name}; use fft for complex input")
    return F.cast(x, get_default_dtype()) if x.dtype.kind in "iub" else x


def _as_complex(x: Tensor) -> Tensor:
    if x.dtype.kind == "c":
        return x
    return F.cast(x, COMPLEX_OF.get(x.dtype, COMPLEX_OF[get_default_dtype()]))


def _c2c(name: str, x: Tensor, s: Sizes, dim: Dims, norm: str | None, inverse: bool) -> Tensor:
    dims, sizes = _plan(name, x, s, dim)
    x = _resize(_as_complex(x), dims, sizes)
    return F.fft_c2c(x, dims, _norm(name, norm), inverse) if dims else x


def _r2c(name: str, x: Tensor, s: Sizes, dim: Dims, norm: str) -> Tensor:
    dims, sizes = _plan(name, x, s, dim)
    return F.fft_r2c(_resize(_as_float(name, x), dims, sizes), dims, norm)


def _c2r(name: str, x: Tensor, s: Sizes, dim: Dims, norm: str) -> Tensor:
    dims, sizes = _plan(name, x, s, dim)
    n = sizes[-1] if sizes[-1] != -1 else 2 * (x.shape[dims[-1]] - 1)
    if n < 1:
        raise ShapeError(
            f"fft.{name}: the real size would be {n}; give it, or an input of at least 2 frequencies (shape "
            f"{x.shape})"
        )
    return F.fft_c2r(_resize(_as_complex(x), dims, (*sizes[:-1], n // 2 + 1)), dims, norm, n)


def _one(name: str, n: int | None) -> Sizes:
    if n is not None and n < 1:
        raise ShapeError(f"fft.{name}: sizes must be positive, got ({n},)")
    return None if n is None else (n,)


@public("fft.fft")
def fft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform over one dimension: sum over t of x_t exp(-2 pi i k t / n).

    n: the size to cut or fill with zeros to. norm: 'backward' (no scale, the default), 'forward' (1/n) or
    'ortho' (1/sqrt(n)). Returns complex numbers. Raises ShapeError for another norm, a size below 1 and a dim
    out of range.

    >>> import lucid
    >>> lucid.fft.fft(lucid.tensor([1., 0.]))
    tensor([1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _c2c("fft", x, _one("fft", n), dim, norm, False)


@public("fft.ifft")
def ifft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`, scaled by 1/n under the default norm.

    >>> import lucid
    >>> lucid.fft.ifft(lucid.tensor([4.0, 0.0, 0.0, 0.0]))
    tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _c2c("ifft", x, _one("ifft", n), dim, norm, True)


@public("fft.rfft")
def rfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first n // 2 + 1 frequencies of the transform of a real tensor; the others are their conjugates.

    Arguments as of `fft`. Raises DtypeError for complex numbers.

    >>> import lucid
    >>> lucid.fft.rfft(lucid.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    return _r2c("rfft", x, _one("rfft", n), dim, _norm("rfft", norm))


@public("fft.irfft")
def irfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: real, of size n (2 (m - 1) for m frequencies by default).

    >>> import lucid
    >>> lucid.fft.irfft(lucid.tensor([10 + 0j, -2 + 2j, -2 + 0j]))
    tensor([1., 2., 3., 4.])
    """
    return _c2r("irfft", x, _one("irfft", n), dim, _norm("irfft", norm))


@public("fft.hfft")
def hfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real transform of a Hermitian signal of which `x` is the first half.

    >>> import lucid
    >>> lucid.fft.hfft(lucid.tensor([1 + 0j, 2 + 0j, 1 + 0j]))
    tensor([ 6.,  0., -2.,  0.])
    """
    return _c2r("hfft", F.conj(_as_complex(x)), _one("hfft", n), dim, _SWAPPED[_norm("hfft", norm)])


@public("fft.ihfft")
def ihfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`: the first half of a Hermitian signal.

    >>> import lucid
    >>> lucid.fft.ihfft(lucid.tensor([4.0, 0.0, 0.0, 0.0]))
    tensor([1.-0.j, 1.-0.j, 1.-0.j], dtype=complex64)
    """
    return F.conj(_r2c("ihfft", x, _one("ihfft", n), dim, _SWAPPED[_norm("ihfft", norm)]))


@public("fft.fft2")
def fft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`fft` over two dimensions; s: the sizes to cut or fill with zeros to.

    >>> import lucid
    >>> lucid.fft.fft2(lucid.ones(2, 2))
    tensor([[4.+0.j, 0.+0.j],
            [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _c2c("fft2", x, s, dim, norm, False)


@public("fft.ifft2")
def ifft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`ifft` over two dimensions.

    >>> import lucid
    >>> lucid.fft.ifft2(lucid.tensor([[4.0, 0.0], [0.0, 0.0]]))
    tensor([[1.+0.j, 1.+0.j],
            [1.+0.j, 1.+0.j]], dtype=complex64)
    """
    return _c2c("ifft2", x, s, dim, norm, True)


@public("fft.rfft2")
def rfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`rfft` over two dimensions; the last of them holds half the frequencies.

    >>> import lucid
    >>> lucid.fft.rfft2(lucid.ones(2, 4)).shape
    (2, 3)
    """
    return _r2c("rfft2", x, s, dim, _norm("rfft2", norm))


@public("fft.irfft2")
def irfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `rfft2`; s: the real sizes.

    >>> import lucid
    >>> lucid.fft.irfft2(lucid.fft.rfft2(lucid.ones(2, 4)))
    tensor([[1., 1., 1., 1.],
            [1., 1., 1., 1.]])
    """
    return _c2r("irfft2", x, s, dim, _norm("irfft2", norm))


@public("fft.hfft2")
def hfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfft` over two dimensions.

    >>> import lucid
    >>> lucid.fft.hfft2(lucid.ones(2, 3)).shape
    (2, 4)
    """
    return _c2r("hfft2", F.conj(_as_complex(x)), s, dim, _SWAPPED[_norm("hfft2", norm)])


@public("fft.ihfft2")
def ihfft2(x: Tensor, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `hfft2`.

    >>> import lucid
    >>> lucid.fft.ihfft2(lucid.ones(2, 4)).shape
    (2, 3)
    """
    return F.conj(_r2c("ihfft2", x, s, dim, _SWAPPED[_norm("ihfft2", norm)]))


@public("fft.fftn")
def fftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`fft` over several dimensions: `dim`, else the last len(s), else all.

    >>> import lucid
    >>> lucid.fft.fftn(lucid.ones(2, 2, 2))[0, 0, 0]
    tensor(8.+0.j, dtype=complex64)
    """
    return _c2c("fftn", x, s, dim, norm, False)


@public("fft.ifftn")
def ifftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`.

    >>> import lucid
    >>> x = lucid.ones(2, 2, 2)
    >>> lucid.allclose(lucid.fft.ifftn(lucid.fft.fftn(x)).real, x)
    True
    """
    return _c2c("ifftn", x, s, dim, norm, True)


@public("fft.rfftn")
def rfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`rfft` over several dimensions; the last of them holds half the frequencies.

    >>> import lucid
    >>> lucid.fft.rfftn(lucid.ones(2, 2, 4)).shape
    (2, 2, 3)
    """
    return _r2c("rfftn", x, s, dim, _norm("rfftn", norm))


@public("fft.irfftn")
def irfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`.

    >>> import lucid
    >>> lucid.fft.irfftn(lucid.fft.rfftn(lucid.ones(2, 2, 4))).shape
    (2, 2, 4)
    """
    return _c2r("irfftn", x, s, dim, _norm("irfftn", norm))


@public("fft.hfftn")
def hfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`hfft` over several dimensions.

    >>> import lucid
    >>> lucid.fft.hfftn(lucid.ones(2, 2, 3)).shape
    (2, 2, 4)
    """
    return _c2r("hfftn", F.conj(_as_complex(x)), s, dim, _SWAPPED[_norm("hfftn", norm)])


@public("fft.ihfftn")
def ihfftn(x: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`.

    >>> import lucid
    >>> lucid.fft.ihfftn(lucid.ones(2, 2, 4)).shape
    (2, 2, 3)
    """
    return F.conj(_r2c("ihfftn", x, s, dim, _SWAPPED[_norm("ihfftn", norm)]))


@public("fft.fftshift")
def fftshift(x: Tensor, dim: Dims = None) -> Tensor:
    """`x` with frequency 0 moved to the middle of each dimension in `dim` (all by default).

    >>> import lucid
    >>> lucid.fft.fftshift(lucid.fft.fftfreq(4))
    tensor([-0.5 , -0.25,  0.  ,  0.25])
    """
    dims, _ = _plan("fftshift", x, None, dim)
    return F.roll(x, tuple(x.shape[d] // 2 for d in dims), dims)


@public("fft.ifftshift")
def ifftshift(x: Tensor, dim: Dims = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> import lucid
    >>> lucid.fft.ifftshift(lucid.tensor([-2, -1, 0, 1]))
    tensor([ 0,  1, -2, -1])
    """
    dims, _ = _plan("ifftshift", x, None, dim)
    return F.roll(x, tuple(-(x.shape[d] // 2) for d in dims), dims)


def _frequencies(xp: Any, array: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    backend = backend_of(device)
    out = _wrap(
        backend.asarray(array.astype(as_dtype(dtype) if dtype is not None else get_default_dtype())), backend
    )
    return out.requires_grad_() if requires_grad else out


def _check_samples(name: str, n: int, d: float) -> None:
    if n < 1 or d == 0:
        raise ShapeError(f"{name}: expected n >= 1 samples a distance d other than 0 apart, got n={n}, d={d}")


@public("fft.fftfreq")
def fftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of `fft` of n samples d apart: [0, 1, ..., (n - 1) // 2, -(n // 2), ..., -1] / (n d).

    In cycles per unit of d. Raises ShapeError for n < 1 and d = 0.

    >>> import lucid
    >>> lucid.fft.fftfreq(4, d=0.5)
    tensor([ 0. ,  0.5, -1. , -0.5])
    """
    import numpy as np

    _check_samples("fft.fftfreq", n, d)
    return _frequencies(np, np.fft.fftfreq(n, d), dtype, device, requires_grad)


@public("fft.rfftfreq")
def rfftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of `rfft` of n samples d apart: [0, 1, ..., n // 2] / (n d).

    In cycles per unit of d. Raises ShapeError for n < 1 and d = 0.

    >>> import lucid
    >>> lucid.fft.rfftfreq(4, d=0.5)
    tensor([0. , 0.5, 1. ])
    """
    import numpy as np

    _check_samples("fft.rfftfreq", n, d)
    return _frequencies(np, np.fft.rfftfreq(n, d), dtype, device, requires_grad)


# ---- short-time transforms ----


def _window(
    x: Tensor, window: Tensor | None, win_length: int | None, n_fft: int, hop_length: int | None
) -> tuple[Tensor | None, int]:
    length = n_fft if win_length is None else win_length
    hop = n_fft // 4 if hop_length is None else hop_length
    if not 0 < length <= n_fft or hop < 1:
        raise ShapeError(
            f"stft: expected 0 < win_length <= n_fft and a positive hop_length, got {length}, {n_fft} and "
            f"{hop}"
        )
    if window is not None and window.shape != (length,):
        raise ShapeError(f"stft: expected a window of shape ({length},), got {window.shape}")
    if window is None and length == n_fft:
        return None, hop
    if window is None:
        window = F.ones_like(F.narrow(F.reshape(x, (-1,)), 0, 0, length))
    low = (n_fft - length) // 2
    return F.pad_constant(window, (low, n_fft - length - low)), hop


@public(method=True)
def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of overlapping windows of a signal.

    x: [samples] or [batch, samples]. Returns [..., frequencies, frames], complex; with return_complex=False
    the real and imaginary parts in a last dimension of size 2. center: the signal is padded by n_fft // 2 so
    that frame t is centred at t * hop_length. Raises ShapeError for a window that does not fit n_fft.

    >>> import lucid
    >>> lucid.stft(lucid.ones(16), n_fft=8, hop_length=4).shape
    (5, 5)
    """
    if x.ndim not in (1, 2):
        raise ShapeError(f"stft: expected [samples] or [batch, samples], got shape {x.shape}")
    batch = x if x.ndim == 2 else F.unsqueeze(x, 0)
    if center:
        from .interpolate import pad

        batch = F.squeeze(pad(F.unsqueeze(batch, 1), (n_fft // 2, n_fft // 2), pad_mode), 1)
    if batch.shape[1] < n_fft:
        raise ShapeError(
            f"stft: n_fft={n_fft} is longer than the signal of {batch.shape[1]} samples; pad the signal"
        )
    window, hop = _window(x, window, win_length, n_fft, hop_length)
    frames = F.unfold_windows(batch, 1, n_fft, hop)
    if window is not None:
        frames = frames * window
    norm = "ortho" if normalized else "backward"
    half = (
        x.dtype.kind != "c" and (window is None or window.dtype.kind != "c") if onesided is None else onesided
    )
    out = F.fft_r2c(frames, (2,), norm) if half else F.fft_c2c(_as_complex(frames), (2,), norm, False)
    out = F.transpose(out, 1, 2)
    out = out if x.ndim == 2 else F.squeeze(out, 0)
    return out if return_complex in (True, None) else F.view_as_real(out)


@public(method=True)
@on_its_device
def istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` comes closest to `x` (Griffin and Lim 1984).

    It is the sum of the overlapping inverse transforms, divided by that of the squared windows. x:
    [frequencies, frames] or [batch, frequencies, frames], complex. Returns [samples] or [batch, samples], of
    `length` samples if given. Raises ShapeError for other shapes and for samples that lie in no window.

    >>> import lucid
    >>> lucid.istft(lucid.stft(lucid.ones(16), n_fft=8, hop_length=4), n_fft=8, hop_length=4)[:4]
    tensor([1., 1., 1., 1.])
    """
    if x.ndim not in (2, 3) or x.dtype.kind != "c":
        raise ShapeError(
            f"istft: expected a complex [batch, frequencies, frames], got {x.dtype.name} {x.shape}"
        )
    half = x.shape[-2] != n_fft if onesided is None else onesided
    if x.shape[-2] != (n_fft // 2 + 1 if half else n_fft):
        raise ShapeError(f"istft: n_fft={n_fft} does not fit {x.shape[-2]} frequencies (shape {x.shape})")
    batch = F.transpose(x if x.ndim == 3 else F.unsqueeze(x, 0), 1, 2)
    norm = "ortho" if normalized else "backward"
    frames = F.fft_c2r(batch, (2,), norm, n_fft) if half else F.fft_c2c(batch, (2,), norm, True)
    frames = frames if return_complex or frames.dtype.kind != "c" else F.real(frames)
    window, hop = _window(frames, window, win_length, n_fft, hop_length)
    window = F.ones_like(F.select(F.select(frames, 0, 0), 0, 0)) if window is None else window
    size = n_fft + hop * (frames.shape[1] - 1)
    weight = F.expand(F.mul(window, window), (1, frames.shape[1], n_fft))
    total = F.fold_windows(weight, (1, size), 1, n_fft, hop)
    out = F.fold_windows(frames * window, (frames.shape[0], size), 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else size - start
    out, total = (F.narrow(v, 1, start, min(stop, size) - start) for v in (out, total))
    if stop <= start:
        raise ShapeError(f"istft: {x.shape[-1]} frames of hop_length={hop_length} leave no sample; give more")
    if float(abs(total.storage.array).min()) < 1e-11:  # a check: reads the device
        raise ShapeError(
            "istft: some sample lies in no window (the windows overlap to 0); use another window or hop"
        )
    out = _resize(out / total, (1,), (-1 if length is None else length,))
    return out if x.ndim == 3 else F.squeeze(out, 0)
