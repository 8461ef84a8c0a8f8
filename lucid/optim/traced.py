"""A CUDA kernel from an update rule: all tensors of a dtype in one launch, by the formula of rules.py.

A rule is called once with a stand-in for `xp` that writes down what it does, a statement of CUDA per ufunc;
they become the body of a function of one element. The rest of the source is the same for every rule: blocks
of `CHUNK` elements, whose tensor, addresses and constants lie in tables, as in kernels/optimizer.cu. The
constants of a step are made on the host in float64 and sent when they have changed.

Each statement rounds as the ufunc does, without contraction to fused multiply-adds, so a step has the bits of
the rule. An element is 3 s + 2 k a bytes of traffic: s bytes of a parameter, k arrays of state with a bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ..fusion.cuda import compiled
from ..fusion.symbols import literal
from ..kernel import loader
from ..kernel.launch import launcher
from ..kernel.multi_tensor import generated_step
from ..storage.backend import Backend
from .slots import Recipe, Slot

# NumPy's conventions where CUDA has others: NaN passes through maximum and minimum, sign(-0.0) is 0.0.
_UFUNCS = {
    "add": "add_({0}, {1})",
    "subtract": "add_({0}, -{1})",
    "multiply": "mul_({0}, {1})",
    "divide": "div_({0}, {1})",
    "true_divide": "div_({0}, {1})",
    "negative": "-{0}",
    "absolute": "fabs_({0})",
    "abs": "fabs_({0})",
    "sqrt": "root_({0})",
    "square": "mul_({0}, {0})",
    "sign": "({0} > 0 ? accum_t(1) : {0} < 0 ? accum_t(-1) : {0} == 0 ? accum_t(0) : {0})",
    "maximum": "({0} >= {1} || {0} != {0} ? {0} : {1})",
    "minimum": "({0} <= {1} || {0} != {0} ? {0} : {1})",
}

_PRELUDE = """#include "lucid.cuh"
DEVICE float add_(float x, float y) { return __fadd_rn(x, y); }
DEVICE double add_(double x, double y) { return __dadd_rn(x, y); }
DEVICE float mul_(float x, float y) { return __fmul_rn(x, y); }
DEVICE double mul_(double x, double y) { return __dmul_rn(x, y); }
DEVICE float div_(float x, float y) { return __fdiv_rn(x, y); }
DEVICE double div_(double x, double y) { return __ddiv_rn(x, y); }
DEVICE float root_(float x) { return __fsqrt_rn(x); }
DEVICE double root_(double x) { return __dsqrt_rn(x); }
DEVICE float fabs_(float x) { return fabsf(x); }
DEVICE double fabs_(double x) { return fabs(x); }
"""


class Untraceable(Exception):
    """A rule that does what a kernel of one element cannot, or what nobody has written down here."""


class _Value:
    """A variable of the kernel, or a number of the step."""

    __slots__ = ("text", "written")

    def __init__(self, text: str, written: bool = True) -> None:
        # written: whether a rule may assign to it.
        self.text, self.written = text, written

    def __bool__(self) -> bool:
        raise Untraceable("a decision by value")

    def __eq__(self, other: object) -> bool:
        raise Untraceable("a comparison of values")


class _Recorder:
    """The `xp` of a traced rule: each ufunc with `out=` is an assignment."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __getattr__(self, name: str) -> Any:
        form = _UFUNCS.get(name)
        if form is None:
            raise Untraceable(f"xp.{name}")

        def ufunc(*operands: Any, out: _Value) -> None:
            if not out.written:
                raise Untraceable(f"a result in {out.text}")
            texts = [x.text if isinstance(x, _Value) else literal(x) for x in operands]
            self.lines.append(f"{out.text} = {form.format(*texts)};")

        return ufunc


@lru_cache(maxsize=256)
def source(
    rule: Any, flags: tuple[Any, ...], given: tuple[bool, ...], spare: int, numbers: int
) -> str | None:
    """The kernel of a rule; None when it cannot be traced.

    given: which of its arrays of state there are; spare: how many scratch arrays it takes; numbers: how many
    constants.
    """
    recorder, count = _Recorder(), sum(given)
    state = iter(range(count))
    arrays = [_Value(f"s[{next(state)}]") if there else None for there in given]
    scratch = [_Value(f"t{i}") for i in range(spare)]
    constants = [_Value(f"h[{2 + i}]", False) for i in range(numbers)]
    try:
        rule(recorder, _Value("p"), _Value("g", False), *arrays, *scratch, *constants, *flags)
    except (Untraceable, TypeError, AttributeError):
        return None
    names = ", ".join(f"{t.text} = 0" for t in scratch)
    return "\n".join(
        [
            _PRELUDE,
            f"#define STATES {count}",
            f"#define NUMBERS {2 + numbers}",
            "DEVICE void element(accum_t& p, accum_t g, accum_t* s, const accum_t* h) {",
            *([f"  accum_t {names};"] if scratch else []),
            "  g = mul_(h[1], g);",
            "  if (h[0] != 0) g = add_(mul_(p, h[0]), g);",
            *(f"  {line}" for line in recorder.lines),
            "}",
            _KERNEL,
        ]
    )


