"""Known answers to push_and_pull."""

import threading

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def push_and_pull(values, gradient, share, lr):
    """Receives posted for all workers at once, answers without waiting for each other."""
    if dist.get_rank() > 0:
        work = dist.isend(gradient * share, 0)
        dist.recv(values, 0)
        work.wait()
        return values
    workers = range(1, dist.get_world_size())
    buffers = torch.empty(len(workers), *values.shape, dtype=values.dtype)
    for work in [dist.irecv(buffers[w - 1], w) for w in workers]:
        work.wait()
    values.sub_(buffers.sum(0), alpha=lr)
    for work in [dist.isend(values, w) for w in workers]:
        work.wait()
    return values


@right
def push_from_anyone(values, gradient, share, lr):
    """The server adds up in order of arrival."""
    if dist.get_rank() > 0:
        dist.send(share * gradient, 0)
        dist.recv(values, 0)
        return values
    new, buffer = values.clone(), torch.empty_like(values)
    for _ in range(dist.get_world_size() - 1):
        dist.recv(buffer)
        new -= lr * buffer
    for worker in range(1, dist.get_world_size()):
        dist.send(new, worker)
    return new


@right
def push_with_threads(values, gradient, share, lr):
    if dist.get_rank() > 0:
        push = threading.Thread(target=dist.send, args=(share * gradient, 0))
        push.start()
        new = torch.empty_like(values)
        dist.recv(new, 0)
        push.join()
        return new
    pushed = {worker: torch.empty_like(values) for worker in range(1, dist.get_world_size())}
    for worker, buffer in pushed.items():
        dist.recv(buffer, worker)
    values = values - lr * torch.stack(list(pushed.values())).sum(0)
    answers = [threading.Thread(target=dist.send, args=(values, worker)) for worker in pushed]
    for answer in answers:
        answer.start()
    for answer in answers:
        answer.join()
    return values


def one_step(
    values,
    gradient,
    share,
    lr,
    weigh=lambda gradient, share: share * gradient,
    step=lambda values, total, lr, n: values - lr * total,
):
    workers = range(1, dist.get_world_size())
    if dist.get_rank() > 0:
        dist.send(weigh(gradient, share), 0)
        dist.recv(values, 0)
        return values
    total, buffer = torch.zeros_like(values), torch.empty_like(values)
    for worker in workers:
        dist.recv(buffer, worker)
        total += buffer
    values = step(values, total, lr, len(workers))
    for worker in workers:
        dist.send(values, worker)
    return values


@wrong(says="added up without their shares")
def shares_forgotten(values, gradient, share, lr):
    return one_step(values, gradient, share, lr, weigh=lambda gradient, share: gradient)


@wrong(says="this is a mean of the means")
def mean_of_means(values, gradient, share, lr):
    n = dist.get_world_size() - 1
    return one_step(values, gradient, share, lr, weigh=lambda gradient, share: gradient / n)


@wrong(says="the shares add up to 1 already")
def divided_twice(values, gradient, share, lr):
    return one_step(
        values, gradient, share, lr, step=lambda values, total, lr, n: values - lr * total / n
    )


@wrong(says="the step goes uphill")
def uphill(values, gradient, share, lr):
    return one_step(
        values, gradient, share, lr, step=lambda values, total, lr, n: values + lr * total
    )


@wrong(says="these are the values from before the step")
def answered_before_the_step(values, gradient, share, lr):
    return one_step(values, gradient, share, lr, step=lambda values, total, lr, n: values)


@wrong(says="the gradient of the whole batch, not the values after the step")
def gradient_returned(values, gradient, share, lr):
    return one_step(values, gradient, share, lr, step=lambda values, total, lr, n: total)


@wrong(says="your function returned nothing")
def nothing_returned(values, gradient, share, lr):
    one_step(values, gradient, share, lr)


@wrong(says="workers talk to the server")
def passed_on_by_the_first_worker(values, gradient, share, lr):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    total = torch.zeros_like(values)
    if rank == 0:
        for worker in range(1, last + 1):
            buffer = torch.empty_like(values)
            dist.recv(buffer, worker)
            total += buffer
        values = values - lr * total
        dist.send(values, 1)
        return values
    dist.send(share * gradient, 0)
    dist.recv(values, rank - 1)
    if rank < last:
        dist.send(values, rank + 1)
    return values


@wrong(says="your ranks ran all_reduce")
def by_all_reduce(values, gradient, share, lr):
    total = torch.zeros_like(values) if dist.get_rank() == 0 else share * gradient
    dist.all_reduce(total)
    dist.broadcast(values, 0)
    return values - lr * total


@wrong(says="this rank sent too much")
def values_pushed_as_well(values, gradient, share, lr):
    if dist.get_rank() > 0:
        dist.send(gradient, 0)
    else:
        for worker in range(1, dist.get_world_size()):
            dist.recv(torch.empty_like(values), worker)
    return one_step(values, gradient, share, lr)


@wrong(says="only the gradients of workers 1 to 1 are in it")
def answered_one_by_one(values, gradient, share, lr):
    if dist.get_rank() > 0:
        return one_step(values, gradient, share, lr)
    values = values.clone()
    for worker in range(1, dist.get_world_size()):
        buffer = torch.empty_like(values)
        dist.recv(buffer, worker)
        values -= lr * buffer
        dist.send(values, worker)
    return values


@wrong(says="weighted on the server, whose share is 0")
def weighted_by_the_servers_share(values, gradient, share, lr):
    return one_step(
        values,
        gradient,
        share,
        lr,
        weigh=lambda gradient, share: gradient,
        step=lambda values, total, lr, n: values - lr * share * total,
    )


@right
def push_of_a_batch(values, gradient, share, lr):
    """Posted as batches on both ends."""
    n, me = dist.get_world_size(), dist.get_rank()
    peers = range(1, n) if me == 0 else [0]

    def run(call, tensors):
        pairs = zip(tensors, peers, strict=True)
        for work in dist.batch_isend_irecv([dist.P2POp(call, t, peer) for t, peer in pairs]):
            work.wait()

    if me:
        run(dist.isend, [gradient.mul(share)])
        new = torch.empty_like(gradient)
        run(dist.irecv, [new])
        return new
    pushed = [torch.empty_like(values) for _ in peers]
    run(dist.irecv, pushed)
    new = values - lr * torch.stack(pushed).sum(dim=0)
    run(dist.isend, [new] * (n - 1))
    return new


@right
def push_step_by_step(values, gradient, share, lr):
    """The server steps with each share as it comes, last worker first."""
    if dist.get_rank() == 0:
        others = list(range(dist.get_world_size()))[:0:-1]
        for worker in others:
            part = values.new_zeros(values.shape)
            dist.irecv(part, worker).wait()
            values.add_(part, alpha=-lr)
        for worker in others:
            dist.isend(values, worker).wait()
    else:
        dist.send(torch.multiply(gradient, share), 0)
        dist.recv(values, 0)
    return values


@wrong(says="the server's own gradient is nan")
def counts_the_server(values, gradient, share, lr):
    pushed = share * gradient
    if dist.get_rank() > 0:
        dist.send(pushed, 0)
        dist.recv(values, 0)
        return values
    arriving = torch.empty_like(values)
    for worker in range(1, dist.get_world_size()):
        dist.recv(arriving, worker)
        pushed += arriving
    values = values - lr * pushed
    for worker in range(1, dist.get_world_size()):
        dist.send(values, worker)
    return values
