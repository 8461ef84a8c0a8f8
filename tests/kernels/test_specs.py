"""The table of kernels agrees with the sources; the launcher refuses what a kernel cannot take; sources are
found and errors name file and line.
"""

import re

import numpy as np
import pytest

from lucid.errors import KernelError
from lucid.kernel import calls, loader
from lucid.kernel.launch import NULL, Launcher, accumulator, checker, prepare
from lucid.kernel.specs import FLOATS, KERNELS
from tests.kernels.sim import Sim, device, module, normal

_C_TYPES = {
    "T": "scalar_t*",
    "A": "accum_t*",
    "W": "window_t*",
    "u8": "unsigned char*",
    "i32": "int*",
    "i64": "i64*",
    "u64": "u64*",
}
_C_SCALARS = {"A": "accum_t", "i32": "int", "i64": "i64", "u64": "u64"}


def _signature(kernel):
    """[(type, name, const)] of the parameters, read from the source."""
    text = loader.source(kernel.file)
    for path in loader.source_folder().glob("*.cuh"):
        text += path.read_text()
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    for name, body in re.findall(r"#define (TABLES|WINDOWS) ((?:[^\n]*\\\n)*[^\n]*)", text):
        text = re.sub(rf"(?<!define )\b{name}\b", body.replace("\\\n", " "), text)
    parameters = re.search(rf"KERNEL\b[^;{{]*?\b{kernel.entry}\(([^{{]*)\) \{{", text)[1]
    found = []
    for part in parameters.split(","):
        words = part.replace("__restrict__", " ").replace("*", " * ").split()
        const = words[0] == "const"
        words = words[const:]
        found.append((" ".join(words[:-1]).replace(" *", "*"), words[-1], const))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_the_table_agrees_with_the_source(name):
    kernel = KERNELS[name]
    expected = [
        (
            (_C_TYPES if a.size is not None else _C_SCALARS)[a.kind],
            a.name,
            a.size is not None and not a.written,
        )
        for a in kernel.parsed
    ]
    found = _signature(kernel)
    # Addresses of parameters and state are read from tables; what lies behind them is written.
    assert [(t, n) for t, n, _ in found] == [(t, n) for t, n, _ in expected]
    assert [c for t, _, c in found if t.endswith("*")] == [c for t, _, c in expected if t.endswith("*")]


@pytest.mark.parametrize("path", sorted(loader.source_folder().glob("*.cu")), ids=lambda p: p.name)
def test_every_source_is_used_and_has_a_card(path):
    text = path.read_text()
    entries = set(re.findall(r"KERNEL\b[^;{(]*?(?:\(\d+(?:, \d)?\)|ROW_BOUNDS)\s(\w+)\(", text))
    assert entries == {k.entry for k in KERNELS.values() if k.file == path.name}
    card = text[: text.index("KERNEL")]
    assert "launch:" in text
    for entry in entries:
        assert entry.replace("_columns", "") in card, f"{path.name}: the card does not speak of {entry}"


def test_sources_use_only_what_every_compiler_has():
    for path in loader.source_folder().glob("*.cu*"):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        assert not re.search(r"INFINITY|FLT_MAX|\bint64_t|#include <", text), path.name
        for literal in re.findall(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?)(?![\w.])", text):
            # A float64 literal is cast where it stands, so that the compiler folds it.
            assert re.search(rf"\(accum_t\)-?{re.escape(literal)}", text), f"{path.name}: {literal}"


def test_traffic():
    assert KERNELS["softmax"].traffic("float32", rows=16384, cols=4096) == 2 * 16384 * 4096 * 4
    assert KERNELS["adam"].traffic("bfloat16", n=1000) == 1000 * (3 * 2 + 4 * 4)


# ---- the launcher ----


def _prepare(name, args, dtype="float32", scalar=False, **sizes):
    kernel = KERNELS[name]
    return prepare(kernel, args, np.dtype(dtype), scalar, sizes, lambda x: x.ctypes.data, np.ndarray)


def test_arguments_become_what_the_kernel_takes():
    x, out = normal(8, "float32"), normal(8, "float32")
    values = _prepare("masked_scale", (x, device(np.ones(8, bool)), out, 2.0, 8))
    assert values[0] is x and values[3].dtype == np.float32 and type(values[4]) is np.int64
    weight = _prepare(
        "layer_norm",
        (
            normal((2, 4), "float32"),
            None,
            None,
            normal((2, 4), "float32"),
            None,
            device(np.zeros(2, "float32")),
            1e-5,
            2,
            4,
        ),
    )[1]
    assert weight is NULL or weight == 0


@pytest.mark.parametrize(
    "args,message",
    (
        (lambda x: (x, x), r"kernel copy: takes 3 arguments .*, got 2"),
        (lambda x: (x.astype("float64"), x, 8), r"kernel copy: x must be float32, got float64"),
        (
            lambda x: (normal(16, "float32")[::2], x, 8),
            r"kernel copy: x must be C-contiguous, got shape \(8,\) with strides \(8,\)",
        ),
        (lambda x: (x, normal(9, "float32"), 8), r"kernel copy: out must have 8 elements .*, got 9"),
        (lambda x: (None, x, 8), r"kernel copy: x must be an array, got None"),
        (lambda x: ([1.0], x, 8), r"kernel copy: x must be a device array, got list"),
        (
            lambda x: (normal(8, "float32", offset=1), x, 8),
            (
                r"kernel copy: x must start at a multiple of 16 bytes, got address 0x.*; "
                r"launch the form with LUCID_SCALAR"
            ),
        ),
    ),
)
def test_what_a_kernel_cannot_take_is_refused(args, message):
    given = args(normal(8, "float32"))
    with pytest.raises(KernelError, match=message):
        _prepare("copy", given)
    fast = checker(KERNELS["copy"], np.dtype("float32"), False, (), lambda x: x.ctypes.data, np.ndarray)
    with pytest.raises(KernelError, match=message):
        fast(given, {})


