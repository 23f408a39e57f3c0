"""What a learner reads: one line when it passes, one short message when it does not."""

import textwrap
from collections.abc import Mapping, Sequence

from course_lib.text import counted

from .exercise import Case, Exercise, Finding
from .run_answer import UNATTEMPTED, Outcome

_WIDTH = 96
_PRINTED_LINES = 6


def passed(exercise: Exercise, cases: Sequence[Case]) -> str:
    """How many cases passed, and the property that they show."""
    sizes = sorted({case.world_size for case in cases})
    many = f" on {sizes[0]} to {sizes[-1]} ranks" if len(sizes) > 1 else ""
    return f"{exercise.name}: passed. {len(cases)} cases{many}; {exercise.passed}."


def unattempted(name: str, hole: str) -> str:
    """That there is nothing yet: in the answer, or in another one, `hole`, that it calls."""
    if hole in ("", name):
        return f"{name}: {UNATTEMPTED}"
    return f"{name}: it calls {hole}, which is {UNATTEMPTED}"


def uncallable(name: str, finding: Finding) -> str:
    """Why the answer cannot be called as the exercise says."""
    return f"{name} cannot be called:\n{_field('why', finding.likely)}"


def failed(name: str, case: Case, finding: Finding, outcome: Outcome, report: str) -> str:
    """What was run, expected and got, the likely cause, and where to find a hint.

    report: what became of the ranks, where they did not end well.
    """
    trouble = outcome.trouble
    lines = [f"{name} does not pass yet. What was run: {case.label}"]
    if trouble and trouble.kind != "unusable":
        end = "did not finish" if trouble.kind == "stuck" else "failed"
        lines += [f"Your ranks {end}.", textwrap.indent(report, "  ")]
    lines += [
        _field("rank", "" if finding.rank is None else f"{finding.rank}"),
        _field("input", finding.input),
        _field("expected", finding.expected),
        _field("got", finding.got),
        _field("likely", finding.likely),
        *_printed(outcome.printed),
        f"A hint: hint({name}), then hint({name}, 2) and hint({name}, 3)",
    ]
    return "\n".join(line for line in lines if line)


def _printed(printed: Mapping[int, str]) -> list[str]:
    lines = [
        f"[rank {rank}] {line}"
        for rank, text in sorted(printed.items())
        for line in text.splitlines()
    ]
    kept = [textwrap.shorten(line, _WIDTH - 12, placeholder=" ...") for line in lines]
    if len(kept) > _PRINTED_LINES:
        more = len(kept) - _PRINTED_LINES
        kept = [*kept[:_PRINTED_LINES], f"... and {counted(more, 'more line')}"]
    return [f"  {'printed' if i == 0 else '':<10}{line}" for i, line in enumerate(kept)]


def _field(name: str, text: str) -> str:
    if not text:
        return ""
    body = [part for line in text.splitlines() for part in textwrap.wrap(line, _WIDTH - 12) or [""]]
    return "\n".join(f"  {name if i == 0 else '':<10}{line}" for i, line in enumerate(body))
