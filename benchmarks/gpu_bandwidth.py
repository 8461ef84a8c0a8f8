"""Device times, and every kernel at three shapes: the measuring half of `benchmarks/gpu_report.py`.

A kernel is launched by the functions of lucid/kernel/calls.py, so with the grids, blocks and builds of real
use; each launch is then repeated alone and timed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import roofline  # noqa: E402

import lucid  # noqa: E402
from lucid.kernel import calls, calls_spatial, loader, multi_tensor  # noqa: E402
from lucid.kernel.launch import Launcher, accumulator, prepare  # noqa: E402
from lucid.kernel.specs import ACTIVATIONS, KERNELS  # noqa: E402
from lucid.storage.dtype import as_dtype  # noqa: E402

REPEATS = 30
# Bytes below which a kernel's arrays may stay in the L2 cache (H200: 60 MB) and microseconds below which a
# launch costs more than its traffic: such rows are listed and not judged.
CACHE, SHORT = 60e6, 5.0

Row = dict[str, Any]
Shape = tuple[int, ...]


# ---- time ----

_SPIN = """extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}"""


class Clock:
    """Device times of functions that queue work. On the simulated device each runs once and has no time."""

    def __init__(self, backend: Any, repeats: int = REPEATS) -> None:
        self.cp, self.repeats = backend.xp, repeats
        self.simulated = lucid.cuda.is_simulated()
        self._spin = None if self.simulated else self.cp.RawKernel(_SPIN, "spin")

    def compare(self, contestants: dict[str, Callable[[], Any]], hidden: bool = True) -> dict[str, Any]:
        """Microseconds per call and contestant: the median of samples taken in turn; None when simulated.

        hidden: the device is kept busy while the host queues a sample, so that host time does not count.
        """
        if self.simulated:
            for run in contestants.values():
                run()
            return dict.fromkeys(contestants)
        sizes = {name: self._size(run) for name, run in contestants.items()}
        events: dict[str, list[Any]] = {name: [] for name in contestants}
        for _ in range(self.repeats):
            for name, run in contestants.items():
                number, wait = sizes[name]
                if hidden:
                    self._spin((1,), (1,), (np.uint64(wait),))
                events[name].append(self._sample(run, number))
        self.cp.cuda.Device().synchronize()
        elapsed = self.cp.cuda.get_elapsed_time
        return {
            name: statistics.median(elapsed(*pair) * 1e3 / sizes[name][0] for pair in pairs)
            for name, pairs in events.items()
        }

    def one(self, run: Callable[[], Any]) -> float | None:
        """Microseconds per call."""
        return self.compare({"": run})[""]

    def host(self, run: Callable[[], Any], number: int = 200) -> float | None:
        """Microseconds of the CPU per call, while the device follows: number calls fit into its queue."""
        if self.simulated:
            run()
            return None
        samples = []
        for _ in range(self.repeats + 3):
            self.cp.cuda.Device().synchronize()
            start = time.perf_counter()
            for _ in range(number):
                run()
            samples.append((time.perf_counter() - start) / number * 1e6)
        self.cp.cuda.Device().synchronize()
        return statistics.median(samples[3:])

    def _sample(self, run: Callable[[], Any], number: int) -> tuple[Any, Any]:
        start, end = self.cp.cuda.Event(), self.cp.cuda.Event()
        start.record()
        for _ in range(number):
            run()
        end.record()
        return start, end

    def _size(self, run: Callable[[], Any]) -> tuple[int, int]:
        # Calls per sample, for 0.2 ms of work or 20 calls, and nanoseconds that the host needs to queue them.
        for _ in range(3):
            run()
        self.cp.cuda.Device().synchronize()
        began = time.perf_counter()
        pair = self._sample(run, 3)
        host = (time.perf_counter() - began) / 3
        pair[1].synchronize()
        device = self.cp.cuda.get_elapsed_time(*pair) * 1e-3 / 3
        number = int(min(20, max(1, 2e-4 / max(device, 1e-6))))
        return number, int((1.5 * number * host + 2e-5) * 1e9)


# ---- bandwidth ----


class Recorder(Launcher):
    """A launcher that also keeps what it launched."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.seen: dict[str, tuple[Any, ...]] = {}
        self.kept: list[Any] = []

    def __call__(
        self, name: str, grid: Any, block: Any, args: Any, dtype: Any, defines: Any = (), **sizes: int
    ) -> None:
        self.seen[name] = (grid, block, args, dtype, defines, sizes)
        super().__call__(name, grid, block, args, dtype, defines, **sizes)

    def again(self, name: str) -> tuple[Callable[[], None], dict[str, int]]:
        """(the launch alone, without its checks; its integers by name)."""
        grid, block, args, dtype, defines, sizes = self.seen[name]
        kernel = KERNELS[name]
        function = loader.function(self.backend, name, dtype.name, (*kernel.defines, *defines))
        values = prepare(
            kernel, args, dtype, "LUCID_SCALAR" in defines, sizes, self.address, self.backend.ndarray
        )
        names = {a.name: v for a, v in zip(kernel.parsed, args, strict=True) if type(v) is int}
        return lambda: function(grid, block, values), {**names, **sizes}

    def empty(self, shape: Any, dtype: Any) -> Any:
        # An optimiser's kernel reads addresses from a table: nothing else keeps its arrays for a repeat.
        self.kept.append(super().empty(shape, dtype))
        return self.kept[-1]

    def clear(self) -> None:
        """Nothing; forgets all launches and their arrays."""
        self.seen.clear()
        self.kept.clear()

    def values(self, *shape: int, dtype: Any) -> Any:
        """An array of numbers in [-0.5, 0.5)."""
        x = self.xp.arange(int(np.prod(shape)), dtype="int32") % 251
        out = self.empty(shape, dtype)
        out[...] = (x.astype("float32") / 251 - 0.5).reshape(shape)
        return out

    def filled(self, n: int, dtype: Any, value: float = 0.0) -> Any:
        """[n], all of them `value`."""
        out = self.empty(n, dtype)
        out[...] = value
        return out

    def indices(self, n: int, rows: int) -> tuple[np.ndarray, Any]:
        """n row numbers, as a NumPy array and on the device."""
        host = np.random.default_rng(0).integers(0, rows, n)
        return host, self.upload(host)


