"""`lucid.save` and `lucid.load`: whole objects in safetensors files, written atomically, checked when read,
never executed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import CheckpointError, DtypeError, ShapeError
from ..storage.backend import backend_of
from ..storage.device import Device
from ..storage.dtype import ALL
from ..tensor import Tensor, _wrap
from . import pt
from .atomic import replaced, sweep
from .safetensors import Reader, check_seal, parse, seal, seal_entry, write
from .safetensors import _dump as dump
from .tree import Packer, unpack

File = str | os.PathLike[str] | BinaryIO
_INDEX = ".index.json"
_MODEL = "model.safetensors"
_INDEX_MARKERS = ("lucid_format", "lucid_tree")


def save(obj: Any, f: File, *, max_shard_bytes: int | None = None) -> None:
    """Nothing; writes `obj` to a file (a path, or a binary stream) as safetensors.

    obj: tensors, NumPy arrays, numbers, strings, bytes, None, dtypes, devices, in any nesting of dicts,
    lists, tuples and sets: a state_dict, or a dict of several with settings and history. Tensors are stored
    by their values; all dtypes, any strides. A dict of tensors is an ordinary safetensors file for other
    programs. A path is replaced in one step (a crash leaves the old file or the new one); in a folder that
    is there the file is `model.safetensors`. max_shard_bytes: tensors beyond that go into several files of at
    most this size, named in `<path>.index.json`.
    Raises DtypeError, naming the place, for other objects, and FileNotFoundError where there is no folder.

    >>> import lucid, io
    >>> stream = io.BytesIO()
    >>> lucid.save({"w": lucid.ones(2), "epoch": 3}, stream)
    >>> _ = stream.seek(0)
    >>> lucid.load(stream)
    {'w': tensor([1., 1.]), 'epoch': 3}
    """
    packer = Packer()
    tree = packer.pack(obj)
    if not isinstance(f, (str, os.PathLike)):
        if max_shard_bytes is not None:
            raise DtypeError("save: max_shard_bytes needs a path, got a stream")
        write(f, packer.arrays, tree)
        return
    path = Path(f) / _MODEL if os.path.isdir(f) else Path(f)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save: there is no folder {path.parent} for {path.name}; make it first")
    shards = _shards(packer.arrays, max_shard_bytes)
    if len(shards) == 1:
        with replaced(path) as stream:
            write(stream, packer.arrays, tree)
        _index_of(path).unlink(missing_ok=True)
    else:
        _save_shards(path, shards, tree)
        path.unlink(missing_ok=True)
    _clean(path)


def load(f: File, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """The object in a file that `lucid.save` wrote, or another program's safetensors, or `torch.save`.

    Of `torch.save` the zip format with state_dicts. f: a path (of the file, of its `.index.json`, or of a
    folder with one checkpoint or a `model.safetensors`), or a seekable binary stream. map_location: the
    device for tensors; the CPU when None. Nothing in a file is ever executed; weights_only is accepted and
    always true. Raises FileNotFoundError, or CheckpointError with the file's name and what is wrong with it:
    every byte that lucid wrote is covered by a CRC-32, so that a damaged file is an error and never a wrong
    number.

    >>> import io
    >>> import lucid
    >>> file = io.BytesIO()
    >>> lucid.save({"epoch": 3, "weight": lucid.ones(2)}, file)
    >>> start = file.seek(0)
    >>> lucid.load(file)
    {'epoch': 3, 'weight': tensor([1., 1.])}
    """
    if map_location is not None and not isinstance(map_location, (str, Device)):
        # PyTorch's dicts and functions map saved devices; all tensors come from the CPU here.
        map_location = map_location.get("cpu", "cpu") if isinstance(map_location, dict) else "cpu"
    backend = backend_of("cpu" if map_location is None else map_location)

    def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
        if array.dtype not in ALL:
            raise CheckpointError(f"it holds a tensor of dtype {array.dtype.name}, which lucid does not have")
        return _wrap(backend.from_numpy(array), backend)

    if not isinstance(f, (str, os.PathLike)):
        return _named(str(getattr(f, "name", "the stream")), lambda: _load_stream(f, tensor_of))
    path = _only_one(Path(f)) if os.path.isdir(f) else Path(f)
    index = path if path.name.endswith(_INDEX) else _index_of(path)
    if index == path or (index.is_file() and not path.exists()):
        return _named(str(index), lambda: _load_index(index, tensor_of))
    with open(path, "rb") as stream:
        return _named(str(path), lambda: _load_stream(stream, tensor_of))


def _only_one(folder: Path) -> Path:
    # The checkpoint in a folder: model.safetensors, in parts or not, or the only one there is.
    if (folder / _MODEL).is_file() or _index_of(folder / _MODEL).is_file():
        return folder / _MODEL
    indices = sorted(folder.glob(f"*{_INDEX}"))
    parts = {folder / name for index in indices for name in _named_parts(index)}
    files = {f for end in (".safetensors", ".pt", ".pth") for f in folder.glob(f"*{end}")}
    found = [*indices, *sorted(files - parts)]
    if len(found) != 1:
        names = ", ".join(f.name for f in found) or "none"
        raise CheckpointError(
            f"load: {folder} is a folder with {len(found)} checkpoints ({names}); give the file"
        )
    return found[0]


def _named_parts(index: Path) -> set[str]:
    try:
        return set(parse(index.read_bytes())["weight_map"].values())
    except (OSError, CheckpointError, KeyError, TypeError, AttributeError):
        return set()


def _named(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except CheckpointError as error:
        raise CheckpointError(f"load: {name} cannot be read: {error}") from error.__cause__
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RecursionError,
        MemoryError,
        OverflowError,
    ) as error:
        # A sound checksum over a structure that is not ours: another writer, or a forged file.
        raise CheckpointError(
            f"load: {name} cannot be read: its structure is not valid ({type(error).__name__}: "
            f"{str(error)[:100]})"
        ) from error


def _load_stream(stream: BinaryIO, tensor_of: Callable[..., Tensor]) -> Any:
    start = stream.tell()
    magic = stream.read(8)
    stream.seek(start)
    if start:
        # Offsets count from the start of the file.
        stream = io.BytesIO(stream.read())
    # In a safetensors file these are the bytes of the header's length, whose upper half is 0.
    other = magic[4:].strip(b"\0")
    if other and magic[:4] == b"PK\x03\x04":
        return pt.read(stream, tensor_of)
    if other and magic[:1] == b"\x80":
        raise CheckpointError(
            "it is a bare pickle (an old torch.save, or pickle.dump), which could run code; save it again "
            "with torch.save of "
            "PyTorch 1.6 or later"
        )
    reader = Reader(stream)
    if not reader.has_tree:
        return {name: tensor_of(reader.array(name)) for name in reader.entries}
    return unpack(reader.tree, reader.array, tensor_of)


# ---- shards ----


def _index_of(path: Path) -> Path:
    return path.with_name(path.name + _INDEX)


def _shards(
    arrays: dict[str, np.ndarray[Any, Any]], limit: int | None
) -> list[dict[str, np.ndarray[Any, Any]]]:
    if limit is None:
        return [arrays]
    if limit <= 0:
        raise ShapeError(f"save: expected max_shard_bytes > 0, got {limit}")
    shards: list[dict[str, np.ndarray[Any, Any]]] = [{}]
    room = limit
    for name, array in arrays.items():
        if array.nbytes > room and shards[-1]:
            shards.append({})
            room = limit
        shards[-1][name] = array
        room -= array.nbytes
    return shards


def _save_shards(path: Path, shards: list[dict[str, np.ndarray[Any, Any]]], tree: Any) -> None:
    # The names of a save are its own: until the index is replaced, the old index and its shards are whole.
    token, stem, n = secrets.token_hex(4), _stem(path), len(shards)
    names = [f"{stem}-{i:05d}-of-{n:05d}-{token}.safetensors" for i in range(1, n + 1)]
    places, sums, total = {}, {}, 0
    try:
        # The index is begun first: as long as it is being written, nobody takes the shards for leftovers.
        with replaced(_index_of(path)) as stream:
            for name, arrays in zip(names, shards, strict=True):
                with replaced(path.with_name(name)) as shard:
                    write(shard, arrays, None)
                sums[name] = f"{_header_sum(path.with_name(name)):08x}"
                places.update(dict.fromkeys(arrays, name))
                total += sum(array.nbytes for array in arrays.values())
            # The form of the index that other programs read: metadata.total_size and weight_map.
            text = dump(
                {
                    "metadata": {
                        "lucid_format": seal_entry(),
                        "total_size": total,
                        "shard_crc32": sums,
                        "lucid_tree": tree,
                    },
                    "weight_map": places,
                }
            )
            stream.write(seal(text))
    except BaseException:
        # Ctrl-C may come right after the index took its place.
        for name in set(names) - _named_parts(_index_of(path)):
            path.with_name(name).unlink(missing_ok=True)
        raise


def _stem(path: Path) -> str:
    return path.name.removesuffix(".safetensors")


def _clean(path: Path) -> None:
    """Nothing; removes what no index in the folder names of the shards of earlier saves to this path, and
    what killed ones left half-written.
    """
    own = re.compile(rf"{re.escape(_stem(path))}-\d{{5}}-of-\d{{5}}-[0-9a-f]{{8}}\.safetensors")
    found = [name for name in os.listdir(path.parent) if own.fullmatch(name)]
    # After the list was made: a save that begins now has no shard in it.
    busy = sweep(path.parent, lambda name: name in (path.name, _index_of(path).name) or own.fullmatch(name))
    if not busy and found:
        used = set().union(*map(_named_parts, path.parent.glob(f"*{_INDEX}")))
        for name in set(found) - used:
            (path.parent / name).unlink(missing_ok=True)


def _header_sum(path: Path) -> int:
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return zlib.crc32(stream.read(length))


def _load_index(index: Path, tensor_of: Callable[..., Tensor]) -> Any:
    data = index.read_bytes()
    own = check_seal(data, _INDEX_MARKERS)
    content = parse(data)
    places = content["weight_map"]
    with contextlib.ExitStack() as stack:
        readers: dict[str, Reader] = {}
        for name in dict.fromkeys(places.values()):
            if "/" in name or "\\" in name or name in ("", ".", ".."):
                raise CheckpointError(f"it names a file outside its folder: {name!r}")
            shard = index.parent / name
            if not shard.is_file():
                raise CheckpointError(f"its part {name} is missing")
            if own and f"{_header_sum(shard):08x}" != content["metadata"]["shard_crc32"][name]:
                raise CheckpointError(f"its part {name} belongs to another save, or its header is damaged")
            try:
                readers[name] = Reader(stack.enter_context(open(shard, "rb")))
            except CheckpointError as error:
                raise CheckpointError(f"its part {name}: {error}") from error

        def array_of(tensor: str) -> np.ndarray[Any, Any]:
            try:
                return readers[places[tensor]].array(tensor)
            except CheckpointError as error:
                raise CheckpointError(f"its part {places[tensor]}: {error}") from error

        if not own:
            return {name: tensor_of(array_of(name)) for name in places}
        return unpack(content["metadata"]["lucid_tree"], array_of, tensor_of)
