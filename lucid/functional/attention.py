"""Attention under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..storage.dtype import is_floating
from ..tensor import Tensor, _wrap
from .dropout import dropout
from .registry import public


@public("nn.functional.scaled_dot_product_attention")
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(q k^T scale + mask) v along the last two dimensions (Vaswani et al. 2017, arXiv:1706.03762).

    query: [..., L, E]; key: [..., S, E]; value: [..., S, Ev]; attn_mask: broadcastable to [..., L, S], bool
    (True: may attend) or floating (added to the scores). scale: 1 / sqrt(E) by default. enable_gqa: heads
    (dimension -3) of key and value are repeated to query's. A query that may attend to nothing gives zeros.

    >>> import lucid
    >>> q = k = v = lucid.eye(2)
    >>> lucid.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[0].tolist()
    [1.0, 0.0]
    """
    name = "scaled_dot_product_attention"
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1]) if query.ndim and query.shape[-1] else 1.0
    if attn_mask is not None and attn_mask.dtype.kind != "b" and not is_floating(attn_mask.dtype):
        raise DtypeError(f"{name}: attn_mask must be bool (True: may attend) or floating (added to the "
                         f"scores), got {attn_mask.dtype.name}")
    if enable_gqa:
        key, value = _repeat_heads(name, key, query.shape[-3]), _repeat_heads(name, value, query.shape[-3])
    if dropout_p == 0.0:
        return F.attention(query, key, value, attn_mask, is_causal, scale)[0]
    if is_causal and attn_mask is not None:
        raise ShapeError(f"{name}: attn_mask and is_causal=True exclude each other; put the causal mask into "
                         "attn_mask")
    scores = F.matmul(query * scale, F.transpose(key, -2, -1))
    mask = F.causal_mask(query, key) if is_causal else attn_mask
    return F.matmul(dropout(F.safe_softmax(_masked(scores, mask)), dropout_p), value)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores
    return F.where(mask, scores, -math.inf) if mask.dtype.kind == "b" else scores + mask


