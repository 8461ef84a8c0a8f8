"""DistributedDataParallel: the step of the whole batch, the same bits on all ranks, and what is refused."""

from __future__ import annotations

import re

import pytest

TRAIN = """
    device = os.environ.get("DEVICE", "cpu")
    from lucid.nn.parallel import DistributedDataParallel as DDP

    def net(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3))

    def train(model, x, y, steps=4):
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    g = np.random.default_rng(0)
    x = torch.tensor(g.normal(size=(12, 6)).astype("float32"), device=device)
    y = torch.tensor(g.integers(0, 3, 12), device=device)
    each = 12 // WORLD
    mine = slice(RANK * each, (RANK + 1) * each)

    whole = net(0).to(device)
    train(whole, x, y)
    # Other weights at first on each rank: those of rank 0 count. Buckets so small that there are many.
    model = DDP(net(RANK).to(device), bucket_cap_mb=0.002)
    assert len(model._buckets) > 1 and list(model.state_dict())[0] == "module.0.weight"
    train(model, x[mine], y[mine])
    for (name, p), q in zip(model.module.named_parameters(), whole.parameters()):
        np.testing.assert_allclose(p.detach().cpu().numpy(), q.detach().cpu().numpy(), rtol=1e-4, atol=1e-6,
                                   err_msg=name)
    bits = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    import hashlib
    found = []
    dist.all_gather_object(found, hashlib.sha256(bits).hexdigest())
    assert len(set(found)) == 1, found

    # Gradients of two backward passes without sync, averaged with the third; against the whole batch.
    model, whole = DDP(net(0).to(device)), net(0).to(device)
    with model.no_sync():
        for _ in range(2):
            model(x[mine]).square().mean().backward()
    a = np.array(model.module[0].weight.grad.cpu().numpy())
    found = []
    dist.all_gather_object(found, hashlib.sha256(a.tobytes()).hexdigest())
    assert len(set(found)) == WORLD  # each its own
    model(x[mine]).square().mean().backward()
    (3 * whole(x).square().mean()).backward()
    for p, q in zip(model.parameters(), whole.parameters()):
        np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.cpu().numpy(), rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()
    print("trained", flush=True)
    """


@pytest.mark.parametrize("nproc", [2, 3])
def test_training_is_that_of_the_whole_batch(launch, nproc):
    assert launch(TRAIN, nproc).stdout.count("trained") == nproc


def test_training_on_a_device(launch, device):
    if device == "cpu":
        pytest.skip("the CPU is tested with two and three processes")
    assert launch(TRAIN, 2, env={"DEVICE": device}).stdout.count("trained") == 2


UNUSED = """
    from lucid.nn.parallel import DistributedDataParallel as DDP

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x, which):
            self.seen += RANK + 1
            return getattr(self, which)(x)

    torch.manual_seed(RANK)
    model = DDP(Net(), find_unused_parameters=True)
    x = torch.ones(3, 2)
    model(x, "ab"[RANK]).sum().backward()
    net = model.module
    # Each is used by one rank of two: the average is half of its gradient, on both. c by none.
    for layer in (net.a, net.b):
        assert layer.weight.grad.tolist() == [[1.5, 1.5], [1.5, 1.5]]
        assert layer.bias.grad.tolist() == [1.5, 1.5]
    assert net.c.weight.grad is None
    # The buffers are those of rank 0 before each forward.
    assert net.seen.item() == RANK + 1
    model(x, "a").sum()
    assert net.seen.item() == 1 + RANK + 1
    other = [t.detach().clone() for t in net.state_dict().values()]
    for t in other[1:]:
        mine = t.clone()
        dist.broadcast(t, 0)
        assert t.tolist() == mine.tolist()

    strict = DDP(Net())
    try:
        strict(x, "a").sum().backward()
    except DistributedError as error:
        os.write(1, f"{error}\\n".encode())
    # A failed pass leaves nothing behind.
    strict = DDP(Net())
    h = strict.module.a.weight.register_post_accumulate_grad_hook(lambda p: 1 / 0)
    for which in "abc":
        try:
            (strict(x, "a") + strict(x, "b") + strict(x, "c")).sum().backward()
        except ZeroDivisionError:
            os.write(1, b"failed pass\\n")
    h.remove()
    strict.zero_grad()
    (strict(x, "a") + strict(x, "b") + strict(x, "c")).sum().backward()
    assert strict.module.a.weight.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    try:
        (strict(x, "a") * strict(x, "b") * strict(x, "c")).sum().backward(create_graph=True)
    except torch.errors.GradError as error:
        os.write(1, f"{error}\\n".encode())
    dist.destroy_process_group()
    """


