"""Every token to the ranks of its experts, sorted by expert there, and the way back.

dispatch_tokens(x, experts, number) -> (rows, counts, back)
    x (T, C) and experts (T, k) int64 are this rank's; of `number` experts rank r has those from
    r m to (r + 1) m - 1, m = number / n. rows: the copies of tokens that come to this rank, those
    for its first expert first; within an expert by rank, then by token. counts: m whole numbers,
    the rows of each expert. back(outputs): outputs (N, D) of these rows, to (T, k, D) on the ranks
    that they came from. Gradients cross, both ways.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.checks.returned_numbers import numbers
from course_lib.text import counted

from ._choices import assignments, choices, rows_to
from ._spans import sent_in

_WIDTH = 2
_THERE = "check: there"


def _cases(rng: random.Random) -> list[Case]:
    three = [
        choices(rng, 5, 2, [0, 1, 4]),
        choices(rng, 3, 2, range(6)),
        choices(rng, 1, 2, [1, 2]),
    ]
    return [
        _case(rng, 4, [choices(rng, 4, 2, range(4)), choices(rng, 3, 2, range(4))]),
        _case(rng, 6, three),
        _case(rng, 2, [choices(rng, rng.randint(2, 6), 1, [1]), choices(rng, 2, 1, [1])]),
        _case(rng, 3, [choices(rng, 4, 2, range(3))]),
        _case(rng, 4, [choices(rng, 3, 2, range(4)), choices(rng, 0, 2, range(4))]),
        _case(rng, 3, [choices(rng, 2, 1, range(3)), choices(rng, 2, 1, range(3))]),
    ]


def _case(rng: random.Random, number: int, experts: list[torch.Tensor]) -> Case:
    n = len(experts)
    data: dict[str, Any] = {"experts": experts, "number": number}
    data["x"] = [normal(rng, (len(e), _WIDTH))[0] for e in experts]
    # Each row is multiplied by numbers of its own there; so a row in another's place is seen.
    data["factors"] = [
        normal(rng, (len(_arrivals(experts, number, rank)), 2 * _WIDTH))[0] for rank in range(n)
    ]
    data["weights"] = [normal(rng, (*e.shape, 2 * _WIDTH))[0] for e in experts]
    tokens = " and ".join(str(len(e)) for e in experts)
    label = (
        f"{tokens} tokens, k = {experts[0].shape[1]}, {number} experts over {counted(n, 'rank')}"
    )
    if number % n:
        clue = Clue(
            f"{n} ranks cannot share {number} experts evenly: raise a ValueError with both numbers",
            "invalid for input of size",
            "AssertionError",
            "Split sizes",
        )
        return Case(n, label, data, clue)
    clue = Clue(
        "a rank has no token. view(T, k, -1) cannot tell what -1 stands for where there are no "
        "elements: write the size out, or use unflatten(0, (T, k))",
        "unspecified dimension size",
        "cannot reshape tensor of 0 elements",
    )
    return Case(n, label, data, "" if all(map(len, experts)) else clue)


def _arrivals(experts: list[torch.Tensor], number: int, rank: int) -> list[tuple[int, int, int]]:
    """(rank, token, choice) of the rows that come to a rank, in order; none if it cannot be."""
    mine = number // len(experts)
    return [
        assignment
        for expert in range(rank * mine, (rank + 1) * mine)
        for assignment in assignments(experts, expert)
    ]


def _divides(case: Case) -> bool:
    return case.data["number"] % case.world_size == 0


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    x, experts = data["x"][rank].clone().requires_grad_(), data["experts"][rank]
    if not _divides(case):
        return _refusal(lambda: answer(x, experts, data["number"]))
    with torch.profiler.record_function(_THERE):
        answered = answer(x, experts, data["number"])
    if not isinstance(answered, tuple | list) or len(answered) != 3:
        return {"answered": plain(answered)}
    rows, counts, back = answered
    seen = {"rows": plain(rows), "counts": plain(counts), "gradient": None}
    seen["callable"] = callable(back)
    if not seen["callable"]:
        return seen | {"back": plain(back)}
    # The next layer, before this one's way back: what belongs to one call stays with it.
    other = answer(x.detach().flip(0) / -2, experts.flip(0), data["number"])
    seen["another"] = plain(other[2](other[0]))
    factors = data["factors"][rank]
    if not isinstance(rows, torch.Tensor) or rows.shape != (len(factors), _WIDTH):
        return seen
    outputs = back(rows.repeat(1, 2) * factors)
    seen["back"] = plain(outputs)
    weights = data["weights"][rank]
    if isinstance(outputs, torch.Tensor) and outputs.shape == weights.shape:
        if outputs.requires_grad:
            (outputs * weights).sum().backward()
        seen["gradient"] = plain(x.grad)
    return seen


def _refusal(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except ValueError as refused:
        return {"refused": str(refused)}
    return {"refused": None}


def _judge(case: Case, observation: Observation) -> Finding | None:
    if not _divides(case):
        return _refused(case, observation)
    for rank, seen in enumerate(observation.values):
        if "rows" not in seen:
            kind = kind_of(seen["answered"])
            return Finding("three are expected: rows, counts and the function back", rank, got=kind)
        if finding := _wrong_rows(case, seen, rank):
            return finding
    for rank, seen in enumerate(observation.values):
        if finding := _wrong_way_back(case, seen, rank):
            return finding
    return _bytes(case, observation)


def _refused(case: Case, observation: Observation) -> Finding | None:
    number, n = case.data["number"], case.world_size
    for rank, seen in enumerate(observation.values):
        told = seen["refused"]
        if told is None or not (str(number) in told and str(n) in told):
            return Finding(
                f"{number} experts cannot be spread evenly over {n} ranks: raise a ValueError with "
                "both numbers before anything is sent",
                rank,
                got="no ValueError" if told is None else f"ValueError: {told}",
            )
    return None


def _wrong_rows(case: Case, seen: dict[str, Any], rank: int) -> Finding | None:
    data, n = case.data, case.world_size
    arrivals = _arrivals(data["experts"], data["number"], rank)

    def rows(order: list[tuple[int, int, int]]) -> torch.Tensor:
        found = [data["x"][r][token] for r, token, _ in order]
        return torch.stack(found) if found else data["x"][0][:0]

    looks = {
        "what came from rank 0, then from rank 1, ...: sort what has arrived by expert": (
            rows(sorted(arrivals, key=lambda a: a[0]))
        ),
        "this rank's own tokens": data["x"][rank],
        "rows of other tokens: of experts.flatten(), number i belongs to token i // k": rows(
            [
                (r, (token * len(data["experts"][r][0]) + choice) % len(data["x"][r]), choice)
                for r, token, choice in arrivals
            ]
        ),
    }
    if data["number"] > n:
        looks |= {
            "the rows of the experts rank, rank + n, ...: rank r has m experts one after the "
            "other, from r m on": rows(
                [
                    each
                    for expert in range(rank, data["number"], n)
                    for each in assignments(data["experts"], expert)
                ]
            )
        }
    want = rows(arrivals)
    if finding := compare_tensors.computed(seen["rows"], want, rank, looks):
        return compare_tensors.titled("rows", finding)
    mine = data["number"] // n
    wanted = [
        len(assignments(data["experts"], expert))
        for expert in range(rank * mine, (rank + 1) * mine)
    ]
    if numbers(seen["counts"], mine) != wanted:
        return Finding(
            "the rows are right, but not counts: how many rows each expert of this rank has",
            rank,
            expected=str(wanted),
            got=str(seen["counts"]) if seen["counts"] is not None else "None",
        )
    return None


def _wrong_way_back(case: Case, seen: dict[str, Any], rank: int) -> Finding | None:
    data, n = case.data, case.world_size
    if not isinstance(seen.get("back"), torch.Tensor) or not seen["callable"]:
        kind = kind_of(seen.get("back"))
        return Finding("back is a function of the outputs that returns a tensor", rank, got=kind)
    experts, x = data["experts"][rank], data["x"][rank]
    factors = torch.zeros(*experts.shape, 2 * _WIDTH, dtype=x.dtype)
    for r in range(n):
        for row, (source, token, choice) in enumerate(
            _arrivals(data["experts"], data["number"], r)
        ):
            if source == rank:
                factors[token, choice] = data["factors"][r][row]
    outputs = x.repeat(1, 2)[:, None] * factors
    order = experts.flatten().argsort(stable=True)
    sent = outputs.flatten(0, 1)[order].view(outputs.shape)
    looks = {
        "what comes out if outputs leave sorted by expert once more: the sort of what has arrived "
        "needs its inverse, too": _sorted_again(case, rank),
        "every output in the order in which the rows were sent: put each one back to its token, "
        "with the inverse permutation": sent,
        "every output sorted once more: the way back needs the inverse of the permutation": (
            sent.flatten(0, 1)[order].view(outputs.shape)
        ),
    }
    if finding := compare_tensors.computed(seen["back"], outputs, rank, looks):
        return compare_tensors.titled("the rows are right, but not what back returns", finding)
    gradient = (data["weights"][rank] * factors).sum(1)
    gradient = gradient[:, :_WIDTH] + gradient[:, _WIDTH:]
    if seen["gradient"] is None:
        return Finding(
            "rows and outputs are right, but x gets no gradient: both ways need an exchange that "
            "is part of autograd's graph",
            rank,
            got="None",
        )
    title = "rows and outputs are right, but not the gradient of x"
    return compare_tensors.titled(title, compare_tensors.computed(seen["gradient"], gradient, rank))


def _sorted_again(case: Case, rank: int) -> torch.Tensor:
    """What comes home if each rank sorts the outputs as it has sorted the rows."""
    data = case.data
    home = torch.zeros(*data["experts"][rank].shape, 2 * _WIDTH, dtype=data["x"][rank].dtype)
    for r in range(case.world_size):
        rows = _arrivals(data["experts"], data["number"], r)
        came = sorted(rows, key=lambda arrival: arrival[0])
        for i, (source, token, choice) in enumerate(came):
            if source == rank:
                j = came.index(rows[i])
                whose, which, _ = rows[j]
                home[token, choice] = data["x"][whose][which].repeat(2) * data["factors"][r][j]
    return home


def _bytes(case: Case, observation: Observation) -> Finding | None:
    data, n = case.data, case.world_size
    for rank, experts in enumerate(data["experts"]):
        leaving = rows_to(experts, n, data["number"])
        rows = 8 * _WIDTH * (sum(leaving) - leaving[rank])
        most = rows + 8 * data["number"] * (n - 1) // n
        found = sent_in(observation, rank, _THERE)
        if not rows <= found <= most:
            return Finding(
                "all is right, but not what is sent: a count of 8 bytes for each expert, and a row "
                "for each choice, to the rank of its expert",
                rank,
                expected=f"{rows} to {most} bytes sent",
                got=f"{found} bytes sent",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(x, experts, number)",
    cases=_cases,
    on_rank=_on_rank,
    own=dict.fromkeys(("x", "experts", "factors", "weights"), by_rank),
    judge=_judge,
    hints=(
        """
        There: copy each token k times, sort the copies by expert, exchange them, sort what came by
        expert. Back: each of these steps undone, the last one first. What is the inverse of a sort?
        """,
        """
        flat = experts.flatten(); order = flat.argsort(stable=True); row order[i] belongs to token
        order[i] // k. Counts of all experts, exchanged in equal parts, come as (n, m): how many
        rows of each rank are for each of your experts. Repeat the numbers of your experts by them,
        and a second stable argsort sorts what came in. tensor[order.argsort()] undoes
        tensor[order].
        """,
        """
        mine = number // n; sent_counts = bincount(flat, minlength=number); exchange it to theirs;
        sent = sent_counts.view(n, mine).sum(1).tolist();
        received = theirs.view(n, mine).sum(1).tolist(). came = exchange(x[order // k], sent,
        received). which = arange(mine).repeat(n).repeat_interleave(theirs); again =
        which.argsort(stable=True). rows = came[again], counts = theirs.view(n, mine).sum(0). back:
        exchange(outputs[again.argsort()], received, sent)[order.argsort()].unflatten(0, (T, k)).
        """,
    ),
    passed="rows by expert there, each back in its place, gradients both ways",
    contract=Contract(
        takes="x (T, C) and experts (T, k) of any sizes; T may differ by rank, and be 0",
        gives="where n does not divide the experts, a ValueError names both numbers",
        allowed=frozenset({"all_to_all"}),
        sends="on the way there a rank sends 8 bytes per expert, and each chosen row once; on the "
        "way back, each row once",
    ),
    points=2,
)
