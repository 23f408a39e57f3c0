"""Two numbers: what overlap leaves of the speed, and the learning rate of a large batch.

scaling_efficiency(forward, backward, ready, sizes, seconds) -> share of the ideal speed
learning_rate(step, base_rate, base_batch, batch, warmup_steps) -> rate of this step
"""

import random
from typing import Any

from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.numbers import close, number

_EXACT = 1e-9


# ---------------------------------------------------------------------------------------------
# Scaling efficiency
# ---------------------------------------------------------------------------------------------


def _efficiency_cases(rng: random.Random) -> list[Case]:
    drawn = []
    for buckets in (rng.randint(3, 6), rng.randint(7, 12)):
        backward = rng.uniform(5, 20)
        ready = sorted(rng.uniform(0, backward) for _ in range(buckets - 1))
        sizes = [rng.uniform(1, 25) for _ in range(buckets)]
        drawn.append((backward / 2, backward, [*ready, backward], sizes, 0.3, 0.1))
    cases = [
        (10, 20, [5, 10, 15, 20], [10, 10, 10, 10], 0.0, 1.2),  # a slow network: buckets queue
        (10, 20, [5, 10, 15, 20], [10, 10, 10, 10], 0.0, 0.1),  # a fast one
        (10, 20, [20], [40], 0.5, 0.25),
        (10, 20, [8, 20], [200, 4], 1.0, 0.05),  # a pause, then a small last one
        (1, 2, [], [], 1.0, 1.0),  # one GPU
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
    alpha, beta = data["cost"]
    free = 0.0
    for ready, size in zip(data["ready"], data["sizes"], strict=True):
        free = max(free, ready + start) + alpha + beta * size
    return data["forward"] + max(data["backward"], free)


def _judge_efficiency(case: Case, observation: Observation) -> Finding | None:
    data, got = case.data, number(observation.values[0])
    computing = data["forward"] + data["backward"]
    exact = computing / step_time(data)
    if got is not None and close(got, exact, _EXACT):
        return None
    if got is None:
        return Finding(f"one number is asked: this is {kind_of(observation.values[0])}")
    alpha, beta = data["cost"]
    each = [alpha + beta * size for size in data["sizes"]]
    alone = max(map(sum, zip(data["ready"], each, strict=True)), default=0)
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
        (1.0, "communication is not free: what is left of it after backward makes the step longer"),
        (1 / exact, "this is the time of a step over that of the computation: turn it round"),
        (100 * exact, "this is per cent: give a fraction"),
        (step_time(data), "this is the time of a step: divide the computation by it"),
        (data["backward"] / (step_time(data) - data["forward"]), "the forward pass is part of the "
         "step as well"),
    ]  # fmt: skip
    likely = next((text for value, text in causes if close(got, value, _EXACT)), "")
    return Finding(
        likely
        or "follow the network: when is it free, when is the next bucket ready, which of "
        "the two is later?",
        expected=f"{exact:.4f}",
        got=f"{got:.4f}",
    )


# ---------------------------------------------------------------------------------------------
# Learning rate
# ---------------------------------------------------------------------------------------------


