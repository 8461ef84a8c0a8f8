"""What `Elementwise` keeps per parameter, and three of the ways in which parameters are stepped: in parts,
many small ones in one pack, and all of a dtype in one launch of a kernel by name (traced.py has the fourth).

A part has at most 2**18 elements: scratch memory stays at a few MB whatever the model's size, the part stays
in the CPU's cache, and threads can share the work (bench_optim, one thread: adamw gpt 16.2 ms in parts of
2**18 elements, 17.4 of 2**15, 23.9 of 2**13; sgd momentum gpt 5.9, 7.9, 11.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fusion.sweep import THREADED, pool, width
from ..kernel.multi_tensor import MultiTensor, counts
from ..storage.backend import Backend
from ..storage.dtype import REAL_OF, float32
from ..tensor import Tensor, _wrap

PART = 1 << 18
# Parameters up to SMALL elements share packs of up to PACK. Processor time per tensor of 64, 1024, 8192 and
# 16384 elements (bench_optim: adamw, a hundred tensors): 3.5, 7.0, 26.6, 44.1 us packed, 11.8, 14.5, 29.2,
# 44.5 alone.
SMALL, PACK = 1 << 13, 1 << 16

# What a rule needs in a step: itself, the L2 decay or None, whether to maximise, its constants, its flags.
Recipe = tuple[Any, Any, bool, tuple[Any, ...], tuple[Any, ...]]


class Slot:
    """One parameter with its raw state.

    kernel: the name of the kernel that was asked for. array: the parameter's. staged: a contiguous copy that
    is updated in its place where it is not contiguous. working: the dtype in which the rule runs, that of the
    state, real. arrays: those of the parameter and of its state (None
    for an absent one), flat, complex numbers as pairs of reals. home: the Pack or Launch that steps it, None
    when it is stepped alone; g: the gradient of the step under way. count: for a Launch the step numbers on
    the device, line: that of its group's numbers; step: what state["step"] then is, a view of `count`.
    places: the addresses of `arrays` (traced.py).
    """

    __slots__ = (
        *("param", "state", "names", "kernel", "array", "staged", "low", "complex", "working", "arrays"),
        *("parts", "home", "g", "step", "count", "line", "places"),
    )

    def __init__(
        self, param: Tensor, state: dict[str, Any], names: Sequence[str | None], kernel: str | None
    ) -> None:
        self.param, self.state, self.names, self.kernel = param, state, names, kernel
        array = self.array = param.array
        self.low, self.complex = array.dtype.itemsize == 2, array.dtype in REAL_OF
        self.working: Any = float32 if self.low else REAL_OF.get(array.dtype, array.dtype)
        self.staged: Any = None if array.flags.c_contiguous else array.copy("C")
        self.home: Pack | Launch | None = None
        self.g: Any = None
        self.step: Any = None
        self.count: Any = None
        self.line = 0
        self.bind()

    def bind(self) -> None:
        """Nothing; takes the arrays of the state as they are now."""
        own = self.array if self.staged is None else self.staged
        self.arrays: list[Any] = [
            self.flat(own),
            *(self.flat(self.state[name].storage.array) if name else None for name in self.names),
        ]
        self.places: tuple[int, ...] = ()
        size = self.arrays[0].size
        self.parts = [Part(self, start, min(start + PART, size)) for start in range(0, size, PART)]

    def flat(self, array: Any) -> Any:
        """`array` as one dimension, complex numbers as pairs of reals."""
        array = array.reshape(-1)
        if not self.complex:
            return array
        return (array if array.flags.c_contiguous else array.copy()).view(REAL_OF[array.dtype])


class Part:
    """Elements start to stop of a slot."""

    __slots__ = ("start", "stop", "size", "arrays", "low", "whole")

    def __init__(self, slot: Slot, start: int, stop: int) -> None:
        self.start, self.stop, self.size, self.low = start, stop, stop - start, slot.low
        self.whole = stop - start == slot.arrays[0].size
        self.arrays: list[Any] = [None if array is None else array[start:stop] for array in slot.arrays]

    def run(self, xp: Any, g: Any, recipe: Recipe, scratch: list[Any]) -> None:
        """Nothing; applies a rule. g: the slot's whole gradient, flat."""
        n = self.size
        target, *state = self.arrays
        part = g if self.whole else g[self.start : self.stop]
        effective, master, *spare = [s[:n] for s in scratch]
        p = target
        if self.low:
            p = master
            p[...] = target
            effective[...] = part
            part = effective
        apply(xp, p, part, state, effective, spare, recipe)
        if self.low:
            target[...] = p


