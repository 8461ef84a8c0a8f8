"""PyTorch's `torch.func`, as far as it is here: `functional_call`."""

from .nn.utils.stateless import functional_call as functional_call
