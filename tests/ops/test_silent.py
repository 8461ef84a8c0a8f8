"""NumPy's floating-point warnings: none, whatever its settings are, and those stay as they were."""

from __future__ import annotations

import itertools
import threading
import warnings

import numpy as np
import pytest

import lucid
from lucid.autograd.record import recorder
from lucid.errors import LucidError
from lucid.ops.registry import OPS
from lucid.storage import backend_of

EDGES = [0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-45, float("inf"), -float("inf"), float("nan")]
POINTWISE = sorted(n for n, op in OPS.items() if op.pointwise and not op.composite)
# Numbers that these take before or after their tensors.
STATICS = {"mvlgamma": ((), (2,)), "polygamma": ((1,), ()), "threshold": ((), (0.1, 2.0))}


@pytest.fixture(autouse=True)
def _all_errors_raise():
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_ops_are_silent(name):
    op = OPS[name]
    pairs = np.array(list(itertools.product(EDGES, repeat=2)), np.float32)
    values = [lucid.tensor(pairs[:, i % 2]) for i in range(len(op.tensors))]
    before, after = STATICS.get(name, ((), ()))
    try:
        recorder(op)(*before, *values, *after)
    except (LucidError, TypeError, NotImplementedError) as error:
        assert not isinstance(error.__cause__, (FloatingPointError, Warning)), error


def edges(*shape):
    n = int(np.prod(shape))
    return lucid.tensor(np.resize(np.array(EDGES, np.float32), n).reshape(shape))


CALLS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "mean of nothing": lambda x: lucid.ones(0).mean(),
    "var of one": lambda x: lucid.ones(1).var(),
    "std": lambda x: x.std(1),
    "prod": lambda x: x.prod(),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "norm": lambda x: x.norm(),
    "matmul": lambda x: x @ x.T,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "cross_entropy": lambda x: lucid.nn.functional.cross_entropy(x, lucid.zeros(10, dtype=lucid.int64)),
    "layer_norm": lambda x: lucid.nn.functional.layer_norm(x, (10,)),
    "to float16": lambda x: x.to(lucid.float16),
    "to int64": lambda x: x.to(lucid.int64),
    "to bfloat16": lambda x: x.to(lucid.bfloat16),
    "setitem": lambda x: lucid.ones(2, dtype=lucid.float16).__setitem__(0, 1e30),
    "setitem of a tensor": lambda x: lucid.ones(10, dtype=lucid.float16).__setitem__(slice(None), x[0]),
    "add_": lambda x: lucid.ones(10, 10, dtype=lucid.float16).add_(x),
    "fill_": lambda x: lucid.ones(10, dtype=lucid.float16).fill_(1e30),
    "full": lambda x: lucid.full((3,), 1e300),
    "full_like": lambda x: lucid.full_like(x, 1e300),
    "tensor": lambda x: lucid.tensor([1e300, float("nan")]),
    "new_tensor": lambda x: lucid.tensor(np.array([1e300]), dtype=lucid.float16),
    "number operand": lambda x: x * 1e300,
    "logspace": lambda x: lucid.logspace(0, 400, 5),
    "linspace": lambda x: lucid.linspace(-1e39, 1e39, 5),
    "pow": lambda x: 2.0**x,
    "remainder": lambda x: x % 0.0,
    "floor_divide": lambda x: x // 0.0,
    "integer division": lambda x: lucid.tensor([1, 2]) / lucid.tensor([0, 0]),
    "nanmean": lambda x: (x * float("nan")).nanmean(),
    "nanmedian": lambda x: x.nanmedian(),
    "median": lambda x: x.median(),
    "quantile": lambda x: x.quantile(0.3),
    "histc": lambda x: lucid.histc(lucid.tensor([1.0, 2.0])),
    "sort": lambda x: x.sort(1),
    "max": lambda x: x.max(),
    "unique": lambda x: x.unique(),
    "isclose": lambda x: lucid.isclose(x, x),
    "allclose": lambda x: lucid.allclose(x, x),
    "corrcoef": lambda x: lucid.corrcoef(lucid.ones(2, 3)),
    "cov": lambda x: lucid.cov(lucid.ones(1)),
    "cdist": lambda x: lucid.cdist(x, x),
    "fft": lambda x: lucid.fft.fft(x),
    "normalize": lambda x: lucid.nn.functional.normalize(x),
    "interpolate": lambda x: lucid.nn.functional.interpolate(x[None, None], (4, 4), mode="bilinear"),
    "avg_pool2d": lambda x: lucid.nn.functional.avg_pool2d(x[None, None], 2),
    "conv2d": lambda x: lucid.nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
    "det": lambda x: lucid.zeros(3, 3).logdet(),
    "repr": lambda x: repr(x),
    "repr of empty": lambda x: repr(lucid.ones(0)),
    "multinomial": lambda x: lucid.multinomial(lucid.tensor([1e-30, 1.0]), 1),
    "clip_grad_norm_": lambda x: lucid.nn.utils.clip_grad_norm_([lucid.ones(2, requires_grad=True)], 1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_silent(name):
    CALLS[name](edges(10, 10))


def test_the_settings_of_numpy_stay_as_they_were():
    before = np.geterr()
    lucid.tensor([0.0]).log()
    assert np.geterr() == before
    with pytest.raises(FloatingPointError):
        np.log(np.zeros(1))


def test_threads_do_not_get_in_each_others_way():
    # Arrays large enough for NumPy to release the interpreter's lock inside the op.
    x, failures = lucid.ones(200_000), []

    def work():
        try:
            for _ in range(100):
                assert bool(((x - 1).log() == -float("inf")).all())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_op_inside_another_ops_forward_runs():
    cpu = backend_of("cpu")
    out = cpu.run(lambda: lucid.tensor([0.0]).log())
    assert out.item() == -float("inf")
    assert cpu.quietly(cpu.quietly, np.log, np.zeros(1))[0] == -np.inf
    with pytest.raises(RuntimeError, match="of its own"):
        cpu.quietly(lambda: (_ for _ in ()).throw(RuntimeError("of its own")))
