"""What is shown of the measurements: a page with all, five lines in the README, the numbers."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tests.bench._figure import draw
from tests.bench._runs import Compared, Run, as_json, machine, side_by_side
from tests.bench.measurement import Measurement, Row

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs/benchmarks.md")
FIGURE, NUMBERS = Path("docs/benchmarks.png"), Path("tests/bench/results.json")
_BLOCK = re.compile(r"(<!-- bench -->\n).*?(<!-- end of bench -->)", re.DOTALL)
# What the README tells of, by the names of its rows.
_HEADLINES = ("launch", "ring", "data_parallel", "zero", "pipeline")


def publish(rows: Sequence[Row], runs: Sequence[Run], root: Path = ROOT) -> None:
    """Replace the tables of the page and of the README, draw the figure, and keep all numbers.

    Raises `ValueError`, and writes nothing, where one of them has not just one place for it.
    """
    texts = {
        root / PAGE: _placed(root / PAGE, _page(rows, runs)),
        root / "README.md": _placed(root / "README.md", _headlines(rows, runs)),
    }
    named = [(f"{r.name}: {c.what}", c) for r in rows for c in side_by_side(r, runs)]
    draw(named).savefig(root / FIGURE, dpi=100, metadata={"Software": None})
    (root / NUMBERS).write_text(as_json(rows, runs), encoding="utf-8")
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")


def _placed(file: Path, block: str) -> str:
    """The text of the file with `block` between its two markers."""
    text, count = _BLOCK.subn(
        lambda found: f"{found[1]}{block}\n{found[2]}", file.read_text(encoding="utf-8")
    )
    if count != 1:
        raise ValueError(f"{file.name} has {count} places for the table of the benchmark, not 1")
    return text


def _headlines(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """A line for each row that the README names: between which medians its comparisons lie."""
    lines = []
    for row in (row for row in rows if row.name in _HEADLINES):
        times = [c for c in side_by_side(row, runs) if c.limit and "peak" not in c.what]
        medians = [m.median for c in times for m in c.runs]
        if medians:
            lines.append(_cells(row.title, f"{min(medians):.2f} to {max(medians):.2f}"))
    head = [_cells("time, ours to theirs", "medians"), _cells("---", "---")]
    return "\n".join([*head, *lines])


def _page(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    compared = {row.title: side_by_side(row, runs) for row in rows}
    compared = {title: of_row for title, of_row in compared.items() if of_row}
    numbers, figure = (Path(os.path.relpath(file, PAGE.parent)) for file in (NUMBERS, FIGURE))
    parts = [
        _table(compared, len(runs)),
        f"Measured on {machine()}; quartiles of all runs together."
        f" [All numbers]({numbers.as_posix()}).",
        _floors(compared),
        f"![Each ratio with its quartiles and its limit]({figure.as_posix()})",
        _growth(rows, runs[0]),
    ]
    return "\n\n".join(part for part in parts if part)


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
