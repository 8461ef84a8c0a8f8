"""Transformer layers and stacks (Vaswani et al. 2017, arXiv:1706.03762)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, get_default_dtype
from ..tensor import Tensor, _wrap
from . import functional as F
from . import init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .norm import LayerNorm

Activation = str | Callable[[Tensor], Tensor]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if isinstance(activation, str) and activation not in ("relu", "gelu"):
        raise ShapeError(f"Transformer: activation must be 'relu', 'gelu' or a function, got {activation!r}")
    return getattr(F, activation) if isinstance(activation, str) else activation


def square_subsequent_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """[size, size]: 0 where a position may see itself and earlier ones, -inf where it may not."""
    backend = backend_of(device)
    full = backend.xp.full((size, size), -math.inf,
                           dtype=get_default_dtype() if dtype is None else as_dtype(dtype))
    return _wrap(backend.xp.triu(full, 1), backend)


class _Layer(Module):
    # Each part of a layer: x + dropout(part(x)), with the norm before the part (norm_first) or after the sum.
    norm_first: bool

    def _residual(self, x: Tensor, norm: Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))

    def _feed_forward(self: Any, x: Tensor) -> Tensor:
        return self._last_dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._activation_name is not None:
            state.pop("activation", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._activation_name is not None:
            self.activation = _activation(self._activation_name)

    def _set_activation(self, activation: Activation) -> None:
        # Recorders of ops are not importable by name, so a named activation is pickled as its name.
        self._activation_name = activation if isinstance(activation, str) else None
        self.activation = _activation(activation)


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward net, each with dropout, residual and layer norm.

    >>> import lucid
    >>> layer = lucid.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> layer(lucid.zeros(2, 5, 8)).shape
    (2, 5, 8)
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        at: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **at)
        self.linear1 = Linear(d_model, dim_feedforward, **at)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **at)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **at)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **at)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self._set_activation(activation)

    def _last_dropout(self, x: Tensor) -> Tensor:
        return self.dropout2(x)

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            out = self.self_attn(x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask,
                                 need_weights=False, is_causal=is_causal)[0]
            return self.dropout1(out)
        x = self._residual(src, self.norm1, attend)
        return self._residual(x, self.norm2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to `memory` and a feed-forward net, each with dropout, residual and norm.

    tgt [T, N, E], memory [S, N, E] -> [T, N, E]; N comes first with batch_first.

    >>> import lucid
    >>> layer = lucid.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> layer(lucid.zeros(5, 2, 8), lucid.zeros(7, 2, 8)).shape
    (5, 2, 8)
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        at: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **at)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first,
                                                 **at)
        self.linear1 = Linear(d_model, dim_feedforward, **at)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **at)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model, eps=layer_norm_eps, **at) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self._set_activation(activation)

    def _last_dropout(self, x: Tensor) -> Tensor:
        return self.dropout3(x)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.dropout1(self.self_attn(x, x, x, attn_mask=tgt_mask,
                                                key_padding_mask=tgt_key_padding_mask, need_weights=False,
                                                is_causal=tgt_is_causal)[0])

        def look(x: Tensor) -> Tensor:
            return self.dropout2(self.multihead_attn(x, memory, memory, attn_mask=memory_mask,
                                                     key_padding_mask=memory_key_padding_mask,
                                                     need_weights=False, is_causal=memory_is_causal)[0])
        x = self._residual(tgt, self.norm1, attend)
        x = self._residual(x, self.norm2, look)
        return self._residual(x, self.norm3, self._feed_forward)


def _copies(layer: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(n)])


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, then a norm if one is given: [S, N, E] -> [S, N, E].

    >>> import lucid
    >>> layer = lucid.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> lucid.nn.TransformerEncoder(layer, num_layers=2)(lucid.zeros(5, 2, 8)).shape
    (5, 2, 8)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers, self.num_layers = _copies(encoder_layer, num_layers), num_layers
        self.norm = norm

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask,
                        is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, then a norm if one is given.

    tgt [T, N, E], memory [S, N, E] -> [T, N, E].

    >>> import lucid
    >>> layer = lucid.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> lucid.nn.TransformerDecoder(layer, num_layers=2)(lucid.zeros(5, 2, 8), lucid.zeros(7, 2, 8)).shape
    (5, 2, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers, self.num_layers = _copies(decoder_layer, num_layers), num_layers
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                        tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal),
                        memory_is_causal=memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder: src [S, N, E], tgt [T, N, E] -> [T, N, E]; N comes first with batch_first.

    Vaswani et al. 2017, arXiv:1706.03762. Raises ShapeError for other than d_model features.

    >>> import lucid
    >>> model = lucid.nn.Transformer(8, 2, 1, 1, dim_feedforward=16)
    >>> model(lucid.zeros(7, 2, 8), lucid.zeros(5, 2, 8)).shape
    (5, 2, 8)
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", custom_encoder: Any = None, custom_decoder: Any = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        at: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        common = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                  norm_first)

        def stack(custom: Any, kind: Any, layer: Any, n: int) -> Any:
            return custom if custom is not None else kind(layer(*common, **at), n,
                                                          LayerNorm(d_model, eps=layer_norm_eps, **at))
        self.encoder = stack(custom_encoder, TransformerEncoder, TransformerEncoderLayer, num_encoder_layers)
        self.decoder = stack(custom_decoder, TransformerDecoder, TransformerDecoderLayer, num_decoder_layers)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
                tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model or src.ndim != tgt.ndim:
            raise ShapeError(f"Transformer: src and tgt need d_model={self.d_model} features and as many "
                             f"dimensions, got shapes {tuple(src.shape)} and {tuple(tgt.shape)}")
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ShapeError(f"Transformer: src and tgt need one batch size (dimension {batch}), got shapes "
                             f"{tuple(src.shape)} and {tuple(tgt.shape)}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask,
                              is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                            tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
                            memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """[sz, sz]: 0 where a position may see itself and earlier ones, -inf where it may not."""
        return square_subsequent_mask(sz, device, dtype)
