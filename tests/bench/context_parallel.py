"""A layer of ring attention against the sum of its parts: its attention alone, its messages alone.

PyTorch's own context parallelism knows the attention kernels of GPUs only, so on CPUs there is
nothing to run beside it.
"""

import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.ranks import collect
from course_lib.techniques.collectives.members import Members
from course_lib.techniques.context_parallel import ring_attention, zigzag_split
from tests.bench.measurement import Measurement, Row, paired

_HEADS, _HEAD, _TOKENS = 8, 64, 2048
_STARTS, _PAIRS = 4, 6
_LIMIT = 1.15


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """What a rank computes under zigzag, forward and backward, on keys that are all here.

    The triangle of its own keys, and for each other rank all queries and half of the keys, or half
    of the queries and all keys.
    """
    whole, half = slice(0, q.shape[2]), slice(q.shape[2] // 2, q.shape[2])
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    blocks = [(whole, whole, True)]
    blocks += [(whole, half, False)] * rank + [(half, whole, False)] * (last - rank)
    for queries, keys, causal in blocks:
        of_block = _leaves(q[:, :, queries], k[:, :, keys], v[:, :, keys])
        out = F.scaled_dot_product_attention(*of_block, is_causal=causal)
        out.backward(out.detach())


def _leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Without a gradient from the time before, to which the next would be added."""
    return [tensor.detach().requires_grad_() for tensor in tensors]


def _messages(kv: torch.Tensor) -> None:
    """What a rank sends, each message after the other: keys and values twice, gradients once."""
    members = Members.of(None)
    n, r = len(members), members.rank
    coming = torch.empty_like(kv)
    for _ in range(3 * (n - 1)):
        for work in members.start_exchange(kv, (r + 1) % n, coming, (r - 1) % n):
            work.wait()


def _on_each_rank() -> tuple[float, ...]:
    torch.manual_seed(0)
    split = zigzag_split(_TOKENS, dist.get_world_size())
    shape = (1, _HEADS, split.size(dist.get_rank()), _HEAD)
    q, k, v, gradient = (torch.randn(shape) for _ in range(4))
    kv = torch.stack([k, v])

    def ours() -> None:
        ring_attention(*_leaves(q, k, v), split).backward(gradient)
        dist.barrier()

    def parts() -> None:
        _attention(q, k, v)
        dist.barrier()
        _messages(kv)
        dist.barrier()

    return paired(ours, parts, pairs=_PAIRS)


def _measure() -> list[Measurement]:
    found = []
    for ranks in (2, 4):
        # Which core the system puts whom on makes a difference.
        starts = [
            collect(_on_each_rank, ranks, observe=False, timeout=300)[0] for _ in range(_STARTS)
        ]
        what = f"{_TOKENS} tokens, {_HEADS} heads of {_HEAD}, {ranks} ranks"
        found.append(Measurement(what, tuple(itertools.chain(*starts)), limit=_LIMIT))
    return found


ROWS = [Row("context", "ring attention against its attention and its messages alone", _measure)]
