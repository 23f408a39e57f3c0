"""Wrong answers to notebook 03: what people write, and what the check must say to each."""

import math

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.zoo import wrong
from course_lib.techniques.collectives import broadcast_state
from course_lib.techniques.data_parallel import DataParallel

# ---------------------------------------------------------------------------------------------
# start_equal
# ---------------------------------------------------------------------------------------------


def send_all(tensors, src=0):
    for tensor in tensors:
        dist.broadcast(tensor.detach(), src=src)


@wrong("start_equal", says="buffer 'norm.running_mean' is not rank 0's: it is still the rank's own")
def parameters_alone(model):
    send_all(model.parameters())


@wrong("start_equal", says="frozen parameter 'last.bias' is not rank 0's: it is still the rank's")
def what_is_trained_alone(model):
    send_all([*(p for p in model.parameters() if p.requires_grad), *model.buffers()])


@wrong("start_equal", says="buffer 'mask' is not rank 0's")
def what_is_saved_alone(model):
    send_all({id(t): t for t in model.state_dict(keep_vars=True).values()}.values())


@wrong("start_equal", says="is a shared weight sent under both of its names?")
def shared_weights_under_both_names(model):
    send_all(p for _, p in model.named_parameters(remove_duplicate=False))
    send_all(model.buffers())


@wrong("start_equal", says="parameter 'first.weight' is a new object: an optimizer")
def new_parameters(model):
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            value = parameter.detach().clone()
            dist.broadcast(value, src=0)
            setattr(module, name, nn.Parameter(value, requires_grad=parameter.requires_grad))
    send_all(model.buffers())


@wrong("start_equal", says="it is rank 1's")
def from_the_last_rank(model):
    send_all([*model.parameters(), *model.buffers()], src=dist.get_world_size() - 1)


@wrong("start_equal", says="your ranks ran all_reduce")
def average_of_the_starts(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.detach())
        parameter.detach().div_(dist.get_world_size())


@wrong("start_equal", says="parameter 'first.weight' is not rank 0's: it is still the rank's own")
def a_seed_and_no_message(model):
    torch.manual_seed(0)


@wrong("start_equal", says="a leaf Variable that requires grad")
def without_detach(model):
    for parameter in model.parameters():
        copy = parameter.detach().clone()
        dist.broadcast(copy, src=0)
        parameter.copy_(copy)


@wrong("start_equal", says="your function calls course_lib.techniques")
def the_courses_own_start(model):
    broadcast_state(model)


# ---------------------------------------------------------------------------------------------
# big_batch_gradient
# ---------------------------------------------------------------------------------------------


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


