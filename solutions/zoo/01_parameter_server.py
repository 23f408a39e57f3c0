"""Wrong answers to notebook 01: what people write, and what the check must say to each."""

import math
from bisect import bisect_left
from itertools import pairwise

import torch
import torch.distributed as dist

from course_lib.checks.zoo import wrong

# ---------------------------------------------------------------------------------------------
# Right answers that the wrong ones are made of
# ---------------------------------------------------------------------------------------------


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


def training(
    model,
    batches,
    loss,
    lr,
    start=lambda model: list(model.parameters()),
    weight=lambda share: share,
    pulls=lambda step, steps: True,
    pushed=lambda model: [p for p in model.parameters() if p.requires_grad],
    clear=True,
    gradient=lambda p: torch.zeros_like(p) if p.grad is None else p.grad,
):
    server, workers = dist.get_rank() == 0, range(1, dist.get_world_size())

    def spread(parameters):
        for p in parameters:
            if server:
                for worker in workers:
                    dist.send(p.detach(), worker)
            else:
                dist.recv(p.data, 0)

    spread(start(model))
    for number, batch in enumerate(batches):
        if not server:
            x, y, share = batch
            if clear:
                model.zero_grad()
            loss(model(x), y).backward()
            for p in pushed(model):
                dist.send(weight(share) * gradient(p), 0)
        else:
            for p in pushed(model):
                part = torch.empty_like(p)
                for worker in workers:
                    dist.recv(part, worker)
                    p.data -= lr * part
        if pulls(number, len(batches)):
            spread([p for p in model.parameters() if p.requires_grad])


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


