"""One weight on several stages, such as an embedding that is also the output layer.

Each stage has a copy. If the copies start equal and receive the same gradient, the sum of what all
of them computed, then the same optimizer keeps them equal for ever. Megatron-LM does so with an
all-reduce between the first and the last stage (Shoeybi et al. 2019; Narayanan et al., SC 2021).
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.collectives import broadcast_tensors
from course_lib.techniques.schedules import Schedule


class TiedWeight:
    """The copies of one weight that this rank holds, and the group of ranks that hold others.

    copies: the parameters on this rank (the same object twice counts once).
    holders: ranks of the default group that hold a copy, first stage first. All of them create
        this object, at the same point of their programs.
    """

    def __init__(self, copies: Sequence[nn.Parameter], holders: list[int]) -> None:
        self.copies = list(dict.fromkeys(copies))
        holders = list(dict.fromkeys(holders))
        self.group = None
        if len(holders) > 1:
            self.group = dist.new_group(holders, use_local_synchronization=True)
            first = dist.get_group_rank(self.group, holders[0])
            broadcast_tensors(self.copies[:1], self.group, first)
        with torch.no_grad():
            for copy in self.copies[1:]:
                copy.copy_(self.copies[0])

    def sum_gradients(self) -> None:
        """Give every copy the gradient of the weight: the sum over all its copies."""
        if not self.copies[0].requires_grad:
            return
        total = torch.zeros_like(self.copies[0], memory_format=torch.contiguous_format)
        for copy in self.copies:
            if copy.grad is not None:
                total += copy.grad
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        for copy in self.copies:
            if copy.grad is None:
                copy.grad = total.clone()
            else:
                copy.grad.copy_(total)  # in place: ZeRO keeps gradients in a buffer of its own


def tie(
    tied: Sequence[Sequence[tuple[int, str]]],
    schedule: Schedule,
    modules: Mapping[int, nn.Module],
    ranks: Sequence[int],
) -> list[TiedWeight]:
    """Those of the `tied` weights that this rank holds a copy of.

    tied: for each weight its copies, (stage, name of the parameter in its module). modules: of the
    stages here. ranks: of the default group, one for each row of the schedule.
    """
    home = {op.stage: ranks[row] for row, ops in enumerate(schedule) for op in ops}
    weights = []
    for uses in map(sorted, tied):
        own = [(stage, name) for stage, name in uses if stage in modules]
        if own:
            copies = [modules[stage].get_parameter(name) for stage, name in own]
            weights.append(TiedWeight(copies, [home[stage] for stage, _ in uses]))
    return weights
