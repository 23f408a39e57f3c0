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
# - say which gradients are averaged over which ranks.
#
# If you go on with the optional part, you can also
#
# - average them, and find the factor by which they are wrong when divided by the wrong number;
# - explain why a router has to be balanced, what that costs, and what is dropped;
# - count what an all-to-all sends, say why experts stay on few nodes, and hide its time.
#
# **You need** `all_reduce` from [lesson 02](02_ring_all_reduce.ipynb) and a
# `torch.autograd.Function` as in [lesson 04](04_tensor_parallel.ipynb). **It takes** 90 minutes to
# the end of section 5, without exercise 6. All else is optional: 15 minutes for that exercise, 30
# for sections 6 and 7, 15 for section 8, 20 for the assignment; sections 9 and 10 are there to run
# and read. The machine needs a minute. Each exercise says how hard it is (● a few lines, ●● two
# ideas together, ●●● the hard one) and how long it takes.

# %%
import math
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib import check, guessed, hint, run_ranks, solved, yours_or
from course_lib.observe import arrivals
from course_lib.techniques import expert_parallel as the_course
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
# A larger model learns more from the same text, and every token pays for it: each weight is one
# multiplication and one addition forward, and twice that backward. Unless a token uses only a part
# of the weights. In a **mixture of experts** the MLP of a block is there many times. Each copy is
# an *expert*, and a small *router* chooses a few of them for every token.
#
# **Predict.** Mixtral 8x7B has eight experts in each layer and gives every token two of them. How
# many billion parameters does it have, and how many of these does a token use?

# %%
### BEGIN SOLUTION
guess_total = 47
guess_active = 13
### END SOLUTION


# %%
def expert_weights(hidden, inner):
    """Three matrices: gate, up and down."""
    return 3 * hidden * inner


# Jiang et al. 2024, table 1: 32 layers, 32 heads of 128, 8 for keys and values, 32000 symbols
mixtral_table = 32000 * 4096
mixtral_rest = 2 * mixtral_table + 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 8)
mixtral_expert = expert_weights(4096, 14336)
mixtral = (mixtral_rest + 32 * 8 * mixtral_expert, mixtral_rest + 32 * 2 * mixtral_expert)

# DeepSeek-AI 2024, section 4.2: 61 layers, the first three dense; 256 experts and a shared one.
# Attention goes through narrow matrices: queries 1536, keys and values 512, and 64 for positions.
deepseek_table = 129280 * 7168
deepseek_attention = (
    7168 * 1536 + 1536 * 128 * (128 + 64) + 7168 * (512 + 64) + 512 * 128 * 256 + 128 * 128 * 7168
)
deepseek_dense = expert_weights(7168, 18432)
deepseek_expert = expert_weights(7168, 2048)
deepseek_rest = 2 * deepseek_table + 61 * deepseek_attention + 3 * deepseek_dense + 58 * 7168 * 256
deepseek = (
    deepseek_rest + 58 * (256 + 1) * deepseek_expert,
    deepseek_rest + 58 * (8 + 1) * deepseek_expert,
)

lines = [("billions of parameters", "in all", "a token uses", "share", "table of embeddings")]
for name, (total, active), looked_up in (
    ("Mixtral 8x7B", mixtral, mixtral_table),
    ("DeepSeek-V3", deepseek, deepseek_table),
):
    counts = (f"{total / 1e9:.1f}", f"{active / 1e9:.1f}", f"{active / total:.0%}")
    lines.append((name, *counts, f"{looked_up / 1e9:.1f}"))
print(table(lines))
print("your guesses:", guessed(guess_total, guess_active))

# %%
from course_lib.views.stacked_bars import stacked_bars

stacked_bars(
    {
        name: {"used": active / 1e9, "unused": (total - active) / 1e9}
        for name, (total, active) in (("Mixtral 8x7B", mixtral), ("DeepSeek-V3", deepseek))
    },
    "billions of parameters",
    "parameters that are used for a token, and the rest",
    "{:.0f}".format,
)

# %% [markdown]
# "8x7B" is neither 56 nor 7: attention and embeddings are there only once. Mixtral's authors count
# all 12.9 billion as active; DeepSeek's 37 billion leave out the table of embeddings, of which a
# token reads one row.
#
# A token pays for 37 billion weights, but all 671 billion need *memory*. At 16 bytes per parameter
# that is 10.7 TB, and in data parallelism every GPU would have to hold that. Yet no token needs all
# experts. So give each rank *some of the experts*, and send tokens to the rank where theirs are:
# **expert parallelism**. It is the first of our techniques in which nobody knows beforehand who
# sends how much to whom. That depends on the data.
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
# The router is a matrix. It turns a token into $E$ logits, one for each expert; a softmax turns
# these into probabilities; the $k$ largest win. The output for the token $x$ is
#
# $$y = \sum_{j=1}^{k} w_j\, \mathrm{expert}_{e_j}(x) \qquad w_j = \frac{p_{e_j}}{p_{e_1} + \dots +
# p_{e_k}}$$
#
# Choosing has no gradient. So how does the router learn? Through the weights $w_j$: an expert that
# helped gets a larger one. With $k = 1$ this has a catch: $w_1 = p/p = 1$, always, and the router
# would never hear anything. So Switch, which has $k = 1$, takes $p$ itself.
#
# ### Exercise 1: `route_tokens` (● 10 minutes)
#
# Return three tensors: the experts of each token, the best first; their weights, as above ($k = 1$:
# the probability itself); and how many of the $Tk$ choices fell on each of the $E$ experts.


