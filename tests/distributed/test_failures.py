"""What goes wrong between ranks is an error on every rank, with rank and call named, and never a hang."""

from __future__ import annotations

import re
import time

import pytest

import lucid
import lucid.distributed as dist
from lucid.errors import DistributedError

# Runs a step; prints what the rank sees.
CATCH = """
    def see(step):
        start = time.time()
        try:
            step()
            text = "nothing"
        except DistributedError as error:
            text = f"{error} [{time.time() - start:.0f} s]"
        os.write(1, f"{RANK}: {text}\\n".encode())  # in one piece: the ranks share their standard output
    """


def seen(done):
    """rank -> what it printed."""
    lines = re.findall(r"^(\d): (.*)$", done.stdout, re.MULTILINE)
    assert len(dict(lines)) == len(lines), done.stdout
    return {int(rank): text for rank, text in lines}


def test_a_killed_rank(launch):
    """Rank 1 is killed while the others are in a large all_reduce that needs it."""
    done = launch(CATCH + """
    import signal
    x = torch.ones(2_000_000)
    dist.all_reduce(x)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    see(lambda: dist.all_reduce(x))
    try:
        dist.barrier()
    except DistributedError as error:
        assert "has failed" in str(error) and "rank 1" in str(error)
        print("still", flush=True)
    """, 3, ok=False)
    found = seen(done)
    assert done.returncode == 128 + 9 and set(found) == {0, 2}, done.stderr
    for rank, text in found.items():
        what = rf"rank {rank} in all_reduce of float32\[2000000\] \(sum\), call 1 of group 'world'"
        how = "rank (1|[02] gave up: .*rank 1) (is gone|closed its connection)"
        assert re.search(f"distributed: {what}: {how}", text)
        assert int(re.search(r"\[(\d+) s\]", text)[1]) < 20
    assert done.stdout.count("still") == 2
    assert "process 1 (pid" in done.stderr and "was ended by SIGKILL" in done.stderr


def test_a_killed_rank_whose_forked_child_lives_on(launch):
    """A DataLoader's worker holds copies of its parent's sockets: it must not keep them open."""
    done = launch(CATCH + """
    import signal
    dist.barrier()
    if RANK == 1:
        if os.fork() == 0:
            try:
                dist.barrier()  # a child has no group
            except DistributedError as error:
                os.write(1, f"5: {error}\\n".encode())
            os.close(1), os.close(2)
            time.sleep(30)
            os._exit(0)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    see(dist.barrier)
    """, 2, ok=False)
    found = seen(done)
    assert "rank 1 closed its connection" in found[0] or "rank 1 is gone" in found[0]
    assert int(re.search(r"\[(\d+) s\]", found[0])[1]) < 20
    assert "this process was forked from one that has a process group" in found[5]


REDUCE, SEND = "dist.all_reduce(torch.ones(3))", "dist.send(torch.ones(3), 1)"
REDUCED = r"all_reduce of float32\[3\] \(sum\), call 0"
SENT = r"send of float32\[3\] \(rank 0 to 1, tag 0\)"
# (rank 0's calls, rank 1's, what is said of rank 0, of rank 1)
DIFFERENT = {
    "shape": (REDUCE, "dist.all_reduce(torch.ones(4))", REDUCED, REDUCED.replace("[3", "[4")),
    "dtype": (REDUCE, "dist.all_reduce(torch.ones(3).double())", REDUCED, REDUCED.replace("32", "64")),
    "reduction": (REDUCE, "dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX)", REDUCED,
                  REDUCED.replace("sum", "max")),
    "root": ("dist.broadcast(torch.ones(3), 0)", "dist.broadcast(torch.ones(3), 1)",
             r"broadcast of float32\[3\] \(src=0\), call 0", r"broadcast of float32\[3\] \(src=1\), call 0"),
    "order": (f"dist.barrier(), {REDUCE}", f"{REDUCE}, dist.barrier()", "barrier, call 0", REDUCED),
    "received shape": (SEND, "dist.recv(torch.ones(4), 0)", SENT, SENT.replace("[3", "[4")),
    "both send": (SEND, "dist.send(torch.ones(3), 0)", SENT, SENT.replace("0 to 1", "1 to 0")),
    "receive and barrier": ("dist.recv(torch.ones(3), 1)", "dist.barrier()", SENT.replace("0 to 1", "1 to 0"),
                            "barrier, call 0"),
}


