"""Pipeline schedules under sliders, one's own beside the library's: timeline, bubble, memory."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lib.observe.timeline import Timeline
from course_lib.simulate.pipeline import simulate
from course_lib.techniques import schedules

from .gantt_chart import gantt_chart, held_by_rank, length_text
from .svg_drawing import WIDTH, Picture
from .view import View, said
from .widgets import Control, Explorer, explore

Table = Sequence[Sequence[schedules.Op]]
KINDS: dict[str, Callable[[int, int, int], Table]] = {
    "naive": lambda p, m, v: [[op for i in range(m) for op in _through(s, i)] for s in range(p)],
    **schedules.BY_NAME,
}
MakeTable = Callable[[int, int], Table]
Own = Mapping[str, MakeTable]
"""Tables of one's own by name: table(p, m), in which an operation may be any three values."""
NOTHING = "nothing"
_NO_TIME = 1e-9


def _table(kind: str, p: int, m: int, v: int, own: Own) -> Table:
    if kind in KINDS:
        return KINDS[kind](p, m, v)
    if kind not in own:
        raise ValueError(f"there is no such schedule, only {', '.join([*KINDS, *own])}")
    return [[schedules.Op(*op) for op in row] for row in own[kind](p, m)]


def _through(stage: int, microbatch: int) -> tuple[schedules.Op, schedules.Op]:
    """One microbatch forward and back, and nothing else meanwhile."""
    return schedules.Op("F", stage, microbatch), schedules.Op("B", stage, microbatch)


def pipeline_timeline(
    kind: str = "1F1B",
    beside: str = NOTHING,
    p: int = 4,
    m: int = 8,
    v: int = 2,
    forward: float = 1,
    backward: float = 2,
    weight: float = 1,
    send: float = 0,
    own: Own | None = None,
) -> View:
    """The timeline of a schedule, or of two on one scale, and where their orders differ.

    kind, beside: names in KINDS or in `own`; beside: "nothing" for one alone.
    Costs are those of a whole rank, in any unit. weight: the part of `backward` that W takes.
    A rank with v stages (interleaved) has each of them at 1/v of the costs.
    A combination that makes no schedule gives a picture that says why.
    """
    tables: dict[str, Table] = {}
    timelines: dict[str, Timeline] = {}
    for each in dict.fromkeys([kind] if beside == NOTHING else [kind, beside]):
        try:
            tables[each] = _table(each, p, m, v, own or {})
            stages = schedules.num_stages(tables[each])
            share = p / stages
            costs = forward * share, backward * share, weight * share, send
            timeline = simulate(tables[each], *costs)
        except Exception as problem:  # whatever a learner's function raises
            return said(f"{each}, p = {p}, m = {m}: {problem or type(problem).__name__}")
        name = f"{each}, p = {p}, m = {m}" + (f", v = {stages // p}" if stages > p else "")
        timelines[name] = timeline
    return _drawn(tables, timelines)


def _drawn(tables: Mapping[str, Table], timelines: Mapping[str, Timeline]) -> View:
    view = gantt_chart(timelines)
    for name, timeline in timelines.items():
        of = f" ({name})" if len(timelines) > 1 else ""
        memory = " ".join(f"{amount:.3g}" for amount in held_by_rank(timeline))
        view.text += f"\nin flight on each rank, in microbatches of a rank's layers{of}: {memory}"
    if len(tables) == 2:
        found = compared(tables, [timeline.makespan for timeline in timelines.values()])
        view.text += f"\n{found}"
        picture = view.picture
        assert isinstance(picture, Picture)  # of `svg_drawing`, which can be lengthened
        picture.height = picture.paragraph(4, picture.height + 8, found, WIDTH - 8) + 4
    return view


def compared(tables: Mapping[str, Table], lengths: Sequence[float]) -> str:
    """How much longer the second of two schedules is, and the first place where they differ."""
    (first, one), (second, other) = tables.items()
    more = lengths[1] - lengths[0]
    length = f"takes {length_text(abs(more))} {'more' if more > 0 else 'less'} than {first}"
    if abs(more) < _NO_TIME:
        length = f"takes as long as {first}"
    if [len(row) for row in one] != [len(row) for row in other]:
        return f"{second} {length}. Its rows have other operations."
    places = (
        (index, rank)
        for rank, rows in enumerate(zip(one, other, strict=True))
        for index, (mine, its) in enumerate(zip(*rows, strict=True))
        if mine != its
    )
    place = min(places, default=None)
    if place is None:
        return f"{second} {length}: every rank does the same in the same order."
    index, rank = place
    return (
        f"{second} {length}. The first difference: position {index} of rank {rank} is "
        f"{other[rank][index]}, and {one[rank][index]} in {first}."
    )


def schedule_explorer(own: Own | MakeTable | None = None, **start: Any) -> Explorer:
    """All of `pipeline_timeline` under sliders.

    own    one's own schedules by name, such as {"my 1F1B": my_1f1b}, offered beside the others; or
           a single one without a name, which is then "yours"
    start  what is shown first: kind="my 1F1B", beside="1F1B"
    """
    named: Own = {"yours": own} if callable(own) else own or {}
    kinds = [*KINDS, *named]

    def shown(now: Mapping[str, str]) -> set[str]:
        return {now["kind"], now["beside"]}

    return explore(
        functools.partial(pipeline_timeline, own=named, **start),
        height=330,
        kind=Control(kinds, "schedule"),
        beside=Control([NOTHING, *kinds], "beside it"),
        p=Control([1, 2, 3, 4, 6, 8], "ranks p"),
        m=Control([1, 2, 3, 4, 6, 8, 12, 16, 24, 32], "microbatches m"),
        v=Control([1, 2, 3, 4], "stages per rank v", when=lambda now: "interleaved" in shown(now)),
        forward=Control([0.5, 1, 2], "time of a forward"),
        backward=Control([1, 2, 3, 4], "time of a backward"),
        weight=Control(
            [0.5, 1, 1.5],
            "of it for weight gradients",
            when=lambda now: not shown(now).isdisjoint(["ZB-H1", *named]),
        ),
        send=Control([0, 0.1, 0.25, 0.5, 1], "time of a message"),
    )
