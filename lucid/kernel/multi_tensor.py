"""One optimiser step over many tensors in one launch.

Tables of addresses in device memory, rebuilt only when an address changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import KernelError
from .launch import accumulator

# Elements per block. 124 M parameters make 7600 blocks; the smallest tensors waste most of theirs.
CHUNK = 16384


class MultiTensor:
    """A step of "sgd", "sgd_momentum", "adam" or "adamw" for all tensors of one dtype on one device.

    Numbers that change from step to step (learning rate, step) lie in device arrays of fixed address, so a
    captured graph can be replayed with new ones.

    >>> step = MultiTensor(launch, "sgd")  # doctest: +SKIP
    >>> step(params, grads, step=1, lr=0.1)  # doctest: +SKIP
    """

    def __init__(self, launch: Any, name: str) -> None:
        if name not in ("sgd", "sgd_momentum", "adam", "adamw"):
            raise KernelError(f"MultiTensor: expected sgd, sgd_momentum, adam or adamw, got {name!r}")
        self.launch, self.name = launch, name
        self._key: Any = None
        self._tables: tuple[Any, ...] = ()
        self._blocks = 0
        self._sent: Any = None
        self._hyper: Any = None
        self._step: Any = None

    def __call__(
        self,
        params: Sequence[Any],
        grads: Sequence[Any],
        first: Sequence[Any] = (),
        second: Sequence[Any] = (),
        *,
        step: int,
        lr: float,
        weight_decay: float = 0.0,
        maximize: bool = False,
        beta1: float = 0.0,
        beta2: float = 1.0,
        eps: float = 0.0,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        scale: Any = None,
        skip: Any = None,
    ) -> None:
        """Nothing; updates params and state in place.

        first: momentum_buffer or exp_avg; second: exp_avg_sq; both in the accumulator's dtype. scale: [1] in
        that dtype, multiplies the gradients; skip: int32 [1],
        not 0: no update.
        """
        if not params:
            return
        dtype = params[0].dtype
        self._check(params, grads, first, second, dtype)
        self._build(params, grads, first, second)
        if self.name.startswith("sgd"):
            hyper = [
                lr,
                weight_decay,
                -1.0 if maximize else 1.0,
                momentum,
                1.0 - dampening,
                float(nesterov),
                0.0,
                0.0,
            ]
        else:
            hyper = [
                lr,
                weight_decay,
                -1.0 if maximize else 1.0,
                1.0 - beta1,
                1.0 - beta2,
                eps,
                _log(beta1),
                _log(beta2),
            ]
        self._send(hyper, step, accumulator(dtype))
        self.launch(
            self.name,
            (self._blocks,),
            (256,),
            (*self._tables, self._hyper, self._step, scale, skip, CHUNK),
            dtype,
            tensors=len(params),
            blocks=self._blocks,
        )

    def _check(
        self,
        params: Sequence[Any],
        grads: Sequence[Any],
        first: Sequence[Any],
        second: Sequence[Any],
        dtype: Any,
    ) -> None:
        wide = accumulator(dtype)
        states = {"sgd": 0, "sgd_momentum": 1}.get(self.name, 2)
        given = [(params, dtype), (grads, dtype), *[(first, wide), (second, wide)][:states]]
        for role, (tensors, expected) in zip(("params", "grads", "first", "second"), given, strict=False):
            if len(tensors) != len(params):
                raise KernelError(f"{self.name}: expected {len(params)} {role}, got {len(tensors)}")
            for i, (x, p) in enumerate(zip(tensors, params, strict=True)):
                if x.dtype != expected or x.shape != p.shape or not x.flags.c_contiguous:
                    raise KernelError(
                        f"{self.name}: {role}[{i}] must be C-contiguous {expected.name}{list(p.shape)}, got "
                        f"{x.dtype.name}{list(x.shape)}"
                        f" with strides {x.strides}"
                    )

    def _build(
        self, params: Sequence[Any], grads: Sequence[Any], first: Sequence[Any], second: Sequence[Any]
    ) -> None:
        address = self.launch.address
        key = tuple(tuple(address(x) for x in tensors) for tensors in (params, grads, first, second))
        if key == self._key:
            return
        sizes = np.array([p.size for p in params], np.int64)
        chunks = -(-sizes // CHUNK)
        tensor = np.repeat(np.arange(len(params), dtype=np.int32), chunks)
        ends = np.cumsum(chunks)
        start = (np.arange(len(tensor), dtype=np.int64) - np.repeat(ends - chunks, chunks)) * CHUNK
        upload = self.launch.upload
        self._tables = (
            *(upload(np.array(addresses, np.uint64)) if addresses else None for addresses in key),
            upload(sizes),
            upload(tensor),
            upload(start),
        )
        self._blocks, self._key = len(tensor), key

    def _send(self, hyper: list[float], step: int, wide: Any) -> None:
        if self._hyper is None or self._hyper.dtype != wide:
            self._hyper, self._step = (
                self.launch.upload(np.array(hyper, wide)),
                self.launch.upload(np.array([step], np.int64)),
            )
        else:
            if hyper != self._sent:
                self._hyper[...] = self.launch.upload(np.array(hyper, wide))
            self._step[...] = step
        self._sent = hyper


def _log(beta: float) -> float:
    # log(0) is only multiplied by a step >= 1 and goes through expm1: -expm1(-inf) = 1.
    return math.log(beta) if beta > 0.0 else -math.inf
