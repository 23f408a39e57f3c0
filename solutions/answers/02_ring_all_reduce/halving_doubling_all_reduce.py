"""Known answers to halving_doubling_all_reduce."""

import torch
import torch.distributed as dist
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong

from ._common import all_reduced, exchange, padded, ring, swap


@right
def halving_doubling_all_reduce(tensor, group=None):
    """Nearest partner first: the ranges are those of bit-reversed ranks, which nobody asks."""
    members, me, _, _ = ring(group)
    n = len(members)
    flat = torch.nn.functional.pad(tensor.reshape(-1), (0, -tensor.numel() % n))
    held, levels = flat, []
    for k in range(n.bit_length() - 1):
        partner = members[me ^ 2**k]
        keep, give = held.chunk(2) if not me & 2**k else held.chunk(2)[::-1]
        arriving = torch.empty_like(keep)
        swap(give, arriving, partner, partner, group)
        keep += arriving
        levels.append((partner, keep, give))
        held = keep
    for partner, keep, give in reversed(levels):
        swap(keep, give, partner, partner, group)
    return tensor.copy_(flat[: tensor.numel()].reshape(tensor.shape))


def halved_and_doubled(tensor, group=None, add=torch.Tensor.add_, double=True):
    group = group or dist.group.WORLD
    n, r = dist.get_world_size(group), dist.get_rank(group)
    flat = padded(tensor, n)
    low, high, given, distance = 0, flat.numel(), [], n // 2
    while distance:
        partner = dist.get_global_rank(group, r ^ distance)
        middle = (low + high) // 2
        keep, give = (
            ((middle, high), (low, middle)) if r & distance else ((low, middle), (middle, high))
        )
        incoming = flat.new_empty(keep[1] - keep[0])
        exchange(flat[give[0] : give[1]].clone(), partner, incoming, partner, group)
        add(flat[keep[0] : keep[1]], incoming)
        given.append((distance, give))
        low, high = keep
        distance //= 2
    while given and double:
        distance, (start, stop) = given.pop()
        partner = dist.get_global_rank(group, r ^ distance)
        incoming = flat.new_empty(stop - start)
        exchange(flat[low:high].clone(), partner, incoming, partner, group)
        flat[start:stop] = incoming
        low, high = min(low, start), max(high, stop)
    return flat[: tensor.numel()].view_as(tensor)


@wrong(says="you averaged a sum")
def halving_mean(tensor, group=None):
    return tensor.copy_(halved_and_doubled(tensor, group) / dist.get_world_size(group))


@wrong(says="at element 0 this is rank 3's input")
def halving_overwrites(tensor, group=None):
    return tensor.copy_(halved_and_doubled(tensor, group, add=torch.Tensor.copy_))


@wrong(says="only elements 2 to 7 of 8 are wrong (the last ones)")
def halving_without_doubling(tensor, group=None):
    return tensor.copy_(halved_and_doubled(tensor, group, double=False))


@wrong(says="only elements 8 to 9 of 10 are wrong (the last ones)")
def halving_drops_the_rest(tensor, group=None):
    flat = tensor.view(-1)
    whole = flat.numel() // dist.get_world_size(group) * dist.get_world_size(group)
    flat[:whole] = halved_and_doubled(flat[:whole], group)
    return tensor


@wrong(says="sent too many messages")
def a_ring_after_all(tensor, group=None):
    return tensor.copy_(all_reduced(tensor, group))


@wrong(says="this rank sent too much")
def recursive_doubling_of_whole_tensors(tensor, group=None):
    group = group or dist.group.WORLD
    n, r = dist.get_world_size(group), dist.get_rank(group)
    distance = 1
    while distance < n:
        partner = dist.get_global_rank(group, r ^ distance)
        incoming = torch.empty_like(tensor)
        exchange(tensor.clone(), partner, incoming, partner, group)
        tensor += incoming
        distance *= 2
    return tensor


@wrong(says="your ranks ran reduce")
def reduce_and_broadcast(tensor, group=None):
    root = dist.get_global_rank(group or dist.group.WORLD, 0)
    dist.reduce(tensor, root, group=group)
    dist.broadcast(tensor, root, group=group)
    return tensor


@wrong(says="work in place")
def halving_into_a_new_tensor(tensor, group=None):
    return halved_and_doubled(tensor, group)


@wrong(says="rank 3 left with sys.exit")
def a_rank_leaves(tensor, group=None):
    if dist.get_rank() == 3:
        raise SystemExit(0)
    return tensor.copy_(halved_and_doubled(tensor, group))


@wrong(says="nothing was sent at distance 8, and 16 ranks need the distances 1, 2, 4 and 8")
def distances_of_up_to_eight_ranks(tensor, group=None):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    chunks = torch.nn.functional.pad(tensor.flatten(), (0, -tensor.numel() % n)).view(n, -1)

    def block(owner, distance):
        start = owner // distance * distance
        return chunks[start : start + distance]

    def swapped(outgoing, incoming, distance):
        partner = dist.get_global_rank(group or dist.group.WORLD, r ^ distance)
        exchange(outgoing.clone(), partner, incoming, partner, group)

    distances = [distance for distance in (4, 2, 1) if distance < n]
    for distance in distances:
        incoming = torch.empty_like(block(r, distance))
        swapped(block(r ^ distance, distance), incoming, distance)
        block(r, distance).add_(incoming)
    for distance in reversed(distances):
        swapped(block(r, distance), block(r ^ distance, distance), distance)
    return tensor.copy_(chunks.reshape(-1)[: tensor.numel()].view_as(tensor))
