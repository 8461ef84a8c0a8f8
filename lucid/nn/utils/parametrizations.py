"""Ready parametrizations: orthogonal, spectral_norm, weight_norm. Each returns its module."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import linalg
from ...autograd.mode import no_grad
from ...autograd.record import RECORDED as F
from ...errors import ShapeError
from ...storage.random import default_generator
from ...tensor import Tensor, _wrap
from .. import init
from .._make import zeros
from ..conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..functional import normalize
from ..module import Module
from . import parametrize
from .weight_norm import _length


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = None if dim == -1 else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / _length(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _length(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The module, whose parameter `name` is g v / |v|: length and direction are trained apart.

    Source: Salimans and Kingma 2016, arXiv:1602.07868. The norm runs over all dimensions but `dim` (over all
    for None). g and v are `parametrizations.<name>.original0` and `original1`.

    >>> from lucid import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    >>> [(n, p.shape) for n, p in layer.named_parameters()][1:]
    [('parametrizations.weight.original0', (2, 1)), ('parametrizations.weight.original1', (2, 3))]
    """
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """weight / sigma, with sigma = u' W v of the power iteration's vectors u [rows] and v [cols]."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: expected n_power_iterations > 0, got {n_power_iterations}")
        if not weight.ndim:
            raise ShapeError("spectral_norm: expected a weight of at least one dimension, got a 0-d tensor")
        self.dim, self.eps = dim % weight.ndim, eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            rows, cols = matrix.shape
            for vector, size in (("_u", rows), ("_v", cols)):
                start = init.normal_(zeros((size,), weight.device, weight.dtype))
                self.register_buffer(vector, normalize(start, dim=0, eps=eps))
            # PyTorch's number of iterations before the first use.
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies: the next iteration writes to u and v, and backward may come after it.
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        # Any weight of the wanted direction would do.
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Module:
    """The module, whose parameter `name` is divided by its largest singular value.

    Source: Miyato et al. 2018, arXiv:1802.05957. The value is found by power iteration: `n_power_iterations`
    steps at each use in training mode. dim: that of the outputs; 0, or 1 for transposed convolutions, when
    None.

    >>> from lucid import nn
    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    >>> [name for name, _ in layer.named_buffers()]
    ['parametrizations.weight.0._u', 'parametrizations.weight.0._v']
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter or buffer {name!r}")
    dim = _output_dim(module) if dim is None else dim
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)


def _output_dim(module: Module) -> int:
    return int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix [..., n, k] with orthonormal columns (rows where n < k) from an unconstrained X.

    With the skew part A of X's lower triangle: matrix_exp is exp(A), cayley (I - A/2)^-1 (I + A/2), cut to k
    columns. householder: the product of the reflections below X's diagonal, columns times the diagonal's
    signs. With `base`, an orthogonal matrix, the result is base times that.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("orthogonal: householder takes no complex weight; use matrix_exp or cayley")
        self.shape, self.orthogonal_map = tuple(weight.shape), orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        X = X.transpose(-2, -1) if wide else X
        n, k = X.shape[-2:]
        if self.orthogonal_map == "householder":
            below = X.tril(-1)
            Q = linalg.householder_product(below, 2.0 / (1.0 + (below * below).sum(dim=-2)))
            # Signs, which are not trained.
            Q = Q * X.detach().diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        else:
            A = X.tril()
            if n != k:
                A = F.cat(A, zeros((*X.shape[:-2], n, n - k), X.device, X.dtype), dim=-1)
            A = A - A.transpose(-2, -1).conj()
            if self.orthogonal_map == "matrix_exp":
                Q = linalg.matrix_exp(A)
            else:
                one = _wrap(A.backend.xp.eye(n, dtype=A.dtype), A.backend)
                Q = linalg.solve(one - A * 0.5, one + A * 0.5)
            Q = Q[..., :k] if n != k else Q
        if "base" in self._buffers:
            Q = self.base @ Q
        return Q.transpose(-2, -1) if wide else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if tuple(Q.shape) != self.shape:
            raise ShapeError(f"orthogonal: expected a value of shape {self.shape}, got {tuple(Q.shape)}")
        # In NumPy: this runs once, at registration or assignment.
        backend, wide = Q.backend, Q.shape[-2] < Q.shape[-1]
        host = backend.to_numpy(Q.array)
        host = host.swapaxes(-1, -2) if wide else host
        n, k = host.shape[-2:]
        if "base" in self._buffers:
            if n != k:
                more = default_generator("cpu").normal((*host.shape[:-1], n - k), dtype="float64")
                host = np.concatenate([host, more.astype(host.dtype)], -1)
            self.base = _wrap(backend.from_numpy(_orthonormal(host)), backend)
            # What each map takes to the identity.
            X = np.zeros((*host.shape[:-2], n, k), Q.dtype) - np.eye(n, k, dtype=Q.dtype)
        elif self.orthogonal_map == "householder":
            X = _reflections(host)
        else:
            raise NotImplementedError(f"orthogonal: with {self.orthogonal_map} a value can only be assigned "
                                      "under use_trivialization=True")
        return _wrap(backend.from_numpy(np.ascontiguousarray(X.swapaxes(-1, -2) if wide else X)), backend)


def _orthonormal(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Q of the QR decomposition with a positive diagonal: `a` itself where its columns are orthonormal."""
    q, r = np.linalg.qr(a.astype(np.result_type(a.dtype, np.float64)))
    d = np.diagonal(r, axis1=-2, axis2=-1)[..., None, :]
    return np.ascontiguousarray(q * (d / np.abs(d))).astype(a.dtype)


def _reflections(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The reflections below the diagonal, and signs on it, whose product is `a`; columns orthonormal."""
    h, tau = np.linalg.qr(a.astype(np.float64), mode="raw")
    h = h.swapaxes(-1, -2).copy()
    d = np.diagonal(h, axis1=-2, axis2=-1)
    # LAPACK leaves a reflection out (tau = 0) where `forward` takes the one that only turns the sign.
    signs = np.sign(d) * np.where(tau == 0, -1.0, 1.0)
    i = np.arange(a.shape[-1])
    h[..., i, i] = signs
    return h.astype(a.dtype)


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """The module, whose parameter `name` [..., n, k] has orthonormal columns, or rows where n < k.

    orthogonal_map: "matrix_exp" (square and complex weights by default), "cayley", or "householder" (others).
    use_trivialization: the weight is a fixed orthogonal matrix, the present one, times the map (Lezcano
    Casado 2019, arXiv:1909.09501); it lets `module.weight = value` work with every map.

    >>> import lucid
    >>> from lucid import nn
    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(2, 4))
    >>> bool((layer.weight.T @ layer.weight - lucid.eye(2)).abs().max() < 1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"orthogonal: {type(module).__name__} has no parameter or buffer {name!r}")
    if weight.ndim < 2:
        raise ShapeError(f"orthogonal: expected at least 2 dimensions, got shape {tuple(weight.shape)}")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(f"orthogonal: orthogonal_map is one of {', '.join(_MAPS)}, got {orthogonal_map!r}")
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
