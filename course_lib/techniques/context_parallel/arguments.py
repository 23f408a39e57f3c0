"""What every attention over a split sequence is given, looked at before anything is sent."""

import torch

from course_lib.techniques.collectives.members import Members

from .masks import Sight
from .split import TokenSplit


def look(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    split: TokenSplit,
    members: Members,
    causal: bool,
    documents: torch.Tensor | None,
    scale: float | None,
) -> tuple[Sight, float]:
    """What this rank's queries see, and the scale of the scores.

    Raises `ValueError` for shapes that fit neither each other, nor the split, nor the group.
    """
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
    sight = Sight(split, members.rank, causal, documents)
    return sight, q.shape[-1] ** -0.5 if scale is None else scale
