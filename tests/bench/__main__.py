"""Measure the rows and print a table; `--json FILE` keeps the numbers, `--publish` the README's."""

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys

import torch

from tests import bench
from tests.bench._publishing import publish
from tests.bench.row import Measurement, Row

MODULES = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name[0] != "_"]
ROWS: list[Row] = [
    row
    for module in sorted(MODULES)
    for row in getattr(importlib.import_module(f"tests.bench.{module}"), "ROWS", ())
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=[row.name for row in ROWS], action="append")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--publish", action="store_true", help="write table and figure")
    options = parser.parse_args()

    print(f"{platform.machine()}, torch {torch.__version__}; ratios are time of ours / theirs")
    print(f"{'':44} {'median':>7}  {'quartiles':>13}  {'at most':>7}")
    found: dict[str, list[Measurement]] = {}
    for row in ROWS:
        if options.only and row.name not in options.only:
            continue
        print(row.title)
        found[row.name] = row.measure()
        for measurement in found[row.name]:
            print(line(measurement), flush=True)
    if options.json:
        numbers = {name: [vars(m) for m in measured] for name, measured in found.items()}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(numbers, file, indent=1)
    if options.publish:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        publish(ROWS, found, f"{cores} cores, {platform.machine()}, torch {torch.__version__}")
    return 0 if all(m.met for measured in found.values() for m in measured if m.ratios) else 1


def line(measurement: Measurement) -> str:
    """One line of the table."""
    if not measurement.ratios:
        return f"  {measurement.what:42} {measurement.note}"
    low, high = measurement.quartiles
    limit = f"{measurement.limit:7.2f}" if measurement.limit else " " * 7
    spread = f"{low:6.2f} {high:6.2f}"
    verdict = "" if measurement.met else "  missed"
    return f"  {measurement.what:42} {measurement.median:7.2f}  {spread}  {limit}{verdict}"


if __name__ == "__main__":
    sys.exit(main())
