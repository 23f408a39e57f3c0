# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 · Tensor parallelism
#
# **After this lesson you can**
#
# - split a linear layer by columns or by rows, and say which of the two sends what, and when;
# - write f and g, the two operators that carry gradients between ranks, and build an MLP,
#   attention and an embedding from them, with the gradients of one process;
# - count the bytes that a layer sends, before you run it;
# - explain why tensor parallelism stays inside one machine.
#
# If you go on with the optional part, you can also
#
# - compute a cross-entropy whose logits no rank has all of;
# - keep 1/t of the activations between the layers (sequence parallelism), and say what that costs.
#
# **You need** all-reduce from [lesson 02](02_ring_all_reduce.ipynb). **It takes** 85 minutes to the
# end of section 7, without exercise 9, and 5 more for section 10. All else is optional: 20 minutes
# for that exercise, 25 for the assignment; sections 8, 9 and 11 are there to run and read. The
# machine needs a minute. Each exercise says how hard it is (● a few lines, ●● two ideas together,
# ●●● the hard one) and how long it takes.

# %%
import warnings
from dataclasses import replace
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib import check, guessed, hint, run_ranks, solved, yours_or
from course_lib.text import table

# %% [markdown]
# At hand: [a glossary](../docs/glossary.md), [the torch calls](../docs/torch_calls.md) and
# [all exercises](../docs/exercises.md). What you have passed so far, by your notebooks as they were
# last saved:

# %% tags=["nbval-ignore-output"]
from course_lib.classroom import status_view

status_view()

# %% [markdown]
# ## 1. The problem, as a number
#
# Data parallelism ([lesson 03](03_data_parallel.ipynb)) gives every GPU the whole model. How large
# is *one layer* of GPT-3?

# %%
WIDTH, LAYERS = 12288, 96
matrices = 4 * WIDTH**2 + 2 * 4 * WIDTH**2  # query, key, value, out; then up and down
print(f"one layer: {matrices / 1e9:.2f} billion weights")
print(f"with gradients and Adam, 16 bytes each: {16 * matrices / 1e9:.0f} GB")
print(f"all {LAYERS} layers: {16 * matrices * LAYERS / 1e12:.1f} TB, on GPUs with 0.08 TB each")

# %% [markdown]
# A GPU of 80 GB has room for two of these layers, and then for few activations. And a single
# sequence still has to wait for 96 layers, one after the other. **Tensor parallelism** cuts every
# matrix into $t$ parts, so $t$ GPUs hold *and compute* each layer together.
#
# **Who solved it, and when.** AlexNet was cut over two GPUs in 2012, by hand. Mesh-TensorFlow
# (Shazeer et al. 2018) let any dimension of any tensor be cut. Megatron-LM (Shoeybi et al. 2019,
# [arXiv 1909.08053](https://arxiv.org/abs/1909.08053)) found the cut of a Transformer that needs
# two all-reduces forward and two backward, in a few lines of PyTorch: a model of 8.3 billion
# parameters, 8 GPUs per copy, on 512 V100s. Sequence parallelism (Korthikanti et al. 2022,
# [arXiv 2205.05198](https://arxiv.org/abs/2205.05198)) came on top. You will build both.

# %% [markdown]
# ## 2. Columns or rows
#
# A linear layer is $y = xA + b$. There are two ways to cut $A$ in two:
#
# $$x\,[A_1\;A_2] = [xA_1\;\;xA_2] \qquad\qquad [x_1\;x_2]\begin{bmatrix}A_1\\A_2\end{bmatrix} =
# x_1A_1 + x_2A_2$$
#
# **By columns**, each rank reads all of $x$ and has a *part* of $y$. **By rows**, each rank reads a
# part of $x$ and has a *summand* of $y$. In colours, what rank 0 and rank 1 hold of $X$, of the
# weights and of $Y$:

# %%
from course_lib.views.tensor_parallel_layer import tensor_parallel_layer

tensor_parallel_layer("column-parallel linear", ranks=2)

# %%
tensor_parallel_layer("row-parallel linear", ranks=2)

# %% [markdown]
# **Predict.** The query matrix of LLaMA‑7B is 4096 × 4096. On 8 ranks, split by columns: what is
# the shape of each rank's part? (As a tuple, rows first.)

# %%
### BEGIN SOLUTION
guess_shape = (4096, 512)
### END SOLUTION

# %%
query_matrix = torch.empty(4096, 4096, device="meta")  # a shape without memory
part = query_matrix.chunk(8, dim=1)[0]
print(f"each of 8 ranks: {tuple(part.shape)}, {part.numel() / query_matrix.numel():.1%} of it")
print("your guess:", guessed(guess_shape))

# %% [markdown]
# One trap before you write it: torch keeps $A$ transposed. `nn.Linear(K, N).weight` has shape (N,
# K), and a *column* of $A$ is a *row* of `weight`.
#
# ### Exercise 1: `column_linear` (● 5 minutes)
#
# Every rank gets the whole `x`, `weight` and `bias`. Return this rank's columns of the output,
# without computing the others, and without sending anything. (*t* divides *N*.)


# %% exercise="column_linear"
def column_linear(x, weight, bias):
    """x (B, K), weight (N, K), bias (N,) -> this rank's (B, N/t) of x A + b."""
    ### BEGIN SOLUTION
    t, rank = dist.get_world_size(), dist.get_rank()
    return F.linear(x, weight.chunk(t)[rank], bias.chunk(t)[rank])
    ### END SOLUTION


# %% check="column_linear"
check(column_linear)

# %% [markdown]
# Stuck, here or later? `hint(column_linear)` gives a nudge, `hint(column_linear, 2)` more, and
# `hint(column_linear, 3)` almost the answer.
#
# ### Exercise 2: `row_linear` (● 5 minutes)
#
# Now `x_part` holds this rank's columns of `x` only. Return the whole output on every rank. (No
# gradients yet: that is section 3.) Mind the bias.


