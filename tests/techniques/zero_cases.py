"""Models, data and the oracle that the tests of ZeRO share."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import NASTY_MODELS
from tests.techniques import least_squares_task
from tests.techniques.least_squares_task import mse, sgd

STEPS, SAMPLES = 10, 60  # 60 samples divide over 1 to 5 ranks
Parameters = dict[str, torch.Tensor]


def adamw(groups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=0.02, weight_decay=0.1)


OPTIMIZERS = {"adamw": adamw, "sgd": sgd}


def data(steps: int = STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of which each rank takes its rows, by `mine`."""
    return least_squares_task.data(SAMPLES, steps)


def mine(batch: torch.Tensor) -> torch.Tensor:
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def two_groups(model: nn.Module) -> list[dict]:
    """Decay for matrices only, and a learning rate of its own for the rest, as is usual."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trainable if p.dim() > 1]},
        {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0, "lr": 0.01},
    ]


def one_process(
    model: nn.Module,
    make_optimizer: Callable = adamw,
    *,
    grouped: bool = False,
    max_norm: float | None = None,
    steps: int = STEPS,
    first: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
) -> Iterator[Parameters]:
    """Parameters after each step of plain torch on whole batches."""
    if optimizer is None:
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = make_optimizer(two_groups(model) if grouped else trainable)
    for x, y in data(steps)[first:]:
        optimizer.zero_grad()
        mse(model, x, y).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        yield {name: p.detach().clone() for name, p in model.named_parameters()}


def on_ranks(
    stage: type,
    names: list[str],
    make_optimizer: Callable = adamw,
    *,
    grouped: bool = False,
    max_norm: float | None = None,
    steps: int = STEPS,
    **options,
) -> dict[str, list[Parameters]]:
    """For each nasty model, the parameters on this rank after each step."""
    return {
        name: list(_train(stage, name, make_optimizer, grouped, max_norm, steps, options))
        for name in names
    }


def _train(stage, name, make_optimizer, grouped, max_norm, steps, options) -> Iterator[Parameters]:
    model = NASTY_MODELS[name](dist.get_rank())  # unequal: the stage has to repair it
    if grouped:
        options = options | {"param_groups": two_groups(model)}
    zero = stage(model, make_optimizer, **options)
    for x, y in data(steps):
        zero.zero_grad()
        mse(model, mine(x), mine(y)).backward()
        if max_norm is not None:
            zero.clip_grad_norm_(max_norm)
        zero.step()
        yield whole(zero)


def whole(zero) -> Parameters:
    """All parameters of the model, whatever the stage keeps of them between steps."""
    with zero.whole_parameters() if hasattr(zero, "whole_parameters") else nullcontext():
        return {name: p.detach().clone() for name, p in zero.model.named_parameters()}


def differences(found: list[Parameters], wanted: list[Parameters]) -> Iterator[tuple]:
    """(largest difference, parameter, step) for each."""
    for step, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.keys() == b.keys()
        for name in b:
            yield (a[name] - b[name]).abs().max().item(), name, step
