"""The state of the random generators: seeds, states, and a context that restores them.

>>> import lucid
>>> _ = lucid.manual_seed(0)
>>> a = lucid.rand(3)
>>> _ = lucid.manual_seed(0)
>>> bool((lucid.rand(3) == a).all())
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .storage.backend import Backend
from .storage.device import Device
from .storage.random import Generator as Generator
from .storage.random import default_generator, seed_all

State = tuple[int, int]


def manual_seed(seed: int) -> Generator:
    """The CPU's default generator, after those of all devices were put at the start of `seed`.

    The same seed gives the same numbers on every device.

    >>> import lucid
    >>> generator = lucid.manual_seed(7)
    >>> a = lucid.rand(3)
    >>> generator = lucid.manual_seed(7)
    >>> lucid.equal(a, lucid.rand(3))
    True
    """
    seed_all(seed)
    return default_generator("cpu")


def seed() -> int:
    """A seed from the operating system, given to the default generators of all devices.

    >>> import lucid
    >>> seed = lucid.seed()
    >>> seed == lucid.initial_seed()
    True
    """
    value = Generator("cpu").seed()
    seed_all(value)
    return value


def initial_seed() -> int:
    """The seed of the CPU's default generator.

    >>> import lucid
    >>> generator = lucid.manual_seed(7)
    >>> lucid.initial_seed()
    7
    """
    return default_generator("cpu").initial_seed()


def get_rng_state(device: Device | str = "cpu") -> State:
    """(seed, offset) of a device's default generator: plain integers, fit for a checkpoint.

    >>> import lucid
    >>> generator = lucid.manual_seed(7)
    >>> lucid.get_rng_state()
    (7, 0)
    """
    return default_generator(device).get_state()


def set_rng_state(state: State, device: Device | str = "cpu") -> None:
    """Nothing; the device's default generator goes on from `state`.

    >>> import lucid
    >>> state = lucid.get_rng_state()
    >>> a = lucid.rand(3)
    >>> lucid.set_rng_state(state)
    >>> lucid.equal(lucid.rand(3), a)
    True
    """
    default_generator(device).set_state(state)


@contextmanager
def fork_rng(devices: Iterable[Device | str] | None = None, enabled: bool = True) -> Iterator[None]:
    """A context in which draws leave no trace.

    The generators of `devices` (None: of all in use) get their states back.

    >>> import lucid
    >>> before = lucid.get_rng_state()
    >>> with lucid.random.fork_rng():
    ...     _ = lucid.manual_seed(3)
    >>> lucid.get_rng_state() == before
    True
    """
    if not enabled:
        yield
        return
    if devices is None:
        default_generator("cpu")
        generators = [default_generator(backend) for backend in Backend.instances()]
    else:
        generators = [default_generator(device) for device in devices]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
