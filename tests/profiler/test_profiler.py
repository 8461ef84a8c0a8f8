"""The profiler: what it sees forward and backward, its table, its trace, and that it leaves nothing
behind.
"""

from __future__ import annotations

import gzip
import json
import re
import time
import warnings

import numpy as np
import pytest

import lucid
from lucid import fusion, profiler
from lucid.autograd import engine
from lucid.errors import LucidError
from lucid.fusion import find_groups, patterns, rewrite
from lucid.profiler import ProfilerActivity, profile, record_function


def step(x):
    return ((x * x).tanh() * 2.0).sum()


def test_ops_and_nodes_are_seen(device):
    x = lucid.ones(3, 4, device=device, requires_grad=True)
    with profile() as prof:
        step(x).backward()
    rows = {(r.key, r.kind): r.count for r in prof.key_averages()}
    assert rows == {
        ("mul", "forward"): 2, ("tanh", "forward"): 1, ("sum", "forward"): 1,
        ("SumBackward", "backward"): 1, ("MulBackward", "backward"): 2, ("TanhBackward", "backward"): 1,
    }  # fmt: skip
    g = x.grad.numpy(force=True) if device == "cpu" else x.grad.cpu().numpy()
    np.testing.assert_allclose(g, 4 * (1 - np.tanh(1) ** 2), rtol=1e-6)


def test_fused_groups_appear_with_their_parts(device, monkeypatch):
    for kind in ("cpu", "cuda"):
        monkeypatch.setitem(patterns.RUN_SIZE, kind, 1)
    monkeypatch.setattr(rewrite, "MIN_SIZE", 1)
    x = lucid.ones(3, 4, device=device, requires_grad=True)
    with profile() as prof:
        step(x).backward()
    row = next(r for r in prof.key_averages() if r.kind == "fused")
    assert row.key == "mul+tanh+mul" and row.parts == ("MulBackward", "TanhBackward", "MulBackward")
    assert "  + TanhBackward" in prof.key_averages().table()
    assert x.grad is not None


def test_saved_values_are_released_and_kept_as_without():
    x = lucid.ones(3, requires_grad=True)
    y = step(x)
    with profile():
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(lucid.errors.FreedGraphError):
            y.backward()
    assert x.grad is not None


def test_functions_barriers_and_captures():
    class Twice(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    x = lucid.ones(4, requires_grad=True)
    with profile() as prof:
        a, b = Twice.apply(x)
        p, q = (a * b).split(2)
        y = p * q
        ga, gx = lucid.autograd.grad(y.sum(), (a, x))
    expected = lucid.autograd.grad(
        (lambda a, b: (a * b).split(2)[0] * (a * b).split(2)[1])(x * 2, x * 3).sum(), x
    )[0]
    np.testing.assert_allclose(gx.numpy(), expected.numpy())
    assert ga.shape == (4,) and any(r.key == "TwiceBackward" for r in prof.key_averages())


def test_times_add_up():
    with profile() as prof, record_function("outer"):
        time.sleep(0.02)
        with record_function("inner"):
            time.sleep(0.03)
            lucid.ones(2).exp()
    rows = {r.key: r for r in prof.key_averages()}
    assert rows["inner"].time >= 0.03 and rows["outer"].time >= rows["inner"].time + 0.02
    assert abs(rows["outer"].self_time - (rows["outer"].time - rows["inner"].time)) < 1e-9
    assert abs(rows["inner"].self_time - (rows["inner"].time - rows["exp"].time)) < 1e-9


def test_table_sorts_and_limits():
    with profile() as prof:
        for _ in range(3):
            lucid.ones(2).exp()
        lucid.ones(2).sin()
    averages = prof.key_averages()
    lines = averages.table(sort_by="count", row_limit=1).splitlines()
    assert (
        lines[2].startswith("exp") and "1 more rows" in lines[3] and lines[-1].startswith("Self time in all")
    )
    assert averages.table(sort_by="self_cpu_time_total") == averages.table() == str(averages) == str(prof)
    with pytest.raises(ValueError, match="sort_by is one of self_time_total"):
        averages.table(sort_by="nonsense")


def test_shapes():
    with profile(record_shapes=True) as prof:
        lucid.ones(2, 3).exp()
        lucid.ones(4).exp()
    assert sorted(r.shapes for r in prof.key_averages(group_by_input_shape=True)) == [((2, 3),), ((4,),)]
    assert len(prof.key_averages()) == 1


def test_chrome_trace(tmp_path):
    x = lucid.ones(3, requires_grad=True)
    with profile(record_shapes=True) as prof, record_function("step"):
        step(x).backward()
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    outer = next(e for e in events if e["name"] == "step")
    assert all(
        e["ph"] == "X" and outer["ts"] <= e["ts"] and e["ts"] + e["dur"] <= outer["ts"] + outer["dur"] + 1e-3
        for e in events
    )
    assert {"forward", "backward", "range"} == {e["cat"] for e in events}
    assert next(e for e in events if e["name"] == "tanh")["args"]["shapes"] == [[3]]


def test_nothing_is_left_behind():
    before = list(engine.PASSES)
    with pytest.raises(ZeroDivisionError), profile() as prof:
        1 / 0  # noqa: B018
    assert before == engine.PASSES
    step(lucid.ones(3, requires_grad=True)).backward()
    assert prof.events() == []
    with profile() as prof:
        with pytest.raises(LucidError, match="a profile is active"):
            profile().start()
        with pytest.raises(lucid.errors.ShapeError):
            lucid.ones(2) + lucid.ones(3)
        lucid.ones(2).exp()
    assert [e.name for e in prof.events()] == ["add", "exp"] and all(e.end > e.start for e in prof.events())
    assert before == engine.PASSES


def test_callback_decorator_and_switched_off_fusion():
    seen = []
    x = lucid.ones(3, requires_grad=True)
    work = record_function("work")(lambda: step(x).backward())
    with fusion.enabled(False), profile(on_trace_ready=seen.append, synchronize=True) as prof:
        work()
    assert seen == [prof] and prof.events()[0].name == "work"
    work()
    assert len(prof.events()) == 9


# ---- PyTorch's ways: schedule, activities, memory, stacks ----


PLANS = (
    {"wait": 1, "warmup": 1, "active": 2},
    {"wait": 0, "warmup": 0, "active": 1, "repeat": 2},
    {"wait": 2, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 2},
    {"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
)


@pytest.mark.parametrize("plan", PLANS)
def test_schedule_is_pytorchs(plan):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of a plan without warmup
        ours, theirs = profiler.schedule(**plan), torch.profiler.schedule(**plan)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]


def test_schedule_checks_its_numbers():
    with pytest.raises(ValueError, match="active > 0, got wait=0, warmup=0, active=0"):
        profiler.schedule(wait=0, warmup=0, active=0)


def test_only_the_scheduled_steps_are_recorded(device):
    seen = []
    x = lucid.ones(3, device=device)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda p: seen.append((p.step_num, [e.name for e in p.events()])),
    ) as prof:
        for i in range(10):
            (x.exp, x.sin, x.cos, x.tanh)[i % 4]()
            prof.step()
    traced = [f"ProfilerStep#{n}" for n in range(10)]
    assert seen == [
        (4, [traced[2], "cos", traced[3], "tanh"]),
        (8, [traced[6], "cos", traced[7], "tanh"]),
    ]
    assert prof.synchronize and [find_groups] == engine.PASSES
    x.exp()
    assert len(prof.events()) == 4


