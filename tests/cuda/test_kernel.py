"""`lucid.cuda.kernel`: a user's own CUDA kernel as a differentiable op, and the checks that find its bugs."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.cuda import kernel
from lucid.errors import DeviceError, KernelError
from lucid.ops.registry import A, Sample
from lucid.testing import checks, cusim, gradcheck, gradgradcheck
from lucid.testing.samples import cases_of

DIFFERENCE = r"""
// out = scale (x - y)^2
extern "C" __global__ void scaled_square(const scalar_t* __restrict__ x, const scalar_t* __restrict__ y,
                                         scalar_t* __restrict__ out, accum_t scale, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) {
    const accum_t d = x[i] - y[i];
    out[i] = scale * d * d;
  }
}
"""


def difference(source=DIFFERENCE, **more):
    options = dict(
        sizes={"n": lambda x: x.size},
        backward={
            "x": lambda F, g, x, y, scale: 2.0 * scale * g * (x - y),
            "y": lambda F, g, x, y, scale: 2.0 * scale * g * (y - x),
        },
        reference=lambda xp, x, y, scale: scale * (x - y) ** 2,
        samples=(Sample((3, 4), (3, 4), 0.5), Sample((0,), (0,), 2.0)),
    )
    return kernel(source, **(options | more))


@pytest.fixture
def needs_compiler(cuda):
    from lucid.testing import simulator

    if simulator.is_on() and simulator.kernels():
        pytest.skip(f"kernels cannot run: {simulator.kernels()}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients(needs_compiler, cuda, dtype):
    f = difference()
    assert repr(f) == "<lucid.cuda.Kernel scaled_square(x, y, scale: float) -> out>"
    x, y = (lucid.randn(5, 7, device=cuda, dtype=dtype, requires_grad=True) for _ in range(2))
    out = f(x, y, 0.5)
    assert out.grad_fn.name() == "ScaledSquareBackward" and out.dtype == np.dtype(dtype)
    d = x.detach().cpu().numpy() - y.detach().cpu().numpy()
    np.testing.assert_allclose(out.detach().cpu().numpy(), 0.5 * d * d, rtol=1e-6)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), d, rtol=1e-6)
    np.testing.assert_allclose(y.grad.cpu().numpy(), -d, rtol=1e-6)
    np.testing.assert_allclose(f(x, y, scale=0.5).detach().cpu().numpy(), 0.5 * d * d, rtol=1e-6)


def test_any_order(needs_compiler, cuda):
    f = difference()
    x, y = (lucid.randn(4, device=cuda, dtype="float64", requires_grad=True) for _ in range(2))
    gradcheck(lambda x, y: f(x, y, 0.5), (x, y))
    gradgradcheck(lambda x, y: f(x, y, 0.5), (x, y))


def test_views_empty_and_large(needs_compiler, cuda):
    f = difference()
    x = lucid.randn(6, 8, device=cuda)
    np.testing.assert_allclose(f(x.T, x.T * 0, 1.0).cpu().numpy(), x.cpu().numpy().T ** 2, rtol=1e-6)
    np.testing.assert_allclose(
        f(x[1:, ::2], x[1:, ::2] * 0, 1.0).cpu().numpy(), x.cpu().numpy()[1:, ::2] ** 2, rtol=1e-6
    )
    assert f(x[:0], x[:0], 1.0).shape == (0, 8)
    assert f(x[0, 0], x[0, 0], 1.0).item() == 0.0


PACKS = r"""
#include "lucid.cuh"
KERNEL negated(const scalar_t* x, scalar_t* out, long long n) {
  const i64 i = thread_index() * PACK;
  if (i + PACK > n) return;
  pack p = load(x, i);
  EACH(k) p.v[k] = down(-up(p.v[k]));
  store(out, i, p);
}
"""


def test_a_view_that_starts_anywhere(needs_compiler, simulated):
    """Accesses of 128 bits fault at an address that is no multiple of 16 bytes."""
    f = kernel(PACKS, sizes={"n": lambda x: x.size})
    x = lucid.randn(65, device="cuda")
    with simulated.configured(mode="checked"):
        np.testing.assert_array_equal(f(x[1:]).cpu().numpy(), -x[1:].cpu().numpy())


def test_the_generated_checks_run_on_it(needs_compiler, cuda):
    for case in cases_of(difference().op):
        checks.forward(case, cuda)
        checks.devices_agree(case, cuda)
        checks.accelerated_equals_generic(case, cuda)
        checks.raw_equals_recorded(case, cuda)
        checks.masks(case, cuda)
        checks.first_order(case, cuda)
        checks.second_order(case, cuda)


def test_on_the_cpu():
    f = difference()
    x = lucid.tensor([3.0], requires_grad=True)
    f(x, lucid.tensor([1.0]), 0.5).backward()
    assert x.grad.item() == 2.0
    with pytest.raises(
        DeviceError,
        match=r"kernel scaled_square: expected CUDA tensors, got tensors on the CPU; move them with",
    ):
        difference(reference=None)(x, x, 1.0)


ROWS = r"""
#include "lucid.cuh"
// Sum and maximum of each row: one warp per row.
KERNEL row_statistics_of(const scalar_t* x, scalar_t* total, scalar_t* largest, int rows, int cols) {
  const int row = blockIdx.x;
  accum_t s = 0, m = NEG_INF;
  for (int c = threadIdx.x; c < cols; c += 32) {
    s += up(x[(i64)row * cols + c]);
    m = max_(m, up(x[(i64)row * cols + c]));
  }
  s = warp_sum(s);
  m = warp_max(m);
  if (threadIdx.x == 0) {
    total[row] = down(s);
    largest[row] = down(m);
  }
}
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_shapes_grid_several_outputs_and_the_shared_header(needs_compiler, cuda, dtype):
    row = lambda x: (x.shape[0],)  # noqa: E731
    f = kernel(
        ROWS,
        shapes={"total": row, "largest": row},
        sizes={"rows": lambda x: x.shape[0], "cols": lambda x: x.shape[1]},
        grid=lambda x: x.shape[0],
        block=32,
        reference=lambda xp, x: (x.sum(1), x.max(1)),
    )
    x = lucid.randn(5, 70, device=cuda).to(dtype)
    total, largest = f(x)
    exact = x.double().cpu().numpy()
    assert total.dtype == x.dtype
    np.testing.assert_allclose(
        total.double().cpu().numpy(), exact.sum(1), rtol=1e-2, atol=0.1 if dtype == "bfloat16" else 1e-2
    )
    np.testing.assert_array_equal(largest.double().cpu().numpy(), exact.max(1))
    assert not total.requires_grad


