"""The learner's own planner.

price_plan(model, cluster, way) -> (bytes on the device that holds most, seconds of a step)
    The three dicts are those of `course_lib.simulate.planner_contest`, which also has the score: on
    all ways to train a model, the answer tells as well as the library's planner what fits, puts
    them in about its order, and begins with one that is nearly the fastest; of the runs in
    Megatron-LM's Table 2 it tells the fast from the slow.
"""

import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import number
from course_lib.simulate import planner_contest, planner_scores
from course_lib.simulate.frameworks import MODERN
from course_lib.simulate.plans import Plan

from . import _pricing

_SAME_ORDER = 0.9
_REGRET = 0.15
_FITS = 0.95  # of the ways, told right
_DRAWN = (
    planner_contest.Request("18.4B", 8, 512),
    planner_contest.Request("39.1B", 16, 512),
    planner_contest.Request("76.1B", 32, 1024),
    planner_contest.Request("145.6B", 48, 1536),
)
Priced = list[tuple[float, float]]


def _cases(rng: random.Random) -> list[Case]:
    requests = [
        planner_contest.Request("7.5B", 4, 512),
        planner_contest.Request("GPT-3 175B", 128, 1536),
    ]
    cases = [_case(request) for request in (*requests, rng.choice(_DRAWN))]
    asked = [planner_contest.asked_of(run) for run in planner_scores.TABLE_2]
    return [*cases, Case(1, "the twelve runs of Megatron-LM's Table 2", {"asked": asked})]


def _case(request: planner_contest.Request) -> Case:
    plans = planner_contest.ways(request)
    asked = [planner_contest.asked(plan, request.cluster, MODERN) for plan in plans]
    return Case(
        1,
        f"{len(plans)} ways to train {request}",
        {"asked": asked, "request": dataclasses.astuple(request)},
    )


def _request(case: Case) -> planner_contest.Request:
    """Cases hold plain values, since ranks in a sandbox do not know the planner."""
    return planner_contest.Request(*case.data["request"])


def _on_rank(answer: Callable, case: Case) -> Any:
    return [plain(answer(*(dict(each) for each in asked))) for asked in case.data["asked"]]


# ------------------------------------------------------------------------------------------------
# Is it right?
# ------------------------------------------------------------------------------------------------


def _judge(case: Case, observation: Observation) -> Finding | None:
    priced: Priced = []
    for asked, value in zip(case.data["asked"], observation.values[0], strict=True):
        pair = [number(each) or 0.0 for each in value] if isinstance(value, tuple | list) else []
        if len(pair) != 2 or not all(0 < each < math.inf for each in pair):
            return Finding(
                "the answer is two numbers above 0, bytes and seconds",
                input=_shown(asked[2]),
                got=kind_of(value) if len(pair) != 2 else f"{value}",
            )
        priced.append((pair[0], pair[1]))
    if "request" not in case.data:
        return _published(case, priced)
    plans = planner_contest.ways(_request(case))
    return _memory(case, plans, priced) or _time(case, plans, priced)


def _memory(case: Case, plans: Sequence[Plan], priced: Priced) -> Finding | None:
    """Does it tell what fits?"""
    room = _request(case).cluster.device.memory
    told = [
        (a <= room) == (b.memory.total <= room) for (a, _), b in zip(priced, plans, strict=True)
    ]
    if sum(told) >= _FITS * len(told):
        return None
    worst = told.index(False)
    mistakes = {
        wrong: _distance(
            [nbytes for nbytes, _ in priced],
            [_pricing.held(model, way, wrong) for model, _, way in case.data["asked"]],
        )
        for wrong in ("", *_pricing.MEMORY)
    }
    return Finding(
        _likely(mistakes, _pricing.MEMORY, "count states and activations of one device"),
        input=f"{case.label}: {_shown(case.data['asked'][worst][2])}",
        expected=f"{plans[worst].memory.total / 1e9:.1f} GB of {room / 1e9:.0f}",
        got=f"{priced[worst][0] / 1e9:.1f} GB; {told.count(False)} ways are told wrong",
    )


def _time(case: Case, plans: Sequence[Plan], priced: Priced) -> Finding | None:
    """Is its order right, and its first choice?"""
    room = _request(case).cluster.device.memory
    score = planner_scores.compare(plans, priced, room)
    if _good(score):
        return None
    fitting = [n for n, plan in enumerate(plans) if plan.memory.total <= room]
    first = "one that does not fit" if score.regret is None else f"{score.regret:.0%} slower"
    return Finding(
        _why_slow(case, priced),
        input=case.label,
        expected=f"a rank correlation of {_SAME_ORDER}, and a first choice within {_REGRET:.0%}",
        got=f"{score.correlation:.2f}, and {first}. "
        + _farthest_off(
            [_shown(case.data["asked"][n][2]) for n in fitting],
            [plans[n].step.total for n in fitting],
            [priced[n][1] for n in fitting],
        ),
    )


