"""The docstring of an op's public function: what its author wrote, and what its options say."""

from __future__ import annotations

from .registry import Op


def listed(names: tuple[str, ...], word: str = "and") -> str:
    """The names as English lists them: "x, y and z"."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def facts(op: Op) -> list[str]:
    """What the op's options say of shapes, dtypes, errors and other names: a sentence each."""
    said = []
    if op.broadcast and len(op.tensors) > 1:
        said.append(f"{listed(op.tensors)} broadcast together, else ShapeError; returns their common shape.")
    elif op.pointwise:
        said.append(f"{op.tensors[0]}: any shape; returns the same.")
    if "dim" in op.statics:
        said.append("dim may be negative; out of range it raises IndexRangeError.")
    if op.dtype == "float":
        said.append("Integers become the default float.")
    elif op.dtype == "compare":
        said.append("Returns bools.")
    elif op.dtype == "promote" and (op.variadic or len(op.tensors) > 1):
        said.append("Dtypes are promoted.")
    if not op.diff or not op.differentiable:
        said.append("Not differentiable.")
    if op.amp == "full":
        said.append("Autocast runs it in float32.")
    elif op.amp == "low":
        said.append("Autocast runs it in 16 bits.")
    names = [f"Tensor.{op.method}"] if op.method else []
    names += [f"Tensor.{op.name}_"] if op.inplace else []
    if names:
        said.append(f"Also {listed(tuple(names))}.")
    return said


def document(op: Op) -> str:
    """The op's docstring with the facts between its words and its example."""
    words, mark, example = op.doc.partition(">>> ")
    return "\n\n".join(filter(None, [words.rstrip(), "\n".join(facts(op)), mark + example]))
