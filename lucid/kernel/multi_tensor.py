"""One launch over many tensors: optimiser steps, and the norm, clipping and unscaling of gradients.

Tables of addresses in device memory name the tensors. A table is made anew when an address changes and never
overwritten, so whoever keeps a launch (a captured graph) needs to keep its arguments only. Numbers that
change from step to step lie in arrays of fixed address.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import KernelError
from ..storage.dtype import REAL_OF
from . import loader
from .launch import Launcher, accumulator, launcher
from .specs import KERNELS

# Elements per block. 124 M parameters make 7600 blocks; the smallest tensors waste most of theirs.
CHUNK = 16384
THREADS = 256
# State arrays that a kernel takes.
STATES = {"sgd": 0, "sgd_momentum": 1, "adam": 2, "adamw": 2, "adam_amsgrad": 3, "adamw_amsgrad": 3}
# Orders of norms that gradient_norm takes, and its macro for each.
NORMS = {2.0: "LUCID_NORM=2", 1.0: "LUCID_NORM=1", math.inf: "LUCID_NORM=0"}
# Tables that a device keeps: a training step uses two of addresses per dtype, and one of blocks.
_KEPT = 32


def usable(backend: Any, name: str, dtype: Any, defines: tuple[str, ...] = ()) -> Launcher | None:
    """The launcher of a backend for kernel `name` on elements of `dtype`.

    None where the backend runs no kernels, the kernel is not made for the dtype, or it does not compile there
    (of which the first use has warned).
    """
    if not backend.runs_kernels or dtype.name not in KERNELS[name].dtypes:
        return None
    try:
        loader.function(backend, name, dtype.name, (*KERNELS[name].defines, *defines))
    except loader.Unavailable:
        return None
    return launcher(backend)


# ---- tables ----


class _Tables:
    """The tables that a launcher has uploaded, the latest `_KEPT` of each kind."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, ...], tuple[Any, ...]] = {}
        self._numbers: dict[tuple[Any, ...], dict[tuple[float, ...], Any]] = {}

    def numbers(self, launch: Any, what: str, key: tuple[float, ...], dtype: Any) -> Any:
        """`key` on the device, in `dtype`, in a table of the kind `what`."""
        kept = self._numbers.setdefault((what, dtype), {})
        found = kept.get(key)
        if found is None:
            found = _keep(kept, key, launch.upload(np.array(key, dtype)))
        return found

    def addresses(self, launch: Any, key: tuple[int, ...]) -> Any:
        """u64 [tensors]: `key` on the device."""
        return self.numbers(launch, "addresses", key, np.uint64)

    def blocks(self, launch: Any, key: tuple[int, ...]) -> tuple[Any, ...]:
        """(number of blocks, sizes, tensor of each block, its first element) for tensors of these sizes.

        A tensor without elements has a block all the same, which counts its steps.
        """
        found = self._blocks.get(key)
        if found is None:
            sizes = np.array(key, np.int64)
            chunks = np.maximum(-(-sizes // CHUNK), 1)
            tensor = np.repeat(np.arange(len(key), dtype=np.int32), chunks)
            first = np.repeat(np.cumsum(chunks) - chunks, chunks)
            start = (np.arange(len(tensor), dtype=np.int64) - first) * CHUNK
            tables = tuple(launch.upload(table) for table in (sizes, tensor, start))
            found = _keep(self._blocks, key, (len(tensor), *tables))
        return found


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(kept) >= _KEPT:
        kept.pop(next(iter(kept)), None)
    kept[key] = value
    return value


_tables: WeakKeyDictionary[Any, _Tables] = WeakKeyDictionary()


def _tables_of(launch: Any) -> _Tables:
    found = _tables.get(launch)
    if found is None:
        found = _tables[launch] = _Tables()
    return found


# ---- optimiser steps ----


def sgd_numbers(
    lr: float,
    weight_decay: float = 0.0,
    maximize: bool = False,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
) -> list[float]:
    """A line of the table `hyper` for "sgd" and "sgd_momentum"."""
    sign = -1.0 if maximize else 1.0
    return [lr, weight_decay, sign, momentum, 1.0 - dampening, float(nesterov), 0.0, 0.0]


def adam_numbers(
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float = 0.0, maximize: bool = False
) -> list[float]:
    """A line of the table `hyper` for "adam", "adamw", and both with "_amsgrad"."""
    sign = -1.0 if maximize else 1.0
    return [lr, weight_decay, sign, 1.0 - beta1, 1.0 - beta2, eps, _log(beta1), _log(beta2)]


def _log(beta: float) -> float:
    # log(0) is only multiplied by a step >= 1 and goes through expm1: -expm1(-inf) = 1.
    return math.log(beta) if beta > 0.0 else -math.inf


def counts(launch: Any, size: int, step: int) -> Any:
    """The step numbers of a tensor of `size` elements after `step` steps: int64, one for each block."""
    out = launch.empty((max(-(-size // CHUNK), 1),), np.dtype("int64"))
    out[...] = step
    return out


class MultiTensor:
    """The step of one optimiser for many tensors of one dtype on one device, in one launch.

    name: a key of `STATES`. params: C-contiguous. states: for each array of state (momentum_buffer; or
    exp_avg, exp_avg_sq, max_exp_avg_sq) a list of one per parameter, in the accumulator's dtype. steps:
    `counts` for each. lines: for each parameter its line in the numbers that a call gives (None: line 0).

    >>> step = MultiTensor(launch, "sgd", params, (), steps)  # doctest: +SKIP
    >>> step(grads, [sgd_numbers(lr=0.1)])  # doctest: +SKIP
    """

    def __init__(
        self,
        launch: Any,
        name: str,
        params: Sequence[Any],
        states: Sequence[Sequence[Any]],
        steps: Sequence[Any],
        lines: Sequence[int] | None = None,
    ) -> None:
        if name not in STATES:
            raise KernelError(f"MultiTensor: expected one of {', '.join(STATES)}, got {name!r}")
        self.launch, self.name, self.dtype = launch, name, params[0].dtype
        self._wide = accumulator(self.dtype)
        self._check(params, states, steps)
        self._shapes = [p.shape for p in params]
        tables, sizes = _tables_of(launch), tuple(p.size for p in params)
        self._blocks, *maps = tables.blocks(launch, sizes)
        address = launch.address

        def uploaded(arrays: Sequence[Any]) -> Any:
            return launch.upload(np.array([address(x) for x in arrays], np.uint64))

        line = launch.upload(np.array(lines if lines is not None else [0] * len(params), np.int32))
        state = [uploaded(arrays) for arrays in states]
        state += [None] * (3 - len(state))
        self._params = uploaded(params)
        self._rest = (*state, uploaded(steps), maps[0], line, *maps[1:])
        # What the tables name stays alive as long as they do.
        self._held = (params, states, steps)
        self._sent: list[list[float]] = []
        self._hyper: Any = None

    def _check(self, params: Sequence[Any], states: Sequence[Sequence[Any]], steps: Sequence[Any]) -> None:
        if len(states) != STATES[self.name]:
            raise KernelError(f"{self.name}: expected {STATES[self.name]} arrays of state, got {len(states)}")
        given = [("params", params, self.dtype)]
        given += [(f"states[{i}]", arrays, self._wide) for i, arrays in enumerate(states)]
        for role, arrays, dtype in given:
            if len(arrays) != len(params):
                raise KernelError(f"{self.name}: expected {len(params)} {role}, got {len(arrays)}")
            for i, (x, p) in enumerate(zip(arrays, params, strict=True)):
                if x.dtype != dtype or x.shape != p.shape or not x.flags.c_contiguous:
                    raise KernelError(_misfit(self.name, f"{role}[{i}]", x, dtype, p.shape))
        for i, (n, p) in enumerate(zip(steps, params, strict=True)):
            if n.dtype != np.int64 or n.size != max(-(-p.size // CHUNK), 1):
                raise KernelError(f"{self.name}: steps[{i}] must be what counts(launch, {p.size}, ...) gives")

    def __call__(
        self,
        grads: Sequence[Any],
        numbers: Sequence[list[float]],
        scale: Any = None,
        skip: Any = None,
    ) -> None:
        """Nothing; updates params, states and steps in place.

        grads: in the shapes of params (of another dtype or layout: a copy is read); None leaves a tensor and
        its step number alone. numbers: lines of hyper
        (`sgd_numbers`, `adam_numbers`), sent to the device when they have changed. scale: [1] in the
        accumulator's dtype, multiplies the gradients; skip: int32 [1], not 0: no update.
        """
        dtype, address = self.dtype, self.launch.address
        if len(grads) != len(self._shapes):
            raise KernelError(f"{self.name}: expected {len(self._shapes)} grads, got {len(grads)}")
        key, held = [], []
        for g, shape in zip(grads, self._shapes, strict=True):
            if g is None:
                key.append(0)
                continue
            if g.shape != shape:
                raise KernelError(_misfit(self.name, f"grads[{len(key)}]", g, dtype, shape))
            if g.dtype != dtype or not g.flags.c_contiguous:
                g = g.astype(dtype, "C")
                held.append(g)
            # An empty array may have address 0, which would say that there is no gradient.
            key.append(address(g) or 1)
        table = _tables_of(self.launch).addresses(self.launch, tuple(key))
        self.send(numbers)
        self.launch(
            self.name,
            (self._blocks,),
            (THREADS,),
            (self._params, table, *self._rest, self._hyper, scale, skip, CHUNK),
            dtype,
            tensors=len(key),
            blocks=self._blocks,
            lines=len(numbers),
        )

    def send(self, numbers: Sequence[list[float]]) -> None:
        """Nothing; the numbers of the next launch, also of one that is replayed, are these."""
        if numbers == self._sent:
            return
        lines = self.launch.upload(np.array(numbers, self._wide).reshape(-1))
        if self._hyper is None or self._hyper.size != lines.size:
            self._hyper = lines
        else:
            self._hyper[...] = lines
        self._sent = [list(line) for line in numbers]


def generated_step(
    launch: Any,
    function: Any,
    own: Sequence[tuple[int, ...]],
    grads: Sequence[Any],
    sizes: tuple[int, ...],
    lines: Sequence[tuple[float, ...]],
) -> None:
    """Nothing; launches a compiled kernel of optim/traced.py.

    For each tensor: `own`, the addresses of the parameter and of its state; its gradient, of the parameter's
    dtype and contiguous; its size; its numbers.
    """
    tables, wide = _tables_of(launch), accumulator(grads[0].dtype)
    # Tensors with the same numbers share a line: most steps of most models send one.
    places: dict[tuple[float, ...], int] = {}
    line = tuple(places.setdefault(numbers, len(places)) for numbers in lines)
    blocks, *maps = tables.blocks(launch, sizes)
    columns = (line, *zip(*own, strict=True))
    function(
        (blocks,),
        (THREADS,),
        (
            tables.numbers(launch, "own", tuple(n for column in columns for n in column), np.uint64),
            tables.addresses(launch, tuple(map(launch.address, grads))),
            tables.numbers(launch, "hyper", tuple(n for numbers in places for n in numbers), wide),
            *maps,
            np.int64(len(sizes)),
            np.int64(CHUNK),
        ),
    )


def _misfit(name: str, role: str, x: Any, dtype: Any, shape: tuple[int, ...]) -> str:
    return (
        f"{name}: {role} must be C-contiguous {dtype.name}{list(shape)}, got {x.dtype.name}{list(x.shape)}"
        f" with strides {x.strides}"
    )


# ---- gradients: arrays of one dtype, C-contiguous, not empty ----


def _launched(launch: Any, name: str, arrays: Sequence[Any], args: tuple[Any, ...], **how: Any) -> None:
    tables, address = _tables_of(launch), launch.address
    blocks, *maps = tables.blocks(launch, tuple(x.size for x in arrays))
    grads = tables.addresses(launch, tuple(address(x) for x in arrays))
    launch(
        name,
        (blocks,),
        (THREADS,),
        (grads, *maps, CHUNK, *args),
        arrays[0].dtype,
        tensors=len(arrays),
        blocks=blocks,
        **how,
    )


def gradient_norm(launch: Any, arrays: Sequence[Any], p: float) -> Any:
    """[1] in the accumulator's dtype: the p-norm of all arrays as if they were one vector."""
    dtype, macro = arrays[0].dtype, (NORMS[p],)
    blocks = _tables_of(launch).blocks(launch, tuple(x.size for x in arrays))[0]
    partial, total = (launch.empty((n,), accumulator(dtype)) for n in (blocks, 1))
    _launched(launch, "gradient_norm", arrays, (partial,), defines=macro)
    launch("gradient_norm_finish", (1,), (512,), (partial, total, blocks), dtype, defines=macro)
    return total


def gradient_clip(launch: Any, arrays: Sequence[Any], total: Any, limit: float) -> None:
    """Nothing; multiplies the arrays by min(1, limit / (total + 1e-6)). total: as `gradient_norm` gives."""
    _launched(launch, "gradient_clip", arrays, (total, limit))


def gradient_unscale(launch: Any, arrays: Sequence[Any], scale: Any, found: Any) -> None:
    """Nothing; divides the arrays by `scale`; `found` becomes 1 when a result is not finite.

    scale: [1] in the accumulator's dtype; found: int32 [1].
    """
    _launched(launch, "gradient_unscale", arrays, (scale, found))


def loss_scale(
    launch: Any, scale: Any, good: Any, found: Any, growth: float, backoff: float, interval: int
) -> None:
    """Nothing; `scale` and `good`, the number of good steps in a row, follow a step.

    scale: float32 [1]; good: int32 [1]; found: int32 [1], not 0 after a step that was left out.
    """
    args = (scale, good, found, growth, backoff, interval)
    launch("loss_scale", (1,), (1,), args, _FLOAT32)


_FLOAT32 = np.dtype("float32")


# ---- the same for the arrays of a device, as far as it has kernels for them ----


def _sorted(
    backend: Any, arrays: Sequence[Any], name: str, defines: tuple[str, ...] = (), pairs: bool = True
) -> tuple[list[tuple[Launcher, list[Any]]], list[Any]]:
    """(a launcher and its arrays for each dtype, the arrays that no kernel takes). Complex numbers are pairs
    of reals when `pairs`.
    """
    if not backend.runs_kernels:
        return [], list(arrays)
    groups: dict[Any, tuple[Launcher, list[Any]]] = {}
    rest = []
    for x in arrays:
        dtype = REAL_OF.get(x.dtype, x.dtype)
        found = groups.get(dtype)
        if found is None:
            launch = usable(backend, name, dtype, defines)
            found = (launch, []) if launch is not None else None
        if found is None or not x.flags.c_contiguous or (dtype is not x.dtype and not pairs):
            rest.append(x)
        elif x.size:
            groups[dtype] = found
            found[1].append(x if dtype is x.dtype else x.reshape(-1).view(dtype))
    return list(groups.values()), rest


def norms(backend: Any, arrays: Sequence[Any], p: float) -> tuple[list[Any], list[Any]]:
    """(the norm, 0-d, of the arrays of each dtype that a kernel takes, the arrays that none takes)."""
    if p not in NORMS:
        return [], list(arrays)
    groups, rest = _sorted(backend, arrays, "gradient_norm", (NORMS[p],), pairs=p == 2.0)
    return [gradient_norm(launch, group, p).reshape(()) for launch, group in groups], rest


def clip(backend: Any, arrays: Sequence[Any], total: Any, limit: float) -> list[Any]:
    """The arrays that no kernel takes; the others are clipped. total: an array of one element there."""
    groups, rest = _sorted(backend, arrays, "gradient_clip")
    for launch, group in groups:
        gradient_clip(launch, group, _as(total, accumulator(group[0].dtype)), limit)
    return rest


def unscale(backend: Any, arrays: Sequence[Any], scale: Any, found: Any) -> list[Any]:
    """The arrays that no kernel takes; the others are unscaled. scale: an array of one element there."""
    groups, rest = _sorted(backend, arrays, "gradient_unscale")
    for launch, group in groups:
        gradient_unscale(launch, group, _as(scale, accumulator(group[0].dtype)), found)
    return rest


def next_scale(backend: Any, *args: Any) -> bool:
    """Whether there was a kernel for `loss_scale(launch, *args)`."""
    launch = usable(backend, "loss_scale", _FLOAT32)
    if launch is not None:
        loss_scale(launch, *args)
    return launch is not None


def _as(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else x.astype(dtype)
