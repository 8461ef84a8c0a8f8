"""The process groups of this process: how they begin and end, and what is asked of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as _TimeoutError
from datetime import timedelta
from typing import Any

from ..errors import DistributedError
from ..storage.backend import backend_of
from ..storage.nccl import available
from .process_group import ProcessGroup, Worker
from .rendezvous import job_of, meet

default_pg_timeout = timedelta(minutes=30)
BACKENDS = {"gloo": "gloo", "nccl": "nccl", "cpu:gloo,cuda:nccl": "nccl", "cuda:nccl,cpu:gloo": "nccl"}


class GroupMember:
    """WORLD: the group of all ranks. NON_GROUP_MEMBER: what `new_group` gives to a rank that is not in it.

    >>> import lucid.distributed as dist
    >>> dist.GroupMember.WORLD is None    # before init_process_group
    True
    """

    NON_GROUP_MEMBER = -100
    WORLD: ProcessGroup | None = None


group = GroupMember
_made: list[ProcessGroup] = []  # by new_group
_count = 0


class Work:
    """A collective under way, of `async_op=True`: `wait()` before the tensors are used.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x = lucid.tensor([1.0, 2.0])
    >>> work = dist.all_reduce(x, async_op=True)    # other work may be done here
    >>> work.wait(), work.is_success()
    (True, True)
    >>> dist.destroy_process_group()
    """

    def __init__(self, future: Future[Any], finish: Callable[[], Any]) -> None:
        self._future, self._finish, self._result = future, finish, None
        self._done = False

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """True, once the result is in its tensors. Raises what the collective raised, or DistributedError
        after `timeout` seconds.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            self._future.result(seconds)
        except _TimeoutError:
            if self._future.done():
                raise
            raise DistributedError(f"distributed: the call has not ended within {seconds:g} s") from None
        if not self._done:
            self._done = True
            self._result = self._finish()
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._future.done()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._future.done() and self._future.exception() is None

    def exception(self) -> BaseException | None:
        """What it raised."""
        return self._future.exception() if self._future.done() else None

    def result(self) -> Any:
        """Its tensors, after `wait`."""
        self.wait()
        return self._result


def submit(group: ProcessGroup, job: Callable[[], Any], finish: Callable[[], Any] = lambda: None,
           async_op: bool = False) -> Work | None:
    """The Work of a job for the worker's thread; None after it was waited for, without `async_op`."""
    if group.mesh.failure is not None:
        raise DistributedError(f"distributed: the group has failed: {group.mesh.failure}")
    work = Work(group.worker.submit(job), finish)
    if async_op:
        return work
    work.wait()
    return None


# ---- the group ----


def is_available() -> bool:
    """True.

    >>> import lucid.distributed as dist
    >>> dist.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` has been called, and not `destroy_process_group` since.

    >>> import lucid.distributed as dist
    >>> dist.is_initialized()
    False
    """
    return GroupMember.WORLD is not None


def is_gloo_available() -> bool:
    """True: "gloo" here is TCP sockets of the standard library.

    >>> import lucid.distributed as dist
    >>> dist.is_gloo_available()
    True
    """
    return True


def is_nccl_available() -> bool:
    """Whether CuPy has NCCL here.

    >>> import lucid.distributed as dist
    >>> dist.is_nccl_available() in (True, False)
    True
    """
    try:
        return available(backend_of("cuda").xp)
    except Exception:
        return False


def is_mpi_available() -> bool:
    """False.

    >>> import lucid.distributed as dist
    >>> dist.is_mpi_available()
    False
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether `python -m lucid.distributed.run`, or a launcher of that kind, has started this process.

    >>> import lucid.distributed as dist
    >>> dist.is_torchelastic_launched()
    False
    """
    return "LOCAL_RANK" in os.environ and "RANK" in os.environ


def init_process_group(backend: str | None = None, init_method: str | None = None,
                       timeout: timedelta | float | None = None, world_size: int = -1, rank: int = -1,
                       store: None = None, group_name: str = "", pg_options: Any = None,
                       device_id: Any = None, *, token: str | None = None) -> None:
    """Nothing; returns when all ranks of the job have called it.

    backend: "gloo", sockets on the CPU (tensors on CUDA travel through host memory); "nccl", NCCL for tensors
    on CUDA and sockets for others. init_method: "env://" (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE; the
    default), "tcp://host:port", "file:///path". timeout: of this and of every later call, 30 minutes by
    default. token: the secret by which ranks know each other; LUCID_DIST_TOKEN when None. Between machines it
    is required.

    Raises DistributedError with the ranks that did not come.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)    # a job of one process
    >>> dist.get_rank(), dist.get_world_size()
    (0, 1)
    >>> dist.destroy_process_group()
    """
    global _count
    if GroupMember.WORLD is not None:
        raise DistributedError("init_process_group: there is a process group already; "
                               "destroy_process_group() first")
    if store is not None:
        raise DistributedError("init_process_group: stores are not supported; use init_method")
    name = "gloo" if backend is None else BACKENDS.get(backend.lower())
    if name is None:
        raise DistributedError(f"init_process_group: backend is 'gloo' or 'nccl', got {backend!r}")
    if name == "nccl" and not is_nccl_available():
        raise DistributedError("init_process_group: there is no NCCL (it needs a GPU, and CuPy with "
                               "nvidia-nccl); use backend='gloo'")
    seconds = seconds_of(timeout)
    mesh = meet(job_of(init_method, rank, world_size, token), seconds)
    size = len(mesh.peers) + 1
    _count = 0
    GroupMember.WORLD = ProcessGroup("world", range(size), mesh, Worker(), seconds, name)


