"""Print how many small changes of each right answer its check rejects; 1 if any survives.

Those of which `equivalent` says why they are the same answer are counted and not tried, except
where exercises are named.
"""

import argparse
import os
import sys
from collections.abc import Iterable

from course_lib.checks.registry import all_exercises
from course_lib.text import table

from .equivalent import SAME
from .score import Fate, fates, mutants


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("exercise", nargs="*", help="only these exercises (all by default)")
    # Two for each core, since many mutants wait for a message until somebody notices.
    jobs = 2 * (os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=jobs, help="checks at a time")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every message")
    options = parser.parse_args(arguments)
    exercises = all_exercises()
    if unknown := {*options.exercise, *SAME} - set(exercises):
        parser.error(f"no such exercise: {', '.join(sorted(unknown))}")

    chosen = [m for name in options.exercise or exercises for m in mutants(exercises[name])]
    tried = [m for m in chosen if options.exercise or not m.why_same]
    found = [Fate(m, True, m.why_same) for m in chosen if m.why_same and not options.exercise]
    for fate in fates(tried, options.jobs):
        found.append(fate)
        if fate.survived or fate.explained_in_vain or options.verbose:
            _tell(fate, len(found), len(chosen))
    print(_table(found))
    return int(any(fate.survived for fate in found))


def _tell(fate: Fate, number: int, count: int) -> None:
    change = fate.mutant.change
    print(f"{'SURVIVED' if fate.survived else 'rejected'} {number}/{count} {fate.mutant.exercise}")
    print(f"    line {change.line}: {change.key}", flush=True)
    if fate.explained_in_vain:
        print("    and tests/mutants/equivalent.py says that it is the same answer", flush=True)
    if not fate.passed:
        print("    " + fate.message.replace("\n", "\n    "), flush=True)


def _table(found: Iterable[Fate]) -> str:
    found = list(found)
    names = dict.fromkeys(fate.mutant.exercise for fate in found)
    rows = [
        ("exercise", "mutants", "rejected", "the same answer", "survived"),
        *((name, *_counts([f for f in found if f.mutant.exercise == name])) for name in names),
        ("all", *_counts(found)),
    ]
    return table(rows)


def _counts(found: list[Fate]) -> tuple[str, ...]:
    same = sum(fate.passed and not fate.survived for fate in found)
    survived = sum(fate.survived for fate in found)
    return tuple(map(str, (len(found), len(found) - same - survived, same, survived)))


if __name__ == "__main__":
    sys.exit(main())