# %% exercise="row_linear"
def row_linear(x_part, weight, bias):
    """x_part (B, K/t), weight (N, K), bias (N,) -> all of x A + b, (B, N), on every rank."""
    ### BEGIN SOLUTION
    own = weight.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]
    y = (x_part @ own.T).detach()
    dist.all_reduce(y)
    return y + bias
    ### END SOLUTION


# %% check="row_linear"
check(row_linear)

# %% [markdown]
# ## 3. f and g: gradients between ranks
#
# So far only values crossed. What about gradients? Take $q = 1p + 2p$, the first summand on rank 0
# and the second on rank 1. Its derivative is 3.
#
# **Predict.** What do ranks 0 and 1 find in `p.grad`?

# %%
### BEGIN SOLUTION
guess_gradients = [1, 2]
### END SOLUTION


# %%
def plain_all_reduce():
    warnings.simplefilter("ignore")  # PyTorch does warn
    p = torch.tensor(5.0, requires_grad=True)
    q = p * (dist.get_rank() + 1)
    dist.all_reduce(q)
    q.backward()
    return q.item(), p.grad.item()


for rank, (value, gradient) in enumerate(run_ranks(plain_all_reduce, 2, observe=False)):
    print(f"rank {rank}: q = {value:.0f}, and the gradient of p is {gradient:.0f}, not 3")
print("your guess:", guessed(guess_gradients))

# %% [markdown]
# **Explain.** The value is right on both ranks. But `dist.all_reduce` is not part of autograd's
# graph, so each rank's backward sees only its own summand. Code like this trains, a little worse,
# and nobody knows why. (`run_ranks` warns of such a mistake; `observe=False` has switched that off
# here. PyTorch itself warns too, in one line that is easily overlooked; the cell hides it.)
#
# `torch.distributed.nn`, which torch has meanwhile deprecated, has collectives with gradients, but
# it has to guess what you mean: its `all_reduce` also adds up the *gradients*. That is right if
# every rank goes on to a loss of its own, and $t$ times too large if all of them compute the same
# loss, as here.
#
# So we say it ourselves. Two operators are enough, and Megatron-LM calls them f and g:
#
# | | forward | backward |
# | --- | --- | --- |
# | **f** | nothing | all-reduce |
# | **g** | all-reduce | nothing |
#
# f stands where a whole tensor goes into each rank's own part of the work: each rank then knows
# only its part of the gradient, and they are added up. g stands where the ranks' summands become
# one tensor again: the gradient of a sum *is* the gradient of each summand.
#
# ### Exercise 3: `megatron_f` (●● 10 minutes)
#
# A `torch.autograd.Function` has its own forward and backward. Here is one to copy from; it doubles
# the gradient.


# %%
class DoubleTheGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


ones = torch.ones(3, requires_grad=True)
DoubleTheGradient.apply(ones).sum().backward()
print(ones.grad)

# %% [markdown]
# Write f as a function that makes such a class and applies it. Be careful with `gradient`. In `y =
# x + mlp(f(x))` both summands are handed *the same tensor*. If you change it in place, you change
# it for the residual branch too.


# %% exercise="megatron_f"
def megatron_f(x):
    """x itself; backward, the gradient is the sum of all ranks' gradients."""
    ### BEGIN SOLUTION

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            total = gradient.clone()
            dist.all_reduce(total)
            return total

    return Copy.apply(x)
    ### END SOLUTION


# %% check="megatron_f"
check(megatron_f)

# %% [markdown]
# ### Exercise 4: `megatron_g` (● 5 minutes)
#
# The other way round. Forward, the sum over the ranks, in a new tensor: `x` may be needed
# elsewhere, so leave it as it is. Backward, nothing is sent.


# %% exercise="megatron_g"
def megatron_g(x):
    """The sum of x over the ranks, in a new tensor; backward, the gradient passes as it is."""
    ### BEGIN SOLUTION

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            total = x.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Reduce.apply(x)
    ### END SOLUTION


# %% check="megatron_g"
check(megatron_g)

# %% [markdown]
# With both, the example from the beginning of this section comes out right:

# %%
from course_lib.techniques.tensor_parallel.axis import TensorAxis
from course_lib.techniques.tensor_parallel.f_and_g import (
    CopyToTensorParallel,
    ReduceFromTensorParallel,
)


def f_of_the_course(x):
    return CopyToTensorParallel.apply(x, TensorAxis.of(None))


def g_of_the_course(x):
    return ReduceFromTensorParallel.apply(x, TensorAxis.of(None))


f = yours_or(megatron_f, f_of_the_course)
g = yours_or(megatron_g, g_of_the_course)


def with_f_and_g():
    p = torch.tensor(5.0, requires_grad=True)
    q = g(f(p) * (dist.get_rank() + 1))
    q.backward()
    return q.item(), p.grad.item()


for rank, (value, gradient) in enumerate(run_ranks(with_f_and_g, 2)):
    print(f"rank {rank}: q = {value:.0f}, and the gradient of p is {gradient:.0f}")

# %% [markdown]
# ## 4. The MLP
#
# Two linear layers with a GeLU between them. Four ways to cut them: columns or rows, twice.
#
# **Predict.** How many all-reduces does the *forward* pass need if both layers are split by rows?
# And if the first is split by columns, the second by rows?

# %%
### BEGIN SOLUTION
guess_rows_rows = 2
guess_columns_rows = 1
### END SOLUTION

# %%
first, second = torch.tensor([0.5, -2.0]), torch.tensor([1.5, 1.0])  # two summands
for name, value in (
    ("GeLU of the sum:", F.gelu(first + second)),
    ("sum of the GeLUs:", F.gelu(first) + F.gelu(second)),
):
    print(f"{name:17}", *(f"{element:7.4f}" for element in value))
print("your guesses:", guessed(guess_rows_rows, guess_columns_rows))

