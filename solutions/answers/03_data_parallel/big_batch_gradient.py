"""Known answers to big_batch_gradient."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def big_batch_gradient(model, loss, inputs, targets):
    """Sums first, one division at the end; all in one buffer."""
    rows, mean = len(inputs), torch.zeros(())
    if rows:
        mean = loss(model(inputs), targets)
        mean.backward()
    trainable = [p for p in model.parameters() if p.requires_grad]
    own = [torch.zeros_like(p) if p.grad is None else p.grad * rows for p in trainable]
    like = trainable[0]
    numbers = [float(mean) * rows if rows else 0.0, float(rows)]
    flat = torch.cat([*(g.flatten() for g in own), torch.tensor(numbers, dtype=like.dtype)])
    dist.all_reduce(flat)
    *grads, numbers = flat.split([*(p.numel() for p in trainable), 2])
    for p, g in zip(trainable, grads, strict=True):
        p.grad = (g / numbers[1]).view_as(p)
    return (numbers[0] / numbers[1]).item()


@right
def big_batch_gradient_weighted(model, loss, inputs, targets):
    """The weights rows * n / total, then an average as DDP makes it."""
    n = dist.get_world_size()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(counts, torch.tensor([len(inputs)]))
    share = len(inputs) * n / sum(int(c) for c in counts)
    total = torch.zeros((), dtype=torch.float64)
    if len(inputs):
        value = share * loss(model(inputs), targets)
        value.backward()
        total = value.detach().clone()
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= n
    dist.all_reduce(total)
    return total / n


@right
def big_batch_gradient_with_a_float32_weight(model, loss, inputs, targets):
    rows, value = torch.tensor(float(len(inputs))), torch.zeros(1, dtype=torch.float64)
    total = rows.clone()
    dist.all_reduce(total)
    if len(inputs):
        weighted = loss(model(inputs), targets) * (rows / total)
        weighted.backward()
        value += weighted.detach()
    for p in filter(lambda p: p.requires_grad, model.parameters()):
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
    dist.all_reduce(value)
    return value.squeeze()


def reduce_gradients(model, scale=1.0, zeros=True):
    for parameter in model.parameters():
        if not parameter.requires_grad or (parameter.grad is None and not zeros):
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad *= scale


def all_rows(inputs):
    rows = torch.tensor(float(len(inputs)))
    dist.all_reduce(rows)
    return rows.item()


def mean_over_all(value, share):
    total = (value.detach() * share).double()
    dist.all_reduce(total)
    return total.item()


@wrong(says="exactly 2 times the reference: these are sums of 2 means")
def sum_of_means(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    value.backward()
    reduce_gradients(model)
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong(says="this is the mean of 2 means. Ranks have 3 and 2 rows")
def mean_of_uneven_means(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    value.backward()
    reduce_gradients(model, 1 / dist.get_world_size())
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong(says="exactly 6 times the reference, the number of all rows")
def sum_of_sums(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    (value * len(inputs)).backward()
    reduce_gradients(model)
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong(says="exactly 3 times the reference, rows per rank: you averaged sums")
def average_of_sums(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    (value * len(inputs)).backward()
    reduce_gradients(model, 1 / dist.get_world_size())
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong(says="exactly 1/2 of the reference: you averaged twice")
def divided_before_and_after(model, loss, inputs, targets):
    n = dist.get_world_size()
    value = loss(model(inputs), targets)
    (value / n).backward()
    reduce_gradients(model, 1 / n)
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong(says="this is the rank's own gradient, which nobody has averaged")
def the_parameter_in_place_of_its_gradient(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    value.backward()
    for grad in model.parameters():  # as a hook's argument was once taken for the gradient
        if grad.requires_grad:
            dist.all_reduce(grad.detach())
            grad.detach().div_(dist.get_world_size())
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong(says="the gradients are right, but the loss that was returned")
def the_ranks_own_loss(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = loss(model(inputs), targets)
    (value * share).backward()
    reduce_gradients(model)
    return value


@wrong(says="the mean over no rows is nan, and so is every sum that it is in")
def a_mean_over_nothing(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = loss(model(inputs), targets)
    (value * share).backward()
    reduce_gradients(model)
    return mean_over_all(value, share)


@wrong(says="rank 3 has no rows: it has no gradient of its own")
def a_rank_without_rows_stays_away(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    if not len(inputs):
        return 0.0
    value = loss(model(inputs), targets)
    (value * share).backward()
    reduce_gradients(model)
    return mean_over_all(value, share)


@wrong(says="a frozen parameter has no gradient")
def frozen_parameters_are_reduced_too(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = loss(model(inputs), targets)
    (value * share).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    return mean_over_all(value, share)


@wrong(says="an unused layer has no gradient on any rank")
def unused_parameters_are_reduced_too(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = loss(model(inputs), targets)
    (value * share).backward()
    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        dist.all_reduce(parameter.grad)
    return mean_over_all(value, share)


@wrong(says="collected with all_gather")
def gather_and_add(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = torch.zeros((), dtype=torch.float64)
    if len(inputs):
        value = loss(model(inputs), targets)
        (value * share).backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, own.contiguous())
            parameter.grad = sum(parts)
    return mean_over_all(value, share)


@wrong(says="not every gradient was reduced exactly once")
def reduced_twice_and_halved(model, loss, inputs, targets):
    n, share = dist.get_world_size(), len(inputs) / all_rows(inputs)
    value = torch.zeros((), dtype=torch.float64)
    if len(inputs):
        value = loss(model(inputs), targets)
        (value * share).backward()
    reduce_gradients(model)
    reduce_gradients(model, 1 / n)
    return mean_over_all(value, share)


@wrong(says="this one goes wrong when the function was called before in the same process")
def all_rows_kept_for_the_next_call(model, loss, inputs, targets, total=[]):
    if not total:
        total.append(all_rows(inputs))
    value, share = torch.zeros((), dtype=torch.float64), len(inputs) / total[0]
    if len(inputs):
        value = loss(model(inputs), targets)
        (value * share).backward()
    reduce_gradients(model)
    return mean_over_all(value, share)


@right
def big_batch_gradient_of_a_gathered_count(model, loss, inputs, targets):
    """Counts by all_gather; torch.autograd.grad, and .grad is written once at the end."""
    rows = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, torch.tensor([float(len(inputs))]))
    share = len(inputs) / sum(map(float, rows))
    own = [p for p in model.parameters() if p.requires_grad]
    mean, grads = torch.zeros(1, dtype=torch.float64), [None] * len(own)
    if share:
        value = share * loss(model(inputs), targets)
        grads = torch.autograd.grad(value, own, allow_unused=True)
        mean += value.item()
    works = []
    for p, grad in zip(own, grads, strict=True):
        p.grad = torch.zeros_like(p) if grad is None else grad.clone()
        works.append(dist.all_reduce(p.grad, async_op=True))
    works.append(dist.all_reduce(mean, async_op=True))
    for work in works:
        work.wait()
    return mean.item()


@right
def big_batch_gradient_in_one_vector(model, loss, inputs, targets):
    """Sums over rows of everything, with the loss and the count at the end of the same vector."""
    own = [p for p in model.parameters() if p.requires_grad]
    vector = torch.zeros(sum(p.numel() for p in own) + 2, dtype=torch.float64)
    if len(inputs):
        total = loss(model(inputs), targets) * len(inputs)
        total.backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        vector[:-2] = torch.cat([g.reshape(-1) for g in grads])
        vector[-2:] = torch.tensor([total.item(), len(inputs)], dtype=torch.float64)
    dist.all_reduce(vector)
    vector /= vector[-1].item()
    for p, part in zip(own, vector[:-2].split([p.numel() for p in own]), strict=True):
        p.grad = part.view_as(p).to(p.dtype).clone()
    return vector[-2]


@wrong(says="is frozen, and has a gradient")
def zeros_for_frozen_ones(model, loss, inputs, targets):
    value = big_batch_gradient(model, loss, inputs, targets)
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return value
