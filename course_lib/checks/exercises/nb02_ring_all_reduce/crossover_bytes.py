"""Ring or tree: what the cost of a message predicts.

crossover_bytes(n, alpha, beta) -> float
    The size above which a ring all-reduce beats a binomial tree (reduce, then broadcast) on n
    ranks; 0.0 where the ring is never slower.
"""

import random
from collections.abc import Callable

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, number
from course_lib.simulate import costs
from course_lib.text import counted

_CROSSOVER_TOLERANCE = 1e-6


_NEVER = Clue(
    "where the ring sends no more messages than the tree there is nothing to divide, and the ring "
    "is never slower: 0 bytes",
    "ZeroDivisionError",
    "math domain",
)


def _crossover_cases(rng: random.Random) -> list[Case]:
    return [
        Case(1, "4 ranks, alpha = 10 microseconds, 1 GB/s", {"settings": [(4, 1e-5, 1e-9)]}),
        Case(1, "1, 2 and 3 ranks", {"settings": [(n, 1e-5, 1e-9) for n in (1, 2, 3)]}, _NEVER),
        _random_settings(rng, (8, 5, 6)),
        _random_settings(rng, (64, 100, 1024)),
        _random_settings(rng, tuple(rng.randrange(2, 2 ** rng.randrange(3, 14)) for _ in range(5))),
    ]


def _random_settings(rng: random.Random, sizes: tuple[int, ...]) -> Case:
    settings = [(n, rng.uniform(1e-6, 1e-3), 1 / rng.uniform(1e8, 1e11)) for n in sizes]
    return Case(1, f"{', '.join(map(str, sizes))} ranks on some links", {"settings": settings})


def _crossover_on_rank(answer: Callable, case: Case) -> list:
    return [plain(answer(*setting)) for setting in case.data["settings"]]


def _judge_crossover(case: Case, observation: Observation) -> Finding | None:
    for setting, answered in zip(case.data["settings"], observation.values[0], strict=True):
        n, alpha, beta = setting
        want = crossover_reference(n, alpha, beta)
        got = number(answered)
        shown = f"n = {n}, alpha = {alpha:.4g} s, beta = {beta:.4g} s per byte"
        if got is None:
            return Finding(
                f"one number is expected, and you returned {kind_of(answered)}", input=shown
            )
        if not close(got, want, _CROSSOVER_TOLERANCE):
            return Finding(
                _crossover_cause(got, *setting),
                input=shown,
                expected=f"{want:.6g} bytes",
                got=f"{got:.6g}",
            )
    return None


def crossover_reference(n: int, alpha: float, beta: float) -> float:
    """The size at which the two published costs are equal."""
    if n == 1:  # both are 0 at every size
        return 0.0
    return costs.crossover(costs.ring_all_reduce, costs.tree_all_reduce, n, alpha, beta)


def _crossover_cause(got: float, n: int, alpha: float, beta: float) -> str:
    want = crossover_reference(n, alpha, beta)
    if want == 0:
        return (
            f"on {counted(n, 'rank')} the ring sends no more messages in a row than the tree, "
            "and fewer bytes: it is never slower, at any size"
        )
    if got < 0:
        return "a size cannot be negative: which of the two costs less at size 0?"
    if close(got, want / alpha * beta / alpha * beta, _CROSSOVER_TOLERANCE):
        return "alpha and beta are swapped: a larger latency moves the crossover up"
    if close(got, want * beta, _CROSSOVER_TOLERANCE):
        return "this is a time in seconds: divide by beta for bytes"
    ring, tree = (
        cost(n, got, alpha, beta) for cost in (costs.ring_all_reduce, costs.tree_all_reduce)
    )
    return (
        f"at {got:.4g} bytes the ring takes {ring:.4g} s and the tree {tree:.4g} s: not yet equal. "
        f"The ring has 2(n-1) = {2 * (n - 1)} messages in a row, the tree 2 ceil(log2 n) = "
        f"{2 * (n - 1).bit_length()}, each with the whole tensor"
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(n, alpha, beta)",
    cases=_crossover_cases,
    on_rank=_crossover_on_rank,
    judge=_judge_crossover,
    hints=(
        """
        Write both times as latency + slope * size. Two straight lines meet where the difference
        of their latencies equals the difference of their slopes times the size.
        """,
        """
        ring: 2(n-1) alpha + 2 (n-1)/n S beta. tree: 2 L alpha + 2 L S beta, with L = ceil(log2
        n). Set them equal and solve for S. What does your formula give for n = 1?
        """,
        """
        S = (ring's latency - tree's latency) / (tree's slope - ring's slope). For n = 1 that is
        0 / 0: answer 0.0 there. For n = 2 and 3 it is 0 by itself.
        """,
    ),
    passed="ring and tree take the same time at your size",
    contract=Contract(
        allowed=frozenset(),
    ),
)