def test_unused_parameters(launch):
    out = launch(UNUSED).stdout
    names = "b.weight, b.bias, c.weight, c.bias"
    assert out.count(f"4 parameters got no gradient in this backward pass: {names}. "
                     "Use all of them in the loss, or pass find_unused_parameters=True") == 2
    assert out.count("failed pass") == 6 and out.count("create_graph=True is not supported") == 2


def test_modules_that_differ(launch):
    done = launch("""
        from lucid.nn.parallel import DistributedDataParallel as DDP
        for sizes in ((2, 3 + RANK), (2, 3)):
            try:
                DDP(nn.Linear(*sizes, bias=sizes != (2, 3) or RANK == 0))
            except DistributedError as error:
                os.write(1, f"{error}\\n".encode())
        for module, error in ((nn.ReLU(), "no parameter"), (nn.LazyLinear(2), "lazy parameter")):
            try:
                DDP(module)
            except RuntimeError as e:
                assert error in str(e)
        try:
            DDP(nn.Linear(1, 1), device_ids=[0, 1])
        except DistributedError as e:
            assert "DataParallel takes several" in str(e)
        """)
    text = "rank 0 has ['weight', [3, 2], 'float32'], rank 1 has ['weight', [4, 2], 'float32']"
    assert done.stdout.count(text) == 2
    assert done.stdout.count("rank 0 has 2 tensors, rank 1 has 1 tensors") == 2


def test_a_rank_that_dies_in_backward(launch):
    done = launch("""
        import signal
        from lucid.nn.parallel import DistributedDataParallel as DDP
        model = DDP(nn.Linear(400, 400))
        x = torch.ones(2, 400)
        model(x).sum().backward()
        if RANK == 1:
            model.module.weight.register_hook(lambda g: os.kill(os.getpid(), signal.SIGKILL))
        try:
            model(x).sum().backward()
        except DistributedError as error:
            os.write(1, f"{error}\\n".encode())
        """, ok=False)
    what = r"rank 0 in all_reduce of float32\[\d+\] \(avg\), call \d+ of group 'world'"
    assert re.search(f"{what}: rank 1 (is gone|closed)", done.stdout)


def test_sync_batch_norm(launch):
    """Outputs, gradients and running statistics are those of the whole batch, parts of different sizes."""
    launch("""
        torch.manual_seed(0)
        whole = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).double()
        part = nn.SyncBatchNorm.convert_sync_batchnorm(
            nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).double())
        part.load_state_dict(whole.state_dict())
        assert type(part[1]) is nn.SyncBatchNorm and isinstance(part[1].weight, nn.Parameter)
        g = np.random.default_rng(0)
        x, target = (torch.tensor(g.normal(size=s)) for s in ((5, 2, 4, 4), (5, 3, 4, 4)))
        mine = slice(0, 3) if RANK == 0 else slice(3, 5)
        for _ in range(2):
            y, z = whole(x), part(x[mine])
            np.testing.assert_allclose(z.detach().numpy(), y[mine].detach().numpy(), rtol=1e-10, atol=1e-12)
            (y * target).square().sum().backward()
            (z * target[mine]).square().sum().backward()
        for (name, p), q in zip(part.named_parameters(), whole.parameters()):
            dist.all_reduce(p.grad)
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=name)
        for (name, b), c in zip(part.named_buffers(), whole.buffers()):
            np.testing.assert_allclose(b.numpy(), c.numpy(), rtol=1e-10, err_msg=name)
        part.eval(), whole.eval()
        np.testing.assert_allclose(part(x).detach().numpy(), whole(x).detach().numpy(), rtol=1e-10)
        """)


def test_one_process_without_a_group():
    from lucid import nn
    from lucid.errors import DistributedError

    with pytest.raises(DistributedError, match="there is no process group"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1))


def test_the_sampler_asks_the_group(launch):
    launch("""
        from lucid.utils.data.distributed import DistributedSampler
        for name in ("RANK", "WORLD_SIZE"):
            del os.environ[name]
        sampler = DistributedSampler(range(6), shuffle=False)
        assert list(sampler) == [RANK, RANK + 2, RANK + 4]
        """)