def test_calls_that_differ(launch):
    calls = [case[:2] for case in DIFFERENT.values()]
    done = launch(CATCH + f"""
    for calls in {calls}:
        dist.init_process_group("gloo", timeout=20)
        see(lambda: eval(calls[RANK]))
        dist.destroy_process_group()  # and the next group begins anew
    """, init=False)
    for rank in (0, 1):
        texts = re.findall(rf"^{rank}: (.*)$", done.stdout, re.MULTILINE)
        for text, (name, (*_, first, second)) in zip(texts, DIFFERENT.items(), strict=True):
            assert re.search(
                rf"distributed: .*the ranks do not agree: rank 0 is in {first} of group 'world'; rank 1 is "
                rf"in {second} of group 'world'\. Every rank must make the same calls in the same order", text
            ), (name, text)


def test_a_third_rank_hears_of_a_difference(launch):
    """Rank 2 waits for ranks that only talked to each other."""
    done = launch(CATCH + """
    see(lambda: dist.barrier() if RANK == 2 else dist.send(torch.ones(RANK + 1), 1 - RANK))
    """, 3)
    found = seen(done)
    assert "in barrier" in found[2] and "gave up: the ranks do not agree: rank 0 is in send" in found[2]


def test_a_rank_that_hangs(launch):
    done = launch(CATCH + """
    dist.init_process_group("gloo", timeout=20)
    dist.GroupMember.WORLD.timeout = 2
    if RANK == 1:
        time.sleep(5)
    see(lambda: dist.all_reduce(torch.ones(5)))
    """, 3, init=False)
    found = seen(done)
    for rank in (0, 2):
        assert f"rank {rank} in all_reduce of float32[5] (sum), call 0 of group 'world': rank " in found[rank]
        assert re.search(r"rank 1 did nothing for 2 s \(timeout\)", found[rank])
    assert re.search(r"rank [02] gave up: rank \d in all_reduce.*did nothing for 2 s", found[1])


def test_a_rank_that_raises(launch):
    done = launch(CATCH + """
    if RANK == 1:
        raise ValueError("of its own")
    see(dist.barrier)
    """, ok=False)
    assert done.returncode == 1 and "ValueError: of its own" in done.stderr
    assert re.search("rank 0 in barrier, call 0 of group 'world': rank 1 (closed|is gone)", seen(done)[0])


def test_a_rank_that_leaves(launch):
    done = launch(CATCH + """
    if RANK == 1:
        dist.destroy_process_group()
        time.sleep(2)
    else:
        see(dist.barrier)
    """)
    assert "rank 1 left the group (destroy_process_group)" in seen(done)[0]


def test_objects_that_cannot_be_sent(launch):
    done = launch("""
    import argparse
    try:
        dist.all_gather_object([], {"args": argparse.Namespace(a=1)})
    except TypeError as error:
        print(error, flush=True)
    dist.barrier()
    """)
    assert done.stdout.count("all_gather_object: cannot store args of type Namespace") == 2


# ---- the start ----


def test_ranks_that_do_not_come(launch):
    start = time.time()
    done = launch(CATCH + """
    if RANK < 2:
        see(lambda: dist.init_process_group("gloo", timeout=3))
    """, 4, init=False)
    found = seen(done)
    assert re.search(r"init_process_group: rank 2, 3 did not come to 127\.0\.0\.1:\d+ within 3 s", found[0])
    assert "rank 1 was with rank 0, but the ranks did not all meet" in found[1]
    assert time.time() - start < 60


