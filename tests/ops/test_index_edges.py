"""Edges of indexing, scattering and ordering: repeats, ranges, views, ties, errors."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, IndexRangeError, InplaceError, SavedValueError, ShapeError

INF, NAN = float("inf"), float("nan")


def leaf(values, dtype="float64"):
    return lucid.tensor(np.asarray(values, dtype), requires_grad=True)


def grad(function, *leaves, weights=None):
    """Gradients of sum(weights * function(*leaves))."""
    out = function(*leaves)
    total = (out * lucid.tensor(np.asarray(weights, "float64"))).sum() if weights is not None else out.sum()
    return [g.numpy() for g in lucid.autograd.grad(total, list(leaves))]


def numeric(function, x, weights=None, step=1e-6):
    """Central differences of sum(weights * function(x))."""
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            y = x.copy()
            y[i] += sign * step
            value = function(lucid.tensor(y)).numpy()
            ends.append((value * (1 if weights is None else weights)).sum())
        out[i] = (ends[0] - ends[1]) / (2 * step)
    return out


# ---- indexing ----

def test_repeated_positions_add_their_gradients():
    index = lucid.tensor([0, 2, 2, 2])
    for read in (lambda t: t[index], lambda t: t[[0, 2, 2, 2]], lambda t: t.index_select(0, index),
                 lambda t: t.take(index),
                 lambda t: t.gather(0, index), lambda t: lucid.take_along_dim(t, index, 0)):
        np.testing.assert_array_equal(grad(read, leaf([1.0, 2.0, 3.0]))[0], [1, 0, 3])
    x = leaf(np.zeros((3, 70)))    # rows wide enough for the sparse path of add_rows
    rows = np.tile([0, 1, 1, 2], 30)
    np.testing.assert_array_equal(grad(lambda t: t[lucid.tensor(rows)], x)[0],
                                  np.full((3, 70), [[30], [60], [30]]))


@pytest.mark.parametrize("call, text", [
    (lambda x, i: x[i], "getitem: index 3 is out of range for dim 0 of size 3; expected -3 <= index < 3"),
    (lambda x, i: x[:, i + 1], "getitem: index 4 is out of range for dim 1 of size 4"),
    (lambda x, i: x.index_select(0, i), "index_select: index 3 is out of range for dim 0 of size 3; expected "
                                        "0 <= index < 3"),
    (lambda x, i: x.index_select(0, i - 4), "index_select: index -1 is out of range"),
    (lambda x, i: x.gather(0, i.reshape(1, 1)), "gather: index 3 is out of range for dim 0 of size 3"),
    (lambda x, i: x.gather(1, i.reshape(1, 1) - 4), "gather: index -1 is out of range for dim 1 of size 4; "
                                                    "expected 0 <="),
    (lambda x, i: x.scatter(0, i.reshape(1, 1), 1.0), "scatter: index 3 is out of range"),
    (lambda x, i: x.scatter_add(0, i.reshape(1, 1), x), "scatter_add: index 3 is out of range"),
    (lambda x, i: x.scatter_reduce(0, i.reshape(1, 1), x, "amax"), "scatter_reduce: index 3 is out of range"),
    (lambda x, i: x.index_add(0, i, x[:1]), "index_add: index 3 is out of range"),
    (lambda x, i: x.index_copy(0, i, x[:1]), "index_copy: index 3 is out of range"),
    (lambda x, i: x.index_fill(0, i, 1.0), "index_fill: index 3 is out of range"),
    (lambda x, i: x.take(i + 9), "take: index 12 is out of range for dim 0 of size 12"),
    (lambda x, i: x.put(i + 9, x[0, :1]), "put: index 12 is out of range"),
    (lambda x, i: x[3], "getitem: index 3 is out of bounds for axis 0 with size 3"),
    (lambda x, i: x[0, 0, 0], "getitem: too many indices"),
    (lambda x, i: x[i, i, i], "getitem: too many indices: 3 for a tensor of shape"),
    (lambda x, i: x[lucid.tensor([True, False])], r"a mask of shape \(2,\) does not fit dimensions 0 to 0 of "
                                                  r"shape \(3, 4\)"),
    (lambda x, i: x.select(0, 3), "select: index 3 is out of range for dim 0 of size 3"),
    (lambda x, i: x.narrow(1, 2, 3), "narrow: start 2 and length 3 do not fit dim 1 of size 4"),
])
def test_positions_out_of_range_are_refused(call, text):
    with pytest.raises(IndexRangeError, match=text):
        call(lucid.tensor(np.arange(12.0).reshape(3, 4)), lucid.tensor([3]))


@pytest.mark.parametrize("call, error, text", [
    (lambda x: x[1.5], DtypeError, "getitem: expected integers, slices"),
    (lambda x: x[lucid.tensor([1.0])], DtypeError, "getitem: expected an index of integers or bools, got "
                                                   "float32"),
    (lambda x: x[lucid.tensor([1.0])], DtypeError, "use .long.. for positions, .bool.. for a "
                                                                   "mask"),
    (lambda x: x.gather(0, lucid.tensor([[0.5]])), DtypeError, "gather: expected an index of integers, got "
                                                               "float32"),
    (lambda x: x.gather(0, lucid.tensor([0])), ShapeError, r"gather: expected an index of 2 dimensions as x, "
                                                           r"got shape \(1,\)"),
    (lambda x: x.gather(0, lucid.zeros(1, 5).long()), ShapeError, "gather: expected an index no larger than "
                                                                  "x but for dim 0"),
    (lambda x: x.index_select(0, lucid.zeros(1, 1).long()), ShapeError, "index_select: expected an index of "
                                                                        "1 dimension"),
    (lambda x: x.index_add(0, lucid.tensor([0]), x), ShapeError, r"index_add: expected a source of shape "
                                                                 r"\(1, 4\)"),
    (lambda x: x.index_add(0, lucid.tensor([0]), x[:1].float()), DtypeError, "index_add: expected a source "
                                                                             "of x's dtype float64"),
    (lambda x: x.scatter(0, lucid.zeros(1, 1).long(), x.float()), DtypeError, "scatter: expected src of x's "
                                                                              "dtype"),
    (lambda x: x.masked_fill(x, 1.0), DtypeError, "masked_fill: expected a mask of bools, got float64; use "
                                                  ".bool"),
    (lambda x: x.masked_fill(x > 0, x), ShapeError, "masked_fill: expected a number or a 0-d tensor"),
    (lambda x: x.masked_scatter(x >= 0, x[0]), ShapeError, "masked_scatter: expected at least 12 elements in "
                                                           "source"),
    (lambda x: x.scatter_reduce(0, lucid.zeros(1, 1).long(), x, "max"), DtypeError, "reduce is one of sum, "
                                                                                    "mean"),
    (lambda x: x.__setitem__((slice(None), 0), x[0]), ShapeError, r"setitem: a value of shape \(4,\) cannot "
                                                                  "be broadcast"),
])
def test_wrong_index_kinds_and_shapes_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(lucid.tensor(np.arange(12.0).reshape(3, 4)))


INDICES = [1, -1, slice(1, None), slice(None, None, 2), slice(None, None, -1), (Ellipsis, 0),
           (0, slice(None), 2), None,
           (slice(None), None, 1), [0, 2], ([0, 2], [1, 1]), (slice(None), [[0], [3]]),
           ([0, 1], slice(None), [1, 0]),
           (0, [1, 2], slice(1)), np.array([True, False, True]), (slice(None), np.array([True, False, True,
               False])),
           np.arange(60).reshape(3, 4, 5) % 7 == 0, (np.eye(3, 4) > 0, [0, 1, 2]), True, False,
           (Ellipsis, [0, 0]),
           (slice(1, 1), 0), np.int64(2), range(2)]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_getitem_and_setitem_agree_with_numpy(index):
    x = np.random.default_rng(4).standard_normal((3, 4, 5))
    expected = x[index]
    for own in (index, lucid.tensor(index) if isinstance(index, np.ndarray) else index):
        np.testing.assert_array_equal(lucid.tensor(x)[own].numpy(), expected)
    weights = np.random.default_rng(5).standard_normal(expected.shape)
    scattered = np.zeros_like(x)
    np.add.at(scattered, index, weights)
    np.testing.assert_allclose(grad(lambda t: t[index], leaf(x), weights=weights)[0], scattered)
    written = x.copy()
    written[index] = 7.0
    target = lucid.tensor(x)
    target[index] = 7.0
    np.testing.assert_array_equal(target.numpy(), written)
    np.testing.assert_array_equal(grad(lambda t: _with_item(t * 1.0, index, 7.0), leaf(x))[0], written != 7.0)


def _with_item(x, index, value):
    x[index] = value
    return x


def test_an_integer_beside_index_arrays_selects_first_as_in_pytorch():
    # NumPy would move the index dimension to the front: (2, 4).
    assert lucid.zeros(3, 4, 5)[0, :, [1, 2]].shape == (4, 2)


def test_a_zero_dimensional_tensor_selects_like_a_number():
    x = lucid.tensor(np.arange(6.0).reshape(2, 3))
    assert np.shares_memory(x.numpy(), x[lucid.tensor(1)].numpy()) and x[lucid.tensor(1)].tolist() == [3, 4,
        5]


def test_setitem_records_through_views_and_overlap():
    x, v = leaf(np.zeros((2, 3))), leaf(np.ones(3))
    y = x * 2.0
    y[1] = v * 3.0
    y[0, lucid.tensor([0, 2])] = v[:2]
    gx, gv = lucid.autograd.grad(y.sum(), [x, v])
    np.testing.assert_array_equal(gx.numpy(), [[0, 2, 0], [0, 0, 0]])
    np.testing.assert_array_equal(gv.numpy(), [4, 4, 3])
    z = lucid.tensor([0, 1, 2, 3])
    z[1:] = z[:-1]
    assert z.tolist() == [0, 0, 1, 2]
    with pytest.raises(InplaceError, match="leaf that requires grad"):
        x[0] = 1.0


def test_setitem_on_a_view_made_without_grad_reaches_the_graph_of_its_owner():
    x = leaf([1.0, 2.0])
    y = x * 3.0
    with lucid.no_grad():
        view = y[:1]
    view[0] = 7.0
    assert y.tolist() == [7, 6]
    np.testing.assert_array_equal(lucid.autograd.grad(y.sum(), x)[0].numpy(), [0, 3])


def test_setitem_is_seen_by_the_version_check():
    x, factor = leaf([1.0, 2.0]), lucid.tensor([3.0, 4.0], dtype=lucid.float64)
    y = x * factor
    factor[0] = 5.0
    with pytest.raises(SavedValueError):
        y.sum().backward()


def test_as_strided_scatter_gives_no_gradient_to_what_it_overwrites():
    x = np.arange(6.0)
    function = lambda a, b: a.as_strided_scatter(b, (2, 2), (3, 1), 1)
    gx, gs = grad(function, leaf(x), leaf(np.ones((2, 2))), weights=x + 1)
    np.testing.assert_array_equal(gx, [1, 0, 0, 4, 0, 0])
    np.testing.assert_array_equal(gs, [[2, 3], [5, 6]])


def test_scatter_takes_a_number_a_zero_dimensional_tensor_or_a_reduction():
    x, at = lucid.zeros(1, 3), lucid.tensor([[0, 2]])
    assert x.scatter(1, at, 2.0).tolist() == x.scatter(1, at, lucid.tensor(2.0)).tolist() == [[2, 0, 2]]
    assert lucid.ones(1, 3).scatter(1, at, 3.0, reduce="multiply").tolist() == [[3, 1, 3]]
    assert lucid.ones(1, 3).scatter(1, at, value=3.0, reduce="add").tolist() == [[4, 1, 4]]
    with pytest.raises(DtypeError, match="expected src .a tensor. or value"):
        x.scatter(1, at)


def test_the_index_may_change_after_the_forward_pass():
    index = lucid.tensor([0, 1])
    x = leaf([1.0, 2.0, 3.0])
    y = x[index]
    index.fill_(2) if hasattr(index, "fill_") else index.mul_(0)
    np.testing.assert_array_equal(lucid.autograd.grad(y.sum(), x)[0].numpy(), [1, 1, 0])


def test_index_put_accumulates_repeats():
    x, v = leaf(np.zeros(3)), leaf([1.0, 2.0, 4.0])
    at = (lucid.tensor([0, 2, 2]),)
    assert x.index_put(at, v, accumulate=True).tolist() == [1, 0, 6]
    gx, gv = grad(lambda a, b: a.index_put(at, b, accumulate=True), x, v, weights=[1.0, 2.0, 3.0])
    np.testing.assert_array_equal(gx, [1, 2, 3])
    np.testing.assert_array_equal(gv, [1, 3, 3])
    y = lucid.zeros(2, 2)
    y.index_put_((lucid.tensor([0, 1]), lucid.tensor([1, 0])), lucid.tensor(5.0))
    assert y.tolist() == [[0, 5], [5, 0]]


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce_against_a_loop(reduce, include_self):
    rng = np.random.default_rng(6)
    x, src, index = rng.standard_normal((3, 4)), rng.standard_normal((3, 5)), rng.integers(0, 4, (3, 5))
    src[0, 0] = 0.0
    expected = x.copy()
    fold = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min}[reduce]
    for i, j in np.ndindex(3, 4):
        arrived = src[i][index[i] == j]
        if arrived.size:
            expected[i, j] = fold(np.append(arrived, x[i, j]) if include_self else arrived)

    def call(a, b):
        return a.scatter_reduce(1, lucid.tensor(index), b, reduce, include_self=include_self)
    np.testing.assert_allclose(call(lucid.tensor(x), lucid.tensor(src)).numpy(), expected)
    gx, gs = grad(call, leaf(x), leaf(src))
    np.testing.assert_allclose(gx, numeric(lambda t: call(t, lucid.tensor(src)), x), atol=1e-7)
    np.testing.assert_allclose(gs, numeric(lambda t: call(lucid.tensor(x), t), src), atol=1e-7)


def test_scatter_amax_shares_ties_between_x_and_src():
    x, src, index = leaf([2.0, 0.0]), leaf([2.0, 2.0]), lucid.tensor([0, 0])
    gx, gs = grad(lambda a, b: a.scatter_reduce(0, index, b, "amax"), x, src)
    np.testing.assert_allclose(gx, [1 / 3, 1])
    np.testing.assert_allclose(gs, [1 / 3, 1 / 3])
    gx, gs = grad(lambda a, b: a.scatter_reduce(0, index, b, "amax", include_self=False), x, src)
    np.testing.assert_allclose(gx, [0, 1])
    np.testing.assert_allclose(gs, [1 / 2, 1 / 2])


def test_in_place_forms_write_into_the_buffer_and_into_the_graph():
    x = leaf(np.arange(6.0).reshape(2, 3))
    mask, index = lucid.tensor([[True, False, False], [False, True, False]]), lucid.tensor([1])
    for change in (lambda t: t.masked_fill_(mask, 0.0), lambda t: t.index_fill_(1, index, 0.0),
                   lambda t: t.tril_(),
                   lambda t: t.scatter_(1, lucid.tensor([[0], [1]]), 0.0), lambda t: t.cumsum_(1),
                   lambda t: t.index_add_(0, lucid.tensor([0]), lucid.ones(1, 3, dtype=lucid.float64)),
                   lambda t: t.scatter_add_(1, lucid.tensor([[0], [1]]),
                                            lucid.ones(2, 1, dtype=lucid.float64))):
        y = x * 1.0
        address = y.data_ptr()
        out = change(y)
        assert out is y and y.data_ptr() == address and y._version > 0
        lucid.autograd.grad(y.sum(), x)
    with pytest.raises(InplaceError):
        x.masked_fill_(mask, 0.0)


def test_where_alone_and_nonzero_give_positions():
    x = lucid.tensor([[0, 1], [2, 0]])
    assert [i.tolist() for i in lucid.where(x > 0)] == [[0, 1], [1, 0]]
    assert x.nonzero().tolist() == x.argwhere().tolist() == [[0, 1], [1, 0]]
    assert lucid.tensor(3).nonzero().shape == (1, 0) and lucid.zeros(0, 2).nonzero().shape == (0, 2)


def test_masked_select_of_a_zero_dimensional_tensor():
    assert lucid.tensor(3.0).masked_select(lucid.tensor(True)).tolist() == [3]
    assert lucid.tensor(3.0).masked_select(lucid.tensor([True, False, True])).tolist() == [3, 3]


# ---- order ----

def test_sort_is_stable_both_ways_and_takes_nan_as_the_largest():
    x = lucid.tensor([2.0, NAN, 1.0, 2.0])
    assert x.argsort().tolist() == [2, 0, 3, 1] and x.argsort(descending=True).tolist() == [1, 0, 3, 2]
    assert x.topk(2).indices.tolist()[0] == 1 and x.topk(1, largest=False).values.tolist() == [1]
    assert lucid.sort(lucid.tensor([3, 1, 2])).values.tolist() == [1, 2, 3]
    with pytest.raises(DtypeError, match="complex numbers have no order"):
        lucid.sort(lucid.tensor([1j]))


def test_topk_by_partition_agrees_with_a_sort():
    x = np.random.default_rng(7).standard_normal((6, 40))
    for dim, largest in itertools.product((0, 1), (True, False)):
        k = 1 if dim == 0 else 4
        values, indices = lucid.tensor(x).topk(k, dim, largest)
        ordered = np.sort(x, dim)
        expected = np.flip(ordered, dim) if largest else ordered
        np.testing.assert_array_equal(values.numpy(), expected.take(range(k), dim))
        np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), dim), values.numpy())


def test_searching_agrees_with_numpy_also_in_batches():
    rng = np.random.default_rng(8)
    rows, values = np.sort(rng.integers(0, 9, (4, 7)), 1), rng.integers(-1, 10, (4, 5))
    for right in (False, True):
        got = lucid.searchsorted(lucid.tensor(rows), lucid.tensor(values), right=right).numpy()
        side = "right" if right else "left"
        np.testing.assert_array_equal(got, [np.searchsorted(r, v, side) for r,
                                            v in zip(rows, values, strict=True)])
        np.testing.assert_array_equal(lucid.bucketize(lucid.tensor(values), lucid.tensor(rows[0]),
                                                      right=right).numpy(),
                                      np.searchsorted(rows[0], values, side))
    order = np.array([2, 0, 1])
    assert lucid.searchsorted(lucid.tensor([2, 3, 1]), 2, sorter=lucid.tensor(order)).item() == 1
    assert lucid.isin(lucid.tensor([1, 2, 3]), lucid.tensor([3, 1])).tolist() == [True, False, True]
    assert lucid.bucketize(lucid.tensor([1.0]), lucid.tensor([1.0]), out_int32=True).dtype == lucid.int32


UINT8_MASKS = {
    "getitem": lambda lib, x, m: x[m],
    "getitem pair": lambda lib, x, m: lib.stack([x, x, x])[m, m],
    "getitem 0-d": lambda lib, x, m: x[m[0]],
    "setitem": lambda lib, x, m: (x.__setitem__(m, lib.zeros(2)), x)[1],
    "where": lambda lib, x, m: lib.where(m, x, -x),
}


@pytest.mark.parametrize("name", UINT8_MASKS)
def test_uint8_masks_are_taken_as_bool_with_a_warning(name, device):
    x, m = lucid.tensor([1.0, 2.0, 3.0]), lucid.tensor([1, 0, 1], dtype="uint8")
    with pytest.warns(UserWarning, match="a uint8 mask is taken as bool"):
        found = UINT8_MASKS[name](lucid, x.to(device), m.to(device))
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = UINT8_MASKS[name](
            torch, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 1], dtype=torch.uint8)
        )
    assert found.tolist() == expected.tolist()


def test_unsigned_numbers_of_numpy_are_positions(device):
    assert lucid.tensor([1.0, 2.0, 3.0], device=device)[np.uint8(1)].item() == 2.0


@pytest.mark.parametrize("name", ["masked_fill", "masked_select", "masked_scatter"])
def test_masked_functions_refuse_uint8(name, device):
    x, m = lucid.ones(3, device=device), lucid.tensor([1, 0, 1], dtype="uint8", device=device)
    args = {"masked_fill": (0.0,), "masked_select": (), "masked_scatter": (x,)}[name]
    with pytest.raises(DtypeError, match=f"^{name}: expected a mask of bools, got uint8; use .bool"):
        getattr(x, name)(m, *args)


def test_the_adjoint_of_an_embedding_checks_its_indices(device):
    from lucid.autograd.record import RECORDED

    for dtype, index in itertools.product(("float32", "float16", "complex64"), ((0, 7), (-1, 0))):
        g = lucid.ones(2, 3, dtype=dtype, device=device)
        with pytest.raises(IndexRangeError, match=r"embedding_backward: indices must lie in \[0, 3\]"):
            RECORDED.embedding_backward(g, lucid.tensor(index, device=device), 4).tolist()
        with pytest.raises(IndexRangeError, match=r"embedding_rows: indices must lie in \[0, 1\]"):
            RECORDED.embedding_rows(g, lucid.tensor(index, device=device), 2).tolist()


@pytest.mark.parametrize("last", (False, True))
def test_bags_that_start_beyond_the_indices(device, last):
    index, table = lucid.tensor([0, 1, 2], device=device), lucid.ones(4, 3, device=device)
    with pytest.raises(
        IndexRangeError, match=r"embedding_bag: offsets must lie in \[0, 3\] for 3 indices, got 9"
    ):
        lucid.nn.functional.embedding_bag(
            index, table, lucid.tensor([0, 9], device=device), mode="sum", include_last_offset=last
        )
