"""What functions say to bad input: windows, histograms, factors, polynomials, questions."""

from __future__ import annotations

import pytest

import lucid
from lucid import eye, ones, tensor, zeros
from lucid.errors import LucidError

v, m, x4 = ones(3), ones(2, 3), ones(1, 2, 4, 4)
i, c = tensor([0, 1]), tensor([1j, 2j])

# name, arguments, keyword arguments, how the message begins
# fmt: off
CALLS = [
    ("positive", (m > 0,), {}, "positive: expected numbers, got a bool tensor; convert it with x.long()"),
    ("bartlett_window", (-1,), {}, "bartlett_window: expected a window_length of at least 0, got -1"),
    ("bartlett_window", (4,), {"dtype": "int64"}, "bartlett_window: expected a floating dtype, got int64"),
    ("blackman_window", (-1,), {}, "blackman_window: expected a window_length of at least 0, got -1"),
    ("blackman_window", (4,), {"dtype": "int64"}, "blackman_window: expected a floating dtype, got int64"),
    ("hamming_window", (-1,), {}, "hamming_window: expected a window_length of at least 0, got -1"),
    ("hamming_window", (4,), {"dtype": "int64"}, "hamming_window: expected a floating dtype, got int64"),
    ("hann_window", (-1,), {}, "hann_window: expected a window_length of at least 0, got -1"),
    ("hann_window", (4,), {"dtype": "int64"}, "hann_window: expected a floating dtype, got int64"),
    ("kaiser_window", (-1,), {}, "kaiser_window: expected a window_length of at least 0, got -1"),
    ("kaiser_window", (4,), {"dtype": "int64"}, "kaiser_window: expected a floating dtype, got int64"),
    ("histogram", (m, 0), {}, "histogram: expected at least 1 bin, or a tensor of edges, got 0"),
    ("histogram", (i, 2), {}, "histogram: expected a floating tensor, got int64; convert it with .float()"),
    ("histogram", ("text", 2), {}, "histogram: expected a tensor as x, got str 'text'; make a tensor of it"),
    ("histogram", (v, 2), {"weight": m}, "histogram: expected a weight float32[3], got float32[2, 3]"),
    ("histogram", (v, 2), {"range": (3, 1)},
     "histogram: expected a finite range with min <= max, got [3.0, 1.0]"),
    ("histogram", (v, ones(1)), {}, "histogram: expected 2 or more edges of float32, got float32[1]"),
    ("histogramdd", (v, 2), {}, "histogramdd: expected points [..., n], got shape (3,)"),
    ("histogramdd", (m, [2, 2]), {},
     "histogramdd: expected 3 bins and a range of 6 numbers, got [2, 2] and None"),
    ("histogramdd", (m, 2), {"range": (0, 1)},
     "histogramdd: expected 3 bins and a range of 6 numbers, got 2 and (0, 1)"),
    ("binomial", (v, v * 2), {}, "binomial: expected counts of at least 0 and probabilities in [0, 1]"),
    ("unravel_index", (v, (2,)), {}, "unravel_index: expected indices of integers, got float32"),
    ("unravel_index", (i, (0, 2)), {}, "unravel_index: expected sizes of at least 1, got (0, 2)"),
    ("nonzero_static", (m,), {"size": -1}, "nonzero_static: expected a size of at least 0, got -1"),
    ("is_nonzero", ("text",), {}, "is_nonzero: expected a tensor as x, got str 'text'"),
    ("is_signed", ("text",), {}, "is_signed: expected a tensor as x, got str 'text'"),
    ("is_conj", ("text",), {}, "is_conj: expected a tensor as x, got str 'text'"),
    ("is_neg", ("text",), {}, "is_conj: expected a tensor as x, got str 'text'"),
    ("is_inference", ("text",), {}, "is_conj: expected a tensor as x, got str 'text'"),
    ("get_device", ("text",), {}, "get_device: expected a tensor as x, got str 'text'"),
    ("is_nonzero", (m,), {},
     "bool: the truth value of a tensor with 6 elements (float32[2,3] cpu) is ambiguous"),
    ("is_same_size", (v, "text"), {}, "is_same_size: expected a tensor as other, got str 'text'"),
    ("scalar_tensor", ([1, 2],), {}, "scalar_tensor: expected a number, got data of shape (2,); use tensor"),
    ("scalar_tensor", ("text",), {}, "tensor: expected numbers, got str 'text'"),
    ("set_printoptions", (), {"profile": "tiny"},
     "set_printoptions: profile is one of default, short, full, got 'tiny'"),
    ("geqrf", (v,), {}, "geqrf: expected matrices [..., m, n], got shape (3,)"),
    ("geqrf", (i[None],), {}, "geqrf: expected a floating or complex dtype, got int64"),
    ("svd_lowrank", (v,), {}, "svd_lowrank: expected matrices [..., m, n], got shape (3,)"),
    ("svd_lowrank", (m, 7), {}, "svd_lowrank: expected q from 0 to 2 for shape (2, 3), got 7"),
    ("pca_lowrank", (v,), {}, "pca_lowrank: expected matrices [..., m, n], got shape (3,)"),
    ("linalg.ldl_factor", (m,), {},
     "linalg.ldl_factor: expected square matrices [..., n, n], got shape (2, 3)"),
    ("linalg.ldl_factor", (zeros(2, 2),), {},
     "linalg.ldl_factor: a block of D is 0, the matrix is singular; use"),
    ("linalg.ldl_factor_ex", (zeros(2, 2),), {"check_errors": True},
     "linalg.ldl_factor: a block of D is 0, the matrix is singular; use"),
    ("linalg.ldl_solve", (eye(2), i, eye(3)), {},
     "linalg.ldl_solve: expected pivots [..., 2] and B [..., 2, k] for LD of shape"),
    ("nn.functional.fractional_max_pool2d", (v, 2, 1), {},
     "fractional_max_pool2d: expected an input [batch, channels, 2 sizes] or [channels, 2"),
    ("nn.functional.fractional_max_pool2d", (x4, 2), {},
     "fractional_max_pool2d: expected one of output_size and output_ratio, got output_size="),
    ("nn.functional.fractional_max_pool2d", (x4, 2, 4), {},
     "fractional_max_pool2d: (4, 4) windows of (2, 2) do not fit in the sizes (4, 4); output"),
    ("nn.functional.fractional_max_pool2d", (x4, 2), {"output_ratio": 2.0},
     "fractional_max_pool2d: expected 2 ratios in (0, 1) as output_ratio, got 2.0"),
    ("nn.functional.fractional_max_pool2d", (x4, 2, 2), {"_random_samples": ones(2)},
     "fractional_max_pool2d: expected _random_samples of shape (1, 2, 2), got (2,)"),
    ("nn.functional.fractional_max_pool2d_with_indices", (x4.int(), 2, 2), {},
     "fractional_max_pool2d: expected a floating tensor, got int32"),
    ("nn.functional.fractional_max_pool3d", (m, 2, 1), {},
     "fractional_max_pool3d: expected an input [batch, channels, 3 sizes] or [channels, 3"),
    ("nn.functional.fractional_max_pool3d_with_indices", (m, 2, 1), {},
     "fractional_max_pool3d: expected an input [batch, channels, 3 sizes] or [channels, 3"),
    ("special.chebyshev_polynomial_t", ("text", 2), {},
     "chebyshev_polynomial_t: expected a tensor or a number, got str 'text'"),
    ("special.chebyshev_polynomial_u", ("text", 2), {},
     "chebyshev_polynomial_u: expected a tensor or a number, got str 'text'"),
    ("special.chebyshev_polynomial_v", ("text", 2), {},
     "chebyshev_polynomial_v: expected a tensor or a number, got str 'text'"),
    ("special.chebyshev_polynomial_w", ("text", 2), {},
     "chebyshev_polynomial_w: expected a tensor or a number, got str 'text'"),
    ("special.shifted_chebyshev_polynomial_t", ("text", 2), {},
     "shifted_chebyshev_polynomial_t: expected a tensor or a number, got str 'text'"),
    ("special.shifted_chebyshev_polynomial_u", ("text", 2), {},
     "shifted_chebyshev_polynomial_u: expected a tensor or a number, got str 'text'"),
    ("special.shifted_chebyshev_polynomial_v", ("text", 2), {},
     "shifted_chebyshev_polynomial_v: expected a tensor or a number, got str 'text'"),
    ("special.shifted_chebyshev_polynomial_w", ("text", 2), {},
     "shifted_chebyshev_polynomial_w: expected a tensor or a number, got str 'text'"),
    ("special.hermite_polynomial_h", ("text", 2), {},
     "hermite_polynomial_h: expected a tensor or a number, got str 'text'"),
    ("special.hermite_polynomial_he", ("text", 2), {},
     "hermite_polynomial_he: expected a tensor or a number, got str 'text'"),
    ("special.laguerre_polynomial_l", ("text", 2), {},
     "laguerre_polynomial_l: expected a tensor or a number, got str 'text'"),
    ("special.legendre_polynomial_p", ("text", 2), {},
     "legendre_polynomial_p: expected a tensor or a number, got str 'text'"),
    ("special.chebyshev_polynomial_t", (c, 2), {},
     "special.chebyshev_polynomial_t: expected real tensors, got complex64 and"),
]
# fmt: on


IDS = [f"{k}-{row[0]}" for k, row in enumerate(CALLS)]


@pytest.mark.parametrize(("name", "args", "kwargs", "message"), CALLS, ids=IDS)
def test_messages(name, args, kwargs, message):
    function = lucid
    for part in name.split("."):
        function = getattr(function, part)
    with pytest.raises(LucidError) as caught:
        function(*args, **kwargs)
    assert str(caught.value).startswith(message), str(caught.value)