# %% exercise="route_tokens"
def route_tokens(logits, k):
    """logits (T, E) -> experts (T, k) int64, weights (T, k), counts (E,) int64."""
    ### BEGIN SOLUTION
    weights, experts = logits.softmax(1).topk(k)
    if k > 1:
        weights = weights / weights.sum(1, keepdim=True)
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
# part number $s$ of rank $r$ goes to rank $s$, where it arrives as part number $r$. It is the
# transposition of a table.
#
# **Predict.** Three ranks; rank $r$ sends $[10r, 10r + 1, 10r + 2]$. What does rank 1 have
# afterwards?

# %%
### BEGIN SOLUTION
guess_transposed = [1, 11, 21]
### END SOLUTION


# %%
def equal_parts():
    mine = 10 * dist.get_rank() + torch.arange(3)
    theirs = torch.empty_like(mine)
    with arrivals() as arrived:  # notes what came, for the picture below
        dist.all_to_all_single(theirs, mine)  # three parts of one number each
    return mine.tolist(), arrived, theirs.tolist()


transposed = run_ranks(equal_parts, 3)
for each, (_, _, parts) in enumerate(transposed):
    print(f"rank {each}: {parts}")
print("your guess, for rank 1:", guessed(guess_transposed))

# %%
from course_lib.views.moving_values import moving_values

moving_values(transposed.trace, *zip(*transposed, strict=True), title="all-to-all")

# %% [markdown]
# Each rank keeps one number and sends one to each other rank. In the end, every rank has numbers of
# all colours.
#
# With parts of *different* sizes the call takes two lists, in this order: how many rows come from
# each rank, and how many go to it.
#
# ```python
# dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes)
# ```
#
# (`dist.all_to_all` with its lists of tensors will not do: gloo wants all of them of one size.)
#
# There is a catch. A rank knows what it sends. What it will receive only the others know. And
# nobody checks the sizes for you: where a message is larger than the room for it, gloo ends the
# process without a word.
#
# ### Exercise 2: `exchange_rows` (●● 10 minutes)
#
# So exchange the counts first, then the rows. The first `counts[0]` rows are for rank 0, the next
# `counts[1]` for rank 1, and so on. Return what has arrived, and how many rows came from each rank,
# a tensor like `counts`. (`all_to_all_single` wants its two lists of sizes as lists:
# `counts.tolist()`.)


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
# As in [lesson 04](04_tensor_parallel.ipynb), a plain collective is not part of autograd's graph.
# What is the backward of an all-to-all? Each row has gone to one rank, and that rank knows its
# gradient. It has to come back the way the row went. So write the exchange once more, as a
# `torch.autograd.Function`; the sizes are known now. `sent` and `received` are lists of $n$ whole
# numbers: how many rows go to each rank, and how many come from each.


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
# To send tokens to their experts is called **dispatch**; to bring the outputs home and add them up,
# each with its weight, **combine**. An all-to-all wants rows that are sorted by rank. Tokens stand
# in the order of the text. So they are sorted by expert before they leave, and put back in order
# when the answers have come home. That is easy to get wrong, so first a **warm-up** on one rank.
#
# `argsort` gives a *permutation*: `order[i]` says which row comes to place $i$. Its inverse says
# where the row $j$ has gone. And the inverse of a permutation is its `argsort`. (`stable=True`
# keeps rows of one expert in the order they had.)

# %%
words = ["old", "ducks", "swim", "very", "slowly"]
chosen = torch.tensor([2, 0, 3, 0, 1])  # the experts of these five tokens

order = chosen.argsort(stable=True)
inverse = order.argsort()
by_expert = [words[i] for i in order]
print("order:            ", *order.tolist())
print("sorted by expert: ", *by_expert)
print("back again:       ", *(by_expert[i] for i in inverse))
print("sorted once more: ", *(by_expert[i] for i in order), "  (which is not the way back)")

# %% [markdown]
# With $k$ choices per token there are $Tk$ rows: row `i` of `experts.flatten()` belongs to token
# `i // k`.
#
# And there is a second sort. What arrives is in the order of the *ranks* that sent it: rank 0's
# rows for my experts, then rank 1's, ... An expert wants all of its rows in one piece. To sort
# them, a rank must know which row is for which of its experts: that is why the counts are exchanged
# *by expert*, $E$ numbers. Here is the whole way of our five tokens and of five on a second rank:

# %%
from course_lib.views.token_routing import token_routing

here = list(zip(words, chosen.tolist(), strict=True))
there = list(zip(["young", "foxes", "hide", "until", "dusk"], [0, 1, 0, 2, 0], strict=True))
token_routing([here, there], experts=4)

# %% [markdown]
# An expert's output stands where its token stood (with a prime in the picture), so the second half
# undoes the first, the last step first. And mind the sizes: rank 0 sends two rows and gets four.
# Its experts are more popular.
#
# ### Exercise 4: `dispatch_tokens` (●●● 35 minutes)
#
# Rank $r$ has the experts from $rm$ to $(r+1)m - 1$, where $m = E/n$. If $n$ does not divide $E$,
# raise a `ValueError` with both numbers, $E$ and $n$. A rank may have no token at all. Rows cross
# by `exchange_with_gradient`, there and back, since gradients have to cross too. Return
#
# - the rows that came for this rank's experts, those of the first expert first; within an expert by
#   rank, and then by token;
# - how many rows each of its $m$ experts has;
# - a *function* `back`, for the second half: from outputs in the order of these rows to a tensor
#   (T, k, D), the output for choice $j$ of token $t$.


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
        return home[order.argsort()].unflatten(0, (len(x), k))

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

# %% [markdown]
# ## 5. Which gradients are averaged over which ranks
#
# In data parallelism all ranks hold the same parameters, and average their gradients
# ([lesson 03](03_data_parallel.ipynb)). Experts end that. Take four ranks in two groups, each of
# which has all four experts:

# %%
from course_lib.techniques.mesh import Mesh
from course_lib.views.expert_groups import expert_groups

