"""Whose line is it: the learner's frames among those of torch, Python and the course."""

import functools
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from torch.distributed import distributed_c10d

from .events import Frame

DEEPEST = 6  # frames kept of each line

_COURSE = Path(__file__).resolve().parents[1]
_TECHNIQUES = str(_COURSE / "techniques")
_OBSERVE = str(_COURSE / "observe")
_TORCH = str(Path(torch.__file__).parent)
_C10D = distributed_c10d.__file__
# What torch puts between an operator and whoever looks at it.
_BETWEEN = tuple(str(Path(_TORCH, part)) for part in ("_compile.py", "_dynamo", "_ops.py"))
_WAITING = {"send", "recv"}  # dist.send is dist.isend and a wait


@dataclass(slots=True)
class Stack:
    """The call stack above a communication.

    where: the learner's frames, innermost first.
    native: no Python code holds the handle: C++ code issued it, for itself.
    blocking: it was dist.send or dist.recv that issued it, which wait before they return.
    """

    where: tuple[Frame, ...]
    native: bool
    blocking: bool


def look(frame: FrameType | None) -> Stack:
    """The stack from `frame` outwards."""
    while frame and _kind(frame.f_code.co_filename) == "between":
        frame = frame.f_back
    if frame is None:  # a thread of autograd
        return Stack((), native=True, blocking=False)
    kind, blocking = _kind(frame.f_code.co_filename), False
    if kind == "c10d":
        while frame and _kind(frame.f_code.co_filename) == "c10d":
            blocking |= frame.f_code.co_name in _WAITING
            frame = frame.f_back
    return Stack(learners(frame), kind == "torch", blocking)


def learners(frame: FrameType | None) -> tuple[Frame, ...]:
    """The learner's frames from `frame` outwards."""
    found: list[Frame] = []
    while frame and len(found) < DEEPEST:
        code = frame.f_code
        if _kind(code.co_filename) == "learner":
            found.append(_frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found)


_frame = functools.lru_cache(maxsize=4096)(Frame)  # a loop comes by the same lines again


def is_learners(file: str) -> bool:
    """Whether lines of `file` are the learner's: a cell, a script, a technique of the course."""
    return _kind(file) == "learner"


def in_techniques(frame: Frame) -> bool:
    """Whether it is a line of the course's own techniques."""
    return frame.file.startswith(_TECHNIQUES)


@functools.lru_cache(maxsize=4096)
def _kind(file: str) -> str:
    if file.startswith(_TECHNIQUES):
        return "learner"
    if file == _C10D:
        return "c10d"
    if file.startswith((_OBSERVE, *_BETWEEN)):
        return "between"
    if file.startswith(_TORCH):
        return "torch"
    if file.startswith("<frozen") or file in ("<string>", "<dynamic-code>"):
        return "library"
    return "library" if file.startswith(_libraries()) else "learner"


@functools.cache
def _libraries() -> tuple[str, ...]:
    stdlib = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")]
    packages = [*site.getsitepackages(), site.getusersitepackages()]
    packages += [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return tuple(str(Path(folder)) + "/" for folder in [str(_COURSE), *stdlib, *packages])
