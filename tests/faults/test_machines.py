"""Machines that lack something: a run goes well there, or says what is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch, torch.distributed as dist
from course_lib import run_ranks

def total():
    x = torch.ones(3)
    dist.all_reduce(x)
    return x.sum().item()

print("result", list(run_ranks(total, 2)))
"""


def run(folder: Path, before: str = "", root: Path = ROOT, **environ: str):
    file = folder / "program.py"
    file.write_text(before + PROGRAM, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root), **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"COLUMNS": "20", "TZ": "Pacific/Kiritimati"},
        {"PYTHONWARNINGS": "error::UserWarning"},
        {"HOME": "/proc", "XDG_CACHE_HOME": "/proc"},  # a home where nothing can be written
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"},
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_a_run_goes_well_in_an_odd_environment(tmp_path, environ) -> None:
    ended = run(tmp_path, **environ)
    assert (ended.stdout, ended.returncode) == ("result [6.0, 6.0]\n", 0), ended.stderr


def test_a_path_may_have_spaces_and_letters_of_any_script(tmp_path) -> None:
    root = tmp_path / "мой курс"
    root.mkdir()
    shutil.copytree(ROOT / "course_lib", root / "course_lib")
    ended = run(root, root=root, TMPDIR=str(root))
    assert ended.stdout == "result [6.0, 6.0]\n", ended.stderr


@pytest.mark.parametrize(
    "before",
    [
        "import socket; socket.getaddrinfo = None\n",
        "import time; time.time = iter(range(10**9, 0, -10**6)).__next__\n",
    ],
    ids=["no host name is resolved", "the clock jumps back"],
)
def test_a_run_needs_neither_names_nor_the_time_of_day(tmp_path, before) -> None:
    ended = run(tmp_path, before)
    assert ended.stdout == "result [6.0, 6.0]\n", ended.stderr


def test_a_missing_temporary_folder_and_no_descriptors_are_said(tmp_path) -> None:
    few = "import torch, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\n"
    ended = run(tmp_path, few)
    assert ended.returncode
    assert "OSError: [Errno 24] Too many open files" in ended.stderr


def test_two_runs_at_once_do_not_meet(tmp_path) -> None:
    both = [tmp_path / "one", tmp_path / "two"]
    running = []
    for folder in both:
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        running.append(
            subprocess.Popen(
                [sys.executable, str(folder / "program.py")],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    assert [process.communicate(timeout=120)[0] for process in running] == [
        "result [6.0, 6.0]\n"
    ] * 2
