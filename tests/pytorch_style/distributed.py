"""Data-parallel training under a launcher, with a profiler and a shared loss, in the style of nanoGPT and
pytorch/examples.
"""

# ruff: noqa: B007

import os
import tempfile

import lucid.backends.cudnn as cudnn
import numpy as np

import lucid as torch
import lucid.distributed as dist
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
from lucid.distributed import destroy_process_group, init_process_group
from lucid.nn.parallel import DistributedDataParallel as DDP
from lucid.optim.lr_scheduler import StepLR
from lucid.utils.data import DataLoader, TensorDataset
from lucid.utils.data.distributed import DistributedSampler

device = os.environ.get("DEVICE", "cpu")
cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = True
losses = []

ddp = int(os.environ.get("RANK", -1)) != -1
assert ddp and dist.is_available()
init_process_group(backend="gloo")
ddp_rank = int(os.environ["RANK"])
ddp_local_rank = int(os.environ["LOCAL_RANK"])
ddp_world_size = int(os.environ["WORLD_SIZE"])
master_process = ddp_rank == 0
assert dist.get_rank() == ddp_rank and dist.get_world_size() == ddp_world_size
torch.manual_seed(1337 + ddp_rank)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 4 * 4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


generator = np.random.default_rng(0)
labels = generator.integers(0, 3, 96)
images = generator.normal(size=(96, 1, 8, 8))
images[np.arange(96), 0, labels, labels] += 4
dataset = TensorDataset(torch.tensor(images.astype(np.float32)), torch.tensor(labels))
sampler = DistributedSampler(dataset)
train_loader = DataLoader(dataset, batch_size=12, sampler=sampler)

model = DDP(Net().to(device))
raw_model = model.module
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
folder = tempfile.mkdtemp()


def train(epoch, prof):
    model.train()
    sampler.set_epoch(epoch)
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        # Two halves: the gradient is averaged over the processes after the second.
        for micro_step, (x, y) in enumerate(zip(data.chunk(2), target.chunk(2))):  # noqa: B905
            model.require_backward_grad_sync = micro_step == 1
            loss = F.nll_loss(model(x), y) / 2
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = loss.detach().clone() * 2
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        losses.append(total.item() / ddp_world_size)
        prof.step()


with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=torch.profiler.tensorboard_trace_handler(folder),
    record_shapes=True,
) as prof:
    for epoch in range(4):
        with torch.profiler.record_function("epoch"):
            train(epoch, prof)
        scheduler.step()
assert [name.endswith(".pt.trace.json") for name in os.listdir(folder)] == [True]
assert "conv" in prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=-1)

# All processes have the same weights; rank 0 saves them.
weights = [torch.zeros_like(raw_model.fc.weight) for _ in range(ddp_world_size)]
dist.all_gather(weights, raw_model.fc.weight.detach())
assert all(torch.equal(w, weights[0]) for w in weights)
found = [None] * ddp_world_size
dist.all_gather_object(found, {"rank": ddp_rank, "loss": losses[-1]})
assert [f["rank"] for f in found] == list(range(ddp_world_size))
if master_process:
    path = os.path.join(folder, "ckpt.pt")
    torch.save({"model": raw_model.state_dict(), "epoch": 4}, path)
    assert torch.load(path, map_location=device)["epoch"] == 4
dist.barrier()
destroy_process_group()
