"""Which device a command takes, and why."""

from __future__ import annotations

from importlib import metadata

import lucid
from lucid._cli.driver import Driver, cupy_extra, nvidia_driver
from lucid._cli.usage import UsageError

CUPY_PACKAGES = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")


def cupy_version() -> str | None:
    """Name and version of the installed CuPy package ("cupy-cuda13x 14.2.0"), or None. Does not import it."""
    for name in CUPY_PACKAGES:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def why_no_cuda(driver: Driver | None) -> str:
    """What stands between this machine and a CUDA device, with the command that helps where one does."""
    extra, about = cupy_extra(driver)
    installed = cupy_version()
    if installed and not extra:
        return f"{installed} is installed, but {about}"
    if installed:
        return (
            f"{installed} finds no device on {about}; `python -c 'import cupy; cupy.show_config()'` says more"
        )
    if extra:
        return f"CuPy is not installed ({about}); {install_command(extra)}"
    return about


def install_command(extra: str) -> str:
    """The pip command that brings what an extra ("cuda13", "cuda12") of pyproject.toml stands for."""
    return f"pip install 'cupy-{extra}x[ctk]'"


def choose_device(asked: str) -> tuple[str, str]:
    """(device, why) for `--device auto|cpu|cuda`. Raises UsageError where "cuda" cannot be had."""
    if asked == "cpu":
        return "cpu", "asked for"
    if lucid.cuda.is_available():
        return "cuda", lucid.cuda.get_device_name(0)
    reason = why_no_cuda(nvidia_driver())
    if asked == "cuda":
        raise UsageError(f"--device cuda: no CUDA device here: {reason}")
    return "cpu", f"no CUDA device: {reason}"
