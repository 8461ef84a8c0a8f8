"""Batches on their way to a device: pinned memory, and copies that run beside the computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ... import cuda
from ...storage.backend import backend_of
from ...storage.device import Device
from ...tensor import Tensor
from .collate import _filled


def each(batch: Any, method: str, function: Callable[[Any], Any]) -> Any:
    """The batch with all that has a method of this name (tensors, packed sequences, objects of the user's)
    replaced by function(it); containers keep their type.
    """
    if hasattr(batch, method):
        return function(batch)
    if isinstance(batch, Mapping):
        return _filled(batch, {key: each(value, method, function) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(each(part, method, function) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(each(part, method, function) for part in batch)
    return batch


def pinned(batch: Any) -> Any:
    """The batch with its tensors in pinned memory, and other objects' own `pin_memory()`; itself without a
    GPU.
    """
    if not cuda.is_available():
        return batch
    backend_of("cuda")  # whose memory is pinned
    return each(batch, "pin_memory", _pinned)


def _pinned(x: Any) -> Any:
    # A tensor that is on a GPU already stays there.
    return x if isinstance(x, Tensor) and x.device.type != "cpu" else x.pin_memory()


class Prefetcher:
    """The batches of a loader on a device, each copied while the one before is being worked on.

    loader: a DataLoader, or anything to iterate over. device: the current CUDA device when None. On a GPU the
    copies go through pinned memory and a stream of their own, one batch ahead; neither the host nor the
    computation waits for one that has ended. `state_dict()` and `load_state_dict()` are the loader's, for the
    batch that was given last.

    >>> import lucid
    >>> from lucid.utils.data import DataLoader, Prefetcher
    >>> [batch.tolist() for batch in Prefetcher(DataLoader([1.0, 2.0, 3.0], batch_size=2), "cpu")]
    [[1.0, 2.0], [3.0]]
    """

    def __init__(self, loader: Iterable[Any], device: Any = None) -> None:
        self.loader = loader
        self.device = Device("cuda" if device is None else device)
        self._state: Any = None

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        batches = self._on_gpu() if self.device.type == "cuda" else self._moved()
        for batch, state in batches:
            self._state = state
            yield batch
        self._state = None

    def _moved(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.loader:
            yield each(batch, "to", lambda x: x.to(self.device)), None

    def _on_gpu(self) -> Iterator[tuple[Any, Any]]:
        side = cuda.Stream(self.device)
        source = iter(self.loader)

        def begin() -> Any:
            for batch in source:
                # Memory that the stream gets back from earlier batches may still be read by work queued so
                # far.
                side.wait_stream(cuda.current_stream(self.device))
                with side:
                    there = each(pinned(batch), "to", lambda x: x.to(self.device, non_blocking=True))
                    return there, side.record_event(), self._asked()
            return None

        ahead = begin()
        while ahead is not None:
            (batch, ready, state), error = ahead, None
            try:
                ahead = begin()
            except Exception as problem:  # of a later batch than the one that is due
                ahead, error = None, problem
            cuda.current_stream(self.device).wait_event(ready)
            yield batch, state
            del batch
            if error is not None:
                raise error

    def _asked(self) -> Any:
        return self.loader.state_dict() if hasattr(self.loader, "state_dict") else None

    def state_dict(self) -> Any:
        """The loader's state after the batch that was given last."""
        return self._asked() if self._state is None else dict(self._state)

    def load_state_dict(self, state_dict: Any) -> None:
        """Nothing; the loader goes on after `state_dict`."""
        self.loader.load_state_dict(state_dict)  # type: ignore[attr-defined]
