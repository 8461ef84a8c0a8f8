"""Three settings of the whole process that importing lucid makes, each with a switch: malloc's, OpenBLAS's
and the garbage collector's.
"""

from __future__ import annotations

import gc
import os
import sys
import threading

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_PYTHONS_DEFAULT = 700


def keep_freed_blocks() -> bool:
    """Whether glibc was told to keep freed blocks instead of returning them to the kernel.

    A pointwise chain on fresh buffers is dominated by page faults: exp(-x*x) forward and backward on 1M
    float32 takes 10.5 ms with the defaults and 1.4 ms with kept blocks; peak memory is the same. The setting
    is for the whole process; LUCID_MALLOC=default leaves it alone.
    """
    if os.environ.get("LUCID_MALLOC") == "default" or not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # No block gets a mapping of its own (which would go back to the kernel when it is freed), and the
    # heap is not trimmed below 2 GB, the most that mallopt takes. M_MMAP_THRESHOLD would not do:
    # glibc refuses values above 32 MB.
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))


def sleep_after_products() -> bool:
    """Whether the threads of OpenBLAS were told to wait 2^18 ticks (0.1 ms) for the next product, awake,
    instead of 2^26 (25 ms).

    Meanwhile they hold the cores that a sweep over blocks wants: the fused backward pass of a chain of 5
    pointwise operations on 4M float32 right after a product of 1024 x 1024 takes 4.4 ms instead of 7.4, on
    two cores. Small products wake the threads more often: `mlp batch 128` of bench_overhead.py takes 5 %
    more. The setting is for the whole process. LUCID_BLAS=default leaves it alone, as do
    OPENBLAS_THREAD_TIMEOUT and a process with several threads, which may be inside a product.
    """
    name, settings = "OPENBLAS_THREAD_TIMEOUT", os.environ
    if settings.get("LUCID_BLAS") == "default" or name in settings or threading.active_count() > 1:
        return False
    import ctypes

    done = False
    settings[name] = "18"
    try:
        for path in _libraries("openblas"):
            library = ctypes.CDLL(path)
            library.openblas_read_env()
            # Its threads start again at the next product, as after a fork.
            library.blas_thread_shutdown_()
            done = True
    except (OSError, AttributeError):  # another build
        pass
    finally:
        del settings[name]
    return done


def _libraries(name: str) -> list[str]:
    """Paths of the loaded shared libraries in whose file name `name` stands (on Linux)."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    except OSError:
        return []
    return sorted(p for p in paths if name in os.path.basename(p) and ".so" in p)


def collect_rarely() -> bool:
    """Whether Python's cyclic collector was told to look for cycles every 50,000 allocations instead of 700.

    A graph has no cycles and is freed by reference counting, but the collector visits its nodes again and
    again while it grows: a chain of 1,000,000 ops takes 3.4 us per node to build with Python's threshold, 2.0
    with this one (bench_overhead: deep). A threshold that the program has set itself is left alone, as is
    everything under LUCID_GC=default.
    """
    if os.environ.get("LUCID_GC") == "default" or gc.get_threshold()[0] != _PYTHONS_DEFAULT:
        return False
    gc.set_threshold(50_000, 20, 20)
    return True
