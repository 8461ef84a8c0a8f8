"""Sequences of different lengths: padded, packed, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...autograd.record import RECORDED as F
from ...errors import ShapeError
from ...tensor import Tensor, _wrap, tensor


class PackedSequence(NamedTuple):
    """Sequences without padding, step by step.

    First come all first elements, then all second ones, the longest sequence always first. data: [sum of
    lengths, ...]; batch_sizes: [T], how many sequences have a step t; sorted_indices, unsorted_indices: [N]
    or None, the order of the sequences and its inverse. Made by `pack_sequence`.

    >>> import lucid
    >>> packed = lucid.nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 3, 2]), tensor([2, 1]))
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences on another device or in another dtype."""
        data = self.data.to(*args, **kwargs)
        moved = [i if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return PackedSequence(data, self.batch_sizes, *moved)

    def cpu(self) -> PackedSequence:
        """The sequences in host memory."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> PackedSequence:
        """The sequences on a CUDA device (the current one by default)."""
        return self.to("cuda" if device is None else device)

    def float(self) -> PackedSequence:
        """The sequences in float32."""
        return self.to("float32")

    def double(self) -> PackedSequence:
        """The sequences in float64."""
        return self.to("float64")

    def half(self) -> PackedSequence:
        """The sequences in float16."""
        return self.to("float16")

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation`; None for None.

    >>> import lucid
    >>> lucid.nn.utils.rnn.invert_permutation(lucid.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    backend, p = permutation.storage.backend, permutation.storage.array
    return _wrap(backend.xp.argsort(p), backend)


def _numbers(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def _rows(x: Tensor, index: list[int]) -> Tensor:
    # Rows of x [rows, ...] by number.
    backend = x.storage.backend
    flat = F.reshape(x, (x.shape[0], -1))
    picked = F.embedding(flat, _wrap(backend.xp.asarray(index, dtype="int64"), backend))
    return F.reshape(picked, (len(index), *x.shape[1:]))


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """The sequences of a padded batch [T, N, ...] ([N, T, ...] with batch_first), packed.

    enforce_sorted: the lengths must already descend; otherwise the sequences are sorted, and put back by
    pad_packed_sequence. Raises ShapeError for lengths that do not fit.

    >>> import lucid
    >>> x = lucid.tensor([[1, 2], [3, 0]])    # two sequences, one padded
    >>> lucid.nn.utils.rnn.pack_padded_sequence(x, [2, 1], batch_first=True).data
    tensor([1, 3, 2])
    """
    x = input.transpose(0, 1) if batch_first else input
    sizes = _numbers(lengths)
    n = x.shape[1]
    if len(sizes) != n or min(sizes, default=1) < 1 or max(sizes, default=0) > x.shape[0]:
        longest = x.shape[0]
        raise ShapeError(f"pack_padded_sequence: expected {n} lengths between 1 and {longest}, got {sizes}")
    order = sorted(range(n), key=lambda i: -sizes[i])
    if enforce_sorted and any(a < b for a, b in zip(sizes, sizes[1:], strict=False)):
        raise ShapeError(f"pack_padded_sequence: lengths must descend with enforce_sorted=True, got {sizes}; "
                         "pass enforce_sorted=False")
    batch_sizes = [sum(s > t for s in sizes) for t in range(max(sizes))]
    places = [t * n + order[i] for t, count in enumerate(batch_sizes) for i in range(count)]
    data = _rows(F.reshape(x, (x.shape[0] * n, *x.shape[2:], 1)), places)
    data = F.reshape(data, data.shape[:-1])
    indices = None if enforce_sorted else tensor(order, dtype="int64", device=input.device)
    counts = tensor(batch_sizes, dtype="int64", device="cpu")
    return PackedSequence(data, counts, indices, invert_permutation(indices))


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """(padded [T, N, ...], lengths [N]): the inverse of pack_padded_sequence.

    Raises ShapeError for a total_length below the longest.

    >>> import lucid
    >>> packed = lucid.nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])])
    >>> lucid.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2],
            [3, 0]]), tensor([2, 1]))
    """
    data, batch_sizes = sequence.data, _numbers(sequence.batch_sizes)
    steps, n = len(batch_sizes), batch_sizes[0]
    total = steps if total_length is None else total_length
    if total < steps:
        raise ShapeError(f"pad_packed_sequence: total_length must be at least the longest length {steps}, "
                         f"got {total}")
    lengths = [sum(count > i for count in batch_sizes) for i in range(n)]
    back = list(range(n)) if sequence.unsorted_indices is None else _numbers(sequence.unsorted_indices)
    starts = [sum(batch_sizes[:t]) for t in range(steps)]
    padding = data.shape[0]
    places = [starts[t] + i if t < lengths[i] else padding for t in range(total) for i in back]
    flat = F.reshape(data, (data.shape[0], -1))
    backend = data.storage.backend
    row = _wrap(backend.xp.full((1, flat.shape[1]), padding_value, dtype=data.dtype), backend)
    out = F.reshape(_rows(F.cat(flat, row, dim=0), places), (total, n, *data.shape[1:]))
    # Lengths, as batch sizes, are for the host, whatever the default device.
    return (out.transpose(0, 1) if batch_first else out,
            tensor([lengths[i] for i in back], dtype="int64", device="cpu"))


def pad_sequence(sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """[T, N, ...] ([N, T, ...] with batch_first): tensors [length, ...] filled up to the longest.

    >>> import lucid
    >>> lucid.nn.utils.rnn.pad_sequence([lucid.tensor([1, 2]), lucid.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    items = list(sequences)
    if not items or padding_side not in ("left", "right"):
        raise ShapeError("pad_sequence: expected at least one tensor and padding_side 'left' or 'right', "
                         f"got {len(items)} and {padding_side!r}")
    longest = max(x.shape[0] for x in items)
    rows = []
    for x in items:
        missing = longest - x.shape[0]
        if missing:
            backend = x.storage.backend
            fill = _wrap(backend.xp.full((missing, *x.shape[1:]), padding_value, dtype=x.dtype), backend)
            x = F.cat(*((fill, x) if padding_side == "left" else (x, fill)), dim=0)
        rows.append(x)
    return F.stack(*rows, dim=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The tensors [length, ...] of a padded batch.

    >>> import lucid
    >>> lucid.nn.utils.rnn.unpad_sequence(lucid.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(_numbers(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors [length, ...], packed. enforce_sorted: the lengths must already descend, else ShapeError.

    >>> import lucid
    >>> lucid.nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])]).batch_sizes
    tensor([2, 1])
    """
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences],
                                enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors [length, ...] of a packed sequence.

    >>> import lucid
    >>> packed = lucid.nn.utils.rnn.pack_sequence([lucid.tensor([1, 2]), lucid.tensor([3])])
    >>> lucid.nn.utils.rnn.unpack_sequence(packed)
    [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
