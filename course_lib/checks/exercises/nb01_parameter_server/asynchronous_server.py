"""An asynchronous server: every push is taken as it comes and answered at once.

asynchronous_server(values, pushes, lr) -> the staleness of each push, in order of arrival
    Runs on rank 0; the other ranks are workers, which start with the same values. A message is a
    gradient of the shape of `values`, from whichever worker has one. The server steps, in place,
    and sends the new values back to that worker only. The staleness of a push is how many steps
    the server has taken since it last sent values to that worker (or since the start).

Here the workers hand each other a baton, so that the order of the pushes is known.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted

_BATON = 7  # a tag of its own


_WHO_COMES = (
    "nobody says who comes next, and a worker may come twice before another comes once: "
    "dist.recv(buffer) without src takes the next message of any rank and returns whose it is, and "
    "that worker waits for its answer now, after the last push too"
)


def _cases(rng: random.Random) -> list[Case]:
    drawn = [rng.randint(1, 3) for _ in range(12)]
    return [
        _case(rng, 2, [1, 2, 1, 2], 3, 0.5),
        _case(rng, 2, [1, 1, 1, 2, 1], 2, 0.25),
        _case(rng, 1, [1, 1, 1], 4, 0.5),
        _case(rng, 3, [3, 2, 1, 1, 2, 3, 3, 3, 1], 5, 0.125),
        _case(rng, 3, [*drawn, 1, 2, 3], 4, rng.uniform(0.1, 0.6)),
        _case(rng, 4, [4, 4, 2, 3, 1, 4, 2, 2], 1, 0.5),
    ]


def _case(rng: random.Random, workers: int, order: list[int], numel: int, lr: float) -> Case:
    label = (
        f"{counted(workers, 'worker')}, {len(order)} pushes, in this order: "
        f"{', '.join(map(str, order))}"
    )
    goals = [-10.0 * rank - rng.randint(0, 9) for rank in range(1 + workers)]
    data = {"order": order, "numel": numel, "lr": lr, "goals": goals}
    return Case(1 + workers, label, data, _WHO_COMES)


def _start(case: Case) -> torch.Tensor:
    """What all ranks begin with: no two elements alike."""
    return torch.arange(10, 10 + case.data["numel"], dtype=torch.float64)


def gradient_of(case: Case, values: torch.Tensor, worker: int) -> torch.Tensor:
    """Each worker pulls towards a goal that only it knows, from the values that it has."""
    return values - case.data["goals"][worker]


def _on_rank(answer: Callable, case: Case) -> Any:
    rank, order = dist.get_rank(), case.data["order"]
    values = _start(case)
    if rank == 0:
        returned = answer(values, len(order), case.data["lr"])
        return {"returned": plain(returned), "values": plain(values)}
    got, baton = [], torch.zeros(1)
    for turn, worker in enumerate(order):
        if worker != rank:
            continue
        if turn and order[turn - 1] != rank:
            dist.recv(baton, order[turn - 1], tag=_BATON)
        dist.send(gradient_of(case, values, rank), 0)
        dist.recv(values, 0)
        got.append(values.clone())
        if turn + 1 < len(order) and order[turn + 1] != rank:
            dist.send(baton, order[turn + 1], tag=_BATON)
    return {"got": got}


def play(case: Case) -> tuple[list[torch.Tensor], list[int]]:
    """The server's values after each push, and each push's staleness."""
    order, server = case.data["order"], _start(case)
    copies = [server.clone() for _ in range(case.world_size)]
    versions, after, staleness = [0] * case.world_size, [], []
    for version, worker in enumerate(order):
        staleness.append(version - versions[worker])
        server = server - case.data["lr"] * gradient_of(case, copies[worker], worker)
        copies[worker], versions[worker] = server, version + 1
        after.append(server)
    return after, staleness


def _judge(case: Case, observation: Observation) -> Finding | None:
    order = case.data["order"]
    after, staleness = play(case)
    turns: dict[int, list[int]] = {}
    for turn, worker in enumerate(order):
        turns.setdefault(worker, []).append(turn)
    for turn, worker in enumerate(order):
        got = observation.values[worker]["got"][turns[worker].index(turn)]
        if finding := _wrong_values(case, got, after, turn, worker):
            return finding
    seen = observation.values[0]
    if compare_tensors.mismatch(seen["values"], reference.computed(after[-1]), 0):
        return Finding(
            "the answers are right, but the tensor `values` does not hold the result: step in "
            "place, with values -= ...",
            0,
            expected=f"{after[-1].tolist()}",
            got=f"{seen['values'].tolist()}",
        )
    return _staleness(seen["returned"], staleness, order) or _traffic(case, observation)


def _wrong_values(
    case: Case, got: torch.Tensor, after: list[torch.Tensor], turn: int, worker: int
) -> Finding | None:
    want, order = after[turn], case.data["order"]
    if ((got - want).abs() <= 1e-9).all():
        return None
    before = after[turn - 1] if turn else _start(case)
    likely = "the answer is not values - lr * gradient"
    if torch.allclose(got, before, atol=1e-9):
        likely = "the answer holds the values from before this push: step first, then answer"
    elif not turn and torch.allclose(got - before, (want - before) / len(set(order)), atol=1e-9):
        likely = (
            "each push is divided by the number of workers: here every push is a step of its own"
        )
    elif torch.allclose(got - before, before - want, atol=1e-9):
        likely = "the step goes uphill: values - lr * gradient"
    return Finding(
        likely,
        worker,
        expected=f"after push {turn}: {want.tolist()}",
        got=f"{got.tolist()}",
    )


def _staleness(returned: Any, want: list[int], order: list[int]) -> Finding | None:
    got = returned.tolist() if isinstance(returned, torch.Tensor) else returned
    if not isinstance(got, list | tuple) or not all(type(s) is int for s in got):
        return Finding(
            "the values are right; a list with the staleness of every push is expected as well",
            0,
            expected=f"{want}",
            got=kind_of(returned),
        )
    if list(got) == want:
        return None
    likely = "the values are right; the staleness counts the steps since that worker's last answer"
    if list(got) == [s + 1 for s in want]:
        likely = "the push's own step does not count: nothing between answer and push is 0"
    elif len(got) != len(want):
        likely = "one number for every push"
    elif list(got) == list(range(len(want))):
        likely = "these are steps since the start: remember for every worker what it last got"
    elif sorted(got) == sorted(want):
        likely = "these are the right numbers, in another order than the pushes came"
    elif list(got) == _fresh_at_first(order):
        likely = "what a worker has at first is version 0, of the start, not of its first push"
    return Finding(likely, 0, expected=f"{want}", got=f"{list(got)}")


def _fresh_at_first(order: list[int]) -> list[int]:
    """Staleness with the first push of every worker counted as fresh."""
    last: dict[int, int] = {}
    found = []
    for turn, worker in enumerate(order):
        found.append(turn - last[worker] - 1 if worker in last else 0)
        last[worker] = turn
    return found


def _traffic(case: Case, observation: Observation) -> Finding | None:
    order, size = case.data["order"], case.data["numel"] * 8
    rule = "one answer for every push, to the worker that it came from"
    return traffic_limits.sent(observation, 0, len(order) * size, len(order) * size, rule)


EXERCISE = Exercise(
    module=__name__,
    signature="(values, pushes, lr)",
    cases=_cases,
    on_rank=_on_rank,
    own={"goals": by_rank},
    judge=_judge,
    hints=(
        """
        One loop over the pushes. dist.recv(buffer) without a source takes whatever comes next and
        returns the rank that sent it. For the staleness, number the versions of the values.
        """,
        """
        version counts the steps. has[worker] is the version that a worker was sent last, 0 at the
        start. At a push: staleness version - has[worker]; step; version += 1; send; has[worker] =
        version.
        """,
        """
        has = {}; for version in range(pushes): worker = dist.recv(buffer); append version -
        has.get(worker, 0); values -= lr * buffer; dist.send(values, dst=worker); has[worker] =
        version + 1. Return the list.
        """,
    ),
    passed="nobody waits, and a push is as many steps late as were taken meanwhile",
    contract=Contract(
        in_place="values",
        returned="each push's staleness",
        allowed=POINT_TO_POINT,
        sends="each push is answered by one message, to the worker that it came from",
    ),
    points=2,
)