def _published(case: Case, priced: Priced) -> Finding | None:
    score = planner_scores.compare_published([seconds for _, seconds in priced])
    if _good(score):
        return None
    return Finding(
        _why_slow(case, priced),
        input=case.label,
        expected=f"a rank correlation of {_SAME_ORDER} with the measured TFLOP/s of a device, and "
        f"first choices within {_REGRET:.0%}",
        got=f"{score.correlation:.2f}, and one that was {score.regret:.0%} slower. "
        + _farthest_off(
            [run.name for run in planner_scores.TABLE_2],
            [-run.flops_per_second for run in planner_scores.TABLE_2],
            [-rate for rate in planner_scores.rates([seconds for _, seconds in priced])],
        ),
    )


def _farthest_off(names: Sequence[str], theirs: Sequence[float], ours: Sequence[float]) -> str:
    """Which of them stands farthest from its place, where the smallest number comes first."""
    places = [
        {n: place for place, n in enumerate(sorted(range(len(names)), key=values.__getitem__), 1)}
        for values in (theirs, ours)
    ]
    right, told = places
    worst = max(right, key=lambda n: abs(right[n] - told[n]))
    return (
        f"Farthest from its place: {names[worst]}, number {right[worst]} of {len(names)} from the "
        f"fastest, and number {told[worst]} in your order"
    )


def _good(score: planner_scores.Score) -> bool:
    fits = score.regret is not None and score.regret <= _REGRET
    return fits and score.correlation >= _SAME_ORDER


# ------------------------------------------------------------------------------------------------
# Why it is not
# ------------------------------------------------------------------------------------------------


def _why_slow(case: Case, priced: Priced) -> str:
    mistakes = {
        wrong: _distance(
            [seconds for _, seconds in priced],
            [
                _pricing.seconds(model, cluster, way, wrong)
                for model, cluster, way in case.data["asked"]
            ],
        )
        for wrong in ("", *_pricing.TIME)
    }
    otherwise = "add up what lessons 02 to 08 count: compute, bubble, all-reduces, ZeRO's traffic"
    return _likely(mistakes, _pricing.TIME, otherwise)


def _distance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How far ratios are from being all the same: the median, as a factor, of what they differ."""
    ratios = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    middle = statistics.median(ratios)
    return statistics.fmean(abs(ratio - middle) for ratio in ratios)


def _likely(mistakes: dict[str, float], names: dict[str, str], otherwise: str) -> str:
    """The mistake that the answers look like, if they look like it more than like none."""
    nearest = min(mistakes, key=lambda wrong: mistakes[wrong])
    if nearest and mistakes[nearest] < 0.5 * mistakes[""]:
        return names[nearest]
    return otherwise


def _shown(way: dict[str, Any]) -> str:
    axes = " x ".join(f"{axis} {way[axis]}" for axis in ("pipeline", "data", "tensor"))
    again = ", recomputed" if way["recompute"] else ""
    return (
        f"{axes}, ZeRO-{way['zero']}{again}, {way['microbatches']} microbatches of"
        f" {way['micro_batch']}"
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(model, cluster, way)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Bytes: your bytes_per_device, and activations. Seconds: what a device computes for one
        microbatch, how many microbatches long a step is, and what is sent beside it.
        """,
        """
        Activations of a stage: layers / p times 34 * s * b * h / t bytes (2 * s * b * h with
        recomputation) for each microbatch in flight, of which 1F1B has min(p, m). A microbatch
        takes 6 operations per parameter and token of the device, 8 with recomputation, and four
        (six) all-reduces of 2 * s * b * h bytes per layer. A step is m + p - 1 of them. Data
        parallelism sends its parameters twice per step; ZeRO-3 reduces once with each microbatch,
        which hides behind nothing, and gathers twice, as far as that does not hide behind the
        microbatch's computation.
        """,
        """
        compute = (8 if recompute else 6) * own * tokens / flops; talk = (6 if recompute else 4) *
        layers / p * 2 * (t - 1) / t * 2 * tokens * h / inside; ring = (d - 1) / d * 2 * own /
        bandwidth, over `inside` where d * t fits on a node, and over between * min(rings, per_node
        // t) elsewhere. Seconds: (m + p - 1) * (compute + talk) + 2 * ring, or for ZeRO-3 instead
        of 2 * ring: m * (ring + max(0, 2 * ring - compute)).
        """,
    ),
    passed="it ranks plans as the library does, and tells ZeRO-3's slow runs from the fast ones",
    contract=Contract(allowed=frozenset()),
)
