"""Mixed precision: `autocast` runs ops in the dtype that suits each, `GradScaler` keeps float16 gradients
from vanishing.

Source: Micikevicius et al. 2018, Mixed Precision Training (arXiv:1710.03740). Names and arguments are
PyTorch's.
"""

from .autocast import autocast as autocast
from .autocast import get_autocast_dtype as get_autocast_dtype
from .autocast import is_autocast_available as is_autocast_available
from .autocast import is_autocast_enabled as is_autocast_enabled
from .function import custom_bwd as custom_bwd
from .function import custom_fwd as custom_fwd
from .grad_scaler import GradScaler as GradScaler
