"""What hides behind backward: device and network of a data parallel step, on one scale of time."""

from collections.abc import Mapping, Sequence

from course_lib.observe.hidden_communication import communication_time, hidden_share
from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Timeline
from course_lib.simulate import costs
from course_lib.simulate.data_parallel import Layer, bucket_layers, data_parallel_step
from course_lib.text import counted

from .charts import Field, round_numbers
from .palette import OPERATIONS, STEP
from .svg_drawing import SMALL, WIDTH, Picture, width
from .units import size_text, time_text
from .view import View

_FILLS = {"F": OPERATIONS["F"], "B": OPERATIONS["B"], "bucket": STEP["data"]}
_LEGEND = {"F": "forward", "B": "backward", "bucket": "all-reduce of a bucket"}
_ROW = 28  # pixels


def overlap(steps: Mapping[str, Timeline]) -> View:
    """Steps by name, one above the other: when layers compute, and when buckets travel.

    Of timelines with several ranks the first is shown; all do the same.
    """
    if not steps:
        raise ValueError("there is no step to show")
    return View(_draw(steps), "\n".join(line for item in steps.items() for line in _text(*item)))


def overlap_step(
    layers: Sequence[Layer],
    bucket_MB: float = 25,
    first_MB: float = 1,
    ranks: int = 64,
    gigabits: float = 25,
    latency_us: float = 14,
) -> View:
    """One step of `layers` (in seconds) with these buckets, beside one that sends all at the end.

    All-reduces are rings over links of this speed and latency.
    """

    def all_reduce(nbytes: float) -> float:
        return costs.ring_all_reduce(ranks, nbytes, latency_us * 1e-6, 8e-9 / gigabits)

    def step(largest: float, first: float | None = None) -> Timeline:
        return data_parallel_step(layers, bucket_layers(layers, largest, first), all_reduce)

    everything = sum(layer.nbytes for layer in layers)
    name = f"buckets of {size_text(bucket_MB * 1e6)}, the first of {size_text(first_MB * 1e6)}"
    view = overlap({name: step(bucket_MB * 1e6, first_MB * 1e6), "in one": step(everything)})
    view.text = f"{ranks} ranks, {gigabits} Gbit/s, {latency_us} µs a message\n{view.text}"
    return view


# ------------------------------------------------------------------------------------------------


def _text(name: str, step: Timeline) -> list[str]:
    buckets = _spans(step, COMMUNICATION)
    moving = communication_time(step)
    lines = [f"{name}: {_summary(step)}"]
    if moving:
        many = counted(len(buckets), "all-reduce")
        lines.append(f"  {many}, {time_text(moving)} in all, {hidden_share(step):.0%} of it hidden")
    return lines


def _summary(step: Timeline) -> str:
    computing = max(step.busy)
    return (
        f"{time_text(step.makespan)} for {time_text(computing)} of computation, "
        f"efficiency {computing / step.makespan:.0%}"
    )


def _spans(step: Timeline, track: str) -> list[tuple[float, float, str]]:
    return [
        (span.start, span.end, str(span.what))
        for span in step.spans
        if span.rank == 0 and span.track == track
    ]


def _draw(steps: Mapping[str, Timeline]) -> Picture:
    end = max(step.makespan for step in steps.values()) or 1
    heads = [f"{name}: {_summary(step)}" for name, step in steps.items()]
    picture = Picture("" if len(steps) > 1 else heads[0])
    top, left, seen = picture.height, 72, set()
    pixels = (WIDTH - 14 - left) / end
    for head, step in zip(heads, steps.values(), strict=True):
        if len(steps) > 1:
            picture.text(4, picture.height + 12, head, bold=True)
            picture.height += 26
        for row, track in enumerate((COMPUTE, COMMUNICATION)):
            y = picture.height + _ROW * row
            picture.text(left - 8, y + _ROW / 2 - 1, ("device", "network")[row], anchor="end")
            for index, (start, stop, what) in enumerate(_spans(step, track)):
                kind = "bucket" if track == COMMUNICATION else what[0]
                kind = kind if kind in _FILLS else "F"
                seen.add(kind)
                word = str(index) if track == COMMUNICATION else what.split()[-1]
                wide = (stop - start) * pixels
                shown = word if width(word, SMALL) < wide - 3 else ""
                hint = f"{_LEGEND[kind]} {word}\n{time_text(start)} to {time_text(stop)}"
                x, gap = left + start * pixels, 1 if wide > 4 else 0
                picture.box(
                    x, y, wide - gap, _ROW - 4, _FILLS[kind], hint, shown, key=_LEGEND[kind]
                )  # fmt: skip
        x = left + step.makespan * pixels
        picture.line([(x, picture.height - 3), (x, picture.height + 2 * _ROW)], "ink", 1.2)
        picture.height += 2 * _ROW + 4
    picture.title = "; ".join(heads)
    field = Field(picture, left, top, end * pixels, picture.height - top, (0, end), (0, 1))
    words = "time; a number in a box is a layer, or a bucket"
    field.marks_below(round_numbers(0, end, 8, time_text), words)
    picture.player(left, field.right, top, field.bottom, time_text(end))
    picture.key({_LEGEND[kind]: fill for kind, fill in _FILLS.items() if kind in seen})
    return picture
