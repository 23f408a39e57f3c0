"""What the exercises bytes_per_device and tokens_to_hide share."""

from collections.abc import Callable
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.returned_numbers import close, number
from course_lib.checks.tolerance import EXACT


def on_rank(answer: Callable, case: Case) -> Any:
    arguments = (dict(a) if isinstance(a, dict) else a for a in case.data["arguments"])
    return plain(answer(*arguments))


def compare(
    case: Case,
    observation: Observation,
    want: float,
    lookalikes: dict[str, float],
    otherwise: str,
    unit: str,
) -> Finding | None:
    got = number(observation.values[0])
    if got is not None and close(got, want, EXACT):
        return None
    if got is None:
        return Finding("one number is expected", got=kind_of(observation.values[0]))
    causes = [cause for cause, value in lookalikes.items() if close(got, value, EXACT)]
    return Finding(
        "; or: ".join(causes) or otherwise,
        input=case.label,
        expected=f"{want:.6g} {unit}",
        got=f"{got:.6g} {unit}",
    )
