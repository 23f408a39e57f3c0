"""What the exercises loss_everywhere and norm_on_a_mesh share."""

import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.process_groups import group_of
from course_lib.checks.returned_numbers import close

from ._axes import (
    AXES,
    Sizes,
    groups,
)

FEW_BYTES = 400  # some numbers, not a gradient


MESHES: tuple[Sizes, ...] = (
    {"pipeline": 2, "data": 1, "tensor": 2},
    {"pipeline": 1, "data": 2, "tensor": 2},
    {"pipeline": 2, "data": 2, "tensor": 1},
    {"tensor": 1, "data": 3, "pipeline": 1},
    {"data": 1, "tensor": 1, "pipeline": 3},
)


def groups_of_mesh(case: Case) -> list[list[int]]:
    """The groups along all axes."""
    return [ranks for axis in AXES for ranks in groups(axis, case.data["sizes"])]


def open(sizes: Sizes) -> dict[str, dist.ProcessGroup]:
    """This rank's group along each axis."""
    me = dist.get_rank()
    return {axis: group_of(ranks) for axis in AXES for ranks in groups(axis, sizes) if me in ranks}


SHORT = (
    "right to the digits that float32 has, and no further: begin with a float64 zero, and add up "
    "in float64"
)


def is_short(got: float, want: float) -> bool:
    """Whether a wrong number is right up to the rounding of some float32 numbers."""
    return close(got, want, 1e-6)


def few_bytes(observation: Observation, what: str) -> Finding | None:
    for rank in range(len(observation.values)):
        rule = f"{what}: one number, or a few, has to travel"
        if finding := traffic_limits.sent(observation, rank, 0, FEW_BYTES, rule):
            return finding
    return None
