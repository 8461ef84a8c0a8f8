"""Hooks around a module's state, and overridden loading: as in PyTorch, which runs the same tests."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.errors import LucidError


@pytest.fixture(params=["lucid", "torch"])
def lib(request):
    """The library under which a test runs: what these tests say is true of PyTorch too."""
    return pytest.importorskip("torch") if request.param == "torch" else lucid


def make(lib):
    return lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.Sequential(lib.nn.BatchNorm1d(2)))


def test_hooks_of_state_dict(lib):
    model, seen = make(lib), []
    model.register_state_dict_pre_hook(lambda m, prefix, keep_vars: seen.append(("pre", prefix, keep_vars)))
    inner = model[1]
    inner.register_state_dict_pre_hook(lambda m, prefix, keep_vars: seen.append(("inner", prefix, keep_vars)))

    def post(m, state, prefix, metadata):
        seen.append(("post", prefix, m is inner, len(state)))
        state[prefix + "more"] = lib.ones(1)

    handle = inner.register_state_dict_post_hook(post)
    state = model.state_dict()
    assert seen == [("pre", "", False), ("inner", "1.", False), ("post", "1.", True, 7)]
    assert list(state)[-1] == "1.more"
    handle.remove()
    assert "1.more" not in model.state_dict(keep_vars=True)
    model._register_state_dict_hook(lambda m, state, prefix, metadata: {"only": 1})
    assert model.state_dict() == {"only": 1}
    assert copy.deepcopy(model).state_dict() == {"only": 1}  # hooks are copied with the module


def test_a_post_hook_must_not_return_a_dictionary(lib):
    model = make(lib)
    model.register_state_dict_post_hook(lambda *_: {})
    with pytest.raises(RuntimeError, match="must return None|values should not be returned"):
        model.state_dict()


def test_keys_are_renamed_on_their_way_in(lib):
    model, other = make(lib), make(lib)
    state = {k.replace("weight", "kernel"): v for k, v in other.state_dict().items()}
    seen = []

    def rename(m, state, prefix, metadata, strict, missing, unexpected, errors):
        seen.append((type(m).__name__, prefix, strict, missing, unexpected, errors))
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    model[0].register_load_state_dict_pre_hook(rename)
    model[1][0]._register_load_state_dict_pre_hook(
        lambda state, prefix, *_: state.update({prefix + "weight": state.pop(prefix + "kernel")}))
    before = dict(state)
    assert str(model.load_state_dict(state)) == "<All keys matched successfully>"
    assert seen == [("Linear", "0.", True, [], [], [])] and list(state) == list(before)  # a copy was changed
    np.testing.assert_array_equal(model[0].weight.detach().numpy(), other[0].weight.detach().numpy())


def test_what_a_pre_hook_reports_is_an_error(lib):
    model = make(lib)
    model.register_load_state_dict_pre_hook(lambda *args: args[-1].append("not today"))
    with pytest.raises(RuntimeError, match="not today"):
        model.load_state_dict(model.state_dict())


def test_a_post_hook_forgives(lib):
    model, seen = make(lib), []

    def forgive(m, keys):
        seen.append((type(m).__name__, list(keys.missing_keys), list(keys.unexpected_keys)))
        keys.missing_keys.clear()

    model[1].register_load_state_dict_post_hook(lambda m, keys: seen.append("inner first"))
    model.register_load_state_dict_post_hook(forgive)
    state = model.state_dict()
    del state["0.bias"]
    result = model.load_state_dict(state)
    assert seen == ["inner first", ("Sequential", ["0.bias"], [])] and result.missing_keys == []
    state["new"] = lib.ones(1)
    with pytest.raises(RuntimeError, match="new"):
        model.load_state_dict(state)


def test_a_module_that_saves_and_loads_itself(lib):
    class Halves(lib.nn.Module):
        """One weight, of which files hold two halves."""

        _version = 2

        def __init__(self):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.zeros(4))

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            w = self.weight.detach()
            destination[prefix + "a"], destination[prefix + "b"] = w[:2], w[2:]

        def _load_from_state_dict(self, state, prefix, metadata, strict, missing, unexpected, errors):
            assert metadata.get("version") == 2
            state[prefix + "weight"] = lib.cat([state.pop(prefix + "a"), state.pop(prefix + "b")])
            super()._load_from_state_dict(state, prefix, metadata, strict, missing, unexpected, errors)

    model, other = (lib.nn.ModuleDict({"x": Halves(), "y": lib.nn.Linear(1, 1)}) for _ in range(2))
    with lib.no_grad():
        other["x"].weight.copy_(lib.arange(4.0))
    state = other.state_dict()
    assert list(state) == ["x.a", "x.b", "y.weight", "y.bias"] and state._metadata["x"] == {"version": 2}
    model.load_state_dict(state)
    assert model["x"].weight.tolist() == [0.0, 1.0, 2.0, 3.0]
    state["x.a"] = lib.zeros(5)
    with pytest.raises(RuntimeError, match="x.weight"):
        model.load_state_dict(state)


def test_a_child_that_overrides_state_dict(lib):
    class Extra(lib.nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            state[kwargs["prefix"] + "note"] = "x"
            return state

    assert "0.note" in lib.nn.Sequential(Extra(1, 1)).state_dict()


def test_assign_keeps_the_given_tensors(lib):
    model = make(lib)
    state = {k: v.double() if "num" not in k else v for k, v in make(lib).state_dict().items()}
    model[0].weight.requires_grad_(False)
    model.load_state_dict(state, assign=True)
    assert model[0].weight.dtype == lib.float64 and not model[0].weight.requires_grad
    assert model[0].bias.requires_grad and isinstance(model[0].bias, lib.nn.Parameter)
    assert model[1][0].running_mean is state["1.0.running_mean"]
    assert model[1][0].running_mean.dtype == lib.float64


def test_nothing_is_written_when_something_does_not_fit(device):
    model, other = make(lucid).to(device), make(lucid)
    before = {k: v.cpu().numpy().copy() for k, v in model.state_dict().items()}
    state = other.state_dict()
    state["1.0.weight"] = lucid.ones(3)
    text = r"was left as it was:\n    '1.0.weight': expected shape \(2,\), got \(3,\)"
    with pytest.raises(LucidError, match=text):
        model.load_state_dict(state)
    for k, v in model.state_dict().items():
        np.testing.assert_array_equal(v.cpu().numpy(), before[k])
    assert isinstance(model, nn.Module)


def test_paths(lib):
    model = make(lib)
    model.register_module("more", lib.nn.ReLU())
    assert model.get_submodule("1.0") is model[1][0] and model.get_submodule("") is model
    assert model.get_parameter("0.weight") is model[0].weight
    assert model.get_buffer("1.0.running_var") is model[1][0].running_var
    for call, path in ((model.get_submodule, "1.3"), (model.get_parameter, "0.nothing"),
                       (model.get_buffer, "0.weight")):
        with pytest.raises(AttributeError):
            call(path)
    model.set_submodule("1.0", lib.nn.Identity())
    assert isinstance(model[1][0], lib.nn.Identity)


def test_to_empty(device):
    model = make(lucid)
    weight = model[0].weight
    model.to_empty(device=device)
    assert model[0].weight is weight and weight.is_cuda == (device != "cpu") and weight.shape == (2, 2)
    assert model[1][0].num_batches_tracked.dtype == lucid.int64 and weight.requires_grad
