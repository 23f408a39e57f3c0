"""A verdict as a card: expected beside got with the difference marked, and hints that open."""

import difflib
import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_PASSED, _FAILED = "#2da44e", "#d9730d"  # of the edge and the mark, on the page of either theme
_MOST = 4000  # letters of what ranks have printed or reported
_TOKEN = re.compile(r"[\w.+-]+|\s+|[^\w\s]")
_MONO = "font-family:var(--jp-code-font-family,monospace);font-size:0.92em;white-space:pre-wrap"


@dataclass(frozen=True)
class Card:
    """What there is to say: the exercise, how it went, and the evidence, as far as there is any.

    said: the rest of a sentence that begins with the name. report: what became of ranks that did
    not end well. hints: from a nudge to what is nearly the answer.
    """

    name: str
    said: str
    passed: bool = True
    rank: int | None = None
    input: str = ""
    expected: str = ""
    got: str = ""
    likely: str = ""
    report: str = ""
    printed: str = ""
    hints: Sequence[str] = ()


def verdict_card(card: Card) -> str:
    """HTML without scripts; its words are those of the text form, in the same order."""
    color = _PASSED if card.passed else _FAILED
    parts = [
        f"<div><b><span style='color:{color}'>{'✓' if card.passed else '✗'}</span> "
        f"{_text(card.name)}:</b> {_text(card.said)}</div>"
    ]
    if card.report:
        parts.append(f"<div style='{_MONO};margin:6px 0'>{_text(card.report[:_MOST])}</div>")
    expected, got = marked(card.expected, card.got)
    rows = [
        ("rank", "" if card.rank is None else str(card.rank)),
        ("input", _text(card.input)),
        ("expected", expected),
        ("got", got),
        ("printed", _text(card.printed[:_MOST])),
    ]
    cells = "".join(
        f"<div>{name}</div><div style='{_MONO}'>{value}</div>" for name, value in rows if value
    )
    grid = "display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:6px 0"
    parts += [f"<div style='{grid}'>{cells}</div>"] * bool(cells)
    parts += [f"<div><b>Likely:</b> {_text(card.likely)}</div>"] * bool(card.likely)
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
        f"max-width:840px;box-sizing:border-box'>"
        f"{''.join(parts)}</div>"
    )


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
