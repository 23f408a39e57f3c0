"""A whole GPT with mixtures of experts in its blocks, on a mesh with an expert and a tensor axis.

Attention, embedding and head are those of tensor parallelism, on a tensor axis that may be of one
rank. A block whose MLP is a mixture in one process gets a `MixtureOfExperts`:

    groups = ExpertGroups.open(Mesh(data=4, expert=2))
    parallel = ExpertParallelGPT.from_model(model, groups)
    parallel.loss(own tokens, own targets).backward()
    average_gradients(parallel, groups)

The balancing losses are no part of what `loss` returns: they join in backward by themselves.
"""

import copy
from typing import Any

import torch
from torch import nn

from course_lib.techniques.tensor_parallel import TensorParallelGPT, WholeGPT

from .groups import ExpertGroups
from .layer import MixtureOfExperts
from .state import load_whole_experts


class ExpertParallelGPT(TensorParallelGPT):
    """`embedding`, then `blocks`, then `head`, with the experts of each block over `groups.expert`.

    Make it with `from_model`.
    """

    @classmethod
    def from_model(cls, model: WholeGPT, groups: ExpertGroups) -> "ExpertParallelGPT":  # type: ignore[override]
        """The parts of a GPT of one process, with its sizes, weights and type.

        model: the same on every rank; see `mixture_like` for its mixtures.
        """
        made = cls.shaped_like(model, groups.tensor)
        for block, whole in zip(made.blocks, model.blocks, strict=True):
            if is_mixture(whole.mlp):
                block.mlp = mixture_like(whole.mlp, groups)
        made.to(model.embedding.tokens.weight)
        keep_biases_precise(made)
        load_whole_experts(made, model.state_dict())
        return made


def is_mixture(mlp: nn.Module) -> bool:
    """Whether a block of one process has experts there."""
    return hasattr(mlp, "router") and hasattr(mlp, "experts")


def mixture_like(whole: Any, groups: ExpertGroups) -> MixtureOfExperts:
    """A layer with the sizes and options of a mixture of one process, and weights of its own.

    whole: has `router` (weight (E, C), top_k, gate), `experts` (up (E, F, C), down (E, C, F)),
        `shared` (an MLP with `up`, or None), `balance` and `z`.
    """
    experts, hidden = whole.router.weight.shape
    return MixtureOfExperts(
        hidden,
        experts,
        top_k=whole.router.top_k,
        inner=whole.experts.up.shape[1],
        shared=0 if whole.shared is None else whole.shared.up.out_features,
        gate=whole.router.gate,
        balance=whole.balance,
        z=whole.z,
        group=groups.expert,
        balance_group=groups.data,
        tensor_group=groups.tensor,
    )


def active_part(layer: nn.Module) -> nn.Module:
    """A copy of a layer of one process, on device "meta", with k experts instead of all E.

    What it computes is what a token costs, wherever its experts are.
    """
    made: Any = copy.deepcopy(layer).to("meta")
    if hasattr(made, "mlp") and is_mixture(made.mlp):
        router, experts = made.mlp.router, made.mlp.experts
        router.bias = router.bias[: router.top_k]
        for part, name in ((router, "weight"), (experts, "up"), (experts, "down")):
            setattr(part, name, nn.Parameter(getattr(part, name)[: router.top_k]))
    return made


def mixtures_of(module: nn.Module) -> list[MixtureOfExperts]:
    """The mixtures inside `module`, first to last."""
    return [part for part in module.modules() if isinstance(part, MixtureOfExperts)]


def keep_biases_precise(module: nn.Module) -> None:
    """Routers' biases in float32 at least: steps of 0.001 are lost in 16 bits."""
    for mixture in mixtures_of(module):
        bias = mixture.router.bias
        mixture.router.bias = bias.to(torch.promote_types(bias.dtype, torch.float32))
