"""Loss against time, or whatever it costs: several runs that do not make the same steps."""

from collections.abc import Mapping, Sequence

from course_lib.text import table

from .charts import Field, name_curves, round_numbers
from .palette import strokes
from .svg_drawing import Picture
from .view import View

Run = tuple[Sequence[float], Sequence[float]]
_ROWS = 5  # moments of the table


def loss_curves(runs: Mapping[str, Run], unit: str, title: str) -> View:
    """A line for each of `runs[name] = (moments, losses)`, moments rising, in `unit`.

    The text has the last loss of each run at or before some moments.
    """
    for name, (moments, losses) in runs.items():
        if len(moments) != len(losses) or not moments:
            raise ValueError(f"{name}: {len(moments)} moments and {len(losses)} losses")
    end = max(moments[-1] for moments, _ in runs.values())
    return View(_draw(runs, end, unit, title), _text(runs, end, unit, title))


# ------------------------------------------------------------------------------------------------


def _text(runs: Mapping[str, Run], end: float, unit: str, title: str) -> str:
    rows = [[unit, *runs]]
    for number in range(1, _ROWS + 1):
        moment = end * number / _ROWS
        rows.append([f"{moment:.0f}", *(_at(run, moment) for run in runs.values())])
    return "\n".join([title, table(rows)])


def _at(run: Run, moment: float) -> str:
    earlier = [loss for when, loss in zip(*run, strict=True) if when <= moment + 1e-9]
    return f"{earlier[-1]:.2f}" if earlier else "-"


def _draw(runs: Mapping[str, Run], end: float, unit: str, title: str) -> Picture:
    picture = Picture(title)
    highest = max(max(losses) for _, losses in runs.values())
    field = Field(picture, 60, picture.height + 24, 766, 240, (0, end), (0, 1.05 * highest))
    field.marks_below(round_numbers(0, end, 8, "{:g}".format), unit)
    field.marks_left(round_numbers(0, highest, 5, "{:g}".format), "loss", grid=True)
    looks = strokes(runs)
    for name, (moments, losses) in runs.items():
        field.curve(list(zip(moments, losses, strict=True)), looks[name], name)
    name_curves(picture, looks)
    return picture
