"""Known answers to run_schedule."""

from collections import OrderedDict, defaultdict
from concurrent.futures import ThreadPoolExecutor

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
                dist.irecv(x, me - 1).wait()
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
            x = activations.pop(i)
            if me > 0:
                works.append(dist.isend(x.grad, me - 1))
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
    retain=False,
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
                y.backward(retain_graph=retain)
            else:
                gradient = torch.empty_like(y)
                dist.recv(gradient, rank + 1)
                y.backward(gradient, retain_graph=retain)
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


@right
def as_an_object(row, module, inputs, targets, loss):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    m = max(i for *_, i in row) + 1
    size = len(inputs) // m

    class Executor:
        def __init__(self):
            self.live, self.pending, self.total = OrderedDict(), [], inputs.new_zeros(())

        def F(self, i):
            x = inputs.narrow(0, i * size, size)
            if rank:
                x = torch.zeros_like(x)
                dist.recv(x, src=rank - 1)
            x = x.detach().requires_grad_(rank > 0)
            y = module(x)
            if rank == last:
                y = loss(y, targets.narrow(0, i * size, size)).div(m)
                self.total += y.detach()
            else:
                self.begin(y.detach(), rank + 1)
            self.live[i] = x, y

        def B(self, i):
            x, y = self.live.pop(i)
            gradient = None
            if rank < last:
                gradient = torch.empty_like(y)
                dist.recv(gradient, src=rank + 1)
            y.backward(gradient)
            if rank:
                self.begin(x.grad, rank - 1)

        def begin(self, tensor, to):
            self.pending.append((dist.isend(tensor, dst=to), tensor))

    executor = Executor()
    for kind, _, i in row:
        getattr(executor, kind)(i)
    for work, _ in executor.pending:
        work.wait()
    return executor.total if rank == last else None


@right
def with_a_thread_for_each_neighbour(row, module, inputs, targets, loss):
    """One thread keeps the order of what goes to a rank."""
    with ThreadPoolExecutor(1) as forth, ThreadPoolExecutor(1) as back:

        def send(tensor, to):
            (forth if to > dist.get_rank() else back).submit(dist.send, tensor, to)

        return execute(row, module, inputs, targets, loss, send=send)


@right
def with_copies_and_irecv(row, module, inputs, targets, loss):
    rank, size = dist.get_rank(), dist.get_world_size()
    m, kept, works, losses = len(row) // 2, defaultdict(dict), [], []
    xs, ys = torch.tensor_split(inputs, m), torch.tensor_split(targets, m)
    for op in row:
        mine = kept[op.microbatch]
        if op.kind == "F":
            mine["x"] = xs[op.microbatch]
            if rank:
                mine["x"] = torch.empty_like(xs[op.microbatch])
                dist.irecv(mine["x"], rank - 1).wait()
                mine["x"].requires_grad = True
            mine["y"] = module(mine["x"])
            if rank == size - 1:
                mine["y"] = loss(mine["y"], ys[op.microbatch])
                losses.append(mine["y"].detach())
            else:
                mine["sent"] = mine["y"].detach().clone()
                works.append(dist.isend(mine["sent"], rank + 1))
        else:
            gradient = torch.full_like(mine["y"], 1 / m)
            if rank < size - 1:
                dist.irecv(gradient, rank + 1).wait()
            mine["y"].backward(gradient)
            if rank:
                works.append(dist.isend(mine["x"].grad, rank - 1))
            del kept[op.microbatch], mine
    for work in works:
        work.wait()
    return torch.stack(losses).mean() if losses else None


@wrong(says="this is that of the mean squared error")
def the_squared_error_for_any_loss(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, torch.nn.functional.mse_loss)


@wrong(says="this is that of loss(targets, output)")
def targets_before_the_output(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, lambda output, y: loss(y, output))


@wrong(says="only the part of microbatch")
def gradients_not_added_up(row, module, inputs, targets, loss):
    def take(kept, i):
        module.zero_grad()
        return kept.pop(i)

    return execute(row, module, inputs, targets, loss, take=take)


def in_counted_order(row):
    """The same row with its microbatches numbered as they come."""
    numbers = {op[2]: n for n, op in enumerate(op for op in row if op[0] == "F")}
    return [(kind, s, numbers[i]) for kind, s, i in row]