def apply(
    xp: Any, p: Any, g: Any, state: list[Any], effective: Any, spare: list[Any], recipe: Recipe
) -> None:
    """Nothing; applies a rule to flat arrays after decay and sign, which change g in `effective`."""
    rule, decay, maximize, constants, flags = recipe
    if decay is not None:
        xp.multiply(p, decay, out=spare[0])
        (xp.subtract if maximize else xp.add)(spare[0], g, out=effective)
        g = effective
    elif maximize:
        xp.negative(g, out=effective)
        g = effective
    rule(xp, p, g, *state, *spare, *constants, *flags)


class Pack:
    """Small parameters of one group and dtype on the CPU, whose state lies one after the other: a rule is
    called once for all of them.
    """

    __slots__ = ("slots", "size", "state", "built", "due")

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.size, self.built, self.due = 0, False, 0
        self.state: list[Any] = []

    def add(self, slot: Slot) -> None:
        """Nothing; the slot is stepped with the others from now on."""
        slot.home = self
        self.slots.append(slot)
        self.size += slot.arrays[0].size
        self.built = False

    def remove(self, slot: Slot) -> None:
        """Nothing; the slot leaves, with the arrays of its state as they are."""
        self.slots.remove(slot)
        self.size -= slot.arrays[0].size
        slot.home, self.built = None, False

    def note(self, packs: list[Pack], launches: list[Launch]) -> None:
        """Nothing; joins those that have something to do in this step."""
        packs.append(self)

    def clear(self) -> None:
        """Nothing; ends a step."""
        self.due = 0
        for slot in self.slots:
            slot.g = None

    def ready(self) -> bool:
        """Whether every slot has a gradient, and all have made the same number of steps."""
        slots = self.slots
        if self.due != len(slots):
            return False
        step = slots[0].state["step"]
        if any(slot.state["step"] != step for slot in slots):
            return False
        if not self.built:
            self._build()
        return True

    def gradients(self) -> list[Any]:
        """The gradients of all slots, flat."""
        return [slot.flat(slot.g) for slot in self.slots]

    def _build(self) -> None:
        # Moves the state of all slots into arrays of the pack.
        self.state = []
        for k, name in enumerate(self.slots[0].names, 1):
            if name is None:
                self.state.append(None)
                continue
            whole, start = np.concatenate([slot.arrays[k] for slot in self.slots]), 0
            for slot in self.slots:
                old = slot.state[name].storage.array
                stop = start + slot.arrays[k].size
                slot.state[name] = _wrap(
                    whole[start:stop].view(old.dtype).reshape(old.shape), slot.param.storage.backend
                )
                start = stop
            self.state.append(whole)
        for slot in self.slots:
            slot.bind()
        self.built = True

    def run(self, xp: Any, g: Any, recipe: Recipe, scratch: list[Any]) -> None:
        """Nothing; applies a rule to all slots, of which each has a gradient. g: the flat gradients."""
        effective, p, *spare = [s[: self.size] for s in scratch]
        xp.concatenate(g, out=effective)
        xp.concatenate([slot.arrays[0] for slot in self.slots], out=p)
        apply(xp, p, effective, self.state, effective, spare, recipe)
        start = 0
        for slot in self.slots:
            target = slot.arrays[0]
            stop = start + target.size
            target[...] = p[start:stop]
            start = stop


