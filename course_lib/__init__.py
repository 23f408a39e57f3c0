"""Training neural networks across many devices, on real ranks.

`import course_lib` imports nothing heavy: the names below load their rooms when first used, so
that `python -m course_lib.doctor` can say what is missing on a machine that has no torch yet.
"""

from __future__ import annotations  # the doctor has to get past this file on an old Python

from importlib import import_module
from typing import Any

_HOMES = {
    "run_ranks": "course_lib.ranks",
    "RankError": "course_lib.ranks",
    "RankTimeout": "course_lib.ranks",
    "check": "course_lib.checks",
    "hint": "course_lib.checks",
    "guessed": "course_lib.checks",
    "solved": "course_lib.checks",
    "whose": "course_lib.checks",
    "yours_or": "course_lib.checks",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    if import_module("course_lib.rich_display").in_a_notebook():
        import_module("course_lib.notebook_display").bind()
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext course_lib` brings the `%%ranks` cell magic."""
    import_module("course_lib.ranks.magic").register(ipython)
