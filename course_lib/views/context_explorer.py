"""A sequence over the ranks of a causal ring: who holds which tokens, and who computes what when.

The triangle has a row for each query and a column for each key. At step s of the ring rank r has
the keys of rank r - s (modulo n), so a pair of a query of rank a and a key of rank b belongs to
step a - b. Each step lasts as long as its busiest rank (Brandon et al., "Striped Attention", 2023).
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from course_lib.text import counted, listed, table

from .palette import IDLE, RANKS, WAITS
from .svg_drawing import SMALL, WIDTH, Picture
from .view import View
from .widgets import Control, Explorer, explore

TOKENS = 24
ALL = -1  # instead of a step
_OTHER = IDLE  # another step than the one that is looked at
_DOCUMENTS = {1: (24,), 2: (9, 15), 3: (5, 11, 8)}  # how many, and the tokens of each
_CELL, _LEFT = 14.0, 70.0  # pixels: a pair, and where the triangle begins
_BARS, _HIGH, _GAP = 450.0, 150.0, 8.0  # where the bars begin, how high all are, between them
_WAITING = WAITS._replace(hatch="//")  # beside pairs of other steps, which are pale too

Split = Callable[[int, int, int], Sequence[int]]
"""The positions of a rank's tokens: split(length, ranks, rank)."""


