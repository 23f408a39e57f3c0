"""Known answers to average_gradients_by_hooks."""

import itertools
from collections import OrderedDict, deque

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


@wrong(says="there is a wait for the all_reduce inside backward")
def hooks_that_wait(model):
    start_equal(model)
    hook_on_each(model, all_reduce_average)
    return lambda: None


@wrong(says="began after backward had ended")
def everything_after_backward(model):
    start_equal(model)
    return after_backward(model, all_reduce_average)


@wrong(says="what a hook gets is the parameter p, and its gradient is p.grad")
def hook_takes_the_parameter_for_its_gradient(model):
    start_equal(model)
    pending = []
    hook_on_each(model, lambda grad: pending.append(dist.all_reduce(grad.data, async_op=True)))

    def synchronize():
        for work in pending:
            work.wait()
        pending.clear()

    return synchronize


@wrong(says="If its gradient is meant, as in a hook, that is parameter.grad")
def divides_the_parameter_for_its_gradient(model):
    start_equal(model)
    pending = []
    hook_on_each(model, lambda grad: pending.append((dist.all_reduce(grad, async_op=True), grad)))

    def synchronize():
        for work, grad in pending:
            work.wait()
            grad /= dist.get_world_size()
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


@right
def hooks_of_a_class(model):
    class Averager:
        def __init__(self, model):
            self.works, self.n = [], dist.get_world_size()
            for value in [*model.parameters(), *model.buffers()]:
                dist.broadcast(value.detach(), src=0)
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self.start)

        def start(self, parameter):
            self.works.append((dist.all_reduce(parameter.grad, async_op=True), parameter.grad))

        def synchronize(self):
            while self.works:
                work, gradient = self.works.pop()
                work.wait()
                gradient.div_(self.n)

    return Averager(model).synchronize


@right
def divided_before_it_is_sent(model):
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            dist.broadcast(tensor, 0)
    n, pending = dist.get_world_size(), deque()

    def scale_and_send(parameter):
        parameter.grad.div_(n)
        pending.append(dist.all_reduce(parameter.grad, async_op=True))

    hook_on_each(model, scale_and_send)

    def synchronize():
        while pending:
            pending.popleft().wait()

    return synchronize


@right
def sums_beside_the_gradients(model):
    """A copy travels, and the average is copied into .grad."""
    start_equal(model)
    copies = OrderedDict()

    def hook(parameter):
        copy = parameter.grad.clone()
        copies[id(parameter)] = parameter, copy, dist.all_reduce(copy, async_op=True)

    hook_on_each(model, hook)

    def synchronize():
        for parameter, copy, work in list(copies.values()):
            work.wait()
            parameter.grad.copy_(copy / dist.get_world_size())
        copies.clear()

    return synchronize


@right
def waits_in_the_opposite_order(model):
    works = [dist.broadcast(t.data, 0, async_op=True) for t in model.parameters()]
    works += [dist.broadcast(t, 0, async_op=True) for t in model.buffers()]
    for work in works:
        work.wait()
    under_way = []

    def hook_for(parameter):
        def hook(_):
            under_way.append((parameter, dist.all_reduce(parameter.grad, async_op=True)))

        return hook

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(hook_for(parameter))

    def synchronize():
        for _, work in reversed(under_way):
            work.wait()
        torch._foreach_div_([p.grad for p, _ in under_way], dist.get_world_size())
        del under_way[:]

    return synchronize


@wrong(says="is not rank 0's (this is the rank's own buffer)")
def buffers_that_are_not_saved_stay(model):
    """state_dict() has no buffer that was registered with persistent=False."""
    for value in model.state_dict().values():
        dist.broadcast(value, 0)
    return averaged_by_hooks(model)


@wrong(says="what was all-reduced is not what is in .grad")
def reduces_a_copy(model):
    under_way = []
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)

    def start(parameter):
        copy = parameter.grad.clone()
        under_way.append((parameter, dist.all_reduce(copy, async_op=True)))

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(start)

    def synchronize():
        for parameter, work in under_way:
            work.wait()
            parameter.grad /= dist.get_world_size()
        under_way.clear()

    return synchronize