# %% [markdown]
# **Explain.** GeLU needs the finished sum, so a row split has to be added up before it: two
# all-reduces, one per layer. After a column split each rank has some elements of $z$ *complete*. It
# applies the GeLU to them, and they are just the part of $z$ that its rows of the second layer
# want:
#
# $$x \;\to\; f \;\to\; z_i = \mathrm{GeLU}(xA_i) \;\to\; z_iB_i \;\to\; g \;\to\; y$$
#
# The same as a picture, of all ranks at once:

# %%
tensor_parallel_layer("MLP", ranks=2)

# %% [markdown]
# Between A and B nothing is sent: what a rank has of Z is what it needs.
#
# ### Exercise 5: `parallel_mlp` (●● 10 minutes)
#
# From now on every rank is given *its own part* of the weights. Use your `megatron_f` and
# `megatron_g`. The bias of the second layer is whole on every rank: mind where you add it.


# %% exercise="parallel_mlp"
def parallel_mlp(x, up, up_bias, down, down_bias):
    """x (B, T, C) -> (B, T, C), both whole on every rank.

    This rank's parts: up (4C/t, C), up_bias (4C/t,), down (C, 4C/t). down_bias (C,) is whole.
    """
    ### BEGIN SOLUTION
    hidden = F.gelu(F.linear(megatron_f(x), up, up_bias))
    return megatron_g(hidden @ down.T) + down_bias
    ### END SOLUTION


# %% check="parallel_mlp"
check(parallel_mlp)

# %% [markdown]
# ## 5. Counting the bytes
#
# A layer of a Transformer is attention and then an MLP. Section 6 will show that attention also
# takes one f and one g. So there are four all-reduces, each of an activation with $b \cdot s \cdot
# h$ elements (batch, sequence, hidden: the B, T and C of your functions). In a ring, an all-reduce
# of $N$ bytes makes each rank send $2\frac{t-1}{t}N$ ([lesson 02](02_ring_all_reduce.ipynb)).
#
# ### Exercise 6: `layer_traffic` (● 5 minutes)
#
# Return a number of bytes. `element_size` is what one element of an activation takes, 2 in
# bfloat16. Do not round: where $t$ does not divide the tensor, the ring's shares differ a little,
# and the formula gives their average.


# %% exercise="layer_traffic"
def layer_traffic(b, s, h, t, element_size):
    """Bytes that each rank sends in one layer, forward and backward."""
    ### BEGIN SOLUTION
    all_reduce = 2 * (t - 1) / t * b * s * h * element_size
    return 4 * all_reduce
    ### END SOLUTION


# %% check="layer_traffic"
check(layer_traffic)

# %% [markdown]
# Formula against measurement: your MLP on real ranks is half a layer.


