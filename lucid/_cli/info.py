"""`lucid info`: what is installed and what it finds, for a look or for a bug report."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np

import lucid
from lucid._cli.devices import cupy_version, install_command, why_no_cuda
from lucid._cli.driver import EXTRAS, nvidia_driver
from lucid.errors import KernelError
from lucid.kernel.loader import source_folder

LIBRARIES = ("numpy", "scipy", "ml_dtypes", "safetensors", "rich", "matplotlib")
# Each limits the threads of a BLAS that NumPy may be built with; the library's own name goes first.
THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing; the parser knows the arguments of `lucid info` afterwards."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """0, after the facts were printed."""
    facts = collect()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    rows = list(flatten(facts))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0


def collect() -> dict[str, Any]:
    """All facts as nested dictionaries of strings, numbers and lists."""
    return {
        "lucid": lucid.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: version(name) for name in LIBRARIES},
        "blas": blas(),
        "cuda": cuda(),
        "kernels": kernels_directory(),
    }


def version(package: str) -> str:
    """The version of an installed package, or "not installed"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def blas() -> dict[str, Any]:
    """The BLAS library of NumPy and the threads that it may use."""
    config: Any = np.show_config(mode="dicts")  # type: ignore[call-arg,func-returns-value,unused-ignore]
    library = config["Build Dependencies"]["blas"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = next((f"{name}={os.environ[name]}" for name in THREAD_LIMITS if os.environ.get(name)), None)
    return {
        "library": f"{library.get('name', 'unknown')} {library.get('version', '')}".strip(),
        "cores": cores,
        "threads": limit or f"one per core; set {THREAD_LIMITS[-1]} to change that",
    }


def cuda() -> dict[str, Any]:
    """CuPy, the driver, the devices, and what is missing where there is none."""
    driver = nvidia_driver()
    available = lucid.cuda.is_available()
    facts: dict[str, Any] = {
        "cupy": cupy_version() or "not installed",
        "driver": f"{driver.version} (CUDA {driver.cuda_major or 'unknown'})" if driver else "not found",
        "simulated": lucid.cuda.is_simulated(),
        "devices": device_names() if available else [],
    }
    if not available:
        facts["missing"] = why_no_cuda(driver)
    if driver is None and not cupy_version():
        commands = [f"for CUDA {major}: {install_command(extra)}" for major, extra in EXTRAS.items()]
        facts["with a driver"] = ", ".join(commands)
    return facts


def device_names() -> list[str]:
    """The names of the CUDA devices that lucid can use, simulated ones included."""
    return [f"cuda:{index} {lucid.cuda.get_device_name(index)}" for index in range(lucid.cuda.device_count())]


def kernels_directory() -> str:
    """Where the CUDA sources lie: inside the installed package, or in the checkout."""
    try:
        return str(source_folder())
    except KernelError as error:
        return str(error)


def flatten(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, text) for each fact, the names of inner dictionaries joined by a blank."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name} ")
        elif isinstance(value, list):
            yield prefix + name, ", ".join(value) or "none"
        else:
            yield prefix + name, str(value)
