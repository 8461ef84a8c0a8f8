"""What the benchmarks share: their command line and the file that they write."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark: `--json`, `--scale`. doc: its help, as it is written."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", help="write the rows to this file")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies the number of repeats")
    return p


def write(path: str | None, rows: Any) -> None:
    """Nothing; the rows and the versions go to a JSON file, where a path is given."""
    if path is not None:
        with open(path, "w") as f:
            json.dump({"python": sys.version.split()[0], "numpy": np.__version__, "rows": rows}, f, indent=1)
