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
# # 09 · Long context
#
# **After this lesson you can**
#
# - say what a sequence of 128 k tokens costs in memory, and what FlashAttention saves of it;
# - cut one sequence over ranks and compute the same attention and the same gradients as one
#   process.
#
# If you go on with the optional part, you can also
#
# - predict how long a causal ring stands idle, and split the tokens so that it does not;
# - count the bytes of ring, all-gather and Ulysses, and say which of them fits where;
# - train on documents that share a sequence, without one seeing another.
#
# **You need** `isend` and `recv` from [lesson 00](00_ranks.ipynb) and the ring of [lesson
# 02](02_ring_all_reduce.ipynb). **It takes** 90 minutes to the end of section 4. All else is
# optional: 25 minutes for section 5, 40 for sections 6 and 7, 25 for the assignment, with reading;
# sections 8 to 11 are there to run and read. Each exercise says how
# hard it is (● a few lines, ●● two ideas together, ●●● the hard one) and how long it takes.

# %%
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib import check, guessed, hint, run_ranks, solved, yours_or
from course_lib.observe import arrivals, largest_tensor
from course_lib.techniques import context_parallel
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
# A book has about 128 k tokens. Suppose one sequence is that long, and the model as large as Llama
# 3 8B: 32 layers of width 4096, 32 heads of size 128 that share 8 heads of keys and values, and a
# vocabulary of 128,256 symbols.
#
# **Predict.** Attention compares every token with every other. How many GB is the matrix of scores
# in *one* layer, all heads, at two bytes per score?

# %%
### BEGIN SOLUTION
guess_scores_gb = 1100
### END SOLUTION

# %%
TOKENS, WIDTH, LAYERS, HEADS, KV_HEADS, SIZE = 131_072, 4096, 32, 32, 8, 128
GB = 1e9

kept = 34 * TOKENS * WIDTH  # a layer without its scores (Korthikanti et al. 2022), 16 bits
memory = {
    "scores of one layer": HEADS * TOKENS**2 * 2,
    "activations of one layer": kept,
    f"activations of {LAYERS} layers": LAYERS * kept,
    f"inputs of {LAYERS} layers": LAYERS * TOKENS * WIDTH * 2,
    "logits in float32": TOKENS * 128_256 * 4,
}
print(table([("", "GB"), *((what, f"{nbytes / GB:,.1f}") for what, nbytes in memory.items())]))
print("your guess:", guessed(guess_scores_gb))

# %% [markdown]
# **Explain.** The scores grow with the *square* of the length. FlashAttention (Dao et al. 2022)
# never stores them: it goes over the keys in blocks and keeps a running softmax. So the first
# line goes, and the square.
#
# The other lines stay, and grow with the length. A layer keeps 34 bytes per token and
# unit of width for its backward (counted for a GPT in 16 bits, without scores). With [activation
# checkpointing](07_less_memory.ipynb) only the inputs of the layers remain, 34 GB. The layer
# being recomputed needs 18 GB, the logits 67 GB: together 120 GB. No GPU of 80 GB holds that.

# %%
from course_lib.views.stacked_bars import stacked_bars

scores, one_layer, all_layers, inputs, logits = (nbytes / GB for nbytes in memory.values())
recomputed = {"inputs of layers": inputs, "activations": one_layer, "logits": logits}
stacked_bars(
    {
        "nothing done": {
            "scores": LAYERS * scores,
            "activations": all_layers,
            "logits": logits,
        },
        "FlashAttention": {"activations": all_layers, "logits": logits},
        "checkpointing too": recomputed,
        "on 8 ranks": {part: size / 8 for part, size in recomputed.items()},
    },
    "GB on one device",
    title="What one sequence of 128 k tokens keeps for its backward",
    text="{:,.0f}".format,
    limit=80,
    limit_words="80 GB",
)

# %% [markdown]
# *FlashAttention makes attention linear in memory. It makes no device larger.*
#
# The batch is one sequence, so data parallelism has nothing to cut. What is left to cut is the
# sequence: **context parallelism**. Each of $n$ ranks gets $1/n$ of the tokens, and all of the
# layer that treats each token by itself (norms, projections, MLP, loss) runs on only those: the
# last bar. Only attention looks at other tokens. How, without any rank having them all?
#
# **Who solved it, and when.** Liu, Zaharia and Abbeel sent keys and values round a ring while each
# device works on the block that it has (Ring Attention, 2023, [arXiv
# 2310.01889](https://arxiv.org/abs/2310.01889)). Brandon et al. gave every device tokens from all
# over the sequence, so that a causal ring is balanced (Striped Attention, 2023, [arXiv
# 2311.09431](https://arxiv.org/abs/2311.09431)). Jacobs et al. exchanged tokens for heads
# (DeepSpeed Ulysses, 2023, [arXiv 2309.14509](https://arxiv.org/abs/2309.14509)). Llama 3 gathered
# keys and values at once, and balanced by chunks from both ends (2024, section 3.3.2, [arXiv
# 2407.21783](https://arxiv.org/abs/2407.21783)).

# %% [markdown]
# ## 2. Two softmaxes become one
#
# A rank will see all keys, but never all at once. Can attention over keys A and attention
# over keys B be put together, when the scores are long gone?
#
# The softmax of one query over keys A is
#
# $$\text{out}_A = \frac{\sum_{j \in A} e^{s_j} v_j}{\sum_{j \in A} e^{s_j}}
# \qquad\qquad \text{lse}_A = \log \sum_{j \in A} e^{s_j}$$
#
# The output alone is not enough: it does not say how large its denominator was. So keep the
# denominator too, as a logarithm, since $e^s$ soon overflows. The field calls it **lse**, for
# log-sum-exp. FlashAttention's kernels return it beside the output.
#
# ### Exercise 1: `partial_attention` (● 10 minutes)
#
# Attention of some queries over some keys, with its lse. The scores are $qk^T/\sqrt{D}$; a query
# sees the keys for which `visible` is True. It may see none at all: then its output is 0 and its
# lse ${-\infty}$, the logarithm of an empty sum.


# %% exercise="partial_attention"
def partial_attention(q, k, v, visible):
    """(out, lse) of queries (B, H, T, D) over keys (B, H, K, D); visible is (T, K)."""
    ### BEGIN SOLUTION
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)  # no key seen: nan, so 0
    ### END SOLUTION


# %% check="partial_attention"
check(partial_attention)

# %% [markdown]
# Stuck? `hint(partial_attention)` gives a nudge, `hint(partial_attention, 2)` more,
# `hint(partial_attention, 3)` almost the answer.
#
# ### Exercise 2: `merge_partials` (●● 10 minutes)
#
# A query may have seen nothing in A, in B, or in both. The denominator of the whole is
# $e^{\text{lse}_A} + e^{\text{lse}_B}$. What is its logarithm, and which share of the output is
# A's?


# %% exercise="merge_partials"
def merge_partials(out_a, lse_a, out_b, lse_b):
    """(out, lse) over keys A and B together."""
    ### BEGIN SOLUTION
    both = torch.stack([lse_a, lse_b])
    share_a, share_b = both.softmax(0).nan_to_num().unsqueeze(-1)  # none on both sides: nan, so 0
    return out_a * share_a + out_b * share_b, both.logsumexp(0)
    ### END SOLUTION


# %% check="merge_partials"
check(merge_partials)

# %% [markdown]
# One process, four blocks of keys, merged in another order:


