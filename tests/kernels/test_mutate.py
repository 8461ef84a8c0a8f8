"""`ci/mutate`: which mutants there are, how they die, and what is said of those that do not."""

import time

import numpy as np
import pytest

from lucid.kernel import loader
from lucid.testing import cusim
from lucid.testing.cusim.mutants import mutants
from tests.kernels import mutate, scenarios
from tests.kernels.sim import device, module

TINY = """// x[i] += 1
extern "C" __global__ void __launch_bounds__(32, 1) f(float* x, int n) {
  const int i = threadIdx.x, j = i + 0;
  if (i < n) x[j] += 1.0f;
}
"""


def test_the_mutants_of_a_line():
    def changes(line):
        return [m.change for m in mutants(line)]

    assert changes("  __syncthreads();    // a < b") == ["__syncthreads(); -> ;"]
    assert changes("  atomicAdd(out + index[i], alpha * x);") == [
        "atomicAdd(out + index[i], alpha * x) -> *(out + index[i]) += (alpha * x)",
        "+ -> -",
        "* -> +",
    ]
    assert changes("  __shared__ float s[8][32];") == ["8 -> 7", "32 -> 31"]
    assert changes("  x += a + b + (c ? 0.5 : -d);") == [
        "+= -> -=",
        "+ -> -",
        "+ -> - #2",
        "c -> !c",
        "0.5 -> 0.5078125",
        "- -> nothing",
    ]
    assert changes("#define FOR(i) for (i64 i = 0; i < n; i++)") == [
        "i64 -> int",
        "0 -> 1",
        "< -> <=",
        "++ -> += 2",
    ]
    for untouched in (
        "// i < n",
        '#include "x" // 1',
        "#pragma unroll 4",
        "template <class T> KERNEL __launch_bounds__(256, 1) f(T* a,",
    ):
        assert changes(untouched) == []


def test_a_mutant_is_one_change():
    for path in sorted(loader.source_folder().glob("*.cu*")):
        text = path.read_text()
        found = mutants(text)
        assert len({m.apply(text) for m in found} | {text}) == len(found) + 1, path.name
        m = found[-1]
        changed = m.apply(text)
        differing = [
            n for n, (a, b) in enumerate(zip(text.split("\n"), changed.split("\n"), strict=True), 1) if a != b
        ]
        assert differing == [m.line]


def _tiny_trials(file):
    def run(mode):
        x = device(np.arange(20, dtype=np.float32))
        cusim.Module(loader.source(file), mode=mode).launch("f", 1, 32, (x, np.int32(20)), order="forward")
        np.testing.assert_array_equal(x, np.arange(20) + 1)

    yield "values", lambda: run("fast")
    yield "checked", lambda: run("checked")


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A folder of kernels with one file, whose trials are those above."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "tiny.cu").write_text(TINY)
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mutate, "trials", _tiny_trials)
    monkeypatch.setattr(scenarios, "FILES", {"tiny.cu": ()})
    monkeypatch.setattr(loader, "source_folder", lambda: folder)
    monkeypatch.setattr(mutate.os, "nice", lambda n: 0)
    yield folder
    loader.source.cache_clear()
    module.cache_clear()


def test_deaths_and_survivors(tiny, capsys):
    assert mutate.main(["--list", "tiny.cu"]) == 0
    listed = capsys.readouterr().out.strip().split("\n")
    assert len(listed) == 6 and listed[0].startswith(
        "kernels/tiny.cu:3: const int i = threadIdx.x, j = i + 0;"
    )
    assert mutate.main([]) == 1
    printed = capsys.readouterr().out
    survivor = "kernels/tiny.cu:3: const int i = threadIdx.x, j = i + 0;  [+ -> -]"
    assert f"survived: {survivor}" in printed and printed.count("survived: ") == 1
    assert printed.split("\n")[-2].split() == ["tiny.cu", "6", "of", "6", "0", "4", "1", "0", "0", "1"]
    mutate.main(["--verbose"])
    told = capsys.readouterr().out
    assert "4: if (i < n) x[j] += 1.0f;  [< -> <=]: checked: f<<<" in told and "out-of-bounds" in told

    row = '[[equivalent]]\nfile = "tiny.cu"\nline = "{}"\nchange = "{}"\nwhy = "nothing is added or taken"\n'
    line = "const int i = threadIdx.x, j = i + 0;"
    explained = row.format(line, "+ -> -") + row.format(line, "0 -> 1")
    (tiny / "mutants.toml").write_text(explained)
    assert mutate.main(["tiny.cu"]) == 0
    printed = capsys.readouterr().out
    assert f"killed or gone: tiny.cu: {line}  [0 -> 1]" in printed and printed.count("killed or gone") == 1
    assert printed.split("\n")[-2].split()[-2:] == ["1", "0"]


