"""Memory figures of CUDA devices. All in bytes.

Arrays come from CuPy's pool, which keeps freed blocks: `allocated` is what arrays hold, `reserved` what the
pool has from the driver.
"""

from __future__ import annotations

from typing import Any

from ._device import backend, is_available


def memory_allocated(device: Any = None) -> int:
    """Bytes that arrays hold now (each rounded up to 512), CuPy arrays of other code included.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     before = lucid.cuda.memory_allocated()
    ...     x = lucid.zeros(1 << 20, device="cuda")
    ...     grown = lucid.cuda.memory_allocated() - before
    """
    return int(backend(device).memory()["allocated"])


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays held at once since the last `reset_peak_memory_stats`.

    Exact to 1/64 (it is at least 98.4 % of the true peak).

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.reset_peak_memory_stats()
    ...     peak = lucid.cuda.max_memory_allocated()
    """
    return int(backend(device).memory()["peak"])


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing; `max_memory_allocated` starts at what is allocated now.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.reset_peak_memory_stats()
    """
    backend(device).reset_peak()


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has from the driver: in arrays and in its cache.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     cached = lucid.cuda.memory_reserved() - lucid.cuda.memory_allocated()
    """
    return int(backend(device).memory()["reserved"])


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the device, as the driver sees it: other processes included.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     free, total = lucid.cuda.mem_get_info()
    """
    found = backend(device).memory()
    return found["free"], found["total"]


def memory_stats(device: Any = None) -> dict[str, int]:
    """Memory figures in bytes: allocated, peak, reserved, limit (0: none), free, total.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     peak = lucid.cuda.memory_stats()["peak"]
    """
    return dict(backend(device).memory())


def empty_cache() -> None:
    """Nothing; cached blocks go back to the driver, for other processes.

    It does not make more room for this one.

    >>> import lucid
    >>> lucid.cuda.empty_cache()
    """
    if is_available():
        backend().release()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Nothing; the pool takes at most this share of the device's memory; 0 for no limit.

    Beyond it an array raises OutOfMemoryError.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.set_per_process_memory_fraction(0.0)
    """
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"set_per_process_memory_fraction: expected a fraction in [0, 1], got {fraction}")
    chosen = backend(device)
    chosen.set_limit(fraction)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of the memory figures, and (unless abbreviated) the largest kinds of tensors.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     table = lucid.cuda.memory_summary()
    """
    chosen = backend(device)
    rows = [f"memory of {chosen.device} ({chosen.properties()['name']})"]
    rows += [f"  {name:<10}{chosen.human(n):>12}{n:>16} B" for name, n in chosen.memory().items()]
    if not abbreviated:
        rows += ["  largest tensors:"] + [f"    {line}" for line in chosen.held(8) or ["none"]]
    return "\n".join(rows)
