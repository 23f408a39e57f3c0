"""Wrong answers to notebook 05: what people write, and what the check must say to each."""

import torch
import torch.distributed as dist

from course_lib.checks.zoo import wrong
from course_lib.techniques import schedules

# ---------------------------------------------------------------------------------------------
# Right answers that the wrong ones are made of
# ---------------------------------------------------------------------------------------------


def gpipe_rows(p, m):
    return [[(kind, s, i) for kind in "FB" for i in range(m)] for s in range(p)]


def alternating_row(s, m, warm_up):
    row = [("F", s, i) for i in range(warm_up)]
    for i in range(m - warm_up):
        row += [("F", s, warm_up + i), ("B", s, i)]
    return row + [("B", s, i) for i in range(m - warm_up, m)]


def one_f_one_b_rows(p, m):
    return [alternating_row(s, m, min(p - s - 1, m)) for s in range(p)]


def interleaved_rows(p, m, v, home=lambda r, c, p, v: r + c * p, extra=0, turn=reversed):
    rows = []
    for r in range(p):
        groups = range(0, m, p)

        def passes(kind, chunks, r=r, groups=groups):
            return [
                (kind, home(r, c, p, v), i)
                for start in groups
                for c in chunks
                for i in range(start, min(start + p, m))
            ]

        forwards = passes("F", range(v))
        backwards = passes("B", list(turn(range(v))))
        w = min(2 * (p - r - 1) + (v - 1) * p + extra, m * v)
        row = forwards[:w]
        for k in range(m * v - w):
            row += [forwards[w + k], backwards[k]]
        rows.append(row + backwards[m * v - w :])
    return rows


def zero_bubble_rows(p, m, put_off=lambda s, p: s):
    rows = []
    for s in range(p):
        w, row, plain = 0, [], one_f_one_b_rows(p, m)[s]
        last = plain.index(("F", s, m - 1))
        for place, (kind, _, i) in enumerate(plain):
            row.append(("I" if kind == "B" else "F", s, i))
            if kind == "B" and (i + 1 - w > put_off(s, p) or place > last + 1):
                row.append(("W", s, w))
                w += 1
        rows.append(row + [("W", s, i) for i in range(w, m)])
    return rows


