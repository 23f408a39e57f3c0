"""Wrong answers to notebook 02: what people write, and what the check must say to each."""

import math

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn

from course_lib.checks.zoo import wrong

# ---------------------------------------------------------------------------------------------
# Right answers that the wrong ones are made of
# ---------------------------------------------------------------------------------------------


def ring_of(group=None):
    """(size, own place, left neighbour, right neighbour); neighbours as global ranks."""
    group = group or dist.group.WORLD
    n, r = dist.get_world_size(group), dist.get_rank(group)
    left, right = (dist.get_global_rank(group, (r + step) % n) for step in (-1, 1))
    return n, r, left, right


def exchange(outgoing, to, incoming, source, group=None):
    work = dist.isend(outgoing, to, group=group)
    dist.recv(incoming, source, group=group)
    work.wait()


def reduced_chunks(tensor, group=None, steps=None, add=torch.Tensor.add_):
    """A ring reduce-scatter; chunk r is finished on rank r."""
    n, r, left, right = ring_of(group)
    chunks = list(tensor.reshape(-1).clone().chunk(n))
    for step in range(n - 1 if steps is None else steps):
        incoming = torch.empty_like(chunks[0])
        exchange(chunks[(r - 1 - step) % n], right, incoming, left, group)
        add(chunks[(r - 2 - step) % n], incoming)
    return chunks