def test_what_is_known_is_not_run_again(tiny, monkeypatch):
    runs = []
    monkeypatch.setattr(
        mutate.Workshop, "_in_child", lambda self, file, *_: runs.append(file) or ("survived", "")
    )
    assert mutate.run_file("tiny.cu", 0, [], False, False)[1] == 6 and len(runs) == 7  # and the source itself
    assert mutate.run_file("tiny.cu", 0, [], False, False)[1] == 6 and len(runs) == 7
    assert mutate.run_file("tiny.cu", 2, [], True, False)[0][1] == "2 of 6" and len(runs) == 10
    (tiny / "tiny.cu").write_text(TINY.replace("1.0f", "2.0f"))
    mutate.run_file("tiny.cu", 0, [], False, False)
    assert len(runs) == 17


def test_what_cannot_run_is_no_death(tiny, monkeypatch):
    def full(file, *_):
        raise OSError("no space left")

    monkeypatch.setattr(mutate, "_outcome", full)
    with pytest.raises(RuntimeError, match=r"(?s)cannot run kernels/tiny.cu:.*no space left"):
        mutate.run_file("tiny.cu", 0, [], False, False)


def test_a_hang_ends(tiny, monkeypatch):
    def busy(*_):
        while True:
            pass

    workshop = mutate.Workshop()
    for name, limit, work in (("LIMIT", 0.3, busy), ("PATIENCE", 0.3, lambda *_: time.sleep(30))):
        with monkeypatch.context() as patch:
            patch.setattr(mutate, name, limit)
            patch.setattr(mutate, "_outcome", work)
            outcome, why = workshop.run("tiny.cu", TINY)
        assert outcome == "timeout" and "0.3 s" in why
    workshop.close()


def test_activations_that_a_line_can_touch():
    text = (loader.source_folder() / "activations.cuh").read_text()
    starts = enumerate(text.split("\n"), 1)
    line = {t.split("(")[0].split()[-1]: n for n, t in starts if t.startswith("DEVICE accum_t")}
    assert mutate.activations("activations.cuh", text, line["gelu_value"]) == ("gelu",)
    assert mutate.activations("activations.cuh", text, line["silu_slope"] + 2) == ("silu",)
    assert mutate.activations("activations.cuh", text, line["logistic"] + 2) == ("sigmoid", "silu")
    cubic = text.split("#define CUBIC")[0].count("\n") + 1
    assert mutate.activations("activations.cuh", text, cubic) == ("gelu_tanh",)


def test_names():
    assert mutate.files_of(["adam", "softmax.cu", "sgd"]) == ["optimizer.cu", "softmax.cu"]
    assert mutate.files_of([]) == list(scenarios.FILES)
    assert set(scenarios.FILES) == {path.name for path in loader.source_folder().glob("*.cu*")}
    with pytest.raises(SystemExit, match="there is no file and no kernel 'sofmax'"):
        mutate.files_of(["sofmax"])


def test_every_explanation_is_of_a_mutant_that_there_is():
    for row in mutate.explanations(loader.source_folder() / "mutants.toml"):
        there = {(m.code, m.change) for m in mutants((loader.source_folder() / row["file"]).read_text())}
        gone = [change for change in row["change"] if (row["line"], change) not in there]
        assert row["why"] and not gone, f"kernels/mutants.toml: {row['file']}: {row['line']} has no {gone}"
