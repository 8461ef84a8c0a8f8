"""One process, several devices: the batch is split, a replica of the module runs on each part, the outputs
are joined.

Copies between devices are recorded, so that the gradients of all replicas meet in the module's parameters.
The replicas run one after the other in the calling thread; CUDA devices work at the same time all the same,
since each only gets its work queued.

Tested on two simulated CUDA devices; a machine with several GPUs has not run it yet. Training with one
process per GPU (`DistributedDataParallel`) is the better way there: the copies here are made in every step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ...errors import DeviceError, LucidError
from ...functional.join import cat
from ...storage.backend import backend_of
from ...storage.device import Device
from ...tensor import Tensor
from ..module import Module


def _all_devices() -> list[Device]:
    try:
        runtime = backend_of("cuda").xp.cuda.runtime
    except DeviceError:
        return []
    return [Device("cuda", i) for i in range(int(runtime.getDeviceCount()))]


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """A list with one copy of `inputs` per device: tensors in it are split along `dim`, all else is repeated.

    A tensor shorter than the number of devices gives fewer parts.

    >>> import lucid
    >>> from lucid.nn.parallel import scatter
    >>> scatter((lucid.arange(4), "all"), ["cpu", "cpu"])
    [(tensor([0, 1]), 'all'), (tensor([2, 3]), 'all')]
    """
    devices = [Device(d) for d in target_gpus]

    def split(x: Any) -> list[Any]:
        if isinstance(x, Tensor):
            parts = x.chunk(len(devices), dim)
            return [part.to(device) for part, device in zip(parts, devices, strict=False)]
        if isinstance(x, (tuple, list)) and len(x):
            columns = zip(*map(split, x), strict=False)
            if hasattr(x, "_fields"):
                return [type(x)(*column) for column in columns]
            return [type(x)(column) for column in columns]
        if isinstance(x, dict) and len(x):
            return [type(x)(column) for column in zip(*map(split, x.items()), strict=False)]
        return [x] * len(devices)

    return split(inputs)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The outputs of all devices joined along `dim` on one device.

    Containers of tensors are joined member by member, 0-d tensors to a vector. Raises LucidError for others.

    >>> import lucid
    >>> from lucid.nn.parallel import gather
    >>> gather([lucid.tensor([1, 2]), lucid.tensor([3])], "cpu")
    tensor([1, 2, 3])
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        parts = [out.to(Device(target_device)) for out in outputs]
        return cat([p.reshape(1) for p in parts] if not first.ndim else parts, dim=dim if first.ndim else 0)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(out.keys() != first.keys() for out in outputs):
            raise LucidError("gather: all dictionaries must have the same keys")
        return type(first)((k, gather([out[k] for out in outputs], target_device, dim)) for k in first)
    if isinstance(first, (tuple, list)):
        joined = [gather(column, target_device, dim) for column in zip(*outputs, strict=True)]
        return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)
    raise LucidError(f"gather: expected tensors, and tuples, lists and dicts of them, got "
                     f"{type(first).__name__}")


def replicate(network: Module, devices: Sequence[Any]) -> list[Module]:
    """A replica of the module per device, whose parameters are recorded copies.

    Gradients flow back into the module's own. On the device of the module the buffers are the module's own
    too.

    >>> import lucid
    >>> from lucid.nn.parallel import replicate
    >>> first, second = replicate(lucid.nn.Linear(2, 1), ["cpu", "cpu"])
    >>> first(lucid.ones(3, 2)).shape
    (3, 1)
    """
    return [_replica(network, Device(d), {}) for d in devices]


def _replica(module: Module, device: Device, made: dict[int, Any]) -> Any:
    found = made.get(id(module))
    if found is not None:
        return found
    copy = made[id(module)] = object.__new__(type(module))
    copy.__dict__.update(module.__dict__)

    def moved(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        if id(t) not in made:
            made[id(t)] = t.to(device)
        return made[id(t)]

    for table in ("_parameters", "_buffers"):
        copy.__dict__[table] = {name: moved(t) for name, t in module.__dict__[table].items()}
    copy.__dict__["_modules"] = {
        name: child if child is None else _replica(child, device, made)
        for name, child in module._modules.items()
    }
    return copy


def parallel_apply(modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Sequence[Any] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """The outputs of modules[i](*inputs[i], **kwargs_tup[i]), devices[i] being the current one.

    >>> import lucid
    >>> from lucid.nn.parallel import parallel_apply
    >>> parallel_apply([lucid.nn.ReLU(), lucid.nn.Tanh()], [lucid.tensor([-1.0]), lucid.tensor([0.0])])
    [tensor([0.]), tensor([0.])]
    """
    kwargs_tup = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    outputs = []
    for i, (module, given, kwargs) in enumerate(zip(modules, inputs, kwargs_tup, strict=True)):
        with _current(None if devices is None else Device(devices[i])):
            outputs.append(module(*(given if isinstance(given, (tuple, list)) else (given,)), **kwargs))
    return outputs


def _current(device: Device | None) -> Any:
    if device is None or device.type == "cpu":
        return contextlib.nullcontext()
    return backend_of(device).guard()


def data_parallel(module: Module, inputs: Any, device_ids: Sequence[Any] | None = None,
                  output_device: Any = None, dim: int = 0,
                  module_kwargs: dict[str, Any] | None = None) -> Any:
    """module(*inputs), the batch split over devices: all CUDA devices, or `device_ids`.

    The outputs are joined on `output_device` (the first device). With one device, or none, it is the module's
    own call. The module must be on the first device.

    >>> import lucid
    >>> from lucid.nn.parallel import data_parallel
    >>> data_parallel(lucid.nn.Linear(2, 1), lucid.ones(4, 2), device_ids=["cpu", "cpu"]).shape
    (4, 1)
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    kwargs = module_kwargs or {}
    devices = _all_devices() if device_ids is None else [Device(d) for d in device_ids]
    if not devices:
        return module(*inputs, **kwargs)
    _check_place(module, devices[0])
    if len(devices) == 1:
        (inputs,), (kwargs,) = scatter(inputs, devices, dim), scatter(kwargs, devices, dim)
        return module(*inputs, **kwargs)
    parts, more = scatter(inputs, devices, dim), scatter(kwargs, devices, dim)
    used = min(len(parts), len(more))
    if used == 1:
        return module(*parts[0], **more[0])
    outputs = parallel_apply(replicate(module, devices[:used]), parts[:used], more[:used], devices[:used])
    return gather(outputs, devices[0] if output_device is None else output_device, dim)


