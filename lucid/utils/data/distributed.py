"""`DistributedSampler` under PyTorch's inner path."""

from .sampler import DistributedSampler as DistributedSampler
