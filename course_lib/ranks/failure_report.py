"""The text that a person reads when a run did not end well."""

from collections import defaultdict

from course_lib.observe import CommEvent, Frame, RankWarning, Trace
from course_lib.observe.wait_for_graph import awaited, has_cycle

from .diagnosis import SHIFTS_MESSAGES, Cause, advice, diagnose
from .errors import Failure, RunRecord
from .recorder_warnings import once_each
from .report_width import clipped, fits, wrapped
from .source_location import location_of, text_of
from .watchdog import Outcome
from .wording import describe, plural, ranks_text

_MOST_FRAMES = 3
_CONSEQUENCES = ("stuck", "severed", "told")  # kinds of failures of ranks that are not to blame
_TITLE = "RankTimeout: "  # stands before the first line where an exception is shown


def write_report(
    outcome: Outcome,
    failures: dict[int, Failure],
    record: RunRecord,
    unfit: list[RankWarning],
    timeout: float,
) -> tuple[str, bool]:
    """What happened, where each rank was, why, what to try; and whether the ranks were stuck.

    unfit: what `mismatches` found.
    """
    trace = record.trace
    states = {rank: _state(rank, failures, trace) for rank in range(outcome.world_size)}
    found = diagnose(states, trace) if trace else []
    causes = {r: f for r, f in failures.items() if f.kind not in _CONSEQUENCES}
    mismatch = any(cause.mismatch for cause in found)
    if mismatch:
        # Gloo aborts a rank or lets it hang, as it comes. Either way the calls are the cause.
        causes = {r: f for r, f in causes.items() if not f.what.endswith("SIGABRT")}
    if causes:
        lines = _what_happened(causes)
        others = {rank: state for rank, state in states.items() if rank not in causes}
        lines += ["Meanwhile:"] * bool(others) + _where(others, failures, trace)
        # What a rank was refused is its exception already.
        raised = [failure.what for failure in causes.values()]
        warnings = [n for n in record.warnings if not any(n.message in what for what in raised)]
        return "\n".join(lines + _went_wrong_before(warnings + unfit)), False

    stuck = sorted(failures)
    circle = trace is not None and _in_a_circle(stuck, trace)
    headline = wrapped(_TITLE, _headline(outcome, stuck, found, circle, timeout), indent=6)
    lines = [headline.removeprefix(_TITLE), "", *_where(states, failures, trace)]
    lines += _went_wrong_before(record.warnings + unfit)
    if not any(warning.kind in SHIFTS_MESSAGES for warning in record.warnings):
        told = found
    else:  # who waits for whom is then a consequence, and would lead astray
        told = [cause for cause in found if cause.mismatch]
    for cause in told:
        lines += ["", wrapped("Why: ", cause.why), wrapped("Try: ", cause.remedy)]
    lines += _still_running(states, timeout, trace is not None)
    return "\n".join(lines), not mismatch


def _headline(
    outcome: Outcome, stuck: list[int], found: list[Cause], circle: bool, timeout: float
) -> str:
    if outcome.flooded is not None:
        return f"rank {outcome.flooded} printed without end, and was stopped."
    if any(cause.mismatch for cause in found):
        return "the calls of the ranks do not fit together."
    if outcome.interrupted or outcome.out_of_time:
        when = "when the run was interrupted" if outcome.interrupted else f"after {timeout:g} s"
        why = ": deadlock" if circle else ""
        return f"{ranks_text(stuck)} had not finished {when}{why}."
    if outcome.deadlocked or found:
        return (
            f"{'deadlock' if circle else 'hang'}: {ranks_text(stuck)} {plural('waits', stuck)} for "
            "something that cannot come any more."
        )
    return f"{ranks_text(stuck)} lost the connection to the others."


def _in_a_circle(stuck: list[int], trace: Trace) -> bool:
    """Whether it is a deadlock: else they wait for a rank that has ended, or goes on elsewhere."""
    waiting = {rank: event for rank in stuck if (event := trace.waiting(rank))}
    return has_cycle({rank: awaited(event, trace) for rank, event in waiting.items()})


def _went_wrong_before(warnings: list[RankWarning]) -> list[str]:
    """What the recorder warned of, once for each line: often it is why the ranks hang."""
    told = [wrapped("Warning: ", f"{warning.message}.") for warning, _ in once_each(warnings)]
    return [line for warning in told for line in ("", warning)]


