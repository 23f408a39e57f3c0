"""Tensor fusion: many small tensors travel as few large ones.

Every message costs a latency alpha, whatever its size. A network with 160 gradients pays it 160
times, unless neighbours share a buffer (Sergeev & Del Balso, "Horovod: fast and easy distributed
deep learning in TensorFlow", arXiv 1802.05799, section 5). Horovod's buffer holds 128 MB since
version 0.21, and held 64 MB before.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

DEFAULT_BUFFER_BYTES = 128 * 2**20


AnyTensor = TypeVar("AnyTensor", bound=torch.Tensor)


def pack(tensors: Iterable[AnyTensor], buffer_bytes: int) -> Iterator[list[AnyTensor]]:
    """Split `tensors`, in their order, into runs that fit into a buffer together.

    Neighbours share a buffer while they have one dtype and device and fit; a tensor that is larger
    than the buffer goes alone.
    """
    if buffer_bytes < 1:
        raise ValueError(f"a buffer needs at least 1 byte, not {buffer_bytes}")
    run: list[AnyTensor] = []
    for tensor in tensors:
        alike = run and (tensor.dtype, tensor.device) == (run[0].dtype, run[0].device)
        if not alike or _bytes(run) + tensor.nbytes > buffer_bytes:
            if run:
                yield run
            run = []
        run.append(tensor)
    if run:
        yield run


def fuse(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Copy `tensors` (one dtype) one after another into a new flat buffer: (sum of numel,)."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unfuse(buffer: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    """Copy the parts of `buffer` back into the tensors that `fuse` took them from."""
    parts = buffer.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))


def fused_all_reduce(
    tensors: list[torch.Tensor],
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    group: dist.ProcessGroup | None = None,
    all_reduce: Callable[..., object] = dist.all_reduce,
) -> list[torch.Tensor]:
    """Sum each of `tensors` over the group, in place, with one `all_reduce` per buffer."""
    for run in pack(tensors, buffer_bytes):
        buffer = fuse(run)
        all_reduce(buffer, group=group)
        unfuse(buffer, run)
    return tensors


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