@wrong(says="rank 0 ran other microbatches than its row says")
def microbatches_as_they_come(row, module, inputs, targets, loss):
    return execute(in_counted_order(row), module, inputs, targets, loss)


@wrong(says="that with targets of other microbatches")
def targets_as_they_come(row, module, inputs, targets, loss):
    last = dist.get_rank() == dist.get_world_size() - 1 > 0
    return execute(in_counted_order(row) if last else row, module, inputs, targets, loss)


@wrong(says="more is kept than the row has in flight")
def graphs_that_are_kept(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, retain=True, take=lambda kept, i: kept[i])


@wrong(says="inputs stay in memory after their backward")
def inputs_that_are_kept(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, take=lambda kept, i: kept[i])


@wrong(says="call requires_grad_() on what has arrived")
def no_gradient_for_what_arrives(row, module, inputs, targets, loss):
    return execute(row, lambda x: module(x.detach()), inputs, targets, loss)


@wrong(says="Only rank 0 has the inputs and only the last rank the targets")
def every_rank_reads_its_inputs(row, module, inputs, targets, loss):
    m = sum(kind == "F" for kind, _, _ in row)

    def forward(x):
        return module(x if dist.get_rank() == 0 else x + inputs.chunk(m)[0])

    return execute(row, forward, inputs, targets, loss)


@wrong(says="the step is the optimizer's, and comes later")
def steps_as_well(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    return value


@right
def with_a_dictionary_of_what_to_do(row, module, inputs, targets, loss):
    me, n = dist.get_rank(), dist.get_world_size()
    m = sum(op[0] == "F" for op in row)
    x, y = torch.tensor_split(inputs, m), torch.tensor_split(targets, m)
    live, mail, losses = {}, [], []

    def post(tensor, to):
        mail.append((tensor, dist.isend(tensor, dst=to)))

    def fetch(source, like):
        dist.recv(arrived := torch.empty_like(like), src=source)
        return arrived

    def forward(i):
        start = x[i] if me == 0 else fetch(me - 1, x[i]).requires_grad_()
        end = module(start)
        if me < n - 1:
            post(end.detach().clone(), me + 1)
        else:
            end = loss(end, y[i])
            losses.append(end.detach())
        live[i] = start, end

    def backward(i):
        start, end = live.pop(i)
        gradient = torch.full_like(end, 1 / m) if me == n - 1 else fetch(me + 1, end)
        end.backward(gradient)
        if me:
            post(start.grad, me - 1)

    for op in row:
        {"F": forward, "B": backward}[op[0]](op[2])
    for _, work in mail:
        work.wait()
    return torch.stack(losses).mean() if losses else None


@wrong(says="the rank waits for its send before its next pass")
def waits_for_every_isend(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, send=lambda t, to: dist.isend(t, to).wait())


@wrong(says="room for inputs is made long before their turn")
def asks_for_all_inputs_at_first(row, module, inputs, targets, loss):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    m = sum(op.kind == "F" for op in row)
    xs, ys = inputs.chunk(m), targets.chunk(m)
    arriving, kept, sending, total = {}, {}, [], 0.0
    for op in row if rank > 0 else ():
        if op.kind == "F":
            buffer = torch.empty_like(xs[0])
            arriving[op.microbatch] = buffer, dist.irecv(buffer, src=rank - 1)

    def send(tensor, target):
        sending.append((dist.isend(tensor, dst=target), tensor))

    for kind, _, i in row:
        if kind == "F":
            x = xs[i]
            if rank > 0:
                x, work = arriving.pop(i)
                work.wait()
                x.requires_grad_()
            y = module(x)
            if rank == last:
                y = loss(y, ys[i]) / m
                total += y.detach()
            else:
                send(y.detach(), rank + 1)
            kept[i] = x, y
            continue
        x, y = kept.pop(i)
        gradient = None
        if rank < last:
            gradient = torch.empty_like(xs[0])
            dist.recv(gradient, src=rank + 1)
        y.backward(gradient)
        if rank > 0:
            send(x.grad, rank - 1)
    for work, _ in sending:
        work.wait()
    return total if rank == last else None
