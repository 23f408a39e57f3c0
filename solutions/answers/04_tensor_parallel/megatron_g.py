"""Known answers to megatron_g."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques.tensor_parallel.axis import TensorAxis
from course_lib.techniques.tensor_parallel.f_and_g import ReduceFromTensorParallel

from ._common import Sum, SumOfAll, f, g, summed


@right
def megatron_g(x):
    return SumOfAll.apply(x, True, False)


@right
def g_without_a_class(x):
    """The value of the sum, and the gradient of x itself."""
    with torch.no_grad():
        others = x.clone()
        dist.all_reduce(others)
        others -= x
    return x + others


@wrong(says="exactly t = 2 times the reference")
def g_that_sums_both_ways(x):
    """What torch.distributed.nn.functional.all_reduce does."""
    return Sum.apply(x, True, True)


@wrong(says="there is none")
def g_cut_off(x):
    return summed(x)


@wrong(says="calls have no gradient")
def g_by_plain_dist(x):
    y = x * 1
    dist.all_reduce(y)
    return y


@wrong(says="this rank's own summand: forward, g adds up")
def f_as_g(x):
    return f(x)


@wrong(says="the average over the ranks, and their sum is expected")
def g_that_averages(x):
    return g(x) / dist.get_world_size()


@wrong(says="x was written to")
def g_in_place(x):
    with torch.no_grad():
        own = x.clone()
        dist.all_reduce(x.detach())
        others = x - own
    return x * 1 + others * 0


@wrong(says="calls course_lib.techniques")
def g_of_the_course(x):
    return ReduceFromTensorParallel.apply(x, TensorAxis.of(None))


@right
def g_by_a_difference(x):
    total = summed(x)
    return total + (x - x.detach())


@right
def g_in_the_new_style(x):
    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(x):
            total = torch.empty_like(x).copy_(x)
            dist.all_reduce(total)
            return total

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            return gradient.clone()

    return Reduce.apply(x)


@right
def g_that_waits(x):
    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            total = x.detach().clone()
            work = dist.all_reduce(total, async_op=True)
            work.wait()
            return total

        @staticmethod
        def backward(ctx, *gradients):
            return gradients[0]

    return Reduce.apply(x)


@wrong(says="its backward hands on the gradient as it came")
def g_whose_backward_returns_nothing(x):
    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return summed(x)

        @staticmethod
        def backward(ctx, gradient):
            pass

    return Reduce.apply(x)


@wrong(says="the average over the ranks: the gradient passes as it is")
def g_that_divides_backward(x):
    y = g(x)
    y.register_hook(lambda gradient: gradient / dist.get_world_size())
    return y
