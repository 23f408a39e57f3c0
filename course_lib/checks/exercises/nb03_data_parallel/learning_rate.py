"""The learning rate of a large batch.

learning_rate(step, base_rate, base_batch, batch, warmup_steps) -> rate of this step
"""

import random
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, number, numbers
from course_lib.checks.tolerance import EXACT

# Learning rate


def _rate_cases(rng: random.Random) -> list[Case]:
    chosen = [(0.1, 256, 8192, 2000), (0.1, 256, 256, 100), (0.05, 128, 384, 7)]
    chosen += [(0.1, 256, 640, 10), (0.4, 512, 128, 20)]  # no multiple, and a smaller batch
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
    clue = "without warm-up steps the full rate holds from step 0"
    return [*cases, Case(1, label, data, Clue(clue, "ZeroDivisionError"))]


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
    returned = observation.values[0]
    answered = numbers(returned, len(steps))
    if answered is None:
        kind = kind_of(next(value for value in returned if number(value) is None))
        return Finding(f"one number is expected: this is {kind}")
    wanted = [rate(step, *arguments) for step in steps]
    wrong = [i for i in range(len(steps)) if not close(answered[i], wanted[i], EXACT)]
    if not wrong:
        return None
    i = wrong[-1]  # after the warm-up, if it is wrong there

    def all_are(value: Any) -> bool:
        return all(
            close(got, value(step), EXACT) for got, step in zip(answered, steps, strict=True)
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
        (ramp(base, base * (batch // base_batch)), "// leaves out what does not divide: "
         "batch / base_batch need not be whole"),
        (ramp(base, base / k), "the ratio is upside down: a larger batch takes a larger rate"),
        (ramp(base, base * batch), f"this multiplies by the batch instead of batch / {base_batch}"),
        (lambda s: base * k if s >= warmup else base + (base * k - base) * (s + 1) / warmup, "this "
         "counts from step 1: step 0 takes base_rate"),
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


EXERCISE = Exercise(
    module=__name__,
    signature="(step, base_rate, base_batch, batch, warmup_steps)",
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
        Work out the full rate. From step warmup_steps on, return it. Before, go from base_rate
        the share step / warmup_steps of the way: add that share of their difference.
        """,
    ),
    passed="linear scaling, reached by a warm-up in equal steps",
    contract=Contract(
        takes="`warmup_steps` from 0 on",
        allowed=frozenset(),
    ),
)
