"""Known answers to ring_reduce_scatter."""

import torch
import torch.distributed as dist
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong

from ._common import exchange, reduced_chunks, ring, ring_of, swap


@right
def ring_reduce_scatter(tensor, group=None):
    """One accumulator travels: the chunk that ends here started on the right neighbour."""
    members, me, left, right = ring(group)
    n = len(members)
    chunks = tensor.reshape(n, -1)
    moving = chunks[me - 1].clone()
    for step in range(2, n + 1):
        arriving = torch.empty_like(moving)
        swap(moving, arriving, right, left, group)
        moving = arriving + chunks[(me - step) % n]
    return moving


@wrong(says="chunk 1 of the sum, and rank 0 should return chunk 0")
def finishes_one_to_the_right(tensor, group=None):
    n, r, left, right = ring_of(group)
    chunks = list(tensor.reshape(-1).clone().chunk(n))
    for step in range(n - 1):
        incoming = torch.empty_like(chunks[0])
        exchange(chunks[(r - step) % n], right, incoming, left, group)
        chunks[(r - 1 - step) % n] += incoming
    return chunks[(r + 1) % n]


@wrong(says="the part of rank 1 is missing")
def first_arrival_forgotten(tensor, group=None):
    _, r, _, _ = ring_of(group)
    arrivals = []

    def add(chunk, incoming):
        arrivals.append(incoming)
        if len(arrivals) > 1:
            chunk += incoming

    return reduced_chunks(tensor, group, add=add)[r]


@wrong(says="this is the rank's own chunk 0, with nothing added")
def receives_and_forgets_to_add(tensor, group=None):
    _, r, _, _ = ring_of(group)
    return reduced_chunks(tensor, group, add=lambda chunk, incoming: None)[r]


@wrong(says="this is rank 1's input, with nothing added")
def overwrites_instead_of_adding(tensor, group=None):
    _, r, _, _ = ring_of(group)
    return reduced_chunks(tensor, group, add=torch.Tensor.copy_)[r]


@wrong(says="the tensor that was passed in has changed")
def adds_into_the_input(tensor, group=None):
    n, r, left, right = ring_of(group)
    chunks = list(tensor.view(-1).chunk(n))
    for step in range(n - 1):
        incoming = torch.empty_like(chunks[0])
        exchange(chunks[(r - 1 - step) % n], right, incoming, left, group)
        chunks[(r - 2 - step) % n] += incoming
    return chunks[r].clone()


@wrong(says="writes into a tensor that is still being sent")
def adds_into_what_is_being_sent(tensor, group=None):
    n, r, left, right = ring_of(group)
    chunks = list(tensor.reshape(-1).clone().chunk(n))
    for step in range(n - 1):
        outgoing = chunks[(r - 1 - step) % n]
        work = dist.isend(outgoing, right, group=group)
        outgoing.zero_()  # "it has been sent"
        incoming = torch.empty_like(chunks[0])
        dist.recv(incoming, left, group=group)
        work.wait()
        chunks[(r - 2 - step) % n] += incoming
    return chunks[r]


@wrong(says="sent too much")
def sends_the_whole_tensor(tensor, group=None):
    n, r, left, right = ring_of(group)
    passing, total = tensor.reshape(-1).clone(), tensor.reshape(-1).clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(passing)
        exchange(passing, right, incoming, left, group)
        passing = incoming
        total += incoming
    return total.chunk(n)[r].clone()


@wrong(says="in a ring a rank only sends to its neighbour")
def sends_each_chunk_to_its_owner(tensor, group=None):
    group = group or dist.group.WORLD
    n, r, _, _ = ring_of(group)
    chunks = tensor.reshape(-1).chunk(n)
    own = chunks[r].clone()
    for step in range(1, n):
        to, source = ((r + sign * step) % n for sign in (1, -1))
        incoming = torch.empty_like(own)
        exchange(
            chunks[to].contiguous(),
            dist.get_global_rank(group, to),
            incoming,
            dist.get_global_rank(group, source),
            group,
        )
        own += incoming
    return own


@wrong(says="your ranks ran reduce_scatter")
def reduce_scatter_by_the_group_object(tensor, group=None):
    group = group or dist.group.WORLD
    n = dist.get_world_size(group)
    out = tensor.new_empty(tensor.numel() // n)
    chunks = [chunk.contiguous() for chunk in tensor.reshape(-1).chunk(n)]
    group.reduce_scatter([out], [chunks]).wait()
    return out


@wrong(says="dist.get_rank(group) is your own, and group_dst")
def forgets_the_group(tensor, group=None):
    return reduced_chunks(tensor)[dist.get_rank()]


@right
def adds_into_new_chunks(tensor, group=None):
    """No clone of the whole: a list whose entries are replaced by sums."""
    n, me = dist.get_world_size(group), dist.get_rank(group)
    chunks = list(tensor.reshape(-1).split(tensor.numel() // n))
    for step in range(1, n):
        arrived = torch.empty_like(chunks[0])
        sending = dist.isend(
            chunks[(me - step) % n].contiguous(), group=group, group_dst=(me + 1) % n
        )
        dist.irecv(arrived, group=group, group_src=(me - 1) % n).wait()
        sending.wait()
        chunks[(me - step - 1) % n] = chunks[(me - step - 1) % n] + arrived
    return chunks[me] if n > 1 else chunks[me].clone()


@right
def even_ranks_send_first(tensor, group=None):
    """Blocking sends only: who is even sends before it receives."""
    _, me, left, right = ring(group)
    n = dist.get_world_size(group)
    work = tensor.detach().clone().flatten().reshape(n, -1)
    arrived = torch.zeros_like(work[0])
    for step in range(n - 1):
        out = work[me - 1 - step]
        if me % 2 == 0:
            dist.send(out, right, group=group)
            dist.recv(arrived, left, group=group)
        else:
            dist.recv(arrived, left, group=group)
            dist.send(out, right, group=group)
        work[me - 2 - step].add_(arrived)
    return work[me].clone()


@right
def rolled_so_that_the_index_is_the_step(tensor, group=None):
    members, me, left, right = ring(group)
    n = len(members)
    mine = tensor.reshape(n, -1).roll(-me, 0).flip(0)  # mine[s] leaves in step s
    total = mine[0].clone()
    for part in mine[1:]:
        arrived = torch.empty_like(total)
        swap(total, arrived, right, left, group)
        total = torch.add(part, arrived)
    return total.view(-1)


@right
def by_recursion(tensor, group=None):
    n, me, left, right = ring_of(group)
    chunks = tensor.reshape(-1).chunk(n)

    def total(step):
        """What this rank has of the chunk that it sends in `step`."""
        own = chunks[(me - 1 - step) % n]
        if step == 0:
            return own.clone()
        before, arrived = total(step - 1), torch.empty_like(own)
        exchange(before, right, arrived, left, group)
        return own + arrived

    return total(n - 1)
