"""autocast: dtypes by the table, as PyTorch's; the cache; nesting, exceptions, threads."""

import threading
from functools import partial

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.amp import GradScaler, autocast, custom_bwd, custom_fwd, is_autocast_enabled
from lucid.amp.policy import BY_DEVICE, table
from lucid.autograd.mode import mode
from lucid.errors import DtypeError
from lucid.ops.registry import OPS

BF16 = lucid.bfloat16
RULES = {"low", "full", "promote", "own", None}


def test_every_rule_is_known_and_names_an_op():
    for op in OPS.values():
        assert op.amp in {"low", "full", "promote", None}, op
    for device_type, rules in BY_DEVICE.items():
        assert set(rules) <= set(OPS) and set(rules.values()) <= RULES
        assert set(table(device_type).values()) <= RULES


# PyTorch's autocast op reference, as far as the names are single ops here.
CUDA_LOW = """matmul addbmm addmm addmv addr baddbmm bmm linear mm mv prelu convolution conv_transpose
    attention lstm gru"""
CUDA_FULL = """pow acos asin cosh cumprod cumsum erfinv exp expm1 layer_norm log log10 log_softmax log1p log2
    mse_loss nll_loss p_norm prod reciprocal rms_norm rsqrt sinh smooth_l1_loss softmax softplus sum tan
    binary_cross_entropy_with_logits cross_entropy"""


def test_cuda_table_is_pytorchs():
    rules = table("cuda")
    assert {name: rules.get(name) for name in CUDA_LOW.split()} == dict.fromkeys(CUDA_LOW.split(), "low")
    assert {name: rules.get(name) for name in CUDA_FULL.split()} == dict.fromkeys(CUDA_FULL.split(), "full")
    assert all(OPS[name].dtype == "promote" for name in ("add", "addcmul", "addcdiv", "cat", "stack"))
    assert not {"relu", "gelu", "tanh", "sigmoid", "max_pool", "embedding", "dropout", "reshape"} & set(rules)


