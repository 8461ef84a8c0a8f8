"""Python's `multiprocessing`, between whose processes tensors pass, and `spawn`.

A tensor that goes to another process, as an argument or through a queue, arrives as a copy, on its device.
After `tensor.share_memory_()` (or `module.share_memory()`) it arrives as the same memory: all processes see
each other's writes, without locks.
"""

from __future__ import annotations

import multiprocessing as _mp
import multiprocessing.connection as _connection
import signal as _signal
import traceback as _traceback
from collections.abc import Callable
from multiprocessing import Array as Array
from multiprocessing import Barrier as Barrier
from multiprocessing import Condition as Condition
from multiprocessing import Event as Event
from multiprocessing import JoinableQueue as JoinableQueue
from multiprocessing import Lock as Lock
from multiprocessing import Manager as Manager
from multiprocessing import Pipe as Pipe
from multiprocessing import Pool as Pool
from multiprocessing import Process as Process
from multiprocessing import Queue as Queue
from multiprocessing import RLock as RLock
from multiprocessing import Semaphore as Semaphore
from multiprocessing import SimpleQueue as SimpleQueue
from multiprocessing import Value as Value
from multiprocessing import active_children as active_children
from multiprocessing import cpu_count as cpu_count
from multiprocessing import current_process as current_process
from multiprocessing import freeze_support as freeze_support
from multiprocessing import get_all_start_methods as get_all_start_methods
from multiprocessing import get_context as get_context
from multiprocessing import get_start_method as get_start_method
from multiprocessing import parent_process as parent_process
from multiprocessing import set_start_method as set_start_method
from typing import Any

# A traceback longer than a pipe holds would keep the child waiting for its reader.
_TEXT = 32000


def __getattr__(name: str) -> Any:
    """What else Python's module has."""
    return getattr(_mp, name)


def get_all_sharing_strategies() -> set[str]:
    """{"file_descriptor"}: shared memory is passed as an open file.

    >>> import lucid
    >>> lucid.multiprocessing.get_all_sharing_strategies()
    {'file_descriptor'}
    """
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """The sharing strategy: "file_descriptor".

    >>> import lucid
    >>> lucid.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Nothing; there is one strategy.

    Raises ValueError for another than "file_descriptor".

    >>> import lucid
    >>> lucid.multiprocessing.set_sharing_strategy("file_descriptor")
    """
    if new_strategy != "file_descriptor":
        raise ValueError(f"set_sharing_strategy: only 'file_descriptor' is there, got {new_strategy!r}")


class ProcessException(Exception):
    """A process of `spawn` failed: `error_index` is its number, `error_pid` its process id."""

    def __init__(self, msg: str, error_index: int, error_pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process of `spawn` raised an exception."""


class ProcessExitedException(ProcessException):
    """A process of `spawn` ended with another exit code than 0, or by a signal."""

    def __init__(self, msg: str, error_index: int, error_pid: int | None, exit_code: int = 1,
                 signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


class ProcessContext:
    """The processes that `spawn(join=False)` has started.

    >>> import lucid
    >>> context = lucid.multiprocessing.spawn(abs, nprocs=1, join=False)
    >>> len(context.pids()), context.join()
    (1, True)
    """

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int | None]:
        """Their process ids."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = 30.0) -> bool:
        """Whether all processes have ended well; False when some still run after `timeout` seconds.

        When one fails the others are ended (killed after `grace_period` more seconds), and
        ProcessRaisedException or ProcessExitedException is raised.
        """
        ready = _connection.wait(list(self.sentinels), timeout) if self.sentinels else []
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0 and failed is None:
                failed = index
        if failed is None:
            return not self.sentinels
        self._end_others(grace_period)
        raise self._error(failed)

    def _end_others(self, grace_period: float | None) -> None:
        for end in ("terminate", "kill"):
            for p in self.processes:
                if p.is_alive():
                    getattr(p, end)()
            for p in self.processes:
                p.join(grace_period)

    def _error(self, index: int) -> ProcessException:
        process, errors = self.processes[index], self._errors[index]
        if not errors.empty():
            text = errors.get()
            return ProcessRaisedException(
                f"process {index} of spawn raised an exception:\n{text}", index, process.pid
            )
        code = process.exitcode
        if code < 0:
            try:
                name = _signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            return ProcessExitedException(f"process {index} of spawn was ended by {name}", index, process.pid,
                                          code, name)
        return ProcessExitedException(f"process {index} of spawn ended with exit code {code}", index,
                                      process.pid, code)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # The parent gets it too, and ends its processes.
    except Exception:
        errors.put(_traceback.format_exc()[-_TEXT:])
        raise SystemExit(1) from None


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
                    daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """None after `nprocs` processes have run fn(index, *args); with join=False, a ProcessContext at once.

    start_method: "spawn", "fork" or "forkserver". Else as `spawn`.

    >>> import lucid
    >>> lucid.multiprocessing.start_processes(abs, nprocs=1)    # abs(0) in another process
    """
    context: Any = _mp.get_context(start_method)
    processes, errors = [], []
    for index in range(nprocs):
        errors.append(context.SimpleQueue())
        process = context.Process(target=_run, args=(fn, index, args, errors[-1]), daemon=daemon)
        process.start()
        processes.append(process)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """None after `nprocs` fresh processes have run fn(index, *args).

    With join=False a ProcessContext at once. fn must stand at the top of a module. When a process fails the
    others are ended and an exception with its traceback is raised.

    >>> import lucid
    >>> lucid.multiprocessing.spawn(pow, args=(2,), nprocs=1)    # pow(0, 2) in another process
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
