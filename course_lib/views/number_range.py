"""How large the entries of a gradient are, against what 16-bit formats can hold."""

from collections.abc import Mapping, Sequence

import numpy as np

from .charts import Field, name_curves, round_numbers, whole_numbers
from .palette import STROKES, Fill
from .svg_drawing import Picture
from .units import power_of_2
from .view import View

_SMALLEST = -25  # fp16: what is smaller rounds to zero, as a power of 2
_NORMAL, _LARGEST = -14, 16  # between them fp16 has its full precision
_LOW, _HIGH = -40, 20  # of the picture
_FULL, _LESS = Fill("#88888866"), Fill("#88888833", "//")  # seen through, on pages of either theme


def fp16_range(entries: Mapping[str, Sequence[float]]) -> View:
    """Histograms of the sizes of entries, as powers of 2, over the range of fp16.

    entries  {name: numbers}; zeros are left out
    """
    if len(entries) > len(STROKES):
        raise ValueError(f"{len(STROKES)} lines can be told apart, not {len(entries)}")
    said, histograms = [], {}
    for name, numbers in entries.items():
        sizes = np.abs(np.asarray(numbers, dtype=float))
        exponents = np.log2(sizes[sizes > 0])
        histograms[name] = np.histogram(exponents, bins=_HIGH - _LOW, range=(_LOW, _HIGH))[0]
        below = 100 * (exponents < _SMALLEST).mean()
        said.append(f"{name}: {below:.0f} % of the entries are below 2^-25, which fp16 rounds to 0")
    return View(_draw(histograms), "\n".join(said))


def _draw(histograms: Mapping[str, np.ndarray]) -> Picture:
    picture = Picture("entries by size: to the left of the grey field they are zero in fp16")
    highest = 1.08 * max((max(counts) for counts in histograms.values()), default=0) / 1e3 or 1
    field = Field(
        picture, 60, picture.height + 24, 756, 230, (_LOW, _HIGH), (0, highest)
    )  # fmt: skip
    for low, high, fill, word in (
        (_SMALLEST, _NORMAL, _LESS, "fp16: less and less of it"),
        (_NORMAL, _LARGEST, _FULL, "fp16: full precision"),
    ):
        left, right = field.across(low), field.across(high)
        picture.box(left, field.top, right - left, field.bottom - field.top, fill, word, key=word)
    strokes = dict(zip(histograms, STROKES, strict=False))
    for name, counts in histograms.items():
        points = [(float(_LOW), 0.0)]
        for index, count in enumerate(counts):
            points += [(_LOW + index, count / 1e3), (_LOW + index + 1, count / 1e3)]
        field.curve([*points, (float(_HIGH), 0.0)], strokes[name], name)
    field.marks_left(round_numbers(0, highest, 5, "{:g}".format), "thousand entries", grid=True)
    marks = {float(power): power_of_2(power) for power in range(_LOW, _HIGH + 1, 5)}
    field.marks_below(marks, "size of the entry, logarithmic")
    name_curves(picture, strokes)
    picture.key({"fp16: full precision": _FULL, "fp16: less and less of it": _LESS})
    return picture


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
    picture.key({"step left out": Fill(STROKES[1].color)})
    row = " ".join(f"{e:.0f}" if made else f"({e:.0f})" for e, made in scales)
    return View(picture, f"scale by step, as a power of 2; (steps left out): {row}")
