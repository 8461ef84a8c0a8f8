"""Bad input to whole families of ops, and a list of what has no test of its message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lucid
from lucid import ones, tensor
from lucid.autograd.record import recorder
from lucid.errors import DtypeError, LucidError
from lucid.functional import PUBLIC
from lucid.ops.registry import OPS

v, m, c = ones(3), ones(2, 3), tensor([1j, 2j])

POINTWISE = {n: op for n, op in OPS.items() if op.public and op.pointwise}
INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "gcd", "lcm"}
# Numbers that these take before or after their tensors.
STATICS = {"mvlgamma": ((), (2,)), "polygamma": ((1,), ()), "threshold": ((), (0.1, 2.0))}


def operands(op, value):
    before, after = STATICS.get(op.name, ((), ()))
    return (*before, *([value] * len(op.tensors)), *after)


@pytest.mark.parametrize("name", sorted(POINTWISE))
def test_pointwise_ops_refuse_text(name):
    with pytest.raises(DtypeError, match=f"^{name}: expected a tensor .*got str 'text'; make a tensor of it"):
        recorder(POINTWISE[name])(*operands(POINTWISE[name], "text"))


@pytest.mark.parametrize("name", sorted(n for n, op in POINTWISE.items() if len(op.tensors) > 1))
def test_pointwise_ops_refuse_shapes_that_do_not_broadcast(name):
    op = POINTWISE[name]
    dtype = "int64" if name in INTEGERS else "bool" if name == "where" else "float32"
    shapes = [(2, 3), *[(4,)] * (len(op.tensors) - 1)]
    with pytest.raises(LucidError, match=rf"^{name}: .*(\(2, ?3\).*\(4,\)|\(4,\).*\(2, ?3\))"):
        recorder(op)(*[ones(*s, dtype=dtype) for s in shapes])


REAL = ["ceil", "floor", "trunc", "frac", "digamma", "lgamma", "erfinv", "signbit", "logit"]


@pytest.mark.parametrize("name", REAL)
def test_ops_of_real_numbers_refuse_complex(name):
    with pytest.raises(DtypeError, match=f"^{name}: .*complex64"):
        getattr(lucid, name)(c)


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_ops_of_integers_refuse_floats(name):
    with pytest.raises(DtypeError, match=f"^{name}: .*float32"):
        getattr(lucid, name)(v, v)


def only_dim(op):
    """Whether the op needs nothing but tensors and perhaps `dim`, which stands behind them."""
    names = [p.name for p in op.parameters]
    needed = [p.name for p in op.parameters if p.name in op.statics and p.default is p.empty]
    return "dim" in names and set(needed) <= {"dim"} and names.index("dim") > names.index(op.tensors[-1])


@pytest.mark.parametrize("name", sorted(n for n, op in OPS.items() if op.public and only_dim(op)))
def test_dim_out_of_range(name):
    op = OPS[name]
    with pytest.raises(LucidError, match=f"^{name}: .*dim must lie in .*got 7"):
        recorder(op)(*[m] * len(op.tensors), dim=7)


# Other names, activations and special functions, which hand their tensor to an op.
HANDED_ON = (
    [
        "absolute",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
        "argwhere",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "clone",
        "diagflat",
        "fill",
        "fix",
        "float_power",
        "greater",
        "greater_equal",
        "igamma",
        "igammac",
        "less",
        "less_equal",
        "multiply",
        "negative",
        "nonzero",
        "not_equal",
        "prelu",
        "ravel",
        "rsub",
        "spmm",
        "swapdims",
        "true_divide",
    ]
    + [
        f"nn.functional.{n}"
        for n in [
            "celu",
            "elu",
            "hardshrink",
            "hardsigmoid",
            "hardswish",
            "leaky_relu",
            "logsigmoid",
            "mish",
            "relu",
            "relu6",
            "selu",
            "sigmoid",
            "silu",
            "softplus",
            "softshrink",
            "softsign",
            "tanh",
            "tanhshrink",
            "threshold",
        ]
    ]
    + [
        f"special.{n}"
        for n in [
            "bessel_j0",
            "bessel_j1",
            "bessel_y0",
            "bessel_y1",
            "digamma",
            "entr",
            "erf",
            "erfc",
            "erfcx",
            "erfinv",
            "exp2",
            "expit",
            "expm1",
            "gammaln",
            "i0",
            "i1",
            "i1e",
            "log1p",
            "log_ndtr",
            "logit",
            "modified_bessel_i0",
            "modified_bessel_i1",
            "modified_bessel_k0",
            "modified_bessel_k1",
            "ndtr",
            "psi",
            "round",
            "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
            "sinc",
            "spherical_bessel_j0",
        ]
    ]
)


@pytest.mark.parametrize("name", HANDED_ON)
def test_functions_refuse_text(name):
    found = PUBLIC[name] if name in PUBLIC else getattr(lucid, name)
    for args in (("text",), ("text", "text"), ("text", 0.5), ("text", 0, 1), ("text", 0.5, 0.5)):
        try:
            found(*args)
        except TypeError as error:
            if isinstance(error, DtypeError):
                assert re.match(r"\w+: expected a tensor .*got str 'text'", str(error)), str(error)
                return
    raise AssertionError(f"{name}: no DtypeError for text")


# ---- every public function is here ----

# Questions, conversions and other functions whose arguments cannot have a wrong shape, dtype or range.
NOTHING_WRONG = set(
    [
        "asarray",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "compile",
        "conj",
        "conj_physical",
        "detach",
        "equal",
        "from_dlpack",
        "get_default_device",
        "is_complex",
        "is_floating_point",
        "numel",
        "real",
        "resolve_conj",
        "resolve_neg",
        "to_dlpack",
        "utils.dlpack.from_dlpack",
        "utils.dlpack.to_dlpack",
    ]
)


def test_every_public_op_has_a_row():
    here = Path(__file__).parent
    files = [here / f"test_error_messages{n}.py" for n in ("", "_nn", "_more")]
    tables = "".join(file.read_text(encoding="utf-8") for file in files)
    tested = set(re.findall(r'^    \("([^"]+)"', tables, re.MULTILINE)) | set(POINTWISE) | set(HANDED_ON)
    tested |= {n for n, op in OPS.items() if op.public and only_dim(op)}
    # Another name of a tested function, and the in-place form of one.
    same = {n for n, f in PUBLIC.items() if any(f is PUBLIC.get(t) for t in tested)}
    names = {n for n, op in OPS.items() if op.public} | {n for n in PUBLIC if not n.endswith("_")}
    assert sorted(names - tested - same - NOTHING_WRONG) == []
