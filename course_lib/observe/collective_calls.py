"""Collectives as functions of one tensor, called one after the other and watched as they go.

    called = run_ranks(call_each, 4, {"mine": (my_all_reduce, 1)} | PYTORCHS)
    what_moved(called.trace, called)

gives for each of them what `views.moving_values` draws.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .arrivals import Arrived, arrivals
from .trace import Trace

Values = list[float]
Collective = Callable[[torch.Tensor], torch.Tensor | Sequence[torch.Tensor]]
Called = tuple[Values, Arrived, Values]  # of a rank: what it put in, what arrived, what came out


def call_each(collectives: Mapping[str, tuple[Collective, int]]) -> dict[str, Called]:
    """On a rank: call each by `collectives[name] = (function, numbers that a rank puts in)`.

    Rank r puts in 10 (r + 1) and what follows it, so that every number tells where it is from.
    """
    called = {}
    with arrivals() as arrived:
        for name, (collective, count) in collectives.items():
            x = 10.0 * (dist.get_rank() + 1) + torch.arange(float(count))
            put_in = x.tolist()
            with record_function(name):
                result = collective(x)
            whole = result if isinstance(result, torch.Tensor) else torch.cat(list(result))
            called[name] = put_in, arrived, whole.tolist()
    return called


def what_moved(
    trace: Trace, called: Sequence[Mapping[str, Called]]
) -> dict[str, tuple[Trace, list[Values], list[Arrived], list[Values]]]:
    """By name the trace of each, what was put in, what arrived and what came out, by rank."""
    return {
        name: (
            trace.within(name),
            [by_rank[name][0] for by_rank in called],
            [by_rank[name][1] for by_rank in called],
            [by_rank[name][2] for by_rank in called],
        )
        for name in called[0]
    }


def _all_gather(x: torch.Tensor) -> list[torch.Tensor]:
    pieces = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, x)
    return pieces


def _all_reduce(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def _reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    mine = torch.empty(len(x) // dist.get_world_size())
    dist.reduce_scatter(mine, list(x.chunk(dist.get_world_size())))
    return mine


def _all_to_all(x: torch.Tensor) -> torch.Tensor:
    pieces = torch.empty_like(x)
    dist.all_to_all_single(pieces, x)
    return pieces


# PyTorch's own, and how many numbers each of four ranks puts in.
PYTORCHS: dict[str, tuple[Collective, int]] = {
    "dist.all_gather": (_all_gather, 1),
    "dist.all_reduce": (_all_reduce, 1),
    "dist.reduce_scatter": (_reduce_scatter, 4),
    "dist.all_to_all_single": (_all_to_all, 4),
}
