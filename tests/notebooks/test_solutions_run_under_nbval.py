"""`make test` runs every solution from top to bottom and compares its outputs with those stored.

nbval does: it makes a test of each cell of solutions/*.ipynb, which pytest shows by the notebook's
name, and a check's by its exercise (`course_lib/classroom/nbval_plugin.py`). Here it is made sure
that it does so for all of them. That nbval notices what goes wrong is tested in
`test_nbval_catches_failures.py`; untouched notebooks are run in `test_untouched_notebooks.py`.
"""

import re
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import IPyNbFile

from course_lib.checks.registry import all_exercises

SOLUTIONS = Path(__file__).parents[2] / "solutions"
LESSONS = sorted(path.stem for path in SOLUTIONS.glob("[0-9]*.py"))


def test_make_test_runs_the_solutions_under_nbval(root, request):
    (command,) = re.findall(r"^test:.*\n\t(.*pytest.*)$", (root / "Makefile").read_text(), re.M)
    words = command.split()
    assert "--nbval" in words
    assert "--nbval-lax" not in words
    assert "solutions" in request.config.getini("testpaths")
    assert sorted(path.stem for path in SOLUTIONS.glob("*.ipynb")) == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_cell_is_a_test_and_every_check_compared(lesson, request, monkeypatch):
    monkeypatch.setattr(request.config.option, "nbval_lax", False)
    path = SOLUTIONS / f"{lesson}.ipynb"
    tests = list(IPyNbFile.from_parent(request.session, path=path).collect())
    code = [c.id for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert [test.cell.id for test in tests] == code
    assert [test.name for test in tests if test.options["skip"]] == []
    checks = {test.name for test in tests if test.cell.id.startswith("check-")}
    assert checks == {
        f"exercise {e.name}" for e in all_exercises().values() if e.notebook == lesson
    }
    assert [t.name for t in tests if t.name in checks and not t.options["check"]] == []
