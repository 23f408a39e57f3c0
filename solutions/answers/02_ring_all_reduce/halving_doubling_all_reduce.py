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


@right
def by_recursion_on_the_half(tensor, group=None):
    def reduce(flat, ranks):
        """All-reduce `flat` over `ranks`, in place."""
        if len(ranks) == 1:
            return
        me, half = ranks.index(dist.get_rank(group)), len(ranks) // 2
        peer = ranks[(me + half) % len(ranks)]
        low, high = flat.chunk(2)
        mine, theirs = (low, high) if me < half else (high, low)
        arrived = torch.empty_like(mine)
        sending = dist.isend(theirs, group=group, group_dst=peer)
        dist.recv(arrived, group=group, group_src=peer)
        sending.wait()
        mine += arrived
        reduce(mine, ranks[:half] if me < half else ranks[half:])
        sending = dist.isend(mine, group=group, group_dst=peer)
        dist.recv(theirs, group=group, group_src=peer)
        sending.wait()

    n = dist.get_world_size(group)
    flat = torch.nn.functional.pad(tensor.flatten(), (0, -tensor.numel() % n))
    reduce(flat, list(range(n)))
    return tensor.copy_(flat[: tensor.numel()].view_as(tensor))


@right
def with_a_stack_of_halves(tensor, group=None):
    n, me = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.new_zeros(-(-tensor.numel() // n) * n)
    flat[: tensor.numel()] = tensor.reshape(-1)
    begin, end, distance, done = 0, len(flat), n // 2, []
    while distance:
        middle = (begin + end) // 2
        upper = bool(me & distance)
        keep = slice(middle, end) if upper else slice(begin, middle)
        give = slice(begin, middle) if upper else slice(middle, end)
        arrived = torch.empty_like(flat[keep])
        works = [
            dist.isend(flat[give], group=group, group_dst=me ^ distance),
            dist.irecv(arrived, group=group, group_src=me ^ distance),
        ]
        for work in works:
            work.wait()
        flat[keep] = flat[keep] + arrived
        done.append((distance, keep, give))
        begin, end, distance = keep.start, keep.stop, distance // 2
    for distance, keep, give in reversed(done):
        work = dist.irecv(flat[give], group=group, group_src=me ^ distance)
        dist.send(flat[keep], group=group, group_dst=me ^ distance)
        work.wait()
    tensor.copy_(flat[: tensor.numel()].reshape(tensor.shape))
    return tensor


@right
def lower_rank_speaks_first(tensor, group=None):
    """Blocking calls only, in an order that cannot deadlock."""
    n, me = dist.get_world_size(group), dist.get_rank(group)

    def swapped(out, peer):
        arrived = torch.empty_like(out)
        for turn in (0, 1):
            if (me < peer) == (turn == 0):
                dist.send(out, group=group, group_dst=peer)
            else:
                dist.recv(arrived, group=group, group_src=peer)
        return arrived

    flat = torch.cat([tensor.reshape(-1), tensor.new_zeros(-tensor.numel() % n)])
    rows, levels = flat.view(n, -1), n.bit_length() - 1
    mine = rows
    for level in reversed(range(levels)):
        halves, bit = mine.chunk(2), me >> level & 1
        mine = halves[bit] + swapped(halves[1 - bit].contiguous(), me ^ 1 << level)
    for level in range(levels):
        pair = [mine, swapped(mine, me ^ 1 << level)]
        mine = torch.cat(pair[::-1] if me >> level & 1 else pair)
    tensor.copy_(mine.reshape(-1)[: tensor.numel()].view_as(tensor))
    return tensor


@right
def in_batches_of_two(tensor, group=None):
    n, me = dist.get_world_size(group), dist.get_rank(group)
    size = -(-tensor.numel() // n)
    rows = torch.zeros(n * size, dtype=tensor.dtype)
    rows[: tensor.numel()] = tensor.flatten()
    rows = list(rows.split(size)) if size else [rows] * n

    def trade(out, peer):
        arrived = torch.empty_like(out)
        pair = [
            dist.P2POp(dist.isend, out, group=group, group_peer=peer),
            dist.P2POp(dist.irecv, arrived, group=group, group_peer=peer),
        ]
        [work.wait() for work in dist.batch_isend_irecv(pair)]
        return arrived

    block = range(n)
    while len(block) > 1:
        half = len(block) // 2
        lower, upper = block[:half], block[half:]
        mine, theirs = (lower, upper) if me in lower else (upper, lower)
        arrived = trade(torch.cat([rows[i] for i in theirs]), theirs[mine.index(me)])
        for i, part in zip(mine, arrived.chunk(half), strict=True):
            rows[i] = rows[i] + part
        block = mine
    while len(block) < n:
        size_now = len(block)
        other = range(block[0] ^ size_now, (block[0] ^ size_now) + size_now)
        arrived = trade(torch.cat([rows[i] for i in block]), me ^ size_now)
        for i, part in zip(other, arrived.chunk(size_now), strict=True):
            rows[i] = part
        block = range(min(block[0], other[0]), max(block[-1], other[-1]) + 1)
    tensor.copy_(torch.cat(rows)[: tensor.numel()].view(tensor.shape))
    return tensor
