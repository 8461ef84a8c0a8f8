"""`lucid kernels`: the CUDA kernels, and what each takes on given architectures, without a GPU."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lucid._cli.usage import UsageError
from lucid.errors import KernelError
from lucid.kernel import compile as compiling
from lucid.kernel import report
from lucid.kernel.specs import FLOATS, KERNELS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing; the parser knows the arguments of `lucid kernels` afterwards."""
    parser.description = (
        "Lists the CUDA kernels with the bytes that each moves (s, a: bytes of an element and of its "
        "accumulator). With names: their arguments too. With --arch they are compiled by NVRTC, which needs "
        "no GPU: registers per thread, bytes of shared memory per block, bytes of spills."
    )
    parser.add_argument("names", nargs="*", metavar="KERNEL", help="default: all")
    parser.add_argument("--arch", metavar="LIST", help="compute capabilities to compile for, as 80,90")
    parser.add_argument(
        "--dtype", metavar="LIST", default="float32", help=f"of {', '.join(FLOATS)} (default: float32)"
    )
    parser.add_argument("--sass", action="store_true", help="also count 128-bit accesses, on sm_90")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """0, or 1 when a kernel does not compile, spills, or breaks another promise. Raises UsageError."""
    names = args.names or list(KERNELS)
    unknown = [name for name in names if name not in KERNELS]
    if unknown:
        raise UsageError(f"there is no kernel {unknown[0]!r}; `lucid kernels` lists them all")
    if args.arch is None:
        if args.sass:
            raise UsageError("--sass needs --arch 90")
        show_list([row for row in report.listing() if row[0] in names], bool(args.names), args.json)
        return 0
    dtypes, archs = dtypes_of(args.dtype), archs_of(args.arch)
    if args.sass and compiling.disassembler() is None:
        raise UsageError(
            "--sass: cuobjdump is not installed; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    try:
        rows = report.measure(names, archs, dtypes, sass=args.sass, progress=progress)
    except KernelError as error:
        print(f"{args.prog}: {error}", file=sys.stderr)
        return 1
    found = report.problems(rows)
    if args.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "problems": found}, indent=2))
    else:
        print("\n".join(report.lines(rows)))
        print(f"NVRTC {compiling.nvrtc_version()}, {sum(row.builds for row in rows)} builds")
        for text in found:
            print(f"problem: {text}")
    return int(bool(found))


def show_list(rows: Sequence[tuple[str, str, str, str]], with_arguments: bool, as_json: bool) -> None:
    """Nothing; prints kernels with file and bytes, and their arguments when asked for by name."""
    if as_json:
        heads = ("kernel", "file", "arguments", "bytes")
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows], indent=2))
        return
    width = max(len(row[0]) for row in rows)
    for name, file, arguments, size in rows:
        print(f"{name:<{width}}  {file:<17}  {size}")
        if with_arguments:
            print(f"{'':<{width}}  {arguments}")


def dtypes_of(text: str) -> tuple[str, ...]:
    """The element types of a comma list. Raises UsageError."""
    found = tuple(text.split(","))
    if not set(found) <= set(FLOATS):
        raise UsageError(f"--dtype: expected a comma list of {', '.join(FLOATS)}, got {text!r}")
    return found


def archs_of(text: str) -> tuple[int, ...]:
    """The compute capabilities, times ten, of a comma list ("90", "sm_90" or "9.0"). Raises UsageError, also
    where NVRTC is missing.
    """
    ok, reason = compiling.available()
    if not ok:
        raise UsageError(f"--arch: {reason}")
    possible = compiling.supported_archs()
    found = []
    for part in text.split(","):
        digits = part.strip().removeprefix("sm_").replace(".", "")
        if not digits.isdigit() or int(digits) not in possible:
            raise UsageError(
                f"--arch: NVRTC {compiling.nvrtc_version()} compiles for {', '.join(map(str, possible))}, "
                f"got {part!r}"
            )
        found.append(int(digits))
    return tuple(dict.fromkeys(found))


def progress(done: int, of: int) -> None:
    """Nothing; tells a terminal how far the compilations are."""
    stream: Any = sys.stderr
    if stream.isatty():
        print(f"\r{done} of {of} compilations", end="\n" if done == of else "", file=stream, flush=True)
