"""The settings of the process that importing lucid makes, and their switches."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def after_import(code: str = "", **env: str) -> list[str]:
    program = (
        f"{code}\nimport gc, lucid\nb = lucid.tensor(1.0).storage.backend\nprint(b.keeps_blocks, "
        "b.collects_rarely, gc.get_threshold()[0])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return out.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_blocks_are_kept_unless_switched_off():
    assert after_import()[0] == "True"
    assert after_import(LUCID_MALLOC="default")[0] == "False"


def test_the_collector_looks_less_often_unless_told_otherwise():
    default = subprocess.run(
        [sys.executable, "-c", "import gc; print(gc.get_threshold()[0])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert after_import()[1:] == (["True", "50000"] if default == "700" else ["False", default])
    assert after_import(LUCID_GC="default")[1:] == ["False", default]
    assert after_import("import gc; gc.set_threshold(1234)")[1:] == ["False", "1234"]


AWAKE = """
import time, lucid
a = lucid.ones(500, 500)
used = []
for _ in range(5):
    a @ a
    start = time.process_time()
    time.sleep(0.05)
    used.append(time.process_time() - start)
print(lucid.tensor(1.0).storage.backend.sleeps_after_products, 1e3 * sorted(used)[2])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/maps")
def test_the_threads_of_products_do_not_stay_awake():
    def measured(**env: str) -> tuple[str, float]:
        env = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", **env}
        out = subprocess.run(
            [sys.executable, "-c", AWAKE], env=env, capture_output=True, text=True, check=True
        ).stdout.split()
        return out[0], float(out[1])

    left_alone, awake = measured(LUCID_BLAS="default")
    assert left_alone == "False"
    if awake < 5:
        pytest.skip("products run on one thread here, or sleep anyway")
    told, asleep = measured()
    assert told == "True" and asleep < awake / 3
    assert measured(OPENBLAS_THREAD_TIMEOUT="26")[0] == "False"
