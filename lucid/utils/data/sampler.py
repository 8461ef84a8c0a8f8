"""Samplers: iterables of indices, or of lists of indices.

A sampler that shuffles draws one seed per epoch from its generator and orders the epoch with that seed alone,
so that an epoch can be repeated (`resume_seed`) without touching any generator: the DataLoader uses this to
go on in the middle of an epoch.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ...errors import DtypeError, ShapeError
from ...random import Generator
from ...storage.random import default_generator

# Draws of a sampler with replacement are made in pieces, so that num_samples may be huge.
_PIECE = 1 << 16


T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """The base: `__iter__` gives indices (or lists of them), `__len__`, where known, how many.

    >>> import lucid
    >>> class Backwards(lucid.utils.data.Sampler):
    ...     def __init__(self, n):
    ...         self.n = n
    ...     def __iter__(self):
    ...         return iter(range(self.n - 1, -1, -1))
    >>> list(Backwards(3))
    [2, 1, 0]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


def _check_bool(name: str, what: str, value: Any) -> None:
    # A number in its place is most likely meant for the argument after it.
    if not isinstance(value, bool):
        raise DtypeError(f"{name}: {what} must be a bool, got {value!r}")


class SequentialSampler(Sampler):
    """0 .. len(data_source) - 1.

    >>> import lucid
    >>> list(lucid.utils.data.SequentialSampler(range(10, 13)))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class Shuffling(Sampler):
    """The base of samplers that draw: `epoch_seed` is the seed of the epoch under way."""

    generator: Generator | None
    epoch_seed: int | None = None
    resume_seed: int | None = None

    def _epoch(self) -> Generator:
        """A generator for this epoch: of `resume_seed` once, if set, else of a seed from `generator` or the
        default one.
        """
        seed, self.resume_seed = self.resume_seed, None
        if seed is None:
            seed = draw_seed(self.generator)
        self.epoch_seed = seed
        return Generator("cpu").manual_seed(seed)


def draw_seed(generator: Generator | None) -> int:
    """A seed in [0, 2**63) from `generator`, or from the CPU's default one."""
    return int((generator or default_generator("cpu")).integers(0, 1 << 63, (1,))[0])


class RandomSampler(Shuffling):
    """A new random order each epoch; with `replacement` independent draws.

    num_samples: len(data_source) when None. Raises ShapeError for none.

    >>> import lucid
    >>> sorted(lucid.utils.data.RandomSampler(range(4)))
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        _check_bool("RandomSampler", "replacement", replacement)
        if num_samples is not None and num_samples <= 0:
            raise ShapeError(f"RandomSampler: expected num_samples > 0, got {num_samples}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """Indices per epoch."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        source, n, left = self._epoch(), len(self.data_source), self.num_samples
        if left and not n:
            raise ShapeError(f"RandomSampler: cannot draw {left} samples from an empty dataset")
        while left > 0:
            if self.replacement:
                piece = source.integers(0, n, (min(left, _PIECE),)).tolist()
            else:
                piece = source.permutation(n).tolist()[:left]
            left -= len(piece)
            yield from piece

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Shuffling):
    """The given indices in a new random order each epoch.

    >>> import lucid
    >>> sorted(lucid.utils.data.SubsetRandomSampler([5, 3, 8]))
    [3, 5, 8]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in self._epoch().permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Shuffling):
    """num_samples indices, drawn with probabilities in proportion to `weights`.

    >>> import lucid
    >>> list(lucid.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], num_samples=3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        import lucid

        self.weights = lucid.as_tensor(weights, dtype="float64")
        if self.weights.ndim != 1:
            raise ShapeError(
                f"WeightedRandomSampler: expected one weight per sample, got shape {self.weights.shape}"
            )
        _check_bool("WeightedRandomSampler", "replacement", replacement)
        if isinstance(num_samples, bool) or num_samples <= 0:
            raise ShapeError(f"WeightedRandomSampler: expected num_samples > 0, got {num_samples}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        from ...functional.random import multinomial

        return iter(
            multinomial(self.weights, self.num_samples, self.replacement, generator=self._epoch()).tolist()
        )

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from a sampler; a shorter last one is given unless `drop_last`.

    >>> import lucid
    >>> list(lucid.utils.data.BatchSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ShapeError(f"BatchSampler: expected an integer batch_size > 0, got {batch_size!r}")
        _check_bool("BatchSampler", "drop_last", drop_last)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class DistributedSampler(Sampler):
    """Rank `rank`'s share of the indices: every num_replicas-th one, of an order that all ranks share.

    The order of an epoch depends on seed + epoch: call `set_epoch` before each. All shares have equal length:
    indices are repeated from the start, or with drop_last left out at the end. num_replicas and rank:
    those of the process group when None, without one WORLD_SIZE and RANK of the environment.

    >>> import lucid
    >>> list(lucid.utils.data.DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        dist = sys.modules.get("lucid.distributed")  # who has not imported it has no process group
        if dist is not None and dist.is_initialized():
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        num_replicas = int(os.environ.get("WORLD_SIZE", 1)) if num_replicas is None else num_replicas
        rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ShapeError(
                f"DistributedSampler: expected 0 <= rank < num_replicas, got rank={rank}, "
                f"num_replicas={num_replicas}"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order = (
            Generator("cpu").manual_seed(self.seed + self.epoch).permutation(n).tolist()
            if self.shuffle
            else list(range(n))
        )
        order = list(itertools.islice(itertools.cycle(order), self.total_size)) if n else []
        return iter(order[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Nothing; the next iteration has the order of `epoch`."""
        self.epoch = epoch
