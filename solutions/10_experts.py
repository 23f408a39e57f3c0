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
# # 10 · Mixtures of experts
#
# **After this lesson you can**
#
# - say what a mixture of experts holds, and what a token uses of it;
# - send tokens to experts on other ranks and back, with the values and gradients of one process;
# - say which gradients are averaged over which ranks, and find the factor that is wrong when they
#   are not;
# - explain why a router has to be balanced, what that costs, and what is dropped;
# - count what an all-to-all sends, say why experts stay on few nodes, and hide it.
#
# **You need** `all_reduce` from [lesson 02](02_ring_all_reduce.ipynb) and a
# `torch.autograd.Function` as in [lesson 04](04_tensor_parallel.ipynb). **It takes** 100 minutes to
# the end of section 7, and 40 for section 8 and the assignment; sections 9 and 10 are optional. The
# machine needs a minute. Each exercise says how hard it is (● a few lines, ●● two ideas together,
# ●●● the hard one) and how long it takes.

# %%
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib import check, guessed, hint, run_ranks, solved, yours_or
from course_lib.techniques import expert_parallel as the_course

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
# A larger model learns more from the same text, and every token pays for it: each weight is one
# multiplication and one addition forward, and twice that backward. Unless a token uses only a part
# of the weights. In a **mixture of experts** the MLP of a block is there many times. Each copy is
# an *expert*, and a small *router* chooses a few of them for every token.
#
# **Predict.** Mixtral 8x7B has eight experts in each layer and gives every token two of them. How
# many billion parameters has it, and how many of these does a token use?

# %%
### BEGIN SOLUTION
guess_total, guess_active = 47, 13
### END SOLUTION


# %%
def expert_weights(hidden, inner):
    """Three matrices: gate, up and down."""
    return 3 * hidden * inner


def told(name, total, active, looked_up):
    print(f"{name}: {total / 1e9:.1f} billion, a token uses {active / 1e9:.1f} billion", end=" ")
    print(f"({active / total:.0%}), {looked_up / 1e9:.1f} of them in a table where it reads one row")


# Jiang et al. 2024, table 1: 32 layers, 32 heads of 128, 8 for keys and values, 32000 symbols
mixtral_table = 32000 * 4096
mixtral_rest = 2 * mixtral_table + 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 8)
mixtral_expert = expert_weights(4096, 14336)
told(
    "Mixtral 8x7B",
    mixtral_rest + 32 * 8 * mixtral_expert,
    mixtral_rest + 32 * 2 * mixtral_expert,
    mixtral_table,
)

# DeepSeek-AI 2024, section 4.2: 61 layers, the first three dense; 256 experts and a shared one.
# Attention goes through narrow matrices: queries 1536, keys and values 512, and 64 for positions.
deepseek_table = 129280 * 7168
deepseek_attention = (
    7168 * 1536 + 1536 * 128 * (128 + 64) + 7168 * (512 + 64) + 512 * 128 * 256 + 128 * 128 * 7168
)
deepseek_dense = expert_weights(7168, 18432)
deepseek_expert = expert_weights(7168, 2048)
deepseek_rest = 2 * deepseek_table + 61 * deepseek_attention + 3 * deepseek_dense + 58 * 7168 * 256
told(
    "DeepSeek-V3",
    deepseek_rest + 58 * (256 + 1) * deepseek_expert,
    deepseek_rest + 58 * (8 + 1) * deepseek_expert,
    deepseek_table,
)
print("your guesses:", guessed(guess_total, guess_active))

# %% [markdown]
# "8x7B" is neither 56 nor 7: attention and embeddings are there once. Mixtral's authors count all
# 12.9 billion as active; DeepSeek's 37 billion leave out the table in which a token looks up one
# row.
#
# A token pays for 37 billion weights. *Memory* has to be there for 671: with 16 bytes per parameter
# these are 10.7 TB, more than the replicas of data parallelism could ever hold. But no token needs
# all experts. So give each rank *some of the experts*, and send tokens to the rank where theirs
# are: **expert parallelism**. It is the first of our techniques in which nobody knows beforehand
# who sends how much to whom. That depends on the data.
#
# **Who solved it, and when.** Shazeer et al. put thousands of experts between two LSTM layers
# (2017, [arXiv 1701.06538](https://arxiv.org/abs/1701.06538)). GShard made them layers of a
# Transformer, with a capacity and an all-to-all (2020,
# [arXiv 2006.16668](https://arxiv.org/abs/2006.16668)). Switch gave every token one expert and one
# balancing loss (2021, [arXiv 2101.03961](https://arxiv.org/abs/2101.03961)). MegaBlocks dropped no
# token any more (2022, [arXiv 2211.15841](https://arxiv.org/abs/2211.15841)). Mixtral (2024,
# [arXiv 2401.04088](https://arxiv.org/abs/2401.04088)), DeepSeek-V2
# ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434)) and V3
# ([arXiv 2412.19437](https://arxiv.org/abs/2412.19437)) are large models that were built so. You
# will build the layer, across ranks.

