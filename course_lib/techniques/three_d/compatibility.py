"""What goes together in 3D parallelism, and why the rest does not; needs no processes."""

from collections.abc import Iterator
from typing import Any

import torch

from course_lib.techniques.expert_parallel.gpt import is_mixture
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
    tokens = model.embedding.positions.num_embeddings
    if tokens < mesh.context:
        yield f"sequences of {tokens} tokens cannot be cut over {mesh.context} ranks"
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
    mixtures = [block.mlp for block in model.blocks if is_mixture(block.mlp)]
    if mixtures:
        yield from _problems_of_experts(mixtures[0], mesh, zero)
    elif mesh.expert > 1:
        yield f"{mesh.expert} ranks are to share the experts of a model that has none"


def _problems_of_experts(mixture: Any, mesh: Mesh, zero: int) -> Iterator[str]:
    experts, inner, _ = mixture.experts.up.shape
    if experts % mesh.expert:
        yield f"{experts} experts do not divide over the {mesh.expert} ranks that are to share them"
    if inner % mesh.tensor:
        yield f"experts {inner} wide do not divide over {mesh.tensor} ranks of the tensor axis"
    if mixture.router.top_k > experts:
        yield f"a token cannot choose {mixture.router.top_k} of {experts} experts"
    if zero == 3:
        yield "ZeRO-3 takes a layer apart over one group, and experts have another: take zero=2"
