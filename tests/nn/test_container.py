"""Containers: lists, dictionaries and sequences of modules and parameters."""

from __future__ import annotations

import pytest

import lucid
from lucid import nn
from lucid.errors import IndexRangeError


def test_sequential():
    a, b, c = nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)
    net = nn.Sequential(a, b, c)
    assert len(net) == 3 and net[0] is a and net[-1] is c and list(net) == [a, b, c]
    assert list(net[1:]) == [b, c] and isinstance(net[1:], nn.Sequential)
    assert list(net[1:].state_dict()) == ["2.weight", "2.bias"]
    assert net(lucid.ones(4, 2)).shape == (4, 1)
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh) and list(net._modules) == ["0", "1", "2"]
    del net[1]
    assert list(net) == [a, c] and list(net._modules) == ["0", "1"]
    net.insert(1, b).append(nn.Sigmoid()).extend([nn.ReLU()])
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Linear", "Sigmoid", "ReLU"]
    assert isinstance(net.pop(-1), nn.ReLU) and len(net) == 4
    assert len(nn.Sequential(a) + nn.Sequential(b)) == 2 and len(nn.Sequential(b) * 3) == 3
    named = nn.Sequential({"in": a, "act": b})
    assert list(named.state_dict()) == ["in.weight", "in.bias"]
    with pytest.raises(IndexRangeError, match="Sequential: index 9 is out of range for 4 entries"):
        net[9]


def test_module_list():
    items = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    items += [nn.ReLU()]
    items.insert(0, nn.Tanh())
    assert len(items) == 5 and isinstance(items[0], nn.Tanh) and list(items._modules) == list("01234")
    assert len(list(items.parameters())) == 6 and len(items[1:3]) == 2
    assert repr(nn.ModuleList([nn.ReLU(), nn.ReLU()])) == "ModuleList(\n  (0-1): 2 x ReLU()\n)"


def test_module_dict():
    d = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ReLU()})
    d["c"] = nn.Tanh()
    d.update([("b", nn.Sigmoid())])
    assert list(d) == ["a", "b", "c"] and "b" in d and isinstance(d["b"], nn.Sigmoid) and len(d.keys()) == 3
    assert isinstance(d.pop("c"), nn.Tanh)
    del d["b"]
    assert [k for k, _ in d.items()] == ["a"]
    d.clear()
    assert len(d) == 0


def test_parameter_list_and_dict():
    plist = nn.ParameterList([lucid.zeros(2), nn.Parameter(lucid.ones(3))])
    plist.append(lucid.zeros(1))
    assert len(plist) == 3 and all(isinstance(p, nn.Parameter)
                                   for p in plist) and list(plist.state_dict()) == ["0", "1", "2"]
    plist[0] = lucid.ones(4)
    assert plist[0].shape == (4,) and len(plist[1:]) == 2 and len(list(plist.parameters())) == 3
    assert "(0): Parameter containing: [lucid.float32 of size 4]" in repr(plist)
    pdict = nn.ParameterDict({"w": lucid.zeros(2)})
    pdict["b"] = lucid.ones(1)
    assert list(pdict) == ["w", "b"] and list(pdict.state_dict()) == ["w", "b"] and isinstance(pdict["w"],
                                                                                               nn.Parameter)
    del pdict["w"]
    assert "w" not in pdict and len(list(pdict.parameters())) == 1 and pdict.get("w") is None