def test_a_kernel_in_the_formula_of_another(needs_compiler, cuda):
    source = r"""
    extern "C" __global__ void soft_step(const scalar_t* x, scalar_t* out, long long n) {
      long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
      if (i < n) out[i] = x[i] / (1 + fabs(x[i]));
    }
    extern "C" __global__ void soft_step_slope(const scalar_t* x, scalar_t* out, long long n) {
      long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
      if (i < n) { scalar_t d = 1 + fabs(x[i]); out[i] = 1 / (d * d); }
    }
    """
    n = {"n": lambda x: x.size}
    kernel(source, "soft_step_slope", sizes=n)
    f = kernel(source, "soft_step", sizes=n, backward={"x": lambda F, g, x: g * F.soft_step_slope(x)})
    x = lucid.randn(33, device=cuda, dtype="float64", requires_grad=True)
    gradcheck(f, (x,))


def test_sources_from_files(needs_compiler, cuda, tmp_path):
    path = tmp_path / "difference.cu"
    path.write_text(DIFFERENCE)
    assert (
        difference(path)(lucid.ones(3, device=cuda) * 3, lucid.ones(3, device=cuda), 1.0).tolist()
        == [4.0] * 3
    )
    path.write_text(DIFFERENCE.replace("scale * d * d;", "scale * d * dd;"))
    with pytest.raises(
        KernelError,
        match=r"kernel scaled_square: does not compile with scalar_t = float: .*difference\.cu:8: .*dd",
    ):
        difference(path)(lucid.ones(3, device=cuda), lucid.ones(3, device=cuda), 1.0)
    with pytest.raises(KernelError, match=r"gone\.cu cannot be read"):
        difference(tmp_path / "gone.cu")


