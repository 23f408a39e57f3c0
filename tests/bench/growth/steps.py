"""A training step by ranks: its time on shared cores, and what each rank has to hold."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.techniques.data_parallel import DataParallel
from course_lib.techniques.zero3 import Zero3
from tests.bench._growth import growing, middle, why
from tests.bench.measurement import Measurement, Row, seconds_of

_RANKS = (1, 2, 4, 8)
_SAMPLES = 4  # per rank
_STEPS, _WARM_UP = 9, 2


def _adamw(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def _data_parallel(model) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    return DataParallel(model), _adamw(model.parameters())


def _zero3(model) -> tuple[torch.nn.Module, Zero3]:
    return model, Zero3(model, _adamw)


def _steps(technique: Callable, steps: int) -> list[float]:
    """Seconds of each step, with one thread for each rank."""
    torch.set_num_threads(1)
    model, optimizer = technique(tiny_gpt(layers=4, hidden=128, seed=0))
    tokens, targets = next(batches(1, _SAMPLES * dist.get_world_size()))
    part = slice(dist.get_rank(), None, dist.get_world_size())

    def step() -> None:
        optimizer.zero_grad()
        token_loss(model(tokens[part]), targets[part]).backward()
        optimizer.step()

    return [seconds_of(step) for _ in range(steps)]


def _by_ranks(technique: Callable) -> Iterator[tuple[str, dict[str, float]]]:
    for ranks in _RANKS:
        seconds = collect(
            _steps, ranks, (technique, _WARM_UP + _STEPS), observe=False, timeout=120
        )[0]
        memory = collect(
            _steps, ranks, (technique, 2), observe="memory", timeout=120
        ).trace.memory()
        took = middle(seconds[_WARM_UP:])
        yield (
            f"{ranks}",
            {
                "ms": took,
                "ms per rank": took / ranks,
                "MB per rank at its peak": max(memory.peak) / 1e6,
            },
        )


def _measure(technique: Callable) -> list[Measurement]:
    lines = growing(_by_ranks(technique))
    first, last = lines[0].values, lines[-1].values
    held = "MB per rank at its peak"
    reason = (
        f"more ranks than cores take turns: {_RANKS[-1]} ranks do {_RANKS[-1]} times the work of "
        f"one in {last['ms'] / first['ms']:.1f} times its time, messages included, and each holds "
        f"{last[held] / first[held]:.2f} of what one holds"
    )
    return [*lines, why(reason)]


ROWS = [
    Row(
        "growth-data-parallel",
        f"a data parallel step by ranks of {_SAMPLES} samples each",
        lambda: _measure(_data_parallel),
    ),
    Row(
        "growth-zero3",
        f"a step of ZeRO-3 by ranks of {_SAMPLES} samples each",
        lambda: _measure(_zero3),
    ),
]
