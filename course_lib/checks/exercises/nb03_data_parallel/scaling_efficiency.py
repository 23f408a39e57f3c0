"""What overlap leaves of the speed.

scaling_efficiency(forward, backward, ready, sizes, seconds) -> share of the ideal speed
"""

import random
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, number
from course_lib.checks.tolerance import EXACT

# Scaling efficiency


def _efficiency_cases(rng: random.Random) -> list[Case]:
    drawn: list[Any] = []
    for buckets in (rng.randint(3, 6), rng.randint(7, 12)):
        backward = rng.uniform(5, 20)
        ready = sorted(rng.uniform(0, backward) for _ in range(buckets - 1))
        sizes = [rng.uniform(1, 25) for _ in range(buckets)]
        drawn.append((backward / 2, backward, [*ready, backward], sizes, 0.3, 0.1))
    cases: list[Any] = [
        (10, 20, [5, 10, 15, 20], [10, 10, 10, 10], 0.0, 1.2),  # a slow network: buckets queue
        (10, 20, [5, 10, 15, 20], [10, 10, 10, 10], 0.0, 0.1),  # a fast one
        (10, 20, [20], [40], 0.5, 0.25),
        (10, 20, [8, 20], [200, 4], 1.0, 0.05),  # a pause, then a small last one
        (1, 2, [], [], 1.0, 1.0),  # one GPU
        (10, 20, [12, 8, 20], [10, 30, 5], 0.5, 0.3),  # the second is ready first, and waits
        *drawn,
    ]
    return [_efficiency_case(*case) for case in cases]


def _efficiency_case(
    forward: float, backward: float, ready: list, sizes: list, alpha: float, beta: float
) -> Case:
    """Times in ms, sizes in MB; an all-reduce takes alpha + beta * size."""
    data = {
        "forward": forward,
        "backward": backward,
        "ready": ready,
        "sizes": sizes,
        "cost": (alpha, beta),
    }
    label = (
        f"forward {forward:.4g}, backward {backward:.4g}, buckets ready at "
        f"{_listed(ready)} of {_listed(sizes)} MB, {alpha:g} + {beta:g} x MB each"
    )
    return Case(1, label, data)


def _listed(values: list) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]"


def _efficiency_on_rank(answer: Any, case: Case) -> Any:
    data = case.data
    alpha, beta = data["cost"]
    return plain(
        answer(
            data["forward"],
            data["backward"],
            list(data["ready"]),
            list(data["sizes"]),
            lambda size: alpha + beta * size,
        )
    )


def step_time(data: dict[str, Any], start: float = 0.0) -> float:
    """Forward, backward, and what the network still does after that; `start` delays readiness."""
    return data["forward"] + max(data["backward"], last_arrival(data, start))


def last_arrival(data: dict[str, Any], start: float = 0.0) -> float:
    """When the network is done with the last bucket, from the beginning of backward."""
    alpha, beta = data["cost"]
    free = 0.0
    for ready, size in zip(data["ready"], data["sizes"], strict=True):
        free = max(free, ready + start) + alpha + beta * size
    return free


def _judge_efficiency(case: Case, observation: Observation) -> Finding | None:
    data, got = case.data, number(observation.values[0])
    computing = data["forward"] + data["backward"]
    exact = computing / step_time(data)
    if got is not None and close(got, exact, EXACT):
        return None
    if got is None:
        return Finding(f"one number is expected: this is {kind_of(observation.values[0])}")
    alpha, beta = data["cost"]
    each = [alpha + beta * size for size in data["sizes"]]
    alone = max(map(sum, zip(data["ready"], each, strict=True)), default=0)
    step_of_the_network = data["forward"] + last_arrival(data)
    without_last = {**data, "ready": data["ready"][:-1], "sizes": data["sizes"][:-1]}
    causes = [
        (computing / (computing + sum(each)), "nothing is hidden here: this adds all all-reduces "
         "to the computation, though they run while backward does"),
        (computing / (data["forward"] + max(data["backward"], sum(each))), "this starts the "
         "network with backward, but a bucket can only leave when it is ready"),
        (computing / (data["forward"] + max(data["backward"], alone)), "here each bucket has the "
         "network to itself: one that is ready waits until the one before has arrived"),
        (computing / max(computing, sum(each)), "this hides all-reduces behind the forward pass "
         "too, when no gradient exists yet"),
        (computing / step_time(without_last), "the last bucket is missing: it leaves when backward "
         "ends, so nothing hides it"),
        (computing / step_of_the_network, "a step is never shorter than its computation: what "
         "counts is the later one of backward's end and the last arrival, max(backward, ...)"),
        (1.0, "communication is not free: what is left of it after backward makes the step longer"),
        (1 / exact, "this is the time of a step over that of the computation: invert it"),
        (100 * exact, "this is per cent: give a fraction"),
        (step_time(data), "this is the time of a step: divide the computation by it"),
        (data["backward"] / (step_time(data) - data["forward"]), "the forward pass is part of the "
         "step as well"),
    ]  # fmt: skip
    fits = dict.fromkeys(text for value, text in causes if close(got, value, EXACT))
    return Finding(
        ", or ".join(fits)
        or "follow the network: when is it free, when is the next bucket ready, which of "
        "the two is later?",
        expected=f"{exact:.4f}",
        got=f"{got:.4f}",
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(forward, backward, ready, sizes, seconds)",
    cases=_efficiency_cases,
    on_rank=_efficiency_on_rank,
    judge=_judge_efficiency,
    hints=(
        """
        By itself a GPU takes forward + backward for a step. In a group it takes longer, since it
        waits at the end for the last bucket. The efficiency is the first over the second. So when
        does the last bucket arrive?
        """,
        """
        Go through the buckets in order and keep the time at which the network is free, counted
        like `ready` from the beginning of backward. A bucket starts when it is ready and the
        network is free, whichever is later.
        """,
        """
        free = 0; for t, size in zip(ready, sizes): free = max(free, t) + seconds(size). A step
        takes forward + max(backward, free). Return (forward + backward) / that.
        """,
    ),
    passed="what overlaps is free, and what is left after backward is not",
    contract=Contract(
        allowed=frozenset(),
    ),
)
