"""`DataLoader` under PyTorch's inner path."""

from .loader import DataLoader as DataLoader
