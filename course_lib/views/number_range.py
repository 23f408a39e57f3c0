"""How large the entries of a gradient are, against what 16-bit formats can hold."""

from collections.abc import Mapping, Sequence

import numpy as np

from .charts import Field, name_curves, round_numbers, whole_numbers
from .palette import STROKES, Fill, Stroke, strokes
from .svg_drawing import SMALL, Picture
from .units import power_of_2
from .view import View

_SMALLEST = -25  # fp16: what is smaller rounds to zero, as a power of 2
_NORMAL, _LARGEST = -14, 16  # between them fp16 has its full precision
_LOW, _HIGH = -40, 20  # of the picture
_FULL, _LESS = Fill("pale", strength=0.9), Fill("pale", strength=0.45)


def fp16_range(entries: Mapping[str, Sequence[float]]) -> View:
    """Histograms of the sizes of entries, as powers of 2, over the range of fp16.

    entries  {name: numbers}; zeros are left out
    """
    said, histograms = [], {}
    for name, numbers in entries.items():
        sizes = np.abs(np.asarray(numbers, dtype=float))
        exponents = np.log2(sizes[sizes > 0])
        histograms[name] = np.histogram(exponents, bins=_HIGH - _LOW, range=(_LOW, _HIGH))[0]
        below = 100 * (exponents < _SMALLEST).mean()
        said.append(f"{name}: {below:.0f} % of the entries are below 2^-25, which fp16 rounds to 0")
    return View(_draw(histograms), "\n".join(said))


def _draw(histograms: Mapping[str, np.ndarray]) -> Picture:
    picture = Picture("entries by size, and what fp16 makes of each size")
    highest = 1.2 * max((max(counts) for counts in histograms.values()), default=0) / 1e3 or 1
    field = Field(
        picture, 60, picture.height + 24, 756, 230, (_LOW, _HIGH), (0, highest)
    )  # fmt: skip
    field.marks_left(round_numbers(0, highest, 5, "{:g}".format), "thousand entries", grid=True)
    for low, high, fill, word in (
        (_LOW, _SMALLEST, None, "becomes zero"),
        (_SMALLEST, _NORMAL, _LESS, "loses precision"),
        (_NORMAL, _LARGEST, _FULL, "full precision"),
        (_LARGEST, _HIGH, None, "infinite"),
    ):
        left, right = field.across(low), field.across(high)
        if fill:
            picture.box(left, field.top, right - left, field.bottom - field.top, fill, word)
        picture.text((left + right) / 2, field.top + 12, word, SMALL, "middle")
    marks = {float(power): power_of_2(power) for power in range(_LOW, _HIGH + 1, 5)}
    field.marks_below(marks, "size of the entry, logarithmic")
    looks = strokes(histograms)
    for name, counts in histograms.items():
        _hill(field, counts, looks[name], name)
    name_curves(picture, looks)
    return picture


def _hill(field: Field, counts: np.ndarray, stroke: Stroke, name: str) -> None:
    """A histogram from its first entry to its last."""
    there = np.flatnonzero(counts)
    if not there.size:
        return
    first, last = int(there[0]), int(there[-1]) + 1
    edges = [field.across(_LOW + index) for index in range(first, last + 1)]
    tops = [field.up(count / 1e3) for count in counts[first:last]]
    pale = Fill(stroke.color, strength=0.18)
    field.picture.steps(edges, [field.bottom] * len(tops), tops, pale, hint=name)
    line = [(edges[0], field.bottom)]
    for left, right, top in zip(edges, edges[1:], tops, strict=False):
        line += [(left, top), (right, top)]
    line.append((edges[-1], field.bottom))
    field.picture.line(line, stroke.color, 2, stroke.dashes, name, hint=name)


def loss_scales(scales: Sequence[tuple[float, bool]]) -> View:
    """The loss scale step by step: (its power of 2, whether the step was made)."""
    exponents = [exponent for exponent, _ in scales]
    left_out = [step for step, (_, made) in enumerate(scales) if not made]
    picture = Picture("loss scale: twice as large until a gradient overflows, then half")
    low, high = min(exponents, default=0) - 1, max(exponents, default=1) + 1
    across = (-0.5, len(scales) - 0.5)
    field = Field(picture, 60, picture.height + 24, 766, 170, across, (low, high))
    marks = round_numbers(low, high, 5, power_of_2)
    field.marks_left({n: word for n, word in marks.items() if n.is_integer()}, "scale", grid=True)
    points = [(step + side, e) for step, e in enumerate(exponents) for side in (-0.5, 0.5)]
    field.curve(points, STROKES[0], "scale")
    for step in left_out:
        hint = f"step {step} left out: its gradient was not finite"
        x, y = field.across(step), field.up(exponents[step])
        picture.dot(x, y, 5, STROKES[1].color, hint)
    field.marks_below(whole_numbers(0, max(len(scales) - 1, 1), 10), "step")
    name_curves(picture, {"scale": STROKES[0]}, {"step left out": STROKES[1].color})
    row = " ".join(f"{e:.0f}" if made else f"({e:.0f})" for e, made in scales)
    return View(picture, f"scale by step, as a power of 2; (steps left out): {row}")
