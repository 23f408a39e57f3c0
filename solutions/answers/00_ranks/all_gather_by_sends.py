"""Known answers to all_gather_by_sends."""

import itertools

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import others


@right
def all_gather_at_once(tensor):
    n, me = dist.get_world_size(), dist.get_rank()
    pieces = [tensor if i == me else torch.empty_like(tensor) for i in range(n)]
    operations = [
        operation
        for i in range(n)
        if i != me
        for operation in (
            dist.P2POp(dist.isend, tensor, i),
            dist.P2POp(dist.irecv, pieces[i], i),
        )
    ]
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()
    return pieces


@right
def all_gather_round_a_ring(tensor):
    n, me = dist.get_world_size(), dist.get_rank()
    pieces = {me: tensor.clone()}
    for step in range(1, n):
        sending = dist.isend(pieces[(me - step + 1) % n], (me + 1) % n)
        pieces[(me - step) % n] = torch.empty_like(tensor)
        dist.recv(pieces[(me - step) % n], (me - 1) % n)
        sending.wait()
    return tuple(pieces[i] for i in range(n))


@right
def all_gather_into_one_tensor(tensor):
    """Views of one tensor, in no order but that of the pairs."""
    n, me = dist.get_world_size(), dist.get_rank()
    everything = tensor.new_zeros(n, *tensor.shape)
    everything[me] = tensor
    for low, high in itertools.combinations(range(n), 2):
        if me == low:
            dist.send(tensor, high)
            dist.recv(everything[high], high)
        elif me == high:
            dist.recv(everything[low], low)
            dist.send(tensor, low)
    return list(everything)


def gathered(tensor, pieces):
    """Everyone sends to everyone, into `pieces`; returns them."""
    works = [dist.isend(tensor, other) for other in others()]
    for other in others():
        dist.recv(pieces[other], other)
    for work in works:
        work.wait()
    return pieces


def new_pieces(tensor):
    pieces = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    pieces[dist.get_rank()].copy_(tensor)
    return pieces


@wrong(says="are one and the same tensor")
def one_tensor_n_times(tensor):
    return gathered(tensor, [torch.empty_like(tensor)] * dist.get_world_size())


@wrong(says="this rank's own tensor included")
def all_but_ones_own(tensor):
    pieces = gathered(tensor, new_pieces(tensor))
    return [pieces[other] for other in others()]


@wrong(says="entry 0 of the list is not rank 0's tensor")
def own_tensor_first(tensor):
    pieces = gathered(tensor, new_pieces(tensor))
    return [tensor, *(pieces[other] for other in others())]


@wrong(says="you returned a Tensor")
def one_big_tensor(tensor):
    return torch.stack(gathered(tensor, new_pieces(tensor)))


@wrong(says="all send first")
def all_send_before_they_receive(tensor):
    pieces = new_pieces(tensor)
    for other in others():
        dist.send(tensor, other)
    for other in others():
        dist.recv(pieces[other], other)
    return pieces


@wrong(says="Does everything go through this rank?")
def through_rank_0(tensor):
    pieces = new_pieces(tensor)
    if dist.get_rank() == 0:
        for other in others():
            dist.recv(pieces[other], other)
        for other in others():
            for piece in pieces:
                dist.send(piece, other)
    else:
        dist.send(tensor, 0)
        for piece in pieces:
            dist.recv(piece, 0)
    return pieces


@wrong(says="your ranks ran all_gather")
def gathered_by_the_builtin(tensor):
    pieces = new_pieces(tensor)
    dist.all_gather(pieces, tensor)
    return pieces


@wrong(says="your ranks ran broadcast")
def gathered_by_broadcasts(tensor):
    pieces = new_pieces(tensor)
    for root, piece in enumerate(pieces):
        dist.broadcast(piece, root)
    return pieces


@wrong(says="all zeros: nothing has been written")
def nothing_but_ones_own(tensor):
    pieces = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    pieces[dist.get_rank()].copy_(tensor)
    return pieces


@wrong(says="nothing has been received into it")
def copies_of_ones_own(tensor):
    return [tensor.clone() for _ in range(dist.get_world_size())]
