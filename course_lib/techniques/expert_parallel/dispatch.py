"""Dispatch and combine: tokens to their experts' ranks, and the answers back to the tokens.

    x (T, C) --sort by expert--> (S, C) --all-to-all--> (R, C) --sort by expert--> (R, C)
                                                                                      | experts
    y (T, C) <--weigh, add up--- (S, C) <--all-to-all--- (R, C) <-----unsort---------(R, C)

Combine is dispatch backwards: each permutation is undone by its inverse, and the all-to-all goes
with its sizes exchanged. So what comes back is where it was sent from, and nobody says which row
was whose.

A row of a token is sent once for each of its k choices. Two kinds of plan:

    plan_dispatch         as many rows as there are choices. The ranks first tell each other how
                          many: an all-to-all of E counts, 8 E (n-1)/n bytes. Nothing is dropped
                          (MegaBlocks), unless `kept` says so
    plan_with_capacity    `capacity` rows for every expert, some of them zeros (GShard, Switch)

What a layer sends in a step, from a rank with S rows to send and R received, S' and R' of them to
and from others, of C elements of b bytes:

    forward     dispatch S' C b    combine R' C b
    backward    combine S' C b     dispatch R' C b         2 (S' + R') C b in all, and the counts

If all experts are chosen alike, S' = R' = T k (n-1)/n: 4 T k C b (n-1)/n bytes.

Lepikhin et al., "GShard", arXiv 2006.16668 (2020), section 3; Gale et al., "MegaBlocks", arXiv
2211.15841 (2022), section 5.

Shapes: T tokens, k choices, C hidden size, E experts, n ranks, S rows sent, R rows received.
"""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.techniques.tensor_parallel.axis import TensorAxis

from .all_to_all import Pending, start_all_to_all
from .capacity import places
from .experts import expert_share
from .permutations import Permute, Spread, inverse_of


@dataclass(frozen=True)
class Dispatch:
    """Where each row goes and comes from: plain data of one rank.

    slots: (S,), which choice (token k + number of the choice) each row is that is sent, expert by
        expert; T k where it is padding.
    rows: (T, k), the row of each choice; S where it is dropped. The inverse of `slots`.
    send, receive: rows to and from each rank of `group`.
    order: (R,), the rows that arrive, source by source, in the order of the experts.
    per_expert: rows of each of this rank's experts, E/n numbers, R in all.
    """

    slots: torch.Tensor
    rows: torch.Tensor
    send: tuple[int, ...]
    receive: tuple[int, ...]
    order: torch.Tensor
    per_expert: tuple[int, ...]
    group: dist.ProcessGroup | None = field(repr=False)

    @property
    def dropped(self) -> int:
        """Choices of this rank's tokens that no expert serves."""
        return int((self.rows == len(self.slots)).sum())


def plan_dispatch(
    experts: torch.Tensor,
    num_experts: int,
    group: dist.ProcessGroup | None = None,
    kept: torch.Tensor | None = None,
) -> Dispatch:
    """The plan for the choices (T, k) of this rank's tokens, as `Routing.experts` has them.

    kept: (T, k), the choices that are served, if not all.

    Called by all ranks of `group`, each with its own number of tokens, which may be 0.
    """
    axis = TensorAxis.of(group)
    share = expert_share(num_experts, axis)
    choices = experts.flatten()
    slots = choices.argsort(stable=True)  # (T k,)
    if kept is not None:
        slots = slots[kept.flatten()[slots]]
    counts = torch.bincount(choices[slots], minlength=num_experts)  # (E,)
    arriving = torch.empty_like(counts)
    with record_function("counts: all-to-all"):
        dist.all_to_all_single(arriving, counts, group=group)
    by_source = arriving.view(axis.size, share.size)  # (n, E/n)
    return Dispatch(
        slots,
        inverse_of(slots, choices.numel()).view(experts.shape),
        tuple(counts.view(axis.size, share.size).sum(1).tolist()),
        tuple(by_source.sum(1).tolist()),
        _by_expert(by_source),
        tuple(by_source.sum(0).tolist()),
        group,
    )


def plan_with_capacity(
    experts: torch.Tensor, num_experts: int, capacity: int, group: dist.ProcessGroup | None = None
) -> Dispatch:
    """A plan by which every rank sends `capacity` rows to each expert. Sends nothing itself.

    capacity: the same on all ranks of `group`; see capacity.py for who is served.
    """
    axis = TensorAxis.of(group)
    share = expert_share(num_experts, axis)
    choices, place = experts.flatten(), places(experts, num_experts).flatten()
    served = (place < capacity).nonzero().squeeze(1)
    slots = torch.full((num_experts * capacity,), len(choices), device=experts.device)
    slots[choices[served] * capacity + place[served]] = served
    each = torch.full((axis.size, share.size), capacity, device=experts.device)
    rows = (share.size * capacity,) * axis.size
    return Dispatch(
        slots,
        inverse_of(slots, len(choices)).view(experts.shape),
        rows,
        rows,
        _by_expert(each),
        (axis.size * capacity,) * share.size,
        group,
    )


def dispatch(x: torch.Tensor, plan: Dispatch) -> torch.Tensor:
    """Tokens (T, C) to the rows of this rank's experts (R, C), expert by expert."""
    return by_expert(start_dispatch(x, plan).wait(), plan)


def combine(y: torch.Tensor, plan: Dispatch, weights: torch.Tensor) -> torch.Tensor:
    """What the experts made of their rows (R, C) to a sum for each token (T, C).

    weights: (T, k), of `Routing`. A choice that was dropped adds nothing.
    """
    return weighted_sum(start_combine(y, plan).wait(), plan, weights)


# ------------------------------------------------------------------------------------------------
# The same in steps, to compute something while rows travel
# ------------------------------------------------------------------------------------------------


def start_dispatch(x: torch.Tensor, plan: Dispatch) -> Pending:
    """Send the tokens (T, C). What `wait()` gives (R, C) is source by source: see `by_expert`."""
    rows = Spread.apply(x, plan.slots, plan.rows)  # (S, C)
    return start_all_to_all(rows, plan.send, plan.receive, plan.group, "dispatch")


def by_expert(arrived: torch.Tensor, plan: Dispatch) -> torch.Tensor:
    """Rows (R, C) that came source by source, expert by expert."""
    return Permute.apply(arrived, plan.order, inverse_of(plan.order, len(plan.order)))


def start_combine(y: torch.Tensor, plan: Dispatch) -> Pending:
    """Send the answers (R, C) home. What `wait()` gives (S, C) is for `weighted_sum`."""
    answers = Permute.apply(y, inverse_of(plan.order, len(plan.order)), plan.order)
    return start_all_to_all(answers, plan.receive, plan.send, plan.group, "combine")


def weighted_sum(back: torch.Tensor, plan: Dispatch, weights: torch.Tensor) -> torch.Tensor:
    """The answers (S, C) that came back, times their weights (T, k), added up by token: (T, C)."""
    chosen = Permute.apply(back, plan.rows.flatten(), plan.slots)  # (T k, C)
    chosen = chosen.unflatten(0, tuple(weights.shape))  # (T, k, C)
    return (chosen * weights.to(back.dtype).unsqueeze(-1)).sum(1)


def _by_expert(by_source: torch.Tensor) -> torch.Tensor:
    """The order that takes rows from source by source to expert by expert.

    by_source: (n, E/n), how many rows each source has for each expert of this rank.
    """
    ranks, experts = by_source.shape
    expert = torch.arange(experts, device=by_source.device).repeat(ranks)
    return expert.repeat_interleave(by_source.flatten()).argsort(stable=True)
