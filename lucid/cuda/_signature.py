"""What a CUDA kernel's own parameter list says about its arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import KernelError
from ..storage.dtype import as_dtype

# C type -> dtype; None: the dtype of the first scalar_t input ("accum_t": float32 for the 16-bit floats, else
# the same).
TYPES: dict[str, str | None] = {
    "scalar_t": None,
    "accum_t": None,
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "i32": "int32",
    "long long": "int64",
    "i64": "int64",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
# Element type of scalar_t, and of accum_t, in C.
C_NAMES: dict[str, tuple[str, str]] = {
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    "float16": ("unsigned short", "float"),
    "bfloat16": ("unsigned short", "float"),
    "int8": ("signed char", "int"),
    "int16": ("short", "int"),
    "int32": ("int", "int"),
    "int64": ("long long", "long long"),
    "uint8": ("unsigned char", "int"),
    "bool": ("bool", "int"),
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?"
    r"(\w+)\s*\(([^)]*)\)"
)
_LUCID_KERNEL = re.compile(r"\bKERNEL\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `const T*` is an input, `T*` an output, anything else a number passed by value."""

    name: str
    ctype: str
    pointer: bool
    const: bool

    def __str__(self) -> str:
        const, star = "const " if self.is_input else "", "*" if self.pointer else ""
        return f"{const}{self.ctype}{star} {self.name}"

    @property
    def is_input(self) -> bool:
        return self.pointer and self.const

    @property
    def is_output(self) -> bool:
        return self.pointer and not self.const

    def dtype(self, scalar: Any) -> Any:
        """The NumPy dtype of the array or number, where scalar_t is `scalar`."""
        if self.ctype == "scalar_t":
            return scalar
        if self.ctype == "accum_t":
            return as_dtype("float32") if scalar.name in ("float16", "bfloat16") else scalar
        return as_dtype(TYPES[self.ctype])

    @property
    def kind(self) -> type:
        """The Python type of a number passed by value."""
        name = TYPES[self.ctype] or "float32"
        return bool if name == "bool" else float if name.startswith("float") else int


def parameters_of(source: str, name: str | None) -> tuple[str, tuple[Parameter, ...]]:
    """(name of the kernel, its parameters). Raises KernelError when there is none, several without `name`, or
    a type is not known.
    """
    text = _COMMENT.sub(" ", source)
    found = dict(_KERNEL.findall(text)) | dict(_LUCID_KERNEL.findall(text))
    if not found:
        raise KernelError(
            'kernel: expected CUDA source with an extern "C" __global__ void function, found none'
        )
    if name is None:
        if len(found) > 1:
            raise KernelError(
                f"kernel: the source has {len(found)} kernels ({', '.join(found)}); say which with name="
            )
        name = next(iter(found))
    if name not in found:
        raise KernelError(f"kernel: the source has no kernel {name!r}, it has {', '.join(found)}")
    return name, tuple(_parameter(name, part) for part in found[name].split(",") if part.strip())


def _parameter(kernel: str, text: str) -> Parameter:
    words = re.sub(r"__restrict__|\bconst\b", " ", text).replace("*", " * ").split()
    pointer, name, ctype = "*" in words, words[-1], " ".join(w for w in words[:-1] if w != "*")
    ctype = {"long long int": "long long", "int64_t": "long long"}.get(ctype, ctype)
    if ctype not in TYPES or words.count("*") > 1 or not name.isidentifier():
        raise KernelError(
            f"kernel {kernel}: parameter {' '.join(text.split())!r} has a type that cannot be passed; "
            f"use one of {', '.join(TYPES)}, by value or as a pointer (const for inputs)"
        )
    return Parameter(name, ctype, pointer, bool(re.search(r"\bconst\b", text)))


def number(kernel: str, parameter: Parameter, value: Any, scalar: Any) -> Any:
    """`value` as the NumPy scalar that the parameter takes. Raises KernelError when it does not fit."""
    dtype = parameter.dtype(scalar)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if int(value) != value or not limits.min <= value <= limits.max:
            raise KernelError(
                f"kernel {kernel}: {parameter.name} ({parameter.ctype}) must be a whole number in "
                f"[{limits.min}, {limits.max}], got {value}"
            )
    return dtype.type(value)