def _rate_cases(rng: random.Random) -> list[Case]:
    chosen = [(0.1, 256, 8192, 2000), (0.1, 256, 256, 100), (0.05, 128, 384, 7)]
    for _ in range(2):
        base = rng.choice([32, 64, 96])
        chosen.append((rng.uniform(0.01, 1), base, base * rng.randint(2, 40), rng.randint(5, 500)))
    cases = []
    for base_rate, base_batch, batch, warmup in chosen:
        steps = sorted({0, 1, warmup // 2, warmup - 1, warmup, warmup + 1, 10 * warmup})
        label = f"rate {base_rate:.4g} at batch {base_batch}, batch {batch}, {warmup} warm-up steps"
        data = {"arguments": (base_rate, base_batch, batch, warmup), "steps": steps}
        cases.append(Case(1, label, data))
    data = {"arguments": (0.1, 256, 1024, 0), "steps": [0, 1, 50]}
    label = "rate 0.1 at batch 256, batch 1024, no warm-up"
    return [*cases, Case(1, label, data, "without warm-up steps the full rate holds from step 0")]


def _rate_on_rank(answer: Any, case: Case) -> Any:
    return [plain(answer(step, *case.data["arguments"])) for step in case.data["steps"]]


def rate(step: int, base: float, base_batch: int, batch: int, warmup: int) -> float:
    """Goyal et al. 2017, section 2.2: from the base rate to k times it, by constant amounts."""
    full = base * batch / base_batch
    return full if step >= warmup else base + (full - base) * step / warmup


def _judge_rate(case: Case, observation: Observation) -> Finding | None:
    arguments, steps = case.data["arguments"], case.data["steps"]
    base, base_batch, batch, warmup = arguments
    k = batch / base_batch
    answered = [number(value) for value in observation.values[0]]
    if None in answered:
        kind = kind_of(observation.values[0][answered.index(None)])
        return Finding(f"one number is asked: this is {kind}")
    wanted = [rate(step, *arguments) for step in steps]
    wrong = [i for i in range(len(steps)) if not close(answered[i], wanted[i], _EXACT)]
    if not wrong:
        return None
    i = wrong[-1]  # after the warm-up, if it is wrong there

    def all_are(value: Any) -> bool:
        return all(
            close(got, value(step), _EXACT) for got, step in zip(answered, steps, strict=True)
        )

    def ramp(start: float, full: float, last: int = warmup) -> Any:
        def value(step: int) -> float:
            return full if step >= last else start + (full - start) * step / max(1, last)

        return value

    causes = [
        (ramp(base, base), f"the rate stays as it was, though the batch is {k:g} times as large"),
        (ramp(base * k, base * k), "there is no warm-up: the first steps take the full rate"),
        (ramp(0.0, base * k), "the warm-up begins at zero: it begins at base_rate, the rate that "
         "is known to work from the start"),
        (lambda s: base * k if s >= warmup else base, "the rate jumps: it rises by equal amounts"),
        (ramp(base, base * k**0.5), "this is the square root of the ratio of the batches; the "
         "rule for SGD is linear"),
        (ramp(base, base / k), "the ratio is turned round: a larger batch takes a larger rate"),
        (ramp(base, base * batch), f"this multiplies by the batch instead of batch / {base_batch}"),
        (ramp(base, base * k, max(1, warmup - 1)), "the full rate comes one step early: it is due "
         "at step warmup_steps, counted from 0"),
        (lambda s: base + (base * k - base) * s / max(1, warmup), "the rate rises on after the "
         "warm-up: it ends at base_rate * batch / base_batch"),
    ]  # fmt: skip
    likely = next((text for value, text in causes if all_are(value)), "")
    return Finding(
        likely
        or "from base_rate at step 0 to base_rate * batch / base_batch at step "
        "warmup_steps, in a straight line; constant after that",
        expected=f"{wanted[i]:.6g} at step {steps[i]}",
        got=f"{answered[i]:.6g}",
    )


# ---------------------------------------------------------------------------------------------

SCALING_EFFICIENCY = Exercise(
    name="scaling_efficiency",
    signature="(forward, backward, ready, sizes, seconds)",
    notebook="03_data_parallel",
    cases=_efficiency_cases,
    on_rank=_efficiency_on_rank,
    judge=_judge_efficiency,
    hints=(
        """
        A GPU alone needs forward + backward for a step. In a team it needs longer, because it
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
    allowed=frozenset(),
)

LEARNING_RATE = Exercise(
    name="learning_rate",
    signature="(step, base_rate, base_batch, batch, warmup_steps)",
    notebook="03_data_parallel",
    cases=_rate_cases,
    on_rank=_rate_on_rank,
    judge=_judge_rate,
    hints=(
        """
        Two parts: the rate that is reached in the end, by the linear scaling rule, and the way
        there from base_rate.
        """,
        """
        The full rate is base_rate * batch / base_batch. In the warm-up the rate is a straight line
        over `step`: base_rate at step 0, the full rate at step warmup_steps.
        """,
        """
        full = base_rate * batch / base_batch; if step >= warmup_steps: return full; else
        base_rate + (full - base_rate) * step / warmup_steps.
        """,
    ),
    passed="linear scaling, reached by a warm-up in equal steps",
    allowed=frozenset(),
)
