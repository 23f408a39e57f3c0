"""The colours of all pictures, and where they come from.

All are from Okabe and Ito's palette ("Color Universal Design", 2002) or lighter tints of it, made
to be told apart with any colour vision. Parts that touch differ in lightness or in hatching too, so
that they stay apart in grey print: tests compute both, with the simulations of red- and green-blind
vision by Viénot, Brettel & Mollon (1999).
"""

from typing import NamedTuple

INK, PAPER, QUIET = "#000000", "#ffffff", "#bbbbbb"
ALARM = "#a33b00"  # a limit; darker than the palette's vermilion, so that thin lines are seen


class Fill(NamedTuple):
    """How an area is filled, and the ink that can be read on it."""

    color: str
    hatch: str = ""
    ink: str = INK


# Operations of a schedule, light and dark in turn: a whole backward (B) or its two halves (I, W).
OPERATIONS = {
    "F": Fill("#8fc9ec"),
    "B": Fill("#0072b2", ink=PAPER),
    "I": Fill("#d55e00", ink=PAPER),
    "W": Fill("#fae9a8"),
}
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
SERIES = (Fill("#0072b2"), Fill("#d55e00", "//"), Fill("#8fc9ec"), Fill("#e69f00", ".."))
# Lines: colour and dashes.
LINES = (
    ("#0072b2", "-"),
    ("#d55e00", "--"),
    ("#009e73", "-."),
    ("#cc79a7", ":"),
    ("#56b4e9", (0, (5, 1, 1, 1, 1, 1))),
)
