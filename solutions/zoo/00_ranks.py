"""Wrong answers to notebook 00: what people write, and what the check must say to each."""

import math
import os

import torch
import torch.distributed as dist

from course_lib.checks.zoo import wrong

# ---------------------------------------------------------------------------------------------
# memory_wall
# ---------------------------------------------------------------------------------------------


@wrong("memory_wall", says="the optimizer's 12 bytes alone")
def wall_of_the_optimizer(parameters, device_bytes):
    return 4 * parameters, 12 * parameters, math.ceil(12 * parameters / device_bytes)


@wrong("memory_wall", says="the optimizer's state is missing")
def wall_without_optimizer(parameters, device_bytes):
    return 4 * parameters, 4 * parameters, math.ceil(4 * parameters / device_bytes)


@wrong("memory_wall", says="round up, not down")
def wall_rounded_down(parameters, device_bytes):
    return 4 * parameters, 16 * parameters, 16 * parameters // device_bytes


@wrong("memory_wall", says="needs no device more")
def wall_with_one_more(parameters, device_bytes):
    return 4 * parameters, 16 * parameters, 16 * parameters // device_bytes + 1


@wrong("memory_wall", says="devices come whole")
def wall_with_a_fraction(parameters, device_bytes):
    return 4 * parameters, 16 * parameters, 16 * parameters / device_bytes


@wrong("memory_wall", says="these devices only hold the weights")
def wall_for_the_weights(parameters, device_bytes):
    hold = 4 * parameters
    return hold, 16 * parameters, math.ceil(hold / device_bytes)


@wrong("memory_wall", says="this is the number of GB, and bytes are asked")
def wall_in_gigabytes(parameters, device_bytes):
    return 4 * parameters / 1e9, 16 * parameters / 1e9, math.ceil(16 * parameters / device_bytes)


@wrong("memory_wall", says="this is the number of GiB")
def wall_in_powers_of_two(parameters, device_bytes):
    return 4 * parameters / 2**30, 16 * parameters / 2**30, 35


@wrong("memory_wall", says="2 is what bfloat16 and float16 have")
def wall_in_half(parameters, device_bytes):
    return 2 * parameters, 16 * parameters, math.ceil(16 * parameters / device_bytes)


@wrong("memory_wall", says="hold is 4 bytes for each parameter, and nothing else")
def wall_of_gpt3(parameters, device_bytes):
    return 700_000_000_000, 2_800_000_000_000, 35


@wrong("memory_wall", says="you returned a dict")
def wall_by_name(parameters, device_bytes):
    return {"hold": 4 * parameters, "train": 16 * parameters, "devices": 35}


# ---------------------------------------------------------------------------------------------
# rank_tensor
# ---------------------------------------------------------------------------------------------

NOTEBOOKS_RANK = 0


@wrong("rank_tensor", says="every rank returned the same")
def rank_of_the_notebook(size):
    return torch.full((size,), float(NOTEBOOKS_RANK))


@wrong("rank_tensor", says="the world size, not the rank")
def rank_or_world_size(size):
    return torch.full((size,), float(dist.get_world_size() if dist.get_rank() else 0))


@wrong("rank_tensor", says="ranks are counted from 0")
def rank_from_one(size):
    return torch.full((size,), dist.get_rank() + 1.0)


@wrong("rank_tensor", says="ask for dtype=torch.float32")
def rank_as_integers(size):
    return torch.full((size,), dist.get_rank())


@wrong("rank_tensor", says="this is 0, 1, 2, ..., and not the rank")
def rank_as_positions(size):
    return torch.arange(size, dtype=torch.float32) if dist.get_rank() else torch.zeros(size)


@wrong("rank_tensor", says="the shape is wrong")
def rank_as_one_number(size):
    return torch.tensor([float(dist.get_rank())])


@wrong("rank_tensor", says="this is a list, not a tensor")
def rank_as_a_list(size):
    return [float(dist.get_rank())] * size


@wrong("rank_tensor", says="your ranks ran broadcast")
def rank_that_is_told(size):
    x = torch.full((size,), float(dist.get_rank()))
    dist.broadcast(x.clone(), src=0)
    return x


@wrong("rank_tensor", says="raised IndexError")
def rank_out_of_a_table(size):
    return [torch.full((size,), float(rank)) for rank in range(4)][dist.get_rank()]


# ---------------------------------------------------------------------------------------------
# ping_pong
# ---------------------------------------------------------------------------------------------