expert_groups(Mesh(data=4, expert=2), experts=4)

# %% [markdown]
# Tokens travel between ranks 0 and 1, and between 2 and 3: these are two *expert groups*. Ranks 0
# and 2 hold the same experts: they are *replicas*, and so are 1 and 3.
#
# **Predict.** Every rank's loss is the mean over its own tokens. The loss of the step is the mean
# of all four ranks' losses, and each expert needs the gradient of that. After backward you add up
# the gradients of expert 0 over ranks 0 and 2. By which number do you divide?

# %%
### BEGIN SOLUTION
guess_divisor = 4
### END SOLUTION

# %% [markdown]
# ### Exercise 6: `average_by_owner` (●● 15 minutes)
#
# (Optional.) The loss of the step is the mean over all ranks' losses. Make every `.grad` the
# gradient of that. `dense` are parameters that all ranks have; `experts` are those of this rank's
# experts, which only the ranks of the group `replicas` have. An expert that got no token has `.grad
# = None`, on this rank. Nothing is returned.


# %% exercise="average_by_owner"
def average_by_owner(dense, experts, replicas):
    """Every .grad becomes that of the mean of all ranks' losses."""
    ### BEGIN SOLUTION
    n = dist.get_world_size()
    for p in dense:
        dist.all_reduce(p.grad)
        p.grad /= n
    for p in experts:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad, group=replicas)
        p.grad /= n
    ### END SOLUTION


# %% check="average_by_owner"
check(average_by_owner)

# %% [markdown]
# Now on a real layer, the four ranks of the picture against one process that has all tokens. There
# are three ways to average: by owner, as you have just written it; as data parallelism does it,
# every gradient over all ranks; and by owner again, but divided by the size of the group that was
# summed over. (You need not read the next cell: what counts is the table below it.)

# %%
from course_lib.models.mixture_of_experts import Mixture

WIDTH, TOKENS, NUMBER = 8, 12, 4


def by_owner(layer, groups):
    if average_as_mine:
        dense, experts = the_course.dense_parameters(layer), the_course.expert_parameters(layer)
        average_by_owner(dense, experts, groups.expert_data)
    else:
        the_course.average_gradients(layer, groups)


def over_all_ranks(layer, groups):
    for p in layer.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def by_the_group(layer, groups):
    by_owner(layer, groups)
    for p in the_course.expert_parameters(layer):
        p.grad *= dist.get_world_size() / dist.get_world_size(groups.expert_data)


def tokens_and_goal():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 4 * TOKENS, WIDTH, generator=generator)


def gradients_on_a_rank(average):
    groups = the_course.ExpertGroups.open(Mesh(data=4, expert=2))
    torch.manual_seed(0)
    whole = Mixture(WIDTH, NUMBER, inner=16)
    layer = the_course.MixtureOfExperts(WIDTH, NUMBER, inner=16, group=groups.expert)
    the_course.load_whole_experts(layer, whole.state_dict())
    x, goal = (part.chunk(4)[dist.get_rank()] for part in tokens_and_goal())
    F.mse_loss(layer(x), goal).backward()
    average(layer, groups)
    whole_x, whole_goal = tokens_and_goal()
    F.mse_loss(whole(whole_x), whole_goal).backward()
    first = dist.get_rank() % 2 * 2  # this rank's experts
    mine, right = layer.experts.up.grad, whole.experts.up.grad[first : first + 2]
    return layer.router.weight.grad.norm() / whole.router.weight.grad.norm(), mine / right


average_as_mine = solved(average_by_owner)
lines = [("multiple of the right gradient", "router", "experts")]
for average in (by_owner, over_all_ranks, by_the_group):
    router, expert = run_ranks(gradients_on_a_rank, 4, average)[0]
    spread = (expert - expert.mean()).abs().max()
    found = f"{expert.mean():.2f}" if spread < 1e-3 else "no multiple of it"
    lines.append((average.__name__, f"{router:.2f}", found))
print(table(lines))
print("your guess for the divisor:", guessed(guess_divisor))

# %% [markdown]
# **Explain.** The copy of expert 0 on rank 0 has worked on tokens of ranks 0 *and* 1. The backward
# of the all-to-all has brought it the gradients of both, already added up. What is missing is the
# other expert group. The sum over the two replicas is then a sum over the tokens of four ranks,
# each weighed as in its own rank's mean. So divide by four, as for all other parameters, and not by
# the two that have been added up here. Divided by two, the gradient of every expert is twice as
# large, and nobody is told: the loss falls all the same. And averaged over all ranks, expert 0 is
# mixed with expert 2: shapes fit, and the gradient is that of nothing.
#
# The same groups return everywhere. ZeRO shards an expert's optimizer over its replicas only; the
# norm for clipping counts each expert once.

# %% [markdown]
# ## 6. Balance
#
# A router has a bad habit. An expert that is chosen a little more often learns a little more, and
# is therefore chosen more often. Is that so here? Train the course's tiny GPT on its sorting task,
# with eight experts in each of two layers and one for each token ($k = 1$).
#
# **Predict.** With an even spread each expert has an eighth of the rows. After some 60 steps, how
# many times as many does the busiest one have?

# %%
### BEGIN SOLUTION
guess_busiest = 3
### END SOLUTION

