"""`python -m course_lib.classroom build`: notebooks from sources, or whether they are stale."""

import argparse
import sys
from pathlib import Path

from course_lib.checks.registry import all_exercises
from course_lib.classroom.course import Course
from course_lib.classroom.lesson import LessonError


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 if all is well, 1 if something has to be mended, which is printed."""
    parser = argparse.ArgumentParser(prog="python -m course_lib.classroom")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="write solutions/*.ipynb and notebooks/*.ipynb")
    build.add_argument("lesson", nargs="*", help="names such as 00_ranks; all if none is given")
    how = build.add_mutually_exclusive_group()
    how.add_argument(
        "--execute", action="store_true", help="run lessons whose code has changed, and named ones"
    )
    how.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    options = parser.parse_args(arguments)

    course = Course(Path(__file__).resolve().parents[2], all_exercises())
    try:
        found = (
            course.problems() if options.check else course.build(options.lesson, options.execute)
        )
        problems = list(found)
    except (LessonError, ValueError) as error:
        problems = [error]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
