"""Who is served where an expert has only so many places.

within_capacity(experts, number, factor) -> kept (T, k) bool
    experts (T, k) int64, the best first, of `number` experts. Each has ceil(factor T k / number)
    places: those of all tokens together, divided evenly, times `factor`. First choices are served
    before second ones, and among equals the tokens in their order. What finds no place is dropped.
"""

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._choices import choices


def _cases(rng: random.Random) -> list[Case]:
    cases = [
        _case(torch.tensor([[0], [0], [1], [0], [0], [1]]), 2, 1.0),
        _case(choices(rng, 7, 2, [0, 1, 3]), 4, 1.0),
        _case(choices(rng, rng.randint(9, 16), 2, range(3)), 5, 0.75),
        _case(choices(rng, 6, 3, range(4)), 4, 1.25),
        _case(choices(rng, 5, 1, [2]), 3, 3.0),
    ]
    return cases


def _case(experts: torch.Tensor, number: int, factor: float) -> Case:
    tokens, k = experts.shape
    label = f"{tokens} tokens, k = {k}, {number} experts, factor {factor}"
    if tokens <= 7:
        label += f": {experts.tolist()}"
    return Case(1, label, {"experts": experts, "number": number, "factor": factor})


def _on_rank(answer: Callable, case: Case) -> Any:
    data = case.data
    return plain(answer(data["experts"].clone(), data["number"], data["factor"]))


def _served(experts: torch.Tensor, places: int, order: list[tuple[int, int]]) -> torch.Tensor:
    """Who has a place if (token, choice) come in this order."""
    taken: dict[int, int] = {}
    kept = torch.zeros(experts.shape, dtype=torch.bool)
    for token, choice in order:
        expert = int(experts[token, choice])
        taken[expert] = taken.get(expert, 0) + 1
        kept[token, choice] = taken[expert] <= places
    return kept


def _judge(case: Case, observation: Observation) -> Finding | None:
    experts, number, factor = (case.data[name] for name in ("experts", "number", "factor"))
    tokens, k = experts.shape
    places = math.ceil(factor * tokens * k / number)
    by_choice = [(t, j) for j in range(k) for t in range(tokens)]
    by_token = [(t, j) for t in range(tokens) for j in range(k)]
    kept = _served(experts, places, by_choice)
    got = observation.values[0]
    if isinstance(got, torch.Tensor) and got.shape == kept.shape and got.dtype != torch.bool:
        return Finding("a mask is expected, of dtype bool: True where a choice is served")
    each = torch.cat(
        [_served(experts[:, j : j + 1], places, [(t, 0) for t in range(tokens)]) for j in range(k)],
        dim=1,
    )
    looks = {
        "what is dropped, and what is served is expected": ~kept,
        "the tokens one after the other with all their choices, but no second choice is served "
        "before a first one": _served(experts, places, by_token),
        "every choice (first, second, ...) with places of its own: they share an expert's places": (
            each
        ),
        "the last to come served first": _served(experts, places, by_choice[::-1]),
        "served if there is one place less: counted from 1, the last one is number `capacity`": (
            _served(experts, places - 1, by_choice)
        ),
        "served if there is one place more: counted from 0, the last one is below `capacity`": (
            _served(experts, places + 1, by_choice)
        ),
        "served with a capacity that is rounded down, and it is rounded up": _served(
            experts, int(factor * tokens * k / number), by_choice
        ),
        "served with a capacity that is rounded to the nearest, and it is rounded up": _served(
            experts, round(factor * tokens * k / number), by_choice
        ),
        "served with an even share that is rounded up before it is multiplied": _served(
            experts, math.ceil(factor * math.ceil(tokens * k / number)), by_choice
        ),
        "served with places for T tokens, and there are T k choices": _served(
            experts, math.ceil(factor * tokens / number), by_choice
        ),
    }
    return compare_tensors.mismatch(got, _exactly(kept), 0, looks)


def _exactly(kept: torch.Tensor) -> reference.Reference:
    moved = reference.moved(kept)
    return reference.Reference(moved.value, moved.tolerance, torch.bool)


EXERCISE = Exercise(
    module=__name__,
    signature="(experts, number, factor)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        A choice is served if fewer choices for the same expert stand before it than there are
        places. In which order do the choices stand? Write them down in one row.
        """,
        """
        experts.T.flatten() is that row: all first choices, then all second ones. F.one_hot turns it
        into a table with a column per expert; cumsum down a column counts, and says which place in
        the queue each choice has.
        """,
        """
        row = experts.T.flatten(); queue = F.one_hot(row, number).cumsum(0); place =
        queue.gather(1, row[:, None])[:, 0], from 1 on; kept = place <= math.ceil(factor * T * k /
        number); return kept.view(k, T).T.
        """,
    ),
    passed="first choices first, then in order, as far as there are places",
    contract=Contract(
        takes="experts (T, k), number of experts, a factor above 0",
        gives="the mask is of dtype bool",
        allowed=frozenset(),
    ),
)