def cut_the_line(total, servers):
    return [total * s // servers for s in range(servers + 1)]


# ---------------------------------------------------------------------------------------------
# push_and_pull
# ---------------------------------------------------------------------------------------------


@wrong("push_and_pull", says="added up without their shares")
def shares_forgotten(values, gradient, share, lr):
    return one_step(values, gradient, share, lr, weigh=lambda gradient, share: gradient)


@wrong("push_and_pull", says="this is a mean of the means")
def mean_of_means(values, gradient, share, lr):
    n = dist.get_world_size() - 1
    return one_step(values, gradient, share, lr, weigh=lambda gradient, share: gradient / n)


@wrong("push_and_pull", says="the shares add up to 1 already")
def divided_twice(values, gradient, share, lr):
    return one_step(
        values, gradient, share, lr, step=lambda values, total, lr, n: values - lr * total / n
    )


@wrong("push_and_pull", says="the step goes uphill")
def uphill(values, gradient, share, lr):
    return one_step(
        values, gradient, share, lr, step=lambda values, total, lr, n: values + lr * total
    )


@wrong("push_and_pull", says="these are the values from before the step")
def answered_before_the_step(values, gradient, share, lr):
    return one_step(values, gradient, share, lr, step=lambda values, total, lr, n: values)


@wrong("push_and_pull", says="the gradient of the whole batch, not the values after the step")
def gradient_returned(values, gradient, share, lr):
    return one_step(values, gradient, share, lr, step=lambda values, total, lr, n: total)


@wrong("push_and_pull", says="your function returned nothing")
def nothing_returned(values, gradient, share, lr):
    one_step(values, gradient, share, lr)


@wrong("push_and_pull", says="workers talk to the server")
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


@wrong("push_and_pull", says="your ranks ran all_reduce")
def by_all_reduce(values, gradient, share, lr):
    total = torch.zeros_like(values) if dist.get_rank() == 0 else share * gradient
    dist.all_reduce(total)
    dist.broadcast(values, 0)
    return values - lr * total


@wrong("push_and_pull", says="this rank sent too much")
def values_pushed_as_well(values, gradient, share, lr):
    if dist.get_rank() > 0:
        dist.send(gradient, 0)
    else:
        for worker in range(1, dist.get_world_size()):
            dist.recv(torch.empty_like(values), worker)
    return one_step(values, gradient, share, lr)


# ---------------------------------------------------------------------------------------------
# train_synchronously
# ---------------------------------------------------------------------------------------------


@wrong("train_synchronously", says="this is what a mean of means gives")
def trained_by_a_mean_of_means(model, batches, loss, lr):
    n = dist.get_world_size() - 1
    training(model, batches, loss, lr, weight=lambda share: 1 / n)


@wrong("train_synchronously", says="the steps are 2 times too large: you summed")
def trained_by_a_sum(model, batches, loss, lr):
    training(model, batches, loss, lr, weight=lambda share: 1.0)


@wrong("train_synchronously", says="this worker has kept its own frozen values")
def frozen_parameters_not_pulled(model, batches, loss, lr):
    training(
        model,
        batches,
        loss,
        lr,
        start=lambda model: [p for p in model.parameters() if p.requires_grad],
    )


@wrong("train_synchronously", says="'NoneType'")
def no_zeros_for_missing_gradients(model, batches, loss, lr):
    training(model, batches, loss, lr, gradient=lambda p: p.grad)


@wrong("train_synchronously", says="there is one more pull")
def last_pull_forgotten(model, batches, loss, lr):
    training(model, batches, loss, lr, pulls=lambda step, steps: step < steps - 1)


@wrong("train_synchronously", says="parameter 'first.weight'")
def gradients_pile_up(model, batches, loss, lr):
    training(model, batches, loss, lr, clear=False)


@wrong("train_synchronously", says="it has not moved at all")
def nothing_done(model, batches, loss, lr):
    return None


@wrong("train_synchronously", says="parameter 'first.weight'")
def tied_parameter_stepped_twice(model, batches, loss, lr):
    training(
        model,
        batches,
        loss,
        lr,
        pushed=lambda model: [
            p for _, p in model.named_parameters(remove_duplicate=False) if p.requires_grad
        ],
    )


@wrong("train_synchronously", says="this rank sent too much")
def parameters_sent_back_as_well(model, batches, loss, lr):
    training(model, batches, loss, lr)
    for p in model.parameters():
        for worker in range(1, dist.get_world_size()):
            if dist.get_rank() == 0:
                dist.recv(torch.empty_like(p), worker)
            elif dist.get_rank() == worker:
                dist.send(p.detach(), 0)


@wrong("train_synchronously", says="your ranks ran broadcast")
def trained_by_all_reduce(model, batches, loss, lr):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    for batch in batches:
        if batch is not None:
            x, y, share = batch
            model.zero_grad()
            (share * loss(model(x), y)).backward()
        for p in model.parameters():
            if p.requires_grad:
                total = torch.zeros_like(p) if p.grad is None else p.grad.clone()
                dist.all_reduce(total)
                p.data -= lr * total


# ---------------------------------------------------------------------------------------------
# bytes_sent
# ---------------------------------------------------------------------------------------------


@wrong("bytes_sent", says="with several servers each has only its part of the keys")
def all_keys_by_each_server(workers, size, servers):
    return workers * size, size, 2 * (workers - 1) / workers * size


@wrong("bytes_sent", says="this is in and out together")
def in_and_out(workers, size, servers):
    return 2 * workers * size / servers, size, 2 * (workers - 1) / workers * size


@wrong("bytes_sent", says="a worker sends to every server, its whole gradient in all")
def worker_to_one_server(workers, size, servers):
    return workers * size / servers, size / servers, 2 * (workers - 1) / workers * size


@wrong("bytes_sent", says="the ring goes round twice")
def one_round(workers, size, servers):
    return workers * size / servers, size, (workers - 1) / workers * size


@wrong("bytes_sent", says="2(n-1)/n of the tensor: n - 1 steps of one n-th")
def rough_ring(workers, size, servers):
    return workers * size / servers, size, 2 * size


@wrong("bytes_sent", says="three numbers are asked")
def only_the_server(workers, size, servers):
    return workers * size / servers


# ---------------------------------------------------------------------------------------------
# place_by_bytes
# ---------------------------------------------------------------------------------------------


@wrong("place_by_bytes", says="only whole tensors are dealt out")
def whole_tensors(sizes, servers):
    placed, loads = [[] for _ in range(servers)], [0] * servers
    for tensor in sorted(range(len(sizes)), key=lambda t: -sizes[t]):
        least = loads.index(min(loads))
        placed[least].append((tensor, 0, sizes[tensor]))
        loads[least] += sizes[tensor]
    return placed


@wrong("place_by_bytes", says="each tensor is cut for itself")
def each_tensor_cut(sizes, servers):
    placed = [[] for _ in range(servers)]
    for tensor, size in enumerate(sizes):
        edges = [-(-size * s // servers) for s in range(servers + 1)]
        for server in range(servers):
            start, stop = edges[server], edges[server + 1]
            if start < stop:
                placed[server].append((tensor, start, stop))
    return placed


@wrong("place_by_bytes", says="the remainder of the division lands on one server")
def remainder_on_the_last(sizes, servers):
    return pieces_of(sizes, [sum(sizes) // servers * s for s in range(servers)] + [sum(sizes)])


@wrong("place_by_bytes", says="nobody owns some elements")
def remainder_lost(sizes, servers):
    return pieces_of(sizes, [sum(sizes) // servers * s for s in range(servers + 1)])


@wrong("place_by_bytes", says="start and stop count within one tensor")
def numbers_of_the_line(sizes, servers):
    edges, offsets = cut_the_line(sum(sizes), servers), [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return [
        [
            (t, max(offsets[t], edges[s]), min(offsets[t + 1], edges[s + 1]))
            for t in range(len(sizes))
            if max(offsets[t], edges[s]) < min(offsets[t + 1], edges[s + 1])
        ]
        for s in range(servers)
    ]


@wrong("place_by_bytes", says="some have two owners")
def stop_included(sizes, servers):
    return [
        [(t, start, min(stop + 1, sizes[t])) for t, start, stop in pieces]
        for pieces in pieces_of(sizes, cut_the_line(sum(sizes), servers))
    ]


@wrong("place_by_bytes", says="these are not ranges in order")
def element_by_element(sizes, servers):
    line = [(t, i, i + 1) for t, size in enumerate(sizes) for i in range(size)]
    return [line[server::servers] for server in range(servers)]


@wrong("place_by_bytes", says="a list of pieces for every server is asked")
def only_servers_with_keys(sizes, servers):
    return [p for p in pieces_of(sizes, cut_the_line(sum(sizes), servers)) if p]


def pieces_of(sizes, edges):
    placed, offsets = [], [sum(sizes[:t]) for t in range(len(sizes))]
    for low, high in pairwise(edges):
        pieces = []
        for t, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            start, stop = max(low, offset) - offset, min(high, offset + size) - offset
            if start < stop:
                pieces.append((t, start, stop))
        placed.append(pieces)
    return placed


# ---------------------------------------------------------------------------------------------
# ring_owners
# ---------------------------------------------------------------------------------------------


def sorted_ring(servers, points, place):
    return sorted((place(f"{s}/{i}"), s) for s in range(servers) for i in range(points))


@wrong("ring_owners", says="this is the place modulo the number of servers")
def modulo(keys, servers, points, place):
    return [place(key) % servers for key in keys]


@wrong("ring_owners", says="only one point of each server is on the ring")
def one_point_each(keys, servers, points, place):
    ring = sorted_ring(servers, 1, place)
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) % len(ring)][1] for key in keys]


@wrong("ring_owners", says="this is the one below")
def the_point_below(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) - 1][1] for key in keys]


@wrong("ring_owners", says="above the last point the ring starts again")
def no_way_round(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    places = [at for at, _ in ring]
    return [ring[min(bisect_left(places, place(key)), len(ring) - 1)][1] for key in keys]


@wrong("ring_owners", says="a key that lies exactly on a point belongs to that point")
def strictly_above(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    return [next((server for at, server in ring if at > place(key)), ring[0][1]) for key in keys]


@wrong("ring_owners", says="this is the nearest point")
def nearest_point(keys, servers, points, place):
    ring = [(place(f"{s}/{i}"), s) for s in range(servers) for i in range(points)]
    return [min(ring, key=lambda point: abs(point[0] - place(key)))[1] for key in keys]


@wrong("ring_owners", says="a list with the number of a server for every key")
def names_of_points(keys, servers, points, place):
    ring = sorted((place(f"{s}/{i}"), f"{s}/{i}") for s in range(servers) for i in range(points))
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) % len(ring)][1] for key in keys]


# ---------------------------------------------------------------------------------------------
# asynchronous_server
# ---------------------------------------------------------------------------------------------


@wrong("asynchronous_server", says="takes the next message of any rank")
def in_order_of_ranks(values, pushes, lr):
    workers, turn = dist.get_world_size() - 1, iter(range(pushes))
    return serve(
        values, pushes, lr, receive=lambda buffer: dist.recv(buffer, 1 + next(turn) % workers)
    )


@wrong("asynchronous_server", says="that worker waits for its answer now")
def waits_for_everyone(values, pushes, lr):
    buffers = [torch.empty_like(values) for _ in range(dist.get_world_size() - 1)]
    for worker, buffer in enumerate(buffers, 1):
        dist.recv(buffer, worker)
    values -= lr * sum(buffers)
    for worker in range(1, len(buffers) + 1):
        dist.send(values, worker)
    return [0] * pushes


@wrong("asynchronous_server", says="the answer holds the values from before this push")
def answers_before_the_step(values, pushes, lr):
    return serve(values, pushes, lr, answer_first=True)


@wrong("asynchronous_server", says="each push is divided by the number of workers")
def averages(values, pushes, lr):
    return serve(values, pushes, lr, factor=1 / (dist.get_world_size() - 1))


@wrong("asynchronous_server", says="the push's own step does not count")
def counts_its_own_step(values, pushes, lr):
    return serve(
        values, pushes, lr, count=lambda version, has, worker: version + 1 - has.get(worker, 0)
    )


@wrong("asynchronous_server", says="these are steps since the start")
def version_for_staleness(values, pushes, lr):
    return serve(values, pushes, lr, count=lambda version, has, worker: version)


@wrong("asynchronous_server", says="what a worker has at first is version 0")
def first_push_is_fresh(values, pushes, lr):
    return serve(
        values,
        pushes,
        lr,
        count=lambda version, has, worker: version - has.get(worker, version),
    )


@wrong("asynchronous_server", says="does not hold the result: step in place")
def another_tensor(values, pushes, lr):
    return serve(values.clone(), pushes, lr)


@wrong("asynchronous_server", says="a list with the staleness of every push is asked")
def values_returned(values, pushes, lr):
    serve(values, pushes, lr)
    return values


# ---------------------------------------------------------------------------------------------
# released
# ---------------------------------------------------------------------------------------------


@wrong("released", says="a lead of exactly the bound is allowed")
def one_too_strict(finished, waiting, bound):
    return [w for w in waiting if finished[w] - min(finished) < bound]


@wrong("released", says="one task further ahead than the bound")
def one_too_far(finished, waiting, bound):
    return [w for w in waiting if finished[w] - min(finished) <= bound + 1]


@wrong("released", says="the slowest may be one that is computing")
def only_those_that_wait(finished, waiting, bound):
    slowest = min((finished[v] for v in waiting), default=0)
    return [w for w in waiting if finished[w] - slowest <= bound]


@wrong("released", says="this compares with the fastest")
def compared_with_the_fastest(finished, waiting, bound):
    return [w for w in waiting if max(finished) - finished[w] <= bound]


@wrong("released", says="this compares with the average")
def compared_with_the_average(finished, waiting, bound):
    return [w for w in waiting if finished[w] - sum(finished) / len(finished) <= bound]


@wrong("released", says="this holds everyone back")
def all_or_nobody(finished, waiting, bound):
    return waiting if max(finished) - min(finished) <= bound else []


@wrong("released", says="some could start and are held back")
def one_at_a_time(finished, waiting, bound):
    return [w for w in waiting if finished[w] - min(finished) <= bound][:1]


@wrong("released", says="only workers that wait can start")
def everyone_within_the_bound(finished, waiting, bound):
    return [w for w, count in enumerate(finished) if count - min(finished) <= bound]


@wrong("released", says="this lets everyone start who waits")
def eventual_whatever_the_bound(finished, waiting, bound):
    return [w for w in waiting if finished[w] <= math.inf]


# ---------------------------------------------------------------------------------------------
# significant_changes
# ---------------------------------------------------------------------------------------------


def filtered(unsent, change, threshold, mask=lambda unsent, t: unsent.abs() > t):
    unsent += change
    indices = mask(unsent, threshold).nonzero().reshape(-1)
    values = unsent[indices]
    unsent[indices] = 0
    return indices, values


@wrong("significant_changes", says="small ones add up")
def only_the_new_change(unsent, change, threshold):
    indices = (change.abs() > threshold).nonzero().reshape(-1)
    unsent += change
    values = unsent[indices]
    unsent[indices] = 0
    return indices, values


@wrong("significant_changes", says="a large negative change is significant as well")
def only_positive(unsent, change, threshold):
    return filtered(unsent, change, threshold, lambda unsent, t: unsent > t)


@wrong("significant_changes", says="above the threshold, not at it")
def at_the_threshold(unsent, change, threshold):
    return filtered(unsent, change, threshold, lambda unsent, t: unsent.abs() >= t)


@wrong("significant_changes", says="you clear the others as well")
def rest_thrown_away(unsent, change, threshold):
    indices, values = filtered(unsent, change, threshold)
    unsent.zero_()
    return indices, values


@wrong("significant_changes", says="what was sent is still there")
def sent_again_and_again(unsent, change, threshold):
    unsent += change
    indices = (unsent.abs() > threshold).nonzero().reshape(-1)
    return indices, unsent[indices]


@wrong("significant_changes", says="take the values before you clear them")
def cleared_too_early(unsent, change, threshold):
    unsent += change
    indices = (unsent.abs() > threshold).nonzero().reshape(-1)
    unsent[indices] = 0
    return indices, unsent[indices]


@wrong("significant_changes", says="`unsent` is as it was before the call")
def not_in_place(unsent, change, threshold):
    return filtered(unsent.clone(), change, threshold)


@wrong("significant_changes", says="what is sent has a sign")
def sizes_sent(unsent, change, threshold):
    indices, values = filtered(unsent, change, threshold)
    return indices, values.abs()


@wrong("significant_changes", says="it has been written to")
def change_used_as_buffer(unsent, change, threshold):
    change += unsent
    unsent.copy_(change)
    indices = (change.abs() > threshold).nonzero().reshape(-1)
    values = change[indices]
    unsent[indices] = 0
    return indices, values


@wrong("significant_changes", says="everything is sent")
def no_filter(unsent, change, threshold):
    indices = torch.arange(len(unsent))
    return indices, unsent + change
