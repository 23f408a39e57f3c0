"""What every view is: a picture and the same in words, in one output.

The picture is an `<img>` of SVG, which every reader of notebooks shows, sharp at every scale and
with its words for who cannot see. Where the page may run scripts, those of `live/` put the same SVG
into the page, so that it takes the theme's colours, answers the pointer and can be played.
"""

import functools
import html
import io
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .svg_drawing import WIDEST, WIDTH, Picture

if TYPE_CHECKING:  # half a second to load, which a page of our own pictures has not
    from matplotlib.figure import Figure

_ENCODED = str.maketrans({c: f"%{ord(c):02X}" for c in "%#\"'<>&\n"})
_LONGEST = 400  # letters instead of a picture


class View:
    """A picture for those who see it and a text for everyone else.

    A notebook stores both under one output, so a page on GitHub, a terminal, a screen reader and a
    comparison of outputs each take what they can use.

    picture  of `svg_drawing`, or a matplotlib figure
    """

    def __init__(self, picture: "Picture | Figure", text: str):
        self.picture = picture
        self.text = text

    def svg(self) -> str:
        """Only the picture, for a file; the same picture has the same bytes everywhere."""
        return self.picture.svg() if isinstance(self.picture, Picture) else _traced(self.picture)

    def html(self) -> str:
        """The picture for a page."""
        svg = self.svg()
        wide, high = map(int, re.findall(r"<svg[^>]*? width='(\d+)' height='(\d+)'", svg)[0])
        title, most = "", f"{wide}px"
        if isinstance(self.picture, Picture):
            # Grown, it still fits into the window with the controls above it
            title = self.picture.title
            most = f"max({wide}px,min({WIDEST}px,{80 * wide / high:.0f}vh))"
        words = html.escape(f"{title}\n{self.text}".strip()[:_LONGEST], quote=True)
        return (
            f'<img class="course-view" alt="{words}" width="{wide}" '
            f'style="width:100%;max-width:{most};height:auto" '
            f'src="data:image/svg+xml;charset=utf-8,{svg.translate(_ENCODED)}">'
            f"<script>{_live(*_needed(svg))}</script>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html()}

    def __repr__(self) -> str:
        return self.text


def said(words: str) -> View:
    """In place of a picture that cannot be drawn: why."""
    picture = Picture("")
    picture.title = words.split("\n")[0]
    picture.height = picture.paragraph(8, 20, picture.title, WIDTH - 16) + 8
    return View(picture, words)


def _needed(svg: str) -> list[str]:
    """The scripts of a picture, in order: those that it has no use for would only take room."""
    if "class='frame'" in svg:
        return ["page", "player", "frames"]
    return ["page", "player", "timeline"] if "class='play'" in svg else ["page"]


@functools.cache
def _live(*names: str) -> str:
    """The scripts without comments and indentation: every output holds a copy of its own."""
    folder = files(__package__) / "live"
    texts = ((folder / f"{name}.js").read_text(encoding="utf-8") for name in names)
    lines = map(str.strip, "\n".join(texts).splitlines())
    return "\n".join(["(() => {", *(line for line in lines if line and line[:2] != "//"), "})();"])


def _traced(figure: "Figure") -> str:
    """A matplotlib figure at its natural size, without the date and with ids that stay."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "course", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    inches = figure.get_size_inches()
    wide, high = (round(96 * side) for side in inches)
    box = " ".join(f"{72 * side:g}" for side in (0, 0, *inches))
    inside = svg[svg.index(">", svg.index("<svg")) + 1 :]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' "
        f"role='img' width='{wide}' height='{high}' viewBox='{box}' "
        f"style='max-width:100%;height:auto'>{inside}"
    )
