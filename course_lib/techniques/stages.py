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
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def layer_costs(layers: nn.Sequential, example: torch.Tensor) -> list[int]:
    """Floating-point operations of each layer's forward pass on a batch like `example`.

    Counts matrix products and convolutions, the same on every machine. The layers are not run:
    shapes alone go through copies of them (on PyTorch's device "meta").
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

    A layer that costs nothing (an activation) stays with the one before it. Raises `ValueError` for
    fewer layers than stages.
    """
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot be cut into {stages} stages, each with a layer")
    before = [0.0]  # before[n]: cost of the first n layers
    for cost in costs:
        before.append(before[-1] + cost)
    # worst[n]: the most expensive stage, if the first n layers are cut into `stage` stages
    worst = before[:]
    cuts: list[list[int]] = []
    for stage in range(2, stages + 1):
        best, cut = worst[:], [0] * (layers + 1)
        for n in range(stage, layers + 1):
            tries = [(max(worst[k], before[n] - before[k]), -k) for k in range(stage - 1, n)]
            best[n], last = min(tries)
            cut[n] = -last
        worst = best
        cuts.append(cut)
    ends = [layers]
    for cut in reversed(cuts):
        ends.append(cut[ends[-1]])
    starts = [0, *ends[:0:-1]]
    return [range(start, end) for start, end in zip(starts, ends[::-1], strict=True)]


def cut(layers: nn.Sequential, parts: Sequence[range]) -> list[nn.Sequential]:
    """The layers of each stage. Parameters keep the names that they have in `layers`."""
    named = list(layers._modules.items())  # named_children() leaves out a layer that comes again
    return [nn.Sequential(OrderedDict(named[part.start : part.stop])) for part in parts]
