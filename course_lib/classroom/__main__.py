"""`python -m course_lib.classroom COMMAND`: build the notebooks, see progress, hand out, grade."""

import argparse
import datetime
import shutil
import sys
import tempfile
import textwrap
import time
import warnings
from pathlib import Path

from course_lib.checks.registry import all_exercises

from .untouched_notebooks import course_answers, untouched

ROOT = Path(__file__).resolve().parents[2]
# What `grade` exits with. 2 is argparse's, for a command that cannot be carried out.
ALL_WELL, PROBLEMS, CANNOT, ODD = 0, 1, 2, 3


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m course_lib.classroom", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_status(commands)
    _add_build(commands)
    _add_new_exercise(commands)
    _add_preview(commands)
    _add_validate(commands)
    _add_grade(commands)
    _add_exports(commands)
    options = parser.parse_args(arguments)
    return options.run(options)


def _add_status(commands) -> None:
    status = commands.add_parser("status", help="what is passed, and what comes next")
    status.set_defaults(run=_status)
    start = commands.add_parser("start", help="write notebooks/START.md, which `make lab` opens")
    start.set_defaults(run=_start)
    reset = commands.add_parser("reset", help="empty one answer, and keep a copy of it")
    reset.add_argument("exercise", help="the name of its function")
    reset.set_defaults(run=_reset)


def _status(options) -> int:
    from .status import status

    print(status(ROOT / "notebooks", all_exercises()))
    return ALL_WELL


def _start(options) -> int:
    from .start_page import write_start_page

    write_start_page(ROOT, all_exercises())
    return ALL_WELL


