"""The same schedule when a send makes its sender wait until the receiver takes the message.

Plain `dist.send` and `dist.recv` behave so: both sides stand still until both are there, and then
for the time of the message. GPipe survives that. 1F1B does not: stage s wants to send the next
activation on while stage s + 1 wants to send a gradient back, and neither is receiving.
"""

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Timeline, Track
from course_lib.techniques.schedules import (
    FORWARD,
    Op,
    check_complete,
    check_order,
    needs,
    num_stages,
    result_of,
)

from .engine import NOTHING, Lane, Run, run
from .pipeline import Costs, PerStage


class Hang(ValueError):
    """A schedule that is in order, but with blocking sends cannot end: some wait in a circle."""

    def __init__(self, stages: tuple[int, ...], report: str) -> None:
        super().__init__(report)
        self.stages = stages  # where the stuck ranks stand


class Step(NamedTuple):
    """A line of a rank's program: run `op`, or send or receive the result of `op`."""

    action: str
    op: Op

    @property
    def stage(self) -> int:
        """The stage at which this happens: a result is received one stage further on."""
        if self.action != "receive":
            return self.op.stage
        return self.op.stage + (1 if self.op.kind == FORWARD else -1)

    def __str__(self) -> str:
        what = "activation" if self.op.kind == FORWARD else "gradient"
        result = f"the {what} of microbatch {self.op.microbatch}"
        if self.action == "receive":
            return f"waits for {result} from stage {self.op.stage}"
        to = self.op.stage + (1 if self.op.kind == FORWARD else -1)
        return f"sends {result} to stage {to}"


def simulate_blocking(
    schedule: Sequence[Sequence[Op]],
    forward: PerStage = 1,
    backward: PerStage = 2,
    weight: PerStage | None = None,
    send: float = 0,
) -> Timeline:
    """As `simulate`, with blocking sends: raises `Hang`, which names the stages that would hang.

    Each rank receives right before an operation and sends right after it. Time in sends and
    receives, waiting included, is on the track "communication", and counts as idle.
    """
    home = check_complete(schedule)
    check_order(schedule)
    costs = Costs(len(home), forward, backward, weight, send)
    programs = _programs(schedule, home)
    lanes = _lanes(programs, costs)
    result = run(lanes, sum(map(len, programs)))
    if result.stuck:
        raise _hang(programs, lanes, result)
    tracks = []
    for rank, (program, lane) in enumerate(zip(programs, lanes, strict=True)):
        ends = [result.ends[task] for task in lane.tasks]
        arrivals = [0, *ends[:-1]]  # a rank begins to wait when its last step is over
        runs = [n for n, step in enumerate(program) if step.action == "run"]
        waits = [n for n, step in enumerate(program) if step.action != "run"]
        starts = [result.starts[lane.tasks[n]] for n in runs]
        ops = [program[n].op for n in runs]
        tracks.append(Track(rank, COMPUTE, starts, [ends[n] for n in runs], ops))
        starts = [arrivals[n] for n in waits]
        what = [f"{program[n].action} {program[n].op}" for n in waits]
        tracks.append(Track(rank, COMMUNICATION, starts, [ends[n] for n in waits], what))
    return Timeline(len(schedule), tracks)


def _programs(schedule: Sequence[Sequence[Op]], home: dict[int, int]) -> list[list[Step]]:
    """Each rank's operations with the receives before and the sends after them."""
    stages = num_stages(schedule)
    arrivals = [
        [[need for need in needs(op, stages) if home[need.stage] != rank] for op in row]
        for rank, row in enumerate(schedule)
    ]
    wanted = {result for row in arrivals for results in row for result in results}
    programs = []
    for row, awaited in zip(schedule, arrivals, strict=True):
        program = []
        for op, results in zip(row, awaited, strict=True):
            program += [Step("receive", result) for result in results]
            program.append(Step("run", op))
            if result_of(op) in wanted:
                program.append(Step("send", result_of(op)))
        programs.append(program)
    return programs


def _lanes(programs: Sequence[Sequence[Step]], costs: Costs) -> list[Lane]:
    """A send and its receive start together: each needs what comes before the other one."""
    before: dict[Step, int] = {}
    task = 0
    for program in programs:
        for index, step in enumerate(program):
            before[step] = task - 1 if index else NOTHING
            task += 1
    partner = {"send": "receive", "receive": "send"}
    lanes = []
    task = 0
    for program in programs:
        lane = Lane()
        for step in program:
            if step.action == "run":
                lane.add(task, costs.of[step.op.kind][step.op.stage])
            else:
                lane.add(task, costs.send, before[Step(partner[step.action], step.op)])
            task += 1
        lanes.append(lane)
    return lanes


def _hang(programs: Sequence[Sequence[Step]], lanes: Sequence[Lane], result: Run) -> Hang:
    """Where each stuck rank stands, and after which of its operations."""
    lines, stages = ["with blocking sends these stages never go on:"], []
    for rank, task, _ in result.stuck:
        index = lanes[rank].tasks.index(task)
        step = programs[rank][index]
        done = [earlier.op for earlier in programs[rank][:index] if earlier.action == "run"]
        after = f"after {done[-1]}" if done else "before its first operation"
        lines.append(f"  stage {step.stage} (rank {rank}, {after}) {step}")
        stages.append(step.stage)
    return Hang(tuple(stages), "\n".join(lines))
