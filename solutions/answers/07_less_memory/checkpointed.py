"""Known answers to checkpointed."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_lib.checks.known_answers import right, wrong


@right
def checkpointed(layers, x, k):
    for start in range(0, len(layers), k):
        x = checkpoint(nn.Sequential(*layers[start : start + k]), x, use_reentrant=False)
    return x


@right
def checkpointed_by_hand(layers, x, k):
    class Segment(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, segment):
            ctx.segment = segment
            ctx.save_for_backward(x)
            return segment(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                output = ctx.segment(x)
            output.backward(gradient)
            return x.grad, None

    for start in range(0, len(layers), k):
        x = Segment.apply(x, nn.Sequential(*layers[start : start + k]))
    return x


@wrong(says="too many activations are kept")
def nothing_checkpointed(layers, x, k):
    for layer in layers:
        x = layer(x)
    return x


@wrong(says="too many activations are kept")
def every_layer_by_itself(layers, x, k):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    return x


@wrong(says="fewer activations are kept than one for each segment")
def all_layers_as_one(layers, x, k):
    return checkpoint(nn.Sequential(*layers), x, use_reentrant=False)


@wrong(says="the values differ")
def the_rest_forgotten(layers, x, k):
    for start in range(0, len(layers) - k + 1, k):
        x = checkpoint(nn.Sequential(*layers[start : start + k]), x, use_reentrant=False)
    return x


@wrong(says="does not require grad")
def no_graph_at_all(layers, x, k):
    with torch.no_grad():
        return nn.Sequential(*layers)(x)


@wrong(says="got no gradient: backward must run its segment again")
def variable_of_the_loop(layers, x, k):
    """The function sees `segment` as it is when backward runs it again: the last one."""
    for start in range(0, len(layers), k):
        segment = nn.Sequential(*layers[start : start + k])
        x = Late.apply(x, lambda h: segment(h))
    return x


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, segment):
        ctx.segment = segment
        ctx.save_for_backward(x)
        return segment(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.segment(x).backward(gradient)
        return x.grad, None


@wrong(says="layers ran more often than twice")
def from_the_very_beginning(layers, x, k):
    """Keeps only the input, and goes through all segments before it for each of them."""
    first = x

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, start):
            ctx.start = start
            ctx.save_for_backward(x)
            return nn.Sequential(*layers[start : start + k])(x)

        @staticmethod
        def backward(ctx, gradient):
            with torch.no_grad():
                nn.Sequential(*layers[: ctx.start])(first)
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                nn.Sequential(*layers[ctx.start : ctx.start + k])(x).backward(gradient)
            return x.grad, None

    for start in range(0, len(layers), k):
        x = Again.apply(x, start)
    return x
