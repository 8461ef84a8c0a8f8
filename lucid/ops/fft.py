"""The discrete Fourier transform of complex, real and Hermitian data, over any dimensions.

Three linear maps whose transposes are each other: complex to complex, real to half a spectrum, half a
spectrum to real. `norm` is NumPy's: "backward" scales the inverse by 1/n, "forward" the forward transform,
"ortho" both by 1/sqrt(n).
"""

from __future__ import annotations

from typing import Any

from ..errors import DtypeError, ShapeError
from .registry import A, Sample, op

# The transpose of a transform runs the other way with the scale on the other side.
_ADJOINT = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
_SPECTRUM = A((2, 4, 3), dtype="complex128")


def _complex(name: str, x: Any) -> None:
    if x.dtype.kind != "c":
        raise DtypeError(
            f"{name}: expected a complex tensor, got {x.dtype.name}; use the r variant for real input"
        )


@op(
    public=False,
    amp="full",
    samples=[
        Sample(_SPECTRUM, (1,), "backward", False),
        Sample(_SPECTRUM, (0, 2), "ortho", True),
        Sample(_SPECTRUM, (1, 2), "forward", True),
    ],
    reference=lambda x, dims, norm, inverse: (
        __import__("numpy").fft.ifftn if inverse else __import__("numpy").fft.fftn
    )(x, axes=dims, norm=norm),
)
def fft_c2c(xp, x, dims: tuple, norm: str, inverse: bool):
    """The transform of complex `x` over `dims`:

    sum over t of x_t exp(-2 pi i k t / n), or with `inverse` of the opposite sign.
    """
    _complex("fft", x)
    return (xp.fft.ifftn if inverse else xp.fft.fftn)(x, axes=dims, norm=norm)


fft_c2c.grad(x=lambda F, g, dims, norm, inverse: F.fft_c2c(g, dims, _ADJOINT[norm], not inverse))


@op(
    public=False,
    amp="full",
    samples=[
        Sample((2, 5), (1,), "backward"),
        Sample((3, 4), (0, 1), "ortho"),
        Sample((3, 4), (1, 0), "forward"),
    ],
    reference=lambda x, dims, norm: __import__("numpy").fft.rfftn(x, axes=dims, norm=norm),
)
def fft_r2c(xp, x, dims: tuple, norm: str):
    """The transform of real `x` over `dims`; of the last of them only the first n // 2 + 1 frequencies."""
    return xp.fft.rfftn(x, axes=dims, norm=norm)


def _r2c_x(F, g, x_shape, dims, norm):
    last = dims[-1] % len(x_shape)
    pad = (0, 0) * (len(x_shape) - 1 - last) + (0, x_shape[last] - g.shape[last])
    return F.real(F.fft_c2c(F.pad_constant(g, pad), dims, _ADJOINT[norm], True))


fft_r2c.grad(x=_r2c_x)


@op(
    public=False,
    amp="full",
    samples=[
        Sample(_SPECTRUM, (1,), "backward", 6),
        Sample(_SPECTRUM, (1, 2), "ortho", 5),
        Sample(_SPECTRUM, (2, 1), "forward", 7),
    ],
)
def fft_c2r(xp, x, dims: tuple, norm: str, n: int):
    """The real inverse transform of a Hermitian spectrum of which `x` is one half:

    n // 2 + 1 frequencies of the last of `dims`.

    n: the real size of that dimension.
    """
    _complex("irfft", x)
    if x.shape[dims[-1]] != n // 2 + 1:
        raise ShapeError(
            f"irfft: a real size of {n} needs {n // 2 + 1} frequencies, got shape {tuple(x.shape)} in "
            f"dimension {dims[-1]}"
        )
    # One dimension after the other, as NumPy's irfftn: cuFFT's for several at once takes x to be Hermitian in
    # all of them, and gives something else where it is not.
    if len(dims) > 1:
        x = xp.fft.ifftn(x, axes=dims[:-1], norm=norm)
    return xp.fft.irfft(x, n, dims[-1], norm)


@op(public=False, samples=[Sample((2, 4), 1, 6), Sample((4, 2), 0, 7)])
def double_middle(xp, x, dim: int, n: int):
    """`x` with every frequency counted twice that a half spectrum of n frequencies leaves out.

    All but 0 and, for even n, n / 2.
    """
    weight = xp.full(n // 2 + 1, 2.0, x.real.dtype)
    weight[0] = 1.0
    if n % 2 == 0:
        weight[-1] = 1.0
    return x * weight.reshape(-1, *(1,) * (x.ndim - 1 - dim % x.ndim))


double_middle.grad(x=lambda F, g, dim, n: F.double_middle(g, dim, n))
fft_c2r.grad(x=lambda F, g, dims, norm, n: F.double_middle(F.fft_r2c(g, dims, _ADJOINT[norm]), dims[-1], n))
