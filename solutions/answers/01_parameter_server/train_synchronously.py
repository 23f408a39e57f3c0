"""Known answers to train_synchronously."""

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_lib.checks.known_answers import right, wrong


@right
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


@right
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


@right
def train_as_an_optimizer_does(model, batches, loss, lr):
    """torch.optim on the server; workers that answer to whoever asks first."""
    trained = [p for p in model.parameters() if p.requires_grad]
    workers = list(range(1, dist.get_world_size()))
    sgd = torch.optim.SGD(trained, lr=lr)

    def pull(parameters):
        flat = parameters_to_vector(parameters).detach()
        if dist.get_rank() == 0:
            for work in [dist.isend(flat, worker) for worker in workers]:
                work.wait()
        else:
            dist.recv(flat, 0)
            vector_to_parameters(flat, parameters)

    pull(list(model.parameters()))
    for batch in batches:
        sgd.zero_grad()
        if batch is None:
            for _ in workers:
                flat = torch.empty(sum(p.numel() for p in trained), dtype=trained[0].dtype)
                dist.recv(flat)
                for p, part in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
                    p.grad = part.view_as(p) if p.grad is None else p.grad + part.view_as(p)
            sgd.step()
        else:
            x, y, share = batch
            loss(model(x), y).mul(share).backward()
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
            dist.send(parameters_to_vector(gradients), 0)
        pull(trained)


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


@wrong(says="this is what a mean of means gives")
def trained_by_a_mean_of_means(model, batches, loss, lr):
    n = dist.get_world_size() - 1
    training(model, batches, loss, lr, weight=lambda share: 1 / n)


@wrong(says="the steps are 2 times too large: you summed")
def trained_by_a_sum(model, batches, loss, lr):
    training(model, batches, loss, lr, weight=lambda share: 1.0)


@wrong(says="this worker has kept its own frozen values")
def frozen_parameters_not_pulled(model, batches, loss, lr):
    training(
        model,
        batches,
        loss,
        lr,
        start=lambda model: [p for p in model.parameters() if p.requires_grad],
    )


@wrong(says="'NoneType'")
def no_zeros_for_missing_gradients(model, batches, loss, lr):
    training(model, batches, loss, lr, gradient=lambda p: p.grad)


@wrong(says="there is one more pull")
def last_pull_forgotten(model, batches, loss, lr):
    training(model, batches, loss, lr, pulls=lambda step, steps: step < steps - 1)


@wrong(says="begin each step with model.zero_grad()")
def gradients_pile_up(model, batches, loss, lr):
    training(model, batches, loss, lr, clear=False)


@wrong(says="it has not moved at all")
def nothing_done(model, batches, loss, lr):
    return None


@wrong(says="parameter 'first.weight'")
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


@wrong(says="this rank sent too much")
def parameters_sent_back_as_well(model, batches, loss, lr):
    training(model, batches, loss, lr)
    for p in model.parameters():
        for worker in range(1, dist.get_world_size()):
            if dist.get_rank() == 0:
                dist.recv(torch.empty_like(p), worker)
            elif dist.get_rank() == worker:
                dist.send(p.detach(), 0)


@wrong(says="your ranks ran broadcast")
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


@wrong(says="pull once before the first step")
def first_pull_forgotten(model, batches, loss, lr):
    training(model, batches, loss, lr, start=lambda model: [])


@wrong(says="parameter 'first.weight'")
def a_rate_of_its_own(model, batches, loss, lr):
    training(model, batches, loss, 0.2)


@right
def train_as_a_class(model, batches, loss, lr):
    class Rank:
        """What the two roles share."""

        def __init__(self):
            self.trained = [p for p in model.parameters() if p.requires_grad]
            self.workers = range(1, dist.get_world_size())

    class Server(Rank):
        def answer(self, parameters):
            for worker in self.workers:
                for p in parameters:
                    dist.send(p.data, worker)

        def step(self, _):
            total = {p: torch.zeros_like(p) for p in self.trained}
            for worker in self.workers:
                for p in self.trained:
                    part = torch.empty_like(p.data)
                    dist.recv(part, worker)
                    total[p] += part
            with torch.no_grad():
                for p, gradient in total.items():
                    p -= lr * gradient

    class Worker(Rank):
        def answer(self, parameters):
            for p in parameters:
                dist.recv(p.data, 0)

        def step(self, batch):
            inputs, targets, share = batch
            wanted = torch.autograd.grad(
                share * loss(model(inputs), targets), self.trained, allow_unused=True
            )
            for p, gradient in zip(self.trained, wanted, strict=True):
                dist.send(torch.zeros_like(p) if gradient is None else gradient.contiguous(), 0)

    me = Worker() if dist.get_rank() else Server()
    me.answer(list(model.parameters()))
    for batch in batches:
        me.step(batch)
        me.answer(me.trained)


@right
def train_with_an_optimizer_on_every_worker(model, batches, loss, lr):
    """A worker pushes its share of the gradient; the server hands out the new row of numbers."""
    everything = list(model.parameters())
    trained = [p for p in everything if p.requires_grad]
    n, me = dist.get_world_size(), dist.get_rank()

    def row(tensors):
        return torch.cat([t.detach().reshape(-1) for t in tensors])

    def pull(tensors):
        flat = row(tensors)
        if me == 0:
            for worker in range(1, n):
                dist.send(flat, worker)
            return
        dist.recv(flat, 0)
        for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.data.copy_(part.view_as(t))

    pull(everything)
    for batch in batches:
        for p in trained:
            p.grad = torch.zeros_like(p)
        if me:
            x, y, share = batch
            (loss(model(x), y) * share).backward()
            dist.send(row([p.grad for p in trained]), 0)
        else:
            arrived = [torch.empty_like(row(trained)) for _ in range(1, n)]
            for work in [dist.irecv(part, worker) for worker, part in enumerate(arrived, 1)]:
                work.wait()
            new = row(trained) - lr * sum(arrived)
            for p, part in zip(trained, new.split([p.numel() for p in trained]), strict=True):
                p.data.copy_(part.view_as(p))
        pull(trained)
