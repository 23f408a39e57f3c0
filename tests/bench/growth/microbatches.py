"""A pipeline's step by microbatches, each of the same size."""

from collections.abc import Iterator

import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.pipeline.partition import cut, layer_costs, split_by_cost
from course_lib.techniques.schedules import one_f_one_b
from tests.bench._growth import growing, middle, why
from tests.bench.measurement import Measurement, Row, seconds_of

_STAGES, _SAMPLES = 2, 4  # samples in a microbatch
_MICROBATCHES = (1, 2, 4, 8, 16, 32)
_STEPS, _WARM_UP = 9, 2


def _on_each_rank(microbatches: int) -> float:
    """Milliseconds of one step."""
    tokens, targets = next(batches(1, _SAMPLES * microbatches))
    model = tiny_gpt(layers=2 * _STAGES, hidden=128, seed=0)
    layers = nn.Sequential(model.embedding, *model.blocks, model.head)
    part = cut(layers, split_by_cost(layer_costs(layers, tokens), _STAGES))[dist.get_rank()]
    pipeline = Pipeline({dist.get_rank(): part}, one_f_one_b(_STAGES, microbatches), token_loss)

    def step() -> None:
        pipeline.train_step(tokens, targets)
        dist.barrier()

    return middle([seconds_of(step) for _ in range(_WARM_UP + _STEPS)][_WARM_UP:])


def _steps() -> Iterator[tuple[str, dict[str, float]]]:
    for m in _MICROBATCHES:
        took = max(collect(_on_each_rank, _STAGES, (m,), observe=False, timeout=120))
        yield f"{m}", {"ms": took, "ms per slot": took / (m + _STAGES - 1)}


def _measure() -> list[Measurement]:
    lines = growing(_steps())
    slots = [line.values["ms per slot"] for line in lines]
    reason = (
        f"a step has m + p - 1 slots of a forward and a backward, of {min(slots):.1f} to "
        f"{max(slots):.1f} ms; with few microbatches, the p - 1 of the bubble weigh most"
    )
    return [*lines, why(reason)]


ROWS = [
    Row(
        "growth-microbatches",
        f"a 1F1B step of {_STAGES} stages by microbatches of {_SAMPLES} samples",
        _measure,
    )
]
