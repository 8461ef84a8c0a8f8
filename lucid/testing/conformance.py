"""What lucid and its simulator take for granted about CuPy, as checks that run on both.

On a machine with a GPU they tell whether the stand-in (`lucid.testing.strictcupy`) still says the truth; on
the simulator they are part of the test suite. `python -m lucid.testing.conformance --json out.json` writes
one row per check: name, what is expected, what came; `--expected` compares with what came in an earlier run,
on a GPU most usefully. A file of a simulated run says "device": "simulated".

Each check is a function of the array module that returns something printable. What only the stand-in refuses,
because CuPy goes on in silence with another result than NumPy's (indices out of range), or what it does not
model (stream capture), is a row of ON_GPU: it runs on a GPU alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .assumptions import CHECKS, ON_GPU, Check, expect, raised


def run(cp: Any, checks: list[Check] | None = None) -> list[dict[str, Any]]:
    """One row per check: name, expected, got, ok."""
    rows = []
    for name, expected, function in CHECKS if checks is None else checks:
        try:
            got = function(cp)
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
        rows.append({"name": name, "expected": expected, "got": got, "ok": got == expected})
    return rows


# ---- arrays ----


@expect(["TypeError"] * 4)
def numpy_arrays_and_lists_do_not_mix(cp: Any) -> Any:
    x, a = cp.ones(3), np.ones(3)
    return [
        raised(f)
        for f in (lambda: x + a, lambda: cp.add(x, a), lambda: np.asarray(x), lambda: cp.add(x, [1, 2, 3]))
    ]


@expect([(), "ndarray", (), "ndarray"])
def reductions_and_full_indices_are_0d_arrays(cp: Any) -> Any:
    x = cp.arange(6.0).reshape(2, 3)
    return [x.sum().shape, type(x.sum()).__name__, x[0, 1].shape, type(x[0, 1]).__name__]


@expect(["float32", "float32", "float64", "int64", "float16"])
def python_numbers_are_weak(cp: Any) -> Any:
    f = cp.ones(2, "float32")
    return [
        str(d)
        for d in (
            (f * 2.0).dtype,
            (f + 1).dtype,
            (f * cp.ones(2)).dtype,
            cp.arange(3).dtype,
            (cp.ones(2, "float16") / 3).dtype,
        )
    ]


@expect(["bfloat16", "bfloat16", "float32", "bfloat16", "bfloat16"])
def bfloat16_arithmetic(cp: Any) -> Any:
    x = cp.ones(4, ml_dtypes.bfloat16)
    return [r.dtype.name for r in (x + x, x * x, x.astype("float32"), cp.exp(x), x.sum())]


@expect([["bfloat16", 4.0], ["float16", 4.0], ["float32", 4.0]])
def products_of_two_matrices_sum_in_float32(cp: Any) -> Any:
    # 2048 + 1 is 2048 in either 16-bit type: a sum in 16 bits would lose the ones.
    found = []
    for dtype in (ml_dtypes.bfloat16, "float16", "float32"):
        x, y = cp.zeros((2, 6), dtype), cp.ones((6, 3), dtype)
        x[:, 0], x[:, 1:5], x[:, 5] = 2048, 1, -2048
        out = cp.matmul(x, y)
        found.append([out.dtype.name, float(cp.matmul(y.T, x.T)[0, 0])])
        assert out.shape == (2, 3)
    return found


@expect(["nothing"] * 4)
def what_formulas_rely_on(cp: Any) -> Any:
    x, i = cp.ones((2, 3)), cp.zeros(4, "int64")
    return [
        raised(f)
        for f in (
            lambda: cp.matmul(x, x.T, out=cp.empty((2, 2))),
            lambda: cp.add.at(cp.zeros(3), i, cp.ones(4)),
            lambda: cp.copyto(x, 0.0),
            lambda: cp.lib.stride_tricks.as_strided(x, (2, 2), (24, 8)),
        )
    ]


@expect(["TypeError", "TypeError", "TypeError", "AttributeError", "AttributeError"])
def what_cupy_lacks(cp: Any) -> Any:
    x = cp.ones(3)
    return [
        raised(f)
        for f in (
            lambda: cp.sum(x, where=x > 0),
            lambda: cp.max(x, initial=0.0),
            lambda: x.astype("float32", casting="safe"),
            lambda: cp.nditer,
            lambda: cp.block,
        )
    ]


@expect([True, False, True, True])
def views_and_copies(cp: Any) -> Any:
    x = cp.arange(12.0).reshape(3, 4)
    return [bool(cp.may_share_memory(x, y)) for y in (x.T, x.copy(), x[:, ::2], x.reshape(4, 3))]


@expect([4.0, 4.0, 9])
def duplicates_add_up_with_add_at(cp: Any) -> Any:
    out, count = cp.zeros(3, "float32"), cp.zeros(3, "int64")
    cp.add.at(out, cp.asarray([0, 0, 0, 0, 2]), cp.ones(5, "float32"))
    cp.add.at(count, cp.zeros(9, "int64"), 1)
    return [float(out[0]), float(out.sum() - out[2]), int(count[0])]


@expect([True, True, False, 0.0, "ValueError", "ValueError"])
def identity_and_empty_arrays(cp: Any) -> Any:
    x, none = cp.ones((2, 3), "float32"), cp.empty(0, "float32")
    return [
        x.astype("float32", copy=False) is x,
        cp.ascontiguousarray(x) is x,
        bool(x.T.flags.c_contiguous),
        float(none.sum()),
        raised(none.max),
        raised(lambda: bool(x)),
    ]


@expect(["float64", "float32", "ndarray"])
def numpy_scalars_are_strong(cp: Any) -> Any:
    x = cp.ones(2, "float32")
    return [str((x * np.float64(2)).dtype), str((x * np.float32(2)).dtype), type(np.float32(2) * x).__name__]


@expect([True, True, True, [0, 2, 4, 1, 3]])
def nans_and_ties(cp: Any) -> Any:
    x = cp.asarray(np.array([1.0, np.nan, 3.0]))
    ties = cp.asarray(np.array([0, 1, 0, 1, 0]))
    singular = cp.zeros((2, 2), "float32")
    return [
        bool(cp.isnan(x.max())),
        bool(cp.isnan(cp.maximum(x, 1.0)[1])),
        not bool(cp.isfinite(cp.linalg.inv(singular)).all()),
        cp.argsort(ties, kind="stable").tolist(),
    ]


@expect([4096.0, 4097.0])
def halves_are_summed_in_float32(cp: Any) -> Any:
    x = cp.ones(4097, "float16")
    return [float(x[:4096].sum()), float(x.sum(dtype="float32"))]


# ---- memory ----


@expect([512, 512, 0, 1024])
def the_pool_counts_in_units_of_512_bytes(cp: Any) -> Any:
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.used_bytes()
    x = cp.empty(1, "float32")
    one = pool.used_bytes() - before
    y = cp.empty(0, "float32")
    with_empty = pool.used_bytes() - before
    del x
    none = pool.used_bytes() - before
    z = cp.empty(129, "float32")
    return [one, with_empty, none, pool.used_bytes() - before] if y.size == 0 and z.size else None


@expect([True, True])
def a_function_may_be_the_allocator(cp: Any) -> Any:
    sizes, before = [], cp.cuda.get_allocator()

    def allocate(size: int) -> Any:
        sizes.append(size)
        return before(size)

    cp.cuda.set_allocator(allocate)
    try:
        same = cp.cuda.get_allocator() is allocate
        x = cp.zeros(100, "float32")
        x + x
    finally:
        cp.cuda.set_allocator(before)
    return [same, sizes.count(400) == 2]


@expect(["OutOfMemoryError", True])
def a_limit_gives_out_of_memory(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        pool.set_limit(size=1 << 20)
        name = raised(lambda: cp.empty(1 << 20, "float64"))
    return [name, issubclass(cp.cuda.memory.OutOfMemoryError, MemoryError)]


@expect(["LucidProblem"])
def an_error_of_the_allocator_passes_through(cp: Any) -> Any:
    class LucidProblem(RuntimeError):
        pass

    def allocate(size: int) -> Any:
        raise LucidProblem(size)

    with cp.cuda.using_allocator(allocate):
        return [raised(lambda: cp.empty(3))]


# ---- transfers and exchange ----


@expect([True, [1.0, 1.0], [5.0, 5.0]])
def asarray_copies_host_arrays_and_nothing_else(cp: Any) -> Any:
    a = np.ones(2)
    x = cp.asarray(a)
    a[:] = 5.0
    return [cp.asarray(x) is x, x.get().tolist(), a.tolist()]


@expect([[0.0, 1.0, 2.0], [3.0, 3.0]])
def pinned_transfers(cp: Any) -> Any:
    import importlib

    pinned = importlib.import_module("cupyx").empty_pinned((3,), "float64")
    x = cp.arange(3.0)
    x.get(out=pinned, blocking=False)
    stream = cp.cuda.get_current_stream()
    stream.synchronize()
    source = importlib.import_module("cupyx").empty_pinned((2,), "float64")
    source[:] = 3.0
    y = cp.empty(2)
    y.set(source, stream)
    event = stream.record()
    event.synchronize()
    return [pinned.tolist(), y.get().tolist()]


@expect([True, True, [2, 0], 3])
def exchange_without_a_copy(cp: Any) -> Any:
    x = cp.arange(4.0)

    class Foreign:
        __cuda_array_interface__ = x.__cuda_array_interface__

    return [
        cp.asarray(Foreign()).data.ptr == x.data.ptr,
        cp.from_dlpack(x).data.ptr == x.data.ptr,
        [int(n) for n in x.__dlpack_device__()],
        x.__cuda_array_interface__["version"],
    ]


# ---- streams, events, switches ----


@expect([True, True, True, True])
def streams(cp: Any) -> Any:
    s = cp.cuda.Stream(non_blocking=True)
    with s:
        inside = cp.cuda.get_current_stream() == s
    s.synchronize()

    class Handle:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, int(s.ptr)

    return [
        inside,
        cp.cuda.get_current_stream() == cp.cuda.Stream.null,
        bool(s.done),
        cp.cuda.Stream.from_external(Handle()).ptr == s.ptr,
    ]


@expect([True, True])
def events(cp: Any) -> Any:
    start, end = cp.cuda.Event(), cp.cuda.Event()
    stream = cp.cuda.get_current_stream()
    start.record(stream)
    cp.ones(1000) * 2
    end.record(stream)
    end.synchronize()
    return [bool(end.done), cp.cuda.get_elapsed_time(start, end) >= 0]


@expect([7, 1])
def compute_types(cp: Any) -> Any:
    r = cp._core._routines_linalg
    before = r.get_compute_type("f")
    try:
        r.set_compute_type(np.float32, r.COMPUTE_TYPE_TF32)
        tf32 = r.get_compute_type("f")
        r.set_compute_type(np.float32, r.COMPUTE_TYPE_DEFAULT)
        return [int(tf32), int(r.get_compute_type("f"))]
    finally:
        r.set_compute_type(np.float32, before)


@expect([True, True, True, True])
def device_queries(cp: Any) -> Any:
    properties = cp.cuda.runtime.getDeviceProperties(0)
    free, total = cp.cuda.runtime.memGetInfo()
    return [
        isinstance(properties["name"], bytes),
        properties["multiProcessorCount"] > 0,
        0 < free <= total,
        int(cp.cuda.runtime.getDevice()) == cp.ones(1).device.id,
    ]


@expect([True, True, True])
def what_a_device_offers_lucid(cp: Any) -> Any:
    x = cp.arange(4.0)
    stream = cp.cuda.get_current_stream()
    y = cp.empty_like(x)
    stream.wait_event(stream.record(cp.cuda.Event(disable_timing=True)))
    y.data.copy_from_device_async(x.data, x.nbytes, stream)
    return [
        x.data.device_id == x.device.id == cp.cuda.Device().id,
        y.get().tolist() == [0.0, 1.0, 2.0, 3.0],
        90 in [int(n) for n in cp.cuda.nvrtc.getSupportedArchs()],
    ]


# ---- kernels ----

_DOUBLE = (
    'extern "C" __global__ void twice(const float* x, float* out, int n) { int i = blockIdx.x * blockDim.x '
    "+ threadIdx.x; if (i < n) out[i] = 2 * x[i]; }"
)


@expect([[0.0, 2.0, 4.0]])
def a_raw_module(cp: Any) -> Any:
    x, out = cp.arange(3, dtype="float32"), cp.empty(3, "float32")
    cp.RawModule(code=_DOUBLE, options=("-std=c++17",)).get_function("twice")(
        (1,), (32,), (x, out, np.int32(3))
    )
    return [out.get().tolist()]


@expect(["CompileException", True])
def a_compile_error_has_a_log_with_file_and_line(cp: Any) -> Any:
    from ..kernel.loader import first_error

    try:
        cp.RawModule(
            code='#line 7 "my.cu"\n' + _DOUBLE.replace("2 * x[i]", "2 * y[i]"), options=("-std=c++17",)
        ).get_function("twice")
    except Exception as error:
        file, line, _ = first_error(str(error.get_message()))  # type: ignore[attr-defined]
        return [type(error).__name__, (Path(file).name, line) == ("my.cu", 7)]
    return ["nothing"]


_MANY = (
    'extern "C" __global__ void many(const float* x, const float* none, float* out, float a, long long n) '
    "{ if (threadIdx.x < n) out[threadIdx.x] = none ? 0 : a * x[threadIdx.x]; }"
)


@expect([[6.0], [0.0], "TypeError", "TypeError", "CUDADriverError", "CUDADriverError"])
def what_a_launch_takes(cp: Any) -> Any:
    module = cp.RawModule(code=_MANY, options=("-std=c++17",))
    many, null = module.get_function("many"), np.uintp(0)
    x, out = cp.full((), 2.0, "float32"), cp.zeros(1, "float32")
    many((1,), (32,), (x, null, out, np.float32(3), np.int64(1)))
    first = out.tolist()
    # A subnormal product: every kernel of CuPy is compiled with -ftz=true.
    tiny = cp.full(1, 1e-30, "float32")
    many((1,), (1,), (tiny, null, out, np.float32(1e-10), np.int64(1)))
    rest = (x, null, out, np.float32(1), np.int64(1))
    return [
        first,
        out.tolist(),
        raised(lambda: cp.RawModule(code=_MANY, options=["-std=c++17"])),
        raised(lambda: many([1], [32], rest)),
        raised(lambda: many((1,), (1025,), rest)),
        raised(lambda: module.get_function("absent")),
    ]


# ---- on a GPU alone ----


def captured(cp: Any, work: Callable[[], Any]) -> str:
    """What `work` raises while a stream is captured as a CUDA graph, after one run outside; or "nothing"."""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        work()
        stream.synchronize()
        stream.begin_capture()
        try:
            return raised(work)
        finally:
            raised(stream.end_capture)  # a refusal has spoilt the capture


@expect(["nothing", "nothing", "NotImplementedError", "NotImplementedError", "RuntimeError"], ON_GPU)
def what_can_be_captured(cp: Any) -> Any:
    x, out, a = cp.ones((8, 8), "float32"), cp.empty(8, "float32"), np.ones(3)
    return [
        captured(cp, work)
        for work in (
            lambda: x * 2,
            lambda: x.sum(axis=0, out=out),
            lambda: x @ x,
            lambda: cp.random.rand(3),
            lambda: cp.asarray(a),
        )
    ]


@expect([2.0, 4.0], ON_GPU)
def a_graph_reads_its_buffers_again(cp: Any) -> Any:
    x, out, stream = cp.ones(4), cp.empty(4), cp.cuda.Stream(non_blocking=True)
    found = []
    with stream:
        cp.multiply(x, 2.0, out=out)
        stream.synchronize()
        stream.begin_capture()
        cp.multiply(x, 2.0, out=out)
        graph = stream.end_capture()
        for value in (1.0, 2.0):
            x.fill(value)
            graph.launch(stream)
            stream.synchronize()
            found.append(float(out[0]))
    return found


@expect([0.0, 2.0], ON_GPU)
def indices_out_of_range_wrap(cp: Any) -> Any:
    x = cp.arange(3.0)
    return [float(x[cp.asarray([n])][0]) for n in (3, -1)]


def changes(rows: list[dict[str, Any]], path: Path) -> list[str]:
    """What came otherwise than in the run that wrote the JSON file `path`."""
    earlier = json.loads(path.read_text())
    then = {row["name"]: row["got"] for part in ("checks", "gpu_only") for row in earlier.get(part, ())}
    found = []
    for row in rows:
        got = json.loads(json.dumps(row["got"], default=str))
        if row["name"] in then and then[row["name"]] != got:
            found.append(f"{row['name']}: {then[row['name']]} on {earlier['device']}, now {got}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """0 when every check holds on the CUDA device of this machine (or the simulated one), else 1; prints a
    row for each that does not.
    """
    parser = argparse.ArgumentParser(prog="python -m lucid.testing.conformance", description=main.__doc__)
    parser.add_argument("--json", type=Path, help="where to write all rows")
    parser.add_argument("--expected", type=Path, help="what --json wrote before; nothing where it is absent")
    given = parser.parse_args(arguments)
    from ..storage.backend import backend_of
    from . import simulator

    backend: Any = backend_of("cuda")
    simulated = simulator.is_on()
    rows = run(backend.cupy)
    gpu_only = [] if simulated else run(backend.cupy, ON_GPU)
    device = backend.properties()["name"]
    if given.json:
        report = {
            "device": "simulated" if simulated else device,
            "simulated": simulated,
            "cupy": backend.cupy.__version__,
            "checks": rows,
            "gpu_only": gpu_only,
        }
        given.json.write_text(json.dumps(report, indent=1, default=str))
    for row in rows + gpu_only:
        if not row["ok"]:
            print(f"{row['name']}: expected {row['expected']}, got {row['got']}")
    earlier = given.expected and given.expected.exists()
    changed = changes(rows + gpu_only, given.expected) if earlier else []
    for text in changed:
        print(f"changed: {text}")
    rows += gpu_only
    print(
        f"{sum(r['ok'] for r in rows)} of {len(rows)} assumptions about CuPy {backend.cupy.__version__} hold "
        f"on {device}" + (f", {len(changed)} changed" if earlier else "")
    )
    return int(bool(changed) or not all(r["ok"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