# %% [markdown]
# ## 2. Route and count
#
# The router is a matrix. It makes $E$ logits of a token, one for each expert; a softmax turns them
# into probabilities; the $k$ largest win. What comes out for the token $x$ is
#
# $$y = \sum_{j=1}^{k} w_j\, \mathrm{expert}_{e_j}(x) \qquad w_j = \frac{p_{e_j}}{p_{e_1} + \dots +
# p_{e_k}}$$
#
# Choosing is no operation with a gradient. So how does the router learn? By the weights $w_j$: an
# expert that helped gets a larger one. With $k = 1$ this has a catch: $w_1 = p/p = 1$, always, and
# the router would never hear anything. So Switch, which has $k = 1$, takes $p$ itself.
#
# ### Exercise 1: `route_tokens` (● 10 minutes)
#
# Return three tensors: the experts of each token, the best first; their weights, as above ($k = 1$:
# the probability itself); and how many of the $Tk$ choices fell on each of the $E$ experts.


# %% exercise="route_tokens"
def route_tokens(logits, k):
    """logits (T, E) -> experts (T, k) int64, weights (T, k), counts (E,) int64."""
    ### BEGIN SOLUTION
    weights, experts = logits.softmax(-1).topk(k)
    if k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    return experts, weights, torch.bincount(experts.flatten(), minlength=logits.shape[1])
    ### END SOLUTION


# %% check="route_tokens"
check(route_tokens)

# %% [markdown]
# Stuck, here or later? `hint(route_tokens)` gives a nudge, `hint(route_tokens, 2)` more, and
# `hint(route_tokens, 3)` almost the answer.

# %% [markdown]
# ## 3. All-to-all
#
# Now every rank has tokens for every other rank. The collective for that is the **all-to-all**:
# rank r's part number s goes to rank s, where it arrives as part number r. It is the transposition
# of a table.
#
# **Predict.** Three ranks; rank r sends $[10r, 10r + 1, 10r + 2]$. What has rank 1 afterwards?

# %%
### BEGIN SOLUTION
guess_transposed = [1, 11, 21]
### END SOLUTION


# %%
def equal_parts():
    mine = 10 * dist.get_rank() + torch.arange(3)
    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine)  # three parts of one number each
    return theirs.tolist()


for rank, arrived in enumerate(run_ranks(equal_parts, 3)):
    print(f"rank {rank}: {arrived}")
print("your guess, for rank 1:", guessed(guess_transposed))

# %% [markdown]
# With parts of *other* sizes the call takes two lists, in this order: how many rows come from each
# rank, and how many go to it.
#
# ```python
# dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes)
# ```
#
# There is a catch. A rank knows what it sends. What it will receive only the others know. And gloo,
# like NCCL, takes your word for the sizes: where a message is larger than the room for it, the
# process is ended without a word.
#
# ### Exercise 2: `exchange_rows` (●● 10 minutes)
#
# So exchange the counts first, then the rows. The first `counts[0]` rows are for rank 0, the next
# `counts[1]` for rank 1, and so on. Return what has arrived, and how many rows came from each rank.


# %% exercise="exchange_rows"
def exchange_rows(rows, counts):
    """rows (N, C) sorted by rank, counts (n,) int64 -> the rows that arrive, and their counts."""
    ### BEGIN SOLUTION
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    arrived = rows.new_empty(int(theirs.sum()), rows.shape[1])
    dist.all_to_all_single(arrived, rows, theirs.tolist(), counts.tolist())
    return arrived, theirs
    ### END SOLUTION


# %% check="exchange_rows"
check(exchange_rows)

# %% [markdown]
# ### Exercise 3: `exchange_with_gradient` (●● 10 minutes)
#
# As in [lesson 04](04_tensor_parallel.ipynb), a plain collective is no part of autograd's graph.
# What is the backward of an all-to-all? Each row has gone to one rank, and that rank knows its
# gradient. It has to come back by the way the row has gone. So write the exchange once more, as a
# `torch.autograd.Function`; the sizes are known now.


# %% exercise="exchange_with_gradient"
def exchange_with_gradient(rows, sent, received):
    """rows (sum(sent), C) -> (sum(received), C); backward, the gradients travel back."""
    ### BEGIN SOLUTION

    def exchanged(tensor, to, come):
        output = tensor.new_empty(sum(come), tensor.shape[1])
        dist.all_to_all_single(output, tensor.contiguous(), come, to)
        return output

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return exchanged(tensor, sent, received)

        @staticmethod
        def backward(ctx, gradient):
            return exchanged(gradient, received, sent)

    return Exchange.apply(rows)
    ### END SOLUTION


