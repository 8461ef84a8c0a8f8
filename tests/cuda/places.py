"""Two CUDA devices for a test, and where tensors really lie."""

from __future__ import annotations

import pytest

import lucid

ONE, TWO = "cuda:0", "cuda:1"


@pytest.fixture(autouse=True)
def both_devices(cuda):
    """Two devices, the first of which is current."""
    from lucid.testing import simulator

    if simulator.is_on():
        with simulator.devices(2):
            yield
        return
    if lucid.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    yield
    lucid.cuda.set_device(0)


def place(x):
    """The index of the device on which an array really lies."""
    return x.array.data.device_id if x.array.size else x.device.index


def placed(*tensors):
    """The places of tensors, each of which says the same itself."""
    assert [place(t) for t in tensors] == [t.device.index for t in tensors]
    return [t.device.index for t in tensors]
