"""What every view is: a picture and the same in words, in one output."""

import io

from matplotlib.figure import Figure


class View:
    """A figure for those who see it and a text for everyone else.

    A notebook stores both under one output, so a page on GitHub, a terminal, a screen reader and a
    comparison of outputs each take what they can use.
    """

    def __init__(self, figure: Figure, text: str):
        self.figure = figure
        self.text = text

    def png(self) -> bytes:
        """The picture's bytes, as an Image widget takes them."""
        buffer = io.BytesIO()
        # Without the metadata the same picture has the same bytes on every version.
        self.figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
        return buffer.getvalue()

    def __repr__(self) -> str:
        return self.text

    def _repr_png_(self) -> bytes:
        return self.png()


def said(words: str) -> View:
    """In place of a picture that cannot be drawn: why, its first line in the figure."""
    figure = Figure(figsize=(9, 1.2))
    first = words.split("\n")[0]
    figure.text(0.02, 0.5, first, fontsize=9, wrap=True, va="center")
    return View(figure, words)
