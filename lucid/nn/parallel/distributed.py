"""One process per device, each with its part of the batch: gradients are averaged over the processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ... import distributed as dist
from ...autograd.engine import queue_callback
from ...errors import DistributedError, GradError
from ...storage.backend import backend_of
from ...storage.device import Device
from ...storage.dtype import as_dtype
from ...tensor import Tensor, _wrap
from ..module import Module
from ..parameter import Parameter, is_lazy
from .data import scatter

# The first bucket is small, so that its way over the network begins early (PyTorch's sizes).
_FIRST_BYTES, _BUCKET_MB = 1 << 20, 25.0
# State is copied into one vector of so many bytes, and broadcast.
_BROADCAST_BYTES = 1 << 26


class _Bucket:
    """Parameters of one dtype and device whose gradients travel as one vector."""

    def __init__(self, numbers: list[int], parameters: list[Parameter]) -> None:
        self.numbers, self.parameters = numbers, parameters
        self.flat: Tensor | None = None
        self.work: Any = None

    def launch(self, group: Any) -> None:
        """Nothing; the gradients are on their way. One that is not there counts as zeros."""
        backend = self.parameters[0].backend
        xp = backend.xp
        parts = [
            xp.zeros(p.numel(), p.dtype) if p.grad is None else p.grad.array.reshape(-1)
            for p in self.parameters
        ]
        self.flat = _wrap(xp.concatenate(parts) if len(parts) > 1 else parts[0].copy(), backend)
        self.work = dist.all_reduce(self.flat, dist.ReduceOp.AVG, group, async_op=True)

    def finish(self, used: Any) -> None:
        """Nothing; the averages are in the `.grad`s of the parameters that some process used."""
        self.work.wait()
        assert self.flat is not None
        start = 0
        for number, p in zip(self.numbers, self.parameters, strict=True):
            part = self.flat.array[start : start + p.numel()].reshape(p.shape)
            start += p.numel()
            if used is not None and not used[number]:
                continue
            if p.grad is None:
                p.grad = _wrap(part.copy(), p.backend)
            else:
                p.grad.array[...] = part
                p.grad.storage.version += 1
        self.flat = self.work = None


def _buckets(parameters: list[Parameter], megabytes: float) -> list[_Bucket]:
    """The parameters in the order in which their gradients come, about: the last first."""
    most = int(megabytes * 2**20)
    made, limit = [], min(_FIRST_BYTES, most)
    numbers: list[int] = []
    size = 0
    for i in reversed(range(len(parameters))):
        p = parameters[i]
        first = parameters[numbers[0]] if numbers else p
        if numbers and (size + p.nbytes > limit or (p.dtype, p.device) != (first.dtype, first.device)):
            made.append(numbers)
            numbers, size, limit = [], 0, most
        numbers.append(i)
        size += p.nbytes
    return [_Bucket(n, [parameters[i] for i in n]) for n in [*made, numbers]]


def _broadcast_all(tensors: Sequence[Tensor], group: Any, src: int) -> None:
    """Nothing; all tensors hold what they hold on rank `src`. Those of one dtype and device travel together.
    """
    parts: list[list[Tensor]] = []
    last: dict[Any, int] = {}  # dtype and device -> its part that still has room
    for t in tensors:
        kind = (t.dtype.name, str(t.device))
        if kind not in last or sum(x.nbytes for x in parts[last[kind]]) + t.nbytes > _BROADCAST_BYTES:
            last[kind] = len(parts)
            parts.append([])
        parts[last[kind]].append(t)
    for members in parts:
        backend = members[0].backend
        flat = _wrap(backend.xp.concatenate([t.array.reshape(-1) for t in members]), backend)
        dist.broadcast(flat, src, group)
        if dist.get_rank() == src:
            continue
        start = 0
        for t in members:
            t.array[...] = flat.array[start : start + t.numel()].reshape(t.shape)
            t.storage.version += 1
            start += t.numel()


class DistributedDataParallel(Module):
    """A module that each process of the group calls with its own part of the batch.

    At the start all processes get parameters and buffers of rank 0, and before each forward its buffers. At
    the end of each backward pass every `.grad` is the average over the processes, so that with a loss that is
    a mean over the part the step is that of the whole batch (parts of equal size). Gradients travel in
    buckets of `bucket_cap_mb` MB, while those after them are still being gathered.

    device_ids: one CUDA device, to which inputs are moved. find_unused_parameters: some parameters may get no
    gradient in a backward pass of this process, which is an error otherwise; those that no process used keep
    their `.grad`. Other arguments are PyTorch's; dim, check_reduction, gradient_as_bucket_view and
    static_graph change nothing.

    Not here: communication hooks, `join` for parts of different numbers of batches, create_graph=True.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo")                                             # doctest: +SKIP
    >>> model = DistributedDataParallel(nn.Linear(3, 2))                            # doctest: +SKIP
    """

    module: Module

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None,
                 dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
                 process_group: Any = None, bucket_cap_mb: float | None = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False) -> None:
        super().__init__()
        if not dist.is_initialized():
            raise DistributedError("DistributedDataParallel: there is no process group; call "
                                   "lucid.distributed.init_process_group() first")
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise GradError("DistributedDataParallel: the module has no parameter that requires grad")
        if any(is_lazy(p) for _, p in named):
            raise GradError("DistributedDataParallel: a lazy parameter has no shape yet; run the module once")
        if device_ids is not None and len(device_ids) > 1:
            raise DistributedError("DistributedDataParallel: one device per process, got device_ids="
                                   f"{list(device_ids)}; DataParallel takes several")
        self.module, self.process_group = module, process_group
        self.device_ids = None if not device_ids else [Device(device_ids[0])]
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._names, self._parameters_list = [n for n, _ in named], [p for _, p in named]
        self._source = dist.get_process_group_ranks(process_group)[0]
        self._check_same()
        if init_sync:
            _broadcast_all([*module.parameters(), *module.buffers()], process_group, self._source)
        megabytes = _BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb
        self._buckets = _buckets(self._parameters_list, megabytes)
        self._place = {i: k for k, b in enumerate(self._buckets) for i in b.numbers}
        self._sync = True
        # Of the backward pass under way: gradients missing per bucket, and the next bucket to go.
        self._missing: list[set[int]] | None = None
        self._next = 0
        self._handles = [
            p.register_post_accumulate_grad_hook(partial(self._on_grad, i))
            for i, p in enumerate(self._parameters_list)
        ]

    def _check_same(self) -> None:
        mine = [[n, list(p.shape), p.dtype.name] for n, p in self.module.named_parameters()]
        mine += [[n, list(b.shape), b.dtype.name] for n, b in self.module.named_buffers()]
        all_: list[Any] = []
        dist.all_gather_object(all_, mine, self.process_group)
        for rank, theirs in zip(dist.get_process_group_ranks(self.process_group), all_, strict=True):
            if theirs == all_[0]:
                continue
            first, other = next(
                ((a, b) for a, b in zip(all_[0], theirs, strict=False) if a != b),
                (f"{len(all_[0])} tensors", f"{len(theirs)} tensors"),
            )
            raise DistributedError(f"DistributedDataParallel: the modules differ: rank {self._source} has "
                                   f"{first}, rank {rank} has {other}")

    # ---- forward ----

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._sync = self.require_backward_grad_sync
        if self.broadcast_buffers and self.require_forward_param_sync:
            buffers = list(self.module.buffers())
            if buffers:
                _broadcast_all(buffers, self.process_group, self._source)
        if self.device_ids is not None:
            (inputs,), (kwargs,) = scatter(inputs, self.device_ids), scatter(kwargs, self.device_ids)
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which forward passes lead to gradients that stay in their process and add up; the
        first backward pass of a forward outside of it averages the sums.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ---- backward ----

    def _on_grad(self, number: int, parameter: Tensor) -> None:
        if not self._sync:
            return
        if parameter.grad is not None and parameter.grad.requires_grad:
            raise GradError("DistributedDataParallel: create_graph=True is not supported; gradients of "
                            "gradients would miss the other processes")
        if self._missing is None:
            self._missing, self._next = [set(b.numbers) for b in self._buckets], 0
            queue_callback(self._at_end)
        self._missing[self._place[number]].discard(number)
        # In one order on all ranks.
        while self._next < len(self._buckets) and not self._missing[self._next]:
            self._launch()

    def _launch(self) -> None:
        self._buckets[self._next].launch(self.process_group)
        self._next += 1

    def _at_end(self, done: bool) -> None:
        missing = sorted(set().union(*self._missing or ()))
        self._missing = None
        if not done:
            return
        if missing and not self.find_unused_parameters:
            names = ", ".join(self._names[i] for i in missing)
            raise DistributedError(
                f"DistributedDataParallel: {len(missing)} parameters got no gradient in this backward pass: "
                f"{names}. Use all of them in the loss, or pass find_unused_parameters=True"
            )
        while self._next < len(self._buckets):
            self._launch()
        used = None
        if self.find_unused_parameters:
            flags = [p.grad is not None for p in self._parameters_list]
            told = _wrap(np.array(flags, as_dtype("uint8")), backend_of("cpu"))
            dist.all_reduce(told, dist.ReduceOp.MAX, self.process_group)
            used = told.array.astype(bool)
        for bucket in self._buckets:
            bucket.finish(used)