def _pointwise(launch: Recorder, dtype: Any, n: int) -> None:
    x, g = launch.values(n, dtype=dtype), launch.values(n, dtype=dtype)
    for name in ACTIVATIONS:
        calls.activation_backward(launch, name, g, x, 0.1)
        if name not in ("relu", "tanh"):
            calls.activation(launch, name, x, 0.1)


def _copies(launch: Recorder, dtype: Any, n: int) -> None:
    x, state = launch.values(n, dtype=dtype), launch.upload(np.array([5, 3], np.uint64))
    calls.copy(launch, x)
    calls.dropout(launch, x, state, 0.7)
    mask = calls.dropout_mask(launch, (n,), state, 0.7, x.dtype)
    calls.masked_scale(launch, x, mask, 2.0)


def _columns(launch: Recorder, dtype: Any, rows: int, cols: int) -> None:
    g, v = launch.values(rows, cols, dtype=dtype), launch.values(rows, cols, dtype=dtype)
    for name in ACTIVATIONS:
        calls.activation_bias_grad(launch, name, g, v, 0.1)
    calls.column_sum(launch, g)


def _rows(launch: Recorder, dtype: Any, rows: int, cols: int) -> None:
    x, g = launch.values(rows, cols, dtype=dtype), launch.values(rows, cols, dtype=dtype)
    for name in ("softmax", "log_softmax"):
        calls.softmax_backward(launch, name, g, calls.softmax(launch, name, x))
    _norms(launch, dtype, rows, cols)


def _softmax_columns(launch: Recorder, dtype: Any, *shape: int) -> None:
    x, g = launch.values(*shape, dtype=dtype), launch.values(*shape, dtype=dtype)
    for name in ("softmax", "log_softmax"):
        out = calls.softmax_columns(launch, name, x, 1)
        calls.softmax_backward_columns(launch, name, g, out, 1)


def _norms(launch: Recorder, dtype: Any, rows: int, cols: int) -> None:
    x, g = launch.values(rows, cols, dtype=dtype), launch.values(rows, cols, dtype=dtype)
    weight = launch.values(cols, dtype=dtype)
    for name in ("layer_norm", "rms_norm"):
        layer = name == "layer_norm"
        _, mean, rstd = calls.norm(launch, name, x, weight, weight if layer else None, 1e-5, cols)
        calls.norm_backward(launch, name, g, x, weight, mean, rstd, cols, (True, True, layer))


