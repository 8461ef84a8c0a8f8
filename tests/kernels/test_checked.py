"""Every kernel, in every build: its values in four orders of threads, the simulator's checked mode (bounds,
races, alignment, uninitialised shared memory), and bugs planted in the sources.
"""

import re

import numpy as np
import pytest

from lucid.kernel import loader
from lucid.kernel.specs import KERNELS
from lucid.testing import cusim
from tests.kernels import scenarios
from tests.kernels.sim import DTYPES, ORDERS, Sim, device, in_all_orders, normal

each_scenario = pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda f: f.__name__)
odd_and_even = pytest.mark.parametrize("odd", (0, 1), ids=("packs", "scalar"))


@odd_and_even
@pytest.mark.parametrize("dtype", DTYPES)
@each_scenario
def test_values_in_four_orders(scenario, dtype, odd):
    scenario(Sim(), dtype, odd)


@odd_and_even
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@each_scenario
def test_nothing_to_report(scenario, dtype, odd):
    scenario(Sim("random", 5, mode="checked"), dtype, odd)


def test_results_that_depend_on_the_order_are_found():
    class Racing:
        def __call__(self, order, seed):
            out[0] = 1.0 if (order, seed) != ORDERS[3] else 2.0

    out = np.zeros(2, np.float32)
    with pytest.raises(AssertionError, match=r"copy: depends on the order of threads \(.*'random', 2"):
        in_all_orders(Racing(), [out], "copy")
    # Additions that start from what an earlier order left would differ too.
    in_all_orders(lambda order, seed: out.__iadd__(1), [out], "copy")


# ---- planted bugs: the report must name the kernel, the file and the line ----


def _planted(file, text, replacement, kernel, defines=()):
    """(module with one change, line of the change)."""
    source = (loader.source_folder() / file).read_text()
    assert source.count(text) >= 1
    line = source[: source.index(text)].count("\n") + 1
    changed = source.replace(text, replacement, 1)
    options = loader.options("float32", (*KERNELS[kernel].defines, *defines))
    code, filename = f'#line 1 "kernels/{file}"\n{changed}', f"kernels/{file}"
    return cusim.Module(code, options, filename=filename, mode="checked"), line


def _line(file, text):
    return (loader.source_folder() / file).read_text().split(text)[0].count("\n") + 1


def _column_sum(m, order="random"):
    g, partial = normal((40, 64), "float32"), device(np.zeros((2, 64), np.float32))
    m.launch("column_sum", (1, 2), (32, 8), (g, partial, np.int64(40), np.int64(64)), order=order)


def _softmax(m, order="random"):
    x, out = normal((2, 1032), "float32"), device(np.zeros((2, 1032), np.float32))
    m.launch("softmax", (1,), (256,), (x, out, np.int64(2), np.int32(1032)), order=order)


@pytest.mark.parametrize("order", ("forward", "reverse", "random"))
def test_a_missing_barrier_is_named(order):
    m, _ = _planted("bias_grad.cu", "  __syncthreads();\n", "\n", "column_sum")
    with pytest.raises(cusim.KernelError, match=r"^column_sum<<<\(1, 2, 1\), \(32, 8, 1\)>>>") as error:
        _column_sum(m, order)
    write = _line("bias_grad.cu", "shared[threadIdx.y][threadIdx.x] = mine;")
    read = _line("bias_grad.cu", "const accum_pack other = shared[y]")
    call = _line("bias_grad.cu", "  add_rows_in_order(sum, shared, partial, c, cols);\n}\n\n// launch")
    reports = error.value.reports
    assert {r.kind for r in reports} & {"race", "uninitialised"}
    expected = {(("kernels/bias_grad.cu", at), ("kernels/bias_grad.cu", call)) for at in (write, read)}
    assert {r.places for r in reports} <= expected, error.value


def test_a_missing_barrier_between_rows_is_named():
    # Lies in a header: the first barrier of row_max_sum orders the reads of one row before the writes of the
    # next.
    folder, header = loader.source_folder(), "lucid.cuh"
    text = (folder / header).read_text()
    start = text.index("DEVICE pair row_max_sum")
    line = text[: text.index("shared[threadIdx.x >> 5] = pair{top", start)].count("\n") + 1
    changed = text[:start] + text[start:].replace("    __syncthreads();\n", "\n", 1)
    code = (folder / "softmax.cu").read_text().replace('#include "lucid.cuh"', "").replace("#pragma once", "")
    code = f'#line 1 "kernels/lucid.cuh"\n{changed}\n#line 2 "kernels/softmax.cu"\n{code}'
    options = loader.options("float32", ("LUCID_THREADS=256",))
    m = cusim.Module(code, options, filename="kernels/softmax.cu", mode="checked")
    with pytest.raises(cusim.KernelError, match="^softmax<<<") as error:
        _softmax(m)
    found = [r for r in error.value.reports if r.kind == "race"]
    assert ("kernels/lucid.cuh", line) in {r.places[0] for r in found}
    assert all(r.places[-1][0] == "kernels/softmax.cu" for r in found)


@pytest.mark.parametrize("order", ("forward", "reverse", "random"))
def test_a_write_out_of_bounds_is_named(order):
    m, line = _planted(
        "bias_grad.cu",
        "store(partial, blockIdx.y * cols + c, mine)",
        "store(partial, blockIdx.y * cols + c + 4, mine)",
        "column_sum",
    )
    with pytest.raises(cusim.KernelError, match=r"^column_sum<<<\(1, 2, 1\), \(32, 8, 1\)>>>") as error:
        _column_sum(m, order)
    (report,) = error.value.reports
    assert report.kind == "out-of-bounds" and "past the end of argument 1 (partial)" in report.text
    assert ("kernels/bias_grad.cu", line) in report.places
    assert re.search(
        rf"lucid\.cuh:\d+: out-of-bounds: .*called from kernels/bias_grad.cu:{line}\b", str(report)
    )


def test_the_unchanged_kernels_are_clean():
    m, _ = _planted("bias_grad.cu", "column_sum_finish", "column_sum_finish", "column_sum")
    _column_sum(m)
    m, _ = _planted("softmax.cu", "softmax", "softmax", "softmax", ("LUCID_THREADS=256",))
    _softmax(m)
