"""The digits that travel with the package: the right data, and splits that are fair and repeatable."""

import hashlib

import numpy as np
import pytest

from lucid import datasets

# sha256 of the 1797 published rows (64 pixels, label) as bytes
DIGEST = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"


def test_shapes_types_and_range():
    images, labels = datasets.digits()
    assert images.shape == (1797, 1, 8, 8) and images.dtype == np.float32
    assert labels.shape == (1797,) and labels.dtype == np.int64
    assert images.min() == 0.0 and images.max() == 1.0


def test_are_the_published_digits():
    images, labels = datasets.digits()
    # Rows of the published file as integers; its first image is this zero.
    first = [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]]
    np.testing.assert_array_equal(images[0, 0, :2] * 16, first)
    np.testing.assert_array_equal(np.bincount(labels), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    rows = np.concatenate([(images * 16).reshape(1797, 64), labels[:, None]], axis=1).astype(np.uint8)
    assert hashlib.sha256(rows.tobytes()).hexdigest() == DIGEST


def test_arrays_belong_to_the_caller():
    datasets.digits()[0][:] = 7.0
    assert datasets.digits()[0].max() == 1.0


def test_split_is_a_partition_with_even_classes():
    images, labels = datasets.digits()
    part = datasets.digits_split(seed=3)
    assert len(part.train_labels) + len(part.test_labels) == 1797
    together = np.concatenate([part.train_images, part.test_images])
    assert sorted(image.tobytes() for image in together) == sorted(image.tobytes() for image in images)
    np.testing.assert_array_equal(np.bincount(part.test_labels), np.rint(0.2 * np.bincount(labels)))


def test_images_keep_their_labels():
    images, labels = datasets.digits()
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    part = datasets.digits_split(seed=1)
    for images, labels in (part[:2], part[2:]):
        assert all(label_of[image.tobytes()] == label for image, label in zip(images, labels, strict=True))


def test_split_depends_on_the_seed_alone():
    np.random.seed(0)
    first = datasets.digits_split(seed=5)
    np.random.seed(1)
    again, other = datasets.digits_split(seed=5), datasets.digits_split(seed=6)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.test_images, other.test_images)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.2, 0.001, float("nan")])
def test_split_refuses_an_empty_part(fraction):
    with pytest.raises(ValueError, match="test_fraction must leave each of the 10 digits at least one image"):
        datasets.digits_split(test_fraction=fraction)
