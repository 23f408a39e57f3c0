"""A tensor-parallel GPT on a context axis: what it has to know of tokens that are elsewhere."""

import torch
import torch.distributed as dist

from course_lib.techniques.context_parallel import ContextAxis, token_mean
from course_lib.techniques.pipeline.stage import Loss
from course_lib.techniques.tensor_parallel import (
    ParallelAttention,
    TensorParallelGPT,
    vocab_parallel_cross_entropy,
)


def cut_sequences(
    parallel: TensorParallelGPT, group: dist.ProcessGroup
) -> tuple[ContextAxis, Loss]:
    """Give `parallel` the positions and the attention of sequences that are cut over `group`.

    Returns the axis, which is told the length of the sequences before the model is called, and the
    loss: from logits (B, T_r, V/t) and targets (B, T_r) to the mean over the tokens of all ranks.
    """
    axis = ContextAxis(group)
    parallel.embedding.places = axis.positions
    for module in parallel.modules():
        if isinstance(module, ParallelAttention):
            module.attend = axis.attend

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = vocab_parallel_cross_entropy(logits, targets, parallel.vocab, parallel.axis.group)
        return token_mean(losses, targets, group)

    return axis, loss
