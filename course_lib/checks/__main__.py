"""`python -m course_lib.checks`: how many of the wrong answers the checks reject."""

import argparse
import sys

from course_lib.text import table

from .known_answers import Rejection, all_known_answers, reject
from .registry import all_exercises


def main() -> int:
    """Print the score table; 1 if a wrong answer got through or was told something else."""
    parser = argparse.ArgumentParser(prog="python -m course_lib.checks", description=__doc__)
    parser.add_argument("exercise", nargs="*", help="only these exercises (all by default)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every message")
    options = parser.parse_args()
    if unknown := set(options.exercise) - set(all_exercises()):
        parser.error(f"no such exercise: {', '.join(sorted(unknown))}")

    chosen = options.exercise or all_exercises()
    wrong = [k for k in all_known_answers() if not k.right and k.exercise in chosen]
    rejections = []
    for known in wrong:
        rejection = reject(known)
        rejections.append(rejection)
        if options.verbose or not rejection.as_expected:
            print(f"--- {known.name}, which must hear {known.says!r}")
            print(rejection.message, end="\n\n", flush=True)
    print(_table(rejections))
    return 0 if all(rejection.as_expected for rejection in rejections) else 1


def _table(rejections: list[Rejection]) -> str:
    names = dict.fromkeys(rejection.wrong.exercise for rejection in rejections)
    rows = [
        ("exercise", "wrong answers", "rejected", "by the expected message"),
        *((name, *_counts([r for r in rejections if r.wrong.exercise == name])) for name in names),
        ("all", *_counts(rejections)),
    ]
    return table(rows)


def _counts(rejections: list[Rejection]) -> tuple[str, str, str]:
    expected = sum(rejection.as_expected for rejection in rejections)
    return str(len(rejections)), str(sum(r.rejected for r in rejections)), str(expected)


if __name__ == "__main__":
    sys.exit(main())
