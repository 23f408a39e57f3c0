"""Cutting a model into pipeline stages of equal cost, not of equal numbers of layers.

The slowest stage sets the pace of a pipeline, so the best cut is the one whose most expensive stage
is cheapest:

    layers   embedding  block  block  block  block  head          cost  0 4 4 4 4 8
    by count [embedding  block  block] [block  block  head]       8 and 16
    by cost  [embedding  block  block  block] [block  head]       12 and 12

PipeDream (Narayanan et al., SOSP 2019, section 3.1) finds its cut by dynamic programming over
measured times; here it is the same recurrence over any costs, for stages on equal devices.
"""

import copy
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib.techniques.schedules import Schedule


def layer_costs(layers: nn.Sequential, example: torch.Tensor) -> list[int]:
    """Floating-point operations of each layer's forward pass on a batch like `example`.

    Counts matrix products and convolutions, the same on every machine. The layers are not run:
    only shapes go through copies of them (on PyTorch's device "meta").
    """
    costs = []
    x = example.to("meta")
    for layer in layers:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            x = copy.deepcopy(layer).to("meta")(x)
        costs.append(counter.get_total_flops())
    return costs


def split_by_cost(costs: Sequence[float], stages: int) -> list[range]:
    """Neighbouring layers for each stage, so that the most expensive stage is as cheap as can be.

    Of several such cuts the most even one; a layer that costs nothing (an activation) stays with
    the one before it. Raises `ValueError` for fewer layers than stages.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages, each with one")
    worst, _ = _best_cut(costs, stages, max)
    _, ends = _best_cut(
        costs, stages, lambda total, cost: total + cost**2 if cost <= worst else math.inf
    )
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _best_cut(
    costs: Sequence[float], stages: int, join: Callable[[float, float], float]
) -> tuple[float, list[int]]:
    """The least value of a cut, and where its stages end.

    join: (value of the stages before, cost of one more) -> value; it never falls. By dynamic
    programming: the best cut of n layers goes on from the best cut of fewer layers.
    """
    before = [0, *itertools.accumulate(costs)]  # before[n]: cost of the first n layers
    best: list[tuple[float, list[int]]] = [(0, [])] + [(math.inf, [])] * len(costs)
    for _ in range(stages):
        further: list[tuple[float, list[int]]] = [(math.inf, [])]
        for n in range(1, len(before)):
            tries = ((join(best[k][0], before[n] - before[k]), -k) for k in range(n))
            value, last = min(tries)
            further.append((value, [*best[-last][1], n]))
        best = further
    return best[-1]


def cut(layers: nn.Sequential, parts: Sequence[range]) -> list[nn.Sequential]:
    """The layers of each stage. Parameters keep the names that they have in `layers`."""
    named = list(layers._modules.items())  # named_children() leaves out a layer that comes again
    return [nn.Sequential(OrderedDict(named[part.start : part.stop])) for part in parts]


# ------------------------------------------------------------------------------------------------


def stages_of(schedule: Schedule, rank: int) -> list[int]:
    """The stages that a rank holds, first to last."""
    return sorted({op.stage for op in schedule[rank]})


def check_modules(
    modules: Mapping[int, nn.Module], schedule: Schedule, rank: int, world_size: int
) -> None:
    """Raise `ValueError` unless `modules` are those of the stages that `rank` holds."""
    if len(schedule) != world_size:
        raise ValueError(
            f"the schedule is for {len(schedule)} ranks, and the group has {world_size}"
        )
    asked = stages_of(schedule, rank)
    if sorted(modules) != asked:
        raise ValueError(
            f"rank {rank} runs the stages {asked} of this schedule, and has modules for "
            f"{sorted(modules)}"
        )
