"""Many modules with barriers in one process: stacks are given back, so memory mappings do not run out."""

from __future__ import annotations

import numpy as np
import pytest

from lucid.testing import cusim

SOURCE = """
extern "C" __global__ void add_{n}(float* x) {{
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x] + {n};
  __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x];
}}
"""


def mappings() -> int:
    with open("/proc/self/maps") as f:
        return sum(1 for _ in f)


@pytest.mark.skipif(not cusim.available()[0], reason=str(cusim.available()[1]))
def test_stacks_are_given_back_and_modules_still_run():
    from lucid.testing.cusim import module as m

    modules = [m.Module(SOURCE.format(n=n)) for n in range(15)]
    counts = []
    for k in range(2):
        for n, module in enumerate(modules):
            x = np.arange(256, dtype="f")
            module.launch(f"add_{n}", (1,), (256,), (x,))
            np.testing.assert_array_equal(x, np.arange(255, -1, -1, dtype="f") + n)
            counts.append(mappings())
        assert k == 0 or counts[-1] <= counts[14] + 600
    assert counts[-1] - counts[0] < 13 * 2 * 256 + 600
