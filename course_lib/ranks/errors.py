"""What is raised when a run did not end well, and what is known of each rank that failed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from course_lib import rich_display
from course_lib.observe import Frame, RankWarning, Trace

from .report_width import fitted


@dataclass(frozen=True)
class Failure:
    """What happened to one rank.

    `kind` is "raised", "exited" (left without returning), "killed" (by a signal), "stuck" (still
    waiting or running when the run was ended), "severed" (lost its connection to a rank that had
    failed), "told" (torch told it that another rank had failed) or "unreadable" (its result cannot
    be sent back).
    `what` is one phrase for a person; `where` holds the learner's frames, innermost first.
    """

    rank: int
    kind: str
    what: str
    where: tuple[Frame, ...] = ()
    traceback: str = ""


@dataclass
class RunRecord:
    """Everything that was known when the run ended; shared by results and errors."""

    world_size: int
    output: dict[int, str] = field(default_factory=dict)
    trace: Trace | None = None
    warnings: list[RankWarning] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # lines to show below what the ranks printed


class _Told(BaseException):
    """What the exceptions of a run have in common: a report, and all that was known."""

    _title = ""  # under which a notebook shows it; else the name of the class

    def __init__(self, report: str, failures: dict[int, Failure], record: RunRecord):
        super().__init__(report)
        self.report = report
        self.failures = failures
        self.output = record.output
        self.remarks = record.remarks
        self.trace = record.trace
        self.warnings = record.warnings

    def _render_traceback_(self) -> list[str]:
        # IPython asks for this instead of printing the frames of the launcher.
        rich_display.show(self)
        said = fitted(f"{self._title or type(self).__name__}: {self.report}")
        # JupyterLab's red box has no room of its own below the last line.
        return [said, " "] if rich_display.in_a_notebook() else [said]


class RankError(_Told, RuntimeError):
    """A rank raised, left or was killed.

    `.report` is the text to read, `.failures` maps a rank to its `Failure`. `.output`, `.trace` and
    `.warnings` hold what was captured and observed until then, as in `RankResults`.
    """


class RankTimeout(RankError):
    """The ranks were stuck: waiting for each other, or not finished in time."""


class RankInterrupt(_Told, KeyboardInterrupt):
    """Somebody interrupted the run; tells where the ranks were, as `RankTimeout` does."""

    _title = "KeyboardInterrupt"


@contextlib.contextmanager
def told_briefly(what: str) -> Iterator[None]:
    """Let an interrupt of the course's own work be told in one sentence, without its frames."""
    try:
        yield
    except RankInterrupt:
        raise
    except KeyboardInterrupt:
        raise RankInterrupt(what, {}, RunRecord(0)) from None
