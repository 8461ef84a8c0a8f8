"""Datasets: anything with `__getitem__` and `__len__`, or an iterable; and combinations of them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ...errors import DtypeError, ShapeError
from ...random import Generator
from ...storage.random import default_generator
from ...tensor import Tensor, _wrap

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index: a subclass gives `__getitem__(i)` and `__len__()`.

    It may also give `__getitems__(indices)`, a list of samples, where reading many at once is cheaper.

    >>> import lucid
    >>> class Squares(lucid.utils.data.Dataset):
    ...     def __getitem__(self, i):
    ...         return i * i
    ...     def __len__(self):
    ...         return 4
    >>> [batch.tolist() for batch in lucid.utils.data.DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4, 9]]
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Samples in the order of `__iter__`.

    With workers each iterates its own copy: use `get_worker_info()` to divide the data.

    >>> import lucid
    >>> class Count(lucid.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> [batch.tolist() for batch in lucid.utils.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2]]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of row i of every tensor; their first dimensions must agree.

    >>> import lucid
    >>> data = lucid.utils.data.TensorDataset(lucid.arange(4), lucid.arange(4) * 10)
    >>> [x.item() for x in data[2]], len(data)
    ([2, 20], 4)
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ShapeError("TensorDataset: expected at least one tensor")
        if any(not t.shape or t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise ShapeError(
                "TensorDataset: expected tensors with equal first dimensions, got "
                f"{', '.join(str(t.shape) for t in tensors)}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def collated(self, indices: Sequence[int]) -> list[Tensor] | None:
        """What `default_collate([self[i] for i in indices])` gives, by one gather per tensor; None where that
        would lose a graph.
        """
        if any(t.requires_grad for t in self.tensors):
            return None
        out = []
        for t in self.tensors:
            backend = t.storage.backend
            index = backend.xp.asarray(indices, dtype="int64")
            out.append(_wrap(backend.xp.take(t.storage.array, index, axis=0), backend))
        return out


class StackDataset(Dataset[Any]):
    """Sample i is a tuple (or, with keywords, a dict) of the datasets' samples i; lengths must agree.

    >>> import lucid
    >>> lucid.utils.data.StackDataset(x=[1, 2], y=[3, 4])[1]
    {'x': 2, 'y': 4}
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ShapeError("StackDataset: give datasets either as arguments or as keywords")
        self.datasets: Any = kwargs or args
        lengths = {len(d) for d in (kwargs.values() if kwargs else args)}  # type: ignore[arg-type]
        if len(lengths) > 1:
            raise ShapeError(f"StackDataset: expected equal lengths, got {sorted(lengths)}")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {key: dataset[index] for key, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        keyed = isinstance(self.datasets, dict)
        columns = [_items(d, indices) for d in (self.datasets.values() if keyed else self.datasets)]
        rows = zip(*columns, strict=True)
        return [dict(zip(self.datasets, row, strict=True)) for row in rows] if keyed else list(rows)

    def __len__(self) -> int:
        return self._length


def _items(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """The samples at `indices`, many at once where the dataset can."""
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(indices))
    return [dataset[i] for i in indices]


class ConcatDataset(Dataset[Any]):
    """All samples of the first dataset, then of the second, ...

    >>> import lucid
    >>> joined = lucid.utils.data.ConcatDataset([[1, 2], [3]])
    >>> len(joined), joined[2]
    (3, 3)
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ShapeError("ConcatDataset: expected at least one dataset")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise DtypeError("ConcatDataset: an IterableDataset has no indices; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        index = _checked("ConcatDataset", index, len(self))
        number = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[number][index - (self.cumulative_sizes[number - 1] if number else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """All samples of the first iterable dataset, then of the second, ...

    >>> import lucid
    >>> class Count(lucid.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(lucid.utils.data.ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if any(not isinstance(d, IterableDataset) for d in self.datasets):
            raise DtypeError("ChainDataset: expected IterableDatasets; use ConcatDataset for others")

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset  # type: ignore[misc]

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)  # type: ignore[arg-type,misc]


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`.

    >>> import lucid
    >>> half = lucid.utils.data.Subset([10, 11, 12, 13], [0, 2])
    >>> len(half), half[1]
    (2, 12)
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        return _items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)

    def collated(self, indices: Sequence[int]) -> list[Tensor] | None:
        """The dataset's own batch of these samples, where it has one (see `TensorDataset.collated`)."""
        inner = getattr(self.dataset, "collated", None)
        return None if inner is None else inner([self.indices[i] for i in indices])


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Disjoint random subsets with the given lengths, or fractions that sum to 1.

    Remainders go to the first ones.

    >>> import lucid
    >>> [len(part) for part in lucid.utils.data.random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    total = len(dataset)  # type: ignore[arg-type]
    if (
        math.isclose(sum(lengths), 1.0)
        and sum(lengths) <= 1.0 + 1e-9
        and not all(isinstance(n, int) for n in lengths)
    ):
        if any(not 0.0 <= n <= 1.0 for n in lengths):
            raise ShapeError(f"random_split: expected fractions in [0, 1], got {list(lengths)}")
        counts = [math.floor(total * n) for n in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
        lengths = counts
    if sum(lengths) != total:
        raise ShapeError(
            f"random_split: lengths {list(lengths)} sum to {sum(lengths)}, the dataset has {total} samples"
        )
    order = (generator or default_generator("cpu")).permutation(total).tolist()
    stops = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[int(stop - n) : int(stop)]) for stop, n in zip(stops, lengths, strict=True)]


def _checked(name: str, index: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"{name}: index {index} is out of range for {length} samples")
    return index + length if index < 0 else index
