"""What every view is: a picture and the same in words, in one output."""

import io
import textwrap

from matplotlib.figure import Figure

_LETTERS = 125  # of 9 points, in 9 inches


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
        # Without the metadata the same picture has the same bytes on every version. Areas of one
        # colour are as small after compression at level 3 as at the usual 6, in half the time.
        self.figure.savefig(
            buffer, format="png", dpi=100, metadata={"Software": None},
            pil_kwargs={"compress_level": 3},
        )  # fmt: skip
        return buffer.getvalue()

    def __repr__(self) -> str:
        return self.text

    def _repr_png_(self) -> bytes:
        return self.png()


def said(words: str) -> View:
    """In place of a picture that cannot be drawn: why, its first line in the figure."""
    figure = Figure(figsize=(9, 1.2))
    # By matplotlib's own wrapping, which measures every word, this would take 40 ms.
    first = textwrap.fill(words.split("\n")[0], _LETTERS)
    figure.text(0.02, 0.5, first, fontsize=9, va="center")
    return View(figure, words)
