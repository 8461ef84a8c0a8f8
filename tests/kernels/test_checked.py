"""Every kernel in the simulator's checked mode (bounds, races, alignment, uninitialised shared memory), its
line coverage, and two planted bugs.
"""

from itertools import product

import numpy as np
import pytest

from lucid.kernel import loader
from lucid.kernel.specs import KERNELS
from lucid.testing import cusim
from tests.kernels import scenarios
from tests.kernels.sim import Sim, device, in_child, normal


@pytest.mark.parametrize("odd", (0, 1), ids=("packs", "scalar"))
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda f: f.__name__)
def test_nothing_to_report(scenario, dtype, odd):
    scenario(Sim("random", 5, mode="checked"), dtype, odd)


class _Covering(Sim):
    coverage = True
    used: set = set()


def _run_covered(scenario, dtype, odd):
    scenario(_Covering(), dtype, odd)
    return _Covering.used, {name: c.counts for name, c in cusim.coverage().items()}


@pytest.fixture(scope="module")
def covered():
    used, counts = set(), {}
    for scenario, dtype, odd in product(scenarios.ALL, ("float32", "float16"), (0, 1)):
        launched, lines = in_child(_run_covered, scenario, dtype, odd)
        used |= launched
        for name, found in lines.items():
            total = counts.setdefault(name.removeprefix("kernels/").rsplit("/", 1)[-1], {})
            for line, n in found.items():
                total[line] = total.get(line, 0) + n
    return used, counts


def test_the_scenarios_launch_every_kernel(covered):
    assert {name for name, _, _ in covered[0]} == set(KERNELS)


def test_every_line_of_every_kernel_runs(covered):
    sources = {path.name for path in loader.source_folder().glob("*.cu*")}
    assert sources <= set(covered[1])
    missing = {
        file: sorted(line for line, n in lines.items() if not n)
        for file, lines in covered[1].items()
        if file in sources
    }
    missing = {file: lines for file, lines in missing.items() if lines}
    assert not missing, f"lines that no scenario runs: {missing}"


# ---- planted bugs: checked mode must name the file and the line ----


def _mutant(file, line_with, replacement, kernel, defines=()):
    text = (loader.source_folder() / file).read_text()
    assert text.count(line_with) >= 1
    line = text[: text.index(line_with)].count("\n") + 1
    changed = text.replace(line_with, replacement, 1)
    options = loader.options("float32", (*KERNELS[kernel].defines, *defines))
    source, filename = f'#line 1 "kernels/{file}"\n{changed}', f"kernels/{file}"
    return cusim.Module(source, options, filename=filename, mode="checked"), line


def _column_sum(m):
    g, partial = normal((40, 64), "float32"), device(np.zeros((2, 64), np.float32))
    m.launch("column_sum", (1, 2), (32, 8), (g, partial, np.int64(40), np.int64(64)))


def test_a_missing_barrier_is_named():
    m, line = _mutant("bias_grad.cu", "  __syncthreads();\n", "\n", "column_sum")
    with pytest.raises(cusim.KernelError) as error:
        _column_sum(m)
    assert any(
        r.kind in ("race", "uninitialised", "uninit") or "race" in r.kind or "init" in r.kind
        for r in error.value.reports
    ), error.value
    assert all("bias_grad.cu" in r.file and abs(r.line - line) <= 8 for r in error.value.reports), (
        line,
        str(error.value),
    )


def test_a_write_out_of_bounds_is_named():
    m, line = _mutant(
        "bias_grad.cu",
        "store(partial, blockIdx.y * cols + c, mine)",
        "store(partial, blockIdx.y * cols + c + 4, mine)",
        "column_sum",
    )
    with pytest.raises(cusim.KernelError, match="partial|outside|bounds") as error:
        _column_sum(m)
    assert any(r.line == line or "lucid.cuh" in r.file for r in error.value.reports), (line, str(error.value))


def test_the_unchanged_kernel_is_clean():
    m, _ = _mutant("bias_grad.cu", "column_sum_finish", "column_sum_finish", "column_sum")
    _column_sum(m)
