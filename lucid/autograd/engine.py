"""The reverse sweep: one traversal behind `Engine.backward` and `Engine.grad`.

Nothing here asks which device it runs on, and nothing is kept between calls: all
state is on the caller's stack.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from operator import attrgetter
from typing import Any

from ..errors import DeviceError, GradError, ShapeError
from ..storage.backend import Backend
from ..storage.storage import Storage
from .hooks import run_post, run_pre
from .impl import FREED, TensorImpl, describe, gradient_edge
from .mode import GRAD, mode
from .node import AccumulateGrad, FuncOp, Node, Port
from .own import own

_by_sequence_nr = attrgetter("sequence_nr")
# Passes that look at the order before the walk (lucid.fusion): (order, roots' nodes, wanted) ->
# {node: group that runs in its place} or None. The order itself stays; nodes that a group absorbs are
# reached by no gradient.
PASSES: list[Any] = []
# Called with the order before every walk.
WATCHERS: list[Callable[[list[Node]], None]] = []
# What `queue_callback` has queued in this thread; None between passes that queue nothing.
_callbacks: ContextVar[list[Callable[[bool], None]] | None] = ContextVar("lucid_callbacks", default=None)


def queue_callback(callback: Callable[[bool], None]) -> None:
    """Nothing; to be called by a hook of a leaf: `callback(True)` runs once all `.grad`s of the backward pass
    under way are written, `callback(False)` if the pass ends by an exception.
    """
    found = _callbacks.get()
    if found is None:
        _callbacks.set([callback])
    else:
        found.append(callback)


def _run_callbacks(done: bool) -> None:
    found = _callbacks.get()
    if found is not None:
        _callbacks.set(None)
        for callback in found:
            callback(done)


class Engine:
    """Walks the recorded graph backwards. Stateless; never instantiated.

    `Engine.backward` writes the `.grad` of leaves, `Engine.grad` returns gradients of named inputs.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> lucid.autograd.Engine.grad((x * x).sum(), None, [x])
    [tensor([2., 4.])]
    """

    def __new__(cls) -> Engine:
        raise TypeError(
            "Engine has no instances; call Engine.backward(root) or Engine.grad(root, grad_seed, inputs)"
        )

    @staticmethod
    def backward(
        root: Any, grad_seed: Any = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Nothing; writes the gradient of `root` into the `.grad` of every leaf below it.

        root: a tensor, or a sequence of tensors that are walked in one pass. grad_seed: the gradient of the
        root (of its shape; a sequence for several roots), ones for a one-element root when None.
        retain_graph: keep the saved values for another pass. create_graph: record the pass itself, so that
        the gradients can be differentiated (implies retain_graph).

        Raises GradError when the root does not require grad or is no scalar and has no seed, ShapeError for a
        seed of another shape, FreedGraphError and SavedValueError before anything is written.
        """
        roots = (root,) if isinstance(root, TensorImpl) else tuple(root)
        _sweep(roots, _seeds(roots, grad_seed), None, retain_graph, create_graph)

    @staticmethod
    def grad(
        root: Any,
        grad_seed: Any,
        inputs: Any,
        retain_graph: bool | None = False,
        create_graph: bool = False,
        allow_unused: bool = True,
    ) -> list[Any]:
        """The gradients of `root` with respect to `inputs` (leaves or interior tensors), as tensors; None for
        an input outside the graph.

        Writes no `.grad`. allow_unused=False raises instead of returning None, before anything is freed.
        Other arguments as in `backward`.
        """
        roots = (root,) if isinstance(root, TensorImpl) else tuple(root)
        inputs = (inputs,) if isinstance(inputs, TensorImpl) else tuple(inputs)
        wanted: dict[Node, list[int]] = {}
        for i, t in enumerate(inputs):
            if not isinstance(t, TensorImpl):
                raise GradError(f"grad: inputs must be tensors, got {type(t).__name__} at position {i}")
            if not t.requires_grad:
                raise GradError(
                    f"grad: input {i} ({describe(t)}) does not require grad; "
                    "set requires_grad=True on it before computing the output"
                )
            wanted.setdefault(gradient_edge(t), []).append(i)
        retain = create_graph if retain_graph is None else retain_graph
        return _sweep(roots, _seeds(roots, grad_seed), (inputs, wanted, allow_unused), retain, create_graph)


