"""Every way in which a CUDA device can be missing, and the cure that the error names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.errors import DeviceError
from lucid.storage import Device, backend_of

ROOT = Path(lucid.__file__).parents[1]


class RuntimeFailure(RuntimeError):
    """As cupy.cuda.runtime.CUDARuntimeError: the number is in `status`."""

    def __init__(self, status):
        super().__init__(f"cudaError {status}")
        self.status = status


@pytest.fixture
def module(cuda):
    from lucid.storage import cupy_backend

    cupy_backend._check_toolkit.cache_clear()
    yield cupy_backend
    cupy_backend._check_toolkit.cache_clear()


def broken(monkeypatch, module, status, driver=13000, runtime=13000):
    def fail():
        raise RuntimeFailure(status)

    monkeypatch.setattr(module.cp.cuda.runtime, "getDeviceCount", fail)
    monkeypatch.setattr(module.cp.cuda.runtime, "driverGetVersion", lambda: driver)
    monkeypatch.setattr(module.cp.cuda.runtime, "runtimeGetVersion", lambda: runtime)


def test_no_driver(module, monkeypatch):
    broken(monkeypatch, module, 35, driver=0)
    with pytest.raises(
        DeviceError, match="device cuda: no NVIDIA driver is installed; install one, or use device 'cpu'"
    ):
        backend_of("cuda")
    assert not lucid.cuda.is_available() and lucid.cuda.device_count() == 0
    lucid.cuda.empty_cache()
    lucid.cuda.manual_seed(0)


def test_a_driver_too_old_for_this_cupy(module, monkeypatch):
    broken(monkeypatch, module, 35, driver=12040, runtime=13020)
    with pytest.raises(
        DeviceError,
        match=r"supports CUDA up to 12\.4, CuPy \S+ here is built for CUDA 13\.2; pip install cupy-cuda12x",
    ):
        backend_of("cuda:3")


def test_no_gpu(module, monkeypatch):
    broken(monkeypatch, module, 100)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(DeviceError, match="finds no GPU; check nvidia-smi"):
        backend_of("cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES='' hides them; unset it"):
        backend_of("cuda")
    monkeypatch.setattr(module.cp.cuda.runtime, "getDeviceCount", lambda: 0)
    with pytest.raises(DeviceError, match="finds no GPU"):
        backend_of("cuda")


def test_another_failure_is_passed_on(module, monkeypatch):
    broken(monkeypatch, module, 999)
    with pytest.raises(
        DeviceError, match=r"finds no device \(RuntimeFailure: cudaError 999\); check nvidia-smi"
    ):
        backend_of("cuda")


def test_no_nvrtc(module, monkeypatch):
    def fail():
        raise RuntimeError("Failed to find libnvrtc.so.13")

    monkeypatch.setattr(module.cp.cuda.nvrtc, "getVersion", fail)
    monkeypatch.setattr(module.Backend, "_all", {})
    with pytest.raises(
        DeviceError, match=r"NVRTC.*cannot be loaded \(RuntimeError: Failed.*'cupy-cuda13x\[ctk\]'"
    ):
        module.open_backend(Device("cuda", 0))
    monkeypatch.setattr(module.cp.cuda.runtime, "runtimeGetVersion", lambda: 12090)
    with pytest.raises(DeviceError, match=r"pip install 'cupy-cuda12x\[ctk\]'"):
        module.open_backend(Device("cuda", 0))


def test_no_headers(module, monkeypatch):
    monkeypatch.setattr(module, "_has_headers", lambda: False)
    monkeypatch.setattr(module.Backend, "_all", {})
    with pytest.raises(DeviceError, match=r"finds no CUDA headers.*pip install 'cupy-cuda\d+x\[ctk\]'"):
        module.open_backend(Device("cuda", 0))


def test_a_cupy_too_old(module, monkeypatch):
    monkeypatch.setattr(module.cp, "__version__", "13.6.0")
    monkeypatch.setattr(module.Backend, "_all", {})
    with pytest.raises(DeviceError, match=r"CuPy 13\.6\.0 is too old; lucid needs 14\.0 or newer: "):
        module.open_backend(Device("cuda", 0))


def test_a_device_may_be_opened_within_the_users_allocator(module, monkeypatch):
    cp = module.cp
    monkeypatch.setattr(module.Backend, "_all", {})
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        x = module.open_backend(Device("cuda", 0)).xp.ones(3)
        assert pool.used_bytes() > 0 and float(x.sum()) == 3
    module.install_allocator()
    assert cp.cuda.get_allocator() is module._allocator


def test_a_gpu_too_old_for_nvrtc(module, monkeypatch):
    real = module.cp.cuda.runtime.getDeviceProperties

    def older(major, minor):
        return lambda index: dict(real(index)) | {"name": b"Tesla P100", "major": major, "minor": minor}

    monkeypatch.setattr(module.cp.cuda.nvrtc, "getSupportedArchs", lambda: (75, 80, 90))
    monkeypatch.setattr(module.Backend, "_all", {})
    monkeypatch.setattr(module.cp.cuda.runtime, "getDeviceProperties", older(6, 0))
    text = (
        r"device cuda:0: Tesla P100 has compute capability 6\.0, but NVRTC 1\d\.\d compiles for 7\.5 and "
        r"newer; install a CuPy for an older CUDA \(pip install 'cupy-cuda1\dx\[ctk\]' in the place of"
    )
    with pytest.raises(DeviceError, match=text):
        module.open_backend(Device("cuda", 0))
    for capability in ((7, 5), (12, 1)):  # the oldest, and one newer than all: the driver translates PTX
        monkeypatch.setattr(module.cp.cuda.runtime, "getDeviceProperties", older(*capability))
        assert module.open_backend(Device("cuda", 0)).index == 0
        module.Backend._all.clear()
    monkeypatch.delattr(module.cp.cuda.nvrtc, "getSupportedArchs")
    monkeypatch.setattr(module.cp.cuda.runtime, "getDeviceProperties", older(3, 5))
    assert module.open_backend(Device("cuda", 0)).index == 0


def test_index_out_of_range(module):
    with pytest.raises(
        DeviceError,
        match=r"device cuda:64: index out of range, there (is 1 CUDA device \(cuda:0\)|are \d+ CUDA devices)",
    ):
        lucid.ones(2, device="cuda:64")
    with pytest.raises(DeviceError, match="index out of range"):
        lucid.ones(2).to(64)


def test_several_devices_are_made_current(module, monkeypatch):
    """With more than one device each raw op runs with its own as the current one."""
    entered = []

    class Entered:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            entered.append(self.index)

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(module.cp.cuda, "Device", Entered)
    monkeypatch.setattr(module.Backend, "several", True)
    backend = module.CupyBackend(Device("cuda", 1))
    out = backend.F.tanh(backend.asarray([0.0, 1.0]))
    assert entered == [1, 1] and out.shape == (2,) and backend.F.backend is backend
    with backend.quiet():
        assert entered == [1, 1, 1]


def in_a_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **environment},
    )


NO_CUPY = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cupy", "cupyx"):
            raise ImportError("No module named 'cupy'")
sys.meta_path.insert(0, Hide())
import lucid
assert not lucid.cuda.is_available() and lucid.cuda.device_count() == 0
try:
    lucid.ones(2, device="cuda")
except lucid.errors.DeviceError as error:
    print(error)
"""


