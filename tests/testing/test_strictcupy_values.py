"""The stand-in for CuPy against NumPy: equal values, shapes and dtypes of expressions, and those refused."""

from __future__ import annotations

import operator
import sys

import numpy as np
import pytest

from lucid.testing import strictcupy

if sys.modules.get("cupy") is not None and not strictcupy.installed():
    pytest.skip("the real cupy is imported in this process", allow_module_level=True)
from lucid.testing.strictcupy.namespace import cupy as cp

rng = np.random.default_rng(0)

DATA = {
    "x": rng.standard_normal((3, 4)).astype(np.float32),
    "y": rng.standard_normal((3, 4)).astype(np.float32),
    "p": rng.uniform(0.1, 0.9, (3, 4)),
    "m": rng.standard_normal((4, 4)),
    "v": rng.standard_normal(4).astype(np.float32),
    "i": rng.integers(-5, 6, (3, 4)),
    "k": np.array([2, 0, 1]),
    "b": rng.standard_normal((3, 4)) > 0,
    "z": (rng.standard_normal((3, 4)) + 1j).astype(np.complex64),
    "t": rng.standard_normal((2, 3, 4)),
    "h": np.arange(6, dtype=np.float16),
    "spd": np.eye(4) * 5 + 0.1 * np.ones((4, 4)),
    "batch": np.eye(3) + 0.1 * rng.standard_normal((2, 3, 3)),
    "u": np.arange(4, dtype=np.uint8),
}
EXPRESSIONS = """
x+y | x-1 | 2*x | x/y | x//y | x%y | x**2 | -x | abs(x) | +x | x@v | x@y.T | v@v | x<y | x>=0 | x==y | x!=y
b&b | b|~b | i<<1 | i>>1 | i^i | divmod(x,y) | 1/x | 3-x | 2**x | x+1j | i+1.5 | i/2 | h*2 | h+x[0,:1] | z*2
z.real | z.imag | z.conj() | x.T | x.mT | t.mT | x.size | x.nbytes | x.ndim | xp.exp(x) | xp.log(p)
xp.log1p(p) | xp.expm1(x) | xp.sqrt(p) | xp.square(x) | xp.sin(x) | xp.arctan2(x,y) | xp.tanh(x)
xp.hypot(x,y) | xp.maximum(x,0) | xp.minimum(x,y) | xp.fmax(x,y) | xp.sign(x) | xp.floor(x) | xp.ceil(x)
xp.rint(x) | xp.trunc(x) | xp.fix(x) | xp.isnan(x) | xp.isfinite(x) | xp.isinf(x) | xp.signbit(x)
xp.copysign(x,y) | xp.logaddexp(x,y) | xp.logical_and(b,x) | xp.logical_not(b) | xp.reciprocal(p)
xp.power(p,x) | xp.float_power(p,2) | xp.modf(x) | xp.frexp(x) | xp.ldexp(x,2) | xp.gcd(i,i) | xp.cbrt(x)
xp.exp2(x) | xp.log2(p) | xp.deg2rad(x) | xp.heaviside(x,0.5) | xp.nextafter(x,y) | xp.sinc(x) | xp.i0(x)
xp.angle(z) | xp.absolute(z) | xp.invert(i) | xp.bitwise_count(u) | x.sum() | x.sum(axis=0)
x.sum(axis=(0,1),keepdims=True) | xp.sum(x,axis=-1,dtype=np.float64) | i.sum() | b.sum() | h.sum()
x.prod(axis=1) | x.mean() | x.mean(axis=0) | i.mean() | x.var(axis=1) | x.std(ddof=1) | x.max()
x.max(axis=1) | x.min(axis=0) | x.argmax() | x.argmin(axis=1) | b.any() | b.all(axis=0) | x.cumsum(axis=1)
x.cumprod() | x.ptp(axis=0) if hasattr(x,'ptp') else xp.ptp(x,axis=0) | xp.amax(x,0) | xp.median(x,axis=1)
xp.quantile(x,0.3,axis=0) | xp.percentile(x,30) | xp.average(x,axis=0) | xp.nansum(x) | xp.nanmax(x,axis=0)
xp.count_nonzero(b) | xp.count_nonzero(b,axis=0) | xp.diff(x,axis=1) | xp.trace(m) | xp.cov(x)
xp.corrcoef(x) | x.reshape(2,6) | x.reshape((4,-1)) | x.ravel() | x.flatten() | x.transpose()
t.transpose(2,0,1) | t.swapaxes(0,2) | xp.moveaxis(t,0,-1) | xp.rollaxis(t,2) | xp.expand_dims(x,1)
x[None].squeeze(0) | xp.broadcast_to(v,(3,4)) | xp.broadcast_arrays(x,v) | xp.concatenate([x,y])
xp.concatenate((x,y),axis=1) | xp.stack([x,y],axis=1) | xp.vstack([x,y]) | xp.hstack([x,y])
xp.dstack([x,y]) | xp.column_stack([v,v]) | xp.split(x,2,axis=1) | xp.array_split(x,2) | xp.hsplit(x,2)
xp.tile(v,(2,2)) | xp.repeat(x,2,axis=1) | xp.repeat(v,[1,2,0,1]) | xp.flip(x,0) | xp.fliplr(x)
xp.rot90(x) | xp.roll(x,1,axis=1) | xp.pad(x,1) | xp.pad(x,((1,0),(0,2)),constant_values=3)
xp.pad(x,1,mode='reflect') | xp.pad(x,1,mode='edge') | xp.where(b,x,y) | xp.where(b,x,0.0) | xp.where(b)
xp.clip(x,-0.5,0.5) | x.clip(0,None) | x.round(1) | xp.tril(m) | xp.triu(m,1) | xp.diag(v) | xp.diagonal(m)
xp.diagflat(v) | xp.eye(3,dtype=np.float32) | xp.sort(x) | xp.sort(x,axis=0) | xp.argsort(x,axis=1)
xp.argpartition(x,1,axis=1)[:,:0] | xp.partition(x,1,axis=1)[:,1] | xp.searchsorted(xp.sort(v),v)
xp.nonzero(b) | xp.argwhere(b) | xp.flatnonzero(b) | xp.unique(i) | xp.unique(i,return_inverse=True)[0]
xp.bincount(k) | xp.histogram(x,4) | xp.lexsort(xp.stack([v,v])) | xp.digitize(v,xp.sort(v))
xp.interp(v,xp.sort(v),v) | xp.take(x,k,axis=0) | x.take(k,axis=1)
xp.take_along_axis(x,xp.argsort(x,axis=1),axis=1) | xp.compress(k>0,x,axis=0) | xp.extract(b,x)
xp.choose(k,x[:3,:3]) | xp.tri(3) | xp.meshgrid(v,v) | xp.einsum('ij,kj->ik',x,y) | xp.einsum('ij->j',x)
xp.einsum('ii->i',m) | xp.tensordot(x,y,axes=([1],[1])) | xp.dot(x,v) | xp.inner(v,v) | xp.outer(v,v)
xp.vdot(v,v) | xp.kron(v,v) | xp.cross(x[:,:3],y[:,:3]) | xp.matmul(t,m) | xp.linalg.norm(x)
xp.linalg.norm(x,axis=1) | xp.linalg.norm(x,ord=1,axis=0) | xp.linalg.inv(m) | xp.linalg.solve(m,m)
xp.linalg.solve(spd,spd[:,0]) | xp.linalg.det(batch) | xp.linalg.slogdet(batch) | xp.linalg.cholesky(spd)
abs(xp.linalg.qr(m)[0]) | xp.linalg.svd(m)[1] | xp.linalg.eigh(spd)[0] | xp.linalg.eigvalsh(spd)
xp.linalg.pinv(m) | xp.linalg.lstsq(m,m,rcond=None)[0] | xp.linalg.matrix_power(m,3) | xp.linalg.inv(batch)
xp.linalg.tensorinv(xp.eye(4).reshape(2,2,2,2)) | xp.linalg.matrix_rank(spd) | xp.fft.fft(x)
xp.fft.ifft(z) | xp.fft.rfft(x) | xp.fft.irfft(z) | xp.fft.fft2(x) | xp.fft.fftn(t) | xp.fft.fftshift(v)
xp.fft.fftfreq(4) | xp.fft.rfftn(t) | xp.zeros((2,3)) | xp.ones(3,dtype=np.int32) | xp.full((2,),7)
xp.full(2,1.5,dtype=np.float32) | xp.arange(5) | xp.arange(1,2,0.25,dtype=np.float32) | xp.linspace(0,1,5)
xp.identity(2) | xp.zeros_like(x) | xp.ones_like(i) | xp.full_like(x,2) | xp.indices((2,2))
xp.tril_indices(3) | xp.asarray([1,2,3]) | xp.asarray(3.5) | xp.array([[1.0,2.0]],dtype=np.float32)
xp.array(x,ndmin=3) | xp.asarray(True) | xp.array([x,y]) | xp.ascontiguousarray(x.T) | xp.asfortranarray(x)
x.astype(np.float64) | x.astype(np.int8) | i.astype(bool) | x.view(np.int32) | x.copy() | x[0] | x[0,1]
x[1:,::2] | x[...,0] | x[None,:,None] | x[::-1] | x[:,-1] | x[k] | x[k,:2] | x[:,k] | x[k,k] | x[b]
x[b[:,0]] | x[:,b[0]] | x[k[:,None],k] | t[0,k] | t[:,:,b[0]] | x[[0,2]] | x[xp.asarray(1)] | x[1][2]
x[...] | t[k[1:]-1,...,0] | x[True] | xp.isclose(x,y) | xp.allclose(x,x) | xp.array_equal(x,x)
xp.result_type(x,i) | xp.promote_types('f4','i4') | xp.can_cast('f4','f8') | xp.shape(x) | xp.ndim(x)
xp.size(x,1) | xp.iscomplexobj(z) | xp.isscalar(3) | xp.issubdtype(x.dtype,np.floating)
xp.finfo(x.dtype).eps | xp.broadcast_shapes((3,1),(4,)) | xp.real(z) | xp.imag(z) | xp.conj(z)
xp.nan_to_num(x) | xp.convolve(v,v) | xp.polyval(v,v) | xp.gradient(v)
xp.cumsum(x,axis=0,dtype=np.float64) | xp.trapezoid(v) | xp.unravel_index(k,(2,2))
xp.ravel_multi_index((k,k),(3,3)) | xp.packbits(b) | xp.round(x,2) | xp.around(x) | xp.add.reduce(x,axis=1)
xp.multiply.accumulate(x,axis=1) | xp.add.outer(v,v)
xp.lib.stride_tricks.sliding_window_view(v,2) | xp.lib.stride_tricks.as_strided(v,(3,2),(4,4))
xp.isin(i,i[0]) | xp.logspace(0,1,3) | xp.hanning(5) | xp.cumulative_sum(v) | xp.matrix_transpose(t)
xp.permute_dims(t,(2,0,1)) | xp.astype(x,np.float64)
"""
LINES = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("expression", LINES)
def test_expression_gives_numpy_values_shapes_and_dtypes(expression: str) -> None:
    want = eval(expression, {"xp": np, "np": np, **{n: a.copy() for n, a in DATA.items()}})
    arrays = {n: cp.asarray(a) for n, a in DATA.items()}
    got = eval(expression, {"xp": cp, "np": np, **arrays})
    _same(got, want)
    for n, a in arrays.items():
        np.testing.assert_array_equal(a.get(), DATA[n])  # inputs unchanged


