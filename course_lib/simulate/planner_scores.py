"""What a planner's prices are worth: is its order right, and what does its first choice cost?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .accuracy import root_mean_square
from .plans import Plan
from .published import RUNS, Run

TABLE_2 = tuple(run for run in RUNS if run.source.endswith("SC 2021, Table 2"))


@dataclass(frozen=True)
class Score:
    """What came of a comparison: 1 is the same order, and 0 none in common.

    correlation   of the two orders of all ways that fit (Spearman's)
    regret        how much slower the first choice is than the best one, less 1; None where it does
                  not fit
    """

    correlation: float
    regret: float | None


def compare(plans: Sequence[Plan], priced: Sequence[tuple[float, float]], room: float) -> Score:
    """A planner's prices of the same ways beside this library's; room: bytes of a device."""
    fitting = [n for n, plan in enumerate(plans) if plan.memory.total <= room]
    ours = [plans[n].step.total for n in fitting]
    theirs = [priced[n][1] for n in fitting]
    chosen = [n for n, (nbytes, _) in enumerate(priced) if nbytes <= room]
    regret = None
    if chosen:
        first = plans[min(chosen, key=lambda n: priced[n][1])]
        if first.memory.total <= room:
            regret = first.step.total / min(ours) - 1
    return Score(rank_correlation(ours, theirs), regret)


def compare_published(seconds: Sequence[float], runs: Sequence[Run] = TABLE_2) -> Score:
    """A planner's seconds of a step of published runs beside what was measured.

    Compared are rates of a device. Where a model was trained on as many devices in several ways,
    the planner chooses one: the regret is the largest of them.
    """
    priced = rates(seconds, runs)
    measured = [run.flops_per_second for run in runs]
    regret = 0.0
    for _, group in _same_request(runs):
        first = max(group, key=lambda n: priced[n])
        regret = max(regret, max(measured[n] for n in group) / measured[first] - 1)
    return Score(rank_correlation(measured, priced), regret)


def rates(seconds: Sequence[float], runs: Sequence[Run] = TABLE_2) -> list[float]:
    """FLOP/s of a device, counted as each run's authors do, from the seconds of a step of each."""
    return [_rate(run, time) for run, time in zip(runs, seconds, strict=True)]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of the places, where equals share the mean of theirs."""
    x, y = _places(first), _places(second)
    middle = (len(x) - 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(x, y, strict=True))
    spread = [root_mean_square([place - middle for place in places]) for places in (x, y)]
    return both / (len(x) * spread[0] * spread[1]) if min(spread) > 0 else 0.0


def _places(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda n: values[n])
    places = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for n in order[start:end]:
            places[n] = (start + end - 1) / 2
        start = end
    return places


def _rate(run: Run, seconds: float) -> float:
    again = run.recompute_counts and run.recompute == ("full",)
    return run.model.flops(run.global_batch, again) / seconds / run.cluster.size


def _same_request(runs: Sequence[Run]) -> Iterator[tuple[Any, list[int]]]:
    groups: dict[Any, list[int]] = {}
    for n, run in enumerate(runs):
        groups.setdefault((run.model, run.cluster.size, run.global_batch), []).append(n)
    yield from groups.items()