def _cross_entropy(launch: Recorder, dtype: Any, rows: int, cols: int) -> None:
    x, (_, target) = launch.values(rows, cols, dtype=dtype), launch.indices(rows, cols)
    loss, saved, _ = calls.cross_entropy(launch, x, target, None, -100, 0.0, "mean")
    calls.cross_entropy_backward(launch, loss, x, target, None, saved, -100, 0.0, "mean")
    one = launch.filled(1, accumulator(x.dtype), 1.0)
    calls.cross_entropy_gradient(launch, one, x, target, None, -100, 0.0)


def _batch_norm(launch: Recorder, dtype: Any, *shape: int) -> None:
    x, g = launch.values(*shape, dtype=dtype), launch.values(*shape, dtype=dtype)
    weight = launch.values(shape[1], dtype=dtype)
    _, mean, var = calls_spatial.batch_norm(launch, x, weight, weight, 1e-5)
    calls_spatial.batch_norm_backward(launch, g, x, weight, mean, var, 1e-5)


def _by_index(launch: Recorder, dtype: Any, n: int, rows: int, cols: int) -> None:
    src, (host, index) = launch.values(n, cols, dtype=dtype), launch.indices(n, rows)
    order = np.argsort(host, kind="stable")
    calls_spatial.segment_sum(launch, src, launch.upload(order), launch.upload(host[order]), rows)
    if cols > 1:
        out = launch.zeros((rows, cols), accumulator(src.dtype))
        calls_spatial.index_add_atomic(launch, src, index, out)


