"""What a type checker knows about code that uses lucid: mypy reads this file, pytest runs it."""

from typing import TYPE_CHECKING, assert_type

import numpy as np

import lucid
import lucid.nn.functional as F
from lucid import Tensor, nn


def test_functions_and_methods_return_tensors() -> None:
    x = lucid.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert_type(x, Tensor)
    assert_type(lucid.tanh(x), Tensor)
    assert_type(x.tanh(), Tensor)
    assert_type(lucid.matmul(x, x).relu().sum(dim=0, keepdim=True), Tensor)
    assert_type(x.sum(axis=1), Tensor)
    assert_type(lucid.amax(x, axis=0, keepdims=True), Tensor)
    assert_type(lucid.linalg.inv(x), Tensor)
    assert_type(lucid.special.erf(x), Tensor)
    assert_type(F.softmax(x, dim=1), Tensor)
    assert_type(x.T.reshape(4).float(), Tensor)
    assert_type(x.detach().clone().add_(1.0), Tensor)


def test_operators_take_numbers_and_arrays() -> None:
    x = lucid.tensor([1.0, 2.0])
    assert_type(x + 1, Tensor)
    assert_type(1 - x, Tensor)
    assert_type(2.0 * x / np.ones(2), Tensor)
    assert_type(-x @ x, Tensor)
    assert_type(x**2, Tensor)
    assert_type(x == 1.0, Tensor)
    assert_type((x > 1) & ~(x < 0), Tensor)
    assert_type(x[0], Tensor)


def test_attributes() -> None:
    x = lucid.zeros(2, 3, dtype=lucid.float64)
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.device, lucid.device)
    assert_type(x.numel(), int)
    assert_type(x.is_cuda, bool)


def test_modules() -> None:
    layer = nn.Linear(2, 3)
    assert_type(layer.weight, nn.Parameter)
    optimizer = lucid.optim.SGD(layer.parameters(), lr=0.1)
    loss = F.mse_loss(layer(lucid.ones(1, 2)), lucid.zeros(1, 3))
    loss.backward()
    optimizer.step()


if TYPE_CHECKING:
    # Each line is an error that mypy must find: an unused `type: ignore` is one itself.
    lucid.tanh("x")  # type: ignore[arg-type]
    lucid.no_such_function(1)  # type: ignore[attr-defined]
    lucid.zeros(2).no_such_method()  # type: ignore[attr-defined]
    lucid.unsqueeze(lucid.zeros(2), dim="0")  # type: ignore[arg-type]
    lucid.zeros(2).tanh(1)  # type: ignore[call-arg, arg-type]
