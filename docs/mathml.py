"""Formulas as MathML Core, which browsers draw themselves: what latex2mathml writes, and mended.

Some of what it writes is of MathML 3, as the width of an arrow that fits its label. And a reader's
machine may have no font with a table for mathematics, which is what lets signs grow: sums and
brackets are given their size.
"""

import re

from latex2mathml.converter import convert

# A label that brings its own room with it, under an arrow that grows with it if a font lets it
_ARROW = re.compile(
    r'<mover><mstyle scriptlevel="0"><mo>&#x2192;</mo></mstyle>'
    r"<mpadded[^>]*>(.*?)<mspace[^>]*/></mpadded></mover>"
)
_WIDE_ARROW = (
    r'<mover><mo stretchy="true">&#x27F6;</mo>'
    r'<mrow><mspace width="0.5em"/>\1<mspace width="0.5em"/></mrow></mover>'
)
_SUM = re.compile(r"<mo>(&#x0?2211;)</mo>")
_FENCE = re.compile(r'<mo stretchy="true" fence="true" form="(prefix|postfix)">([^<]*)</mo>')


def mathml(formula: str, block: bool) -> str:
    """A formula of TeX, in a line or as a `block` of its own."""
    written = convert(formula, display="block" if block else "inline")
    written = _ARROW.sub(_WIDE_ARROW, written)
    if not block:
        return written
    written = _SUM.sub(r'<mo class="sum" largeop="false">\1</mo>', written)
    return _FENCE.sub(_around(written), written)


def _around(written: str) -> str:
    """Brackets of a fixed size: high where they stand around a fraction."""
    size = "tall" if "<mfrac>" in written else "short"
    return rf'<mo class="{size}" stretchy="false" form="\1">\2</mo>'
