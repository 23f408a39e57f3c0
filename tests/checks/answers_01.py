"""Right answers to notebook 01, written independently of the solutions and of the techniques."""

import itertools

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


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


push_from_anyone.__name__ = "push_and_pull"


def train_synchronously(model, batches, loss, lr):
    """Everything as one vector, frozen parameters pulled along with the others."""
    parameters = list(model.parameters())
    vector = parameters_to_vector(parameters).detach()
    trained = torch.cat([torch.full((p.numel(),), p.requires_grad) for p in parameters])
    workers = range(1, dist.get_world_size())
    if dist.get_rank() == 0:
        for worker in workers:
            dist.send(vector, worker)
        for _ in batches:
            total = torch.zeros_like(vector[trained])
            for worker in workers:
                part = torch.empty_like(total)
                dist.recv(part, worker)
                total += part
            vector[trained] -= lr * total
            for worker in workers:
                dist.send(vector, worker)
    else:
        dist.recv(vector, 0)
        vector_to_parameters(vector, parameters)
        for x, y, share in batches:
            free = [p for p in parameters if p.requires_grad]
            gradients = torch.autograd.grad(
                loss(model(x), y), free, allow_unused=True, materialize_grads=True
            )
            dist.send(share * parameters_to_vector(gradients), 0)
            dist.recv(vector, 0)
            vector_to_parameters(vector, parameters)
    vector_to_parameters(vector, parameters)


def train_tensor_by_tensor(model, batches, loss, lr):
    """One message for every parameter; the share goes into the loss."""
    parameters = list(model.parameters())
    trained = [p for p in parameters if p.requires_grad]
    server, workers = dist.get_rank() == 0, range(1, dist.get_world_size())

    def spread(some):
        for p in some:
            if server:
                for worker in workers:
                    dist.send(p.detach(), worker)
            else:
                dist.recv(p.detach(), 0)

    spread(parameters)
    for batch in batches:
        model.zero_grad()
        if server:
            for p in trained:
                parts = [torch.empty_like(p) for _ in workers]
                for worker, part in zip(workers, parts, strict=True):
                    dist.recv(part, worker)
                p.data.sub_(torch.stack(parts).sum(0), alpha=lr)
        else:
            x, y, share = batch
            (share * loss(model(x), y)).backward()
            for p in trained:
                dist.send(torch.zeros_like(p) if p.grad is None else p.grad, 0)
        spread(trained)


train_tensor_by_tensor.__name__ = "train_synchronously"


def bytes_sent(workers, size, servers):
    ring = sum(size / workers for _ in range(2 * (workers - 1)))
    return [workers * (size / servers), torch.tensor(float(size)), ring]


def place_by_bytes(sizes, servers):
    """Element by element, then runs of it."""
    line = [(t, i) for t, size in enumerate(sizes) for i in range(size)]
    placed, taken = [], 0
    for server in range(servers):
        share = len(line) // servers + (server < len(line) % servers)
        mine, taken = line[taken : taken + share], taken + share
        pieces = []
        for tensor, run in itertools.groupby(mine, key=lambda element: element[0]):
            numbers = [i for _, i in run]
            pieces.append([tensor, numbers[0], numbers[-1] + 1])
        placed.append(tuple(pieces))
    return tuple(placed)


def ring_owners(keys, servers, points, place):
    """For every key the point with the shortest way up, round the ring."""
    ring = [(place(f"{s}/{i}"), s) for s in range(servers) for i in range(points)]
    owners = []
    for key in keys:
        at = place(key)
        owners.append(min(ring, key=lambda point: (point[0] - at) % 2**64)[1])
    return tuple(owners)


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


def released(finished, waiting, bound):
    lowest = sorted(finished)[0]
    return {worker for worker in waiting if not finished[worker] > lowest + bound}


def significant_changes(unsent, change, threshold):
    unsent.copy_(unsent + change)
    significant = (unsent > threshold) | (unsent < -threshold)
    indices = torch.arange(len(unsent))[significant]
    values = torch.index_select(unsent, 0, indices)
    unsent.masked_fill_(significant, 0.0)
    return [indices, values]


ANSWERS = {
    "push_and_pull": [push_and_pull, push_from_anyone],
    "train_synchronously": [train_synchronously, train_tensor_by_tensor],
    "bytes_sent": [bytes_sent],
    "place_by_bytes": [place_by_bytes],
    "ring_owners": [ring_owners],
    "asynchronous_server": [asynchronous_server],
    "released": [released],
    "significant_changes": [significant_changes],
}
