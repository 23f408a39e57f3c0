"""Numbers of the same kind, group by group: a bar for each series, with its number at its end."""

from collections.abc import Callable, Mapping

from course_lib.text import table

from .charts import Field, round_numbers
from .palette import SERIES
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View

Groups = Mapping[str, Mapping[str, float | None]]  # group -> series -> number, or there is none
_BAR, _GAP = 17, 9  # pixels: of a bar, and between groups


def grouped_bars(
    groups: Groups,
    title: str,
    label: str,
    text: Callable[[float], str] = "{:g}".format,
    missing: str = "-",
) -> View:
    """Bars from 0, of `groups[group][series]`; the text is a table with a row for each group.

    label    what the numbers are
    text     how a number is written
    missing  stands where a group has None, or not that series
    """
    series = list(dict.fromkeys(name for numbers in groups.values() for name in numbers))
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(f"1 to {len(SERIES)} series can be told apart, not {len(series)}")
    for group, numbers in groups.items():
        for name, number in numbers.items():
            if number is not None and not number >= 0:
                raise ValueError(f"{group}, {name}: a bar of {number} would begin left of 0")

    def said(number: float | None) -> str:
        return missing if number is None else text(number)

    rows = [["", *series]]
    rows += [[group, *(said(own.get(name)) for name in series)] for group, own in groups.items()]
    words = "\n".join([title, table(rows)])
    return View(_draw(groups, series, title, label, text, said), words)


def _draw(
    groups: Groups,
    series: list[str],
    title: str,
    label: str,
    text: Callable[[float], str],
    said: Callable[[float | None], str],
) -> Picture:
    fills = dict(zip(series, SERIES, strict=False))
    most = max((n for own in groups.values() for n in own.values() if n is not None), default=0)
    limit = 1.15 * most or 1.0
    high = _BAR * len(series) + _GAP
    left = 16 + max(map(width, groups))
    picture = Picture(title)
    top = picture.height + 4
    size = WIDTH - 20 - left, high * len(groups)
    field = Field(picture, left, top, *size, (0, limit), (0, 1))
    for row, (group, own) in enumerate(groups.items()):
        y = top + row * high + _GAP / 2
        picture.text(left - 8, y + (high - _GAP) / 2, group, anchor="end")
        for name, fill in fills.items():
            number = own.get(name)
            end = field.across(number or 0)
            if number:
                hint = f"{group}, {name}: {text(number)}"
                picture.box(left, y, end - left, _BAR - 2, fill, hint, key=name)
            ink = "" if number is not None else "soft"
            picture.text(end + 7, y + _BAR / 2 - 1, said(number), SMALL, ink=ink)
            y += _BAR
    field.marks_below(round_numbers(0, limit, 8, text), label)
    if len(series) > 1:
        picture.key(fills)
    return picture
