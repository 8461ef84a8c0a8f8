"""The safetensors format: a length (8 bytes, little endian), a JSON header of that length, and the tensors'
bytes.

Format: https://huggingface.co/docs/safetensors. Files written here hold three entries of their own in
`__metadata__`: "lucid_format", the version and the header's CRC-32 (taken with the eight digits of the CRC as
zeros); "lucid_crc32", a CRC-32 per tensor; "lucid_tree", the structure of the saved object. Other programs
read the tensors and ignore the entries; files of other programs, which have none of them, are checked for
their form alone. complex128, which the format lacks, and complex64 are stored as pairs of floats.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from ..errors import CheckpointError, DtypeError

_DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}
_PARTS = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}
MARKERS = ("lucid_format", "lucid_crc32", "lucid_tree")
VERSION = 1
# The limit of the reference implementation.
MAX_HEADER = 100_000_000
_BLANK = "0" * 8
_SEAL = re.compile(rb'("lucid_format":"\d+:)([0-9a-f]{8})"')


def seal(text: str) -> bytes:
    """The JSON text as bytes, with the CRC-32 of itself written over the eight zeros after
    `"lucid_format":"1:`.
    """
    data = text.encode()
    match = _SEAL.search(data)
    assert match is not None
    return data[: match.start(2)] + f"{zlib.crc32(data):08x}".encode() + data[match.end(2) :]


def check_seal(data: bytes, markers: Iterable[str] = MARKERS) -> bool:
    """Whether the JSON text has a seal, which then fits; False for the text of another program.

    A damaged seal is none of the two: CheckpointError.
    """
    found = [marker for marker in markers if marker.encode() in data]
    if not found:
        return False
    match = _SEAL.search(data)
    if match is None or len(found) != len(tuple(markers)):
        raise CheckpointError("the header is damaged: its checksum entries are incomplete")
    if zlib.crc32(data[: match.start(2)] + _BLANK.encode() + data[match.end(2) :]) != int(match.group(2), 16):
        raise CheckpointError("the header is damaged: its checksum does not fit")
    return True


def seal_entry() -> str:
    """The value of "lucid_format" before `seal`."""
    return f"{VERSION}:{_BLANK}"


def parse(data: bytes) -> Any:
    """The JSON value of `data`; CheckpointError for bad JSON and for an object with a key twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise CheckpointError("the header names a key twice")
        return result

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the header is not JSON ({str(error)[:80]})") from error


