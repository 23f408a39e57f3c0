"""The colours of all pictures, and where they come from.

All are from Okabe and Ito's palette ("Color Universal Design", 2002) or lighter tints of it, made
to be told apart with any colour vision. Parts that touch differ in lightness or in hatching too, so
that they stay apart in grey print: tests compute both, with the simulations of red- and green-blind
vision by Viénot, Brettel & Mollon (1999).

What is quiet on a white page would be loud on a dark one, and the reverse. Such colours are inks by
name, which follow the theme of the page; all others are colours of their own.
"""

from collections.abc import Iterable
from typing import NamedTuple

INK, PAPER = "#000000", "#ffffff"


class Themed(NamedTuple):
    """An ink on a light page and on a dark one. own: the page's, where a picture can ask for it."""

    light: str
    dark: str
    own: str = ""


INKS = {
    "ink": Themed(
        "#1b1b1b",
        "#e8e8e8",
        "var(--jp-content-font-color1,var(--vscode-editor-foreground,CanvasText))",
    ),
    "soft": Themed(
        "#666666",
        "#a8a8a8",
        "var(--jp-content-font-color2,var(--vscode-descriptionForeground,#888))",
    ),
    "line": Themed("#d4d4d4", "#484848", "var(--jp-border-color2,#8884)"),
    "page": Themed("#ffffff", "#161616", "none"),
    "alarm": Themed("#a33b00", "#ff9a6b"),
    "pale": Themed("#dddddd", "#3c3c3c"),  # what is there and does nothing
    "grey": Themed("#bbbbbb", "#8c8c8c"),  # what has no colour of its own
    "green": Themed("#00694d", "#1f9470"),
    "plum": Themed("#5c2a5e", "#a06aa2"),
    "strong": Themed("#084594", "#a5d2f7"),  # the most of an amount
    "reverse": Themed("#ffffff", "#101010"),  # what can be read on it
}


class Fill(NamedTuple):
    """How an area is filled, and the ink that can be read on it.

    color, ink  by name (`INKS`) or a colour of their own
    strength    how much of the colour there is, from 0 to 1; the rest is what lies behind
    """

    color: str
    hatch: str = ""
    ink: str = INK
    strength: float = 1.0


def shade(share: float) -> Fill:
    """From nearly the page (0) to the strongest against it (1), for amounts that are also written.

    More stands out more, on a light page as on a dark one.
    """
    strength = round(0.12 + 0.88 * share, 2)
    return Fill("strong", ink="reverse" if strength > 0.6 else "ink", strength=strength)


# Operations of a schedule, light and dark in turn: a whole backward (B) or its two halves (I, W).
OPERATIONS = {
    "F": Fill("#8fc9ec"),
    "B": Fill("#0072b2", ink=PAPER),
    "I": Fill("#d55e00", ink=PAPER),
    "W": Fill("#fae9a8"),
}
# The same on further chunks of a rank's model: another hue, forward light and backward dark again.
_CHUNKS = (
    {"F": Fill("#c9e9c9"), "B": Fill("green", ink=PAPER)},
    {"F": Fill("#f4d9e8"), "B": Fill("#9c3f75", ink=PAPER)},
    {"F": Fill("#f2d264"), "B": Fill("#7a5c00", ink=PAPER)},
)


def operation(kind: str, number: int = 0) -> Fill:
    """The colour of an operation (F, B, I, W) on the model chunk `number` of its rank."""
    fill = OPERATIONS[kind]
    if not number:
        return fill
    number = min(number, len(_CHUNKS))
    if kind in _CHUNKS[number - 1]:
        return _CHUNKS[number - 1][kind]
    parts = (round(int(fill.color[k : k + 2], 16) * (1 - 0.15 * number)) for k in (1, 3, 5))
    return fill._replace(color="#" + "".join(f"{part:02x}" for part in parts))


IDLE = Fill("pale", ink="ink")  # a rank that could compute and has nothing to
WAITS = Fill("pale", ink="ink")  # a worker or a rank that waits
QUIET = Fill("grey")  # what comes from everywhere, or is told by its name
# What goes over the wires: sent, received, or together with others.
SEND, RECEIVE = Fill("#b2558c", ink=PAPER), Fill("#e69f00")
COLLECTIVE = Fill("green", ink=PAPER)
SEND_FAR, RECEIVE_FAR = Fill("#d55e00", ink=PAPER), Fill("#56b4e9")  # from node to node
# What memory is for, in the order in which bars are stacked.
MEMORY = {
    "parameters": Fill("#0072b2", ink=PAPER),
    "gradients": Fill("#8fc9ec"),
    "optimizer": Fill("#e69f00", "//"),
    "activations": Fill("green", ink=PAPER),
    "communication": Fill("#f4d9e8", ".."),
    "other": Fill("pale", ink="ink"),
}
# Where the time of a step goes.
STEP = {
    "compute": Fill("#0072b2", ink=PAPER),
    "bubble": IDLE,
    "tensor": Fill("#d55e00", ink=PAPER),
    "context": Fill("#8fc9ec"),
    "expert": Fill("plum", ink=PAPER),
    "pipeline": Fill("#f2d264"),
    "data": Fill("green", ink=PAPER),
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
# What is the same looks alike in every lesson. The first word that is found in a name decides.
_SAME = {
    "sequential": STROKES[0],
    "bound 0": STROKES[0],
    "eventual": STROKES[1],
    "no bound": STROKES[1],
    "hierarchical": STROKES[2],
    "halving": STROKES[3],
    "tree": STROKES[1],
    "through rank": STROKES[4],
    "ring": STROKES[0],
}


def strokes(names: Iterable[str]) -> dict[str, Stroke]:
    """A stroke for each name: that of what it names in every lesson, else the next that is free."""
    names = list(names)
    if not 1 <= len(names) <= len(STROKES):
        raise ValueError(f"1 to {len(STROKES)} lines can be told apart, not {len(names)}")
    found: dict[str, Stroke] = {}
    for name in names:
        own = next((stroke for word, stroke in _SAME.items() if word in name), None)
        if own is not None and own not in found.values():
            found[name] = own
    free = (stroke for stroke in STROKES if stroke not in found.values())
    return {name: found.get(name) or next(free) for name in names}
