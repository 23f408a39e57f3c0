"""A ball between two ranks: who sends while the other receives?

ping_pong(ball, rounds) -> list of int
    Ranks 0 and 1 play; rank 0 begins. Whoever has the ball adds 1 to it and sends it to the other.
    A round is one hit each. `ball` is an int64 tensor of one element; on rank 0 it holds the start,
    elsewhere it is only a place to receive into. A player returns the numbers that it received,
    a rank that does not play returns [].
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.arriving_messages import hearing
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import only
from course_lib.observe import CommEvent

_SPECTATORS = (
    "ranks above 1 are there, and only watch: a test of the kind `if rank == 0: ... else: ...` "
    "lets them in, and a partner such as (rank + 1) % n is one of them"
)


@dataclass(frozen=True)
class _Played:
    """What a rank returned, and the numbers in the messages that reached it."""

    returned: Any
    arrived: list[float]


_NOTHING_YET = -999  # in the ball of a rank that has not received anything


def _cases(rng: random.Random) -> list[Case]:
    return [
        _game(2, 0, 2),
        _game(2, 10, 3),
        _game(3, 0, 2, _SPECTATORS),
        _game(2, 5, 0),
        _game(5, rng.randrange(100, 1000), rng.randrange(24, 40), _SPECTATORS),
    ]


def _game(world_size: int, start: int, rounds: int, clue: str = "") -> Case:
    label = f"{world_size} ranks, rounds = {rounds}, the ball starts at {start}"
    return Case(world_size, label, {"start": start, "rounds": rounds}, clue)


def _on_rank(answer: Callable, case: Case) -> Any:
    starts = dist.get_rank() == 0
    ball = torch.tensor([case.data["start"] if starts else _NOTHING_YET])
    arrived: list[float] = []
    with hearing(lambda event, written: arrived.extend(_numbers(event, written))):
        returned = answer(ball, case.data["rounds"])
    return _Played(plain(returned), arrived)


def _numbers(event: CommEvent, written: list[torch.Tensor]) -> list[float]:
    return [number for tensor in written for number in tensor.reshape(-1).tolist()]


def _judge(case: Case, observation: Observation) -> Finding | None:
    start, rounds = case.data["start"], case.data["rounds"]
    evens, odds = (list(range(start + k, start + 2 * rounds + 1, 2)) for k in (2, 1))
    for rank, played in enumerate(observation.values):
        got = played.returned
        want = (evens, odds)[rank] if rank < 2 else []
        if finding := _not_numbers(got, rank, want):
            return finding
        if list(got) != want:
            likely = _cause(list(got), rank, start, evens, odds)
            return Finding(likely, rank, expected=f"{want}", got=f"{list(got)}")
    for rank in range(case.world_size):
        hits = rounds if rank < 2 else 0
        finding = traffic_limits.messages(
            observation, rank, hits, "a round is one message from each of the two players"
        ) or traffic_limits.peers(observation, rank, {1 - rank} if rank < 2 else (), _ONLY_TWO)
        if finding:
            return finding
        want = (evens, odds)[rank] if rank < 2 else []
        if (arrived := observation.values[rank].arrived) != want:
            return Finding(
                "the list is right, but these are not the numbers in the messages that arrived: "
                "whoever has the ball adds 1 before it sends, and the ball itself is sent",
                rank,
                expected=f"messages with {want}",
                got=f"messages with {[int(n) if n == int(n) else n for n in arrived]}",
            )
    return None


_ONLY_TWO = "the ball goes between ranks 0 and 1 only"


def _not_numbers(got: Any, rank: int, want: list[int]) -> Finding | None:
    expected = f"{want}"
    if got is None:
        likely = "your function returned nothing: every rank returns a list"
        return Finding(likely, rank, expected=expected, got="None")
    if not isinstance(got, list | tuple):
        return Finding("a list is expected", rank, expected=expected, got=kind_of(got))
    if any(isinstance(item, torch.Tensor) for item in got):
        likely = "numbers are expected, and these are tensors: ball.item() is the number in it"
        if len(got) > 1 and len({item.item() for item in got if item.numel() == 1}) == 1:
            likely = (
                "append(ball) puts the same tensor into the list each time, and each new message "
                "changes them all: keep the number, ball.item()"
            )
        return Finding(likely, rank, expected=expected, got=f"{got}")
    if strange := [item for item in got if not isinstance(item, int | float)]:
        likely = f"numbers are expected, and there is {kind_of(strange[0])} in the list"
        return Finding(likely, rank, expected=expected, got=f"{got}")
    return None


def _cause(got: list, rank: int, start: int, evens: list[int], odds: list[int]) -> str:
    if rank > 1:
        return f"rank {rank} does not play, and has received nothing"
    mine, theirs = (evens, odds) if rank == 0 else (odds, evens)
    if got == theirs:
        return "these are the numbers that this rank sent: those that it received are expected"
    if len(got) != len(mine):
        return (
            f"a player receives one number in each round: in {len(mine)} round"
            f"{'s' * (len(mine) != 1)} {len(mine)}, not {len(got)}"
        )
    if got and set(got) == {_NOTHING_YET}:
        return "this is what was in the ball before anything arrived"
    if got and all(number == start for number in got):
        return "nobody adds 1: the ball comes back as it went"
    if len(got) > 1 and all(b - a == 4 for a, b in pairwise(got)):
        return "the ball grows by 2 at each hit: the receiver adds 1 or the sender does, not both"
    return "each player adds 1 before it sends: rank 0 receives start + 2, start + 4, ..."


EXERCISE = Exercise(
    module=__name__,
    signature="(ball, rounds)",
    cases=_cases,
    on_rank=_on_rank,
    own={"start": only(lambda case: 0)},
    judge=_judge,
    hints=(
        """
        Write down who does what in one round, in order: two columns, rank 0 and rank 1. Whenever
        one sends, the other must be receiving.
        """,
        """
        In a round rank 0 sends, then receives. Rank 1 does it the other way round: it receives,
        then sends. So the two run different loops. All other ranks return an empty list at once.
        """,
        """
        Rank 0, in each round: ball += 1, send to 1, recv from 1, append ball.item() to its list.
        Rank 1: recv from 0, append ball.item(), ball += 1, send to 0. Branch with if rank == 0,
        elif rank == 1.
        """,
    ),
    passed="one message per hit, and spectators stay out",
    contract=Contract(
        changes=("ball",),
        takes="any number of rounds; ranks above 1 do not play",
        allowed=POINT_TO_POINT,
        sends="each hit is one message",
    ),
)
