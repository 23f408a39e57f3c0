"""Which server owns which parameters: consistent hashing.

ring_owners(keys, servers, points, place) -> the owner of each key
    place(text) gives a whole number from 0 to 2^64 - 1. Server s stands at place(f"{s}/{i}") for i
    in range(points), a key at place(key). It belongs to the first server at its place or above;
    above the last one the ring starts again.
"""

import hashlib
import random
from bisect import bisect_left
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.text import counted

# ring_owners


def _by_hand(text: str) -> int:
    """Places that can be followed on paper."""
    places = {"0/0": 10, "1/0": 40, "0/1": 60, "1/1": 90, "2/0": 50, "2/1": 5}
    places |= {"a": 10, "b": 11, "c": 95, "d": 45, "e": 60, "f": 3, "g": 75}
    return places[text] if text in places else hashed(text) % 100


def _far_up(text: str) -> int:
    """The same, where a float cannot tell one place from the next."""
    return 2**64 - 128 + _by_hand(text)


def hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


_PLACES = {"by hand": _by_hand, "by hand, near 2^64": _far_up, "hashed": hashed}


def _ring_cases(rng: random.Random) -> list[Case]:
    keys = [f"key {rng.getrandbits(32)}" for _ in range(200)]
    return [
        _ring(list("abdefg"), 2, 2, "by hand"),
        _ring(list("abcdefg"), 2, 2, "by hand", Clue("key 'c' lies above the highest point, where "
              "the ring starts again: its owner is the very first point's",
              "IndexError", "KeyError", "StopIteration", "empty")),
        _ring(list("gfedcba"), 3, 2, "by hand"),
        _ring(keys, 5, 20, "hashed"),
        _ring(keys[:30], 1, 3, "hashed"),
        _ring(keys, rng.randint(3, 9), 64, "hashed"),
        _ring(list("gfedcba"), 3, 2, "by hand, near 2^64"),
    ]  # fmt: skip


def _ring(keys: list[str], servers: int, points: int, how: str, clue: str = "") -> Case:
    many = f"{counted(servers, 'server')}"
    label = f"{len(keys)} keys, {many} with {points} points each, places {how}"
    data = {"keys": keys, "servers": servers, "points": points, "how": how}
    return Case(1, label, data, clue)


def _ring_on_rank(answer: Any, case: Case) -> Any:
    data = case.data
    place = _PLACES[data["how"]]
    asked: list[Any] = []

    def noting_place(text: str) -> int:
        asked.append(text)
        return place(text)

    returned = answer(list(data["keys"]), data["servers"], data["points"], noting_place)
    return {"owners": plain(returned), "asked": plain(asked)}


def reference(data: dict[str, Any], points: int, after: bool = True) -> list[int]:
    """The owners; with after=False those of the server below instead of above."""
    place = _PLACES[data["how"]]
    ring = sorted((place(f"{s}/{i}"), s) for s in range(data["servers"]) for i in range(points))
    places = [at for at, _ in ring]
    step = 0 if after else -1
    return [ring[(bisect_left(places, place(k)) + step) % len(ring)][1] for k in data["keys"]]


def _judge_ring(case: Case, observation: Observation) -> Finding | None:
    data, got = case.data, observation.values[0]["owners"]
    want = reference(data, data["points"])
    numbers = isinstance(got, list | tuple) and all(type(owner) is int for owner in got)
    if not numbers or len(got) != len(want):
        return Finding(
            "a list with the number of a server for every key is expected",
            expected=f"{len(want)} numbers from 0 to {data['servers'] - 1}",
            got=f"{len(got)} numbers" if numbers else kind_of(got),
        )
    if (got := list(got)) == want:
        return None
    names = {f"{s}/{i}" for s in range(data["servers"]) for i in range(data["points"])}
    if strange := [t for t in observation.values[0]["asked"] if t not in {*names, *data["keys"]}]:
        return Finding(
            f"place({strange[0]!r}) was asked for, which is no point and no key: the points of "
            'server 0 are place("0/0"), place("0/1") and so on, f"{s}/{i}"',
            expected=f"points {sorted(names)[:4]}",
            got=f"{strange[:4]}",
        )
    place = _PLACES[data["how"]]
    wrong = next(i for i, pair in enumerate(zip(got, want, strict=True)) if pair[0] != pair[1])
    key = data["keys"][wrong]
    return Finding(
        _ring_cause(data, got, want, place),
        input=_ring_shown(data, place) if data["how"] != "hashed" else "",
        expected=f"{key!r} at {place(key)} belongs to server {want[wrong]}",
        got=f"server {got[wrong]}",
    )


def _ring_cause(data: dict, got: list[int], want: list[int], place: Any) -> str:
    top = max(place(f"{s}/{i}") for s in range(data["servers"]) for i in range(data["points"]))
    wrong = [k for k, a, b in zip(data["keys"], got, want, strict=True) if a != b]
    exact = {place(f"{s}/{i}") for s in range(data["servers"]) for i in range(data["points"])}
    if data["how"] == "by hand, near 2^64":  # after the same ring lower down
        return "places go up to 2^64 - 1: a float has 53 bits for them, and an int64 has 63"
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
    by_place = [owner for _, owner in sorted(zip(map(place, data["keys"]), want, strict=True))]
    if got == by_place:
        return "these are the right owners in the order of the places: keep that of `keys`"
    if got == _nearest(data, place):
        return "this is the nearest point; the next one above is expected, however far"
    return "sort the points by their places, and find for every key the first one not below it"


def _nearest(data: dict, place: Any) -> list[int]:
    ring = [(place(f"{s}/{i}"), s) for s in range(data["servers"]) for i in range(data["points"])]
    return [min(ring, key=lambda point: abs(point[0] - place(k)))[1] for k in data["keys"]]


def _ring_shown(data: dict, place: Any) -> str:
    ring = [(place(f"{s}/{i}"), s) for s in range(data["servers"]) for i in range(data["points"])]
    return "points " + ", ".join(f"{at}: server {server}" for at, server in sorted(ring))


EXERCISE = Exercise(
    module=__name__,
    signature="(keys, servers, points, place)",
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
    contract=Contract(
        agree=True,
        allowed=frozenset(),
    ),
)
