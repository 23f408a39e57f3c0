"""How wide a report is: JupyterLab shows about a hundred columns and breaks longer lines anywhere.

Sentences are wrapped between words. A line of source is never wrapped, as it would no longer be
the learner's own line: what does not fit is cut off.
"""

import re
import textwrap

WIDTH = 96  # a verdict shows a report indented
# Spaces that do not end a line: of code, "5 float32" and "rank 1".
_KEPT = re.compile(r"`[^`\n]*`|\b\d+ (?=[a-z]+\d)|\b(?:ranks?|line) (?=\d)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def wrapped(lead: str, text: str, indent: int | None = None) -> str:
    """`lead` and `text`, with the lines after the first indented as far as the lead is wide.

    Lines that `text` has itself stay apart.
    """
    later = " " * (len(lead) if indent is None else indent)
    text = _KEPT.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = []
    for place, line in enumerate(text.split("\n")):
        first = lead if place == 0 else later
        if len(first + line) <= WIDTH:
            lines.append(first + line)
        else:
            lines += textwrap.wrap(
                line,
                WIDTH,
                initial_indent=first,
                subsequent_indent=later,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines).replace(_NO_BREAK, " ")


def fitted(text: str) -> str:
    """`text` with the lines wrapped that are too long, such as an exception's message."""
    return "\n".join(
        line
        if len(line) <= WIDTH
        else wrapped(line[: -len(line.lstrip())], line.lstrip(), indent=6)
        for line in text.split("\n")
    )


def clipped(source: str, room: int) -> str:
    """`source`, cut to `room` columns if it has more."""
    return source if len(source) <= room else source[: room - 2].rstrip() + " …"