# own: rows of [tensors]: the line of `hyper`, then addresses of the parameter and of each array of state. A
# line of hyper: weight decay, -1 to maximise or 1, the rule's constants.
_KERNEL = """
KERNEL __launch_bounds__(256, 1) fused(
    const u64* __restrict__ own, const u64* __restrict__ grads, const accum_t* __restrict__ hyper,
    const i64* __restrict__ sizes, const int* __restrict__ block_tensor, const i64* __restrict__ block_start,
    i64 tensors, i64 chunk) {
  const int t = block_tensor[blockIdx.x];
  const i64 start = block_start[blockIdx.x], stop = min(sizes[t], start + chunk);
  accum_t h[NUMBERS];
#pragma unroll
  for (int j = 0; j < NUMBERS; j++) h[j] = hyper[(i64)own[t] * NUMBERS + j];
  scalar_t* p = (scalar_t*)own[tensors + t];
  const scalar_t* __restrict__ g = (const scalar_t*)grads[t];
  accum_t* a[STATES + 1];
  u64 bits = (u64)p | (u64)g;
#pragma unroll
  for (int j = 0; j < STATES; j++) {
    a[j] = (accum_t*)own[(2 + j) * tensors + t];
    bits |= (u64)a[j];
  }
  i64 i = start + threadIdx.x * PACK;
  if (bits % 16 == 0)
    for (; i + PACK <= stop; i += 256 * PACK) {
      pack x = load_wide<pack>(p + i);
      const pack y = load(g, i);
      accum_pack u[STATES + 1];
#pragma unroll
      for (int j = 0; j < STATES; j++) u[j] = load_wide<accum_pack>(a[j] + i);
      EACH(k) {
        accum_t value = up(x.v[k]), s[STATES + 1];
#pragma unroll
        for (int j = 0; j < STATES; j++) s[j] = u[j].v[k];
        element(value, up(y.v[k]), s, h);
        x.v[k] = down(value);
#pragma unroll
        for (int j = 0; j < STATES; j++) u[j].v[k] = s[j];
      }
      store_wide(p + i, x);
#pragma unroll
      for (int j = 0; j < STATES; j++) store_wide(a[j] + i, u[j]);
    }
  /* what is left: all of it when an address is odd, else fewer than PACK elements, which one thread has */
  for (; i < stop; i += 256 * PACK)
    for (i64 e = i; e < min(stop, i + PACK); e++) {
      accum_t value = up(p[e]), s[STATES + 1];
#pragma unroll
      for (int j = 0; j < STATES; j++) s[j] = a[j][e];
      element(value, up(g[e]), s, h);
      p[e] = down(value);
#pragma unroll
      for (int j = 0; j < STATES; j++) a[j][e] = s[j];
    }
}
"""


def step(todo: Iterable[tuple[Slot, Recipe]], backend: Backend, spare: int) -> list[tuple[Slot, Recipe]]:
    """The slots that no kernel takes, with their recipes; the others are stepped, in one launch for each
    dtype, rule and choice of flags.
    """
    calls: dict[Any, list[tuple[Slot, Recipe]]] = {}
    rest: list[tuple[Slot, Recipe]] = []
    for slot, recipe in todo:
        rule, _, _, constants, flags = recipe
        given = tuple(name is not None for name in slot.names)
        key = (rule, flags, given, spare, len(constants)), slot.arrays[0].dtype
        calls.setdefault(key, []).append((slot, recipe))
    for (key, dtype), jobs in calls.items():
        text = source(*key)
        function = None
        if text is not None and dtype.name in loader.MACRO:
            with contextlib.suppress(loader.Unavailable):
                function = compiled(backend, text, dtype.name, (), f"{key[0].__name__} step")
        if function is None:
            rest += jobs
        else:
            _launch(backend, function, jobs)
    return rest


def _launch(backend: Backend, function: Any, jobs: list[tuple[Slot, Recipe]]) -> None:
    launch = launcher(backend)
    own, grads, sizes, lines = [], [], [], []
    for slot, (_, decay, maximize, constants, _) in jobs:
        target = slot.arrays[0]
        if not slot.places:
            slot.places = tuple(launch.address(array) for array in slot.arrays if array is not None)
        g = slot.flat(slot.g.astype(slot.array.dtype, copy=False))
        own.append(slot.places)
        grads.append(g)
        sizes.append(target.size)
        lines.append((decay or 0.0, -1.0 if maximize else 1.0, *constants))
    generated_step(launch, function, own, grads, tuple(sizes), lines)
