"""`make` on machines that lack something: a plain sentence, before anything is downloaded."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = ("make", "sh", "touch", "awk", "id", "uname", "grep")


@pytest.fixture
def machine(tmp_path, root):
    """A copy of the Makefile and a PATH with the fewest tools; a function that runs make there."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(root / name, tmp_path)
    bin = tmp_path / "bin"
    bin.mkdir()
    for tool in TOOLS:
        (bin / tool).symlink_to(shutil.which(tool))

    def make(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["make", *arguments],
            cwd=tmp_path,
            env={"PATH": str(bin), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    make.bin = bin
    return make


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_help_lists_every_target_and_is_the_default(machine, root):
    targets = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.M).group(1).split()
    listed = machine()
    assert listed.returncode == 0
    assert [line.split()[1] for line in listed.stdout.splitlines()] == targets


def test_without_a_suitable_python_a_sentence_says_which_to_install(machine):
    script(machine.bin / "python3", "exit 1")  # what an old Python answers to the version question
    ended = machine("lab")
    assert ended.returncode != 0
    assert ended.stderr.startswith("No Python from 3.11 to 3.14 found. Install one")
    assert "Traceback" not in ended.stderr


def test_a_later_python_is_taken_when_python3_is_too_old(machine):
    script(machine.bin / "python3", "exit 1")
    script(machine.bin / "python3.12", 'case "$2" in *ensurepip*) exit 1;; esac; exit 0')
    assert "python3.12 cannot make environments" in machine("lab").stderr


def test_debian_without_venv_is_told_the_package(machine):
    script(machine.bin / "python3", 'case "$2" in *ensurepip*) exit 1;; esac; exit 0')
    ended = machine("test")
    assert ended.returncode != 0
    assert "sudo apt-get install python3-venv" in ended.stderr


def test_an_unsuitable_python_by_name_is_refused(machine):
    script(machine.bin / "snake", "exit 1")
    assert "snake is not a Python from 3.11 to 3.14" in machine("lab", "PYTHON=snake").stderr


@pytest.fixture
def installer(machine):
    """A Python whose `venv` makes an environment in which pip writes down what it was asked for."""
    inner = f"""\
case "$*" in
  *"config list"*) cat pip.conf 2>/dev/null ;;
  *install*) echo "$@" >> asked ;;
  *) exec {sys.executable} "$@" ;;
esac"""
    for tool in ("cat", "mkdir", "chmod"):
        (machine.bin / tool).symlink_to(shutil.which(tool))
    script(
        machine.bin / "python3",
        'test "$2" = venv || exit 0\n'
        "mkdir -p $4/bin\ncat > $4/bin/python <<'END'\n"
        f"#!/bin/sh\n{inner}\nEND\nchmod +x $4/bin/python",
    )
    folder = machine.bin.parent
    (folder / "course_lib").mkdir()
    return machine, folder


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_a_second_run_installs_nothing_until_a_version_changes(installer):
    make, folder = installer
    assert make(".venv/ready-lab").returncode == 0
    assert asked(folder)[-1].endswith("--constraint constraints.txt --editable .")
    before = asked(folder)
    again = make(".venv/ready-lab")
    assert (again.returncode, asked(folder)) == (0, before)
    assert "Installing" not in again.stdout
    # Older than the new constraints, whatever the clock's resolution.
    stamp = folder / ".venv/ready-lab"
    constraints = (folder / "constraints.txt").stat().st_mtime
    os.utime(stamp, (constraints - 10, constraints - 10))
    assert "Installing" in make(".venv/ready-lab").stdout


def test_the_benchmark_has_an_environment_of_its_own(installer):
    make, folder = installer
    assert make(".venv-bench/ready").returncode == 0
    assert asked(folder)[-1].endswith("--editable .[bench]")
    assert not (folder / ".venv").exists()


@pytest.mark.parametrize(
    ("system", "driver", "configured", "override", "index"),
    [
        ("Linux", False, "", None, True),
        ("Linux", True, "", None, False),
        ("Darwin", False, "", None, False),
        ("Linux", False, "global.index-url='https://mirror.example/simple'", None, False),
        ("Linux", False, ":env:.find-links='/wheels'", None, False),
        ("Linux", False, "", "", False),
        ("Darwin", True, "", "https://torch.example/cu130", True),
    ],
)
def test_where_torch_comes_from(installer, system, driver, configured, override, index):
    make, folder = installer
    (make.bin / "uname").unlink()
    script(make.bin / "uname", f"echo {system}")
    if driver:
        script(make.bin / "nvidia-smi", "exit 0")
    if configured:
        (folder / "pip.conf").write_text(configured + "\n")
    arguments = [] if override is None else [f"TORCH_INDEX={override}"]
    assert make(".venv/ready-lab", *arguments).returncode == 0
    torch, course = asked(folder)
    assert " torch" in torch
    assert ("--extra-index-url" in torch) == index
    assert "index" not in course
