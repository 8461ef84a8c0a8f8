"""Probability distributions with log-probabilities that can be differentiated: what policy gradients and
variational bounds need.
"""

from .categorical import Categorical as Categorical
from .distribution import Distribution as Distribution
from .kl import kl_divergence as kl_divergence
from .kl import register_kl as register_kl
from .normal import Normal as Normal
