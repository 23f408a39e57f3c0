"""The text that a person reads when a run did not end well."""

from collections import defaultdict

from course_lib.observe import Trace
from course_lib.ranks.diagnose import describe, diagnose, ranks_text
from course_lib.ranks.errors import Failure, RunRecord
from course_lib.ranks.sources import place_of, text_of
from course_lib.ranks.watch import Outcome

_MOST_FRAMES = 3
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
) -> str:
    """What happened, where each rank was, why, and what to try; in that order."""
    stuck = {r: f for r, f in failures.items() if f.kind == "stuck"}
    causes = {r: f for r, f in failures.items() if f.kind != "stuck"}
    lines = _what_happened(causes) if causes else [_headline(outcome, stuck, timeout)]
    if len(failures) < outcome.world_size or stuck:
        lines += _where_each_was(outcome, failures, record.trace, all_of_them=not causes)
    states = {rank: _state(rank, failures, record.trace) for rank in range(outcome.world_size)}
    if record.trace and not any(f.kind in ("raised", "unreadable") for f in causes.values()):
        for diagnosis in diagnose(states, record.trace):
            lines += ["", f"Why: {diagnosis.why}", f"Try: {diagnosis.remedy}"]
    lines += _running(stuck, states, timeout) if not causes else []
    return "\n".join(lines)


def _headline(outcome: Outcome, stuck: dict[int, Failure], timeout: float) -> str:
    if outcome.flooded is not None:
        return f"rank {outcome.flooded} printed without end, and was stopped."
    who = ranks_text(sorted(stuck))
    if outcome.deadlocked:
        verb = "waits" if len(stuck) == 1 else "wait"
        return f"{who} {verb} for something that cannot come any more."
    had = "had not finished"
    return f"{who} {had} after {timeout:g} s."


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


def _where_each_was(
    outcome: Outcome, failures: dict[int, Failure], trace: Trace | None, all_of_them: bool
) -> list[str]:
    rows = []
    for rank in range(outcome.world_size):
        failure = failures.get(rank)
        if failure is not None and failure.kind != "stuck":
            continue
        if failure is None:
            rows.append((rank, "had returned", ""))
            continue
        event = trace.waiting(rank) if trace else None
        doing = f"waits {describe(event)}" if event else "was running"
        frame = next(iter(failure.where), None)
        place = f"{place_of(frame)}:  {text_of(frame)}".rstrip(": ") if frame else ""
        rows.append((rank, doing, place))
    if not rows:
        return []
    width = max(len(doing) for _, doing, _ in rows)
    title = "" if all_of_them else "Meanwhile:"
    return [title] + [f"  rank {r}  {d:<{width}}   {p}".rstrip() for r, d, p in rows]


def _state(rank: int, failures: dict[int, Failure], trace: Trace | None) -> str:
    failure = failures.get(rank)
    if failure is None:
        return "has returned"
    if failure.kind == "stuck":
        return "" if trace and trace.waiting(rank) else "is still running"
    return _phrase(failure)


def _running(stuck: dict[int, Failure], states: dict[int, str], timeout: float) -> list[str]:
    running = sorted(rank for rank in stuck if states[rank] == "is still running")
    if not running:
        return []
    verb = "waits" if len(running) == 1 else "wait"
    why = f"Why: {ranks_text(running)} {verb} for nobody: the line above is still running."
    remedy = (
        "Try: look for a loop that does not end there; if it only needs longer than "
        f"{timeout:g} s, give it more with timeout=..."
    )
    return ["", why, remedy]
