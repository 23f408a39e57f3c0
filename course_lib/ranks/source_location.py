"""From a frame to what a learner recognises: "cell [7], line 4" and the text of that line."""

import linecache
import os
import re
import sys

from course_lib.observe import Frame
from course_lib.observe.frames import is_learners


def learners_frames(frames: list[Frame]) -> tuple[Frame, ...]:
    """The frames to show, innermost first."""
    return tuple(frame for frame in frames if is_learners(frame.file))


def location_of(frame: Frame) -> str:
    """ "cell [7], line 4", or "ring.py, line 12" for a file."""
    cell = _cell_number(frame.file)
    if cell is not None:
        return f"cell [{cell}], line {frame.line}"
    return f"{os.path.basename(frame.file)}, line {frame.line}"


def text_of(frame: Frame) -> str:
    """The source line without its indentation; "" where it cannot be had."""
    return linecache.getline(frame.file, frame.line).strip()


def _cell_number(file: str) -> int | None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return numbers.get(file)


_DUMP_LINE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.M)


def read_dump(text: str) -> list[Frame]:
    """The frames of the last stack that faulthandler wrote, innermost first."""
    start = max(text.rfind("Stack (most recent call first)"), text.rfind("most recent call first"))
    found = _DUMP_LINE.finditer(text, max(start, 0))
    return [Frame(m["file"], int(m["line"]), m["function"]) for m in found]
