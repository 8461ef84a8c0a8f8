"""Multi-head attention."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..tensor import Tensor
from . import functional as F
from . import init
from ._make import empty_parameter
from .linear import Linear
from .module import Module


class MultiheadAttention(Module):
    """Attention with `num_heads` heads (Vaswani et al. 2017, arXiv:1706.03762).

    Inputs are [L, N, E] ([N, L, E] with batch_first, [L, E] without batch); returns (output, weights or
    None). kdim and vdim are the feature sizes of key and value where they differ from embed_dim.

    >>> import lucid
    >>> x = lucid.zeros(2, 5, 8)
    >>> out, weights = lucid.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> out.shape, weights.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: embed_dim={embed_dim} must be a positive multiple of "
                             f"num_heads={num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        same = self._qkv_same_embed_dim

        def weight(size: int | None) -> Any:
            return None if size is None else empty_parameter((embed_dim, size), device, dtype)
        for name, size in (("q_proj_weight", embed_dim), ("k_proj_weight", self.kdim),
                           ("v_proj_weight", self.vdim)):
            self.register_parameter(name, weight(None if same else size))
        self.register_parameter("in_proj_weight",
                                empty_parameter((3 * embed_dim, embed_dim), device, dtype) if same else None)
        self.register_parameter("in_proj_bias",
                                empty_parameter((3 * embed_dim,), device, dtype) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.register_parameter("bias_k", empty_parameter((1, 1, embed_dim), device, dtype) if add_bias_kv
                                else None)
        self.register_parameter("bias_v", empty_parameter((1, 1, embed_dim), device, dtype) if add_bias_kv
                                else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        swap = self.batch_first and query.ndim == 3
        if swap:
            # The same tensor stays the same object, so that one product projects all three.
            moved = {id(t): t.transpose(0, 1) for t in (query, key, value)}
            query, key, value = (moved[id(t)] for t in (query, key, value))
        out, weights = F.multi_head_attention_forward(query, key, value, self.embed_dim, self.num_heads,
                                                      self.in_proj_weight, self.in_proj_bias, self.bias_k,
                                                      self.bias_v, self.add_zero_attn, self.dropout,
                                                      self.out_proj.weight, self.out_proj.bias,
                                                      training=self.training,
                                                      key_padding_mask=key_padding_mask,
                                                      need_weights=need_weights, attn_mask=attn_mask,
                                                      use_separate_proj_weight=not self._qkv_same_embed_dim,
                                                      q_proj_weight=self.q_proj_weight,
                                                      k_proj_weight=self.k_proj_weight,
                                                      v_proj_weight=self.v_proj_weight,
                                                      average_attn_weights=average_attn_weights,
                                                      is_causal=is_causal)
        return (out.transpose(0, 1) if swap else out), weights
