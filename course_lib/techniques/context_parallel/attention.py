"""What the three attentions have in common: how they are called, and what autograd sees of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from course_lib.techniques.collectives.members import Members

from .masks import Sight
from .split import TokenSplit


class Attention(Protocol):
    """Attention of this rank's queries to the keys of all ranks: (B, H, T_r, D), like `q`.

    q: (B, H, T_r, D), and k, v (B, K, T_r, D) with K dividing H, of the tokens that `split` gives
        to this rank.
    group: the ranks that share the sequences (None: all).
    causal: whether a query sees no key behind it.
    documents: (B, T) or (T,), of the whole sequences; see masks.py.
    scale: of the scores, 1 / sqrt(D) unless given.

    All ranks of `group` call it, forward and backward. Raises `ValueError`, before anything is
    sent, for shapes that fit neither each other, nor the split, nor the group.
    """

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        split: TokenSplit,
        group: dist.ProcessGroup | None = None,
        *,
        causal: bool = True,
        documents: torch.Tensor | None = None,
        scale: float | None = None,
    ) -> torch.Tensor: ...


@dataclass(frozen=True)
class Setting:
    """Beside q, k and v: what this rank's queries see, who takes part, what multiplies scores."""

    sight: Sight
    members: Members
    scale: float


Forward = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, Setting], tuple[torch.Tensor, torch.Tensor]
]
"""From q, k and v to out (B, H, T_r, D) and lse (B, H, T_r), in float32 at least."""

Backward = Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""From the gradient of out, then q, k, v, out, lse and the setting, to those of q, k and v."""


def over_split_sequences(
    compute: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Setting], torch.Tensor],
) -> Attention:
    """A decorator: `compute` gets arguments that fit, and is called as `Attention` says."""

    def attention(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        split: TokenSplit,
        group: dist.ProcessGroup | None = None,
        *,
        causal: bool = True,
        documents: torch.Tensor | None = None,
        scale: float | None = None,
    ) -> torch.Tensor:
        members = Members.of(group)
        _look(q, k, v, split, members)
        sight = Sight(split, members.rank, causal, documents)
        setting = Setting(sight, members, q.shape[-1] ** -0.5 if scale is None else scale)
        return compute(q, k, v, setting)

    attention.__module__, attention.__name__ = compute.__module__, compute.__name__
    attention.__qualname__ = compute.__qualname__  # by which processes find each other's functions
    attention.__doc__ = f"{compute.__doc__}\n\n    {Attention.__doc__}"
    return attention


def in_two_passes(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    setting: Setting,
    forward: Forward,
    backward: Backward,
) -> torch.Tensor:
    """out, as an operation of autograd's that keeps what is large once: q, k, v, out and lse."""
    return _TwoPasses.apply(q, k, v, setting, forward, backward)


class _TwoPasses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        setting: Setting,
        forward: Forward,
        backward: Backward,
    ) -> torch.Tensor:
        out, lse = forward(q, k, v, setting)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.setting, ctx.way_back = setting, backward
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple:
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = ctx.way_back(grad_out, q, k, v, out, lse, ctx.setting)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _look(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, split: TokenSplit, members: Members
) -> None:
    """`ValueError` for shapes that fit neither each other, nor the split, nor the group."""
    if split.ranks != len(members):
        raise ValueError(f"the split is over {split.ranks} ranks, the group has {len(members)}")
    for name, tensor in (("queries", q), ("keys", k), ("values", v)):
        if tensor.dim() != 4 or tensor.shape[2] != split.size(members.rank):
            raise ValueError(
                f"rank {members.rank} holds {split.size(members.rank)} tokens, and its {name} have "
                f"shape {tuple(tensor.shape)}, which should be (batch, heads, tokens, head size)"
            )
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"queries of shape {tuple(q.shape)} do not go with keys of {tuple(k.shape)} and "
            f"values of {tuple(v.shape)}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"queries are {q.dtype}, keys {k.dtype} and values {v.dtype}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads cannot share {k.shape[1]} heads of keys and values evenly"
        )
