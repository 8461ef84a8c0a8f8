"""`.pt` files: what torch.save writes beside tensors, and pickles made to do harm."""

from __future__ import annotations

import argparse
import io
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid.errors import CheckpointError


def load(pickled, **storages):
    """What lucid.load makes of a file with this pickle and these storages."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, data in storages.items():
            archive.writestr(f"archive/data/{name.removeprefix('s')}", data)
    stream.seek(0)
    return lucid.load(stream)


@pytest.mark.parametrize("protocol", [2, 4])
def test_plain_objects(protocol):
    torch = pytest.importorskip("torch")
    array = np.arange(6.0).reshape(2, 3)
    obj = {"bytes": b"x\xff", "set": {1, 2}, "frozen": frozenset([3]), "complex": 1 - 2j, "big": 10**30,
           "bytearray": bytearray(b"ab"), "counter": Counter("aab"), "loss": np.float64(0.5),
           "count": np.int32(7), "array": array, "columns": array.T, "swapped": array.astype(">f4"),
           "twice": [array, array], "empty": np.zeros((0, 2), "int8"),
           "args": argparse.Namespace(lr=0.1, layers=[1, 2]),
           "dtype": torch.bfloat16, "device": torch.device("cuda", 1), "size": torch.Size([2])}
    stream = io.BytesIO()
    torch.save(obj, stream, pickle_protocol=protocol)
    stream.seek(0)
    back = lucid.load(stream)
    assert list(back) == list(obj)
    for key in ("array", "columns", "swapped", "empty", "loss", "count"):
        assert back[key].dtype == obj[key].dtype.newbyteorder("=") and back[key].shape == obj[key].shape
        np.testing.assert_array_equal(back[key], obj[key])
    assert back["twice"][0] is back["twice"][1]
    assert back["dtype"] == lucid.bfloat16 and str(back["device"]) == "cuda:1" and back["size"] == (2,)
    for key in ("bytes", "set", "frozen", "complex", "big", "bytearray", "counter", "args"):
        assert type(back[key]) is type(obj[key]) and back[key] == obj[key]


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


BFLOAT16, ORDERED = name("torch", "bfloat16"), name("collections", "OrderedDict")
TENSOR = name("torch._utils", "_rebuild_tensor_v2")
# (3, ">", None, None, None, -1, -1, 0): what NumPy gives a dtype to set it up anew.
SETUP = b"(K\x03X\x01\x00\x00\x00>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"


@pytest.mark.parametrize(("body", "match"), [
    (name("os", "system") + b"(X\x04\x00\x00\x00truetR", r"os\.system, which is not loaded"),
    (name("builtins", "eval") + b")R", r"builtins\.eval"),
    (name("builtins", "getattr") + b")R", r"builtins\.getattr"),
    (name("torch", "Tensor.__init__.__globals__"), r"torch\.Tensor\.__init__\.__globals__"),
    (name("collections", "OrderedDict.__init__.__globals__"), "OrderedDict.__init__"),
    (b"(ios\nsystem\n", "operation b'i', which could run code"),
    (b"\x82\x01", r"operation b'\\x82'"),
    (b"(" + ORDERED + b"o", "operation b'o'"),
    (BFLOAT16 + b")R", "calls something that cannot be called"),
    (BFLOAT16 + b")\x81", "calls something that cannot be called"),
    (ORDERED + b"X\x01\x00\x00\x00aR", "calls something that cannot be called"),
    (ORDERED + b"}X\x01\x00\x00\x00aK\x01sb", "gives a state to an object of type _Name"),
    (TENSOR + b"}X\x07\x00\x00\x00__doc__K\x01sb", "gives a state to an object of type _Name"),
    (TENSOR + b"N}X\x08\x00\x00\x00__self__K\x01s\x86b", "gives a state to an object of type _Name"),
    (ORDERED + b")R}X\x06\x00\x00\x00updateK\x01sb", "gives a state to an object of type OrderedDict"),
    (b"]}b", "gives a state to an object of type list"),
    (name("torch", "FloatStorage"), "bare storage or the name of a class"),
    (b"]" + TENSOR + b"a", "bare storage or the name of a class"),
    (name("numpy", "dtype") + b"X\x01\x00\x00\x00O\x85R", "dtype 'O', expected numbers"),
    (name("numpy", "dtype") + b"X\x06\x00\x00\x00f8,i99\x85R", "expected numbers"),
    (name("builtins", "bytearray") + b"\x8a\x07\x00\x00\x00\x00\x00\x00\x10\x85R", "not written as pickle"),
    (b"}", "damaged"),
], ids=range(22))
def test_harmful_pickles(body, match):
    with pytest.raises(CheckpointError, match=match):
        load(b"\x80\x02" + body + (b"" if body == b"}" else b"."))


def test_nothing_that_was_there_before_is_changed():
    # Given this state, NumPy would make a dtype of -1 bytes out of the bfloat16 of the whole program.
    before = pickle.dumps(np.dtype(ml_dtypes.bfloat16))
    with pytest.raises(CheckpointError, match="gives a state to an object of type dtype"):
        load(b"\x80\x02" + BFLOAT16 + SETUP + b"b.")
    assert np.dtype(ml_dtypes.bfloat16).itemsize == 2
    assert pickle.dumps(np.dtype(ml_dtypes.bfloat16)) == before
    assert lucid.ones(3).bfloat16().float().tolist() == [1, 1, 1]


def test_deep_nesting():
    deep = load(b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".")
    depth = 0
    while deep:
        deep, depth = deep[0], depth + 1
    assert depth == 49_999


def tensor_pickle(size, stride, offset=0, key="0", elements=4):
    """The pickle of one float32 tensor over storage `key`."""
    def number(v):
        return b"\x8a\x08" + struct.pack("<q", v)

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()
    storage = b"(" + text("storage") + name("torch", "FloatStorage") + text(key) + text("cpu")
    storage += number(elements) + b"tQ"
    tail = numbers(size) + numbers(stride) + b"\x89" + ORDERED + b")RtR."
    return b"\x80\x02" + TENSOR + b"(" + storage + number(offset) + tail


def test_tensors_that_reach_out():
    data = np.arange(4, dtype="float32").tobytes()
    assert load(tensor_pickle([2, 2], [1, 2]), s0=data).tolist() == [[0, 2], [1, 3]]
    for arguments, match in ((dict(size=[2, 3], stride=[2, 1]), "reaches beyond its storage of 4 elements"),
                             (dict(size=[2], stride=[2**62]), "reaches beyond"),
                             (dict(size=[1], stride=[1], offset=4), "reaches beyond"),
                             (dict(size=[2], stride=[-1], offset=2), "no valid storage, size or stride"),
                             (dict(size=[2], stride=[1], offset=-1), "no valid storage"),
                             (dict(size=[2], stride=[1, 1]), "no valid storage"),
                             (dict(size=[0, 2**62], stride=[1, 1]), "damaged"),
                             (dict(size=[2], stride=[1], elements=8), "16 bytes, expected 8 elements"),
                             (dict(size=[2], stride=[1], key="../../secret"), "damaged"),):
        with pytest.raises(CheckpointError, match=match):
            load(tensor_pickle(**arguments), s0=data)


def test_metadata_of_a_state_dict_is_kept():
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(torch.nn.BatchNorm1d(2).state_dict(), stream)
    stream.seek(0)
    state = lucid.load(stream)
    assert type(state) is OrderedDict and state._metadata[""]["version"] == 2
