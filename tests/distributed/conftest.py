"""`launch`: a script in several processes, under the launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A collective that hangs is an error after this many seconds, a test after `PATIENCE`.
TIMEOUT, PATIENCE = 60, 150
HEAD = """\
import os, sys, time
import numpy as np
import lucid as torch
import lucid.distributed as dist
from lucid import nn, optim
from lucid.errors import DistributedError
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""
INIT = f"dist.init_process_group('gloo', timeout={TIMEOUT})\n"


@pytest.fixture
def launch(tmp_path):
    def run(text, nproc=2, init=True, ok=True, env=None, options=()):
        """The finished process of the launcher; `ok`: it must have ended well."""
        path = tmp_path / "script.py"
        path.write_text(HEAD + (INIT if init else "") + textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, "-m", "lucid.distributed.run", f"--nproc-per-node={nproc}", *options, str(path)],
            capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})},
        )  # fmt: skip
        if ok:
            assert done.returncode == 0, done.stderr
        return done

    return run
