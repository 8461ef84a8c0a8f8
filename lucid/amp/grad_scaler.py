"""`GradScaler`: the loss is multiplied by a large number so that float16 gradients do not vanish, and the
step divides it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..errors import DtypeError, GradError
from ..kernel import multi_tensor
from ..storage.backend import Backend
from ..storage.dtype import float16, float32
from ..tensor import Tensor, _wrap


class _Stage(Enum):
    READY, UNSCALED, STEPPED = range(3)


class _Optimizer:
    """What is known of one optimiser since the last `update`: its stage, and one flag per device, int32 and
    0-d, not 0 when a gradient there was inf or nan.
    """

    __slots__ = ("stage", "found", "skip")

    def __init__(self) -> None:
        self.stage = _Stage.READY
        self.found: dict[Backend, Any] = {}
        self.skip: bool | None = None

    def overflowed(self) -> bool:
        """Whether a gradient was inf or nan, read from the devices once."""
        if self.skip is None:
            self.skip = any(bool(backend.to_numpy(found)) for backend, found in self.found.items())
        return self.skip


class _OnDevice:
    """The scale and the number of good steps in a row, in the memory of a device that runs kernels."""

    __slots__ = ("backend", "scale", "good")

    def __init__(self, backend: Backend, scale: float, good: int) -> None:
        self.backend = backend
        self.scale = _wrap(backend.xp.full((), scale, "float32"), backend)
        self.good = backend.xp.full((), good, "int32")

    def update(self, states: list[_Optimizer], growth: float, backoff: float, interval: int) -> None:
        """Nothing; the next scale, without a wait when all flags lie on this device."""
        flags = [
            found if backend is self.backend else self.backend.from_numpy(backend.to_numpy(found))
            for state in states
            for backend, found in state.found.items()
        ]
        xp, found, scale = self.backend.xp, flags[0], self.scale.array
        for flag in flags[1:]:
            found = xp.maximum(found, flag)
        if not multi_tensor.next_scale(self.backend, scale, self.good, found, growth, backoff, interval):
            grown = scale * growth
            full = xp.logical_and(self.good + 1 >= interval, xp.isfinite(grown))
            scale[...] = xp.where(found, scale * backoff, xp.where(full, grown, scale))
            self.good[...] = xp.where(found, 0, (self.good + 1) % interval)
        self.scale.storage.version += 1


class GradScaler:
    """Scales the loss, unscales the gradients before the step, and skips a step with inf or nan.

    init_scale: the first factor. After a skipped step it is multiplied by backoff_factor, after
    growth_interval good ones in a row by growth_factor. Powers of two keep the gradients exact. With
    enabled=False every method passes through.

    On CUDA the scale lives on the device, one launch unscales all gradients of a dtype, and a step of SGD,
    Adam or AdamW is held back there: nothing waits (`get_scale` and `state_dict` do). For other optimisers
    the host reads one flag per step.

    >>> import lucid
    >>> model = lucid.nn.Linear(2, 1)
    >>> optimizer, scaler = lucid.optim.SGD(model.parameters(), lr=0.1), lucid.amp.GradScaler("cpu")
    >>> loss = model(lucid.ones(4, 2)).sum()
    >>> scaler.scale(loss).backward()
    >>> scaler.step(optimizer); scaler.update()
    >>> scaler.get_scale()
    65536.0
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1.0:
            raise ValueError(f"GradScaler: growth_factor must be above 1, got {growth_factor}")
        if not 0.0 < backoff_factor < 1.0:
            raise ValueError(f"GradScaler: backoff_factor must be between 0 and 1, got {backoff_factor}")
        self._device, self._enabled = device, bool(enabled)
        self._scale, self._growth_factor, self._backoff_factor = (
            float(init_scale),
            float(growth_factor),
            float(backoff_factor),
        )
        self._growth_interval, self._growth_tracker = int(growth_interval), 0
        # Once there, it holds the scale and the tracker in place of the two numbers above.
        self._placed: _OnDevice | None = None
        self._optimizers: dict[int, _Optimizer] = {}

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a tensor, or a list or tuple of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._factor(outputs.backend)
        if isinstance(outputs, Iterable):
            return type(outputs)(self.scale(o) for o in outputs)  # type: ignore[call-arg]
        raise DtypeError(
            f"GradScaler.scale: expected a tensor or a list of tensors, got {type(outputs).__name__}"
        )

    def _factor(self, backend: Backend) -> Any:
        # The scale as a device uses it: a number, or a 0-d float32 tensor there.
        if self._placed is None:
            if not backend.runs_kernels:
                return self._scale
            self._placed = _OnDevice(backend, self._scale, self._growth_tracker)
        placed = self._placed
        if placed.backend is backend:
            return placed.scale
        return placed.scale.to(backend.device) if backend.runs_kernels else placed.scale.item()

    def _fetch(self) -> None:
        # The two numbers as the device has them.
        if self._placed is not None:
            self._scale, self._growth_tracker = (
                float(self._placed.scale.item()),
                int(self._placed.backend.item(self._placed.good)),
            )

    def unscale_(self, optimizer: Any) -> None:
        """Nothing; divides the gradients of the optimiser's parameters by the scale, in place: before
        clipping them, for example.

        `step` does it if this was not called. Raises GradError when called twice for a step, DtypeError for
        float16 gradients, which only arise from float16 parameters.
        """
        if not self._enabled:
            return
        state = self._state(optimizer)
        if state.stage is not _Stage.READY:
            done = "were unscaled already" if state.stage is _Stage.UNSCALED else "went into a step()"
            raise GradError(
                f"GradScaler.unscale_: the gradients of this optimizer {done} since the last update(); call "
                "unscale_ once per step"
            )
        grads: dict[Backend, list[Tensor]] = {}
        for param in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            if param.grad.dtype is float16:
                raise DtypeError(
                    "GradScaler.unscale_: gradients of float16 parameters lose what the scale protects; keep "
                    "the parameters in float32 and let "
                    "autocast lower them"
                )
            grads.setdefault(param.grad.backend, []).append(param.grad)
        for backend, tensors in grads.items():
            with backend.quiet():
                state.found[backend] = self._unscale(backend, [g.array for g in tensors])
            for g in tensors:
                g.storage.version += 1
        state.stage = _Stage.UNSCALED

    def _unscale(self, backend: Backend, arrays: list[Any]) -> Any:
        # The flag of these gradients, which are divided by the scale.
        xp, factor = backend.xp, self._factor(backend)
        scale = factor.array if isinstance(factor, Tensor) else factor
        found = xp.zeros((), "int32")
        for array in multi_tensor.unscale(backend, arrays, scale, found):
            inverse = 1.0 / scale
            array *= inverse if isinstance(inverse, float) else inverse.astype(array.dtype)
            # In float32 for bfloat16, which some array modules cannot test.
            probe = array if array.dtype.itemsize > 2 else array.astype(float32)
            found = xp.logical_or(found, xp.logical_not(xp.isfinite(probe).all())).astype("int32")
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """What `optimizer.step(*args)` returns, or None when a gradient was inf or nan and the step was left
        out.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise GradError("GradScaler.step: a closure cannot be used; call it first, then step without one")
        state = self._state(optimizer)
        if state.stage is _Stage.STEPPED:
            raise GradError(
                "GradScaler.step: called twice since the last update(); call update() after each step"
            )
        if state.stage is _Stage.READY:
            self.unscale_(optimizer)
        if not state.found:
            raise GradError(
                "GradScaler.step: no parameter of this optimizer has a gradient; call scale(loss).backward() "
                "first"
            )
        state.stage = _Stage.STEPPED
        if len(state.found) == 1 and state.skip is None and not kwargs and _steps_on_device(optimizer):
            return optimizer.step_unless(state.found)
        return None if state.overflowed() else optimizer.step(**kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing; sets the scale for the next step, from what the optimisers met since the last call, or to
        `new_scale`.
        """
        if not self._enabled:
            return
        states = [state for state in self._optimizers.values() if state.found]
        if new_scale is not None:
            self._fetch()
            self._place(float(new_scale), self._growth_tracker)
        elif not states:
            raise GradError(
                "GradScaler.update: no gradients were unscaled since the last update(); call step(optimizer) "
                "first"
            )
        elif self._placed is not None:
            self._placed.update(states, self._growth_factor, self._backoff_factor, self._growth_interval)
        elif any([state.overflowed() for state in states]):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._growth_tracker = 0
                # A scale of inf would turn every later gradient to nan.
                if self._scale * self._growth_factor < 3.4e38:
                    self._scale *= self._growth_factor
        self._optimizers.clear()

    def _place(self, scale: float, tracker: int) -> None:
        self._scale, self._growth_tracker = scale, tracker
        if self._placed is not None:
            self._placed = _OnDevice(self._placed.backend, scale, tracker)

    def _state(self, optimizer: Any) -> _Optimizer:
        return self._optimizers.setdefault(id(optimizer), _Optimizer())

    # ---- what it is ----

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1 when disabled."""
        self._fetch()
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What a good run multiplies the scale by."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Nothing; sets it."""
        self._growth_factor = float(new_factor)

    def get_backoff_factor(self) -> float:
        """What a skipped step multiplies the scale by."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Nothing; sets it."""
        self._backoff_factor = float(new_factor)

    def get_growth_interval(self) -> int:
        """How many good steps in a row let the scale grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Nothing; sets it."""
        self._growth_interval = int(new_interval)

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs, as plain numbers under PyTorch's names; empty when disabled."""
        if not self._enabled:
            return {}
        self._fetch()
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing; goes on from a `state_dict()`. Raises ValueError for one of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise ValueError(
                "GradScaler.load_state_dict: the state is empty, as a disabled scaler saves it; "
                "make this one with enabled=False"
            )
        self._place(float(state_dict["scale"]), int(state_dict["_growth_tracker"]))
        self._growth_factor, self._backoff_factor = (
            float(state_dict["growth_factor"]),
            float(state_dict["backoff_factor"]),
        )
        self._growth_interval = int(state_dict["growth_interval"])


def _steps_on_device(optimizer: Any) -> bool:
    # Any object with param_groups and step() may be an optimiser.
    able = getattr(optimizer, "steps_on_device", None)
    return able is not None and able()
