"""The colours of all pictures, and where they come from.

All are from Okabe and Ito's palette ("Color Universal Design", 2002) or lighter tints of it, made
to be told apart with any colour vision. Parts that touch differ in lightness or in hatching too, so
that they stay apart in grey print: tests compute both, with the simulations of red- and green-blind
vision by Viénot, Brettel & Mollon (1999).
"""

from collections.abc import Iterable
from typing import NamedTuple

INK, PAPER, QUIET = "#000000", "#ffffff", "#bbbbbb"


class Fill(NamedTuple):
    """How an area is filled, and the ink that can be read on it."""

    color: str
    hatch: str = ""
    ink: str = INK


def chunk(fill: Fill, number: int) -> Fill:
    """The colour of an operation for the model chunk `number` of a rank: each a little darker."""
    share = 1 - 0.2 * min(number, 3)
    parts = (round(int(fill.color[k : k + 2], 16) * share) for k in (1, 3, 5))
    return fill._replace(color="#" + "".join(f"{part:02x}" for part in parts))


def shade(share: float) -> Fill:
    """From a light blue (0) to a dark one (1), for amounts that are also written."""
    light, dark = (222, 235, 247), (8, 69, 148)
    parts = (round(a + (b - a) * share) for a, b in zip(light, dark, strict=True))
    return Fill("#" + "".join(f"{part:02x}" for part in parts), ink=PAPER if share > 0.5 else INK)


# Operations of a schedule, light and dark in turn: a whole backward (B) or its two halves (I, W).
OPERATIONS = {
    "F": Fill("#8fc9ec"),
    "B": Fill("#0072b2", ink=PAPER),
    "I": Fill("#d55e00", ink=PAPER),
    "W": Fill("#fae9a8"),
}
WAITS = Fill("#dddddd")  # a worker or a rank that waits
# What goes over the wires: sent, received, or together with others.
SEND, RECEIVE = Fill("#b2558c", ink=PAPER), Fill("#e69f00")
COLLECTIVE = Fill("#00694d", ink=PAPER)
SEND_FAR, RECEIVE_FAR = Fill("#d55e00", ink=PAPER), Fill("#56b4e9")  # from node to node
# What memory is for, in the order in which bars are stacked.
MEMORY = {
    "parameters": Fill("#0072b2", ink=PAPER),
    "gradients": Fill("#8fc9ec"),
    "optimizer": Fill("#e69f00", "//"),
    "activations": Fill("#00694d", ink=PAPER),
    "communication": Fill("#f4d9e8", ".."),
    "other": Fill("#dddddd"),
}
# Where the time of a step goes.
STEP = {
    "compute": Fill("#0072b2", ink=PAPER),
    "bubble": Fill("#cccccc"),
    "tensor": Fill("#d55e00", ink=PAPER),
    "context": Fill("#8fc9ec"),
    "expert": Fill("#5c2a5e", ink=PAPER),
    "pipeline": Fill("#f2d264", "//"),
    "data": Fill("#00694d", ink=PAPER),
    "update": Fill("#f4d9e8", ".."),
}
# Ranks beside one another, up to eight; each also carries its number.
RANKS = (
    Fill("#0072b2", ink=PAPER),
    Fill("#f2d264"),
    Fill("#d55e00", ink=PAPER),
    Fill("#8fc9ec"),
    Fill("#00694d", ink=PAPER),
    Fill("#f4d9e8"),
    Fill("#7f3d68", ink=PAPER),
    Fill("#c9e9c9"),
)
# Bars of several runs beside one another.
SERIES = (
    Fill("#0072b2", ink=PAPER),
    Fill("#d55e00", "//", PAPER),
    Fill("#8fc9ec"),
    Fill("#e69f00", ".."),
)


class Stroke(NamedTuple):
    """How a line is drawn. dashes: lengths of strokes and gaps in pixels."""

    color: str
    dashes: str = ""


STROKES = (
    Stroke("#0072b2"),
    Stroke("#d55e00", "7 3"),
    Stroke("#009e73", "7 2 2 2"),
    Stroke("#cc79a7", "2 2"),
    Stroke("#56b4e9", "9 2 2 2 2 2"),
)
# An algorithm looks alike in every lesson. The first word that is found in a name decides.
_ALGORITHMS = {
    "hierarchical": STROKES[2],
    "halving": STROKES[3],
    "tree": STROKES[1],
    "through rank": STROKES[4],
    "ring": STROKES[0],
}


def strokes(names: Iterable[str]) -> dict[str, Stroke]:
    """A stroke for each name: an algorithm's own if it names one, else the next that is free."""
    names = list(names)
    if not 1 <= len(names) <= len(STROKES):
        raise ValueError(f"1 to {len(STROKES)} lines can be told apart, not {len(names)}")
    found: dict[str, Stroke] = {}
    for name in names:
        own = next((stroke for word, stroke in _ALGORITHMS.items() if word in name), None)
        if own is not None and own not in found.values():
            found[name] = own
    free = (stroke for stroke in STROKES if stroke not in found.values())
    return {name: found.get(name) or next(free) for name in names}
