"""Which server owns which parameters: even pieces of all bytes, and consistent hashing.

place_by_bytes(sizes, servers) -> for each server its pieces (tensor, start, stop), in order
    sizes[t] is the number of elements of tensor t, all of one dtype. Every element has one owner,
    and no server owns more than one element more than another.

ring_owners(keys, servers, points, place) -> the owner of each key
    place(text) gives a whole number from 0 to 2^64 - 1. Server s stands at place(f"{s}/{i}") for i
    in range(points), a key at place(key). It belongs to the first server at its place or above;
    above the last one the ring starts again.
"""

import hashlib
import random
from bisect import bisect_left
from typing import Any

from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

# ---------------------------------------------------------------------------------------------
# place_by_bytes
# ---------------------------------------------------------------------------------------------


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
        return Finding("a list of lists is asked, one for every server", got=kind_of(placed))
    if len(placed) != servers:
        return Finding(
            "a list of pieces for every server is asked, an empty one too",
            expected=f"{servers} lists",
            got=f"{len(placed)} lists",
        )
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
                "the remainder of the division lands on one server: it is to be spread, one "
                "element each"
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
                "the loads are even, but these are not ranges in order: with one piece a tensor, "
                "in ascending order, a server gets by with few keys",
                got=f"server {server}: {pieces[:6]}",
            )
    return None


def _is_piece(piece: Any) -> bool:
    numbers = piece if isinstance(piece, list | tuple) else ()
    return len(numbers) == 3 and all(type(number) is int for number in numbers)


PLACE_BY_BYTES = Exercise(
    name="place_by_bytes",
    signature="(sizes, servers)",
    notebook="01_parameter_server",
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
    allowed=frozenset(),
)

# ---------------------------------------------------------------------------------------------
# ring_owners
# ---------------------------------------------------------------------------------------------


def _by_hand(text: str) -> int:
    """Places that can be followed on paper."""
    places = {"0/0": 10, "1/0": 40, "0/1": 60, "1/1": 90, "2/0": 50, "2/1": 5}
    return {**places, "a": 10, "b": 11, "c": 95, "d": 45, "e": 60, "f": 3, "g": 75}[text]


def hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _ring_cases(rng: random.Random) -> list[Case]:
    keys = [f"key {rng.getrandbits(32)}" for _ in range(200)]
    return [
        _ring(list("abcdefg"), 2, 2, "by hand"),
        _ring(list("gfedcba"), 3, 2, "by hand"),
        _ring(keys, 5, 20, "hashed"),
        _ring(keys[:30], 1, 3, "hashed"),
        _ring(keys, rng.randint(3, 9), 64, "hashed"),
    ]


def _ring(keys: list[str], servers: int, points: int, how: str) -> Case:
    many = f"{servers} server{'s' * (servers > 1)}"
    label = f"{len(keys)} keys, {many} with {points} points each, places {how}"
    return Case(1, label, {"keys": keys, "servers": servers, "points": points, "how": how})


def _ring_on_rank(answer: Any, case: Case) -> Any:
    data = case.data
    place = _by_hand if data["how"] == "by hand" else hashed
    return plain(answer(list(data["keys"]), data["servers"], data["points"], place))


def reference(data: dict[str, Any], points: int, after: bool = True) -> list[int]:
    """The owners; with after=False those of the server below instead of above."""
    place = _by_hand if data["how"] == "by hand" else hashed
    ring = sorted((place(f"{s}/{i}"), s) for s in range(data["servers"]) for i in range(points))
    places = [at for at, _ in ring]
    step = 0 if after else -1
    return [ring[(bisect_left(places, place(k)) + step) % len(ring)][1] for k in data["keys"]]


def _judge_ring(case: Case, observation: Observation) -> Finding | None:
    data, got = case.data, observation.values[0]
    want = reference(data, data["points"])
    numbers = isinstance(got, list | tuple) and all(type(owner) is int for owner in got)
    if not numbers or len(got) != len(want):
        return Finding(
            "a list with the number of a server for every key is asked",
            expected=f"{len(want)} numbers from 0 to {data['servers'] - 1}",
            got=f"{len(got)} numbers" if numbers else kind_of(got),
        )
    if (got := list(got)) == want:
        return None
    place = _by_hand if data["how"] == "by hand" else hashed
    wrong = next(i for i, pair in enumerate(zip(got, want, strict=True)) if pair[0] != pair[1])
    key = data["keys"][wrong]
    return Finding(
        _ring_cause(data, got, want, place),
        input=_ring_shown(data, place) if data["how"] == "by hand" else "",
        expected=f"{key!r} at {place(key)} belongs to server {want[wrong]}",
        got=f"server {got[wrong]}",
    )


def _ring_cause(data: dict, got: list[int], want: list[int], place: Any) -> str:
    top = max(place(f"{s}/{i}") for s in range(data["servers"]) for i in range(data["points"]))
    wrong = [k for k, a, b in zip(data["keys"], got, want, strict=True) if a != b]
    exact = {place(f"{s}/{i}") for s in range(data["servers"]) for i in range(data["points"])}
    if got == reference(data, 1):
        return "only one point of each server is on the ring: use all of them"
    if got == reference(data, data["points"], after=False):
        return "a key belongs to the next point above it, and this is the one below"
    if got == [place(k) % data["servers"] for k in data["keys"]]:
        return (
            "this is the place modulo the number of servers: with one server more nearly every key "
            "would move"
        )
    if all(place(k) > top for k in wrong):
        return "above the last point the ring starts again, with its very first point"
    if all(place(k) in exact for k in wrong):
        return "a key that lies exactly on a point belongs to that point"
    if got == _nearest(data, place):
        return "this is the nearest point; the next one above is asked, however far"
    return "sort the points by their places, and find for every key the first one not below it"


def _nearest(data: dict, place: Any) -> list[int]:
    ring = [(place(f"{s}/{i}"), s) for s in range(data["servers"]) for i in range(data["points"])]
    return [min(ring, key=lambda point: abs(point[0] - place(k)))[1] for k in data["keys"]]


def _ring_shown(data: dict, place: Any) -> str:
    ring = [(place(f"{s}/{i}"), s) for s in range(data["servers"]) for i in range(data["points"])]
    return "points " + ", ".join(f"{at}: server {server}" for at, server in sorted(ring))


RING_OWNERS = Exercise(
    name="ring_owners",
    signature="(keys, servers, points, place)",
    notebook="01_parameter_server",
    cases=_ring_cases,
    on_rank=_ring_on_rank,
    judge=_judge_ring,
    hints=(
        """
        Make one sorted list of (place, server) with all points of all servers. For a key: which is
        the first entry whose place is not below the key's?
        """,
        """
        bisect.bisect_left(places, place(key)) gives its index in the sorted list of places. For a
        key above all of them that is len(places), which has to become 0.
        """,
        """
        ring = sorted((place(f"{s}/{i}"), s) for s in range(servers) for i in range(points)); places
        = [p for p, _ in ring]; the owner is ring[bisect_left(places, place(key)) % len(ring)][1].
        """,
    ),
    passed="a key goes to the next server up the ring, and the ring has no end",
    allowed=frozenset(),
)