def test_a_trace_under_way_is_handed_over_at_the_end():
    seen = []
    plan = profiler.schedule(wait=0, warmup=1, active=5)
    with profile(schedule=plan, on_trace_ready=lambda p: seen.append(len(p.events()))) as prof:
        for _ in range(3):
            lucid.ones(2).exp()
            prof.step()
    assert len(seen) == 1
    with profile(schedule=profiler.schedule(wait=9, warmup=1, active=1), on_trace_ready=seen.append):
        lucid.ones(2).exp()
    assert len(seen) == 1 and [find_groups] == engine.PASSES


def test_memory_is_that_of_results_and_gradients(device):
    x = lucid.ones(256, device=device, requires_grad=True)
    with profile(profile_memory=True) as prof:
        (x.exp().reshape(16, 16) * 3.0).sum().backward()
    rows = {r.key: r.memory for r in prof.key_averages()}
    assert rows["exp"] == rows["mul"] == rows["ExpBackward"] == 1024
    assert rows["reshape"] == 0 and rows["sum"] == 4
    table = prof.key_averages().table(sort_by="self_cpu_memory_usage")
    assert "Memory" in table.splitlines()[0] and "1.0 KiB" in table.splitlines()[2]


def here():
    return lucid.ones(2).exp()


def there():
    return lucid.ones(2).exp()


def test_stacks(tmp_path):
    with profile(with_stack=True) as prof:
        here(), there(), there()
    rows = [r for r in prof.key_averages(group_by_stack_n=1) if r.key == "exp"]
    assert sorted((r.count, r.stack[0].rpartition(" ")[2]) for r in rows) == [(1, "here"), (2, "there")]
    assert all(r.stack[0].startswith(__file__) for r in rows)
    assert len([r for r in prof.key_averages() if r.key == "exp"]) == 1
    prof.export_stacks(tmp_path / "stacks.txt", "self_cuda_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert any(re.search(r"\): here;exp \d+$", line) for line in lines)
    assert not any("lucid/profiler" in line for line in lines)


@pytest.mark.parametrize("use_gzip", [False, True])
def test_tensorboard_trace_handler(tmp_path, use_gzip):
    handler = profiler.tensorboard_trace_handler(tmp_path / "log", "worker", use_gzip)
    with profile(on_trace_ready=handler):
        lucid.ones(2).exp()
    (path,) = (tmp_path / "log").iterdir()
    assert re.fullmatch(r"worker\.\d+\.pt\.trace\.json" + r"\.gz" * use_gzip, path.name)
    text = gzip.decompress(path.read_bytes()) if use_gzip else path.read_bytes()
    assert [e["name"] for e in json.loads(text)["traceEvents"]][-1] == "exp"


def test_pytorchs_numbers():
    with profile() as prof:
        lucid.ones(2).exp()
    (row,) = [r for r in prof.key_averages() if r.key == "exp"]
    assert row.cpu_time_total == row.cuda_time_total == pytest.approx(row.time * 1e6)
    assert row.self_cpu_time_total == pytest.approx(row.self_time * 1e6)
    with pytest.raises(ValueError, match="activities are of ProfilerActivity.CPU, ProfilerActivity.CUDA"):
        profile(activities=["gpu"])
