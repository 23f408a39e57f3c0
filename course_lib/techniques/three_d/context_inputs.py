"""What a tensor-parallel GPT has to know of the sequences that its tokens are from.

These may be elsewhere, on a context axis, or of several documents that are packed into a sequence.
Stages of a pipeline get nothing but one tensor, so the rest is told them from here, a microbatch at
a time.
"""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.context_parallel import ContextAxis, token_mean
from course_lib.techniques.pipeline.stage import Loss
from course_lib.techniques.tensor_parallel import (
    ParallelAttention,
    ParallelGPTEmbedding,
    TensorParallelGPT,
    vocab_parallel_cross_entropy,
)


class Sequences:
    """Gives the `stages` of this rank the positions and the attention of the sequences at hand.

    group: the ranks of which each has some tokens of every sequence; None where this one has all.
    """

    def __init__(self, stages: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        self.axis = ContextAxis(group or _alone())
        self.tokens = 0
        self.documents: tuple[torch.Tensor | None, ...] = ()  # by microbatch
        for module in stages.modules():
            if isinstance(module, ParallelGPTEmbedding):
                module.places = self.axis.positions
            elif isinstance(module, ParallelAttention):
                module.attend = self.axis.attend

    def begin(
        self, rows: list[torch.Tensor], documents: torch.Tensor | None, microbatches: int
    ) -> list[torch.Tensor]:
        """This rank's tokens of whole sequences, each (B, T), with documents (B, T) or none."""
        self.tokens = rows[0].shape[1]
        self.documents = (None,) * microbatches
        if documents is not None:
            self.documents = documents.chunk(microbatches)
        self.turn_to(0)
        return [self.axis.own(tensor) for tensor in rows]

    def turn_to(self, microbatch: int) -> None:
        """What runs now is of this microbatch."""
        self.axis.begin(self.tokens, self.documents[microbatch])


def _alone() -> dist.ProcessGroup:
    """A group of this rank, which the others need not know of."""
    return dist.new_group([dist.get_rank()], use_local_synchronization=True)


def loss_over(parallel: TensorParallelGPT, group: dist.ProcessGroup) -> Loss:
    """From logits (B, T_r, V/t) and targets (B, T_r) to the mean over the tokens of all ranks."""
    vocab, tensor_group = parallel.vocab, parallel.axis.group

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = vocab_parallel_cross_entropy(logits, targets, vocab, tensor_group)
        return token_mean(losses, targets, group)

    return loss
