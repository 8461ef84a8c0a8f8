"""A program on CUDA: its formulas, traced on symbols, become the source of one kernel.

Two shapes of kernel. Flat: every array has the region's shape or one element; a grid-stride loop over 16-byte packs. Tiles: something is broadcast along rows or
summed over them; blocks of (32, 8) threads walk down ranges of rows, as in kernels/bias_grad.cu, and column sums leave as partial sums per
range that `column_sum_finish` adds in order, so two runs give the same bits. Each distinct input is read once; each output is written once.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..errors import KernelError
from ..kernel import loader
from ..kernel.calls import _finish_columns
from ..kernel.launch import accumulator, launcher
from .region import COLUMN, FULL, ROW, SCALAR, Program, kind_of
from .symbols import Symbol, SymbolNamespace, Trace

# Overloads that lucid.cuh does not need itself.
PRELUDE = """#include "lucid.cuh"
#define BOTH(name) DEVICE float name##_(float x) { return name##f(x); } DEVICE double name##_(double x) { return name(x); }
BOTH(acos) BOTH(asin) BOTH(atan) BOTH(cos) BOTH(cosh) BOTH(erf) BOTH(expm1) BOTH(fabs) BOTH(lgamma) BOTH(log1p) BOTH(rsqrt) BOTH(sin) BOTH(sinh)
DEVICE float pow_(float x, float y) { return powf(x, y); }
DEVICE double pow_(double x, double y) { return pow(x, y); }
"""
_functions: dict[Any, Any] = {}
_failed: set[Any] = set()


class Kernel:
    """The source of a program's kernel, and what it must be given.

    inputs: positions of the values, "g" first. outs: kind of each output. tiled: which of the two shapes it has.
    """

    __slots__ = ("source", "tiled", "kinds", "outs")

    def __init__(self, program: Program, dtypes: list[Any], uniform: bool) -> None:
        self.kinds = [SCALAR if uniform else FULL, *program.kinds]
        # A sum to one number goes through column sums; a sum over the last dimension is written in full and summed after.
        self.outs = [FULL if o is None else kind_of(o, program.shape) or FULL for o in program.outs]
        self.tiled = ROW in self.kinds or COLUMN in self.kinds or ROW in self.outs or SCALAR in self.outs
        trace = Trace()
        results = _traced(program, trace)
        self.source = self._tiled(trace, results, dtypes) if self.tiled else self._flat(trace, results, dtypes)

    def _parameters(self, dtypes: list[Any]) -> list[str]:
        names = ["const scalar_t* __restrict__ x0"]
        names += [f"const {'unsigned char' if d.kind == 'b' else 'scalar_t'}* __restrict__ x{i}" for i, d in enumerate(dtypes, 1)]
        names += [f"scalar_t* __restrict__ o{i}" for i, kind in enumerate(self.outs) if kind in (FULL, COLUMN)]
        return names + [f"accum_t* __restrict__ sum{i}" for i, kind in enumerate(self.outs) if kind in (ROW, SCALAR)]

    def _value(self, i: int, dtypes: list[Any], one: bool, index: str, row: str, column: str) -> tuple[str, str]:
        """(statement before the loop over a pack, expression of element k) for input i."""
        kind, is_mask = self.kinds[i], i > 0 and dtypes[i - 1].kind == "b"
        place = {FULL: index, ROW: column, COLUMN: row, SCALAR: "0"}[kind]
        if is_mask:
            return "", f"(bool)x{i}[{place}{'' if kind in (COLUMN, SCALAR) else ' + k'}]"
        if kind in (COLUMN, SCALAR) or one:
            return "", f"up(x{i}[{place}{' + k' if one and kind in (FULL, ROW) else ''}])"
        return f"const pack p{i} = load(x{i}, {place});", f"up(p{i}.v[k])"

    def _body(self, trace: Trace, results: list[str], dtypes: list[Any], one: bool, index: str, row: str, column: str, indent: str) -> list[str]:
        values = [self._value(i, dtypes, one, index, row, column) for i in range(len(self.kinds))]
        lines = [before for before, _ in values if before]
        full = [i for i, kind in enumerate(self.outs) if kind in (FULL, COLUMN)]
        sums = [i for i, kind in enumerate(self.outs) if kind in (ROW, SCALAR)]
        lines += [f"pack z{i};" for i in full if not one]
        lines.append("{ const int k = 0;" if one else "EACH(k) {")
        lines += [f"  const {'bool' if i > 0 and dtypes[i - 1].kind == 'b' else 'accum_t'} v{i} = {text};" for i, (_, text) in enumerate(values)]
        lines += [f"  {line}" for line in trace.lines]
        lines += [f"  o{i}[{index}] = down({results[i]});" if one else f"  z{i}.v[k] = down({results[i]});" for i in full]
        lines += [f"  s{i}[k] += {results[i]};" for i in sums]
        lines.append("}")
        lines += [f"store(o{i}, {index}, z{i});" for i in full if not one]
        return [indent + line for line in lines]

    def _flat(self, trace: Trace, results: list[str], dtypes: list[Any]) -> str:
        packs = self._body(trace, results, dtypes, False, "i", "", "", "    ")
        tail = self._body(trace, results, dtypes, True, "i", "", "", "    ")
        return "\n".join([PRELUDE, f"KERNEL __launch_bounds__(256) fused({', '.join(self._parameters(dtypes))}, i64 n) {{",
                          "  FOR_PACKS(i, n) {", *packs, "  }", "  FOR_TAIL(i, n) {", *tail, "  }", "}"])

    def _tiled(self, trace: Trace, results: list[str], dtypes: list[Any]) -> str:
        sums = [i for i, kind in enumerate(self.outs) if kind in (ROW, SCALAR)]
        body = self._body(trace, results, dtypes, False, "r * cols + c", "r", "c", "      ")
        finish = []
        for i in sums:
            finish += [f"  {{ accum_pack mine; EACH(k) mine.v[k] = s{i}[k];", "    __syncthreads();", "    shared[threadIdx.y][threadIdx.x] = mine;", "    __syncthreads();",
                       "    if (threadIdx.y == 0 && c < cols) {", "      for (int y = 1; y < 8; y++) { const accum_pack other = shared[y][threadIdx.x]; EACH(k) mine.v[k] += other.v[k]; }",
                       f"      store(sum{i}, blockIdx.y * cols + c, mine);", "    }", "  }"]
        return "\n".join([PRELUDE, f"KERNEL __launch_bounds__(256) fused({', '.join(self._parameters(dtypes))}, i64 rows, i64 cols) {{",
                          *(["  __shared__ accum_pack shared[8][32];"] if sums else []),
                          "  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;",
                          "  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = blockIdx.y * each, r1 = min(rows, r0 + each);",
                          *[f"  accum_t s{i}[PACK] = {{}};" for i in sums],
                          "  if (c < cols) {", "    for (i64 r = r0 + threadIdx.y; r < r1; r += 8) {", *body, "    }", "  }", *finish, "}"])


def _traced(program: Program, trace: Trace) -> list[str]:
    """The expression of each output, after the program's formulas ran on symbols. Raises NoCudaForm."""
    F = SymbolNamespace(trace)
    waiting: list[Any] = [None] * len(program.steps)
    waiting[0] = Symbol(trace, "v0")
    outs: list[Any] = [None] * len(program.outs)
    for k, step in enumerate(program.steps):
        g = waiting[k]
        for formula, sources, results in step.calls:
            args = [Symbol(trace, f"v{s + 1}", program.values[s].dtype) if what == "value" else s for what, s in sources]
            found = formula.function(F, g, *args)
            for r, goal in zip(found if formula.shared else (found,), results, strict=True):
                if goal is None or r is None:
                    continue
                where, m = goal
                box = waiting if where == "node" else outs
                box[m] = r if box[m] is None else box[m] + r
                if where == "both":
                    outs[-1] = outs[m]
    return [o.text if isinstance(o, Symbol) else f"accum_t({o!r})" for o in outs]


