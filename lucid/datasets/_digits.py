"""Handwritten digits, 8 x 8 pixels (UCI Machine Learning Repository, DOI 10.24432/C50P49, CC BY 4.0)."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np

WHITE = 16  # the brightest pixel: each counts the inked ones of a 4 x 4 block


class Split(NamedTuple):
    """The arrays of a train and a test part: images float32 [n, 1, 8, 8], labels int64 [n]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of 1,797 handwritten digits.

    images: float32 [1797, 1, 8, 8], from 0 (paper) to 1 (ink). labels: int64 [1797], from 0 to 9.
    The arrays are the caller's own. Source: E. Alpaydin and C. Kaynak, Optical Recognition of
    Handwritten Digits, UCI Machine Learning Repository, 1998 (its test part; see digits/LICENSE.md).

    >>> import lucid
    >>> images, labels = lucid.datasets.digits()
    >>> images.shape, images.dtype.name, labels.shape, labels.dtype.name
    ((1797, 1, 8, 8), 'float32', (1797,), 'int64')
    """
    with (files("lucid.datasets") / "digits" / "digits.npz").open("rb") as stream, np.load(stream) as data:
        images = data["images"].astype(np.float32)[:, None] / np.float32(WHITE)
        return images, data["labels"].astype(np.int64)


def digits_split(seed: int = 0, test_fraction: float = 0.2) -> Split:
    """The digits as `(train_images, train_labels, test_images, test_labels)`.

    Each digit gives `round(test_fraction * count)` of its images to the test part, so both parts hold the
    ten digits in the same proportions. The choice and the order depend on `seed` alone.

    Raises ValueError unless 0 < test_fraction < 1 leaves each digit at least one image in both parts.

    >>> import lucid
    >>> part = lucid.datasets.digits_split(seed=0)
    >>> part.train_images.shape, part.test_images.shape
    ((1438, 1, 8, 8), (359, 1, 8, 8))
    """
    images, labels = digits()
    counts = np.bincount(labels)
    taken = np.rint(test_fraction * counts)
    if not (taken.min() >= 1 and (counts - taken).min() >= 1):
        raise ValueError(
            f"digits_split: test_fraction must leave each of the {counts.size} digits at least one image in "
            f"both parts, got {test_fraction}; try 0.2"
        )
    rng = np.random.default_rng(seed)
    test = np.zeros(labels.size, dtype=bool)
    for digit, count in enumerate(taken.astype(int)):
        test[rng.permutation(np.flatnonzero(labels == digit))[:count]] = True
    train_index, test_index = rng.permutation(np.flatnonzero(~test)), np.flatnonzero(test)
    return Split(images[train_index], labels[train_index], images[test_index], labels[test_index])
