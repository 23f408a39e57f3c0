"""What a stage costs: memory and traffic, each for one parameter.

zero_costs(stage, n) -> (bytes, sent)
    Bytes of model states that a rank holds for each parameter of the model, with mixed precision
    and Adam (2 + 2 + 12), and elements that it sends in a step for each parameter. Stage 0 is plain
    data parallel.
"""

import operator
import random
from collections.abc import Callable
from typing import Any

from course_lib.checks.call_answer import plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, numbers
from course_lib.checks.tolerance import EXACT
from course_lib.simulate import model_state_bytes, step_traffic_elements
from course_lib.text import counted


def _cases(rng: random.Random) -> list[Case]:
    sizes = (1, 8, 64, rng.randint(2, 7), rng.randint(100, 2000))
    return [
        Case(1, f"stages 0 to 3 on {counted(n, 'rank')}", {"n": n}, "divide by n, not by n - 1")
        for n in sizes
    ]


def _on_rank(answer: Any, case: Case) -> list:
    return [plain(answer(stage, case.data["n"])) for stage in range(4)]


def _judge(case: Case, observation: Observation) -> Finding | None:
    n = case.data["n"]
    for stage, answered in enumerate(observation.values[0]):
        title = f"stage {stage} on n = {n}"
        got = numbers(answered, 2)
        if got is None:
            return Finding(
                "two numbers are expected, (bytes held, elements sent)",
                input=title,
                got=shown(answered),
            )
        want = (model_state_bytes(1, n, stage), step_traffic_elements(1, stage) * (n - 1) / n)
        if abs(got[0] - want[1]) <= EXACT and close(got[1], want[0], EXACT):
            return Finding(
                "the right numbers, the other way round: bytes held come first",
                input=title,
                expected=f"({want[0]:.6g}, {want[1]:.6g})",
                got=f"({got[0]:.6g}, {got[1]:.6g})",
            )
        if not close(got[0], want[0], EXACT):
            return Finding(
                _bytes_cause(got[0], stage, n),
                input=title,
                expected=f"{want[0]:.6g} bytes per parameter",
                got=f"{got[0]:.6g}",
            )
        if abs(got[1] - want[1]) > EXACT:
            return Finding(
                _sent_cause(got[1], want[1], stage, n),
                input=title,
                expected=f"{want[1]:.6g} elements sent for each parameter",
                got=f"{got[1]:.6g}",
            )
    return None


def _bytes_cause(got: float, stage: int, n: int) -> str:
    limits = {0: 16, 1: 4, 2: 2, 3: 0}
    causes = [
        (got == limits[stage] and n > 1, "this is what is left with infinitely many ranks"),
        (
            n > 1 and stage > 0 and got == _with_optimizer(12, stage, n, operator.floordiv),
            "// leaves out what does not divide, and / is the division of numbers of any kind",
        ),
        (
            stage == 3 and close(got, 16 / n**2, EXACT),
            "the three parts shrink n-fold each, so their sum does too: once, not twice",
        ),
        (
            any(close(got, model_state_bytes(1, n, other), EXACT) for other in range(4)),
            "this is another stage: 1 shards the optimizer, 2 the gradients too, 3 the parameters "
            "too",
        ),
        (
            close(got, _with_optimizer(8, stage, n), EXACT),
            "Adam's two moments are 8 bytes, and mixed precision keeps an fp32 copy: 4 more",
        ),
    ]
    default = (
        "2 bytes of parameter, 2 of gradient, 12 of optimizer: which of them does this stage "
        "divide by n?"
    )
    return "; or: ".join(cause for applies, cause in causes if applies) or default


def _with_optimizer(
    optimizer: float,
    stage: int,
    n: int,
    divided: Callable[[float, int], float] = operator.truediv,
) -> float:
    parts = (optimizer, 2, 2)
    return sum(divided(part, n) if stage > index else part for index, part in enumerate(parts))


def _sent_cause(got: float, want: float, stage: int, n: int) -> str:
    if n > 1 and close(got, 2 * want, EXACT):
        return "twice as many: elements are asked for, which have 2 bytes each"
    if got == (3 if stage == 3 else 2):
        return "a rank has its own part already: of every pass it sends (n-1)/n"
    if stage in (1, 2) and close(got, 3 * (n - 1) / n, EXACT):
        return (
            "an all-reduce (2) and an all-gather (1) is what the careless stage 1 sends; with a "
            "reduce-scatter it is 1 + 1"
        )
    if stage == 3 and close(got, 2 * (n - 1) / n, EXACT):
        return "stage 3 gathers the parameters twice, for forward and for backward"
    return "count the passes over the model: a reduce-scatter or an all-gather is one"


EXERCISE = Exercise(
    module=__name__,
    signature="(stage, n)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Memory: three parts, 2, 2 and 12 bytes, each divided by n from some stage on. Traffic: how
        many times does the model pass through a rank?
        """,
        """
        Optimizer from stage 1, gradients from stage 2, parameters from stage 3. All-reduce is two
        passes; reduce-scatter and all-gather are one each. A pass sends (n-1)/n of the model.
        """,
        """
        bytes = (2 / n if stage >= 3 else 2) + (2 / n if stage >= 2 else 2) + (12 / n if stage >= 1
        else 12). passes = 3 if stage == 3 else 2; sent = passes * (n - 1) / n.
        """,
    ),
    passed="memory and traffic of all stages, at any number of ranks",
    contract=Contract(allowed=frozenset()),
)
