"""How wide a report is: JupyterLab shows about a hundred columns and breaks longer lines anywhere.

Sentences are wrapped between words. A line of source is never wrapped, as it would no longer be
the learner's own line: what does not fit is cut off.

A cell's number counts as three digits, so that a report is laid out alike when the same notebook
was run in another order.
"""

import re
import textwrap

WIDTH = 96  # a verdict shows a report indented
# Spaces that do not end a line: of code, "5 float32" and "rank 1".
_KEPT = re.compile(r"`[^`\n]*`|\b\d+ (?=[a-z]+\d)|\b(?:ranks?|line) (?=\d)")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_CELL = re.compile(r"(?<=\bcell \[)\d{1,2}(?=\])")
_FILL = "\N{WORD JOINER}"  # stands for a digit that a cell's number lacks


def wrapped(lead: str, text: str, indent: int | None = None) -> str:
    """`lead` and `text`, with the lines after the first indented as far as the lead is wide.

    Lines that `text` has itself stay apart.
    """
    later = " " * (len(lead) if indent is None else indent)
    text = _KEPT.sub(lambda found: found[0].replace(" ", _NO_BREAK), _filled(text))
    lines = []
    for index, line in enumerate(text.split("\n")):
        first = lead if index == 0 else later
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
    return "\n".join(lines).replace(_NO_BREAK, " ").replace(_FILL, "")


def fitted(text: str) -> str:
    """`text` with the lines wrapped that are too long, such as an exception's message."""
    return "\n".join(
        line if fits(line) else wrapped(line[: -len(line.lstrip())], line.lstrip(), indent=6)
        for line in text.split("\n")
    )


def fits(line: str) -> bool:
    """Whether `line` is narrow enough."""
    return len(_filled(line)) <= WIDTH


def clipped(line: str) -> str:
    """`line`, cut off where it has to be."""
    if fits(line):
        return line
    return _filled(line)[: WIDTH - 2].rstrip().replace(_FILL, "") + " …"


def _filled(text: str) -> str:
    return _CELL.sub(lambda number: number[0].rjust(3, _FILL), text)
