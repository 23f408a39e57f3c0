"""Known answers to exchange_with_gradient."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable

from course_lib.checks.known_answers import right, wrong


def moved(rows, sent, received):
    output = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(output, rows.contiguous(), received, sent)
    return output


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sizes = sent, received
        return moved(rows, sent, received)

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.sizes
        return moved(gradient, received, sent), None, None


@right
def exchange_with_gradient(rows, sent, received):
    return Exchange.apply(rows, sent, received)


@right
def by_torch(rows, sent, received):
    output = torch.empty(sum(received), rows.shape[1], dtype=rows.dtype)
    return differentiable.all_to_all_single(output, rows, received, sent)


@right
def with_a_class_inside(rows, sent, received):
    class There(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.zeros(sum(received), x.size(1), dtype=x.dtype)
            dist.all_to_all_single(y, x, received, sent, async_op=True).wait()
            return y

        @staticmethod
        def backward(ctx, gradient):
            back = torch.zeros(sum(sent), gradient.size(1), dtype=gradient.dtype)
            dist.all_to_all_single(back, gradient.contiguous(), sent, received)
            return back

    return There.apply(rows)


@right
def by_a_hook(rows, sent, received):
    """A detached result with the graph tied to it by hand."""
    output = moved(rows.detach(), sent, received)
    if not rows.requires_grad:
        return output
    arrived = output.clone().requires_grad_()
    return _Tied.apply(rows, arrived.detach(), (sent, received))


@right
def its_own_backward(rows, sent, received):
    """The backward is the same exchange, differentiable again, with the sizes swapped."""

    class There(torch.autograd.Function):
        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def forward(x):
            return moved(x, sent, received)

        @staticmethod
        def backward(ctx, gradient):
            return its_own_backward(gradient, received, sent)

    return There.apply(rows)


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, output, sizes):
        ctx.sizes = sizes
        return output.clone()

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.sizes
        return moved(gradient, received, sent), None, None


@wrong(says="there is none")
def plain(rows, sent, received):
    return moved(rows, sent, received)


@wrong(says="there is none. A plain dist collective is not part of autograd's graph")
def detached(rows, sent, received):
    return moved(rows.detach(), sent, received)


class SameSizes(Exchange):
    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.sizes
        return moved(gradient, sent, received), None, None


@wrong(says="Split sizes doesn't match")
def backward_with_the_same_sizes(rows, sent, received):
    return SameSizes.apply(rows, sent, received)


class Averaged(Exchange):
    @staticmethod
    def backward(ctx, gradient):
        return Exchange.backward(ctx, gradient)[0] / dist.get_world_size(), None, None


@wrong(says="exactly half the reference")
def averages(rows, sent, received):
    return Averaged.apply(rows, sent, received)


class Summed(Exchange):
    @staticmethod
    def backward(ctx, gradient):
        return Exchange.backward(ctx, gradient)[0] * dist.get_world_size(), None, None


@wrong(says="nothing is added up here")
def adds_up(rows, sent, received):
    return Summed.apply(rows, sent, received)


class Remembering:
    sizes = None


class Forgetful(torch.autograd.Function):
    """The sizes of the latest call, for every backward."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        Remembering.sizes = sent, received
        return moved(rows, sent, received)

    @staticmethod
    def backward(ctx, gradient):
        sent, received = Remembering.sizes
        return moved(gradient, received, sent), None, None


@wrong(says="Split sizes doesn't match")
def sizes_of_the_latest_call(rows, sent, received):
    return Forgetful.apply(rows, sent, received)


class Twice(Exchange):
    @staticmethod
    def backward(ctx, gradient):
        Exchange.backward(ctx, gradient)
        return Exchange.backward(ctx, gradient)


@wrong(says="but not what travels backward")
def sends_twice_backward(rows, sent, received):
    return Twice.apply(rows, sent, received)


@wrong(says="from the last rank to the first")
def backwards(rows, sent, received):
    parts = Exchange.apply(rows, sent, received).split(received)
    return torch.cat(parts[::-1])