# %% check="exchange_with_gradient"
check(exchange_with_gradient)

# %% [markdown]
# ## 4. Dispatch and combine
#
# An all-to-all wants rows that are sorted by rank. Tokens stand in the order of the text. So they
# are sorted by expert before they leave, and put back in order when the answers have come home.
# That is easy to get wrong, so first a **warm-up** on one rank.
#
# `argsort` gives a *permutation*: `order[i]` says which row comes to place $i$. Its inverse says
# where the row $j$ has gone. And the inverse of a permutation is its `argsort`. (`stable=True`
# keeps rows of one expert in the order they had.)

# %%
chosen = torch.tensor([2, 0, 1, 0, 2])  # the experts of five tokens
words = ["one", "two", "three", "four", "five"]

order = chosen.argsort(stable=True)
inverse = order.argsort()
by_expert = [words[i] for i in order]
print("order:            ", order.tolist())
print("sorted by expert: ", by_expert)
print("back again:       ", [by_expert[i] for i in inverse])
print("sorted once more: ", [by_expert[i] for i in order], "which is not the way back")

# %% [markdown]
# With $k$ choices per token there are $Tk$ rows: number $i$ of `experts.flatten()` belongs to token
# $i // k$.
#
# And there is a second sort. What arrives is in the order of the *ranks* that sent it: rank 0's rows
# for my experts, then rank 1's, ... An expert wants all of its rows in one piece. To sort them, a
# rank must know which row is for which of its experts: that is why the counts are exchanged *by
# expert*, $E$ numbers. In all:
#
# $$x \;\xrightarrow{\text{sort}}\; \cdot \;\xrightarrow{\text{all-to-all}}\; \cdot
# \;\xrightarrow{\text{sort}}\; \text{rows} \;\to\; \text{experts} \;\to\; \text{outputs}
# \;\xrightarrow{\text{unsort}}\; \cdot \;\xrightarrow{\text{all-to-all}}\; \cdot
# \;\xrightarrow{\text{unsort}}\; y$$
#
# The second half undoes the first, the last step first.
#
# ### Exercise 4: `dispatch_tokens` (●●● 25 minutes)
#
# Rank $r$ has the experts from $rm$ to $(r+1)m - 1$, where $m = E/n$. Where that does not come out
# even, raise a `ValueError` with both numbers. Return
#
# - the rows that came for this rank's experts, those of the first expert first; within an expert by
#   rank, and then by token;
# - how many rows each of its $m$ experts has;
# - a *function* `back`, for the second half: from outputs in the order of these rows to a tensor
#   (T, k, D), what came of choice $j$ of token $t$.


# %% exercise="dispatch_tokens"
def dispatch_tokens(x, experts, number):
    """x (T, C), experts (T, k), of `number` experts -> rows (N, C), counts (m,), back."""
    ### BEGIN SOLUTION
    n, k = dist.get_world_size(), experts.shape[1]
    if number % n:
        raise ValueError(f"{number} experts cannot be spread evenly over {n} ranks")
    mine = number // n
    order = experts.flatten().argsort(stable=True)
    counts = torch.bincount(experts.flatten(), minlength=number)
    theirs = torch.empty_like(counts)  # rank by rank, and in it by my experts
    dist.all_to_all_single(theirs, counts)
    sent, received = (c.view(n, mine).sum(1).tolist() for c in (counts, theirs))
    whose = torch.arange(mine).repeat(n).repeat_interleave(theirs)
    again = whose.argsort(stable=True)
    arrived = exchange_with_gradient(x[order // k], sent, received)

    def back(outputs):
        home = exchange_with_gradient(outputs[again.argsort()], received, sent)
        return home[order.argsort()].view(len(x), k, -1)

    return arrived[again], theirs.view(n, mine).sum(0), back
    ### END SOLUTION


# %% check="dispatch_tokens"
check(dispatch_tokens)

# %% [markdown]
# ### Exercise 5: `expert_layer` (●● 10 minutes)
#
# Now the whole layer. `local` are this rank's experts, in order. Each runs once, on all of its
# rows: one large product instead of many small ones. An expert may have no row at all.


# %% exercise="expert_layer"
def expert_layer(x, experts, weights, local):
    """x (T, C), experts and weights (T, k), m modules -> y (T, C), as in one process."""
    ### BEGIN SOLUTION
    rows, counts, back = dispatch_tokens(x, experts, len(local) * dist.get_world_size())
    parts = rows.split([int(count) for count in counts])
    outputs = [expert(part) for expert, part in zip(local, parts, strict=True)]
    return (back(torch.cat(outputs)) * weights[..., None]).sum(1)
    ### END SOLUTION


# %% check="expert_layer"
check(expert_layer)

# %% [markdown]
# Nothing was dropped or padded on the way, whatever the router chose: this is *dropless* routing,
# as in MegaBlocks.