class Launch:
    """The parameters of one dtype on one device that a kernel steps in one launch."""

    __slots__ = ("launcher", "name", "backend", "slots", "numbers", "kernel", "due", "lines")

    def __init__(self, launcher: Any, name: str, backend: Backend) -> None:
        self.launcher, self.name, self.backend = launcher, name, backend
        self.slots: list[Slot] = []
        # By parameter group (its id): the line of its numbers in the kernel's table.
        self.lines: dict[int, int] = {}
        self.numbers: list[list[float]] = []
        self.kernel: MultiTensor | None = None
        self.due = 0

    def add(self, slot: Slot, group: int, numbers: list[float]) -> None:
        """Nothing; the slot is stepped with the others from now on. Its step number moves to the device."""
        step = slot.state["step"]
        if isinstance(step, Tensor):
            step = step.storage.array if step.storage.backend is self.backend else int(step.item())
        slot.count = counts(self.launcher, slot.arrays[0].size, step)
        slot.step = slot.state["step"] = _wrap(slot.count[:1].reshape(()), self.backend)
        if group not in self.lines:
            self.lines[group] = len(self.numbers)
            self.numbers.append(numbers)
        slot.home, slot.line = self, self.lines[group]
        self.slots.append(slot)
        self.kernel = None

    def remove(self, slot: Slot) -> None:
        """Nothing; the slot leaves."""
        self.slots.remove(slot)
        slot.home, self.kernel = None, None

    def note(self, packs: list[Pack], launches: list[Launch]) -> None:
        """Nothing; joins those that have something to do in this step."""
        launches.append(self)

    def clear(self) -> None:
        """Nothing; ends a step."""
        self.due = 0
        for slot in self.slots:
            slot.g = None

    def run(self, skip: Any) -> None:
        """Nothing; steps the slots that have a gradient. skip: a flag on the device, or None."""
        slots = self.slots
        if self.kernel is None:
            self.kernel = self._bound()
        for slot in slots:
            if slot.staged is not None and slot.g is not None:
                slot.staged[...] = slot.array
        self.kernel([self._gradient(slot) for slot in slots], self.numbers, skip=skip)
        for slot in slots:
            if slot.g is not None:
                if slot.staged is not None:
                    slot.array[...] = slot.staged
                slot.param.storage.version += 1

    def send(self) -> None:
        """Nothing; a launch that is replayed uses the present numbers."""
        if self.kernel is not None:
            self.kernel.send(self.numbers)

    def _bound(self) -> MultiTensor:
        slots = self.slots
        # The kernel takes arrays in the shape of the gradients, so that those go to it as they are.
        own = [[self._shaped(slot, a) for a in slot.arrays if a is not None] for slot in slots]
        params, *states = zip(*own, strict=True)
        return MultiTensor(
            self.launcher, self.name, params, states, [s.count for s in slots], [s.line for s in slots]
        )

    @staticmethod
    def _shaped(slot: Slot, flat: Any) -> Any:
        return flat if slot.complex else flat.reshape(slot.array.shape)

    @staticmethod
    def _gradient(slot: Slot) -> Any:
        g = slot.g
        if g is None or not slot.complex:
            return g
        return slot.flat(g.astype(slot.array.dtype, copy=False))


def sweep(backend: Backend, jobs: list[tuple[Any, Any, Recipe]], scratch: Any) -> None:
    """Nothing; runs parts and packs: (part or pack, gradient, recipe), on the threads of fusion's sweeps
    where that pays. scratch(k): the scratch arrays of thread k.
    """
    if not jobs:
        return
    several = not backend.runs_kernels and sum(job[0].size for job in jobs) >= THREADED and len(jobs) > 1
    threads = pool() if several else None
    todo = iter(jobs)

    def worker(number: int) -> None:
        xp, mine = backend.xp, scratch(number)
        with backend.quiet():
            for part, g, recipe in todo:
                part.run(xp, g, recipe, mine)

    if threads is None:
        worker(0)
    else:
        list(threads.map(worker, range(width())))
