"""Known answers to average_gradients_by_hooks."""

import torch
import torch.distributed as dist
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong


@right
def average_gradients_by_hooks(model):
    for value in [*model.parameters(), *model.buffers()]:
        dist.broadcast(value.data, 0)
    works = {}

    def reduce(parameter):
        works[parameter] = dist.all_reduce(parameter.grad, async_op=True)

    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        parameter.register_post_accumulate_grad_hook(reduce)

    def synchronize():
        for parameter, work in works.items():
            work.wait()
            parameter.grad.div_(dist.get_world_size())
        works.clear()

    return synchronize


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


@wrong(says="you summed, and an average is expected")
def hooks_that_sum(model):
    start_equal(model)
    return averaged_by_hooks(model, divide=False)


@wrong(says="this is the rank's own gradient, which nobody averaged")
def no_communication(model):
    start_equal(model)
    return lambda: None


@wrong(says="broadcast parameters and buffers from rank 0")
def hooks_without_broadcast(model):
    return averaged_by_hooks(model)


@wrong(says="buffer 'scale' is not rank 0's")
def hooks_without_the_buffers(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    return averaged_by_hooks(model)


@wrong(says="the hook waits for an all-reduce")
def hooks_that_wait(model):
    start_equal(model)
    hook_on_each(model, all_reduce_average)
    return lambda: None


@wrong(says="all-reduces began after backward had ended")
def everything_after_backward(model):
    start_equal(model)
    return after_backward(model, all_reduce_average)


@wrong(says="this is the rank's own gradient")
def hook_takes_the_parameter_for_its_gradient(model):
    start_equal(model)
    pending = []
    hook_on_each(model, lambda grad: pending.append(dist.all_reduce(grad.data, async_op=True)))

    def synchronize():
        for work in pending:
            work.wait()
        pending.clear()

    return synchronize


@wrong(says="your function returned nothing: return the function")
def hooks_without_return(model):
    start_equal(model)
    averaged_by_hooks(model)


@wrong(says="is still working on, as it was not waited for")
def pending_is_never_cleared(model):
    start_equal(model)
    return averaged_by_hooks(model, clear=False)


@wrong(says="a frozen parameter cannot have a hook")
def hooks_on_frozen_parameters(model):
    start_equal(model)
    synchronize = averaged_by_hooks(model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: None)
    return synchronize


@wrong(says="several went out together")
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
