"""The guide's recipes for other autograders: the commands and the files that these call."""

import json
import re
import shlex
import sys
from types import ModuleType

import nbformat
import pytest
import yaml

from course_lib.classroom.__main__ import main
from tests.classroom import tiny


@pytest.fixture
def guide(root) -> str:
    return (root / "TEACHING.md").read_text()


@pytest.fixture
def hand_in(tmp_path, monkeypatch):
    """Writes a notebook of the tiny course, and lets the commands be about that course."""
    course = tiny.write_course(tmp_path / "course")
    monkeypatch.setattr("course_lib.classroom.__main__.ROOT", course.root)
    monkeypatch.setattr("course_lib.classroom.__main__.all_exercises", lambda: tiny.EXERCISES)

    def write(**answers: str) -> str:
        file = tmp_path / "01_tiny.ipynb"
        nbformat.write(tiny.answered(course.root, **answers), file)
        return str(file)

    return write


def arguments(command: str, **changes: str) -> list[str]:
    """What follows `python -m course_lib.classroom`, with paths and names of this test."""
    python, minus_m, module, *rest = shlex.split(command)
    assert (python, minus_m, module) == ("python", "-m", "course_lib.classroom")
    return [changes.get(word.rpartition(".")[2], word) for word in rest]


def test_github_classroom_goes_by_the_exit_code(one_grader, guide, hand_in, capsys):
    (text,) = re.findall(r"```yaml\n(name: autograding.*?)```", guide, re.DOTALL)
    steps = yaml.safe_load(text)["jobs"]["autograding"]["steps"]
    (grader,) = (s for s in steps if "command-grader" in s.get("uses", ""))
    reporter = steps[-1]
    name = grader["with"]["test-name"]
    assert reporter["with"]["runners"] == grader["id"] == name
    assert list(reporter["env"]) == [f"{name.upper()}_RESULTS"]
    command = grader["with"]["command"]
    assert command.endswith(f"--exercise {name}")
    right = hand_in(double=tiny.ANSWERS["double"], quadruple="def quadruple(x):\n    return x")
    assert main(arguments(command, ipynb=right, **{name: "double"})) == 0
    assert main(arguments(command, ipynb=right, **{name: "quadruple"})) == 1
    said = capsys.readouterr().out
    assert "double: passed, 1 of 1" in said
    assert "quadruple does not pass yet. What was run" in said
    assert main(arguments(command, ipynb=right, **{name: "none"})) == 2
    assert main(arguments(command, ipynb="nowhere.ipynb", **{name: "double"})) == 2


def test_gradescope_reads_the_points_from_a_file(one_grader, guide, hand_in, tmp_path):
    (command,) = re.findall(r"^(python -m .* --json .*)$", guide, re.MULTILINE)
    results = tmp_path / "results.json"
    notebook = hand_in(double=tiny.ANSWERS["double"], quadruple="def quadruple(x):\n    return x")
    assert main(arguments(command, ipynb=notebook, json=str(results))) == 0
    read = json.loads(results.read_text())
    assert read["score"] == 1
    assert [(t["name"], t["score"], t["max_score"], t["status"]) for t in read["tests"]] == [
        ("01_tiny: double", 1, 1, "passed"),
        ("01_tiny: quadruple", 0, 2, "failed"),
        ("01_tiny: exchange", 0, 4, "failed"),
    ]


def test_otter_calls_the_check_of_the_course(guide, monkeypatch):
    (text,) = re.findall(r"```python\n(from otter.*?)```", guide, re.DOTALL)
    cases = []
    otter = ModuleType("otter.test_files")
    otter.test_case = lambda **_: cases.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "otter", ModuleType("otter"))
    monkeypatch.setitem(sys.modules, "otter.test_files", otter)
    exec(text, found := {})
    assert (found["OK_FORMAT"], found["name"], found["points"]) == (False, "ping_pong", 1)
    called = []
    monkeypatch.setattr("course_lib.check", called.append)
    (case,) = cases
    assert case.__code__.co_varnames[: case.__code__.co_argcount] == ("ping_pong",)
    case("the function")
    assert called == ["the function"]
