"""Which messages a pipeline sends: all of it follows from the schedule.

After F of stage s its output goes to the rank of stage s + 1; after B (or I) the gradient of its
input goes to the rank of stage s - 1. Neighbours on the same rank need no message.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed as dist

from course_lib.techniques.schedules import FORWARD, Op, Schedule, needs, num_stages, result_of


class Message(NamedTuple):
    """`result` is an F (its output travels) or a B (the gradient of its input does)."""

    result: Op
    source: int  # ranks in the pipeline's group
    destination: int

    @property
    def boundary(self) -> int:
        """Between this stage and the next."""
        return self.result.stage if self.result.kind == FORWARD else self.result.stage - 1

    @property
    def direction(self) -> tuple[bool, bool]:
        """Messages of one direction never wait for each other in a circle."""
        return self.result.kind == FORWARD, self.source < self.destination


def plan(schedule: Schedule) -> list[Message]:
    """Every message of a schedule, those of each rank in the order in which it sends them."""
    stages = num_stages(schedule)
    home = {op.stage: rank for rank, row in enumerate(schedule) for op in row}
    wanted = {
        need: rank
        for rank, row in enumerate(schedule)
        for op in row
        for need in needs(op, stages)
        if home[need.stage] != rank
    }
    return [
        Message(result, rank, wanted[result])
        for rank, row in enumerate(schedule)
        for result in map(result_of, row)
        if result in wanted
    ]


def open_groups(
    messages: Sequence[Message], group: dist.ProcessGroup | None
) -> dict[tuple[bool, bool], dist.ProcessGroup]:
    """A process group for each direction that occurs; called by all ranks of `group`."""
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    return {
        direction: dist.new_group(ranks, use_local_synchronization=True)
        for direction in sorted({message.direction for message in messages})
    }
