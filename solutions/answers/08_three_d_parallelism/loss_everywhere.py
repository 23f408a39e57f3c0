"""Known answers to loss_everywhere."""

import math
import statistics

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import sum_over


@right
def loss_everywhere(loss, groups):
    """By broadcast along the pipeline, from its last rank."""
    value = torch.zeros(1, dtype=torch.float64) if loss is None else loss.reshape(1).clone()
    last = dist.get_process_group_ranks(groups["pipeline"])[-1]
    dist.broadcast(value, src=last, group=groups["pipeline"])
    gathered = [torch.empty_like(value) for _ in range(dist.get_world_size(groups["data"]))]
    dist.all_gather(gathered, value, group=groups["data"])
    return torch.cat(gathered).mean().item()


@wrong(says="divided by the number of ranks")
def mean_over_the_world(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    return sum_over(total, groups["data"]) / dist.get_world_size()


@wrong(says="divide by the size of the data axis")
def sum_over_replicas(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    return sum_over(total, groups["data"])


@wrong(says="the loss of only one replica")
def no_data_axis(loss, groups):
    return sum_over(0.0 if loss is None else loss, groups["pipeline"])


@wrong(says="the loss must be known on every rank")
def last_stage_alone(loss, groups):
    if loss is None:
        return None
    return sum_over(loss, groups["data"]) / dist.get_world_size(groups["data"])


@wrong(says="once for each rank of the tensor axis")
def over_the_tensor_axis_too(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    total = sum_over(sum_over(total, groups["data"]), groups["tensor"])
    return total / dist.get_world_size(groups["data"])


@wrong(says="waits")
def only_those_with_a_loss_reduce(loss, groups):
    if loss is None:
        return torch.zeros(())
    return sum_over(loss, None) / dist.get_world_size(groups["data"])


@wrong(says="divided by the pipeline's size as well")
def mean_over_the_pipeline(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    total = sum_over(total / dist.get_world_size(groups["pipeline"]), groups["data"])
    return total / dist.get_world_size(groups["data"])


@wrong(says="this rank sent too much")
def sends_a_million_zeros_along(loss, groups):
    total = torch.zeros(10000, dtype=torch.float64)
    if loss is not None:
        total += loss
    dist.all_reduce(total, group=groups["pipeline"])
    dist.all_reduce(total, group=groups["data"])
    return total[0] / dist.get_world_size(groups["data"])


@wrong(says="or the largest over the pipeline was taken")
def the_largest_and_zero_elsewhere(loss, groups):
    value = torch.zeros((), dtype=torch.float64) if loss is None else loss.clone()
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=groups["pipeline"])
    return sum_over(value, groups["data"]) / dist.get_world_size(groups["data"])


@wrong(says="right to the digits that float32 has")
def added_up_in_float32(loss, groups):
    total = torch.zeros(()) if loss is None else loss.float()
    for axis in ("pipeline", "data"):
        dist.all_reduce(total, group=groups[axis])
    return total / dist.get_world_size(groups["data"])


@right
def by_sends_along_the_pipeline(loss, groups):
    """The last stage sends to each of the others; the replicas are averaged by a gather."""
    stages = dist.get_process_group_ranks(groups["pipeline"])
    value = torch.zeros((), dtype=torch.float64)
    if loss is None:
        dist.recv(value, stages[-1])
    else:
        value = loss.clone()
        for rank in stages[:-1]:
            dist.send(value, rank)
    replicas = [torch.zeros_like(value) for _ in dist.get_process_group_ranks(groups["data"])]
    dist.all_gather(replicas, value, group=groups["data"])
    return torch.stack(replicas).mean()


@right
def by_the_largest(loss, groups):
    """Where there is no loss, something smaller than any stands in for it."""
    value = torch.tensor(-math.inf) if loss is None else loss
    value = value.double().clone()
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=groups["pipeline"])
    value /= dist.get_world_size(groups["data"])
    dist.all_reduce(value, group=groups["data"])
    return value


@right
def averaged_first_and_then_handed_on(loss, groups):
    """Over the replicas on the last stage; then to the stages before."""
    mean = torch.full((), 0.0, dtype=torch.float64)
    if loss is not None:
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=groups["data"])
        mean.div_(groups["data"].size())
    n = dist.get_world_size(groups["pipeline"])
    dist.broadcast(mean, group=groups["pipeline"], group_src=n - 1)
    return mean


@right
def with_objects(loss, groups):
    """Python's numbers, by all_gather_object."""

    def gathered(value, group):
        found = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, value, group=group)
        return found

    mine = gathered(None if loss is None else loss.item(), groups["pipeline"])
    replicas = gathered(next(x for x in mine if x is not None), groups["data"])
    return torch.tensor(statistics.fmean(replicas), dtype=torch.float64)
