"""Scripts in the style of public PyTorch repositories run with `import lucid as torch`, and with PyTorch.

Each script in pytorch_style/ takes a few training steps and leaves `losses`. It runs as it stands and again
with PyTorch imported, so a script that only one of them can run is a difference between them. Names that such
scripts use are listed below.
"""

import importlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "pytorch_style"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


def execute(script, lib):
    path = FOLDER / f"{script}.py"
    source = path.read_text()
    if lib != "lucid":
        source = re.sub(r"^(import|from) lucid\b", rf"\1 {lib}", source, flags=re.MULTILINE)
        assert "lucid" not in source
    scope = {"__name__": "script"}
    exec(compile(source, str(path), "exec"), scope)
    losses = np.array(scope["losses"])
    assert np.isfinite(losses).all() and losses[-3:].mean() < losses[:3].mean()


@pytest.fixture(autouse=True)
def a_job_of_one(monkeypatch):
    """What a launcher says to a single process."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    job = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in job.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs_with_lucid(script, device, monkeypatch):
    monkeypatch.setenv("DEVICE", device)
    execute(script, "lucid")


def test_runs_in_several_processes(device):
    """The same script under the launcher: two processes, each with half of the data."""
    command = [sys.executable, "-m", "lucid.distributed.run", "--nproc-per-node", "2"]
    root = str(FOLDER.parents[1])
    done = subprocess.run([*command, str(FOLDER / "distributed.py")], capture_output=True, text=True,
                          timeout=240, env={**os.environ, "DEVICE": device, "PYTHONPATH": root})
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:.*")  # PyTorch's own
@pytest.mark.parametrize("script", SCRIPTS)
def test_is_a_pytorch_script(script):
    pytest.importorskip("torch")
    execute(script, "torch")


# Names that the scripts of nanoGPT, minGPT, makemore, pytorch-cifar, pytorch/examples, vit-pytorch and
# cleanrl use, without sparse, nested, quantised and ONNX ones and without switches between vendors' attention
# kernels.
NAMES = """
    __version__ accelerator.current_accelerator accelerator.device_count accelerator.is_available
    accelerator.set_device_index allclose amp.autocast arange argmax as_tensor
    backends.cuda.matmul.allow_tf32 backends.cudnn.allow_tf32 backends.cudnn.benchmark
    backends.cudnn.deterministic backends.mps.is_available bfloat16 bool bucketize cat clamp clip compile
    cos cuda.amp.GradScaler cuda.device_count cuda.get_device_properties cuda.is_available
    cuda.is_bf16_supported cuda.manual_seed cuda.manual_seed_all cuda.set_device cuda.synchronize device
    diag distributed.all_reduce distributed.destroy_process_group distributed.init_process_group
    distributed.ReduceOp.SUM distributions.Categorical distributions.categorical.Categorical
    distributions.kl_divergence distributions.Normal distributions.normal.Normal double einsum empty equal
    erfinv exp eye fft.fft2 finfo flatten float float16 float32 float64 FloatTensor fmod from_numpy full
    gather Generator inference_mode int32 int64 is_tensor linspace load log log1p long LongTensor
    manual_seed matmul max mean meshgrid min mm multinomial multiprocessing.Process
    multiprocessing.set_start_method multiprocessing.spawn nn.AdaptiveAvgPool2d nn.AvgPool2d
    nn.BatchNorm1d nn.BatchNorm2d nn.BCELoss nn.Conv1d nn.Conv2d nn.Conv3d nn.ConvTranspose2d
    nn.CrossEntropyLoss nn.DataParallel nn.Dropout nn.Dropout2d nn.Embedding nn.Flatten
    nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.binary_cross_entropy
    nn.functional.conv2d nn.functional.cross_entropy nn.functional.dropout nn.functional.elu
    nn.functional.gelu nn.functional.interpolate nn.functional.kl_div nn.functional.l1_loss
    nn.functional.layer_norm nn.functional.linear nn.functional.log_softmax nn.functional.max_pool2d
    nn.functional.mse_loss nn.functional.nll_loss nn.functional.normalize nn.functional.pad
    nn.functional.relu nn.functional.scaled_dot_product_attention nn.functional.sigmoid nn.functional.silu
    nn.functional.smooth_l1_loss nn.functional.softmax nn.functional.softplus nn.functional.tanh nn.GELU
    nn.Hardswish nn.Identity nn.init.calculate_gain nn.init.constant nn.init.constant_
    nn.init.kaiming_normal nn.init.kaiming_normal_ nn.init.normal nn.init.normal_ nn.init.ones_
    nn.init.orthogonal_ nn.init.trunc_normal_ nn.init.uniform_ nn.init.xavier_normal_
    nn.init.xavier_uniform_ nn.init.zeros_ nn.InstanceNorm2d nn.LayerNorm nn.LeakyReLU nn.Linear nn.LSTM
    nn.LSTMCell nn.MaxPool2d nn.MaxPool3d nn.Module nn.ModuleDict nn.ModuleList
    nn.modules.activation.MultiheadAttention nn.modules.activation.ReLU nn.modules.container.ModuleList
    nn.modules.conv.Conv2d nn.modules.dropout.Dropout nn.modules.linear.Linear
    nn.modules.normalization.LayerNorm nn.modules.pixelshuffle.PixelShuffle nn.modules.rnn.GRU
    nn.modules.rnn.LSTM nn.modules.rnn.RNN nn.modules.sparse.Embedding
    nn.modules.transformer.TransformerEncoder nn.modules.transformer.TransformerEncoderLayer nn.MSELoss
    nn.NLLLoss nn.parallel.data_parallel nn.parallel.DistributedDataParallel nn.Parameter nn.ParameterList
    nn.PixelShuffle nn.ReflectionPad2d nn.ReLU nn.RNN nn.Sequential nn.Sigmoid nn.SiLU nn.Softmax nn.Tanh
    nn.Transformer nn.Unflatten nn.Unfold nn.utils.clip_grad_norm_
    nn.utils.parametrize.register_parametrization nn.utils.rnn.pad_sequence no_grad normal ones ones_like
    optim.Adadelta optim.Adam optim.AdamW optim.LBFGS optim.lr_scheduler.CosineAnnealingLR
    optim.lr_scheduler.StepLR optim.RAdam optim.SGD pi pow prod profiler.profile
    profiler.ProfilerActivity.CPU profiler.ProfilerActivity.CUDA profiler.schedule
    profiler.tensorboard_trace_handler rand randint randn randn_like randperm repeat_interleave roll save
    serialization.safe_globals set_default_device sigmoid sin softmax sqrt stack sum tanh Tensor tensor
    topk trapezoid tril triu uint8 unbind unique utils._pytree.tree_flatten utils._pytree.tree_unflatten
    utils.data.DataLoader utils.data.dataloader.DataLoader utils.data.Dataset
    utils.data.distributed.DistributedSampler utils.data.RandomSampler utils.data.Subset
    utils.tensorboard.SummaryWriter var view_as_real where zeros zeros_like
""".split()  # noqa: SIM905


def find(name):
    """The object of a dotted name below lucid, importing modules on the way."""
    found, path = importlib.import_module("lucid"), "lucid"
    for part in name.split("."):
        path += f".{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(path) if path not in sys.modules else sys.modules[path]
    return found


@pytest.mark.parametrize("name", sorted(NAMES))
def test_name_is_there(name):
    find(name)