@wrong("ping_pong", says="ranks 0 and 1 all send first")
def both_serve(ball, rounds):
    seen = []
    if dist.get_rank() < 2:
        for _ in range(rounds):
            ball += 1
            dist.send(ball, 1 - dist.get_rank())
            dist.recv(ball, 1 - dist.get_rank())
            seen.append(ball.item())
    return seen


@wrong("ping_pong", says="ranks 0 and 1 all wait to receive first")
def nobody_serves(ball, rounds):
    seen = []
    if dist.get_rank() < 2:
        for _ in range(rounds):
            dist.recv(ball, 1 - dist.get_rank())
            seen.append(ball.item())
            ball += 1
            dist.send(ball, 1 - dist.get_rank())
    return seen


@wrong("ping_pong", says="lets them in")
def spectators_play(ball, rounds):
    seen = []
    for _ in range(rounds):
        if dist.get_rank() == 0:
            ball += 1
            dist.send(ball, 1)
            dist.recv(ball, 1)
            seen.append(ball.item())
        else:
            dist.recv(ball, 0)
            seen.append(ball.item())
            ball += 1
            dist.send(ball, 0)
    return seen


def played(ball, rounds, keep, before=1, after=0):
    """A right game (with the defaults); `keep` makes an entry of the list."""
    seen, me = [], dist.get_rank()
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            ball += before
            dist.send(ball, 1)
        dist.recv(ball, 1 - me)
        ball += after
        seen.append(keep(ball))
        if me == 1:
            ball += before
            dist.send(ball, 0)
    return seen


@wrong("ping_pong", says="append(ball) puts the same tensor into the list each time")
def one_ball_many_times(ball, rounds):
    return played(ball, rounds, keep=lambda ball: ball)


@wrong("ping_pong", says="nobody adds 1")
def the_ball_stays_the_same(ball, rounds):
    return played(ball, rounds, torch.Tensor.item, before=0)


@wrong("ping_pong", says="those that it received are asked")
def numbers_that_were_sent(ball, rounds):
    steps = {0: (-1, 1), 1: (1, 1)}.get(dist.get_rank(), (0, 0))
    return [number + steps[0] for number in played(ball, rounds, torch.Tensor.item)]


@wrong("ping_pong", says="in 2 rounds 2, and not 1")
def only_the_last_number(ball, rounds):
    return played(ball, rounds, torch.Tensor.item)[-1:]


@wrong("ping_pong", says="your function returned nothing")
def the_list_is_forgotten(ball, rounds):
    played(ball, rounds, torch.Tensor.item)


@wrong("ping_pong", says="rank 1 waits for a message from rank 0")
def the_hitter_returns_early(ball, rounds):
    if dist.get_rank() == 0:
        ball += 1
        dist.send(ball, 1)
        dist.recv(ball, 1)
        return [ball.item()]
    return played(ball, rounds, torch.Tensor.item)


@wrong("ping_pong", says="a round is one message from each of the two players")
def computed_after_one_message(ball, rounds):
    me = dist.get_rank()
    if me > 1 or rounds == 0:
        return []
    if me == 0:
        dist.send(ball, 1)
    else:
        dist.recv(ball, 0)
    return [ball.item() + 2 * k + (1 if me else 2) for k in range(rounds)]


# ---------------------------------------------------------------------------------------------
# blame
# ---------------------------------------------------------------------------------------------


@wrong("blame", says="nobody waits for rank")
def blame_all_who_do_not_wait(waits):
    idle = [rank for rank, peer in waits.items() if peer is None]
    return idle or sorted(waits)


@wrong("blame", says="rank 0 waits for rank 1, and is itself only held up")
def blame_all_who_wait(waits):
    return sorted(rank for rank, peer in waits.items() if peer is not None)


@wrong("blame", says="rank 1 waits for rank 2, and is itself only held up")
def blame_the_next(waits):
    return sorted({peer for peer in waits.values() if peer is not None})


@wrong("blame", says="never arrives: stop at a rank that you have been to")
def follow_for_ever(waits):
    found = set()
    for rank, peer in waits.items():
        while waits[rank] is not None:
            rank = waits[rank]
        if peer is not None:
            found.add(rank)
    return sorted(found)


@wrong("blame", says="it is part of a circle")
def blame_ends_only(waits):
    waited_for = set(waits.values()) - {None}
    return sorted(rank for rank in waited_for if waits[rank] is None)


def walked(waits, start):
    """(path, where it ended)"""
    path, rank = [], start
    while waits[rank] is not None and rank not in path:
        path.append(rank)
        rank = waits[rank]
    return path, rank


