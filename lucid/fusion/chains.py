"""How named chains run. Each function gets the chain's nodes, the consumer first, and the gradient; None says that the arrays do not fit."""

from __future__ import annotations

from typing import Any


def _named(n: Any) -> dict[str, Any]:
    """The values that a node kept, by name: raw arrays and static arguments."""
    plan = n.plan
    values = dict(zip(plan.keep, (s.array for s in n.saved), strict=True))
    return values | dict(zip(plan.static, n.static, strict=True)) if plan.static else values


def log_softmax_nll(nodes: tuple[Any, ...], g: Any) -> Any:
    """(exp(out) sum(c) - c) g with one pass of exp over log_softmax's output, c the class coefficients of nll_loss.

    Unfused, nll_loss writes a dense gradient with one nonzero per row, and log_softmax reads it twice. For class indices of shape [N] without
    class weights, log_softmax over the last of two dimensions; the rest runs unfused.
    """
    nll, log_softmax = nodes
    v, out = _named(nll), _named(log_softmax)["out"]
    target, weight = v["target"], v.get("weight")
    if out.ndim != 2 or weight is not None or log_softmax.static[0] % 2 != 1 or target.ndim != 1:
        return None
    xp = nll.F.backend.xp
    rows = out.shape[0]
    kept = target != v["ignore_index"]
    scale = g * kept if g.ndim else xp.broadcast_to(g, (rows,)) * kept
    if v["reduction"] == "mean":
        scale = scale / kept.sum(dtype=out.dtype)
    scale = scale.astype(out.dtype, copy=False)
    dx = xp.exp(out)
    dx *= scale[:, None]
    dx[xp.arange(rows), xp.where(kept, target, 0)] -= scale
    return (dx,)