def _reset(options) -> int:
    from .status import reset

    if options.exercise not in all_exercises():
        print(f"there is no exercise {options.exercise}", file=sys.stderr)
        return CANNOT
    notebook = all_exercises()[options.exercise].notebook
    try:
        copy = reset(ROOT, options.exercise, notebook)
    except (ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return CANNOT
    if copy is None:
        print(f"{options.exercise} is untouched")
    else:
        print(f"{options.exercise} is empty again; your answer is kept in {copy}")
        print("If the notebook is open, reload it: File, Reload Notebook from Disk.")
    return ALL_WELL


def _add_build(commands) -> None:
    build = commands.add_parser("build", help="write solutions/*.ipynb and notebooks/*.ipynb")
    build.add_argument("lesson", nargs="*", help="names such as 00_ranks; all if none is given")
    how = build.add_mutually_exclusive_group()
    how.add_argument(
        "--execute", action="store_true", help="run lessons whose code has changed, and named ones"
    )
    how.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    build.set_defaults(run=_build)


def _add_new_exercise(commands) -> None:
    new = commands.add_parser("new-exercise", help="write the three stubs of an exercise")
    new.add_argument("lesson", help="a name such as 02_ring_all_reduce")
    new.add_argument("name", help="of the function that learners write")
    new.add_argument("--signature", default="(tensor)", help='its arguments: "(tensor)"')
    new.add_argument("--after", default="", help="the exercise that it comes after (the last)")
    new.set_defaults(run=_new_exercise)


def _new_exercise(options) -> int:
    from .new_exercise import write_stubs

    given = (options.lesson, options.name, options.signature, all_exercises(), options.after)
    try:
        written = write_stubs(ROOT, *given)
    except (ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return CANNOT
    for file in written:
        print(file.relative_to(ROOT))
    print(f"Fill them, then: python -m course_lib.classroom build --execute {options.lesson}")
    return ALL_WELL


def _build(options) -> int:
    from .build_notebooks import Course
    from .lesson import LessonError

    course = Course(ROOT, all_exercises())
    try:
        found = (
            course.problems(options.lesson)
            if options.check
            else course.build(options.lesson, options.execute)
        )
        problems = [str(problem) for problem in found]
    except (LessonError, ValueError) as error:
        problems = [str(error)]
    for problem in problems:
        print(problem)
    return PROBLEMS if problems else ALL_WELL


def _add_grade(commands) -> None:
    grade = commands.add_parser(
        "grade",
        help="grade a folder of submissions",
        epilog="Exit codes: 0 all graded; 3 all graded, and something was odd: see REPORT/odd; "
        "2 nothing could be graded; 130 interrupted: the same command goes on where it stopped.",
    )
    grade.add_argument("submissions", type=Path, help="a folder (or zip) of folders and notebooks")
    grade.add_argument("--out", type=Path, required=True, help="where to write the report")
    grade.add_argument("--lesson", action="append", default=[], help="an assigned lesson; again")
    grade.add_argument(
        "--points", action="append", default=[], metavar="EXERCISE=POINTS", help="other points"
    )
    grade.add_argument("--jobs", type=int, default=0, help="answers at a time (one for each core)")
    grade.add_argument(
        "--part", default="1/1", metavar="I/N", help="of N parts of the students, the I-th"
    )
    grade.add_argument(
        "--due", type=_moment, default=None, help="2026-10-09T23:59; later files are late"
    )
    grade.add_argument(
        "--late", type=float, default=0.0, metavar="SHARE", help="of the points lost per day (0.1)"
    )
    grade.add_argument(
        "--partial",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="of the points for a right result that breaks a promise, where these are separate",
    )
    grade.add_argument("--memory", type=float, default=4.0, help="GiB that one answer may use")
    grade.set_defaults(run=_grade)


def _grade(options) -> int:
    from course_lib.checks.sandbox.resource_limits import Limits

    from .grading import grade
    from .grading.points import Deadline
    from .grading.reports import NOT_ISOLATED, write_reports
    from .grading.settings import Settings

    warnings.simplefilter("ignore")  # what Python has to say about the style of answers
    progress = _Progress()
    try:
        settings = Settings(
            options.lesson,
            dict(map(_points, options.points)),
            options.jobs,
            _part(options.part),
            Deadline(options.due, options.late) if options.due else None,
            options.partial,
            Limits(memory=int(options.memory * 2**30)),
        )
        graded = grade(
            options.submissions,
            options.out,
            untouched(ROOT),
            all_exercises(),
            settings,
            progress,
            course_answers(ROOT),
        )
    except (ValueError, OSError) as problem:
        print(f"cannot grade: {problem}", file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        return 130
    write_reports(graded, options.out)
    if not graded.isolated:
        print(NOT_ISOLATED)
    print(f"{len(graded.reports)} graded: {options.out / 'index.html'} ({progress.over()})")
    odd = sum(1 for report in graded.reports if report.odd or report.notes)
    if odd:
        print(f"{odd} with something odd: {options.out / 'odd'}")
    return ODD if odd else ALL_WELL


def _add_preview(commands) -> None:
    preview = commands.add_parser("preview", help="show what a student would be told")
    preview.add_argument("notebook", type=Path, help="a notebook as it could be handed in")
    preview.add_argument("--exercise", default="", help="only this one; exit code 1 if it fails")
    preview.add_argument("--json", type=Path, help="write Gradescope's results.json there as well")
    preview.set_defaults(run=_preview)


def _preview(options) -> int:
    from .grading import grade
    from .grading.points import PASSED
    from .grading.score_tables import gradescope
    from .grading.settings import Settings

    warnings.simplefilter("ignore")
    exercise = options.exercise
    if exercise and exercise not in all_exercises():
        print(f"there is no exercise {exercise}", file=sys.stderr)
        return CANNOT
    lessons = [all_exercises()[exercise].notebook] if exercise else []
    settings = Settings(lessons, only=[exercise] if exercise else [])
    with tempfile.TemporaryDirectory() as folder:
        submissions = Path(folder, "submissions", "preview")
        submissions.mkdir(parents=True)
        try:
            shutil.copy(options.notebook, submissions)
            out = Path(folder, "report")
            graded = grade(submissions.parent, out, untouched(ROOT), all_exercises(), settings)
        except (ValueError, OSError) as problem:
            print(f"cannot grade: {problem}", file=sys.stderr)
            return CANNOT
    (report,) = graded.reports
    print("\n".join([*report.notes, *(f"{path}: {why}" for path, why, _ in report.odd)]))
    for result in report.results:
        print(f"{result.exercise}: {result.status}, {result.points:g} of {result.maximum:g}")
        if result.message:
            print(textwrap.indent(result.message, "  "))
    if options.json:
        options.json.write_text(gradescope(report), encoding="utf-8", errors="replace")
    failed = exercise and report.results[0].status != PASSED
    return PROBLEMS if failed else ALL_WELL


def _add_validate(commands) -> None:
    validate = commands.add_parser("validate", help="run notebooks under nbval, with limits")
    validate.add_argument("notebook", nargs="+", type=Path)
    validate.add_argument("--cell", type=float, default=60.0, help="seconds for one cell")
    validate.add_argument("--all", type=float, default=300.0, help="seconds for all of them")
    validate.add_argument("--junitxml", default="", help="write the results there as well")
    validate.set_defaults(run=_validate)


def _validate(options) -> int:
    from .nbval_plugin import validate

    paths = [path.resolve() for path in options.notebook]
    if missing := [path for path in paths if not path.exists()]:
        print(f"there is no {missing[0]}", file=sys.stderr)
        return CANNOT
    return validate(paths, options.cell, options.all, options.junitxml)


def _add_exports(commands) -> None:
    bundle = commands.add_parser("bundle", help="write what learners get, without solutions")
    bundle.add_argument("out", type=Path, help="a new folder, or a file that ends with .zip")
    bundle.set_defaults(run=_bundle)
    nbgrader = commands.add_parser("nbgrader-export", help="write a course that nbgrader takes")
    nbgrader.add_argument("out", type=Path, help="a new folder")
    nbgrader.set_defaults(run=_nbgrader_export)


def _bundle(options) -> int:
    from .build_notebooks import Course
    from .bundle import write_bundle

    try:
        leaks = write_bundle(Course(ROOT, all_exercises()), options.out)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return CANNOT
    for leak in leaks:
        print(leak, file=sys.stderr)
    if leaks:
        return PROBLEMS
    print(f"for learners: {options.out}")
    return ALL_WELL


def _nbgrader_export(options) -> int:
    from .nbgrader_export import export

    try:
        lessons = export(ROOT / "solutions", options.out)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return CANNOT
    print(f"{len(lessons)} assignments in {options.out}/source. Go on there with, for example:")
    print(f"nbgrader generate_assignment {lessons[0]} --create")
    return ALL_WELL


def _points(text: str) -> tuple[str, float]:
    exercise, _, points = text.partition("=")
    try:
        return exercise, float(points)
    except ValueError:
        raise ValueError(f"--points takes EXERCISE=POINTS, not {text!r}") from None


def _moment(text: str) -> float:
    """Seconds since 1970 of a local date and time. Raises `ValueError`."""
    return datetime.datetime.fromisoformat(text).timestamp()


def _part(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal()):
        raise ValueError(f"--part takes I/N, such as 2/8, not {text!r}")
    return int(number), int(parts)


class _Progress:
    """How far the batch is, and how long the rest will take at this pace."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def __call__(self, done: int, total: int, student: str) -> None:
        left = (time.monotonic() - self._begun) / done * (total - done)
        count = f"{done}/{total} answers, about {_duration(left)} left"
        if sys.stderr.isatty():
            width = 30
            bar = "#" * (done * width // total)
            end = "\n" if done == total else ""
            line = f"\r[{bar:<{width}}] {count}  {student[:30]:<30}"
            print(line, end=end, file=sys.stderr)
        elif done == total or done % max(10, total // 50) == 0:
            print(count, file=sys.stderr)

    def over(self) -> str:
        """Time and memory that the batch has taken."""
        import resource  # not on Windows, where nothing is graded

        peak = (
            sum(
                resource.getrusage(who).ru_maxrss
                for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            )
            * 1024
        )
        return f"{_duration(time.monotonic() - self._begun)}, {peak / 2**30:.1f} GiB at most"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


if __name__ == "__main__":
    sys.exit(main())
