"""What torch warns of, out of the learner's output: kept in a file, a line each, without paths.

A deprecated name would otherwise be told by every rank, on two lines, with a path into
site-packages, in between what the learner printed. Warnings of the learner's own stay where they
are.
"""

import re
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import TextIO

import torch

_TORCH = str(Path(torch.__file__).parent)
# Modules through which a warning comes; the first is that of newer Pythons.
_GIVING = ("_py_warnings", "warnings", "typing_extensions", __name__)
_INTERNAL = re.compile(r"\s*\((function|Triggered internally) .*")
_PATH = re.compile(r"(?<![\w.])/\S*/")


def divert(path: Path) -> None:
    """From now on, what torch warns of in this process goes to `path`."""
    show_as_usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None or not (filename.startswith(_TORCH) or _from_torch(sys._getframe(1))):
            show_as_usual(message, category, filename, lineno, file, line)
            return
        with path.open("a", encoding="utf-8") as lines:
            lines.write(in_one_line(str(message)) + "\n")

    warnings.showwarning = show


def in_one_line(text: str) -> str:
    """`text` without line breaks, paths and what it says of torch's insides."""
    return _PATH.sub("", _INTERNAL.sub("", " ".join(text.split())))


def _from_torch(frame: FrameType | None) -> bool:
    """Whether it was a line of torch that warned, of whatever line it blames."""
    while frame and frame.f_globals.get("__name__") in _GIVING:
        old_name = frame.f_locals.get("arg")  # what `deprecated` was put on
        if str(getattr(old_name, "__module__", "")).startswith("torch"):
            return True
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)
