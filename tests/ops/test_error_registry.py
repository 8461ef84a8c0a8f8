"""Bad input to every op of the registry: a wrong dtype, shape or range, and what the op says to it.

Ops that users call under their own name stand in the tables of test_error_messages.py and in the families of
test_error_families.py; here are those that other functions hand their tensors to, and pointwise ops of one
tensor, whose shape cannot be wrong.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import tensor
from lucid.autograd.record import recorder
from lucid.errors import DtypeError, IndexRangeError, LucidError, ShapeError
from lucid.ops.registry import OPS
from lucid.testing import cases_of
from tests.ops.test_error_families import INTEGERS, POINTWISE, REAL, only_dim

# fmt: off
# Ops of an order, which complex numbers do not have.
ORDERED = [
    "relu", "sign", "relu6", "leaky_relu", "threshold", "hardshrink", "softshrink", "hardsigmoid",
    "hardswish", "elu", "selu", "celu", "mish", "softplus", "logsigmoid", "max_pool",
]

# Ops that a library computes for real numbers only.
REAL_ONLY = [
    "div_trunc", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "entr",
]

# Ops whose result is floating: in place they do not fit a tensor of integers.
FLOATING = sorted(n for n, op in OPS.items() if op.inplace and op.dtype == "float" and len(op.tensors) == 1)

# Any shape and dtype is right for these.
ANY = [
    "abs", "conj", "real", "logical_not", "clone", "detach", "square", "round", "sgn", "angle",
    "nan_to_num", "isnan", "isinf", "isfinite", "isreal", "erfcx", "ndtr", "log_ndtr",
    "spherical_bessel_j0", "silu", "softsign", "tanhshrink", "contiguous_copy", "nonzero", "beside",
    "real_view", "imag_view",
]

# op, what of its first sample is replaced (a tensor by ones of a shape or by itself in a dtype), error, how
# the message begins
ROWS = [
    ("neg", {"x": "bool"}, DtypeError,
     "neg: expected numbers, got a bool tensor; use ~x for the complement"),
    ("bitwise_not", {"x": "complex128"}, DtypeError,
     "bitwise_not: expected bools or integers, got complex128; convert with x.long() (got x:"),
    ("cast", {"dtype": "nonsense"}, DtypeError,
     "cast: the arguments do not fit together: got x: float64[3] cpu, dtype='nonsense'"),
    ("sum_to", {"x": (3, 5)}, ShapeError,
     "sum_to: the arguments do not fit together: got x: float64[3,5] cpu, shape=(1, 4)"),
    ("view_put", {"x": (3, 5)}, ShapeError,
     "view_put: the arguments do not fit together: got x: float64[3,5] cpu, value: float64[4,3] cpu"),
    ("positive", {"x": "bool"}, DtypeError,
     "positive: expected integers, floating numbers or complex numbers, got bool; convert with"),
    ("isposinf", {"x": "complex128"}, DtypeError,
     "isposinf: expected a real dtype, got complex128; test its .real and .imag"),
    ("isneginf", {"x": "complex128"}, DtypeError,
     "isneginf: expected a real dtype, got complex128; test its .real and .imag"),
    ("within", {"x": (3, 5)}, ShapeError,
     "within: shapes (3, 5), (3, 4) and (4,) do not broadcast together: from the last dimension on"),
    ("prelu_kernel", {"x": (3, 5)}, ShapeError,
     "prelu_kernel: shapes (3, 5) and (4,) do not broadcast together: from the last dimension on"),
    ("tie_weights", {"x": ()}, IndexRangeError,
     "tie_weights: dim must lie in [-1, 0] for a tensor of 0 dimensions, got 1"),
    ("prod_others", {"x": ()}, IndexRangeError,
     "cumprod: dim must lie in [-1, 0] for a tensor of 0 dimensions, got 1"),
    ("max_dim", {"x": "complex128"}, DtypeError,
     "argmax: complex numbers have no order, got complex128; take x.real, x.imag or x.abs()"),
    ("min_dim", {"x": "complex128"}, DtypeError,
     "argmin: complex numbers have no order, got complex128; take x.real, x.imag or x.abs()"),
    ("count_valid", {"x": ()}, IndexRangeError,
     "count_valid: dim must lie in [-1, 0] for a tensor of 0 dimensions, got 1"),
    ("p_norm", {"x": ()}, IndexRangeError,
     "norm: dim must lie in [-1, 0] for a tensor of 0 dimensions, got 1"),
    ("reverse_cumsum", {"dim": 7}, IndexRangeError,
     "cumsum: dim must lie in [-2, 1] for a tensor of 2 dimensions, got 7"),
    ("shift", {"x": ()}, IndexRangeError,
     "shift: dim must lie in [-1, 0] for a tensor of 0 dimensions, got 1"),
    ("linear_scan", {"dim": 7}, IndexRangeError,
     "linear_scan: dim must lie in [-2, 1] for a tensor of 2 dimensions, got 7"),
    ("view_dtype", {"dtype": "nonsense"}, DtypeError,
     "view_dtype: the arguments do not fit together: got x: int64[2] cpu, dtype='nonsense'"),
    ("split_2", {"x": ()}, ShapeError,
     "split_2: an argument has too few or too many dimensions (got x: float64[] cpu, sizes=(1, 2)"),
    ("unbind_3", {"x": ()}, ShapeError,
     "unbind_3: an argument has too few or too many dimensions (got x: float64[] cpu, dim=0)"),
    ("unfold_windows", {"x": (2, 7)}, ShapeError,
     "unfold: expected a size of at most 2 (dim 0) and a step of at least 1, got size=3 and step=2"),
    ("fold_windows", {"dimension": 7}, IndexRangeError,
     "unfold: dim must lie in [-1, 0] for a tensor of 1 dimensions, got 7"),
    ("as_strided_view", {"x": (2, 12)}, ShapeError,
     "as_strided: expected x with strides (1,), got (12, 1); to write through this view, clone() its"),
    ("as_strided_sum", {"src": (2, 4)}, ShapeError,
     "as_strided_sum: the arguments do not fit together: got src: float64[2,4] cpu, source=((2, 3)"),
    ("diagonal_pad", {"shape": (3,)}, IndexRangeError,
     "diagonal: dim must lie in [-1, 0] for a tensor of 1 dimensions, got 1"),
    ("index_sum", {"src": (5, 3)}, ShapeError,
     "index_sum: the arguments do not fit together: got src: float64[5,3] cpu, index: int64[4] cpu"),
    ("scatter_sum", {"dim": 7}, IndexRangeError,
     "scatter_sum: dim must lie in [-2, 1] for a tensor of 2 dimensions, got 7"),
    ("pick", {"x": ()}, IndexRangeError,
     "gather: dim must lie in [-1, 0] for a tensor of 0 dimensions, got 1"),
    ("getitem_view", {"x": ()}, IndexRangeError,
     "getitem: too many indices for array: array is 0-dimensional, but 2 were indexed (index (slice(1"),
    ("getitem_pad", {"src": (3,)}, ShapeError,
     "getitem_pad: the arguments do not fit together: got src: float64[3] cpu, index=(slice(1, 4, 2)"),
    ("getitem_put", {"x": (2, 4, 5)}, ShapeError,
     "getitem_put: the arguments do not fit together: got x: float64[2,4,5] cpu, src: float64[2] cpu"),
    ("getitem", {"x": (2, 4, 5)}, IndexRangeError,
     "getitem: the arguments do not fit together: got x: float64[2,4,5] cpu, index=([0, 2, 2],)"),
    ("getitem_sum", {"src": (3, 6)}, ShapeError,
     "getitem_sum: the arguments do not fit together: got src: float64[3,6] cpu, index=([0, 2, 2],)"),
    ("getitem_set", {"x": (4, 6)}, ShapeError,
     "getitem_set: the arguments do not fit together: got x: float64[4,6] cpu, src: float64[2,5] cpu"),
    ("getitem_fill", {"x": (2, 4, 5)}, IndexRangeError,
     "getitem_fill: the arguments do not fit together: got x: float64[2,4,5] cpu, index=([0, 2, 2],)"),
    ("index_fill_number", {"x": (2, 5, 3)}, IndexRangeError,
     "index_fill: index 3 is out of range for dim 0 of size 2; expected -2 <= index < 2"),
    ("scatter_src", {"x": (2, 3, 4)}, ShapeError,
     "scatter: expected an index of 3 dimensions as x, got shape (2, 2)"),
    ("scatter_number", {"x": (2, 3, 4)}, ShapeError,
     "scatter: expected an index of 3 dimensions as x, got shape (2, 2)"),
    ("put_number", {"x": ()}, IndexRangeError,
     "put: index 5 is out of range for dim 0 of size 1; expected -1 <= index < 1"),
    ("masked_gather", {"x": (2, 4)}, ShapeError,
     "masked_gather: the arguments do not fit together: got x: float64[2,4] cpu, mask: bool[2,3] cpu"),
    ("scatter_count", {"x": (2, 2, 3)}, ShapeError,
     "scatter_reduce: expected an index of 3 dimensions as x, got shape (2, 4)"),
    ("scatter_extreme", {"x": (2, 2, 3)}, ShapeError,
     "scatter_reduce: expected an index of 3 dimensions as x, got shape (2, 4)"),
    ("scatter_tie_weights", {"x": (2, 2, 3)}, ShapeError,
     "scatter_reduce: expected an index of 3 dimensions as x, got shape (2, 4)"),
    ("scatter_groups", {"x": (2, 2, 3)}, ShapeError,
     "scatter_reduce: expected an index of 3 dimensions as x, got shape (2, 4)"),
    ("scatter_prod", {"x": (2, 2, 3)}, ShapeError,
     "scatter_reduce: expected an index of 3 dimensions as x, got shape (2, 4)"),
    ("divide_count", {"x": (4,)}, ShapeError,
     "divide_count: the arguments do not fit together: got x: float64[4] cpu, count: float64[3] cpu"),
    ("median_dim", {"x": "complex128"}, DtypeError,
     "sort: complex numbers have no order, got complex128; sort x.abs() or x.real"),
    ("nanmedian_dim", {"x": "complex128"}, DtypeError,
     "sort: complex numbers have no order, got complex128; sort x.abs() or x.real"),
    ("median_all", {"x": "complex128"}, DtypeError,
     "sort: complex numbers have no order, got complex128; sort x.abs() or x.real"),
    ("nanmedian_all", {"x": "complex128"}, DtypeError,
     "sort: complex numbers have no order, got complex128; sort x.abs() or x.real"),
    ("unique_flat", {"x": "complex128"}, DtypeError,
     "sort: complex numbers have no order, got complex128; sort x.abs() or x.real"),
    ("unique_rows", {"x": "complex128"}, DtypeError,
     "sort: complex numbers have no order, got complex128; sort x.abs() or x.real"),
    ("unique_runs", {"x": ()}, ShapeError,
     "unique_runs: an argument has too few or too many dimensions (got x: int64[] cpu)"),
    ("cross_product", {"x": (3, 3)}, ShapeError,
     "cross_product: shapes (3, 3) and (2, 3) do not broadcast together: from the last dimension on"),
    ("euclidean_distances", {"x": (3, 3)}, ShapeError,
     "euclidean_distances: the arguments do not fit together: got x: float64[3,3] cpu, y: float64[4,2]"),
    ("solve_matrix", {"x": (3, 3)}, LucidError,
     "linalg.solve: the input is singular; use linalg.pinv or linalg.lstsq, or add a small multiple of"),
    ("triangular", {"x": (3, 4)}, ShapeError,
     "linalg.solve_triangular: expected square matrices [..., n, n], got shape (3, 4)"),
    ("pseudo_inverse", {"x": ()}, ShapeError, "linalg.pinv: expected matrices [..., m, n], got shape ()"),
    ("cofactor", {"x": (3, 4)}, ShapeError,
     "cofactor: the arguments do not fit together: got x: float64[3,4] cpu"),
    ("from_triangle", {"x": ()}, DtypeError,
     "from_triangle: the arguments do not fit together: got x: float64[] cpu, upper=False"),
    ("cholesky_lower", {"x": (3, 4)}, ShapeError,
     "linalg.cholesky: expected square matrices [..., n, n], got shape (3, 4)"),
    ("cholesky_solution", {"x": (2, 2)}, ShapeError,
     "cholesky_solve: expected B [..., n, k] and L [..., n, n], got (2, 2) and (1, 1)"),
    ("eigh_full", {"x": (3, 4)}, ShapeError,
     "linalg.eigh: expected square matrices [..., n, n], got shape (3, 4)"),
    ("eigvalsh_full", {"x": (3, 4)}, ShapeError,
     "linalg.eigvalsh: expected square matrices [..., n, n], got shape (3, 4)"),
    ("eig_full", {"x": (3, 4)}, ShapeError,
     "linalg.eig: expected square matrices [..., n, n], got shape (3, 4)"),
    ("svd_full", {"x": ()}, ShapeError, "linalg.svd: expected matrices [..., m, n], got shape ()"),
    ("svdvals_full", {"x": ()}, ShapeError, "linalg.svdvals: expected matrices [..., m, n], got shape ()"),
    ("qr_full", {"x": ()}, ShapeError, "linalg.qr: expected matrices [..., m, n], got shape ()"),
    ("lu_compact", {"x": ()}, ShapeError, "linalg.lu_factor: expected matrices [..., m, n], got shape ()"),
    ("ldl_compact", {"x": (3, 4)}, ShapeError,
     "linalg.ldl_factor: expected square matrices [..., n, n], got shape (3, 4)"),
    ("permute_rows", {"x": ()}, ShapeError,
     "permute_rows: an argument has too few or too many dimensions (got x: float64[] cpu, order:"),
    ("pivots_to_order", {"pivots": "complex128"}, ShapeError,
     "lu_solve: expected integer pivots [..., k] with k at most the 3 rows, got complex128 (3,)"),
    ("fft_c2c", {"x": "bool"}, DtypeError,
     "fft: expected a complex tensor, got bool; use the r variant for real input"),
    ("fft_r2c", {"x": "complex128"}, DtypeError,
     "fft_r2c: the arguments do not fit together: got x: complex128[2,5] cpu, dims=(1,)"),
    ("fft_c2r", {"x": "bool"}, DtypeError,
     "irfft: expected a complex tensor, got bool; use the r variant for real input"),
    ("double_middle", {"x": (2, 5)}, ShapeError,
     "double_middle: the arguments do not fit together: got x: float64[2,5] cpu, dim=1, n=6"),
    ("convolution", {"x": (2, 2, 3, 7)}, ShapeError,
     "convolution: expected input [batch, channels, 1 sizes] and weight of 3 dimensions, got (2, 2, 3"),
    ("conv_transpose", {"x": (2, 2, 4, 5)}, ShapeError,
     "conv_transpose: expected input [batch, channels, 1 sizes] and weight of 3 dimensions, got (2, 2"),
    ("conv_weight", {"x": (3, 3, 7)}, ShapeError,
     "conv_weight: the arguments do not fit together: got x: float64[3,3,7] cpu, y: float64[2,4,2]"),
    ("max_pool_spread", {"x": (2, 4)}, ShapeError,
     "max_pool_spread: the arguments do not fit together: got x: float64[2,4] cpu, window: int64[2,3]"),
    ("max_pool_pick", {"x": (3, 6)}, ShapeError,
     "max_pool_pick: the arguments do not fit together: got x: float64[3,6] cpu, window: int64[2,3]"),
    ("max_pool_index", {"window": ()}, ShapeError,
     "max_pool_index: an argument has too few or too many dimensions (got window: int64[] cpu"),
    ("avg_pool", {"kernel": (7,)}, ShapeError,
     "avg_pool: the windows (7,) (dilation (1,)) do not fit in the input (6,) padded by (0,); use a"),
    ("avg_pool_spread", {"x": ()}, ShapeError,
     "avg_pool_spread: an argument has too few or too many dimensions (got x: float64[] cpu"),
    ("max_unpool", {"x": (2, 4)}, ShapeError,
     "max_unpool: expected indices of the input's shape (2, 4), got (2, 3); pass what max_pool returned"),
    ("max_unpool_pick", {"x": ()}, ShapeError,
     "max_unpool_pick: the arguments do not fit together: got x: float64[] cpu, index: int64[2,3] cpu"),
    ("arange_cells", {"size": (-9, -9)}, ShapeError,
     "arange_cells: the arguments do not fit together: got x: float64[2,3] cpu, size=(-9, -9)"),
    ("resample", {"x": (2, 2, 5, 3)}, ShapeError,
     "resample: linear expects size 5 in dimension 1, got shape (2, 2, 5, 3)"),
    ("resample_beside", {"x": (6, 2)}, ShapeError,
     "resample: pad expects size 5 in dimension 0, got shape (6, 2)"),
    ("pad_constant", {"pad": (-9, -9, -9, -9)}, ShapeError,
     "pad: cannot cut (-9, -9, -9, -9) off an input of shape (2, 3, 4); the sizes would be negative"),
    ("im2col", {"kernel": (7, 7)}, ShapeError,
     "unfold: the windows (7, 7) (dilation (1, 1)) do not fit in the input (2, 3, 5, 6) padded by (0"),
    ("col2im", {"x": (2, 18, 13)}, ShapeError,
     "fold: expected [batch, a multiple of 6, 12] (kernel (2, 3), windows (4, 3) for output_size (5"),
    ("take_cells", {"x": (2, 2, 3, 5)}, IndexRangeError,
     "take_cells: expected indices in [0, 3), got 0 to 4"),
    ("add_cells", {"x": (2, 3, 5)}, ShapeError,
     "add_cells: the arguments do not fit together: got x: float64[2,3,5] cpu, index: int64[2,4] cpu"),
    ("batch_norm_eval", {"x": (4, 4)}, ShapeError,
     "batch_norm: running_mean must have one value for each of the 4 channels, got shape [3]"),
    ("channel_window_sum", {"x": ()}, ShapeError,
     "channel_window_sum: an argument has too few or too many dimensions (got x: float64[] cpu"),
    ("class_coefficients", {"x": (5, 3)}, ShapeError,
     "cross_entropy: an input of shape (5, 3) has 3 classes and takes targets of shape (5,), got (4,)"),
    ("log_sum_3", {"x": (3, 5)}, ShapeError,
     "log_sum_3: shapes (3, 5), (3, 4) and (3, 4) do not broadcast together: from the last dimension"),
    ("label_shift", {"x": (2, 6)}, ShapeError,
     "label_shift: the arguments do not fit together: got x: float64[2,6] cpu, keep: bool[2,5] cpu"),
    ("label_unshift", {"x": (2, 6)}, ShapeError,
     "label_unshift: the arguments do not fit together: got x: float64[2,6] cpu, keep: bool[2,5] cpu"),
    ("ctc_labels", {"targets": (2, 1, 3)}, ShapeError,
     "ctc_labels: an argument has too few or too many dimensions (got targets: int64[2,1,3] cpu"),
    ("safe_softmax", {"x": "complex128"}, DtypeError,
     "safe_softmax: expected a floating tensor, got complex128 of shape (3, 4); convert it with"),
    ("causal_mask", {"q": ()}, ShapeError,
     "causal_mask: an argument has too few or too many dimensions (got q: float64[] cpu, k:"),
    ("attention", {"q": (2, 3, 5)}, ShapeError,
     "scaled_dot_product_attention: expected query [..., L, E], key [..., S, E] and value [..., S"),
    ("embedding_backward", {"grad": (3, 3, 5)}, ShapeError,
     "embedding_backward: the arguments do not fit together: got grad: float64[3,3,5] cpu, indices:"),
    ("embedding_rows", {"weight": (2, 4, 5)}, IndexRangeError,
     "embedding_rows: the arguments do not fit together: got weight: float64[2,4,5] cpu, indices:"),
    ("bag_max", {"x": (6, 3)}, ShapeError,
     "bag_max: the arguments do not fit together: got x: float64[6,3] cpu, bags: int64[5] cpu, rows=4"),
    ("bag_place", {"x": (2, 4)}, ShapeError,
     "bag_place: the arguments do not fit together: got x: float64[2,4] cpu, indices: int64[2,3] cpu"),
    ("bag_take", {"x": (5, 4)}, IndexRangeError,
     "bag_take: the arguments do not fit together: got x: float64[5,4] cpu, indices: int64[2,3] cpu"),
    ("lstm", {"gx": (3, 2, 9)}, ShapeError,
     "lstm: expected gx [T, N, 4 H], h0 [N, H] and w_hh [4 H, H], got [3, 2, 9], [2, 2] and [8, 2]"),
    ("gru", {"gx": (3, 2, 7)}, ShapeError,
     "gru: expected gx [T, N, 3 H], h0 [N, H] and w_hh [3 H, H], got [3, 2, 7], [2, 2] and [6, 2]"),
    ("elman", {"gx": (3, 2, 5)}, ShapeError,
     "rnn: expected gx [T, N, 1 H], h0 [N, H] and w_hh [1 H, H], got [3, 2, 5], [2, 4] and [4, 4]"),
    ("philox_mask", {"state": (3,)}, ShapeError,
     "philox_mask: the arguments do not fit together: got state: int64[3] cpu, skip=2, shape=(3, 5)"),
    ("seeded_dropout", {"state": (3,)}, ShapeError,
     "seeded_dropout: the arguments do not fit together: got x: float64[3,4] cpu, state: int64[3] cpu"),
]
# fmt: on


def bad_call(name, changes):
    """The call of an op with its first sample's arguments, some of them replaced."""
    op = OPS[name]
    case = next(cases_of(op))
    arrays = dict(zip(op.tensors, case.arrays, strict=True))
    for argument, bad in changes.items():
        if argument not in arrays:
            case.statics[argument] = bad
        elif isinstance(bad, str):
            arrays[argument] = arrays[argument].astype(bad)
        else:
            arrays[argument] = np.ones(bad, arrays[argument].dtype)
    args, kwargs = case.arguments([None if a is None else tensor(a) for a in arrays.values()])
    return recorder(op)(*args, **kwargs)


