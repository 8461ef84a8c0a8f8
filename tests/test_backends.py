"""Switches under PyTorch's names: what they mean here, and that scripts may set them."""

from __future__ import annotations

import lucid.backends.cudnn as cudnn

import lucid
from lucid import backends


def test_cudnn_switches_start_as_in_pytorch():
    assert backends.cudnn is cudnn
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == (
        True, False, False, True,
    )  # fmt: skip
    assert not cudnn.is_available() and cudnn.version() is None
    try:
        cudnn.benchmark = cudnn.deterministic = True
        assert backends.cudnn.benchmark and backends.cudnn.deterministic
    finally:
        cudnn.benchmark = cudnn.deterministic = False


def test_forbidding_tf32_in_convolutions_forbids_it():
    matmul = lucid.backends.cuda.matmul
    try:
        cudnn.allow_tf32 = True  # a permission that changes nothing by itself
        assert not matmul.allow_tf32
        matmul.allow_tf32 = True
        cudnn.allow_tf32 = False
        assert not matmul.allow_tf32
        matmul.allow_tf32 = True  # and who asks for it gets it in convolutions
        assert cudnn.allow_tf32
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = False, True


def test_flags():
    matmul = backends.cuda.matmul
    try:
        matmul.allow_tf32 = True
        with cudnn.flags(benchmark=True, allow_tf32=False):
            assert cudnn.benchmark and not cudnn.allow_tf32 and not matmul.allow_tf32
        assert not cudnn.benchmark and cudnn.allow_tf32 and matmul.allow_tf32
    finally:
        matmul.allow_tf32 = False


def test_mps():
    import lucid.backends.mps as mps

    assert not mps.is_available() and not backends.mps.is_built()
    device = "cuda" if lucid.cuda.is_available() else "mps" if backends.mps.is_available() else "cpu"
    assert device != "mps"
