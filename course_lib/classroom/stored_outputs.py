"""Outputs fit to be stored: the same on every machine, readable without a kernel.

What differs from run to run is taken away where nobody compares it. Where nbval compares, nothing
may be rewritten, or the next run would differ: there the author has to mend the cell, and is told.
"""

import re
import sys
from pathlib import Path

from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_HOME = re.compile(r"(?:/home/|/Users/|/root/|/tmp/|/var/folders/|[A-Z]:\\Users\\)\S*")


def normalise(notebook: NotebookNode) -> None:
    """Drop times, process output in pieces, widget models and places on this machine, in place."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.metadata.pop("execution", None)
        cell.outputs = _joined(cell.outputs)
        for output in cell.outputs:
            # Their models live in a kernel: a reader without one would see an error.
            output.get("data", {}).pop(WIDGET, None)
            if "traceback" in output:
                output.traceback = [_without_places(line) for line in output.traceback]


def complaints(cell: NotebookNode) -> list[str]:
    """What is wrong with an executed cell: outputs that would differ elsewhere, a missing error."""
    found = []
    raises = any(output.output_type == "error" for output in cell.outputs)
    if "raises-exception" in cell.metadata.get("tags", ()) and not raises:
        found.append("is there to raise an exception, and did not")
    for output in cell.outputs:
        if output.get("name") == "stderr":
            found.append(f"writes to stderr: {_first_line(output.text)}")
        for text in _texts(output):
            for pattern, what in ((_ADDRESS, "an address"), (_HOME, "a place on this machine")):
                if match := pattern.search(text):
                    found.append(f"shows {what}: {match.group()[:60]}")
    return found


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """One piece for each stream, in the order of their beginnings, as nbval compares them."""
    joined: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type == "stream" and output.name in streams:
            streams[output.name].text += output.text
            continue
        if output.output_type == "stream":
            streams[output.name] = output
        joined.append(output)
    return joined


def _texts(output: NotebookNode) -> list[str]:
    pieces = [output.get("text", ""), output.get("evalue", ""), *output.get("traceback", ())]
    pieces += [
        v for k, v in output.get("data", {}).items() if isinstance(v, str) and "image" not in k
    ]
    return pieces


def _without_places(text: str) -> str:
    project = Path(__file__).resolve().parents[2]
    for place, name in ((sys.prefix, "python"), (sys.base_prefix, "python"), (str(project), ".")):
        text = text.replace(place, name)
    return text


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:100]
