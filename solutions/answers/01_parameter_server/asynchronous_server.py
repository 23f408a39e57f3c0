"""Known answers to asynchronous_server."""

import collections
import itertools

import numpy
import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def asynchronous_server(values, pushes, lr):
    """Keeps for every worker the number of steps since its last answer."""
    behind, found = {}, []
    gradient = torch.empty_like(values)
    for step in range(pushes):
        worker = dist.recv(gradient)
        values.add_(gradient, alpha=-lr)
        dist.isend(values, worker).wait()
        found.append(behind.pop(worker, step))
        behind = {other: count + 1 for other, count in behind.items()}
        behind[worker] = 0
    return torch.tensor(found)


def serve(
    values,
    pushes,
    lr,
    receive=lambda buffer: dist.recv(buffer),
    factor=1.0,
    count=lambda version, has, worker: version - has.get(worker, 0),
    answer_first=False,
):
    buffer, has, found = torch.empty_like(values), {}, []
    for version in range(pushes):
        worker = receive(buffer)
        found.append(count(version, has, worker))
        if answer_first:
            dist.send(values, worker)
        values -= factor * lr * buffer
        if not answer_first:
            dist.send(values, worker)
        has[worker] = version + 1
    return found


@right
def server_with_a_counter(values, pushes, lr):
    """Numbers of numpy, and a receive that is begun and waited for."""
    sent, found = collections.Counter(), numpy.zeros(pushes, dtype=int)
    for step in range(pushes):
        buffer = values.new_empty(values.shape)
        worker = dist.recv(tensor=buffer, src=None)
        found[step] = step - sent[worker]
        torch.sub(values, buffer, alpha=lr, out=values)
        dist.send(tensor=values, dst=worker)
        sent[worker] = step + 1
    return found


@right
def server_with_a_log(values, pushes, lr):
    """The staleness from the list of who came when."""
    buffer, who = torch.zeros_like(values), []
    while len(who) < pushes:
        who.append(dist.recv(buffer))
        values.copy_(values - lr * buffer)
        dist.send(values.clone(), who[-1])
    return tuple(
        len(before) - max((i + 1 for i, w in enumerate(before) if w == who[len(before)]), default=0)
        for before in (who[:turn] for turn in range(pushes))
    )


@wrong(says="takes the next message of any rank")
def in_order_of_ranks(values, pushes, lr):
    workers, turn = dist.get_world_size() - 1, iter(range(pushes))
    return serve(
        values, pushes, lr, receive=lambda buffer: dist.recv(buffer, 1 + next(turn) % workers)
    )


@wrong(says="that worker waits for its answer now")
def waits_for_everyone(values, pushes, lr):
    buffers = [torch.empty_like(values) for _ in range(dist.get_world_size() - 1)]
    for worker, buffer in enumerate(buffers, 1):
        dist.recv(buffer, worker)
    values -= lr * sum(buffers)
    for worker in range(1, len(buffers) + 1):
        dist.send(values, worker)
    return [0] * pushes


@wrong(says="the answer holds the values from before this push")
def answers_before_the_step(values, pushes, lr):
    return serve(values, pushes, lr, answer_first=True)


@wrong(says="each push is divided by the number of workers")
def averages(values, pushes, lr):
    return serve(values, pushes, lr, factor=1 / (dist.get_world_size() - 1))


@wrong(says="the push's own step does not count")
def counts_its_own_step(values, pushes, lr):
    return serve(
        values, pushes, lr, count=lambda version, has, worker: version + 1 - has.get(worker, 0)
    )


@wrong(says="these are steps since the start")
def version_for_staleness(values, pushes, lr):
    return serve(values, pushes, lr, count=lambda version, has, worker: version)


@wrong(says="what a worker has at first is version 0")
def first_push_is_fresh(values, pushes, lr):
    return serve(
        values,
        pushes,
        lr,
        count=lambda version, has, worker: version - has.get(worker, version),
    )


@wrong(says="does not hold the result: step in place")
def another_tensor(values, pushes, lr):
    return serve(values.clone(), pushes, lr)


@wrong(says="a list with the staleness of every push is expected")
def values_returned(values, pushes, lr):
    serve(values, pushes, lr)
    return values


@wrong(says="the answer is not values - lr * gradient")
def one_number_for_all_elements(values, pushes, lr):
    """Where all elements are alike nobody would see it."""
    buffer, has, found = torch.empty_like(values), {}, []
    for version in range(pushes):
        worker = dist.recv(buffer)
        found.append(version - has.get(worker, 0))
        values -= lr * buffer[0]
        dist.send(values, worker)
        has[worker] = version + 1
    return found


@wrong(says="the answer is not values - lr * gradient")
def a_rate_of_its_own(values, pushes, lr):
    return serve(values, pushes, 0.5)


@right
def server_with_a_table(values, pushes, lr):
    """A list by rank; everything under no_grad, and the gradient scaled where it arrived."""
    seen, found = [0] * dist.get_world_size(), []
    with torch.no_grad():
        for version in range(1, pushes + 1):
            arrived = torch.zeros_like(values)
            worker = dist.recv(arrived)
            found += [version - 1 - seen[worker]]
            seen[worker] = version
            values.add_(arrived.mul_(-lr))
            dist.send(values, worker)
    return found


@right
def server_of_a_generator(values, pushes, lr):
    def serve():
        latest = collections.defaultdict(int)
        for step in itertools.count(1):
            worker = dist.recv(buffer := torch.empty_like(values))
            values[:] = values - buffer * lr
            dist.send(values, dst=worker)
            yield step - 1 - latest[worker]
            latest[worker] = step

    return list(itertools.islice(serve(), pushes))
