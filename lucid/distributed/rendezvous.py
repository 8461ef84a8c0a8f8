"""How the ranks of a job find each other, and how they know each other.

Rank 0 listens at an address that all know; every other rank connects, says its rank and where it listens
itself, and gets the list of all. Then each pair of ranks has one connection.

    env://              MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE of the environment
    tcp://host:port     that address; rank and world_size as arguments or as ?rank=0&world_size=2
    file:///path        a file that all ranks can read: rank 0 writes its address into it

Both ends of a connection prove that they know the job's token (HMAC-SHA256 of the other's random bytes). The
token is LUCID_DIST_TOKEN, which the launcher makes; with file:// it stands in the file, readable for its
owner alone. Without a token only addresses of this machine are used.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from ..errors import DistributedError
from .wire import Mesh

TOKEN = "LUCID_DIST_TOKEN"
_MAGIC = b"lucid distributed 1\n"
_NONCE = 32
_SIZE = struct.Struct("!I")
_LONGEST = 1 << 20
# A stranger that connects and says nothing holds up the others for so long.
_HANDSHAKE = 10.0
# Ranks that come so many seconds after the job has failed still hear why.
_LATE = 5.0


@dataclass
class Job:
    """What a rank knows at the start."""

    rank: int
    world_size: int
    host: str
    port: int
    token: bytes
    file: Path | None = None


# ---- what the arguments and the environment say ----


def job_of(init_method: str | None, rank: int, world_size: int, token: str | None) -> Job:
    """The job that `init_process_group`'s arguments mean. Raises DistributedError naming what is missing."""
    method = init_method or "env://"
    url = urlparse(method)
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    if url.scheme not in ("env", "tcp", "file"):
        raise DistributedError(f"init_process_group: init_method must be env://, tcp://host:port or "
                               f"file:///path, got {method!r}")
    given: dict[str, Any] = {"rank": rank, "world_size": world_size}
    for key, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE")):
        if given[key] < 0 and key in query:
            given[key] = _number(query[key], f"{key} in {method!r}")
        if given[key] < 0 and url.scheme == "env":
            given[key] = _number(_variable(variable), variable)
        if given[key] < 0:
            raise DistributedError(f"init_process_group: {method!r} needs {key}=..., as an argument")
    rank, world_size = given["rank"], given["world_size"]
    if not 0 <= rank < world_size:
        raise DistributedError(f"init_process_group: expected 0 <= rank < world_size, got rank={rank}, "
                               f"world_size={world_size}")
    secret = (token if token is not None else os.environ.get(TOKEN, "")).encode()
    if init_method is None and world_size == 1 and "MASTER_ADDR" not in os.environ:
        return Job(rank, world_size, "", 0, secret)  # there is nobody to meet
    if url.scheme == "file":
        return Job(rank, world_size, "", 0, secret, Path(url.netloc + url.path))
    if url.scheme == "tcp":
        if not url.hostname or url.port is None:
            raise DistributedError(f"init_process_group: expected tcp://host:port, got {method!r}")
        return Job(rank, world_size, url.hostname, url.port, secret)
    return Job(rank, world_size, _variable("MASTER_ADDR"), _number(_variable("MASTER_PORT"), "MASTER_PORT"),
               secret)


def _variable(name: str) -> str:
    if name not in os.environ:
        raise DistributedError(
            f"init_process_group: env:// needs the environment variable {name}; start the script with "
            "`python -m lucid.distributed.run --nproc-per-node N script.py`, or set it"
        )
    return os.environ[name]


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DistributedError(f"init_process_group: {what} must be a number, got {text!r}") from None


# ---- connections that know each other ----


def _prove(token: bytes, role: bytes, nonce: bytes) -> bytes:
    return hmac.new(token, _MAGIC + role + nonce, "sha256").digest()


def _read(sock: socket.socket, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        piece = sock.recv(n - len(data))
        if not piece:
            raise ConnectionError("the other end closed the connection")
        data += piece
    return bytes(data)


class _Stranger(Exception):
    """The other end does not know the token, or is no rank."""


def _accept(sock: socket.socket, token: bytes) -> None:
    """Nothing; the one that connected has proved that it knows the token, and we to it."""
    mine = secrets.token_bytes(_NONCE)
    sock.sendall(_MAGIC + mine)
    answer = _read(sock, _NONCE + 32)
    theirs, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _prove(token, b"client", mine + theirs)):
        raise _Stranger("a process that does not know the job's token tried to join")
    sock.sendall(_prove(token, b"server", theirs + mine))


