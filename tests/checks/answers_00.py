"""Right answers to notebook 00, written independently of the solutions."""

import itertools

import torch
import torch.distributed as dist


def memory_wall(parameters, device_bytes):
    needed = parameters << 4
    return [parameters << 2, needed, -(-needed // device_bytes)]


def rank_tensor(size):
    return torch.ones(size).mul_(dist.get_rank())


def ping_pong(ball, rounds):
    """The two players take turns by the parity of the hit."""
    me, seen = dist.get_rank(), []
    if me > 1:
        return seen
    for hit in range(2 * rounds):
        if hit % 2 == me:
            ball += 1
            dist.isend(ball, 1 - me).wait()
        else:
            dist.irecv(ball, 1 - me).wait()
            seen.append(int(ball))
    return seen


def ping_pong_with_two_balls(ball, rounds):
    me, arriving, seen = dist.get_rank(), torch.zeros_like(ball), []
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            dist.send(ball + 1, 1)
        dist.recv(arriving, 1 - me)
        seen.append(arriving.item())
        ball = arriving
        if me == 1:
            dist.send(ball + 1, 0)
    return seen


def blame(waits):
    """Ends are whoever is waited for and waits for nobody; circles are found by closing them."""
    arrows = {rank: peer for rank, peer in waits.items() if peer is not None}
    ends = set(arrows.values()) - set(arrows)
    reached = {rank: {rank} for rank in arrows}
    for rank, seen in reached.items():
        seen.clear()
        here = arrows[rank]
        while here not in seen:
            seen.add(here)
            here = arrows.get(here, here)
    return sorted(ends | {rank for rank, seen in reached.items() if rank in seen})


# ---------------------------------------------------------------------------------------------


def broadcast_in_a_chain(tensor, root):
    n = dist.get_world_size()
    place = (dist.get_rank() - root) % n
    if place:
        dist.recv(tensor, (dist.get_rank() - 1) % n)
    if place < n - 1:
        dist.send(tensor, (dist.get_rank() + 1) % n)


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


def broadcast_all_at_once(tensor, root):
    if dist.get_rank() == root:
        others = set(range(dist.get_world_size())) - {root}
        for work in [dist.isend(tensor, other) for other in others]:
            work.wait()
    else:
        dist.irecv(tensor, root).wait()
    return tensor


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


def all_gather_round_a_ring(tensor):
    n, me = dist.get_world_size(), dist.get_rank()
    pieces = {me: tensor.clone()}
    for step in range(1, n):
        sending = dist.isend(pieces[(me - step + 1) % n], (me + 1) % n)
        pieces[(me - step) % n] = torch.empty_like(tensor)
        dist.recv(pieces[(me - step) % n], (me - 1) % n)
        sending.wait()
    return tuple(pieces[i] for i in range(n))


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


def scatter_by_sends(output, pieces, root):
    if pieces is None:
        dist.irecv(output, root).wait()
        return
    output[...] = pieces[root]
    for work in [dist.isend(piece, i) for i, piece in enumerate(pieces) if i != root]:
        work.wait()


ANSWERS = {
    "memory_wall": [memory_wall],
    "rank_tensor": [rank_tensor],
    "ping_pong": [ping_pong, ping_pong_with_two_balls],
    "blame": [blame],
    "broadcast_by_sends": [broadcast_in_a_chain, broadcast_down_a_tree, broadcast_all_at_once],
    "all_gather_by_sends": [
        all_gather_at_once,
        all_gather_round_a_ring,
        all_gather_into_one_tensor,
    ],
    "scatter_by_sends": [scatter_by_sends],
}
