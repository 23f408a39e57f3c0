"""Right answers to notebook 05, written independently of the solutions and of the techniques."""

import torch
import torch.distributed as dist


def two_stage_step(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        work = dist.isend(output.detach(), 1)
        dist.recv(crossing, 1)
        work.wait()
        torch.autograd.backward([output], [crossing])
        return None
    dist.recv(crossing, 0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    parameters = [p for p in module.parameters() if p.requires_grad]
    back, *gradients = torch.autograd.grad(value, [crossing, *parameters])
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    dist.send(back, 0)
    return value.item()


def bubble_fractions(p, m):
    idle = p - 1
    return [idle / (idle + m), torch.tensor(idle / m, dtype=torch.float64)]


def gpipe_schedule(p, m):
    """The original's order: backward from the last microbatch to the first."""
    return tuple(
        tuple([("F", s, i) for i in range(m)] + [("B", s, m - 1 - i) for i in range(m)])
        for s in range(p)
    )


def gpipe_in_order(p, m):
    return [[("F", s, i) for i in range(m)] + [("B", s, i) for i in range(m)] for s in range(p)]


gpipe_in_order.__name__ = "gpipe_schedule"


def peak_in_flight(row):
    change = {"F": 1, "B": -1, "I": -1, "W": 0}
    counts = torch.tensor([change[op.kind] for op in row]).cumsum(0)
    return counts.max()


def one_f_one_b_schedule(p, m):
    """Greedy: a backward whenever one is due, by counting how many forwards have been run."""
    table = []
    for s in range(p):
        row, forwards, backwards = [], 0, 0
        while backwards < m:
            if forwards < m and forwards - backwards < p - s:
                row.append(("F", s, forwards))
                forwards += 1
            else:
                row.append(("B", s, backwards))
                backwards += 1
        table.append(row)
    return table


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


def stuck_ranks(programs):
    queues = [[step for step in program if step[0] != "run"] for program in programs]
    while True:
        pairs = [
            (r, q[0][1])
            for r, q in enumerate(queues)
            if q and q[0][0] == "send" and queues[q[0][1]][:1] == [("recv", r)]
        ]
        if not pairs:
            return {r for r, q in enumerate(queues) if q}
        for pair in pairs:
            for rank in pair:
                queues[rank].pop(0)


def interleaved_schedule(p, m, v):
    table = []
    for r in range(p):
        order = sorted((i // p, c, i) for i in range(m) for c in range(v))
        forwards = [("F", r + c * p, i) for _, c, i in order]
        order = sorted((i // p, -c, i) for i in range(m) for c in range(v))
        backwards = [("B", r - c * p, i) for _, c, i in order]
        row = []
        room = (v - 1) * p + 2 * (p - 1 - r) + 1
        while backwards:
            held = sum(1 if kind == "F" else -1 for kind, _, _ in row)
            row.append(forwards.pop(0) if forwards and held < room else backwards.pop(0))
        table.append(row)
    return table


def zero_bubble_schedule(p, m):
    """1F1B with I for B; the W of microbatch i goes behind the I of i + s, or of the cool-down."""
    table = []
    for s, plain in enumerate(one_f_one_b_schedule(p, m)):
        last_forward = plain.index(("F", s, m - 1))
        row, waiting = [], []
        for place, (kind, _, i) in enumerate(plain):
            row.append(("F" if kind == "F" else "I", s, i))
            if kind == "B":
                waiting.append(("W", s, i))
                if len(waiting) > s or place > last_forward + 1:
                    row.append(waiting.pop(0))
        table.append(row + waiting)
    return table


ANSWERS = {
    "two_stage_step": [two_stage_step],
    "bubble_fractions": [bubble_fractions],
    "gpipe_schedule": [gpipe_schedule, gpipe_in_order],
    "peak_in_flight": [peak_in_flight],
    "one_f_one_b_schedule": [one_f_one_b_schedule],
    "run_schedule": [run_schedule],
    "stuck_ranks": [stuck_ranks],
    "interleaved_schedule": [interleaved_schedule],
    "zero_bubble_schedule": [zero_bubble_schedule],
}
