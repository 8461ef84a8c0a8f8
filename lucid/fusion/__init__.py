"""Fusion of backward nodes: on by default, and the same results as without.

`enabled(False)` switches it off (also LUCID_FUSION=0), `stats()` counts, `explain(loss)` tells what fuses and
why the rest does not.
"""

from __future__ import annotations

from ..autograd import engine as _engine
from .explain import Explanation as Explanation
from .explain import explain as explain
from .fuse import fuse as fuse
from .patterns import Pattern as Pattern
from .patterns import register_pattern as register_pattern
from .rewrite import find_groups as find_groups
from .stats import Stats as Stats
from .stats import enabled as enabled
from .stats import reset_stats as reset_stats
from .stats import stats as stats

if find_groups not in _engine.PASSES:
    _engine.PASSES.append(find_groups)
