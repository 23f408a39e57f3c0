"""How large the entries of a gradient are, against what 16-bit formats can hold."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from .palette import INK, LINES
from .view import View

_SMALLEST = -25  # fp16: what is smaller rounds to zero, as a power of 2
_NORMAL, _LARGEST = -14, 16  # between them fp16 has its full precision


def fp16_range(entries: Mapping[str, Sequence[float]]) -> View:
    """Histograms of the sizes of entries, as powers of 2, over the range of fp16.

    entries  {name: numbers}; zeros are left out
    """
    if len(entries) > len(LINES):
        raise ValueError(f"{len(LINES)} lines can be told apart, not {len(entries)}")
    figure = Figure(figsize=(7, 3))
    ax = figure.subplots()
    ax.axvspan(_NORMAL, _LARGEST, color="#dddddd", label="fp16: full precision")
    ax.axvspan(_SMALLEST, _NORMAL, color="#eeeeee", hatch="//", label="fp16: less and less of it")
    said = []
    for (name, numbers), (color, dashes) in zip(entries.items(), LINES, strict=False):
        sizes = np.abs(np.asarray(numbers, dtype=float))
        exponents = np.log2(sizes[sizes > 0])
        heights, edges = np.histogram(exponents, bins=60, range=(-40, 20))
        ax.stairs(heights / 1e3, edges, color=color, linestyle=dashes, lw=1.8, label=name)
        below = 100 * (exponents < _SMALLEST).mean()
        said.append(f"{name}: {below:.0f} % of the entries are below 2^-25, which fp16 rounds to 0")
    ax.set(xlabel="size of the entry, as a power of 2", ylabel="thousand entries", xlim=(-40, 20))
    ax.set_title("What is left of the grey is zero in fp16", fontsize=9, weight="bold", y=1.14)
    ax.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    figure.tight_layout()
    return View(figure, "\n".join(said))


def loss_scales(scales: Sequence[tuple[float, bool]]) -> View:
    """The loss scale step by step: (its power of 2, whether the step was made)."""
    exponents = [exponent for exponent, _ in scales]
    left_out = [step for step, (_, made) in enumerate(scales) if not made]
    figure = Figure(figsize=(7, 2.6))
    ax = figure.subplots()
    ax.step(range(len(scales)), exponents, where="mid", color=LINES[0][0])
    at = [exponents[step] for step in left_out]
    ax.plot(left_out, at, "x", color=LINES[1][0], ms=8, mew=2, label="step left out")
    ax.set(xlabel="step", ylabel="scale, as a power of 2")
    ax.set_title("Twice as large until a gradient overflows, then half", fontsize=9, color=INK)
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    figure.tight_layout()
    row = " ".join(f"{e:.0f}" if made else f"({e:.0f})" for e, made in scales)
    return View(figure, f"scale by step, as a power of 2; (steps left out): {row}")
