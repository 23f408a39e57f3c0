"""Which server owns which parameters: even pieces of all bytes.

place_by_bytes(sizes, servers) -> for each server its pieces (tensor, start, stop), in order
    sizes[t] is the number of elements of tensor t, all of one dtype. Every element has one owner,
    and no server owns more than one element more than another.
"""

import random
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

# place_by_bytes


def _byte_cases(rng: random.Random) -> list[Case]:
    drawn = [rng.randint(1, 60) for _ in range(rng.randint(5, 9))]
    huge = [rng.randint(1, 9), 10_000 + rng.randint(0, 99), rng.randint(1, 9), 64]
    rng.shuffle(huge)
    return [
        _sizes([3, 3], 2),
        _sizes([10, 2, 3], 3),
        _sizes([7], 3),
        _sizes(drawn, 4),
        _sizes(huge, 5),
        _sizes([1, 1, 1], 1),
        _sizes([2, 1], 4),
    ]


def _sizes(sizes: list[int], servers: int) -> Case:
    label = f"tensors of {', '.join(map(str, sizes))} elements on {servers} server"
    return Case(1, label + "s" * (servers > 1), {"sizes": sizes, "servers": servers})


def _byte_on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(list(case.data["sizes"]), case.data["servers"]))


def _judge_bytes(case: Case, observation: Observation) -> Finding | None:
    sizes, servers, placed = case.data["sizes"], case.data["servers"], observation.values[0]
    lists = list | tuple
    if not isinstance(placed, lists) or not all(isinstance(pieces, lists) for pieces in placed):
        return Finding("a list of lists is expected, one for every server", got=kind_of(placed))
    if len(placed) != servers:
        return Finding(
            "a list of pieces for every server is expected, an empty one too",
            expected=f"{servers} lists",
            got=f"{len(placed)} lists",
        )
    if finding := _lengths(placed, sizes):
        return finding
    owned = {tensor: [0] * size for tensor, size in enumerate(sizes)}
    for pieces in placed:
        for piece in pieces:
            if not _is_piece(piece):
                return Finding("a piece is (tensor, start, stop), whole numbers", got=f"{piece}")
            tensor, start, stop = piece
            if tensor not in owned or not 0 <= start <= stop <= sizes[tensor]:
                return Finding(
                    "start and stop count within one tensor",
                    expected=f"0 to {sizes[tensor]}"
                    if tensor in owned
                    else f"{len(sizes)} tensors",
                    got=f"{piece}",
                )
            for element in range(start, stop):
                owned[tensor][element] += 1
    for tensor, counts in owned.items():
        for element, count in enumerate(counts):
            if count != 1:
                likely = "nobody owns some elements" if count == 0 else "some have two owners"
                return Finding(
                    likely,
                    expected="every element with one owner",
                    got=f"element {element} of tensor {tensor} has {count}",
                )
    loads = [sum(stop - start for _, start, stop in pieces) for pieces in placed]
    if max(loads) - min(loads) > 1:
        likely = "the loads are not even: lay all tensors end to end and cut that line"
        whole = all(stop - start == sizes[t] for pieces in placed for t, start, stop in pieces)
        if whole:
            likely = (
                "only whole tensors are dealt out, and one of them is more than a server's share: "
                "cut through tensors"
            )
        elif len(set(loads[:-1])) == 1 and loads[-1] - loads[0] == sum(sizes) % servers:
            likely = (
                "the remainder of the division lands on one server: spread it, one element each"
            )
        elif loads == _rounded_up(sum(sizes), servers):
            likely = (
                "every server takes the share rounded up, and the last ones go short: some must "
                "take the share rounded down"
            )
        elif max(loads) - min(loads) <= len(sizes):
            likely = (
                "each tensor is cut for itself, and the remainders add up: lay all tensors end to "
                "end and cut that line"
            )
        return Finding(
            likely, expected="loads that differ by 1 at most", got=f"elements by server: {loads}"
        )
    for server, pieces in enumerate(placed):
        if len(pieces) > len(sizes) or list(map(tuple, pieces)) != sorted(map(tuple, pieces)):
            return Finding(
                "the loads are even, but these are not ranges in order: with one piece per tensor, "
                "in ascending order, a server gets by with few keys",
                got=f"server {server}: {pieces[:6]}",
            )
    return _along_the_line([[(t, a, b) for t, a, b in pieces if a < b] for pieces in placed])


def _along_the_line(placed: list[list[tuple[int, int, int]]]) -> Finding | None:
    """Servers whose keys are not one range each, the first keys on the first server."""
    along = sorted(piece for pieces in placed for piece in pieces)
    if [piece for pieces in placed for piece in pieces] == along:
        return None
    likely = (
        "the loads are even, but a server's keys are not one range: go along the line, so that "
        "each server goes on where the one before it stops"
    )
    if [piece for pieces in reversed(placed) for piece in pieces] == along:
        likely = "the loads are even, but the servers are the wrong way round: the first keys are "
        likely += "the first server's"
    return Finding(likely, expected=f"pieces in the order {along[:6]}", got=f"{placed}"[:80])


def _rounded_up(total: int, servers: int) -> list[int]:
    share = -(-total // servers)
    return [max(0, min(share, total - share * server)) for server in range(servers)]


def _lengths(placed: Any, sizes: list[int]) -> Finding | None:
    """Pieces that cover everything once if their third number is a length, and only then."""
    pieces = [piece for pieces in placed for piece in pieces]
    if not all(map(_is_piece, pieces)) or _covers(pieces, sizes):
        return None
    if not _covers([(tensor, start, start + count) for tensor, start, count in pieces], sizes):
        return None
    return Finding(
        "the third number of a piece looks like its length: it is the stop, start + length",
        expected="(tensor, start, stop)",
        got=f"{placed}"[:80],
    )


def _covers(pieces: Any, sizes: list[int]) -> bool:
    elements = sorted((t, i) for t, start, stop in pieces for i in range(start, stop))
    return elements == [(t, i) for t, size in enumerate(sizes) for i in range(size)]


def _is_piece(piece: Any) -> bool:
    numbers = piece if isinstance(piece, list | tuple) else ()
    return len(numbers) == 3 and all(type(number) is int for number in numbers)


EXERCISE = Exercise(
    module=__name__,
    signature="(sizes, servers)",
    cases=_byte_cases,
    on_rank=_byte_on_rank,
    judge=_judge_bytes,
    hints=(
        """
        Forget the tensors at first: lay all elements end to end, and cut that line into `servers`
        pieces. Then see which part of which tensor each piece covers.
        """,
        """
        Server s gets the elements from total * s // servers to total * (s + 1) // servers of the
        line. Tensor t lies from the sum of the sizes before it to that plus sizes[t]. Where the two
        overlap is a piece.
        """,
        """
        For each server low, high as above; for each tensor with its offset: start = max(low,
        offset) - offset, stop = min(high, offset + size) - offset; if start < stop append
        (t, start, stop).
        """,
    ),
    passed="even to the element, however huge one tensor is",
    contract=Contract(
        agree=True,
        allowed=frozenset(),
    ),
)
