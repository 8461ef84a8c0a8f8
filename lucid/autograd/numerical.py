"""`gradcheck` and `gradgradcheck`: derivatives against central differences.

Instead of whole Jacobians two scalars are compared per input: the vector-Jacobian product with random vectors
v and u, <u, J^T v>, and the central difference of <v, f(x + t u)>. Any shape then costs two evaluations per
direction (the method of HIPS autograd's check_grads).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import GradcheckError
from ..storage.storage import Storage
from .engine import Engine
from .impl import TensorImpl, describe
from .mode import no_grad


def _outputs(out: Any) -> list[Any]:
    outs = [out] if isinstance(out, TensorImpl) else list(out)
    return [o for o in outs if isinstance(o, TensorImpl) and o.storage.array.dtype.num >= 11]


def _random_like(rng: np.random.Generator, t: Any) -> np.ndarray[Any, Any]:
    v = rng.standard_normal(t.shape)
    return v + 1j * rng.standard_normal(t.shape) if t.dtype.kind == "c" else v


def _dot(a: Any, b: Any) -> float:
    """Re <a, b>, the real inner product in which gradients of real functions are taken."""
    return float(np.real(np.vdot(a, b)))


def _place(t: Any, value: np.ndarray[Any, Any]) -> Any:
    backend = t.storage.backend
    return TensorImpl.from_storage(Storage(backend.from_numpy(np.asarray(value, t.dtype)), backend))


def _host(t: Any) -> np.ndarray[Any, Any]:
    return np.asarray(t.storage.backend.to_numpy(t.storage.array))


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    directions: int = 3,
    seed: int = 0,
) -> bool:
    """True when the gradients of `func` agree with central differences in random directions.

    func: takes the inputs, returns a tensor or several. inputs: tensors (float64 recommended), of which those
    that require grad are checked.
    eps: the step. Raises GradcheckError naming input, analytic and numerical value (or returns False with
    raise_exception=False).

    >>> import lucid
    >>> x = lucid.tensor([0.3, 1.0], dtype=lucid.float64, requires_grad=True)
    >>> lucid.autograd.gradcheck(lambda x: x.sin(), x)
    True
    """
    listed = (inputs,) if isinstance(inputs, TensorImpl) else tuple(inputs)
    rng = np.random.default_rng(seed)
    checked = [i for i, t in enumerate(listed) if isinstance(t, TensorImpl) and t.requires_grad]
    if not checked:
        raise GradcheckError(
            "gradcheck: expected at least one input that requires grad, got none; set requires_grad=True"
        )
    for i in checked:
        if listed[i].dtype.itemsize < 8:
            raise GradcheckError(
                f"gradcheck: input {i} is {listed[i].dtype.name}, too coarse for a step of {eps}; use float64"
            )
    for _ in range(directions):
        outs = _outputs(func(*listed))
        vs = [_random_like(rng, o) for o in outs]
        pairs = [(o, v) for o, v in zip(outs, vs, strict=True) if o.requires_grad]
        if pairs:
            found = Engine.grad(
                [o for o, _ in pairs], [_place(o, v) for o, v in pairs], [listed[i] for i in checked]
            )
        else:
            found = [None] * len(checked)
        for i, g in zip(checked, found, strict=True):
            u = _random_like(rng, listed[i])
            analytic = 0.0 if g is None else _dot(_host(g), u)
            numerical = _difference(func, listed, i, u, vs, eps)
            if not np.isclose(analytic, numerical, rtol=rtol, atol=atol):
                message = (
                    f"gradcheck: the gradient with respect to input {i} ({describe(listed[i])}) is "
                    f"{analytic:.8g} in a random direction, central differences give {numerical:.8g} (rtol "
                    f"{rtol:g}, atol {atol:g}); the backward of some operation in func is wrong, "
                    "or func is not smooth at this point"
                )
                if raise_exception:
                    raise GradcheckError(message)
                return False
    return True


def _difference(
    func: Callable[..., Any], listed: tuple[Any, ...], i: int, u: Any, vs: list[Any], eps: float
) -> float:
    base = _host(listed[i]).copy()
    values = []
    for step in (eps, -eps):
        shifted = list(listed)
        shifted[i] = _place(listed[i], base + step * u)
        # Recording stays off unless func itself needs it: gradgradcheck passes a func that differentiates.
        shifted[i].requires_grad = True
        values.append(sum(_dot(v, _host(o)) for v, o in zip(vs, _outputs(func(*shifted)), strict=True)))
    return (values[0] - values[1]) / (2 * eps)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    directions: int = 2,
    seed: int = 0,
) -> bool:
    """True when the second derivatives of `func` agree with central differences of its first ones.

    Arguments as in `gradcheck`.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], dtype=lucid.float64, requires_grad=True)
    >>> lucid.autograd.gradgradcheck(lambda x: x ** 3, (x,))
    True
    """
    listed = (inputs,) if isinstance(inputs, TensorImpl) else tuple(inputs)
    rng = np.random.default_rng(seed + 1)
    with no_grad():
        outs = _outputs(func(*listed))
    given = grad_outputs if grad_outputs is not None else [_place(o, _random_like(rng, o)) for o in outs]
    seeds = [given] if isinstance(given, TensorImpl) else list(given)
    for s in seeds:
        s.requires_grad = True
    checked = [i for i, t in enumerate(listed) if isinstance(t, TensorImpl) and t.requires_grad]

    def first(*args: Any) -> list[Any]:
        xs, gs = args[: len(listed)], args[len(listed) :]
        pairs = [(o, g) for o, g in zip(_outputs(func(*xs)), gs, strict=True) if o.requires_grad]
        if not pairs:
            return []
        found = Engine.grad(
            [o for o, _ in pairs], [g for _, g in pairs], [xs[i] for i in checked], create_graph=True
        )
        return [
            g if g is not None else _place(xs[i], np.zeros(xs[i].shape))
            for i, g in zip(checked, found, strict=True)
        ]

    return gradcheck(
        first,
        (*listed, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        directions=directions,
        seed=seed,
    )