def test_no_wait_for_the_device(needs_compiler, simulated):
    f = difference()
    x = lucid.randn(50, device="cuda", requires_grad=True)
    y = lucid.randn(50, device="cuda")
    f(x, y, 1.0)
    with simulated.counted() as counts:
        f(x, y, 1.0).sum().backward()
    assert counts["raw"] == 1 and counts["syncs"] == counts["d2h_bytes"] == counts["h2d_bytes"] == 0


# ---- what is refused ----


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        ("int x;\n", {}, "expected CUDA source with an extern"),
        (DIFFERENCE, {"name": "other"}, "has no kernel 'other', it has scaled_square"),
        (
            DIFFERENCE.replace("accum_t scale", "half2 scale"),
            {},
            "'half2 scale' has a type that cannot be passed",
        ),
        (DIFFERENCE, {"sizes": {"m": lambda x: 1}}, "sizes names 'm', which is none of scale, n"),
        (DIFFERENCE, {"sizes": {"n": lambda z: 1}}, r"sizes\['n'\] takes z; it may name x, y"),
        (DIFFERENCE, {"shapes": {"x": lambda x: x.shape}}, "shapes names 'x', which is none of out"),
        (DIFFERENCE.replace("const scalar_t*", "scalar_t*"), {}, "expected at least one input"),
        (DIFFERENCE.replace("scaled_square", "tanh"), {}, "lucid has an operation of that name"),
        (
            DIFFERENCE + DIFFERENCE.replace("scaled_square", "second"),
            {},
            r"has 2 kernels \(scaled_square, second\); say which with name=",
        ),
    ],
)
def test_refused_at_once(source, more, message):
    with pytest.raises(KernelError, match=message):
        difference(source, **more)


def test_refused_in_a_call(needs_compiler, cuda):
    f = difference()
    x = lucid.ones(3, device=cuda)
    with pytest.raises(
        KernelError, match=r"y \(scalar_t\*\) must be float32, got float64; cast it with \.to\(\)"
    ):
        f(x, x.double(), 1.0)
    with pytest.raises(KernelError, match="is not made for complex64"):
        f(x.to("complex64"), x.to("complex64"), 1.0)
    with pytest.raises(DeviceError, match="expected all tensors on one device"):
        f(x, lucid.ones(3), 1.0)
    big = kernel(
        DIFFERENCE.replace("long long n", "int n").replace("scaled_square", "small_count"),
        sizes={"n": lambda x: 1 << 31},
    )
    with pytest.raises(
        KernelError, match=r"n \(int\) must be a whole number in \[-2147483648, 2147483647\], got 2147483648"
    ):
        big(x, x, 1.0)


def test_a_kernel_may_be_made_again(needs_compiler, cuda):
    x = lucid.ones(2, device=cuda)
    assert difference()(x, x * 0, 1.0).tolist() == [1.0, 1.0]
    assert difference(DIFFERENCE.replace("scale * d * d", "scale * d * d + 1"))(x, x * 0, 1.0).tolist() == [
        2.0,
        2.0,
    ]


# ---- the checks find planted bugs ----


def test_check_kernel_accepts_a_right_kernel(needs_compiler, simulated):
    simulated.check_kernel(
        difference(), lucid.randn(1000, device="cuda"), lucid.randn(1000, device="cuda"), 0.5
    )


def test_check_kernel_finds_wrong_values(needs_compiler, simulated):
    x = lucid.randn(100, device="cuda")
    with pytest.raises(AssertionError, match="scaled_square: out against reference"):
        simulated.check_kernel(difference(DIFFERENCE.replace("d * d;", "d * d * 1.001f;")), x, x * 2, 0.5)


