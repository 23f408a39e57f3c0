"""A pipeline's step against that of torch.distributed.pipelining, on the same stages."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.pipeline.partition import cut, layer_costs, split_by_cost
from course_lib.techniques.schedules import gpipe, one_f_one_b
from tests.bench.measurement import Measurement, Row, paired

_MICROBATCHES = 8
_PAIRS = 15
_KINDS = {"GPipe": (gpipe, "ScheduleGPipe"), "1F1B": (one_f_one_b, "Schedule1F1B")}


def _stage(stages: int, tokens: torch.Tensor) -> nn.Module:
    """This rank's part of a GPT that has two blocks a stage."""
    model = tiny_gpt(layers=2 * stages, hidden=128, seed=0)
    layers = nn.Sequential(model.embedding, *model.blocks, model.head)
    parts = cut(layers, split_by_cost(layer_costs(layers, tokens), stages))
    return parts[dist.get_rank()]


def _on_each_rank(kind: str) -> tuple[float, ...]:
    from torch.distributed import pipelining  # slow to load, and of use only here

    rank, stages = dist.get_rank(), dist.get_world_size()
    tokens, targets = next(batches(1, 128))
    ours, theirs = _stage(stages, tokens), _stage(stages, tokens)
    table, name = _KINDS[kind]
    pipeline = Pipeline({rank: ours}, table(stages, _MICROBATCHES), token_loss)
    stage = pipelining.PipelineStage(theirs, rank, stages, torch.device("cpu"))
    schedule = getattr(pipelining, name)(stage, _MICROBATCHES, loss_fn=token_loss)
    losses: list[torch.Tensor] = []

    def our_step() -> torch.Tensor | None:
        loss = pipeline.train_step(tokens, targets)
        dist.barrier()
        return loss

    def their_step() -> None:
        if rank == 0:
            schedule.step(tokens)
        elif rank == stages - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        dist.barrier()

    loss = our_step()
    their_step()
    if loss is not None:
        assert torch.equal(loss, torch.stack(losses).mean()), "the two do not compute the same"
    return paired(our_step, their_step, pairs=_PAIRS)


def _measure() -> list[Measurement]:
    return [
        Measurement(
            f"{kind}, {stages} stages, {_MICROBATCHES} microbatches",
            collect(_on_each_rank, stages, (kind,), observe=False, timeout=300)[0],
            limit=1.0,
        )
        for stages in (2, 4)
        for kind in _KINDS
    ]


ROWS = [Row("pipeline", "a pipeline's step against torch.distributed.pipelining", _measure)]
