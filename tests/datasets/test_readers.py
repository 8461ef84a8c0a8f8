"""Readers of data from a path: what they give, and what they say of wrong files."""

import gzip
import struct

import numpy as np
import pytest

from lucid.datasets import (
    Characters,
    ImageFolder,
    cifar10,
    cifar100,
    mnist,
    python_topics,
    read_idx,
    read_text,
    text_split,
)


def idx(array, code):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize(
    "code, dtype", [(8, ">u1"), (9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_idx_types(tmp_path, code, dtype):
    array = (np.arange(24).reshape(2, 3, 4) - 5).astype(dtype)
    (tmp_path / "a").write_bytes(idx(array, code))
    (tmp_path / "b").write_bytes(gzip.compress(idx(array, code)))
    for name in "ab":
        found = read_idx(tmp_path / name)
        assert found.dtype == np.dtype(dtype).newbyteorder("=") and (found == array).all()


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "no IDX file"),
        (b"\x89PNG....", "no IDX file"),
        (b"\0\0\x08\x03\0\0", "cut off inside its header"),
        (idx(np.zeros((2, 2), "u1"), 8)[:-1], r"expected 16 bytes for shape \(2, 2\), got 15"),
        (gzip.compress(idx(np.zeros(99, "u1"), 8))[:-9], "damaged gzip"),
    ],
)
def test_idx_errors(tmp_path, data, words):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=words) as info:
        read_idx(tmp_path / "file")
    assert "file" in str(info.value)


def test_mnist(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype("u1")
    labels = np.arange(5).astype("u1")
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images, 8)))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels, 8))
    for root in (tmp_path, tmp_path / "MNIST", folder):
        x, y = mnist(root)
        assert x.shape == (5, 1, 28, 28) and x.dtype == np.float32 and y.dtype == np.int64
        assert (np.rint(x[:, 0] * 255) == images).all() and y.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(FileNotFoundError, match="t10k-images-idx3-ubyte"):
        mnist(tmp_path, train=False)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels[:4], 8))
    with pytest.raises(ValueError, match=r"\(5, 28, 28\) and \(4,\)"):
        mnist(tmp_path)


def test_cifar(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    records = rng.integers(0, 10, (5, 2, 3073)).astype("u1")
    for i, part in enumerate(records, 1):
        (folder / f"data_batch_{i}.bin").write_bytes(part.tobytes())
    for root in (tmp_path, folder):
        x, y = cifar10(root)
        assert x.shape == (10, 3, 32, 32) and x.dtype == np.float32
        assert y.tolist() == records[:, :, 0].reshape(-1).tolist()
        assert np.rint(x[3, 2, 5, 7] * 255) == records[1, 1, 1 + 2 * 1024 + 5 * 32 + 7]
    with pytest.raises(FileNotFoundError, match="test_batch.bin"):
        cifar10(tmp_path, train=False)
    (folder / "test_batch.bin").write_bytes(b"\0" * 3072)
    with pytest.raises(ValueError, match="records of 3073 bytes, got 3072"):
        cifar10(tmp_path, train=False)
    (folder / "test_batch.bin").write_bytes(b"\x0a" * 3073)
    with pytest.raises(ValueError, match="label 10 is out of range"):
        cifar10(tmp_path, train=False)
    (tmp_path / "test.bin").write_bytes((b"\x03\x63" + b"\0" * 3072) * 3)
    assert cifar100(tmp_path, train=False)[1].tolist() == [99] * 3
    assert cifar100(tmp_path, train=False, coarse=True)[1].tolist() == [3] * 3


def test_image_folder(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 4, 3)).astype("u1")
    for name in ("cat", "dog"):
        (tmp_path / name / "deep").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / name / "deep" / "1.png")
        np.save(tmp_path / name / "2.npy", pixels)
        (tmp_path / name / "notes.txt").write_text("no image")
    data = ImageFolder(tmp_path)
    assert data.classes == ["cat", "dog"] and data.targets == [0, 0, 1, 1] and len(data) == 4
    for i in range(4):
        image, label = data[i]
        assert image.dtype == np.float32 and label == i // 2
        assert (np.rint(image.transpose(1, 2, 0) * 255) == pixels).all()
    small = ImageFolder(tmp_path, size=(3, 2), mode="L", transform=lambda a: a * 2)
    assert small[1][0].shape == (1, 3, 2)
    (tmp_path / "dog" / "3.png").write_bytes(b"no png")
    with pytest.raises(ValueError, match="3.png cannot be read as an image"):
        ImageFolder(tmp_path)[3]
    np.save(tmp_path / "dog" / "0.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"0.npy: expected \[H, W\]"):
        ImageFolder(tmp_path)[2]


def test_image_folder_without_images(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no images"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="mode must be"):
        ImageFolder(tmp_path, mode="CMYK")


def test_image_folder_in_a_loader(tmp_path):
    from lucid.utils.data import DataLoader

    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(3):
            np.save(tmp_path / name / f"{i}.npy", np.full((4, 4), i, "u1"))
    batches = list(DataLoader(ImageFolder(tmp_path), batch_size=4))
    assert [b[0].shape for b in batches] == [(4, 1, 4, 4), (2, 1, 4, 4)]
    assert batches[0][1].tolist() == [0, 0, 0, 1]


def test_text():
    text = python_topics()
    assert len(text) > 300_000 and text == python_topics()
    train, test, vocabulary = text_split()
    assert len(train) + len(test) == len(text) and train.dtype == np.int64
    assert vocabulary.decode(train[:200]) == text[:200] and vocabulary.decode(test[-50:]) == text[-50:]
    assert 80 < len(vocabulary) < 300 and max(train.max(), test.max()) == len(vocabulary) - 1
    with pytest.raises(ValueError, match="'z' is not in the vocabulary"):
        Characters("abc").encode("az")
    with pytest.raises(ValueError, match="leaves one part empty"):
        text_split("ab", test_fraction=0.01)


def test_read_text(tmp_path):
    (tmp_path / "a.txt").write_text("ä\n", encoding="utf-8")
    assert read_text(tmp_path / "a.txt") == "ä\n"
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="b.txt is no UTF-8"):
        read_text(tmp_path / "b.txt")
