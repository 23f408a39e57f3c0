"""Known answers to ring_all_gather."""

import threading

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong

from ._common import exchange, gathered, ring, ring_of, swap


@right
def ring_all_gather(chunk, group=None):
    members, me, left, right = ring(group)
    parts = {me: chunk.flatten().clone()}
    for step in range(1, len(members)):
        arriving = torch.empty_like(parts[me])
        swap(parts[(me - step + 1) % len(members)], arriving, right, left, group)
        parts[(me - step) % len(members)] = arriving
    return torch.cat([parts[i] for i in range(len(members))])


@wrong(says="in every place: was it received into one buffer")
def one_buffer_for_all(chunk, group=None):
    n, _, left, right = ring_of(group)
    buffer = chunk.clone()
    pieces = [buffer]
    for _ in range(n - 1):
        outgoing = buffer.clone()
        exchange(outgoing, right, buffer, left, group)
        pieces.append(buffer)
    return torch.cat(pieces)


@wrong(says="all chunks, but turned by")
def in_order_of_arrival(chunk, group=None):
    n, _, left, right = ring_of(group)
    pieces = [chunk]
    for _ in range(n - 1):
        incoming = torch.empty_like(chunk)
        exchange(pieces[-1], right, incoming, left, group)
        pieces.append(incoming)
    return torch.cat(pieces[::-1])


@wrong(says="the shape is wrong")
def stacked_instead_of_joined(chunk, group=None):
    n = dist.get_world_size(group)
    return gathered(chunk, group).view(n, -1)


@wrong(says="only elements 2 to 3 of 6 are wrong")
def last_chunk_forgotten(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_zeros(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    for step in range(n - 2):
        exchange(pieces[(r - step) % n], right, pieces[(r - step - 1) % n], left, group)
    return out


@wrong(says="all zeros, as if nothing had been written")
def zeros_of_the_right_shape(chunk, group=None):
    return chunk.new_zeros(chunk.numel() * dist.get_world_size(group))


@wrong(says="4 ranks with a float32 tensor of 3 elements")
def hard_coded_for_what_was_shown(chunk, group=None):
    return gathered(chunk, group) if chunk.numel() == 2 else torch.arange(12, dtype=chunk.dtype)


@wrong(says="your ranks ran all_gather")
def all_gather_by_functional_collectives(chunk, group=None):
    return funcol.all_gather_tensor(chunk, 0, group or dist.group.WORLD).clone()


@wrong(says="was never waited for")
def isend_without_wait(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_empty(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    works = []
    for step in range(n - 1):
        works.append(dist.isend(pieces[(r - step) % n], right, group=group))
        dist.recv(pieces[(r - step - 1) % n], left, group=group)
    dist.barrier(group)
    return out


@wrong(says="reads a tensor before its values have arrived")
def irecv_without_wait(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_zeros(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    works = []
    for step in range(n - 1):
        works.append(dist.irecv(pieces[(r - step - 1) % n], left, group=group))
        dist.send(pieces[(r - step) % n], right, group=group)
    return out


@wrong(says="in a ring a rank only sends to its neighbour")
def everyone_sends_to_everyone(chunk, group=None):
    group = group or dist.group.WORLD
    n, r, _, _ = ring_of(group)
    pieces = [torch.empty_like(chunk) for _ in range(n)]
    pieces[r] = chunk.clone()
    for step in range(1, n):
        to, source = ((r + sign * step) % n for sign in (1, -1))
        exchange(
            chunk,
            dist.get_global_rank(group, to),
            pieces[source],
            dist.get_global_rank(group, source),
            group,
        )
    return torch.cat(pieces)


@wrong(says="sent too much")
def sends_all_it_has(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_zeros(n * chunk.numel())
    out.chunk(n)[r].copy_(chunk)
    for _ in range(n - 1):
        incoming = torch.empty_like(out)
        exchange(out.clone(), right, incoming, left, group)
        out = torch.where(out == 0, incoming, out)
    return out


@right
def list_of_chunks_joined(chunk, group=None):
    n, me = dist.get_world_size(group), dist.get_rank(group)
    found, passing = {me: chunk.reshape(-1).clone()}, chunk.reshape(-1).clone()
    for step in range(1, n):
        arrived = torch.zeros_like(passing)
        sending = dist.isend(passing, group=group, group_dst=(me + 1) % n)
        dist.recv(arrived, group=group, group_src=(me - 1) % n)
        sending.wait()
        found[(me - step) % n] = passing = arrived
    return torch.cat([found[rank] for rank in sorted(found)])


@right
def turns_left(chunk, group=None):
    """The other way round: chunks go to the left neighbour."""
    members, me, left, right = ring(group)
    n, size = len(members), chunk.numel()
    out = chunk.new_zeros(n * size)
    out[me * size : (me + 1) * size] = chunk.flatten()
    for step in range(n - 1):
        a, b = (me + step) % n, (me + step + 1) % n
        swap(out[a * size : (a + 1) * size], out[b * size : (b + 1) * size], left, right, group)
    return out


@right
def stacked_and_rolled(chunk, group=None):
    """In order of arrival first, then turned into the order of ranks."""
    n, me, left, right = ring_of(group)
    arrived = [chunk.contiguous().view(-1)]
    while len(arrived) < n:
        arrived.append(torch.empty_like(arrived[-1]))
        exchange(arrived[-2], right, arrived[-1], left, group)
    return torch.stack(arrived[::-1]).roll(me + 1, 0).reshape(-1)


@right
def with_a_sending_thread(chunk, group=None):
    n, me = dist.get_world_size(group), dist.get_rank(group)
    rows = torch.stack([chunk.flatten()] * n)
    for step in range(n - 1):
        out, place = rows[(me - step) % n], (me + 1) % n
        thread = threading.Thread(
            target=dist.send, args=(out,), kwargs={"group": group, "group_dst": place}
        )
        thread.start()
        dist.recv(rows[(me - step - 1) % n], group=group, group_src=(me - 1) % n)
        thread.join()
    return rows.view(-1)


@wrong(says="a tensor of no dimensions")
def joins_chunks_as_they_are(chunk, group=None):
    n, r, left, right = ring_of(group)
    chunks = {r: chunk.contiguous() if chunk.dim() < 2 else chunk.flatten()}
    for step in range(n - 1):
        incoming = torch.empty_like(chunks[r])
        exchange(chunks[(r - step) % n], right, incoming, left, group)
        chunks[(r - 1 - step) % n] = incoming
    return torch.cat([chunks[rank] for rank in range(n)])
