"""A verdict as a card: expected beside got with the difference marked, and hints that open."""

import difflib
import html
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from course_lib.text import unbroken

from .svg_drawing import WIDEST

_PASSED, _FAILED = "#2da44e", "#d9730d"  # of the edge and the mark, on the page of either theme
_MOST = 4000  # letters of what ranks have printed or reported
_BESIDE = 64  # letters, up to which what is expected and what came stand beside one another
_TOKEN = re.compile(r"[\w.+-]+|\s+|[^\w\s]")
_MONO = "font-family:var(--jp-code-font-family,monospace);font-size:0.92em;white-space:pre-wrap"


@dataclass(frozen=True)
class Card:
    """What there is to say: the exercise, how it went, and the evidence, as far as there is any.

    said: the rest of a sentence that begins with the name. by_rank: what is expected and what came
    on each rank that is wrong, the one that is named among them. report: what became of ranks that
    did not end well. picture: of them, as HTML. hints: from a nudge to what is nearly the answer.
    """

    name: str
    said: str
    passed: bool = True
    rank: int | None = None
    input: str = ""
    expected: str = ""
    got: str = ""
    by_rank: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    likely: str = ""
    report: str = ""
    picture: str = ""
    printed: str = ""
    hints: Sequence[str] = ()


def verdict_card(card: Card) -> str:
    """HTML, without scripts but for the picture's; in words the text form, and more ranks."""
    color = _PASSED if card.passed else _FAILED
    parts = [
        f"<div><b><span style='color:{color}'>{'✓' if card.passed else '✗'}</span> "
        f"{_text(card.name)}:</b> {unbroken(_text(card.said))}</div>"
    ]
    if card.picture:
        parts.append(f"<div style='margin:6px 0'>{card.picture}</div>")
    if card.report:
        parts.append(f"<div style='{_MONO};margin:6px 0'>{_text(card.report[:_MOST])}</div>")
    parts += _grid(2, _rows(("input", _text(card.input))))
    parts += _evidence(card)
    parts += _grid(2, _rows(("printed", _text(card.printed[:_MOST]))))
    parts += [f"<div><b>Likely:</b> {unbroken(_text(card.likely))}</div>"] * bool(card.likely)
    parts += [
        f"<details style='margin-top:4px'><summary style='cursor:pointer'>Hint {level} of "
        f"{len(card.hints)}</summary><div style='{_MONO};margin:4px 0 4px 18px'>"
        f"{_text(textwrap.dedent(hint).strip())}</div></details>"
        for level, hint in enumerate(card.hints, 1)
    ]
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    return (
        f"<div class='course-card' style='border-left:4px solid {color};border-radius:3px;"
        f"background:rgba({red},{green},{blue},0.1);padding:6px 12px;"
        f"max-width:{WIDEST}px;box-sizing:border-box;text-wrap:pretty'>"
        f"{''.join(parts)}</div>"
    )


def _evidence(card: Card) -> list[str]:
    """Expected beside got, rank by rank; what is too long for that stands below one another."""
    ranks = {} if card.rank is None else {card.rank: (card.expected, card.got)}
    ranks = dict(card.by_rank) or ranks
    pairs = list(ranks.values())
    if not all(one and len(one) <= _BESIDE and "\n" not in one for pair in pairs for one in pair):
        ranks = {}
    if not ranks:
        expected, got = marked(card.expected, card.got)
        rank = "" if card.rank is None else str(card.rank)
        return _grid(2, _rows(("rank", rank), ("expected", expected), ("got", got)))
    cells = ["<div></div>", "<div>expected</div>", "<div>got</div>"]
    for number, pair in ranks.items():
        cells.append(f"<div>rank {number}</div>")
        cells += [f"<div style='{_MONO}'>{side}</div>" for side in marked(*pair)]
    return _grid(3, cells)


def _rows(*rows: tuple[str, str]) -> list[str]:
    """A name and a value for each row that has one."""
    return [f"<div>{name}</div><div style='{_MONO}'>{value}</div>" for name, value in rows if value]


def _grid(columns: int, cells: Sequence[str]) -> list[str]:
    """Cells in columns as wide as they need, or nothing."""
    widths = "max-content 1fr" if columns == 2 else "max-content max-content 1fr"
    grid = f"display:grid;grid-template-columns:{widths};gap:2px 18px;margin:6px 0"
    return [f"<div style='{grid}'>{''.join(cells)}</div>"] if cells else []


def marked(expected: str, got: str) -> tuple[str, str]:
    """Both as HTML; what the other does not have is bold and underlined, not of a colour."""
    one, other = _TOKEN.findall(expected), _TOKEN.findall(got)
    sides: tuple[list[str], list[str]] = ([], [])
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        for side, tokens in zip(sides, (one[a:b], other[c:d]), strict=True):
            text = _text("".join(tokens))
            side.append(text if kind == "equal" or not text.strip() else f"<b><u>{text}</u></b>")
    if not expected or not got:
        return _text(expected), _text(got)
    return "".join(sides[0]), "".join(sides[1])


def _text(text: str) -> str:
    return html.escape(text, quote=False)
