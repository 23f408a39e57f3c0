"""Expert parallelism: many experts, of which each token uses a few, spread over the ranks.

To read in this order:

    router          which experts a token goes to, and what each counts
    load_balancing  tokens for every expert: two losses and a bias
    capacity        room for so many tokens, and what is dropped
    experts         the experts of a rank, computed together
    all_to_all      rows to every rank, and their gradients home
    permutations    rows in another order, and back
    dispatch        tokens to their experts, and the answers back
    layer           all of it, instead of an MLP; a shared expert hides the messages
    state           from one process to n ranks and back
    groups          experts are averaged over fewer ranks than the rest
    zero            and their state is sharded over fewer
    gpt             a whole model

Needs of its neighbours: tensor_parallel, zero, mesh, and what these need, collectives and
make_optimizer.

Every rank has its own tokens: the experts' ranks are ranks of the data axis.
"""

from .all_to_all import all_to_all, all_to_all_bytes
from .capacity import capacity_of, within_capacity
from .dispatch import Dispatch, combine, dispatch, plan_dispatch, plan_with_capacity
from .experts import Experts
from .gpt import ExpertParallelGPT, mixtures_of
from .groups import (
    ExpertGroups,
    average_gradients,
    clip_gradients,
    dense_parameters,
    equal_start,
    expert_parameters,
)
from .layer import MixtureOfExperts
from .load_balancing import load_balancing_loss, max_violation, total_counts, update_bias, z_loss
from .router import Router, Routing, route
from .state import expert_shares_of, gather_experts, load_whole_experts
from .zero import ExpertZero

__all__ = [
    "Dispatch",
    "ExpertGroups",
    "ExpertParallelGPT",
    "ExpertZero",
    "Experts",
    "MixtureOfExperts",
    "Router",
    "Routing",
    "all_to_all",
    "all_to_all_bytes",
    "average_gradients",
    "capacity_of",
    "clip_gradients",
    "combine",
    "dense_parameters",
    "dispatch",
    "equal_start",
    "expert_parameters",
    "expert_shares_of",
    "gather_experts",
    "load_balancing_loss",
    "load_whole_experts",
    "max_violation",
    "mixtures_of",
    "plan_dispatch",
    "plan_with_capacity",
    "route",
    "total_counts",
    "update_bias",
    "within_capacity",
    "z_loss",
]
