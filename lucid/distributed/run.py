"""The launcher: `python -m lucid.distributed.run --nproc-per-node 2 script.py ...`, as torchrun.

It starts the processes of this machine with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and a new LUCID_DIST_TOKEN in their environment, waits for them, and ends the others when one
fails. On several machines: the same command on each, with --nnodes, --node-rank, the --master-addr and
--master-port of node 0, and one LUCID_DIST_TOKEN for all.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

# Seconds in which the ranks that a failed one leaves behind may end with an error of their own, which says
# what they were doing; then seconds between asking them to end and killing them.
_REPORT, _GRACE = 3.0, 10.0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    about = (__doc__ or "").split("\n\n")[1]
    p = argparse.ArgumentParser("python -m lucid.distributed.run", description=about, allow_abbrev=False)
    for name, options in {
        "--nproc-per-node": dict(default="1", metavar="N",
                                 help="processes on this machine; 'gpu' for one per CUDA device (default 1)"),
        "--nnodes": dict(type=int, default=1, metavar="N", help="machines (default 1)"),
        "--node-rank": dict(type=int, default=0, metavar="I", help="this machine's number (default 0)"),
        "--master-addr": dict(default="127.0.0.1", help="address of machine 0 (default 127.0.0.1)"),
        "--master-port": dict(type=int, default=0, help="a free port there (default: one is found; needed "
                                                        "with several machines)"),
    }.items():
        p.add_argument(name, name[:2] + name[2:].replace("-", "_"), **options)  # type: ignore[arg-type]
    p.add_argument("--standalone", action="store_true", help="one machine (the default)")
    p.add_argument("-m", "--module", action="store_true", help="the script is a module, as python -m")
    p.add_argument("script")
    p.add_argument("arguments", nargs=argparse.REMAINDER)
    return p


def _processes(text: str) -> int:
    if text == "gpu":
        from ..storage.cupy_backend import device_count

        return device_count()
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    return int(text)


def _free_port(host: str) -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def _environments(args: argparse.Namespace, count: int) -> list[dict[str, str]]:
    shared = {
        "WORLD_SIZE": str(count * args.nnodes),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": str(args.node_rank),
        "MASTER_ADDR": args.master_addr,
        "MASTER_PORT": str(args.master_port or _free_port(args.master_addr)),
    }
    if args.nnodes == 1:
        shared["LUCID_DIST_TOKEN"] = secrets.token_hex(32)
    if count > 1 and "OMP_NUM_THREADS" not in os.environ:
        # Each process would take all cores for its matrix products.
        shared["OMP_NUM_THREADS"] = "1"
    return [
        {**os.environ, **shared, "LOCAL_RANK": str(i), "RANK": str(args.node_rank * count + i)}
        for i in range(count)
    ]


def _watch(processes: list[subprocess.Popen[Any]]) -> int:
    """The exit code of the first process that failed; 0 when all ended well."""
    running = dict(enumerate(processes))
    while running:
        for i, p in list(running.items()):
            code = p.poll()
            if code is None:
                continue
            del running[i]
            if code != 0:
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
                print(f"lucid.distributed.run: process {i} (pid {p.pid}) {how}; the others are ended",
                      file=sys.stderr, flush=True)
                until = time.monotonic() + _REPORT
                while time.monotonic() < until and any(q.poll() is None for q in running.values()):
                    time.sleep(0.05)
                return 128 - code if code < 0 else code
        time.sleep(0.05)
    return 0


def _end(processes: list[subprocess.Popen[Any]], grace: float) -> None:
    for p in processes:
        if p.poll() is None:
            p.terminate()
    until = time.monotonic() + grace
    for p in processes:
        try:
            p.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or that of the first process that failed (128 + n for one ended by signal n)."""
    p = parser()
    args = p.parse_args(arguments)
    try:
        count = _processes(args.nproc_per_node)
    except ValueError:
        p.error(f"--nproc-per-node: expected a number, 'gpu' or 'cpu', got {args.nproc_per_node!r}")
    if count < 1 or not 0 <= args.node_rank < args.nnodes:
        p.error(f"expected at least 1 process and 0 <= node-rank < nnodes, got {count} processes, node-rank "
                f"{args.node_rank}, nnodes {args.nnodes}")
    if args.nnodes > 1 and not (args.master_port and os.environ.get("LUCID_DIST_TOKEN")):
        p.error("several machines need --master-port, and one secret in LUCID_DIST_TOKEN on all of them")
    command = [sys.executable, "-u", *(["-m"] if args.module else []), args.script, *args.arguments]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes: list[subprocess.Popen[Any]] = []
    code = 1
    try:
        processes += [subprocess.Popen(command, env=e) for e in _environments(args, count)]
        code = _watch(processes)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    finally:
        _end(processes, _GRACE)
    return code


if __name__ == "__main__":
    sys.exit(main())
