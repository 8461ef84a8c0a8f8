"""The README's example runs, the wheel has all files, the commands in ci/ find Python."""

import os
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import lucid

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def test_readme_example_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks, "README.md has no python example"
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    accuracy = re.search(r"test accuracy (\d+\.\d)%", capsys.readouterr().out)
    assert accuracy and float(accuracy[1]) > 93


def test_readme_links_exist():
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ci/README.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(target).exists(), (
                f"{page} links to {target}, which is not there"
            )


def test_readme_map_names_what_exists():
    section = (ROOT / "README.md").read_text().split("## Map of the code")[1].split("\n## ")[0]
    names = re.findall(r"`((?:lucid|kernels|tests|benchmarks|ci)/[\w./]*)`", section)
    assert len(names) > 10
    for name in names:
        path = ROOT / name
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix != ".pyc"]
        assert any(file.is_file() for file in files), f"README.md names {name}, which is not there"


def test_version_is_the_same_everywhere():
    assert PROJECT["project"]["version"] == lucid.__version__
    assert f"## {lucid.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_lists_every_package():
    folders = {init.parent.relative_to(ROOT) for init in (ROOT / "lucid").rglob("__init__.py")}
    names = {".".join(folder.parts) for folder in folders} | {"lucid._kernels"}
    listed = set(SETUPTOOLS["packages"])
    add, drop = sorted(names - listed), sorted(listed - names)
    assert not add and not drop, f"[tool.setuptools] packages in pyproject.toml: add {add}, drop {drop}"


def test_the_wheel_takes_every_data_file():
    patterns = SETUPTOOLS["package-data"]
    for package in SETUPTOOLS["packages"]:
        home = ROOT / SETUPTOOLS["package-dir"].get(package, package.replace(".", "/"))
        for file in home.rglob("*"):
            inner = any(
                (folder / "__init__.py").exists() for folder in file.parents if home in folder.parents
            )
            if not file.is_file() or file.suffix in (".py", ".pyc") or inner:
                continue
            name = file.relative_to(home).as_posix()
            fits = [p for p in patterns.get("*", []) + patterns.get(package, []) if fnmatch(name, p)]
            assert fits, f"{package}: {name} is in no pattern of [tool.setuptools.package-data]"


def bash(script, **environment):
    """The finished process of a script that starts by sourcing ci/_venv.sh."""
    line = f'source "{ROOT}/ci/_venv.sh"; {script}'
    return subprocess.run(["/bin/bash", "-c", line, "ci/x"], capture_output=True, text=True, env=environment)


def fake_python(folder, name, version):
    """An executable that answers like a Python of that version, as far as ci/_venv.sh asks."""
    enough = "0" if version >= (3, 11) else "1"
    program = folder / name
    program.write_text(
        '#!/bin/sh\ncase "$2" in\n'
        f"  *version_info\\ \\<*) exit {enough} ;;\n"
        f"  *print*) echo {version[0]}.{version[1]} ;;\n"
        "  *) exit 1 ;;\nesac\n"
    )
    program.chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path):
    """A folder with a blank in its name that holds nothing but the tools that ci/_venv.sh calls."""
    folder = tmp_path / "my bin"
    folder.mkdir()
    for tool in ("dirname", "cksum", "cat"):
        path = next(p for p in (f"/usr/bin/{tool}", f"/bin/{tool}") if os.path.exists(p))
        (folder / tool).symlink_to(path)
    return folder


def test_ci_takes_the_first_python_that_is_new_enough(bin_folder):
    fake_python(bin_folder, "python3", (3, 9))
    fake_python(bin_folder, "python3.12", (3, 12))
    fake_python(bin_folder, "python3.11", (3, 11))
    done = bash("find_python", PATH=str(bin_folder))
    assert (done.returncode, done.stdout) == (0, f"{bin_folder}/python3.12\n")
    chosen = bash("find_python", PATH=str(bin_folder), PYTHON=f"{bin_folder}/python3.11")
    assert chosen.stdout == f"{bin_folder}/python3.11\n"


def test_ci_says_which_python_is_too_old(bin_folder, tmp_path):
    fake_python(bin_folder, "python3", (3, 9))
    done = bash("make_venv", PATH=str(bin_folder), LUCID_VENV=str(tmp_path / "venv"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert (
        "x: needs Python 3.11 or newer on PATH; found only python3 (3.9). Install one, or name it:"
        in done.stderr
    )


def test_ci_says_that_venv_is_missing(bin_folder, tmp_path):
    fake_python(bin_folder, "python3", (3, 11))
    done = bash("make_venv", PATH=str(bin_folder), LUCID_VENV=str(tmp_path / "venv"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"x: {bin_folder}/python3 has no working venv module. On Debian")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("script", ["ci/_venv.sh", "ci/train", "ci/test", ".ci/run"])
def test_ci_scripts_parse(script):
    assert subprocess.run(["/bin/bash", "-n", ROOT / script], capture_output=True).stderr == b""
    assert os.access(ROOT / script, os.X_OK) is not script.endswith(".sh")
