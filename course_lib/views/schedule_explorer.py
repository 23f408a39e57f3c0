"""Pipeline schedules under sliders: kind, ranks, microbatches, costs; timeline, bubble, memory."""

import functools
from collections.abc import Callable, Sequence

from course_lib.simulate.pipeline import simulate
from course_lib.techniques import schedules

from .explore import Control, Explorer, explore
from .schedule_gantt import schedule_gantt
from .view import View, said

Table = Sequence[Sequence[schedules.Op]]
KINDS: dict[str, Callable[[int, int, int], Table]] = {
    "naive": lambda p, m, v: [[op for i in range(m) for op in _through(s, i)] for s in range(p)],
    **schedules.BY_NAME,
}


def _read(own: Callable[[int, int], Table] | None, p: int, m: int) -> Table:
    """The learner's table, in which an operation may be any three values."""
    if own is None:
        raise ValueError(f"there is no schedule of yours, and the others are {list(KINDS)}")
    return [[schedules.Op(*op) for op in row] for row in own(p, m)]


def _through(stage: int, microbatch: int) -> tuple[schedules.Op, schedules.Op]:
    """One microbatch forward and back, and nothing else meanwhile."""
    return schedules.Op("F", stage, microbatch), schedules.Op("B", stage, microbatch)


def pipeline_timeline(
    kind: str = "1F1B",
    p: int = 4,
    m: int = 8,
    v: int = 2,
    forward: float = 1,
    backward: float = 2,
    weight: float = 1,
    send: float = 0,
    own: Callable[[int, int], Table] | None = None,
) -> View:
    """The timeline of one schedule; costs are those of a whole rank, in any unit.

    kind: a name in KINDS, or "yours" for `own(p, m)`. weight: the part of `backward` that W takes.
    A rank with v stages (interleaved) has each of them at 1/v of the costs.
    A combination that makes no schedule gives a picture that says why.
    """
    try:
        table: Table = KINDS[kind](p, m, v) if kind in KINDS else _read(own, p, m)
        stages = schedules.num_stages(table)
        share = p / stages
        timeline = simulate(table, forward * share, backward * share, weight * share, send)
    except Exception as problem:  # whatever a learner's function raises
        return said(f"{kind}, p = {p}, m = {m}: {problem or type(problem).__name__}")
    held = timeline.peak_held_by_rank(activation=share, weight=share)
    name = f"{kind}, p = {p}, m = {m}" + (f", v = {v}" if stages > p else "")
    view = schedule_gantt(timeline, name, held=held)
    memory = " ".join(f"{amount:.3g}" for amount in held)
    view.text += f"\nin flight on each rank, in microbatches of a rank's layers: {memory}"
    return view


def schedule_explorer(own: Callable[[int, int], Table] | None = None) -> Explorer:
    """All of `pipeline_timeline` under sliders; `own(p, m)` is offered as the kind "yours"."""
    kinds = [*KINDS, *(["yours"] if own else [])]
    return explore(
        functools.partial(pipeline_timeline, own=own),
        height=350,
        kind=kinds,
        p=Control([1, 2, 3, 4, 6, 8], "p = ranks"),
        m=Control([1, 2, 3, 4, 6, 8, 12, 16, 24, 32], "m = microbatches"),
        v=Control(
            [1, 2, 3, 4], "v = stages per rank", when=lambda now: now["kind"] == "interleaved"
        ),
        forward=Control([0.5, 1, 2], "forward", "time units"),
        backward=Control([1, 2, 3, 4], "backward", "time units"),
        weight=Control(
            [0.5, 1, 1.5],
            "weight gradient of it",
            "time units",
            when=lambda now: now["kind"] in ("ZB-H1", "yours"),
        ),
        send=Control([0, 0.1, 0.25, 0.5, 1], "a message", "time units"),
    )
