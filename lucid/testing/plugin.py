"""The pytest plugin: a `device` fixture, and the `--device` option that says on which devices tests run.

    pytest                          cpu, and cuda where there is one (else those tests are skipped)
    pytest --device cpu             one device
    pytest --device cpu,cuda-sim    cpu and the simulated CUDA device
    pytest --device cuda-sim:1      the second of two simulated devices, while the first is the current one

A test that takes `device` runs once per device, with the device in its id. A simulated run is
called cuda-sim, never cuda.
"""

from __future__ import annotations

from typing import Any

import pytest

NAMES = ("cpu", "cuda", "cuda-sim")


def pytest_addoption(parser: Any) -> None:
    """Nothing; adds `--device`."""
    parser.addoption(
        "--device",
        default="cpu,cuda",
        help="devices for tests that take the `device` fixture: a comma list of "
        + ", ".join(NAMES)
        + ", each of the CUDA ones with or without an index (cuda:1)",
    )


def pytest_configure(config: Any) -> None:
    """Nothing; checks `--device`, and starts the simulator before any test imports CuPy."""
    names = config.getoption("--device").split(",")
    kinds = {_split(name)[0] for name in names}
    for name in names:
        if _split(name)[0] not in NAMES:
            raise pytest.UsageError(f"--device: expected a comma list of {', '.join(NAMES)}, got {name!r}")
    if {"cuda", "cuda-sim"} <= kinds:
        raise pytest.UsageError("--device: cuda and cuda-sim cannot run in one process; choose one")
    most = max(_split(name)[1] for name in names)
    config.stash[_REASON] = _start_simulator(most + 1) if "cuda-sim" in kinds else None


def _split(name: str) -> tuple[str, int]:
    """(name of the device, index) of "cuda-sim:1"; 0 without an index."""
    kind, _, index = name.partition(":")
    return (kind, int(index)) if index.isdigit() and kind != "cpu" else (name, 0)


_REASON = pytest.StashKey[Any]()


def _start_simulator(devices: int) -> str | None:
    """None when at least so many simulated devices are there, else the reason why not."""
    try:
        from . import simulator
    except ImportError as error:
        return f"the CUDA simulator cannot be imported: {error}"
    return simulator.start(devices if devices > 1 else None)


def why_not(name: str, config: Any) -> str | None:
    """Why tests cannot run on a device here, or None."""
    kind, _ = _split(name)
    if kind == "cpu":
        return None
    if kind == "cuda-sim":
        return config.stash[_REASON]
    from ..errors import DeviceError
    from ..storage.backend import backend_of

    try:
        backend_of(name)
    except DeviceError as error:
        return str(error)
    return None


def pytest_generate_tests(metafunc: Any) -> None:
    """Nothing; runs a test once per device when it takes `device`."""
    if "device" in metafunc.fixturenames and "device" not in {
        m.args[0] for m in metafunc.definition.iter_markers("parametrize") if m.args
    }:
        params = []
        for name in metafunc.config.getoption("--device").split(","):
            reason = why_not(name, metafunc.config)
            marks = [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
            params.append(pytest.param(name.replace("cuda-sim", "cuda"), id=name, marks=marks))
        metafunc.parametrize("device", params)
