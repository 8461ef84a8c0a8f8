"""Recurrent layers and cells: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

from ..autograd.record import RECORDED
from ..errors import ShapeError
from ..ops import rnn as _ops  # noqa: F401  (defines lstm, gru, elman)
from ..tensor import Tensor, _wrap
from . import functional as F
from . import init
from ._make import empty_parameter
from .module import Module
from .utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class RNNBase(Module):
    """What the recurrent layers share: weights per layer and direction, and the walk over them.

    Weights of layer k: weight_ih_lk, weight_hh_lk, bias_ih_lk, bias_hh_lk (and weight_hr_lk with proj_size),
    with the suffix _reverse for the second direction; all uniform in +-1 / sqrt(hidden_size) at first. Raises
    ShapeError for sizes that are not above 0.

    >>> import lucid
    >>> rnn = lucid.nn.GRU(3, 4, num_layers=2)
    >>> [name for name, _ in rnn.named_parameters()][:4]
    ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    gates: ClassVar[int]

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 proj_size: int = 0, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        name = type(self).__name__
        if hidden_size <= 0 or num_layers <= 0:
            raise ShapeError(f"{name}: hidden_size and num_layers must be above 0, got {hidden_size} and "
                             f"{num_layers}")
        if not 0 <= dropout <= 1:
            raise ShapeError(f"{name}: dropout must be a probability in [0, 1], got {dropout}")
        if dropout and num_layers == 1:
            warnings.warn(f"{name}: dropout acts between layers, so dropout={dropout} has no effect with one "
                          "layer", stacklevel=3)
        if proj_size and (mode != "LSTM" or not 0 < proj_size < hidden_size):
            raise ShapeError(f"{name}: proj_size is for LSTM, between 0 and hidden_size={hidden_size}, got "
                             f"{proj_size}")
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, proj_size
        out_size = proj_size or hidden_size
        width = {"LSTM": 4, "GRU": 3}.get(mode, 1) * hidden_size
        self._names: list[list[str]] = []
        for layer in range(num_layers):
            size = input_size if layer == 0 else out_size * (2 if bidirectional else 1)
            for suffix in ("", "_reverse") if bidirectional else ("",):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (width, size),
                                                      "weight_hh": (width, out_size)}
                if bias:
                    shapes |= {"bias_ih": (width,), "bias_hh": (width,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = [f"{what}_l{layer}{suffix}" for what in shapes]
                for n, shape in zip(names, shapes.values(), strict=True):
                    self.register_parameter(n, empty_parameter(shape, device, dtype))
                self._names.append(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing; draws the weights anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights of each layer and direction."""
        return [[getattr(self, n) for n in names] for names in self._names]

    def flatten_parameters(self) -> None:
        """Nothing: here for programs that call it."""

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}", f"{self.hidden_size}"]
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                    "bidirectional": False}
        parts += [f"{n}={getattr(self, n)}" for n, d in defaults.items() if getattr(self, n) != d]
        return ", ".join(parts)

    # ---- forward ----

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = input if isinstance(input, PackedSequence) else None
        mask = lengths = None
        if packed is not None:
            # Longest first, as packed; the states are put in that order too.
            x, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
            backend = x.storage.backend
            with backend.guard():
                steps = backend.xp.arange(x.shape[0])[:, None]
                mask = _wrap((steps < backend.asarray(lengths.numpy())[None, :])[:, :, None], backend)
            single = False
        else:
            if input.ndim not in (2, 3):
                raise ShapeError(f"{type(self).__name__}: expected an input of 2 or 3 dimensions, got shape "
                                 f"{tuple(input.shape)}")
            single = input.ndim == 2
            x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        if x.shape[-1] != self.input_size:
            raise ShapeError(f"{type(self).__name__}: expected {self.input_size} features, got shape "
                             f"{tuple(x.shape)}")
        if not x.shape[0]:
            raise ShapeError(
                f"{type(self).__name__}: expected at least one step, got shape {tuple(input.shape)}"
            )
        states = self._first_states(x, hx, single, None if packed is None else packed.sorted_indices)
        result, last = self._walk(x, states, mask)
        order = None if packed is None else packed.unsorted_indices
        last = [s if order is None else s.index_select(1, order) for s in last]
        last = [s.squeeze(1) for s in last] if single else last
        if packed is not None:
            data = pack_padded_sequence(result, lengths).data
            out: Any = packed._replace(data=data)
        else:
            out = result.squeeze(1) if single else result.transpose(0, 1) if self.batch_first else result
        return out, (tuple(last) if self.mode == "LSTM" else last[0])

    def _first_states(self, x: Tensor, hx: Any, single: bool, order: Tensor | None) -> list[Tensor]:
        n, backend = x.shape[1], x.storage.backend
        rows = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size] + ([self.hidden_size] if self.mode == "LSTM" else [])
        if hx is None:
            return [_wrap(backend.xp.zeros((rows, n, size), dtype=x.dtype), backend) for size in sizes]
        given = list(hx) if self.mode == "LSTM" and isinstance(hx, (tuple, list)) else [hx]
        if len(given) != len(sizes) or not all(isinstance(h, Tensor) for h in given):
            what = "a pair (h, c) of tensors" if self.mode == "LSTM" else "one tensor h"
            raise ShapeError(f"{type(self).__name__}: the initial state is {what}, got {type(hx).__name__}")
        given = [h.unsqueeze(1) for h in given] if single else given
        for h, size in zip(given, sizes, strict=True):
            if h.shape != (rows, n, size):
                raise ShapeError(f"{type(self).__name__}: expected an initial state of shape "
                                 f"{(rows, n, size)}, got {tuple(h.shape)}")
        return given if order is None else [h.index_select(1, order) for h in given]

    def _walk(self, x: Tensor, states: list[Tensor], mask: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        directions = 2 if self.bidirectional else 1
        last: list[list[Tensor]] = [[] for _ in states]
        for layer in range(self.num_layers):
            outs = []
            for d in range(directions):
                i = layer * directions + d
                weights = [getattr(self, n) for n in self._names[i]]
                out, ends = self._run(x, [s[i] for s in states], weights, mask, d == 1)
                outs.append(out)
                for kept, end in zip(last, ends, strict=True):
                    kept.append(end)
            x = outs[0] if directions == 1 else RECORDED.cat(*outs, dim=-1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, [RECORDED.stack(*ends, dim=0) for ends in last]

    def _run(self, x: Tensor, states: list[Tensor], weights: list[Tensor], mask: Tensor | None,
             reverse: bool) -> tuple[Tensor, list[Tensor]]:
        """(states of all steps, last states) of one layer in one direction."""
        raise NotImplementedError

    def _input_part(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        # One product for all steps, with both biases.
        return F.linear(x, weights[0], weights[2] + weights[3] if self.bias else None)


def _end(states: Tensor, reverse: bool) -> Tensor:
    return RECORDED.select(states, 0, 0 if reverse else states.shape[0] - 1)


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it.

    x [T, N, I], h [layers, N, H] -> (output [T, N, H], h_n).

    >>> import lucid
    >>> out, h = lucid.nn.RNN(3, 5, batch_first=True)(lucid.zeros(2, 4, 3))
    >>> out.shape, h.shape
    ((2, 4, 5), (1, 2, 5))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, device: Any = None, dtype: Any = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f"RNN: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias,
                         batch_first, dropout, bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity

    def _run(self, x: Tensor, states: list[Tensor], weights: list[Tensor], mask: Tensor | None,
             reverse: bool) -> tuple[Tensor, list[Tensor]]:
        out = RECORDED.elman(self._input_part(x, weights), states[0], weights[1], mask, reverse,
                             self.nonlinearity == "relu")
        return out, [_end(out, reverse)]


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997).

    x [T, N, I], (h, c) -> (output [T, N, H], (h_n, c_n)).

    >>> import lucid
    >>> out, (h, c) = lucid.nn.LSTM(3, 5, num_layers=2, bidirectional=True)(lucid.zeros(4, 2, 3))
    >>> out.shape, h.shape
    ((4, 2, 10), (4, 2, 5))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 proj_size: int = 0, device: Any = None, dtype: Any = None) -> None:
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, proj_size, device, dtype)

    def _run(self, x: Tensor, states: list[Tensor], weights: list[Tensor], mask: Tensor | None,
             reverse: bool) -> tuple[Tensor, list[Tensor]]:
        gx = self._input_part(x, weights)
        if not self.proj_size:
            out, cells, _ = RECORDED.lstm(gx, states[0], states[1], weights[1], mask, reverse)
            return out, [_end(out, reverse), _end(cells, reverse)]
        # With a projection (Sak et al. 2014): step by step.
        (h, c), outs, steps = states, [], range(x.shape[0])
        for t in reversed(steps) if reverse else steps:
            new_h, new_c = _lstm_step(gx[t] + F.linear(h, weights[1]), c)
            new_h = F.linear(new_h, weights[-1])
            live = None if mask is None else mask[t]
            h, c = (new_h, new_c) if live is None else (RECORDED.where(live, new_h, h),
                                                        RECORDED.where(live, new_c, c))
            outs.append(h)
        return RECORDED.stack(*(outs[::-1] if reverse else outs), dim=0), [h, c]


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078).

    x [T, N, I], h [layers, N, H] -> (output [T, N, H], h_n), N first with batch_first; h is zeros when
    absent. r, z = sigmoid(W x + b + U h + c) each, n = tanh(W_n x + b_n + r (U_n h + c_n)), h' = (1 - z) n +
    z h. Raises ShapeError for inputs that do not fit.

    >>> import lucid
    >>> output, h = lucid.nn.GRU(3, 4)(lucid.zeros(5, 2, 3))
    >>> output.shape, h.shape
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, 0, device, dtype)

    def _run(self, x: Tensor, states: list[Tensor], weights: list[Tensor], mask: Tensor | None,
             reverse: bool) -> tuple[Tensor, list[Tensor]]:
        gx = F.linear(x, weights[0], weights[2] if self.bias else None)
        out, _ = RECORDED.gru(gx, states[0], weights[1], weights[3] if self.bias else None, mask, reverse)
        return out, [_end(out, reverse)]


# ---- one step ----

def _lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    size = c.shape[-1]
    i, f, g, o = (RECORDED.narrow(gates, -1, k * size, size) for k in range(4))
    c = RECORDED.sigmoid(f) * c + RECORDED.sigmoid(i) * RECORDED.tanh(g)
    return RECORDED.sigmoid(o) * RECORDED.tanh(c), c


class RNNCellBase(Module):
    """What the cells share: weights [gates * hidden_size, ...] and biases.

    >>> from lucid import nn
    >>> isinstance(nn.LSTMCell(2, 3), nn.RNNCellBase)
    True
    """

    gates: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        width = self.gates * hidden_size
        self.weight_ih = empty_parameter((width, input_size), device, dtype)
        self.weight_hh = empty_parameter((width, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, empty_parameter((width,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing; draws the weights anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _state(self, input: Tensor, h: Tensor | None) -> Tensor:
        name = type(self).__name__
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: expected an input [N, {self.input_size}] or [{self.input_size}], got "
                             f"shape {tuple(input.shape)}")
        shape = (*input.shape[:-1], self.hidden_size)
        if h is None:
            backend = input.storage.backend
            return _wrap(backend.xp.zeros(shape, dtype=input.dtype), backend)
        if h.shape != shape:
            raise ShapeError(f"{name}: expected a state of shape {shape}, got {tuple(h.shape)}")
        return h

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")
        kind = self.__dict__.get("nonlinearity", "tanh")
        return text if kind == "tanh" else f"{text}, nonlinearity={kind}"


class RNNCell(RNNCellBase):
    """One step of RNN: [N, I], [N, H] -> [N, H]; h is zeros when absent. Raises ShapeError for others.

    >>> import lucid
    >>> lucid.nn.RNNCell(3, 4)(lucid.zeros(2, 3)).shape
    (2, 4)
    """

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f"RNNCell: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = self._state(input, hx)
        return getattr(F, self.nonlinearity)(F.linear(input, self.weight_ih, self.bias_ih)
                                             + F.linear(h, self.weight_hh, self.bias_hh))


class LSTMCell(RNNCellBase):
    """One step of LSTM: [N, I], (h, c) -> (h, c), each [N, H]; zeros when absent.

    Raises ShapeError for inputs that do not fit.

    >>> import lucid
    >>> h, c = lucid.nn.LSTMCell(3, 4)(lucid.zeros(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hx is not None and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise ShapeError(f"LSTMCell: the state is a pair (h, c) of tensors, got {type(hx).__name__}")
        h, c = (self._state(input, s) for s in (hx or (None, None)))
        return _lstm_step(F.linear(input, self.weight_ih, self.bias_ih)
                          + F.linear(h, self.weight_hh, self.bias_hh), c)


class GRUCell(RNNCellBase):
    """One step of GRU: [N, I], [N, H] -> [N, H]; h is zeros when absent. Raises ShapeError for others.

    >>> import lucid
    >>> lucid.nn.GRUCell(3, 4)(lucid.zeros(2, 3)).shape
    (2, 4)
    """

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h, size = self._state(input, hx), self.hidden_size
        gx, gh = F.linear(input, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh)
        (xr, xz, xn), (hr, hz, hn) = ([RECORDED.narrow(g, -1, k * size, size) for k in range(3)]
                                      for g in (gx, gh))
        r, z = RECORDED.sigmoid(xr + hr), RECORDED.sigmoid(xz + hz)
        n = RECORDED.tanh(xn + r * hn)
        return n + z * (h - n)
