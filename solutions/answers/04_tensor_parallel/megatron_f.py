"""Known answers to megatron_f."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import Sum, SumOfAll, f, summed


@right
def megatron_f(x):
    return SumOfAll.apply(x, False, True)


@right
def f_by_a_hook(x):
    """A hook returns the gradient that goes on."""

    def total(gradient):
        summed = gradient.clone()
        dist.all_reduce(summed)
        return summed

    y = x.view_as(x)
    y.register_hook(total)
    return y


class InPlaceF(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient


# megatron_f and megatron_g
@wrong(says="summed in place, for the residual branch too")
def f_in_place(x):
    return InPlaceF.apply(x)


@wrong(says="only that of this rank: backward, f adds up over all ranks")
def f_that_does_nothing(x):
    return x


@wrong(says="the sum over the ranks: forward, f does nothing")
def f_for_g(x):
    return Sum.apply(x, True, False)


@wrong(says="the average over the ranks")
def f_that_averages(x):
    y = x.view_as(x)
    y.register_hook(lambda gradient: summed(gradient) / dist.get_world_size())
    return y


@wrong(says="not what travels forward")
def f_that_sends_in_vain(x):
    summed(x)
    return f(x)


@wrong(says="f(x) is cut off from x")
def f_cut_off(x):
    return f(x).detach()


@right
def f_that_copies_and_waits(x):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            total = torch.empty_like(gradient).copy_(gradient)
            dist.all_reduce(total, async_op=True).wait()
            return total

    return Copy.apply(x)


@right
def f_in_the_new_style(x):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.view_as(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            return summed(gradient)

    return Copy.apply(x)


@right
def f_on_a_product_with_one(x):
    y = 1 * x
    y.register_hook(summed)
    return y


@wrong(says="or its backward returns nothing")
def f_whose_backward_returns_nothing(x):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            summed(gradient)

    return Copy.apply(x)


@wrong(says="Your ranks failed")
def f_with_one_buffer_for_all_calls(x):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            _BUFFER[:] = [torch.empty_like(x)]
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            (total,) = _BUFFER
            total.copy_(gradient)
            dist.all_reduce(total)
            return total

    return Copy.apply(x)


_BUFFER = []


@wrong(says="summed in place, for the residual branch too")
def f_by_a_hook_on_x_itself(x):
    x.register_hook(summed)
    return x
