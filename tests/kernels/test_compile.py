"""Compilation for real architectures, where NVRTC is installed, and the judgement of what comes out of it."""

import dataclasses
import json
import re

import pytest

from lucid.errors import KernelError
from lucid.kernel import compile as compiling
from lucid.kernel import loader, report
from lucid.kernel.specs import KERNELS

_ROW = report.Row("softmax", "float32", 90, 40, 128, 0, 0, 6, 1, 0, 6)

needs_nvrtc = pytest.mark.skipif(not compiling.available()[0], reason=compiling.available()[1] or "installed")

_LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'softmax' for 'sm_90'
ptxas info    : Function properties for softmax
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compiling entry function 'copy' for 'sm_90'
ptxas info    : Function properties for copy
    24 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
"""


def test_reading_what_ptxas_reports():
    assert compiling.read_resources(_LOG) == {
        "softmax": compiling.Resources(40, 128, 0, 0),
        "copy": compiling.Resources(32, 0, 24, 24),
    }


@pytest.mark.parametrize(
    "change,text",
    (
        (dict(spills=24), "softmax float32 sm_90: 24 bytes of spills"),
        (dict(float64=2), "2 float64 instructions"),
        (dict(load128=1), "1 loads of 128 bits; expected 2"),
        (dict(store128=0), "0 stores of 128 bits; expected 1"),
        (dict(shared=50000), "50000 bytes of static shared memory"),
    ),
)
def test_what_no_kernel_may_do(change, text):
    assert report.problems([_ROW]) == []
    assert text in report.problems([dataclasses.replace(_ROW, **change)])[0]


def test_float64_kernels_may_use_float64():
    assert report.problems([dataclasses.replace(_ROW, dtype="float64", float64=50)]) == []


def test_comparison_with_the_table():
    table = {"kernels": {"softmax": {"float32": {"90": [40, 128]}}}}
    assert report.differences([_ROW, dataclasses.replace(_ROW, registers=48)], table) == []
    found = report.differences(
        [
            dataclasses.replace(_ROW, registers=49),
            dataclasses.replace(_ROW, shared=129),
            dataclasses.replace(_ROW, arch=80),
        ],
        table,
    )
    assert (
        len(found) == 3
        and "49 registers" in found[0]
        and "129 bytes" in found[1]
        and "not in the table" in found[2]
    )


def test_the_table_in_the_repository_is_complete():
    table = json.loads((loader.source_folder().parent / "ci" / "kernels_table.json").read_text())
    assert list(table["kernels"]) == list(KERNELS)
    for name, dtypes in table["kernels"].items():
        assert list(dtypes) == list(KERNELS[name].dtypes), name
        for archs in dtypes.values():
            assert list(archs) == [str(a) for a in compiling.ARCHS], name


def test_units_make_every_kernel():
    made = {name for unit in report.units() for name in unit.kernels()}
    assert made == set(KERNELS)
    assert report.units(["copy"], ["float32"]) == [
        report.Unit("pointwise.cu", "float32", ()),
        report.Unit("pointwise.cu", "float32", ("LUCID_SCALAR",)),
    ]
    assert {row[0] for row in report.listing()} == set(KERNELS)
    with pytest.raises(KernelError, match="there is no 'sofmax'"):
        report.units(["sofmax"])


def test_without_nvrtc(monkeypatch, capsys):
    monkeypatch.setattr(compiling, "nvrtc_library", lambda: None)
    compiling._nvrtc.cache_clear()
    assert report.main(["copy"]) == 2
    assert "pip install 'nvidia-cuda-nvrtc" in capsys.readouterr().err
    with pytest.raises(KernelError, match="NVRTC is not installed"):
        compiling.nvrtc_version()


@needs_nvrtc
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_kernels_compile_without_spills(dtype):
    # ci/kernels compiles every build; here two architectures and one build of each file.
    for file in sorted({k.file for k in KERNELS.values()}):
        unit = next(u for u in report.units(dtypes=[dtype]) if u.file == file)
        rows = report.compile_unit(unit, (75, 90), sass=False)
        assert report.problems(rows) == [] and {r.kernel for r in rows} == set(unit.kernels())


@needs_nvrtc
def test_errors_name_file_and_line():
    with pytest.raises(
        KernelError,
        match=r'kernels/x.cu for sm_90 does not compile: kernels/x.cu:2: identifier "ecp" is undefined',
    ):
        compiling.cubin(
            '#line 1 "kernels/x.cu"\nextern "C" __global__ void f(float* x) {\n  *x = ecp(*x);\n}',
            ("-std=c++17",),
            90,
            "kernels/x.cu",
        )


@needs_nvrtc
@pytest.mark.skipif(compiling.disassembler() is None, reason="cuobjdump and nvdisasm are not installed")
def test_disassembly():
    binary, resources = compiling.compile_file("pointwise.cu", "float32", (), 90)
    found = compiling.disassemble(binary)
    assert set(found) == set(resources) == {"copy", "masked_scale"}
    assert (
        found["copy"].load128 >= 1
        and found["copy"].store128 >= 1
        and found["copy"].float64 == found["copy"].local == 0
    )
    assert (
        compiling.disassemble(compiling.compile_file("pointwise.cu", "float32", ("LUCID_SCALAR",), 90)[0])[
            "copy"
        ].load128
        == 0
    )


_WIDE = """extern "C" __global__ void f(float* x, int n) {
  for (int i = threadIdx.x; i < n; i += 32) x[i] = x[i] * 0.1 + 1.0;
}
"""
_SPILLS = """extern "C" __global__ void __launch_bounds__(1024, 2) f(float* x, int n) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; i++) a[i] = x[i * n];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; i++) x[i * n] = a[i] * a[63 - i];
}
"""


def _planted(monkeypatch, code, arch):
    monkeypatch.setattr(loader, "source", lambda file: code)
    monkeypatch.setattr(report.Unit, "kernels", lambda unit: ["copy"])
    monkeypatch.setitem(KERNELS, "copy", dataclasses.replace(KERNELS["copy"], entry="f"))
    unit = report.Unit("pointwise.cu", "float32", ())
    return report.problems(report.compile_unit(unit, (arch,), sass=True))


@needs_nvrtc
@pytest.mark.skipif(compiling.disassembler() is None, reason="cuobjdump and nvdisasm are not installed")
@pytest.mark.parametrize("arch", compiling.ARCHS)
def test_planted_float64_spills_and_narrow_accesses_are_named(monkeypatch, arch):
    found = _planted(monkeypatch, _WIDE, arch)
    if arch == report.SASS_ARCH:
        wide = r"copy float32 sm_90: \d+ float64 instructions; expected none"
        assert any(re.fullmatch(wide, text) for text in found)
        assert "copy float32 sm_90: 0 loads of 128 bits; expected 1 or more" in found
    found = _planted(monkeypatch, _SPILLS, arch)
    spills = rf"copy float32 sm_{arch}: \d+ bytes of spills, .*; expected none"
    assert any(re.fullmatch(spills, text) for text in found)
