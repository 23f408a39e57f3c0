"""A field with scales in a picture: from values to pixels, with marks, curves and bars."""

import math
from collections.abc import Callable, Mapping, Sequence

from .palette import Fill, Stroke
from .svg_drawing import SMALL, WIDTH, Picture, Point, width

Text = Callable[[float], str]


class Field:
    """A rectangle of a picture with a scale across and one up.

    x, y  values at its left and right, and at its bottom and top
    log_x, log_y  whether equal ways stand for equal factors
    """

    def __init__(
        self, picture: Picture, left: float, top: float, wide: float, high: float,
        x: tuple[float, float], y: tuple[float, float], log_x: bool = False, log_y: bool = False,
    ) -> None:  # fmt: skip
        self.picture = picture
        self.left, self.top, self.right, self.bottom = left, top, left + wide, top + high
        self._x, self._y, self._log = x, y, (log_x, log_y)

    def across(self, value: float) -> float:
        """The pixel at which a value stands."""
        return self.left + _share(value, *self._x, self._log[0]) * (self.right - self.left)

    def up(self, value: float) -> float:
        """The pixel at which a value stands."""
        return self.bottom - _share(value, *self._y, self._log[1]) * (self.bottom - self.top)

    def marks_below(self, marks: Mapping[float, str], label: str = "", grid: bool = False) -> None:
        """The scale across. The picture grows by it."""
        if grid:
            for value in marks:
                x = self.across(value)
                self.picture.line([(x, self.top), (x, self.bottom)], "line", 0.8)
        self.picture.line([(self.left, self.bottom), (self.right, self.bottom)], "soft")
        with self.picture.group("marks"):
            for value, words in marks.items():
                x = self.across(value)
                self.picture.line([(x, self.bottom), (x, self.bottom + 4)], "soft")
                inside = min(x, WIDTH - 2 - width(words, SMALL) / 2)
                self.picture.text(inside, self.bottom + 13, words, SMALL, "middle")
        if label:
            middle = (self.left + self.right) / 2
            self.picture.text(middle, self.bottom + 31, label, SMALL, "middle", ink="soft")
        self.picture.at_least(self.bottom + (42 if label else 24))

    def marks_left(self, marks: Mapping[float, str], label: str = "", grid: bool = False) -> None:
        """The scale up; its label stands above it, where it can be read."""
        for value, words in marks.items():
            y = self.up(value)
            if grid:
                self.picture.line([(self.left, y), (self.right, y)], "line", 0.8)
            self.picture.text(self.left - 7, y, words, SMALL, "end")
        if label:
            self.picture.text(4, self.top - 16, label, SMALL, ink="soft")

    def curve(
        self, points: Sequence[Point], stroke: Stroke, key: str = "", dots: bool = False
    ) -> None:
        """A line through values."""
        there = [(self.across(x), self.up(y)) for x, y in points]
        self.picture.line(there, stroke.color, 2, stroke.dashes, key, hint=key)
        if dots:
            for x, y in there:
                self.picture.dot(x, y, 3, stroke.color, key)


def name_curves(
    picture: Picture, strokes: Mapping[str, Stroke], dots: Mapping[str, str] | None = None
) -> None:
    """What strokes mean, and dots by their colours: at the bottom, where no curve is covered."""
    x = 4.0
    left, picture.height = x, picture.height + 10
    looks: dict[str, Stroke | str] = {**strokes, **(dots or {})}
    for name, look in looks.items():
        wide = 36 + width(name, SMALL) + 16
        if left > x and left + wide > 836:
            left, picture.height = x, picture.height + 18
        if isinstance(look, str):
            picture.dot(left + 24, picture.height, 4, look)
        else:
            ends = [(left, picture.height), (left + 30, picture.height)]
            picture.line(ends, look.color, 2, look.dashes)
        picture.text(left + 36, picture.height, name, SMALL)
        left += wide
    picture.height += 12


def stack(
    picture: Picture, parts: Mapping[str, float], fills: Mapping[str, Fill],
    left: float, top: float, high: float, pixels: float, text: Text, limit: float = math.inf,
) -> float:  # fmt: skip
    """One bar of parts end to end, `pixels` per unit, cut at `limit`; returns where it ends."""
    x = left
    for name, value in parts.items():
        end = min(x + value * pixels, limit)
        if end > x:
            hint = f"{name}: {text(value)}"
            picture.box(x, top, end - x, high, fills[name], hint, key=name)
        x = end
    return x


def round_numbers(low: float, high: float, most: int, text: Text) -> dict[float, str]:
    """At most `most` + 1 round numbers from low to high, and how each is written."""
    if not high > low:
        return {low: text(low)}
    rough = (high - low) / most
    ten = 10.0 ** math.floor(math.log10(rough) + 1e-9)
    step = next(s * ten for s in (1, 2, 2.5, 5, 10) if s * ten >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    numbers = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
    return {n: text(n) if n else "0" for n in numbers}


def whole_numbers(low: float, high: float, most: int) -> dict[float, str]:
    """As `round_numbers`, of what is counted: no halves."""
    marks = round_numbers(low, high, most, "{:g}".format)
    return {n: text for n, text in marks.items() if float(n).is_integer()}


def decades(low: float, high: float, text: Text) -> dict[float, str]:
    """At most nine powers of ten, or what is rounder than that where hardly two lie between."""
    if high < 10 * low:
        return round_numbers(low, high, 6, text)
    steps = (1, 2, 5) if high < 100 * low else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = (last - first - 2) // 9 + 1
    marks = [step * 10.0**k for k in range(first, last + 1, every) for step in steps]
    return {mark: text(mark) for mark in marks if low <= mark <= high}


def _share(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)
