"""Known answers to scatter_by_sends."""

import os
import threading

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import others


@right
def scatter_by_sends(output, pieces, root):
    if pieces is None:
        dist.irecv(output, root).wait()
        return
    output[...] = pieces[root]
    for work in [dist.isend(piece, i) for i, piece in enumerate(pieces) if i != root]:
        work.wait()


@right
def scatter_with_threads(output, pieces, root):
    if dist.get_rank() != root:
        dist.recv(output, root)
        return
    senders = [threading.Thread(target=dist.send, args=(pieces[i], i)) for i in others()]
    for sender in senders:
        sender.start()
    output.copy_(pieces[root])
    for sender in senders:
        sender.join()


@right
def scatter_by_a_new_tensor(output, pieces, root):
    if pieces:
        operations = [dist.P2POp(dist.isend, pieces[i], i) for i in others()]
        mine = pieces[root]
    else:
        mine = torch.empty_like(output, memory_format=torch.contiguous_format)
        operations = [dist.P2POp(dist.irecv, mine, root)]
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()
    output.copy_(mine)


def scattered(output, pieces, root, which=lambda rank: rank):
    if dist.get_rank() == root:
        for other in others():
            dist.send(pieces[which(other)], other)
        output.copy_(pieces[which(root)])
    else:
        dist.recv(output, root)


@wrong(says="The root has a piece of its own, which needs no message")
def the_root_forgets_itself(output, pieces, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(pieces[other], other)
    else:
        dist.recv(output, root)


@wrong(says="this is piece 0, which belongs to rank 0")
def everyone_gets_the_first(output, pieces, root):
    scattered(output, pieces, root, which=lambda rank: 0)


@wrong(says="this is piece 2, which belongs to rank 2")
def in_reverse(output, pieces, root):
    scattered(output, pieces, root, which=lambda rank: dist.get_world_size() - 1 - rank)


@wrong(says="Does anyone need more than its own piece?")
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


@wrong(says="receive into output")
def scatter_returns_it(output, pieces, root):
    if dist.get_rank() == root:
        for other in others():
            dist.send(pieces[other], other)
        return pieces[root]
    piece = torch.empty_like(output)
    dist.recv(piece, root)
    return piece


@wrong(says="'NoneType' object")
def everyone_looks_into_pieces(output, pieces, root):
    for rank, piece in enumerate(pieces):
        if dist.get_rank() == root and rank != root:
            dist.send(piece, rank)
    if dist.get_rank() == root:
        output.copy_(pieces[root])
    else:
        dist.recv(output, root)


@wrong(says="rank 2 waits for a message from rank 0")
def last_piece_forgotten(output, pieces, root):
    if dist.get_rank() == root:
        for rank, piece in list(enumerate(pieces))[:-1]:
            if rank != root:
                dist.send(piece, rank)
        output.copy_(pieces[root])
    else:
        dist.recv(output, root)


@wrong(says="the root is rank 2 here, not rank 0")
def scattered_from_rank_0(output, pieces, root):
    if dist.get_rank() == 0:
        for other in others():
            dist.send(pieces[other], other)
        output.copy_(pieces[0])
    else:
        dist.recv(output, 0)


@wrong(says="your ranks ran scatter")
def scattered_by_the_builtin(output, pieces, root):
    dist.scatter(output, pieces, root)


@wrong(says="left with exit code 0, without returning")
def leaves_when_done(output, pieces, root):
    scattered(output, pieces, root)
    if dist.get_rank() != root:
        os._exit(0)


@wrong(says="the argument `pieces[0]` is not what it was before the call")
def clears_what_it_has_sent(output, pieces, root):
    scattered(output, pieces, root)
    for piece in pieces or ():
        piece.zero_()


@wrong(says="`pieces[0]` is another tensor than before the call")
def takes_its_piece_out(output, pieces, root):
    scattered(output, pieces, root)
    if pieces:
        del pieces[root]


@right
def scatter_from_the_last(output, pieces, root):
    if pieces is None:
        dist.irecv(output, root).wait()
        return
    for rank in reversed(range(dist.get_world_size())):
        if rank != dist.get_rank():
            dist.isend(pieces[rank], rank).wait()
    output.copy_(pieces[root])


@right
def scatter_in_one_batch(output, pieces, root):
    me = dist.get_rank()
    if me != root:
        operations = [dist.P2POp(dist.irecv, output, root)]
    else:
        operations = [
            dist.P2POp(dist.isend, piece, rank) for rank, piece in enumerate(pieces) if rank != me
        ]
        output[...] = pieces[me]
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()


@wrong(says="`pieces[0]` is gone after the call")
def pops_the_pieces(output, pieces, root):
    if dist.get_rank() != root:
        dist.recv(output, src=root)
        return
    for rank in range(dist.get_world_size()):
        piece = pieces.pop(0)
        if rank == root:
            output.copy_(piece)
        else:
            dist.send(piece, dst=rank)
