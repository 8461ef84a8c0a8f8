"""Framed messages over one TCP connection per pair of ranks, sent and received at the same time.

A frame is a kind (1 byte), a length (8 bytes, big-endian) and so many bytes:

    HEAD    what a rank is about to do, and small data
    DATA    a piece of an array, at most 1 MiB, so that ABORT never waits long for its turn
    ABORT   the sender gave up; the reason as text
    BYE     the sender left in order

All calls of `exchange` come from one thread (process_group.py). An error there is final: the other ranks are
told the reason, and every later call raises it again.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
import weakref
from collections import deque
from typing import Any

from ..errors import DistributedError

HEAD, DATA, ABORT, BYE = range(1, 5)
_FRAME = struct.Struct("!BQ")
PIECE = 1 << 20
_LONGEST = {HEAD: 1 << 20, DATA: PIECE, ABORT: 1 << 16, BYE: 0}
# How long a failing rank tries to tell the others why.
_LAST_WORDS = 2.0


class Closed(Exception):
    """A peer's connection has ended; the text says how. cause: what the peer says has happened."""

    def __init__(self, text: str, cause: str | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class Peer:
    """The connection to one rank: frames on their way out, and the frame that is being read."""

    def __init__(self, rank: int, sock: socket.socket) -> None:
        self.rank, self.sock = rank, sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that vanished without a word is noticed within about two minutes.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        # (bytes, whether a frame ends with them); `inside`: a frame has begun and not ended.
        self.out: deque[tuple[memoryview, bool]] = deque()
        self.inside = False
        self.filled = 0  # bytes of the present target that are there, or announced
        self._header = bytearray(_FRAME.size)
        self._start_frame()

    # ---- out ----

    def put(self, kind: int, data: Any) -> None:
        """Nothing; queues one frame of bytes, or as many DATA frames as they need."""
        view = memoryview(data)
        start = 0
        while True:
            piece = view[start : start + PIECE] if kind == DATA else view
            self.out.append((memoryview(_FRAME.pack(kind, piece.nbytes)), not piece.nbytes))
            if piece.nbytes:
                self.out.append((piece, True))
            start += piece.nbytes
            if start >= view.nbytes:
                return

    def send(self) -> bool:
        """Whether some bytes went out. Raises Closed."""
        some = False
        while self.out:
            view, ends = self.out[0]
            try:
                n = self.sock.send(view)
            except (BlockingIOError, InterruptedError):
                return some
            except OSError as error:
                raise Closed(_how(error)) from error
            some = True
            if n < view.nbytes:
                self.out[0] = (view[n:], ends)
                self.inside = True
            else:
                self.out.popleft()
                self.inside = not ends
        return some

    # ---- in ----

    def _start_frame(self) -> None:
        self._kind, self._left = 0, _FRAME.size
        self._into: Any = memoryview(self._header)

    def receive(self, target: memoryview | None) -> tuple[int, Any] | None:
        """(HEAD, bytes) when a HEAD has come, (DATA, None) when `target` is full; None when more must come.

        Raises Closed at an ABORT, a BYE or the end of the connection.
        """
        while True:
            if self._left:
                try:
                    n = self.sock.recv_into(self._into, self._left)
                except (BlockingIOError, InterruptedError):
                    return None
                except OSError as error:
                    raise Closed(_how(error)) from error
                if not n:
                    raise Closed("closed its connection: its process has ended")
                self._into, self._left = self._into[n:], self._left - n
                continue
            if not self._kind:
                self._kind, self._left = _FRAME.unpack(self._header)
                if self._left > _LONGEST.get(self._kind, -1):
                    raise Closed(f"sent a frame that is not lucid's (kind {self._kind}, {self._left} bytes)")
                if self._kind == DATA:
                    if target is None or self._left > target.nbytes - self.filled:
                        raise Closed("sent data where none was expected")
                    self._into = target[self.filled :]
                    self.filled += self._left
                else:
                    self._body = bytearray(self._left)
                    self._into = memoryview(self._body)
                continue
            kind = self._kind
            self._start_frame()
            if kind == ABORT:
                cause = self._body.decode(errors="replace")
                raise Closed(f"gave up: {cause}", cause)
            if kind == BYE:
                raise Closed("left the group (destroy_process_group)")
            if kind == HEAD:
                return HEAD, bytes(self._body)
            if target is not None and self.filled == target.nbytes:
                return DATA, None


def _how(error: OSError) -> str:
    return f"is gone ({error.strerror or type(error).__name__}): its process or its machine has ended"


_open: weakref.WeakSet[Mesh]


class Mesh:
    """This rank's connections to all others."""

    def __init__(self, rank: int, peers: dict[int, socket.socket]) -> None:
        self.rank = rank
        self.peers = {r: Peer(r, s) for r, s in peers.items()}
        self.failure: str | None = None
        _open.add(self)

    def exchange(self, sends: dict[int, tuple[int, Any]], receives: dict[int, tuple[int, Any]], what: str,
                 timeout: float) -> dict[int, Any]:
        """rank -> the HEAD it sent (None for DATA), when all has been sent and received.

        sends: rank -> (kind, bytes). receives: rank -> (HEAD, None) or (DATA, memoryview to fill). what: the
        call, for messages. timeout: seconds for all of it. Raises DistributedError, which is final.
        """
        if self.failure is not None:
            raise DistributedError(f"distributed: {what} cannot run: {self.failure}")
        try:
            return self._exchange(sends, receives, time.monotonic() + timeout, timeout)
        except _Failure as failure:
            reason = f"rank {self.rank} in {what}: {failure}"
            self.fail(reason, failure.cause)
            raise DistributedError(f"distributed: {reason}") from failure

    def _exchange(self, sends: Any, receives: Any, deadline: float, timeout: float) -> dict[int, Any]:
        got: dict[int, Any] = {}
        for rank, (kind, data) in sends.items():
            self.peers[rank].put(kind, data)
        waiting: dict[int, Any] = {}
        for rank, (_, target) in receives.items():
            self.peers[rank].filled = 0
            waiting[rank] = target
        sending = [r for r in sends if self.peers[r].out]
        while True:
            some = False
            for rank in [r for r in sending if self.peers[r].out]:
                try:
                    some |= self.peers[rank].send()
                except Closed as closed:
                    raise _Failure(rank, self._last_words(rank) or closed) from closed
            for rank in list(waiting):
                try:
                    found = self.peers[rank].receive(waiting[rank])
                except Closed as closed:
                    raise _Failure(rank, closed) from closed
                if found is None:
                    continue
                if found[0] != receives[rank][0]:
                    raise _Failure(rank, Closed("sent a message out of turn"))
                got[rank], some = found[1], True
                del waiting[rank]
            sending = [r for r in sending if self.peers[r].out]
            if not sending and not waiting:
                return got
            if not some:
                self._wait(sending, waiting, deadline, timeout)

    def _wait(self, sending: Any, waiting: Any, deadline: float, timeout: float) -> None:
        left = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            for rank in {*sending, *waiting}:
                events = selectors.EVENT_READ if rank in waiting else 0
                events |= selectors.EVENT_WRITE if rank in sending else 0
                selector.register(self.peers[rank].sock, events)
            if left > 0 and selector.select(left):
                return
        silent = sorted({*waiting, *sending})
        raise _Failure(silent[0], Closed(
            f"did nothing for {timeout:g} s (timeout): it hangs, or does not make this call (ranks waited "
            f"for: {', '.join(map(str, silent))})"
        ))

    def _last_words(self, rank: int) -> Closed | None:
        """Why a peer that takes nothing any more has gone, if it said so."""
        peer = self.peers[rank]
        scratch = memoryview(bytearray(PIECE))
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            peer.filled = 0
            try:
                if peer.receive(scratch) is None:
                    time.sleep(0.01)
            except Closed as closed:
                return closed
        return None

    # ---- the end ----

    def fail(self, reason: str, cause: str | None = None) -> None:
        """Nothing; every later call raises with this reason, and the other ranks are told the reason, or the
        cause where another rank has found it.
        """
        if self.failure is not None:
            return
        self.failure = reason
        self._tell(ABORT, (cause or reason).encode()[: _LONGEST[ABORT]])

    def leave(self) -> None:
        """Nothing; tells the other ranks that this one leaves in order, and closes the connections."""
        if self.failure is None:
            self.failure = "the process group was destroyed"
            self._tell(BYE, b"")
        self.close()

    def _tell(self, kind: int, data: bytes) -> None:
        until = time.monotonic() + _LAST_WORDS
        for peer in self.peers.values():
            # A frame that has begun must be ended; those behind it are dropped.
            kept: list[tuple[memoryview, bool]] = []
            while peer.inside and peer.out and not (kept and kept[-1][1]):
                kept.append(peer.out.popleft())
            peer.out = deque(kept)
            peer.put(kind, data)
            with contextlib.suppress(Closed, OSError):
                while peer.out and time.monotonic() < until:
                    if not peer.send():
                        time.sleep(0.01)
                peer.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Nothing; closes the connections."""
        for peer in self.peers.values():
            peer.sock.close()
        _open.discard(self)


class _Failure(Exception):
    """What went wrong in an exchange, with which rank."""

    def __init__(self, rank: int, closed: Closed) -> None:
        super().__init__(f"rank {rank} {closed}")
        self.cause = closed.cause


_open = weakref.WeakSet()


def _after_fork() -> None:
    # A forked child holds copies of the connections: while it lives, the death of its parent would go
    # unnoticed. Closing its copies does not end the connections.
    for mesh in list(_open):
        mesh.failure = "this process was forked from one that has a process group; it has none itself"
        mesh.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
