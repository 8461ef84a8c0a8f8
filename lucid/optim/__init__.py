"""Optimisers and learning-rate schedules, with PyTorch's names and update rules."""

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from .adam import Adam as Adam
from .adam import Adamax as Adamax
from .adam import AdamW as AdamW
from .adam import Lion as Lion
from .adam import NAdam as NAdam
from .adam import RAdam as RAdam
from .adaptive import Adadelta as Adadelta
from .adaptive import Adagrad as Adagrad
from .adaptive import RMSprop as RMSprop
from .lbfgs import LBFGS as LBFGS
from .matrix import Adafactor as Adafactor
from .matrix import Muon as Muon
from .optimizer import Optimizer as Optimizer
from .sgd import ASGD as ASGD
from .sgd import SGD as SGD
from .sgd import Rprop as Rprop
