"""Formulas on symbols, evaluated in Python: the expressions mean what the formulas mean."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import lucid  # noqa: F401
from lucid.errors import GradError
from lucid.fusion.symbols import FORMS, NoCudaForm, Symbol, SymbolNamespace, Trace, literal
from lucid.ops.registry import OPS
from lucid.storage import backend_of
from lucid.testing.samples import cases_of


def python_of(text: str) -> str:
    """A C expression as a Python one: innermost choices first, then && || !."""
    out, question, colon = "", None, None
    i = 0
    while i < len(text):
        c = text[i]
        if c == "(":
            j, level = i, 0
            while True:
                level += {"(": 1, ")": -1}.get(text[j], 0)
                if not level:
                    break
                j += 1
            out += "(" + python_of(text[i + 1 : j]) + ")"
            i = j + 1
            continue
        if c == "?":
            question, out = out, ""
        elif c == ":":
            colon, out = out, ""
        else:
            out += c
        i += 1
    if question is not None:
        out = f"({colon}) if ({question}) else ({out})"
    return re.sub(r"!(?!=)", " not ", out.replace("&&", " and ").replace("||", " or "))


def evaluate(trace: Trace, values: dict[str, float]) -> dict[str, float]:
    """The lines of a trace, run in Python."""
    from scipy import special

    scope: dict[str, object] = {k: v if v is None else np.asarray(v).item() for k, v in values.items()}
    scope |= {
        "accum_t": float,
        "true": True,
        "false": False,
        "QUIET_NAN": math.nan,
        "NEG_INF": -math.inf,
        "fabs_": abs,
        "pow_": np.power,
        "erf_": special.erf,
        "erfc_": special.erfc,
        "lgamma_": special.gammaln,
        "rsqrt_": lambda x: 1 / np.sqrt(x),
        "acos_": np.arccos,
        "asin_": np.arcsin,
        "atan_": np.arctan,
    }
    scope |= {
        f"{name}_": getattr(np, name)
        for name in ("cos", "cosh", "exp", "expm1", "log", "log1p", "sin", "sinh", "sqrt", "tanh")
    }
    with np.errstate(all="ignore"):
        for line in trace.lines:
            m = re.fullmatch(r"const (?:bool|accum_t) (\w+) = (.*);", line)
            text = python_of(re.sub(r"(\d)f\)", r"\1)", m[2]))
            value = eval(text, {"__builtins__": {}}, scope)
            scope[m[1]] = value.item() if hasattr(value, "item") else value
    return scope


# What reads more than elements (seeded_dropout its words) is tested beside its kernel.
ELEMENTWISE = [op for op in OPS.values() if op.pointwise and op.broadcast and op.samples]
FORMULAS = [(op, target) for op in ELEMENTWISE for target in op.formulas]


@pytest.mark.parametrize(("op", "target"), FORMULAS, ids=lambda v: getattr(v, "name", v))
def test_traced_formulas_agree_with_raw_ones(op, target):
    case = next(cases_of(op))
    formula = op.formulas[target]
    if case.dtype != "float64" or any(a is not None and a.dtype.kind == "c" for a in case.arrays):
        pytest.skip("complex")
    if any(n.endswith("_shape") for n in formula.names):
        pytest.skip("names a shape, so it is not fused")
    # The dtype rule has made floats of integers by the time a formula runs.
    raws = [
        a.astype("float64") if a is not None and op.dtype is not None and a.dtype.kind == "i" else a
        for a in case.arrays
    ]
    out = case.raw("cpu", raws)
    named = dict(zip(op.tensors, raws, strict=True)) | {op.outputs[0]: out} | case.statics
    named |= {f"{t}_dtype": a.dtype for t, a in zip(op.tensors, raws, strict=True) if a is not None}
    shape = np.broadcast_shapes(*[a.shape for a in raws if a is not None])
    g = np.random.default_rng(0).standard_normal(shape)
    trace = Trace()
    F = SymbolNamespace(trace)
    args, values = [], {"g": None}
    for name in formula.names:
        v = named[name]
        if isinstance(v, np.ndarray):
            args.append(Symbol(trace, f"v_{name}"))
        else:
            args.append(v)
    try:
        result = formula.function(F, Symbol(trace, "g"), *args)
    except (NoCudaForm, GradError) as why:
        pytest.skip(f"no CUDA form: {why}")
    results = result if formula.shared else (result,)
    with np.errstate(all="ignore"):
        expected = formula.function(backend_of("cpu").F, g, *[named[n] for n in formula.names])
    expected = np.broadcast_to((expected if formula.shared else (expected,))[0], shape)
    for index in list(np.ndindex(*shape))[:6]:
        values = {
            f"v_{n}": (np.broadcast_to(v, shape)[index])
            for n, v in named.items()
            if isinstance(v, np.ndarray)
        } | {"g": g[index]}
        scope = evaluate(trace, values)
        r = results[0]
        got = (
            scope[r.text]
            if isinstance(r, Symbol) and r.text in scope
            else float(eval(r.text, {}, scope))
            if isinstance(r, Symbol)
            else r
        )
        np.testing.assert_allclose(
            got, expected[index], rtol=1e-9, atol=1e-12, err_msg="\n".join(trace.lines)
        )


def test_the_ops_of_everyday_models_have_a_cuda_form():
    trace = Trace()
    F = SymbolNamespace(trace)
    for name in (
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "exp",
        "log",
        "tanh",
        "sigmoid",
        "relu",
        "gelu",
        "silu",
        "leaky_relu",
        "softplus",
        "sqrt",
        "abs",
        "sin",
        "cos",
        "pow",
        "where",
        "square",
        "elu",
        "hardtanh",
        "relu6",
    ):
        for target, formula in OPS[name].formulas.items():
            statics = dict(
                zip(
                    OPS[name].statics,
                    [p.default for p in OPS[name].parameters if p.name in OPS[name].statics],
                    strict=True,
                )
            )
            formula.function(
                F,
                Symbol(trace, "g"),
                *[statics[n] if n in statics else Symbol(trace, n) for n in formula.names],
            )
            assert trace.lines or target


def test_equal_expressions_share_a_register():
    trace = Trace()
    x = Symbol(trace, "x")
    assert (x * x + x * x).text == "t1" and len(trace.lines) == 2


SIMPLER = {
    "-(-x)": (lambda x, y: (-x).__neg__(), 0),
    "-(x * 3)": (lambda x, y: -(x * 3.0), 1),
    "-x * 3": (lambda x, y: -x * 3.0, 1),
    "3 * -x": (lambda x, y: 3 * -x, 1),
    "x + x": (lambda x, y: x + x, 1),
    "x + -y": (lambda x, y: x + -y, 1),
    "-x + y": (lambda x, y: -x + y, 1),
    "x - -y": (lambda x, y: x - -y, 1),
    "the gradient of -x * x": (lambda x, y: y * -x + -(y * x), 3),
    "in the other order": (lambda x, y: -(x * y) + y * -x, 2),
    "-(x * 0)": (lambda x, y: -(x * 0), 1),
    "nothing to gain": (lambda x, y: (x - y) * (y - x), 3),
}


@pytest.mark.parametrize("name", SIMPLER)
def test_signs_move_to_where_they_cost_nothing(name):
    f, operations = SIMPLER[name]
    values = (0.0, -0.0, 1.5, -0.1, math.inf, 1e308)
    for a in values:
        for b in values:
            trace = Trace()
            out = f(Symbol(trace, "x"), Symbol(trace, "y"))
            assert len(trace.needed([out]) - {"x", "y"}) == operations, trace.lines
            found = {"x": a, "y": b} | evaluate(trace, {"x": a, "y": b})
            with np.errstate(all="ignore"):
                expected = f(np.float64(a), np.float64(b))
            # bit for bit: the signs of zeros, too
            assert math.isnan(expected) and math.isnan(found[out.text]) or (
                np.float64(found[out.text]).tobytes() == np.float64(expected).tobytes()
            ), (a, b, trace.lines)


def test_literals_are_exact_and_typed():
    assert (
        literal(2) == "accum_t(2)"
        and literal(0.5) == "accum_t(0.5f)"
        and literal(0.1) == "accum_t(0.1)"
        and literal(True) == "true"
    )
    assert (
        literal(math.inf) == "(-NEG_INF)"
        and literal(-math.inf) == "NEG_INF"
        and literal(math.nan) == "QUIET_NAN"
    )
    assert all(form.count("(") == form.count(")") for form in FORMS.values())


def test_no_form_is_said_so():
    trace = Trace()
    x = Symbol(trace, "x")
    with pytest.raises(NoCudaForm, match="op zeta"):
        SymbolNamespace(trace).zeta(x, x)
    with pytest.raises(NoCudaForm, match="branch on a value"):
        bool(x > 0)
