"""nbgrader itself takes the exported course through its whole round."""

import csv
import json
import os
import subprocess
import sys

import nbformat
import pytest

from course_lib.classroom.nbgrader_export import export
from course_lib.classroom.student_notebook import solution_notebook

ROUND = """\
import json, shutil, sys
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.plugins import CsvExportPlugin
from traitlets.config.loader import PyFileConfigLoader

api = NbGraderAPI(config=PyFileConfigLoader("nbgrader_config.py").load_config())
steps = {"generate": api.generate_assignment("01_double", create=True)["success"]}
release = Path("release/01_double/01_double.ipynb")
for student, answer in (("right", "return x + x"), ("wrong", "return x"), ("untouched", "")):
    submitted = Path("submitted", student, "01_double", release.name)
    submitted.parent.mkdir(parents=True)
    text = nbformat.read(release, as_version=4)
    for cell in text.cells:
        if answer and cell.id == "answer-double":
            cell.source = cell.source.replace(
                'raise NotImplementedError("not attempted yet")', answer
            )
    nbformat.write(text, submitted)
    steps[f"autograde {student}"] = api.autograde("01_double", student)["success"]
    steps[f"feedback {student}"] = api.generate_feedback("01_double", student)["success"]
with Gradebook("sqlite:///gradebook.db") as gradebook:
    exporter = CsvExportPlugin()
    exporter.to = "grades.csv"
    exporter.export(gradebook)
print(json.dumps(steps))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The export of the small lesson of conftest, its solution not run."""
    from course_lib.classroom import read_lesson
    from tests.classroom.conftest import LESSON

    root = tmp_path_factory.mktemp("nbgrader")
    (root / "solutions").mkdir()
    source = root / "solutions" / "01_double.py"
    source.write_text(LESSON)
    solution = solution_notebook(read_lesson(source), {"double": 3})
    nbformat.write(solution, source.with_suffix(".ipynb"))
    assert export(root / "solutions", root / "course") == ["01_double"]
    return root / "course"


def test_guesses_are_blank_and_answers_are_nbgraders_business(exported):
    notebook = nbformat.read(exported / "source/01_double/01_double.ipynb", as_version=4)
    sources = [cell.source for cell in notebook.cells]
    assert "guess = ..." in sources
    assert sum("### BEGIN SOLUTION" in source for source in sources) == 1
    graded = [c.metadata.nbgrader for c in notebook.cells if "nbgrader" in c.metadata]
    assert [(g.grade, g.solution, g.get("points")) for g in graded] == [
        (False, True, None),
        (True, False, 3),
    ]


def test_an_export_does_not_overwrite(exported):
    with pytest.raises(ValueError, match="is not empty"):
        export(exported.parent / "solutions", exported)


def test_the_whole_round(exported, root):
    pytest.importorskip("nbgrader", exc_type=ImportError)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ROUND],
        cwd=exported,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
            # nbgrader calls alembic, which is installed beside this Python.
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    steps = json.loads(run.stdout.splitlines()[-1])
    assert all(steps.values()), (steps, run.stderr[-3000:])
    released = nbformat.read(exported / "release/01_double/01_double.ipynb", as_version=4)
    (answer,) = [cell for cell in released.cells if cell.id == "answer-double"]
    assert 'raise NotImplementedError("not attempted yet")' in answer.source
    assert "twice_the_argument" not in nbformat.writes(released)
    rows = csv.DictReader((exported / "grades.csv").read_text().splitlines())
    scores = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}
    assert scores == {"right": (3, 3), "wrong": (0, 3), "untouched": (0, 3)}
    page = exported / "feedback/wrong/01_double/01_double.html"
    assert "double is wrong" in page.read_text()