@pytest.mark.parametrize("name, changes, error, message", ROWS, ids=[r[0] for r in ROWS])
def test_message(name, changes, error, message):
    with pytest.raises(error) as caught:
        bad_call(name, changes)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ORDERED)
def test_complex_numbers_have_no_order(name):
    message = f"{name}: complex numbers have no order, got complex128; take x.real, x.imag or x.abs()"
    with pytest.raises(DtypeError, match=f"^{re.escape(message)}$"):
        bad_call(name, {"x": "complex128"})


@pytest.mark.parametrize("name", REAL_ONLY)
def test_real_numbers_only(name):
    message = f"{name}: expected bools, integers or floating numbers, got complex128; take x.real or x.abs()"
    with pytest.raises(DtypeError, match=f"^{message}"):
        bad_call(name, {"x": "complex128"})


@pytest.mark.parametrize("name", FLOATING)
def test_floats_do_not_fit_integers(name):
    message = f"{name}_: a result of float32 cannot be stored in a tensor of int64; convert the tensor first"
    with pytest.raises(DtypeError, match=f"^{message}"):
        getattr(lucid, f"{name}_")(tensor([1, 2]))


def test_every_op_has_a_bad_call():
    files = Path(__file__).parent.glob("test_error_messages*.py")
    tables = "".join(file.read_text(encoding="utf-8") for file in files)
    tested = {n.split(".")[-1] for n in re.findall(r'^    \("([^"]+)"', tables, re.MULTILINE)}
    tested |= {n for n, op in POINTWISE.items() if len(op.tensors) > 1} | {*REAL, *INTEGERS}
    tested |= {n for n, op in OPS.items() if op.public and only_dim(op)}
    tested |= {*ORDERED, *REAL_ONLY, *FLOATING, *(r[0] for r in ROWS)}
    # split_3, unbind_4, ...: made at first use, like split_2 and unbind_3.
    made = {n for n in OPS if re.fullmatch(r"(split|unbind)_\d+", n)}
    ours = {n for n, op in OPS.items() if op.module.startswith("lucid.ops")}  # others are those of tests
    assert sorted(ours - made - tested - set(ANY)) == []
    assert sorted(tested & set(ANY)) == []


@pytest.mark.parametrize("name", ANY)
def test_any_shape_and_dtype_is_right(name):
    for dtype in ("bool", "int64", "float16", "float64", "complex128"):
        for shape in ((), (0,), (1, 2, 1, 2)):
            recorder(OPS[name])(*[lucid.ones(*shape, dtype=dtype)] * len(OPS[name].tensors))
