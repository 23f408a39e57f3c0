"""The table and the figure of the README, written from measurements."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from tests.bench.row import Measurement, Row

ROOT = Path(__file__).resolve().parents[2]
FIGURE = Path("tests/bench/results.png")
_BLOCK = re.compile(r"(<!-- bench -->\n).*?(<!-- end of bench -->)", re.DOTALL)


def publish(rows: Sequence[Row], found: Mapping[str, Sequence[Measurement]], machine: str) -> None:
    """Replace the README's table, and draw the figure beside it."""
    compared = {r.title: [m for m in found.get(r.name, ()) if m.ratios] for r in rows}
    compared = {title: measured for title, measured in compared.items() if measured}
    readme = ROOT / "README.md"
    text, count = _BLOCK.subn(
        lambda block: block[1] + _table(compared, machine) + block[2],
        readme.read_text(encoding="utf-8"),
    )
    if count != 1:
        raise ValueError(f"README.md has {count} places for the table of the benchmark, not 1")
    readme.write_text(text, encoding="utf-8")
    named = {f"{r.name}: {m.what}": m for r in rows for m in found.get(r.name, ()) if m.ratios}
    _draw(named).savefig(ROOT / FIGURE, dpi=100, metadata={"Software": None})


def _table(compared: Mapping[str, Sequence[Measurement]], machine: str) -> str:
    lines = [
        "| what is compared | ratio | quartiles | at most |",
        "| --- | --- | --- | --- |",
    ]
    for title, measured in compared.items():
        lines.append(f"| **{title}** | | | |")
        for m in measured:
            low, high = m.quartiles
            limit = f"{m.limit:.2f}" if m.limit else ""
            missed = "" if m.met else " (missed)"
            lines.append(
                f"| {m.what} | {m.median:.2f}{missed} | {low:.2f} to {high:.2f} | {limit} |"
            )
    picture = f"![Each ratio with its quartiles and its limit]({FIGURE})"
    return "\n".join([*lines, "", f"Measured on {machine}.", "", picture, ""])


def _draw(named: Mapping[str, Measurement]) -> Figure:
    """A dot for each median, a bar for its quartiles, and a tick where the limit is."""
    measured = list(named.values())
    figure = Figure(figsize=(8, 0.24 * len(measured) + 1.1), layout="constrained")
    axes = figure.subplots()
    for place, m in enumerate(measured):
        low, high = m.quartiles
        colour = "#0072b2" if m.met else "#d55e00"
        axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.4)
        axes.plot(m.median, place, marker="o" if m.met else "D", color=colour, markersize=5)
        if m.limit:
            axes.plot(m.limit, place, marker="|", color="black", markersize=11)
    axes.set_yticks(range(len(measured)), list(named), fontsize=7)
    axes.set_xlim(left=0)
    axes.set_ylim(len(measured) - 0.5, -0.5)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel(
        "ratio, such as our time to theirs; a tick is the limit, a diamond has missed it"
    )
    axes.set_title("Left of its tick is fast enough", fontsize=10)
    return figure
