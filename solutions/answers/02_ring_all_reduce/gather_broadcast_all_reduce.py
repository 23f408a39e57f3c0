"""Known answers to gather_broadcast_all_reduce."""

import functools
import threading

import torch
import torch.distributed as dist
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong

from ._common import exchange


@right
def gather_broadcast_all_reduce(tensor):
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        parts = [torch.empty_like(tensor) for _ in range(n - 1)]
        for work in [dist.irecv(part, src) for src, part in enumerate(parts, 1)]:
            work.wait()
        for part in parts:
            tensor.add_(part)
        for work in [dist.isend(tensor, dst) for dst in range(1, n)]:
            work.wait()
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
    return tensor


def summed_through_rank_0(tensor, start=1):
    if dist.get_rank() == 0:
        part = torch.empty_like(tensor)
        for source in range(start, dist.get_world_size()):
            dist.recv(part, source)
            tensor += part
        for target in range(1, dist.get_world_size()):
            dist.send(tensor, target)
    else:
        if dist.get_rank() >= start:
            dist.send(tensor, 0)
        dist.recv(tensor, 0)
    return tensor


@wrong(says="you averaged a sum")
def root_mean(tensor):
    return summed_through_rank_0(tensor).div_(dist.get_world_size())


@wrong(says="the part of rank 1 is missing")
def root_skips_a_rank(tensor):
    return summed_through_rank_0(tensor, start=2)


@wrong(
    says="ranks 0 and 1 is missing, and the part of rank 2 is counted twice",
)
def root_receives_into_its_sum(tensor):
    if dist.get_rank() == 0:
        for source in range(1, dist.get_world_size()):
            dist.recv(tensor, source)
        tensor += tensor
        for target in range(1, dist.get_world_size()):
            dist.send(tensor, target)
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
    return tensor


@wrong(says="your function returned nothing: end it with")
def root_without_return(tensor):
    summed_through_rank_0(tensor)


@wrong(says="this is still the rank's own input")
def root_keeps_the_sum(tensor):
    if dist.get_rank() == 0:
        for source in range(1, dist.get_world_size()):
            part = torch.empty_like(tensor)
            dist.recv(part, source)
            tensor += part
    else:
        dist.send(tensor, 0)
    return tensor


@wrong(says="your ranks ran all_reduce")
def root_by_the_builtin(tensor):
    dist.all_reduce(tensor)
    return tensor


@wrong(says="here all goes through rank 0")
def everyone_to_everyone(tensor):
    own = tensor.clone()
    n, me = dist.get_world_size(), dist.get_rank()
    for other in range(n):
        if other != me:
            part = torch.empty_like(own)
            exchange(own, other, part, other)
            tensor += part
    return tensor


@wrong(says="Your ranks did not finish")
def all_receive_first(tensor):
    part = torch.empty_like(tensor)
    dist.recv(part, (dist.get_rank() + 1) % dist.get_world_size())
    dist.send(tensor, 0)
    return tensor + part


@right
def whoever_is_first_is_added_first(tensor):
    """recv from anybody; so that all ranks have the same bits, rank 0's sum goes to all."""
    n, me = dist.get_world_size(), dist.get_rank()
    if me:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
        return tensor
    for _ in range(n - 1):
        arrived = tensor.new_empty(tensor.shape)
        dist.recv(arrived)
        tensor.add_(arrived)
    for rank in reversed(range(1, n)):
        dist.send(tensor, dst=rank)
    return tensor


@right
def sends_from_threads(tensor):
    n = dist.get_world_size()
    if dist.get_rank():
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return tensor
    arrived = torch.empty_like(tensor)
    for rank in range(1, n):
        dist.recv(arrived, rank)
        tensor += arrived
    threads = [threading.Thread(target=dist.send, args=(tensor, rank)) for rank in range(1, n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tensor


@right
def stacked_and_summed(tensor):
    """All parts in one tensor, added up by torch; the sum is copied back."""
    n, me = dist.get_world_size(), dist.get_rank()
    if me == 0:
        parts = torch.empty(n, *tensor.shape, dtype=tensor.dtype)
        parts[0] = tensor
        for work in [dist.irecv(parts[rank], rank) for rank in range(1, n)]:
            work.wait()
        tensor.copy_(parts.sum(0, dtype=tensor.dtype))
        list(map(dist.Work.wait, [dist.isend(tensor, rank) for rank in range(1, n)]))
    else:
        dist.isend(tensor, 0).wait()
        dist.irecv(tensor, 0).wait()
    return tensor


@right
def in_batches(tensor):
    n, me = dist.get_world_size(), dist.get_rank()
    others = range(1, n) if me == 0 else [0]
    arrived = [torch.zeros_like(tensor) for _ in others]

    def run(operations):
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()

    receive = [dist.P2POp(dist.irecv, t, peer) for t, peer in zip(arrived, others, strict=True)]
    send = [dist.P2POp(dist.isend, tensor, peer) for peer in others]
    run(receive if me == 0 else send)
    if me == 0:
        functools.reduce(torch.Tensor.add_, arrived, tensor)
    run(send if me == 0 else receive)
    return tensor if me == 0 else tensor.copy_(arrived[0])


@wrong(says="right to the digits that float64 has")
def whole_numbers_as_floats(tensor):
    total = tensor if tensor.is_floating_point() else tensor.double()
    arriving = torch.empty_like(tensor)
    if dist.get_rank() == 0:
        for rank in range(1, dist.get_world_size()):
            dist.recv(arriving, src=rank)
            total += arriving
        tensor.copy_(total)
        for rank in range(1, dist.get_world_size()):
            dist.send(tensor, dst=rank)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
    return tensor
