"""The card on top of each source states the bytes and the floor of every kernel as benchmarks/roofline.py has
them, and the bytes are those of the arrays that the kernel reads and writes.
"""

import importlib.util
import re

import pytest

from lucid.kernel import loader
from lucid.kernel.multi_tensor import STATES
from lucid.kernel.specs import KERNELS

FILES = sorted({k.file for k in KERNELS.values()})
BANDWIDTH = 4.3e12  # of a copy, bytes per second on an H200


@pytest.fixture(scope="module")
def roofline():
    path = loader.source_folder().parent / "benchmarks" / "roofline.py"
    spec = importlib.util.spec_from_file_location("roofline", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def _card(file):
    text = (loader.source_folder() / file).read_text()
    return text[: re.search(r"^KERNEL", text, re.M).start()]


@pytest.mark.parametrize("file", FILES)
def test_the_card_is_what_roofline_gives(roofline, file):
    expected = roofline.cards(file)
    found = [line for line in _card(file).split("\n") if line.startswith("// bytes ")]
    assert found == expected, f"write into the card of kernels/{file}:\n" + "\n".join(expected)


_LINE = re.compile(
    r"// bytes (?P<names>[\w, ]+): (?P<bytes>[^;]+); (?P<sizes>(?:\w+=\d+ )*)float32: "
    r"(?P<mb>[\d.e-]+) MB, floor (?P<us>[\d.e-]+) us (?:on|in the L2 cache of) an H200"
)


@pytest.mark.parametrize("file", FILES)
def test_the_card_adds_up(file):
    # The same by arithmetic of this test's own, from the text alone.
    lines = [_LINE.fullmatch(line) for line in _card(file).split("\n") if line.startswith("// bytes ")]
    assert lines and all(lines)
    named = {name for m in lines for name in m["names"].split(", ")}
    of_file = [k for k in KERNELS.values() if k.file == file]
    assert all(k.entry in named or k.name in named for k in of_file)
    for m in lines:
        sizes = {k: int(v) for k, v in (part.split("=") for part in m["sizes"].split())}
        nbytes = eval(m["bytes"], {"s": 4, "a": 4, **sizes})
        assert float(m["mb"]) == pytest.approx(nbytes / 1e6, rel=1e-3)
        assert float(m["us"]) == pytest.approx(nbytes / BANDWIDTH * 1e6, rel=1e-3)
        assert ("L2" in m[0]) == (nbytes < 60e6)


@pytest.mark.parametrize("name", KERNELS)
def test_bytes_are_those_of_the_arrays(roofline, name):
    kernel = KERNELS[name]
    for dtype, s in (("float32", 4), ("bfloat16", 2)):
        for sizes in roofline.sizes_of(name):
            width = {"T": s, "A": 4, "W": 1, "u8": 1, "i32": 4, "i64": 8, "u64": 8}
            known = {"per_row": 0, "outputs": 1, **sizes}
            needed = optional = 0
            for a in kernel.parsed:
                words = set(re.findall(r"[A-Za-z_]\w*", a.size or "")) - {"if", "else"}
                if a.size is None or not words <= set(known):
                    continue  # partial sums, of a size that the launch chooses
                nbytes = eval(a.size, {}, known) * width[a.kind]
                # Atomic additions, and what works in place, read what they write.
                nbytes *= 2 if a.written and re.search("atomic|inplace", name) else 1
                needed, optional = needed + nbytes * (not a.optional), optional + nbytes * a.optional
            moved = kernel.traffic(dtype, **sizes)
            if "grads" in kernel.arguments:  # reaches its arrays through tables of addresses
                passes = 3 * s + 8 * STATES[name] if name in STATES else s * (1 + (name != "gradient_norm"))
                needed = sizes["n"] * passes
            if name == "loss_scale":  # three numbers
                continue
            if "atomic" in name:  # only the rows that an index names
                needed -= 2 * 4 * (sizes["rows"] - sizes["n"]) * sizes["cols"]
            assert 0.95 * needed <= moved <= 1.05 * (needed + optional), (name, dtype, sizes, moved, needed)


def test_a_measured_time_as_a_share_of_copy(roofline, capsys):
    assert roofline.main([]) == 0
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{name} ", printed, re.M) for name in KERNELS)
    assert roofline.main(["--achieved", "copy", "0.125", "n=67108864", "--dtype", "float32"]) == 0
    assert "4.29 TB/s = 100% of copy" in capsys.readouterr().out
    assert roofline.main(["--achieved", "adam", "1.6148", "n=124000000", "--dtype", "float32"]) == 0
    assert "= 50% of copy (h200: 4.30 TB/s); floor 807.4 us" in capsys.readouterr().out
    assert roofline.main(["--cards", "softmax.cu"]) == 0
    assert capsys.readouterr().out.strip().split("\n") == roofline.cards("softmax.cu")
