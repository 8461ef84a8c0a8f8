"""Streams and events, in PyTorch's names around CuPy's objects."""

from __future__ import annotations

from typing import Any

from ..errors import DeviceError, LucidError
from ._device import backend


class Stream:
    """A queue of work on a device. Work of different streams may overlap; events order it.

    Usable in a `with` statement, where it is the current stream, and its device the current one: every
    operation, transfer and kernel of this thread on that device is queued on it. A backward pass runs
    on the stream that is current when it is called. `cupy` is CuPy's stream; memory that one stream
    frees is reused on that stream only.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     side = lucid.cuda.Stream()
    ...     with lucid.cuda.stream(side):
    ...         x = lucid.ones(3, device="cuda") * 2
    ...     side.synchronize()
    """

    def __init__(self, device: Any = None, priority: int = 0, *, cupy: Any = None) -> None:
        chosen = backend(device)
        self.device = chosen.device
        self._backend = chosen
        if cupy is None:
            with chosen.guard():
                cupy = chosen.xp.cuda.Stream(non_blocking=True, priority=priority or None)
        self.cupy = cupy
        self._guards: list[Any] = []

    @property
    def cuda_stream(self) -> int:
        """The cudaStream_t as a number."""
        return int(self.cupy.ptr)

    def __enter__(self) -> Stream:
        guard = self._backend.guard()
        guard.__enter__()
        self._guards.append(guard)
        self.cupy.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.cupy.__exit__(*error)
        self._guards.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.cuda_stream) == (
            other.device,
            other.cuda_stream,
        )

    def __hash__(self) -> int:
        return hash((self.device, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<lucid.cuda.Stream {self.cuda_stream:#x} on {self.device}>"

    def query(self) -> bool:
        """Whether all work of the stream has finished; does not wait."""
        return bool(self.cupy.done)

    def synchronize(self) -> None:
        """Nothing; returns when all work of the stream has finished."""
        self.cupy.synchronize()

    def record_event(self, event: Event | None = None) -> Event:
        """An event at the present end of the stream."""
        if event is None:
            with self._backend.guard():  # CUDA takes an event of the stream's own device alone
                event = Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Nothing; later work of this stream waits, on the device, for the event."""
        self.cupy.wait_event(event.cupy)

    def wait_stream(self, stream: Stream) -> None:
        """Nothing; later work of this stream waits for what `stream` has been given so far."""
        self.wait_event(stream.record_event())


class _Handle:
    """A cudaStream_t under the CUDA stream protocol, which CuPy reads."""

    def __init__(self, stream_ptr: int) -> None:
        self._stream_ptr = stream_ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream_ptr


class ExternalStream(Stream):
    """A stream that another library made, by its cudaStream_t; it must outlive this object.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     null = lucid.cuda.ExternalStream(0)    # the default stream's number
    """

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        chosen = backend(device)
        with chosen.guard():
            super().__init__(device, cupy=chosen.xp.cuda.Stream.from_external(_Handle(stream_ptr)))


class Event:
    """A point in the work of a stream.

    enable_timing: keep its time, for `elapsed_time` (milliseconds). blocking: let the waiting thread sleep.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     start, end = (lucid.cuda.Event(enable_timing=True) for _ in range(2))
    ...     start.record(); x = lucid.ones(3, device="cuda") * 2; end.record()
    ...     end.synchronize()
    ...     milliseconds = start.elapsed_time(end)
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        chosen = backend()
        self._cuda, self.device = chosen.xp.cuda, chosen.device
        self.cupy = self._cuda.Event(
            block=blocking, disable_timing=not enable_timing, interprocess=interprocess
        )
        self._timed, self._recorded = enable_timing, False

    def record(self, stream: Stream | None = None) -> None:
        """Nothing; the event stands at the present end of `stream` (the current one when None)."""
        # CuPy's own default is the null stream.
        stream = current_stream() if stream is None else stream
        if stream.device != self.device:
            raise DeviceError(
                f"event: made on {self.device}, cannot be recorded on a stream of {stream.device}; make it "
                f"within lucid.cuda.device({stream.device.index}), or call stream.record_event()"
            )
        with stream._backend.guard():
            self.cupy.record(stream.cupy)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing; later work of `stream` (the current one when None) waits for the event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the event has been reached; does not wait. True before `record`."""
        return not self._recorded or bool(self.cupy.done)

    def synchronize(self) -> None:
        """Nothing; returns when the event has been reached."""
        self.cupy.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to a later one; both must have been recorded and reached.

        On the simulated device it is a time of the simulation, which says nothing about a GPU.
        """
        for name, event in (("the start event", self), ("the end event", end_event)):
            if not event._timed or not event._recorded:
                missing = "made with enable_timing=True" if not event._timed else "recorded"
                raise LucidError(
                    f"elapsed_time: expected two timed, recorded events, but {name} was not {missing}"
                )
        return float(self._cuda.get_elapsed_time(self.cupy, end_event.cupy))


def current_stream(device: Any = None) -> Stream:
    """The stream on which this thread's work is queued.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     stream = lucid.cuda.current_stream()
    """
    chosen = backend(device)
    with chosen.guard():
        return Stream(chosen.device, cupy=chosen.xp.cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The device's null stream, which is current until another is chosen.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     stream = lucid.cuda.default_stream()
    """
    chosen = backend(device)
    return Stream(chosen.device, cupy=chosen.xp.cuda.Stream.null)


def set_stream(stream: Stream) -> None:
    """Nothing; `stream` is this thread's current stream, and its device the current one.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.set_stream(lucid.cuda.default_stream())
    """
    stream._backend.xp.cuda.Device(stream._backend.index).use()
    stream.cupy.use()


class stream:
    """A context in which a stream, and its device, are the current ones; None changes nothing.

    >>> import lucid
    >>> s = lucid.cuda.Stream()                                 # doctest: +SKIP
    >>> with lucid.cuda.stream(s):                              # doctest: +SKIP
    ...     y = x @ w
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> stream:
        if self.stream is not None:
            self.stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)
