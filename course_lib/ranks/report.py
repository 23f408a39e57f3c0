"""The text that a person reads when a run did not end well."""

from collections import defaultdict

from course_lib.observe import CommEvent, Trace, Trap
from course_lib.ranks.diagnose import diagnose
from course_lib.ranks.errors import Failure, RunRecord
from course_lib.ranks.notes import once_each
from course_lib.ranks.sources import place_of, text_of
from course_lib.ranks.watch import Outcome
from course_lib.ranks.wording import describe, ranks_text

_MOST_FRAMES = 3
_LOSES_MESSAGES = ("never_waited", "waited_twice")
_ADVICE = {
    "trying to initialize the default process group twice": (
        "run_ranks has already called init_process_group: leave that call out here, and keep it in "
        "the script that torchrun starts."
    ),
    "Default process group has not been initialized": (
        "The process group was destroyed before this line: run_ranks does that itself at the end."
    ),
}


def write_report(
    outcome: Outcome, failures: dict[int, Failure], record: RunRecord, timeout: float
) -> tuple[str, bool]:
    """What happened, where each rank was, why, what to try; and whether the ranks were stuck."""
    trace = record.trace
    states = {rank: _state(rank, failures, trace) for rank in range(outcome.world_size)}
    diagnoses = diagnose(states, trace) if trace else []
    causes = {r: f for r, f in failures.items() if f.kind not in ("stuck", "severed")}
    mismatch = any(diagnosis.mismatch for diagnosis in diagnoses)
    if mismatch:
        # Gloo aborts a rank or lets it hang, as it comes. Either way the calls are the cause.
        causes = {r: f for r, f in causes.items() if not f.what.endswith("SIGABRT")}
    if causes:
        lines = _what_happened(causes)
        others = {rank: state for rank, state in states.items() if rank not in causes}
        lines += ["Meanwhile:"] * bool(others) + _where(others, failures, trace)
        return "\n".join(lines), False

    stuck = sorted(failures)
    lines = [_headline(outcome, stuck, mismatch, timeout), "", *_where(states, failures, trace)]
    lines += _went_wrong_before(record.notes)
    if not any(trap.kind in _LOSES_MESSAGES for trap in record.notes):
        told = diagnoses
    else:  # who waits for whom is then a consequence, and would lead astray
        told = [diagnosis for diagnosis in diagnoses if diagnosis.mismatch]
    for diagnosis in told:
        lines += ["", f"Why: {diagnosis.why}", f"Try: {diagnosis.remedy}"]
    lines += _still_running(states, timeout)
    return "\n".join(lines), not mismatch


def _headline(outcome: Outcome, stuck: list[int], mismatch: bool, timeout: float) -> str:
    if outcome.flooded is not None:
        return f"rank {outcome.flooded} printed without end, and was stopped."
    if mismatch:
        return "the calls of the ranks do not fit together."
    if outcome.deadlocked:
        verb = "waits" if len(stuck) == 1 else "wait"
        return f"{ranks_text(stuck)} {verb} for something that cannot come any more."
    return f"{ranks_text(stuck)} had not finished after {timeout:g} s."


def _went_wrong_before(notes: list[Trap]) -> list[str]:
    """What the recorder noted on the way, once for each line: often it is why the ranks hang."""
    return [line for trap, _ in once_each(notes) for line in ("", f"Noted: {trap.message}.")]


def _what_happened(causes: dict[int, Failure]) -> list[str]:
    """Ranks that failed alike share one entry."""
    alike: dict[tuple, list[Failure]] = defaultdict(list)
    for failure in causes.values():
        alike[(failure.kind, failure.what, failure.where[:1])].append(failure)
    lines = []
    for failures in alike.values():
        first = failures[0]
        who = ranks_text([failure.rank for failure in failures])
        lines.append(f"{who} {_phrase(first)}")
        for depth, frame in enumerate(first.where[:_MOST_FRAMES]):
            lead = "    in " if depth == 0 else "    called from "
            lines.append(f"{lead}{place_of(frame)}:  {text_of(frame)}".rstrip(": "))
        if not first.where and first.traceback:
            lines += ["    " + line for line in first.traceback.strip().splitlines()[-4:]]
        lines += [f"    {advice}" for sign, advice in _ADVICE.items() if sign in first.what]
    return lines


def _phrase(failure: Failure) -> str:
    if failure.kind == "raised":
        return f"raised {failure.what}"
    if failure.kind == "unreadable":
        return f"returned something that cannot be sent back ({failure.what})"
    if failure.kind == "exited" and failure.what.startswith("SystemExit"):
        return "left with sys.exit, without returning from the function"
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
            doing, frames = f"waits {describe(event)}", frames or event.where
        place = f"{place_of(frames[0])}:  {text_of(frames[0])}".rstrip(": ") if frames else ""
        rows.append((rank, doing, place))
    width = max((len(doing) for _, doing, _ in rows), default=0)
    return [f"  rank {r}  {d:<{width}}   {p}".rstrip() for r, d, p in rows]


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


def _still_running(states: dict[int, str], timeout: float) -> list[str]:
    running = sorted(rank for rank, state in states.items() if state == "is still running")
    if not running:
        return []
    verb = "waits" if len(running) == 1 else "wait"
    return [
        "",
        f"Why: {ranks_text(running)} {verb} for nobody: the line above is still running.",
        "Try: look for a loop that does not end there; if it only needs longer than "
        f"{timeout:g} s, give it more with timeout=...",
    ]