# %%
def attention(q, k, v):
    """Causal attention in one process, by torch."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def drawn(tokens, heads=2, size=8, how_many=3):
    torch.manual_seed(0)
    return torch.randn(how_many, 1, heads, tokens, size, dtype=torch.float64)


def merge_in_place(out_a, lse_a, out_b, lse_b):
    out, lse = out_a.clone(), lse_a.clone()
    context_parallel.merge(out, lse, out_b, lse_b)
    return out, lse


def attend_masked(q, k, v, visible):
    return context_parallel.attend(q, k, v, visible[None, None], q.shape[-1] ** -0.5)


my_partial = yours_or(partial_attention, attend_masked)
my_merge = yours_or(merge_partials, merge_in_place)
some_q, some_k, some_v = drawn(64)
triangle = torch.ones(64, 64, dtype=torch.bool).tril()
merged = None
for block in (2, 0, 3, 1):
    keys = slice(16 * block, 16 * (block + 1))
    found = my_partial(some_q, some_k[:, :, keys], some_v[:, :, keys], triangle[:, keys])
    merged = found if merged is None else my_merge(*merged, *found)
apart = (merged[0] - attention(some_q, some_k, some_v)).abs().max().item()
print("equal to attention over all keys, within 1e-12:", "yes" if apart < 1e-12 else "no")

# %% [markdown]
# **Explain.** The order does not matter, and no block has seen another: blocks may come from
# anywhere, at any time. From a neighbour, for example.

# %% [markdown]
# ## 3. A ring of keys and values
#
# Rank $r$ keeps its queries. Its keys and values go to rank $r+1$, from there to $r+2$, and so on.
# In each step every rank hands on the block that it has and gets one from the rank before. After
# $n-1$ steps all have seen all blocks, and none has ever held more than two.
#
# ### Exercise 3: `pass_on` (● 10 minutes)
#
# The step of that ring. Every rank sends its tensors to the next one and returns those of the one
# before. If all ranks send first and wait, nobody receives: see [lesson 00](00_ranks.ipynb).


# %% exercise="pass_on"
def pass_on(tensors):
    """Sends tensors to rank + 1 and returns, in a list, what rank - 1 has sent."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return list(tensors)
    sending = [dist.isend(tensor, dst=(rank + 1) % n) for tensor in tensors]
    arrived = [torch.empty_like(tensor) for tensor in tensors]
    for tensor in arrived:
        dist.recv(tensor, src=(rank - 1) % n)
    for work in sending:
        work.wait()
    return arrived
    ### END SOLUTION


# %% check="pass_on"
check(pass_on)

# %% [markdown]
# **Predict.** One sequence of 512 tokens. In one process the largest tensor of attention is the
# matrix of scores. How many times smaller is a rank's largest in a ring of four? Of eight?

# %%
### BEGIN SOLUTION
guess_smaller = [16, 64]
### END SOLUTION

# %% [markdown]
# ### Exercise 4: `ring_attention` (●●● 20 minutes)
#
# Each rank has `q`, `k` and `v` of its own tokens. `positions` is a list: where in the sequence the
# tokens of each rank are. With eight tokens on two ranks it may be
#
#     [tensor([0, 1, 2, 3]), tensor([4, 5, 6, 7])]
#
# but any other split must work as well (section 5 says why). Attention is causal: a query sees the
# keys whose position is not larger than its own.
#
# - Begin with your own block, where every query sees at least itself.
# - Then hand on, receive, and merge what the new block adds. Whose block is it after $s$ steps?
# - The last block that arrives is not handed on.
# - A block in which nothing is visible may be computed all the same.
#
# Use your three functions.


# %% exercise="ring_attention"
def ring_attention(q, k, v, positions):
    """(out, lse) of this rank's queries over the keys of all ranks; positions by rank."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    mine = positions[rank]
    out, lse = partial_attention(q, k, v, mine[:, None] >= mine)
    for step in range(1, n):
        k, v = pass_on([k, v])
        visible = mine[:, None] >= positions[(rank - step) % n]
        out, lse = merge_partials(out, lse, *partial_attention(q, k, v, visible))
    return out, lse
    ### END SOLUTION


# %% check="ring_attention"
check(ring_attention)

# %% [markdown]
# A number is a rank's keys and values, the colour who sent them:


# %%
from course_lib.techniques.collectives.members import Members
from course_lib.views.moving_values import moving_values


def pass_on_of_the_course(tensors):
    everybody = Members.of(None)
    n, arrived = len(everybody), [torch.empty_like(tensor) for tensor in tensors]
    neighbours = (everybody.rank + 1) % n, (everybody.rank - 1) % n
    for mine, theirs in zip(tensors, arrived, strict=True):
        for work in everybody.start_exchange(mine, neighbours[0], theirs, neighbours[1]):
            work.wait()
    return arrived


one_step = yours_or(pass_on, pass_on_of_the_course)


def three_steps():
    block = torch.tensor([float(dist.get_rank())])
    mine = block.tolist()
    with arrivals() as arrived:
        for _ in range(3):
            (block,) = one_step([block])
    return mine, arrived, block.tolist()


run = run_ranks(three_steps, 4)
moving_values(run.trace, *zip(*run, strict=True), title="whose keys and values are where")

# %% [markdown]
# After $s$ steps rank $r$ has the block of rank $r - s$ (modulo $n$). Is the whole right, and how
# large is what it makes?


# %%
def the_courses_ring(q, k, v, positions):
    split = context_parallel.split_by_positions(positions)
    return context_parallel.ring_attention(q, k, v, split)


def my_ring(q, k, v, positions):
    return ring_attention(q, k, v, positions)[0]


ring = my_ring if solved(ring_attention) else the_courses_ring


def ring_against_one_process(tokens):
    n, rank = dist.get_world_size(), dist.get_rank()
    whole = drawn(tokens)
    positions = list(torch.arange(tokens).chunk(n))
    q, k, v = (each[:, :, positions[rank]].contiguous() for each in whole)
    with largest_tensor() as largest:
        out = ring(q, k, v, positions)
    wanted = attention(*whole)[:, :, positions[rank]]
    return (out - wanted).abs().max().item() < 1e-12, largest.nbytes


rows, in_one = [("ranks", "equal to one process", "largest tensor, KiB", "times smaller")], 0
for n in (1, 2, 4, 8):
    run = run_ranks(ring_against_one_process, n, 512, observe=False)
    most = max(nbytes for _, nbytes in run)
    in_one = in_one or most
    equal = "yes" if all(same for same, _ in run) else "no"
    rows.append((n, equal, f"{most / 2**10:,.0f}", f"{in_one / most:.0f}"))
print(table(rows))
print("your guesses for 4 and 8 ranks:", guessed(guess_smaller))

# %% [markdown]
# **Explain.** A block of queries against a block of keys is $(T/n)^2$ scores: with $n$ ranks $n^2$
# times fewer at a time. (A fused kernel does not store even these, and the library's ring uses
# torch's. What is left then is $q$, $k$, $v$ and the output of $T/n$ tokens.)

# %% [markdown]
# ## 4. The way back
#
# To train, gradients have to come back. Query gradients stay at home: a rank's queries are here,
# and the keys come by. But the gradient of a *key* is a sum over all queries that saw it, and these
# are on all ranks. So it has to travel.
#
# For one block, with $P = e^{S - \text{lse}}$ (a softmax over *all* keys, of which the block has
# some columns; 0 where a key is hidden) and the gradient $g$ of the output:
#
# $$dV = P^T g \qquad dS = P \circ (g V^T - \delta) \qquad dQ = \frac{dS\,K}{\sqrt{D}} \qquad
# dK = \frac{dS^T Q}{\sqrt{D}}$$
#
# Here $\delta = \text{rowsum}(g \circ \text{out})$ is one number per query. It stands for all the
# other keys in the derivative of the softmax: that is why a block needs to know nothing of the
# others but `out` and `lse`, which the forward pass has kept.
#
# ### Exercise 5: `ring_attention_backward` (●●● 30 minutes)
#
# Keys and values go round once more, and behind each block goes a second one: the gradients of
# these keys and values, as far as they have been summed up. Every rank adds its part and hands all
# four on. After $n-1$ steps all parts are in. Where is a block then, and how does its gradient get
# home?


# %% exercise="ring_attention_backward"
def ring_attention_backward(q, k, v, positions, out, lse, grad_out):
    """(grad_q, grad_k, grad_v) of this rank's tokens. out and lse are ring_attention's."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    scale = q.shape[-1] ** -0.5
    delta = (grad_out * out).sum(-1, keepdim=True)
    grad_q, grad_k, grad_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for step in range(n):
        if step > 0:
            k, v, grad_k, grad_v = pass_on([k, v, grad_k, grad_v])
        visible = positions[rank][:, None] >= positions[(rank - step) % n]
        scores = (q @ k.mT * scale).masked_fill(~visible, float("-inf"))
        weights = (scores - lse.unsqueeze(-1)).exp()
        grad_scores = weights * (grad_out @ v.mT - delta) * scale
        grad_q += grad_scores @ k
        grad_k += grad_scores.mT @ q
        grad_v += weights.mT @ grad_out
    grad_k, grad_v = pass_on([grad_k, grad_v])
    return grad_q, grad_k, grad_v
    ### END SOLUTION


