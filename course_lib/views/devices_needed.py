"""How many devices it takes to hold so many bytes: a box for each, filled one after the other."""

import math
from collections.abc import Mapping

from course_lib.text import counted

from .charts import stack
from .palette import MEMORY
from .svg_drawing import SMALL, WIDTH, Picture
from .units import size_text
from .view import View

Bars = Mapping[str, Mapping[str, float]]  # what is held -> purpose -> bytes
MOST = 64  # devices that can be told apart in a row
_WIDE, _HIGH, _GAP = 64.0, 30.0, 3.0  # pixels of a box at most, and between two
_APART = 10.0  # pixels between the devices of two machines


def devices_needed(bars: Bars, device_bytes: float, machine: int = 8) -> View:
    """A row of devices for each of `bars` (`palette.MEMORY` names the purposes).

    device_bytes  what each device holds
    machine       how many devices a machine has: they stand together
    """
    if not bars:
        raise ValueError("there is nothing to hold")
    if not device_bytes > 0 or machine < 1:
        raise ValueError(
            f"device_bytes = {device_bytes} must be more than 0 and machine = {machine} at least 1"
        )
    for name, parts in bars.items():
        if unknown := set(parts) - set(MEMORY):
            raise ValueError(f"{name}: {sorted(unknown)} are none of {list(MEMORY)}")
        if not 0 < sum(parts.values()) <= MOST * device_bytes:
            raise ValueError(
                f"{name}: the picture holds more than 0 and at most {MOST} devices of "
                f"{size_text(device_bytes)}, not {size_text(sum(parts.values()))}"
            )
    said = {name: _said(parts, device_bytes) for name, parts in bars.items()}
    lines = [_heading(device_bytes), *(f"{name}: {words}" for name, words in said.items())]
    return View(_draw(bars, said, device_bytes, machine), "\n".join(lines))


# ------------------------------------------------------------------------------------------------


def _count(parts: Mapping[str, float], device_bytes: float) -> int:
    return math.ceil(sum(parts.values()) / device_bytes)


def _heading(device_bytes: float) -> str:
    return f"each box is a device of {size_text(device_bytes)}"


def _said(parts: Mapping[str, float], device_bytes: float) -> str:
    """ "700 GB, 9 devices"."""
    count = _count(parts, device_bytes)
    return f"{size_text(sum(parts.values()))}, {counted(count, 'device')}"


def _draw(
    bars: Bars, said: Mapping[str, str], device_bytes: float, machine: int
) -> Picture:  # fmt: skip
    picture = Picture("")
    picture.title = "; ".join(f"{name}: {words}" for name, words in said.items())
    most = max(_count(parts, device_bytes) for parts in bars.values())
    room = WIDTH - 8 - _APART * ((most - 1) // machine)
    wide = min(_WIDE, room / most - _GAP)
    for name, parts in bars.items():
        picture.text(4, picture.height + 8, f"{name}: {said[name]}", bold=True)
        top = picture.height + 20
        for device in range(_count(parts, device_bytes)):
            left = 4 + device * (wide + _GAP) + _APART * (device // machine)
            held = _within(parts, device * device_bytes, device_bytes)
            pixels = wide / device_bytes
            end = stack(picture, held, MEMORY, left, top, _HIGH, pixels, size_text, left + wide)
            free = device_bytes - sum(held.values())
            if left + wide - end > 0.5:
                hint = f"free: {size_text(free)}"
                picture.box(end, top, left + wide - end, _HIGH, "page", hint, key="free")
            corners = [(left, top), (left + wide, top), (left + wide, top + _HIGH),
                       (left, top + _HIGH), (left, top)]  # fmt: skip
            picture.line(corners, "soft", 1)
        picture.height = top + _HIGH + 8
    words = f"{_heading(device_bytes)}; {machine} of them are a machine"
    picture.text(4, picture.height + 6, words, SMALL, ink="soft")
    picture.height += 14
    picture.key(
        {part: MEMORY[part] for part in MEMORY if any(part in bar for bar in bars.values())}
    )
    return picture


def _within(parts: Mapping[str, float], start: float, size: float) -> dict[str, float]:
    """What of the parts, laid end to end, lies in the `size` bytes from `start` on."""
    held, begin = {}, 0.0
    for name, nbytes in parts.items():
        inside = min(begin + nbytes, start + size) - max(begin, start)
        if inside > 0:
            held[name] = inside
        begin += nbytes
    return held
