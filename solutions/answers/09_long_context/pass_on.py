"""Known answers to pass_on."""

import threading

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


def exchange(tensors, to=1):
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return [tensor.clone() for tensor in tensors]
    sending = [dist.isend(tensor, dst=(rank + to) % n) for tensor in tensors]
    arrived = [torch.empty_like(tensor) for tensor in tensors]
    for tensor in arrived:
        dist.recv(tensor, src=(rank - to) % n)
    for work in sending:
        work.wait()
    return arrived


@right
def receives_posted_first(tensors):
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return list(tensors)
    arrived = [torch.zeros_like(tensor) for tensor in tensors]
    works = [dist.irecv(tensor, src=(rank - 1) % n) for tensor in arrived]
    works += [dist.isend(tensor, dst=(rank + 1) % n) for tensor in tensors]
    for work in works:
        work.wait()
    return arrived


@right
def as_a_batch(tensors):
    n, rank = dist.get_world_size(), dist.get_rank()
    if n < 2:
        return [tensor.clone() for tensor in tensors]
    arrived = [torch.empty_like(tensor) for tensor in tensors]
    ops = [dist.P2POp(dist.isend, tensor, (rank + 1) % n) for tensor in tensors]
    ops += [dist.P2POp(dist.irecv, tensor, (rank - 1) % n) for tensor in arrived]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return tuple(arrived)


@right
def rank_0_receives_first(tensors):
    """Blocking calls, and one rank that breaks the circle."""
    n, rank = dist.get_world_size(), dist.get_rank()
    arrived = []
    for tensor in tensors:
        buffer = torch.empty_like(tensor)
        if n == 1:
            buffer.copy_(tensor)
        elif rank == 0:
            dist.recv(buffer, src=n - 1)
            dist.send(tensor, dst=1)
        else:
            dist.send(tensor, dst=(rank + 1) % n)
            dist.recv(buffer, src=rank - 1)
        arrived.append(buffer)
    return arrived


@right
def a_thread_that_sends(tensors):
    n, rank = dist.get_world_size(), dist.get_rank()
    arrived = [torch.empty_like(tensor) for tensor in tensors]
    if n == 1:
        return [a.copy_(t) for a, t in zip(arrived, tensors, strict=True)]

    def send_all():
        for tensor in tensors:
            dist.send(tensor, dst=(rank + 1) % n)

    sender = threading.Thread(target=send_all)
    sender.start()
    for tensor in arrived:
        dist.recv(tensor, src=(rank + n - 1) % n)
    sender.join()
    return arrived


@right
def in_one_message(tensors):
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return list(tensors)
    packed = torch.cat([tensor.flatten() for tensor in tensors])
    coming = torch.empty_like(packed)
    sending = dist.isend(packed, dst=(rank + 1) % n)
    dist.recv(coming, src=(rank - 1) % n)
    sending.wait()
    parts = coming.split([tensor.numel() for tensor in tensors])
    return [part.reshape(t.shape) for part, t in zip(parts, tensors, strict=True)]


@right
def with_tags(tensors):
    """The number of a tensor in the list says which one it is, in whatever order they come."""
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return [tensor.clone() for tensor in tensors]
    arrived, works = {}, []
    for i in reversed(range(len(tensors))):
        arrived[i] = torch.empty_like(tensors[i])
        works.append(dist.irecv(arrived[i], src=(rank - 1) % n, tag=i))
        works.append(dist.isend(tensors[i], dst=(rank + 1) % n, tag=i))
    [work.wait() for work in works]
    return [arrived[i] for i in range(len(tensors))]


@wrong(says="send first")
def all_send_first(tensors):
    n, rank = dist.get_world_size(), dist.get_rank()
    arrived = []
    for tensor in tensors:
        dist.send(tensor, dst=(rank + 1) % n)
        buffer = torch.empty_like(tensor)
        dist.recv(buffer, src=(rank - 1) % n)
        arrived.append(buffer)
    return arrived


@wrong(says="send to rank + 1, receive from rank - 1")
def the_other_way_round(tensors):
    return exchange(tensors, to=-1)


@wrong(says="your own: nothing has arrived")
def nothing_sent(tensors):
    return [tensor.clone() for tensor in tensors]


@wrong(says="sent too much: each tensor once")
def sent_twice(tensors):
    if dist.get_world_size() > 1:
        exchange(tensors)
    return exchange(tensors)


@wrong(says="and this exercise is about doing without it")
def by_all_gather(tensors):
    n, rank = dist.get_world_size(), dist.get_rank()
    arrived = []
    for tensor in tensors:
        every = [torch.empty_like(tensor) for _ in range(n)]
        dist.all_gather(every, tensor)
        arrived.append(every[(rank - 1) % n])
    return arrived


@wrong(says="as many as came in")
def only_the_first(tensors):
    return exchange(tensors)[:1]


@wrong(says="is not what it was before the call")
def into_the_senders_memory(tensors):
    arrived = exchange(tensors)
    for mine, theirs in zip(tensors, arrived, strict=True):
        mine.copy_(theirs)
    return arrived


@wrong(says="of the rank before you, where number")
def in_the_wrong_order(tensors):
    return exchange(tensors)[::-1]
