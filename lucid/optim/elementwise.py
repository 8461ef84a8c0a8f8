"""The loop that applies an update rule to every parameter.

An optimiser is a pure rule on raw arrays (rules.py) and a few lines that say which state the rule needs and
which numbers a step gives it. Where the device runs kernels, all parameters of a dtype are stepped in one
launch: of the kernel that the optimiser names, which counts the steps itself and can be captured (SGD, Adam,
AdamW: slots.py), or of the one that is made from its rule, with the numbers of each step from the host (all
others: traced.py). Elsewhere the rule runs on arrays, in parts, small ones together (slots.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ShapeError
from ..kernel.multi_tensor import usable
from ..storage.backend import Backend
from ..storage.dtype import REAL_OF
from ..tensor import Tensor, _wrap
from . import traced
from .optimizer import Optimizer, Params, guard, state_dtype
from .slots import PACK, SMALL, Launch, Pack, Recipe, Slot, sweep

# The name of a kernel and its numbers for a group (kernel/multi_tensor.py).
Kernel = tuple[str, list[float]]


class Elementwise(Optimizer):
    """An optimiser whose rule works element by element.

    A subclass gives: `_names(group)`, the state arrays that its rule takes (None for an absent one);
    `_spare`, how many scratch arrays; `_rule(group, state)`: the rule, its constants (numbers), its flags
    (passed as they are), and the L2 decay; `_kernel(group)`, where a kernel does the same.

    state[p]["step"] is a number, or a 0-d int64 tensor on the device for parameters that a kernel steps.
    """

    _spare = 1
    # Whether parameters of one group with equal "step" get the same constants.
    _shared = True

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self._forget()
        self._scratch: dict[tuple[Backend, Any, int], list[Any]] = {}
        # By device, during a step that GradScaler guards: int32 [1], not 0 when the step is to be left out.
        self._skip: dict[Backend, Any] = {}
        super().__init__(params, defaults)

    def _forget(self) -> None:
        self._slots: dict[int, list[Slot | None]] = {}
        self._packs: dict[Any, list[Pack]] = {}
        self._launches: dict[Any, Launch] = {}
        self._due: list[Launch] = []
        # Of the step under way: slots that kernels made from the rule will step, with their group and device.
        self._waiting: list[tuple[dict[str, Any], Backend, list[Slot]]] = []

    def __getstate__(self) -> dict[str, Any]:
        made = ("_slots", "_packs", "_launches", "_scratch", "_skip")
        return {**self.__dict__, **{name: {} for name in made}, "_due": [], "_waiting": []}

    # ---- what a subclass gives ----

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        raise NotImplementedError

    def _rule(
        self, group: dict[str, Any], state: dict[str, Any]
    ) -> tuple[Any, tuple[float, ...], tuple[Any, ...], float]:
        raise NotImplementedError

    def _kernel(self, group: dict[str, Any]) -> Kernel | None:
        """The kernel that steps many parameters at once, and its numbers; None when there is none."""
        return None

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        """The state before the first step: "step" 0 and an array of zeros per name."""
        return {"step": 0} | {
            name: self._filled(param, 0.0) for name in self._names(group) if name is not None
        }

    @staticmethod
    def _filled(param: Tensor, value: complex) -> Tensor:
        backend = param.storage.backend
        return _wrap(backend.xp.full(param.shape, value, dtype=state_dtype(param)), backend)

    # ---- a step ----

    def steps_on_device(self) -> bool:
        """Whether kernels step every parameter that has a gradient, so that a flag on the device can hold
        the step back. (GradScaler)
        """
        seen = set()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None or (id(group), param.backend, param.dtype) in seen:
                    continue
                if self._launcher(self._chosen(group, param.backend), param) is None:
                    return False
                seen.add((id(group), param.backend, param.dtype))
        return True

    def step_unless(self, skip: dict[Backend, Any]) -> Any:
        """What `step()` returns; nothing changes on a device whose flag is not 0 when the device comes to the
        step. (GradScaler)
        """
        self._skip = skip
        try:
            return self.step()
        finally:
            self._skip = {}

    def send_numbers(self) -> None:
        """Nothing; learning rates and other options that have changed go to the device.

        A step does this itself; before a launch of one is replayed without Python, as part of a captured
        graph, call it in its place.
        """
        for group in self.param_groups:
            for device in {launch.backend for launch in self._launches.values()}:
                kernel = self._chosen(group, device)
                if kernel is not None:
                    _note(self._launches.values(), group, device, kernel)
        for launch in self._launches.values():
            with guard(launch.backend):
                launch.send()

    def _step_groups(self) -> None:
        due = self._due
        try:
            for group in self.param_groups:
                self._step_group(group)
            for launch in due:
                with guard(launch.backend):
                    launch.run(self._skip.get(launch.backend))
            if self._waiting:
                self._run_traced()
        finally:
            for _, _, slots in self._waiting:
                for slot in slots:
                    slot.g = None
            self._waiting.clear()
            for launch in due:
                launch.clear()
            due.clear()

    def _step_group(self, group: dict[str, Any]) -> None:
        todo = {param.backend for param in group["params"][:1]}
        done: set[Backend] = set()
        while todo:
            device = todo.pop()
            done.add(device)
            packs: list[Pack] = []
            with guard(device):
                try:
                    others, alone = self._gather(group, device, packs)
                    if alone and self._traces(group, device):
                        self._waiting.append((group, device, alone))
                    elif alone or packs:
                        self._apply_rule(group, device, alone, packs)
                finally:
                    for pack in packs:
                        pack.clear()
            todo |= others - done

    def _gather(
        self, group: dict[str, Any], device: Backend, packs: list[Pack]
    ) -> tuple[set[Backend], list[Slot]]:
        # (the other devices that it met, the slots on `device` that are stepped alone); gradients of the
        # others wait in their slots, whose packs and launches are noted.
        others: set[Backend] = set()
        slots, names, kernel = self._slots_of(group), self._names(group), self._chosen(group, device)
        name = None if kernel is None else kernel[0]
        states, due, alone = self.state, self._due, []
        for i, param in enumerate(group["params"]):
            grad = param.grad
            if grad is None:
                continue
            slot = slots[i]
            if param.backend is not device:
                others.add(param.backend)
                continue
            if (
                slot is None
                or slot.param is not param
                or slot.array is not param.array
                or states.get(param) is not slot.state
                or slot.names != names
                or slot.kernel != name
                or (slot.step is not None and slot.state["step"] is not slot.step)
            ):
                slot = slots[i] = self._make_slot(group, param, slot, kernel)
            g = grad.array
            if g.shape != slot.array.shape:
                raise ShapeError(
                    f"{type(self).__name__}: a parameter of shape {param.shape} has a gradient of shape "
                    f"{g.shape}"
                )
            slot.g = g
            home = slot.home
            if home is None:
                alone.append(slot)
            else:
                if not home.due:
                    home.note(packs, due)
                home.due += 1
        if kernel is not None:
            _note(due, group, device, kernel)
        return others, alone

    # ---- who steps what ----

    def _chosen(self, group: dict[str, Any], device: Backend) -> Kernel | None:
        if not device.runs_kernels or group.get("fused") is False:
            return None
        return self._kernel(_plain(group))

    def _traces(self, group: dict[str, Any], device: Backend) -> bool:
        # Whether a kernel is made from the rule: not where one by hand is, were it for other dtypes only.
        by_hand = type(self)._kernel is not Elementwise._kernel
        return device.runs_kernels and not by_hand and group.get("fused") is not False

    @staticmethod
    def _launcher(kernel: Kernel | None, param: Tensor) -> Any:
        dtype = REAL_OF.get(param.dtype, param.dtype)
        return None if kernel is None else usable(param.backend, kernel[0], dtype)

    def _slots_of(self, group: dict[str, Any]) -> list[Slot | None]:
        slots = self._slots.setdefault(id(group), [])
        if len(slots) != len(group["params"]):
            for slot in slots:
                _release(slot)
            slots[:] = [None] * len(group["params"])
        return slots

    def _make_slot(
        self, group: dict[str, Any], param: Tensor, old: Slot | None, kernel: Kernel | None
    ) -> Slot:
        _release(old)
        names = self._names(group)
        state = self.state.get(param)
        if state is None:
            state = self.state[param] = self._new_state(group, param)
        elif any(state.get(name) is None for name in ("step", *names) if name is not None):
            # A checkpoint of other options (momentum switched on since), or of PyTorch's SGD, which counts no
            # steps.
            state.update({k: v for k, v in self._new_state(group, param).items() if state.get(k) is None})
        slot = Slot(param, state, names, None if kernel is None else kernel[0])
        device, dtype = param.backend, REAL_OF.get(param.dtype, param.dtype)
        launcher = self._launcher(kernel, param)
        if launcher is not None and kernel is not None:
            key = (device, kernel[0], dtype)
            launch = self._launches.get(key)
            if launch is None:
                launch = self._launches[key] = Launch(launcher, kernel[0], device)
            launch.add(slot, id(group), kernel[1])
            return slot
        if isinstance(state["step"], Tensor):
            state["step"] = int(state["step"].item())
        size = slot.arrays[0].size
        alone = device.runs_kernels or slot.low or slot.staged is not None or not self._shared
        if not alone and size <= SMALL:
            packs = self._packs.setdefault((id(group), device, param.dtype, names), [])
            if not packs or packs[-1].size + size > PACK:
                packs.append(Pack())
            packs[-1].add(slot)
        return slot

    # ---- rules ----

    def _apply_rule(
        self, group: dict[str, Any], device: Backend, alone: list[Slot], packs: list[Pack]
    ) -> None:
        jobs: dict[Any, list[tuple[Any, Any, Recipe]]] = {}
        recipes: dict[Any, Recipe] = {}
        slots = alone
        for pack in packs:
            if pack.ready():
                for slot in pack.slots:
                    slot.state["step"] += 1
                    slot.param.storage.version += 1
                recipe = self._recipe(group, device, pack.slots[0], recipes)
                dtype = pack.slots[0].working
                jobs.setdefault(dtype, []).append((pack, pack.gradients(), recipe))
            else:
                slots = slots + [slot for slot in pack.slots if slot.g is not None]
        self._sweep(device, self._begun(group, device, slots, recipes), jobs)
        _ended(slots)

    def _run_traced(self) -> None:
        todo: dict[Backend, list[tuple[Slot, Recipe]]] = {}
        for group, device, slots in self._waiting:
            with guard(device):
                todo.setdefault(device, []).extend(self._begun(group, device, slots, {}))
        for device, jobs in todo.items():
            with guard(device):
                self._sweep(device, traced.step(jobs, device, self._spare), {})
                _ended(slot for slot, _ in jobs)

    def _begun(
        self, group: dict[str, Any], device: Backend, slots: list[Slot], recipes: dict[Any, Recipe]
    ) -> list[tuple[Slot, Recipe]]:
        found = []
        for slot in slots:
            slot.state["step"] += 1
            if slot.staged is not None:
                slot.staged[...] = slot.array
            found.append((slot, self._recipe(group, device, slot, recipes)))
        return found

    def _sweep(self, device: Backend, slots: list[tuple[Slot, Recipe]], jobs: dict[Any, list[Any]]) -> None:
        for slot, recipe in slots:
            g = slot.flat(slot.g)
            jobs.setdefault(slot.working, []).extend((part, g, recipe) for part in slot.parts)
        for dtype, todo in jobs.items():
            sweep(device, todo, lambda k, dtype=dtype, todo=todo: self._scratch_for(device, dtype, k, todo))

    def _recipe(self, group: dict[str, Any], device: Backend, slot: Slot, known: dict[Any, Recipe]) -> Recipe:
        dtype = slot.working
        key = (slot.state["step"], dtype)
        found = known.get(key) if self._shared else None
        if found is None:
            rule, numbers, flags, decay = self._rule(_plain(group), slot.state)
            constants, weight = _converted(device, dtype, numbers, decay)
            found = known[key] = (rule, weight, group["maximize"], constants, flags)
        return found

    def _scratch_for(self, backend: Backend, dtype: Any, number: int, jobs: list[Any]) -> list[Any]:
        size = max(job[0].size for job in jobs)
        found = self._scratch.get((backend, dtype, number))
        if found is None or found[0].size < size:
            found = self._scratch[backend, dtype, number] = [
                backend.xp.empty(size, dtype=dtype) for _ in range(self._spare + 2)
            ]
        return found


def _note(launches: Iterable[Launch], group: dict[str, Any], device: Backend, kernel: Kernel) -> None:
    # The launches that step parameters of `group` get its numbers.
    for launch in launches:
        line = launch.lines.get(id(group))
        if line is not None and launch.backend is device and launch.name == kernel[0]:
            launch.numbers[line] = kernel[1]


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    # A learning rate in a tensor is read in each step, which waits for its device.
    lr = group["lr"]
    return {**group, "lr": lr.item()} if isinstance(lr, Tensor) else group


def _ended(slots: Iterable[Slot]) -> None:
    for slot in slots:
        if slot.staged is not None:
            slot.array[...] = slot.staged
        slot.param.storage.version += 1
        slot.g = None


def _release(slot: Slot | None) -> None:
    if slot is not None and slot.home is not None:
        slot.home.remove(slot)


def _converted(
    backend: Backend, dtype: Any, numbers: tuple[float, ...], decay: float
) -> tuple[tuple[Any, ...], Any]:
    # 0-d arrays on the CPU: see rules.py.
    if backend.name != "cpu":
        return numbers, decay or None
    array = backend.xp.array
    return tuple(array(number, dtype) for number in numbers), array(decay, dtype) if decay else None
