"""Images in a folder per class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.data import Dataset

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
ARRAYS = (".npy",)


class ImageFolder(Dataset):
    """A dataset of (image, class number) from `root/<class>/<any depth>/<image>`.

    Classes and files are in alphabetical order. An image is float32 [C, H, W] from 0 to 1: mode "RGB" gives C
    = 3, "L" gives 1; resized to size = (H, W) when given. `.npy` files ([H, W] or [H, W, C], uint8 or
    floating) are taken as they are. transform(image) is applied last. Pictures need the pillow package.

    Raises FileNotFoundError when there is no class folder or no image; ValueError naming the file that cannot
    be read.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import lucid
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("cat", "dog"):
    ...         pathlib.Path(root, name).mkdir()
    ...         np.save(pathlib.Path(root, name, "1.npy"), np.zeros((4, 6), "uint8"))
    ...     data = lucid.datasets.ImageFolder(root, mode="L")
    ...     image, label = data[1]
    >>> len(data), image.shape, label
    (2, (1, 4, 6), 1)
    """

    def __init__(
        self,
        root: str | Path,
        size: tuple[int, int] | None = None,
        mode: str = "RGB",
        transform: Callable[[np.ndarray], Any] | None = None,
    ) -> None:
        if mode not in ("RGB", "L"):
            raise ValueError(f"ImageFolder: mode must be 'RGB' or 'L', got {mode!r}")
        self.root, self.size, self.mode, self.transform = Path(root), size, mode, transform
        folders = sorted(f for f in self.root.iterdir() if f.is_dir()) if self.root.is_dir() else []
        self.classes = [f.name for f in folders]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (file, label)
            for label, folder in enumerate(folders)
            for file in sorted(folder.rglob("*"))
            if file.suffix.lower() in IMAGES + ARRAYS
        ]
        if not self.samples:
            raise FileNotFoundError(
                f"ImageFolder: {self.root} holds no images; expected {self.root}/<class>/<image> with the "
                f"suffix {', '.join(IMAGES + ARRAYS)}"
            )
        self.targets = [label for _, label in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        file, label = self.samples[index]
        read = self._array if file.suffix.lower() in ARRAYS else self._picture
        image = read(file)
        return (image if self.transform is None else self.transform(image)), label

    def _picture(self, file: Path) -> np.ndarray:
        try:
            from PIL import Image
        except ImportError as error:
            raise ImportError(
                f"ImageFolder: {file.name} needs the pillow package; pip install pillow"
            ) from error
        try:
            with Image.open(file) as opened:
                picture: Any = opened.convert(self.mode)
                if self.size is not None:
                    picture = picture.resize(self.size[::-1])
                pixels = np.asarray(picture, np.float32) / np.float32(255)
        except (OSError, ValueError, SyntaxError) as error:
            raise ValueError(f"ImageFolder: {file} cannot be read as an image: {error}") from error
        return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def _array(self, file: Path) -> np.ndarray:
        try:
            pixels = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"ImageFolder: {file} cannot be read as an array: {error}") from error
        if pixels.ndim not in (2, 3):
            raise ValueError(f"ImageFolder: {file}: expected [H, W] or [H, W, C], got shape {pixels.shape}")
        scale = np.float32(255 if pixels.dtype == np.uint8 else 1)
        pixels = pixels.astype(np.float32) / scale
        return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
