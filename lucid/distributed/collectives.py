"""`torch.distributed`'s functions on tensors and objects."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import numpy as np

from ..errors import DistributedError, DtypeError, ShapeError
from ..storage.nccl import Nccl, unique_id
from ..tensor import Tensor
from .process_group import ProcessGroup, ReduceOp, check_op
from .world import Work, group_of, seconds_of, submit

# ---- tensors as host arrays ----


def _tensor(name: str, what: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise DtypeError(f"{name}: {what} must be a tensor, got {type(x).__name__}")
    return x


def _host(x: Tensor) -> np.ndarray[Any, Any]:
    """The data in contiguous host memory: the tensor's own array where that is such."""
    return np.asarray(x.backend.to_numpy(x.array), order="C")


def _write(x: Tensor, host: np.ndarray[Any, Any]) -> Tensor:
    """The tensor, which holds these values now."""
    if host is not x.array:
        x.array[...] = x.backend.from_numpy(host)
    x.storage.version += 1
    return x


def _same(name: str, tensors: Sequence[Any], like: Tensor, count: int, what: str) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)) or len(tensors) != count:
        got = f"{len(tensors)}" if isinstance(tensors, (list, tuple)) else type(tensors).__name__
        raise ShapeError(f"{name}: {what} must be a list of {count} tensors, one per rank, got {got}")
    for t in tensors:
        _tensor(name, f"a member of {what}", t)
        if t.shape != like.shape or t.dtype != like.dtype:
            raise ShapeError(f"{name}: {what} must hold tensors like the other argument "
                             f"({like.dtype.name}{list(like.shape)}), got {t.dtype.name}{list(t.shape)}")
    return list(tensors)


def _nccl(group: ProcessGroup, *tensors: Tensor) -> Any:
    """The group's NCCL communicator for tensors on CUDA; None where sockets carry them."""
    if group.backend != "nccl" or not all(t.is_cuda for t in tensors):
        return None
    if group.nccl is None:
        backend: Any = tensors[0].backend
        first = group.ranks[0]

        def agree() -> bytes:
            identity = unique_id(backend.xp) if group.mesh.rank == first else None
            return group.objects(identity, "nccl", None, [first], group.ranks)[first]

        future = group.worker.submit(agree)
        group.nccl = Nccl(backend, group.size(), future.result(), group.rank())
    return group.nccl


def _on_device(group: ProcessGroup, agree: Callable[[], Any], launch: Callable[[], Any], async_op: bool,
               tensors: Sequence[Tensor]) -> Work | None:
    """A collective through NCCL: agreed through the sockets, then queued on the current stream."""
    submit(group, agree)
    launch()
    for t in tensors:
        t.storage.version += 1
    if not async_op:
        return None
    future: Future[Any] = Future()
    future.set_result(None)
    return Work(future, lambda: list(tensors))


def _root(name: str, group: ProcessGroup, given: int | None, group_given: int | None, default: int | None = 0,
          ) -> int:
    """The job's rank of a root given in the job's numbers or in the group's."""
    if group_given is not None:
        if given is not None:
            raise DistributedError(f"{name}: give the rank in the job or in the group, not both")
        return group.ranks[group_given]
    rank = default if given is None else given
    if rank is None or rank not in group.ranks:
        raise DistributedError(f"{name}: rank {rank} is not in {group}")
    return rank


