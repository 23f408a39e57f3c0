"""The values of a recorded run on their way: who sends which numbers to whom, round by round.

A row for each rank, and time from left to right: what it put in, each block of values that arrives,
in the colour of the rank that it comes from, and what it has in the end: in the same colours, as
far as it arrived like that, and grey where it was computed. Rounds are counted, not measured: an
operation belongs to the round after all that its ranks had finished before they called it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from course_lib.observe import CommEvent, Trace
from course_lib.text import counted

from .charts import Field
from .palette import QUIET, RANKS, Fill
from .source_lines import SourceLines
from .svg_drawing import SMALL, WIDTH, Picture, width
from .units import size_text
from .view import View
from .widgets import Control, Explorer, explore

Values = Sequence[float]
Arrived = Mapping[int, Sequence[Values]]
_MOST_MOVES = 240
_LEFT, _ROW, _HIGH = 64.0, 44.0, 26.0  # pixels: left of all blocks, a row, a block
_ENDS = 118.0  # pixels for what was put in, and for what is there in the end
_SIZES = (SMALL, 10.0, 9.0, 8.0)  # pixels of values, the largest that fits
_FLIGHT = 0.42  # share of a round that blocks are on their way
_SUMS = {"all_reduce", "reduce", "reduce_scatter"}


@dataclass(frozen=True)
class Move:
    """Values that reach a rank. source: None for a result to which all ranks contribute."""

    round: int
    source: int | None
    target: int
    values: tuple[float, ...]
    event: CommEvent  # of the rank that they reach


@dataclass(frozen=True)
class Motion:
    """A run: what each rank put in and got out, and everything that moved, round by round."""

    before: Sequence[Values]
    moves: Sequence[Move]
    after: Sequence[Values]

    @property
    def rounds(self) -> int:
        return max((move.round for move in self.moves), default=0)


def motion(
    trace: Trace, before: Sequence[Values], arrived: Sequence[Arrived], after: Sequence[Values]
) -> Motion:
    """Put the values that arrived (`observe.arrivals`, by rank) to the operations of a trace."""
    for name, given in (("before", before), ("arrived", arrived), ("after", after)):
        if len(given) != trace.world_size:
            raise ValueError(f"{name} has {len(given)} ranks, and the run {trace.world_size}")
    found = []
    operations = _operations(trace)
    rounds = _rounds(operations)
    for operation, number in zip(operations, rounds, strict=True):
        found += [
            Move(number, source, event.rank, tuple(values), event)
            for event in operation
            for source, values in _parts(event, operation, arrived[event.rank].get(event.n, ()))
        ]
    if len(found) > _MOST_MOVES:
        raise ValueError(f"{len(found)} blocks move, and the picture holds {_MOST_MOVES}")
    return Motion(before, sorted(found, key=lambda move: (move.round, move.target)), after)


def moving_values(
    trace: Trace,
    before: Sequence[Values],
    arrived: Sequence[Arrived],
    after: Sequence[Values],
    title: str = "",
) -> View:
    """The picture of `motion`, for up to 8 ranks.

    def run():
        mine = torch.tensor([10.0 * dist.get_rank()])
        with arrivals() as arrived:
            pieces = my_all_gather(mine)
        return mine.tolist(), arrived, [piece.item() for piece in pieces]

    results = run_ranks(run, 4)
    moving_values(results.trace, *zip(*results))
    """
    if trace.world_size > len(RANKS):
        raise ValueError(f"the picture holds {len(RANKS)} ranks, not {trace.world_size}")
    run = motion(trace, before, arrived, after)
    head = f"{title}: " if title else ""
    head += f"{counted(len(run.moves), 'block')} of values in {counted(run.rounds, 'round')}"
    return View(_draw(run, head), _text(run, head))


def origins(run: Motion, rank: int) -> list[int | None]:
    """For each value that a rank has in the end: from which rank it has it as it is.

    None where it never arrived like that: it is a sum, or was computed from what arrived.
    """
    known: dict[float, int | None] = dict.fromkeys(run.before[rank], rank)
    for move in run.moves:
        if move.target == rank:
            known |= dict.fromkeys(move.values, move.source)
    return [known.get(value) for value in run.after[rank]]


def moving_explorer(runs: Mapping[str, tuple]) -> Explorer:
    """One of several runs; each as the arguments of `moving_values`, by name."""
    names = list(runs)

    def chosen(run: str = names[0]) -> View:
        trace, before, arrived, after = runs[run]
        return moving_values(trace, before, arrived, after, run)

    ranks = max(trace.world_size for trace, *_ in runs.values())
    height = 110 + ranks * _ROW
    return explore(chosen, height=height, run=Control(names, "collective"))


# ------------------------------------------------------------------------------------------------
# What moved when
# ------------------------------------------------------------------------------------------------


def _operations(trace: Trace) -> list[list[CommEvent]]:
    """Events that belong together: a send and its receive, or the calls of a collective."""
    matching = trace.match()
    found = [list(pair) for pair in matching.pairs]
    for group in matching.groups:
        found += map(list, zip(*group.calls.values(), strict=False))
    return found


def _rounds(operations: Sequence[Sequence[CommEvent]]) -> list[int]:
    """The round of each operation: one after the last that is over when a rank calls it."""
    on: dict[int, list[tuple[CommEvent, int]]] = {}
    for index, operation in enumerate(operations):
        for event in operation:
            on.setdefault(event.rank, []).append((event, index))
    rounds: dict[int, int] = {}
    # In order of issue, so that what came before is mostly known: no deep recursion.
    order = sorted(range(len(operations)), key=lambda k: max(e.issued for e in operations[k]))

    def of(index: int) -> int:
        if index not in rounds:
            rounds[index] = 0  # should records of several clocks go in a circle
            earlier = (
                of(other)
                for event in operations[index]
                for before, other in on[event.rank]
                if other != index and before.done is not None and before.done <= event.issued
            )
            rounds[index] = 1 + max(earlier, default=0)
        return rounds[index]

    for index in order:
        of(index)
    return [rounds[index] for index in range(len(operations))]


def _parts(
    event: CommEvent, operation: Sequence[CommEvent], arrived: Sequence[Values]
) -> list[tuple[int | None, Values]]:
    """(where they come from, values) of what an operation brought to the rank of `event`."""
    if not arrived:
        return []
    if event.op in ("recv", "broadcast", "scatter"):
        source = (
            next(e.rank for e in operation if e.op == "send")
            if event.op == "recv"
            else (event.peer)
        )
        return [(source, values) for values in arrived if source != event.rank]
    if event.op in _SUMS:
        here = event.op != "reduce" or event.peer == event.rank
        return [(None, values) for values in arrived] if here else []
    pieces = arrived if len(arrived) == len(event.ranks) else _cut(event, operation, arrived[0])
    pairs = zip(event.ranks, pieces, strict=True)
    return [(source, values) for source, values in pairs if source != event.rank and len(values)]


def _cut(event: CommEvent, operation: Sequence[CommEvent], flat: Values) -> list[Values]:
    """One flat result, cut into what came from each rank."""
    place = event.ranks.index(event.rank)
    calls = {call.rank: call for call in operation}
    sizes = []
    for rank in event.ranks:
        call = calls[rank]
        whole = call.op == "all_to_all"
        equal = call.nbytes / len(event.ranks) if whole else call.nbytes
        sizes.append(call.splits[place] if call.splits and whole else equal)
    ends = [round(end * len(flat) / (sum(sizes) or 1)) for end in itertools.accumulate(sizes)]
    return [flat[start:end] for start, end in itertools.pairwise([0, *ends])]


# ------------------------------------------------------------------------------------------------
# Text and picture
# ------------------------------------------------------------------------------------------------


def _said(values: Values) -> str:
    return " ".join(f"{value:g}" for value in values)


def _text(run: Motion, title: str) -> str:
    lines = [title]
    lines += [f"rank {rank} puts in {_said(values)}" for rank, values in enumerate(run.before)]
    for number, moves in itertools.groupby(run.moves, attrgetter("round")):
        words = (
            f"{'all' if move.source is None else move.source} to {move.target}: "
            f"{_said(move.values)}"
            for move in moves
        )
        lines.append(f"round {number}: {'; '.join(words)}")
    lines += [
        f"rank {rank} has {_said(values) or 'nothing'}" for rank, values in enumerate(run.after)
    ]
    return "\n".join(lines)


def _draw(run: Motion, title: str) -> Picture:
    picture = Picture(title)
    top, ranks = picture.height + 30, len(run.before)
    first, last = _LEFT + _ENDS, WIDTH - _ENDS - 8
    bottom = top + ranks * _ROW
    field = Field(picture, first, top, last - first, bottom - top, (0, run.rounds or 1), (0, 1))
    for x, words in ((_LEFT, "puts in"), (last + 8, "has in the end")):
        picture.text(x, top - 10, words, SMALL, ink="soft")
    for rank, (had, has) in enumerate(zip(run.before, run.after, strict=True)):
        y = top + rank * _ROW
        picture.text(_LEFT - 8, y + _ROW / 2, f"rank {rank}", SMALL, "end")
        picture.line([(_LEFT, y + _ROW - 2), (WIDTH - 8, y + _ROW - 2)], "line", 0.8)
        for x, values, what in ((_LEFT, had, "puts in"), (last + 8, has, "has in the end")):
            hint = f"rank {rank} {what} {_said(values)}"
            owners = [rank] * len(values) if x == _LEFT else origins(run, rank)
            _parted(picture, x, y, _ENDS - 12, values, owners, hint)
    _moves(picture, run, field)
    word = "round " if run.rounds <= 8 else ""  # else they would run into each other
    field.marks_below(
        {k + 0.5: f"{word}{k + 1}" for k in range(run.rounds)}, "" if word else "round"
    )
    picture.player(first, last, top, bottom, counted(run.rounds, "round"))
    fills = {f"from rank {rank}": fill for rank, fill in enumerate(RANKS[:ranks])}
    if any(move.source is None for move in run.moves):
        fills["from all ranks"] = QUIET
    elif any(None in origins(run, rank) for rank in range(ranks)):
        fills["computed"] = QUIET
    picture.key(fills)
    return picture


def _parted(
    picture: Picture, x: float, y: float, wide: float, values: Values,
    owners: Sequence[int | None], hint: str,
) -> None:  # fmt: skip
    """A block whose parts have the colours of their owners, and are as wide as they hold values."""
    parts = itertools.groupby(zip(owners, values, strict=True), lambda pair: pair[0])
    each = wide / (len(values) or 1)
    for owner, pairs in parts:
        held = [value for _, value in pairs]
        fill = QUIET if owner is None else RANKS[owner]
        _block(picture, x, y, each * len(held) - 1, held, fill, hint)
        x += each * len(held)


def _moves(picture: Picture, run: Motion, field: Field) -> None:
    sources = SourceLines(picture)
    unit = (field.right - field.left) / (run.rounds or 1)
    blocks = []
    for (number, target), together in itertools.groupby(run.moves, attrgetter("round", "target")):
        moves = list(together)
        start = field.across(number - 1)
        wide = (1 - _FLIGHT) * unit / len(moves)
        for place, move in enumerate(moves):
            x, y = start + _FLIGHT * unit + place * wide, field.top + target * _ROW
            blocks.append((move, x, y, wide - 3))
            for source in _sources(move, len(run.before)):
                there = (start + 2, field.top + source * _ROW + _ROW / 2)
                word = "" if move.source is None else _said(move.values)
                picture.message(
                    there, (x, y + _ROW / 2), RANKS[source].color,
                    f"rank {source} to rank {target}: {word}".rstrip(": "), word,
                )  # fmt: skip
    for move, x, y, wide in blocks:
        origin = "all ranks" if move.source is None else f"rank {move.source}"
        hint = (
            f"rank {move.target}: {_said(move.values)} from {origin}, "
            f"{move.event.op}, {size_text(move.event.nbytes)}\nround {move.round}"
        )
        fill = QUIET if move.source is None else RANKS[move.source]
        line = sources.place(move.event.where)
        _block(picture, x, y, wide, move.values, fill, hint, key="moved", line=line)


def _sources(move: Move, ranks: int) -> list[int]:
    if move.source is not None:
        return [move.source]
    return [rank for rank in move.event.ranks if rank != move.target and rank < ranks]


def _block(
    picture: Picture, x: float, y: float, wide: float, values: Values, fill: Fill, hint: str,
    key: str = "", line: str = "",
) -> None:  # fmt: skip
    word, room = _said(values), wide - (4 if len(values) > 1 else 2)
    size = next((size for size in _SIZES if width(word, size) < room), 0.0)
    if not size and len(values) > 1:  # the rest is told by the pointer, and on a larger picture
        word, size = f"{values[0]:g} …", SMALL if width(f"{values[0]:g} …", SMALL) < room else 0.0
    picture.box(
        x, y + (_ROW - _HIGH) / 2, wide, _HIGH, fill, hint, word if size else "", size or SMALL,
        key=key, later="" if size else _said(values), line=line,
    )  # fmt: skip
