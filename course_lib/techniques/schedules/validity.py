"""What makes a schedule right: every operation once, on one rank, in an order that can run.

    F of stage s waits for F of stage s - 1, same microbatch      (an activation arrives)
    B or I of s  waits for B or I of stage s + 1, and its own F   (a gradient arrives)
    W of s       waits for its own I

A schedule that obeys this runs to its end when no send makes its sender wait. With sends that
block, it may still hang: `course_lib.simulate` has a mode for that.
"""

from collections.abc import Sequence

from .schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, KINDS, Op
from .schedule import format_schedule as _grid


def num_stages(schedule: Sequence[Sequence[Op]]) -> int:
    """How many stages the model is cut into."""
    return 1 + max((op.stage for row in schedule for op in row), default=-1)


def num_microbatches(schedule: Sequence[Sequence[Op]]) -> int:
    """How many microbatches go through."""
    return 1 + max((op.microbatch for row in schedule for op in row), default=-1)


def result_of(op: Op) -> Op:
    """The name under which others wait for `op`: a gradient is ready after I as after B."""
    return Op(BACKWARD, op.stage, op.microbatch) if op.kind == BACKWARD_INPUT else op


def needs(op: Op, stages: int) -> tuple[Op, ...]:
    """What must have finished before `op` can start, by the names of `result_of`."""
    kind, stage, microbatch = op
    if kind == FORWARD:
        return (Op(FORWARD, stage - 1, microbatch),) if stage > 0 else ()
    if kind == BACKWARD_WEIGHT:
        return (Op(BACKWARD, stage, microbatch),)
    own = Op(FORWARD, stage, microbatch)
    return (own, Op(BACKWARD, stage + 1, microbatch)) if stage + 1 < stages else (own,)


def validate(schedule: Sequence[Sequence[Op]], microbatches: int | None = None) -> None:
    """Raise a ValueError that shows the position if `schedule` cannot train a model.

    `microbatches`, where known, finds a microbatch that is missing on every stage.
    """
    check_complete(schedule, microbatches)
    check_order(schedule)


def check_complete(
    schedule: Sequence[Sequence[Op]], microbatches: int | None = None
) -> dict[int, int]:
    """Every stage on one rank; every microbatch once forward and once backward through it.

    Returns the rank of each stage.
    """
    home = _check_ranks(schedule)
    found: dict[str, list[list[int]]] = {kind: [[] for _ in home] for kind in KINDS}
    for row in schedule:
        for kind, stage, microbatch in row:
            found[kind][stage].append(microbatch)
    if microbatches is None:
        microbatches = num_microbatches(schedule)
    for stage, rank in sorted(home.items()):
        for kinds in ((FORWARD,), (BACKWARD, BACKWARD_INPUT), (BACKWARD, BACKWARD_WEIGHT)):
            done = [microbatch for kind in kinds for microbatch in found[kind][stage]]
            if sorted(done) != list(range(microbatches)):
                raise _explain(schedule, rank, stage, kinds, microbatches)
    return home


def check_order(schedule: Sequence[Sequence[Op]]) -> None:
    """Run the schedule without a clock: raise if a point is reached where no rank can go on."""
    stages = num_stages(schedule)
    finished: set[Op] = set()
    position = [0] * len(schedule)
    sleeping: dict[Op, list[int]] = {}  # result -> the ranks that wait for it
    awake = list(range(len(schedule)))
    while awake:
        rank = awake.pop()
        row = schedule[rank]
        while position[rank] < len(row):
            op = row[position[rank]]
            missing = next((need for need in needs(op, stages) if need not in finished), None)
            if missing is not None:
                sleeping.setdefault(missing, []).append(rank)
                break
            position[rank] += 1
            result = result_of(op)
            finished.add(result)
            if result in sleeping:
                awake += sleeping.pop(result)
    waits = {rank: result for result, ranks in sleeping.items() for rank in ranks}
    for rank, result in sorted(waits.items()):
        row = schedule[rank]
        later = [n for n, op in enumerate(row) if result_of(op) == result]
        if later:
            problem = f"it needs {row[later[0]]}, which comes after it, at position {later[0]}"
            raise _wrong(schedule, rank, position[rank], problem)
    if waits:
        rank = min(waits)
        stuck = "; ".join(
            f"rank {r} at position {position[r]} ({schedule[r][position[r]]}) waits for {waits[r]}"
            for r in sorted(waits)
        )
        raise _wrong(schedule, rank, position[rank], f"the ranks wait in a circle: {stuck}")