# %% check="ring_attention_backward"
check(ring_attention_backward)

# %% [markdown]
# Both together make an operation that autograd takes like any other. Are its gradients those of one
# process?


# %%
class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, positions):
        out, lse = ring_attention(q, k, v, positions)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.positions = positions
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, out, lse = ctx.saved_tensors
        found = ring_attention_backward(q, k, v, ctx.positions, out, lse, gradient.contiguous())
        return *found, None


both = solved(ring_attention) and solved(ring_attention_backward)
differentiable_ring = RingAttention.apply if both else the_courses_ring


def gradients_against_one_process(tokens):
    n, rank = dist.get_world_size(), dist.get_rank()
    positions = list(torch.arange(tokens).chunk(n))
    *whole, weights = drawn(tokens, how_many=4)
    leaves = [each[:, :, positions[rank]].clone().requires_grad_() for each in whole]
    (differentiable_ring(*leaves, positions) * weights[:, :, positions[rank]]).sum().backward()

    all_of_it = [each.clone().requires_grad_() for each in whole]
    (attention(*all_of_it) * weights).sum().backward()
    pairs = zip(leaves, all_of_it, strict=True)
    return [(a.grad - b.grad[:, :, positions[rank]]).abs().max().item() for a, b in pairs]


run = run_ranks(gradients_against_one_process, 4, 64)
names = ("queries", "keys", "values")
for name, *apart in zip(names, *run, strict=True):
    equal = "yes" if max(apart) < 1e-12 else "no"
    print(f"gradients of {name} on 4 ranks, within 1e-12 of one process: {equal}")
