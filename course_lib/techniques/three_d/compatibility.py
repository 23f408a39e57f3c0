"""What goes together in 3D parallelism, and why the rest does not; needs no processes."""

from collections.abc import Iterator

import torch

from course_lib.techniques.mesh import Mesh
from course_lib.techniques.schedules import (
    BACKWARD,
    BACKWARD_WEIGHT,
    FORWARD,
    Schedule,
    num_stages,
)
from course_lib.techniques.tensor_parallel import WholeGPT


def check(
    model: WholeGPT,
    mesh: Mesh,
    schedule: Schedule,
    zero: int = 0,
    master_dtype: torch.dtype | None = None,
) -> None:
    """`ValueError` if these do not go together."""
    problems = list(_problems(model, mesh, schedule, zero, master_dtype))
    if problems:
        raise ValueError("; ".join(problems))


def _problems(
    model: WholeGPT,
    mesh: Mesh,
    schedule: Schedule,
    zero: int,
    master_dtype: torch.dtype | None,
) -> Iterator[str]:
    heads, layers = model.blocks[0].attention.heads, len(model.blocks) + 2
    if heads % mesh.tensor:
        yield f"{heads} attention heads do not divide over {mesh.tensor} ranks of the tensor axis"
    if len(schedule) != mesh.pipeline:
        yield f"the schedule is for {len(schedule)} ranks, the pipeline axis has {mesh.pipeline}"
    if num_stages(schedule) > layers:
        yield f"{layers} layers cannot be cut into {num_stages(schedule)} stages, each with one"
    if zero not in (0, 1, 2, 3):
        yield f"ZeRO has the stages 1 to 3, and 0 for none, not {zero}"
    split = any(op.kind == BACKWARD_WEIGHT for row in schedule for op in row)
    if zero >= 2 and split:
        yield f"ZeRO-{zero} sends gradients off after a backward pass, and zero-bubble splits it"
    tied = model.head.projection.weight is model.embedding.tokens.weight
    if zero >= 2 and tied and num_stages(schedule) > 1:
        yield f"ZeRO-{zero} sends gradients off before the stages of a tied weight can add theirs"
    kinds = [op.kind for op in schedule[0]]
    if zero == 3 and (num_stages(schedule) > 1 or kinds != [FORWARD, BACKWARD] * (len(kinds) // 2)):
        yield "ZeRO-3 frees a layer after its backward, so it needs one stage and 1F1B's order"
    if master_dtype is not None and not zero:
        yield "master weights are kept by ZeRO's optimizer: take zero=1"