def _check_ranks(schedule: Sequence[Sequence[Op]]) -> dict[int, int]:
    """Known kinds, numbers from 0, work for every rank, a rank for every stage: which one."""
    if not schedule:
        raise ValueError("the schedule has no ranks")
    home: dict[int, int] = {}
    for rank, row in enumerate(schedule):
        if not row:
            raise ValueError(f"rank {rank} of {len(schedule)} has nothing to do\n{_grid(schedule)}")
        if set(map(type, row)) != {Op}:
            position, entry = next((n, op) for n, op in enumerate(row) if type(op) is not Op)
            raise ValueError(
                f"rank {rank}, position {position} holds {entry!r}, where an Op such as"
                " Op('F', 0, 3) belongs"
            )
        for kind in {op.kind for op in row}.difference(KINDS):
            problem = f"kind {kind!r} is none of {', '.join(KINDS)}"
            raise _wrong(schedule, rank, _find(row, kind=kind), problem)
        first = min(op.microbatch for op in row)
        if first < 0:
            problem = f"microbatch {first} must count from 0"
            raise _wrong(schedule, rank, _find(row, microbatch=first), problem)
        for stage in {op.stage for op in row}:
            if stage < 0:
                problem = f"stage {stage} must count from 0"
                raise _wrong(schedule, rank, _find(row, stage=stage), problem)
            if home.setdefault(stage, rank) != rank:
                problem = f"stage {stage} is on rank {home[stage]} too"
                raise _wrong(schedule, rank, _find(row, stage=stage), problem)
    for stage in range(num_stages(schedule)):
        if stage not in home:
            raise ValueError(
                f"no rank holds stage {stage} of {num_stages(schedule)}\n{_grid(schedule)}"
            )
    return home


def _find(row: Sequence[Op], **field: object) -> int:
    """The first position in a row whose operation has this kind, stage or microbatch."""
    ((name, value),) = field.items()
    return next(position for position, op in enumerate(row) if getattr(op, name) == value)


def _explain(
    schedule: Sequence[Sequence[Op]],
    rank: int,
    stage: int,
    kinds: tuple[str, ...],
    microbatches: int,
) -> ValueError:
    """Why the passes of `kinds` through `stage` are not range(microbatches), each once."""
    seen: set[int] = set()
    name = " or ".join(kinds)
    for position, op in enumerate(schedule[rank]):
        if op.stage != stage or op.kind not in kinds:
            continue
        if op.microbatch >= microbatches:
            problem = f"there is no microbatch {op.microbatch}; {microbatches} count from 0"
            return _wrong(schedule, rank, position, problem)
        if op.microbatch in seen:
            problem = f"stage {stage} runs {name} of microbatch {op.microbatch} twice"
            return _wrong(schedule, rank, position, problem)
        seen.add(op.microbatch)
    missing = min(set(range(microbatches)) - seen)
    problem = f"stage {stage} never runs {name} of microbatch {missing}"
    return _wrong(schedule, rank, len(schedule[rank]), problem)


def _wrong(schedule: Sequence[Sequence[Op]], rank: int, position: int, problem: str) -> ValueError:
    """The error at one position, with the grid around it."""
    row = schedule[rank]
    if position < len(row):
        _, stage, microbatch = row[position]
        who = f"rank {rank}, position {position} (stage {stage}, microbatch {microbatch})"
    else:
        who = f"rank {rank}, after its last operation"
    return ValueError(f"{who}: {problem}\n{_grid(schedule, mark=(rank, position))}")
