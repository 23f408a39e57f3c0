"""Grading a batch: it goes on where it stopped, leaves nothing behind, and says what it found."""

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from course_lib.checks import seeds
from course_lib.checks.registry import all_exercises
from course_lib.checks.sandbox.answer_program import Piece, Program
from course_lib.checks.verdict import Verdict
from course_lib.classroom.__main__ import main
from course_lib.classroom.grading import batch, grade
from course_lib.classroom.grading.points import FAILED, MISSING, PASSED, UNTOUCHED
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny


@pytest.fixture
def course(tmp_path):
    return tiny.write_course(tmp_path / "course")


@pytest.fixture
def hand_in(course, tmp_path):
    """Writes a student's notebook with these answers."""

    def write(student: str, **answers: str) -> Path:
        folder = tmp_path / "in" / student
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(tiny.answered(course.root, **answers), folder / "01_tiny.ipynb")
        return tmp_path / "in"

    return write


def run(course, tmp_path, progress=lambda *_: None, **settings):
    return grade(
        tmp_path / "in",
        tmp_path / "report",
        untouched(course.root),
        tiny.EXERCISES,
        Settings(**settings),
        progress,
    )


def test_interrupted_it_goes_on_where_it_stopped(request, course, hand_in, tmp_path, monkeypatch):
    for number in range(3):
        hand_in(f"student {number}", double=f"def double(x):\n    return x + x + {number}")
    taken = []
    take = batch._Batch._take

    def counted(self, exercise, needed):
        verdict = take(self, exercise, needed)
        taken.append(needed.program.pieces[-1].source)
        return verdict

    def interrupt(done, total, student):
        if len(taken) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(batch._Batch, "_take", counted)
    with pytest.raises(KeyboardInterrupt):
        run(course, tmp_path, interrupt, jobs=1)  # closes its grader, so it has one of its own
    request.getfixturevalue("one_grader")
    first = run(course, tmp_path, jobs=2)
    assert len(taken) == len(set(taken)) == 3
    assert [report.points for report in first.reports] == [1, 0, 0]
    hand_in("student 2", double=tiny.ANSWERS["double"])
    second = run(course, tmp_path)
    assert len(taken) == 4
    assert [report.points for report in second.reports] == [1, 0, 1]
    assert [r.status for r in second.reports[2].results] == [PASSED, UNTOUCHED, UNTOUCHED]


def test_ranks_have_hashes_of_their_own_where_an_answer_goes_by_them(grader):
    exercise = all_exercises()["shard_indices"]

    def verdict(seed: str) -> Verdict:
        source = f"""
import random

def shard_indices(samples, rank, world_size, epoch, seed):
    order = list(range(samples))
    random.Random({seed}).shuffle(order)
    return order[rank::world_size]
"""
        program = Program(exercise.name, (Piece("/answers/it", source),))
        return grader.verdict(exercise, program, seeds.hidden(exercise.name, "a secret"), [])

    assert verdict("sorted({f'{seed} {epoch}'})[0]").passed
    hashed = verdict("hash(f'{seed} {epoch}')")
    assert "as on a cluster (PYTHONHASHSEED)" in " ".join(str(hashed).split())


def test_who_ran_out_of_time_has_a_second_go_and_is_shown_to_a_person(
    one_grader, course, hand_in, tmp_path, monkeypatch
):
    hand_in("ann", double="def double(x):\n    while True:\n        pass")
    goes = []
    run_once = batch._Batch._run

    def counted(self, exercise, needed):
        goes.append(exercise.name)
        return run_once(self, exercise, needed)

    monkeypatch.setattr(batch._Batch, "_run", counted)
    (report,) = run(course, tmp_path).reports
    assert goes == ["double", "double"]
    assert report.results[0].status == FAILED
    assert "it ran out of time, twice" in report.notes[0]


GRADE = """\
import sys
from pathlib import Path
from course_lib.classroom.grading import grade
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny
course, submissions, out = map(Path, sys.argv[1:])
grade(submissions, out, untouched(course), tiny.EXERCISES)
"""


def test_killed_it_leaves_no_process_and_no_folder(course, hand_in, tmp_path, root):
    mark = "mark-of-a-run-that-must-end"
    hand_in("hangs", double=f"import time\n# {mark}\ntime.sleep(600)")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", GRADE, course.root, tmp_path / "in", tmp_path / "report"],
        env=os.environ | {"PYTHONPATH": str(root), "TMPDIR": str(temporary)},
    )

    def left() -> list[str]:
        """Processes, the grader aside, that know its folder."""
        found = []
        for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(temporary).encode() in cmdline.read_bytes():
                    found.append(cmdline.parent.name)
            except OSError:
                continue
        return found

    wait_for(lambda: len(left()) >= 3, 90)  # fork server, supervisor, and what is in the sandbox
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not left(), 30)
    wait_for(lambda: not list(temporary.glob("grading-*")), 10)


