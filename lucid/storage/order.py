"""Whether results may depend on the order in which a GPU's threads happen to run: by default not."""

from __future__ import annotations

_fixed = True


def fixed_order(on: bool | None = None) -> bool:
    """Whether sums by index (the backward passes of indexing and embeddings, `index_add`, `scatter_add`, ...)
    are added up in a fixed order on CUDA; set to `on` unless None.
    """
    global _fixed
    if on is not None:
        _fixed = bool(on)
    return _fixed
