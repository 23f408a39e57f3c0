"""The page that `make lab` opens: the lessons, what is passed, and the one next step."""

import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat

from .status import Homed, status
from .status_table import PASSED, Status

NAME = "START.md"
_FOOT = """
Run a cell with Shift+Enter. A check runs your function on real processes and says what is wrong;
`hint(your_function)` helps. Nothing that you do here can break anything: a run that hangs is ended,
with an explanation.

This page is as of the last `make lab`. The table in the first cells of a notebook, and
`python -m course_lib.classroom status`, say it anew.""".splitlines()
_TITLE = re.compile(r"#\s+(.*)")
_TIME = re.compile(r"\*\*It takes\*\*\s+(.*?minutes)")


def write_start_page(root: Path, exercises: Mapping[str, Homed]) -> Path:
    """Write it beside the learner's notebooks, as things stand now; returns where it is."""
    folder = root / "notebooks"
    found = status(folder, exercises)
    if found.next is not None:
        note_python(folder / f"{found.next[0]}.ipynb")
    page = folder / NAME
    page.write_text(start_page(found, folder), encoding="utf-8")
    return page


def start_page(found: Status, folder: Path) -> str:
    """The page as Markdown, in which a link to a notebook opens it in JupyterLab."""
    heads = {lesson: _head(folder / f"{lesson}.ipynb") for lesson in found.lessons}
    lines = [
        "# Train across many devices",
        "",
        f"**{found.passed} of {found.total} exercises passed.** {_next(found, heads)}",
        "",
        "| | lesson | takes | exercises passed |",
        "| --- | --- | --- | --- |",
    ]
    for lesson, steps in found.lessons.items():
        passed = sum(step.state == PASSED for step in steps)
        mark = "✓" if passed == len(steps) else "→" if _is_next(found, lesson) else ""
        title, time = heads[lesson]
        bar = "●" * passed + "○" * (len(steps) - passed)
        lines.append(
            f"| {mark} | [{title}]({lesson}.ipynb) | {time} | {bar} {passed} of {len(steps)} |"
        )
    return "\n".join([*lines, *_FOOT]) + "\n"


def note_python(notebook: Path) -> None:
    """Say in a notebook which Python runs it, as the kernel will: else JupyterLab notes it on
    opening, and the notebook is marked as changed before anybody has touched it.
    """
    try:
        content = nbformat.read(notebook, as_version=4)
    except (OSError, ValueError, json.JSONDecodeError):
        return  # damaged, or being saved: opening it will tell
    if content.metadata.get("language_info") != language():
        content.metadata["language_info"] = language()
        unfinished = notebook.with_suffix(".part")
        nbformat.write(content, unfinished)
        unfinished.replace(notebook)


def language() -> dict:
    """What a kernel of this Python says of its language."""
    return {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": platform.python_version(),
    }


def _head(notebook: Path) -> tuple[str, str]:
    """The title of a lesson, and how long it takes."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "".join(cells[0]["source"])
    title, time = _TITLE.search(text), _TIME.search(text.replace("\n", " "))
    return (title[1] if title else notebook.stem), (time[1] if time else "")


def _next(found: Status, heads: Mapping[str, tuple[str, str]]) -> str:
    if found.next is None:
        return "All of them: well done."
    lesson, step = found.next
    verb = "Begin with" if found.passed == 0 else "Next:"
    return f"{verb} [{heads[lesson][0]}]({lesson}.ipynb), exercise `{step.exercise}`."


def _is_next(found: Status, lesson: str) -> bool:
    return found.next is not None and found.next[0] == lesson
