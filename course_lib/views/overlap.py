"""What hides behind backward: device and network of a data parallel step, on one scale of time."""

from collections.abc import Mapping, Sequence

from course_lib.observe.hidden_communication import communication_time, hidden_share
from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Timeline
from course_lib.simulate import costs
from course_lib.simulate.data_parallel import Layer, bucket_layers, data_parallel_step
from course_lib.text import counted

from .charts import Field, round_numbers
from .palette import OPERATIONS, PAPER, STEP, Fill
from .svg_drawing import SMALL, WIDTH, Picture, width
from .units import size_text, time_text
from .view import View

_FILLS = {
    "F": OPERATIONS["F"],
    "B": OPERATIONS["B"],
    "bucket": STEP["data"],
    "late": Fill("#d55e00", "//", PAPER),
}
_LEGEND = {
    "F": "forward",
    "B": "backward",
    "bucket": "all-reduce of a bucket, hidden",
    "late": "not hidden",
}
_ROW = 28  # pixels


def overlap(steps: Mapping[str, Timeline], title: str = "") -> View:
    """Steps by name, one above the other: when layers compute, and when buckets travel.

    Of timelines with several ranks the first is shown; all do the same. What travels when the last
    layer has been computed is not hidden, and looks so.
    """
    if not steps:
        raise ValueError("there is no step to show")
    lines = [line for item in steps.items() for line in _text(*item)]
    return View(_draw(steps, title), "\n".join([*([title] if title else []), *lines]))


def overlap_step(
    layers: Sequence[Layer],
    bucket_MB: float = 25,
    ranks: int = 64,
    gigabits: float = 25,
    latency_us: float = 14,
) -> View:
    """One step of `layers` (in seconds) with these buckets, beside one that sends all at the end.

    All-reduces are rings over links of this speed and latency.
    """

    def step(largest: float) -> Timeline:
        return data_parallel_step(
            layers,
            bucket_layers(layers, largest),
            lambda nbytes: costs.ring_all_reduce(ranks, nbytes, latency_us * 1e-6, 8e-9 / gigabits),
        )

    everything = sum(layer.nbytes for layer in layers)
    return overlap(
        {
            f"Buckets of {size_text(bucket_MB * 1e6)}": step(bucket_MB * 1e6),
            "All in one bucket": step(everything),
        },
        f"{counted(ranks, 'rank')}, {gigabits} Gbit/s, {latency_us} µs per message",
    )


# ------------------------------------------------------------------------------------------------


def _text(name: str, step: Timeline) -> list[str]:
    lines = [f"{name}: {_summary(step)}"]
    if moving := communication_time(step):
        many = counted(len(_spans(step, COMMUNICATION)), "all-reduce")
        lines.append(f"  {many}, {time_text(moving)} in all")
    return lines


def _summary(step: Timeline) -> str:
    said = f"{time_text(step.makespan)} for {time_text(max(step.busy))} of computation"
    if communication_time(step):
        said += f", {hidden_share(step):.0%} of the communication hidden"
    return said


def _spans(step: Timeline, track: str) -> list[tuple[float, float, str]]:
    return [
        (span.start, span.end, str(span.what))
        for span in step.spans
        if span.rank == 0 and span.track == track
    ]


def _draw(steps: Mapping[str, Timeline], title: str) -> Picture:
    end = max(step.makespan for step in steps.values()) or 1
    heads = [f"{name}: {_summary(step)}" for name, step in steps.items()]
    several = len(steps) > 1
    picture = Picture(title if several else ". ".join(filter(None, [title, heads[0]])))
    top, left, seen = picture.height, 72, set[str]()
    pixels = (WIDTH - 14 - left) / end
    for head, step in zip(heads, steps.values(), strict=True):
        if several:
            picture.text(4, picture.height + 12, head, bold=True)
            picture.height += 26
        for row, track in enumerate((COMPUTE, COMMUNICATION)):
            y = picture.height + _ROW * row
            words = ("device", "network")[row]
            picture.text(left - 8, y + _ROW / 2 - 2, words, anchor="end")
            seen |= _row(picture, step, track, left, y, pixels)
        x = left + step.makespan * pixels
        picture.line([(x, picture.height - 3), (x, picture.height + 2 * _ROW)], "ink", 1.2)
        picture.height += 2 * _ROW + 4
    picture.title = "; ".join([*([title] if title else []), *heads])
    field = Field(picture, left, top, end * pixels, picture.height - top, (0, end), (0, 1))
    words = "time; a number in a box is a layer, or the layers whose gradients a bucket carries"
    field.marks_below(round_numbers(0, end, 8, time_text), words)
    picture.player(left, field.right, top, field.bottom, time_text(end))
    picture.key({_LEGEND[kind]: fill for kind, fill in _FILLS.items() if kind in seen})
    return picture


def _row(
    picture: Picture, step: Timeline, track: str, left: float, y: float, pixels: float
) -> set[str]:
    """Draw what device or network does; returns which kinds of boxes that are."""
    seen = set[str]()
    for start, stop, what in _spans(step, track):
        name = what.split()[-1]
        hint = f"{time_text(start)} to {time_text(stop)}"
        parts = [("F" if what[0] not in _FILLS else what[0], start, stop)]
        if track == COMMUNICATION:
            hint = f"all-reduce of layers {name}\n{hint}"
            parts = _hidden_and_not(start, stop, max(step.busy))
        else:
            hint = f"{_LEGEND[parts[0][0]]} {name}\n{hint}"
        longest = max(parts, key=lambda part: part[2] - part[1])
        for part in parts:
            kind, since, until = part
            wide = (until - since) * pixels
            fits = part is longest and width(name, SMALL) < wide - 3
            gap = 1 if wide > 4 and until == stop else 0
            picture.box(
                left + since * pixels, y, wide - gap, _ROW - 4, _FILLS[kind], hint,
                name if fits else "", key=_LEGEND[kind],
            )  # fmt: skip
            seen.add(kind)
    return seen


def _hidden_and_not(start: float, stop: float, computed: float) -> list[tuple[str, float, float]]:
    """The part of an all-reduce beside computation, and the part after it."""
    parts = [("bucket", start, min(stop, computed)), ("late", max(start, computed), stop)]
    return [part for part in parts if part[2] - part[1] > 1e-9 * stop]