def _same(got, want) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _same(g, w)
    elif isinstance(want, (np.ndarray, np.generic)) and not isinstance(want, np.dtype):
        if not isinstance(got, cp.ndarray):
            assert isinstance(want, np.generic) and got == want  # np.finfo(...).eps
            return
        assert got.shape == np.shape(want) and got.dtype == want.dtype
        np.testing.assert_allclose(got.get(), want, rtol=1e-6, atol=1e-12)
    elif isinstance(got, cp.ndarray):
        assert got.shape == () and got.item() == want
    else:
        assert got == want


STATEMENTS = """
x[0] = 7 | x[1:,::2] = y[1:,::2] | x[k] = y | x[b] = 0 | x[b] = v[0] | x[:,k] = 1.5 | x += y | x *= 2
x -= v | x /= 3 | i //= 2 | i <<= 1 | b &= b | x[...] = v | x[0,1] += 5 | x[k] *= 2 | xp.add(x,y,out=x)
xp.exp(x,x) | xp.multiply(x,2,out=y) | xp.add.at(x,k,y) | xp.add.at(v,xp.asarray([0,0,1]),1.0)
xp.add.at(x,(k,k),1) | xp.maximum.at(x,k,y) | xp.put_along_axis(x,k[:,None],0.0,axis=1) | xp.copyto(x,y)
xp.copyto(x,y,where=b) | xp.putmask(x,b,y) | xp.place(x,b,v) | xp.put(x,k,v[:3]) | xp.fill_diagonal(m,0)
x.fill(3) | x.sort() | x.sum(axis=0,out=v) | xp.cumsum(x,axis=1,out=y) | xp.clip(x,0,1,out=x)
xp.matmul(x,m.astype(np.float32),out=y) | x.T[...] = 3 | x.real[0] = 2 | z.imag = 3 | x.reshape(-1)[5] = 9
x.shape = (4,3)
"""
STATEMENT_LINES = [e.strip() for line in STATEMENTS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("statement", STATEMENT_LINES)
def test_statement_has_numpys_effect(statement: str) -> None:
    h = {"xp": np, "np": np, **{n: a.copy() for n, a in DATA.items()}}
    d = {"xp": cp, "np": np, **{n: cp.asarray(a) for n, a in DATA.items()}}
    exec(statement, h)
    exec(statement, d)
    for n in DATA:
        _same(d[n], h[n])


# ---- refusals ---------------------------------------------------------------------------------------

X = "x = cp.arange(6, dtype='f4').reshape(2, 3)"
REFUSALS = [
    (TypeError, "np.asarray(x)", "Implicit conversion"),
    (TypeError, "x + np.ones(3)", "Unsupported type"),
    (TypeError, "np.ones(3) + x", "Unsupported type"),
    (TypeError, "np.add(x, np.ones(3))", "Unsupported type"),
    (TypeError, "x + [1, 2, 3]", ""),
    (TypeError, "cp.add(x, [1, 2, 3])", "Unsupported type"),
    (TypeError, "x + np.longdouble(1)", "Wrong type"),
    (TypeError, "cp.sum(np.ones(3))", "Unsupported type"),
    (TypeError, "cp.sum([1, 2])", "Unsupported type"),
    (TypeError, "cp.concatenate([x, np.ones((1, 3))])", "Unsupported type"),
    (TypeError, "cp.where(x > 0, x, np.ones(3))", "Unsupported type"),
    (TypeError, "cp.sum(x, where=x > 1)", "unexpected keyword"),
    (TypeError, "cp.add(x, x, where=x > 1)", "Wrong arguments"),
    (TypeError, "cp.max(x, initial=0)", "unexpected keyword"),
    (TypeError, "cp.var(x, correction=1)", "unexpected keyword"),
    (TypeError, "cp.sort(x, stable=True)", "unexpected keyword"),
    (TypeError, "cp.take(x, x, mode='clip')", "unexpected keyword"),
    (TypeError, "x.sum(where=x > 1)", "unexpected keyword"),
    (TypeError, "cp.exp(x, order='F')", "Wrong arguments"),
    (AttributeError, "cp.unstack", "unstack"),
    (AttributeError, "cp.errstate", "errstate"),
    (AttributeError, "cp.block", "block"),
    (AttributeError, "cp.linalg.multi_dot", "multi_dot"),
    (AttributeError, "cp.nosuchname", "nosuchname"),
    (AttributeError, "cp.random.default_rng(0).normal", "normal"),
    (AttributeError, "x.ctypes", "ctypes"),
    (AttributeError, "x.resize", "resize"),
    (ValueError, "cp.array(['a'])", "Unsupported dtype"),
    (ValueError, "x.astype(object)", "Unsupported dtype"),
    (ValueError, "cp.zeros(3, dtype='M8[s]')", "Unsupported dtype"),
    (ValueError, "cp.zeros(3, dtype='>f4')", "Unsupported dtype"),
    (ValueError, "x.__setitem__(0, np.ones(3))", "non-scalar"),
    (ValueError, "x.__setitem__(0, [1, 2, 3])", "non-scalar"),
    (TypeError, "x.astype('f8', casting='safe')", "casting"),
    (TypeError, "hash(x)", "unhashable"),
    (TypeError, "operator.index(cp.array(3))", ""),
    (TypeError, "len(cp.array(3))", "unsized"),
    (TypeError, "iter(cp.array(3))", "0-d"),
    (ValueError, "bool(x)", "ambiguous"),
    (ValueError, "x.item()", "size 1"),
    (IndexError, "x[5]", "out of bounds"),
    (IndexError, "x[x]", "integer or boolean"),
    (IndexError, "x[0, 0, 0]", "too many"),
    (TypeError, "cp.add.at(cp.zeros(3, 'i1'), cp.array([0, 0]), 1)", "only supports"),
    (NotImplementedError, "cp.multiply.at(cp.zeros(3), cp.array([0]), 1)", "not supported"),
    (NotImplementedError, "cp.subtract.reduce(x)", ""),
    (NotImplementedError, "cp.maximum.reduce(x)", ""),
    (TypeError, "float(cp.ones(1))", "0-dimensional"),
    (AttributeError, "x.flags.writeable", ""),
    (RuntimeError, "cp.zeros((3, 2))[:, :1].set(np.zeros((3, 1)))", "non-contiguous"),
    (TypeError, "cp.bitwise_and(x, x)", ""),
    (TypeError, "cp.logical_and(cp.ones(1, 'F'), cp.ones(1, 'F'))", ""),
    (TypeError, "cp.add(x, x, out=np.ones((2, 3)))", ""),
    (TypeError, "cp.add(cp.ones(2), 1.5, out=cp.ones(2, 'i4'))", "casting rule"),
    (ValueError, "cp.add(x, x, out=cp.ones(3, 'f4'))", "mismatched"),
    (ValueError, "cp.repeat(x, cp.array([1, 2]), axis=0)", "repeats"),
    (TypeError, "cp.linalg.inv(cp.eye(3, dtype='f2'))", "unsupported in linalg"),
    (np.linalg.LinAlgError, "cp.linalg.inv(x)", "square"),
    (TypeError, "cp.from_dlpack(np.ones(3))", "CPU arrays"),
    ((BufferError, RuntimeError, ValueError), "np.from_dlpack(x)", ""),
    (TypeError, "x.set(np.ones((2, 3)))", "cannot be set"),
    (ValueError, "x.set(np.ones((3, 2), 'f4'))", "Shape mismatch"),
    (TypeError, "cp.RawModule(code='', options=['-DA'])", "tuple"),
    (strictcupy.UndefinedOnDevice, "x[cp.array([5])]", "wraps"),
    (strictcupy.UndefinedOnDevice, "cp.take(x, cp.array([5]), axis=0)", "wraps"),
    (strictcupy.UndefinedOnDevice, "(-1 - x).astype('u4')", "cast"),
    (strictcupy.UndefinedOnDevice, "x.__setitem__(cp.array([0, 0]), x)", "twice"),
    (strictcupy.NotInStandin, "cp.ElementwiseKernel", "not in the stand-in"),
    (strictcupy.NotInStandin, "cp.apply_along_axis", "stand-in"),
    (strictcupy.NotInStandin, "cp.cuda.Stream().begin_capture()", "capture"),
    (RuntimeError, "cp.cuda.Device(1).use()", "invalid device"),
    (TypeError, "cp.random.rand(3, dtype='i4')", "dtype"),
]


@pytest.mark.parametrize("error,expression,text", REFUSALS, ids=[r[1] for r in REFUSALS])
def test_refusals(error, expression: str, text: str) -> None:
    scope = {"cp": cp, "np": np, "operator": operator}
    exec(X, scope)
    with pytest.raises(error, match=text or None):
        eval(expression, scope)