# name -> the call, from a namespace, a float32 x [4, 4] and the same numbers in bfloat16
CALLS = {
    "pow": lambda t, F, x: x**2.5,
    "exp": lambda t, F, x: t.exp(x),
    "sum": lambda t, F, x: t.sum(x),
    "mean": lambda t, F, x: x.mean(0),
    "log": lambda t, F, x: t.log(x),
    "rsqrt": lambda t, F, x: t.rsqrt(x),
    "softplus": lambda t, F, x: F.softplus(x),
    "prod": lambda t, F, x: t.prod(x),
    "var": lambda t, F, x: t.var(x),
    "norm": lambda t, F, x: t.norm(x),
    "cumsum": lambda t, F, x: t.cumsum(x, 0),
    "softmax": lambda t, F, x: t.softmax(x, 0),
    "log_softmax": lambda t, F, x: t.log_softmax(x, 0),
    "logsumexp": lambda t, F, x: t.logsumexp(x, 0),
    "layer_norm": lambda t, F, x: F.layer_norm(x, (4,), t.ones(4), t.ones(4)),
    "batch_norm": lambda t, F, x: F.batch_norm(x, t.zeros(4), t.ones(4), t.ones(4), t.ones(4), True),
    "batch_norm_eval": lambda t, F, x: F.batch_norm(x, t.zeros(4), t.ones(4), t.ones(4), t.ones(4)),
    "cross_entropy": lambda t, F, x: F.cross_entropy(x, t.tensor([0, 1, 2, 3])),
    "nll_loss": lambda t, F, x: F.nll_loss(x, t.tensor([0, 1, 2, 3])),
    "mse_loss": lambda t, F, x: F.mse_loss(x, x),
    "smooth_l1_loss": lambda t, F, x: F.smooth_l1_loss(x, x),
    "huber_loss": lambda t, F, x: F.huber_loss(x, x),
    "bce": lambda t, F, x: F.binary_cross_entropy(x * 0 + 0.5, x * 0 + 0.5),
    "bce_logits": lambda t, F, x: F.binary_cross_entropy_with_logits(x, x),
    "relu": lambda t, F, x: F.relu(x),
    "gelu": lambda t, F, x: F.gelu(x),
    "silu": lambda t, F, x: F.silu(x),
    "tanh": lambda t, F, x: t.tanh(x),
    "sigmoid": lambda t, F, x: t.sigmoid(x),
    "matmul": lambda t, F, x: x @ t.ones(4, 4),
    "mm": lambda t, F, x: t.mm(x, x),
    "bmm": lambda t, F, x: t.bmm(x[None], x[None]),
    "einsum": lambda t, F, x: t.einsum("ij,jk->ik", x, x),
    "einsum_sum": lambda t, F, x: t.einsum("ij->j", x),
    "einsum_mul": lambda t, F, x: t.einsum("ij,ij->ij", x, x),
    "mv": lambda t, F, x: t.mv(x, t.ones(4)),
    "addmm": lambda t, F, x: t.addmm(t.ones(4, 4), x, x),
    "addmv": lambda t, F, x: t.addmv(t.ones(4), x, x[0]),
    "addbmm": lambda t, F, x: t.addbmm(t.ones(4, 4), x[None], x[None]),
    "baddbmm": lambda t, F, x: t.baddbmm(t.ones(1, 4, 4), x[None], x[None]),
    "addr": lambda t, F, x: t.addr(t.ones(4, 4), x[0], x[1]),
    "inner": lambda t, F, x: t.inner(x, t.ones(3, 4)),
    "tensordot": lambda t, F, x: t.tensordot(x, t.ones(4, 3), 1),
    "bilinear": lambda t, F, x: F.bilinear(x, x, t.ones(3, 4, 4), t.ones(3)),
    "chain": lambda t, F, x: t.linalg.multi_dot([x, x, t.ones(4, 4)]),
    "prelu": lambda t, F, x: F.prelu(x, t.ones(4)),
    "linear": lambda t, F, x: F.linear(x, t.ones(3, 4), t.ones(3)),
    "conv1d": lambda t, F, x: F.conv1d(x[None], t.ones(2, 4, 1), t.ones(2)),
    "conv2d": lambda t, F, x: F.conv2d(x[None, None], t.ones(2, 1, 3, 3)),
    "conv_transpose1d": lambda t, F, x: F.conv_transpose1d(x[None], t.ones(4, 2, 1)),
    "attention": lambda t, F, x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "outer": lambda t, F, x: t.outer(x[0], x[0]),
    "add": lambda t, F, x: x + t.ones(4, 4),
    "mul_number": lambda t, F, x: x * 2.0,
    "cat": lambda t, F, x: t.cat([x, t.ones(1, 4)]),
    "stack": lambda t, F, x: t.stack([x, x]),
    "max_pool1d": lambda t, F, x: F.max_pool1d(x[None], 2),
    "avg_pool1d": lambda t, F, x: F.avg_pool1d(x[None], 2),
    "dropout": lambda t, F, x: F.dropout(x, 0.5),
    "embedding": lambda t, F, x: F.embedding(t.tensor([1]), t.ones(3, 2)),
    "masked_fill": lambda t, F, x: x.masked_fill(x > 1, float("-inf")),
    "transpose": lambda t, F, x: x.T.reshape(-1)[2:],
}


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_are_pytorchs_on_the_cpu(name):
    torch = pytest.importorskip("torch")
    data = np.linspace(0.1, 2, 16, dtype="float32").reshape(4, 4)
    found = {}
    for key, lib in (("torch", torch), ("lucid", lucid)):
        F = lib.nn.functional
        x = lib.tensor(data)
        with lib.amp.autocast("cpu", dtype=lib.bfloat16):
            found[key] = [
                dtype_of(lambda v=v: CALLS[name](lib, F, v))  # noqa: B023  (called at once)
                for v in (x, x.bfloat16(), x.double() if name in ("exp", "relu", "softmax") else x)
            ]
    # Where PyTorch refuses two dtypes there is nothing to compare with.
    for ours, theirs in zip(found["lucid"], found["torch"], strict=True):
        assert ours == theirs or theirs == "refused", found
    assert found["torch"][0] != "refused"


def dtype_of(call):
    """The name of the result's dtype; "refused" for a RuntimeError."""
    try:
        return str(call().dtype).rpartition(".")[2]
    except RuntimeError:
        return "refused"


def test_a_composite_op_runs_as_one(device):
    """Its inputs are cast; within it nothing is."""
    x = lucid.ones(3, 3, device=device, requires_grad=True)
    bias = lucid.full((3,), 1 / 3, device=device)
    with lucid.amp.autocast(device, dtype=lucid.bfloat16):
        y = lucid.addmm(bias, x, x)
        z = lucid.einsum("ij,jk->ik", x, x)
    # Without a rule for addmm itself the bias would be added in float32.
    assert y.dtype == z.dtype == lucid.bfloat16
    assert y[0, 0].item() == float(np.float32(3 + 1 / 3).astype(lucid.bfloat16))
    y.sum().backward()
    assert x.grad.dtype == lucid.float32
    with lucid.profiler.profile() as prof, lucid.amp.autocast(device, dtype=lucid.bfloat16):
        lucid.addmm(bias, x, x)
    # The profiler sees what it is made of; outside of autocast it is what it was.
    assert {"matmul", "add"} <= {r.key for r in prof.key_averages()}
    assert lucid.addmm(bias, x, x).dtype == lucid.float32


