"""A residual network (He et al. 2016, arXiv:1512.03385) that reads handwritten digits, shifted at random by
up to a pixel.

The command line for it is `lucid train resnet`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import lucid
from lucid import nn
from lucid.datasets import digits_split
from lucid.examples import common
from lucid.examples.common import Task, setting
from lucid.nn import functional as F


class Residual(nn.Module):
    """Two convolutions added to their input; with a stride, or another number of channels, to a 1 x 1
    convolution of it.
    """

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.short = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.short(x))


class ResNet(nn.Module):
    """Logits [n, 10] of images [n, 1, h, w]: a convolution, three residual blocks, the mean over the
    pixels.
    """

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.blocks = nn.Sequential(
            Residual(width, width), Residual(width, 2 * width, stride=2), Residual(2 * width, 2 * width)
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@dataclass(frozen=True)
class Settings(common.Settings):
    """Settings of the residual network."""

    steps: int = setting(400, "optimizer steps")
    batch_size: int = setting(64, "images per step")
    lr: float = setting(1e-2, "highest learning rate: reached after a tenth of the steps, then a cosine to 0")
    width: int = setting(24, "channels of the first block")


def build(settings: Settings) -> Task:
    """The model and its data."""
    device = settings.device
    part = digits_split(settings.seed)
    model = ResNet(settings.width).to(device)
    images, labels = lucid.tensor(part.train_images).to(device), lucid.tensor(part.train_labels).to(device)
    test_images = lucid.tensor(part.test_images).to(device)
    test_labels = lucid.tensor(part.test_labels).to(device)

    def batch() -> tuple[lucid.Tensor, lucid.Tensor]:
        picked = lucid.randint(0, len(labels), (settings.batch_size,)).to(device)
        down, right = lucid.randint(0, 3, (2,)).tolist()
        padded = F.pad(images[picked], (1, 1, 1, 1))
        return padded[:, :, down : down + 8, right : right + 8], labels[picked]

    def measure() -> dict[str, float]:
        logits = model(test_images)
        right = (logits.argmax(1) == test_labels).float().mean()
        return {"test_loss": F.cross_entropy(logits, test_labels).item(), "test_accuracy": right.item()}

    crc = zlib.crc32(part.train_images.tobytes())
    return Task(model, batch, F.cross_entropy, measure, crc)