# ---- collectives on tensors ----


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Nothing; returns when all ranks of the group have called it.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.barrier()
    >>> dist.destroy_process_group()
    """
    g = group_of("barrier", group)
    return None if g is None else submit(g, g.barrier, async_op=async_op)


def monitored_barrier(group: Any = None, timeout: timedelta | float | None = None,
                      wait_all_ranks: bool = False) -> None:
    """Nothing; a barrier with a time of its own, after which the ranks that did not come are named.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> dist.monitored_barrier(timeout=5.0)
    >>> dist.destroy_process_group()
    """
    g = group_of("monitored_barrier", group)
    if g is None:
        return
    before = g.timeout
    g.timeout = before if timeout is None else seconds_of(timeout)
    try:
        submit(g, g.barrier)
    finally:
        g.timeout = before


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
               async_op: bool = False) -> Work | None:
    """Nothing; the tensor holds, on all ranks, the reduction of all ranks' tensors.

    The same bits on every rank and in every run: values are reduced in the order of the ranks, float16 and
    bfloat16 in float32. (NCCL has its own order.)

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x = lucid.tensor([1.0, 2.0])
    >>> dist.all_reduce(x, dist.ReduceOp.AVG)
    >>> x    # the mean over the ranks, of which there is one
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("all_reduce", group)
    if g is None:
        return None
    op = check_op("all_reduce", op, _tensor("all_reduce", "tensor", tensor).dtype)
    comm = _nccl(g, tensor)
    if comm is not None:
        return _on_device(g, lambda: g.agree("all_reduce", tensor.dtype, tensor.shape, op.value),
                          lambda: comm.all_reduce(tensor.array, op.value), async_op, [tensor])
    host = _host(tensor)
    return submit(g, lambda: g.all_reduce(host, op), lambda: [_write(tensor, host)], async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """Nothing; the tensor holds, on rank `dst`, the reduction of all ranks' tensors. Others keep theirs.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x = lucid.tensor([1.0, 2.0])
    >>> dist.reduce(x, dst=0)
    >>> x
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("reduce", group)
    if g is None:
        return None
    op = check_op("reduce", op, _tensor("reduce", "tensor", tensor).dtype)
    root = _root("reduce", g, dst, group_dst)
    host = _host(tensor).copy()

    def finish() -> list[Tensor]:
        return [_write(tensor, host)] if g.mesh.rank == root else [tensor]

    return submit(g, lambda: g.all_reduce(host, op, f"reduce to {root}"), finish, async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Work | None:
    """Nothing; the tensor holds, on all ranks, what it holds on rank `src`.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x = lucid.tensor([1.0, 2.0]) if dist.get_rank() == 0 else lucid.zeros(2)
    >>> dist.broadcast(x, src=0)
    >>> x    # on every rank
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("broadcast", group)
    if g is None:
        return None
    _tensor("broadcast", "tensor", tensor)
    root = _root("broadcast", g, src, group_src)
    comm = _nccl(g, tensor)
    if comm is not None:
        return _on_device(g, lambda: g.agree("broadcast", tensor.dtype, tensor.shape, f"src={root}"),
                          lambda: comm.broadcast(tensor.array, g.ranks.index(root)), async_op, [tensor])
    host = _host(tensor)
    return submit(g, lambda: g.broadcast(host, root), lambda: [_write(tensor, host)], async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None,
               async_op: bool = False) -> Work | None:
    """Nothing; tensor_list[i] holds, on all ranks, rank i's tensor. All of one shape and dtype.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> parts = [lucid.zeros(2) for _ in range(dist.get_world_size())]
    >>> dist.all_gather(parts, lucid.tensor([1.0, 2.0]))
    >>> parts
    [tensor([1., 2.])]
    >>> dist.destroy_process_group()
    """
    g = group_of("all_gather", group)
    if g is None:
        return None
    _tensor("all_gather", "tensor", tensor)
    outs = _same("all_gather", tensor_list, tensor, g.size(), "tensor_list")
    hosts, host = [np.empty(tensor.shape, tensor.dtype) for _ in outs], _host(tensor)

    def finish() -> list[Tensor]:
        return [_write(out, h) for out, h in zip(outs, hosts, strict=True)]

    return submit(g, lambda: g.all_gather(hosts, host), finish, async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None,
                           async_op: bool = False) -> Work | None:
    """Nothing; the output [ranks * n, ...] holds all ranks' inputs [n, ...], one after the other.

    The output may be [ranks, n, ...] too. Raises ShapeError for other shapes, DtypeError for two dtypes.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> out = lucid.zeros(2 * dist.get_world_size())
    >>> dist.all_gather_into_tensor(out, lucid.tensor([1.0, 2.0]))
    >>> out
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("all_gather_into_tensor", group)
    if g is None:
        return None
    _tensor("all_gather_into_tensor", "output_tensor", output_tensor)
    _tensor("all_gather_into_tensor", "input_tensor", input_tensor)
    _check_whole("all_gather_into_tensor", output_tensor, input_tensor, g.size())
    comm = _nccl(g, input_tensor, output_tensor)
    if comm is not None:
        return _on_device(
            g, lambda: g.agree("all_gather", input_tensor.dtype, input_tensor.shape),
            lambda: comm.all_gather(output_tensor.array, input_tensor.array), async_op, [output_tensor],
        )
    host = _host(input_tensor)
    whole = np.empty((g.size(), *host.shape), host.dtype)

    def finish() -> list[Tensor]:
        return [_write(output_tensor, whole.reshape(output_tensor.shape))]

    return submit(g, lambda: g.all_gather(list(whole), host), finish, async_op)


def _check_whole(name: str, whole: Tensor, part: Tensor, count: int) -> None:
    if whole.numel() != count * part.numel() or whole.dtype != part.dtype:
        raise ShapeError(
            f"{name}: the whole must have {count} times the elements of a part "
            f"({part.dtype.name}{list(part.shape)}), got {whole.dtype.name}{list(whole.shape)}"
        )


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None,
           group: Any = None, async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """Nothing; on rank `dst`, gather_list[i] holds rank i's tensor.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> parts = [lucid.zeros(2)] if dist.get_rank() == 0 else None
    >>> dist.gather(lucid.tensor([1.0, 2.0]), parts, dst=0)
    >>> parts
    [tensor([1., 2.])]
    >>> dist.destroy_process_group()
    """
    g = group_of("gather", group)
    if g is None:
        return None
    _tensor("gather", "tensor", tensor)
    root, host = _root("gather", g, dst, group_dst), _host(tensor)
    here = g.mesh.rank == root
    outs = _same("gather", gather_list or (), tensor, g.size(), "gather_list") if here else []
    hosts = [np.empty(tensor.shape, tensor.dtype) for _ in outs]

    def finish() -> list[Tensor]:
        return [_write(out, h) for out, h in zip(outs, hosts, strict=True)]

    return submit(g, lambda: g.gather(hosts, host, root), finish, async_op)


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None,
            group: Any = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Nothing; the tensor holds scatter_list[i] of rank `src`, i this rank's number in the group.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x, parts = lucid.zeros(2), [lucid.tensor([1.0, 2.0])] if dist.get_rank() == 0 else None
    >>> dist.scatter(x, parts, src=0)
    >>> x
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("scatter", group)
    if g is None:
        return None
    _tensor("scatter", "tensor", tensor)
    root = _root("scatter", g, src, group_src)
    here = g.mesh.rank == root
    parts = _same("scatter", scatter_list or (), tensor, g.size(), "scatter_list") if here else []
    hosts, out = [_host(p) for p in parts], np.empty(tensor.shape, tensor.dtype)
    return submit(g, lambda: g.scatter(out, hosts, root), lambda: [_write(tensor, out)], async_op)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Work | None:
    """Nothing; the output holds the reduction of input_list[i] of all ranks, i this rank's number.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> out = lucid.zeros(2)
    >>> dist.reduce_scatter(out, [lucid.tensor([1.0, 2.0])])    # one tensor for each rank
    >>> out
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("reduce_scatter", group)
    if g is None:
        return None
    op = check_op("reduce_scatter", op, _tensor("reduce_scatter", "output", output).dtype)
    parts = _same("reduce_scatter", input_list, output, g.size(), "input_list")
    hosts, out = [_host(p) for p in parts], np.empty(output.shape, output.dtype)
    return submit(g, lambda: g.reduce_scatter(out, hosts, op), lambda: [_write(output, out)], async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Work | None:
    """Nothing; the output [n, ...] holds this rank's part of the reduction of all inputs [ranks * n, ...].

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> out = lucid.zeros(2)
    >>> dist.reduce_scatter_tensor(out, lucid.tensor([1.0, 2.0]))    # n = 2, one rank
    >>> out
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    g = group_of("reduce_scatter_tensor", group)
    if g is None:
        return None
    op = check_op("reduce_scatter_tensor", op, _tensor("reduce_scatter_tensor", "output", output).dtype)
    _check_whole("reduce_scatter_tensor", _tensor("reduce_scatter_tensor", "input", input), output, g.size())
    comm = _nccl(g, input, output)
    if comm is not None:
        return _on_device(
            g, lambda: g.agree("reduce_scatter", output.dtype, output.shape, op.value),
            lambda: comm.reduce_scatter(output.array, input.array, op.value), async_op, [output],
        )
    whole, out = _host(input).reshape(g.size(), *output.shape), np.empty(output.shape, output.dtype)
    return submit(g, lambda: g.reduce_scatter(out, list(whole), op), lambda: [_write(output, out)], async_op)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None,
               async_op: bool = False) -> Work | None:
    """Nothing; output_tensor_list[i] holds what rank i's input_tensor_list has for this rank.

    All of one shape and dtype.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> out = [lucid.zeros(2)]
    >>> dist.all_to_all(out, [lucid.tensor([1.0, 2.0])])
    >>> out
    [tensor([1., 2.])]
    >>> dist.destroy_process_group()
    """
    g = group_of("all_to_all", group)
    if g is None:
        return None
    like = _tensor("all_to_all", "a member of input_tensor_list", next(iter(input_tensor_list), None))
    parts = _same("all_to_all", input_tensor_list, like, g.size(), "input_tensor_list")
    outs = _same("all_to_all", output_tensor_list, like, g.size(), "output_tensor_list")
    hosts, got = [_host(p) for p in parts], [np.empty(like.shape, like.dtype) for _ in outs]

    def finish() -> list[Tensor]:
        return [_write(out, h) for out, h in zip(outs, got, strict=True)]

    return submit(g, lambda: g.all_to_all(got, hosts), finish, async_op)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
         group_dst: int | None = None) -> None:
    """Nothing; returns when rank `dst` has received the tensor with `recv`.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x = lucid.tensor([1.0, 2.0])
    >>> if dist.get_world_size() > 1 and dist.get_rank() == 0:
    ...     dist.send(x, dst=1)    # rank 1 calls dist.recv(x, src=0)
    >>> dist.destroy_process_group()
    """
    g = group_of("send", group)
    if g is None:
        return
    _tensor("send", "tensor", tensor)
    other = _root("send", g, dst, group_dst, None)
    if other == g.mesh.rank:
        raise DistributedError("send: a rank cannot send to itself")
    host = _host(tensor)
    submit(g, lambda: g.send(host, g.mesh.rank, other, tag))


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
         group_src: int | None = None) -> int:
    """The rank `src`, once the tensor holds what that rank has sent with `send`.

    >>> import lucid
    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> x = lucid.zeros(2)
    >>> if dist.get_rank() == 1:
    ...     dist.recv(x, src=0)    # rank 0 calls dist.send(x, dst=1)
    >>> dist.destroy_process_group()
    """
    g = group_of("recv", group)
    if g is None:
        return -1
    _tensor("recv", "tensor", tensor)
    if src is None and group_src is None:
        raise DistributedError("recv: name the rank to receive from; any rank is not supported")
    other = _root("recv", g, src, group_src, None)
    if other == g.mesh.rank:
        raise DistributedError("recv: a rank cannot receive from itself")
    host = _host(tensor)
    submit(g, lambda: g.send(host, other, g.mesh.rank, tag), lambda: _write(tensor, host))
    return other


# ---- objects ----
# They travel in the format of lucid.save, of which nothing is ever executed.


def _pack(name: str, value: Any) -> bytes:
    from ..io.checkpoint import save

    stream = io.BytesIO()
    try:
        save(value, stream)
    except DtypeError as error:
        raise DtypeError(f"{name}: {str(error).removeprefix('save: ')}") from error
    return stream.getvalue()


def _unpack(data: bytes) -> Any:
    from ..io.checkpoint import load

    return load(io.BytesIO(data))


def _exchange_objects(g: ProcessGroup, data: bytes | None, name: str, detail: Any, senders: Sequence[int],
                      receivers: Sequence[int]) -> dict[int, Any]:
    found: dict[int, bytes] = {}
    submit(g, lambda: found.update(g.objects(data, name, detail, senders, receivers)))
    return {r: _unpack(b) for r, b in found.items()}


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None,
                          device: Any = None, group_src: int | None = None) -> None:
    """Nothing; the list holds, on all ranks, the objects that it holds on rank `src`.

    Objects: what `lucid.save` takes: tensors, arrays, numbers, strings, None, and dicts, lists, tuples and
    sets of them. Tensors arrive on the CPU.

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> settings = [{"lr": 0.1}, "a name"] if dist.get_rank() == 0 else [None, None]
    >>> dist.broadcast_object_list(settings, src=0)
    >>> settings
    [{'lr': 0.1}, 'a name']
    >>> dist.destroy_process_group()
    """
    g = group_of("broadcast_object_list", group)
    if g is None:
        return
    root = _root("broadcast_object_list", g, src, group_src)
    data = _pack("broadcast_object_list", list(object_list)) if g.mesh.rank == root else None
    detail = f"src={root}, {len(object_list)} objects"
    found = _exchange_objects(g, data, "broadcast_object_list", detail, [root], g.ranks)
    if g.mesh.rank != root:
        object_list[:] = found[root]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Nothing; object_list[i] is, on all ranks, rank i's object (see `broadcast_object_list`).

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> found = [None] * dist.get_world_size()
    >>> dist.all_gather_object(found, {"loss": 0.5})
    >>> found
    [{'loss': 0.5}]
    >>> dist.destroy_process_group()
    """
    g = group_of("all_gather_object", group)
    if g is None:
        return
    found = _exchange_objects(g, _pack("all_gather_object", obj), "all_gather_object", None, g.ranks, g.ranks)
    object_list[:] = [found[r] for r in g.ranks]


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
                  group: Any = None, group_dst: int | None = None) -> None:
    """Nothing; on rank `dst`, object_gather_list[i] is rank i's object (see `broadcast_object_list`).

    >>> import lucid.distributed as dist
    >>> dist.init_process_group("gloo", "tcp://127.0.0.1:0", rank=0, world_size=1)
    >>> found = [None] if dist.get_rank() == 0 else None
    >>> dist.gather_object({"loss": 0.5}, found, dst=0)
    >>> found
    [{'loss': 0.5}]
    >>> dist.destroy_process_group()
    """
    g = group_of("gather_object", group)
    if g is None:
        return
    root = _root("gather_object", g, dst, group_dst)
    found = _exchange_objects(g, _pack("gather_object", obj), "gather_object", f"dst={root}", g.ranks, [root])
    if g.mesh.rank == root and object_gather_list is not None:
        object_gather_list[:] = [found[r] for r in g.ranks]