def test_no_cupy():
    done = in_a_process(NO_CUPY)
    assert "CuPy cannot be imported" in done.stdout and "pip install" in done.stdout, done.stderr


def test_simulation_by_environment():
    code = (
        "import sys, lucid; assert 'cupy' not in sys.modules; x = lucid.ones(2, device='cuda');"
        "print(x.sum().item(), lucid.cuda.get_device_name(), lucid.cuda.is_simulated())"
    )
    done = in_a_process(code, LUCID_CUDA="sim")
    assert done.stdout.strip() == "2.0 simulated CUDA device (CPU) True", done.stderr


def test_simulation_after_another_cupy_was_imported():
    code = (
        "import sys, types; sys.modules['cupy'] = types.ModuleType('cupy'); import lucid\n"
        "from lucid.testing import simulator; print(simulator.start())\n"
        "try: lucid.ones(2, device='cuda')\n"
        "except lucid.errors.DeviceError as error: print(error)"
    )
    done = in_a_process(code, LUCID_CUDA="sim")
    assert done.stdout.count("is already imported in this process") == 2, done.stdout + done.stderr


@pytest.mark.parametrize(
    "kind,said,cure",
    (
        ("CUDARuntimeError", "cudaErrorIllegalAddress: an illegal memory access", "CUDA_LAUNCH_BLOCKING=1"),
        ("CUBLASError", "CUBLAS_STATUS_NOT_INITIALIZED", "start it again"),
        ("CompileException", "catastrophic error: cannot open source file cuda_fp16.h", "cupy-cuda13x[ctk]"),
        ("ImportError", 'Failure finding "libcublasLt.so.13"', "cupy-cuda13x[ctk]"),
    ),
)
def test_a_fault_of_the_device_is_no_fault_of_the_arguments(module, cuda, monkeypatch, kind, said, cure):
    def fail(*args, **kwargs):
        raise type(kind, (RuntimeError,), {})(said)

    x = lucid.ones(3, device=cuda)
    monkeypatch.setitem(vars(backend_of(cuda).F), "tanh", fail)
    with pytest.raises(lucid.errors.LucidError) as caught:
        lucid.tanh(x)
    text = str(caught.value)
    assert text.startswith(f"tanh: CUDA reports {said}") and cure in text
    assert "do not fit together" not in text and "x: float32[3] cuda:0" in text


def test_ops_run_by_their_formulas_where_no_kernel_compiles(module, cuda, monkeypatch):
    """Where NVRTC refuses a kernel: a warning with its place, the same results."""
    from lucid.kernel import launch, loader
    from lucid.nn import functional as F
    from lucid.ops import cuda_kernels

    for owner, names in ((launch, ["_launchers"]), (cuda_kernels, ["_launch_on"])):
        monkeypatch.setattr(owner, names[0], {})
    for name in ("_modules", "_functions", "_failed"):
        monkeypatch.setattr(loader, name, {})
    source = loader.source
    monkeypatch.setattr(loader, "source", lambda file: f"{source(file)}\n#error refused here\n")

    def step(device):
        lucid.manual_seed(0)
        x = lucid.randn(6, 8).to(device).requires_grad_()
        table = lucid.randn(5, 8).to(device).requires_grad_()
        rows = F.embedding(lucid.tensor([0, 3, 3, 1, 0, 2], device=device), table)
        h = F.layer_norm(F.gelu(x) + rows, (8,)).softmax(1) + F.max_pool1d(F.silu(x), 3, 1, 1)
        lucid.manual_seed(1)
        loss = F.cross_entropy(F.dropout(h, 0.5), lucid.tensor([0, 7, 1, 2, -100, 3], device=device))
        loss.backward()
        return [t.detach().cpu().numpy() for t in (loss, x.grad, table.grad)]

    with pytest.warns(RuntimeWarning, match=r"does not compile: kernels/\w+\.cu.*Its op runs by its generic"):
        got = step(cuda)
    assert loader._failed and not loader._functions
    for ours, exact in zip(got, step("cpu"), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-6)
