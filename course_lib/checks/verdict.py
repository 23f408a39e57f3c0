"""What a check comes to: passed, or the case that went wrong and why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib import rich_display

from . import feedback
from .compare_tensors import Evidence, survey
from .exercise import Case, Exercise, Finding, Observation
from .run_answer import Outcome

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
        name, failure = self.exercise.name, self.failure
        if failure is None:
            return feedback.passed(self.exercise, self.cases)
        trouble = failure.outcome.trouble
        if trouble and trouble.kind == "unattempted":
            return feedback.unattempted(name, trouble.report)
        if trouble and trouble.kind == "signature":
            return feedback.uncallable(name, failure.finding)
        return feedback.failed(name, failure.case, failure.finding, failure.outcome, failure.report)

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
