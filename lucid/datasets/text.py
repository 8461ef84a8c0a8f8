"""Text as numbers: Python's own documentation, or a file of the user's, character by character."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def python_topics() -> str:
    """The texts of Python's `help()` topics in alphabetical order: about 460,000 characters.

    Part of every Python; they differ a little from one version to the next. License: PSF.

    >>> import lucid
    >>> "if_stmt" in lucid.datasets.python_topics()
    True
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip("\n") for name in sorted(topics)) + "\n"


class Characters:
    """The characters of a text as a vocabulary.

    `encode` gives numbers from 0 to len - 1, `decode` the text again.

    >>> import lucid
    >>> vocabulary = lucid.datasets.Characters("hello")
    >>> len(vocabulary), vocabulary.encode("hole").tolist(), vocabulary.decode([1, 0, 2])
    (4, [1, 3, 2, 0], 'hel')
    """

    def __init__(self, text: str) -> None:
        self.characters = "".join(sorted(set(text)))
        self._number = {c: i for i, c in enumerate(self.characters)}

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """int64 [len(text)]. Raises ValueError for a character that is not in the vocabulary."""
        try:
            return np.fromiter((self._number[c] for c in text), np.int64, len(text))
        except KeyError as error:
            raise ValueError(f"Characters.encode: {error.args[0]!r} is not in the vocabulary") from None

    def decode(self, numbers: np.ndarray | list[int]) -> str:
        """The text of a sequence of numbers."""
        return "".join(self.characters[int(i)] for i in numbers)


def text_split(
    text: str | None = None, test_fraction: float = 0.1
) -> tuple[np.ndarray, np.ndarray, Characters]:
    """(train int64 [n], test int64 [m], vocabulary): the last part of a text is the test part.

    text: Python's topics when None. Raises ValueError unless 0 < test_fraction < 1 leaves something in both
    parts.

    >>> import lucid
    >>> train, test, vocabulary = lucid.datasets.text_split("abcd" * 25)
    >>> train.shape, test.shape
    ((90,), (10,))
    """
    text = python_topics() if text is None else text
    cut = round(len(text) * (1 - test_fraction))
    if not 0 < cut < len(text):
        raise ValueError(
            f"text_split: test_fraction={test_fraction} of {len(text)} characters leaves one part empty; "
            "try 0.1"
        )
    vocabulary = Characters(text)
    numbers = vocabulary.encode(text)
    return numbers[:cut], numbers[cut:], vocabulary


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file. Raises ValueError naming the file when it is something else.

    >>> import tempfile
    >>> import lucid
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     size = file.write("naive".encode())
    ...     file.flush()
    ...     len(lucid.datasets.read_text(file.name))
    5
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"read_text: {path} is no UTF-8 text: {error}") from None
