"""Grading by submissions: each has one answer of its own, so that no verdict serves for two."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat

from course_lib.classroom.grading import grade
from course_lib.classroom.untouched_notebooks import untouched
from tests.bench._growth import growing, why
from tests.bench.measurement import Measurement, Row, seconds_of
from tests.classroom import tiny

_SUBMISSIONS = (1, 2, 4, 8, 16)


def _hand_in(root: Path, submissions: int) -> Path:
    folder = root / f"{submissions} submissions"
    for number in range(submissions):
        student = folder / f"student {number}"
        student.mkdir(parents=True)
        answer = f"{tiny.ANSWERS['exchange']}  # {number}"
        nbformat.write(tiny.answered(root, exchange=answer), student / "01_tiny.ipynb")
    return folder


def _graded() -> Iterator[tuple[str, dict[str, float]]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tiny.write_course(root)
        notebooks = untouched(root)
        for submissions in _SUBMISSIONS:
            submissions_folder = _hand_in(root, submissions)
            report = root / f"report on {submissions}"
            graded = []
            seconds = seconds_of(
                lambda: graded.append(grade(submissions_folder, report, notebooks, tiny.EXERCISES))  # noqa: B023
            )
            assert all(student.points == 4 for student in graded[0].reports)
            yield f"{submissions}", {"s": seconds}


def _measure() -> list[Measurement]:
    lines = growing(_graded())
    seconds = [line.values["s"] for line in lines]
    each = (seconds[-1] - seconds[0]) / (_SUBMISSIONS[-1] - _SUBMISSIONS[0])
    reason = (
        f"the grader starts once, for about {seconds[0] - each:.1f} s; then each answer, on two "
        f"ranks of its own, adds {each:.2f} s"
    )
    return [*lines, why(reason)]


ROWS = [Row("growth-grading", "grading by submissions of one exercise on two ranks", _measure)]
