"""Tools for tests: the `device` fixture (a pytest plugin), sample inputs of every op, checks and tolerances,
gradcheck, the CUDA simulator.

Users can test their own ops with the same checks:

>>> from lucid.testing import checks, cases_of
>>> from lucid.ops.registry import OPS
>>> for case in cases_of(OPS["tanh"]):
...     checks.first_order(case, "cpu")
"""

from __future__ import annotations

from ..autograd.numerical import gradcheck as gradcheck
from ..autograd.numerical import gradgradcheck as gradgradcheck
from . import checks as checks
from .samples import Case as Case
from .samples import cases_of as cases_of