def _zigzag(length: int, ranks: int, rank: int) -> list[int]:
    size = length // (2 * ranks)
    mine = (rank, 2 * ranks - 1 - rank)
    return [position for position in range(length) if position // size in mine]


SPLITS: dict[str, Split] = {
    "plain": lambda length, n, rank: range(rank * length // n, (rank + 1) * length // n),
    "zigzag": _zigzag,
    "striped": lambda length, n, rank: range(rank, length, n),
}


@dataclass(frozen=True)
class Ring:
    """owner[t]: the rank of token t. document[t]: which one it belongs to."""

    ranks: int
    owner: tuple[int, ...]
    document: tuple[int, ...]

    def step(self, query: int, key: int) -> int | None:
        """At which step this pair is computed; None if the key is hidden from the query."""
        if key > query or self.document[key] != self.document[query]:
            return None
        return (self.owner[query] - self.owner[key]) % self.ranks

    def work(self) -> list[list[int]]:
        """[rank][step]: pairs."""
        found = [[0] * self.ranks for _ in range(self.ranks)]
        for query, key in itertools.product(range(len(self.owner)), repeat=2):
            step = self.step(query, key)
            if step is not None:
                found[self.owner[query]][step] += 1
        return found


def idle_share(work: Sequence[Sequence[int]]) -> float:
    """Of the time of all ranks, if each step lasts as long as its busiest rank."""
    lasts = sum(max(of_ranks) for of_ranks in zip(*work, strict=True))
    return 1 - sum(map(sum, work)) / (len(work) * lasts)


def context_ring(
    split: str = "plain",
    ranks: int = 4,
    step: int = ALL,
    documents: int = 1,
    own: Split | None = None,
) -> View:
    """24 tokens over 1 to 6 ranks (a number that divides 12).

    split: a name in SPLITS, or "yours" for `own(length, ranks, rank)`. step: only its pairs are in
    colour. documents: how many share the sequence. ValueError for what cannot be.
    """
    if not -1 <= step < ranks:
        raise ValueError(f"a ring of {ranks} has the steps 0 to {ranks - 1}, not {step}")
    ring = _ring(split, ranks, documents, own)
    share = idle_share(ring.work())
    title = f"{split} split of {TOKENS} tokens over {counted(ranks, 'rank')}: {share:.0%} idle"
    return View(_draw(ring, step, title), _text(ring, title))


def context_explorer(own: Split | None = None) -> Explorer:
    """All of `context_ring` under controls; `own` is offered as the split "yours"."""
    return explore(
        functools.partial(context_ring, own=own),
        height=430,
        split=[*SPLITS, *(["yours"] if own else [])],
        ranks=[1, 2, 3, 4, 6],
        step=Control([ALL, 0, 1, 2, 3, 4, 5], "step of the ring", names={ALL: "all"}),
        documents=Control(list(_DOCUMENTS), "documents"),
    )


# ------------------------------------------------------------------------------------------------


def _ring(split: str, ranks: int, documents: int, own: Split | None) -> Ring:
    find = own if split == "yours" else SPLITS.get(split)
    if find is None:
        raise ValueError(f"{split!r} is none of {', '.join(SPLITS)}")
    if documents not in _DOCUMENTS or TOKENS % (2 * ranks):
        raise ValueError(
            f"{TOKENS} tokens make no {2 * ranks} equal chunks, or there is no example of "
            f"{documents} documents"
        )
    owner = [-1] * TOKENS
    for rank in range(ranks):
        for position in find(TOKENS, ranks, rank):
            owner[int(position)] = rank
    if -1 in owner:
        raise ValueError(f"no rank holds the token {owner.index(-1)}")
    of_token = [n for n, size in enumerate(_DOCUMENTS[documents]) for _ in range(size)]
    return Ring(ranks, tuple(owner), tuple(of_token))


def _runs(positions: Sequence[int]) -> str:
    """ "0 to 2 and 21 to 23"."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return listed(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _held(ring: Ring, rank: int) -> list[int]:
    return [token for token, owner in enumerate(ring.owner) if owner == rank]


def _text(ring: Ring, title: str) -> str:
    steps = range(ring.ranks)
    rows = [("pairs at step", *map(str, steps), "all", "holds the tokens")]
    for rank, row in enumerate(ring.work()):
        rows.append((f"rank {rank}", *map(str, row), str(sum(row)), _runs(_held(ring, rank))))
    return f"{title}\n{table(rows)}"


def _draw(ring: Ring, step: int, title: str) -> Picture:
    picture = Picture(title)
    top = picture.height + 44
    _tokens(picture, ring, top)
    for query in range(len(ring.owner)):
        for first, after, at in _row(ring, query):
            _pairs(picture, ring, query, first, after, at, step, top)
    _bars(picture, ring, step, top)
    picture.height = top + TOKENS * _CELL + 4
    fills = {f"rank {rank}": fill for rank, fill in enumerate(RANKS[: ring.ranks])}
    picture.key({**fills, "waiting": _WAITING} if idle_share(ring.work()) else fills)
    return picture


def _tokens(picture: Picture, ring: Ring, top: float) -> None:
    """Who holds the queries, down the side, and the keys, along the top."""
    picture.text(_LEFT, top - 34, "keys, and which rank holds them", SMALL, ink="soft")
    picture.text(4, top - 13, "queries", SMALL, ink="soft")
    right = _LEFT + len(ring.owner) * _CELL  # above the diagonal there is room
    for line, words in enumerate(("in the triangle: at which step", "of the ring it is computed")):
        picture.text(right, top + 14 + 16 * line, words, SMALL, "end", ink="soft")
    for token, rank in enumerate(ring.owner):
        hint = f"token {token} is on rank {rank}"
        word, place = str(rank), token * _CELL
        picture.box(_LEFT + place, top - 20, _CELL - 1, 14, RANKS[rank], hint, word, 9)
        picture.box(_LEFT - 20, top + place, 14, _CELL - 1, RANKS[rank], hint, word, 9)


def _row(ring: Ring, query: int) -> Iterator[tuple[int, int, int]]:
    """(first key, one behind the last, step) of each run of keys that belong to one step."""
    steps = [ring.step(query, key) for key in range(query + 1)]
    first = 0
    for at, run in itertools.groupby(steps):
        after = first + len(list(run))
        if at is not None:
            yield first, after, at
        first = after


def _pairs(
    picture: Picture, ring: Ring, query: int, first: int, after: int, at: int, step: int, top: float
) -> None:
    rank = ring.owner[query]
    keys = f"key {first}" if after == first + 1 else f"keys {first} to {after - 1}"
    hint = f"step {at}: rank {rank}, query {query} and {keys} of rank {ring.owner[first]}"
    fill = RANKS[rank] if step in (ALL, at) else _OTHER
    picture.box(
        _LEFT + first * _CELL, top + query * _CELL, (after - first) * _CELL - 1, _CELL - 1,
        fill, hint, str(at), 9,
    )  # fmt: skip


def _bars(picture: Picture, ring: Ring, step: int, top: float) -> None:
    """What each rank computes at each step, one step after the other, and how long it waits."""
    work = ring.work()
    lasts = [max(of_ranks) for of_ranks in zip(*work, strict=True)]
    unit = (WIDTH - _BARS - 58) / sum(lasts)
    high = min(38.0, _HIGH / ring.ranks)
    said = ("time, in pairs; the number is the step of the ring,", "as long as its busiest rank")
    for line, words in enumerate(said):
        picture.text(_BARS, top - 34 + 16 * line, words, SMALL, ink="soft")
    for rank, row in enumerate(work):
        y, x = top + rank * (high + _GAP), _BARS + 50
        picture.text(_BARS, y + high / 2, f"rank {rank}")
        for at, (pairs, most) in enumerate(zip(row, lasts, strict=True)):
            fill = RANKS[rank] if step in (ALL, at) else _OTHER
            word = str(at) if pairs * unit > 12 else ""
            hint = f"step {at}: rank {rank} computes {counted(pairs, 'pair')}"
            if pairs:
                picture.box(x, y, pairs * unit - 1, high, fill, hint, word)
            if most > pairs:
                waits = f"step {at}: rank {rank} waits as long as {counted(most - pairs, 'pair')}"
                rest = (most - pairs) * unit - 1
                picture.box(x + pairs * unit, y, rest, high, _WAITING, waits)
            x += most * unit
    below = top + ring.ranks * (high + _GAP) + 8
    alone, together = sum(map(sum, work)), sum(lasts)
    words = f"one rank alone takes {alone}"
    if ring.ranks > 1:
        words += f", {ring.ranks} ranks take {together}: {alone / together:.1f} times as fast"
    picture.text(_BARS, below, words)
    below += 20
    for rank in range(ring.ranks):
        below = picture.paragraph(
            _BARS,
            below,
            f"rank {rank} holds tokens {_runs(_held(ring, rank))}",
            WIDTH - _BARS - 8,
            SMALL,
        )