@wrong("blame", says="All members are to blame alike")
def blame_where_the_walk_began(waits):
    waiting = [rank for rank, peer in waits.items() if peer is not None]
    return sorted({walked(waits, rank)[1] for rank in waiting[:1]})


@wrong("blame", says="rank 0 waits for rank 1, and is itself only held up: follow the arrow on")
def blame_the_way_in(waits):
    found = set()
    for start in waits:
        path, end = walked(waits, start)
        found.update(path if waits[end] is not None else [end] if path else [])
    return sorted(found)


@wrong("blame", says="it waits for nobody")
def blame_circles_only(waits):
    found = set()
    for start in waits:
        path, end = walked(waits, start)
        found.update(path[path.index(end) :] if end in path else [])
    return sorted(found)


@wrong("blame", says="a rank is to blame once")
def blame_for_each_wait(waits):
    ends = [walked(waits, rank) for rank in waits]
    return sorted(end for path, end in ends if path)


@wrong("blame", says="you returned a set")
def blame_as_a_set(waits):
    return {walked(waits, rank)[1] for rank in waits}


# ---------------------------------------------------------------------------------------------
# broadcast_by_sends
# ---------------------------------------------------------------------------------------------


def others():
    return [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]


@wrong("broadcast_by_sends", says="the root is rank 2 here, and not rank 0")
def root_is_always_0(tensor, root):
    if dist.get_rank() == 0:
        for other in others():
            dist.send(tensor, other)
    elif dist.get_rank() != root:
        dist.recv(tensor, 0)
    else:
        dist.recv(tensor, root)


@wrong("broadcast_by_sends", says="nothing has been received into it")
def broadcast_into_a_new_tensor(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(tensor, other)
    else:
        tensor = torch.empty_like(tensor)
        dist.recv(tensor, root)


@wrong("broadcast_by_sends", says="receive into that one, as dist.broadcast does")
def broadcast_returns_it(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(tensor, other)
        return tensor
    arriving = torch.empty_like(tensor)
    dist.recv(arriving, root)
    return arriving


@wrong("broadcast_by_sends", says="Invalid destination rank")
def root_sends_to_itself_too(tensor, root):
    if dist.get_rank() == root:
        for other in range(dist.get_world_size()):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, root)


@wrong("broadcast_by_sends", says="rank 2 waits for a message from rank 0")
def last_rank_forgotten(tensor, root):
    n = dist.get_world_size()
    if dist.get_rank() == root:
        for other in range(n - 1):
            if other != root:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, root)


@wrong("broadcast_by_sends", says="Is something sent that nobody needs?")
def everyone_broadcasts(tensor, root):
    pieces = {other: torch.empty_like(tensor) for other in others()}
    works = [dist.isend(tensor, other) for other in others()]
    works += [dist.irecv(piece, other) for other, piece in pieces.items()]
    for work in works:
        work.wait()
    if root in pieces:
        tensor.copy_(pieces[root])


@wrong("broadcast_by_sends", says="your ranks ran broadcast")
def broadcast_by_the_builtin(tensor, root):
    dist.broadcast(tensor, root)


@wrong("broadcast_by_sends", says="your ranks ran all_reduce")
def broadcast_through_the_back_door(tensor, root):
    if dist.get_rank() != root:
        tensor.zero_()
    dist.group.WORLD.allreduce([tensor]).wait()


@wrong("broadcast_by_sends", says="all zeros")
def broadcast_of_zeros(tensor, root):
    if dist.get_rank() != root:
        tensor.zero_()


@wrong("broadcast_by_sends", says="was never waited for")
def broadcast_without_waiting(tensor, root):
    if dist.get_rank() == root:
        for other in others():
            dist.isend(tensor, other)
    else:
        dist.irecv(tensor, root)
        tensor += 0


# ---------------------------------------------------------------------------------------------
# all_gather_by_sends
# ---------------------------------------------------------------------------------------------


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


@wrong("all_gather_by_sends", says="are one and the same tensor")
def one_tensor_n_times(tensor):
    return gathered(tensor, [torch.empty_like(tensor)] * dist.get_world_size())


@wrong("all_gather_by_sends", says="this rank's own tensor included")
def all_but_ones_own(tensor):
    pieces = gathered(tensor, new_pieces(tensor))
    return [pieces[other] for other in others()]


@wrong("all_gather_by_sends", says="entry 0 of the list is not rank 0's tensor")
def own_tensor_first(tensor):
    pieces = gathered(tensor, new_pieces(tensor))
    return [tensor, *(pieces[other] for other in others())]


