"""Random numbers that are the same on every device: a counter-based generator in array arithmetic.

The generator is Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011, DOI 10.1145/2063384.2063405). The stream of a seed is a fixed sequence of 32-bit words: word i is lane i
% 4 of the block with counter (lo(i // 4), hi(i // 4), 0, 0) and key (lo(seed), hi(seed)). The state is (seed,
offset), where offset counts blocks; a draw of n words takes blocks offset .. offset + ceil(n / 4) - 1. A CUDA
kernel that computes its words itself therefore uses counter offset + element // 4 and lane element % 4, and
gets the numbers of the CPU.

Uniforms, integers, masks and permutations are bit-equal on all devices; normals and exponentials go through
the device's log, sin and cos and agree to a few units in the last place.

Cost on the CPU (one core, NumPy 2.4, while another process ran): 5.5 ns per word in blocks of 8192 counters,
which stay in the L2 cache; per element float32 uniform 8.5 ns, normal 12 ns, mask 7.5 ns, int64 integer 21
ns. NumPy's own PCG64 takes 1.8 and 8.7 ns for the first two in the same run: that is the price of equal
numbers on all devices. A small draw takes its words from the block made last: a mask of 100 elements costs
5.6 us.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ..errors import DeviceError, DtypeError, ShapeError
from .backend import Backend, backend_of
from .device import Device
from .dtype import as_dtype, get_default_dtype, is_floating

_F = TypeVar("_F", bound=Callable[..., Any])

# Multipliers and Weyl constants of Philox 4x32 (Salmon et al. 2011, table 2 and section 4.3).
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW32 = 0xFFFFFFFF
_LOW64 = (1 << 64) - 1
_ROUNDS = 10

# Counters per block. CPU: three scratch arrays of [2, 8192] uint64 are 384 KB and stay in L2. GPU: one launch
# per operation.
CPU_BLOCK = 8192
GPU_BLOCK = 1 << 22

# Bits of a uniform in [0, 1): those that the dtype holds exactly, so that rounding never gives 1.
_UNIFORM_BITS = {"float16": 11, "bfloat16": 8, "float32": 24}


def _bumped_keys(xp: Any, seed: Any) -> Any:
    # uint64 [rounds, 2, 1]: all at once, on a GPU one transfer instead of ten. A seed in device memory stays
    # there.
    low, bumps = xp.uint64(_LOW32), [[[r * w] for w in _WEYL] for r in range(_ROUNDS)]
    if isinstance(seed, int):
        halves = xp.asarray([[seed & _LOW32], [seed >> 32]], dtype="uint64")
    else:
        halves = xp.stack([seed & low, seed >> xp.uint64(32)])
    return (halves + xp.asarray(bumps, dtype="uint64")) & low


def philox(xp: Any, even: Any, odd: Any, seed: Any) -> tuple[Any, Any]:
    """Words (0, 2) and (1, 3) of Philox blocks: two uint64 arrays [2, n] holding 32-bit values.

    even: uint64 [2, n], counter words 0 and 2 of each block; odd: counter words 1 and 3. Both are
    overwritten. seed: a number, or uint64 [1].
    """
    multiplier = xp.asarray(_MULTIPLIERS, dtype="uint64").reshape(2, 1)
    keys = _bumped_keys(xp, seed)
    low, shift = xp.uint64(_LOW32), xp.uint64(32)
    product = xp.empty_like(even)
    crossed = product[::-1]
    for r in range(_ROUNDS):
        xp.multiply(even, multiplier, out=product)
        xp.right_shift(crossed, shift, out=even)
        xp.bitwise_xor(even, odd, out=even)
        xp.bitwise_xor(even, keys[r], out=even)
        xp.bitwise_and(crossed, low, out=odd)
    return even, odd


def philox_words(xp: Any, seed: Any, block: Any, n: int) -> Any:
    """uint32 [4 n]: the words of blocks `block` .. `block + n - 1` of the stream of `seed` (numbers, or
    uint64 [1]).
    """
    counter = xp.arange(n, dtype="uint64") + (xp.uint64(block & _LOW64) if isinstance(block, int) else block)
    even, odd = xp.zeros((2, n), dtype="uint64"), xp.zeros((2, n), dtype="uint64")
    xp.bitwise_and(counter, xp.uint64(_LOW32), out=even[0])
    xp.right_shift(counter, xp.uint64(32), out=odd[0])
    even, odd = philox(xp, even, odd, seed)
    words = xp.empty((n, 4), dtype="uint32")
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = even[0], odd[0], even[1], odd[1]
    return words.reshape(-1)


def stream_mask(xp: Any, state: Any, skip: int, shape: tuple[int, ...], keep: float) -> Any:
    """bool of `shape`: what `Generator.bernoulli_mask` draws where its state is `skip` blocks past `state`
    (uint64 [2]: seed and offset, on any device).
    """
    n, threshold = math.prod(shape), round(keep * 2.0**32)
    blocks, step = (n + 3) // 4, CPU_BLOCK if xp.__name__ == "numpy" else GPU_BLOCK
    out = xp.ones(4 * blocks, dtype="bool")
    if threshold <= _LOW32:
        for low in range(0, blocks, step):
            first = state[1:] + xp.uint64((skip + low) & _LOW64)
            words = philox_words(xp, state[:1], first, min(step, blocks - low))
            xp.less(words, xp.uint32(threshold), out=out[4 * low : 4 * low + words.size])
    return out[:n].reshape(shape)


def _on_device(draw: _F) -> _F:
    # Of several GPUs the generator's own is made current: new arrays are allocated there.
    @functools.wraps(draw)
    def method(self: Generator, *args: Any, **kwargs: Any) -> Any:
        if not Backend.several:
            return draw(self, *args, **kwargs)
        with self.backend.guard():
            return draw(self, *args, **kwargs)

    return method  # type: ignore[return-value]


class Generator:
    """A stream of random numbers on one device, with PyTorch's methods for its state.

    Draws from several threads are safe: each takes its own part of the stream. The draw methods (`uniform`,
    `normal`, `integers`, `bernoulli_mask`, `permutation`, `exponential`) return raw arrays of the device.

    >>> import lucid
    >>> g = lucid.Generator("cpu").manual_seed(7)
    >>> lucid.rand(3, generator=g).shape, g.initial_seed()
    ((3,), 7)
    """

    def __init__(self, device: Device | str | Backend = "cpu") -> None:
        self._backend: Backend | None = device if isinstance(device, Backend) else None
        self._device = device.device if isinstance(device, Backend) else Device(device)
        self._lock = threading.Lock()
        self._seed, self._offset = _DEFAULT_SEED, 0
        # (seed, block number, its words): replaced, never rewritten, so that a draw may read it without the
        # lock.
        self._cached: tuple[int, int, Any] = (-1, -1, None)
        # (seed, [seed, 0] on the device): never written to, so that kernels yet to run read what they were
        # given.
        self._origin: tuple[int, Any] = (-1, None)
        self._graph: GraphDraws | None = None

    def __repr__(self) -> str:
        return f"<Generator {self._device}, seed {self._seed}, offset {self._offset}>"

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self._device, "state": self.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["device"])  # type: ignore[misc]
        self.set_state(state["state"])

    @property
    def device(self) -> Device:
        """The device of the arrays that it draws."""
        return self._device

    @property
    def backend(self) -> Backend:
        """The backend of that device."""
        if self._backend is None:
            self._backend = backend_of(self._device)
        return self._backend

    # ---- state ----

    def manual_seed(self, seed: int) -> Generator:
        """The generator, at the start of the stream of `seed` (64 bits; negative seeds count from 2**64)."""
        with self._lock:
            self._seed, self._offset = checked_seed(seed), 0
        return self

    def seed(self) -> int:
        """A seed from the operating system, which the generator uses from now on."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed of the present stream."""
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """(seed, offset): all that `set_state` needs to go on from here."""
        with self._lock:
            return self._seed, self._offset

    def set_state(self, state: tuple[int, int]) -> Generator:
        """The generator, where it was when `get_state` gave `state`."""
        try:
            seed, offset = (int(value) for value in state)
        except (TypeError, ValueError):
            raise DtypeError(
                f"set_state: expected (seed, offset) as get_state gives it, got {state!r}"
            ) from None
        with self._lock:
            self._seed, self._offset = checked_seed(seed), offset & _LOW64
        return self

    def clone_state(self) -> Generator:
        """A new generator in the same state."""
        return Generator(self._backend or self._device).set_state(self.get_state())

    def reserve(self, words: int) -> tuple[int, int]:
        """(seed, offset) of a part of the stream with `words` words, which no other draw will use: for
        kernels.
        """
        with self._lock:
            offset = self._offset
            self._offset = (offset + (words + 3) // 4) & _LOW64
            return self._seed, offset

    @_on_device
    def draw(self, words: int) -> tuple[Any, int]:
        """(state, skip): a part of the stream as `reserve` takes it, for kernels that make their own words.

        state: uint64 [2] on the device; word i is that of seed state[0] and block state[1] + skip + i // 4.
        Nothing is copied to the device but a new seed, once.
        """
        graph = self._graph
        if graph is not None:
            return graph.state, graph.take((words + 3) // 4)
        seed, offset = self.reserve(words)
        origin = self._origin
        if origin[0] != seed:
            origin = self._origin = seed, self.backend.from_numpy(np.array([seed, 0], "uint64"))
        return origin[1], offset

    @contextmanager
    def captured(self) -> Iterator[GraphDraws]:
        """The draws of a CUDA graph that is captured in the `with` block; `advance` them before each launch.

        Of use for what `draw` gives alone: other draws go through the host.
        """
        self._graph = GraphDraws(self)
        try:
            yield self._graph
        finally:
            self._graph = None

    # ---- words ----

    def _pieces(self, n: int) -> Iterator[tuple[int, Any]]:
        # (position, words) in order, n words in all; every position is a multiple of 4.
        seed, start = self.reserve(n)
        xp = self.backend.xp
        end = start + (n + 3) // 4
        if self._device.type == "cpu":
            step = CPU_BLOCK
            first, last = start // step, (end - 1) // step
            for number in range(first, last + 1):
                low, high = max(start, number * step), min(end, (number + 1) * step)
                kept = self._cached
                if kept[0] == seed and kept[1] == number:
                    words = kept[2]
                else:
                    words = philox_words(xp, seed, number * step, step)
                    if number == last:
                        self._cached = (seed, number, words)
                origin = number * step
                yield (low - start) * 4, words[(low - origin) * 4 : (high - origin) * 4]
            return
        for low in range(start, end, GPU_BLOCK):
            yield (low - start) * 4, philox_words(xp, seed, low, min(GPU_BLOCK, end - low))

    def _fill(self, shape: Any, dtype: Any, per: int, transform: Callable[[Any, Any, Any], None]) -> Any:
        # `per` words make one number; transform(xp, words, out) fills out, whose size is len(words) // per.
        shape = checked_shape(shape)
        size = math.prod(shape)
        xp = self.backend.xp
        room = -(-size * per // 4) * 4 // per
        out = xp.empty(room, dtype=dtype)
        if size:
            for position, words in self._pieces(size * per):
                transform(xp, words, out[position // per : (position + words.size) // per])
        return (out if room == size else out[:size]).reshape(shape)

    @_on_device
    def words(self, n: int) -> Any:
        """uint32 [n]: the next words of the stream."""

        def copy(xp: Any, words: Any, out: Any) -> None:
            out[...] = words

        return self._fill((n,), "uint32", 1, copy)

    # ---- distributions ----

    @_on_device
    def uniform(self, shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = None) -> Any:
        """Numbers in [low, high): multiples of 2**-24 (float32), 2**-53 (float64), 2**-11 (float16), 2**-8
        (bfloat16), scaled.
        """
        dtype = floating("uniform", dtype)
        bits = _UNIFORM_BITS.get(dtype.name)
        if bits is None:
            return self._scaled(self._fill(shape, dtype, 2, _unit_float64), low, high, dtype)

        def unit(xp: Any, words: Any, out: Any) -> None:
            out[...] = words >> xp.uint32(32 - bits)
            out *= 2.0**-bits

        out = self._scaled(self._fill(shape, "float32", 1, unit), low, high, dtype)
        return out if out.dtype == dtype else out.astype(dtype)

    def _scaled(self, unit: Any, low: float, high: float, dtype: Any) -> Any:
        if (low, high) != (0.0, 1.0):
            unit *= high - low
            if low != 0.0:
                unit += low
                # low + (high - low) u may round to high; for low = 0 it cannot.
                if high > low:
                    below = np.nextafter(dtype.type(high), dtype.type(low))
                    self.backend.xp.minimum(unit, float(below), out=unit)
        return unit

    @_on_device
    def normal(self, shape: Any, mean: float = 0.0, std: float = 1.0, dtype: Any = None) -> Any:
        """Normal numbers by Box-Muller: words (0, 1) and (2, 3) of a block make two each (float64: all four
        make two).

        float32 uses 32-bit uniforms, so that |z| reaches 6.76; 16-bit dtypes are rounded from float32.
        """
        dtype = floating("normal", dtype)
        wide = dtype.itemsize == 8
        out = self._fill(
            shape,
            "float64" if wide else "float32",
            2 if wide else 1,
            _box_muller64 if wide else _box_muller32,
        )
        if std != 1.0:
            out *= std
        if mean != 0.0:
            out += mean
        return out if out.dtype == dtype else out.astype(dtype)

    @_on_device
    def exponential(self, shape: Any, rate: float = 1.0, dtype: Any = None) -> Any:
        """Exponential numbers > 0 with density rate exp(-rate x)."""
        dtype = floating("exponential", dtype)
        wide = dtype.itemsize == 8

        def inverse(xp: Any, words: Any, out: Any) -> None:
            if wide:
                _unit_float64(xp, words, out)
                xp.subtract(1.0, out, out=out)
            else:
                _open_float32(xp, words, out)
            # The largest number below 1: a result of exactly 0 would make 1 / x infinite (Gumbel trick).
            xp.minimum(out, 1.0 - 2.0**-53 if wide else 1.0 - 2.0**-24, out=out)
            xp.log(out, out=out)
            out *= -1.0 / rate

        out = self._fill(shape, "float64" if wide else "float32", 2 if wide else 1, inverse)
        return out if out.dtype == dtype else out.astype(dtype)

    @_on_device
    def integers(self, low: int, high: int, shape: Any, dtype: Any = "int64") -> Any:
        """Integers in [low, high), from 64 random bits each.

        Multiply and shift for ranges to 2**32, remainder beyond; a value's probability is wrong by at most a
        factor of 1 + (high - low) / 2**64 (below 2.4e-10 for ranges to 2**32).
        """
        span = int(high) - int(low)
        if not 0 < span <= 1 << 64:
            raise ShapeError(f"integers: expected low < high, got low={low}, high={high}")
        dtype = as_dtype(dtype)

        def scaled(xp: Any, words: Any, out: Any) -> None:
            first, second = words[0::2].astype("uint64"), words[1::2].astype("uint64")
            if span <= 1 << 32:
                factor, shift = xp.uint64(span), xp.uint64(32)
                first *= factor
                first >>= shift
                second *= factor
                second += first
                second >>= shift
            else:
                second <<= xp.uint64(32)
                second |= first
                if span < 1 << 64:
                    second %= xp.uint64(span)
            second += xp.uint64(int(low) & _LOW64)  # Two's complement: also right for a negative low.
            out[...] = second.view("int64")

        return self._fill(shape, dtype, 2, scaled)

    @_on_device
    def bernoulli_mask(self, shape: Any, p: float) -> Any:
        """bool: True with probability `p` (exact to 2**-32), where word < p 2**32. One word per element."""
        if not 0.0 <= p <= 1.0:
            raise ShapeError(f"bernoulli: expected a probability in [0, 1], got {p}")
        if self._device.type != "cpu":
            shape = checked_shape(shape)
            return self.backend.F.philox_mask(*self.draw(math.prod(shape)), shape, p)
        threshold = round(p * 2.0**32)

        def below(xp: Any, words: Any, out: Any) -> None:
            if threshold > _LOW32:
                out[...] = True
            else:
                xp.less(words, xp.uint32(threshold), out=out)

        return self._fill(shape, "bool", 1, below)

    @_on_device
    def permutation(self, n: int) -> Any:
        """int64 [n]: 0 .. n - 1 in random order, each order as likely: the ranks of 64-bit keys."""
        return self.backend.xp.argsort(self._keys(n), kind="stable").astype("int64", copy=False)

    def _keys(self, n: int) -> Any:
        def join(xp: Any, words: Any, out: Any) -> None:
            out[...] = words[1::2]
            out <<= xp.uint64(32)
            out |= words[0::2]

        return self._fill((n,), "uint64", 2, join)

    def host(self) -> np.random.Generator:
        """A NumPy generator seeded from this stream, for distributions that need loops (Poisson, gamma,
        binomial).
        """
        seed, offset = self.reserve(4)
        return np.random.Generator(np.random.Philox(key=[seed, offset]))


class GraphDraws:
    """What a captured CUDA graph draws: kernels read `state` (uint64 [2]: seed and offset), whose address
    stays, and each replay takes the next part of the stream.
    """

    __slots__ = ("_generator", "state", "blocks")

    def __init__(self, generator: Generator) -> None:
        self._generator, self.blocks = generator, 0
        self.state = generator.backend.from_numpy(np.array(generator.get_state(), "uint64"))

    def take(self, blocks: int) -> int:
        """The first of `blocks` blocks of a draw, counted from the start of the graph."""
        first = self.blocks
        self.blocks += blocks
        return first

    def advance(self) -> None:
        """Nothing; the next launch of the graph draws what its work would draw now without a graph."""
        backend = self._generator.backend
        with backend.guard():
            state = np.array(self._generator.reserve(4 * self.blocks), "uint64")
            self.state[...] = backend.from_numpy(state)


def _open_float32(xp: Any, words: Any, out: Any) -> None:
    # (word + 1/2) / 2**32: above 0, and 1 only by rounding.
    out[...] = words
    out *= np.float32(2.0**-32)
    out += np.float32(2.0**-33)


def _unit_float64(xp: Any, words: Any, out: Any) -> None:
    # The 53-bit rule of MT19937's genrand_res53: (a 2**26 + b) / 2**53, a of 27 bits, b of 26.
    out[...] = words[0::2] >> xp.uint32(5)
    out *= 2.0**26
    out += words[1::2] >> xp.uint32(6)
    out *= 2.0**-53


def _box_muller32(xp: Any, words: Any, out: Any) -> None:
    unit = xp.empty((2, words.size // 2), dtype="float32")
    _open_float32(xp, words.reshape(-1, 2).T, unit)
    _polar(xp, unit[0], unit[1], out)


def _box_muller64(xp: Any, words: Any, out: Any) -> None:
    unit = xp.empty(words.size // 2, dtype="float64")
    _unit_float64(xp, words, unit)
    xp.subtract(1.0, unit, out=unit)
    _polar(xp, unit[0::2].copy(), unit[1::2].copy(), out)


def _polar(xp: Any, radius: Any, angle: Any, out: Any) -> None:
    # Box and Muller (1958): sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2 pi v); u in (0, 1].
    xp.log(radius, out=radius)
    radius *= -2.0
    xp.sqrt(radius, out=radius)
    angle *= 2.0 * math.pi
    pairs = out.reshape(-1, 2)
    xp.multiply(radius, xp.cos(angle), out=pairs[:, 0])
    xp.multiply(radius, xp.sin(angle), out=pairs[:, 1])


def floating(name: str, dtype: Any) -> Any:
    """`dtype` as a floating dtype, the default one when None; DtypeError otherwise."""
    dtype = get_default_dtype() if dtype is None else as_dtype(dtype)
    if not is_floating(dtype):
        raise DtypeError(f"{name}: expected a floating dtype, got {dtype.name}; use randint for integers")
    return dtype


def checked_seed(seed: int) -> int:
    """`seed` as an unsigned 64-bit number; negative seeds wrap, as in PyTorch."""
    seed = int(seed)
    if not -(1 << 63) <= seed <= _LOW64:
        raise DtypeError(f"manual_seed: expected a seed in [-2**63, 2**64), got {seed}")
    return seed & _LOW64


def checked_shape(shape: Any) -> tuple[int, ...]:
    """`shape` as a tuple of sizes >= 0."""
    shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ShapeError(f"random: expected sizes >= 0, got shape {shape}")
    return shape


_DEFAULT_SEED = 67280421310721  # PyTorch's default_rng_seed_val: a program without a seed is repeatable too.
_default_lock = threading.Lock()
_defaults: dict[Backend, Generator] = {}
_last_seed = [_DEFAULT_SEED]


def default_generator(backend: Backend | Device | str | None = None) -> Generator:
    """The generator that draws on a device use when none is given."""
    backend = backend if isinstance(backend, Backend) else backend_of(backend)
    found = _defaults.get(backend)
    if found is None:
        with _default_lock:
            found = _defaults.setdefault(backend, Generator(backend).manual_seed(_last_seed[0]))
    return found


def seed_all(seed: int) -> None:
    """Nothing; the default generators of all devices, present and future, start at the stream of `seed`."""
    with _default_lock:
        _last_seed[0] = checked_seed(seed)
        for generator in _defaults.values():
            generator.manual_seed(seed)


def generator_for(generator: Generator | None, backend: Backend) -> Generator:
    """`generator`, or the default one of `backend`; DeviceError when it lives on another device."""
    if generator is None:
        return default_generator(backend)
    if generator.backend is not backend:
        raise DeviceError(
            f"generator: expected one on {backend.device}, got one on {generator.device}; "
            f"make it with lucid.Generator('{backend.device}')"
        )
    return generator


def fork_default_generators(args: Any = ()) -> Callable[[], Any]:
    """A function that gives contexts in which the default generators are again as they are now (and
    afterwards as before).

    For recomputation: `with state(): ...` draws the numbers that were drawn after `state =
    fork_default_generators()`.
    """
    default_generator("cpu")
    for arg in args:
        storage = getattr(arg, "storage", None)
        if storage is not None:
            default_generator(storage.backend)
    states = [(generator, generator.get_state()) for generator in list(_defaults.values())]

    @contextmanager
    def restored() -> Iterator[None]:
        now = [(generator, generator.get_state()) for generator in list(_defaults.values())]
        for generator, state in states:
            generator.set_state(state)
        try:
            yield
        finally:
            for generator, state in now:
                generator.set_state(state)

    return restored
