"""A body on CUDA: its trace becomes the source of one kernel.

Two shapes of kernel. Flat: every array has the region's shape or one element; a grid-stride loop over 16-byte
packs. Tiles: something is broadcast along rows or summed over them; blocks of (32, 8) threads walk down
ranges of rows, as in kernels/bias_grad.cu, and column sums leave as partial sums per range that
`column_sum_finish` adds in order, so two runs give the same bits. Each distinct input is read once; each
output is written once.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..errors import KernelError
from ..kernel import loader
from ..kernel.calls import _finish_columns, by_rows, row_threads
from ..kernel.launch import accumulator, launcher
from .body import Body, finished, shaped, text_of
from .region import COLUMN, FULL, REPEAT, ROW, SCALAR, STATE
from .symbols import NoCudaForm, Symbol, literal

# Overloads that lucid.cuh does not need itself.
PRELUDE = """#include "lucid.cuh"
#define BOTH(name) \\
  DEVICE float name##_(float x) { return name##f(x); } DEVICE double name##_(double x) { return name(x); }
BOTH(acos) BOTH(asin) BOTH(atan) BOTH(cos) BOTH(cosh) BOTH(erf) BOTH(expm1) BOTH(fabs) BOTH(lgamma)
BOTH(log1p) BOTH(rsqrt) BOTH(sin) BOTH(sinh)
DEVICE float pow_(float x, float y) { return powf(x, y); }
DEVICE double pow_(double x, double y) { return pow(x, y); }
"""
MOST_COLUMNS = 1 << 30
_functions: dict[Any, Any] = {}
_failed: set[Any] = set()


class Kernel:
    """The source of a body's kernel.

    wanted: positions of the results to compute. written, sums: which of them leave in full, and which
    as partial sums. tiled: which of the two shapes it has.
    """

    __slots__ = ("source", "tiled", "kinds", "written", "sums", "needed", "rows")

    def __init__(self, body: Body, wanted: list[int]) -> None:
        self.kinds = body.kinds
        outs = [body.out_kinds()[i] for i in wanted]
        # A sum along the last dimension is written in full and summed after.
        self.written = [i for i, kind in enumerate(outs) if kind in (FULL, COLUMN)]
        self.sums = [i for i, kind in enumerate(outs) if kind in (ROW, SCALAR)]
        self.rows = body.trace.row_sums()
        if self.rows:
            # Blocks own rows, not columns: sums over rows are left to a second pass.
            self.written, self.sums = list(range(len(outs))), []
        self.tiled = bool(self.rows) or bool({ROW, COLUMN, REPEAT} & set(self.kinds)) or ROW in outs
        self.needed = body.trace.needed([body.results[i] for i in wanted])
        results = [_text(body.results[i]) for i in wanted]
        self.source = (
            self._row(body, wanted, results)
            if self.rows
            else self._tiled(body, results)
            if self.tiled
            else self._flat(body, results)
        )

    def _parameters(self, body: Body) -> list[str]:
        types = {"b": "unsigned char", "u": "u64"}
        names = [
            f"const {types.get(x.dtype.kind, 'scalar_t')}* __restrict__ x{i}"
            for i, x in enumerate(body.inputs)
        ]
        names += [f"scalar_t* __restrict__ o{i}" for i in self.written]
        names += [f"accum_t* __restrict__ sum{i}" for i in self.sums]
        return names + [
            f"i64 {n}{i}_{j}"
            for i in sorted(body.repeat)
            for j in range(len(body.repeat[i]))
            for n in ("div", "mod", "step")
        ] + [f"u64 skip{i}" for i in range(body.trace.skips)]

    def _value(self, body: Body, i: int, one: bool, index: str) -> tuple[str, str]:
        """(statement before the loop over a pack, expression of element k) for input i."""
        kind, x = self.kinds[i], body.inputs[i]
        single = kind in (COLUMN, SCALAR) or kind == REPEAT and x.shape[-1] == 1
        place = {
            FULL: index,
            ROW: "c",
            COLUMN: "r",
            SCALAR: "0",
            REPEAT: f"q{i}" if single else f"q{i} * cols + c",
        }[kind]
        if x.dtype.kind == "b":
            return "", f"(bool)x{i}[{place}{'' if single else ' + k'}]"
        if single or one:
            return "", f"up(x{i}[{place}{'' if single else ' + k'}])"
        return f"const pack p{i} = load(x{i}, {place});", f"up(p{i}.v[k])"

    def _body(
        self,
        body: Body,
        results: list[str],
        one: bool,
        index: str,
        indent: str,
        needed: Any = None,
        known: Any = (),
        last: str = "",
    ) -> list[str]:
        """The code of one pack. needed, known: names of the trace to compute and those at hand; last: what is
        done in the place of storing results.
        """
        lines = []
        needed = self.needed if needed is None else needed
        for i in sorted(body.repeat):
            row = (
                " + ".join(f"r / div{i}_{j} % mod{i}_{j} * step{i}_{j}" for j in range(len(body.repeat[i])))
                or "0"
            )
            lines.append(f"const i64 q{i} = {row};")
        if any(f"v{i}" in needed for i, kind in enumerate(self.kinds) if kind == STATE):
            lines.append(f"const i64 at = {index};")
        values = {
            i: self._value(body, i, one, index)
            for i, kind in enumerate(self.kinds)
            if f"v{i}" in needed and kind != STATE
        }
        lines += [before for before, _ in values.values() if before]
        lines += [f"pack z{i};" for i in self.written if not one and not last]
        lines.append("{ const int k = 0;" if one else "EACH(k) {")
        lines += [
            f"  const {'bool' if body.inputs[i].dtype.kind == 'b' else 'accum_t'} v{i} = {text};"
            for i, (_, text) in values.items()
        ]
        lines += [
            f"  {line}"
            for line, step in zip(body.trace.lines, body.trace.steps, strict=True)
            if step[0] in needed and step[0] not in known
        ]
        if last:
            return [indent + line for line in [*lines, f"  {last}", "}"]]
        lines += [
            f"  o{i}[{index}] = down({results[i]});" if one else f"  z{i}.v[k] = down({results[i]});"
            for i in self.written
        ]
        lines += [f"  s{i}{'[k]' if self.tiled else ''} += {results[i]};" for i in self.sums]
        lines.append("}")
        lines += [f"store(o{i}, {index}, z{i});" for i in self.written if not one]
        return [indent + line for line in lines]

    def _flat(self, body: Body, results: list[str]) -> str:
        packs = self._body(body, results, False, "i", "    ")
        tail = self._body(body, results, True, "i", "    ")
        finish = []
        for i in self.sums:
            finish += [
                "  __syncthreads();",
                f"  s{i} = warp_sum(s{i});",
                f"  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = s{i};",
                "  __syncthreads();",
                "  if (threadIdx.x == 0) {",
                f"    for (int w = 1; w < 8; w++) s{i} += shared[w];",
                f"    sum{i}[blockIdx.x] = s{i};",
                "  }",
            ]
        return "\n".join(
            [
                PRELUDE,
                f"KERNEL __launch_bounds__(256) fused({', '.join(self._parameters(body))}, i64 n) {{",
                *(["  __shared__ accum_t shared[8];"] if self.sums else []),
                *[f"  accum_t s{i} = 0;" for i in self.sums],
                "  FOR_PACKS(i, n) {",
                *packs,
                "  }",
                "  FOR_TAIL(i, n) {",
                *tail,
                "  }",
                *finish,
                "}",
            ]
        )

    def _tiled(self, body: Body, results: list[str]) -> str:
        lines = self._body(body, results, False, "r * cols + c", "      ")
        finish = []
        for i in self.sums:
            finish += [
                f"  {{ accum_pack mine; EACH(k) mine.v[k] = s{i}[k];",
                "    __syncthreads();",
                "    shared[threadIdx.y][threadIdx.x] = mine;",
                "    __syncthreads();",
                "    if (threadIdx.y == 0 && c < cols) {",
                "      for (int y = 1; y < 8; y++) { const accum_pack other = shared[y][threadIdx.x]; "
                "EACH(k) mine.v[k] += other.v[k]; }",
                f"      store(sum{i}, blockIdx.y * cols + c, mine);",
                "    }",
                "  }",
            ]
        return "\n".join(
            [
                PRELUDE,
                f"KERNEL __launch_bounds__(256) fused({', '.join(self._parameters(body))}, i64 rows, "
                "i64 cols) {",
                *(["  __shared__ accum_pack shared[8][32];"] if self.sums else []),
                "  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;",
                "  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = blockIdx.y * each, "
                "r1 = min(rows, r0 + each);",
                *[f"  accum_t s{i}[PACK] = {{}};" for i in self.sums],
                "  if (c < cols) {",
                "    for (i64 r = r0 + threadIdx.y; r < r1; r += 8) {",
                *lines,
                "    }",
                "  }",
                *finish,
                "}",
            ]
        )

    def _row(self, body: Body, wanted: list[int], results: list[str]) -> str:
        """Rows, LUCID_THREADS threads each: a pass over the row per sum along it, then one that stores.

        The row is in cache after the first.
        """
        known: list[str] = []
        lines = []
        for name, what in self.rows:
            if name not in self.needed:
                continue
            needed = body.trace.needed([what], frozenset(known))
            lines += [
                f"    accum_t {name} = 0;",
                "    FOR_COLUMNS(c) {",
                "      accum_t part = 0;",
                *self._body(
                    body, results, False, "r * cols + c", "      ", needed, known, f"part += {what.text};"
                ),
                f"      {name} += part;",
                "    }",
                f"    {name} = row_sum({name}, 0, shared).x;",
            ]
            known.append(name)
        needed = body.trace.needed([body.results[i] for i in wanted], frozenset(known))
        lines += [
            "    FOR_COLUMNS(c) {",
            *self._body(body, results, False, "r * cols + c", "      ", needed, known),
            "    }",
        ]
        return "\n".join(
            [
                PRELUDE,
                f"KERNEL ROW_BOUNDS fused({', '.join(self._parameters(body))}, i64 rows, i64 cols_) {{",
                "  const int cols = (int)cols_;",
                "  __shared__ pair shared[WARPS];",
                "  FOR_ROWS(r) {",
                *lines,
                "  }",
                "}",
            ]
        )


def _text(result: Any) -> str:
    return result.text if isinstance(result, Symbol) else literal(result)


def run(body: Body, F: Any) -> list[Any]:
    """The arrays of a body's outputs: one launch, and a small one where sums are finished."""
    with F.backend.guard():
        return finished(body, lambda b, wanted: _launch(b, wanted, F), F)


