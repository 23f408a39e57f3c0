"""Known answers to all_gather_by_sends."""

import itertools
import threading

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import others


@right
def all_gather_at_once(tensor):
    n, me = dist.get_world_size(), dist.get_rank()
    pieces = [tensor.clone() if i == me else torch.empty_like(tensor) for i in range(n)]
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


@right
def all_gather_with_threads(tensor):
    n, me = dist.get_world_size(), dist.get_rank()
    pieces = [tensor.clone() for _ in range(n)]
    senders = [threading.Thread(target=dist.send, args=(tensor, i)) for i in others()]
    for sender in senders:
        sender.start()
    for i in range(n):
        if i != me:
            dist.recv(pieces[i], i)
    for sender in senders:
        sender.join()
    return pieces


@right
def all_gather_by_tags(tensor):
    """All at once, each message with its sender as the tag; rows of one tensor, unbound."""
    me, everything = dist.get_rank(), torch.stack([tensor] * dist.get_world_size())
    works = [dist.isend(tensor, other, tag=me) for other in others()]
    works += [dist.irecv(everything[other], other, tag=other) for other in others()]
    for work in works:
        work.wait()
    return everything.unbind()


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


@wrong(says="the right tensors, in another order: entry i is rank i's")
def own_tensor_first(tensor):
    pieces = gathered(tensor, new_pieces(tensor))
    return [tensor, *(pieces[other] for other in others())]


@wrong(says="you returned a Tensor")
def one_big_tensor(tensor):
    return torch.stack(gathered(tensor, new_pieces(tensor)))


@wrong(says="send first")
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


@wrong(says="all zeros, as if nothing had been written")
def nothing_but_ones_own(tensor):
    pieces = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    pieces[dist.get_rank()].copy_(tensor)
    return pieces


@wrong(says="nothing has been received into it")
def copies_of_ones_own(tensor):
    return [tensor.clone() for _ in range(dist.get_world_size())]


def broadcast(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(tensor, other)
    else:
        dist.recv(tensor, root)


@wrong(says="lies in the memory of `tensor`")
def ones_own_without_a_copy(tensor):
    pieces = new_pieces(tensor)
    pieces[dist.get_rank()] = tensor
    return gathered(tensor, pieces)


@wrong(says="rank 0's turn has overwritten it before it was sent")
def broadcasts_of_the_argument(tensor):
    pieces = []
    for root in range(dist.get_world_size()):
        broadcast(tensor, root)
        pieces.append(tensor.clone())
    return pieces


@wrong(says="which is what dist.recv returns: the number of the sender")
def what_recv_returns(tensor):
    pieces = new_pieces(tensor)
    works = [dist.isend(tensor, other) for other in others()]
    for other in others():
        pieces[other] = dist.recv(pieces[other], other)
    for work in works:
        work.wait()
    return pieces


kept = {}


@wrong(says="has changed while it was called again")
def pieces_kept_for_the_next_call(tensor):
    key = tensor.shape, tensor.dtype
    if key not in kept:
        kept[key] = new_pieces(tensor)
    kept[key][dist.get_rank()].copy_(tensor)
    return gathered(tensor, list(kept[key]))
