"""`squeeze_` and its like: the tensor itself gets another shape, with PyTorch's gradients and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import InplaceError, LucidError, SavedValueError

CHANGES = {
    "squeeze_": lambda t: t.squeeze_(),
    "squeeze_ dim": lambda t: t.squeeze_(0),
    "squeeze_ dims": lambda t: t.squeeze_((0, -1)),
    "unsqueeze_": lambda t: t.unsqueeze_(1),
    "unsqueeze_ last": lambda t: t.unsqueeze_(-1),
    "transpose_": lambda t: t.transpose_(0, 2),
    "swapaxes_": lambda t: t.swapaxes_(1, -1),
    "swapdims_": lambda t: t.swapdims_(1, 0),
    "as_strided_": lambda t: t.as_strided_((2, 2), (3, 1)),
    "t_": lambda t: t.squeeze_().t_(),
}


def base(device, requires_grad=False):
    return lucid.tensor(np.arange(6.0).reshape(1, 2, 3), device=device, requires_grad=requires_grad)


@pytest.mark.parametrize("name", CHANGES)
def test_values_memory_and_version(name, device):
    torch = pytest.importorskip("torch")
    x, t = base(device), torch.arange(6.0).double().reshape(1, 2, 3)
    pointer, alias = x.data_ptr(), x.detach()
    out = CHANGES[name](x)
    CHANGES[name](t)
    assert out is x and x.shape == tuple(t.shape) and x.stride() == t.stride()
    assert x.tolist() == t.tolist() and x.data_ptr() == pointer
    assert x._version == t._version and alias._version == x._version and alias.shape == (1, 2, 3)
    x.mul_(2)
    assert alias.flatten()[-1].item() == 2 * 5.0 if name != "as_strided_" else True


@pytest.mark.parametrize("name", CHANGES)
def test_gradients_flow_through_the_change(name, device):
    x = base(device, requires_grad=True)
    y = x * 2
    CHANGES[name](y)
    weight = lucid.arange(y.numel(), dtype=y.dtype, device=device).reshape(y.shape)
    (y * weight).sum().backward()
    expected = base(device)
    CHANGES[name](expected)
    seen = np.zeros((1, 2, 3))
    np.add.at(
        seen.reshape(-1), expected.cpu().numpy().astype(int).reshape(-1), 2 * weight.cpu().numpy().reshape(-1)
    )
    np.testing.assert_allclose(x.grad.cpu().numpy(), seen)


def test_a_view_made_before_follows_later_writes(device):
    x = base(device, requires_grad=True)
    y = x * 1
    v = y[0, 0]
    y.unsqueeze_(0)
    assert y.shape == (1, 1, 2, 3) and v.shape == (3,)
    v.mul_(2)
    y.add_(1)
    (y.sum() + v.sum()).backward()
    assert x.grad.tolist() == [[[4.0, 4.0, 4.0], [1.0, 1.0, 1.0]]]


def test_a_view_changed_in_shape_still_writes_to_its_base(device):
    x = base(device, requires_grad=True)
    y = x * 1
    v = y[0, 1]
    v.unsqueeze_(0).mul_(3)
    assert v.shape == (1, 3) and y[0, 1].tolist() == [9.0, 12.0, 15.0]
    y.sum().backward()
    assert x.grad.tolist() == [[[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]]


def test_leaves_and_their_views_are_refused(device):
    x = base(device, requires_grad=True)
    with pytest.raises(InplaceError, match="^transpose_: a leaf that requires grad"):
        x.transpose_(0, 1)
    with pytest.raises(InplaceError, match="^unsqueeze_: a view of a leaf that requires grad"):
        x[0].unsqueeze_(0)
    view = base(device)[0].requires_grad_()
    with pytest.raises(InplaceError, match="^unsqueeze_: a leaf that requires grad"):
        view.unsqueeze_(0)
    with pytest.raises(InplaceError, match="^mul_: a leaf that requires grad"):
        view.mul_(2)
    with lucid.no_grad():
        x.squeeze_()
    assert x.shape == (2, 3) and x.is_leaf
    (x * 2).sum().backward()
    assert x.grad.shape == (2, 3)


def test_a_saved_value_that_changed_shape_is_noticed(device):
    x = base(device, requires_grad=True)
    y = x * 1
    z = y * y
    y.squeeze_()
    with pytest.raises(SavedValueError, match="changed in place after the forward pass"):
        z.sum().backward()


def test_memory_that_is_shared_may_change_shape(device):
    x = lucid.ones(3, device=device).expand(2, 3)
    assert x.transpose_(0, 1).shape == (3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.unsqueeze_(5), "unsqueeze: dim must lie in"),
        (lambda x: x.squeeze_(5), "squeeze: dim must lie in"),
        (lambda x: x.transpose_(0, 5), "transpose: dim must lie in"),
        (lambda x: x.t_(), "t_: expected at most 2 dimensions, got shape (1, 2, 3)"),
        (lambda x: x.as_strided_((9, 9), (9, 9)), "as_strided: size (9, 9), stride (9, 9)"),
    ],
)
def test_errors_leave_the_tensor_as_it_was(call, message, device):
    x = base(device)
    with pytest.raises(LucidError) as caught:
        call(x)
    assert str(caught.value).startswith(message)
    assert x.shape == (1, 2, 3) and x._version == 0