def _launch(body: Body, wanted: list[int], F: Any) -> list[Any]:
    launch = launcher(F.backend)
    body.inputs = [v if v.flags.c_contiguous else F.backend.xp.ascontiguousarray(v) for v in body.inputs]
    kinds = body.out_kinds()
    key = (
        *body.kinds,
        *((i, len(r), body.inputs[i].shape[-1] != 1) for i, r in body.repeat.items()),
        *(kinds[i] for i in wanted),
        *map(text_of, (body.results[i] for i in wanted)),
    )
    kernel = body.trace.codes.get(key)
    if kernel is None:
        kernel = body.trace.codes[key] = Kernel(body, wanted)
    if kernel.rows and body.shape[-1] > MOST_COLUMNS:
        raise NoCudaForm("rows of more than 2^30 elements")
    cols = body.shape[-1] if body.shape else 1
    size, dtype = body.size, body.dtype
    if not size:
        return [
            launch.zeros(body.shape if i in kernel.written else body.outs[w], dtype)
            for i, w in enumerate(wanted)
        ]
    packed = [
        a
        for a, k in zip(body.inputs, body.kinds, strict=True)
        if k in (FULL, ROW) or k == REPEAT and a.shape[-1] != 1
    ]
    scalar = (
        kernel.tiled
        and cols % (16 // dtype.itemsize)
        or any(launch.address(a) % 16 for a in packed if a.dtype == dtype)
    )
    pack = 1 if scalar else 16 // dtype.itemsize
    threads = row_threads(cols)
    defines = ((f"LUCID_THREADS={threads}",) if kernel.rows else ()) + (("LUCID_SCALAR",) if scalar else ())
    function = compiled(F.backend, kernel.source, dtype.name, defines, body.name)
    found = {i: launch.empty(body.shape, dtype) for i in kernel.written}
    wide = accumulator(dtype)
    triples = (triple for i in sorted(body.repeat) for triple in body.repeat[i])
    numbers: list[Any] = [np.int64(n) for triple in triples for n in triple]
    if body.program is not None:
        numbers += [np.uint64(n) for n in body.program.skips[: body.trace.skips]]
    if not kernel.tiled:
        blocks = max(1, min(-(-size // (256 * pack)), 32 * launch.sms))
        partial = {i: launch.empty(blocks, wide) for i in kernel.sums}
        function(
            (blocks,), (256,), (*body.inputs, *found.values(), *partial.values(), *numbers, np.int64(size))
        )
        found |= {i: F.sum(p, None, False).astype(dtype, copy=False) for i, p in partial.items()}
    elif kernel.rows:
        function(
            *by_rows(launch, size // cols, threads),
            (*body.inputs, *found.values(), *numbers, np.int64(size // cols), np.int64(cols)),
        )
    else:
        rows, tiles = size // cols, -(-cols // (32 * pack))
        ranges = max(1, min(-(-rows // 32), -(-4 * launch.sms // tiles)))
        partial = {i: launch.empty((ranges, cols), wide) for i in kernel.sums}
        function(
            (tiles, ranges),
            (32, 8),
            (*body.inputs, *found.values(), *partial.values(), *numbers, np.int64(rows), np.int64(cols)),
        )
        for i, p in partial.items():
            sums = _finish_columns(launch, p, 1, ranges, cols, dtype)[0]
            found[i] = sums if kinds[wanted[i]] == ROW else F.sum(sums, None, False)
    shapes = [None if i in kernel.written else body.outs[w] for i, w in enumerate(wanted)]
    return [found[i] if shape is None else shaped(found[i], shape) for i, shape in enumerate(shapes)]


def compiled(backend: Any, source: str, dtype: str, defines: tuple[str, ...], name: str) -> Any:
    """The kernel `fused` of a source made at run time, kept per device.

    Raises loader.Unavailable where it does not compile, of which the first use warns.
    """
    key = (backend.device, source, dtype, defines)
    if key in _failed:
        raise loader.Unavailable("a fused kernel that did not compile before")
    found = _functions.get(key)
    if found is None:
        try:
            found = _functions[key] = loader.from_source(
                backend,
                f'#line 1 "fused.cu"\n{source}',
                "fused",
                loader.options(dtype, defines),
                f"fused {name}",
            )
        except KernelError as error:
            _failed.add(key)
            warnings.warn(f"{error}. Its parts run one by one", RuntimeWarning, stacklevel=2)
            raise loader.Unavailable(str(error)) from error
    return found