def test_rank_0_does_not_come(launch):
    done = launch(CATCH + """
    if RANK == 1:
        see(lambda: dist.init_process_group("gloo", timeout=1))
    """, init=False)
    assert re.search(r"rank 1 did not reach rank 0 at 127\.0\.0\.1:\d+ within 1 s: .*refused", seen(done)[1])


@pytest.mark.parametrize("call, text", [
    ("rank=1 if RANK == 2 else RANK", "two processes call themselves rank 1"),
    ("world_size=3 + (RANK == 1)", "rank 1 has world_size 4, rank 0 has 3"),
])
def test_ranks_that_contradict_each_other(launch, call, text):
    done = launch(CATCH + f"""
    see(lambda: dist.init_process_group("gloo", timeout=20, {call}))
    """, 3, init=False)
    found = seen(done)
    assert all(text in found[rank] for rank in found) and len(found) == 3


def test_another_token(launch):
    done = launch(CATCH + """
    see(lambda: dist.init_process_group("gloo", timeout=5, token=f"secret {RANK}"))
    """, init=False)
    found = seen(done)
    assert "rank 1 did not come" in found[0]
    assert "another token; all ranks need the same LUCID_DIST_TOKEN" in found[1]


def test_file_and_tcp(launch, tmp_path):
    done = launch(f"""
    import socket
    path = "{tmp_path}/meet"
    if RANK == 0:
        open(path, "w").write('{{"host": "127.0.0.1", "port": 9, "token": "of an earlier job"}}')
        time.sleep(0.5)  # rank 1 finds the old file first
    del os.environ["LUCID_DIST_TOKEN"]
    dist.init_process_group("gloo", init_method=f"file://{{path}}", rank=RANK, world_size=WORLD, timeout=30)
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [2.0, 2.0] and not os.path.exists(path)
    dist.barrier()
    dist.destroy_process_group()
    port = int(os.environ["MASTER_PORT"])
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{{port}}?rank={{RANK}}&world_size=2")
    dist.all_reduce(x)
    assert x.tolist() == [4.0, 4.0]
    dist.destroy_process_group()
    print("met", flush=True)
    """, init=False)
    assert done.stdout.count("met") == 2


def test_wrong_arguments():
    def refused(text, **options):
        with pytest.raises(DistributedError, match=text):
            dist.init_process_group(**options)

    local = dict(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    refused("backend is 'gloo' or 'nccl', got 'mpi'", backend="mpi", **local)
    refused("init_method must be env://, tcp://host:port or file:///path, got 'ftp://x'", init_method="ftp://x")
    refused("needs rank=", init_method="tcp://127.0.0.1:1234", world_size=2)
    refused("expected tcp://host:port", init_method="tcp://127.0.0.1", rank=0, world_size=2)
    refused(r"0 <= rank < world_size, got rank=2, world_size=2", init_method="tcp://127.0.0.1:1", rank=2,
            world_size=2)
    refused("0.0.0.0 is reachable from other machines, so the ranks must know each other by a token",
            init_method="tcp://0.0.0.0:0", rank=0, world_size=2)
    refused("env:// needs the environment variable RANK; start the script with `python -m "
            "lucid.distributed.run")
    with pytest.raises(DistributedError, match="all_reduce: there is no process group"):
        dist.all_reduce(None)
    dist.init_process_group(**local)
    try:
        refused("there is a process group already", **local)
        with pytest.raises(TypeError, match="all_reduce: tensor must be a tensor, got list"):
            dist.all_reduce([1.0])
        with pytest.raises(DistributedError, match="rank 3 is not in <ProcessGroup 'world', ranks 0>"):
            dist.broadcast(lucid.ones(1), 3)
        with pytest.raises(ValueError, match="all_gather: tensor_list must be a list of 1 tensors, one per"):
            dist.all_gather([], lucid.ones(1))
        with pytest.raises(ValueError, match=r"hold tensors like the other argument \(float32\[1\]\), got"):
            dist.all_gather([lucid.ones(2)], lucid.ones(1))
        with pytest.raises(DistributedError, match="expected different ranks below 1"):
            dist.new_group([0, 1])
    finally:
        dist.destroy_process_group()
