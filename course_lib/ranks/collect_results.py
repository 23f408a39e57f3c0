"""Turn the files of a run that is over into results or an error."""

import json
import re
import signal
from typing import Any

from course_lib.observe import Frame, Trace, read_trace

from . import captured_output, serialization
from .diagnosis import silent_mismatches
from .errors import Failure, RankError, RankInterrupt, RankTimeout, RunRecord
from .failure_report import write_report
from .results import RankResults
from .run_directory import RunDir
from .source_location import learners_frames, read_dump
from .watchdog import Outcome

# What gloo raises on a rank whose partner has died or disagreed: a consequence, never the cause.
_SEVERED = re.compile(
    r"^(RuntimeError|Dist\w*Error): .*"
    r"(gloo/transport|Connection (closed|reset) by peer|Application timeout|Broken pipe)",
    re.DOTALL,
)

_LOST = "lost its connection to another rank"


def conclude(
    run_dir: RunDir, outcome: Outcome, timeout: float, observe: bool, remarks: list[str]
) -> RankResults:
    """What `collect` returns, or the `RankError` that it raises.

    remarks: what is to be shown below the ranks' output, before what is found here.
    """
    ranks = range(outcome.world_size)
    trace = read_trace({r: run_dir.of(r, "journal") for r in ranks}) if observe else None
    record = RunRecord(
        world_size=outcome.world_size,
        output={rank: captured_output.read_output(run_dir.of(rank, "out")) for rank in ranks},
        trace=trace,
        remarks=remarks
        + captured_output.torch_says(run_dir.of(rank, "warnings") for rank in ranks),
        warnings=list(trace.warnings) if trace else [],
    )
    values: list[Any] = [None] * outcome.world_size
    failures: dict[int, Failure] = {}
    for rank in ranks:
        if outcome.delivered.get(rank) == "result":
            try:
                values[rank] = serialization.unpack_result(run_dir.of(rank, "result").read_bytes())
            except Exception as problem:
                what = f"its result cannot be read here: {type(problem).__name__}: {problem}"
                failures[rank] = Failure(rank, "unreadable", what)
        else:
            failures[rank] = _failure(run_dir, outcome, rank, trace)
    unfit = silent_mismatches(trace) if trace else []
    if not failures and outcome.interrupted:
        raise RankInterrupt("all ranks had just finished.", {}, record)
    if not failures:
        record.warnings += unfit
        return RankResults(values, record)
    # Of a run that failed only the report tells them: they may be its consequence.
    report, stuck = write_report(outcome, failures, record, unfit, timeout)
    if outcome.interrupted:
        raise RankInterrupt(report, failures, record)
    raise (RankTimeout if stuck else RankError)(report, failures, record)


def _failure(run_dir: RunDir, outcome: Outcome, rank: int, trace: Trace | None) -> Failure:
    if outcome.delivered.get(rank) == "failure":
        told = json.loads(run_dir.of(rank, "failure").read_bytes())
        where = learners_frames([Frame(*frame) for frame in told["frames"]])
        what = f"{told['type']}: {told['message']}".removesuffix(": ")
        if _SEVERED.search(what):
            return Failure(rank, "severed", _LOST, where)
        # A technique, or the learner, may have put another exception around it.
        if any(map(_SEVERED.search, told["caused_by"])):
            return Failure(rank, "severed", f"{_LOST} ({told['type']})", where)
        if told["kind"] == "told":
            return Failure(rank, "told", "was told that another rank had failed", where)
        return Failure(rank, told["kind"], what, where, told["traceback"])

    dump = run_dir.of(rank, "stack").read_text() if run_dir.of(rank, "stack").exists() else ""
    where = learners_frames(read_dump(dump))
    if rank == outcome.flooded:
        return Failure(rank, "stuck", "printed without end", where)
    if rank not in outcome.exited:
        return Failure(rank, "stuck", "had not finished", where)
    if why := outcome.broken.get(rank):
        return Failure(rank, "exited", f"could not go on: {why}", where)
    code = outcome.exited[rank]
    if code >= 0:
        what = f"left with exit code {code}, without returning from the function"
        return Failure(rank, "exited", what, where)
    name = signal.Signals(-code).name
    if not where and trace and (event := trace.waiting(rank)):
        where = event.where
    begun = where or trace is None or run_dir.of(rank, "journal").exists()
    when = "" if begun else " before it came to the function"
    return Failure(rank, "killed", f"was killed by {name}{when}", where)
