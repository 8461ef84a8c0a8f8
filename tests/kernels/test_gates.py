"""What the scenarios reach: every build of every kernel and every line of every source; and how the memory
requests of the vector forms divide into sectors and banks.
"""

import re
import subprocess
from itertools import product

import pytest

from lucid.kernel import loader
from lucid.kernel.specs import FLOATS, KERNELS
from lucid.testing import cusim
from lucid.testing.cusim import compiler
from tests.kernels import scenarios
from tests.kernels.sim import Sim, in_child, module

SOURCES = sorted(path.name for path in loader.source_folder().glob("*.cu*"))

# ---- coverage ----


class _Covering(Sim):
    coverage = True
    used: set = set()


def _run_covered(scenario, dtype, odd):
    scenario(_Covering("random"), dtype, odd)
    return _Covering.used, {name: c.counts for name, c in cusim.coverage().items()}


@pytest.fixture(scope="module")
def covered():
    used, counts = set(), {}
    # Beyond float32 and float16 what differs: conversions, the shapes of norm_backward.
    runs = [(s, d) for s in scenarios.ALL for d in ("float32", "float16")]
    runs += [
        (scenarios.pointwise, "float64"),
        (scenarios.norms, "float64"),
        (scenarios.pointwise, "bfloat16"),
    ]
    for (scenario, dtype), odd in product(runs, (0, 1)):
        launched, lines = in_child(_run_covered, scenario, dtype, odd)
        used |= launched
        for name, found in lines.items():
            total = counts.setdefault(name.removeprefix("kernels/").rsplit("/", 1)[-1], {})
            for line, n in found.items():
                total[line] = total.get(line, 0) + n
    return used, counts


@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
def test_the_scenarios_launch_every_build(covered, dtype):
    files = ("norm.cu", "pointwise.cu") if dtype == "float64" else SOURCES
    chosen = [k for k in KERNELS.values() if k.file in files and dtype in k.dtypes]
    wanted = {(k.name, build) for k in chosen for build in k.builds(dtype)}
    launched = {(n, build) for n, d, build in covered[0] if d == dtype and KERNELS[n].file in files}
    assert launched == wanted, f"never launched: {sorted(wanted - launched)}"


@pytest.mark.parametrize("file", SOURCES)
def test_every_line_runs(covered, file, kernel_table):
    counts = covered[1][file]
    never = sorted(line for line, n in counts.items() if not n)
    kernel_table["lines", file] = f"{len(counts) - len(never)} of {len(counts)} lines run"
    assert not never, f"{file}: lines that no scenario runs: {never}"


def _compiled_lines(file):
    # Numbers of the lines that some build contains, by the preprocessor's own account.
    builds = {(d, b) for k in KERNELS.values() if k.file == file for d in FLOATS for b in k.builds(d)}
    found = {}
    for dtype, defines in sorted(builds):
        command = [compiler.compiler(), "-E", "-nostdinc", f"-I{compiler.INCLUDE}", "-imacros"]
        options = [o for o in loader.options(dtype, defines) if o.startswith(("-I", "-D"))]
        command += [str(compiler.INCLUDE / "cusim_site.h"), *options, "-x", "c++", "-"]
        text = (loader.source_folder() / file).read_text()
        expanded = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        name, number = "", 0
        for line in expanded.split("\n"):
            if m := re.match(r'# (\d+) "([^"]*)"', line):
                number, name = int(m[1]), file if m[2] == "<stdin>" else m[2].rsplit("/", 1)[-1]
                continue
            if line.strip():
                found.setdefault(name, set()).add(number)
            number += 1
    return found


def _code_lines(text):
    # Numbers of the lines that hold code: no comment, no directive or continuation of one, no bare brace.
    found, inside = {}, False
    for number, line in enumerate(text.split("\n"), 1):
        code = line.split("//")[0].strip()
        directive = inside or code.startswith("#")
        inside = directive and code.endswith("\\")
        if not directive and code.strip("{};) "):
            found[number] = code
    return found


# What only a GPU's compiler sees: float16 is converted by an instruction there, by its bits in the simulator.
_FOR_THE_GPU = (
    "DEVICE accum_t up(scalar_t h) {",
    "float x;",
    'asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));',
    "return x;",
    "DEVICE scalar_t down(accum_t x) {",
    "u16 h;",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));',
    "return h;",
)


def test_every_line_is_in_some_build():
    compiled = {}
    for file in sorted({k.file for k in KERNELS.values()}):
        for name, lines in _compiled_lines(file).items():
            compiled.setdefault(name, set()).update(lines)
    for file in SOURCES:
        code = _code_lines((loader.source_folder() / file).read_text())
        left_out = tuple(code[n] for n in sorted(set(code) - compiled[file]))
        assert left_out == (_FOR_THE_GPU if file == "lucid.cuh" else ()), file