def write(
    stream: BinaryIO, arrays: dict[str, np.ndarray[Any, Any]], tree: Any, extra: dict[str, str] | None = None
) -> None:
    """Nothing; writes arrays and structure as one safetensors file to `stream`."""
    stored: list[tuple[str, np.ndarray[Any, Any]]] = []
    entries: dict[str, Any] = {}
    for name, array in arrays.items():
        stored.append((name, _storable(name, array)))
    # Wide elements first: every tensor starts at a multiple of its element's size.
    stored.sort(key=lambda pair: -pair[1].itemsize)
    start, sums = 0, {}
    for name, array in stored:
        entries[name] = {
            "dtype": _CODES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, start + array.nbytes],
        }
        sums[name] = f"{zlib.crc32(_bytes(array)):08x}"
        start += array.nbytes
    pairs = [name for name, array in arrays.items() if array.dtype in _PARTS]
    metadata = {
        "lucid_format": seal_entry(),
        **(extra or {}),
        "lucid_crc32": _dump({"tensors": sums, "complex": pairs}),
        "lucid_tree": _dump(tree),
    }
    text = _dump({"__metadata__": metadata, **entries})
    text += " " * (-len(text.encode()) % 8)
    header = seal(text)
    stream.write(len(header).to_bytes(8, "little"))
    stream.write(header)
    for _, array in stored:
        stream.write(_bytes(array))


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _storable(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype in _PARTS:
        part = np.dtype(_PARTS[array.dtype])
        array = (
            np.ascontiguousarray(array).reshape(array.shape).view(part).reshape(*array.shape, 2)
            if array.ndim
            else array.reshape(1).view(part)
        )
    if array.dtype not in _CODES:
        raise DtypeError(
            f"save: {name!r} has dtype {array.dtype}, which a checkpoint cannot hold; convert it to one of "
            f"{', '.join(sorted(_DTYPES))}"
        )
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    # bfloat16 has no buffer protocol of its own; seen as bytes every dtype has.
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


class Reader:
    """An open safetensors file whose header has been checked: `arrays` by name, `tree` or None.

    stream: seekable. Raises CheckpointError (without the file's name, which the caller adds) for anything
    that is not a whole, sound file.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        stream.seek(0, 2)
        size = stream.tell()
        stream.seek(0)
        head = stream.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
            raise CheckpointError(
                f"it is not a safetensors file, or cut off in its header ({size} bytes, header length "
                f"{length})"
            )
        data = stream.read(length)
        self.start = 8 + length
        own = check_seal(data)
        header = parse(data)
        if not isinstance(header, dict):
            raise CheckpointError("the header is not a JSON object")
        metadata = header.pop("__metadata__", {})
        self.metadata: dict[str, str] = metadata if isinstance(metadata, dict) else {}
        self.tree: Any = None
        self.sums: dict[str, str] = {}
        self.complex: set[str] = set()
        if own:
            version = int(self.metadata["lucid_format"].partition(":")[0])
            if version > VERSION:
                raise CheckpointError(
                    f"it has format version {version}, this version of lucid reads up to {VERSION}; update "
                    "lucid"
                )
            own_sums = parse(self.metadata["lucid_crc32"].encode())
            self.sums, self.complex = own_sums["tensors"], set(own_sums["complex"])
            self.tree = parse(self.metadata["lucid_tree"].encode())
            self.has_tree = True
        else:
            self.has_tree = False
        self.entries = header
        self._check(size - self.start)

    def _check(self, size: int) -> None:
        end = 0
        for name, start, stop in sorted(
            ((n, *_offsets(n, e)) for n, e in self.entries.items()), key=lambda entry: entry[1:]
        ):
            if start != end:
                raise CheckpointError(f"tensor {name!r} starts at byte {start} of the data, expected {end}")
            end = stop
        if end != size:
            what = "cut off" if end > size else "too long"
            raise CheckpointError(
                f"it is {what}: the header describes {end} bytes of data, the file has {size}"
            )

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The array `name`, in memory of its own, after a check of its bytes."""
        entry = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"it has no tensor {name!r}")
        start, stop = entry["data_offsets"]
        raw = np.empty(stop - start, np.uint8)
        self.stream.seek(self.start + start)
        if stop > start and _fill(self.stream, raw.data) != stop - start:
            raise CheckpointError(f"it is cut off in tensor {name!r}")
        if name in self.sums and zlib.crc32(raw.data) != int(self.sums[name], 16):
            raise CheckpointError(f"tensor {name!r} is damaged: its checksum does not fit")
        array = raw.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if name in self.complex:
            array = array.view(np.complex64 if array.dtype == np.float32 else np.complex128).reshape(
                array.shape[:-1]
            )
        if array.dtype == np.bool_ and (raw > 1).any():
            raise CheckpointError(f"tensor {name!r} holds bytes that are no bools")
        return array


def _fill(stream: BinaryIO, view: memoryview) -> int:
    done = 0
    while done < len(view):
        n = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not n:
            break
        done += n
    return done


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    good = isinstance(entry, dict) and entry.get("dtype") in _DTYPES
    if good:
        shape, offsets = entry.get("shape"), entry.get("data_offsets")
        good = (
            isinstance(shape, list)
            and all(type(n) is int and n >= 0 for n in shape)
            and isinstance(offsets, list)
            and len(offsets) == 2
            and all(type(n) is int and n >= 0 for n in offsets)
            and offsets[1] - offsets[0] == math.prod(shape) * np.dtype(_DTYPES[entry["dtype"]]).itemsize
        )
    if not good:
        raise CheckpointError(f"the entry of tensor {name!r} is not valid: {str(entry)[:120]}")
    return entry["data_offsets"][0], entry["data_offsets"][1]
