"""Known answers to zero3_step."""

import itertools

import torch

from course_lib.checks.known_answers import right, wrong


@right
def zero3_step(units, x, y, loss):
    """Like the pipeline: the graph is cut between layers."""
    kept = []
    coming = units[0].gather()
    for unit, following in zip(units, [*units[1:], None], strict=True):
        coming.wait()
        coming = following and following.gather()
        x = x.detach().requires_grad_(bool(kept))
        kept.append((x, unit.module(x)))
        x = kept[-1][1]
        unit.release()
    x = x.detach().requires_grad_()
    value = loss(x, y)
    value.backward()
    coming = units[-1].gather()
    for unit, following in zip(units[::-1], [*units[-2::-1], None], strict=True):
        coming.wait()
        coming = following and following.gather()
        gradient = x.grad
        x, output = kept.pop()
        output.backward(gradient)
        unit.release()
        unit.reduce()
    return value.detach()


@right
def zero3_step_by_hooks(units, x, y, loss):
    """One graph, with hooks on the layers' outputs, as FSDP does; the last layer just stays."""
    last, coming = len(units) - 1, {}

    def before_backward(i):
        def hook(_):
            if i + 1 <= last:
                units[i + 1].release()
                units[i + 1].reduce()
            if i < last:
                coming.pop(i).wait()
            if i > 0:
                coming[i - 1] = units[i - 1].gather()

        return hook

    coming[0] = units[0].gather()
    for i, unit in enumerate(units):
        coming.pop(i).wait()
        if i < last:
            coming[i + 1] = units[i + 1].gather()
        x = unit.module(x)
        x.register_hook(before_backward(i))
        if i < last:
            unit.release()
    value = loss(x, y)
    value.backward()
    units[0].release()
    units[0].reduce()
    return value.detach()


def layer_by_layer(
    units,
    x,
    y,
    loss,
    ahead=True,
    early=False,
    release=lambda unit: unit.release(),
    back=lambda unit: unit.release(),
    reduce=lambda unit: unit.reduce(),
    result=lambda value: value.detach(),
):
    """ahead: prefetch. early: and wait for it at once."""
    coming, kept, h = {}, [], x

    def fetch(i):
        if 0 <= i < len(units) and i not in coming:
            coming[i] = units[i].gather()
            return coming[i]
        return None

    def arrive(i, following):
        fetch(i)
        work = coming.pop(i)
        if not (early and i in arrived):
            work.wait()
        if ahead and (work := fetch(following)) and early:
            work.wait()
            arrived.add(following)

    arrived = set()
    for i, unit in enumerate(units):
        arrive(i, i + 1)
        h = h.detach().requires_grad_(i > 0)
        output = unit.module(h)
        kept.append((h, output))
        h = output
        release(unit)
    top = h.detach().requires_grad_()
    value = loss(top, y)
    value.backward()
    gradient = top.grad
    arrived.clear()
    for i in reversed(range(len(units))):
        arrive(i, i - 1)
        h, output = kept.pop()
        output.backward(gradient)
        gradient = h.grad
        back(units[i])
        reduce(units[i])
    return result(value)


@wrong(says="the gather of layer 1 had not begun")
def no_prefetch(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, ahead=False)


@wrong(says="so nothing overlaps")
def prefetch_that_waits(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, early=True)


@wrong(says="more than two layers are gathered at once")
def everything_first(units, x, y, loss):
    for work in [unit.gather() for unit in units]:
        work.wait()
    h = x
    for unit in units:
        h = unit.module(h)
    value = loss(h, y)
    value.backward()
    for unit in units:
        unit.release()
        unit.reduce()
    return value.detach()


@wrong(says="was gathered while it was there already")
def last_layer_stays_and_comes_again(units, x, y, loss):
    def release(unit):
        if unit is not units[-1]:
            unit.release()

    return layer_by_layer(units, x, y, loss, release=release)


@wrong(says="call unit.reduce() after its backward")
def gradients_stay(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, reduce=lambda unit: None)


@wrong(says="at the end a layer is still gathered")
def first_layer_stays(units, x, y, loss):
    def back(unit):
        if unit is not units[0]:
            unit.release()

    return layer_by_layer(units, x, y, loss, back=back)


@wrong(says="return this rank's loss")
def nothing_returned(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, result=lambda value: None)


@wrong(says="backward() was given None for a layer's gradient")
def inputs_that_need_no_gradient(units, x, y, loss):
    kept, h = [], x
    for unit in units:
        unit.gather().wait()
        h = h.detach()
        kept.append((h, unit.module(h)))
        h = kept[-1][1]
        unit.release()
    top = h.detach().requires_grad_()
    value = loss(top, y)
    value.backward()
    gradient = top.grad
    for unit in reversed(units):
        unit.gather().wait()
        h, output = kept.pop()
        output.backward(gradient)
        gradient = h.grad
        unit.release()
        unit.reduce()
    return value.detach()