def _repeat_heads(name: str, x: Tensor, heads: int) -> Tensor:
    own = x.shape[-3]
    if heads % own:
        raise ShapeError(f"{name}: with enable_gqa, query's heads must be a multiple of key's and value's, "
                         f"got {heads} and {own}")
    *batch, _, length, size = x.shape
    spread = F.expand(F.reshape(x, (*batch, own, 1, length, size)), (*batch, own, heads // own, length, size))
    return F.reshape(spread, (*batch, heads, length, size))


class Projections(NamedTuple):
    """How query, key and value are projected: one packed weight [3 E, E], or three of their own."""

    packed: Tensor | None
    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    bias: Tensor | None


@public("nn.functional.multi_head_attention_forward")
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None,
    add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None,
    training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """(output [L, N, E], attention weights [N, L, S] or None) of attention with several heads.

    Inputs [L, E] have no batch. query: [L, N, E]; key, value: [S, N, E or their own sizes]. attn_mask: [L, S]
    or [N * num_heads, L, S]; key_padding_mask: [N, S]. A bool mask is True where attention is forbidden (the
    reverse of scaled_dot_product_attention); a floating one is added. Weights are averaged over heads unless
    average_attn_weights is False, then [N, num_heads, L, S]. `is_causal` says that attn_mask is causal; the
    mask must be given all the same. Raises ShapeError for shapes that do not fit. `nn.MultiheadAttention`
    holds the arguments. Vaswani et al. 2017, arXiv:1706.03762.

    >>> import lucid
    >>> F, x = lucid.nn.functional, lucid.ones(3, 1, 4)
    >>> arguments = lucid.ones(12, 4), None, None, None, False, 0.0, lucid.eye(4), None
    >>> out, weights = F.multi_head_attention_forward(x, x, x, 4, 2, *arguments)
    >>> out.shape, weights.shape
    ((3, 1, 4), (1, 3, 3))
    """
    name = "multi_head_attention"
    batched = query.ndim == 3
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"{name}: query, key and value must all be [length, batch, features] or all "
                         "[length, features], got "
                         f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}")
    if query.shape[-1] != embed_dim_to_check or num_heads < 1 or embed_dim_to_check % num_heads:
        raise ShapeError(f"{name}: query needs embed_dim={embed_dim_to_check} features, a multiple of "
                         f"num_heads={num_heads}, got {query.shape[-1]}")
    if key.shape[:-1] != value.shape[:-1] or (batched and key.shape[1] != query.shape[1]):
        raise ShapeError(f"{name}: key and value must have one length, and query the same batch, got "
                         f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}")
    if is_causal and attn_mask is None:
        raise ShapeError(f"{name}: is_causal=True describes attn_mask, which is missing; pass "
                         "Transformer.generate_square_subsequent_mask(length)")
    if not batched:
        same = key is query, value is query
        query = F.reshape(query, (query.shape[0], 1, query.shape[1]))
        key = query if same[0] else F.reshape(key, (key.shape[0], 1, key.shape[1]))
        value = query if same[1] else F.reshape(value, (value.shape[0], 1, value.shape[1]))
        key_padding_mask = None if key_padding_mask is None else F.reshape(key_padding_mask, (1, -1))
    projections = Projections(None if use_separate_proj_weight else in_proj_weight, q_proj_weight,
                              k_proj_weight, v_proj_weight, in_proj_bias)
    q, k, v = _heads(query, key, value, num_heads, projections)
    length, n, embed = query.shape
    if static_k is not None:
        k = F.reshape(static_k, (n, num_heads, -1, embed // num_heads))
    if static_v is not None:
        v = F.reshape(static_v, (n, num_heads, -1, embed // num_heads))
    k, v, added = _extra_keys(k, v, bias_k, bias_v, add_zero_attn)
    mask = _merged_mask(name, attn_mask, key_padding_mask, n, num_heads, length, k.shape[2] - added, added,
                        query.dtype)
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = F.matmul(q * math.sqrt(num_heads / embed), F.transpose(k, -2, -1))
        weights = dropout(F.softmax(_masked(scores, mask), -1), p)
        out = F.matmul(weights, v)
        weights = F.mean(weights, dim=1) if average_attn_weights else weights
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p)
    out = F.reshape(F.permute(out, (2, 0, 1, 3)), (length, n, embed))
    out = F.linear(out, out_proj_weight, out_proj_bias)
    if not batched:
        out = F.reshape(out, (length, out.shape[-1]))
        weights = None if weights is None else F.reshape(weights, weights.shape[1:])
    return out, weights


def _split_heads(x: Tensor, heads: int) -> Tensor:
    # [length, N, E] -> [N, heads, length, E / heads]
    length, n, embed = x.shape
    return F.permute(F.reshape(x, (length, n, heads, embed // heads)), (1, 2, 0, 3))


def _three(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return F.select(x, 0, 0), F.select(x, 0, 1), F.select(x, 0, 2)


def _heads(query: Tensor, key: Tensor, value: Tensor, heads: int,
           proj: Projections) -> tuple[Tensor, Tensor, Tensor]:
    length, n, embed = query.shape
    if proj.packed is not None and key is query and value is query:
        # One product for all three; the rest are views of it.
        x = F.reshape(F.linear(query, proj.packed, proj.bias), (length, n, 3, heads, embed // heads))
        q, k, v = _three(F.permute(x, (2, 1, 3, 0, 4)))
        return q, k, v
    if proj.packed is not None:
        weights: Any = _three(F.reshape(proj.packed, (3, embed, embed)))
    else:
        weights = (proj.query, proj.key, proj.value)
    biases: Any = (None, None, None) if proj.bias is None else _three(F.reshape(proj.bias, (3, embed)))
    q, k, v = (_split_heads(F.linear(x, w, b), heads) for x, w,
               b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _extra_keys(k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None,
                zero: bool) -> tuple[Tensor, Tensor, int]:
    # The learned key and value, and the zero ones, at the end; and how many were added.
    n, heads, _, size = k.shape
    added = 0
    if (bias_k is None) != (bias_v is None):
        raise ShapeError("multi_head_attention: bias_k and bias_v must both be given, or neither")
    if bias_k is not None and bias_v is not None:
        extra = [F.expand(F.reshape(b, (1, heads, 1, size)), (n, heads, 1, size)) for b in (bias_k, bias_v)]
        k, v, added = F.cat(k, extra[0], dim=2), F.cat(v, extra[1], dim=2), 1
    if zero:
        backend = k.storage.backend
        nothing = _wrap(backend.xp.zeros((n, heads, 1, size), dtype=k.dtype), backend)
        k, v, added = F.cat(k, nothing, dim=2), F.cat(v, nothing, dim=2), added + 1
    return k, v, added


def _merged_mask(name: str, attn_mask: Tensor | None, padding: Tensor | None, n: int, heads: int, length: int,
                 keys: int, added: int, dtype: Any) -> Tensor | None:
    # Broadcastable to [N, heads, L, S]: bool with True where attention is allowed, or floating.
    parts = []
    for what, given in (("attn_mask", attn_mask), ("key_padding_mask", padding)):
        if given is not None and given.dtype.kind != "b" and not is_floating(given.dtype):
            raise DtypeError(f"{name}: {what} must be bool (True: may not attend) or floating (added to the "
                             f"scores), got {given.dtype.name}; convert it with .bool()")
    if attn_mask is not None:
        if attn_mask.shape == (length, keys):
            parts.append(F.reshape(attn_mask, (1, 1, length, keys)))
        elif attn_mask.shape == (n * heads, length, keys):
            parts.append(F.reshape(attn_mask, (n, heads, length, keys)))
        else:
            raise ShapeError(f"{name}: attn_mask must be [L, S] = {[length, keys]} or [N * num_heads, L, S] "
                             f"= {[n * heads, length, keys]}, got {list(attn_mask.shape)}")
    if padding is not None:
        if padding.shape != (n, keys):
            raise ShapeError(f"{name}: key_padding_mask must be [N, S] = {[n, keys]}, got "
                             f"{list(padding.shape)}")
        parts.append(F.reshape(padding, (n, 1, 1, keys)))
    if not parts:
        return None
    if added:
        parts = [_append_zeros(p, added) for p in parts]
    if all(p.dtype.kind == "b" for p in parts):
        forbidden = parts[0] if len(parts) == 1 else F.logical_or(parts[0], parts[1])
        return F.logical_not(forbidden)
    floats = [_additive(p, dtype) for p in parts]
    return floats[0] if len(floats) == 1 else floats[0] + floats[1]


def _additive(mask: Tensor, dtype: Any) -> Tensor:
    if mask.dtype.kind != "b":
        return mask
    backend = mask.storage.backend
    with backend.guard():
        return _wrap(backend.xp.where(mask.storage.array, -math.inf, 0.0).astype(dtype), backend)


def _append_zeros(mask: Tensor, n: int) -> Tensor:
    backend = mask.storage.backend
    return F.cat(mask, _wrap(backend.xp.zeros((*mask.shape[:-1], n), dtype=mask.dtype), backend), dim=-1)
