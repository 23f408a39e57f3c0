"""What the teacher's guide and the workflow say is so."""

import ast
import re
import subprocess
import sys
import types

import cloudpickle
import pytest
import yaml

from course_lib.checks import seeds
from course_lib.checks.runner import run_check
from course_lib.classroom.__main__ import main
from course_lib.classroom.holes import answers
from course_lib.classroom.lesson import read_lesson
from course_lib.classroom.release import untouched


@pytest.fixture
def guide(root) -> str:
    return (root / "TEACHING.md").read_text()


@pytest.fixture
def module():
    """A module to run code in, whose functions go to ranks by value."""
    made = types.ModuleType("nb00_ranks.neighbour_sum")
    sys.modules[made.__name__] = made
    cloudpickle.register_pickle_by_value(made)
    yield made
    cloudpickle.unregister_pickle_by_value(made)
    del sys.modules[made.__name__]


def test_the_worked_example_is_an_exercise(guide, module, tmp_path):
    exercise_text, cells = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(exercise_text, vars(module))
    exercise = module.EXERCISE
    source = tmp_path / "01_taught.py"
    source.write_text(cells)
    lesson = read_lesson(source)
    assert lesson.named("answer") == lesson.named("check") == [exercise.name]
    exec("import torch\nimport torch.distributed as dist\n" + lesson.cells[0].source, vars(module))
    verdict = run_check(exercise, module.neighbour_sum, seeds.public(exercise.name))
    assert verdict.passed, str(verdict)
    assert len(set(exercise.hints)) == 3
    own = "def neighbour_sum(tensor):\n    return tensor + tensor"
    exec(own, vars(module))
    verdict = run_check(exercise, module.neighbour_sum, seeds.public(exercise.name))
    assert not verdict.passed
    assert answers(lesson.cells[0].source)


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
    assert "2 graded: report/index.html" in run.stdout
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