def obstacle(program: Program, g: Any) -> str | None:
    """Why this device runs the parts one by one, or None: element types that do not agree."""
    for v in program.values:
        if v.dtype != g.dtype and v.dtype.kind != "b":
            return "dtypes"
    return None if g.dtype.name in loader.MACRO else "dtypes"


def run(program: Program, g: Any, F: Any) -> list[Any]:
    """The gradients of a program's outputs for the gradient `g` of its head: one launch, and a small one where sums are finished."""
    launch = launcher(F.backend)
    uniform = bool(g.size) and not any(g.strides)
    g = g[(slice(0, 1),) * g.ndim] if uniform else F.backend.xp.ascontiguousarray(g)
    dtypes = [v.dtype for v in program.values]
    kernel = Kernel(program, dtypes, uniform)
    cols = program.shape[-1] if program.shape else 1
    size = int(np.prod(program.shape, dtype=np.int64))
    arrays = [g, *program.values]
    scalar = kernel.tiled and cols % (16 // g.dtype.itemsize) or any(launch.address(a) % 16 for a, k in zip(arrays, kernel.kinds, strict=True) if k in (FULL, ROW))
    defines = ("LUCID_SCALAR",) if scalar else ()
    function = _compiled(F.backend, kernel.source, g.dtype.name, defines)
    outs = [launch.empty(program.shape, g.dtype) if kind in (FULL, COLUMN) else None for kind in kernel.outs]
    arguments = [*arrays, *(o for o in outs if o is not None)]
    pack = 1 if scalar else 16 // g.dtype.itemsize
    if not kernel.tiled:
        blocks = max(1, min(-(-size // (256 * pack)), 32 * launch.sms))
        function((blocks,), (256,), (*arguments, np.int64(size)))
        return outs
    rows = size // cols
    tiles = -(-cols // (32 * pack))
    ranges = max(1, min(-(-rows // 32), -(-4 * launch.sms // tiles)))
    partials = {i: launch.empty((ranges, cols), accumulator(g.dtype)) for i, kind in enumerate(kernel.outs) if kind in (ROW, SCALAR)}
    function((tiles, ranges), (32, 8), (*arguments, *partials.values(), np.int64(rows), np.int64(cols)))
    for i, partial in partials.items():
        outs[i] = _finish_columns(launch, partial, 1, ranges, cols, g.dtype)[0]
    return [_summed(F, o, kind, program.outs[i]) for i, (o, kind) in enumerate(zip(outs, kernel.outs, strict=True))]


def _summed(F: Any, out: Any, kind: str, shape: Any) -> Any:
    if kind == COLUMN:
        return F.sum_to(out, shape)
    if kind == SCALAR:
        return F.sum(out, None, False).reshape(shape)
    return out if shape is None else out.reshape(shape)


def _compiled(backend: Any, source: str, dtype: str, defines: tuple[str, ...]) -> Any:
    key = (backend.device, source, dtype, defines)
    if key in _failed:
        raise loader.Unavailable("a fused kernel that did not compile before")
    found = _functions.get(key)
    if found is None:
        try:
            found = _functions[key] = loader.from_source(backend, f'#line 1 "fused.cu"\n{source}', "fused", loader.options(dtype, defines), "fused run")
        except KernelError as error:
            _failed.add(key)
            warnings.warn(f"{error}. Its parts run one by one", RuntimeWarning, stacklevel=2)
            raise loader.Unavailable(str(error)) from error
    return found
