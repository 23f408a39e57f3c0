"""Machines that lack something: a run goes well there, or says what is missing.

What does not matter to a run is tried all at once in `make test`, and one by one in `make faults`,
which also tries what does.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.test_techniques import ALL

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch, torch.distributed as dist
from course_lib import run_ranks

def total():
    {on_rank}
    x = torch.ones(3)
    dist.all_reduce(x)
    return x.sum().item()

{before}
print("result", list(run_ranks(total, 2)))
"""
RIGHT = "result [6.0, 6.0]\n"
CLOCK = "import time; time.time = iter(range(10**9, 0, -10**6)).__next__"
NO_NAMES = "import socket; socket.getaddrinfo = None"
OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
only_in_make_faults = pytest.mark.skipif(not ALL, reason="takes long: make faults")


@dataclass(frozen=True)
class Machine:
    """What is odd about it.

    environ: variables. before, on_rank: lines of Python, in the notebook and on each rank.
    shell: lines as root of namespaces of its own. prefix: what starts Python.
    """

    environ: dict[str, str] = field(default_factory=dict)
    before: str = ""
    on_rank: str = ""
    shell: str = ""
    prefix: tuple[str, ...] = ()

    def start(self, folder: Path, root: Path = ROOT) -> subprocess.Popen:
        file = folder / "program.py"
        text = PROGRAM.format(before=self.before, on_rank=self.on_rank or "pass")
        file.write_text(text, encoding="utf-8")
        command = [*self.prefix, sys.executable, str(file)]
        if self.shell:
            command = ["unshare", "-Urum", "sh", "-c", f'{self.shell} && exec "$@"', "sh", *command]
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(root), **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, root: Path = ROOT) -> tuple[str, str]:
        return self.start(folder, root).communicate(timeout=120)


def namespaces() -> bool:
    """Whether this user may have a host name and mounts of his own."""
    try:
        return subprocess.run(["unshare", "-Urum", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


needs_namespaces = pytest.mark.skipif(not namespaces(), reason="unshare is not allowed here")

ODD = {
    "narrow and far east": Machine({"COLUMNS": "20", "TZ": "Pacific/Kiritimati"}),
    "warnings are errors": Machine({"PYTHONWARNINGS": "error"}),
    "a home that cannot be written": Machine({"HOME": "/proc", "XDG_CACHE_HOME": "/proc"}),
    "no UTF-8": Machine({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}),
    "the clock jumps back": Machine(before=CLOCK, on_rank=CLOCK),
    "no name is resolved": Machine(before=NO_NAMES, on_rank=NO_NAMES),
}


def spaces_and_cyrillic(folder: Path) -> Path:
    root = folder / "мой курс"
    root.mkdir()
    shutil.copytree(ROOT / "course_lib", root / "course_lib")
    return root


def test_all_oddities_at_once(tmp_path) -> None:
    root = spaces_and_cyrillic(tmp_path)
    environ = {k: v for odd in ODD.values() for k, v in odd.environ.items()}
    odd = Machine({**environ, "TMPDIR": str(root)}, f"{CLOCK}; {NO_NAMES}", f"{CLOCK}; {NO_NAMES}")
    out, err = odd.run(root, root)
    assert out == RIGHT, err


@only_in_make_faults
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_oddity(tmp_path, odd) -> None:
    out, err = odd.run(tmp_path)
    assert out == RIGHT, err


@only_in_make_faults
@needs_namespaces
@pytest.mark.parametrize(
    "shell",
    ["hostname no.such.host", "mount -t tmpfs -o size=16k tmpfs /dev/shm"],
    ids=["a host name that nobody knows", "hardly any shared memory"],
)
def test_a_run_needs_no(tmp_path, shell) -> None:
    out, err = Machine(shell=shell).run(tmp_path)
    assert out == RIGHT, err


@only_in_make_faults
@needs_namespaces
@pytest.mark.parametrize("kilobytes", [4, 12, 20, 28])
def test_a_full_temporary_folder_is_named(tmp_path, kilobytes) -> None:
    full = tmp_path / "full"
    full.mkdir()
    shell = f"mount -t tmpfs -o size={kilobytes}k tmpfs '{full}'"
    out, err = Machine({"TMPDIR": str(full)}, shell=shell).run(tmp_path)
    assert out == RIGHT or "No space left on device" in err or "No usable temporary" in err, err


@only_in_make_faults
@pytest.mark.parametrize("most", [8, 12, 16])
def test_a_lack_of_descriptors_is_named(tmp_path, most) -> None:
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))"
    out, err = Machine(before=few).run(tmp_path)
    assert out == RIGHT or "Too many open files" in err, err


def another_user(**limits: str) -> Machine:
    """Has no rights of root but to read the Python of this test, wherever that is."""
    read = "dac_read_search"
    return Machine(
        prefix=(
            "setpriv",
            *(f"--{kind}={OTHER_USER}" for kind in ("reuid", "regid")),
            "--clear-groups",
            f"--inh-caps=-all,+{read}",
            f"--ambient-caps=-all,+{read}",
            f"--bounding-set=-all,+{read}",
        ),
        environ={"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        **limits,
    )


@only_in_make_faults
@needs_root
@pytest.mark.parametrize("most", [1, 4, 8])
def test_a_lack_of_processes_is_named(tmp_path, most) -> None:
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most}))"
    out, err = another_user(before=few).run(tmp_path)
    named = ("Resource temporarily unavailable", "of processes and threads (ulimit -u)")
    assert out == RIGHT or any(text in err for text in named), err


@only_in_make_faults
@needs_root
def test_two_users_at_once_do_not_meet(tmp_path) -> None:
    folders = [tmp_path / "mine", tmp_path / "theirs"]
    for folder in folders:
        folder.mkdir()
    machines = [Machine({"TMPDIR": "/tmp"}), another_user()]
    running = [each.start(folder) for each, folder in zip(machines, folders, strict=True)]
    assert [process.communicate(timeout=120)[0] for process in running] == [RIGHT] * 2