# ---- sectors and banks ----

_NEAR = "its packs read or write what lies beside in the next instruction: the L1 cache joins them"
_SMALL = "one row of partial sums per block: 1/64 or less of what the block reads"
_TAIL = "fewer elements than a pack, or a tensor at an odd address"
_GATHER = "windows overlap: rows of a window start anywhere"
_SEARCH = "a binary search; by index"
_BANKS = "once per segment of more than 64 rows"
# Places where a warp's request takes more sectors than its bytes fill, or several turns at a bank of shared
# memory: (file, text of the line or "" for the whole file) and why that may be.
UNEVEN = {
    ("cross_entropy.cu", "const accum_t w = weight ? up(weight[c + k])"): _NEAR,
    ("cross_entropy.cu", "if (share > 0) d -= share * (weight ?"): _NEAR,
    ("norm.cu", "if (weight) y *= up(weight[c + k]);"): _NEAR,
    ("norm.cu", "if (bias) y += up(bias[c + k]);"): _NEAR,
    ("norm.cu", "const accum_t gw = up(q.v[k]) * (weight ?"): _NEAR,
    ("bias_grad.cu", "store(partial,"): _SMALL,
    ("norm.cu", "store(partial,"): _SMALL,
    ("batch_norm.cu", "store(partial,"): _SMALL,
    ("norm.cu", "if (c < cols) partial[(i64)blockIdx.x * cols + c] = total;"): _SMALL,
    ("pointwise.cu", "(mask[i + k] ? scale : (accum_t)0)"): _NEAR,
    ("batch_norm.cu", "mu[k] = x ? mean[c + k]"): _NEAR,
    ("batch_norm.cu", "scale[k] = dx ? (weight ? up(weight[c + k])"): _NEAR,
    ("batch_norm.cu", "coefficients[c] * up(q.v[k])"): _NEAR,
    ("batch_norm.cu", "(up(p.v[k]) - mean[c]) * scale[c]"): _NEAR,
    ("optimizer.cu", "UPDATE("): _TAIL,
    ("gradients.cu", "CHANGE("): _TAIL,
    ("gradients.cu", "for (i64 j = i; j < min(stop, i + PACK); j++)"): _TAIL,
    ("pool.cu", ""): _GATHER,
    ("columns.cu", ""): _GATHER,
    ("segment.cu", "if (sorted[middle] < i)"): _SEARCH,
    ("segment.cu", "sum += up(src[order[j]])"): _SEARCH,
    ("segment.cu", "EACH(k) shared[threadIdx.y][threadIdx.x].v[k] = sum[k];"): _BANKS,
    ("segment.cu", "EACH(k) sum[k] += shared[y][threadIdx.x].v[k];"): _BANKS,
}
# Above this many sectors for each that the bytes fill: rows that end within a sector stay below.
_EVEN = 1.25


class _Watched(Sim):
    """Counts sectors and bank conflicts of vector forms, by (kernel, places, space)."""

    requests: dict = {}

    def __call__(self, name, grid, block, args, dtype, defines=(), **sizes):
        kernel = KERNELS[name]
        compiled = module(kernel.file, dtype.name, (*kernel.defines, *defines), "checked", False)
        compiled.collect_traffic()
        super().__call__(name, grid, block, args, dtype, defines, **sizes)
        for t in compiled.traffic() if "LUCID_SCALAR" not in defines else ():
            key = (name, tuple((file.rsplit("/", 1)[-1], line) for file, line in t.places), t.space)
            units, ideal = self.requests.get(key, (0, 0))
            self.requests[key] = units + t.units, ideal + t.ideal


def _run_watched(scenario, dtype):
    _Watched.requests = {}
    scenario(_Watched("random", 1, mode="checked"), dtype, 0)
    return _Watched.requests


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda f: f.__name__)
def test_requests_fill_their_sectors(scenario, dtype, kernel_table):
    requests = in_child(_run_watched, scenario, dtype)
    texts = {file: (loader.source_folder() / file).read_text().split("\n") for file in SOURCES}
    found = []
    for (name, places, space), (units, ideal) in sorted(requests.items()):
        even = units <= ideal * (_EVEN if space == "global" else 1.0)
        lines = [(file, texts[file][line - 1]) for file, line in places]
        known = any(f == file and part in code for f, part in UNEVEN for file, code in lines)
        if not even and not known:
            what = "sectors" if space == "global" else "turns at shared memory"
            chain = " < ".join(f"{file}:{line}" for file, line in places)
            found.append(f"{name}: {chain}: {units} {what}, {ideal} would do: {lines[-1][1].strip()}")
    units, ideal = (sum(r[i] for r in requests.values()) for i in (0, 1))
    kernel_table["sectors", f"{scenario.__name__} {dtype}"] = f"{units} sectors and turns, {ideal} ideal"
    assert not found, "\n".join(found)
