"""Known answers to average_by_owner."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


def begun(parameters):
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)


def summed(parameters, divisor, group=None):
    for p in parameters:
        dist.all_reduce(p.grad, group=group)
        p.grad /= divisor


@right
def average_by_owner(dense, experts, replicas):
    n = dist.get_world_size()
    begun(experts)
    summed(dense, n)
    summed(experts, n, replicas)


@right
def in_two_buckets(dense, experts, replicas):
    n = dist.get_world_size()
    for parameters, group in ((dense, None), (experts, replicas)):
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients]) / n
        dist.all_reduce(flat, group=group)
        parts = flat.split([p.numel() for p in parameters])
        for p, part in zip(parameters, parts, strict=True):
            p.grad = part.view_as(p).clone()


@right
def with_handles(dense, experts, replicas):
    begun(experts)
    handles = [dist.all_reduce(p.grad.div_(dist.get_world_size()), async_op=True) for p in dense]
    for p in experts:
        p.grad = p.grad / dist.get_world_size()
        handles.append(dist.all_reduce(p.grad, group=replicas, async_op=True))
    for handle in handles:
        handle.wait()


@right
def average_then_the_share(dense, experts, replicas):
    """Mean over the replicas, times the replicas' share of all ranks."""
    n, copies = dist.get_world_size(), dist.get_world_size(replicas)
    begun(experts)
    summed(dense, n)
    summed(experts, copies, replicas)
    for p in experts:
        p.grad *= copies / n


@right
def in_one_pass_over_all(dense, experts, replicas):
    """A list of what is to be averaged over whom, sums instead of the old gradients."""
    jobs = [(p, dist.group.WORLD) for p in dense] + [(p, replicas) for p in experts]
    for p, group in jobs:
        gradient = torch.zeros_like(p.data) if p.grad is None else p.grad.detach().clone()
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=group)
        p.grad = torch.div(gradient, dist.get_world_size())


@wrong(says="exactly 2 times too much: divided by 2")
def by_the_size_of_the_group(dense, experts, replicas):
    begun(experts)
    summed(dense, dist.get_world_size())
    summed(experts, dist.get_world_size(replicas), replicas)


@wrong(says="a mixture of different experts")
def all_over_all_ranks(dense, experts, replicas):
    begun(experts)
    summed([*dense, *experts], dist.get_world_size())


@wrong(says="the other replicas wait for its part")
def skips_what_has_none(dense, experts, replicas):
    n = dist.get_world_size()
    summed(dense, n)
    summed([p for p in experts if p.grad is not None], n, replicas)


@wrong(says="and still has none")
def leaves_none_as_it_is(dense, experts, replicas):
    n = dist.get_world_size()
    summed(dense, n)
    for p in experts:
        gradient = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(gradient, group=replicas)
        if p.grad is not None:
            p.grad = gradient / n


@wrong(says="its replicas have seen other tokens")
def leaves_the_experts(dense, experts, replicas):
    begun(experts)
    summed(dense, dist.get_world_size())


@wrong(says="divide by 4, since each rank's loss counts 1/4")
def sums_the_experts(dense, experts, replicas):
    begun(experts)
    summed(dense, dist.get_world_size())
    summed(experts, 1, replicas)


@wrong(says="dense parameters are on all ranks")
def dense_over_the_replicas(dense, experts, replicas):
    begun(experts)
    summed(dense, dist.get_world_size(replicas), replicas)
    summed(experts, dist.get_world_size(), replicas)


@wrong(says="the loss of the step is their mean")
def sums_all(dense, experts, replicas):
    begun(experts)
    summed(dense, 1)
    summed(experts, 1, replicas)


@wrong(says="but not what is sent")
def sends_twice(dense, experts, replicas):
    n = dist.get_world_size()
    begun(experts)
    summed(dense, n)
    summed(experts, n, replicas)
    summed(experts, dist.get_world_size(replicas), replicas)
