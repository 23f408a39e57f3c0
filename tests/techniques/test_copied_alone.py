"""A technique's package, copied alone into an empty folder, trains with torch and nothing else."""

import ast
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from course_lib import techniques

ROOM = Path(techniques.__file__).parent
PROGRAM = Path(__file__).with_name("train_alone.py")
# Names for the stages in `zero`, and a type.
NOT_TECHNIQUES = {"__init__", "zero1", "zero2", "zero3", "make_optimizer"}
NAMES = sorted({p.stem for p in ROOM.iterdir() if p.name[0] != "." and p.stem != "__pycache__"})
TECHNIQUES = [name for name in NAMES if name not in NOT_TECHNIQUES]


def said_needs(name: str) -> set[str]:
    """The neighbours that the top of a package names."""
    doc = ast.get_docstring(ast.parse(front(name).read_text(encoding="utf-8"))) or ""
    said = re.search(r"Needs (no neighbour)\.|Needs of its neighbours: (.*?)\.(?:\s|$)", doc, re.S)
    assert said, f"{name} does not say at its top what it needs of its neighbours"
    return set(re.findall(r"\w+", said[2] or "")) & set(NAMES)


def front(name: str) -> Path:
    package = ROOM / name / "__init__.py"
    return package if package.exists() else ROOM / f"{name}.py"


def copy(name: str, folder: Path) -> None:
    """The package and the neighbours it names, with their paths; no file above them."""
    room = folder / "course_lib/techniques"
    room.mkdir(parents=True)
    for wanted in {name} | said_needs(name):
        source = ROOM / wanted
        if source.is_dir():
            shutil.copytree(source, room / wanted, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source.with_suffix(".py"), room)


def test_each_copied_alone_trains_under_torchrun(tmp_path) -> None:
    for name in TECHNIQUES:
        copy(name, tmp_path / "copies" / name)
    program = shutil.copy(PROGRAM, tmp_path)
    # Without `site` and PYTHONPATH the installed course cannot be found; only torch's folder is.
    # What starts the ranks may know everything.
    start = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); "
    start += f"sys.argv = ['', {str(tmp_path / 'copies')!r}]; "
    start += f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    result = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--no-python"),
            *("--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
            *(sys.executable, "-S", "-E", "-c", start),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    for name in TECHNIQUES:
        assert result.stdout.count(f"{name} trained") == 2


@pytest.mark.parametrize("name", TECHNIQUES)
def test_no_more_neighbours_are_named_than_needed(name: str) -> None:
    waiting, needed = [name], set()
    while waiting:
        for wanted in imported(waiting.pop()) - needed - {name}:
            needed.add(wanted)
            waiting.append(wanted)
    assert said_needs(name) == needed


def imported(name: str) -> set[str]:
    """The neighbours that the files of a package import."""
    folder = ROOM / name
    files = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = not folder.is_dir() and node.level == 1
                module = f"course_lib.techniques.{node.module}" if inside else node.module
                if module.startswith("course_lib.techniques."):
                    found.add(module.split(".")[2])
    return found - {name}
