"""`GradScaler`: the loss is multiplied by a large number so that float16 gradients do not vanish, and the
step divides it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..errors import DtypeError, GradError
from ..storage.dtype import float16, float32
from ..tensor import Tensor


class _Stage(Enum):
    READY, UNSCALED, STEPPED = range(3)


class _Optimizer:
    """What is known of one optimiser since the last `update`: its stage, and one "not finite" scalar per
    device.
    """

    __slots__ = ("stage", "found", "skip")

    def __init__(self) -> None:
        self.stage, self.found = _Stage.READY, {}  # type: tuple[_Stage, dict[Any, Any]]
        self.skip: bool | None = None

    def overflowed(self) -> bool:
        """Whether a gradient was inf or nan; the only place that waits for a device, once per optimiser and
        step.
        """
        if self.skip is None:
            self.skip = any(bool(backend.to_numpy(found)) for backend, found in self.found.items())
        return self.skip


class GradScaler:
    """Scales the loss, unscales the gradients once before the step, and skips the step when one of them is
    inf or nan.

    init_scale: the first factor. After a skipped step it is multiplied by backoff_factor, after
    growth_interval good ones in a row by growth_factor. Powers of two keep the gradients exact. With
    enabled=False every method passes through.

    The finite check is one scalar on the device per optimiser; the host reads it once per step.

    >>> import lucid
    >>> model = lucid.nn.Linear(2, 1)
    >>> optimizer, scaler = lucid.optim.SGD(model.parameters(), lr=0.1), GradScaler("cpu")
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
        self._optimizers: dict[int, _Optimizer] = {}

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a tensor, or a list or tuple of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            return type(outputs)(self.scale(o) for o in outputs)  # type: ignore[call-arg]
        raise DtypeError(
            f"GradScaler.scale: expected a tensor or a list of tensors, got {type(outputs).__name__}"
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
        factor = 1.0 / self._scale
        for param in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            storage = param.grad.storage
            array, backend = storage.array, storage.backend
            if array.dtype is float16:
                raise DtypeError(
                    "GradScaler.unscale_: gradients of float16 parameters lose what the scale protects; keep "
                    "the parameters in float32 and let "
                    "autocast lower them"
                )
            with backend.guard():
                array *= factor
                storage.version += 1
                # In float32 for bfloat16, which some array modules cannot test.
                probe = array if array.dtype.itemsize > 2 else array.astype(float32)
                bad = backend.xp.logical_not(backend.xp.isfinite(probe).all())
            known = state.found.get(backend)
            state.found[backend] = bad if known is None else backend.xp.logical_or(known, bad)
        state.stage = _Stage.UNSCALED

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
        return None if state.overflowed() else optimizer.step(**kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing; sets the scale for the next step, from what the optimisers met since the last call, or to
        `new_scale`.
        """
        if not self._enabled:
            return
        states = [state for state in self._optimizers.values() if state.found]
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not states:
            raise GradError(
                "GradScaler.update: no gradients were unscaled since the last update(); call step(optimizer) "
                "first"
            )
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

    def _state(self, optimizer: Any) -> _Optimizer:
        return self._optimizers.setdefault(id(optimizer), _Optimizer())

    # ---- what it is ----

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1 when disabled."""
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
        self._scale = float(state_dict["scale"])
        self._growth_factor, self._backoff_factor = (
            float(state_dict["growth_factor"]),
            float(state_dict["backoff_factor"]),
        )
        self._growth_interval, self._growth_tracker = (
            int(state_dict["growth_interval"]),
            int(state_dict["_growth_tracker"]),
        )
