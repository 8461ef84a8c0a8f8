"""Everyday code, run by both libraries in float32: the same values, dtypes and gradients as PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import lucid

torch = pytest.importorskip("torch")


def data(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype("float32") for s in shapes]


def dtype_name(x):
    return str(x.dtype).removeprefix("torch.")


def flat(out):
    return [t for part in out for t in flat(part)] if isinstance(out, (tuple, list)) else [out]


def run(lib, call, arrays):
    """Outputs and gradients of `call(lib, *leaves)`, as NumPy arrays and dtype names."""
    leaves = [lib.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    outs = flat(call(lib, *leaves))
    graph = [o for o in outs if o.requires_grad]
    if graph:
        loss = sum((o * lib.arange(1, o.numel() + 1).reshape(o.shape) / o.numel()).sum() for o in graph)
        loss.backward()
    grads = [None if x.grad is None else x.grad.numpy() for x in leaves]
    return [(dtype_name(o), o.detach().numpy()) for o in outs], grads


def compare(call, arrays, rtol=2e-5):
    (ours, our_grads), (theirs, their_grads) = (run(lib, call, arrays) for lib in (lucid, torch))
    assert [d for d, _ in ours] == [d for d, _ in theirs]
    for (_, a), (_, b) in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
    for a, b in zip(our_grads, their_grads, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype == np.float32
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)


def F(lib):
    return lib.nn.functional


# name: call, shapes of the leaves
CALLS = {
    "mixed numbers": (lambda lib, x: 2 * x + 1 - x / 3 + x**2 - 0.5**x, [(2, 3)]),
    "broadcast row and column": (lambda lib, x, y: x * y - y / (x * x + 1), [(3, 1), (4,)]),
    "int64 meets float32": (lambda lib, x: x * lib.arange(3) + lib.arange(3) / 2, [(2, 3)]),
    "0-d float64 meets float32": (lambda lib, x: x * lib.tensor(2.0, dtype=lib.float64), [(3,)]),
    "int division": (lambda lib, x: (lib.arange(5) / 2, lib.arange(5) // 2, -lib.arange(5) % 3, x), [(1,)]),
    "int sums and means": (lambda lib, x: (lib.arange(5).sum(), (lib.arange(5) > 2).sum(), x), [(1,)]),
    "float16 and float32": (lambda lib, x: x.half() + x, [(3,)]),
    "comparison times value": (lambda lib, x: (x > 0) * x, [(3, 3)]),
    "relu by where": (lambda lib, x: lib.where(x > 0, x, 0.1 * x), [(3, 3)]),
    "clamp": (lambda lib, x: x.clamp(-0.5, 0.5) + x.clamp(min=0), [(4, 4)]),
    "maximum and minimum": (lambda lib, x, y: (lib.maximum(x, y), lib.minimum(x, y)), [(3, 3), (3, 3)]),
    "sqrt exp log": (lambda lib, x: ((x * x + 1).sqrt(), x.exp().log1p()), [(3,)]),
    "trigonometry": (lambda lib, x: lib.sin(x) * lib.cos(x) + lib.atan2(x, lib.ones_like(x)), [(3,)]),
    "matmul vectors": (lambda lib, x, y: x @ y, [(3,), (3,)]),
    "matmul batch": (lambda lib, x, y: x @ y, [(2, 3, 4), (4, 5)]),
    "matmul broadcast": (lambda lib, x, y: lib.matmul(x, y), [(2, 1, 3, 4), (5, 4, 2)]),
    "einsum": (lambda lib, x, y: lib.einsum("bij,bkj->bik", x, y), [(2, 3, 4), (2, 5, 4)]),
    "bmm and transpose": (lambda lib, x: x.bmm(x.transpose(1, 2)), [(2, 3, 4)]),
    "addmm": (lambda lib, b, x, y: lib.addmm(b, x, y, beta=0.5, alpha=2), [(2,), (3, 4), (4, 2)]),
    "outer and dot": (lambda lib, x, y: (lib.outer(x, y), x[:2].dot(y[:2])), [(3,), (4,)]),
    "sum over dims": (lambda lib, x: (x.sum(), x.sum(0), x.sum((0, 2), keepdim=True)), [(2, 3, 4)]),
    "mean std var": (lambda lib, x: (x.mean(-1), x.std(0), x.var(1, unbiased=False)), [(3, 4)]),
    "max with indices": (lambda lib, x: x.max(1), [(3, 4)]),
    "max and min of all": (lambda lib, x: (x.max(), x.min()), [(3, 4)]),
    "amax of several": (lambda lib, x: x.amax((0, 2)), [(2, 3, 4)]),
    "prod and cumsum": (lambda lib, x: (x.prod(1), x.cumsum(0)), [(3, 4)]),
    "logsumexp": (lambda lib, x: x.logsumexp(1, keepdim=True), [(3, 4)]),
    "norms": (lambda lib, x: (x.norm(), x.norm(dim=1), lib.linalg.norm(x, 1, dim=0)), [(3, 4)]),
    "argmax and one_hot": (lambda lib, x: F(lib).one_hot(x.argmax(1), 4) * x, [(3, 4)]),
    "sort and topk": (lambda lib, x: (x.sort(1, descending=True), x.topk(2, 0)), [(3, 4)]),
    "median": (lambda lib, x: (x.median(), x.median(1)), [(3, 5)]),
    "reshape view permute": (lambda lib, x: x.view(2, -1).permute(1, 0).reshape(3, 4).flatten(), [(3, 4)]),
    "squeeze and unsqueeze": (lambda lib, x: x.unsqueeze(1).squeeze().unsqueeze(-1) * 2, [(3, 4)]),
    "expand and repeat": (lambda lib, x: (x.expand(3, 4), x.repeat(2, 1)), [(1, 4)]),
    "cat stack split": (
        lambda lib, x: (lib.cat([x, x * 2], 1), lib.stack([x, x])[1], x.split(2, 1)),
        [(3, 4)],
    ),
    "chunk and unbind": (lambda lib, x: (x.chunk(2, 1), x.unbind(0)), [(3, 4)]),
    "flip roll tril": (lambda lib, x: x.flip(0) + x.roll(1, 1) + x.tril(), [(4, 4)]),
    "basic indexing": (lambda lib, x: (x[0], x[:, 1], x[..., -1], x[None, 1:, ::2]), [(3, 4)]),
    "index by tensors": (lambda lib, x: x[lib.tensor([0, 2, 0]), lib.tensor([1, 1, 1])], [(3, 4)]),
    "index by list and mask": (lambda lib, x: (x[[0, 0, 2]], x[x > 0]), [(3, 4)]),
    "gather": (lambda lib, x: x.gather(1, lib.tensor([[0, 0], [1, 2], [3, 3]])), [(3, 4)]),
    "scatter_add": (lambda lib, x: lib.zeros(3, 4).scatter_add(0, lib.tensor([[0, 1, 0, 2]]), x), [(1, 4)]),
    "index_select and take": (
        lambda lib, x: (x.index_select(0, lib.tensor([1, 1])), x.take(lib.tensor([5, 0]))),
        [(3, 4)],
    ),
    "masked_fill and softmax": (
        lambda lib, x: x.masked_fill(lib.ones(4, 4, dtype=lib.bool).triu(1), float("-inf")).softmax(-1),
        [(4, 4)],
    ),
    "pad": (
        lambda lib, x: (F(lib).pad(x, (1, 2), value=3.0), F(lib).pad(x[None], (1, 1), mode="reflect")),
        [(2, 4)],
    ),
    "activations": (
        lambda lib, x: [
            getattr(F(lib), n)(x) for n in ("relu", "gelu", "silu", "elu", "softplus", "leaky_relu")
        ],
        [(3, 4)],
    ),
    "softmaxes": (lambda lib, x: (x.softmax(0), x.log_softmax(-1), F(lib).softmin(x, dim=1)), [(3, 4)]),
    "linear": (lambda lib, x, w, b: F(lib).linear(x, w, b), [(2, 3, 4), (5, 4), (5,)]),
    "conv2d": (
        lambda lib, x, w, b: F(lib).conv2d(x, w, b, stride=2, padding=1),
        [(2, 3, 6, 6), (4, 3, 3, 3), (4,)],
    ),
    "pooling": (lambda lib, x: (F(lib).max_pool2d(x, 2), F(lib).avg_pool2d(x, 3, 1)), [(1, 2, 6, 6)]),
    "layer_norm": (lambda lib, x, w, b: F(lib).layer_norm(x, (4,), w, b), [(2, 3, 4), (4,), (4,)]),
    "batch_norm": (
        lambda lib, x, w, b: F(lib).batch_norm(x, None, None, w, b, training=True),
        [(5, 3), (3,), (3,)],
    ),
    "attention": (
        lambda lib, q, k, v: F(lib).scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 5, 8), (2, 5, 8), (2, 5, 8)],
    ),
    "interpolate": (
        lambda lib, x: F(lib).interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
        [(1, 2, 3, 3)],
    ),
    "embedding": (lambda lib, w: F(lib).embedding(lib.tensor([[0, 2], [2, 2]]), w), [(3, 4)]),
    "cross_entropy": (
        lambda lib, x: F(lib).cross_entropy(x, lib.tensor([0, 3, 1]), label_smoothing=0.1),
        [(3, 4)],
    ),
    "mse and smooth l1": (
        lambda lib, x, y: (F(lib).mse_loss(x, y), F(lib).smooth_l1_loss(x, y)),
        [(3, 4), (3, 4)],
    ),
    "bce with logits": (
        lambda lib, x: F(lib).binary_cross_entropy_with_logits(x, lib.ones_like(x), reduction="sum"),
        [(3, 4)],
    ),
    "solve and det": (lambda lib, x, y: (lib.linalg.solve(x, y), lib.linalg.det(x)), [(3, 3), (3, 2)]),
    "inverse of a Gram matrix": (lambda lib, x: lib.linalg.inv(x @ x.mT + lib.eye(3)), [(3, 5)]),
    "singular values": (lambda lib, x: lib.linalg.svdvals(x), [(3, 5)]),
    "detach stops": (lambda lib, x: x * x.detach(), [(3,)]),
    "cast there and back": (lambda lib, x: x.double().sin().float(), [(3,)]),
    # ---- in place, on non-leaves and their views ----
    "add_ mul_": (lambda lib, x: (x * 1).add_(2).mul_(x), [(3,)]),
    "operators in place": (lambda lib, x: _operators(x), [(3,)]),
    "relu_ and clamp_": (lambda lib, x: ((x * 2).relu_() * 1).clamp_(max=1.0), [(4, 4)]),
    "masked_fill_": (lambda lib, x: _methods(x * 2, lambda h: h.masked_fill_(h > 0, 0.0)), [(3, 4)]),
    "write to a row": (lambda lib, x, y: _set(x * 1, 0, y), [(3, 4), (4,)]),
    "write to a strided part": (
        lambda lib, x, y: _set(x * 1, (slice(None), slice(None, None, 2)), y),
        [(3, 4), (3, 2)],
    ),
    "write by a mask": (lambda lib, x: _methods(x * 1, lambda h: h.__setitem__(h < 0, 0.0)), [(3, 4)]),
    "write by indices": (lambda lib, x, y: _set(x * 1, lib.tensor([2, 0]), y), [(3, 4), (2, 4)]),
    "view in place changes the base": (
        lambda lib, x: _methods(x * 1, lambda h: h.view(-1)[2:5].mul_(3)),
        [(2, 4)],
    ),
    "base in place changes the view": (lambda lib, x: _base_then_view(x), [(2, 4)]),
    "transpose in place": (lambda lib, x, y: _methods(x * 1, lambda h: h.t()[0].add_(y)), [(3, 4), (3,)]),
    "copy_ to a part": (lambda lib, x, y: _methods(x * 1, lambda h: h[1].copy_(y)), [(3, 4), (4,)]),
    "index_add_": (lambda lib, x, y: (x * 1).index_add_(0, lib.tensor([0, 0]), y), [(3, 4), (2, 4)]),
    "zero_ cuts the gradient": (lambda lib, x: _methods(x * 1, lambda h: h[0].zero_()), [(3, 4)]),
    "fill_ by a number": (lambda lib, x: _methods(x * 1, lambda h: h[:, 1].fill_(7.0)), [(3, 4)]),
    "chain of views": (
        lambda lib, x: _methods(x * 1, lambda h: h.permute(1, 0)[1:].unsqueeze(0).mul_(2)),
        [(3, 4)],
    ),
}


def _operators(x):
    h = x * 1
    h += x
    h *= 3
    h -= 1
    h /= 2
    return h


def _methods(h, write):
    write(h)
    return h


def _set(h, index, value):
    h[index] = value
    return h


def _base_then_view(x):
    h = x * 1
    row = h[0]
    h.mul_(2)
    return row * h[1], h


@pytest.mark.parametrize("name", CALLS)
def test_same_as_torch(name):
    call, shapes = CALLS[name]
    compare(call, data(*shapes))


# Both raise, and lucid's error is one that a handler for PyTorch's catches.
REFUSED = {
    "in place on a leaf": lambda lib: lib.ones(2, requires_grad=True).add_(1),
    "in place on a leaf's view": lambda lib: lib.ones(2, requires_grad=True)[0].mul_(2),
    "in place on expanded memory": lambda lib: lib.ones(1).expand(3).add_(1),
    "in place growth": lambda lib: lib.ones(1).add_(lib.ones(3)),
    "float result in an int tensor": lambda lib: lib.arange(3).mul_(1.5),
    "saved value changed": lambda lib: _saved(lib),
    "second backward": lambda lib: _twice(lib),
    "backward of a vector": lambda lib: (lib.ones(2, requires_grad=True) * 2).backward(),
    "grad for integers": lambda lib: lib.tensor([1], requires_grad=True),
    "numpy of a graph tensor": lambda lib: lib.ones(2, requires_grad=True).numpy(),
    "view of a transpose": lambda lib: lib.ones(2, 3).t().view(6),
    "shapes": lambda lib: lib.ones(2, 3) + lib.ones(4),
    "matmul shapes": lambda lib: lib.ones(2, 3) @ lib.ones(2, 3),
    "item of many": lambda lib: lib.ones(2).item(),
}


def _saved(lib):
    h = lib.ones(2, requires_grad=True) * 2
    y = (h * h).sum()
    h.add_(1)
    y.backward()


def _twice(lib):
    x = lib.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_both(name):
    with pytest.raises(RuntimeError):
        REFUSED[name](torch)
    with pytest.raises(RuntimeError):
        REFUSED[name](lucid)


def test_a_training_step_of_two_layers():
    """Ten steps of SGD with momentum on the same numbers end at the same weights."""
    x, y, w1, b1, w2 = data((16, 4), (16, 1), (8, 4), (8,), (1, 8))

    def train(lib):
        leaves = [lib.tensor(a, requires_grad=True) for a in (w1, b1, w2)]
        step = lib.optim.SGD(leaves, lr=0.05, momentum=0.9)
        for _ in range(10):
            step.zero_grad()
            h = F(lib).linear(lib.tensor(x), leaves[0], leaves[1]).tanh()
            F(lib).mse_loss(h @ leaves[2].T, lib.tensor(y)).backward()
            step.step()
        return [p.detach().numpy() for p in leaves]

    for ours, theirs in zip(train(lucid), train(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