def test_check_kernel_finds_a_write_past_the_end(needs_compiler, simulated):
    x = lucid.randn(100, device="cuda")
    bad = difference(DIFFERENCE.replace("out[i]", "out[i + 1]"))
    with pytest.raises(cusim.KernelError, match=r"^scaled_square<<<") as caught:
        simulated.check_kernel(bad, x, x * 2, 0.5)
    text = str(caught.value)
    assert "kernel.cu:8: out-of-bounds" in text and "past the end of argument 2 (out)" in text, text


REVERSE = r"""
extern "C" __global__ void reverse_block(const float* x, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def test_check_kernel_finds_a_missing_barrier(needs_compiler, simulated):
    options = dict(grid=lambda x: 1, block=64, reference=lambda xp, x: x[::-1])
    x = lucid.randn(64, device="cuda")
    simulated.check_kernel(kernel(REVERSE, **options), x)
    with pytest.raises(cusim.KernelError, match=r"^reverse_block<<<") as caught:
        simulated.check_kernel(kernel(REVERSE.replace("__syncthreads();", ""), **options), x)
    assert "kernel.cu:4: race" in str(caught.value) or "kernel.cu:6: race" in str(caught.value)


# The order in which 64 threads come, and what is made of it.
CAME = r"""
extern "C" __global__ void of_the_order(const float* x, float* out) {
  __shared__ int came[64];
  __shared__ int number;
  if (threadIdx.x == 0) number = 0;
  __syncthreads();
  came[atomicAdd(&number, 1)] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    int steps = 0;
    for (int i = 1; i < 64; i++) steps += abs(came[i] - came[i - 1]);
    out[0] = VALUE;
  }
}
"""


@pytest.mark.parametrize(
    "value,order",
    # The same forward and in reverse, another number in a shuffled order.
    (("came[0]", "reverse, seed 0"), ("steps", "random, seed 1")),
)
def test_check_kernel_finds_what_depends_on_the_order(needs_compiler, simulated, value, order):
    f = kernel(CAME.replace("VALUE", value), grid=lambda x: 1, block=64)
    message = f"of_the_order: out depends on the order of threads .forward against {order}"
    with pytest.raises(AssertionError, match=message):
        simulated.check_kernel(f, lucid.ones(1, device="cuda"))


def test_check_kernel_runs_in_four_orders_and_checked(needs_compiler, simulated, monkeypatch):
    runs, configured = [], simulated.configured
    monkeypatch.setattr(simulated, "configured", lambda **s: runs.append(s) or configured(**s))
    simulated.check_kernel(difference(), lucid.randn(5, device="cuda"), lucid.randn(5, device="cuda"), 0.5)
    assert [(r["mode"], r["order"]) for r in runs] == [
        ("checked", "random"),
        *(("fast", order) for order in ("forward", "reverse", "random", "random")),
    ]
    assert runs[3]["seed"] != runs[4]["seed"]


def test_samples_reach_arrays():
    assert [c.arrays[0].shape for c in cases_of(difference(samples=(Sample(A((2,)), A((2,)), 1.0),)).op)] == [
        (2,)
    ]


def test_more_than_48_kib_of_shared_memory_are_asked_for(needs_compiler, cuda):
    source = r"""
    extern "C" __global__ void turned(const float* x, float* out, int n) {
      extern __shared__ float tile[];
      for (int i = threadIdx.x; i < n; i += blockDim.x) tile[n - 1 - i] = x[i];
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[i];
    }
    """
    turned = kernel(
        source, sizes={"n": lambda x: x.size}, grid=lambda x: 1, block=64, shared_mem=lambda x: 4 * x.size
    )
    for n in (100, 16 << 10):
        x = lucid.arange(n, device=cuda, dtype=lucid.float32)
        assert lucid.equal(turned(x), x.flip(0))
    with pytest.raises(KernelError, match=r"turned: asks for 400000 bytes.*device has \d+; lower shared_mem"):
        turned(lucid.ones(100000, device=cuda))
