"""Who takes part in a collective, and how two of them swap messages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Members:
    """The ranks of `group` that take part, as it counts them, and this one's rank among them."""

    ranks: Sequence[int]
    rank: int
    group: dist.ProcessGroup | None

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> "Members":
        """All ranks of `group` (None: the default group)."""
        rank = dist.get_rank(group)
        if rank < 0:
            raise ValueError(f"rank {dist.get_rank()} is not in the group that it calls with")
        return cls(range(dist.get_world_size(group)), rank, group)

    def __len__(self) -> int:
        return len(self.ranks)

    def send(self, tensor: torch.Tensor, to: int) -> None:
        dist.send(tensor, group=self.group, group_dst=self.ranks[to])

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        dist.recv(tensor, group=self.group, group_src=self.ranks[source])

    def start_send(self, tensor: torch.Tensor, to: int) -> dist.Work:
        work = dist.isend(tensor, group=self.group, group_dst=self.ranks[to])
        assert work is not None  # as torch has it for ranks outside of the group
        return work

    def start_receive(self, tensor: torch.Tensor, source: int) -> dist.Work:
        work = dist.irecv(tensor, group=self.group, group_src=self.ranks[source])
        assert work is not None
        return work

    def start_exchange(
        self, outgoing: torch.Tensor, to: int, incoming: torch.Tensor, source: int
    ) -> list[dist.Work]:
        """Start sending and receiving at once, so that ranks which all send first do not hang.

        The caller waits for all of the returned work. As one batch, since NCCL would otherwise
        queue the two behind each other; the receive first, since gloo sends a message directly
        when its receiver has already said where it goes.
        """
        source, to = self.ranks[source], self.ranks[to]
        return dist.batch_isend_irecv(
            [
                dist.P2POp(dist.irecv, incoming, group=self.group, group_peer=source),
                dist.P2POp(dist.isend, outgoing, group=self.group, group_peer=to),
            ]
        )

    def exchange(self, outgoing: torch.Tensor, incoming: torch.Tensor, partner: int) -> None:
        """Swap a tensor for the one of `partner`."""
        for work in self.start_exchange(outgoing, partner, incoming, partner):
            work.wait()


def flat_view(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of `tensor`, (numel,), in its own memory and without a gradient."""
    if not tensor.is_contiguous():
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()} is not "
            "contiguous, and messages are read from memory in order: pass tensor.contiguous()"
        )
    return tensor.detach().view(-1)
