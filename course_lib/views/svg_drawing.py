"""A picture as SVG: boxes, lines and words, in pixels from the top left corner.

Drawn by a few lines of our own, so that a box can say what it is when the pointer rests on it, the
same arguments give the same bytes on every machine, and inks follow the theme of the page.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal
from xml.sax.saxutils import escape

from .palette import INK, INKS, Fill, Themed

WIDTH = 840  # pixels: every picture has it, so that nothing jumps from one to the next
WIDEST = 1120  # pixels to which a picture grows where a page has room: words as large as prose
SIZE, SMALL = 12.0, 11.0  # pixels, of letters

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark")  # pages that say that they are


@functools.cache
def _style() -> str:
    """The inks by theme, and what holds for every picture.

    An image has a page of its own, dark where the page around it says so; in a page that can be
    read (`live/page.js`) the theme's own inks hold, or those of the browser where there is none.
    """

    def inks(of: Callable[[Themed], str]) -> str:
        return ";".join(f"--{name}:{of(ink)}" for name, ink in INKS.items() if of(ink))

    shown = inks(lambda ink: ink.own or f"light-dark({ink.light},{ink.dark})")
    dark = inks(lambda ink: "" if ink.own else ink.dark)
    return (
        f".cv{{{inks(lambda ink: ink.light)};"
        "font:12px system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
        f"@media(prefers-color-scheme:dark){{.cv:not(.live){{{inks(lambda ink: ink.dark)}}}}}"
        f".cv.live{{{shown};display:block;width:100%;height:auto}}"
        f"{','.join(f'{page} .cv.live' for page in _DARK)}{{{dark}}}"
        ".cv text{fill:var(--ink)}.cv .b:hover rect{stroke:var(--ink);stroke-width:1.5}"
    )


# Advance widths of DejaVu Sans in hundredths of its size, from the space to the tilde. It is wider
# than what browsers take, so that what fits by this table fits.
_WIDTHS = (
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
    60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
    63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84,
)  # fmt: skip


def width(words: str, size: float = SIZE, bold: bool = False) -> float:
    """Pixels that words take at most."""
    hundredths = sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else 70 for c in words)
    return hundredths * size / 100 * (1.15 if bold else 1.0)


def wrapped(words: str, room: float, size: float = SIZE, bold: bool = False) -> list[str]:
    """Words in lines that take at most `room` pixels each."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size, bold) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


