"""save and load: every dtype and shape, nested objects, damage of every kind, other programs' files, shards,
crashes.
"""

from __future__ import annotations

import io
import json
import os
import types
import zipfile
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import lucid
from lucid import optim, serialization
from lucid.errors import CheckpointError, DtypeError
from lucid.io import atomic, checkpoint
from lucid.storage.dtype import ALL


def _roundtrip(obj):
    stream = io.BytesIO()
    lucid.save(obj, stream)
    stream.seek(0)
    return lucid.load(stream)


def _equal(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, lucid.Tensor):
        assert a.requires_grad == b.requires_grad
        a, b = a.detach().numpy(), b.detach().numpy()
    if isinstance(a, (np.ndarray, np.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            _equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _equal(x, y)
    else:
        assert a == b or a != a and b != b


def _example():
    w = lucid.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    return {
        "model": OrderedDict([("0.weight", w), ("0.bias", lucid.zeros(3)), ("tied", w)]),
        "state": {
            0: {"step": 5, "exp_avg": lucid.ones(2, dtype="bfloat16")},
            (1, "a"): None,
            True: [1.5, float("inf"), -0.0],
        },
        "nan": float("nan"),
        "big": 2**80,
        "z": 1 + 2j,
        "raw": b"\x00\xff",
        "text": 'ü\n"$',
        "$": "dollar",
        "tuple": (1, (2, [])),
        "set": {3, 1},
        "array": np.arange(3, dtype="uint32"),
        "scalar": np.float32(0.1),
        "dtype": lucid.float16,
        "device": lucid.device("cpu"),
        "none": None,
        "flag": True,
        "empty": {},
        "odd": {"$": "tensor", "name": "x"},
    }


def test_nested_objects():
    obj = _example()
    back = _roundtrip(obj)
    _equal(back, obj)
    assert back["model"]["tied"] is back["model"]["0.weight"]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)], ids=str)
def test_every_dtype_and_shape(dtype, shape):
    rng = np.random.default_rng(0)
    values = (
        rng.integers(0, 2, shape)
        if dtype.kind == "b"
        else rng.integers(-100, 100, shape) * (1 + 1j if dtype.kind == "c" else 1)
    )
    t = lucid.tensor(np.asarray(values).astype(dtype))
    _equal(_roundtrip({"t": t})["t"], t)
    _equal(_roundtrip(t), t)


def test_strides_do_not_matter():
    base = np.arange(24.0).reshape(4, 6)
    for view in (
        base.T,
        base[::2, 1::2],
        base[::-1],
        np.broadcast_to(base[0], (3, 6)),
        (base + 1j * base)[:, ::3],
    ):
        t = lucid.from_numpy(view)
        np.testing.assert_array_equal(_roundtrip([t])[0].numpy(), view)


def test_keys_that_collide_as_paths():
    obj = {
        "a.b": lucid.ones(1),
        "a": {"b": lucid.zeros(1), "__metadata__": lucid.ones(2)},
        "": lucid.ones(3),
        "__metadata__": lucid.ones(4),
    }
    _equal(_roundtrip(obj), obj)


def test_loaded_tensors_are_their_own_and_writable():
    back = _roundtrip({"a": lucid.zeros(2), "b": lucid.zeros(2)})
    back["a"].add_(1.0)
    assert back["b"].tolist() == [0.0, 0.0]


def test_what_cannot_be_saved_is_named():
    class Model:
        def state_dict(self):
            return {}

    loop = []
    loop.append(loop)
    for obj, words in (
        ({"a": [Model()]}, r"a\.0 of type Model; save its state_dict\(\)"),
        (lambda: 0, "type function"),
        (loop, "contains itself"),
        ({"a": np.array(["x"])}, "dtype <U1"),
    ):
        with pytest.raises(DtypeError, match=words):
            lucid.save(obj, io.BytesIO())


# ---- damage ----


def _bytes(obj):
    stream = io.BytesIO()
    lucid.save(obj, stream)
    return stream.getvalue()


