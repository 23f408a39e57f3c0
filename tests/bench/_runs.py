"""The same comparison in each run, side by side; and all that was measured, as JSON."""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tests.bench.measurement import Measurement, Row

Run = Mapping[str, Sequence[Measurement]]  # by the name of the row


@dataclass(frozen=True)
class Compared:
    """One comparison, by run."""

    runs: tuple[Measurement, ...]

    @property
    def what(self) -> str:
        return self.runs[0].what

    @property
    def limit(self) -> float | None:
        return self.runs[0].limit

    @property
    def met(self) -> bool:
        """In every run."""
        return all(m.met for m in self.runs)

    @property
    def pooled(self) -> Measurement:
        """With the ratios of all runs."""
        return _pool(self.runs)

    @property
    def floor(self) -> Measurement | None:
        """With the ratios of the runs that missed the limit, the only ones to have measured it."""
        floors = [m.floor for m in self.runs if m.floor]
        return _pool(floors) if floors else None


def _pool(measured: Sequence[Measurement]) -> Measurement:
    return replace(measured[0], ratios=tuple(ratio for m in measured for ratio in m.ratios))


def side_by_side(row: Row, runs: Sequence[Run]) -> list[Compared]:
    """The comparisons of one row, in the order of the first run."""
    by_what: dict[str, list[Measurement]] = {}
    for run in runs:
        for measurement in run.get(row.name, ()):
            if measurement.ratios:
                by_what.setdefault(measurement.what, []).append(measurement)
    return [Compared(tuple(measured)) for measured in by_what.values()]


def machine() -> str:
    """Where the numbers are from."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = platform.python_version()
    return f"{cores} cores, {platform.machine()}, Python {python}, torch {torch.__version__}"


def as_json(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """`{"machine": ..., "rows": {name: {"title": ..., "runs": [[measurement, ...], ...]}}}`."""
    found = {
        row.name: {
            "title": row.title,
            "runs": [[_plain(m) for m in run[row.name]] for run in runs if row.name in run],
        }
        for row in rows
        if any(row.name in run for run in runs)
    }
    text = json.dumps({"machine": machine(), "rows": found}, indent=1)
    # A list of numbers on one line.
    return re.sub(r"\[[-\d.,e\s]+\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n"


def _plain(m: Measurement) -> dict[str, object]:
    """What there is of a measurement, numbers with the digits that mean something."""
    plain: dict[str, object] = {"what": m.what}
    if m.ratios:
        plain |= {"median": _short(m.median), "quartiles": [_short(q) for q in m.quartiles]}
        plain |= {"limit": m.limit, "met": m.met, "ratios": [_short(r) for r in m.ratios]}
    if m.floor:
        plain["floor"] = _plain(m.floor)
    if m.values:
        plain["values"] = {unit: _short(value) for unit, value in m.values.items()}
    if m.note:
        plain["note"] = m.note
    return plain


def _short(number: float) -> float:
    return float(f"{number:.4g}")
