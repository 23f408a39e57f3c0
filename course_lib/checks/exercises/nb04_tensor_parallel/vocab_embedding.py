"""The embedding of a language model, split by vocabulary.

vocab_embedding(tokens, rows) -> (B, T, C), whole on every rank
    tokens (B, T) are the same everywhere; rows (V/t, C) are this rank's of the V: rank r has those
    of the symbols r V/t to (r+1) V/t - 1. One all-reduce.
"""

import random
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD, FORWARD
from course_lib.checks.rank_inputs import along
from course_lib.text import counted

from ._support import (
    ALL_REDUCE,
    Exact,
    layer_pass,
    messages_of,
    parts,
    wrong_values,
)
from ._vocabulary import symbols


def _embedding_cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, vocab, shape in (
        (2, 6, (1, 5)),
        (3, 12, (2, 4)),
        (4, 4, (rng.randint(1, 3), 8)),
        (1, 3, (1, 4)),
    ):
        size = rng.randint(2, 5)
        rows, weights = normal(rng, (vocab, size), (*shape, size))
        data = {"tokens": symbols(rng, vocab, ranks, shape), "rows": rows, "weights": weights}
        label = f"{vocab} symbols over {counted(ranks, 'rank')}"
        cases.append(Case(ranks, label, data))
    return cases


def _embedding_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data = case.data
    rows = parts(data["rows"], case.world_size, 0)[dist.get_rank()]
    return layer_pass(
        lambda leaf: answer(leaf["tokens"], leaf["rows"]),
        {"tokens": data["tokens"], "rows": rows},
        data["weights"],
        longer=("tokens",),
    )


def _judge_embedding(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    rows = data["rows"].clone().requires_grad_()
    output = F.embedding(data["tokens"], rows)
    (output * data["weights"]).sum().backward()
    output, size = output.detach(), len(rows) // t
    looks = []
    for rank in range(t):
        mine = (data["tokens"] // size == rank).unsqueeze(-1)
        looks.append({"what this rank has rows for: g is missing": output * mine} if t > 1 else {})
    clamped = sum(
        F.embedding((data["tokens"] - r * size).clamp(0, size - 1), part)
        for r, part in enumerate(parts(data["rows"], t, 0))
    )
    wrapped = sum(F.embedding(data["tokens"] % size, part) for part in parts(data["rows"], t, 0))
    first = sum(
        F.embedding((data["tokens"] - r * size) * (data["tokens"] // size == r), part)
        for r, part in enumerate(parts(data["rows"], t, 0))
    )
    unshifted = sum(
        F.embedding(data["tokens"] * (data["tokens"] < size), part)
        * (data["tokens"] < size).unsqueeze(-1)
        for part in parts(data["rows"], t, 0)
    )
    tokens, last = data["tokens"], data["tokens"] % size == size - 1
    dealt = F.embedding(tokens % t * size + tokens // t, data["rows"])
    below = output + sum(
        F.embedding(r * size + tokens % size, data["rows"]) * (tokens < r * size).unsqueeze(-1)
        for r in range(t)
    )
    for look in looks if t > 1 else []:
        unzeroed = "a sum of several rows: a rank puts zeros where the symbol is not its own"
        look |= {
            unzeroed: clamped,
            f"{unzeroed}: a negative index counts from the end": below,
            f"what comes if rank r has symbols r, r + {t}, ...: a rank's rows are side by side": (
                dealt
            ),
            "zeros for the last row of every rank: rows 0 to len(rows) - 1 are its own": (
                output * ~last.unsqueeze(-1)
            ),
            f"{unzeroed}, not its first row": first,
            f"{unzeroed} (modulo is no way round)": wrapped,
            "what comes if every rank looks up symbols 0, 1, ...: the rows of rank r begin with "
            "symbol r * len(rows)": unshifted,
        }
    gradients = [{"rows": part} for part in parts(rows.grad, t, 0)]
    few = data["tokens"].numel() < len(rows)  # else the tokens' rows may have the table's shape
    return (
        wrong_values(case, observation, Exact([output] * t, gradients, looks))
        or messages_of(
            observation,
            t,
            FORWARD,
            [("all_reduce", output.nbytes)],
            "one all-reduce puts the rows of all ranks together",
        )
        or messages_of(observation, t, BACKWARD, [], "every rank has the gradient of its rows")
        or (_whole_table(tuple(rows.shape), observation) if t > 1 and few else None)
    )


def _whole_table(shape: tuple[int, ...], observation: Observation) -> Finding | None:
    for rank, seen in enumerate(observation.values):
        if shape in seen["made"]:
            return Finding(
                "the numbers and the traffic are right, but a table of all rows is made here, "
                "which is what no rank has room for: look up in the rows that this rank has",
                rank,
                expected=f"no tensor of shape {shape}",
                got="one",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(tokens, rows)",
    cases=_embedding_cases,
    on_rank=_embedding_on_rank,
    own={"rows": along(0)},
    judge=_judge_embedding,
    hints=(
        """
        Each token's row is on exactly one rank. If all other ranks have zeros in its place, what
        does the sum over the ranks give?
        """,
        """
        start = rank * len(rows). A token is this rank's if start <= token < start + len(rows). Look
        up token - start for these and anything (row 0, say) for the others, and put zeros there
        before the sum. The sum is g.
        """,
        """
        local = tokens - dist.get_rank() * len(rows); other = (local < 0) | (local >= len(rows));
        found = F.embedding(local.masked_fill(other, 0), rows); return
        megatron_g(found.masked_fill(other.unsqueeze(-1), 0)).
        """,
    ),
    passed="one all-reduce, and no rank holds more than V/t rows",
    contract=Contract(
        takes="tokens (B, T), the same on every rank, and this rank's rows; t divides V",
        allowed=ALL_REDUCE,
        sends="there is one of the result's size forward, and none backward",
        holds="of the table a rank holds only its own rows",
    ),
)
