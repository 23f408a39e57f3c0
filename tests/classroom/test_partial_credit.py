"""A right result that breaks a promise has a share of the points, where parts are separate."""

import json
from dataclasses import replace

import nbformat
import pytest

from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.registry import all_exercises
from course_lib.classroom.__main__ import main
from course_lib.classroom.grading import grade
from course_lib.classroom.grading.points import FAILED, PARTLY, PASSED
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.grading.score_tables import feedback, gradescope
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny

HONEST = tiny.ANSWERS["exchange"]
SWAPPED = """
def swapped(tensor):
    other, theirs = 1 - dist.get_rank(), torch.empty_like(tensor)
    sending = dist.isend(tensor, dst=other)
    dist.recv(theirs, src=other)
    sending.wait()
    return theirs
"""
ANSWERS = {
    "right": (HONEST, PASSED, 4),
    "too much is sent": (
        f"{SWAPPED}\ndef exchange(tensor):\n    return (swapped(tensor) + swapped(tensor)) / 2",
        PARTLY,
        2,
    ),
    "changes its argument": (
        f"{SWAPPED}\ndef exchange(tensor):\n"
        "    theirs = swapped(tensor)\n    tensor.zero_()\n    return theirs",
        PARTLY,
        2,
    ),
    "sends what nobody reads": (
        f"{SWAPPED}\ndef exchange(tensor):\n    swapped(tensor)\n    return swapped(tensor)",
        FAILED,
        0,
    ),
    "wrong on one rank": (
        f"{SWAPPED}\ndef exchange(tensor):\n"
        "    theirs = (swapped(tensor) + swapped(tensor)) / 2\n"
        "    return theirs + dist.get_rank()",
        FAILED,
        0,
    ),
    "uses what is forbidden": (
        "def exchange(tensor):\n    both = [torch.empty_like(tensor) for _ in range(2)]\n"
        "    dist.all_gather(both, tensor)\n    return both[1 - dist.get_rank()]",
        FAILED,
        0,
    ),
}


def exercises(separate: bool):
    contract = Contract(allowed=POINT_TO_POINT, separate=separate)
    return tiny.EXERCISES | {"exchange": replace(tiny.EXERCISES["exchange"], contract=contract)}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tiny.write_course(tmp_path_factory.mktemp("partial") / "course")


def graded(course, folder, names, separate=True, settings=None):
    for name in names:
        (folder / "in" / name).mkdir(parents=True)
        notebook = tiny.answered(course.root, exchange=ANSWERS[name][0])
        nbformat.write(notebook, folder / "in" / name / "01_tiny.ipynb")
    return grade(
        folder / "in", folder / "report", untouched(course.root), exercises(separate), settings
    )


@pytest.fixture(scope="module")
def batch(one_grader_for_all, course, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graded")
    found = graded(course, folder, ANSWERS)
    write_reports(found, folder / "report")
    return {report.student: report for report in found.reports}, folder / "report"


@pytest.mark.parametrize("name", ANSWERS)
def test_the_share_is_for_a_right_result_made_of_what_is_sent(batch, name):
    result = batch[0][name].results[2]
    _, status, points = ANSWERS[name]
    assert (result.status, result.points) == (status, points), result.message
    assert ("The result itself is right" in result.message) == (status == PARTLY)


def test_all_reports_have_the_share(batch):
    reports, out = batch
    report = reports["too much is sent"]
    assert "exchange: partly passed" in feedback(report)
    assert json.loads(gradescope(report))["tests"][2]["score"] == 2
    page = (out / "students" / "too_much_is_sent.html").read_text()
    assert 'partly passed</td><td class="number">2 of 4' in page
    assert "50% of the points" in page
    assert "◐" in (out / "index.html").read_text()


def test_without_separate_parts_a_broken_promise_costs_all(one_grader, course, tmp_path):
    (report,) = graded(course, tmp_path, ["too much is sent"], separate=False).reports
    assert (report.results[2].status, report.points) == (FAILED, 0)


def test_the_teacher_says_how_large_the_share_is(one_grader, course, tmp_path, capsys):
    settings = Settings(partial=0.25)
    (report,) = graded(course, tmp_path, ["too much is sent"], settings=settings).reports
    assert report.points == 1
    command = ["grade", str(tmp_path / "in"), "--out", str(tmp_path / "other"), "--partial", "2"]
    assert main(command) == 2
    assert "a share of 0 to 1, not 2" in capsys.readouterr().err


def test_only_what_is_known_to_come_by_messages_counts_by_itself():
    separate = [e.contract for e in all_exercises().values() if e.contract.separate]
    assert separate
    assert all(contract.causal and contract.allowed for contract in separate)
