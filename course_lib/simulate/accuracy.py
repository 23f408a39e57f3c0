"""How far the planner is from published runs: `print(error_table())`.

fitted      the run had a part in setting the two numbers of `software.MEGATRON_2021` (`fit`)
held out    it had none: these errors are what the planner is worth elsewhere
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from course_lib.text import table

from .frameworks import MEGATRON_2021
from .planner_assumptions import Software
from .plans import Plan
from .published import MEGATRON_TABLE_1, RUNS, Run


@dataclass(frozen=True)
class Ranking:
    """Where the mesh that was run stands: `place` of `tried` meshes, with those that do not fit.

    slower: its time over that of the first mesh, less 1.
    """

    place: int
    tried: int
    slower: float

    def __str__(self) -> str:
        first = f"{self.place} of {self.tried}"
        return first if self.place == 1 else f"{first}, {self.slower:.0%} slower"


def error(run: Run, plan: Plan | None = None) -> float:
    """The planner's rate over the published one, less 1. plan: of the run, if it is known."""
    return run.said_of(plan or run.as_run()) / run.flops_per_second - 1


def root_mean_square(errors: Sequence[float]) -> float:
    """Of at least one error."""
    return math.sqrt(sum(error**2 for error in errors) / len(errors))


def ranking(run: Run) -> Ranking | None:
    """Of the mesh that a run's authors took for the best; None if the planner finds no room."""
    plans = run.plans()
    if not run.chosen or run.mesh not in plans.meshes:
        return None
    return Ranking(
        plans.meshes.index(run.mesh) + 1,
        len(plans.meshes) + len(plans.refused),
        plans.of(run.mesh).step.total / plans.best.step.total - 1,
    )


def error_table(runs: Sequence[Run] = RUNS, rows: Sequence[Run] | None = None) -> str:
    """TFLOP/s of a device as published and as planned, and where the published mesh is ranked.

    rows: those of `runs` that get a row; None: all. The summary below is of all of them.
    """
    lines = [("TFLOP/s of a device", "published", "planned", "error", "", "its mesh among all")]
    errors: dict[bool, list[float]] = {True: [], False: []}
    for run in runs:
        plan = run.as_run()
        off = error(run, plan)
        errors[run.fitted].append(off)
        if rows is not None and run not in rows:
            continue
        lines.append(
            (
                run.name,
                f"{run.flops_per_second / 1e12:.0f}",
                f"{run.said_of(plan) / 1e12:.0f}",
                f"{off:+.1%}",
                "fitted" if run.fitted else "",
                str(ranking(run) or ""),
            )
        )
    summary = _summary("fitted", errors[True]) + _summary("held out", errors[False])
    return "\n".join([table(lines), *summary])


def fit(
    runs: Sequence[Run] = MEGATRON_TABLE_1,
    software: Software = MEGATRON_2021,
    tolerance: float = 1e-3,
) -> tuple[float, float]:
    """(matrix, passes) of `software` with the least squares of the relative errors of `runs`.

    A search of the neighbours on a grid, which gets twice as fine where none of them is better.
    """

    def misses(point: tuple[float, float]) -> float:
        tried = replace(software, matrix=point[0], passes=point[1])
        return sum(error(replace(run, software=tried)) ** 2 for run in runs)

    here, step = (0.5, 1.0), 0.1
    least = misses(here)
    while step > tolerance:
        around = [
            (here[0] + a * step, here[1] + 10 * b * step)
            for a in (-1, 0, 1)
            for b in (-1, 0, 1)
            if 0 < here[0] + a * step <= 1 and here[1] + 10 * b * step >= 0
        ]
        nearest = min(around, key=misses)
        if misses(nearest) < least:
            here, least = nearest, misses(nearest)
        else:
            step /= 2
    return here


def _summary(what: str, errors: Sequence[float]) -> list[str]:
    if not errors:
        return []
    most = max(map(abs, errors))
    mean = root_mean_square(errors)
    return [f"{len(errors)} {what}: {mean:.1%} off (root mean square), {most:.1%} at most"]


if __name__ == "__main__":
    print(error_table())
