"""What a module does with its state and its hooks, by one script for both libraries."""

from __future__ import annotations

import copy
import importlib
import pickle

import numpy as np
import pytest

import lucid

torch = pytest.importorskip("torch")


def plain(value):
    """Tensors as (dtype, nested list), and containers of them."""
    if isinstance(value, (torch.Tensor, lucid.Tensor)):
        return str(value.dtype).removeprefix("torch."), np.round(value.detach().numpy(), 5).tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, torch.Size):
        return tuple(value)
    return type(value)(map(plain, value)) if isinstance(value, (list, tuple)) else value


def calls_of_global_hooks(lib):
    hooks, log = importlib.import_module(f"{lib.__name__}.nn.modules.module"), []
    handles = [
        hooks.register_module_forward_pre_hook(lambda m, args: log.append(("pre", type(m).__name__))),
        hooks.register_module_forward_hook(lambda m, args, out: log.append(("post", type(m).__name__))),
        hooks.register_module_forward_hook(lambda m, args, out: out * 2),
        hooks.register_module_full_backward_pre_hook(lambda m, g: log.append(("back", type(m).__name__))),
        hooks.register_module_full_backward_hook(lambda m, gi, go: log.append(("ward", type(m).__name__)))]
    model = lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Tanh())
    model[0].register_forward_pre_hook(lambda m, args: log.append("own"))
    x = lib.ones(2, requires_grad=True)
    out = model(x)
    out.sum().backward()
    for handle in handles:
        handle.remove()
    return log, out, x.grad, model(x)


def a_copy_has_no_gradients(lib):
    model = lib.nn.Linear(2, 2)
    model(lib.ones(1, 2)).sum().backward()
    made = copy.deepcopy(model)
    return made.weight.grad, made.weight.requires_grad, type(made.weight).__name__, model.bias.grad


def states_that_count_no_batches(lib):
    norm = lib.nn.BatchNorm1d(2)
    norm(lib.ones(3, 2))
    state = dict(norm.state_dict())
    del state["num_batches_tracked"]
    kept = norm.num_batches_tracked.clone()
    result = norm.load_state_dict(state)
    return list(result), kept, norm.num_batches_tracked, norm.state_dict()._metadata[""]


def counted_states_must_count(lib):
    norm = lib.nn.BatchNorm1d(2)
    state = norm.state_dict()
    del state["num_batches_tracked"]
    try:
        norm.load_state_dict(state)
    except RuntimeError:
        return list(norm.load_state_dict(state, strict=False))


def numbers_saved_as_vectors(lib):
    module = lib.nn.Module()
    module.scale = lib.nn.Parameter(lib.tensor(1.0))
    module.load_state_dict({"scale": lib.tensor([5.0])})
    return module.scale


def lists_and_dicts_of_parameters(lib):
    values = lib.nn.ParameterDict({"a": lib.ones(1), "b": lib.zeros(2)})
    more = values | {"c": lib.ones(1)}
    more |= {"d": lib.ones(1)}
    text = repr(lib.nn.ParameterList([lib.ones(2, 3), lib.ones(())]))
    text += repr(lib.nn.Sequential(values))
    for word in ("torch.float32", "lucid.float32", "torch.FloatTensor"):
        text = text.replace(word, "float32")
    return list(reversed(values)), list(more), list(more.state_dict()), text


def lazy_layers(lib):
    def make():
        return lib.nn.Sequential(lib.nn.LazyConv1d(3, 2), lib.nn.LazyBatchNorm1d(), lib.nn.Flatten(),
                                 lib.nn.LazyLinear(2))
    model, other = make(), make()
    if lib is lucid:  # PyTorch's cannot be copied.
        other = pickle.loads(pickle.dumps(copy.deepcopy(other)))
    other.double().float()
    before = list(model.state_dict()), repr(model), [type(b).__name__ for b in model.buffers()]
    model(lib.ones(4, 2, 3))
    state = model.state_dict()
    other.load_state_dict(state)
    shapes = {k: tuple(v.shape) for k, v in other.state_dict().items()}
    same = bool((other[1].running_mean == state["1.running_mean"]).all())
    other.eval()(lib.ones(4, 2, 3))
    return before, repr(model), shapes, same, other[3].in_features, type(other[1]).__name__, list(state)


SCRIPTS = [calls_of_global_hooks, a_copy_has_no_gradients, states_that_count_no_batches,
           counted_states_must_count, numbers_saved_as_vectors, lists_and_dicts_of_parameters, lazy_layers]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_same_as_pytorch(script):
    np.random.seed(0)
    assert plain(script(lucid)) == plain(script(torch))
