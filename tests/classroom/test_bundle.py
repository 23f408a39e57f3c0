"""What learners get is whole, and holds no answer."""

import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from course_lib.checks.registry import all_exercises
from course_lib.classroom import Course
from course_lib.classroom.bundle import leaks_of, write_bundle
from course_lib.classroom.untouched_notebooks import untouched

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of the real course, unpacked from its zip file."""
    folder = tmp_path_factory.mktemp("bundle")
    assert write_bundle(Course(ROOT, all_exercises()), folder / "course.zip") == []
    assert not (folder / "course").exists()
    with zipfile.ZipFile(folder / "course.zip") as archive:
        archive.extractall(folder)
    return folder / "course"


def test_everything_a_learner_needs_and_nothing_else_is_there(bundle):
    assert {path.name for path in bundle.iterdir()} == {
        *("AGENTS.md", "README.md", "Makefile", "notebooks", "course_lib", "pyproject.toml"),
        *("constraints.txt", "environment.yml", ".gitignore", ".jupyter", "LICENSE", "docs"),
    }
    lessons = untouched(ROOT)
    assert {path.stem for path in (bundle / "notebooks").glob("*.ipynb")} == set(lessons)
    assert untouched(bundle) == lessons
    names = [path.name for path in bundle.rglob("*")]
    assert not {"solutions", "answers"} & set(names)
    assert "__pycache__" not in names


def test_no_answer_is_in_it(bundle):
    assert list(leaks_of(bundle, Course(ROOT, all_exercises()))) == []


def test_an_answer_that_slips_in_is_found(bundle, tmp_path):
    course = Course(ROOT, all_exercises())
    solution = nbformat.read(ROOT / "solutions/00_ranks.ipynb", as_version=4)
    (answer,) = [cell.source for cell in solution.cells if cell.id == "answer-blame"]
    (tmp_path / "course_lib").mkdir()
    (tmp_path / "course_lib" / "helper.py").write_text(answer)
    known = tmp_path / "solutions" / "answers" / "00_ranks" / "blame.py"
    known.parent.mkdir(parents=True)
    known.write_text("")
    nbformat.write(solution, tmp_path / "00_ranks.ipynb")
    found = list(leaks_of(tmp_path, course))
    assert "course_lib/helper.py shows the answer of blame" in found
    assert "solutions/answers/00_ranks/blame.py has no place in a learner's bundle" in found
    assert any(leak.startswith("00_ranks.ipynb: ") for leak in found)


def test_the_status_runs_in_the_bundle_without_what_only_teachers_have(bundle):
    """The builder's packages are not there for a learner: importing them fails."""
    code = (
        "import sys\n"
        "for name in ('jupytext', 'nbclient', 'nbval', 'pytest'): sys.modules[name] = None\n"
        "from course_lib.classroom.__main__ import main\n"
        "sys.exit(main(['status']) or main(['reset', 'blame']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=bundle,
        env={"PYTHONPATH": str(bundle)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    first, *_, last = run.stdout.strip().splitlines()
    there = [e for e in all_exercises().values() if e.notebook in untouched(ROOT)]
    assert first == f"0 of {len(there)} exercises passed"
    assert last == "blame is untouched"


def test_a_bundle_overwrites_nothing(tmp_path):
    with pytest.raises(ValueError, match="exists already"):
        write_bundle(Course(ROOT, {}), tmp_path)
