"""The code behind what was recorded: the function around a line, for the picture to show."""

import linecache
import re
from collections.abc import Sequence

from course_lib.observe import Frame

from .svg_drawing import Picture

_WHOLE, _NEAR = 40, 8  # lines of a function that is kept whole, else so many around the one


def source_line(frame: Frame) -> str:
    """The line as it is written; empty where its file is not at hand."""
    return linecache.getline(frame.file, frame.line).strip()


class SourceLines:
    """Where the lines of recorded operations stand, each function kept in the picture once."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._kept: dict[tuple[str, int, int], int] = {}
        self._places: dict[Frame, str] = {}

    def place(self, where: Sequence[Frame]) -> str:
        """The innermost of these lines as `Picture.box` takes it; empty where it is not known."""
        if not where:
            return ""
        if where[0] not in self._places:
            self._places[where[0]] = self._find(where[0])
        return self._places[where[0]]

    def _find(self, frame: Frame) -> str:
        if not source_line(frame):
            return ""
        lines = linecache.getlines(frame.file)
        first, after = function_around(lines, frame.line - 1, frame.function)
        key = (frame.file, first, after)
        if key not in self._kept:
            text = "".join(lines[first:after]).rstrip()
            self._kept[key] = self._picture.code(frame.function, first + 1, text)
        return f"{self._kept[key]}:{frame.line}"


def function_around(lines: Sequence[str], index: int, name: str) -> tuple[int, int]:
    """(first, one behind the last) of the lines of the function `name` around lines[index].

    Of a long one, and of code outside of functions, only what is near.
    """
    head = re.compile(rf"\s*(async )?def {re.escape(name)}\b")
    first = next((k for k in range(index, -1, -1) if head.match(lines[k])), None)
    if first is None:
        return max(0, index - 3), min(len(lines), index + 4)
    after = first + 1
    while after < len(lines) and _inside(lines[after], _indent(lines[first])):
        after += 1
    while not lines[after - 1].strip():
        after -= 1
    if after - first > _WHOLE:
        return max(first, index - _NEAR), min(after, index + _NEAR + 1)
    return first, after


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _inside(line: str, indent: int) -> bool:
    """Whether a line belongs to the function whose `def` is so far in; `)` may close its head."""
    return not line.strip() or _indent(line) > indent or line.lstrip().startswith(")")