# %% [markdown]
# Shazeer's remedy, in the form that Switch gave it, is one more loss, for **load balancing**:
#
# $$L_{\text{balance}} = E \sum_{e=1}^{E} f_e P_e$$
#
# $f_e$ is expert $e$'s share of all choices, $P_e$ the mean probability that the router gives it.
# If both are $1/E$, the loss is 1. An expert with a large $f_e$ makes its $P_e$ expensive; so the
# gradient, which goes through $P$ only, since counts have none, lowers it. It is added to the loss
# with a small factor, 0.01 in Switch's paper. (Below it is 0.2: our training lasts a hundred steps,
# and theirs many thousands.)
#
# ### Exercise 7: `balancing_loss` (●● 10 minutes)
#
# The batch is spread over several ranks, with $T$ tokens on each. In the loss of the batch $f$ is
# taken over the $Tk$ choices of *all* ranks together, and $P$ over all their tokens. Each rank
# returns a part of it, such that the mean of the parts over the ranks is the loss of the batch, and
# the mean of their gradients is its gradient. What has to be exchanged for that, and what need not
# be?


# %% exercise="balancing_loss"
def balancing_loss(logits, experts):
    """logits (T, E), experts (T, k), of this rank -> its part of E sum_e f_e P_e."""
    ### BEGIN SOLUTION
    number = logits.shape[1]
    counts = torch.bincount(experts.flatten(), minlength=number)
    dist.all_reduce(counts)
    return number * (counts / counts.sum() * logits.softmax(1).mean(0)).sum()
    ### END SOLUTION


# %% check="balancing_loss"
check(balancing_loss)

# %% [markdown]
# Now train, once without and once with it. Suppose that each expert is on a rank of its own. Then a
# layer lasts until the *busiest* rank is done, so let us give both runs the same *time* and not the
# same number of steps. A step in which all experts have the same number of rows takes 1.
# (`train_for` notes how many rows each expert has. It stands in
# `course_lib/models/balancing_experiment.py`.)

# %%
from course_lib.models.balancing_experiment import EXPERTS, busiest, train_for

TIME = 160


def balancing_of_the_course(logits, experts):
    routing = the_course.route(logits, experts.shape[1])
    counts = the_course.total_counts(routing.counts)
    return the_course.load_balancing_loss(routing, counts)


balance = yours_or(balancing_loss, balancing_of_the_course)


trained = {
    name: run_ranks(train_for, 1, TIME, balance, factor, observe=False, timeout=120)[0]
    for name, factor in (("without balancing", 0.0), ("with balancing", 0.2))
}
without, balanced = trained["without balancing"], trained["with balancing"]

# %% tags=["nbval-ignore-output"]
from course_lib.views.loss_curves import loss_curves


