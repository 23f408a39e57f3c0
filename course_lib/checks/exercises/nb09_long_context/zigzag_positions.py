"""The zigzag split: a chunk from the front and its mirror image from the end.

zigzag_positions(length, n, rank) -> (T,) whole numbers, ascending
    The positions of rank's tokens: of 2n equal chunks of a sequence the ones numbered rank and
    2n - 1 - rank. ValueError where 2n does not divide the length.
"""

import random
from typing import Any

import torch

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.exercises._refusals import BOTH_NUMBERS
from course_lib.text import counted

from ._attention import plain as plain_split
from ._attention import striped, zigzag


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(8, 2), (12, 3), (4, 1)]
    n = rng.randint(3, 6)
    sizes += [(2 * n * rng.randint(3, 5), n), (10, 2), (9, 3)]
    return [_case(*size) for size in sizes]


def _case(length: int, n: int) -> Case:
    label = f"{counted(length, 'token')} over {counted(n, 'rank')}"
    clue = Clue(
        f"{2 * n} does not divide {length}: raise a ValueError with both numbers",
        "AssertionError",
        "IndexError",
    )
    return Case(1, label, {"size": (length, n)}, clue if length % (2 * n) else "")


def _on_rank(answer: Any, case: Case) -> Any:
    length, n = case.data["size"]
    found: list[Any] = []
    for rank in range(n):
        try:
            found.append(plain(answer(length, n, rank)))
        except ValueError as error:
            if length % (2 * n) == 0:
                raise
            found.append({"refused": str(error)})
    return found


def _judge(case: Case, observation: Observation) -> Finding | None:
    length, n = case.data["size"]
    for rank, got in enumerate(observation.values[0]):
        finding = (
            _refused(got, length, n, rank) if length % (2 * n) else _wrong(got, length, n, rank)
        )
        if finding:
            return finding
    return None


def _refused(got: Any, length: int, n: int, rank: int) -> Finding | None:
    asked = f"rank = {rank}"
    if not isinstance(got, dict):
        return Finding(
            f"{length} tokens make no {2 * n} equal chunks: raise a ValueError",
            input=asked,
            expected="ValueError",
            got="a result",
        )
    text = got["refused"]
    if str(length) in text and (str(n) in text or str(2 * n) in text):
        return None
    return Finding(
        BOTH_NUMBERS,
        input=asked,
        expected=f"a message with {length}, and {n} or {2 * n}, in it",
        got=text or "an empty message",
    )


def _wrong(got: Any, length: int, n: int, rank: int) -> Finding | None:
    wanted = zigzag(length, n)[rank].tolist()
    value = got.tolist() if isinstance(got, torch.Tensor) else got
    if not isinstance(value, list | tuple):
        return Finding(
            "the positions are expected, a tensor or a list of whole numbers", got=kind_of(got)
        )
    if any(isinstance(each, float) for each in value):
        return Finding(
            "positions are whole numbers, which something may be indexed with",
            expected=f"{wanted}",
            got=f"{list(value)}",
        )
    if list(value) == wanted:
        return None
    return Finding(
        _cause(list(value), wanted, length, n, rank),
        input=f"length = {length}, n = {n}, rank = {rank}",
        expected=str(wanted),
        got=str(list(value)) if len(value) <= 2 * len(wanted) else f"{len(value)} positions",
    )


def _cause(got: list, wanted: list, length: int, n: int, rank: int) -> str:
    size = length // (2 * n)
    chunks = [c.tolist() for c in torch.arange(length).chunk(2 * n)]
    second = chunks[2 * n - 1 - rank]
    causes = [
        (plain_split(length, n)[rank].tolist(), "this is the plain split: one piece in a row"),
        (striped(length, n)[rank].tolist(), "this is the striped split: every n-th token"),
        (chunks[rank] + chunks[rank + n], "the second chunk counts from the end: rank 0 has the "
         "last one, number 2n - 1 - rank"),
        (second + chunks[rank], "the right tokens, but not in ascending order: the chunk from the "
         "front comes first"),
        (chunks[rank] + second[::-1], "the right tokens, but the second chunk is reversed: "
         "each chunk stays as it is"),
        (chunks[rank] + chunks[2 * n - 2 - rank], "the last chunk has the number 2n - 1, so the "
         "second one is 2n - 1 - rank"),
        ([x - chunks[rank][0] for x in chunks[rank]] * 2, "these are places inside of chunks: the "
         "positions in the whole sequence are expected"),
        (list(range(2 * size)), "these are the places on the rank: the positions in the whole "
         "sequence are expected"),
    ]  # fmt: skip
    fits = "; or ".join(why for other, why in causes if other == got)
    return fits or "these are not the chunks numbered rank and 2n - 1 - rank, of 2n equal ones"


EXERCISE = Exercise(
    module=__name__,
    signature="(length, n, rank)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Cut torch.arange(length) into 2n chunks. Rank 0 has the first and the last one. Which has
        rank 1?
        """,
        """
        chunk(2 * n) gives the chunks; rank has number rank and number 2n - 1 - rank, which is the
        same one counted from the end. Before that, compare length with 2n.
        """,
        """
        if length % (2 * n): raise ValueError(f"{length} tokens, {2 * n} chunks"); chunks =
        torch.arange(length).chunk(2 * n); return torch.cat([chunks[rank], chunks[2 * n - 1 -
        rank]]).
        """,
    ),
    passed="a chunk from the front and its mirror image from the end",
    contract=Contract(
        takes="length and n from 1 on, rank from 0 to n - 1",
        gives="the result is a tensor or a list of positions in ascending order",
        allowed=frozenset(),
    ),
)
