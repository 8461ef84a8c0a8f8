"""IDX files (MNIST, Fashion-MNIST, EMNIST, KMNIST) from a folder that the user gives.

Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits": two zero bytes, a type
byte, the number of dimensions, their sizes as big-endian 32-bit integers, then the elements in C order. Files
may be gzipped.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"


def read_idx(path: str | Path) -> np.ndarray:
    """The array in an IDX file, plain or gzipped.

    Raises FileNotFoundError, or ValueError that names the file and what is wrong with it.

    >>> import tempfile
    >>> import lucid
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     size = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]))    # uint8, one dimension of 2
    ...     file.flush()
    ...     lucid.datasets.read_idx(file.name)
    array([5, 7], dtype=uint8)
    """
    data = Path(path).read_bytes()
    if data[:2] == _GZIP:
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"read_idx: {path}: damaged gzip data ({error}); download it again") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise ValueError(f"read_idx: {path} is no IDX file: it starts with {data[:4]!r}")
    ndim, dtype = data[3], np.dtype(_TYPES[data[2]])
    start = 4 + 4 * ndim
    if len(data) < start:
        raise ValueError(f"read_idx: {path}: cut off inside its header ({len(data)} bytes)")
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise ValueError(
            f"read_idx: {path}: expected {expected} bytes for shape {shape}, got {len(data)}; "
            "download it again"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def mnist(root: str | Path, train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(images float32 [n, 1, 28, 28] from 0 to 1, labels int64 [n]) of MNIST, or of data with its file names.

    root: the folder with `train-images-idx3-ubyte` and its three fellows (`.gz` or not), or one that holds it
    as `raw` or `MNIST/raw`. Raises FileNotFoundError naming the missing file, ValueError for a damaged one.

    >>> import lucid
    >>> images, labels = lucid.datasets.mnist("data")  # doctest: +SKIP
    """
    part = "train" if train else "t10k"
    images = read_idx(_find(root, f"{part}-images-idx3-ubyte"))
    labels = read_idx(_find(root, f"{part}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"mnist: {root}: expected images [n, h, w] and labels [n], got {images.shape} and {labels.shape}"
        )
    return images[:, None].astype(np.float32) / np.float32(255), labels.astype(np.int64)


def _find(root: str | Path, name: str) -> Path:
    for folder in (Path(root), Path(root) / "raw", Path(root) / "MNIST" / "raw"):
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    raise FileNotFoundError(
        f"mnist: {name} (or {name}.gz) is not in {root}; give the folder that holds the four files"
    )