def _introduce(sock: socket.socket, token: bytes) -> None:
    """Nothing; we have proved to the listener that we know the token, and it to us."""
    hello = _read(sock, len(_MAGIC) + _NONCE)
    if not hello.startswith(_MAGIC):
        raise _Stranger("what listens there is not rank 0 of a lucid job")
    theirs, mine = hello[len(_MAGIC) :], secrets.token_bytes(_NONCE)
    sock.sendall(mine + _prove(token, b"client", theirs + mine))
    try:
        answer = _read(sock, 32)
    except ConnectionError:
        answer = b""
    if not hmac.compare_digest(answer, _prove(token, b"server", mine + theirs)):
        raise _Stranger(f"rank 0 there has another token; all ranks need the same {TOKEN}")


def _tell(sock: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    sock.sendall(_SIZE.pack(len(data)) + data)


def _hear(sock: socket.socket) -> Any:
    (n,) = _SIZE.unpack(_read(sock, _SIZE.size))
    if n > _LONGEST:
        raise _Stranger("what was sent is not lucid's")
    return json.loads(_read(sock, n))


def _addresses(host: str, port: int) -> list[Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DistributedError(f"init_process_group: address {host}:{port} is unknown: {error}") from error
    return sorted(found, key=lambda a: a[0] != socket.AF_INET)


def _check_local(host: str, address: Any, token: bytes) -> None:
    if not token and not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
        raise DistributedError(
            f"init_process_group: {host} is reachable from other machines, so the ranks must know each other "
            f"by a token: set {TOKEN} to the same secret everywhere (the launcher does), or use 127.0.0.1"
        )


def _listen(host: str, port: int, token: bytes) -> socket.socket:
    family, _, _, _, address = _addresses(host, port)[0]
    _check_local(host, address, token)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise DistributedError(f"init_process_group: cannot listen at {host}:{port}: {error.strerror}; use "
                               "another MASTER_PORT, and an address of the machine of rank 0") from error
    return sock


def _connect(host: str, port: int, token: bytes, timeout: float) -> socket.socket:
    last: Exception = OSError("no address")
    for family, kind, protocol, _, address in _addresses(host, port):
        _check_local(host, address, token)
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(timeout)
        try:
            sock.connect(address)
            _introduce(sock, token)
            return sock
        except (OSError, _Stranger) as error:
            sock.close()
            last = error
    raise last


# ---- meeting ----


def meet(job: Job, timeout: float) -> Mesh:
    """The connections to all other ranks, once all are there. Raises DistributedError after `timeout` seconds
    with the ranks that did not come.
    """
    until = time.monotonic() + timeout
    if job.world_size == 1:
        return Mesh(0, {})
    return Mesh(job.rank, _first(job, until, timeout) if job.rank == 0 else _other(job, until, timeout))


def _first(job: Job, until: float, timeout: float) -> dict[int, socket.socket]:
    """Rank 0: waits for the others, then tells each where all are."""
    if job.file is not None:
        job.token = job.token or secrets.token_hex(16).encode()
        job.host = _own_address()
    listener = _listen(job.host, job.port, job.token)
    if job.file is not None:
        _write_file(job, listener.getsockname()[1])
    found: dict[int, socket.socket] = {}
    places: dict[int, Any] = {}

    def welcome(sock: socket.socket, hello: Any) -> None:
        rank, problem = hello["rank"], None
        if hello["world_size"] != job.world_size:
            problem = f"rank {rank} has world_size {hello['world_size']}, rank 0 has {job.world_size}"
        elif rank in found or rank == 0:
            problem = f"two processes call themselves rank {rank}"
        elif not 0 < rank < job.world_size:
            problem = f"a process calls itself rank {rank} of {job.world_size}"
        found.setdefault(rank, sock)
        places[rank] = hello["place"]
        if problem:
            told = [*{*found.values(), sock}]
            for other in told:
                _refuse(other, problem)

            def late(sock: socket.socket, hello: Any) -> None:
                told.append(sock)
                _refuse(sock, problem)

            end = min(until, time.monotonic() + _LATE)
            _gather(listener, job, end, lambda: len(told) < job.world_size - 1, late)
            raise DistributedError(f"init_process_group: {problem}")

    with listener:
        where = f"{job.host}:{listener.getsockname()[1]}"
        _gather(listener, job, until, lambda: len(found) < job.world_size - 1, welcome)
    missing = sorted(set(range(1, job.world_size)) - set(found))
    if missing:
        raise DistributedError(f"init_process_group: rank {', '.join(map(str, missing))} did not come to "
                               f"{where} within {timeout:g} s")
    for sock in found.values():
        _tell(sock, {"places": places})
    if job.file is not None:
        job.file.unlink(missing_ok=True)  # so that the next job does not find it
    return found


def _refuse(sock: socket.socket, problem: str) -> None:
    with contextlib.suppress(OSError):
        _tell(sock, {"problem": problem})


def _gather(listener: socket.socket, job: Job, until: float, more: Callable[[], bool],
            welcome: Callable[[socket.socket, Any], None]) -> None:
    """Nothing; welcomes those that know the token, while `more()` are missing and there is time."""
    while more() and (left := until - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            sock, _ = listener.accept()
        except OSError:
            continue
        sock.settimeout(_HANDSHAKE)
        try:
            _accept(sock, job.token)
            hello = _hear(sock)
        except (OSError, ValueError, _Stranger):
            sock.close()
            continue
        welcome(sock, hello)


def _other(job: Job, until: float, timeout: float) -> dict[int, socket.socket]:
    """Ranks above 0: go to rank 0, then to the ranks between, and wait for those above."""
    first = _to_first(job, until, timeout)
    host = first.getsockname()[0]
    found = {0: first}

    def welcome(sock: socket.socket, hello: Any) -> None:
        found[hello["rank"]] = sock

    try:
        with _listen(host, 0, job.token) as listener:
            _tell(first, {"rank": job.rank, "world_size": job.world_size,
                          "place": [host, listener.getsockname()[1]]})
            first.settimeout(max(until - time.monotonic(), 0.1))
            answer = _hear(first)
            if "problem" in answer:
                raise DistributedError(f"init_process_group: {answer['problem']}")
            for rank in range(1, job.rank):
                there, port = answer["places"][str(rank)]
                sock = _connect(there, port, job.token, max(until - time.monotonic(), 0.1))
                _tell(sock, {"rank": job.rank})
                found[rank] = sock
            _gather(listener, job, until, lambda: len(found) < job.world_size - 1, welcome)
    except (OSError, _Stranger) as error:
        raise DistributedError(f"init_process_group: rank {job.rank} was with rank 0, but the ranks did not "
                               f"all meet: {error}") from error
    if len(found) < job.world_size - 1:
        missing = sorted(set(range(job.world_size)) - {job.rank, *found})
        raise DistributedError(f"init_process_group: rank {', '.join(map(str, missing))} did not reach rank "
                               f"{job.rank} within {timeout:g} s")
    return found


def _to_first(job: Job, until: float, timeout: float) -> socket.socket:
    """A connection to rank 0, tried until it listens."""
    problem: Exception | str = "it has written no address"
    while (left := until - time.monotonic()) > 0:
        try:
            if job.file is not None:
                told = json.loads(job.file.read_text())
                job.host, job.port, job.token = told["host"], told["port"], told["token"].encode()
            return _connect(job.host, job.port, job.token, min(left, _HANDSHAKE))
        except (OSError, ValueError, KeyError, _Stranger) as error:
            # Not there yet; with a file also one that an earlier job has left.
            if isinstance(error, _Stranger) and not job.file:
                raise DistributedError(f"init_process_group: rank {job.rank} was not let in at "
                                       f"{job.host}:{job.port}: {error}") from error
            if not (job.file and isinstance(error, (FileNotFoundError, ValueError))):
                problem = error
        time.sleep(min(0.05, left))
    place = str(job.file) if job.file is not None else f"{job.host}:{job.port}"
    raise DistributedError(f"init_process_group: rank {job.rank} did not reach rank 0 at {place} within "
                           f"{timeout:g} s: {problem}")


def _own_address() -> str:
    """An address of this machine that others can reach, where it has one."""
    try:
        found = str(socket.gethostbyname(socket.gethostname()))
        with socket.socket() as sock:
            sock.bind((found, 0))
        return found
    except OSError:
        return "127.0.0.1"


def _write_file(job: Job, port: int) -> None:
    assert job.file is not None
    told = {"host": job.host, "port": port, "token": job.token.decode()}
    fd, path = tempfile.mkstemp(prefix=job.file.name, dir=job.file.parent)  # mode 0600
    with os.fdopen(fd, "w") as f:
        json.dump(told, f)
    os.replace(path, job.file)
