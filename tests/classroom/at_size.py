"""How grading grows: real submissions on real ranks, and a line through what they took.

    python -m tests.classroom.at_size 20 60 180

All answers differ, so that none is taken for another's. Every number of submissions is graded by a
process of its own, as `grade` would be; from the last two follows what 500 of 10 exercises take.
"""

import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import nbformat

from course_lib.classroom.grading import grade
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.release import untouched
from course_lib.text import table
from tests.classroom import tiny


class Size(NamedTuple):
    """verdicts; seconds; megabytes at most, of the grader and of its largest child."""

    verdicts: int
    seconds: float
    own: float
    child: float


def measured(students: int) -> Size:
    """Grade so many students, each with an answer to every exercise."""
    with tempfile.TemporaryDirectory() as folder:
        course = tiny.write_course(Path(folder, "course"))
        for student in range(students):
            answers = {name: f"{code}\n# {student}" for name, code in tiny.ANSWERS.items()}
            path = Path(folder, "in", f"student {student}", "01_tiny.ipynb")
            path.parent.mkdir(parents=True)
            nbformat.write(tiny.answered(course.root, **answers), path)
        begun = time.monotonic()
        out = Path(folder, "report")
        graded = grade(Path(folder, "in"), out, untouched(course.root), tiny.EXERCISES)
        write_reports(graded, out)
        seconds = time.monotonic() - begun
    wrong = [each.student for each in graded.reports if each.points != each.maximum]
    if wrong:
        raise SystemExit(f"right answers of {', '.join(wrong)} did not pass")
    peaks = (resource.getrusage(who).ru_maxrss / 1024 for who in _WHO)
    return Size(students * len(tiny.ANSWERS), seconds, *peaks)


_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main(numbers: list[int]) -> None:
    """Print a row for each number of students, and the line."""
    rows = [["students", "verdicts", "seconds", "s a verdict", "grader MB", "its largest child MB"]]
    sizes = []
    for number in numbers:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            size = pool.apply(measured, (number,))
        sizes.append(size)
        each = size.seconds / size.verdicts
        row = (size.verdicts, size.seconds, each, size.own, size.child)
        rows.append([f"{number}", *(f"{value:,.4g}" for value in row)])
    print(table(rows))
    if len(sizes) > 1:
        before, last = sizes[-2:]
        slope = [
            (b - a) / (last.verdicts - before.verdicts) for a, b in zip(before, last, strict=True)
        ]
        more = 5000 - last.verdicts
        hours = (last.seconds + slope[1] * more) / 3600
        print(
            f"a further verdict: {slope[1]:.3f} s, {1024 * slope[2]:.1f} kB of the grader's memory"
        )
        print(f"500 students, 10 exercises: {hours:.2f} h, {last.own + slope[2] * more:,.0f} MB")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [20, 60, 180])
