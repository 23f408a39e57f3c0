"""What torch raises on every rank for something that happened on one of them.

`torch.distributed.checkpoint` gathers what went wrong and raises it everywhere, as one
`CheckpointException` whose text is all tracebacks. Here each rank gets its own part of it back.
"""

from types import TracebackType
from typing import Any

from torch.distributed import distributed_c10d

_NAME = "torch.distributed.checkpoint.api.CheckpointException"
Frames = list[list]  # file, line, function; innermost first


def own_part(problem: Any) -> tuple[BaseException, Frames] | None:
    """What this rank raised itself, and where inside of torch's call; None if it was another.

    Of an exception that no other rank had a part in, the exception itself, and no frames.
    """
    kind = type(problem)  # known by its name: to import its module takes a second
    if f"{kind.__module__}.{kind.__qualname__}" != _NAME:
        return problem, []
    mine = problem.failures.get(_rank_in_group(problem.__traceback__))
    if mine is None:
        return None
    inner, summary = mine
    return inner, [[step.filename, step.lineno or 0, step.name] for step in reversed(summary)]


def _rank_in_group(step: TracebackType | None) -> int:
    """By which this rank is called there: torch's own frames know the group."""
    while step:
        owner: Any = step.tb_frame.f_locals.get("self")
        if type(owner).__name__ == "_DistWrapper":
            return owner.rank
        step = step.tb_next
    return distributed_c10d.get_rank()
