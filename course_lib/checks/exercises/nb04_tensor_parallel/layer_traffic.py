"""What a layer costs in traffic.

layer_traffic(b, s, h, t, element_size) -> bytes that each rank sends in one layer
    Forward and backward of attention and MLP, tensor parallel over t ranks: four all-reduces of
    b s h elements, each by a ring.
"""

import random
from typing import Any

from course_lib.checks import byte_formulas
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

_HALF = (
    "this is half of it: count forward and backward, attention and MLP; and a ring sends 2(t-1)/t "
    "of a tensor, not (t-1)/t"
)


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 6, 12, 3, 4), (1, 2048, 12288, 8, 2), (4, 10, 8, 1, 4), (3, 4, 10, 4, 2)]
    sizes += [(1, 2, 5, 7, 4)]  # t does not even divide b s h
    sizes += [  # t divides b s h, and in the last two not h
        (b * rng.randint(1, 16), 128 * rng.randint(1, 32), h * rng.randint(1, 16), t, e)
        for b, h, t, e in ((1, 128, 2, 4), (5, 64, 5, 2), (7, 64, 7, 8))
    ]
    return [
        Case(1, f"b = {b}, s = {s}, h = {h}, t = {t}, {e} bytes per element", {"size": size})
        for size in sizes
        for b, s, h, t, e in [size]
    ]


def _on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(*case.data["size"]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    b, s, h, t, e = case.data["size"]
    want = 8 * b * s * h * (t - 1) / t * e
    causes = [
        (0, "t > 1 ranks do send something"),
        (want / e, "these are elements: each has `element_size` bytes"),
        (want / 2, _HALF),
        (-want, "the sign is wrong: (t-1)/t, not (1-t)/t"),
        (want * 2, "this is twice as much: 2(t-1)/t of a tensor is all that a ring sends for it"),
        (want / 8, "this is (t-1)/t of one tensor: a ring sends it twice, in each of four"),
        (8 * b * s * (h // t) * (t - 1) * e, "`//` rounds down, and t need not divide h"),
        (
            8 * (b * s * h // t) * (t - 1) * e,
            "`//` and int() round down, and t need not divide b s h: divide with `/`",
        ),
        (int(want), "this is rounded to whole bytes: leave the fraction, as `/` gives it"),
        (round(want), "this is rounded to whole bytes: leave the fraction, as `/` gives it"),
        (want / 4, "this is one all-reduce: a layer has two forward and two backward"),
        (
            4 * b * s * h * e,
            "four tensors: an all-reduce by a ring sends 2(t-1)/t of its tensor from each rank",
        ),
        (8 * b * s * h * e, "(t-1)/t is missing: nobody sends to itself, and t = 1 sends nothing"),
        (want * t, "this is what all ranks send together: this asks for what each one sends"),
        (want / t, "every rank's summand has the size of the whole output, not 1/t of it"),
    ]
    rule = "count the all-reduces of a layer, and what a ring sends for one of them"
    return byte_formulas.answered(observation.values[0], want, causes, rule)


EXERCISE = Exercise(
    module=__name__,
    signature="(b, s, h, t, element_size)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        How many all-reduces does a layer take, forward and backward? What is the shape of the
        tensor that each of them adds up? And what does a rank send in a ring all-reduce of N bytes?
        """,
        """
        Two forward (g after attention, g after the MLP) and two backward (f before each). Each is
        over a tensor of b s h elements, and a ring sends 2(t-1)/t of it from every rank.
        """,
        """
        return 4 * 2 * (t - 1) / t * b * s * h * element_size.
        """,
    ),
    passed="8bsh(t-1)/t elements per layer, however many weights the layer has",
    contract=Contract(
        takes="whole numbers",
        gives="the result is a number, not rounded where t does not divide b s h",
        allowed=frozenset(),
    ),
)