def seconds_of(timeout: timedelta | float | None) -> float:
    timeout = default_pg_timeout if timeout is None else timeout
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Nothing; leaves the group, and with the world all groups. The other ranks go on to their own end.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.destroy_process_group()
    >>> dist.is_initialized()
    False
    """
    world = world_of("destroy_process_group")
    if group is not None and group is not world:
        if group in _made:
            _made.remove(group)
        return
    for g in (world, *_made):
        if g.nccl is not None:
            g.nccl.close()
    _made.clear()
    GroupMember.WORLD = None
    if world.mesh.failure is None:
        world.worker.stop()
    world.mesh.leave()


def world_of(name: str) -> ProcessGroup:
    if GroupMember.WORLD is None:
        raise DistributedError(f"{name}: there is no process group; call init_process_group() first")
    return GroupMember.WORLD


def group_of(name: str, given: Any) -> ProcessGroup | None:
    """The group meant; None where this process is not in it."""
    world = world_of(name)
    if given is None:
        return world
    return None if given == GroupMember.NON_GROUP_MEMBER else given


def new_group(ranks: Sequence[int] | None = None, timeout: timedelta | float | None = None,
              backend: str | None = None, pg_options: Any = None, use_local_synchronization: bool = False,
              group_desc: str | None = None, device_id: Any = None) -> Any:
    """A group of some ranks (all when None). All ranks of the job must call it, in the same order.

    Ranks that are not in it get GroupMember.NON_GROUP_MEMBER.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.new_group([0])
    <ProcessGroup '1', ranks 0>
    >>> dist.destroy_process_group()
    """
    global _count
    world = world_of("new_group")
    chosen = sorted(range(world.size()) if ranks is None else ranks)
    if not chosen or len(set(chosen)) != len(chosen) or not 0 <= chosen[0] <= chosen[-1] < world.size():
        raise DistributedError(f"new_group: expected different ranks below {world.size()}, got {ranks}")
    submit(world, lambda: world.agree("new_group", None, (), f"ranks {chosen}"))
    _count += 1
    if world.mesh.rank not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    seconds = world.timeout if timeout is None else seconds_of(timeout)
    name = world.backend if backend is None else BACKENDS.get(backend.lower(), backend)
    made = ProcessGroup(f"{_count}", chosen, world.mesh, world.worker, seconds, name)
    _made.append(made)
    return made


def get_rank(group: Any = None) -> int:
    """This process's number in the group; -1 where it is not in it.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.get_rank()
    0
    >>> dist.destroy_process_group()
    """
    found = group_of("get_rank", group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """The number of ranks in the group; -1 where this process is not in it.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.get_world_size()
    1
    >>> dist.destroy_process_group()
    """
    found = group_of("get_world_size", group)
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """The group's backend, "gloo" or "nccl". Raises DistributedError where this process is not in the group.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.get_backend()
    'gloo'
    >>> dist.destroy_process_group()
    """
    found = group_of("get_backend", group)
    if found is None:
        raise DistributedError("get_backend: this process is not in the group")
    return found.backend


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK of the environment: this process's number on its machine.

    Where it is not set: fallback_rank, or DistributedError.

    >>> import lucid.distributed as dist
    >>> dist.get_node_local_rank(fallback_rank=0)
    0
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise DistributedError("get_node_local_rank: LOCAL_RANK is not set; start the script with "
                               "`python -m lucid.distributed.run`")
    return fallback_rank


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of the job that are in the group, in its order.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.get_process_group_ranks()
    [0]
    >>> dist.destroy_process_group()
    """
    found = group_of("get_process_group_ranks", group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The job's rank of the group's rank.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.get_global_rank(dist.group.WORLD, 0)
    0
    >>> dist.destroy_process_group()
    """
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The group's rank of the job's rank.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.get_group_rank(dist.group.WORLD, 0)
    0
    >>> dist.destroy_process_group()
    """
    if global_rank not in group.ranks:
        raise DistributedError(f"get_group_rank: rank {global_rank} is not in {group}")
    return group.ranks.index(global_rank)
