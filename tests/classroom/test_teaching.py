"""What the teacher's guide and the workflow say is so."""

import ast
import csv
import os
import random
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
import yaml

from course_lib.checks.exercise import Observation
from course_lib.classroom.__main__ import main
from course_lib.classroom.lesson import read_lesson
from course_lib.classroom.new_exercise import write_stubs
from course_lib.classroom.untouched_notebooks import untouched
from course_lib.observe import Trace


@pytest.fixture
def guide(root) -> str:
    pages = root / "TEACHING.md", root / "docs" / "write_an_exercise.md"
    return "".join(page.read_text() for page in pages)


def test_the_worked_example_followed_to_the_letter(root, tmp_path):
    """In a copy of the course: the stubs, the three texts, the lesson, tests, a submission."""
    copy = tmp_path / "course"
    for folder in ("course_lib", "solutions", "notebooks", "tests"):
        shutil.copytree(root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", copy)
    section = (root / "docs" / "write_an_exercise.md").read_text()
    new, build, zoo, draws = re.findall(r"^python -m (.*)$", section, re.MULTILINE)
    check, answers, cells = re.findall(r"```python\n(.*?)```", section, re.DOTALL)

    def run(command: str, *more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command.split(), *more],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        return done.stdout

    written = run(new).splitlines()[:3]
    assert all(f"`{file}`" in section for file in written)
    (copy / written[0]).write_text(check)
    (copy / written[1]).write_text(answers)
    lesson = (copy / written[2]).read_text()
    begin = lesson.index("# %% [markdown]\n# ### Exercise: `neighbour_sum`")
    end = lesson.index("check(neighbour_sum)\n") + len("check(neighbour_sum)\n")
    lesson = lesson[:begin] + cells + lesson[end:]
    (copy / written[2]).write_text(lesson)
    for linted in ("check", "format --check"):
        run(f"ruff {linted} {written[0]} {written[1]} {written[2]}")
    (copy / written[2]).write_text(with_one_check(lesson, "neighbour_sum"))
    run(build)
    assert run(f"{build} --check".replace("--execute ", "")) == ""
    assert run(zoo).splitlines()[-1].split() == ["all", "6", "6", "6"]
    run(draws.replace("--draws 20", "--draws 2"))
    suites = "tests/checks/test_registry.py tests/checks/test_answers.py"
    suites += " tests/notebooks/test_stored_notebooks.py"
    run(f"pytest -q -p no:cacheprovider {suites} -k", "neighbour_sum or test_every or nothing_but")
    student = tmp_path / "submissions" / "ann"
    student.mkdir(parents=True)
    handed_in = nbformat.read(copy / "notebooks/02_ring_all_reduce.ipynb", as_version=4)
    (answer,) = [cell for cell in handed_in.cells if cell.id == "answer-neighbour_sum"]
    solved = nbformat.read(copy / "solutions/02_ring_all_reduce.ipynb", as_version=4)
    (answer.source,) = [cell.source for cell in solved.cells if cell.id == answer.id]
    nbformat.write(handed_in, student / "02_ring_all_reduce.ipynb")
    run(f"course_lib.classroom grade {student.parent} --out {tmp_path / 'report'}")
    (row,) = csv.DictReader((tmp_path / "report/scores.csv").read_text().splitlines())
    assert row["neighbour_sum"] == "1"
    assert float(row["points"]) == 1 < float(row["maximum"])


def with_one_check(lesson: str, exercise: str) -> str:
    """A lesson that runs quickly: no other check is run, nor what comes between them."""
    cells = re.split(r"^(?=# %%)", lesson, flags=re.MULTILINE)
    first = next(n for n, cell in enumerate(cells) if cell.startswith("# %% check="))
    kept = ("# %% [markdown]", "# %% exercise=", f'# %% check="{exercise}"')
    for n, cell in enumerate(cells[first:], first):
        if cell.startswith("# %% check=") and not cell.startswith(kept):
            cells[n] = cell.replace("check(", "None and check(")
        elif not cell.startswith(kept):
            cells[n] = ""
    return "".join(cells)


@pytest.fixture
def small(tmp_path):
    source = tmp_path / "solutions" / "01_small.py"
    source.parent.mkdir()
    source.write_text('# %%\n1\n\n# %% check="a"\ncheck(a)\n\n# %% [markdown]\n# The end.\n')
    return tmp_path


def test_stubs_are_refused_or_written_whole(small):
    known = {"a"}
    for name, signature, after, words in (
        ("b c", "(x)", "", "cannot be the name"),
        ("class", "(x)", "", "cannot be the name"),
        ("a", "(x)", "", "there is an exercise a already"),
        ("b", "x", "", "is no signature"),
        ("b", "(x", "", "is no signature"),
        ("b", "(x): pass\ndef c()", "", "is no signature"),
        ("b", "(x)", "z", "no check of z"),
    ):
        with pytest.raises(ValueError, match=words):
            write_stubs(small, "01_small", name, signature, known, after)
    with pytest.raises(ValueError, match="there is no lesson 02_none"):
        write_stubs(small, "02_none", "b", "(x)", known)
    assert [path.name for path in small.rglob("*.py")] == ["01_small.py"]
    check, answers, source = write_stubs(small, "01_small", "b", "(x)", known, "a")
    lesson = read_lesson(source)
    assert [cell.kind for cell in lesson.cells] == [
        *("code", "check", "markdown", "answer", "check", "markdown")
    ]
    assert lesson.named("answer") == ["b"]
    for file in (check, answers):
        ast.parse(file.read_text())
    with pytest.raises(ValueError, match="is there already"):
        write_stubs(small, "01_small", "b", "(x)", known)


def test_the_stub_of_a_check_passes_nothing(small):
    check, *_ = write_stubs(small, "01_small", "b", "(tensor)", set())
    names = {"__name__": "exercises.nb01_small.b"}
    exec(check.read_text(), names)
    exercise = names["EXERCISE"]
    assert (exercise.name, exercise.notebook) == ("b", "01_small")
    for case in exercise.cases(random.Random(1)):
        right = case.data["inputs"]
        assert exercise.judge(case, Observation(right, Trace(case.world_size, [], [])))


def test_files_and_commands_of_the_guide_exist(guide, root):
    for name in re.findall(r"`((?:tests|course_lib|\.github|solutions)/[\w./]+)`", guide):
        assert (root / name).exists() or name.endswith(("neighbour_sum.py", "/")), name
    for command in re.findall(r"python -m course_lib\.classroom ([\w-]+)", guide):
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0


def test_the_workflow_grades_submissions(root, tmp_path):
    """Its own script, on a folder with an untouched notebook and a broken one."""
    workflow = yaml.safe_load((root / ".github/workflows/grade.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    steps = {step.get("name"): step for step in workflow["jobs"]["grade"]["steps"]}
    name, notebook = next(iter(untouched(root).items()))
    for student, text in (("ann", str_of(notebook)), ("bob", "{")):
        folder = tmp_path / "submissions" / student
        folder.mkdir(parents=True)
        (folder / f"{name}.ipynb").write_text(text)
    run = subprocess.run(
        ["bash", "-e", "-c", f'python() {{ {sys.executable} "$@"; }}\n{steps["grade"]["run"]}'],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "2 graded: report/index.html (" in run.stdout
    assert "1 with something odd: report/odd" in run.stdout
    kept = steps["keep the report"]["with"]["path"].split()
    for pattern in kept:
        assert list(tmp_path.glob(pattern)), pattern
    assert not any("verdicts" in pattern for pattern in kept)


def str_of(notebook) -> str:
    import nbformat

    return nbformat.writes(notebook)


def test_the_installation_in_the_workflow_is_what_the_project_offers(root):
    workflow = (root / ".github/workflows/grade.yml").read_text()
    assert "constraints.txt" in workflow
    assert "'.[classroom]'" in workflow
    assert ast.literal_eval(re.search(r'python-version: (".*")', workflow).group(1)) == "3.12"