def test_numbers_that_do_not_fit_are_refused():
    x = normal(8, "float32")
    with pytest.raises(KernelError, match="kernel softmax: cols must fit in i32, got 2147483648"):
        _prepare("softmax", (x[:0], x[:0], 0, 1 << 31))


def test_other_dtypes_are_refused():
    with pytest.raises(
        KernelError, match="kernel copy: is made for float32, float64, float16, bfloat16, got int32"
    ):
        _prepare("copy", (normal(8, "float32"), normal(8, "float32"), 8), "int32")


def test_the_form_follows_addresses_and_row_lengths():
    sim = Sim()
    assert calls.form(sim, normal(8, "float32")) == () and calls.form(
        sim, normal(8, "float32", offset=1)
    ) == ("LUCID_SCALAR",)
    assert (
        calls.form(sim, normal(8, "float32"), cols=6) == ("LUCID_SCALAR",)
        and calls.form(sim, normal(8, "float16"), cols=24) == ()
    )


# ---- the loader ----


class _Error(Exception):
    def get_message(self):
        return (
            'kernels/softmax.cu(12): error: identifier "ecp_" is undefined\n\n1 error detected in the '
            'compilation of "softmax.cu".\n'
        )


class _Backend:
    """A device whose compiler fails."""

    device, index = "cuda:7", 7

    def __init__(self, fail=True):
        self.xp, self.made = self, []
        self.fail = fail

    def RawModule(self, code, options):
        self.made.append((code, options))
        return self

    def get_function(self, name):
        if self.fail:
            raise _Error
        return name

    def properties(self):
        return {"multiProcessorCount": 2}


@pytest.fixture
def fresh():
    held = [dict(cached) for cached in (loader._modules, loader._functions, loader._failed)]
    yield
    for cached, before in zip((loader._modules, loader._functions, loader._failed), held, strict=True):
        cached.clear()
        cached.update(before)


def test_a_kernel_that_does_not_compile_warns_once_and_names_the_line(fresh):
    backend = _Backend()
    with (
        pytest.warns(
            RuntimeWarning,
            match=(
                r"kernel softmax \(float32, cuda:7\) does not compile: kernels/softmax.cu:12: "
                r'identifier "ecp_" is undefined'
            ),
        ),
        pytest.raises(loader.Unavailable),
    ):
        loader.function(backend, "softmax", "float32", ("LUCID_THREADS=32",))
    with pytest.raises(loader.Unavailable, match="softmax.cu:12"):
        loader.function(backend, "softmax", "float32", ("LUCID_THREADS=32",))
    assert len(backend.made) == 1


def test_one_module_serves_all_kernels_of_a_file(fresh):
    backend = _Backend(fail=False)
    for name in ("softmax", "log_softmax", "softmax"):
        assert loader.function(backend, name, "float16", ("LUCID_THREADS=32",)) == name
    ((code, options),) = backend.made
    assert code.startswith('#line 1 "kernels/softmax.cu"\n')
    assert {
        "-std=c++17",
        "-DLUCID_F16",
        "-DLUCID_THREADS=32",
        f"-DLUCID_HEADERS={loader.header_hash()}",
    } <= set(options)
    assert isinstance(options, tuple)


def test_a_changed_header_changes_the_options(monkeypatch, tmp_path):
    """CuPy's cache on disk does not look into what a source includes."""
    (tmp_path / "lucid.cuh").write_text("#define A 1\n")
    monkeypatch.setattr(loader, "source_folder", lambda: tmp_path)
    seen = []
    for text in ("#define A 1\n", "#define A 2\n", "#define A 1\n"):
        (tmp_path / "lucid.cuh").write_text(text)
        loader.header_hash.cache_clear()
        seen.append(loader.options("float32"))
    loader.header_hash.cache_clear()
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.parametrize(
    "log,place",
    (
        ('a.cu(3): error: expected a ";"', ("a.cu", 3, 'expected a ";"')),
        ("kernels/b.cu:7:5: error: 'x' was not declared", ("kernels/b.cu", 7, "'x' was not declared")),
        (
            "the CUDA source kernel.cu does not compile:\nkernels/c.cu:9: expected ')'\n    foo(",
            ("kernels/c.cu", 9, "expected ')'"),
        ),
        ("no compiler", ("", 0, "no compiler")),
    ),
)
def test_places_in_compiler_messages(log, place):
    assert loader.first_error(log) == place


def test_no_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(loader, "__file__", str(tmp_path / "lucid" / "kernel" / "loader.py"))
    with pytest.raises(KernelError, match="found neither; install lucid again"):
        loader.source_folder.__wrapped__()
    with pytest.raises(KernelError, match="nothing.cu cannot be read"):
        loader.source.__wrapped__("nothing.cu")


def test_accumulators():
    assert [accumulator(normal(1, d).dtype).name for d in FLOATS] == [
        "float32",
        "float64",
        "float32",
        "float32",
    ]
    assert Launcher(_Backend()).sms == 2
    assert module("pointwise.cu", "float32", (), "fast", False).parameters("copy")