def smooth(losses, over=8):
    """The mean of the latest losses: single batches jump."""
    windows = (losses[max(0, i + 1 - over) : i + 1] for i in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


common = min(len(run.losses) for run in trained.values())
lines = [("", "steps", "busiest, in shares", f"loss after {common} steps", "loss at the end")]
for name, run in trained.items():
    late = [busiest(tables) for tables in run.loads[-20:]]
    smoothed = smooth(run.losses)
    found = (f"{sum(late) / len(late):.1f}", f"{smoothed[common - 1]:.2f}", f"{smoothed[-1]:.2f}")
    lines.append((name, len(run.losses), *found))
print(table(lines))
curves = {name: (run.moments, smooth(run.losses)) for name, run in trained.items()}
loss_curves(curves, "time, in steps of an even spread", "loss by time, with and without balancing")


# %%
def loss_at_half(run):
    at_half = sum(moment <= TIME / 2 for moment in run.moments)
    return smooth(run.losses[:at_half])[-1]


more = len(balanced.losses) > 1.3 * len(without.losses)
print("balancing makes more steps in the same time:", more)
print("and at half the time its loss is lower:", loss_at_half(balanced) < loss_at_half(without))
print(
    "without it, the busiest expert has more than twice its share:", busiest(without.loads[-1]) > 2
)
print("your guess for the busiest:", guessed(guess_busiest))

# %% [markdown]
# **Explain.** Counted in steps, both learn about equally fast: that is the column of losses after
# as many steps. But a step lasts as long as its busiest rank. Without balancing that one has about
# three times its share (the mean over the last 20 steps), so the others wait two thirds of the
# time. (And experts that nobody chooses are parameters that learn nothing.) Do not read much into
# the balanced run's last bump: at a learning rate that never falls, a few steps go wrong.
#
# The factor is a compromise. Too small, and it does nothing; too large, and tokens are spread
# whatever they are about. DeepSeek-V3 all but avoids the compromise: each expert has a *bias* that
# is added to its score for the choice only, and after each step is lowered where the expert had too
# much and raised where it had too little (`update_bias` in
# `course_lib/techniques/expert_parallel`). What is left of a balancing loss there has a factor of
# 0.0001 and only looks at single sequences (sections 2.1.2 and 4.2 of the paper).

# %% [markdown]
# ## 7. Capacity
#
# Before MegaBlocks, implementations wanted shapes that are known in advance: every rank sends the
# same number of rows to every expert. So an expert has a **capacity**, the even share times a
# factor,
#
# $$\text{capacity} = \left\lceil \text{factor} \cdot \frac{Tk}{E} \right\rceil$$
#
# What does not fit is *dropped*: it adds nothing to its token, which goes on in the residual stream
# as it is. Places that stay empty are filled with zeros, which travel and are multiplied like any
# row. A large factor wastes work, a small one drops tokens; Switch did best with 1 to 1.25.
#
# Who is dropped? In GShard all *first* choices are served before any second one, and otherwise the
# tokens in their order.
#
# ### Exercise 8: `within_capacity` (●● 10 minutes)
#
# Return a mask (T, k), True where a choice is served. Compute the capacity in floats, as it stands
# above: `math.ceil(factor * T * k / E)`.


# %% exercise="within_capacity"
def within_capacity(experts, number, factor):
    """experts (T, k) of `number` experts -> mask (T, k), of dtype bool."""
    ### BEGIN SOLUTION
    (tokens, k), row = experts.shape, experts.T.flatten()  # first choices, then second ones
    capacity = math.ceil(factor * tokens * k / number)
    place = F.one_hot(row, number).cumsum(0).gather(1, row[:, None])  # in the queue, from 1 on
    return (place <= capacity).view(k, tokens).T
    ### END SOLUTION


# %% check="within_capacity"
check(within_capacity)

# %% [markdown]
# **Predict.** 4096 tokens with two choices among eight experts. The router prefers the first
# experts: each has 1.3 times the chance of the next. With factor 1.25, how many per cent of the
# choices are dropped?

# %%
### BEGIN SOLUTION
guess_dropped = 15
### END SOLUTION


# %%
def within_capacity_of_the_course(experts, number, factor):
    capacity = the_course.capacity_of(len(experts), number, experts.shape[1], factor)
    return the_course.within_capacity(experts, number, capacity)


served = yours_or(within_capacity, within_capacity_of_the_course)
generator = torch.Generator().manual_seed(0)
lines = [("experts are chosen", "factor", "dropped", "first choices", "second choices")]
for ratio, how in ((1.0, "equally often"), (1.3, "unequally, by 1.3")):
    chances = ratio ** -torch.arange(8.0)
    drawn = torch.multinomial(chances.expand(4096, 8), 2, generator=generator)
    for factor in (1.0, 1.25, 2.0):
        kept = served(drawn, 8, factor)
        first, second = ((~kept[:, j]).float().mean().item() for j in (0, 1))
        lost = ((first + second) / 2, first, second)
        lines.append((how, f"{factor:.2f}", *(f"{share:.0%}" for share in lost)))
print(table(lines))
print("your guess:", guessed(guess_dropped))

# %% [markdown]
# **Explain.** All that is dropped are second choices, since the first ones of all tokens are served
# before any of them. Where some experts are preferred, their places are soon taken: at factor 1.25
# more than a quarter of the second choices finds none, 14 % of all choices. With twice the even
# share nothing is dropped. But then half of the places are empty, and they are sent and multiplied
# too.

# %% [markdown]
# ## 8. What it sends, and where experts may be
#
# How large a part of a step do the messages take? Count the bytes first. Then the same messages go
# over the wires of one machine and of several.
#
# ### Exercise 9: `expert_traffic` (● 5 minutes)
#
# Rows leave for their experts and come back, forward and backward. $T$ tokens on each of $n$ ranks,
# $k$ choices each, hidden size $h$; and suppose every rank is chosen equally often. How many bytes
# does each rank send in one layer? (Leave out the counts.)


# %% exercise="expert_traffic"
def expert_traffic(tokens, hidden, k, n, element_size):
    """Bytes that each rank sends in one layer of experts, forward and backward."""
    ### BEGIN SOLUTION
    return 4 * tokens * k * hidden * (n - 1) / n * element_size
    ### END SOLUTION


# %% check="expert_traffic"
check(expert_traffic)

# %% [markdown]
# Formula against measurement, with your layer, and tokens that choose all experts in turn:


# %%
def one_layer_step(tokens, width, number, k):
    mine = number // dist.get_world_size()
    local = [nn.Linear(width, width) for _ in range(mine)]
    x = torch.randn(tokens, width, requires_grad=True)
    experts = torch.arange(tokens * k).view(tokens, k) % number
    expert_layer(x, experts, torch.ones(tokens, k), local).sum().backward()


if solved(exchange_with_gradient, dispatch_tokens, expert_layer, expert_traffic):
    lines = [("ranks", "bytes sent", "rows, by your formula", "counts")]
    for ranks in (1, 2, 3, 4):
        sent = run_ranks(one_layer_step, ranks, 12, 16, 12, 2).trace.traffic().sent[0]
        formula = expert_traffic(12, 16, 2, ranks, 4)
        counts = 8 * 12 * (ranks - 1) // ranks  # an int64 for each of the others' experts
        lines.append((ranks, f"{sent:,}", f"{formula:,.0f}", counts))
    print(table(lines))

# %% [markdown]
# How does that compare with a dense layer, whose weights are on every rank and whose gradients are
# all-reduced? Take DeepSeek-V3's sizes, one sequence of 4096 tokens on each of 64 ranks, bfloat16.

# %%
deepseek_layer = 4 * 4096 * 8 * 7168 * 63 / 64 * 2
dense_layer = 2 * 63 / 64 * deepseek_dense * 2
print(f"experts: {deepseek_layer / 1e9:.2f} GB per layer, for every microbatch")
print(f"a dense layer's gradients: {dense_layer / 1e9:.2f} GB per layer, once per step")

# %% [markdown]
# About as many bytes, at first sight. But the all-reduce comes once per step and hides behind
# backward. All-to-alls come with every microbatch, in every layer, and the next operation waits for
# them. As with tensor parallelism, what travels are *activations*.
#
# **Predict.** Eight ranks with your layer's messages. Once all eight are in one DGX A100; once on
# two such machines with four each; once on eight. How many times as long does the layer take on two
# machines as on one? (Each exchange has 8 MB, and the experts take 0.2 ms. NVLink moves 300 GB/s
# from each GPU, an adapter to the network 25.)

# %%
### BEGIN SOLUTION
guess_longer = 3
### END SOLUTION

# %%
import time
from dataclasses import replace

from course_lib.simulate import collective_seconds, dgx_a100, replay

ROWS, COLUMNS = 2048, 1024  # 8 MB for each all-to-all
EXPERT_SECONDS = 200e-6  # what the experts of a rank take for 2048 rows


def there_and_back():
    """The messages of a forward pass: 1/8 of the rows to each rank, and home."""
    rows, equal = torch.randn(ROWS, COLUMNS), [ROWS // 8] * 8
    arrived, home = torch.empty_like(rows), torch.empty_like(rows)
    dist.all_to_all_single(arrived, rows, equal, equal)
    calls = [("experts", time.monotonic())]
    dist.all_to_all_single(home, arrived, equal, equal)
    return calls


def computed(calls_of_ranks):
    """What each rank computed and when it began, with the seconds that it is meant to take."""
    return [
        SimpleNamespace(rank=rank, name=name, start=start, seconds=EXPERT_SECONDS)
        for rank, calls in enumerate(calls_of_ranks)
        for name, start in calls
    ]


def over_machines(number):
    """Eight GPUs, each with an adapter of its own to the network between the machines."""
    each = 8 // number
    return replace(dgx_a100, name="some", devices_per_node=each, adapters=each, nodes=number)


recorded = run_ranks(there_and_back, 8)
compute = computed(recorded)
layer_on = {n: replay(recorded.trace, over_machines(n), compute=compute) for n in (1, 2, 8)}
lines = [("machines", "a layer", "of which experts", "compared with one machine")]
for number, timeline in layer_on.items():
    times = f"{timeline.makespan / layer_on[1].makespan:.1f} times as long"
    took = (f"{seconds * 1e3:.2f} ms" for seconds in (timeline.makespan, EXPERT_SECONDS))
    lines.append((number, *took, times))
print(table(lines))
print("your guess:", guessed(guess_longer))

# %%
from course_lib.views.gantt_chart import gantt_chart

gantt_chart({"one machine": layer_on[1], "two machines": layer_on[2]}, unit="s")

# %% [markdown]
# **Explain.** An all-to-all is as fast as its slowest link. On one machine the two exchanges are a
# third of the layer's time. As soon as a part of the rows crosses the network, the layer waits for
# that part: now they are four fifths of it, and the layer takes more than three times as long. (The
# replay lets all rows go at the slowest link's pace, so two machines look like eight.) An expert
# group stays inside one machine as long as its experts fit there, and data parallelism, which hides
# its messages, goes between the machines.
#
# DeepSeek-V3 has 256 experts in a layer, over 64 GPUs on eight machines. How can that be fast
# enough? A token with eight experts would cross the network seven times. But experts on one machine
# can share the copy: it crosses once, and NVLink hands it on. And for each token the router may
# choose experts on *at most four machines*.

# %%
HOME = 1 / 8  # the share of experts that are on the token's own machine
machines_met = 8 * (1 - (1 - 1 / 8) ** 8)
print("copies of each token that cross the network, if experts are chosen at random")
print(f"one for each expert:      {8 * (1 - HOME):.1f}")
print(f"one for each machine:     {machines_met * (1 - HOME):.1f}, on {machines_met:.1f} machines")
print(f"on four machines at most: {4 * (1 - HOME):.1f}")
row = 7168 * 2 * 4096
for n in (8, 64):
    seconds = collective_seconds(dgx_a100.with_nodes(8), "all_to_all", range(n), 8 * row)
    print(f"all rows of 4096 tokens in one all-to-all over {n:2} ranks: {seconds * 1e3:.1f} ms")

# %% [markdown]
# **Explain.** With the limit half as many copies cross the network as with one for each expert. It
# is worth the trouble: over eight machines the same rows take more than ten times as long as inside
# one.
#
# ## 9. Explore
#
# The rows of your two training runs, in the first layer. The more rows go from a rank to an expert,
# the thicker is the line between them; below, each expert's share from step to step.

# %% tags=["nbval-ignore-output"]
from course_lib.views.expert_loads import expert_explorer

EVERY = 4
expert_explorer(
    {name: [tables[0] for tables in run.loads[:common:EVERY]] for name, run in trained.items()},
    every=EVERY,
)

# %% [markdown]
# **Explore.** Without balancing: from which step on is the load uneven, and does an expert that has
# nothing ever come back? Leave the capacity factor at 1.25 and go from one training run to the
# other: which of them drops more, and what would it have to pay for a factor at which it drops as
# little as the other?
#
# <details><summary>Answers</summary>
#
# From the first steps on: a router that was drawn at random has favourites, before it has learnt
# anything. An expert that nobody chooses can come back, since what the layer before makes of the
# tokens changes too, but it seldom stays. Without balancing a quarter to a third of the rows is
# dropped, with it about a twentieth. To drop nothing without balancing, the capacity would have to
# be that of the busiest expert, about three times the even share: three times the memory and the
# work, most of it zeros.
#
# </details>

# %% [markdown]
# ## 10. Three claims put to the test
#
# ### "A mixture costs what its active parameters cost"
#
# Side by side: a dense MLP, whole on every rank, and eight experts, spread over the ranks. Each
# token has two of them, and each is half as wide as the MLP. So just as many weights are active.
#
# **Predict.** On four ranks, which of these are the same for both: multiplications, weights that a
# rank holds, bytes that it sends in a step?

# %%
### BEGIN SOLUTION
guess_same = "multiplications, weights"
### END SOLUTION

# %%
from torch.utils.flop_counter import FlopCounterMode

BATCH, HIDDEN, INNER = 256, 32, 128  # tokens on each rank


def dense_mlp():
    up, down = nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(INNER, HIDDEN, bias=False)
    return nn.Sequential(up, nn.GELU(), down)


def eight_experts():
    return the_course.MixtureOfExperts(HIDDEN, 8, top_k=2, inner=INNER // 2)


def costs_of_a_step(make):
    """Multiplications of the forward pass for each token of this rank, and weights held."""
    torch.manual_seed(0)
    layer, x = make(), torch.randn(4, BATCH, HIDDEN)[dist.get_rank()].requires_grad_()
    with FlopCounterMode(display=False) as counted:
        y = layer(x)
    y.square().mean().backward()
    for p in the_course.dense_parameters(layer):  # each expert is on one rank only
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    return counted.get_total_flops() / 2 / BATCH, sum(p.numel() for p in layer.parameters())


lines = [("ranks", "layer", "products per token", "busiest rank's", "weights", "bytes sent")]
for ranks in (1, 4):
    for make in (dense_mlp, eight_experts):
        steps = run_ranks(costs_of_a_step, ranks, make)
        multiplied, held = zip(*steps, strict=True)
        costs = sum(multiplied) / ranks, max(multiplied), held[0], steps.trace.traffic().sent[0]
        lines.append((ranks, make.__name__, *(f"{cost:,.0f}" for cost in costs)))
print(table(lines, left=2))
print("your guess:", guessed(guess_same))

# %% [markdown]
# True of the multiplications ("products"), on average and apart from the router's. But a step lasts
# as long as that of the *busiest* rank. Of the weights it is true only if there are enough ranks. A
# single rank holds all eight experts. Of four ranks each holds two: as many weights as the dense
# layer has, and the router. And the messages differ. The dense layer sends its gradients,
# $2(n-1)/n$ of its weights, however many tokens there are, and hidden behind backward. The mixture
# sends rows, more of them the larger the batch is. (Its experts' gradients stay: no other rank has
# these experts.)
#
# ### "Without a balancing loss, all tokens end up at one expert"
#
# **Predict.** In the training run of section 6 without balancing: what share of the first layer's
# rows does its busiest expert have at the end?

# %%
### BEGIN SOLUTION
guess_share = "more than a quarter"
### END SOLUTION

# %% tags=["nbval-ignore-output"]
late_rows = sum(torch.tensor(tables[0]).sum(0) for tables in without.loads[-20:])
shares = (late_rows / late_rows.sum()).sort(descending=True).values
print("shares of the eight experts:", " ".join(f"{share:.0%}" for share in shares.tolist()))

# %%
print("one expert has nine tenths of all rows:", bool(shares[0] > 0.9))
print("one expert has more than a quarter:", bool(shares[0] > 0.25))
print("one expert has less than a tenth of an even share:", bool(shares[-1] < 0.1 / EXPERTS))
print("your guess:", guessed(guess_share))

# %% [markdown]
# Exaggerated, at least here: a *few* experts have most, and some have next to nothing. That is what
# Shazeer et al. report, too: the same few experts again and again (section 4 of their paper). The
# model has learnt all the same. What suffers is the step's time, which is the busiest rank's, and
# the use of weights for which memory is paid.
#
# ### "A token that is dropped is lost"
#
# **Predict.** Two ranks, a block $x + \text{mixture}(x)$ with $k = 1$ and half of the places that
# an even spread would need. What comes out for a dropped token, and what is the gradient of its
# $x$, if that of the output is 1 everywhere?

# %%
### BEGIN SOLUTION
guess_output = "x"
guess_gradient = 1
### END SOLUTION


# %%
def drop_some(tokens=32):
    torch.manual_seed(0)
    layer = the_course.MixtureOfExperts(HIDDEN, 4, top_k=1, inner=INNER, capacity_factor=0.5)
    x = torch.randn(2, tokens, HIDDEN)[dist.get_rank()].requires_grad_()
    y = x + layer(x)
    y.sum().backward()
    dropped, as_it_came, as_it_went = layer.dropped, (y == x).all(1), (x.grad == 1).all(1)
    alone = x[as_it_came][:1]
    layer(alone)
    again = "yes" if layer.dropped else "no"
    return dropped, int(as_it_came.sum()), int((as_it_came & as_it_went).sum()), again


lines = [("of 32 tokens on", *(f"rank {each}" for each in range(2)))]
outcomes = zip(*run_ranks(drop_some, 2), strict=True)
lines += zip(
    (
        "are dropped",
        "come out as they were",
        "and their gradient as it came in",
        "the first of these, alone in a batch, is dropped",
    ),
    *zip(*outcomes, strict=True),
    strict=True,
)
print(table(lines))
print("your guesses:", guessed(guess_output, guess_gradient))

# %% [markdown]
# False: the residual stream carries it past the layer, forward and backward, and it counts in the
# loss. What is missing is one layer's work on it; and the router learns nothing from a choice that
# was not served. There is another price. Whether a token is served depends on which others are in
# its batch and stand before it: the same sentence may come out differently in other company.

# %% [markdown]
# ## 11. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. A model has 64 experts in each layer, $k = 4$. Attention and embeddings have 5 % of all
#    parameters. What share of its parameters does a token use?
#
#    <details><summary>Answer</summary>
#    5 % + 95 % · 4/64 = 10.9 %.
#    </details>
#
# 2. 32 ranks in groups of 8, each of which has all experts. Over how many ranks are an expert's
#    gradients added up, and by what is the sum divided?
#
#    <details><summary>Answer</summary>
#    Over 32/8 = 4 replicas, divided by 32.
#    </details>
#
# 3. $E = 8$, $k = 1$. All tokens go to one expert, and the router gives it probability 1. How large
#    is the balancing loss? And if the router gives all experts 1/8, and the choice still falls on
#    the first one?
#
#    <details><summary>Answer</summary>
#    8 · 1 · 1 = 8; and 8 · 1 · 1/8 = 1, as for an even spread: the loss sees probabilities. But the
#    choice is on a knife's edge, and the gradient pushes the first one down.
#    </details>
#
# 4. Eight ranks, 2048 tokens on each, $h = 4096$, $k = 2$, bfloat16, as in a layer of Mixtral. What
#    does a rank send in one layer?
#
#    <details><summary>Answer</summary>
#    4 · 2048 · 2 · 4096 · 7/8 · 2 bytes = 117 MB.
#    </details>
#
# 5. The busiest of eight experts has 2.5 times its share, nothing is dropped, and experts are half
#    of a step's time when they are even. How many times as long is the step?
#
#    <details><summary>Answer</summary>
#    0.5 + 0.5 · 2.5 = 1.75 times as long.
#    </details>
#
# ## 12. Assignment: `shared_meanwhile` (●● 15 minutes)
#
# DeepSeek's layers have, beside the experts that are chosen, *shared* experts that every token goes
# to. They are on every rank, and need no message. So they can be computed while others' rows
# travel.
#
# Let there be two of them: the first is computed while rows travel to their experts, the second
# while the outputs travel back. So begin each exchange with `async_op=True`, which gives a handle
# at once, and `wait()` for it when you have computed. `sent` and `received` are lists as in
# exercise 3, and `run(arrived)` gives the outputs of this rank's experts for the rows that came in,
# in the same order. Return the outputs of `rows`, in their order, and the sum of what the shared
# experts make of `x`. (No gradients here; in `course_lib/techniques/expert_parallel/layer.py`
# backward is hidden in the same way.)


# %% exercise="shared_meanwhile"
def shared_meanwhile(rows, sent, received, run, x, shared):
    """rows (sum(sent), C) to their experts and back, beside two shared experts of x (T, C)."""
    ### BEGIN SOLUTION
    arrived = rows.new_empty(sum(received), rows.shape[1])
    there = dist.all_to_all_single(arrived, rows, received, sent, async_op=True)
    first = shared[0](x)
    there.wait()
    outputs, home = run(arrived), torch.empty_like(rows)
    back = dist.all_to_all_single(home, outputs, sent, received, async_op=True)
    second = shared[1](x)
    back.wait()
    return home, first + second
    ### END SOLUTION


# %% check="shared_meanwhile"
check(shared_meanwhile)

# %% [markdown]
# **Predict.** On the two machines of section 8 one exchange takes about twice as long as the
# experts of a rank. Let each shared expert take as long as these. So, one after the other, a layer
# takes the time of two exchanges and of three experts. How many per cent of it are saved?

# %%
### BEGIN SOLUTION
guess_saved = 30
### END SOLUTION


# %%
def waiting(rows, sent, received, run, x, shared):
    """The same, one after the other."""
    own = shared[0](x) + shared[1](x)
    arrived, home = torch.empty_like(rows), torch.empty_like(rows)
    dist.all_to_all_single(arrived, rows, received, sent)
    outputs = run(arrived)
    dist.all_to_all_single(home, outputs, sent, received)
    return home, own


def layer_messages(layer):
    """Runs a layer whose experts note when they are called; each is meant to take as long."""
    calls = []

    def noting(name):
        def expert(tensor):
            calls.append((name, time.monotonic()))
            return tensor

        return expert

    rows, equal = torch.randn(ROWS, COLUMNS), [ROWS // 8] * 8
    shared = [noting("shared A"), noting("shared B")]
    layer(rows, equal, equal, noting("experts"), rows[:1], shared)
    return calls


layers = {"one after the other": waiting}
if solved(shared_meanwhile):
    layers["hidden"] = shared_meanwhile
timelines = {}
for name, layer in layers.items():
    run = run_ranks(layer_messages, 8, layer)
    for machines in (1, 2):
        where = over_machines(machines)
        timelines[machines, name] = replay(run.trace, where, compute=computed(run))
lines = [("machines", "shared experts", "a layer", "saved")]
for machines in (1, 2):
    for name in layers:
        took, whole = (timelines[machines, way].makespan for way in (name, "one after the other"))
        lines.append((machines, name, f"{took * 1e3:.2f} ms", f"{1 - took / whole:.0%}"))
print(table(lines, left=2))
print("your guess:", guessed(guess_saved))

# %%
gantt_chart({name: timelines[2, name] for name in layers}, unit="s")

# %% [markdown]
# **Explain.** One exchange takes 0.39 ms between the machines, and a shared expert 0.2 ms. So each
# of the two is hidden behind half of an exchange, and the layer saves 29 %. On one machine an
# exchange takes 0.05 ms, and it is the exchange that disappears. Dispatch, experts and combine
# still follow one another, since each needs what comes before it. DeepSeek-V3 goes one step
# further: two microbatches are under way, and while one of them waits for its exchange the other
# one computes.

# %% [markdown]
# ## 13. What to read
#
# - Shazeer et al. 2017, *Outrageously Large Neural Networks*
#   ([arXiv 1701.06538](https://arxiv.org/abs/1701.06538)): sections 2 to 4, the layer, its
#   communication and its balance.
# - Lepikhin et al. 2020, *GShard* ([arXiv 2006.16668](https://arxiv.org/abs/2006.16668)): algorithm
#   1 is routing with capacity.
# - Fedus et al. 2021, *Switch Transformers*
#   ([arXiv 2101.03961](https://arxiv.org/abs/2101.03961)): section 2.2 has the balancing loss.
# - Gale et al. 2022, *MegaBlocks* ([arXiv 2211.15841](https://arxiv.org/abs/2211.15841)): no token
#   is dropped, and experts of any size are one product.
# - Jiang et al. 2024, *Mixtral of Experts*
#   ([arXiv 2401.04088](https://arxiv.org/abs/2401.04088)): short, with a look at what experts
#   choose.
# - DeepSeek-AI 2024, *DeepSeek-V2* ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434)): shared
#   experts, and routing that is limited to a few devices. *DeepSeek-V3*
#   ([arXiv 2412.19437](https://arxiv.org/abs/2412.19437)): sections 2.1.2 and 3.2, balance without
#   a loss and messages that hide.
# - `course_lib/techniques/expert_parallel`: the layer with capacity, shared experts, tensor
#   parallel experts, ZeRO and checkpoints.
#
# **Next** is a run of your own. `course_lib.train` combines all that these lessons built, from
# `torchrun` on a laptop to as many nodes as you have: `python -m course_lib.train --help`.