@wrong("big_batch_gradient", says="exactly 2 times the reference: these are sums of 2 means")
def sum_of_means(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    value.backward()
    reduce_gradients(model)
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong("big_batch_gradient", says="this is the mean of 2 means. Ranks have 3 and 2 rows")
def mean_of_uneven_means(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    value.backward()
    reduce_gradients(model, 1 / dist.get_world_size())
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong("big_batch_gradient", says="exactly 6 times the reference, the number of all rows")
def sum_of_sums(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    (value * len(inputs)).backward()
    reduce_gradients(model)
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong("big_batch_gradient", says="exactly 3 times the reference, rows per rank: you averaged sums")
def average_of_sums(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    (value * len(inputs)).backward()
    reduce_gradients(model, 1 / dist.get_world_size())
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong("big_batch_gradient", says="exactly 1/2 of the reference: you averaged twice")
def divided_before_and_after(model, loss, inputs, targets):
    n = dist.get_world_size()
    value = loss(model(inputs), targets)
    (value / n).backward()
    reduce_gradients(model, 1 / n)
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong("big_batch_gradient", says="this is the rank's own gradient, which nobody has averaged")
def the_parameter_in_place_of_its_gradient(model, loss, inputs, targets):
    value = loss(model(inputs), targets)
    value.backward()
    for grad in model.parameters():  # as a hook's argument was once taken for the gradient
        if grad.requires_grad:
            dist.all_reduce(grad.detach())
            grad.detach().div_(dist.get_world_size())
    return mean_over_all(value, len(inputs) / all_rows(inputs))


@wrong("big_batch_gradient", says="the gradients are right, but the loss that was returned")
def the_ranks_own_loss(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = loss(model(inputs), targets)
    (value * share).backward()
    reduce_gradients(model)
    return value


@wrong("big_batch_gradient", says="the mean over no rows is nan, and so is every sum that it is in")
def a_mean_over_nothing(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    value = loss(model(inputs), targets)
    (value * share).backward()
    reduce_gradients(model)
    return mean_over_all(value, share)


@wrong("big_batch_gradient", says="rank 3 has no rows: it has no gradient of its own")
def a_rank_without_rows_stays_away(model, loss, inputs, targets):
    share = len(inputs) / all_rows(inputs)
    if not len(inputs):
        return 0.0
    value = loss(model(inputs), targets)
    (value * share).backward()
    reduce_gradients(model)
    return mean_over_all(value, share)


@wrong("big_batch_gradient", says="collected with all_gather")
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


@wrong("big_batch_gradient", says="not every gradient was reduced exactly once")
def reduced_twice_and_halved(model, loss, inputs, targets):
    n, share = dist.get_world_size(), len(inputs) / all_rows(inputs)
    value = torch.zeros((), dtype=torch.float64)
    if len(inputs):
        value = loss(model(inputs), targets)
        (value * share).backward()
    reduce_gradients(model)
    reduce_gradients(model, 1 / n)
    return mean_over_all(value, share)


# ---------------------------------------------------------------------------------------------
# shard_indices
# ---------------------------------------------------------------------------------------------


def shuffled(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(samples, generator=generator).tolist()


@wrong("shard_indices", says="epochs 0 and 1 have the same order")
def without_the_epoch(samples, rank, world_size, epoch, seed):
    return shuffled(samples, seed)[rank::world_size]


@wrong("shard_indices", says="the ranks do not cut up the same order")
def an_order_for_each_rank(samples, rank, world_size, epoch, seed):
    return shuffled(samples, seed + epoch + 100 * rank)[rank::world_size]


@wrong("shard_indices", says="called twice for the same epoch it gives two orders")
def torchs_global_state(samples, rank, world_size, epoch, seed):
    return torch.randperm(samples).tolist()[rank::world_size]


@wrong("shard_indices", says="is read twice, to make the parts equal")
def padded(samples, rank, world_size, epoch, seed):
    order = shuffled(samples, seed + epoch)
    order += order[: -samples % world_size]
    return order[rank::world_size]


@wrong("shard_indices", says="is read by no rank: what 2 ranks cannot share equally is left over")
def remainder_dropped(samples, rank, world_size, epoch, seed):
    each = samples // world_size
    return shuffled(samples, seed + epoch)[rank * each : (rank + 1) * each]


@wrong("shard_indices", says="the samples come in the order of the data set")
def not_shuffled(samples, rank, world_size, epoch, seed):
    return list(range(rank, samples, world_size))


@wrong("shard_indices", says="torch's global random state has changed")
def seeds_everything(samples, rank, world_size, epoch, seed):
    torch.manual_seed(seed + epoch)
    return torch.randperm(samples).tolist()[rank::world_size]


@wrong("shard_indices", says="the parts differ by more than one sample")
def the_last_rank_takes_the_rest(samples, rank, world_size, epoch, seed):
    each, order = math.ceil(samples / world_size), shuffled(samples, seed + epoch)
    return order[rank * each : (rank + 1) * each]


@wrong("shard_indices", says="in epochs 0 and 1 each rank has the same samples, in another order")
def shuffled_after_the_cut(samples, rank, world_size, epoch, seed):
    mine = list(range(rank, samples, world_size))
    return [mine[i] for i in shuffled(len(mine), seed + epoch)]


@wrong("shard_indices", says="another seed gives the same order")
def without_the_seed(samples, rank, world_size, epoch, seed):
    return shuffled(samples, epoch)[rank::world_size]


# ---------------------------------------------------------------------------------------------
# average_in_buckets
# ---------------------------------------------------------------------------------------------


def in_buckets(
    model,
    bucket_bytes,
    backwards=True,
    share=None,
    wait=False,
    at_the_end=False,
    flush=True,
    in_line=True,
    write_back=True,
    gradient_of=lambda p: p.grad,
):
    n = dist.get_world_size()
    parameters = [p for p in model.parameters() if p.requires_grad]
    buckets = []
    for p in parameters[::-1] if backwards else parameters:
        if not buckets or sum(q.nbytes for q in buckets[-1]) + p.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(p)
    missing, under_way = [len(bucket) for bucket in buckets], {}

    def send(i):
        grads = [gradient_of(p) for p in buckets[i]]
        grads = [
            torch.zeros_like(p) if g is None else g for p, g in zip(buckets[i], grads, strict=True)
        ]
        buffer = torch.cat([g.detach().flatten() for g in grads])
        work = dist.all_reduce(buffer, async_op=True)
        if wait:
            work.wait()
        under_way[i] = work, buffer

    def hook_of(i):
        def hook(_):
            missing[i] -= 1
            if at_the_end:
                return
            if not in_line and missing[i] == 0:
                send(i)
            while in_line and len(under_way) < len(buckets) and missing[len(under_way)] == 0:
                send(len(under_way))

        return hook

    for i, bucket in enumerate(buckets):
        for p in bucket:
            p.register_post_accumulate_grad_hook(hook_of(i))

    def synchronize():
        for i in range(len(buckets)):
            if flush and i not in under_way:
                send(i)
        for i, (work, buffer) in under_way.items():
            work.wait()
            buffer *= 1 / n if share is None else share
            parts = buffer.split([p.numel() for p in buckets[i]])
            for p, part in zip(buckets[i], parts, strict=True):
                if write_back:
                    p.grad = part.view_as(p)
        under_way.clear()
        missing[:] = [len(bucket) for bucket in buckets]

    return synchronize


@wrong("average_in_buckets", says="exactly 2 times the reference: you summed, and an average is")
def bucket_sums(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, share=1.0)


@wrong("average_in_buckets", says="exactly 1/2 of the reference: divided by the number of ranks tw")
def bucket_divided_twice(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, share=1 / dist.get_world_size() ** 2)


@wrong("average_in_buckets", says="this is the rank's own gradient, which nobody has averaged")
def buckets_never_copied_back(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, write_back=False)


@wrong("average_in_buckets", says="the values differ")
def the_hooks_argument_as_gradient(model, bucket_bytes):
    """The argument of the hook is the parameter: picotron's hook took it for the gradient."""
    return in_buckets(model, bucket_bytes, gradient_of=lambda grad: grad)


@wrong("average_in_buckets", says="all of them went out when backward was at its end")
def buckets_from_the_first_layer(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, backwards=False)


@wrong("average_in_buckets", says="all-reduces began after backward had ended")
def buckets_after_backward(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, at_the_end=True)


@wrong("average_in_buckets", says="the hook waits for its all-reduce, and backward with it")
def buckets_waited_for_in_the_hook(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, wait=True)


@wrong("average_in_buckets", says="more all-reduces than buckets are needed")
def a_bucket_for_each_gradient(model, bucket_bytes):
    return in_buckets(model, 1)


@wrong("average_in_buckets", says="a bucket is larger than bucket_bytes")
def one_bucket_for_all(model, bucket_bytes):
    return in_buckets(model, 10**9)


@wrong("average_in_buckets", says="a bucket that waits for it never leaves: send it in synchronize")
def what_is_missing_is_forgotten(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, flush=False)


@wrong("average_in_buckets", says="Send a bucket when it is complete and all before it have left")
def buckets_out_of_line(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, in_line=False)


@wrong("average_in_buckets", says="return the function synchronize itself")
def synchronize_is_called(model, bucket_bytes):
    return in_buckets(model, bucket_bytes)()


@wrong("average_in_buckets", says="your function calls course_lib.techniques")
def the_courses_own_buckets(model, bucket_bytes):
    DataParallel(model, None, bucket_bytes, bucket_bytes)
    return lambda: None


# ---------------------------------------------------------------------------------------------
# accumulate
# ---------------------------------------------------------------------------------------------

clip = nn.utils.clip_grad_norm_


def backward_all(ddp, loss, microbatches, scale):
    for x, y in microbatches:
        (loss(ddp(x), y) * scale).backward()


@wrong("accumulate", says="it was sent 3 times, after every microbatch")
def every_microbatch_sent(ddp, loss, microbatches, max_norm):
    backward_all(ddp, loss, microbatches, 1 / len(microbatches))
    return clip(ddp.parameters(), max_norm)


@wrong("accumulate", says="it was sent 3 times, after every microbatch")
def forward_outside_of_no_sync(ddp, loss, microbatches, max_norm):
    for i, (x, y) in enumerate(microbatches):
        value = loss(ddp(x), y) / len(microbatches)
        if i < len(microbatches) - 1:
            with ddp.no_sync():
                value.backward()
        else:
            value.backward()
    return clip(ddp.parameters(), max_norm)


@wrong("accumulate", says="this is the rank's own gradient: no backward outside no_sync has sent")
def no_sync_for_all(ddp, loss, microbatches, max_norm):
    with ddp.no_sync():
        backward_all(ddp, loss, microbatches, 1 / len(microbatches))
    return clip(ddp.parameters(), max_norm)


def accumulated(ddp, loss, microbatches, scale, after_each=lambda: None):
    *first, last = microbatches
    with ddp.no_sync():
        for microbatch in first:
            backward_all(ddp, loss, [microbatch], scale)
            after_each()
    backward_all(ddp, loss, [last], scale)


@wrong("accumulate", says="exactly 3 times the reference, the number of microbatches")
def microbatches_added_up(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1.0)
    return clip(ddp.parameters(), max_norm)


@wrong("accumulate", says="exactly 1/2 of the reference: something is divided twice")
def divided_by_ranks_as_well(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches) / dist.get_world_size())
    return clip(ddp.parameters(), max_norm)


@wrong("accumulate", says="it was not clipped")
def not_clipped(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches))
    return clip(ddp.parameters(), math.inf)


@wrong("accumulate", says="the ranks clipped their own gradients, each by its own norm")
def clipped_by_the_ranks_own_norm(ddp, loss, microbatches, max_norm):
    k = len(microbatches)
    with ddp.no_sync():
        backward_all(ddp, loss, microbatches, 1 / k)
    clip(ddp.parameters(), max_norm)
    gradients = [parameter.grad for parameter in ddp.parameters() if parameter.grad is not None]
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    return torch.cat([gradient.flatten() for gradient in gradients]).norm()


@wrong("accumulate", says="max_norm bounds the norm of all together")
def each_parameter_clipped(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches))
    norms = [
        clip([parameter], max_norm) for parameter in ddp.parameters() if parameter.grad is not None
    ]
    return torch.stack(norms).norm()


@wrong("accumulate", says="only the last microbatch is in it")
def zero_grad_in_between(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches), after_each=ddp.zero_grad)
    return clip(ddp.parameters(), max_norm)


@wrong("accumulate", says="return the norm that they had before clipping")
def the_norm_after_clipping(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches))
    clip(ddp.parameters(), max_norm)


# ---------------------------------------------------------------------------------------------
# scaling_efficiency
# ---------------------------------------------------------------------------------------------


def costs_of(sizes, seconds):
    return [seconds(size) for size in sizes]


def efficiency(forward, backward, tail):
    return (forward + backward) / (forward + max(backward, tail))


def last_arrival(ready, sizes, seconds):
    free = 0.0
    for moment, size in zip(ready, sizes, strict=True):
        free = max(free, moment) + seconds(size)
    return free


@wrong("scaling_efficiency", says="nothing is hidden here")
def nothing_hidden(forward, backward, ready, sizes, seconds):
    return (forward + backward) / (forward + backward + sum(costs_of(sizes, seconds)))


@wrong("scaling_efficiency", says="a bucket can only leave when it is ready")
def network_starts_with_backward(forward, backward, ready, sizes, seconds):
    return efficiency(forward, backward, sum(costs_of(sizes, seconds)))


@wrong("scaling_efficiency", says="here each bucket has the network to itself")
def a_network_for_each_bucket(forward, backward, ready, sizes, seconds):
    arrivals = [t + seconds(size) for t, size in zip(ready, sizes, strict=True)]
    return efficiency(forward, backward, max(arrivals, default=0.0))


@wrong("scaling_efficiency", says="the last bucket is missing")
def last_bucket_forgotten(forward, backward, ready, sizes, seconds):
    return efficiency(forward, backward, last_arrival(ready[:-1], sizes[:-1], seconds))


@wrong("scaling_efficiency", says="communication is not free")
def perfect_scaling(forward, backward, ready, sizes, seconds):
    return 1.0


@wrong("scaling_efficiency", says="turn it round")
def slow_down(forward, backward, ready, sizes, seconds):
    return 1 / efficiency(forward, backward, last_arrival(ready, sizes, seconds))


@wrong("scaling_efficiency", says="this is per cent")
def per_cent(forward, backward, ready, sizes, seconds):
    return 100 * efficiency(forward, backward, last_arrival(ready, sizes, seconds))


@wrong("scaling_efficiency", says="the forward pass is part of the step as well")
def without_the_forward_pass(forward, backward, ready, sizes, seconds):
    return backward / max(backward, last_arrival(ready, sizes, seconds))


# ---------------------------------------------------------------------------------------------
# learning_rate
# ---------------------------------------------------------------------------------------------


@wrong("learning_rate", says="the rate stays as it was")
def rate_unchanged(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate


@wrong("learning_rate", says="there is no warm-up")
def no_warm_up(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate * batch / base_batch


def ramp(step, start, full, warmup_steps):
    return full if step >= warmup_steps else start + (full - start) * step / warmup_steps


@wrong("learning_rate", says="the warm-up begins at zero")
def warm_up_from_zero(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, 0.0, base_rate * batch / base_batch, warmup_steps)


@wrong("learning_rate", says="this is the square root of the ratio")
def square_root_scaling(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, base_rate, base_rate * (batch / base_batch) ** 0.5, warmup_steps)


@wrong("learning_rate", says="the rate jumps")
def all_at_once(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate * (batch / base_batch if step >= warmup_steps else 1)


@wrong("learning_rate", says="the rate rises on after the warm-up")
def ever_rising(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * batch / base_batch
    return base_rate + (full - base_rate) * step / max(1, warmup_steps)


@wrong("learning_rate", says="the ratio is turned round")
def ratio_turned_round(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, base_rate, base_rate * base_batch / batch, warmup_steps)


@wrong("learning_rate", says="the full rate comes one step early")
def one_step_early(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, base_rate, base_rate * batch / base_batch, max(1, warmup_steps - 1))


@wrong("learning_rate", says="without warm-up steps the full rate holds from step 0")
def divides_by_no_steps(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * batch / base_batch
    return base_rate + (full - base_rate) * min(1.0, step / warmup_steps)


# ---------------------------------------------------------------------------------------------
# buckets_by_ready_time
# ---------------------------------------------------------------------------------------------


def agreed(ready, op=dist.ReduceOp.MAX, never=math.inf):
    times = torch.tensor([never if t is None else t for t in ready], dtype=torch.float64)
    dist.all_reduce(times, op=op)
    return times.tolist()


def packed(order, sizes, bucket_bytes):
    buckets = []
    for i in order:
        if not buckets or sum(sizes[j] for j in buckets[-1]) + sizes[i] > bucket_bytes:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


def by_times(times, sizes, bucket_bytes):
    return packed(sorted(range(len(sizes)), key=times.__getitem__), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="each rank has clocks of its own")
def by_the_ranks_own_clock(ready, sizes, bucket_bytes):
    return by_times([math.inf if t is None else t for t in ready], sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="this is the order of rank 0's clock")
def by_rank_0s_clock(ready, sizes, bucket_bytes):
    times = torch.tensor([math.inf if t is None else t for t in ready], dtype=torch.float64)
    dist.broadcast(times, src=0)
    return by_times(times.tolist(), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="this is the order by the earliest rank")
def by_the_earliest_rank(ready, sizes, bucket_bytes):
    return by_times(agreed(ready, dist.ReduceOp.MIN), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="this is the order by the average over ranks")
def by_the_average(ready, sizes, bucket_bytes):
    return by_times(agreed(ready, dist.ReduceOp.SUM), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="this is the reverse of the list")
def reverse_of_the_list(ready, sizes, bucket_bytes):
    agreed(ready)
    return packed(list(reversed(range(len(sizes)))), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="the order is turned round")
def latest_first(ready, sizes, bucket_bytes):
    times = agreed(ready)
    return packed(sorted(range(len(sizes)), key=lambda i: -times[i]), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="never ready on some rank does not mean never ready")
def without_what_somebody_lacks(ready, sizes, bucket_bytes):
    times = agreed(ready)
    order = sorted((i for i in range(len(sizes)) if times[i] < math.inf), key=times.__getitem__)
    return packed(order, sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="a parameter that a rank never had counts as early here")
def never_counts_as_zero(ready, sizes, bucket_bytes):
    return by_times(agreed(ready, never=-1.0), sizes, bucket_bytes)


@wrong("buckets_by_ready_time", says="a bucket has room for the next parameter")
def a_bucket_for_each(ready, sizes, bucket_bytes):
    return by_times(agreed(ready), sizes, 1)


@wrong("buckets_by_ready_time", says="a bucket of several parameters is larger than bucket_bytes")
def full_and_one_more(ready, sizes, bucket_bytes):
    times, buckets, filled = agreed(ready), [], bucket_bytes
    for i in sorted(range(len(sizes)), key=times.__getitem__):
        if filled >= bucket_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(i)
        filled += sizes[i] + 1
    return buckets