def test_1000_damaged_files_are_errors(tmp_path):
    obj = _example()
    good = _bytes(obj)
    rng = np.random.default_rng(0)
    for i in range(1000):
        bad = bytearray(good)
        kind = i % 5
        at = int(rng.integers(len(bad)))
        if kind == 0:  # One bit.
            bad[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:  # Some bytes.
            n = int(rng.integers(1, 64))
            bad[at : at + n] = rng.bytes(len(bad[at : at + n]))
        elif kind == 2:  # Cut off.
            del bad[at:]
        elif kind == 3:  # Bytes lost or inserted inside.
            if i % 2:
                del bad[at : at + int(rng.integers(1, 16))]
            else:
                bad[at:at] = rng.bytes(int(rng.integers(1, 16)))
        else:  # A zeroed sector.
            bad[at : at + 512] = bytes(len(bad[at : at + 512]))
        if bytes(bad) == good:
            continue
        with pytest.raises(CheckpointError, match="the stream cannot be read"):
            lucid.load(io.BytesIO(bytes(bad)))


def test_every_bit_of_the_header_counts():
    good = _bytes({"weight": lucid.ones(3)})
    for at in range(8 + int.from_bytes(good[:8], "little")):
        for bit in (1, 32):
            bad = bytearray(good)
            bad[at] ^= bit
            with pytest.raises(CheckpointError):
                lucid.load(io.BytesIO(bytes(bad)))


def test_errors_name_the_file_and_the_fault(tmp_path):
    path = tmp_path / "model.safetensors"
    lucid.save({"w": lucid.ones(100), "b": lucid.zeros(3)}, path)
    good = path.read_bytes()

    def fault(content):
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            lucid.load(path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "cut off: the header describes 412 bytes of data, the file has 402" in fault(good[:-10])
    assert "too long" in fault(good + b"x")
    assert "tensor 'b' is damaged: its checksum does not fit" in fault(good[:-1] + b"\x01")
    assert "not a safetensors file" in fault(b"")
    assert "not a safetensors file" in fault(b"hello, world, this is text")
    assert "bare pickle" in fault(b"\x80\x04K\x01.")
    assert "not one of torch.save" in fault(_zip({"readme.txt": b"x"}))
    assert "header is damaged" in fault(good.replace(b"[100]", b"[ 10]"))
    with pytest.raises(FileNotFoundError):
        lucid.load(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"model.safetensors cannot be read"):
        lucid.load(tmp_path)


def _plain(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content",
    [
        _plain({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"0000"),
        _plain({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, b"0000"),
        _plain({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"0000"),
        _plain({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"00000000"),
        _plain({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}, b"0000"),
        _plain({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, b"0000"),
        _plain({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, b"\x07"),
        _plain(
            {
                "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            b"0000",
        ),
        _plain(
            b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
        ),
        _plain(b"[1]"),
        _plain({"a": 3}),
        _plain(b"[" * 100_000),
        _plain(b'{"a":\xff}'),
    ],
)
def test_other_programs_bad_files_are_errors(content):
    with pytest.raises(CheckpointError):
        lucid.load(io.BytesIO(content))


# ---- other programs ----


def test_a_dict_of_tensors_is_a_plain_safetensors_file(tmp_path):
    path = tmp_path / "w.safetensors"
    weights = {
        "b": lucid.arange(3),
        "a": lucid.ones(2, 3),
        "h": lucid.ones(2, dtype="bfloat16"),
        "flag": lucid.tensor([True]),
    }
    lucid.save(weights, path)
    other = safetensors.numpy.load_file(path)
    assert sorted(other) == sorted(weights)
    for name, t in weights.items():
        if name != "h":
            np.testing.assert_array_equal(other[name], t.numpy())
    assert list(lucid.load(path)) == list(weights)


def test_files_of_other_programs_load():
    arrays = {
        "x": np.arange(6.0).reshape(2, 3),
        "y": np.array(3, "int64"),
        "h": np.ones(2, ml_dtypes.bfloat16),
    }
    back = lucid.load(io.BytesIO(safetensors.numpy.save(arrays, metadata={"format": "pt"})))
    for name, a in arrays.items():
        np.testing.assert_array_equal(back[name].numpy(), a)
        assert back[name].dtype == a.dtype


# ---- PyTorch's files ----


def _zip(parts):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _torch_bytes(obj):
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(obj, stream)
    return stream.getvalue()


def test_reads_torch_state_dicts():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    base = torch.arange(12.0).reshape(3, 4)
    obj = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "name": "x",
        "view": base.T[1:],
        "row": base[1],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "c": torch.ones(1, dtype=torch.complex64),
        "flag": torch.tensor([True]),
        "scalar": torch.tensor(5),
        "none": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "size": torch.Size([1, 2]),
    }
    back = lucid.load(io.BytesIO(_torch_bytes(obj)))

    def compare(a, b):
        if isinstance(b, torch.Tensor):
            assert a.requires_grad == b.requires_grad
            a, b = a.detach().numpy(), b.detach()
            np.testing.assert_array_equal(
                a.astype("float32") if b.dtype == torch.bfloat16 else a,
                b.float().numpy() if b.dtype == torch.bfloat16 else b.numpy(),
            )
            assert a.dtype.name == str(b.dtype).removeprefix("torch.")
        elif isinstance(b, dict):
            assert list(a) == list(b)
            for key in b:
                compare(a[key], b[key])
        elif isinstance(b, (list, tuple)):
            for x, y in zip(a, b, strict=True):
                compare(x, y)
        else:
            assert a == b

    compare(back, obj)
    assert type(back["model"]) is OrderedDict and type(back["size"]) is tuple


def test_torch_files_cannot_run_code(tmp_path):
    victim = tmp_path / "victim"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {victim}",)

    content = _torch_bytes({"w": 1, "evil": Evil()})
    with pytest.raises(
        CheckpointError, match=r"posix\.system, which is not loaded because it could run code"
    ):
        lucid.load(io.BytesIO(content))
    assert not victim.exists()


def test_torch_files_hold_objects_of_allowed_classes():
    torch = pytest.importorskip("torch")
    content = _torch_bytes({"args": types.SimpleNamespace(lr=0.1, layers=[2, 3]), "w": torch.ones(2)})

    def read():
        return lucid.load(io.BytesIO(content))

    with pytest.raises(CheckpointError, match=r"types\.SimpleNamespace.*serialization\.add_safe_globals"):
        read()
    with serialization.safe_globals([types.SimpleNamespace]):
        back = read()
    assert back["args"] == types.SimpleNamespace(lr=0.1, layers=[2, 3]) and back["w"].tolist() == [1.0, 1.0]
    with pytest.raises(CheckpointError, match=r"types\.SimpleNamespace"):
        read()
    try:
        serialization.add_safe_globals([(OrderedDict, "types.SimpleNamespace")])
        assert serialization.get_safe_globals() == [OrderedDict]
        with serialization.safe_globals([types.SimpleNamespace]):
            assert read()["args"].lr == 0.1
        assert serialization.get_safe_globals() == [OrderedDict]
    finally:
        serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []
    with pytest.raises(TypeError, match="a function could do anything"):
        serialization.add_safe_globals([os.system])


def test_damaged_torch_files_are_errors():
    torch = pytest.importorskip("torch")
    good = _torch_bytes({"w": torch.arange(100.0), "b": [1, 2, "x"]})
    expected = lucid.load(io.BytesIO(good))
    rng = np.random.default_rng(0)
    outcomes = {"error": 0, "equal": 0}
    for i in range(400):
        bad = bytearray(good)
        at = int(rng.integers(len(bad)))
        if i % 2:
            bad[at] ^= 1 << int(rng.integers(8))
        else:
            del bad[at:]
        try:
            back = lucid.load(io.BytesIO(bytes(bad)))
        except CheckpointError:
            outcomes["error"] += 1
        else:
            # A zip file has bytes that mean nothing: padding, dates.
            _equal(back, expected)
            outcomes["equal"] += 1
    assert outcomes["error"] > 200


# ---- files: atomic, in shards ----


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    lucid.save({"epoch": 1}, path)
    with pytest.raises(DtypeError):
        lucid.save({"bad": object()}, path)

    def crash(*_):
        raise OSError("disk is gone")

    for module, name in ((checkpoint, "write"), (atomic, "_sync_folder")):
        with monkeypatch.context() as m:
            m.setattr(module, name, crash)
            with pytest.raises(OSError, match="disk is gone"):
                lucid.save({"epoch": 1}, path)
    with monkeypatch.context() as m:
        m.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="disk is gone"):
            lucid.save({"epoch": 2}, path)
    assert lucid.load(path) == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_shards(tmp_path):
    path = tmp_path / "model.safetensors"
    obj = {"weights": {f"w{i}": lucid.tensor(np.full(100, i, "float32")) for i in range(10)}, "epoch": 4}
    lucid.save(obj, path, max_shard_bytes=1000)
    shards = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert (
        len(shards) == 5
        and not path.exists()
        and all(p.stat().st_size < 2200 for p in tmp_path.glob("*.safetensors"))
    )
    _equal(lucid.load(path), obj)
    _equal(lucid.load(tmp_path / "model.safetensors.index.json"), obj)
    weight_map = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert safetensors.numpy.load_file(tmp_path / weight_map["weights.w7"])["weights.w7"][0] == 7.0
    obj["epoch"] = 5
    lucid.save(obj, path, max_shard_bytes=2000)
    assert lucid.load(path)["epoch"] == 5 and len(list(tmp_path.iterdir())) == 3
    lucid.save(obj, path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    _equal(lucid.load(path), obj)


def test_folders(tmp_path):
    for options in ({}, {"max_shard_bytes": 500}, {}):
        lucid.save({"w": lucid.ones(100), "v": lucid.zeros(100)}, tmp_path, **options)
        assert (tmp_path / "model.safetensors").is_file() == (not options)
        assert list(lucid.load(str(tmp_path))) == ["w", "v"]
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    assert list(lucid.load(tmp_path)) == ["w", "v"]
    lucid.save({"w": lucid.ones(100), "v": lucid.zeros(100)}, tmp_path / "a.safetensors", max_shard_bytes=500)
    with pytest.raises(CheckpointError, match=r"2 checkpoints \(a.safetensors.index.json, other.safet"):
        lucid.load(tmp_path)
    (tmp_path / "other.safetensors").unlink()
    assert list(lucid.load(tmp_path)) == ["w", "v"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"0 checkpoints \(none\); give the file"):
        lucid.load(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere for c.safetensors; make it first"):
        lucid.save({}, tmp_path / "nowhere" / "c.safetensors")


def test_damaged_shards_are_errors(tmp_path):
    path = tmp_path / "m.safetensors"
    lucid.save({f"w{i}": lucid.ones(100) * i for i in range(4)}, path, max_shard_bytes=800)
    index = tmp_path / "m.safetensors.index.json"
    first = sorted(tmp_path.glob("m-*"))[0]
    kept, kept_index = first.read_bytes(), index.read_bytes()

    def fault():
        with pytest.raises(CheckpointError) as caught:
            lucid.load(path)
        assert str(index) in str(caught.value)
        return str(caught.value)

    first.write_bytes(kept[:-1] + b"\x01")
    assert f"its part {first.name}: tensor 'w1' is damaged" in fault()
    lucid.save({"w0": lucid.ones(100), "w1": lucid.ones(100)}, first)
    assert "belongs to another save" in fault()
    first.unlink()
    assert "is missing" in fault()
    first.write_bytes(kept)
    for at in range(0, len(kept_index), 3):
        bad = bytearray(kept_index)
        bad[at] ^= 4
        index.write_bytes(bytes(bad))
        fault()
    index.write_text(json.dumps({"weight_map": {"a": "../../secret"}}))
    assert "outside its folder" in fault()


def test_a_failed_sharded_save_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    old = {f"w{i}": lucid.zeros(100) for i in range(4)}
    lucid.save(old, path, max_shard_bytes=800)
    before = sorted(p.name for p in tmp_path.iterdir())
    real, calls = checkpoint.write, []

    def crash(*args):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("disk is full")
        real(*args)

    monkeypatch.setattr(checkpoint, "write", crash)
    with pytest.raises(OSError, match="disk is full"):
        lucid.save({f"w{i}": lucid.ones(100) for i in range(4)}, path, max_shard_bytes=800)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    _equal(lucid.load(path), old)


def test_optimizer_resumes_from_a_file(tmp_path):
    p = lucid.tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.AdamW([p], lr=0.1)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    p.grad = lucid.tensor([0.5, -1.0])
    optimizer.step()
    scheduler.step()
    path = tmp_path / "run.safetensors"
    lucid.save(
        {
            "p": p.detach(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": lucid.get_rng_state(),
        },
        Path(path),
    )
    state = lucid.load(str(path), map_location="cpu")
    q = state["p"].requires_grad_(True)
    other = optim.AdamW([q], lr=0.1)
    other_scheduler = optim.lr_scheduler.CosineAnnealingLR(other, 10)
    other.load_state_dict(state["optimizer"])
    other_scheduler.load_state_dict(state["scheduler"])
    lucid.set_rng_state(state["rng"])
    for a, o, s in ((p, optimizer, scheduler), (q, other, other_scheduler)):
        a.grad = lucid.tensor([0.25, 0.5])
        o.step()
        s.step()
    assert p.tolist() == q.tolist() and scheduler.get_last_lr() == other_scheduler.get_last_lr()
