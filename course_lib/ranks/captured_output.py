"""What the ranks printed: read back, cleaned of native noise, shown rank by rank."""

import contextlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from .report_width import clipped

# What gloo and c10d log on their own account; it says nothing about the learner's program, and
# carries times and addresses.
_NOISE = re.compile(
    r"^(\[Gloo\] Rank \d+ is connected to"
    r"|(\[rank\d+\]:)?\[[WIE]\d{3,4} [\d:.]+ .*(socket|TCPStore|ProcessGroup|Utils)\.[ch]pp"
    r"|terminate called|  what\(\):  "
    r").*\n?",
    re.M,
)
_LONGEST = 100_000  # characters of a rank's output that are kept
# Lines of a rank's output that are shown, at its beginning and at its end: a notebook with more is
# slow to scroll and to save.
_HEAD, _TAIL = 500, 100


def read_output(path: Path) -> str:
    """A rank's text. The middle of an endless one is cut, and the cut says so."""
    try:
        with path.open("rb") as file:
            head = file.read(_LONGEST)
            size = path.stat().st_size
            tail = b""
            if size > _LONGEST:
                file.seek(max(_LONGEST, size - _LONGEST // 10))
                tail = file.read()
    except OSError:
        return ""
    text = head.decode("utf-8", "replace")
    if tail:
        cut = size - len(head) - len(tail)
        text += f"\n... {cut} bytes are left out here ...\n" + tail.decode("utf-8", "replace")
    return _NOISE.sub("", text)


def torch_says(paths: Iterable[Path]) -> list[str]:
    """What torch warned of on these ranks, once and in one line each, without its own paths."""
    found: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError):
            found += path.read_text("utf-8", "replace").splitlines()
    return [clipped(f"torch warns: {line}") for line in dict.fromkeys(found)]


def show(output: dict[int, str], remarks: Iterable[str] = ()) -> None:
    """Print every line with its rank in front, all of rank 0 first, then the remarks."""
    lines = [
        f"[rank {rank}] {line}" for rank in sorted(output) for line in _shortened(output[rank])
    ]
    lines += remarks
    if lines:
        # One write: a kernel sends each write as a message of its own.
        sys.stdout.write("\n".join(lines) + "\n")


def _shortened(text: str) -> list[str]:
    lines = text.splitlines()
    more = len(lines) - _HEAD - _TAIL
    if more <= 1:
        return lines
    return [*lines[:_HEAD], f"... {more} lines are not shown here ...", *lines[-_TAIL:]]