# %%
def one_mlp_step(b, s, h):
    t = dist.get_world_size()
    x = torch.randn(b, s, h, requires_grad=True)
    up, down = torch.randn(4 * h // t, h), torch.randn(h, 4 * h // t)
    parallel_mlp(x, up, torch.zeros(4 * h // t), down, torch.zeros(h)).sum().backward()


if solved(parallel_mlp, layer_traffic):
    for ranks in (1, 2, 3, 4):
        counted = run_ranks(one_mlp_step, ranks, 2, 6, 12).trace.traffic().sent[0]
        formula = layer_traffic(2, 6, 12, ranks, 4) / 2
        print(f"t = {ranks}: half a layer sends {counted} bytes, by formula {formula:.0f}")

gpt3_layer = 8 * 7 / 8 * 2048 * WIDTH * 2
print(f"GPT-3, one sequence, t = 8, bfloat16: {gpt3_layer / 1e6:.0f} MB per layer, ", end="")
print(f"{LAYERS * gpt3_layer / 1e9:.0f} GB in all")

# %% [markdown]
# The number of weights does not occur in the formula. What travels are *activations*, for every
# layer of every microbatch, and the next operation waits for them. Data parallelism sends gradients
# once per step, hidden behind the computation. Keep this difference in mind for section 10.

# %% [markdown]
# ## 6. Attention
#
# Attention is made for this. The heads do not look at each other; each rank computes $H/t$ of them.
# The columns of the query, key and value matrices are ordered by head, so a rank's columns *are*
# its heads, and the rows of the output matrix that belong to them follow:

# %%
tensor_parallel_layer("attention", ranks=2)

# %% [markdown]
# Rank 0 has its columns of Q, of K and of V, and the rows of “out” that its heads meet.
#
# ### Exercise 7: `parallel_attention` (●● 20 minutes)
#
# One f, one g. Cut this rank's query, key and value into its heads: (B, T, C/t) becomes (B, H/t, T,
# C/H), where C/H is the width of a head. On these, `F.scaled_dot_product_attention(q, k, v,
# is_causal=True)` is all of attention: it divides by the root of the width, and lets no token look
# ahead. Then put the heads side by side again. Heads cannot be cut, so raise a `ValueError` with
# both numbers where $t$ does not divide the heads, before anything is sent: better a sentence now
# than a hang later.


# %% exercise="parallel_attention"
def parallel_attention(x, query, key, value, out, heads):
    """Causal self-attention, x (B, T, C) -> (B, T, C), both whole on every rank.

    This rank's parts: query, key and value (C/t, C), out (C, C/t). heads: of all ranks together.
    """
    ### BEGIN SOLUTION
    t = dist.get_world_size()
    if heads % t:
        raise ValueError(f"{heads} heads cannot be shared by {t} ranks")
    x = megatron_f(x)
    q, k, v = (
        (x @ weight.T).unflatten(-1, (heads // t, -1)).transpose(1, 2)  # (B, H/t, T, D)
        for weight in (query, key, value)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return megatron_g(mixed.transpose(1, 2).flatten(-2) @ out.T)
    ### END SOLUTION


# %% check="parallel_attention"
check(parallel_attention)

# %% [markdown]
# Newer models have fewer heads for keys and values than for queries (*grouped-query attention*:
# Llama‑3‑70B has 64 and 8). On 16 ranks, two ranks hold the same key/value head, each for its own
# query heads. Each then computes a *part* of that head's gradient, and the two must be added up, or
# the copies drift apart. `course_lib/techniques/tensor_parallel/attention.py` does it.

# %% [markdown]
# ## 7. The two ends: embedding and cross-entropy
#
# The embedding has $V$ rows, one for each symbol of the vocabulary: 50,257 in GPT-3, a quarter of a
# million in BLOOM ([arXiv 2211.05100](https://arxiv.org/abs/2211.05100)). Rank $r$ keeps rows
# $rV/t$ to $(r+1)V/t - 1$. Every token's row is on exactly one rank:

# %%
tensor_parallel_layer("embedding", ranks=2)

# %% [markdown]
# So every row of X is complete on one rank, and the others put zeros into theirs.
#
# ### Exercise 8: `vocab_embedding` (●● 10 minutes)
#
# Every rank looks up the tokens whose rows it has, and puts zeros for all others. Then g adds up.
# (Here *t* divides *V*.)


# %% exercise="vocab_embedding"
def vocab_embedding(tokens, rows):
    """tokens (B, T), the same everywhere; rows (V/t, C), this rank's -> (B, T, C) everywhere."""
    ### BEGIN SOLUTION
    local = tokens - dist.get_rank() * len(rows)
    elsewhere = (local < 0) | (local >= len(rows))
    found = F.embedding(local.masked_fill(elsewhere, 0), rows)
    return megatron_g(found.masked_fill(elsewhere.unsqueeze(-1), 0))
    ### END SOLUTION


# %% check="vocab_embedding"
check(vocab_embedding)

# %% [markdown]
# At the other end each rank has $V/t$ of the logits. To compute the loss one could gather them all.
#
# **Predict.** GPT-3 has 50,257 symbols. For one sequence of 2048 tokens in float32, how many MB of
# logits would every rank have to receive from the 7 others?

# %%
### BEGIN SOLUTION
guess_logits_mb = 360
### END SOLUTION

# %%
logits_mb = 2048 * 50257 * 4 * 7 / 8 / 1e6
numbers_mb = 2 * 7 / 8 * 3 * 2048 * 4 / 1e6
print(f"all logits: {logits_mb:.0f} MB; three numbers per token: {numbers_mb:.3f} MB")
print("your guess:", guessed(guess_logits_mb))

# %% [markdown]
# Three numbers per token are enough. With $z$ the logits of one token and $y$ its target,
#
# $$\text{loss} = \log \sum_v e^{z_v} - z_y$$
#
# and both terms are sums to which each rank contributes what it has. Subtract the largest logit
# (over all ranks) from every $z$ first: $e^{z}$ overflows for $z > 88$ in float32.
#
# ### Exercise 9: `vocab_cross_entropy` (●●● 20 minutes)
#
# (Optional.) `dist.all_reduce(largest, dist.ReduceOp.MAX)` finds the largest. The loss does not
# depend on it, so it needs no gradient. For the two sums use `megatron_g`: then autograd does the
# rest. Rank $r$ has the logits of symbols $rV/t$ to $(r+1)V/t - 1$; a target is on one rank only,
# and the others add zero. Logits may be of any size, also far below zero. All-reduce at most four
# numbers per token.


# %% exercise="vocab_cross_entropy"
def vocab_cross_entropy(logits, targets):
    """logits (B, T, V/t), this rank's; targets (B, T) -> mean loss, the same on every rank."""
    ### BEGIN SOLUTION
    size = logits.shape[-1]
    largest = logits.detach().amax(-1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    z = logits - largest.unsqueeze(-1)
    local = targets - dist.get_rank() * size
    elsewhere = (local < 0) | (local >= size)
    own = z.gather(-1, local.masked_fill(elsewhere, 0).unsqueeze(-1)).squeeze(-1)
    total = megatron_g(z.exp().sum(-1))
    return (total.log() - megatron_g(own.masked_fill(elsewhere, 0))).mean()
    ### END SOLUTION


# %% check="vocab_cross_entropy"
check(vocab_cross_entropy)

# %% [markdown]
# ## 8. A whole GPT, and PyTorch's own
#
# You have all the parts. The model of `course_lib.models` sorts five digits; here is its forward
# pass from your functions. Every rank cuts its parts out of the same state dict. (You need not read
# the cells; run them.)

# %%
from course_lib.models import batches, tiny_gpt

tokens, targets = next(batches(1, 16))
targets = torch.where(targets < 0, 0, targets)  # your cross-entropy knows no ignored places


def mine(whole, dim):
    """This rank's part of a weight, as a leaf of autograd's graph."""
    part = whole.detach().chunk(dist.get_world_size(), dim)[dist.get_rank()]
    return part.clone().requires_grad_()


def loss_by_your_functions():
    model = tiny_gpt(seed=0)
    rows = mine(model.embedding.tokens.weight, 0)
    x = vocab_embedding(tokens, rows) + model.embedding.positions.weight
    for block in model.blocks:
        a, m = block.attention, block.mlp
        columns = [mine(part.weight, 0) for part in (a.query, a.key, a.value)]
        normed = block.norm_attention(x)
        x = x + parallel_attention(normed, *columns, mine(a.out.weight, 1), a.heads)
        up, up_bias = mine(m.up.weight, 0), mine(m.up.bias, 0)
        down = mine(m.down.weight, 1)
        x = x + parallel_mlp(block.norm_mlp(x), up, up_bias, down, m.down.bias)
    normed = megatron_f(model.head.norm(x))
    logits = normed @ mine(model.head.projection.weight, 0).T
    loss = vocab_cross_entropy(logits, targets)
    loss.backward()
    return loss.item(), model.embedding.positions.weight.grad


# %% [markdown]
# (Your attention has no biases; those of the model are zero at the start.)
#
# The course's version is `course_lib/techniques/tensor_parallel`. PyTorch's is `parallelize_module`
# on DTensors: a plan says which linear layers are split by columns and which by rows. It leaves
# embedding and output whole here.
#
# **Predict.** The model has two layers. How many all-reduces of an activation does a step take, by
# your functions and by PyTorch's plan?

# %%
### BEGIN SOLUTION
guess_by_mine = 10
guess_by_pytorch = 12
### END SOLUTION

# %%
from course_lib.techniques.tensor_parallel import TensorParallelGPT


def loss_by_the_course():
    model = TensorParallelGPT.from_model(tiny_gpt(seed=0))
    loss = model.loss(tokens, targets)
    loss.backward()
    return loss.item(), model.embedding.positions.weight.grad


def loss_by_pytorch():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model, t = tiny_gpt(seed=0), dist.get_world_size()
    columns = ("attention.query", "attention.key", "attention.value", "mlp.up")
    plan = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel() for name in ("attention.out", "mlp.down")}
    for block in model.blocks:
        parallelize_module(block, init_device_mesh("cpu", (t,)), plan)
        block.attention.heads //= t
    loss = model.loss(tokens, targets)
    loss.backward()
    return loss.item(), model.embedding.positions.weight.grad


whole = tiny_gpt(seed=0)
expected = whole.loss(tokens, targets)
expected.backward()
wanted = whole.embedding.positions.weight.grad
activation = 16 * 9 * 64 * 4  # b s h, 4 bytes each
shown = [["", "loss", "gradient", "all-reduces of an activation", "bytes in all"]]
shown.append(["one process", f"{expected.item():.4f}", "", 0, 0])
parts = (megatron_f, parallel_mlp, parallel_attention, vocab_embedding, vocab_cross_entropy)
ways = [("yours", loss_by_your_functions)] if solved(*parts) else []
for name, function in (
    *ways,
    ("the course's", loss_by_the_course),
    ("PyTorch's", loss_by_pytorch),
):
    run = run_ranks(function, 2, timeout=50)
    loss, gradient = run[0]
    sums = sum(e.nbytes == activation for e in run.trace.of(0))
    (sent, *_), _ = run.trace.traffic().by_operation["all_reduce"]
    same = "the same" if (gradient - wanted).abs().max().item() < 1e-6 else "another"
    shown.append([name, f"{loss:.4f}", same, sums, f"{sent:,}"])
print(table(shown))
print("your guesses:", guessed(guess_by_mine, guess_by_pytorch))

# %% [markdown]
# **Explain.** Two layers with four all-reduces, one more forward for the embedding and one backward
# for the output layer: ten. PyTorch's plan splits neither of these two, and still sends more: it
# treats query, key and value as three layers of their own, so the gradient of their common input is
# reduced three times. One f for the three is what saves it.
#
# **Random numbers.** With dropout a question arises that one process does not have.
#
# **Predict.** Where must all ranks drop the *same* elements, and where must they not: in the
# residual stream (whole on every rank), and inside attention (other heads on each rank)?

# %%
### BEGIN SOLUTION
guess_residual_same = True
guess_attention_same = False
### END SOLUTION

# %%
from course_lib.techniques.tensor_parallel import Dropout


def dropped():
    torch.manual_seed(0)  # the same on all ranks
    ones = torch.ones(20)
    return Dropout(0.5)(ones), Dropout(0.5, rank=dist.get_rank())(ones)


for rank, masks in enumerate(run_ranks(dropped, 3)):
    whole_tensor, part_of_it = ("".join("x."[int(v == 0)] for v in mask) for mask in masks)
    print(f"rank {rank}: residual stream {whole_tensor}   own heads {part_of_it}")
print("your guesses:", guessed(guess_residual_same, guess_attention_same))

# %% [markdown]
# **Explain.** With other masks in the residual stream, the ranks would go on with different copies
# of what should be one tensor. With the same masks inside attention, head 0 of every rank would
# always drop the same places. The same holds for initial values: parts of a matrix must differ, a
# norm's gain must not. The library draws what is whole from torch's default generator, seeded alike
# on all ranks, and what is split from a stream of its own on each
# (`tensor_parallel/random_streams.py`).

# %% [markdown]
# ## 9. Explore
#
# What each rank holds of each matrix, and what travels. One colour is one rank.

# %%
from course_lib.views.tensor_parallel_layer import sharding_explorer

sharding_explorer()

# %% [markdown]
# **Explore.** Why do the weights on each rank fall as $1/t$ where $t$ divides the hidden size? What
# stays whole on all ranks, whatever $t$ is? In which layers is the result a *summand* on each rank,
# and what has to follow then?
#
# <details><summary>Answers</summary>
#
# Every matrix is cut, and no element lies on two ranks. The activations between the layers stay
# whole: X before a column split and Y after the all-reduce (section 13 is about them). Row splits
# give summands, and g must follow.
#
# </details>

# %% [markdown]
# ## 10. At scale: why inside one machine
#
# Here are attention and MLP from your functions, forward and backward, on eight ranks. The run is
# small. To see GPT‑3's layer, its recorded messages are scaled to GPT-3's size ($s = 2048$, $h =
# 12288$, bfloat16), and computing takes the time that an A100 needs at half its peak. Then it is
# replayed on four networks: NVLink, which joins the GPUs of a machine; PCIe, the bus that they are
# plugged into; and Ethernet between machines, of 100 and of 10&nbsp;Gbit/s.
#
# **Predict.** How many per cent of the time do the GPUs compute, on NVLink, on PCIe, and on
# 100&nbsp;Gbit/s Ethernet between eight machines?

# %%
### BEGIN SOLUTION
guess_nvlink = 90
guess_pcie = 60
guess_ethernet = 40
### END SOLUTION

# %%
from course_lib.observe import Trace
from course_lib.simulate import dgx_a100, replay
from course_lib.techniques.tensor_parallel import ParallelBlock
from course_lib.views.gantt_chart import gantt_chart


def one_layer(s=4, h=16, heads=8):
    t = dist.get_world_size()
    x = torch.randn(1, s, h, requires_grad=True)
    columns = [torch.randn(h // t, h) for _ in range(3)]
    up, down = torch.randn(4 * h // t, h), torch.randn(h, 4 * h // t)
    y = x + parallel_attention(x, *columns, torch.randn(h, h // t), heads)
    y = y + parallel_mlp(y, up, torch.zeros(4 * h // t), down, torch.zeros(h))
    y.sum().backward()


def one_layer_of_the_course(s=4, h=16, heads=8):
    x = torch.randn(1, s, h, requires_grad=True)
    ParallelBlock(h, heads)(x).sum().backward()


mine_works = solved(parallel_attention, parallel_mlp)
small = run_ranks(one_layer if mine_works else one_layer_of_the_course, 8).trace


def at_size(trace, s, h, t=8, rate=312e12 / 2):
    """The messages at GPT-3's size, and what is computed before each of them, in seconds."""
    attention = (8 * s * h**2 + 4 * s**2 * h) / t / rate
    mlp = 16 * s * h**2 / t / rate
    work = [attention, mlp, 2 * mlp, 2 * attention]  # backward costs twice
    names = ["attn", "MLP", "MLP back", "attn back"]
    events = [replace(e, nbytes=s * h * 2) for e in trace.events]
    compute = [
        SimpleNamespace(rank=rank, name=name, start=event.issued - 1e-6, seconds=seconds)
        for rank in range(t)
        for name, seconds, event in zip(names, work, trace.of(rank), strict=True)
    ]
    return Trace(t, events), compute


one_gpu_each = replace(dgx_a100, name="8 machines", devices_per_node=1, adapters=1, nodes=8)
networks = {
    "NVLink 3": dgx_a100,
    "PCIe 4 x16": dgx_a100.with_links(inside="PCIe 4 x16"),
    "100 Gbit/s Ethernet": one_gpu_each.with_links(between="100 GbE"),
    "10 Gbit/s Ethernet": one_gpu_each.with_links(between="10 GbE"),
}
trace, compute = at_size(small, 2048, WIDTH)
busy = sum(span.seconds for span in compute if span.rank == 0)
replayed = {}
for name, cluster in networks.items():
    replayed[name] = replay(trace, cluster, compute=compute)
    took = replayed[name].makespan
    print(f"{name:20} {took * 1e3:6.1f} ms per layer, computing {busy / took:3.0%} of the time")
print("your guesses:", guessed(guess_nvlink, guess_pcie, guess_ethernet))

# %%
shown = {name: replayed[name] for name in ("NVLink 3", "PCIe 4 x16", "100 Gbit/s Ethernet")}
gantt_chart(shown, unit="s")

# %% [markdown]
# (10&nbsp;Gbit/s is left out: six times as long as the longest here.)
#
# **Explain.** Every all-reduce stands between two computations, and the second has to wait for it:
# four times per layer, 96 layers deep. Only backward has something else to do meanwhile, the weight
# gradients (`tensor_parallel/overlap.py` makes use of that). So tensor parallelism goes where links
# are fastest: over the GPUs of one machine, and no further. Pipelines ([lesson
# 05](05_pipeline_parallel.ipynb)) and data parallelism go between machines.
#
# How fast is fast enough? In a layer each GPU computes $72\,bsh^2/t$ FLOP and sends
# $16\,bsh\frac{t-1}{t}$ bytes, which makes $4.5\,\frac{h}{t-1}$ FLOP per byte. It grows with $h$:
# large models stand more splitting than small ones. The last column is the link over which sending
# takes as long as computing at 156 TFLOP/s, on eight GPUs:

# %%
widths = [["h", "FLOP per byte", "link"]]
for width in (1024, 4096, 12288):
    flop_per_byte = 4.5 * width / 7
    widths.append([width, f"{flop_per_byte:.0f}", f"{156 / flop_per_byte * 1e3:.0f} GB/s"])
print(table(widths, left=0))

# %% [markdown]
# **What was measured: Megatron-LM** on V100s with NVLink. *One* model of 1.2 billion parameters,
# with $h = 1536$ and batch 8, on more and more GPUs (Table 8 of the paper), and models that grow
# with the GPUs (section 5.1):

# %%
for gpus, speedup in ((2, 1.64), (4, 2.34), (8, 2.98)):
    print(f"same model on {gpus} GPUs: {speedup:.2f} times as fast, {speedup / gpus:.0%} efficient")
print("8.3 billion parameters (h = 3072) on 8 GPUs, against 1.2 billion on one: 77% efficient")

# %% [markdown]
# Splitting a small layer over eight GPUs wastes most of them. Splitting one that would not fit
# otherwise is worth it.

# %% [markdown]
# ## 11. Two claims put to the test
#
# ### "Column parallelism concatenates the outputs, then all‑reduces"
#
# **Predict.** For a column-parallel and for a row-parallel layer: which operation runs forward, and
# which backward? (In words.)

# %%
### BEGIN SOLUTION
guess_column = "forward nothing, backward all-reduce"
guess_row = "forward all-reduce, backward nothing"
### END SOLUTION

# %%
from torch.profiler import record_function

from course_lib.techniques.tensor_parallel import ColumnParallelLinear, RowParallelLinear


def forward_and_backward(kind, **options):
    layer = kind(8, 8, **options)
    inputs = layer.weight.shape[1]  # for rows: this rank's part
    x = torch.randn(2, inputs, requires_grad=True)
    with record_function("forward"):
        y = layer(x)
    with record_function("backward"):
        y.sum().backward()


ops = [["", "forward", "backward"]]
for name, kind, options in (
    ("columns", ColumnParallelLinear, {}),
    ("columns, whole output", ColumnParallelLinear, {"gather_output": True}),
    ("rows", RowParallelLinear, {}),
):
    events = run_ranks(forward_and_backward, 2, kind, **options).trace.of(0)
    by_pass = [[e.op for e in events if p in e.spans] for p in ("forward", "backward")]
    ops.append([name, *(", ".join(found).replace("_", "-") or "nothing" for found in by_pass)])
print(table(ops, left=3))
print(f"your guesses: columns: {guessed(guess_column)}; rows: {guessed(guess_row)}")

# %% [markdown]
# Imprecise: it mixes up two layers and two directions. A **column** split needs nothing forward; if
# somebody wants the whole output, an all-**gather** concatenates it; and the all-reduce comes
# **backward**, for the input's gradient. A **row** split all-reduces **forward**, since its partial
# results are *summed*, not concatenated. No layer does both to the same tensor.
#
# ### "Tensor parallelism divides a layer's activations by t"
#
# **Predict.** A layer of GPT-3 keeps 2.87 GB of activations for backward, for one sequence. With $t
# = 8$: how many GB stay on each GPU?

# %%
### BEGIN SOLUTION
guess_kept_gb = 0.58
### END SOLUTION

# %%
from course_lib.simulate import MODELS, layer_activation_bytes

GPT3 = MODELS["GPT-3 175B"]
alone = layer_activation_bytes(GPT3, 1)
split = layer_activation_bytes(GPT3, 1, tensor_parallel=8)
both = layer_activation_bytes(GPT3, 1, tensor_parallel=8, sequence_parallel=True)
print(f"one GPU {alone / 1e9:.2f} GB; an eighth would be {alone / 8e9:.2f} GB")
print(
    f"tensor parallel {split / 1e9:.2f} GB, of which {10 * 2048 * 12288 / 1e9:.2f} GB are not split"
)
print(f"with sequence parallelism {both / 1e9:.2f} GB")
print("your guess:", guessed(guess_kept_gb))

# %%
from course_lib.views.stacked_bars import stacked_bars

not_split = 10 * GPT3.seq * GPT3.hidden
stacked_bars(
    {
        "one GPU": {"whole": alone / 1e9},
        "t = 8": {"this rank's part": (split - not_split) / 1e9, "whole": not_split / 1e9},
        "t = 8, with sequence parallelism": {"this rank's part": both / 1e9},
    },
    "GB that a layer keeps on each GPU for backward",
    title="Activations of a layer of GPT-3, one sequence",
    text="{:.2f}".format,
)

# %% [markdown]
# False. Of the $bsh(34 + 5\frac{as}{h})$ bytes per layer that Korthikanti et al. count ($a$ is the
# number of heads), $10\,bsh$ stay whole on every rank: what norms and dropout keep, and the inputs
# of the two column splits. With $t = 8$ these are almost half of what is left. Sequence
# parallelism splits them too: the assignment $6\,bsh$, and two more all-gathers the rest.

# %% [markdown]
# ## 12. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. A layer has $h = 8192$, and $b = 2$, $s = 4096$, $t = 4$, bfloat16. What does each rank send in
#    one layer?
#
#    <details><summary>Answer</summary>
#    8 · 2 · 4096 · 8192 · 3/4 · 2 bytes = 805 MB.
#    </details>
#
# 2. 32 heads, of which 8 for keys and values. For which $t$ can the layer be split? For which of
#    these do ranks share a key/value head?
#
#    <details><summary>Answer</summary>
#    t must divide 32: 1, 2, 4, 8, 16, 32. With 16 and 32, two and four ranks hold the same
#    key/value head.
#    </details>
#
# 3. Somebody adds the bias of a row-parallel layer before g. What comes out on $t = 4$ ranks?
#
#    <details><summary>Answer</summary>
#    The bias is in it four times instead of once. At the start biases are zero, so it shows only
#    after some training.
#    </details>
#
# 4. Your loss on two ranks equals that of one process, but training diverges after a while. Which
#    of f and g may be missing, or change a gradient in place?
#
#    <details><summary>Answer</summary>
#    f: forward it does nothing, so the loss is right without it. The norms' gradients then differ
#    between ranks, and their copies drift apart.
#    </details>
#
# 5. Two machines of eight GPUs, 300 GB/s of NVLink inside and 25 GB/s between. Someone sets t = 16.
#    By how much does the slowest link of the ring slow the all-reduces down, compared with t = 8?
#
#    <details><summary>Answer</summary>
#    Every step of the ring waits for the slowest link: 25 GB/s instead of 300 GB/s, so about 12
#    times.
#    </details>
#
# ## 13. Assignment: `sequence_parallel_mlp` (●●● 25 minutes)
#
# An all-reduce is a reduce-scatter followed by an all-gather
# ([lesson 02](02_ring_all_reduce.ipynb)). Between two layers stands only what treats every token by
# itself: residual sum, norm, dropout. So take g apart, and let residual sum, norm and dropout stand
# *between its halves*:
#
# $$\dots\; z_iB_i \;\to\; \text{reduce-scatter} \;\to\; \text{residual, norm of } T/t
# \text{ tokens} \;\to\; \text{all-gather} \;\to\; xA_i \;\dots$$
#
# **What it saves, and what it costs.** What stands between the layers (residual sum, norm and
# dropout), whole on every rank so far, is divided by $t$ now. It costs no bytes, since the two
# halves send what the all-reduce sent. There is one thing left: the *gathered* input of the column
# split is still whole on every rank, and autograd keeps it for backward. Keeping only this rank's
# tokens of it takes one more all-gather per column split, in backward. You may do that, but need
# not; the table at the end has the costs with it, the text below the table those without.
#
# **A warm-up.** Both calls, on tensors whose dimension 0 is that of the tokens.
# (From torch 2.13 on, `dist.all_gather_single(whole, part)` and `dist.reduce_scatter_single(part,
# whole)` do the same without a list. Before, they are called `all_gather_into_tensor` and
# `reduce_scatter_tensor`.)


# %%
def two_halves():
    t, rank = dist.get_world_size(), dist.get_rank()
    part = torch.full((2, 3), float(rank + 1))  # two tokens of width 3
    whole = torch.empty(2 * t, 3)
    dist.all_gather(list(whole.chunk(t)), part)  # fills the chunks, which are views of whole
    summed = torch.empty(2, 3)
    dist.reduce_scatter(summed, list(whole.chunk(t)))  # adds up, and keeps this rank's tokens
    return whole[:, 0].tolist(), summed[:, 0].tolist()


for rank, (whole, summed) in enumerate(run_ranks(two_halves, 2)):
    print(f"rank {rank}: first column gathered {whole}, then reduce-scattered {summed}")

# %% [markdown]
# Like f and g, each needs a backward. An all-gather hands every token to all ranks, so its gradient
# is the sum of what all ranks have to say about it: the backward of an all-gather is a
# reduce-scatter, and the other way round.
#
# **Predict.** The norm stands before the all-gather. Gathering first would give the same numbers.
# What would it cost?

# %%
### BEGIN SOLUTION
guess_gathered_first = "memory, and the work of the norm t times"
### END SOLUTION

# %% [markdown]
# Write `sequence_parallel_mlp` for one sequence. Each rank has $T/t$ tokens `x`; it returns `x +
# MLP(norm(x))` for the same tokens. Forward takes one all-gather and one reduce-scatter, and so
# does backward. The norm is `F.layer_norm(x, x.shape[-1:], gain)`. Its `gain` is whole on every
# rank but is used for other tokens on each: its gradient must still be complete.


# %% exercise="sequence_parallel_mlp"
def sequence_parallel_mlp(x, gain, up, down):
    """This rank's tokens x (T/t, C) -> x + MLP(norm(x)) for these tokens, (T/t, C).

    gain (C,) of the layer norm, whole; up (4C/t, C) and down (C, 4C/t), this rank's; no biases.
    """
    ### BEGIN SOLUTION
    t = dist.get_world_size()

    def gather(part):
        whole = part.new_empty(t * len(part), part.shape[1])
        dist.all_gather(list(whole.chunk(t)), part.contiguous())
        return whole

    def reduce_scatter(whole):
        part = whole.new_empty(len(whole) // t, whole.shape[1])
        dist.reduce_scatter(part, list(whole.contiguous().chunk(t)))
        return part

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part):
            return gather(part)

        @staticmethod
        def backward(ctx, gradient):
            return reduce_scatter(gradient)

    class ReduceScatter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, whole):
            return reduce_scatter(whole)

        @staticmethod
        def backward(ctx, gradient):
            return gather(gradient)

    normed = F.layer_norm(x, x.shape[-1:], megatron_f(gain))
    hidden = F.gelu(Gather.apply(normed) @ up.T)
    return x + ReduceScatter.apply(hidden @ down.T)
    ### END SOLUTION


# %% check="sequence_parallel_mlp"
check(sequence_parallel_mlp)

# %% [markdown]
# Now your guess:

# %%
print("your guess of what it costs to gather first:", guessed(guess_gathered_first))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Memory and work. Gathered first, every rank would normalise all $T$ tokens, work done $t$ times,
# and autograd would keep all $T$ of them for the norm on every rank: the memory that sequence
# parallelism is meant to save.
#
# </details>

# %% [markdown]
# ### What a whole layer saves and sends
#
# The course's block does this for a whole layer. What travels, and what does autograd keep, with
# $t$ ranks? Korthikanti's table 2 counts 2 bytes per element and dropout masks of 1 byte; here is
# no dropout, and attention is fused. That leaves $bsh(4 + \frac{12}{t})$ *elements* with tensor
# parallelism, and $16\, bsh/t$ with sequence parallelism.


# %%
def what_a_block_keeps(sequence_parallel, s=24, h=384):
    block = ParallelBlock(h, 12, sequence_parallel=sequence_parallel)
    tokens_here = s // dist.get_world_size() if sequence_parallel else s
    x = torch.randn(1, tokens_here, h, requires_grad=True)
    weights = {p.untyped_storage().data_ptr() for p in block.parameters()}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = block(x)
    y.sum().backward()
    return sum(v.nbytes() for k, v in kept.items() if k not in weights) / (4 * s * h)


operations = ("all_reduce", "reduce_scatter", "all_gather")
shown = [["t", "parallel", "keeps / bsh", "formula", "all-reduce", "reduce-scatter", "all-gather"]]
shown[0].append("units sent")
for ranks in (2, 3, 4):
    unit = 4 * 24 * 384 * (ranks - 1) / ranks  # bytes that travel in one all-gather
    for sequence_parallel in (False, True):
        run = run_ranks(what_a_block_keeps, ranks, sequence_parallel)
        sent = run.trace.traffic().by_operation
        units = [sent[op][0][0] / unit if op in sent else 0 for op in operations]
        formula = 16 / ranks if sequence_parallel else 4 + 12 / ranks
        what = "sequence" if sequence_parallel else "tensor"
        numbers = [f"{run[0]:.2f}", f"{formula:.2f}", *(f"{n:.0f}" for n in [*units, sum(units)])]
        shown.append([ranks, what, *numbers])
print(table(shown, left=2))
print("a unit: bsh(t-1)/t elements")

# %% [markdown]
# **Explain.** Four all-reduces are 8 units, and four reduce-scatters and four all-gathers are 8 as
# well. Two more all-gathers make it 10. They buy the rest of the memory: the inputs of the
# column splits are kept as $T/t$ tokens and gathered *again* in backward, while another product is
# computed. Without them the bytes are the same as before, and two whole inputs, $4\,bsh$ in bytes
# and $2\,bsh$ in elements, stay on every rank. (What is kept beyond the formula are a few numbers
# per token: mean and deviation of the norms, and a sum of the fused attention.)
#
# ## 14. What to read
#
# - Shoeybi et al. 2019, *Megatron-LM* ([arXiv 1909.08053](https://arxiv.org/abs/1909.08053)):
#   section 3 and figure 3, which you have built.
# - Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*
#   ([arXiv 2205.05198](https://arxiv.org/abs/2205.05198)): section 4 and Table 2.
# - Narayanan et al. 2021 ([arXiv 2104.04473](https://arxiv.org/abs/2104.04473)): tensor parallelism
#   inside the machine, pipelines between machines, and why.
# - `course_lib/techniques/tensor_parallel`: f and g in `f_and_g.py`, the all-reduce hidden behind
#   the weight gradients in `overlap.py`, shared key/value heads in `attention.py`, and from one
#   process to any $t$ and back in `state.py`.
#
# **Next**: [lesson 05](05_pipeline_parallel.ipynb) cuts between the layers.
