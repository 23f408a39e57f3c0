"""Known answers to accumulate."""

import contextlib
import math

import numpy
import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.known_answers import right, wrong


@right
def accumulate(ddp, loss, microbatches, max_norm):
    """The norm by hand."""
    with ddp.no_sync():
        for x, y in microbatches[:-1]:
            loss(ddp(x), y).backward()
    x, y = microbatches[-1]
    loss(ddp(x), y).backward()
    grads = [p.grad for p in ddp.parameters() if p.grad is not None]
    for grad in grads:
        grad /= len(microbatches)
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
    for grad in grads:
        grad *= min(1.0, max_norm / norm)
    return norm


@right
def accumulate_by_turns(ddp, loss, microbatches, max_norm):
    """A context for every microbatch, as frameworks write it."""
    from contextlib import nullcontext

    for i, (x, y) in enumerate(microbatches, 1):
        with nullcontext() if i == len(microbatches) else ddp.no_sync():
            (loss(ddp(x), y) / len(microbatches)).backward()
    return nn.utils.clip_grad_norm_(ddp.module.parameters(), max_norm)


@right
def accumulate_by_the_flag(ddp, loss, microbatches, max_norm):
    """What no_sync does, by hand, and a norm of numpy."""
    k = len(microbatches)
    for i, (x, y) in enumerate(microbatches, 1):
        ddp.require_backward_grad_sync = i == k
        loss(ddp(x), y).div(k).backward()
    grads = [p.grad for p in ddp.parameters() if p.requires_grad]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    if norm > max_norm:
        torch._foreach_mul_(grads, float(max_norm / norm))
    return numpy.float64(norm)


@right
def accumulate_through_the_module(ddp, loss, microbatches, max_norm):
    """What does not go through ddp is not sent either."""
    *first, (x, y) = microbatches
    for inputs, targets in first:
        (loss(ddp.module(inputs), targets) / len(microbatches)).backward()
    (loss(ddp(x), y) / len(microbatches)).backward()
    return nn.utils.clip_grad_norm_(ddp.parameters(), max_norm)


clip = nn.utils.clip_grad_norm_


def backward_all(ddp, loss, microbatches, scale):
    for x, y in microbatches:
        (loss(ddp(x), y) * scale).backward()


@wrong(says="it was sent 3 times, after every microbatch")
def every_microbatch_sent(ddp, loss, microbatches, max_norm):
    backward_all(ddp, loss, microbatches, 1 / len(microbatches))
    return clip(ddp.parameters(), max_norm)


@wrong(says="it was sent 3 times, after every microbatch")
def forward_outside_of_no_sync(ddp, loss, microbatches, max_norm):
    for i, (x, y) in enumerate(microbatches):
        value = loss(ddp(x), y) / len(microbatches)
        if i < len(microbatches) - 1:
            with ddp.no_sync():
                value.backward()
        else:
            value.backward()
    return clip(ddp.parameters(), max_norm)


@wrong(says="this is the rank's own gradient: no backward outside no_sync has sent")
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


@wrong(says="exactly 3 times the reference, the number of microbatches")
def microbatches_added_up(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1.0)
    return clip(ddp.parameters(), max_norm)


@wrong(says="exactly 1/2 of the reference: something is divided twice")
def divided_by_ranks_as_well(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches) / dist.get_world_size())
    return clip(ddp.parameters(), max_norm)


@wrong(says="it was not clipped")
def not_clipped(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches))
    return clip(ddp.parameters(), math.inf)


@wrong(says="the ranks clipped their own gradients, each by its own norm")
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


@wrong(says="max_norm bounds the norm of all together")
def each_parameter_clipped(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches))
    norms = [
        clip([parameter], max_norm) for parameter in ddp.parameters() if parameter.grad is not None
    ]
    return torch.stack(norms).norm()


@wrong(says="only the last microbatch is in it")
def zero_grad_in_between(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches), after_each=ddp.zero_grad)
    return clip(ddp.parameters(), max_norm)


@wrong(says="return the norm that they had before clipping")
def the_norm_after_clipping(ddp, loss, microbatches, max_norm):
    accumulated(ddp, loss, microbatches, 1 / len(microbatches))
    clip(ddp.parameters(), max_norm)


@wrong(says="the activations of several microbatches are held at once")
def one_backward_for_all(ddp, loss, microbatches, max_norm):
    sum(loss(ddp(x), y) / len(microbatches) for x, y in microbatches).backward()
    return clip(ddp.parameters(), max_norm)


@wrong(says="the activations of several microbatches are held at once")
def one_large_batch(ddp, loss, microbatches, max_norm):
    x, y = map(torch.cat, zip(*microbatches, strict=True))
    loss(ddp(x), y).backward()
    return clip(ddp.parameters(), max_norm)


@wrong(says="a microbatch runs forward more than once")
def a_forward_to_look_at_the_loss(ddp, loss, microbatches, max_norm):
    with torch.no_grad():
        print(loss(ddp(microbatches[0][0]), microbatches[0][1]).item())
    return accumulate(ddp, loss, microbatches, max_norm)


@right
def accumulate_with_an_exit_stack(ddp, loss, microbatches, max_norm):
    """One stack that is closed before the last microbatch."""
    stack, k = contextlib.ExitStack(), len(microbatches)
    stack.enter_context(ddp.no_sync())
    for left, (inputs, targets) in zip(range(k, 0, -1), microbatches, strict=True):
        if left == 1:
            stack.close()
        loss(ddp(inputs), targets).mul(1 / k).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in ddp.parameters() if p.grad is not None])
    torch.nn.utils.clip_grads_with_norm_(ddp.parameters(), max_norm, norm)
    return norm.item()


@wrong(says="the activations of one microbatch are still there when the next one runs")
def keeps_the_graphs(ddp, loss, microbatches, max_norm):
    *first, (inputs, targets) = microbatches
    kept = []
    with ddp.no_sync():
        for x, y in first:
            kept.append(loss(ddp(x), y) / len(microbatches))
            kept[-1].backward(retain_graph=True)
    (loss(ddp(inputs), targets) / len(microbatches)).backward()
    return nn.utils.clip_grad_norm_(ddp.parameters(), max_norm)