@wrong("all_gather_by_sends", says="you returned a Tensor")
def one_big_tensor(tensor):
    return torch.stack(gathered(tensor, new_pieces(tensor)))


@wrong("all_gather_by_sends", says="all send first")
def all_send_before_they_receive(tensor):
    pieces = new_pieces(tensor)
    for other in others():
        dist.send(tensor, other)
    for other in others():
        dist.recv(pieces[other], other)
    return pieces


@wrong("all_gather_by_sends", says="Does everything go through this rank?")
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


@wrong("all_gather_by_sends", says="your ranks ran all_gather")
def gathered_by_the_builtin(tensor):
    pieces = new_pieces(tensor)
    dist.all_gather(pieces, tensor)
    return pieces


@wrong("all_gather_by_sends", says="your ranks ran broadcast")
def gathered_by_broadcasts(tensor):
    pieces = new_pieces(tensor)
    for root, piece in enumerate(pieces):
        dist.broadcast(piece, root)
    return pieces


@wrong("all_gather_by_sends", says="all zeros: nothing has been written")
def nothing_but_ones_own(tensor):
    pieces = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    pieces[dist.get_rank()].copy_(tensor)
    return pieces


@wrong("all_gather_by_sends", says="nothing has been received into it")
def copies_of_ones_own(tensor):
    return [tensor.clone() for _ in range(dist.get_world_size())]


# ---------------------------------------------------------------------------------------------
# scatter_by_sends
# ---------------------------------------------------------------------------------------------


def scattered(output, pieces, root, which=lambda rank: rank):
    if dist.get_rank() == root:
        for other in others():
            dist.send(pieces[which(other)], other)
        output.copy_(pieces[which(root)])
    else:
        dist.recv(output, root)


@wrong("scatter_by_sends", says="The root has a piece of its own, which needs no message")
def the_root_forgets_itself(output, pieces, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(pieces[other], other)
    else:
        dist.recv(output, root)


@wrong("scatter_by_sends", says="this is piece 0, which belongs to rank 0")
def everyone_gets_the_first(output, pieces, root):
    scattered(output, pieces, root, which=lambda rank: 0)


@wrong("scatter_by_sends", says="this is piece 2, which belongs to rank 2")
def in_reverse(output, pieces, root):
    scattered(output, pieces, root, which=lambda rank: dist.get_world_size() - 1 - rank)


@wrong("scatter_by_sends", says="Does anyone need more than its own piece?")
def everyone_gets_everything(output, pieces, root):
    n = dist.get_world_size()
    if dist.get_rank() == root:
        everything = torch.stack(pieces)
        for other in others():
            dist.send(everything, other)
    else:
        everything = output.new_empty(n, *output.shape)
        dist.recv(everything, root)
    output.copy_(everything[dist.get_rank()])


@wrong("scatter_by_sends", says="receive into output")
def scatter_returns_it(output, pieces, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(pieces[other], other)
        return pieces[root]
    piece = torch.empty_like(output)
    dist.recv(piece, root)
    return piece


@wrong("scatter_by_sends", says="'NoneType' object")
def everyone_looks_into_pieces(output, pieces, root):
    for rank, piece in enumerate(pieces):
        if dist.get_rank() == root and rank != root:
            dist.send(piece, rank)
    if dist.get_rank() == root:
        output.copy_(pieces[root])
    else:
        dist.recv(output, root)


@wrong("scatter_by_sends", says="rank 2 waits for a message from rank 0")
def last_piece_forgotten(output, pieces, root):
    if dist.get_rank() == root:
        for rank, piece in list(enumerate(pieces))[:-1]:
            if rank != root:
                dist.send(piece, rank)
        output.copy_(pieces[root])
    else:
        dist.recv(output, root)


@wrong("scatter_by_sends", says="the root is rank 3 here, and not rank 0")
def scattered_from_rank_0(output, pieces, root):
    if dist.get_rank() == 0:
        for other in others():
            dist.send(pieces[other], other)
        output.copy_(pieces[0])
    else:
        dist.recv(output, 0)


@wrong("scatter_by_sends", says="your ranks ran scatter")
def scattered_by_the_builtin(output, pieces, root):
    dist.scatter(output, pieces, root)


@wrong("scatter_by_sends", says="left with exit code 0, without returning")
def leaves_when_done(output, pieces, root):
    scattered(output, pieces, root)
    if dist.get_rank() != root:
        os._exit(0)
