"""The two layers whose size is the vocabulary V: each rank has V/t of its rows.

Embedding: a rank looks up the tokens that it has rows for and puts zeros for the others; the sum
over the ranks (g) has every row once.

Cross-entropy: the logits (B, T, V/t) stay where they are. With z the logits of one token and y its
target, the loss is log(sum_v exp z_v) - z_y. Each rank can compute its part of both terms, so what
has to travel is three numbers per token and not V:

    all-reduce (max)    max_v z_v                           b s elements
    all-reduce (sum)    sum_v exp(z_v - max), z_y - max     2 b s elements

Backward sends nothing: the gradient of a logit, softmax(z)_v - [v = y], needs the sums only.

Shoeybi et al. 2019 (arXiv 1909.08053), section 3, last paragraphs.

V need not be a multiple of t: some ranks then have a row more.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from .axis import (
    Share,
    TensorAxis,
    require_size,
    uneven_share,
)
from .f_and_g import ReduceFromTensorParallel
from .random_streams import separate_stream
from .sequence import (
    ReduceScatterToSequenceParallel,
    token_share,
)

IGNORED = -100  # the target that torch's cross_entropy leaves out


class VocabParallelEmbedding(nn.Module):
    """Tokens (B, T) to (B, T, C); `weight` is (V/t, C).

    sequence_parallel: to (B, T/t, C), the tokens of this rank.
    """

    def __init__(
        self,
        vocab: int,
        hidden: int,
        group: dist.ProcessGroup | None = None,
        *,
        sequence_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.axis = TensorAxis.of(group)
        self.sequence_parallel = sequence_parallel
        share = vocabulary_share(vocab, self.axis)
        self.shares = {"weight": share}
        self.weight = nn.Parameter(torch.empty(share.size, hidden))
        with separate_stream(share.index):
            nn.init.normal_(self.weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        share = self.shares["weight"]
        _require_symbols(tokens, share.whole)
        if self.sequence_parallel:
            token_share(tokens.shape[1], self.axis)
        row, elsewhere = _local(tokens, share)
        found = F.embedding(row, self.weight).masked_fill(elsewhere.unsqueeze(-1), 0)  # (B, T, C)
        g = ReduceScatterToSequenceParallel if self.sequence_parallel else ReduceFromTensorParallel
        return g.apply(found, self.axis)


def vocab_parallel_cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    vocab: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The loss of each target (...), from this rank's logits (..., V/t); 0 where IGNORED."""
    axis = TensorAxis.of(group)
    share = vocabulary_share(vocab, axis)
    require_size(logits.shape[-1], share.size, f"this rank's part of {vocab} logits")
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} and targets of shape {tuple(targets.shape)}"
        )
    _require_symbols(targets[targets != IGNORED], vocab)
    return _CrossEntropy.apply(logits, targets, share, axis)


def vocab_parallel_loss(
    logits: torch.Tensor,
    targets: torch.Tensor,
    vocab: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The mean of `vocab_parallel_cross_entropy` over all targets that are not IGNORED."""
    losses = vocab_parallel_cross_entropy(logits, targets, vocab, group)
    return losses.sum() / (targets != IGNORED).sum()


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, logits: torch.Tensor, targets: torch.Tensor, share: Share, axis: TensorAxis
    ) -> torch.Tensor:
        ctx.dtype = logits.dtype
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        with record_function("cross-entropy: all-reduces"):
            largest = axis.all_reduce(logits.amax(-1), dist.ReduceOp.MAX)  # (...)
            shifted = logits - largest.unsqueeze(-1)
            exponentials = shifted.exp()
            column, elsewhere = _local(targets, share)
            of_target = shifted.gather(-1, column.unsqueeze(-1)).squeeze(-1)
            parts = torch.stack([exponentials.sum(-1), of_target.masked_fill(elsewhere, 0)])
            total, of_target = axis.all_reduce(parts)  # (...) each
        softmax = exponentials.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, column, elsewhere, targets == IGNORED)
        return (total.log() - of_target).masked_fill(targets == IGNORED, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        softmax, column, elsewhere, ignored = ctx.saved_tensors
        gradient = gradient.masked_fill(ignored, 0)
        found = gradient.masked_fill(elsewhere, 0)
        logits = softmax * gradient.unsqueeze(-1)
        logits.scatter_add_(-1, column.unsqueeze(-1), -found.unsqueeze(-1))
        return logits.to(ctx.dtype), None, None, None


def vocabulary_share(vocab: int, axis: TensorAxis) -> Share:
    """The rows of this rank."""
    return uneven_share(axis, 0, vocab, "symbols of the vocabulary")


def _local(symbols: torch.Tensor, share: Share) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each symbol is in this rank's rows (0 if it is not), and whether it is elsewhere."""
    elsewhere = (symbols < share.start) | (symbols >= share.stop)
    return (symbols - share.start).masked_fill(elsewhere, 0), elsewhere


def _require_symbols(symbols: torch.Tensor, vocab: int) -> None:
    # No rank has a row for such a symbol, so it would silently become zeros.
    if symbols.numel():
        low, high = (int(x) for x in symbols.aminmax())
        if low < 0 or high >= vocab:
            raise ValueError(f"symbols from {low} to {high}, for a vocabulary of {vocab}")