def two_stages(module, inputs, targets, loss, start=lambda value: value, back=lambda x: x.grad):
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        dist.send(output.detach(), 1)
        dist.recv(crossing, 1)
        output.backward(crossing)
        return None
    dist.recv(crossing, 0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    start(value).backward()
    dist.send(back(crossing), 0)
    return value.detach()


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


# ---------------------------------------------------------------------------------------------
# two_stage_step
# ---------------------------------------------------------------------------------------------


@wrong("two_stage_step", says="element 0 of tensors does not require grad")
def no_gradient_for_what_arrives(module, inputs, targets, loss):
    for parameter in module.parameters():
        parameter.requires_grad_(dist.get_rank() == 0)
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        dist.send(module(inputs).detach(), 1)
        dist.recv(crossing, 1)
    else:
        dist.recv(crossing, 0)
        loss(module(crossing), targets).backward()
        dist.send(crossing.grad, 0)


@wrong("two_stage_step", says="on rank 0: there is none. Does backward run on this rank")
def rank_0_never_goes_back(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        dist.send(module(inputs).detach(), 1)
        dist.recv(crossing, 1)
        return None
    dist.recv(crossing, 0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    value.backward()
    dist.send(crossing.grad, 0)
    return value.detach()


@wrong("two_stage_step", says="on rank 0: all zeros")
def sends_zeros_of_the_right_shape(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, back=lambda x: torch.zeros_like(x))


@wrong("two_stage_step", says="on rank 1: exactly 4 times the reference")
def sum_for_mean(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, start=lambda value: 4 * value)


@wrong("two_stage_step", says="on rank 0: the sign is turned")
def a_step_for_a_gradient(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, back=lambda x: -x.grad)


@wrong("two_stage_step", says="rank 0 sends its activation, once, and nothing else")
def inputs_come_along(module, inputs, targets, loss):
    if dist.get_rank() == 0:
        dist.send(inputs, 1)
    else:
        dist.recv(torch.empty_like(inputs), 0)
    return two_stages(module, inputs, targets, loss)


@wrong("two_stage_step", says="rank 0 never sees the loss")
def loss_on_both(module, inputs, targets, loss):
    value = two_stages(module, inputs, targets, loss)
    return 0.0 if value is None else value


@wrong("two_stage_step", says="rank 1 returns the loss of the batch")
def forgets_to_return(module, inputs, targets, loss):
    two_stages(module, inputs, targets, loss)


@wrong("two_stage_step", says="your ranks ran broadcast")
def by_broadcast(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    output = module(inputs) if dist.get_rank() == 0 else None
    if dist.get_rank() == 0:
        crossing.copy_(output.detach())
    dist.broadcast(crossing, 0)
    if dist.get_rank() == 0:
        dist.broadcast(crossing, 1)
        output.backward(crossing)
        return None
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    value.backward()
    dist.broadcast(crossing.grad, 1)
    return value.detach()


@wrong("two_stage_step", says="Your ranks did not finish")
def both_receive_first(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    dist.recv(crossing, 1 - dist.get_rank())
    return two_stages(module, inputs, targets, loss)


# ---------------------------------------------------------------------------------------------
# bubble_fractions
# ---------------------------------------------------------------------------------------------


@wrong("bubble_fractions", says="the two are swapped")
def bubbles_swapped(p, m):
    return (p - 1) / m, (p - 1) / (m + p - 1)


@wrong("bubble_fractions", says="both are shares of the working time")
def one_convention_for_both(p, m):
    return (p - 1) / m, (p - 1) / m


@wrong("bubble_fractions", says="both are shares of all the time")
def the_other_for_both(p, m):
    return (p - 1) / (m + p - 1), (p - 1) / (m + p - 1)


@wrong("bubble_fractions", says="this is the naive pipeline's")
def microbatches_forgotten(p, m):
    return (p - 1) / p, float(p - 1)


@wrong("bubble_fractions", says="not p of them")
def one_stage_too_many(p, m):
    return p / (m + p), p / m


@wrong("bubble_fractions", says="these are per cent")
def bubbles_in_per_cent(p, m):
    return 100 * (p - 1) / (m + p - 1), 100 * (p - 1) / m


@wrong("bubble_fractions", says="this is the busy share")
def busy_for_idle(p, m):
    return m / (m + p - 1), 1 - (p - 1) / m


@wrong("bubble_fractions", says="two numbers are asked")
def one_number_only(p, m):
    return (p - 1) / (m + p - 1)


# ---------------------------------------------------------------------------------------------
# gpipe_schedule
# ---------------------------------------------------------------------------------------------


@wrong("gpipe_schedule", says="GPipe finishes all forwards before it begins with backwards")
def another_schedule(p, m):
    return one_f_one_b_rows(p, m)


@wrong("gpipe_schedule", says="GPipe finishes all forwards before it begins")
def one_after_the_other(p, m):
    return [alternating_row(s, m, 0) for s in range(p)]


@wrong("gpipe_schedule", says="stage 0 is on rank 0 too")
def every_rank_is_stage_0(p, m):
    return [gpipe_rows(p, m)[0]] * p


@wrong("gpipe_schedule", says="microbatch 3 never goes through")
def last_microbatch_forgotten(p, m):
    return gpipe_rows(p, m - 1) if m > 1 else gpipe_rows(p, m)


@wrong("gpipe_schedule", says="there is no microbatch 4: 4 of them count from 0 to 3")
def counts_from_one(p, m):
    return [[(kind, s, i + 1) for kind, s, i in row] for s, row in enumerate(gpipe_rows(p, m))]


@wrong("gpipe_schedule", says="never runs B or I of microbatch 0")
def forward_only(p, m):
    return [[("F", s, i) for i in range(m)] for s in range(p)]


@wrong("gpipe_schedule", says="this is one list of operations")
def one_flat_list(p, m):
    return [op for row in gpipe_rows(p, m) for op in row]


@wrong("gpipe_schedule", says="there are 3 ranks, and your table has 2 rows")
def hard_coded_for_two(p, m):
    return gpipe_rows(2, m)


@wrong("gpipe_schedule", says="position 0 of rank 0 is not an operation")
def stage_and_microbatch_as_text(p, m):
    return [[f"{kind}{s}.{i}" for kind, s, i in row] for row in gpipe_rows(p, m)]


@wrong("gpipe_schedule", says="your function calls gpipe of course_lib.techniques.schedules")
def by_the_library(p, m):
    return schedules.gpipe(p, m)


@wrong("gpipe_schedule", says="needs F0.0, which comes after it")
def backwards_before_forwards(p, m):
    return [[(kind, s, i) for kind in "BF" for i in range(m)] for s in range(p)]


# ---------------------------------------------------------------------------------------------
# peak_in_flight
# ---------------------------------------------------------------------------------------------


def walk(row, freeing, before=False):
    held = most = 0
    for op in row:
        if before:
            most = max(most, held)
        held += (op.kind == "F") - (op.kind in freeing)
        if not before:
            most = max(most, held)
    return most


@wrong("peak_in_flight", says="this counts all forwards")
def all_forwards(row):
    return sum(op.kind == "F" for op in row)


@wrong("peak_in_flight", says="this is what is held at the end")
def held_at_the_end(row):
    return sum({"F": 1, "B": -1, "I": -1, "W": 0}[op.kind] for op in row)


@wrong("peak_in_flight", says="an I frees the activations as a B does")
def only_whole_backwards(row):
    return walk(row, "B")


@wrong("peak_in_flight", says="two stages of this rank hold two activations")
def by_microbatch_alone(row):
    held, most = set(), 0
    for op in row:
        (held.add if op.kind == "F" else held.discard)(op.microbatch)
        most = max(most, len(held))
    return most


@wrong("peak_in_flight", says="one number is asked: this is a list")
def a_history(row):
    return [walk(row[:n], "BI") for n in range(len(row))]


@wrong("peak_in_flight", says="one less is what was held just before it")
def off_by_one(row):
    return walk(row, "BI") - 1


# ---------------------------------------------------------------------------------------------
# one_f_one_b_schedule
# ---------------------------------------------------------------------------------------------


@wrong("one_f_one_b_schedule", says="this is GPipe's order")
def gpipe_again(p, m):
    return gpipe_rows(p, m)


@wrong("one_f_one_b_schedule", says="at any moment a single rank works")
def without_warm_up(p, m):
    return [alternating_row(s, m, 0) for s in range(p)]


@wrong("one_f_one_b_schedule", says="there is no microbatch 2: 2 of them count from 0 to 1")
def warm_up_not_clamped(p, m):
    rows = []
    for s in range(p):
        warm_up = p - s - 1
        row = [("F", s, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += [("F", s, warm_up + i), ("B", s, i)]
        rows.append(row + [("B", s, i) for i in range(max(0, m - warm_up), m)])
    return rows


@wrong("one_f_one_b_schedule", says="the ranks wait in a circle")
def warm_up_the_wrong_way_round(p, m):
    return [alternating_row(s, m, min(s, m)) for s in range(p)]


@wrong("one_f_one_b_schedule", says="stage 0 holds more microbatches than it needs")
def twice_the_warm_up(p, m):
    return [alternating_row(s, m, min(2 * (p - s - 1), m)) for s in range(p)]


@wrong("one_f_one_b_schedule", says="stage 1 runs 3 forwards before its first backward")
def the_same_warm_up_everywhere(p, m):
    return [alternating_row(s, m, min(p - 1, m)) for s in range(p)]


@wrong("one_f_one_b_schedule", says="never runs B or I of microbatch 2")
def cool_down_forgotten(p, m):
    return [row[: 2 * m - min(p - s - 1, m)] for s, row in enumerate(one_f_one_b_rows(p, m))]


@wrong("one_f_one_b_schedule", says="stage 0 runs 2 forwards before its first backward")
def one_forward_short(p, m):
    return [alternating_row(s, m, min(max(p - s - 2, 0), m)) for s in range(p)]


@wrong("one_f_one_b_schedule", says="your function calls one_f_one_b of course_lib")
def library_1f1b(p, m):
    return schedules.one_f_one_b(p, m)


# ---------------------------------------------------------------------------------------------
# run_schedule
# ---------------------------------------------------------------------------------------------


@wrong("run_schedule", says="exactly m = 3 times the reference")
def mean_of_each_microbatch(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, divide=False)


@wrong("run_schedule", says="begin sends with dist.isend, keep handle and tensor")
def blocking_sends(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, send=dist.send)


@wrong("run_schedule", says="was never waited for")
def never_waits(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, wait=False)


@wrong("run_schedule", says="and this is their sum")
def sum_of_losses(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, mean=False)


@wrong("run_schedule", says="the passes did not run in the order of the row")
def always_gpipe(row, module, inputs, targets, loss):
    ordered = sorted(row, key=lambda op: (op[0] != "F", op[2]))
    return execute(ordered, module, inputs, targets, loss)


@wrong("run_schedule", says="still being sent")
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


@wrong("run_schedule", says="Trying to backward through the graph a second time")
def keeps_the_last_one_only(row, module, inputs, targets, loss):
    return execute(row, module, inputs, targets, loss, take=lambda kept, _: list(kept.values())[-1])


@wrong("run_schedule", says="only the last rank sees the losses")
def a_loss_everywhere(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    return 0.0 if value is None else value


@wrong("run_schedule", says="on rank 1: there is none")
def only_the_last_microbatch(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    module.zero_grad()
    return value


@wrong("run_schedule", says="your ranks ran all_reduce")
def loss_to_everyone(row, module, inputs, targets, loss):
    value = execute(row, module, inputs, targets, loss)
    dist.all_reduce(torch.zeros(1))
    return value


# ---------------------------------------------------------------------------------------------
# stuck_ranks
# ---------------------------------------------------------------------------------------------


def meet(programs, fits=None, rounds=None):
    """Places that the ranks reach."""
    place = [0] * len(programs)

    def step(r):
        return programs[r][place[r]] if place[r] < len(programs[r]) else None

    moved = True
    while moved and (rounds is None or rounds > 0):
        moved = False
        rounds = None if rounds is None else rounds - 1
        for r in range(len(programs)):
            now = step(r)
            if now is None:
                continue
            other = step(now[1]) if now[0] == "send" else None
            if now[0] == "run":
                place[r] += 1
                moved = True
            elif other and (other == ("recv", r) or (fits and fits(other))):
                place[r] += 1
                place[now[1]] += 1
                moved = True
    return place


def unfinished(programs, place):
    return [r for r in range(len(programs)) if place[r] < len(programs[r])]


@wrong("stuck_ranks", says="this holds if a send returned at once")
def sends_that_return(programs):
    place, mail = [0] * len(programs), []
    for _ in range(1000):
        for r, program in enumerate(programs):
            if place[r] < len(program):
                what, peer = program[place[r]]
                if what == "recv" and (peer, r) not in mail:
                    continue
                if what == "recv":
                    mail.remove((peer, r))
                if what == "send":
                    mail.append((r, peer))
                place[r] += 1
    return unfinished(programs, place)


@wrong("stuck_ranks", says="these are the ranks that get to the end")
def those_that_finish(programs):
    stuck = unfinished(programs, meet(programs))
    return [r for r in range(len(programs)) if r not in stuck]


@wrong("stuck_ranks", says="look at everyone again until nothing changes")
def looks_once(programs):
    return unfinished(programs, meet(programs, rounds=1))


@wrong("stuck_ranks", says="it waits for a rank that never comes to it")
def only_the_circle(programs):
    place = meet(programs)
    return [r for r in unfinished(programs, place) if programs[r][place[r]][0] == "send"]


@wrong("stuck_ranks", says="some ranks hang")
def any_receiver_will_do(programs):
    return unfinished(programs, meet(programs, fits=lambda step: step[0] == "recv"))


@wrong("stuck_ranks", says="a list of ranks is asked")
def yes_or_no(programs):
    return bool(unfinished(programs, meet(programs)))


# ---------------------------------------------------------------------------------------------
# interleaved_schedule
# ---------------------------------------------------------------------------------------------


@wrong("interleaved_schedule", says="neighbouring stages are on one rank")
def neighbours_together(p, m, v):
    rows = []
    for r in range(p):
        stages = range(r * v, r * v + v)
        rows.append([("F", s, i) for i in range(m) for s in stages])
        rows[r] += [("B", s, i) for i in range(m) for s in reversed(stages)]
    return rows


@wrong("interleaved_schedule", says="stage 0 is on rank 0 too")
def chunks_without_ranks(p, m, v):
    return interleaved_rows(p, m, v, home=lambda r, c, p, v: c)


@wrong("interleaved_schedule", says="the ranks wait in a circle")
def backwards_through_the_chunks_in_order(p, m, v):
    return interleaved_rows(p, m, v, turn=lambda chunks: chunks)


@wrong("interleaved_schedule", says="holds more than it has to")
def a_longer_warm_up(p, m, v):
    return interleaved_rows(p, m, v, extra=2)


@wrong("interleaved_schedule", says="microbatches go in groups of p")
def all_microbatches_through_one_stage_first(p, m, v):
    rows = []
    for r in range(p):
        stages = range(r, p * v, p)
        rows.append([("F", s, i) for s in stages for i in range(m)])
        rows[r] += [("B", s, i) for i in range(m) for s in reversed(stages)]
    return rows


@wrong("interleaved_schedule", says="no rank holds stage")
def one_stage_is_lost(p, m, v):
    rows = interleaved_rows(p, m, v)
    return [[(k, s + (s > 0), i) for k, s, i in row] for row in rows]


@wrong("interleaved_schedule", says="stage 0 never runs B or I of microbatch 2")
def an_iterator_that_is_used_up(p, m, v):
    rows = []
    for r in range(p):
        stages = reversed(range(r, p * v, p))
        backwards = [
            ("B", s, i) for start in range(0, m, p) for s in stages for i in range(start, start + p)
        ]
        row = interleaved_rows(p, m, v)[r]
        rows.append([op for op in row if op[0] == "F" or op in backwards])
    return rows


@wrong("interleaved_schedule", says="it needs F3.0, which comes after it")
def the_warm_up_of_plain_1f1b(p, m, v):
    rows = []
    for r in range(p):
        forwards = (
            [("F", r + c * p, i) for a in range(0, m, p) for c in range(v) for i in range(a, a + p)]
            if m >= p
            else [("F", r + c * p, i) for c in range(v) for i in range(m)]
        )
        backwards = [
            ("B", r + c * p, i)
            for a in range(0, m, p)
            for c in reversed(range(v))
            for i in range(a, min(a + p, m))
        ]
        w = min(p - r - 1 + (v - 1), m * v)
        row = forwards[:w]
        for k in range(m * v - w):
            row += [forwards[w + k], backwards[k]]
        rows.append(row + backwards[m * v - w :])
    return rows


@wrong("interleaved_schedule", says="your function calls interleaved of course_lib")
def library_interleaved(p, m, v):
    return schedules.interleaved(p, m, v)


# ---------------------------------------------------------------------------------------------
# zero_bubble_schedule
# ---------------------------------------------------------------------------------------------


@wrong("zero_bubble_schedule", says="there is a B in your table")
def not_split(p, m):
    return one_f_one_b_rows(p, m)


@wrong("zero_bubble_schedule", says="every W follows its I at once, which is a B again")
def w_right_behind_i(p, m):
    return [
        [
            half
            for op in row
            for half in ([op] if op[0] == "F" else [("I", *op[1:]), ("W", *op[1:])])
        ]
        for row in one_f_one_b_rows(p, m)
    ]


@wrong("zero_bubble_schedule", says="holds more than it has to")
def puts_off_one_more(p, m):
    return zero_bubble_rows(p, m, put_off=lambda s, p: s + 1)


@wrong("zero_bubble_schedule", says="all W's are left to the end")
def all_weights_at_the_end(p, m):
    return [
        [("F" if kind == "F" else "I", s, i) for kind, s, i in row]
        + [("W", s, i) for i in range(m)]
        for s, row in enumerate(one_f_one_b_rows(p, m))
    ]


@wrong("zero_bubble_schedule", says="which comes after it")
def w_before_i(p, m):
    return [
        [
            half
            for op in row
            for half in ([op] if op[0] == "F" else [("W", *op[1:]), ("I", *op[1:])])
        ]
        for row in one_f_one_b_rows(p, m)
    ]


@wrong("zero_bubble_schedule", says="never runs B or W of microbatch")
def last_weights_forgotten(p, m):
    return [row[:-1] for row in zero_bubble_rows(p, m)]


@wrong("zero_bubble_schedule", says="stands idle more than it has to")
def puts_off_the_other_way_round(p, m):
    return zero_bubble_rows(p, m, put_off=lambda s, p: p - 1 - s)


@wrong("zero_bubble_schedule", says="your function calls zb_h1 of course_lib")
def library_zero_bubble(p, m):
    return schedules.zb_h1(p, m)