def _what_happened(causes: dict[int, Failure]) -> list[str]:
    """Ranks that failed alike share one entry."""
    alike: dict[tuple, list[Failure]] = defaultdict(list)
    for failure in causes.values():
        alike[(failure.kind, failure.what, failure.where[:1])].append(failure)
    lines = []
    for failures in alike.values():
        first = failures[0]
        who = ranks_text([failure.rank for failure in failures])
        said = plural(_phrase(first), failures)
        lines.append(f"{who} {said}")
        for depth, frame in enumerate(first.where[:_MOST_FRAMES]):
            lead = "    in " if depth == 0 else "    called from "
            lines.append(clipped(_with_source(lead + location_of(frame), frame)))
        help_for_it = advice(first)
        if not (first.where or help_for_it) and first.traceback:
            lines += ["    " + line for line in first.traceback.strip().splitlines()[-4:]]
        lines += [wrapped("    ", sentence, indent=6) for sentence in help_for_it]
    return lines


def _phrase(failure: Failure) -> str:
    if failure.kind == "raised":
        return f"raised {failure.what}"
    if failure.kind == "unreadable":
        return f"returned something that cannot be sent back ({failure.what})"
    if failure.kind == "exited" and failure.what.startswith("SystemExit"):
        said = failure.what.removeprefix("SystemExit").removeprefix(": ")
        return f"left with sys.exit({said}), without returning from the function"
    if failure.what.endswith("SIGKILL"):
        return f"{failure.what} (the system does this when memory runs out)"
    return failure.what


def _where(states: dict[int, str], failures: dict[int, Failure], trace: Trace | None) -> list[str]:
    """A row for each rank: what it was doing, and its line."""
    rows = []
    for rank, state in states.items():
        failure = failures.get(rank)
        frames = failure.where if failure else ()
        doing = state
        if failure and trace and (event := trace.waiting(rank) or _last(trace, rank, failure)):
            # The stack that was asked for is the main thread's.
            frames = event.where if event.thread else frames or event.where
            doing = f"waits {describe(event)}"
        rows.append((rank, doing, frames[0] if frames else None))
    width = max((len(doing) for _, doing, _ in rows), default=0)
    digits = len(str(max(states, default=0)))
    heads = [
        (
            f"  rank {rank:>{digits}}  {doing:<{width}}   " + (location_of(frame) if frame else ""),
            frame,
        )
        for rank, doing, frame in rows
    ]
    side_by_side = [_with_source(head.rstrip(), frame) for head, frame in heads]
    if all(map(fits, side_by_side)):
        return side_by_side
    below = " " * (9 + digits)
    return [
        "\n".join([head.rstrip(), *([clipped(below + text_of(frame))] if frame else [])])
        for head, frame in heads
    ]


def _with_source(where: str, frame: Frame | None) -> str:
    text = text_of(frame) if frame else ""
    return f"{where}:  {text}" if text else where


def _last(trace: Trace, rank: int, failure: Failure) -> CommEvent | None:
    """The call in which a rank was cut off, or aborted by gloo."""
    events = trace.of(rank)
    return events[-1] if events and failure.kind in ("severed", "killed") else None


def _state(rank: int, failures: dict[int, Failure], trace: Trace | None) -> str:
    failure = failures.get(rank)
    if failure is None:
        return "has returned"
    if failure.kind == "stuck":
        return "" if trace and trace.waiting(rank) else "is still running"
    return _phrase(failure)


def _still_running(states: dict[int, str], timeout: float, observed: bool) -> list[str]:
    running = sorted(rank for rank, state in states.items() if state == "is still running")
    if not running:
        return []
    if not observed:
        return [
            "",
            wrapped("Why: ", "this run was not observed, so it is not known who waits for whom."),
            wrapped("Try: ", "run it with observe=True."),
        ]
    who, waits = ranks_text(running), plural("waits", running)
    return [
        "",
        wrapped("Why: ", f"{who} {waits} for nobody: the line above is still running."),
        wrapped(
            "Try: ",
            "look for a loop that does not end there; if it only needs longer than "
            f"{timeout:g} s, give it more with timeout=...",
        ),
    ]