def attention_block(lib, x, wq, wk, wv, wo, note):
    """A small transformer block; note(tensor) sees every step."""
    F = lib.nn.functional
    h = note(F.layer_norm(x, (x.shape[-1],)))
    q, k, v = (note(F.linear(h, w)) for w in (wq, wk, wv))
    scores = note(note(q @ k.transpose(-2, -1)) * 0.3)
    weights = note(F.softmax(note(scores.masked_fill(scores > 9, float("-inf"))), dim=-1))
    x = note(x + note(F.linear(note(weights @ v), wo)))
    return note(F.mse_loss(note(F.gelu(x)), lib.zeros(*x.shape)))


def noted(seen, t):
    seen.append(str(t.dtype).rpartition(".")[2])
    return t


def test_attention_and_mlp_agree_with_pytorch_op_by_op():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 8)).astype("float32")
    weights = [rng.normal(size=(8, 8)).astype("float32") / 3 for _ in range(4)]
    dtypes, losses, grads = {}, {}, {}
    for key, lib in (("torch", torch), ("lucid", lucid)):
        seen = dtypes[key] = []
        leaves = [lib.tensor(w, requires_grad=True) for w in weights]
        with lib.amp.autocast("cpu", dtype=lib.bfloat16):
            loss = attention_block(lib, lib.tensor(x), *leaves, partial(noted, seen))
        loss.backward()
        losses[key], grads[key] = loss.item(), [w.grad.numpy() for w in leaves]
    assert dtypes["lucid"] == dtypes["torch"]
    assert losses["lucid"] == pytest.approx(losses["torch"], rel=2**-7)
    for a, b in zip(grads["lucid"], grads["torch"], strict=True):
        assert a.dtype == "float32"
        assert np.abs(a - b).max() <= 2**-6 * np.abs(b).max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_training_follows_float32(device, dtype):
    rng = np.random.default_rng(1)
    x = lucid.tensor(rng.normal(size=(64, 8)).astype("float32")).to(device)
    y = lucid.tensor((rng.normal(size=(64,)) > 0).astype("int64")).to(device)
    curves = {}
    for amp in (False, True):
        lucid.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 2)).to(device)
        optimizer = lucid.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = GradScaler(device, enabled=amp and dtype == "float16", init_scale=2.0**10)
        losses = curves[amp] = []
        for _ in range(30):
            with autocast(device, dtype=getattr(lucid, dtype), enabled=amp):
                loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert all(p.grad.dtype == lucid.float32 for p in model.parameters())
            losses.append(loss.item())
    assert curves[False][-1] < curves[False][0] / 2
    assert curves[True] != curves[False], "autocast changed nothing"
    rounding = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    assert np.abs(np.subtract(curves[True], curves[False])).max() < 8 * rounding


def test_weights_are_cast_once():
    w = lucid.ones(3, 3, requires_grad=True)
    x = lucid.ones(2, 3)
    with autocast("cpu"):
        first, second = x @ w, x @ w
        with autocast("cpu"):
            third = x @ w
    nodes = {t.grad_fn.next_functions[0][0] for t in (first, second, third)}
    assert len(nodes) == 1
    with autocast("cpu", cache_enabled=False):
        assert (x @ w).grad_fn.next_functions[0][0] is not (x @ w).grad_fn.next_functions[0][0]
    # Each has its own backward pass through the shared cast.
    first.sum().backward()
    second.sum().backward()
    assert w.grad.tolist() == [[4.0] * 3] * 3


def test_a_changed_weight_is_cast_anew():
    w, x = lucid.ones(2, 2, requires_grad=True), lucid.ones(1, 2)
    with autocast("cpu"):
        with lucid.no_grad():
            assert not (x @ w).requires_grad
        before = x @ w
        assert before.requires_grad, "the cast made under no_grad was taken"
        with lucid.no_grad():
            frozen = x @ w
            w.mul_(3)
        after = x @ w
    assert before.tolist() == [[2, 2]] and after.tolist() == [[6, 6]]
    assert not frozen.requires_grad and after.requires_grad


def test_second_derivatives_through_the_cast():
    w, x = lucid.tensor([[2.0]], requires_grad=True), lucid.ones(1, 1)
    with autocast("cpu"):
        y = (x @ w).float()
    (g,) = lucid.autograd.grad((y**3).sum(), w, create_graph=True)
    (h,) = lucid.autograd.grad(g.sum(), w)
    assert g.item() == 12 and h.item() == 12


