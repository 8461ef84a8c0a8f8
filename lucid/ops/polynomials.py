"""Orthogonal polynomials by their three-term recurrences (DLMF 18.9), without derivatives, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np  # for references only: forwards use xp

from ..errors import DtypeError
from .pointwise import wide
from .registry import A, Sample, op

# name -> (title, p_1, p_{k+1} from x, k, p_k, p_{k-1}, scipy's name or None). p_0 is 1.
_Next = Callable[[Any, int, Any, Any], Any]
_chebyshev: _Next = lambda x, k, p, q: 2.0 * x * p - q
TABLE: dict[str, tuple[str, Callable[[Any], Any], _Next, str | None]] = {
    "chebyshev_polynomial_t": ("Chebyshev polynomial of the first kind", lambda x: x, _chebyshev, "chebyt"),
    "chebyshev_polynomial_u": (
        "Chebyshev polynomial of the second kind", lambda x: 2.0 * x, _chebyshev, "chebyu"),
    "chebyshev_polynomial_v": (
        "Chebyshev polynomial of the third kind", lambda x: 2.0 * x - 1.0, _chebyshev, None),
    "chebyshev_polynomial_w": (
        "Chebyshev polynomial of the fourth kind", lambda x: 2.0 * x + 1.0, _chebyshev, None),
    "hermite_polynomial_h": (
        "physicist's Hermite polynomial", lambda x: 2.0 * x,
        lambda x, k, p, q: 2.0 * (x * p - k * q), "hermite"),
    "hermite_polynomial_he": (
        "probabilist's Hermite polynomial", lambda x: x, lambda x, k, p, q: x * p - k * q, "hermitenorm"),
    "laguerre_polynomial_l": (
        "Laguerre polynomial", lambda x: 1.0 - x,
        lambda x, k, p, q: ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0), "laguerre"),
    "legendre_polynomial_p": (
        "Legendre polynomial", lambda x: x,
        lambda x, k, p, q: ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0), "legendre"),
}  # fmt: skip


def _at_shifted(first: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: first(2.0 * x - 1.0)


for _kind in "tuvw":
    _title, _first, _, _known = TABLE[f"chebyshev_polynomial_{_kind}"]
    TABLE[f"shifted_chebyshev_polynomial_{_kind}"] = (
        f"{_title}, at 2 x - 1",
        _at_shifted(_first),
        lambda x, k, p, q: 2.0 * (2.0 * x - 1.0) * p - q,
        None if _known is None else f"sh_{_known}",
    )


# The value for x = 1 and n = 3.
_AT_ONE = {
    "chebyshev_polynomial_t": "1.", "chebyshev_polynomial_u": "4.", "chebyshev_polynomial_v": "1.",
    "chebyshev_polynomial_w": "7.", "hermite_polynomial_h": "-4.", "hermite_polynomial_he": "-2.",
    "laguerre_polynomial_l": "-0.6667", "legendre_polynomial_p": "1.",
}  # fmt: skip


def _define(name: str, title: str, first: Callable[[Any], Any], following: _Next, known: str | None) -> None:
    def forward(xp, x, n):
        if x.dtype.kind == "c" or n.dtype.kind == "c":
            raise DtypeError(f"special.{name}: expected real tensors, got {x.dtype.name} and {n.dtype.name}")
        dtype, x = x.dtype, wide(x)
        x, n = x + xp.zeros_like(n, x.dtype), (n + xp.zeros_like(x)).astype("int64")
        p, q = first(x), xp.ones_like(x)
        out = xp.where(n == 0, q, xp.zeros_like(x))
        # Reads the device: the number of steps is the highest degree.
        for k in range(1, (int(n.max()) if n.size else 0) + 1):
            out = xp.where(n == k, p, out)
            p, q = following(x, k, p, q), p
        return out.astype(dtype)

    def reference(x, n):
        special = __import__("scipy.special").special
        if known is not None:
            return getattr(special, f"eval_{known}")(n, x)
        y = 2.0 * x - 1.0 if name.startswith("shifted") else x
        half = 0.5 * np.arccos(y)
        if name.endswith("v"):
            return np.cos((2 * n + 1) * half) / np.cos(half)
        return np.sin((2 * n + 1) * half) / np.sin(half)

    forward.__doc__ = f"""The {title} of degree n at x; 0 for n < 0.

    x, n: broadcast together. No derivative. Raises DtypeError for complex numbers. Source: DLMF 18.9.

    >>> import lucid
    >>> lucid.special.{name}(lucid.tensor(1.0), 3)
    tensor({_AT_ONE[name.removeprefix("shifted_")]})
    """
    inside = A((3, 4), low=0.05 if name.startswith("shifted") else -0.9, high=0.95)
    op(name=name, public=False, dtype="float", broadcast=True, diff=(), reference=reference,
       samples=[Sample(inside, A((4,), dtype="int64", low=0, high=9))])(forward)  # fmt: skip


for _name, _row in TABLE.items():
    _define(_name, *_row)
