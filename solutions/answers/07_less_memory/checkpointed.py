"""Known answers to checkpointed."""

import functools
import itertools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

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
            ctx.segment, ctx.random = segment, torch.get_rng_state()
            ctx.save_for_backward(x)
            return segment(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with torch.enable_grad(), torch.random.fork_rng():
                torch.set_rng_state(ctx.random)
                output = ctx.segment(x)
            output.backward(gradient)
            return x.grad, None

    if not x.requires_grad:
        x = x.detach().requires_grad_()
    for start in range(0, len(layers), k):
        x = Segment.apply(x, nn.Sequential(*layers[start : start + k]))
    return x


def _through(segment, h):
    for layer in segment:
        h = layer(h)
    return h


@right
def checkpointed_from_the_end(layers, x, k):
    """Functions bound by partial, cut with itertools."""
    rest = iter(layers)
    while segment := list(itertools.islice(rest, k)):
        x = checkpoint(functools.partial(_through, segment), x, use_reentrant=False)
    return x


@right
def checkpointed_by_default_arguments(layers, x, k):
    for start in range(0, len(layers), k):

        def run(h, segment=tuple(layers[start : start + k])):
            return functools.reduce(lambda value, layer: layer(value), segment, h)

        x = checkpoint(run, x, use_reentrant=False, determinism_check="none")
    return x


@right
def checkpointed_recursively(layers, x, k):
    """The last segment is not checkpointed, as its backward comes at once."""
    if len(layers) <= k:
        return nn.Sequential(*layers)(x)
    head = checkpoint(nn.Sequential(*layers[:k]), x, use_reentrant=False)
    return checkpointed_recursively(layers[k:], head, k)


@wrong(says="as checkpoint_sequential(layers, k, x) makes them")
def k_segments(layers, x, k):
    return checkpoint_sequential(layers, k, x, use_reentrant=False)


@wrong(says="with use_reentrant=True, checkpoint looks at x only")
def reentrant(layers, x, k):
    for start in range(0, len(layers), k):
        x = checkpoint(nn.Sequential(*layers[start : start + k]), x, use_reentrant=True)
    return x


@wrong(says="drew another dropout mask")
def another_dropout(layers, x, k):
    for start in range(0, len(layers), k):
        segment = nn.Sequential(*layers[start : start + k])
        x = checkpoint(segment, x, use_reentrant=False, preserve_rng_state=False)
    return x


@wrong(says="every segment ran the layers of the last one")
def late_binding(layers, x, k):
    for start in range(0, len(layers), k):
        segment = layers[start : start + k]
        x = checkpoint(lambda h: nn.Sequential(*segment)(h), x, use_reentrant=False)
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


@wrong(says="the last segment is shorter than k")
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


@wrong(says="over and over: a function that is made in a loop looks its names up when it runs")
def a_list_of_late_functions(layers, x, k):
    segments = []
    for start in range(0, len(layers), k):
        segments.append(lambda h: nn.Sequential(*layers[start : start + k])(h))  # noqa: PERF401
    for segment in segments:
        x = checkpoint(segment, x, use_reentrant=False)
    return x


@wrong(says="bind them, as nn.Sequential(*layers) or a default argument does")
def a_start_that_runs_on(layers, x, k):
    """In backward `start` is behind the last layer, so no layer runs at all."""
    start = 0
    while start < len(layers):

        def run(h):
            for layer in layers[start : start + k]:
                h = layer(h)
            return h

        x = checkpoint(run, x, use_reentrant=False)
        start += k
    return x


@wrong(says="the mode (train or eval) of `layers[0]`")
def without_dropout(layers, x, k):
    for start in range(0, len(layers), k):
        segment = nn.Sequential(*layers[start : start + k]).eval()
        x = checkpoint(segment, x, use_reentrant=False)
    return x


@wrong(says="layers ran more often than twice")
def checkpoints_in_checkpoints(layers, x, k):
    for start in range(0, len(layers), k):
        each = [functools.partial(checkpoint, la, use_reentrant=False) for la in layers]
        segment = each[start : start + k]
        x = checkpoint(
            lambda h, segment=segment: functools.reduce(lambda y, run: run(y), segment, h),
            x,
            use_reentrant=False,
        )
    return x
