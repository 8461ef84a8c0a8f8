"""NCCL through CuPy: collectives between CUDA devices, one per process.

Not run on a GPU yet: tested against a stand-in that checks names and arguments.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import DistributedError


def available(xp: Any) -> bool:
    """Whether CuPy has NCCL here."""
    nccl = getattr(xp.cuda, "nccl", None)
    return nccl is not None and bool(getattr(nccl, "available", True))


def unique_id(xp: Any) -> bytes:
    """What the first rank of a group gives to the others."""
    return bytes(c % 256 for c in xp.cuda.nccl.get_unique_id())


class Nccl:
    """Collectives of NCCL on arrays of one device, queued on the current stream.

    Reductions: "sum", "avg", "product", "min", "max". Made by all ranks at once: it returns when all have
    called it with the id of the first.
    """

    _OPS: ClassVar[dict[str, str]] = {
        "sum": "SUM", "avg": "SUM", "product": "PROD", "min": "MIN", "max": "MAX",
    }  # fmt: skip
    _DTYPES: ClassVar[dict[str, str]] = {"bool": "UINT8", "complex64": "FLOAT32", "complex128": "FLOAT64"}

    def __init__(self, backend: Any, size: int, identity: bytes, rank: int) -> None:
        self.backend, self.size, self.xp = backend, size, backend.xp
        with backend.guard():
            signed = tuple(b - 256 if b > 127 else b for b in identity)
            self.comm = self.xp.cuda.nccl.NcclCommunicator(size, signed, rank)

    def _kind(self, array: Any) -> int:
        name = array.dtype.name
        kind = getattr(self.xp.cuda.nccl, f"NCCL_{self._DTYPES.get(name, name.upper())}", None)
        if kind is None:
            raise DistributedError(f"nccl: arrays of {name} cannot be sent; convert them first")
        return int(kind)

    def _op(self, op: str, array: Any) -> int:
        if op not in self._OPS or array.dtype.kind == "c" and op == "product":
            raise DistributedError(f"nccl: there is no reduction {op!r} for {array.dtype.name}")
        return int(getattr(self.xp.cuda.nccl, f"NCCL_{self._OPS[op]}"))

    def _run(self, name: str, out: Any, array: Any, *arguments: Any, count: int | None = None) -> None:
        # `out` and `array` may be the same. NCCL wants contiguous memory.
        with self.backend.guard():
            source = self.xp.ascontiguousarray(array)
            target = out if out.flags.c_contiguous else self.xp.empty_like(out, order="C")
            parts = 2 if array.dtype.kind == "c" else 1
            n = (source.size if count is None else count) * parts
            stream = self.xp.cuda.get_current_stream().ptr
            call = getattr(self.comm, name)
            call(source.data.ptr, target.data.ptr, n, self._kind(array), *arguments, stream)
            if target is not out:
                out[...] = target

    def all_reduce(self, array: Any, op: str) -> None:
        """Nothing; `array` holds the reduction over all devices."""
        self._run("allReduce", array, array, self._op(op, array))
        if op == "avg":
            array /= self.size

    def broadcast(self, array: Any, root: int) -> None:
        """Nothing; `array` holds what it holds on `root`."""
        self._run("broadcast", array, array, root)

    def all_gather(self, out: Any, array: Any) -> None:
        """Nothing; `out` holds all devices' arrays, one after the other."""
        self._run("allGather", out, array)

    def reduce_scatter(self, out: Any, array: Any, op: str) -> None:
        """Nothing; `out` holds this device's part of the reduction of all arrays."""
        self._run("reduceScatter", out, array, self._op(op, array), count=out.size)
        if op == "avg":
            out /= self.size

    def close(self) -> None:
        """Nothing; the group of devices is left."""
        self.comm.destroy()
