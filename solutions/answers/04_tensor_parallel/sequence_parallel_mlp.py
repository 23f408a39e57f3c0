"""Known answers to sequence_parallel_mlp."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import Tokens, f, g, gathered, mine, summed
from .megatron_f import f_by_a_hook, megatron_f


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        whole = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(whole, x)
        return torch.cat(whole)

    @staticmethod
    def backward(ctx, gradient):
        parts = [part.contiguous() for part in gradient.chunk(dist.get_world_size())]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return own


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        own = x.new_empty(len(x) // dist.get_world_size(), *x.shape[1:])
        dist.reduce_scatter_tensor(own, x.contiguous())
        return own

    @staticmethod
    def backward(ctx, gradient):
        whole = gradient.new_empty(len(gradient) * dist.get_world_size(), *gradient.shape[1:])
        dist.all_gather_into_tensor(whole, gradient.contiguous())
        return whole


@right
def sequence_parallel_mlp(x, gain, up, down):
    normed = F.layer_norm(x, x.shape[-1:]) * megatron_f(gain)
    return x + _Scatter.apply(F.gelu(_Gather.apply(normed) @ up.T) @ down.T)


class _GatheredColumns(torch.autograd.Function):
    """x up^T of all tokens, keeping this rank's tokens only: backward gathers them again."""

    @staticmethod
    def forward(ctx, x, up):
        ctx.save_for_backward(x, up)
        return _Gather.forward(None, x) @ up.T

    @staticmethod
    def backward(ctx, gradient):
        x, up = ctx.saved_tensors
        return _Gather.backward(None, gradient @ up), gradient.T @ _Gather.forward(None, x)


@right
def gathered_twice(x, gain, up, down):
    normed = F.layer_norm(x, x.shape[-1:], f_by_a_hook(gain))
    return x + _Scatter.apply(F.gelu(_GatheredColumns.apply(normed, up)) @ down.T)


@right
def functional_collectives(x, gain, up, down):
    world = dist.group.WORLD
    tokens = normed(x, f(gain)).contiguous()
    whole = functional.all_gather_tensor_autograd(tokens, 0, world)
    terms = (F.gelu(whole @ up.T) @ down.T).contiguous()
    return x + functional.reduce_scatter_tensor_autograd(terms, "sum", 0, world)


def normed(x, gain):
    return F.layer_norm(x, x.shape[-1:], gain)


@wrong(says="normalise this rank's tokens, then gather")
def norm_of_all_tokens(x, gain, up, down):
    whole = F.layer_norm(Tokens.apply(x, True), x.shape[-1:]) * f(gain)
    return x + Tokens.apply(F.gelu(whole @ up.T) @ down.T, False)


@wrong(says="only that of this rank's tokens: add it up over the ranks")
def gain_left_alone(x, gain, up, down):
    hidden = F.gelu(Tokens.apply(normed(x, gain), True) @ up.T)
    return x + Tokens.apply(hidden @ down.T, False)


@wrong(says="reduce-scatter instead of the")
def all_tokens_come_out(x, gain, up, down):
    hidden = F.gelu(Tokens.apply(normed(x, f(gain)), True) @ up.T)
    return Tokens.apply(x, True) + g(hidden @ down.T)


@wrong(says="one reduce-scatter after the rows")
def all_reduced_and_cut(x, gain, up, down):
    """Right numbers and twice the bytes."""
    hidden = F.gelu(Tokens.apply(normed(x, f(gain)), True) @ up.T)
    return x + Cut.apply(hidden @ down.T)


class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return mine(summed(y)).clone()

    @staticmethod
    def backward(ctx, gradient):
        return gathered(gradient)


@wrong(says="what only this rank's columns have to say")
def own_part_of_the_gradient(x, gain, up, down):
    """Backward of the gather takes the own tokens, as if all ranks did the same with them."""
    hidden = F.gelu(GatherAndForget.apply(normed(x, f(gain))) @ up.T)
    return x + Tokens.apply(hidden @ down.T, False)


class GatherAndForget(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gathered(x)

    @staticmethod
    def backward(ctx, gradient):
        return mine(gradient)


@wrong(says="has to call")
def only_rank_0_gathers(x, gain, up, down):
    if dist.get_rank() == 0:
        return x + F.gelu(Tokens.apply(normed(x, gain), True) @ up.T) @ down.T
    return x


@right
def by_functional_collectives(x, gain, up, down):
    import torch.distributed._functional_collectives as functional

    whole = functional.all_gather_tensor_autograd(normed(x, f(gain)), 0, dist.group.WORLD)
    y = F.gelu(whole @ up.T) @ down.T
    return x + functional.reduce_scatter_tensor_autograd(y, "sum", 0, dist.group.WORLD)


@right
def by_modules(x, gain, up, down):
    own = F.layer_norm(x, (x.shape[1],), weight=f(gain), bias=None, eps=1e-5)
    hidden = torch.nn.GELU()(torch.mm(_Gather.apply(own), up.t()))
    return torch.add(Tokens.apply(torch.mm(hidden, down.t()), False), x)


@right
def norm_by_hand(x, gain, up, down):
    centred = x - x.mean(-1, keepdim=True)
    own = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * f(gain)
    return _Scatter.apply(F.linear(F.gelu(F.linear(Tokens.apply(own, True), up)), down)) + x


@wrong(says="more hooks than before the call")
def a_hook_on_the_gain(x, gain, up, down):
    gain.register_hook(summed)
    return x + Tokens.apply(F.gelu(Tokens.apply(normed(x, gain), True) @ up.T) @ down.T, False)


@wrong(says="more hooks than before the call")
def a_hook_behind_the_gains_gradient(x, gain, up, down):
    gain.register_post_accumulate_grad_hook(lambda gain: dist.all_reduce(gain.grad))
    return x + Tokens.apply(F.gelu(Tokens.apply(normed(x, gain), True) @ up.T) @ down.T, False)


@wrong(says="without the residual sum: x + ... is expected")
def residual_forgotten(x, gain, up, down):
    return Tokens.apply(F.gelu(Tokens.apply(normed(x, f(gain)), True) @ up.T) @ down.T, False)


@wrong(says="what comes out without the gain")
def gain_forgotten(x, gain, up, down):
    return x + Tokens.apply(F.gelu(Tokens.apply(normed(x, None), True) @ up.T) @ down.T, False)


@wrong(says="so x takes no f")
def f_as_well(x, gain, up, down):
    whole = f(Tokens.apply(normed(x, f(gain)), True))
    return x + Tokens.apply(F.gelu(whole @ up.T) @ down.T, False)
