"""Modules on several devices: `DataParallel` in one process, `DistributedDataParallel` with one process each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .data import DataParallel as DataParallel
from .data import data_parallel as data_parallel
from .data import gather as gather
from .data import parallel_apply as parallel_apply
from .data import replicate as replicate
from .data import scatter as scatter

if TYPE_CHECKING:
    from .distributed import DistributedDataParallel as DistributedDataParallel


def __getattr__(name: str) -> Any:
    # On first use: sockets and their like are 30 ms of imports that most programs do not need.
    if name == "DistributedDataParallel":
        from .distributed import DistributedDataParallel

        return DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
