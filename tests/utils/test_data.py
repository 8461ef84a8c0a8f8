"""Datasets, samplers, collation and the DataLoader in one process."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import lucid
from lucid.errors import CheckpointError, DtypeError, ShapeError
from lucid.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)


class Squares(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i, float(i * i)


class Count(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def _flat(loader):
    return [x for batch in loader for x in batch.tolist()]


def _tensors(n=10):
    return TensorDataset(lucid.tensor(np.arange(n * 3.0, dtype="float32").reshape(n, 3)), lucid.arange(n))


def test_combinations_of_datasets():
    a, b = Squares(3), Squares(2)
    both = a + b
    assert isinstance(both, ConcatDataset) and len(both) == 5
    assert [both[i][0] for i in range(5)] == [0, 1, 2, 0, 1] and both[-1] == (1, 1.0)
    with pytest.raises(IndexError, match="out of range for 5"):
        both[5]
    assert list(Count(2) + Count(3)) == [0, 1, 0, 1, 2]
    assert list(ChainDataset([Count(1)])) == [0]
    stacked = StackDataset(x=a, y=Subset(Squares(5), [4, 2, 0]))
    assert stacked[1] == {"x": (1, 1.0), "y": (2, 4.0)} and len(stacked) == 3
    assert StackDataset(a, a)[2] == ((2, 4.0), (2, 4.0))
    for bad in (
        lambda: StackDataset(a, b),
        lambda: TensorDataset(lucid.zeros(2), lucid.zeros(3)),
        lambda: TensorDataset(lucid.zeros(())),
    ):
        with pytest.raises(ShapeError):
            bad()
    with pytest.raises(DtypeError):
        ConcatDataset([Count(2)])


def test_random_split():
    parts = random_split(Squares(10), [0.5, 0.25, 0.25], lucid.Generator().manual_seed(1))
    assert [len(p) for p in parts] == [6, 2, 2]
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    again = random_split(Squares(10), [6, 2, 2], lucid.Generator().manual_seed(1))
    assert [p.indices for p in again] == [p.indices for p in parts]
    with pytest.raises(ShapeError, match="sum to 9"):
        random_split(Squares(10), [4, 5])


def test_samplers():
    n = 50
    g = lucid.Generator().manual_seed(3)
    first, second = list(RandomSampler(range(n), generator=g)), list(RandomSampler(range(n), generator=g))
    assert sorted(first) == sorted(second) == list(range(n)) and first != second
    assert list(RandomSampler(range(n), generator=lucid.Generator().manual_seed(3))) == first
    assert len(list(RandomSampler(range(n), num_samples=120))) == 120
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=3000))
    assert np.abs(np.bincount(drawn) - 1000).max() < 150
    assert sorted(SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    weighted = list(WeightedRandomSampler([1.0, 0.0, 3.0], 4000))
    assert 1 not in weighted and abs(weighted.count(2) - 3000) < 150
    assert sorted(WeightedRandomSampler([1.0, 1.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    assert list(BatchSampler(SequentialSampler(range(5)), 2)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert len(BatchSampler(range(5), 2)) == 3
    with pytest.raises(ShapeError):
        BatchSampler(range(5), 0)


@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler_divides_the_data(drop_last):
    shares = [DistributedSampler(range(10), 4, rank, seed=2, drop_last=drop_last) for rank in range(4)]
    lists = [list(s) for s in shares]
    assert [len(x) for x in lists] == [len(s) for s in shares] == ([2] * 4 if drop_last else [3] * 4)
    everything = [i for x in lists for i in x]
    assert len(set(everything)) == (8 if drop_last else 10)
    for s in shares:
        s.set_epoch(1)
    assert [list(s) for s in shares] != lists
    with pytest.raises(ShapeError, match="rank=4"):
        DistributedSampler(range(3), 4, 4)


def test_collate():
    Point = namedtuple("Point", "x y")
    samples = [
        {"a": np.ones(2, "float32") * i, "b": (i, float(i)), "c": f"s{i}", "d": Point(i, lucid.tensor([i]))}
        for i in range(3)
    ]
    batch = default_collate(samples)
    assert batch["a"].shape == (3, 2) and batch["a"].dtype == lucid.float32
    assert batch["b"][0].dtype == lucid.int64 and batch["b"][1].dtype == lucid.float64
    assert (
        batch["c"] == ["s0", "s1", "s2"]
        and type(batch["d"]).__name__ == "Point"
        and batch["d"].y.shape == (3, 1)
    )
    assert default_collate([np.float32(1), np.float32(2)]).dtype == lucid.float32
    assert default_collate([True, False]).dtype == lucid.bool
    with pytest.raises(ShapeError, match=r"\(2,\), \(3,\)"):
        default_collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(ShapeError, match="different lengths"):
        default_collate([[1], [1, 2]])
    with pytest.raises(DtypeError, match="collate_fn"):
        default_collate([object()])


def test_collate_keeps_what_a_mapping_is():
    entries = default_collate([defaultdict(list, a=1), defaultdict(list, a=2)])
    assert type(entries) is defaultdict and entries["missing"] == [] and entries["a"].tolist() == [1, 2]
    assert type(default_collate([OrderedDict(a=1)])) is OrderedDict
    assert default_collate([np.str_("a"), np.str_("b")]) == ["a", "b"]


def test_collate_equals_torch():
    torch = pytest.importorskip("torch")
    samples = [(np.ones(2) * i, i, float(i), {"k": [i, i + 1]}) for i in range(3)]
    ours, theirs = default_collate(samples), torch.utils.data.default_collate(samples)

    def compare(a, b):
        assert type(a) is type(b) or isinstance(a, lucid.Tensor)
        if isinstance(a, lucid.Tensor):
            assert a.dtype.name == str(b.dtype).removeprefix("torch.")
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        else:
            for x, y in zip(
                a.values() if isinstance(a, dict) else a,
                b.values() if isinstance(b, dict) else b,
                strict=True,
            ):
                compare(x, y)

    compare(ours, theirs)


def test_whole_batches_equal_item_by_item():
    data = _tensors()
    for dataset in (data, Subset(data, [7, 1, 3, 3, 9])):
        fast = list(DataLoader(dataset, batch_size=4))
        slow = list(DataLoader(dataset, batch_size=4, collate_fn=lambda samples: default_collate(samples)))
        assert len(fast) == len(slow)
        for a, b in zip(fast, slow, strict=True):
            assert type(a) is type(b) is list
            for x, y in zip(a, b, strict=True):
                assert x.dtype == y.dtype
                np.testing.assert_array_equal(x.numpy(), y.numpy())
    # A batch is a copy, also where it is a contiguous part.
    fast[0][0].array[...] = -1
    assert data.tensors[0].numpy().min() == 0


def test_whole_batches_are_used_and_keep_graphs(monkeypatch):
    data = _tensors()
    monkeypatch.setattr(TensorDataset, "__getitem__", lambda self, i: pytest.fail("item by item"))
    assert len(list(DataLoader(data, batch_size=4))) == 3
    monkeypatch.undo()
    data = TensorDataset(lucid.ones(4, 2, requires_grad=True))
    ((batch,),) = DataLoader(data, batch_size=4)
    assert batch.requires_grad


def test_orders_and_lengths():
    loader = DataLoader(Squares(7), batch_size=3)
    assert len(loader) == 3 and [b[0].tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert (
        len(DataLoader(Squares(7), batch_size=3, drop_last=True))
        == 2
        == len(list(DataLoader(Squares(7), batch_size=3, drop_last=True)))
    )
    assert [b[0] for b in DataLoader(Squares(3), batch_size=None)] == [0, 1, 2]
    assert [b.tolist() for b in DataLoader(range(4), batch_sampler=[[3], [0, 1]])] == [[3], [0, 1]]
    assert [b.tolist() for b in DataLoader(range(4), sampler=[2, 0], batch_size=2)] == [[2, 0]]
    assert [b.tolist() for b in DataLoader(Count(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Count(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Count(3), batch_size=None)) == [0, 1, 2]
    with pytest.raises(DtypeError, match="length"):
        len(DataLoader(Count(3)))
    assert get_worker_info() is None


def test_shuffle_depends_on_the_seed_alone():
    def epochs(seed):
        lucid.manual_seed(seed)
        loader = DataLoader(range(20), batch_size=4, shuffle=True)
        return _flat(loader), _flat(loader)

    assert epochs(0) == epochs(0) != epochs(1)
    first, second = epochs(0)
    assert first != second and sorted(first) == sorted(second) == list(range(20))
    lucid.manual_seed(5)
    state = lucid.get_rng_state()
    loader = DataLoader(range(20), shuffle=True, generator=lucid.Generator().manual_seed(1))
    a = _flat(loader)
    assert lucid.get_rng_state() == state
    assert a == _flat(DataLoader(range(20), shuffle=True, generator=lucid.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(range(23), batch_size=4, shuffle=True),
        lambda: DataLoader(range(23), batch_size=4, sampler=WeightedRandomSampler([1.0] * 23, 23)),
        lambda: DataLoader(Count(23), batch_size=4),
    ],
)
def test_resume_in_the_middle_of_an_epoch(make):
    lucid.manual_seed(0)
    loader = make()
    taken, state = [], None
    for i, batch in enumerate(loader):
        taken.append(batch.tolist())
        if i == 2:
            state = loader.state_dict()
    lucid.manual_seed(99)
    resumed = make()
    resumed.load_state_dict(state)
    assert [b.tolist() for b in resumed] == taken[3:]
    assert resumed.state_dict()["batches"] == 0
    assert len(list(resumed)) == 6
    with pytest.raises(CheckpointError):
        resumed.load_state_dict({"batches": 1})


def test_what_is_refused():
    for options in (
        dict(shuffle=True, sampler=[1]),
        dict(batch_sampler=[[1]], batch_size=2),
        dict(num_workers=-1),
        dict(prefetch_factor=2),
        dict(persistent_workers=True),
        dict(batch_size=None, drop_last=True),
        dict(batch_size=0),
    ):
        with pytest.raises(ShapeError):
            DataLoader(range(4), **options)
    with pytest.raises(ShapeError, match="IterableDataset"):
        DataLoader(Count(3), shuffle=True)


def test_arguments_in_the_wrong_place():
    # What stands in the place of a bool was meant for the argument after it.
    for call in (lambda: RandomSampler(range(9), 5), lambda: WeightedRandomSampler([1, 2], 2, 5),
                 lambda: BatchSampler(range(9), 3, 2)):
        with pytest.raises(DtypeError, match="must be a bool, got [25]"):
            call()
    with pytest.raises(DtypeError, match=r"the dataset, a list_iterator, has no __len__; define it"):
        DataLoader(iter([1, 2]))


def test_a_loader_cannot_change():
    loader = DataLoader(range(4), batch_size=2)
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} cannot change in a loader that is made"):
            setattr(loader, name, 1)
    loader.worker_init_fn = None
    assert len(list(loader)) == 2


def test_annotations_and_inner_paths():
    from lucid.utils.data.dataloader import default_collate as inner

    class Evens(Sampler[int]):
        def __iter__(self):
            return iter([0, 2])

    def use(loader: DataLoader[int]) -> None:
        pass

    assert inner is default_collate and list(Evens()) == [0, 2]
    assert eval("DataLoader[int]").__origin__ is DataLoader


def test_stacked_datasets_read_many_at_once():
    class Many(Squares):
        def __getitems__(self, indices):
            return [f"many {i}" for i in indices]

    assert StackDataset(Many(), range(10)).__getitems__([1, 3]) == [("many 1", 1), ("many 3", 3)]
    assert StackDataset(a=Many(), b=range(10)).__getitems__([2]) == [{"a": "many 2", "b": 2}]


def test_stop_iteration_of_a_dataset_is_an_error():
    class Bad(Squares):
        def __getitem__(self, i):
            raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(DataLoader(Bad()))
