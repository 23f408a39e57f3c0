"""Known answers to run_schedule."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def run_schedule(row, module, inputs, targets, loss):
    me, last = dist.get_rank(), dist.get_world_size() - 1
    m = len([op for op in row if op[0] == "F"])
    xs, ys = inputs.split(len(inputs) // m), targets.split(len(targets) // m)
    activations, outputs, works, losses = {}, {}, [], []
    for kind, _, i in row:
        if kind == "F":
            x = xs[i] if me == 0 else torch.zeros_like(xs[i])
            if me > 0:
                works.append(dist.irecv(x, me - 1))
                works[-1].wait()
                x.requires_grad_(True)
            activations[i], outputs[i] = x, module(x)
            if me < last:
                works.append(dist.isend(outputs[i].detach(), me + 1))
            else:
                outputs[i] = loss(outputs[i], ys[i])
                losses.append(outputs[i].item())
        else:
            if me < last:
                gradient = torch.zeros_like(xs[i])
                dist.recv(gradient, me + 1)
            else:
                gradient = torch.tensor(1 / m)
            torch.autograd.backward(outputs.pop(i), gradient)
            if me > 0:
                works.append(dist.isend(activations[i].grad, me - 1))
    for work in works:
        if not work.is_completed():
            work.wait()
    return sum(losses) / m if me == last else None


def execute(
    row,
    module,
    inputs,
    targets,
    loss,
    divide=True,
    send=None,
    wait=True,
    mean=True,
    take=lambda kept, i: kept.pop(i),
):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    m = sum(kind == "F" for kind, _, _ in row)
    xs, ys, kept, sending, total = inputs.chunk(m), targets.chunk(m), {}, [], 0.0

    def begin(tensor, to):
        if send is not None:
            send(tensor, to)
        else:
            sending.append((dist.isend(tensor, to), tensor))

    for kind, _, i in row:
        if kind == "F":
            x = xs[i]
            if rank > 0:
                x = torch.empty_like(xs[0])
                dist.recv(x, rank - 1)
                x.requires_grad_()
            y = module(x)
            if rank == last:
                value = loss(y, ys[i])
                y = value / m if divide else value
                total += value.detach() / m if mean else value.detach()
            else:
                begin(y.detach(), rank + 1)
            kept[i] = x, y
        else:
            x, y = take(kept, i)
            if rank == last:
                y.backward()
            else:
                gradient = torch.empty_like(y)
                dist.recv(gradient, rank + 1)
                y.backward(gradient)
            if rank > 0:
                begin(x.grad, rank - 1)
    if wait:
        for work, _ in sending:
            work.wait()
    return total if rank == last else None


@wrong(says="exactly m = 3 times the reference")
def mean_of_each_microbatch(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, divide=False)


@wrong(says="begin sends with dist.isend, keep handle and tensor")
def blocking_sends(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, send=dist.send)


@wrong(says="was never waited for")
def never_waits(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, wait=False)


@wrong(says="and this is their sum")
def sum_of_losses(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, mean=False)


@wrong(says="the passes did not run in the order of the row")
def always_gpipe(row, module, inputs, targets, loss):
    ordered = sorted(row, key=lambda op: (op[0] != "F", op[2]))
    return execute(ordered, module, inputs, targets, loss)


@wrong(says="still being sent")
def one_buffer_for_all_microbatches(row, module, inputs, targets, loss):
    m = sum(kind == "F" for kind, _, _ in row)
    buffer, works = torch.empty_like(inputs.chunk(m)[0]), []

    def send(tensor, to):
        buffer.copy_(tensor)
        works.append(dist.isend(buffer, to))

    value = execute(row, module, inputs, targets, loss, send=send)
    for work in works:
        work.wait()
    return value


@wrong(says="Trying to backward through the graph a second time")
def keeps_the_last_one_only(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, take=lambda kept, _: list(kept.values())[-1])


@wrong(says="only the last rank sees the losses")
def a_loss_everywhere(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    return 0.0 if value is None else value


@wrong(says="on rank 1: there is none")
def only_the_last_microbatch(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    module.zero_grad()
    return value


@wrong(says="your ranks ran all_reduce")
def loss_to_everyone(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    dist.all_reduce(torch.zeros(1))
    return value