def test_outside_nothing_is_different():
    flags = mode.flags
    a = lucid.ones(2, 2)
    with autocast("cpu"):
        assert (a @ a).dtype == BF16 and mode.flags != flags
    assert (a @ a).dtype == lucid.float32
    assert mode.flags == flags and mode.interceptors == ()


def test_nested_disabled_and_again():
    a = lucid.ones(2, 2)
    with autocast("cpu"):
        with autocast("cpu", enabled=False):
            assert (a @ a).dtype == lucid.float32 and not is_autocast_enabled("cpu")
            with autocast("cpu", dtype=lucid.float16):
                assert (a @ a).dtype == lucid.float16
                assert lucid.amp.get_autocast_dtype("cpu") == lucid.float16
        assert (a @ a).dtype == BF16 and is_autocast_enabled()
        with autocast("cuda"):
            assert (a @ a).dtype == BF16 and is_autocast_enabled("cuda")
    assert not is_autocast_enabled() and mode.interceptors == ()


def test_an_exception_ends_the_region():
    with pytest.raises(RuntimeError), autocast("cpu"), autocast("cpu", dtype=lucid.float16):
        raise RuntimeError
    assert not is_autocast_enabled() and mode.interceptors == ()
    with autocast("cpu"), pytest.raises(lucid.errors.ShapeError):
        lucid.ones(2, 3) @ lucid.ones(2, 3)


def test_decorator_and_reuse():
    region = autocast("cpu")

    @region
    def product(a):
        return a @ a

    assert product(lucid.ones(2, 2)).dtype == BF16
    with region, region:
        assert is_autocast_enabled()
    assert not is_autocast_enabled() and product.__name__ == "product"


def test_threads_have_their_own():
    seen = []
    with autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((lucid.ones(2, 2) @ lucid.ones(2, 2)).dtype))
        thread.start()
        thread.join()
    assert seen == [lucid.float32]


def test_with_no_grad_and_profiler_like_interceptors():
    from lucid.autograd.mode import intercept

    names = []

    def note(op, tensors, statics, call):
        names.append((op.name, tensors[0].dtype.name))
        return call(tensors, statics)

    a = lucid.ones(2, 2)
    with intercept(note), autocast("cpu"), lucid.no_grad():
        assert (a @ a).dtype == BF16
        with autocast("cpu", enabled=False):
            a @ a
    assert ("matmul", "bfloat16") in names and ("matmul", "float32") in names
    assert mode.interceptors == ()


def test_float64_and_integers_are_left_alone():
    a = lucid.ones(2, 2, dtype=lucid.float64)
    i = lucid.ones(2, 2, dtype=lucid.int64)
    with autocast("cpu"):
        assert (a @ a).dtype == lucid.float64
        assert (i @ i).dtype == lucid.int64


def test_wrong_dtype_is_an_error():
    with pytest.raises(DtypeError, match="must be float16 or bfloat16, got float64"):
        autocast("cpu", dtype=lucid.float64)
    autocast("cpu", dtype=lucid.float32, enabled=False)


def test_float32_disables_with_a_warning():
    # Programs with dtype="float32" among their settings.
    with pytest.warns(UserWarning, match="float32 is what ops run in anyway"):
        region = autocast("cpu", dtype=lucid.float32)
    with autocast("cpu"), region:
        assert not is_autocast_enabled("cpu") and (lucid.ones(2, 2) @ lucid.ones(2, 2)).dtype == lucid.float32


def test_lstm_and_batch_norm_modules():
    x = lucid.randn(3, 2, 4)
    with autocast("cpu"):
        out, (h, c) = nn.LSTM(4, 5)(x)
        assert {out.dtype, h.dtype, c.dtype} == {BF16}
        norm = nn.BatchNorm1d(5)
        assert norm(out[0]).dtype == BF16 and norm.running_mean.dtype == lucid.float32
    out.float().sum().backward()


def test_custom_functions():
    class Product(lucid.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((g @ b.T).dtype)
            return g @ b.T, a.T @ g

    class Wide(Product):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=lucid.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

    seen = []
    a = lucid.ones(2, 2, requires_grad=True)
    with autocast("cpu"):
        low = Product.apply(a, a)
        wide = Wide.apply(a.bfloat16(), a)
    assert (low.dtype, wide.dtype) == (BF16, lucid.float32)
    low.sum().backward()
    wide.sum().backward()
    assert seen == [BF16, lucid.float32]
    Product.apply(a, a).sum().backward()
    assert seen[-1] == lucid.float32
