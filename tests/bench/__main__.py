"""Measure and print a table. Both runs and the scaling tables end within 17 minutes on 2 cores."""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tests import bench
from tests.bench._publishing import publish
from tests.bench._runs import Run, as_json, machine
from tests.bench.measurement import Measurement, Row


def all_rows() -> list[Row]:
    """Those of every module here, and in the folder of what grows, whose name has no underscore."""
    names = [module.name for module in pkgutil.walk_packages(bench.__path__, "tests.bench.")]
    public = [name for name in sorted(names) if "._" not in name]
    return [row for name in public for row in getattr(importlib.import_module(name), "ROWS", ())]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every limit was met in every run, 1 otherwise."""
    rows = all_rows()
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW",
        choices=[row.name for row in rows],
        help="measure this row; again for another one: %(choices)s",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="measure twice; write docs/benchmarks.md and the README's lines",
    )
    options = parser.parse_args(arguments)
    if options.publish and options.only:
        parser.error("--publish replaces the whole table: leave out --only")

    rows = [row for row in rows if not options.only or row.name in options.only]
    print(f"{machine()}; ratios are time of ours / theirs")
    print(f"{'':44} {'median':>7}  {'quartiles':>13}  {'at most':>7}")
    runs = [measure(rows)]
    if options.publish:
        # Only comparisons again: whether they hold is in question, not what grows.
        compared = [row for row in rows if any(m.ratios for m in runs[0][row.name])]
        print("\nonce more")
        runs.append(measure(compared))
    if options.json:
        options.json.write_text(as_json(rows, runs), encoding="utf-8")
    if options.publish:
        publish(rows, runs)
    measured = [m for run in runs for of_row in run.values() for m in of_row]
    return 0 if all(m.met for m in measured) else 1


def measure(rows: Iterable[Row]) -> Run:
    """Measure each row and print what was found."""
    found = {}
    for row in rows:
        print(row.title)
        found[row.name] = row.measure()
        for measurement in found[row.name]:
            print(line(measurement), flush=True)
    return found


def line(m: Measurement) -> str:
    """One line of the table; a second one for the floor of a missed limit."""
    if not m.ratios:
        return f"  {m.what:42} {m.note}"
    low, high = m.quartiles
    limit = f"{m.limit:7.2f}" if m.limit else " " * 7
    verdict = "" if m.met else "  missed"
    text = f"  {m.what:42} {m.median:7.2f}  {low:6.2f} {high:6.2f}  {limit}{verdict}"
    if not m.floor:
        return text
    return f"{text}\n{line(replace(m.floor, what=f'  {m.floor.what}'))}"


if __name__ == "__main__":
    sys.exit(main())
