"""How grading grows: real submissions on real ranks, and a line through what they took.

    python -m tests.classroom.many_submissions 20 60 180
    python -m tests.classroom.many_submissions --killed 20 80

All answers differ, so that none is taken for another's. Every number of submissions is graded by a
process of its own, as `grade` would be; from the last two follows what 500 of 10 exercises take.
With --killed the last of these processes is killed half-way, and another one goes on.
"""

import argparse
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import nbformat

from course_lib.checks.sandbox.grader import Grader
from course_lib.classroom.grading import grade
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.untouched_notebooks import untouched
from course_lib.text import table
from tests.classroom import tiny

_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class Size(NamedTuple):
    """verdicts; seconds; megabytes at most, of the grader and of its largest child."""

    verdicts: int
    seconds: float
    own: float
    child: float


def hand_in(folder: Path, students: int) -> None:
    """So many students in folder/in, each with an answer of their own to every exercise."""
    course = tiny.write_course(folder / "course")
    for student in range(students):
        answers = {name: f"{code}\n# {student}" for name, code in tiny.ANSWERS.items()}
        path = Path(folder, "in", f"student {student}", "01_tiny.ipynb")
        path.parent.mkdir(parents=True)
        nbformat.write(tiny.answered(course.root, **answers), path)


def grade_all(folder: Path, done: Connection) -> None:
    """Grade them; `done` gets the number of verdicts that were taken, and this process's peaks."""
    taken, out = [], folder / "report"
    take = Grader.verdict

    def counted(*args, **kwargs):
        taken.append(1)
        return take(*args, **kwargs)

    Grader.verdict = counted
    graded = grade(folder / "in", out, untouched(folder / "course"), tiny.EXERCISES)
    write_reports(graded, out)
    wrong = [each.student for each in graded.reports if each.points != each.maximum]
    if wrong:
        raise SystemExit(f"right answers of {', '.join(wrong)} did not pass")
    peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in _WHO]
    done.send((len(taken), *peaks))


def measured(students: int, killed: bool) -> Size:
    """Grade so many, in one process or, if the first is killed half-way, in two."""
    verdicts = students * len(tiny.ANSWERS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hand_in(folder, students)
        begun, kept = time.monotonic(), 0
        if killed:
            first, _ = _started(folder)
            while _kept(folder) < verdicts // 2 and first.is_alive():
                first.join(0.1)
            first.kill()
            first.join()
            assert first.exitcode == -signal.SIGKILL, "it was to be killed half-way"
            kept = _kept(folder)
        process, done = _started(folder)
        taken, *peaks = done.recv()
        process.join()
        seconds = time.monotonic() - begun
        if killed:
            print(f"killed with {kept} of {verdicts} verdicts taken; then {taken} more were taken")
        assert kept + taken == verdicts == _kept(folder), "none is lost, and none taken twice"
    return Size(verdicts, seconds, *peaks)


def _started(folder: Path) -> tuple[multiprocessing.Process, Connection]:
    spawned = multiprocessing.get_context("spawn")
    ours, theirs = spawned.Pipe(duplex=False)
    process = spawned.Process(target=grade_all, args=(folder, theirs))
    process.start()
    theirs.close()
    return process, ours


def _kept(folder: Path) -> int:
    return len([*folder.glob("report/verdicts/*.json")])


def main(numbers: list[int], killed: bool) -> None:
    """Print a row for each number of students, and the line."""
    rows = [["students", "verdicts", "seconds", "s a verdict", "grader MB", "its largest child MB"]]
    sizes = []
    for number in numbers:
        size = measured(number, killed and number == numbers[-1])
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("students", type=int, nargs="*", default=[20, 60, 180])
    parser.add_argument("--killed", action="store_true", help="kill the last one half-way")
    given = parser.parse_args()
    sys.exit(main(given.students, given.killed))