def _pools(launch: Recorder, dtype: Any, *shape: int) -> None:
    x, size = launch.values(*shape, dtype=dtype), shape[2:]
    half = tuple((n - 1) // 2 + 1 for n in size)
    out, window = calls_spatial.max_pool(launch, x, half, (3, 3), (2, 2), (1, 1), (1, 1))
    calls_spatial.max_pool_backward(launch, out, window, size, (3, 3), (2, 2), (1, 1), (1, 1))
    even = tuple(n // 2 for n in size)
    out = calls_spatial.avg_pool(launch, x, even, (2, 2), (2, 2), (0, 0), True, 0)
    calls_spatial.avg_pool_backward(launch, out, size, (2, 2), (2, 2), (0, 0), True, 0)


def _windows(launch: Recorder, dtype: Any, *shape: int) -> None:
    x, size, ones = launch.values(*shape, dtype=dtype), shape[2:], (1, 1)
    columns = calls_spatial.im2col(launch, x, size, (3, 3), ones, ones, ones, True)
    calls_spatial.col2im(launch, columns, size, size, (3, 3), ones, ones, ones, True)


def _optimizers(launch: Recorder, dtype: Any, tensors: int, size: int) -> dict[str, int]:
    params, grads = ([launch.values(size, dtype=dtype) for _ in range(tensors)] for _ in range(2))
    states = [[launch.filled(size, accumulator(dtype)) for _ in range(tensors)] for _ in range(3)]
    steps = [multi_tensor.counts(launch, size, 0) for _ in range(tensors)]
    sgd = multi_tensor.sgd_numbers(lr=1e-9, momentum=0.9)
    adam = multi_tensor.adam_numbers(1e-9, 0.9, 0.999, 1e-8)
    for name, number in multi_tensor.STATES.items():
        step = multi_tensor.MultiTensor(launch, name, params, states[:number], steps)
        step(grads, [sgd if name.startswith("sgd") else adam])
        launch.kept.append(step)
    return {"n": tensors * size}


def _gradients(launch: Recorder, dtype: Any, tensors: int, size: int) -> dict[str, int]:
    grads = [launch.values(size, dtype=dtype) for _ in range(tensors)]
    one, found = launch.filled(1, accumulator(dtype), 1.0), launch.filled(1, "int32")
    launch.kept.append(multi_tensor.gradient_norm(launch, grads, 2.0))
    # A norm just above the limit: all is read and written, and hardly changes.
    multi_tensor.gradient_clip(launch, grads, one, 0.999999)
    multi_tensor.gradient_unscale(launch, grads, one, found)
    scale, good = launch.filled(1, "float32", 1.0), launch.filled(1, "int32")
    multi_tensor.loss_scale(launch, scale, good, found, 2.0, 0.5, 2000)
    return {"n": tensors * size}


@dataclass(frozen=True)
class Case:
    """Calls that take some kernels through three shapes; `tiny` serves on the simulated device."""

    run: Callable[..., dict[str, int] | None]
    shapes: tuple[Shape, ...]
    tiny: Shape
    quick: bool = True  # among the few of --quick


CASES = (
    Case(_copies, ((1 << 22,), (1 << 25,), (1 << 27,)), (4099,)),
    Case(_pointwise, ((1 << 22,), (1 << 25,), (1 << 27,)), (1031,), False),
    Case(_columns, ((2048, 1024), (8192, 3072), (16384, 8192)), (70, 64), False),
    Case(_rows, ((8192, 768), (65536, 768), (16384, 4096)), (9, 64)),
    Case(_softmax_columns, ((16, 21, 65536), (64, 21, 65536), (32, 1000, 2048)), (2, 5, 40), False),
    Case(_norms, ((1024, 16384), (4096, 16384), (8192, 12288)), (2, 8200), False),
    Case(_cross_entropy, ((2048, 50304), (8192, 50304), (16384, 32000)), (11, 40)),
    Case(_batch_norm, ((64, 256, 14, 14), (256, 64, 56, 56), (64, 64, 112, 112)), (3, 5, 4, 4), False),
    Case(_batch_norm, ((8192, 1024), (65536, 1024), (262144, 256)), (41, 64), False),
    Case(_by_index, ((8192, 50257, 768), (65536, 50257, 768), (262144, 50257, 256)), (50, 9, 32), False),
    Case(_by_index, ((1 << 20, 1 << 18, 1), (1 << 22, 1 << 20, 1), (1 << 24, 1 << 22, 1)), (50, 9, 1), False),
    Case(_pools, ((64, 64, 56, 56), (256, 64, 56, 56), (64, 64, 112, 112)), (2, 3, 8, 8), False),
    Case(_windows, ((64, 256, 14, 14), (32, 64, 56, 56), (64, 64, 56, 56)), (2, 3, 5, 5), False),
    Case(_optimizers, ((20, 1 << 18), (48, 1 << 20), (148, 837_838)), (3, 700)),
    Case(_gradients, ((20, 1 << 18), (48, 1 << 20), (148, 837_838)), (3, 700)),
)


def bandwidth(backend: Any, clock: Clock, quick: bool, copy: float | None) -> list[Row]:
    """One row per kernel, dtype and shape: bytes, microseconds, bytes per second, and the share that this is
    of `copy`, the bytes per second (read + write) of a device copy.
    """
    launch, rows = Recorder(backend), []
    for case in CASES:
        for shape in (case.tiny,) if clock.simulated else case.shapes:
            for dtype in ("float32",) if quick else ("float32", "bfloat16"):
                if case.quick or not quick:
                    rows += _measured(case, launch, clock, shape, as_dtype(dtype), copy)
    missing = [] if quick else sorted(set(KERNELS) - {row["kernel"] for row in rows})
    return rows + [{"kernel": name, "error": "no case launches it"} for name in missing]


def _measured(
    case: Case, launch: Recorder, clock: Clock, shape: Shape, dtype: Any, copy: float | None
) -> list[Row]:
    rows: list[Row] = []
    launch.clear()
    try:
        extra = case.run(launch, dtype, *shape) or {}
        for name in launch.seen:
            run, names = launch.again(name)
            nbytes = KERNELS[name].traffic(dtype.name, **{**names, **extra})
            us = clock.one(run)
            rows.append(
                {
                    "kernel": name,
                    "dtype": dtype.name,
                    "shape": list(shape),
                    "bytes": nbytes,
                    "us": us,
                    "bandwidth": us and nbytes / us * 1e6,
                    "share": us
                    and copy
                    and roofline.share(name, dtype.name, us * 1e-3, copy, **{**names, **extra}),
                    "judged": bool(copy and nbytes > CACHE and roofline.floor_us(nbytes, copy) > SHORT),
                }
            )
    except Exception as error:  # a kernel that fails must not hide the others
        rows.append({"kernel": case.run.__name__, "shape": list(shape), "error": text_of(error)})
    finally:
        launch.clear()
        launch.backend.release()
    return rows


def text_of(error: Exception) -> str:
    """Class and first line of an error."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