@wrong(says="Cut the graph between layers")
def graph_not_cut(units, x, y, loss):
    outputs, coming = [], units[0].gather()
    for i, unit in enumerate(units):
        coming.wait()
        if i + 1 < len(units):
            coming = units[i + 1].gather()
        x = unit.module(x)
        outputs.append(x)
        unit.release()
    value = loss(x, y)
    coming = units[-1].gather()
    for i in reversed(range(len(units))):
        coming.wait()
        if i:
            coming = units[i - 1].gather()
        if i == len(units) - 1:
            value.backward()
        units[i].release()
        units[i].reduce()
    return value.detach()


@wrong(says="its parameters are not there")
def nobody_waits(units, x, y, loss):
    for unit in units:
        unit.gather()
        x = unit.module(x)
        unit.release()
    return loss(x, y).detach()


@wrong(says="whole gradients of two layers are held at once")
def reduced_at_the_end(units, x, y, loss):
    value = layer_by_layer(units, x, y, loss, reduce=lambda unit: None)
    for unit in units:
        unit.reduce()
    return value


@right
def zero3_step_with_two_loops_of_numbers(units, x, y, loss):
    inputs, outputs, n = [], [], len(units)
    handles = {0: units[0].gather()}
    for i in range(n):
        handles.pop(i).wait()
        if i < n - 1:
            handles[i + 1] = units[i + 1].gather()
        inputs.append(x if i == 0 else outputs[-1].detach().requires_grad_(True))
        outputs.append(units[i].module(inputs[i]))
        if i < n - 1:
            units[i].release()
    top = outputs[-1].detach().clone().requires_grad_()
    value = loss(top, y)
    (gradient,) = torch.autograd.grad(value, top)
    for i in range(n - 1, -1, -1):
        if i in handles:
            handles.pop(i).wait()
        if i > 0:
            handles[i - 1] = units[i - 1].gather()
        torch.autograd.backward(outputs[i], gradient)
        gradient = inputs[i].grad
        units[i].release()
        units[i].reduce()
    return value.detach()


@right
def zero3_step_by_generators(units, x, y, loss):
    """Whoever takes the next unit has it gathered, and the one after it on its way."""

    def fetched(units):
        coming = units[0].gather()
        for unit, following in itertools.zip_longest(units, units[1:]):
            coming.wait()
            coming = following.gather() if following else None
            yield unit

    passes, h = [], x
    for unit in fetched(units):
        into = h.detach()
        into.requires_grad = bool(passes)
        h = unit.module(into)
        passes.append((into, h))
        unit.release()
    end = h.detach().requires_grad_()
    value = loss(end, y)
    value.backward()
    for unit in fetched(units[::-1]):
        into, out = passes.pop()
        out.backward(end.grad)
        end = into
        unit.reduce()
        unit.release()
    return value.detach().clone()


@right
def zero3_step_by_recursion(units, x, y, loss):
    def go(i, h, handle):
        handle.wait()
        following = units[i + 1].gather() if i + 1 < len(units) else None
        h = h.detach().requires_grad_(i > 0)
        output = units[i].module(h)
        units[i].release()
        if following is None:
            end = output.detach().requires_grad_()
            value = loss(end, y)
            value.backward()
            gradient, coming = end.grad, units[i].gather()
        else:
            value, gradient, coming = go(i + 1, output, following)
        coming.wait()
        before = units[i - 1].gather() if i > 0 else None
        output.backward(gradient)
        units[i].release()
        units[i].reduce()
        return value.detach(), h.grad, before

    return go(0, x, units[0].gather())[0]


@wrong(says="ran forward 2 times where 1 will do")
def every_layer_once_to_look_at_it(units, x, y, loss):
    for unit in units:
        module = unit.module
        unit.module = _Twice(module)
    try:
        return zero3_step(units, x, y, loss)
    finally:
        for unit in units:
            unit.module = unit.module.inner


class _Twice:
    def __init__(self, inner):
        self.inner = inner

    def __call__(self, h):
        with torch.no_grad():
            self.inner(h)
        return self.inner(h)


@wrong(says="If the loss's backward() went on into it by itself")
def graph_not_cut_before_the_loss(units, x, y, loss):
    h, coming = x, units[0].gather()
    for i, unit in enumerate(units):
        coming.wait()
        if i + 1 < len(units):
            coming = units[i + 1].gather()
        h = unit.module(h.detach().requires_grad_(i > 0))
        unit.release()
    value = loss(h, y)
    value.backward()
    return value.detach()


@wrong(says="still requires grad, and keeps the graph of the whole pass alive")
def a_loss_with_its_graph(units, x, y, loss):
    kept = []

    def noted(output, target):
        kept.append(loss(output, target))
        return kept[-1]

    zero3_step(units, x, y, noted)
    return kept[-1]