def _same(place: Device, wanted: Device) -> bool:
    return place.type == wanted.type and (wanted.index is None or place.index == wanted.index)


def _check_place(module: Module, first: Device) -> None:
    for name, t in (*module.named_parameters(), *module.named_buffers()):
        if not _same(t.device, first):
            raise DeviceError(f"data_parallel: expected the module on {first}, its first device, got {name} "
                              f"on {t.device}; move it with .to({str(first)!r})")


class DataParallel(Module):
    """A module whose calls split the batch over several devices (all CUDA devices, or `device_ids`).

    The wrapped module is `.module`; its parameters are the ones that are trained, and they stand on the first
    device. With one device, or none, calling it is calling the module.

    >>> import lucid
    >>> model = lucid.nn.DataParallel(lucid.nn.Linear(3, 2), device_ids=["cpu"])
    >>> model(lucid.ones(4, 3)).shape, list(model.state_dict())
    ((4, 2), ['module.weight', 'module.bias'])
    """

    module: Module

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None,
                 dim: int = 0) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        devices = _all_devices() if device_ids is None else [Device(d) for d in device_ids]
        self.device_ids = devices
        self.output_device = output_device if output_device is not None else (devices[0] if devices else None)
        if len(devices) == 1:
            module.to(devices[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return data_parallel(self.module, inputs, self.device_ids, self.output_device, self.dim, kwargs)