def _seeds(roots: Sequence[Any], grad_seed: Any) -> list[Any]:
    """One seed (a tensor, or None for ones) per root."""
    if grad_seed is None or isinstance(grad_seed, TensorImpl) or not isinstance(grad_seed, (list, tuple)):
        if grad_seed is not None and len(roots) != 1:
            raise GradError(f"backward: expected one grad_seed per root ({len(roots)} roots), got one")
        return [grad_seed] * len(roots)
    if len(grad_seed) != len(roots):
        raise GradError(
            f"backward: expected one grad_seed per root ({len(roots)} roots), got {len(grad_seed)}"
        )
    return list(grad_seed)


def _seed(root: Any, seed: Any, create: bool) -> Any:
    """The gradient that enters at a root: a raw array, or a tensor under create_graph."""
    storage = root.storage
    array, backend = storage.array, storage.backend
    if seed is None:
        if array.size != 1:
            raise GradError(
                f"backward: expected a grad_seed for a root that is not a scalar ({describe(root)}); "
                "pass a gradient of that shape, or reduce the root with .sum() or .mean()"
            )
        g = backend.xp.ones(array.shape, array.dtype)
    elif isinstance(seed, TensorImpl):
        if seed.storage.backend is not backend:
            raise DeviceError(
                f"backward: grad_seed is on {seed.storage.backend.device}, the root on {backend.device}; "
                f"move it with .to({str(backend.device)!r})"
            )
        g = seed.storage.array
    else:
        g = backend.asarray(seed)
    if g.shape != array.shape:
        raise ShapeError(f"backward: grad_seed must have the root's shape {array.shape}, got {g.shape}")
    if create:
        t: Any = seed if isinstance(seed, TensorImpl) else TensorImpl.from_storage(Storage(g, backend))
        return t if g.dtype == array.dtype else t.to(array.dtype)
    return (
        g
        if g.dtype == array.dtype
        else (g.real if g.dtype.kind == "c" and array.dtype.kind != "c" else g).astype(array.dtype)
    )


def _collect(starts: Sequence[Node]) -> list[Node]:
    """Every node reachable from `starts`, each before all that it sends gradients to, the highest sequence_nr
    first among the ready.
    """
    seen = dict.fromkeys(starts)
    stack = list(seen)
    ordered = True
    pop, push = stack.pop, stack.append
    while stack:
        n = pop()
        nr = n.sequence_nr
        for e in n.edges:
            if e is not None:
                if e.sequence_nr >= nr:
                    ordered = False
                if e not in seen:
                    seen[e] = None
                    push(e)
    # Nodes are numbered as they are made, so one sort is a topological order; only numbers
    # set by hand can break that.
    return sorted(seen, key=_by_sequence_nr, reverse=True) if ordered else _by_counting(seen)


