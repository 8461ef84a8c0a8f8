"""The launcher: environment, arguments, exit codes."""

from __future__ import annotations

import re

import pytest

from lucid.distributed import run


def test_environment_and_arguments(launch, tmp_path):
    (tmp_path / "inner.py").write_text("print('module', __name__, flush=True)")
    done = launch("""
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")
        assert len(os.environ["LUCID_DIST_TOKEN"]) == 64 and int(os.environ["MASTER_PORT"]) > 0
        os.write(1, (" ".join(os.environ[n] for n in names) + "\\n").encode())
        """, 3, init=False)
    assert sorted(done.stdout.split("\n")[:3]) == [f"{r} {r} 3 3 127.0.0.1 1" for r in range(3)]


def test_arguments_reach_the_script(tmp_path, capfd, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])")
    assert run.main(["--nproc_per_node", "1", str(script), "--epochs", "3", "-m"]) == 0
    assert capfd.readouterr().out == "['--epochs', '3', '-m']\n"
    monkeypatch.chdir(tmp_path)
    assert run.main(["-m", "script", "x"]) == 0
    assert capfd.readouterr().out == "['x']\n"


def test_exit_codes(launch):
    done = launch("""
        if RANK == 1:
            sys.exit(7)
        time.sleep(60)  # is ended by the launcher
        """, 2, init=False, ok=False)
    assert done.returncode == 7
    assert re.search(r"process 1 \(pid \d+\) ended with code 7; the others are ended", done.stderr)


@pytest.mark.parametrize("arguments, text", [
    (["--nproc-per-node", "many"], "expected a number, 'gpu' or 'cpu', got 'many'"),
    (["--nproc-per-node", "0"], "expected at least 1 process"),
    (["--nnodes", "2", "--node-rank", "2"], "0 <= node-rank < nnodes"),
    (["--nnodes", "2"], "several machines need --master-port, and one secret in LUCID_DIST_TOKEN"),
])
def test_wrong_arguments(arguments, text, capsys, monkeypatch):
    monkeypatch.delenv("LUCID_DIST_TOKEN", raising=False)
    with pytest.raises(SystemExit):
        run.main([*arguments, "script.py"])
    assert text in capsys.readouterr().err
