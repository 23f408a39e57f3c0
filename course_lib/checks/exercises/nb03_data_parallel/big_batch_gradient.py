"""Averages that are those of the big batch, with equal shards and with uneven ones.

big_batch_gradient(model, loss, inputs, targets) -> mean loss over all rows of all ranks
    Every rank has rows of its own: perhaps more than others, perhaps none. Afterwards each .grad is
    the gradient of the mean loss over all rows. `loss(outputs, targets)` is a mean over rows.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import rows
from course_lib.checks.returned_numbers import close, number

from ._networks import (
    FROZEN,
    TIED,
    UNUSED,
    Gradients,
    gradients,
    having,
    make,
    mean_squares,
    nbytes_of,
    network_data,
    rows_of,
    unused_names,
    weighted,
    wrong_gradient,
)

_COUNTS = 64  # bytes for the numbers of rows and the loss


_FROZEN = Clue(
    "a frozen parameter has no gradient: its .grad is None, on every rank. Reduce those of the "
    "parameters with requires_grad",
    "NoneType",
)


_UNUSED = Clue(
    "an unused layer has no gradient on any rank: its .grad is None. Reduce zeros for it, or leave "
    "it out on all ranks",
    "NoneType",
)


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, [3, 3], []),
        _case(rng, [3, 2], []),
        _case(rng, [1, 5, 2], [FROZEN, TIED], _FROZEN),
        _case(rng, [4], [FROZEN], _FROZEN),
        _case(rng, [2, 3, 2, 1], [UNUSED, TIED], _UNUSED),
        _case(
            rng,
            [1, 1, 1, 0],
            [],
            clue=Clue(
                "rank 3 has no rows: it has no gradient of its own (.grad is None, and the mean "
                "over no rows is nan), but it must take part in every all-reduce, with zeros",
                "NoneType",
            ),
        ),
    ]


def _case(rng: random.Random, rows: list[int], options: list[str], clue: str = "") -> Case:
    data = {**network_data(rng, options, sum(rows)), "rows": rows}
    each = f"{' and '.join([', '.join(map(str, rows[:-1])), str(rows[-1])])} rows"
    ranks = f"{len(rows)} ranks with {each}" if len(rows) > 1 else f"1 rank with {rows[0]} rows"
    return Case(len(rows), f"{ranks}{having(options)}", data, clue)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data, rows = case.data, rows_of(case.data["rows"])[dist.get_rank()]
    model = make(data)
    returned = answer(model, mean_squares, data["x"][rows].clone(), data["y"][rows].clone())
    return {
        "returned": plain(returned),
        "gradients": {name: plain(p.grad) for name, p in model.named_parameters()},
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    data, n = case.data, case.world_size
    parts = [gradients(data, rows) for rows in rows_of(data["rows"])]
    exact = gradients(data, slice(None))
    for rank, seen in enumerate(observation.values):
        finding = wrong_gradient(
            seen["gradients"], exact, rank, unused_names(data), _lookalikes(case, parts, rank)
        )
        if finding:
            return _reduced_again(finding, case)
    return _loss(case, observation) or (_bytes(case, observation) if n > 1 else None)


def _reduced_again(finding: Finding, case: Case) -> Finding:
    n = case.world_size
    if TIED not in case.data["options"] or f"exactly {n} times" not in finding.likely:
        return finding
    why = ". A weight that two layers share is one parameter: is it all-reduced twice?"
    return replace(finding, likely=finding.likely + why)


def _lookalikes(case: Case, parts: list[Gradients], rank: int) -> dict[str, Gradients]:
    """What people compute instead, by the sentence that names the factor."""
    rows, n = case.data["rows"], case.world_size
    total = sum(rows)
    even = len(set(rows)) == 1

    def mix(scale: float, by_rows: bool) -> Gradients:
        weights = [scale * (count if by_rows else count > 0) for count in rows]
        return weighted(parts, weights)

    found = {}
    if n > 1:
        own = weighted([parts[rank]], [1.0])
        found["this is the rank's own gradient, which nobody has averaged"] = own
        if even:
            found[
                f"exactly {n} times the reference: these are sums of {n} means, one of each rank. "
                "Divide by the number of ranks"
            ] = mix(1.0, False)
            found[
                f"exactly 1/{n} of the reference: you averaged twice (the loss was divided by the "
                "number of ranks, or by all rows, and then the sum again)"
            ] = mix(1 / n / n, False)
        else:
            found[
                f"this is the mean of {n} means. Ranks have {_listed(rows)} rows, so a row counts "
                f"more on a rank with few of them: weigh each rank's mean by rows / {total}"
            ] = mix(1 / n, False)
            found[
                f"this is the sum of {n} means: a mean counts by its rows / {total}, not once"
            ] = mix(1.0, False)
            found[
                f"exactly 1/{n} of the reference: the weights rows / {total} add up to 1 already, "
                "so their sum must not be divided by the number of ranks"
            ] = mix(1 / total / n, True)
    found[
        f"exactly {total} times the reference, the number of all rows: this is a sum over rows, "
        "and a mean is expected"
    ] = mix(1.0, True)
    if n > 1:
        found[
            f"exactly {total / n:.4g} times the reference, rows per rank: you averaged sums over "
            f"rows. Divide by all {total} rows instead of the {n} ranks"
        ] = mix(1 / n, True)
    return found


def _listed(rows: list[int]) -> str:
    return f"{', '.join(map(str, rows[:-1]))} and {rows[-1]}"


def _loss(case: Case, observation: Observation) -> Finding | None:
    data = case.data

    def loss_of(rows: slice) -> float:
        with torch.no_grad():
            return mean_squares(make(data)(data["x"][rows]), data["y"][rows]).item()

    exact = loss_of(slice(None))
    for rank, seen in enumerate(observation.values):
        got = number(seen["returned"])
        if got is not None and close(got, exact, 1e-6):
            continue
        if got is None:
            likely = "the gradients are right; return the mean loss over all rows, one number"
            got_text = kind_of(seen["returned"])
            return Finding(likely, rank, expected=f"{exact:.6g}", got=got_text)
        own = [loss_of(rows) for rows in rows_of(data["rows"])]
        likely = "the gradients are right, but the loss that was returned is not that of all rows"
        if math.isnan(got):
            likely += ": the mean over no rows is nan, and so is every sum that it is in"
        elif close(got, own[rank], 1e-6):
            likely += ": it is the mean over the rank's own"
        elif close(got, sum(own) / len(own), 1e-6):
            likely += ": it is the mean of the ranks' means"
        elif close(got, exact / len(own), 1e-6):
            likely += f": it is divided by {len(own)} once more, and the shares add up to 1 already"
        return Finding(likely, rank, expected=f"{exact:.6g}", got=f"{got:.6g}")
    return None


def _bytes(case: Case, observation: Observation) -> Finding | None:
    """Gradients travel once, and beside them no more than some numbers."""
    most = nbytes_of(case.data) + _COUNTS
    least = nbytes_of(case.data, unused_names(case.data))
    for rank in range(case.world_size):
        events = observation.trace.of(rank)
        reduced = sum(event.nbytes for event in events if event.op == "all_reduce")
        gathered = sum(event.nbytes for event in events if event.op == "all_gather")
        if gathered > _COUNTS:
            return Finding(
                "the gradients are right, but they were collected with all_gather, which makes "
                f"each rank hold all {case.world_size} of them: all_reduce adds on the way",
                rank,
                expected=f"at most {_COUNTS} bytes gathered, for numbers of rows",
                got=f"{gathered} bytes",
            )
        if not least <= reduced <= most:
            return Finding(
                "the gradients are right, but not every gradient was reduced exactly once",
                rank,
                expected=f"{least} to {most} bytes all-reduced",
                got=f"{reduced} bytes",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(model, loss, inputs, targets)",
    cases=_cases,
    on_rank=_on_rank,
    own={name: rows(lambda case, rank: rows_of(case.data["rows"])[rank]) for name in ("x", "y")},
    judge=_judge,
    hints=(
        """
        Write the mean over all rows as a sum over ranks: which factor must a rank's own mean loss
        have, so that a plain sum over ranks is the answer? All ranks need one number from each
        other first.
        """,
        """
        The factor is own rows / all rows. Multiply the loss by it before backward; then
        dist.all_reduce of every .grad is the gradient, without any division. The loss that you
        return is the all-reduced sum of the same products. A rank without rows has no loss:
        its .grad are zeros, and it must call all_reduce as often as the others.
        """,
        """
        rows = torch.tensor(float(len(inputs))); total = rows.clone(); dist.all_reduce(total).
        If there are rows: value = loss(model(inputs), targets) * rows / total; value.backward().
        Then for every parameter with requires_grad: if .grad is None, make it
        torch.zeros_like(parameter); dist.all_reduce(parameter.grad). All-reduce value.detach()
        too (zero on a rank without rows), and return it.
        """,
    ),
    passed="gradients and loss are those of one process with all rows, each gradient sent once",
    contract=Contract(
        runs=lambda arguments: 1,
        changes=("model",),
        takes="any number of rows, also none on some ranks; parameters frozen, shared or unused; "
        "every `.grad` None at first",
        gives="`.grad` stays None where the parameter is frozen, and may where it is unused",
        allowed=frozenset({"all_reduce", "all_gather"}),
    ),
    points=2,
)