def wait_for(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def quick(monkeypatch):
    """Verdicts that cost nothing, each noted in a file before it is kept."""
    grader = SimpleNamespace(isolated=True, close=lambda: None)
    monkeypatch.setattr(batch, "Grader", lambda *_: contextlib.nullcontext(grader))

    def use(log: Path) -> None:
        def run_once(self, exercise, needed):
            with log.open("a") as file:
                file.write(f"{needed.program.pieces[-1].source!r}\n")
            return Verdict(exercise, [])

        monkeypatch.setattr(batch._Batch, "_run", run_once)

    return use


def killed(path: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def out_of_space(path: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def that_ends(folder: Path, after: int, ended):
    """A `Path.write_text` that goes well so often in this folder; of the next it does half."""
    write_text, left = Path.write_text, itertools.count(after, -1)

    def write(path, text, **how):
        if path.parent != folder or next(left) > 0:
            return write_text(path, text, **how)
        write_text(path, text[: len(text) // 2], **how)
        return ended(path)

    return write


@pytest.mark.parametrize("ended", [killed, out_of_space])
def test_ended_at_any_write_nothing_is_lost_and_no_verdict_taken_twice(
    course, hand_in, quick, tmp_path, monkeypatch, ended
):
    """Every start gets by a few writes further than the one before."""
    for number in range(4):
        hand_in(f"student {number}", double=f"def double(x):\n    return x + x + {number}")
    log = tmp_path / "log"
    quick(log)
    kept = tmp_path / "report" / "verdicts"
    for start in range(40):
        had = {file.name: file.read_bytes() for file in kept.glob("*.json")}
        process = os.fork()
        if not process:
            monkeypatch.setattr(Path, "write_text", that_ends(kept, start % 3 + 1, ended))
            try:
                run(course, tmp_path, jobs=2)
            except OSError:
                os._exit(1)
            os._exit(0)
        over = os.waitpid(process, 0)[1] == 0
        taken = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        assert len(set(taken)) == len(taken) <= 4 - len(had)
        now = {file.name: file.read_bytes() for file in kept.glob("*.json")}
        assert had.items() <= now.items()
        assert all(json.loads(text)["status"] == PASSED for text in now.values())
        if over:
            break
    assert over
    assert len(now) == 4
    quick(tmp_path / "second log")
    assert [report.points for report in run(course, tmp_path).reports] == [1] * 4
    assert not (tmp_path / "second log").exists()


def test_points_lessons_and_versions(one_grader, course, hand_in, tmp_path):
    hand_in("ann", double=tiny.ANSWERS["double"])
    hand_in("bob")
    (tmp_path / "in" / "cat").mkdir()
    (tmp_path / "in" / "cat" / "poem.ipynb").write_text('{"cells": []}')
    old = tmp_path / "in" / "ann" / "old version.ipynb"
    nbformat.write(tiny.answered(course.root, double="def double(x):\n    return 0"), old)
    os.utime(old, (1, 1))
    graded = run(course, tmp_path, points={"double": 2.5, "exchange": 0})
    assert graded.lessons == ["01_tiny"]
    ann, bob, cat = graded.reports
    assert [(r.points, r.maximum) for r in (ann, bob, cat)] == [(2.5, 4.5), (0, 4.5), (0, 4.5)]
    assert "the newest; not ann/old version.ipynb" in ann.notes[0]
    assert {r.status for r in bob.results} == {UNTOUCHED}
    assert (bob.notes, bob.odd) == ([], [])
    assert {r.status for r in cat.results} == {MISSING}
    assert graded.is_odd


def test_an_answer_that_calls_another_is_told_which_is_missing(
    one_grader, course, hand_in, tmp_path
):
    hand_in("ann", quadruple="def quadruple(x):\n    return double(double(x))")
    (report,) = run(course, tmp_path).reports
    assert [r.status for r in report.results] == [UNTOUCHED] * 3
    assert "it calls double, which is not attempted yet" in report.results[1].message


def test_the_failure_says_the_property_and_a_counter_example(one_grader, course, hand_in, tmp_path):
    hand_in("ann", double="def double(x):\n    return x")
    (report,) = run(course, tmp_path).reports
    assert report.results[0].status == FAILED
    assert report.results[0].message == (
        "double does not pass yet. What was run: x = 7\n"
        "  rank      0\n"
        "  expected  14\n"
        "  got       7\n"
        "  likely    the number is wrong"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lessons": ["02_none"]}, "no lesson 02_none: 01_tiny"),
        ({"points": {"triple": 1}}, "there is no such exercise"),
    ],
)
def test_what_cannot_be_graded_is_refused(course, hand_in, tmp_path, settings, words):
    hand_in("ann")
    with pytest.raises(ValueError, match=words):
        run(course, tmp_path, **settings)


def test_the_report_is_never_written_into_the_submissions(course, hand_in, tmp_path):
    folder = hand_in("ann")
    with pytest.raises(ValueError, match="cannot be inside the submissions"):
        grade(folder, folder / "report", untouched(course.root), tiny.EXERCISES)


@pytest.mark.parametrize("arguments", [["nowhere"], ["--points", "double", "."]])
def test_a_command_that_cannot_be_carried_out_exits_with_2(tmp_path, arguments, capsys):
    assert main(["grade", *arguments, "--out", str(tmp_path / "report")]) == 2
    assert "cannot grade" in capsys.readouterr().err
