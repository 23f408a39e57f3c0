"""Ties the rooms together where there is a notebook: what reports and verdicts look like in it.

It stands beside the rooms, since the rooms that report may not draw, and the one that draws may not
know them. `course_lib` calls `bind` when one of its names is first used in a kernel.
"""

from course_lib import rich_display
from course_lib.checks.verdict import Verdict
from course_lib.ranks import RankInterrupt, RankTimeout
from course_lib.views.hang import hang
from course_lib.views.verdict_card import Card, verdict_card


def bind() -> None:
    """Register the forms."""
    rich_display.register(RankTimeout, draw_hang)
    rich_display.register(RankInterrupt, draw_hang)
    rich_display.register(Verdict, draw_verdict)


def draw_hang(error: RankTimeout | RankInterrupt) -> str:
    """Who waits for whom, if anybody does and it is known."""
    if error.trace is None or not error.failures:
        return ""
    elsewhere = {
        rank: "is still running" if failure.kind == "stuck" else failure.what
        for rank, failure in error.failures.items()
    }
    lines = {rank: f.where[0] for rank, f in error.failures.items() if f.where}
    view = hang(error.trace, elsewhere, lines)
    return view.html() if view else ""


def draw_verdict(verdict: Verdict) -> str:
    """The verdict as a card, with the picture of a hang; one that was not attempted needs none."""
    name = verdict.exercise.name
    if verdict.failure is None:
        return verdict_card(Card(name, str(verdict).removeprefix(f"{name}: ")))
    if not verdict.attempted:
        return ""
    finding, outcome = verdict.failure.finding, verdict.failure.outcome
    trouble = outcome.trouble
    stuck = trouble.run_error if trouble and isinstance(trouble.run_error, RankTimeout) else None
    return verdict_card(
        Card(
            name,
            f"does not pass yet. What was run: {verdict.failure.case.label}",
            passed=False,
            rank=finding.rank,
            input=finding.input,
            expected=finding.expected,
            got=finding.got,
            by_rank=verdict.by_rank(),
            likely=finding.likely,
            report="" if trouble and trouble.kind == "signature" else verdict.failure.report,
            picture=draw_hang(stuck) if stuck else "",
            printed="\n".join(
                f"[rank {rank}] {line}"
                for rank, text in sorted(outcome.printed.items())
                for line in text.splitlines()
            ),
            hints=verdict.exercise.hints,
        )
    )
