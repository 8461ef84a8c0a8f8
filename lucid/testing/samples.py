"""From an op's samples to arrays: what the generated tests feed it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..ops.registry import A, Op, Sample
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype

KINK_DISTANCE = 0.05


class Case:
    """One sample of one op: host arrays for its tensors (None where absent), and static arguments.

    >>> import lucid
    >>> from lucid.ops.registry import OPS
    >>> from lucid.testing import cases_of
    >>> case = next(cases_of(OPS["tanh"]))
    >>> case.op.name, case.dtype
    ('tanh', 'float64')
    """

    def __init__(self, op: Op, sample: Sample, number: int, dtype: str = "float64") -> None:
        self.op, self.sample, self.dtype = op, sample, dtype
        self.id = f"{op.name}-{number}" + ("-complex" if dtype.startswith("complex") else "")
        # Seeded by the op's name, so that a failure repeats.
        rng = np.random.default_rng(zlib.crc32(op.name.encode()) + number)
        given: dict[str, Any] = {}
        names = [p.name for p in op.parameters]
        if op.variadic:
            self.arrays: list[Any] = [self._array(a, rng) for a in sample.args]
        else:
            given = dict(zip(names, sample.args, strict=False)) | sample.kwargs
            self.arrays = [
                self._array(given[t], rng) if given.get(t) is not None else None for t in op.tensors
            ]
        self.statics: dict[str, Any] = {}
        for p in op.parameters:
            if p.name in op.statics:
                if p.name in given or p.name in sample.kwargs:
                    self.statics[p.name] = given.get(p.name, sample.kwargs.get(p.name))
                elif p.default is not p.empty:
                    self.statics[p.name] = p.default

    def __repr__(self) -> str:
        return self.id

    def _array(self, spec: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        spec = spec if isinstance(spec, A) else A(spec) if isinstance(spec, tuple) else A(value=spec)
        if spec.value is not None:
            a = np.asarray(spec.value)
            return a if a.dtype.kind in "ib" else a.astype(self.dtype)
        kind = as_dtype(spec.dtype).kind
        if kind in "iu":
            return rng.integers(
                int(spec.low or 0), int(spec.high if spec.high is not None else 10), spec.shape
            ).astype(spec.dtype)
        if kind == "b":
            return rng.random(spec.shape) < 0.5
        dtype = self.dtype if spec.dtype == "float64" else spec.dtype
        a = (
            rng.standard_normal(spec.shape)
            if spec.low is None and spec.high is None
            else rng.uniform(
                0.0 if spec.low is None else spec.low, 1.0 if spec.high is None else spec.high, spec.shape
            )
        )
        if as_dtype(dtype).kind == "c":
            a = a + 1j * rng.standard_normal(spec.shape) * 0.5
        for kink in self.sample.avoid:
            near = np.abs(a - kink) < KINK_DISTANCE
            a = np.where(
                near, kink + np.where(np.real(a) >= kink, 1.0, -1.0) * (KINK_DISTANCE + np.abs(a - kink)), a
            )
        return np.asarray(a, dtype)

    @property
    def differentiable(self) -> list[int]:
        """Positions of the tensors that have a gradient."""
        names = self.op.tensors * (len(self.arrays) if self.op.variadic else 1)
        return [
            i
            for i, (n, a) in enumerate(zip(names, self.arrays, strict=True))
            if a is not None and as_dtype(a.dtype).num >= 11 and (n in self.op.formulas or self.op.composite)
        ]

    def arguments(self, values: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of a call with `values` in the place of the tensors."""
        if self.op.variadic:
            return list(values), dict(self.statics)
        named = dict(zip(self.op.tensors, values, strict=True)) | self.statics
        args, kwargs, by_name = [], {}, False
        for p in self.op.parameters:
            if p.name not in named:
                by_name = True
            elif by_name or p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = named[p.name]
            else:
                args.append(named[p.name])
        return args, kwargs

    def device_arrays(self, device: str, dtype: Any = None) -> list[Any]:
        """The arrays on a device; floating ones in `dtype` when one is given."""
        backend = backend_of(device)
        out = []
        for a in self.arrays:
            if a is not None and dtype is not None and as_dtype(a.dtype).num >= 11 and a.dtype.kind != "c":
                a = a.astype(dtype)
            out.append(None if a is None else backend.from_numpy(a.copy()))
        return out

    def raw(self, device: str, values: list[Any]) -> Any:
        """The raw op's result on arrays of a device."""
        args, kwargs = self.arguments(values)
        return getattr(backend_of(device).F, self.op.name)(*args, **kwargs)


def cases_of(op: Op) -> Iterator[Case]:
    """Every case of an op: each sample in float64, and in complex128 where it says so.

    >>> import lucid
    >>> from lucid.ops.registry import OPS
    >>> from lucid.testing import cases_of
    >>> len(list(cases_of(OPS["tanh"]))) >= 1
    True
    """
    for i, sample in enumerate(op.samples):
        yield Case(op, sample, i)
        if sample.complex:
            yield Case(op, sample, i, "complex128")