block = 2 * 2 * 16 * 8 * 8  # keys and values, 2 heads, 16 tokens of size 8, float64
print("sent by each rank, in blocks of keys and values:", run.trace.traffic().sent[0] // block)

# %% [markdown]
# **Explain.** Three blocks forward. Backward three blocks again, and the gradients of as many, plus
# one step home if your own part travels with them: ten blocks in all. (A rank that adds its own
# part only when its gradients come home saves that step: nine. The library's does.)

# %% [markdown]
# ## 5. The causal triangle
#
# With a causal mask half of all pairs are hidden. Who has the other half? Rank 0 has the first
# tokens, which see almost nothing. The last rank has those that see everything. And a ring goes at
# the pace of its slowest member.
#
# **Predict.** Four ranks, plain split (rank 0 has the first quarter, and so on). Blocks in which
# nothing is seen are not computed, and a block on the diagonal is half the work. What share of the
# time of all four ranks is idle, as a number from 0 to 1?

# %%
### BEGIN SOLUTION
guess_idle = 0.43
### END SOLUTION

# %% [markdown]
# ### Exercise 6: `causal_work` (● 5 minutes)
#
# Count it. Given the positions of all ranks, return a table: for rank $r$ and step $s$ of the ring,
# the number of pairs (query, key) in which rank $r$'s query sees a key of the block that it has at
# that step.


# %% exercise="causal_work"
def causal_work(positions):
    """For each rank a row, and in it for each step: the visible pairs of its queries and keys."""
    ### BEGIN SOLUTION
    n = len(positions)
    return [
        [int((positions[r][:, None] >= positions[(r - s) % n]).sum()) for s in range(n)]
        for r in range(n)
    ]
    ### END SOLUTION


# %% check="causal_work"
check(causal_work)


# %%
def work_of_the_course(positions):
    return context_parallel.work(context_parallel.split_by_positions(positions))


my_work = yours_or(causal_work, work_of_the_course)


def in_blocks(positions):
    """The table in units of a whole block of queries against a whole block of keys."""
    block = len(positions[0]) ** 2
    return [
        [pairs / block for pairs in row] for row in torch.as_tensor(my_work(positions)).tolist()
    ]


def idle_share(work):
    """Each step lasts as long as its busiest rank."""
    lasts = sum(max(of_ranks) for of_ranks in zip(*work, strict=True))
    return 1 - sum(map(sum, work)) / (len(work) * lasts)


plain = list(torch.arange(4096).chunk(4))
rows = [("plain split, in blocks", *(f"step {step}" for step in range(4)))]
for rank_of_row, row in enumerate(in_blocks(plain)):
    rows.append((f"rank {rank_of_row}", *(f"{cell:.2f}" for cell in row)))
print(table(rows))
print(f"idle: {idle_share(in_blocks(plain)):.1%} of the time of all ranks")
print("your guess:", guessed(guess_idle))

# %% [markdown]
# The same with 24 tokens. In the triangle a row is a query and a column is a key. The colour is the
# rank that computes the pair, and the number the step of the ring at which it does. The bars are
# the same work, step by step.

# %%
from course_lib.views.context_explorer import context_ring

context_ring("plain")

# %% [markdown]
# **Explain.** Every step but the first lasts a whole block, since the last rank has one. The first
# lasts half a block. So all ranks take $n - \frac12$ blocks of time, and together they have
# $\frac{n^2}{2}$ blocks of work: idle is
#
# $$1 - \frac{n^2/2}{n\,(n - 1/2)} = \frac{n-1}{2n-1}$$
#
# With more ranks that approaches one half. (And an implementation that does not skip what is hidden
# has no idle time: its ranks spend it on computing what the mask then throws away.)
#
# **The cure** is to deal the tokens out differently. Cut the sequence into $2n$ chunks and give
# rank $r$ two of them: number $r$ from the front and number $r$ from the end. One sees little, the
# other much. This is the **zigzag** split; Llama 3 does it (section 3.3.2), and PyTorch calls it
# head-tail.
#
# ### Exercise 7: `zigzag_positions` (● 10 minutes)
#
# Which positions does a rank hold? If $2n$ does not divide the length, raise a `ValueError` that
# names both numbers.


# %% exercise="zigzag_positions"
def zigzag_positions(length, n, rank):
    """The positions of rank's tokens: chunks rank and 2n - 1 - rank, of 2n."""
    ### BEGIN SOLUTION
    if length % (2 * n):
        raise ValueError(f"{n} ranks, two chunks each, cannot share {length} tokens equally")
    chunks = torch.arange(length).chunk(2 * n)
    return torch.cat([chunks[rank], chunks[2 * n - 1 - rank]])
    ### END SOLUTION


# %% check="zigzag_positions"
check(zigzag_positions)

# %% [markdown]
# **Predict.** And with the zigzag split, what share is idle? And with stripes (rank $r$ has the
# tokens $r$, $r+n$, $r+2n$, ...: Striped Attention)?

# %%
### BEGIN SOLUTION
guess_idle_zigzag = 0
guess_idle_striped = 0
### END SOLUTION


# %%
def zigzag_of_the_course(length, n, rank):
    return context_parallel.zigzag_split(length, n).positions(rank)


one_zigzag = yours_or(zigzag_positions, zigzag_of_the_course)


def my_zigzag(length, n):
    return [torch.as_tensor(one_zigzag(length, n, each)) for each in range(n)]


splits = {
    "plain": lambda length, n: list(torch.arange(length).chunk(n)),
    "zigzag": my_zigzag,
    "striped": lambda length, n: [torch.arange(length)[each::n] for each in range(n)],
}
rows = [("idle, of the time of all ranks", *(f"{n} ranks" for n in (2, 4, 8, 16)))]
for name, split in splits.items():
    shares = [idle_share(in_blocks(split(4096, n))) for n in (2, 4, 8, 16)]
    rows.append((name, *(f"{share:.1%}" for share in shares)))
print(table(rows))
print("your guesses:", guessed(guess_idle_zigzag, guess_idle_striped))
context_ring("zigzag")

# %% [markdown]
# **Explain.** With zigzag every rank sees half of every block. If the block is from a rank with a
# larger number, the first chunk of the rank that computes sees nothing of it, and the second chunk
# sees all: find rank 0 at step 1. If it is from a rank with a smaller number, both chunks see its
# first half, and neither sees its second: find rank 3 at step 1. All steps are the same but for the
# diagonal of the first. With stripes every block is a triangle, with its diagonal or without: what
# is idle is the diagonal. Zigzag has few long pieces, which kernels like; in a stripe every block
# needs a mask.
#
# So much for counting pairs. Is it so on real ranks? Below, four of them run the library's ring,
# which skips what nobody sees, on 4096 tokens. A block is timed by the processor time of its
# rank, so it does not matter that four ranks may share fewer cores.


# %% tags=["nbval-ignore-output"]
def timed_ring(positions):
    """Once to warm up, and once under a label."""
    q, k, v = (torch.randn(1, 4, len(positions[0]), 64) for _ in range(3))
    split = context_parallel.split_by_positions(positions)
    context_parallel.ring_attention(q, k, v, split)
    with torch.profiler.record_function("measured"):
        context_parallel.ring_attention(q, k, v, split)


def seconds_of_blocks(positions):
    """A table like that of `causal_work`, in seconds."""
    n = len(positions)
    table = [[0.0] * n for _ in range(n)]
    for span in run_ranks(timed_ring, n, positions).trace.within("measured").compute:
        if span.name.startswith("attention to the keys of rank "):
            source = int(span.name.split()[-1])
            table[span.rank][(span.rank - source) % n] += span.seconds
    return table


rows = [("idle", "as counted", "as measured")]
for name in ("plain", "zigzag"):
    positions_by_rank = splits[name](4096, 4)
    counted, taken = in_blocks(positions_by_rank), seconds_of_blocks(positions_by_rank)
    rows.append((name, f"{idle_share(counted):.1%}", f"{idle_share(taken):.1%}"))
print(table(rows))

# %% [markdown]
# Not quite: equal blocks do not take equal times, least of all on a busy machine, and each step
# waits for the slowest. But zigzag wins back most of the time that the plain split loses.
#
# ### Where is my token?
#
# A rank's tokens no longer begin at 0, and with zigzag they are not even in a row. Attention does
# not care, since the mask goes by `positions`. But rotary position embeddings turn a query by an
# angle that depends on its position in the *sequence*. A rank that turns its tokens by their places
# on the rank, 0, 1, 2, ..., makes no error that anybody sees: shapes fit, the loss falls.
#
# **Predict.** 64 tokens on four ranks, zigzag. On which ranks is the output right, if every rank
# counts its own tokens from 0?

# %%
### BEGIN SOLUTION
guess_right_ranks = []
### END SOLUTION


# %%
def rotated_ring(by):
    n, rank = dist.get_world_size(), dist.get_rank()
    positions = my_zigzag(64, n)
    whole_q, whole_k, whole_v = drawn(64)
    everywhere = torch.arange(64)
    wanted = attention(
        context_parallel.rotary(whole_q, everywhere),
        context_parallel.rotary(whole_k, everywhere),
        whole_v,
    )[:, :, positions[rank]]
    q, k, v = (each[:, :, positions[rank]].contiguous() for each in (whole_q, whole_k, whole_v))
    counted = positions[rank] if by == "position" else torch.arange(len(positions[rank]))
    q, k = (context_parallel.rotary(each, counted) for each in (q, k))
    return (ring(q, k, v, positions) - wanted).abs().max().item() < 1e-12


for by in ("position", "place on the rank"):
    right = [each for each, ok in enumerate(run_ranks(rotated_ring, 4, by)) if ok]
    print(f"turned by {by}, right on ranks:", guessed(right))
print("your guess:", guessed(guess_right_ranks))

# %% [markdown]
# **Explain.** On none. (Rank 0's first chunk is, since that does begin at 0; its second one is
# not.) Rotary embeddings depend only on *differences* of positions, so a rank whose tokens are in a
# row would be right about its own block; but its keys go to others, and with zigzag there is a gap
# inside of its own. The positions of the split go into the embedding, into the mask, and into
# nothing else: norms, projections, MLP and loss treat each token by itself.

# %% [markdown]
# ## 6. Tokens for heads: Ulysses
#
# A quite different idea. A head needs all tokens, but it does not need the other heads. So
# exchange: before attention each rank gives away $(n-1)/n$ of its heads and gets the tokens of the
# others for the heads that it keeps. Then it has *all tokens of $H/n$ heads*, and attention is that
# of one process, with any kernel and any mask. After it, back: all heads of $T/n$ tokens.
#
# The exchange is an **all-to-all**: rank $r$ sends part $s$ to rank $s$ and gets part $r$ of every
# rank. `dist.all_to_all(arrived, parts)` takes two lists of $n$ contiguous tensors. Here with
# four heads, and numbers in which the tens are the piece of the sequence and the ones the head:


# %%
def exchange_numbers():
    mine = torch.tensor([10.0 * dist.get_rank() + head for head in range(4)])
    got = torch.empty(4)
    with arrivals() as arrived:
        dist.all_to_all(list(got.split(1)), list(mine.split(1)))
    return mine.tolist(), arrived, got.tolist()


run = run_ranks(exchange_numbers, 4)
moving_values(run.trace, *zip(*run, strict=True), title="tokens for heads")

# %% [markdown]
# Rank 1 had all heads of piece 1: 10, 11, 12 and 13. Now it has head 1 of all pieces: 1, 11, 21 and
# 31.
#
# ### Exercise 8: `ulysses_attention` (●● 20 minutes)
#
# The sequence is split plainly: rank $r$ has piece $r$. Compute the causal attention of this rank's
# tokens, all heads. If the ranks do not divide the heads, raise a `ValueError` that names both
# numbers, before anything is sent. (Forward only. The backward of an all-to-all is the all-to-all
# that brings everything back.)


# %% exercise="ulysses_attention"
def ulysses_attention(q, k, v):
    """q, k and v (B, H, T/n, D) of this rank's piece of the sequence -> its output, as large."""
    ### BEGIN SOLUTION
    n, heads = dist.get_world_size(), q.shape[1]
    if heads % n:
        raise ValueError(f"{heads} heads cannot be shared by {n} ranks")

    def exchange(x, cut, join):
        parts = [part.contiguous() for part in x.chunk(n, cut)]
        arrived = [torch.empty_like(part) for part in parts]
        dist.all_to_all(arrived, parts)
        return torch.cat(arrived, join)

    q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return exchange(out, 2, 1)
    ### END SOLUTION


# %% check="ulysses_attention"
check(ulysses_attention)

# %% [markdown]
# It is balanced by itself: every rank has the whole triangle, of its heads. And it ends where the
# heads end. Llama 3 8B has 8 heads of keys and values: on 16 ranks they would have to be repeated.

# %% [markdown]
# ## 7. What is sent
#
# A third way is the simplest: **all-gather**. Every rank gathers all keys and values at once and
# attends with its own queries. Llama 3 does this, for two reasons that its section 3.3.2 gives: any
# mask is easy then, and with grouped-query attention keys and values are so small that gathering
# them costs little beside attention.
#
# **Predict.** 64 tokens, 4 heads of each, on two and on four ranks. Which of the three sends least
# in the forward pass, or are they equal? (Each rank sends its part of an all-gather on $n-1$ times.
# Count before you write a formula.)

# %%
### BEGIN SOLUTION
guess_least_of_two = "all the same"
guess_least_of_four = "Ulysses"
### END SOLUTION

# %% [markdown]
# ### Exercise 9: `context_bytes` (●● 10 minutes)
#
# How many bytes does one rank send in the forward pass of one layer, for each of the three? An
# all-gather by a ring sends each rank's part on $n-1$ times. There are `heads` heads of queries and
# of the output, and `kv_heads` of keys and of values. $n$ divides all of them, and the tokens.


# %% exercise="context_bytes"
def context_bytes(tokens, n, heads, kv_heads, head_size, element_size):
    """Bytes sent by one rank: (ring, all_gather, ulysses)."""
    ### BEGIN SOLUTION
    token = head_size * element_size  # bytes of one head of one token
    ring = (n - 1) * tokens / n * 2 * kv_heads * token
    ulysses = (n - 1) / n * tokens / n * 2 * (heads + kv_heads) * token
    return ring, ring, ulysses
    ### END SOLUTION


# %% check="context_bytes"
check(context_bytes)

# %% [markdown]
# All three on real ranks, and the bytes that were sent:


# %%
def all_gather_attention(q, k, v, positions):
    n, rank = dist.get_world_size(), dist.get_rank()
    both = torch.stack([k, v])
    parts = [torch.empty_like(both) for _ in range(n)]
    dist.all_gather(parts, both)
    keys, values = torch.cat(parts, 3)
    return my_partial(q, keys, values, positions[rank][:, None] >= torch.cat(positions))[0]


def ulysses_of_the_course(q, k, v):
    n = dist.get_world_size()
    split = context_parallel.plain_split(q.shape[2] * n, n)
    return context_parallel.ulysses_attention(q, k, v, split)


my_ulysses = yours_or(ulysses_attention, ulysses_of_the_course)
ways = {
    "ring": ring,
    "all-gather": all_gather_attention,
    "Ulysses": lambda q, k, v, positions: my_ulysses(q, k, v),
}


def bytes_by_the_course(tokens, n, heads, kv_heads, head_size, element_size):
    split = context_parallel.plain_split(tokens, n)
    shape = (kv_heads, head_size, element_size)
    ring_bytes, _ = context_parallel.ring_bytes(split, 0, 1, *shape)
    ulysses_bytes, _ = context_parallel.ulysses_bytes(split, 0, 1, heads, *shape)
    return ring_bytes, ring_bytes, ulysses_bytes


def one_way(attend):
    n, rank = dist.get_world_size(), dist.get_rank()
    positions = list(torch.arange(64).chunk(n))
    whole = drawn(64, heads=4)
    out = attend(*(each[:, :, positions[rank]].contiguous() for each in whole), positions)
    return (out - attention(*whole)[:, :, positions[rank]]).abs().max().item() < 1e-12


my_bytes = yours_or(context_bytes, bytes_by_the_course)
rows = [("", "output right", "by formula, bytes", "sent, bytes")]
for n in (2, 4):
    for (name, attend), formula in zip(ways.items(), my_bytes(64, n, 4, 4, 8, 8), strict=True):
        run = run_ranks(one_way, n, attend)
        sent = run.trace.traffic().sent[0]
        right = "yes" if all(run) else "no"
        rows.append((f"{n} ranks, {name}", right, f"{formula:,.0f}", f"{sent:,}"))
print(table(rows))
print("your guesses:", guessed(guess_least_of_two, guess_least_of_four))

# %% [markdown]
# **Explain.** Ring and all-gather send the same bytes: every block has to come to every rank. They
# differ in *when*, and in what is held. The ring holds two blocks and can hide a block's journey
# behind the attention to the one before (section 10). The all-gather waits first and holds all keys
# and values, $n/2$ times as much.
#
# Ulysses sends $q$ and the output too, but of all that only $1/n$ to each rank. With as many tokens
# on each rank, a rank never sends more than $4Nh/P$ elements, however many ranks there are (in the
# words of the paper: $N$ tokens, width $h$ and $P$ ranks). (So on two ranks all three send the
# same, and on four Ulysses half as much as the others.) With few heads of keys and values the
# balance tips. For the model of section 1:

# %%
from course_lib.views.grouped_bars import grouped_bars

by_ranks = {}
for n in (2, 4, 8):
    sizes = (nbytes / GB for nbytes in my_bytes(TOKENS, n, HEADS, KV_HEADS, SIZE, 2))
    by_ranks[f"{n} ranks"] = dict(zip(ways, sizes, strict=True))
grouped_bars(
    by_ranks,
    "Sent by each rank for one layer of the model of section 1",
    "GB, forward",
    "{:.2f}".format,
)

# %% [markdown]
# Ulysses sends $\frac{H + K}{nK}$ times what the ring sends, with $H$ heads of queries and $K$ of
# keys: here $5/n$. More on two and on four ranks, less on eight.
#
# ### Is that not sequence parallelism?
#
# The two names are often mixed up; they are two ideas. *Sequence parallelism* (Korthikanti et al.
# 2022, the assignment of [lesson 04](04_tensor_parallel.ipynb)) helps a tensor parallel group: it
# splits norms and dropout by tokens, and *gathers all tokens* for attention and MLP, whose weights
# are split. It ends where tensor parallelism ends, at the eight GPUs of a machine, since every
# layer sends several tensors as large as the activations. *Context parallelism* keeps the weights
# whole and never gathers the tokens. What it sends is keys and values, and these are small:

# %%
# Lesson 04: forward, two all-gathers and two reduce-scatters of all activations, in bfloat16
per_layer = 4 * (8 - 1) / 8 * TOKENS * WIDTH * 2
ring_of_8 = 2 * (8 - 1) / 8 * TOKENS * KV_HEADS * SIZE * 2
rows = [("8 ranks", "GB sent by each rank for one layer, forward")]
rows.append(("tensor parallel with sequence parallelism", f"{per_layer / GB:.2f}"))
rows.append(("context parallel", f"{ring_of_8 / GB:.2f}"))
print(table(rows))

# %% [markdown]
# The two go together: tensor parallel inside a machine, context parallel
# across machines.


# %% [markdown]
# ## 8. A real model, and PyTorch's own
#
# A whole GPT needs no more than a wrapper. `ContextParallelGPT` takes a model as one process has it
# and changes only where tokens look at each other and at their positions. Its attention can be
# exchanged, so here it runs with yours, if you have passed it: sequences of eight tokens, zigzag,
# on two and on four ranks. (The library's own attention also takes lengths that ranks cannot share
# evenly.)
#
# One thing is new: the loss. Each rank has the targets of its own tokens, and the mean is over all
# targets there are. In this task, sorting, the first tokens of a sequence have no target, so some
# ranks have fewer than others. The mean of the ranks' means would be a different number.

# %%
from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss


def my_attention(q, k, v, split, group=None, **options):
    """Yours, as the library calls it."""
    positions = [split.positions(rank) for rank in range(split.ranks)]
    return differentiable_ring(q.contiguous(), k.contiguous(), v.contiguous(), positions)


def train(model, loss_of, finish=lambda: None):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for tokens, targets in batches(4, 16):
        loss = loss_of(tokens[:, :8], targets[:, :8])
        loss.backward()
        finish()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def alone():
    model = tiny_gpt(hidden=32, seed=0)
    return train(model, lambda tokens, targets: token_loss(model(tokens), targets))


def on_a_ring():
    whole = tiny_gpt(hidden=32, seed=0)
    model = context_parallel.ContextParallelGPT(whole, attention=my_attention)
    return train(model, model.loss, lambda: context_parallel.average_gradients(model))


by_ranks = {"one process": alone()}
for n in (2, 4):
    by_ranks[f"{n} ranks"] = run_ranks(on_a_ring, n, observe=False)[0]
steps = [f"step {step}" for step in range(1, 5)]
rows = [(name, *(f"{loss:.4f}" for loss in losses)) for name, losses in by_ranks.items()]
print(table([("loss", *steps), *rows]))

# %% [markdown]
# The weights are whole on every rank, and each rank's gradient is a summand from its own tokens. So
# gradients are averaged as in [data parallelism](03_data_parallel.ipynb), and the ranks of a
# context group may share weights and optimizer state by [ZeRO](06_zero.ipynb) with those of a data
# parallel one. To the optimizer a piece of a sequence is a piece of the batch.
#
# **PyTorch's own** is `context_parallel` in `torch.distributed.tensor.experimental`: a context in
# which `scaled_dot_product_attention` runs as a ring, or after an all-gather. Its kernels are those
# of GPUs. On a CPU it says so:

# %% tags=["nbval-ignore-output"]
import textwrap

from torch.distributed.tensor import experimental


def with_pytorch():
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    q, k, v = drawn(64)
    buffers = {"buffers": [q, k, v], "buffer_seq_dims": [2, 2, 2]}
    try:
        with experimental.context_parallel(mesh, **buffers):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
    except (NotImplementedError, RuntimeError) as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return "it runs on a CPU by now"


print(textwrap.fill(run_ranks(with_pytorch, 2, observe=False)[0][:160], 88))

# %% [markdown]
# The ring that it is built on can be tried all the same: it takes any kernel that gives an output
# and its lse, and torch has one for CPUs. (These are private names, of torch 2.13; other versions
# may have moved them.)


# %%
def pytorchs_ring(tokens):
    """(whether it equals one process, its positions by rank); None if its names have changed."""
    try:
        from torch.distributed.tensor.experimental._context_parallel import _attention as theirs
        from torch.distributed.tensor.experimental._context_parallel import _load_balancer as dealer

        deal, whole_ring = dealer._HeadTailLoadBalancer, theirs._templated_ring_attention
        kernel = theirs.aten._scaled_dot_product_flash_attention_for_cpu
    except (ImportError, AttributeError):
        return None
    n, rank = dist.get_world_size(), dist.get_rank()
    order = deal(tokens, n, "cpu")._generate_indices().flatten()
    positions = [each.sort().values for each in order.chunk(n)]
    theirs._cp_options.enable_load_balance = True
    theirs.set_rotate_method("alltoall")
    whole = drawn(tokens)
    q, k, v = (each[:, :, positions[rank]].contiguous() for each in whole)
    out = whole_ring(dist.group.WORLD, 2, kernel, q, k, v, is_causal=True)[0]
    wanted = attention(*whole)[:, :, positions[rank]]
    return (out - wanted).abs().max().item() < 1e-6, [each.tolist() for each in positions]


def my_ring_by_zigzag(tokens):
    positions = my_zigzag(tokens, dist.get_world_size())
    rank = dist.get_rank()
    return ring(*(each[:, :, positions[rank]].contiguous() for each in drawn(tokens)), positions)


theirs = run_ranks(pytorchs_ring, 4, 64)
if theirs[0] is None:
    print("this version of torch keeps its ring elsewhere")
else:
    mine = run_ranks(my_ring_by_zigzag, 4, 64)
    same = theirs[0][1] == [each.tolist() for each in my_zigzag(64, 4)]
    own = "your ring" if ring is my_ring else "the course's ring"
    print("PyTorch's ring equals one process:", "yes" if all(ok for ok, _ in theirs) else "no")
    print("its split is the zigzag split:", "yes" if same else "no")
    print(f"bytes sent by rank 0, PyTorch's ring: {theirs.trace.traffic().sent[0]:,}")
    print(f"bytes sent by rank 0, {own}: {mine.trace.traffic().sent[0]:,}")

# %% [markdown]
# PyTorch needs no mask to skip what zigzag hides. If a block comes from a rank with a smaller
# number, all queries attend to the first half of its keys. If it comes from one with a larger
# number, the second half of the queries attends to all of them. That is why its ring works with
# kernels that know no masks but "causal" and "everything".

# %% [markdown]
# ## 9. Explore
#
# The picture of section 5, to play with.

# %%
from course_lib.views.context_explorer import context_explorer

context_explorer(own=one_zigzag)

# %% [markdown]
# **Explore.** Plain split: at which step has rank 1 nothing to do? Zigzag: look only at step 1.
# Which pairs does rank 0 have there? Stripes: what is idle, and why is it so much more than in the
# table of section 5?
#
# <details><summary>Answers</summary>
#
# At steps 2 and 3: what arrives then are later tokens, of ranks 3 and 2. With zigzag rank 0 has at
# step 1 its last three tokens against all six of rank 3, and nothing for its first three. With
# stripes it is the diagonal again. Of 24 tokens it is a large part of every block, and 11 % are
# idle; of 4096 tokens it was 0.1 %.
#
# </details>

# %% [markdown]
# ## 10. At scale: when does the ring hide?
#
# While a rank attends to one block, the next can travel. If it arrives in time, the ring costs
# nothing. A block of $T$ tokens takes a time that grows with $T$ to travel, and attention to it one
# that grows with $T^2$. So it is a question of tokens *per rank*, not of ranks.
#
# **Predict.** The attention of section 1 on A100s that reach half of their peak, zigzag split, 2048
# tokens per rank. Does a block travel in time over NVLink (300 GB/s)? Between machines, over
# InfiniBand (25 GB/s)?

# %%
### BEGIN SOLUTION
guess_nvlink = True
guess_infiniband = False
### END SOLUTION

# %% [markdown]
# Here are two rings. One waits for a block and then attends, like your `ring_attention`. The other
# starts the journey first and attends meanwhile.


# %%
def neighbours():
    n, rank = dist.get_world_size(), dist.get_rank()
    return (rank + 1) % n, (rank - 1) % n


def waiting(block, attend):
    following, before = neighbours()
    attend()
    for _ in range(dist.get_world_size() - 1):
        coming = torch.empty_like(block)
        sending = dist.isend(block, dst=following)
        dist.recv(coming, src=before)
        sending.wait()
        block = coming
        attend()


def ahead(block, attend):
    following, before = neighbours()
    for _ in range(dist.get_world_size() - 1):
        coming = torch.empty_like(block)
        works = [dist.isend(block, dst=following), dist.irecv(coming, src=before)]
        attend()
        for work in works:
            work.wait()
        block = coming
    attend()


# %% [markdown]
# Both run on four real ranks and are replayed on modelled machines. Messages have their real size;
# attention takes the time that it would take on an A100. The times are of all four steps. (You need
# not read how it is measured.)

# %%
from dataclasses import replace

from course_lib.simulate import LINKS, dgx_a100, replay

REACHED = 0.5 * 312e12  # floating-point operations per second


def attention_seconds(tokens):
    """Half of all pairs are seen, each for 4 operations per head and unit of its size."""
    return 4 * HEADS * SIZE * tokens**2 / 2 / REACHED


def travel(execute, tokens):
    began = []
    block = torch.zeros(2, KV_HEADS, tokens, SIZE, dtype=torch.bfloat16)
    dist.barrier()
    execute(block, lambda: began.append(time.monotonic()))
    return began


def replayed(execute, tokens, clusters):
    run = run_ranks(travel, 4, execute, tokens)
    compute = [
        SimpleNamespace(rank=rank, name=f"step {s}", start=start, seconds=attention_seconds(tokens))
        for rank, began in enumerate(run)
        for s, start in enumerate(began)
    ]
    return [replay(run.trace, each, compute=compute).makespan for each in clusters]


one_gpu_each = replace(dgx_a100, name="4 machines", devices_per_node=1, adapters=1, nodes=4)
links = {name: LINKS[name] for name in ("NVLink 3", "InfiniBand HDR", "10 GbE")}
clusters = {
    name: dgx_a100 if name == "NVLink 3" else one_gpu_each.with_links(between=link)
    for name, link in links.items()
}
columns = [["ms, by tokens per rank", "attention alone"]]
columns[0] += [f"{name}, {how}" for name in clusters for how in ("waiting", "ahead")]
for tokens_each in (512, 2048, 8192):
    by_way = [replayed(each, tokens_each, clusters.values()) for each in (waiting, ahead)]
    alone_ms = 4 * attention_seconds(tokens_each) * 1e3
    times = (f"{seconds * 1e3:.2f}" for pair in zip(*by_way, strict=True) for seconds in pair)
    columns.append([f"{tokens_each:,}", f"{alone_ms:.2f}", *times])
print(table(zip(*columns, strict=True)))
print("your guesses:", guessed(guess_nvlink, guess_infiniband))

# %% [markdown]
# **Explain.** "Ahead" takes as long as attention by itself wherever a block arrives in time: over
# NVLink on all three lengths, over InfiniBand only on the longest, over 10 GbE on none.
#
# A block takes $4TKD/B$ seconds to travel ($K$ heads of keys, size $D$, two bytes, keys and values,
# bandwidth $B$) and $2T^2HD/F$ seconds of attention at $F$ operations per second, since half of the
# pairs are hidden. It is in time if
#
# $$T \ge \frac{2\,F\,K}{H\,B}$$
#
# $n$ does not occur: what counts is how many tokens each rank has.

# %%
from course_lib.views.ratio_curves import ratio_curves

enough = {name: 2 * REACHED * KV_HEADS / (HEADS * link.bandwidth) for name, link in links.items()}
for name, tokens_each in enough.items():
    print(f"over {name} a ring hides from {tokens_each:,.0f} tokens per rank on")
per_rank = [2**power for power in range(7, 18)]
ratio_curves(
    per_rank,
    {name: [max(1, least / each) for each in per_rank] for name, least in enough.items()},
    "tokens per rank",
    "time of a step, over its attention",
    "A step takes as long as its attention, or as the journey of its block",
    highest=5,
)

# %% [markdown]
# At 1 nothing is seen of the network. Liu et al. have the same
# condition without a causal mask and with as many heads of keys as of queries, a block of at least
# $F/B$ tokens (section 3). So a ring is for *long* sequences, not for many ranks. Cut a short one
# over many machines, and it is the network that you train.
#
# **Llama 3** was trained on 131,072 tokens with 16 ranks in the context group, 8-way tensor
# parallel, on H100s with 50 GB/s between machines, by all-gather. How much does a rank wait for it?

# %%
tokens_405b, ranks_405b = 131_072, 16
heads_405b, kv_heads_405b = 128 // 8, 8 // 8  # of one rank, after tensor parallelism
gathered = (ranks_405b - 1) / ranks_405b * tokens_405b * 2 * kv_heads_405b * 128 * 2
pairs_each = tokens_405b**2 / 2 / ranks_405b
attending = 4 * heads_405b * 128 * pairs_each / 400e12  # at 400 TFLOP/s
print(f"gathering {gathered / 1e6:.0f} MB takes {gathered / 50e9 * 1e3:.1f} ms")
print(f"attention takes {attending * 1e3:.0f} ms")
print(f"the first is {gathered / 50e9 / attending:.0%} of the second")

# %% [markdown]
# That is the second of its two reasons, as a number. (The first was that any mask is easy.)

# %% [markdown]
# ## 11. Two claims put to the test
#
# ### "With n ranks a sequence can be n times as long"
#
# **Predict.** 256 tokens on *every* rank, so the sequence grows with the ranks. For which of ring,
# all-gather and Ulysses does the largest tensor of a rank stay as it is?

# %%
### BEGIN SOLUTION
guess_stays = ["ring", "Ulysses"]
### END SOLUTION


# %%
def largest_of_a_rank(attend, tokens_each):
    n, rank = dist.get_world_size(), dist.get_rank()
    split = context_parallel.plain_split(tokens_each * n, n)
    whole = drawn(tokens_each * n, heads=8)
    q, k, v = (each[:, :, split.positions(rank)].contiguous() for each in whole)
    with largest_tensor() as largest:
        attend(q, k, v, split)
    return largest.nbytes


attentions = {
    "ring": context_parallel.ring_attention,
    "all-gather": context_parallel.all_gather_attention,
    "Ulysses": context_parallel.ulysses_attention,
}
rows = [("KiB of the largest tensor", *(f"{n} ranks" for n in (2, 4, 8)))]
for name, attend in attentions.items():
    most = [max(run_ranks(largest_of_a_rank, n, attend, 256, observe=False)) for n in (2, 4, 8)]
    rows.append((name, *(f"{nbytes / 2**10:,.0f}" for nbytes in most)))
print(table(rows))
print("your guess:", guessed(guess_stays))

# %% [markdown]
# **Explain.** The ring's largest tensor is its room for two blocks of keys and values (on two ranks
# these are all there are), Ulysses's is $q$, $k$ and $v$ of its heads: neither grows. The
# all-gather has all keys and values of the sequence, twice as much with twice the ranks. So the
# claim holds for the ring; for Ulysses as long as there are enough heads; and for the all-gather up
# to the length at which the keys and values of *one layer* no longer fit, and with grouped-query
# attention that is very long. (And the weights are whole on every rank all the while: they need
# ZeRO, or tensor parallelism.)
#
# ### "The zigzag split is balanced"
#
# True of one causal triangle. And of packed documents, of which each token sees only its own? Take
# four of them in 4096 tokens, on four ranks.
#
# **Predict.** With one document the plain split is idle for 43 % of the time, and zigzag for none
# of it. What share is idle with zigzag and four documents?

# %%
### BEGIN SOLUTION
guess_idle_packed = 0.4
### END SOLUTION

# %%
packed = torch.arange(4).repeat_interleave(torch.tensor([700, 1500, 300, 1596]))
rows = [("idle, of the time of all ranks", "one document", "four documents")]
for name in ("plain", "zigzag", "striped"):
    split = getattr(context_parallel, f"{name}_split")(4096, 4)
    one, four = (idle_share(context_parallel.work(split, documents=d)) for d in (None, packed))
    rows.append((name, f"{one:.1%}", f"{four:.1%}"))
print(table(rows))
print("your guess:", guessed(guess_idle_packed))

# %% [markdown]
# False. With four documents zigzag is hardly better than the plain split: its two chunks make up
# for each other only if the last tokens see the first ones. Stripes stay balanced, since every rank
# has every fourth token of every document. (The picture of section 9 shows why, with three
# documents in 24 tokens: there zigzag is idle for 46 % of the time, and stripes for 21 %.) PyTorch
# has a split for this case as well, head-tail inside of each document; Llama 3 gathers keys and
# values, so that no step waits for another rank's.
#
# ## 12. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. Eight ranks, plain split, causal. What share of the time is idle? With zigzag, how much faster
#    is a step of attention?
#
#    <details><summary>Answer</summary>
#    7/15 = 47 %. Zigzag takes n²/2 = 32 blocks on 8 ranks, 4 blocks of time, where plain takes 7.5:
#    it is 1.9 times as fast. (Brandon et al. measured up to 1.45 for a whole training step with
#    stripes on A100s, at 256 k tokens.)
#    </details>
#
# 2. A model with 32 heads of queries and 32 of keys, over InfiniBand at 25 GB/s, A100s at half of
#    their peak. How many tokens does each rank need, so that the ring hides?
#
#    <details><summary>Answer</summary>
#    2 · 156e12 / 25e9 = 12,480. Grouped-query attention with a quarter of the keys makes it 3,120.
#    </details>
#
# 3. You have 64 GPUs in 8 machines, and a model with 8 heads of keys and values. How would you cut
#    a sequence of a million tokens?
#
#    <details><summary>Answer</summary>
#    Ulysses or tensor parallelism inside the machines, where 8 ranks have one head of keys each,
#    and a ring across machines, each of which then has 125,000 tokens: far more than it takes to
#    hide.
#    </details>
#
# 4. What does the ring hold, and what the all-gather, for the model of section 1 on 16 ranks, in
#    one layer?
#
#    <details><summary>Answer</summary>
#    A block is 131,072/16 tokens, 2 · 8 heads of size 128 and two bytes: 33.6 MB. The ring holds
#    two of them, 67 MB, the all-gather sixteen, 537 MB. Both let go of it after the layer, so with
#    80 GB either is affordable; at a million tokens the all-gather holds 4.3 GB.
#    </details>
#
# ## 13. Assignment: `packed_ring_attention` (●● 20 minutes)
#
# Most documents are shorter than 128 k tokens. So several are packed into one sequence, one after
# the other. A token should see its own document and no other, by a **document mask**, or the model
# learns from chance neighbours. Llama 3 masks that way, and found that it matters when training
# goes on with very long sequences (section 3.2).
#
# Write the ring for packed sequences. `documents[r]` has a number for each token of rank $r$, equal
# where the document is the same. And save what can be saved: a block in which none of a rank's
# queries sees anything is handed on, but not computed with.


# %% exercise="packed_ring_attention"
def packed_ring_attention(q, k, v, positions, documents):
    """This rank's output; positions and documents are lists by rank."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()

    def visible_of(owner):
        earlier = positions[rank][:, None] >= positions[owner]
        return earlier & (documents[rank][:, None] == documents[owner])

    out, lse = partial_attention(q, k, v, visible_of(rank))
    for step in range(1, n):
        k, v = pass_on([k, v])
        visible = visible_of((rank - step) % n)
        if visible.any():
            out, lse = merge_partials(out, lse, *partial_attention(q, k, v, visible))
    return out
    ### END SOLUTION


# %% check="packed_ring_attention"
check(packed_ring_attention)


# %%
def lengths_to_documents(sizes):
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def packed_of_the_course(q, k, v, positions, documents):
    whole = torch.cat(documents)[torch.cat(positions).argsort()]
    split = context_parallel.split_by_positions(positions)
    return context_parallel.ring_attention(q, k, v, split, documents=whole)


my_packed = yours_or(packed_ring_attention, packed_of_the_course)


def packed_against_documents_alone(sizes):
    n, rank = dist.get_world_size(), dist.get_rank()
    whole, of_token = drawn(sum(sizes)), lengths_to_documents(sizes)
    positions = my_zigzag(sum(sizes), n)
    mine = (each[:, :, positions[rank]].contiguous() for each in whole)
    out = my_packed(*mine, positions, [of_token[each] for each in positions])
    alone = [attention(*parts) for parts in zip(*(w.split(sizes, 2) for w in whole), strict=True)]
    return (out - torch.cat(alone, 2)[:, :, positions[rank]]).abs().max().item() < 1e-12


equal = run_ranks(packed_against_documents_alone, 4, [20, 7, 30, 7], observe=False)
print("four documents on four ranks, each as if it were alone:", "yes" if all(equal) else "no")

# %% [markdown]
# ## 14. What to read
#
# - Liu, Zaharia and Abbeel 2023, *Ring Attention with Blockwise Transformers for Near-Infinite
#   Context* ([arXiv 2310.01889](https://arxiv.org/abs/2310.01889)): the ring, and section 3 on when
#   it hides.
# - Brandon et al. 2023, *Striped Attention*
#   ([arXiv 2311.09431](https://arxiv.org/abs/2311.09431)): the causal triangle and its balance.
# - Jacobs et al. 2023, *DeepSpeed Ulysses*
#   ([arXiv 2309.14509](https://arxiv.org/abs/2309.14509)): tokens for heads.
# - Llama Team 2024, *The Llama 3 Herd of Models*
#   ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783)): section 3.3.2, how context parallelism
#   and the other three axes fit together.
# - Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*
#   ([arXiv 2205.05198](https://arxiv.org/abs/2205.05198)): sequence parallelism, and what a layer
#   keeps.
# - Dao et al. 2022, *FlashAttention* ([arXiv 2205.14135](https://arxiv.org/abs/2205.14135)): the
#   running softmax, on one device.
# - `course_lib/techniques/context_parallel`: everything of this lesson for uneven splits, padding,
#   grouped-query attention and bfloat16, with messages that travel while a rank computes.
#
# **Next**: [lesson 10](10_experts.ipynb) gives every token a few experts of many, and sends it to
# the ranks where these are.
