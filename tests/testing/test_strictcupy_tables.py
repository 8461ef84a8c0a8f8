"""Checked mode of the stand-in for CuPy: what a kernel may reach through addresses."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from lucid.testing import cusim, strictcupy

if sys.modules.get("cupy") is not None and not strictcupy.installed():
    pytest.skip("the real cupy is imported in this process", allow_module_level=True)
if not cusim.available()[0]:
    pytest.skip(cusim.available()[1], allow_module_level=True)
WAS_INSTALLED = strictcupy.installed()
cp = strictcupy.install()
if not WAS_INSTALLED:  # other test files choose for themselves
    strictcupy.uninstall()
f4 = np.float32

_TABLES = """
extern "C" __global__ void through(const unsigned long long* table, const unsigned long long* inner,
                                   long long step, float* out) {
  float* p = (float*)table[blockIdx.x];
  if (inner) p = *(float**)inner[0];
  out[blockIdx.x] = p[step];
}
extern "C" __global__ void plain(const float* p, long long step, float* out) { out[0] = p[step]; }
"""


def test_checked_mode_lets_a_kernel_reach_what_its_table_lists_and_nothing_else() -> None:
    """Planted fault: from a listed array to one that is live but was not passed."""
    m = cp.RawModule(code=_TABLES)
    kernel, null = m.get_function("through"), np.uintp(0)
    for make in (lambda v: cp.full(4, v, f4), lambda v: cp.full(4, v, f4) + 0):  # blocks; memory of NumPy
        a, b, other, out = make(1), make(2), make(3), cp.zeros(2, f4)
        table = cp.asarray(np.array([a.data.ptr, b.data.ptr], np.uint64))
        away = (other.data.ptr - a.data.ptr) // 4
        with strictcupy.configured(mode="checked"):
            kernel((2,), (1,), (table, null, np.int64(3), out))
            assert out.get().tolist() == [1, 2]
            for step in (away, 4):
                with pytest.raises(cusim.KernelError, match="out-of-bounds"):
                    kernel((1,), (1,), (table, null, np.int64(step), out))
            listed = cp.asarray(np.array([a.data.ptr, other.data.ptr], np.uint64))
            kernel((1,), (1,), (listed, null, np.int64(away), out))
            assert float(out[0]) == 3


def test_checked_mode_follows_a_table_in_a_table_and_an_address_as_a_number() -> None:
    m = cp.RawModule(code=_TABLES)
    a, b, out = cp.full(4, 1, f4), cp.full(4, 2, f4), cp.zeros(1, f4)
    table, other = (cp.asarray(np.array([x.data.ptr], np.uint64)) for x in (a, b))
    inner = cp.asarray(np.array([other.data.ptr], np.uint64))
    with strictcupy.configured(mode="checked"):
        with pytest.raises(cusim.KernelError, match="out-of-bounds"):  # b itself is listed in no argument
            m.get_function("through")((1,), (1,), (table, inner, np.int64(0), out))
        m.get_function("plain")((1,), (1,), (np.uintp(b.data.ptr), np.int64(1), out))
        assert float(out[0]) == 2
        with pytest.raises(cusim.KernelError, match="out-of-bounds"):
            away = (a.data.ptr - b.data.ptr) // 4
            m.get_function("plain")((1,), (1,), (np.uintp(b.data.ptr), np.int64(away), out))
        gone = b.data.ptr
        del b
        with pytest.raises(cusim.KernelError, match="out-of-bounds"):
            m.get_function("plain")((1,), (1,), (np.uintp(gone), np.int64(0), out))
