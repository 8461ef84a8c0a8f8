"""Small data sets that travel with the package, and readers for others from a path; as NumPy arrays."""

from ._digits import digits, digits_split
from .cifar import cifar10, cifar100
from .folder import ImageFolder
from .idx import mnist, read_idx
from .text import Characters, python_topics, read_text, text_split

__all__ = [
    "Characters",
    "ImageFolder",
    "cifar10",
    "cifar100",
    "digits",
    "digits_split",
    "mnist",
    "python_topics",
    "read_idx",
    "read_text",
    "text_split",
]
