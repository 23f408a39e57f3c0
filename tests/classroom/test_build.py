"""Notebooks are built once, stay until their source changes, and stale ones are noticed."""

import json
from types import SimpleNamespace

import nbformat
import pytest

from course_lib.checks.contract import Contract
from course_lib.classroom import Course, stored_outputs
from course_lib.classroom.student_notebook import solution_notebook, student_notebook
from tests.classroom.conftest import LESSON


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The texts of the two notebooks of the small course, executed once for all tests here."""
    root = tmp_path_factory.mktemp("course")
    (root / "solutions").mkdir()
    (root / "solutions/01_double.py").write_text(LESSON)
    course = Course(
        root, {"double": SimpleNamespace(notebook="01_double", points=3, contract=Contract())}
    )
    assert list(course.build(execute=True)) == []
    return {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*.ipynb")}


@pytest.fixture
def course(write, built):
    """Writes the lesson with a change, beside notebooks that were built before the change."""

    def change(old="", new="", **options):
        course = write(old, new, **options)
        for name, text in built.items():
            path = course.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return course

    return change


def sentences(problems):
    return [str(problem) for problem in problems]


def test_a_built_course_has_no_problems(course):
    assert sentences(course().problems()) == []


def test_both_notebooks_are_valid_and_have_the_same_ids(built):
    assert sorted(built) == ["notebooks/01_double.ipynb", "solutions/01_double.ipynb"]
    student, solution = (nbformat.reads(built[name], as_version=4) for name in sorted(built))
    nbformat.validate(student)
    nbformat.validate(solution)
    assert [cell.id for cell in student.cells] == [cell.id for cell in solution.cells]
    assert {"answer-double", "check-double"} <= {cell.id for cell in student.cells}


def test_the_student_gets_holes_and_no_outputs(built):
    text = built["notebooks/01_double.ipynb"]
    cells = nbformat.reads(text, as_version=4).cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells[1:])
    assert [cell.source for cell in cells if cell.id.startswith("prediction")] == ["guess = ..."]
    for secret in ("SOLUTION", "addition", "84", "jupytext"):
        assert secret not in text


def test_solutions_hold_the_results_and_nothing_of_the_machine(built):
    notebook = nbformat.reads(built["solutions/01_double.ipynb"], as_version=4)
    by_id = {cell.id: cell for cell in notebook.cells}
    assert by_id["check-double"].outputs[0].text == "double passed\n"
    assert notebook.cells[-1].outputs[0].evalue == "on purpose"
    assert notebook.metadata.language_info == {"name": "python"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert all("execution" not in cell.metadata for cell in notebook.cells)


def test_cells_carry_what_nbgrader_reads(built):
    for text in built.values():
        cells = {cell.id: cell for cell in nbformat.reads(text, as_version=4).cells}
        common = {"schema_version": 3, "task": False}
        assert cells["answer-double"].metadata.nbgrader == common | {
            "grade": False,
            "grade_id": "answer-double",
            "locked": False,
            "solution": True,
        }
        assert cells["check-double"].metadata.nbgrader == common | {
            "grade": True,
            "grade_id": "check-double",
            "locked": True,
            "points": 3,
            "solution": False,
        }


def test_building_again_changes_no_byte_and_runs_nothing(course, built, monkeypatch):
    monkeypatch.delattr("course_lib.classroom.build_notebooks._execute")
    unchanged = course()
    assert list(unchanged.build(execute=True)) == []
    assert {
        p.relative_to(unchanged.root).as_posix(): p.read_text()
        for p in unchanged.root.rglob("*.ipynb")
    } == built


def test_a_changed_text_is_stale_and_keeps_its_outputs(course, monkeypatch):
    monkeypatch.delattr("course_lib.classroom.build_notebooks._execute")
    changed = course("Twice as much", "Two times as much")
    assert sentences(changed.problems()) == [
        "notebooks/01_double.ipynb: is not what solutions/01_double.py makes: run `make notebooks`",
        "solutions/01_double.ipynb: is not what solutions/01_double.py makes: run `make notebooks`",
    ]
    assert list(changed.build(execute=True)) == []
    assert sentences(changed.problems()) == []
    solution = nbformat.read(changed.root / "solutions/01_double.ipynb", as_version=4)
    assert "Two times" in solution.cells[0].source
    assert solution.cells[3].outputs[0].text == "double passed\n"


def test_changed_code_has_to_be_run(course):
    changed = course("x + x", "2 * x")
    (stale,) = sentences(changed.problems())
    assert stale.startswith("solutions/01_double.ipynb: is not what")
    before = (changed.root / "solutions/01_double.ipynb").read_text()
    (refused,) = sentences(changed.build())
    assert refused == "solutions/01_double.ipynb: its code has changed: run `make notebooks`"
    assert (changed.root / "solutions/01_double.ipynb").read_text() == before
    assert list(changed.build(execute=True)) == []
    assert sentences(changed.problems()) == []


def test_an_answer_that_does_not_pass_is_not_built(course):
    changed = course("x + x", "x * x")
    (problem,) = sentences(changed.build(execute=True))
    assert "AssertionError: double is wrong" in problem
    assert "x * x" not in (changed.root / "solutions/01_double.ipynb").read_text()


@pytest.mark.parametrize(
    ("edit", "file"),
    [
        (lambda nb: nb.cells[1].update(source="changed = 1"), "notebooks"),
        (lambda nb: nb.metadata.update(widgets={"state": {}}), "notebooks"),
        (lambda nb: nb.metadata.update(widgets={"state": {}}), "solutions"),
        (lambda nb: nb.cells[3].update(execution_count=None), "solutions"),
        (lambda nb: nb.cells[3].metadata.update(execution={"iopub.status.busy": "1"}), "solutions"),
        (lambda nb: nb.cells.pop(), "solutions"),
    ],
)
def test_an_edited_notebook_is_noticed(course, edit, file):
    edited = course()
    path = edited.root / file / "01_double.ipynb"
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    path.write_text(nbformat.writes(notebook) + "\n")
    (problem,) = sentences(edited.problems())
    assert problem.startswith(f"{file}/01_double.ipynb: is not what")


def test_the_work_of_a_learner_is_never_overwritten(course):
    worked = course("Twice as much", "Two times as much")
    path = worked.root / "notebooks/01_double.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].update(source="def double(x):\n    return x << 1", execution_count=1)
    nbformat.write(notebook, path)
    before = path.read_text()
    for problem in (*worked.build(execute=True), next(worked.problems())):
        assert str(problem) == (
            "notebooks/01_double.ipynb: holds your work: save it under another name, elsewhere,"
            " then run `git restore notebooks/01_double.ipynb`"
        )
    assert path.read_text() == before


def test_a_missing_and_a_stray_notebook_are_noticed(course):
    lost = course()
    (lost.root / "notebooks/01_double.ipynb").rename(lost.root / "notebooks/Untitled.ipynb")
    missing, stray = sentences(lost.problems())
    assert missing.startswith("notebooks/01_double.ipynb: is not what")
    assert stray == "notebooks/Untitled.ipynb: has no source in solutions/"


EXERCISE = SimpleNamespace(notebook="01_double", points=1, contract=Contract())


@pytest.mark.parametrize(
    ("exercises", "sentence"),
    [
        ({}, "the checks know no exercise double"),
        (
            {"double": SimpleNamespace(notebook="02_other", points=1, contract=Contract())},
            "double belongs to 02_other, as the checks know it",
        ),
        ({"double": EXERCISE, "triple": EXERCISE}, "lacks the cells of triple"),
        (
            {
                "double": EXERCISE,
                "far": SimpleNamespace(notebook="09_far", points=1, contract=Contract()),
            },
            "is missing, home of far",
        ),
    ],
)
def test_exercises_and_cells_belong_together(course, exercises, sentence):
    problems = sentences(course(exercises=exercises).problems())
    assert any(sentence in problem for problem in problems)


CHECK = '# %% check="double"\ncheck(double)\n'


@pytest.mark.parametrize(("new", "counts"), [("", "1 and 0"), (f"{CHECK}\n{CHECK}", "1 and 2")])
def test_an_exercise_needs_each_of_its_cells_once(write, new, counts):
    (problem,) = sentences(write(CHECK, new).build(execute=True))
    assert problem.endswith(f"double needs one answer cell and one check cell, and has {counts}")


# ---------------------------------------------------------------------------------------------


def executed(*produced):
    cell = nbformat.v4.new_code_cell("show()", outputs=list(produced), execution_count=1)
    return nbformat.v4.new_notebook(cells=[cell])


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


def test_pieces_of_a_stream_are_joined():
    picture = nbformat.v4.new_output("display_data", data={"image/png": "aGk="})
    notebook = executed(stream("a"), picture, stream("b\n"))
    stored_outputs.normalise(notebook)
    assert [o.output_type for o in notebook.cells[0].outputs] == ["stream", "display_data"]
    assert notebook.cells[0].outputs[0].text == "ab\n"


def test_a_widget_leaves_its_picture_and_no_model():
    data = {stored_outputs.WIDGET: {"model_id": "0d1e"}, "text/plain": "three rows"}
    notebook = executed(nbformat.v4.new_output("display_data", data=data))
    notebook.metadata["widgets"] = {stored_outputs.WIDGET: {"state": {}}}
    stored_outputs.normalise(notebook)
    assert notebook.cells[0].outputs[0].data == {"text/plain": "three rows"}
    assert "widgets" not in notebook.metadata


def test_tracebacks_lose_the_place_of_the_project(root):
    error = nbformat.v4.new_output(
        "error", ename="E", evalue="no", traceback=[f"File {root}/course_lib/ranks/x.py:3"]
    )
    notebook = executed(error)
    stored_outputs.normalise(notebook)
    assert notebook.cells[0].outputs[0].traceback == ["File ./course_lib/ranks/x.py:3"]


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (stream("UserWarning: old\n", "stderr"), "writes to stderr: UserWarning: old"),
        (stream("<function f at 0x7f00aa12bc>"), "shows an address: 0x7f00aa12bc"),
        (stream("saved in /tmp/tmpab12/x"), "shows a place on this machine: /tmp/tmpab12/x"),
        (stream("see /home/ann/course"), "shows a place on this machine: /home/ann/course"),
    ],
)
def test_what_would_differ_elsewhere_is_refused(output, complaint):
    assert stored_outputs.complaints(executed(output).cells[0]) == [complaint]


def test_a_cell_that_was_to_fail_and_does_not_is_refused(write):
    (problem,) = write('raise ValueError("on purpose")', "pass").build(execute=True)
    assert problem.sentence == "cell 8 (pass) is there to raise an exception, and did not"


@pytest.mark.parametrize("text", ["0x1f", "rank 0x", "/usr/bin/env", "2(n-1)/n"])
def test_what_only_looks_like_it_is_not(text):
    assert stored_outputs.complaints(executed(stream(text)).cells[0]) == []


def test_ids_do_not_depend_on_answers(write):
    points = {"double": 1}
    first = student_notebook(write().lessons["01_double"], points)
    second = solution_notebook(write("guess = 84", "guess = 85").lessons["01_double"], points)
    assert [cell.id for cell in first.cells] == [cell.id for cell in second.cells]
    assert json.dumps(first) == json.dumps(
        student_notebook(write("x + x", "2 * x").lessons["01_double"], points)
    )
