"""Wrong answers to notebook 04: what people write, and what the check must say to each."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.zoo import wrong
from course_lib.techniques.tensor_parallel.axis import TensorAxis
from course_lib.techniques.tensor_parallel.regions import ReduceFromTensorParallel

# ---------------------------------------------------------------------------------------------
# What the wrong answers are made of
# ---------------------------------------------------------------------------------------------


def summed(x):
    total = x.detach().clone()
    dist.all_reduce(total)
    return total


class Sum(torch.autograd.Function):
    """Adds up over the ranks forward, backward, or both."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_too = backward
        return summed(x) if forward else x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return (summed(gradient) if ctx.backward_too else gradient), None, None


def f(x):
    return Sum.apply(x, False, True)


def g(x):
    return Sum.apply(x, True, False)


class InPlaceF(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient


class Tokens(torch.autograd.Function):
    """Gathers the tokens forward and adds them up backward (`gather`), or the other way round."""

    @staticmethod
    def forward(ctx, x, gather):
        ctx.gather = gather
        return gathered(x) if gather else scattered(x)

    @staticmethod
    def backward(ctx, gradient):
        return (scattered(gradient) if ctx.gather else gathered(gradient)), None


def gathered(x):
    whole = x.new_empty(len(x) * dist.get_world_size(), *x.shape[1:])
    dist.all_gather_into_tensor(whole, x.contiguous())
    return whole


def scattered(x):
    own = x.new_empty(len(x) // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(own, x.contiguous())
    return own


def mine(tensor, dim=0):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


# ---------------------------------------------------------------------------------------------
# column_linear
# ---------------------------------------------------------------------------------------------


@wrong("column_linear", says="return this rank's columns alone")
def all_columns_everywhere(x, weight, bias):
    return F.linear(x, weight, bias)


@wrong("column_linear", says="cut the weight before the product")
def cut_after_the_product(x, weight, bias):
    return mine(F.linear(x, weight, bias), -1)


@wrong("column_linear", says="right but for the bias: it has columns as well")
def no_bias(x, weight, bias):
    return x @ mine(weight).T


@wrong("column_linear", says="what rank 0 should return")
def always_the_first_columns(x, weight, bias):
    t = dist.get_world_size()
    return F.linear(x, weight.chunk(t)[0], bias.chunk(t)[0])


@wrong("column_linear", says="doing without it: needs no communication")
def columns_gathered(x, weight, bias):
    own = F.linear(x, mine(weight), mine(bias))
    whole = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(whole, own.detach())
    return torch.cat(whole, -1)


@wrong("column_linear", says="your function returned nothing")
def columns_not_returned(x, weight, bias):
    F.linear(x, mine(weight), mine(bias))


# ---------------------------------------------------------------------------------------------
# row_linear
# ---------------------------------------------------------------------------------------------


@wrong("row_linear", says="it was added on each of 2 ranks, and they were summed")
def bias_on_every_rank(x_part, weight, bias):
    return summed(F.linear(x_part, mine(weight, 1), bias))


@wrong("row_linear", says="this rank's own summand: g is missing")
def never_added_up(x_part, weight, bias):
    return F.linear(x_part, mine(weight, 1), bias)


@wrong("row_linear", says="the average of the summands")
def averaged_summands(x_part, weight, bias):
    return summed(x_part @ mine(weight, 1).T) / dist.get_world_size() + bias


@wrong("row_linear", says="add it once, after the sum")
def bias_forgotten(x_part, weight, bias):
    return summed(x_part @ mine(weight, 1).T)


@wrong("row_linear", says="your ranks ran all_gather")
def input_gathered(x_part, weight, bias):
    """Right numbers, but every rank does the whole product."""
    parts = [torch.empty_like(x_part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x_part.detach())
    return F.linear(torch.cat(parts, -1), weight, bias)


@wrong("row_linear", says="one all-reduce of the output adds the summands up")
def added_up_twice(x_part, weight, bias):
    total = summed(x_part @ mine(weight, 1).T)
    return summed(total) / dist.get_world_size() + bias


@wrong("row_linear", says="each rank multiplies its own rows only")
def with_zeros_around_it(x_part, weight, bias):
    t, rank, size = dist.get_world_size(), dist.get_rank(), x_part.shape[-1]
    whole = F.pad(x_part, (rank * size, (t - 1 - rank) * size))
    return summed(whole @ weight.T) + bias


# ---------------------------------------------------------------------------------------------
# megatron_f and megatron_g
# ---------------------------------------------------------------------------------------------


@wrong("megatron_f", says="summed in place, for the residual branch too")
def f_in_place(x):
    return InPlaceF.apply(x)


@wrong("megatron_f", says="that of this rank alone: backward, f adds up over all ranks")
def f_that_does_nothing(x):
    return x


@wrong("megatron_f", says="the sum over the ranks: forward, f does nothing")
def f_for_g(x):
    return Sum.apply(x, True, False)


@wrong("megatron_f", says="the average over the ranks")
def f_that_averages(x):
    y = x.view_as(x)
    y.register_hook(lambda gradient: summed(gradient) / dist.get_world_size())
    return y


@wrong("megatron_f", says="not what travels forward")
def f_that_sends_in_vain(x):
    summed(x)
    return f(x)


@wrong("megatron_f", says="f(x) is cut off from x")
def f_cut_off(x):
    return f(x).detach()


@wrong("megatron_g", says="exactly t = 2 times the reference")
def g_that_sums_both_ways(x):
    """What torch.distributed.nn.functional.all_reduce does."""
    return Sum.apply(x, True, True)


@wrong("megatron_g", says="there is none")
def g_cut_off(x):
    return summed(x)


@wrong("megatron_g", says="calls have no gradient")
def g_by_plain_dist(x):
    y = x * 1
    dist.all_reduce(y)
    return y


@wrong("megatron_g", says="this rank's own summand: forward, g adds up")
def f_as_g(x):
    return f(x)


@wrong("megatron_g", says="the average over the ranks, and their sum is asked")
def g_that_averages(x):
    return g(x) / dist.get_world_size()


@wrong("megatron_g", says="x was written to")
def g_in_place(x):
    with torch.no_grad():
        own = x.clone()
        dist.all_reduce(x.detach())
        others = x - own
    return x * 1 + others * 0


@wrong("megatron_g", says="calls course_lib.techniques")
def g_of_the_course(x):
    return ReduceFromTensorParallel.apply(x, TensorAxis.of(None))


# ---------------------------------------------------------------------------------------------
# parallel_mlp
# ---------------------------------------------------------------------------------------------


@wrong("parallel_mlp", says="the part that came through this rank's own columns: f is missing")
def mlp_without_f(x, up, up_bias, down, down_bias):
    return g(F.gelu(F.linear(x, up, up_bias)) @ down.T) + down_bias


@wrong("parallel_mlp", says="this rank's own summand: g is missing")
def mlp_without_g(x, up, up_bias, down, down_bias):
    return F.linear(F.gelu(F.linear(f(x), up, up_bias)), down, down_bias)


@wrong("parallel_mlp", says="it was added on each of 2 ranks and summed")
def mlp_with_many_biases(x, up, up_bias, down, down_bias):
    return g(F.linear(F.gelu(F.linear(f(x), up, up_bias)), down, down_bias))


@wrong("parallel_mlp", says="right but for the GeLU")
def mlp_without_gelu(x, up, up_bias, down, down_bias):
    return g(F.linear(f(x), up, up_bias) @ down.T) + down_bias


@wrong("parallel_mlp", says="the average of the summands")
def mlp_that_averages(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    return g(hidden @ down.T) / dist.get_world_size() + down_bias


@wrong("parallel_mlp", says="exactly t = 2 times the reference")
def mlp_with_sums_both_ways(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    return Sum.apply(hidden @ down.T, True, True) + down_bias


@wrong("parallel_mlp", says="one all-reduce of the output (g)")
def mlp_that_gathers_between(x, up, up_bias, down, down_bias):
    """The hidden layer is put together on every rank, as zeros and the own part."""
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    size, rank, t = len(up), dist.get_rank(), dist.get_world_size()
    whole = g(F.pad(hidden, (rank * size, (t - 1 - rank) * size)))
    return g(whole[..., rank * size : (rank + 1) * size] @ down.T) + down_bias


# ---------------------------------------------------------------------------------------------
# layer_traffic
# ---------------------------------------------------------------------------------------------


@wrong("layer_traffic", says="(t-1)/t is missing")
def as_if_sent_to_itself(b, s, h, t, element_size):
    return 8 * b * s * h * element_size


@wrong("layer_traffic", says="count forward and backward")
def forward_alone(b, s, h, t, element_size):
    return 4 * b * s * h * (t - 1) / t * element_size


@wrong("layer_traffic", says="these are elements")
def in_elements(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) / t


@wrong("layer_traffic", says="a ring sends 2(t-1)/t of its tensor")
def four_tensors(b, s, h, t, element_size):
    return 4 * b * s * h * element_size


@wrong("layer_traffic", says="asked is what each one sends")
def of_all_ranks(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) * element_size


@wrong("layer_traffic", says="not 1/t of it")
def of_a_part(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) / t**2 * element_size


# ---------------------------------------------------------------------------------------------
# parallel_attention
# ---------------------------------------------------------------------------------------------


def attend(x, query, key, value, heads, causal=True):
    q, k, v = ((x @ w.T).unflatten(-1, (heads, -1)).transpose(1, 2) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed.transpose(1, 2).flatten(-2)


def own_heads(heads):
    t = dist.get_world_size()
    if heads % t:
        raise ValueError(f"{heads} heads, {t} ranks")
    return heads // t


@wrong("parallel_attention", says="f is missing")
def attention_without_f(x, query, key, value, out, heads):
    return g(attend(x, query, key, value, own_heads(heads)) @ out.T)


@wrong("parallel_attention", says="g is missing")
def attention_without_g(x, query, key, value, out, heads):
    return attend(f(x), query, key, value, own_heads(heads)) @ out.T


@wrong("parallel_attention", says="of 4, each rank has 2")
def all_heads_on_every_rank(x, query, key, value, out, heads):
    own_heads(heads)
    return g(attend(f(x), query, key, value, heads) @ out.T)


@wrong("parallel_attention", says="make it causal")
def attention_to_the_future(x, query, key, value, out, heads):
    return g(attend(f(x), query, key, value, own_heads(heads), causal=False) @ out.T)


@wrong("parallel_attention", says="one all-reduce of the input's gradient (f)")
def f_three_times(x, query, key, value, out, heads):
    n = own_heads(heads)
    q, k, v = ((f(x) @ w.T).unflatten(-1, (n, -1)).transpose(1, 2) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return g(mixed.transpose(1, 2).flatten(-2) @ out.T)


@wrong("parallel_attention", says="raise a ValueError before anything is sent")
def heads_cut_in_two(x, query, key, value, out, heads):
    heads = max(1, heads // dist.get_world_size())
    return g(attend(f(x), query, key, value, heads) @ out.T)


@wrong("parallel_attention", says="names both numbers")
def a_silent_value_error(x, query, key, value, out, heads):
    if heads % dist.get_world_size():
        raise ValueError("impossible")
    return g(attend(f(x), query, key, value, own_heads(heads)) @ out.T)


# ---------------------------------------------------------------------------------------------
# vocab_embedding and vocab_cross_entropy
# ---------------------------------------------------------------------------------------------


def local_rows(tokens, size):
    local = tokens - dist.get_rank() * size
    return local.clamp(0, size - 1), (local < 0) | (local >= size)


@wrong("vocab_embedding", says="puts zeros where the symbol is not its own")
def no_zeros(tokens, rows):
    local, _ = local_rows(tokens, len(rows))
    return g(F.embedding(local, rows))


@wrong("vocab_embedding", says="modulo is no way round")
def modulo_rows(tokens, rows):
    return g(F.embedding(tokens % len(rows), rows))


@wrong("vocab_embedding", says="what this rank has rows for: g is missing")
def rows_not_added(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return F.embedding(local, rows).masked_fill(other.unsqueeze(-1), 0)


@wrong("vocab_embedding", says="exactly t = 2 times the reference")
def rows_added_both_ways(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return Sum.apply(F.embedding(local, rows).masked_fill(other.unsqueeze(-1), 0), True, True)


@wrong("vocab_embedding", says="your ranks ran all_gather")
def whole_table_gathered(tokens, rows):
    return F.embedding(tokens, Tokens.apply(rows, True))


@wrong("vocab_embedding", says="one all-reduce puts the rows of all ranks together")
def whole_table_added_up(tokens, rows):
    rank, t, size = dist.get_rank(), dist.get_world_size(), len(rows)
    return F.embedding(tokens, g(F.pad(rows, (0, 0, rank * size, (t - 1 - rank) * size))))


def loss_parts(logits, targets, largest):
    local, other = local_rows(targets, logits.shape[-1])
    z = logits - largest.unsqueeze(-1)
    own = z.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(other, 0)
    return z.exp().sum(-1), own


def largest_of_all(logits):
    largest = logits.detach().amax(-1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


@wrong("vocab_cross_entropy", says="exp of a large logit overflows")
def without_the_largest(logits, targets):
    total, own = loss_parts(logits, targets, torch.zeros_like(logits[..., 0]))
    return (g(total).log() - g(own)).mean()


@wrong("vocab_cross_entropy", says="that of this rank's symbols alone")
def own_symbols_alone(logits, targets):
    total, own = loss_parts(logits, targets, torch.zeros_like(logits[..., 0]))
    return (total.log() - own).mean()


@wrong("vocab_cross_entropy", says="the sum over the tokens, and the mean is asked")
def summed_over_tokens(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (g(total).log() - g(own)).sum()


@wrong("vocab_cross_entropy", says="logits of a token stay where they are")
def logits_gathered(logits, targets):
    """Every rank puts its logits between zeros, and the sum has them all."""
    rank, t, size = dist.get_rank(), dist.get_world_size(), logits.shape[-1]
    whole = g(F.pad(logits, (rank * size, (t - 1 - rank) * size)))
    return F.cross_entropy(whole.flatten(0, -2), targets.flatten())


@wrong("vocab_cross_entropy", says="exactly t = 2 times the reference")
def sums_both_ways(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (Sum.apply(total, True, True).log() - Sum.apply(own, True, True)).mean()


@wrong("vocab_cross_entropy", says="the gradient of logits is not")
def gradient_of_one_term(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (summed(total).log() - g(own)).mean()


# ---------------------------------------------------------------------------------------------
# sequence_parallel_mlp
# ---------------------------------------------------------------------------------------------


def normed(x, gain):
    return F.layer_norm(x, x.shape[-1:], gain)


@wrong("sequence_parallel_mlp", says="normalise this rank's tokens, then gather")
def norm_of_all_tokens(x, gain, up, down):
    whole = F.layer_norm(Tokens.apply(x, True), x.shape[-1:]) * f(gain)
    return x + Tokens.apply(F.gelu(whole @ up.T) @ down.T, False)


@wrong("sequence_parallel_mlp", says="that of this rank's tokens alone: add it up over the ranks")
def gain_left_alone(x, gain, up, down):
    hidden = F.gelu(Tokens.apply(normed(x, gain), True) @ up.T)
    return x + Tokens.apply(hidden @ down.T, False)


@wrong("sequence_parallel_mlp", says="reduce-scatter in place of the all-reduce")
def all_tokens_come_out(x, gain, up, down):
    hidden = F.gelu(Tokens.apply(normed(x, f(gain)), True) @ up.T)
    return Tokens.apply(x, True) + g(hidden @ down.T)


@wrong("sequence_parallel_mlp", says="one reduce-scatter after the rows")
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


@wrong("sequence_parallel_mlp", says="the gradient of")
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


@wrong("sequence_parallel_mlp", says="has to call")
def only_rank_0_gathers(x, gain, up, down):
    if dist.get_rank() == 0:
        return x + F.gelu(Tokens.apply(normed(x, gain), True) @ up.T) @ down.T
    return x
