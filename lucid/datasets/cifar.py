"""CIFAR-10 and CIFAR-100 in their binary version, from a folder that the user gives.

Format: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009: records of one label
byte (CIFAR-100: coarse, then fine) and 3072 pixel bytes, the red, green and blue planes of 32 x 32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

_PIXELS = 3 * 32 * 32
_FILES = {
    (10, True): [f"data_batch_{i}.bin" for i in range(1, 6)],
    (10, False): ["test_batch.bin"],
    (100, True): ["train.bin"],
    (100, False): ["test.bin"],
}
_FOLDERS = {10: "cifar-10-batches-bin", 100: "cifar-100-binary"}


def cifar10(root: str | Path, train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(images float32 [n, 3, 32, 32] from 0 to 1, labels int64 [n]) of CIFAR-10.

    root: the folder with `data_batch_1.bin` ... and `test_batch.bin`, or one that holds it as
    `cifar-10-batches-bin`: the binary version of the data, which needs no unpickling. Raises
    FileNotFoundError naming the missing file, ValueError for a damaged one.

    >>> import lucid
    >>> images, labels = lucid.datasets.cifar10("data")  # doctest: +SKIP
    """
    return _read(root, 10, train, label=0)


def cifar100(root: str | Path, train: bool = True, coarse: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(images float32 [n, 3, 32, 32] from 0 to 1, labels int64 [n]) of CIFAR-100 (`train.bin`, `test.bin`).

    100 fine labels, or 20 coarse ones. root and errors as of cifar10.

    >>> import lucid
    >>> images, labels = lucid.datasets.cifar100("data", coarse=True)  # doctest: +SKIP
    """
    return _read(root, 100, train, label=0 if coarse else 1)


def _read(root: str | Path, classes: int, train: bool, label: int) -> tuple[np.ndarray, np.ndarray]:
    labels = classes // 50 or 1  # label bytes per record
    folder = next((f for f in (Path(root) / _FOLDERS[classes], Path(root)) if f.is_dir()), Path(root))
    parts = []
    for name in _FILES[classes, train]:
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(
                f"cifar{classes}: {name} is not in {folder}; get the binary version of the data"
            )
        data = np.fromfile(path, np.uint8)
        if not data.size or data.size % (labels + _PIXELS):
            raise ValueError(
                f"cifar{classes}: {path}: expected records of {labels + _PIXELS} bytes, got {data.size} "
                "bytes; download it again"
            )
        parts.append(data.reshape(-1, labels + _PIXELS))
    records = np.concatenate(parts)
    found = records[:, label].astype(np.int64)
    limit = 20 if classes == 100 and label == 0 else classes
    if found.max() >= limit:
        raise ValueError(
            f"cifar{classes}: {folder}: label {found.max()} is out of range; it is another data set"
        )
    images = records[:, labels:].reshape(-1, 3, 32, 32).astype(np.float32)
    images /= np.float32(255)
    return images, found