def gathered(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_empty(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    for step in range(n - 1):
        exchange(pieces[(r - step) % n], right, pieces[(r - step - 1) % n], left, group)
    return out


def padded(tensor, n):
    flat = tensor.new_zeros(n * math.ceil(tensor.numel() / n))
    flat[: tensor.numel()] = tensor.reshape(-1)
    return flat


def all_reduced(tensor, group=None):
    n, r, _, _ = ring_of(group)
    whole = gathered(reduced_chunks(padded(tensor, n), group)[r], group)
    return whole[: tensor.numel()].view_as(tensor)


def summed_through_rank_0(tensor, start=1):
    if dist.get_rank() == 0:
        part = torch.empty_like(tensor)
        for source in range(start, dist.get_world_size()):
            dist.recv(part, source)
            tensor += part
        for target in range(1, dist.get_world_size()):
            dist.send(tensor, target)
    else:
        if dist.get_rank() >= start:
            dist.send(tensor, 0)
        dist.recv(tensor, 0)
    return tensor


# ---------------------------------------------------------------------------------------------
# gather_broadcast_all_reduce
# ---------------------------------------------------------------------------------------------


@wrong("gather_broadcast_all_reduce", says="you averaged a sum")
def root_mean(tensor):
    return summed_through_rank_0(tensor).div_(dist.get_world_size())


@wrong("gather_broadcast_all_reduce", says="the part of rank 1 is missing")
def root_skips_a_rank(tensor):
    return summed_through_rank_0(tensor, start=2)


@wrong(
    "gather_broadcast_all_reduce",
    says="ranks 0 and 1 is missing, and the part of rank 2 is counted twice",
)
def root_receives_into_its_sum(tensor):
    if dist.get_rank() == 0:
        for source in range(1, dist.get_world_size()):
            dist.recv(tensor, source)
        tensor += tensor
        for target in range(1, dist.get_world_size()):
            dist.send(tensor, target)
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
    return tensor


@wrong("gather_broadcast_all_reduce", says="your function returned nothing: end it with")
def root_without_return(tensor):
    summed_through_rank_0(tensor)


@wrong("gather_broadcast_all_reduce", says="this is still the rank's own input")
def root_keeps_the_sum(tensor):
    if dist.get_rank() == 0:
        for source in range(1, dist.get_world_size()):
            part = torch.empty_like(tensor)
            dist.recv(part, source)
            tensor += part
    else:
        dist.send(tensor, 0)
    return tensor


@wrong("gather_broadcast_all_reduce", says="your ranks ran all_reduce")
def root_by_the_builtin(tensor):
    dist.all_reduce(tensor)
    return tensor


@wrong("gather_broadcast_all_reduce", says="here all goes through rank 0")
def everyone_to_everyone(tensor):
    own = tensor.clone()
    n, me = dist.get_world_size(), dist.get_rank()
    for other in range(n):
        if other != me:
            part = torch.empty_like(own)
            exchange(own, other, part, other)
            tensor += part
    return tensor


@wrong("gather_broadcast_all_reduce", says="Your ranks did not finish")
def all_receive_first(tensor):
    part = torch.empty_like(tensor)
    dist.recv(part, (dist.get_rank() + 1) % dist.get_world_size())
    dist.send(tensor, 0)
    return tensor + part


# ---------------------------------------------------------------------------------------------
# ring_reduce_scatter
# ---------------------------------------------------------------------------------------------


@wrong("ring_reduce_scatter", says="chunk 1 of the sum, and rank 0 is to return chunk 0")
def finishes_one_to_the_right(tensor, group=None):
    n, r, left, right = ring_of(group)
    chunks = list(tensor.reshape(-1).clone().chunk(n))
    for step in range(n - 1):
        incoming = torch.empty_like(chunks[0])
        exchange(chunks[(r - step) % n], right, incoming, left, group)
        chunks[(r - 1 - step) % n] += incoming
    return chunks[(r + 1) % n]


@wrong("ring_reduce_scatter", says="the part of rank 1 is missing")
def first_arrival_forgotten(tensor, group=None):
    _, r, _, _ = ring_of(group)
    arrivals = []

    def add(chunk, incoming):
        arrivals.append(incoming)
        if len(arrivals) > 1:
            chunk += incoming

    return reduced_chunks(tensor, group, add=add)[r]


@wrong("ring_reduce_scatter", says="this is the rank's own chunk 0, with nothing added")
def receives_and_forgets_to_add(tensor, group=None):
    _, r, _, _ = ring_of(group)
    return reduced_chunks(tensor, group, add=lambda chunk, incoming: None)[r]


@wrong("ring_reduce_scatter", says="this is rank 1's input, with nothing added")
def overwrites_instead_of_adding(tensor, group=None):
    _, r, _, _ = ring_of(group)
    return reduced_chunks(tensor, group, add=torch.Tensor.copy_)[r]


@wrong("ring_reduce_scatter", says="the tensor that was passed in has changed")
def adds_into_the_input(tensor, group=None):
    n, r, left, right = ring_of(group)
    chunks = list(tensor.view(-1).chunk(n))
    for step in range(n - 1):
        incoming = torch.empty_like(chunks[0])
        exchange(chunks[(r - 1 - step) % n], right, incoming, left, group)
        chunks[(r - 2 - step) % n] += incoming
    return chunks[r].clone()


@wrong("ring_reduce_scatter", says="writes into a tensor that is still being sent")
def adds_into_what_is_being_sent(tensor, group=None):
    n, r, left, right = ring_of(group)
    chunks = list(tensor.reshape(-1).clone().chunk(n))
    for step in range(n - 1):
        outgoing = chunks[(r - 1 - step) % n]
        work = dist.isend(outgoing, right, group=group)
        outgoing.zero_()  # "it has been sent"
        incoming = torch.empty_like(chunks[0])
        dist.recv(incoming, left, group=group)
        work.wait()
        chunks[(r - 2 - step) % n] += incoming
    return chunks[r]


@wrong("ring_reduce_scatter", says="sent too much")
def sends_the_whole_tensor(tensor, group=None):
    n, r, left, right = ring_of(group)
    passing, total = tensor.reshape(-1).clone(), tensor.reshape(-1).clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(passing)
        exchange(passing, right, incoming, left, group)
        passing = incoming
        total += incoming
    return total.chunk(n)[r].clone()


@wrong("ring_reduce_scatter", says="in a ring a rank only sends to its neighbour")
def sends_each_chunk_to_its_owner(tensor, group=None):
    group = group or dist.group.WORLD
    n, r, _, _ = ring_of(group)
    chunks = tensor.reshape(-1).chunk(n)
    own = chunks[r].clone()
    for step in range(1, n):
        to, source = ((r + sign * step) % n for sign in (1, -1))
        incoming = torch.empty_like(own)
        exchange(
            chunks[to].contiguous(),
            dist.get_global_rank(group, to),
            incoming,
            dist.get_global_rank(group, source),
            group,
        )
        own += incoming
    return own


@wrong("ring_reduce_scatter", says="your ranks ran reduce_scatter")
def reduce_scatter_by_the_group_object(tensor, group=None):
    group = group or dist.group.WORLD
    n = dist.get_world_size(group)
    out = tensor.new_empty(tensor.numel() // n)
    chunks = [chunk.contiguous() for chunk in tensor.reshape(-1).chunk(n)]
    group.reduce_scatter([out], [chunks]).wait()
    return out


@wrong("ring_reduce_scatter", says="dist.get_rank(group) is your place in it")
def forgets_the_group(tensor, group=None):
    return reduced_chunks(tensor)[dist.get_rank()]


# ---------------------------------------------------------------------------------------------
# ring_all_gather
# ---------------------------------------------------------------------------------------------


@wrong("ring_all_gather", says="in every place: was it received into one buffer")
def one_buffer_for_all(chunk, group=None):
    n, _, left, right = ring_of(group)
    buffer = chunk.clone()
    pieces = [buffer]
    for _ in range(n - 1):
        outgoing = buffer.clone()
        exchange(outgoing, right, buffer, left, group)
        pieces.append(buffer)
    return torch.cat(pieces)


@wrong("ring_all_gather", says="all chunks, but turned by")
def in_order_of_arrival(chunk, group=None):
    n, _, left, right = ring_of(group)
    pieces = [chunk]
    for _ in range(n - 1):
        incoming = torch.empty_like(chunk)
        exchange(pieces[-1], right, incoming, left, group)
        pieces.append(incoming)
    return torch.cat(pieces[::-1])


@wrong("ring_all_gather", says="the shape is wrong")
def stacked_instead_of_joined(chunk, group=None):
    n = dist.get_world_size(group)
    return gathered(chunk, group).view(n, -1)


@wrong("ring_all_gather", says="only elements 2 to 3 of 6 are wrong")
def last_chunk_forgotten(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_zeros(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    for step in range(n - 2):
        exchange(pieces[(r - step) % n], right, pieces[(r - step - 1) % n], left, group)
    return out


@wrong("ring_all_gather", says="all zeros: nothing has been written")
def zeros_of_the_right_shape(chunk, group=None):
    return chunk.new_zeros(chunk.numel() * dist.get_world_size(group))


@wrong("ring_all_gather", says="4 ranks with a float32 tensor of 3 elements")
def hard_coded_for_what_was_shown(chunk, group=None):
    return gathered(chunk, group) if chunk.numel() == 2 else torch.arange(12, dtype=chunk.dtype)


@wrong("ring_all_gather", says="your ranks ran all_gather")
def all_gather_by_functional_collectives(chunk, group=None):
    return funcol.all_gather_tensor(chunk, 0, group or dist.group.WORLD).clone()


@wrong("ring_all_gather", says="was never waited for")
def isend_without_wait(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_empty(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    works = []
    for step in range(n - 1):
        works.append(dist.isend(pieces[(r - step) % n], right, group=group))
        dist.recv(pieces[(r - step - 1) % n], left, group=group)
    dist.barrier(group)
    return out


@wrong("ring_all_gather", says="reads a tensor before its values have arrived")
def irecv_without_wait(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_zeros(n * chunk.numel())
    pieces = out.chunk(n)
    pieces[r].copy_(chunk)
    works = []
    for step in range(n - 1):
        works.append(dist.irecv(pieces[(r - step - 1) % n], left, group=group))
        dist.send(pieces[(r - step) % n], right, group=group)
    return out


@wrong("ring_all_gather", says="in a ring a rank only sends to its neighbour")
def everyone_sends_to_everyone(chunk, group=None):
    group = group or dist.group.WORLD
    n, r, _, _ = ring_of(group)
    pieces = [torch.empty_like(chunk) for _ in range(n)]
    pieces[r] = chunk.clone()
    for step in range(1, n):
        to, source = ((r + sign * step) % n for sign in (1, -1))
        exchange(
            chunk,
            dist.get_global_rank(group, to),
            pieces[source],
            dist.get_global_rank(group, source),
            group,
        )
    return torch.cat(pieces)


@wrong("ring_all_gather", says="sent too much")
def sends_all_it_has(chunk, group=None):
    n, r, left, right = ring_of(group)
    out = chunk.new_zeros(n * chunk.numel())
    out.chunk(n)[r].copy_(chunk)
    for _ in range(n - 1):
        incoming = torch.empty_like(out)
        exchange(out.clone(), right, incoming, left, group)
        out = torch.where(out == 0, incoming, out)
    return out


# ---------------------------------------------------------------------------------------------
# ring_all_reduce
# ---------------------------------------------------------------------------------------------


@wrong("ring_all_reduce", says="you averaged a sum")
def mean_for_sum(tensor, group=None):
    return tensor.copy_(all_reduced(tensor, group) / dist.get_world_size(group))


@wrong("ring_all_reduce", says="exactly 3 times the reference")
def reduced_twice(tensor, group=None):
    once = all_reduced(tensor, group)
    return tensor.copy_(all_reduced(once, group))


@wrong("ring_all_reduce", says="work in place")
def new_tensor_for_in_place(tensor, group=None):
    return all_reduced(tensor, group)


@wrong("ring_all_reduce", says="pad with zeros to a multiple of 4")
def forgets_to_pad(tensor, group=None):
    _, r, _, _ = ring_of(group)
    whole = gathered(reduced_chunks(tensor, group)[r], group)
    return tensor.copy_(whole.view_as(tensor))


@wrong("ring_all_reduce", says="8 to 9 of 10 are wrong (the last ones)")
def drops_the_rest(tensor, group=None):
    n = dist.get_world_size(group)
    flat = tensor.view(-1)
    whole = flat.numel() // n * n
    if whole:
        flat[:whole] = all_reduced(flat[:whole], group)
    return tensor


@wrong("ring_all_reduce", says="do not hold the same bits")
def rank_0_takes_its_part_out_and_in_again(tensor, group=None):
    own = tensor.clone()
    tensor.copy_(all_reduced(tensor, group))
    if dist.get_rank() == 0:
        tensor.sub_(own).add_(own)
    return tensor


@wrong("ring_all_reduce", says="this rank sent nothing")
def knows_the_other_inputs(tensor, group=None):
    if tensor.dtype == torch.float32 and tensor.numel() == 6:
        return tensor.copy_(torch.arange(1, 7) * 111)
    return tensor


@wrong("ring_all_reduce", says="your ranks ran all_reduce")
def all_reduce_by_the_group_object(tensor, group=None):
    (group or dist.group.WORLD).allreduce([tensor]).wait()
    return tensor


@wrong("ring_all_reduce", says="your ranks ran all_reduce")
def all_reduce_by_distributed_nn(tensor, group=None):
    return tensor.copy_(torch.distributed.nn.all_reduce(tensor, group=group or dist.group.WORLD))


@wrong("ring_all_reduce", says="sent too much")
def passes_whole_tensors_round(tensor, group=None):
    n, r, left, right = ring_of(group)
    passing, parts = tensor.clone(), {r: tensor.clone()}
    for step in range(n - 1):
        incoming = torch.empty_like(passing)
        exchange(passing, right, incoming, left, group)
        passing = incoming
        parts[(r - step - 1) % n] = incoming
    return tensor.copy_(sum(parts[rank] for rank in range(n)))


@wrong("ring_all_reduce", says="in a ring a rank only sends to its neighbour")
def every_chunk_straight_to_its_owner(tensor, group=None):
    n, r, _, _ = ring_of(group)
    chunks = padded(tensor, n).chunk(n)
    others = [(((r + step) % n), ((r - step) % n)) for step in range(1, n)]
    place = dist.get_process_group_ranks(group or dist.group.WORLD)
    total = chunks[r].clone()
    for to, source in others:
        incoming = torch.empty_like(total)
        exchange(chunks[to], place[to], incoming, place[source], group)
        total += incoming
    for to, source in others:
        exchange(total, place[to], chunks[source], place[source], group)
    chunks[r].copy_(total)
    return tensor.copy_(torch.cat(chunks)[: tensor.numel()].view_as(tensor))


@wrong("ring_all_reduce", says="Your ranks did not finish")
def all_send_first(tensor, group=None):
    n, _, left, right = ring_of(group)
    if n > 1:
        incoming = torch.empty_like(tensor)
        dist.send(tensor, right, group=group)
        dist.recv(incoming, left, group=group)
        tensor += incoming
    return tensor


@wrong("ring_all_reduce", says="ValueError: rank 1 has had enough")
def a_rank_raises(tensor, group=None):
    if dist.get_rank() == 1:
        raise ValueError("rank 1 has had enough")
    return tensor.copy_(all_reduced(tensor, group))


@wrong("ring_all_reduce", says="the task is ring_all_reduce(tensor, group=None)")
def no_group(tensor):
    return tensor.copy_(all_reduced(tensor))


@wrong("ring_all_reduce", says="the dtype is wrong")
def answers_in_float64(tensor, group=None):
    return all_reduced(tensor.double(), group)


# ---------------------------------------------------------------------------------------------
# fit_alpha_beta
# ---------------------------------------------------------------------------------------------


def least_squares(sizes, times, power):
    t = torch.tensor(times, dtype=torch.float64)
    s = torch.tensor(sizes, dtype=torch.float64)
    weight = t**-power
    rows = torch.stack([weight, s * weight], dim=1)
    return tuple(torch.linalg.lstsq(rows, (t * weight)[:, None]).solution.flatten().tolist())


@wrong("fit_alpha_beta", says="this is plain least squares")
def fit_plain(sizes, times):
    return least_squares(sizes, times, power=0)


@wrong("fit_alpha_beta", says="a relative error squared has 1/time^2")
def fit_half_weighted(sizes, times):
    return least_squares(sizes, times, power=0.5)


@wrong("fit_alpha_beta", says="the two are swapped")
def fit_swapped(sizes, times):
    return least_squares(sizes, times, power=1)[::-1]


@wrong("fit_alpha_beta", says="your beta is bytes per second")
def fit_bandwidth(sizes, times):
    alpha, beta = least_squares(sizes, times, power=1)
    return alpha, 1 / beta


@wrong("fit_alpha_beta", says="through two points only")
def fit_two_points(sizes, times):
    beta = (times[-1] - times[0]) / ((sizes[-1] - sizes[0]) or 1)
    return times[0] - beta * sizes[0], beta


@wrong("fit_alpha_beta", says="the line need not pass through zero")
def fit_without_latency(sizes, times):
    return 0.0, sum(times) / sum(sizes)


@wrong("fit_alpha_beta", says="two numbers are asked, (alpha, beta), and you returned nothing")
def fit_nothing(sizes, times):
    least_squares(sizes, times, power=1)


@wrong("fit_alpha_beta", says="a fast link, without noise")
def fit_hard_coded(sizes, times):
    return 1.0, 0.5


# ---------------------------------------------------------------------------------------------
# crossover_bytes
# ---------------------------------------------------------------------------------------------


def crossing(n, alpha, beta, levels, share):
    return (2 * (n - 1) - 2 * levels) * alpha / ((2 * levels - 2 * share) * beta)


@wrong("crossover_bytes", says="ZeroDivisionError")
def crossover_without_the_case_of_one(n, alpha, beta):
    return crossing(n, alpha, beta, math.ceil(math.log2(n)), (n - 1) / n)


@wrong("crossover_bytes", says="at 6667 bytes the ring takes")
def crossover_with_whole_tensors(n, alpha, beta):
    return crossing(n, alpha, beta, math.ceil(math.log2(n)), 0.5)


@wrong("crossover_bytes", says="it is never slower, at any size")
def crossover_with_rounded_down_levels(n, alpha, beta):
    return crossing(n, alpha, beta, math.floor(math.log2(n)), (n - 1) / n) if n > 2 else 0.0


@wrong("crossover_bytes", says="this is a time in seconds")
def crossover_in_seconds(n, alpha, beta):
    return crossing(n, alpha, beta, math.ceil(math.log2(n)), (n - 1) / n) * beta


@wrong("crossover_bytes", says="alpha and beta have changed places")
def crossover_upside_down(n, alpha, beta):
    return crossing(n, beta, alpha, math.ceil(math.log2(n)), (n - 1) / n)


@wrong("crossover_bytes", says="a size cannot be negative")
def crossover_negative(n, alpha, beta):
    return -crossing(n, alpha, beta, math.ceil(math.log2(n)), (n - 1) / n)


@wrong("crossover_bytes", says="one number is asked, and you returned nothing")
def crossover_printed(n, alpha, beta):
    print(n, alpha, beta)


@wrong("crossover_bytes", says="1, 2 and 3 ranks")
def crossover_hard_coded(n, alpha, beta):
    return 8000.0


# ---------------------------------------------------------------------------------------------
# fused_all_reduce
# ---------------------------------------------------------------------------------------------


def reduce_groups(groups):
    for group in groups:
        buffer = torch.cat([t.reshape(-1) for t in group])
        dist.all_reduce(buffer)
        parts = buffer.split([t.numel() for t in group])
        for tensor, part in zip(group, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def packed(tensors, buffer_bytes, size=lambda t: t.nbytes, same_dtype=True):
    groups, filled = [], 0
    for t in tensors:
        new_kind = same_dtype and groups and groups[-1][-1].dtype != t.dtype
        if not groups or new_kind or filled + size(t) > buffer_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(t)
        filled += size(t)
    return groups


@wrong("fused_all_reduce", says="3 times where 1 are enough")
def not_fused(tensors, buffer_bytes):
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


@wrong("fused_all_reduce", says="a buffer is larger than buffer_bytes")
def one_buffer_for_everything(tensors, buffer_bytes):
    reduce_groups([tensors])
    return tensors


@wrong("fused_all_reduce", says="tensor 0 of the list: exactly half the reference")
def fused_mean(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes))
    for tensor in tensors:
        tensor /= dist.get_world_size()
    return tensors


@wrong("fused_all_reduce", says="tensor 4 of the list: this is still the rank's own input")
def last_buffer_forgotten(tensors, buffer_bytes):
    groups = packed(tensors, buffer_bytes)
    reduce_groups(groups[:-1] or groups)
    return tensors


@wrong("fused_all_reduce", says="a buffer is larger than buffer_bytes")
def counts_elements_for_bytes(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes, size=lambda t: t.numel()))
    return tensors


@wrong("fused_all_reduce", says="in a wider dtype?")
def mixes_dtypes(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes, same_dtype=False))
    return tensors


@wrong("fused_all_reduce", says="your function returned nothing: `return tensors`")
def fused_without_return(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes))


@wrong("fused_all_reduce", says="reshape(-1) copies")
def flattens_by_view(tensors, buffer_bytes):
    reduce_groups([[t.view(-1) for t in group] for group in packed(tensors, buffer_bytes)])
    return tensors


@wrong("fused_all_reduce", says="is a buffer sent with unused space")
def sends_the_unused_space(tensors, buffer_bytes):
    for group in packed(tensors, buffer_bytes):
        flat = torch.cat([t.reshape(-1) for t in group])
        buffer = flat.new_zeros(max(flat.numel(), buffer_bytes // flat.element_size()))
        buffer[: flat.numel()] = flat
        dist.all_reduce(buffer)
        for t, part in zip(group, buffer[: flat.numel()].split([t.numel() for t in group])):
            t.copy_(part.view(t.shape))
    return tensors


@wrong("fused_all_reduce", says="tensor 0 of the list: this is rank 1's input")
def rank_0_brings_nothing(tensors, buffer_bytes):
    if dist.get_rank() == 0:
        for tensor in tensors:
            tensor.zero_()
    reduce_groups(packed(tensors, buffer_bytes))
    return tensors


# ---------------------------------------------------------------------------------------------
# average_gradients_by_hooks
# ---------------------------------------------------------------------------------------------


def start_equal(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, 0)


def hook_on_each(model, hook):
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(hook)


def averaged_by_hooks(model, divide=True, clear=True):
    pending = []
    hook_on_each(model, lambda p: pending.append((dist.all_reduce(p.grad, async_op=True), p)))

    def synchronize():
        for work, parameter in pending:
            work.wait()
            if divide:
                parameter.grad /= dist.get_world_size()
        if clear:
            pending.clear()

    return synchronize


def after_backward(model, reduce):
    def synchronize():
        for parameter in model.parameters():
            if parameter.grad is not None:
                reduce(parameter)

    return synchronize


def all_reduce_average(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()


@wrong("average_gradients_by_hooks", says="you summed, and an average is asked")
def hooks_that_sum(model):
    start_equal(model)
    return averaged_by_hooks(model, divide=False)


@wrong("average_gradients_by_hooks", says="this is the rank's own gradient, which nobody averaged")
def no_communication(model):
    start_equal(model)
    return lambda: None


@wrong("average_gradients_by_hooks", says="broadcast parameters and buffers from rank 0")
def hooks_without_broadcast(model):
    return averaged_by_hooks(model)


@wrong("average_gradients_by_hooks", says="buffer 'scale' is not rank 0's")
def hooks_without_the_buffers(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    return averaged_by_hooks(model)


@wrong("average_gradients_by_hooks", says="the hook waits for its all-reduce")
def hooks_that_wait(model):
    start_equal(model)
    hook_on_each(model, all_reduce_average)
    return lambda: None


@wrong("average_gradients_by_hooks", says="all-reduces began after backward had ended")
def everything_after_backward(model):
    start_equal(model)
    return after_backward(model, all_reduce_average)


@wrong("average_gradients_by_hooks", says="this is the rank's own gradient")
def hook_takes_the_parameter_for_its_gradient(model):
    start_equal(model)
    pending = []
    hook_on_each(model, lambda grad: pending.append(dist.all_reduce(grad.data, async_op=True)))

    def synchronize():
        for work in pending:
            work.wait()
        pending.clear()

    return synchronize


@wrong("average_gradients_by_hooks", says="your function returned nothing: return the function")
def hooks_without_return(model):
    start_equal(model)
    averaged_by_hooks(model)


@wrong("average_gradients_by_hooks", says="is still working on, as it was not waited for")
def pending_is_never_cleared(model):
    start_equal(model)
    return averaged_by_hooks(model, clear=False)


@wrong("average_gradients_by_hooks", says="a frozen parameter cannot have a hook")
def hooks_on_frozen_parameters(model):
    start_equal(model)
    synchronize = averaged_by_hooks(model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: None)
    return synchronize


@wrong("average_gradients_by_hooks", says="several went out together")
def one_flat_all_reduce_in_the_last_hook(model):
    start_equal(model)
    ready = []
    last = model.first.weight  # backward ends with the first layer
    fused = []

    def hook(parameter):
        ready.append(parameter)
        if len(ready) == sum(p.requires_grad for p in model.parameters()):
            flat = torch.cat([p.grad.view(-1) for p in ready])
            fused.append((dist.all_reduce(flat, async_op=True), flat, ready[:]))
            ready.clear()

    hook_on_each(model, hook)

    def synchronize():
        for work, flat, members in fused:
            work.wait()
            parts = (flat / dist.get_world_size()).split([p.numel() for p in members])
            for parameter, part in zip(members, parts):
                parameter.grad.copy_(part.view_as(parameter))
        fused.clear()

    return synchronize


# ---------------------------------------------------------------------------------------------
# halving_doubling_all_reduce
# ---------------------------------------------------------------------------------------------


def halved_and_doubled(tensor, group=None, add=torch.Tensor.add_, double=True):
    group = group or dist.group.WORLD
    n, r = dist.get_world_size(group), dist.get_rank(group)
    flat = padded(tensor, n)
    low, high, given, distance = 0, flat.numel(), [], n // 2
    while distance:
        partner = dist.get_global_rank(group, r ^ distance)
        middle = (low + high) // 2
        keep, give = (
            ((middle, high), (low, middle)) if r & distance else ((low, middle), (middle, high))
        )
        incoming = flat.new_empty(keep[1] - keep[0])
        exchange(flat[give[0] : give[1]].clone(), partner, incoming, partner, group)
        add(flat[keep[0] : keep[1]], incoming)
        given.append((distance, give))
        low, high = keep
        distance //= 2
    while given and double:
        distance, (start, stop) = given.pop()
        partner = dist.get_global_rank(group, r ^ distance)
        incoming = flat.new_empty(stop - start)
        exchange(flat[low:high].clone(), partner, incoming, partner, group)
        flat[start:stop] = incoming
        low, high = min(low, start), max(high, stop)
    return flat[: tensor.numel()].view_as(tensor)


@wrong("halving_doubling_all_reduce", says="you averaged a sum")
def halving_mean(tensor, group=None):
    return tensor.copy_(halved_and_doubled(tensor, group) / dist.get_world_size(group))


@wrong("halving_doubling_all_reduce", says="at element 0 this is rank 3's input")
def halving_overwrites(tensor, group=None):
    return tensor.copy_(halved_and_doubled(tensor, group, add=torch.Tensor.copy_))


@wrong("halving_doubling_all_reduce", says="only elements 2 to 7 of 8 are wrong (the last ones)")
def halving_without_doubling(tensor, group=None):
    return tensor.copy_(halved_and_doubled(tensor, group, double=False))


@wrong("halving_doubling_all_reduce", says="only elements 8 to 9 of 10 are wrong (the last ones)")
def halving_drops_the_rest(tensor, group=None):
    flat = tensor.view(-1)
    whole = flat.numel() // dist.get_world_size(group) * dist.get_world_size(group)
    flat[:whole] = halved_and_doubled(flat[:whole], group)
    return tensor


@wrong("halving_doubling_all_reduce", says="sent too many messages")
def a_ring_after_all(tensor, group=None):
    return tensor.copy_(all_reduced(tensor, group))


@wrong("halving_doubling_all_reduce", says="this rank sent too much")
def recursive_doubling_of_whole_tensors(tensor, group=None):
    group = group or dist.group.WORLD
    n, r = dist.get_world_size(group), dist.get_rank(group)
    distance = 1
    while distance < n:
        partner = dist.get_global_rank(group, r ^ distance)
        incoming = torch.empty_like(tensor)
        exchange(tensor.clone(), partner, incoming, partner, group)
        tensor += incoming
        distance *= 2
    return tensor


@wrong("halving_doubling_all_reduce", says="your ranks ran reduce")
def reduce_and_broadcast(tensor, group=None):
    root = dist.get_global_rank(group or dist.group.WORLD, 0)
    dist.reduce(tensor, root, group=group)
    dist.broadcast(tensor, root, group=group)
    return tensor


@wrong("halving_doubling_all_reduce", says="work in place")
def halving_into_a_new_tensor(tensor, group=None):
    return halved_and_doubled(tensor, group)


@wrong("halving_doubling_all_reduce", says="rank 3 left with sys.exit")
def a_rank_leaves(tensor, group=None):
    if dist.get_rank() == 3:
        raise SystemExit(0)
    return tensor.copy_(halved_and_doubled(tensor, group))
