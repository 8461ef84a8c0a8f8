"""CUDA does not survive a fork: a child that asks for the parent's device is told so, and what to do."""

import multiprocessing

import pytest

import lucid
from lucid.errors import DeviceError
from lucid.utils.data import DataLoader, Dataset

FORK = "fork" in multiprocessing.get_all_start_methods()
pytestmark = pytest.mark.skipif(not FORK, reason="no fork on this system")
CURE = r"does not survive a fork; let the dataset return CPU tensors.*multiprocessing_context='spawn'"


class Items(Dataset):
    """Four numbers on a device, or sums of them with a tensor that the parent made there."""

    def __init__(self, device, shared=None):
        self.device, self.shared = device, shared

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = lucid.tensor([float(index)], device=self.device)
        return x if self.shared is None else self.shared[index]


def batches(dataset):
    return list(DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="fork"))


@pytest.fixture
def opened(device):
    if device == "cpu":
        pytest.skip("of CUDA")
    return lucid.arange(4, device=device) * 2


def test_workers_with_cpu_tensors_do_not_mind_an_open_device(opened):
    assert [b.to(opened.device).sum().item() for b in batches(Items("cpu"))] == [1.0, 5.0]


def test_a_forked_worker_cannot_open_the_device(opened):
    with pytest.raises(DeviceError, match=CURE):
        batches(Items(str(opened.device)))


def test_a_forked_worker_cannot_use_the_parents_tensors(opened):
    with pytest.raises(DeviceError, match=CURE):
        batches(Items("cpu", opened))


def test_a_forked_child_says_that_there_is_no_cuda(opened):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_ask, args=(theirs,))
    child.start()
    assert ours.poll(30) and ours.recv() == (False, 0)
    child.join(30)
    assert lucid.cuda.is_available() and opened.sum().item() == 12


def _ask(connection):
    lucid.manual_seed(0)
    connection.send((lucid.cuda.is_available(), lucid.cuda.device_count()))
