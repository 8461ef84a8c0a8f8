"""Nested objects as JSON with the tensors taken out, and back.

JSON's own types stand for themselves; everything else is an object with the key "$", which names its kind.
"""

from __future__ import annotations

import base64
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import CheckpointError, DtypeError
from ..storage.device import Device
from ..storage.dtype import as_dtype
from ..tensor import Tensor

MAX_DEPTH = 200


class Packer:
    """Collects the arrays of a nested object under unique names, made of the keys that lead to them."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._known: dict[int, dict[str, Any]] = {}
        self._open: set[int] = set()
        self._alive: list[Any] = []

    def pack(self, value: Any, path: str = "") -> Any:
        """`value` as JSON; its arrays are in `self.arrays` afterwards."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (Tensor, np.ndarray, np.generic)):
            return self._array(value, path)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$": "float", "value": repr(float(value))}
        if isinstance(value, complex):
            return {"$": "complex", "value": [repr(value.real), repr(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"$": "bytes", "value": base64.b64encode(value).decode()}
        if isinstance(value, np.dtype):
            return {"$": "dtype", "value": as_dtype(value).name}
        if isinstance(value, Device):
            return {"$": "device", "value": str(value)}
        if id(value) in self._open:
            raise DtypeError(f"save: the object at {path or 'the top'} contains itself")
        if len(self._open) > MAX_DEPTH:
            raise DtypeError(f"save: the object is nested more than {MAX_DEPTH} deep at {path}")
        self._open.add(id(value))
        try:
            return self._container(value, path)
        finally:
            self._open.discard(id(value))

    def _container(self, value: Any, path: str) -> Any:
        if type(value) in (dict, OrderedDict):
            plain = type(value) is dict and all(isinstance(key, str) for key in value) and "$" not in value
            if plain:
                return {key: self.pack(item, f"{path}.{key}" if path else key) for key, item in value.items()}
            items = [
                [self._key(key, path), self.pack(item, f"{path}.{key}" if path else str(key))]
                for key, item in value.items()
            ]
            return {"$": "dict" if type(value) is dict else "OrderedDict", "items": items}
        if type(value) in (list, tuple, set, frozenset):
            ordered = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            items = [self.pack(item, f"{path}.{i}" if path else str(i)) for i, item in enumerate(ordered)]
            return items if type(value) is list else {"$": type(value).__name__, "items": items}
        hint = "; save its state_dict()" if hasattr(value, "state_dict") else ""
        raise DtypeError(
            f"save: cannot store {path or 'an object'} of type {type(value).__name__}{hint}: expected "
            "tensors, arrays, numbers, "
            "strings, bytes, None, and dicts, lists, tuples and sets of them"
        )

    def _key(self, key: Any, path: str) -> Any:
        if isinstance(key, (Tensor, np.ndarray)):
            raise DtypeError(
                f"save: a key of the dict at {path or 'the top'} is a {type(key).__name__}; use numbers or "
                "strings"
            )
        return self.pack(key, path)

    def _array(self, value: Any, path: str) -> Any:
        known = self._known.get(id(value))
        if known is not None:
            return known
        if isinstance(value, Tensor):
            array, kind = value.storage.backend.to_numpy(value.storage.array), "tensor"
        else:
            array, kind = np.asarray(value), "array" if isinstance(value, np.ndarray) else "scalar"
        name = path or "tensor"
        while name in self.arrays or name == "__metadata__":
            name += "_"
        self.arrays[name] = np.asarray(array)
        found: dict[str, Any] = {"$": kind, "name": name}
        if isinstance(value, Tensor) and value.requires_grad:
            found["requires_grad"] = True
        self._known[id(value)] = found
        self._alive.append(value)  # A temporary's id may be used again once it is gone.
        return found


def unpack(
    tree: Any,
    array_of: Callable[[str], np.ndarray[Any, Any]],
    tensor_of: Callable[[np.ndarray[Any, Any]], Tensor],
) -> Any:
    """The object that `Packer.pack` took apart. One tensor that stood in several places is one tensor again.

    Raises CheckpointError for anything that `pack` does not write.
    """
    made: dict[str, Any] = {}

    def number(text: Any) -> float:
        return float(str(text))

    def build(node: Any) -> Any:
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [build(item) for item in node]
        kind = node.get("$")
        if kind is None:
            return {key: build(item) for key, item in node.items()}
        if kind in ("tensor", "array", "scalar"):
            name = node["name"]
            if name not in made:
                array = array_of(name)
                made[name] = tensor_of(array) if kind == "tensor" else array if kind == "array" else array[()]
                if node.get("requires_grad"):
                    made[name].requires_grad_(True)
            return made[name]
        if kind in ("dict", "OrderedDict"):
            return (dict if kind == "dict" else OrderedDict)(
                (build(key), build(item)) for key, item in node["items"]
            )
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](build(item) for item in node["items"])
        value = node["value"]
        if kind == "float":
            return number(value)
        if kind == "complex":
            return complex(number(value[0]), number(value[1]))
        if kind == "bytes":
            return base64.b64decode(value, validate=True)
        if kind == "dtype":
            return as_dtype(value)
        if kind == "device":
            return Device(value)
        raise CheckpointError(
            f"unknown kind {kind!r} in the file's structure; it was written by a newer version"
        )

    return build(tree)


_SEQUENCES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
