"""No lesson shows a warning but where its code is wrong on purpose."""

import json
import re
from pathlib import Path

import pytest

# Functions with a silent mistake that a lesson is about.
TAUGHT = {
    "00_ranks": {"floats_into_ints", "three_isends"},
    "02_ring_all_reduce": {"reuse_before_wait"},
}
_WARNING = re.compile(r"^\s*(?:warning|Warning|torch warns): ")
_NOTEBOOKS = sorted(Path(__file__).parents[2].glob("*/[0-9]*.ipynb"))


def warnings_shown(notebook: Path) -> list[str]:
    """The lines of outputs in which a warning begins, each with the line after it."""
    shown = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            texts = [
                output.get("text", ""),
                output.get("data", {}).get("text/plain", ""),
                *output.get("traceback", []),
            ]
            lines = "\n".join("".join(text) for text in texts).splitlines()
            shown += [
                f"{line} {after.strip()}"
                for line, after in zip(lines, [*lines[1:], ""], strict=True)
                if _WARNING.match(line)
            ]
    return shown


@pytest.mark.parametrize("notebook", _NOTEBOOKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_only_what_is_wrong_on_purpose_is_warned_of(notebook: Path) -> None:
    shown = warnings_shown(notebook)
    taught = TAUGHT.get(notebook.stem, set()) if notebook.parent.name == "solutions" else set()
    assert [line for line in shown if not any(f" {name}" in line for name in taught)] == []
    assert {name for name in taught if any(f" {name}" in line for line in shown)} == taught
