"""The NVIDIA driver of this machine, and the CuPy package that fits it.

Standard library only, and no other module of the project: ci/train runs this file as a script before
anything is installed. It prints the name of the fitting extra ("cuda13", "cuda12" or an empty line) and
says on stderr why.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import NamedTuple

# CUDA major -> extra of pyproject.toml, newest first. A newer driver runs what was built for an older CUDA.
EXTRAS = {13: "cuda13", 12: "cuda12"}
# First driver branch of each CUDA major (CUDA release notes, table "CUDA Toolkit and Corresponding Driver
# Versions"), for an nvidia-smi that does not print the CUDA version.
FIRST_DRIVER = {13: 580, 12: 525}


class Driver(NamedTuple):
    """What nvidia-smi says: the driver, the newest CUDA major that it runs (0: unknown), the GPUs."""

    version: str
    cuda_major: int
    gpus: tuple[str, ...]


def nvidia_smi(*arguments: str) -> str | None:
    """The output of nvidia-smi, or None where it is missing, fails or hangs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def nvidia_driver() -> Driver | None:
    """The NVIDIA driver of this machine, or None where none works."""
    rows = nvidia_smi("--query-gpu=driver_version,name", "--format=csv,noheader")
    pairs = [row.partition(",") for row in (rows or "").splitlines() if "," in row]
    if not pairs:
        return None
    version = pairs[0][0].strip()
    # "CUDA Version: 13.0"; recent drivers write "CUDA UMD Version".
    printed = re.search(r"CUDA (?:\w+ )?Version\s*:\s*(\d+)", nvidia_smi() or "")
    branch = int(re.match(r"\d*", version).group() or 0)  # type: ignore[union-attr]  # \d* always matches
    known = next((major for major, first in FIRST_DRIVER.items() if branch >= first), 0)
    return Driver(version, int(printed[1]) if printed else known, tuple(name.strip() for _, _, name in pairs))


def cupy_extra(driver: Driver | None) -> tuple[str, str]:
    """(extra, reason): the extra of pyproject.toml that fits the driver, "" where none does."""
    if driver is None:
        return "", "no NVIDIA driver found (nvidia-smi is missing or does not work)"
    about = f"{driver.gpus[0]}, driver {driver.version}, CUDA {driver.cuda_major or 'unknown'}"
    for major, extra in EXTRAS.items():
        if driver.cuda_major >= major:
            return extra, about
    return "", f"{about}: too old, CuPy needs a driver for CUDA {min(EXTRAS)} or newer"


if __name__ == "__main__":
    name, why = cupy_extra(nvidia_driver())
    print(why, file=sys.stderr)
    print(name)
