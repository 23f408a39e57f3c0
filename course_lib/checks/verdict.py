"""What a learner reads: one line when it passes, one short message when it does not."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib import rich_display
from course_lib.text import counted

from .compare import Evidence, survey
from .exercise import Case, Exercise, Finding, Observation
from .run_answer import UNATTEMPTED, Outcome

_WIDTH = 96
_PRINTED_LINES = 6
_ADVICE = re.compile(r"\nTry: .*(?:\n {5}.*)*")
_TIME_IS_UP = ("had not finished after", "did not finish in time")


class NotPassed(Exception):
    """A check that did not pass; the message is all there is to read."""

    verdict: "Verdict | None" = None

    def _render_traceback_(self) -> list[str]:
        # IPython asks for this instead of printing the frames of the check.
        if self.verdict is not None and rich_display.show(self.verdict):
            return ["see the card above"]
        return str(self).splitlines()


class CheckFailed(NotPassed):
    """The answer is wrong."""


class NotAttempted(NotPassed):
    """There is no answer yet."""


@dataclass(frozen=True)
class Failure:
    """A case that went wrong: what came of it, and why that is not right.

    observation: of this case, if the ranks came to one.
    """

    case: Case
    finding: Finding
    outcome: Outcome
    observation: Observation | None = None

    @property
    def report(self) -> str:
        """What became of ranks that did not end well; without its advice where we know better."""
        trouble = self.outcome.trouble
        report = trouble.report.strip("\n") if trouble else ""
        return _ADVICE.sub("", report) if self.finding.special else report


@dataclass(frozen=True)
class Verdict:
    """The first case that went wrong, or that none did (`failure` is None).

    right_result: it did not pass, and only since a promise was not kept whose part is separate
    (`course_lib.checks.contract`). Only graders ask.
    """

    exercise: Exercise
    cases: Sequence[Case]
    failure: Failure | None = None
    right_result: bool = False

    @property
    def passed(self) -> bool:
        return self.failure is None

    @property
    def attempted(self) -> bool:
        trouble = self.failure.outcome.trouble if self.failure else None
        return trouble is None or trouble.kind != "unattempted"

    @property
    def out_of_time(self) -> bool:
        """Whether its ranks were stopped when the time was up: they may only have been slow."""
        trouble = self.failure.outcome.trouble if self.failure else None
        return trouble is not None and any(words in trouble.report for words in _TIME_IS_UP)

    def __str__(self) -> str:
        if self.failure is None:
            return self._passed()
        trouble = self.failure.outcome.trouble
        if trouble and trouble.kind == "unattempted":
            return self._unattempted(trouble.report)
        return self._failed(self.failure)

    def by_rank(self) -> Evidence:
        """The finding's evidence beside that of the other ranks that are wrong, if it has any."""
        failure = self.failure
        if failure is None or failure.observation is None or failure.finding.rank is None:
            return {}
        case, observation, finding = failure.case, failure.observation, failure.finding
        found = survey(lambda: self.exercise.judge(case, observation))
        same = found.get(failure.finding.rank) == (finding.expected, finding.got)
        return dict(sorted(found.items())) if same else {}

    def raise_unless_passed(self) -> None:
        """Raise `CheckFailed` or `NotAttempted` with this verdict's text."""
        if not self.passed:
            error = (CheckFailed if self.attempted else NotAttempted)(str(self))
            error.verdict = self
            raise error

    def _passed(self) -> str:
        sizes = sorted({case.world_size for case in self.cases})
        many = f" on {sizes[0]} to {sizes[-1]} ranks" if len(sizes) > 1 else ""
        return (
            f"{self.exercise.name}: passed. {len(self.cases)} cases{many}; {self.exercise.passed}."
        )

    def _unattempted(self, hole: str) -> str:
        name = self.exercise.name
        if hole in ("", name):
            return f"{name}: {UNATTEMPTED}"
        return f"{name}: it calls {hole}, which is {UNATTEMPTED}"

    def _failed(self, failure: Failure) -> str:
        name, finding, trouble = self.exercise.name, failure.finding, failure.outcome.trouble
        if trouble and trouble.kind == "signature":
            return f"{name} cannot be called:\n{_field('why', finding.likely)}"
        lines = [f"{name} does not pass yet. What was run: {failure.case.label}"]
        if trouble and trouble.kind != "unusable":
            end = "did not finish" if trouble.kind == "stuck" else "failed"
            lines += [f"Your ranks {end}.", textwrap.indent(failure.report, "  ")]
        rank = "" if finding.rank is None else f"{finding.rank}"
        lines += [
            _field("rank", rank),
            _field("input", finding.input),
            _field("expected", finding.expected),
            _field("got", finding.got),
            _field("likely", finding.likely),
            *_printed(failure.outcome.printed),
            f"A hint: hint({name}), then hint({name}, 2) and hint({name}, 3)",
        ]
        return "\n".join(line for line in lines if line)


def _printed(printed: Mapping[int, str]) -> list[str]:
    lines = [
        f"[rank {rank}] {line}"
        for rank, text in sorted(printed.items())
        for line in text.splitlines()
    ]
    rich_display = [textwrap.shorten(line, _WIDTH - 12, placeholder=" ...") for line in lines]
    if len(rich_display) > _PRINTED_LINES:
        more = len(rich_display) - _PRINTED_LINES
        rich_display = [*rich_display[:_PRINTED_LINES], f"... and {counted(more, 'more line')}"]
    return [f"  {'printed' if i == 0 else '':<10}{line}" for i, line in enumerate(rich_display)]


def _field(name: str, text: str) -> str:
    if not text:
        return ""
    body = [part for line in text.splitlines() for part in textwrap.wrap(line, _WIDTH - 12) or [""]]
    return "\n".join(f"  {name if i == 0 else '':<10}{line}" for i, line in enumerate(body))
