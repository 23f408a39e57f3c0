"""What the README shows of the measurements, written between its markers, and the numbers."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.bench._figure import draw
from tests.bench._runs import Compared, Run, as_json, machine, side_by_side
from tests.bench.row import Measurement, Row

ROOT = Path(__file__).resolve().parents[2]
FIGURE, NUMBERS = Path("tests/bench/results.png"), Path("tests/bench/results.json")
_BLOCK = re.compile(r"(<!-- bench -->\n).*?(<!-- end of bench -->)", re.DOTALL)


def publish(rows: Sequence[Row], runs: Sequence[Run], root: Path = ROOT) -> None:
    """Replace the README's tables, draw the figure, and keep all numbers beside it."""
    readme = root / "README.md"
    text, count = _BLOCK.subn(
        lambda block: block[1] + _text(rows, runs) + block[2], readme.read_text(encoding="utf-8")
    )
    if count != 1:
        raise ValueError(f"README.md has {count} places for the table of the benchmark, not 1")
    named = [(f"{r.name}: {c.what}", c) for r in rows for c in side_by_side(r, runs)]
    draw(named).savefig(root / FIGURE, dpi=100, metadata={"Software": None})
    (root / NUMBERS).write_text(as_json(rows, runs), encoding="utf-8")
    readme.write_text(text, encoding="utf-8")


def _text(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    compared = {row.title: side_by_side(row, runs) for row in rows}
    compared = {title: of_row for title, of_row in compared.items() if of_row}
    parts = [
        _table(compared, len(runs)),
        f"Measured on {machine()}; quartiles of all runs together. [All numbers]({NUMBERS}).",
        _floors(compared),
        f"![Each ratio with its quartiles and its limit]({FIGURE})",
        _growth(rows, runs[0]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(compared: dict[str, list[Compared]], runs: int) -> str:
    numbered = [f"run {number + 1}" for number in range(runs)]
    lines = [
        _cells("what is compared", *numbered, "quartiles", "at most"),
        _cells(*["---"] * (runs + 3)),
    ]
    for title, of_row in compared.items():
        lines.append(_cells(f"**{title}**", *[""] * (runs + 2)))
        for c in of_row:
            medians = [f"{m.median:.2f}{'' if m.met else ' (missed)'}" for m in c.runs]
            limit = f"{c.limit:.2f}" if c.limit else ""
            lines.append(_cells(c.what, *medians, _quartiles(c.pooled), limit))
    return "\n".join(lines)


def _floors(compared: dict[str, list[Compared]]) -> str:
    """Of rows that missed: what only the parts that cannot be left out take."""
    lines = [
        f"- {title}, {c.what}: {c.floor.median:.2f} ({_quartiles(c.floor)}) for {c.floor.what}"
        for title, of_row in compared.items()
        for c in of_row
        if c.floor
    ]
    if not lines:
        return ""
    lead = "Where a limit was missed, the parts that cannot be left out, against the same:"
    return "\n".join([lead, "", *lines])


def _growth(rows: Sequence[Row], run: Run) -> str:
    """A line for each table of what grows: sizes, what was found for each, and why."""
    lines = []
    for row in rows:
        sizes = [m for m in run.get(row.name, ()) if m.values]
        if sizes:
            why = " ".join(m.note for m in run[row.name] if not m.values)
            series = "<br>".join(
                f"{unit}: {', '.join(f'{m.values[unit]:.3g}' for m in sizes)}"
                for unit in sizes[0].values
            )
            lines.append(_cells(row.title, ", ".join(m.what for m in sizes), series, why))
    if not lines:
        return ""
    lead = "How it grows, in one run and without a limit:"
    head = [_cells("what grows", "sizes", "what was found", "why"), _cells(*["---"] * 4)]
    return "\n".join([lead, "", *head, *lines])


def _quartiles(m: Measurement) -> str:
    low, high = m.quartiles
    return f"{low:.2f} to {high:.2f}"


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