class Picture:
    """SVG in the making, `WIDTH` wide, with a title above that also names it for who cannot see."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []
        self._patterns: dict[str, str] = {}
        self._codes: list[str] = []
        self.height = 8.0
        for line in wrapped(title, WIDTH - 8, bold=True) if title else ():
            self.text(4, self.height + 8, line, bold=True)
            self.height += 18

    # --------------------------------------------------------------------------------------------
    # Shapes
    # --------------------------------------------------------------------------------------------

    def box(
        self, x: float, y: float, wide: float, high: float, fill: Fill | str,
        hint: str = "", word: str = "", size: float = SMALL, key: str = "",
        later: str = "", line: str = "",
    ) -> None:  # fmt: skip
        """A rectangle. hint: told by the pointer; word: written in its middle; key: what it is.

        later: a word for which there is room only where the picture is enlarged
        line: of which code it comes, as `code` numbers it, and the line there: "0:17"
        """
        fill = Fill(fill) if isinstance(fill, str) else fill
        place = f"x='{_n(x)}' y='{_n(y)}' width='{_n(wide)}' height='{_n(high)}'"
        inside = f"<title>{escape(hint)}</title>" if hint else ""
        inside += f"<rect {place} {_filled(fill)}/>"
        if fill.hatch:
            inside += f"<rect {place} fill='url(#{self._pattern(fill)})'/>"
        if word:
            inside += _text(x + wide / 2, y + high / 2, word, size, "middle", False, fill.ink)
        more = _data(key)
        if later:
            more += _data(later, "word") + (_data(_css(fill.ink), "ink") if fill.ink != INK else "")
        self._parts.append(f"<g class='b'{more}{_data(line, 'line')}>{inside}</g>")

    def cells(
        self, x: Sequence[float], y: float, wide: float, high: float, fill: Fill,
        hint: str = "", key: str = "",
    ) -> None:  # fmt: skip
        """Equal rectangles beside one another, which begin at each `x`; one shape for all."""
        if x:
            size = f"h{_n(wide)}v{_n(high)}h-{_n(wide)}z"
            path = "".join(f"M{_n(left)},{_n(y)}{size}" for left in x)
            told = f"<title>{escape(hint)}</title>" if hint else ""
            self._parts.append(f"<path d='{path}' {_filled(fill)}{_data(key)}>{told}</path>")

    def steps(
        self, x: Sequence[float], low: Sequence[float], high: Sequence[float], fill: Fill,
        key: str = "", hint: str = "",
    ) -> None:  # fmt: skip
        """An area between `low` and `high`, which hold from each x to the next; x has one more."""
        path = f"M{_tenths(x[0])},{_tenths(low[0])}"
        path += "".join(f"V{_tenths(y)}H{_tenths(to)}" for y, to in zip(high, x[1:], strict=True))
        back = zip(reversed(low), reversed(x[:-1]), strict=True)
        path += "".join(f"V{_tenths(y)}H{_tenths(to)}" for y, to in back) + "Z"
        told = f"<title>{escape(hint)}</title>" if hint else ""
        self._parts.append(f"<path d='{path}' {_filled(fill)}{_data(key)}>{told}</path>")
        if fill.hatch:
            self._parts.append(f"<path d='{path}' fill='url(#{self._pattern(fill)})'/>")

    def line(
        self, points: Sequence[Point], color: str = "ink", thick: float = 1.0, dashes: str = "",
        key: str = "", hint: str = "",
    ) -> None:  # fmt: skip
        """A line from point to point. dashes: lengths, as in "4 2"."""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        broken = f" stroke-dasharray='{dashes}'" if dashes else ""
        self._parts.append(
            f"<polyline points='{path}' fill='none' {_paint('stroke', color)} "
            f"stroke-width='{_n(thick)}'{broken}{_data(key)}>"
            f"{f'<title>{escape(hint)}</title>' if hint else ''}</polyline>"
        )

    def shape(self, points: Sequence[Point], fill: Fill, hint: str = "") -> None:
        """An area with these corners."""
        corners = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        told = f"<title>{escape(hint)}</title>" if hint else ""
        self._parts.append(f"<polygon points='{corners}' {_filled(fill)}>{told}</polygon>")

    def message(self, start: Point, end: Point, color: str, hint: str = "", word: str = "") -> None:
        """A thin line, along which a dot, or a block with a word, flies when it is played."""
        (a, b), (c, d) = start, end
        self._parts.append(
            f"<line class='m' x1='{_n(a)}' y1='{_n(b)}' x2='{_n(c)}' y2='{_n(d)}' "
            f"stroke='{color}' stroke-width='2'{_data(word, 'word')}>"
            f"{f'<title>{escape(hint)}</title>' if hint else ''}</line>"
        )

    def arrow(
        self, start: Point, end: Point, color: str = "ink", thick: float = 1.5, hint: str = ""
    ) -> None:
        """A line with a head at its end."""
        turn = math.atan2(end[1] - start[1], end[0] - start[0])
        reach = 4 + 2.5 * thick
        corners = [end] + [
            (end[0] - reach * math.cos(turn + side), end[1] - reach * math.sin(turn + side))
            for side in (-0.42, 0.42)
        ]
        neck = (end[0] - 0.8 * reach * math.cos(turn), end[1] - 0.8 * reach * math.sin(turn))
        self.line([start, neck], color, thick, hint=hint)
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in corners)
        self._parts.append(f"<polygon points='{points}' {_paint('fill', color)}/>")

    def dot(self, x: float, y: float, radius: float, color: str, hint: str = "") -> None:
        """A filled circle."""
        self._parts.append(
            f"<circle class='b' cx='{_n(x)}' cy='{_n(y)}' r='{_n(radius)}' "
            f"{_paint('fill', color)}>{f'<title>{escape(hint)}</title>' if hint else ''}</circle>"
        )

    def text(
        self, x: float, y: float, words: str, size: float = SIZE, anchor: Anchor = "start",
        bold: bool = False, ink: str = "", turned: bool = False,
    ) -> None:  # fmt: skip
        """Words, whose middle height is at y. turned: read from below, about the same point."""
        if words:
            self._parts.append(_text(x, y, words, size, anchor, bold, ink, turned))

    def paragraph(self, x: float, y: float, words: str, room: float, size: float = SIZE) -> float:
        """Words in lines; returns where the next line would stand."""
        for line in wrapped(words, room, size):
            self.text(x, y, line, size)
            y += 1.4 * size
        return y

    # --------------------------------------------------------------------------------------------
    # Groups
    # --------------------------------------------------------------------------------------------

    def key(self, fills: Mapping[str, Fill], x: float = 4.0, right: float = WIDTH) -> None:
        """What fills mean, in lines at the bottom, which grows by them, from `x` to `right`."""
        left, self.height = x, self.height + 12
        for name, fill in fills.items():
            wide = 22 + width(name, SMALL) + 16
            if left > x and left + wide > right:
                left, self.height = x, self.height + 18
            self.box(left, self.height - 5, 16, 10, fill, key="key")
            self.text(left + 22, self.height, name, SMALL)
            left += wide
        self.height += 12

    def player(self, left: float, right: float, top: float, bottom: float, end: str) -> None:
        """Let the picture be played from left to right, where scripts run. end: how long it is."""
        self._parts.append(
            f"<g class='play' data-left='{_n(left)}' data-right='{_n(right)}' "
            f"data-top='{_n(top)}' data-bottom='{_n(bottom)}' data-end='{escape(end)}'/>"
        )

    def code(self, name: str, first: int, text: str) -> int:
        """Keep lines of code, from line `first` on, to show beside a box; returns their number."""
        self._codes.append(
            f"<metadata data-name={_quoted(name)} data-first='{first}'>{escape(text)}</metadata>"
        )
        return len(self._codes) - 1

    @contextmanager
    def group(self, kind: Literal["still", "frame", "marks"], name: str = "") -> Iterator[None]:
        """What is drawn inside: the "still" picture, one of the frames that replace it live, or
        the marks of a scale, which others replace where a part of it is enlarged."""
        hidden = " style='display:none'" if kind == "frame" else ""
        self._parts.append(f"<g class='{kind}'{hidden}{_data(name, 'name')}>")
        yield
        self._parts.append("</g>")

    def at_least(self, height: float) -> None:
        """Leave room below, so that the page does not jump from picture to picture."""
        self.height = max(self.height, height)

    def svg(self) -> str:
        """The whole of it."""
        defs = "".join(self._patterns.values())
        high = _n(math.ceil(self.height))
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' class='cv' role='img' "
            f"aria-label={_quoted(self.title)} width='{WIDTH}' height='{high}' "
            f"viewBox='0 0 {WIDTH} {high}'><style>{_style()}</style>"
            f"{f'<defs>{defs}</defs>' if defs else ''}"
            f"<rect width='{WIDTH}' height='{high}' rx='4' style='fill:var(--page)'/>"
            f"{''.join(self._parts)}{''.join(self._codes)}</svg>"
        )

    def _pattern(self, fill: Fill) -> str:
        """A hatch to lay over a colour: in grey print two of like lightness stay apart."""
        name = {"//": "cv-lines", "..": "cv-dots"}[fill.hatch]
        inside = {
            "//": "<path d='M-1,1l2,-2M0,6l6,-6M5,7l2,-2' stroke='#000' stroke-width='.8'/>",
            "..": "<circle cx='1.5' cy='1.5' r='.8'/><circle cx='4.5' cy='4.5' r='.8'/>",
        }[fill.hatch]
        self._patterns[name] = (
            f"<pattern id='{name}' width='6' height='6' patternUnits='userSpaceOnUse' "
            f"opacity='.6'>{inside}</pattern>"
        )
        return name


def _text(
    x: float, y: float, words: str, size: float, anchor: str, bold: bool, ink: str,
    turned: bool = False,
) -> str:  # fmt: skip
    style = "" if anchor == "start" else f" text-anchor='{anchor}'"
    style += "" if size == SIZE else f" font-size='{_n(size)}'"
    style += " font-weight='bold'" if bold else ""
    style += f" style='fill:{_css(ink)}'" if ink else ""
    style += f" transform='rotate(-90 {_n(x)} {_n(y)})'" if turned else ""
    return f"<text x='{_n(x)}' y='{_n(y + 0.36 * size)}'{style}>{escape(words)}</text>"


def _filled(fill: Fill) -> str:
    thin = f" fill-opacity='{_n(fill.strength)}'" if fill.strength < 1 else ""
    return f"{_paint('fill', fill.color)}{thin}"


def _paint(what: str, color: str) -> str:
    return f"style='{what}:{_css(color)}'" if color in INKS else f"{what}='{color}'"


def _css(color: str) -> str:
    return f"var(--{color})" if color in INKS else color


def _data(value: str, name: str = "key") -> str:
    return f" data-{name}={_quoted(value)}" if value else ""


def _quoted(text: str) -> str:
    return f"'{escape(text, {chr(39): '&#39;'})}'"


def _tenths(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _n(number: float) -> str:
    """Hundredths of a pixel are exact enough, and the same on every machine."""
    return f"{round(number, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
