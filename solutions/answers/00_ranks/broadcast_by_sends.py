"""Known answers to broadcast_by_sends."""

import itertools
import threading

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import others


@right
def broadcast_in_a_chain(tensor, root):
    n = dist.get_world_size()
    place = (dist.get_rank() - root) % n
    if place:
        dist.recv(tensor, (dist.get_rank() - 1) % n)
    if place < n - 1:
        dist.send(tensor, (dist.get_rank() + 1) % n)


@right
def broadcast_down_a_tree(tensor, root):
    """Rank p, counted from the root, hears from p without its highest bit."""
    n = dist.get_world_size()
    place = (dist.get_rank() - root) % n
    if place:
        dist.recv(tensor, (place - (1 << place.bit_length() - 1) + root) % n)
    for level in itertools.count(place.bit_length()):
        if place + (1 << level) >= n:
            break
        dist.send(tensor, (place + (1 << level) + root) % n)


@right
def broadcast_all_at_once(tensor, root):
    if dist.get_rank() == root:
        others = set(range(dist.get_world_size())) - {root}
        for work in [dist.isend(tensor, other) for other in others]:
            work.wait()
    else:
        dist.irecv(tensor, root).wait()
    return tensor


@right
def broadcast_with_threads(tensor, root):
    if dist.get_rank() != root:
        dist.recv(tensor, root)
        return
    senders = [threading.Thread(target=dist.send, args=(tensor, other)) for other in others()]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


@right
def broadcast_from_a_copy(tensor, root):
    """Copies on both ends, and a barrier that nobody needs."""
    copy = tensor.clone(memory_format=torch.contiguous_format)
    dist.barrier()
    if dist.get_rank() == root:
        for work in [dist.isend(copy, other) for other in others()]:
            work.wait()
    else:
        dist.irecv(copy, root).wait()
        tensor.copy_(copy)


@wrong(says="the root is rank 2 here, not rank 0")
def the_sender_is_always_0(tensor, root):
    if dist.get_rank() == 0:
        for other in others():
            dist.send(tensor, other)
    else:
        dist.recv(tensor, root)


@wrong(says="the root is rank 2 here, not rank 0")
def root_is_always_0(tensor, root):
    if dist.get_rank() == 0:
        for other in others():
            dist.send(tensor, other)
    elif dist.get_rank() != root:
        dist.recv(tensor, 0)
    else:
        dist.recv(tensor, root)


@wrong(says="nothing has been received into it")
def broadcast_into_a_new_tensor(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(tensor, other)
    else:
        tensor = torch.empty_like(tensor)
        dist.recv(tensor, root)


@wrong(says="receive into that one, as dist.broadcast does")
def broadcast_returns_it(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(tensor, other)
        return tensor
    arriving = torch.empty_like(tensor)
    dist.recv(arriving, root)
    return arriving


@wrong(says="Invalid destination rank")
def root_sends_to_itself_too(tensor, root):
    if dist.get_rank() == root:
        for other in range(dist.get_world_size()):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, root)


@wrong(says="rank 2 waits for a message from rank 0")
def last_rank_forgotten(tensor, root):
    n = dist.get_world_size()
    if dist.get_rank() == root:
        for other in range(n - 1):
            if other != root:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, root)


@wrong(says="Is something sent that nobody needs?")
def everyone_broadcasts(tensor, root):
    pieces = {other: torch.empty_like(tensor) for other in others()}
    works = [dist.isend(tensor, other) for other in others()]
    works += [dist.irecv(piece, other) for other, piece in pieces.items()]
    for work in works:
        work.wait()
    if root in pieces:
        tensor.copy_(pieces[root])


@wrong(says="your ranks ran broadcast")
def broadcast_by_the_builtin(tensor, root):
    dist.broadcast(tensor, root)


@wrong(says="your ranks ran all_reduce")
def broadcast_through_the_back_door(tensor, root):
    if dist.get_rank() != root:
        tensor.zero_()
    dist.group.WORLD.allreduce([tensor]).wait()


@wrong(says="all zeros")
def broadcast_of_zeros(tensor, root):
    if dist.get_rank() != root:
        tensor.zero_()


@wrong(says="was never waited for")
def broadcast_without_waiting(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.isend(tensor, other)
    else:
        dist.irecv(tensor, root)
        tensor += 0


@wrong(says="a tensor of no dimensions")
def broadcast_into_a_slice(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(tensor, other)
    else:
        arriving = torch.empty_like(tensor)
        dist.recv(arriving, root)
        tensor[:] = arriving


@wrong(says="the previous one in a ring of n is (rank - 1) % n")
def a_chain_that_does_not_close(tensor, root):
    me, n = dist.get_rank(), dist.get_world_size()
    if me != root:
        dist.recv(tensor, me - 1)
    if me < n - 1:
        dist.send(tensor, me + 1)
