"""All keys and values gathered first, then attention: what Llama 3 does.

One all-gather brings every rank the keys and values of the whole sequence. What is left is easy:
no ring, and any mask. Llama 3 (arXiv 2407.21783, section 3.3.2) takes it for that reason, and since
with grouped queries keys and values are few: 8 heads of them for 128 of queries.

    bytes      those of the ring. Backward gathers again instead of keeping, then a reduce-scatter
               brings each rank the sum of the gradients of its keys.
    time       the gather is not hidden behind computation. It grows with T, attention with T^2.
    memory     T keys and values per rank for as long as the layer runs, not 3 T/n as in the ring.

Where ranks have different numbers of tokens, all send as many as the largest.
"""

import torch
from torch.profiler import record_function

from course_lib.techniques.collectives.torch_compat import all_gather_single, reduce_scatter_single

from .attention import Setting, in_two_passes, over_split_sequences
from .local_attention import add_keys, add_up, summands
from .merge import accumulating, nothing_yet


@over_split_sequences
def all_gather_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting
) -> torch.Tensor:
    """By one all-gather forward, and one and a reduce-scatter backward."""
    return in_two_passes(q, k, v, setting, _forward, _backward)


def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = nothing_yet(q)
    for source, (keys, values) in enumerate(_gather(k, v, setting)):
        add_keys(out, lse, q, keys, values, source, setting)
    return out, lse


def _backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    setting: Setting,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dq = torch.zeros_like(q, dtype=accumulating(q.dtype))
    dk, dv = _scatter(_for_each_rank(dq, grad_out, q, k, v, out, lse, setting), setting)
    return dq, dk, dv


def _for_each_rank(
    dq: torch.Tensor,
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    setting: Setting,
) -> torch.Tensor:
    """What this rank's queries give to the gradients of each rank's keys and values; and fills dq.

    (n, 2, B, K, T_max, D)
    """
    sums = dq.new_zeros(len(setting.members), *_padded_shape(k, setting))
    for source, (keys, values) in enumerate(_gather(k, v, setting)):
        found = summands(dq, grad_out, q, keys, values, out, lse, source, setting)
        add_up(sums[source], found)
    return sums


def _gather(k: torch.Tensor, v: torch.Tensor, setting: Setting) -> list[torch.Tensor]:
    """Keys and values of every rank, (2, B, K, T_r, D) each."""
    own = k.new_zeros(_padded_shape(k, setting))
    for kind, tensor in enumerate((k, v)):
        own[kind, ..., : k.shape[-2], :] = tensor
    arrived = own.new_empty(len(setting.members), *own.shape)
    with record_function("all-gather of keys and values"):
        all_gather_single(arrived.flatten(0, 1), own, group=setting.members.group)
    sizes = setting.sight.split.sizes
    return [block[..., :tokens, :] for block, tokens in zip(arrived, sizes, strict=True)]


def _scatter(sums: torch.Tensor, setting: Setting) -> torch.Tensor:
    """The sum over the ranks of what each has for this one: (2, B, K, T_r, D)."""
    own, members = sums.new_empty(sums.shape[1:]), setting.members
    with record_function("reduce-scatter of gradients of keys and values"):
        reduce_scatter_single(own, sums.flatten(0, 1), group=members.group)
    return own[..., : setting.sight.split.size(members.rank), :]


def _padded_shape(k: torch.Tensor, setting: Setting) -> tuple[int, ...]:
    """Of keys and values with as many tokens as the largest part has: (2, B, K, T_max, D)."""
    return 2, *k.shape[:2], max(setting.sight.split.sizes), k.shape[3]