def _by_counting(nodes: dict[Node, None]) -> list[Node]:
    consumers = dict.fromkeys(nodes, 0)
    for n in nodes:
        for e in n.edges:
            if e is not None:
                consumers[e] += 1
    place = {n: i for i, n in enumerate(nodes)}
    ready = [(-n.sequence_nr, place[n], n) for n, count in consumers.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        n = heapq.heappop(ready)[2]
        order.append(n)
        for e in n.edges:
            if e is not None:
                consumers[e] -= 1
                if not consumers[e]:
                    heapq.heappush(ready, (-e.sequence_nr, place[e], e))
    if len(order) != len(nodes):
        raise GradError("backward: the graph has a cycle; check next_edges of your own nodes")
    return order


def _reaching(order: list[Node], wanted: dict[Node, list[int]]) -> list[Node]:
    """The nodes of `order` from which some wanted node can be reached, and the wanted nodes themselves."""
    keep = set()
    for n in reversed(order):
        if n in wanted:
            keep.add(n)
        else:
            for e in n.edges:
                if e in keep:
                    keep.add(n)
                    break
    return [n for n in order if n in keep]


def _validate(order: list[Node]) -> None:
    # One summed integer per node: versions only grow (bench_overhead: backward).
    for n in order:
        if n.__class__ is FuncOp and n.saved is not None:
            v = 0
            for s in n.saved:
                v += s.version
            if v:
                n.validate_versions()
        else:
            n.validate_versions()


def _sweep(roots: Sequence[Any], seeds: list[Any], request: Any, retain: bool, create: bool) -> Any:
    """The traversal. request: None to write `.grad`s, or (inputs, wanted node -> positions,
    allow_unused) to return gradients.
    """
    if not roots:
        raise GradError("backward: expected at least one root, got none")
    edges = [gradient_edge(r) for r in roots]
    order = _collect(edges)
    wanted = None
    if request is not None:
        inputs, wanted, allow_unused = request
        order = _reaching(order, wanted)
        reached = set(order)
        if not allow_unused:
            for n, positions in wanted.items():
                if n not in reached:
                    raise GradError(
                        f"grad: input {positions[0]} ({describe(inputs[positions[0]])}) is not part of the "
                        "graph of the output; pass allow_unused=True to get None for it"
                    )
    _validate(order)
    retain = retain or create
    before = mode.flags
    mode.flags = GRAD if create else 0
    try:
        pending: dict[Node, Any] = {}
        several = Backend.several
        for root, seed, edge in zip(roots, seeds, edges, strict=True):
            with root.backend.guard():
                g = _seed(root, seed, create)
                pending[edge] = pending[edge] + g if edge in pending else g
        fused = None
        if not create:
            for find in PASSES:
                fused = find(order, edges, wanted)
        for watch in WATCHERS:
            watch(order)
        found: _Found = [], {}, set()
        backend = roots[0].storage.backend
        if several:
            for place, part in _stretches(order, backend):
                with place.quiet():
                    _walk(part, pending, wanted, fused, place, retain, create, found)
        else:
            with backend.quiet():
                _walk(order, pending, wanted, fused, backend, retain, create, found)
        if not retain:
            for root in roots:
                if root.edge is not None:
                    root.edge = FREED
        if request is None:
            del pending
            try:
                if several:
                    _write_on_devices(found[0], create)
                else:
                    for node, box in found[0]:
                        node.write(box, create)
            except BaseException:
                _run_callbacks(False)
                raise
            _run_callbacks(True)
            return None
        return _results(inputs, wanted or {}, found[1], create)
    finally:
        mode.flags = before


# What a walk has found so far: what reached the leaves, what was captured on the way, and the nodes whose
# pending sum is a buffer made here, to which the next gradient is added in place.
_Found = tuple[list[Any], dict[Node, list[Any]], set[Node]]


def _stretches(order: list[Node], backend: Any) -> Iterator[tuple[Any, list[Node]]]:
    """The order in stretches of nodes that take their gradients on one device."""
    part: list[Node] = []
    for n in order:
        place = _backend_of(n, backend)
        if place is not backend and part:
            yield backend, part
            part = []
        backend = place
        part.append(n)
    yield backend, part


def _write_on_devices(arrivals: list[Any], create: bool) -> None:
    for node, box in arrivals:
        with node.backend.guard():
            if not create:
                node.check_place(box[0])
            node.write(box, create)


def _walk(
    order: list[Node],
    pending: dict[Node, Any],
    wanted: Any,
    fused: Any,
    backend: Any,
    retain: bool,
    create: bool,
    found: _Found,
) -> None:
    """Nothing; runs the nodes of `order`, and notes in `found` what they lead to.

    `pending` holds the sums that wait for their node.
    """
    arrivals, captured, owned = found
    take = pending.pop
    get = pending.get
    for n in order:
        g = take(n, None)
        if g is None:
            continue
        cls = n.__class__
        if n.hooks is not None:
            backend = _backend_of(n, backend)
            g = run_pre(n, g, backend, create)
        if wanted is not None and n in wanted:
            captured[n] = [g]
        edges = n.edges
        if fused is not None and n in fused:
            group = fused[n]
            grads: Any = group.run(g, pending)
            edges = group.edges
            if not retain:
                group.release_saved()
        elif cls is FuncOp:
            grads = n.plan.run_graph(n, g) if create else n.plan.run(n, g)  # type: ignore[attr-defined]
            if not retain:
                n.saved = None  # type: ignore[attr-defined]
        elif cls is AccumulateGrad:
            if wanted is None:
                arrivals.append((n, [g]))
            continue
        elif cls is Port:
            node, nr = n.node, n.input_nr  # type: ignore[attr-defined]
            pending[node] = node.accumulate_barrier_grad(get(node), nr, g)
            continue
        else:
            grads = (
                n.apply_barrier(g, create) if n.is_barrier else n.apply_for_graph(g) if create else n.apply(g)
            )
            _check_count(n, grads)
            if not retain:
                n.release_saved()
            if Backend.several and not create:
                # Only such a node may hand gradients to several devices.
                if n.hooks is not None and n.hooks.post:
                    grads = run_post(n, grads, g, backend, create)
                _sum_on_devices(edges, grads or (), pending, owned, backend)
                continue
        if n.hooks is not None and n.hooks.post:
            grads = run_post(n, grads, g, backend, create)
        if not grads:
            continue
        for e, gi in zip(edges, grads):  # noqa: B905  (strict= costs 0.2 us a node; bench_overhead: backward)
            if gi is None or e is None:
                continue
            p = get(e)
            if p is None:
                pending[e] = gi
            elif e in owned and not create:
                p += gi
                pending[e] = p
            else:
                pending[e] = p + gi
                owned.add(e)


def _sum_on_devices(
    edges: Sequence[Node | None],
    grads: Sequence[Any],
    pending: dict[Node, Any],
    owned: set[Node],
    backend: Any,
) -> None:
    """Nothing; adds each gradient to what waits for its node, on that node's device."""
    for e, g in zip(edges, grads, strict=False):
        if g is None or e is None:
            continue
        p = pending.get(e)
        if p is not None:
            with _backend_of(e, backend).guard():
                g = p + g
            owned.add(e)
        pending[e] = g


def _backend_of(n: Node, backend: Any) -> Any:
    # Where a node's incoming gradient lies; `backend` where it does not say.
    n = n.node if isinstance(n, Port) else n
    if isinstance(n, FuncOp):
        return n.F.backend
    return getattr(n, "backend", backend)


def _check_count(n: Node, grads: Any) -> None:
    if grads is not None and not isinstance(grads, (tuple, list)):
        raise GradError(
            f"{n.node_name}: apply must return a tuple with one gradient per edge ({len(n.edges)}), "
            f"got {type(grads).__name__}"
        )
    if grads and n.edges and len(grads) != len(n.edges):
        raise GradError(
            f"{n.node_name}: returned {len(grads)} gradients for {len(n.edges)} edges; "
            "return one per edge, None where no gradient flows"
        )


def _results(
    inputs: Sequence[Any], wanted: dict[Node, list[int]], captured: dict[Node, list[Any]], create: bool
) -> list[Any]:
    """The captured gradients in the order of the inputs, each in a buffer of its own."""
    results: list[Any] = [None] * len(inputs)
    seen: set[int] = set()
    for n, positions in wanted.items():
        box = captured.get(n)
        for i in positions if box is not None else ():
            t = inputs[i]
            if create:
                g = box[0]  # type: ignore[index]
                results[i] = g.clone() if id(g) in seen or i != positions[0] else g
                seen.add(id(g))
            else:
                storage, last = t.storage, i == positions[-1]
                g = box.pop() if last else box[0]  # type: ignore[union-attr, index]
                with storage.backend.guard():
                    if not last:
                        g = storage.backend.xp.array(g, copy=True)
                    g = own(g, storage.backend, storage.array)
                results[i] = TensorImpl.from_storage(Storage(g, storage.backend))
    return results
