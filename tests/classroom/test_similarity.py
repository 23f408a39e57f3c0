"""Who has the same answers, and what an answer was worth before."""

import csv
import json

import nbformat
import pytest

from course_lib.classroom.grading import grade
from course_lib.classroom.grading.history import Earlier, History, digest
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.grading.similarity import Similar, shape, similar_answers
from course_lib.classroom.untouched_notebooks import course_answers, untouched
from tests.classroom import tiny

ANSWER = tiny.ANSWERS["exchange"]
DISGUISED = '''
def exchange(tensor: torch.Tensor) -> torch.Tensor:
    """My own work."""
    peer, result = (1 - dist.get_rank()), torch.empty_like(tensor)   # the neighbour

    handle = dist.isend( tensor, dst=peer )
    dist.recv(result,
              src=peer)
    handle.wait()
    return result
'''
STUB = 'def exchange(tensor):\n    """The other\'s."""\n    raise NotImplementedError'


def test_names_comments_and_layout_make_no_difference():
    assert shape(ANSWER) == shape(DISGUISED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1 - dist", "dist"),
        ("isend", "send"),
        ("dst=other", "dst=theirs"),
        ("    sending.wait()\n", ""),
        ("src=", "dst="),
    ],
)
def test_another_answer_has_another_shape(old, new):
    assert old in ANSWER
    assert shape(ANSWER.replace(old, new)) != shape(ANSWER)


def test_what_is_no_code_is_like_nothing():
    assert shape("def exchange(tensor") == ""
    broken = {name: {"exchange": "def exchange("} for name in ("ann", "bob")}
    assert similar_answers(broken, {}, {}) == []


def test_those_with_most_in_common_come_first():
    other = ANSWER.replace("1 - dist.get_rank()", "(dist.get_rank() + 1) % 2")
    answers = {
        "ann": {"exchange": ANSWER, "again": ANSWER},
        "bob": {"exchange": DISGUISED, "again": ANSWER},
        "cat": {"exchange": other, "again": other},
        "dan": {"exchange": other},
        "eve": {"exchange": STUB},
        "fay": {"exchange": STUB},
    }
    assert similar_answers(answers, {"exchange": STUB}, {}) == [
        Similar(("ann", "bob"), ("exchange", "again")),
        Similar(("cat", "dan"), ("exchange",)),
    ]


def test_the_course_s_own_answer_says_nothing():
    answers = {name: {"exchange": ANSWER} for name in ("ann", "bob")}
    assert similar_answers(answers, {"exchange": STUB}, {"exchange": DISGUISED}) == []


def test_a_history_grows_where_the_answer_has_changed(tmp_path):
    def take(source: str, points: float) -> tuple[Earlier, ...]:
        verdict = Earlier(digest(source), "passed" if points else "failed", points, 2)
        return History(tmp_path, "Аня 🙂").remember({"double": verdict})["double"]

    assert take("first", 0) == ()
    assert take("first", 0) == ()
    assert [each.points for each in take("second", 2)] == [0]
    assert [each.points for each in take("second", 1)] == [0]  # by other rules: no new answer
    assert [each.points for each in take("third", 0)] == [0, 1]
    (file,) = (tmp_path / "history").iterdir()
    file.write_text("cut short")
    assert take("fourth", 2) == ()


def test_both_are_in_the_reports(one_grader, tmp_path):
    course = tiny.write_course(tmp_path / "course")
    out = tmp_path / "report"

    def hand_in(student: str, **answers: str) -> None:
        folder = tmp_path / "in" / student
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(tiny.answered(course.root, **answers), folder / "01_tiny.ipynb")

    def run() -> list[dict]:
        own = course_answers(course.root)
        assert set(own) == {"answer-double", "answer-quadruple", "answer-exchange"}
        released = untouched(course.root)
        graded = grade(tmp_path / "in", out, released, tiny.EXERCISES, own=own)
        write_reports(graded, out)
        return json.loads((out / "scores.json").read_text())

    hand_in("ann", exchange=ANSWER, double="def double(x):\n    return x")
    hand_in("bob", exchange=DISGUISED)
    assert all(e["earlier"] == [] for student in run() for e in student["exercises"])
    (row,) = csv.DictReader((out / "similar.csv").read_text().splitlines())
    assert (row["Exercises"], row["Students"]) == ("exchange", "ann; bob")
    assert "The same answers" in (out / "index.html").read_text()
    assert "bob" not in (out / "students" / "ann.html").read_text()
    hand_in("ann", exchange=ANSWER, double=tiny.ANSWERS["double"])
    double, quadruple, exchange = run()[0]["exercises"]
    assert double["points"] == 1
    assert double["earlier"] == [{"status": "failed", "points": 0, "maximum": 1}]
    assert quadruple["earlier"] == exchange["earlier"] == []
    page = (out / "students" / "ann.html").read_text()
    assert "earlier answers: failed, 0 of 1" in page
