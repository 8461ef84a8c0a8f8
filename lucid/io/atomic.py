"""Files that are replaced in one step, and the removal of what killed writers left."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows, which does not remove a file that somebody has open
    fcntl = None  # type: ignore[assignment]

_PART = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}\.tmp")


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of `path` in one step.

    It does when the block ends without an error, and is on the disk then. What writers of the same path left
    half-written when they were killed is removed.

    >>> import pathlib, tempfile
    >>> import lucid
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "note")
    ...     with lucid.io.replaced(path) as stream:
    ...         size = stream.write(b"whole or not at all")
    ...     path.read_bytes()
    b'whole or not at all'
    """
    stream, part, lock = _begin(path)
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
        sweep(path.parent, lambda name: name == path.name)
    finally:
        if lock is not None:
            os.close(lock)
        part.unlink(missing_ok=True)


def sweep(folder: Path, mine: Callable[[str], Any]) -> bool:
    """Whether a file with a name for which `mine` is true is being written in the folder at this moment.

    Such files that nobody writes any more are removed.
    """
    busy = False
    for name in os.listdir(folder):
        found = _PART.fullmatch(name)
        if found and mine(found[1]):
            busy |= not _removed(folder / name)
    return busy


def _begin(path: Path) -> tuple[BinaryIO, Path, int | None]:
    # A writer holds a lock, which ends with its process: a number of a process may be taken by another one.
    while True:
        part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        stream = open(part, "xb")  # noqa: SIM115
        if fcntl is None:
            return stream, part, None
        # The lock outlives the stream, until the file has its name.
        lock = os.dup(stream.fileno())
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            return stream, part, lock
        if os.fstat(lock).st_nlink:
            return stream, part, lock
        # Taken for a leftover before it was locked.
        os.close(lock)
        stream.close()


def _removed(part: Path) -> bool:
    # Whether a temporary file was a leftover.
    try:
        if fcntl is not None:
            with open(part, "rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
        else:
            part.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    # The new name, too, must survive a loss of power; Windows cannot open folders.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
