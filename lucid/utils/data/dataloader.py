"""`DataLoader` and what it collates with, under PyTorch's inner path."""

from .collate import default_collate as default_collate
from .collate import default_convert as default_convert
from .loader import DataLoader as DataLoader
from .worker import get_worker_info as get_worker_info
