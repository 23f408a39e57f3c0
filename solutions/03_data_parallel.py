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
# # 03 · Data parallelism
#
# **After this lesson you can**
#
# - train one model on several ranks so that the result is that of one process with the whole batch,
#   with uneven shares too, and name the factor when it is not;
# - hide communication behind the backward pass, in buckets, and show on a timeline how much of it
#   is hidden;
# - say into which buckets PyTorch's `DistributedDataParallel` packs its gradients, and when they
#   leave.
#
# If you go on with the optional part, you can also
#
# - say what `DistributedDataParallel` sends, side by side with your own;
# - clip, and accumulate over microbatches, without sending more than once per step;
# - predict the scaling efficiency of a model on a network before you rent either;
# - say what must change in the training itself when the batch becomes large.
#
# **You need** all-reduce from [lesson 02](02_ring_all_reduce.ipynb). (If you have done its section
# 7, exercise 4 will be easier; it is not needed.) **It takes** 90 minutes to the end of section 5.
# All else is optional: 15 minutes for section 6, which is the most useful, 25 for sections 9 and
# 10, 15 for the assignment; sections 7, 8 and 11 are there to run and read. The machine needs a
# minute. Each exercise says how hard it is (● a few lines, ●● two ideas together, ●●● the hard one)
# and how long it takes.

# %%
import time

import torch
import torch.distributed as dist
from torch import nn

from course_lib import check, guessed, hint, run_ranks, solved, whose, yours_or
from course_lib.simulate import LINKS, costs
from course_lib.text import table

torch.set_num_threads(1)  # this kernel leaves the cores to the ranks

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
# ImageNet has 1,281,167 training images. A ResNet-50 needs 90 passes over them. One P100, the GPU
# with which this was done in 2017, trains on 219 images per second. How long does that take? And
# with 256 of them, if nothing is lost?

# %%
images, epochs, per_second = 1_281_167, 90, 219
one_gpu = images * epochs / per_second
print(f"one GPU:  {one_gpu / 86400:.1f} days")
print(f"256 GPUs: {one_gpu / 256 / 60:.0f} minutes, if nothing is lost")

# %% [markdown]
# In 2017 Goyal et al. needed one hour on 256 P100s (*Accurate, Large Minibatch SGD*,
# [arXiv 1706.02677](https://arxiv.org/abs/1706.02677)). Most of the difference to 34 minutes is not
# lost on the way: their paper counts 90 % efficiency from 8 GPUs to 256. Their single GPU, with
# real images and another program, is slower than the benchmark's 219.
#
# The idea is the simplest in this course: **a copy of the model on every GPU, and a part of the
# batch for each**.

# %%
from course_lib.views.replicas import replicas

replicas(ranks=4, rows=12)

# %% [markdown]
# What has the colour of a rank differs from rank to rank; what is grey is the same on all; green is
# the all-reduce, the step that they take together. Whether that gives the same model as one GPU,
# and what is lost, depends on details. This notebook is about the details.
#
# **Who solved it, and when.** Synchronous data parallelism is old; Chen et al. 2016 ([arXiv
# 1604.00981](https://arxiv.org/abs/1604.00981)) showed that it beats asynchronous training at
# scale. Goyal et al. found the learning rate that large batches need. Sergeev & Del Balso made it a
# library, Horovod (2018). PyTorch's `DistributedDataParallel`, DDP, is described in Li et al., VLDB
# 2020 ([arXiv 2006.15704](https://arxiv.org/abs/2006.15704)). (219 images per second:
# tensorflow.org's benchmarks of May 2017, batches of 64, synthetic data.)

# %% [markdown]
# ## 2. An equal start
#
# Every replica computes a gradient on its own rows. The gradients are averaged, and every replica
# takes the same step. If replicas are equal before the step, they are equal after it.
#
# And if they are not? Here two ranks begin with different weights, and then do all that data
# parallel training does.
#
# **Predict.** Their distance at the start is 100 %. Does it shrink or grow? How many per cent are
# left after 100 steps?

# %%
### BEGIN SOLUTION
guess_distance = 100
### END SOLUTION


# %%
def train_from_unequal_starts(steps=100):
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(4, 1, bias=False).double()
    x = torch.randn(8, 4, dtype=torch.float64)
    weights = []
    for _ in range(steps + 1):
        weights.append(model.weight.detach().clone())
        model.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.weight.grad /= dist.get_world_size()
        with torch.no_grad():
            model.weight -= 0.1 * model.weight.grad
    return weights


first, second = run_ranks(train_from_unequal_starts, 2)
for step in (0, 1, 10, 100):
    apart = (first[step] - second[step]).norm() / (first[0] - second[0]).norm()
    print(f"step {step:3}: {100 * apart:.1f} % apart")
print(f"your guess: {guessed(guess_distance)} %")

# %% [markdown]
# **Explain.** Both take exactly the same steps, so the distance cannot change. Nothing pulls the
# replicas together. The gradients that are averaged belong to two different models, for ever, and
# no error tells you.
#
# ### Exercise 1: `start_equal` (● 5 minutes)
#
# Give every rank what rank 0 has, by `dist.broadcast(tensor, src=0)`. A model holds more than the
# weights that are trained: frozen parameters, and *buffers*, such as the running averages of batch
# normalisation. Each shared weight travels once.


# %% exercise="start_equal"
def start_equal(model: nn.Module) -> None:
    """Overwrite all parameters and buffers, in place, with those of rank 0."""
    ### BEGIN SOLUTION
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
    ### END SOLUTION


# %% check="start_equal"
check(start_equal)

# %% [markdown]
# Stuck, here or later? `hint(start_equal)` gives a nudge, `hint(start_equal, 2)` more,
# `hint(start_equal, 3)` almost the answer.
#
# (DDP does this when you wrap a model. It also broadcasts the buffers before every forward pass,
# unless told otherwise, since batch normalisation changes them on each rank from other rows.)

# %% [markdown]
# ## 3. Sums and means
#
# The gradient of a mean over rows is the mean of the rows' gradients. Suppose five rows have the
# gradients 1, 2, 3, 4 and 5. Their mean is 3. Rank 0 has the first three rows, rank 1 the last two.
#
# **Predict.** Each rank computes the mean over its own rows, and DDP averages the two. What comes
# out?

# %%
### BEGIN SOLUTION
guess_mean = 3.25
### END SOLUTION


# %%
def what_people_compute():
    mine = [[1, 2, 3], [4, 5]][dist.get_rank()]

    def summed(value):
        total = torch.tensor(float(value))
        dist.all_reduce(total)
        return total.item()

    own_sum, own_mean = sum(mine), sum(mine) / len(mine)
    return {
        "sum of the sums": summed(own_sum),
        "average of the sums": summed(own_sum) / 2,
        "sum of the means": summed(own_mean),
        "average of the means": summed(own_mean) / 2,
        "sum of the weighted means": summed(own_mean * len(mine) / summed(len(mine))),
    }


shown_rows = [["", "gradient", "over the true mean"]]
for name, value in run_ranks(what_people_compute, 2)[0].items():
    shown_rows.append([name, f"{value:.2f}", f"{value / 3:.2f}"])
print(table(shown_rows))
print("your guess for the average of the means:", guessed(guess_mean))

# %% [markdown]
# **Explain.** Only the last one is the gradient of the big batch. (“Sum of the sums” and “sum of
# the means” are what comes out without DDP's division by the number of ranks.) A loss with
# `reduction="sum"` is off by the number of rows per rank once DDP has averaged it, and in a mean of
# means a row counts more if its rank has fewer rows. Such a factor does not crash anything: SGD
# just runs with a different learning rate, Adam hides it, gradient clipping makes it visible again
# in odd ways. With *equal* shares the average of the means is right, and that is why it works so
# often that nobody checks.
#
# The last batch of an epoch is uneven in most data sets. In language models, batches have different
# numbers of *tokens*, which is the same problem every step.
#
# ### Exercise 2: `big_batch_gradient` (●● 15 minutes)
#
# Each rank has some rows, perhaps none. Leave in every `.grad` the gradient of the mean loss over
# *all* rows, and return that loss, as a number. `loss(outputs, targets)` is a mean over rows. Send
# every gradient once; a few numbers beside it are free.
#
# A rank without rows has no gradient (`.grad` is `None`, and the mean over no rows is `nan`), but
# the others wait for it in every all-reduce. When the function is called, every `.grad` is `None`:
# there is nothing old to clear. Afterwards a frozen parameter still has none, and one that no
# rank's loss depends on may have `None` or zeros.


# %% exercise="big_batch_gradient"
def big_batch_gradient(model, loss, inputs, targets):
    """Gradients of the mean loss over all ranks' rows, in .grad; returns that loss."""
    ### BEGIN SOLUTION
    total = torch.tensor(len(inputs))
    dist.all_reduce(total)
    value = torch.zeros((), dtype=inputs.dtype if inputs.is_floating_point() else None)
    if len(inputs):
        value = loss(model(inputs), targets) * (len(inputs) / total.item())
        value.backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
    value = value.detach().double()
    dist.all_reduce(value)
    return value.item()
    ### END SOLUTION


# %% check="big_batch_gradient"
check(big_batch_gradient)

# %% [markdown]
# ### A real model, big batch and three uneven ranks
#
# The small GPT that sorts five digits. One process with 16 rows per step; then three ranks with 6,
# 5 and 5 of these rows, which begin unequal. Ten steps of AdamW in float64.
#
# **Predict.** How far apart are the parameters then: exactly 0, below 1e-10, about 1e-2? And with
# the average of the means instead?

# %%
### BEGIN SOLUTION
guess_right = "below 1e-10"
guess_mean_of_means = "about 1e-2"
### END SOLUTION

# %%
from course_lib.models import batches, tiny_gpt, train
from course_lib.models.tiny_gpt import token_loss
from course_lib.techniques.collectives import broadcast_state

STEPS, ROWS = 10, 16


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def train_together(gradient, begin):
    rank, n = dist.get_rank(), dist.get_world_size()
    model = tiny_gpt(seed=rank).double()
    begin(model)
    optimizer = adamw(model.parameters())
    for tokens, targets in batches(STEPS, ROWS):
        optimizer.zero_grad()
        gradient(model, token_loss, tokens[rank::n], targets[rank::n])
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def mean_of_means(model, loss, inputs, targets):
    loss(model(inputs), targets).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


oracle = train(tiny_gpt(seed=0).double(), batches(STEPS, ROWS), adamw).parameters[-1]
begin = yours_or(start_equal, broadcast_state)


def apart_from_one_process(gradient):
    found = run_ranks(train_together, 3, gradient, begin, timeout=45)
    return max((found[2][name] - oracle[name]).abs().max().item() for name in oracle)


if solved(big_batch_gradient):
    less = apart_from_one_process(big_batch_gradient) < 1e-10
    print(f"yours:         apart by {'less' if less else 'more'} than 1e-10")
print(f"mean of means: apart by about {apart_from_one_process(mean_of_means):.0e}")
print("your guesses:", guessed(guess_right, guess_mean_of_means))

# %% [markdown]
# **Explain.** Not exactly 0: the sum is taken in another order. Everything else is the same, to ten
# digits. The mean of the means counts a row on a rank of five 6/5 times as much as one on the rank
# of six, and ten steps show it. This is the test that every data parallel program should have:
# **the big batch in one process is the truth**.

# %% [markdown]
# ## 4. Who reads what
#
# Replicas that read the same rows are a waste of GPUs. PyTorch's `DistributedSampler` gives every
# rank its own part. Five samples on two ranks:

# %%
from torch.utils.data import DistributedSampler

parts = [list(DistributedSampler(range(5), 2, rank, shuffle=False)) for rank in range(2)]
print("rank 0:", *parts[0])
print("rank 1:", *parts[1])

# %% [markdown]
# Look twice: sample 0 is there twice, so that both parts are equally long. In training that hardly
# matters. In an evaluation it does.
#
# **Predict.** A model is wrong about sample 0 and right about the other four: 80 %. What does the
# mean over the two ranks' accuracies say?

# %%
### BEGIN SOLUTION
guess_accuracy = 67
### END SOLUTION

# %%
is_right = [0, 1, 1, 1, 1]
accuracies = [sum(is_right[i] for i in part) / len(part) for part in parts]
print(f"mean of the ranks' accuracies: {100 * sum(accuracies) / 2:.0f} %, true: 80 %")
print(f"your guess: {guessed(guess_accuracy)} %")

# %% [markdown]
# The second trap is the order. The sampler shuffles by a seed *and the epoch*, and does not know
# when a new epoch begins: without `sampler.set_epoch(epoch)` every epoch has the same order.
#
# ### Exercise 3: `shard_indices` (●● 10 minutes)
#
# Return the samples of one rank in one epoch, shuffled by `seed` and `epoch`. All ranks must cut up
# the *same* order without a message; each sample is read once; parts differ by one sample at most.
# Leave torch's global random state alone: it also decides which units dropout leaves out, and those
# should differ from rank to rank.


# %% exercise="shard_indices"
def shard_indices(samples: int, rank: int, world_size: int, epoch: int, seed: int) -> list[int]:
    """This rank's samples of this epoch, in the order in which it reads them."""
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(samples, generator=generator).tolist()
    return order[rank::world_size]
    ### END SOLUTION


# %% check="shard_indices"
check(shard_indices)

# %% [markdown]
# ## 5. Overlap
#
# All-reduce after backward is right, and slow: GPUs wait while the network works, and the network
# waits while the GPUs work. But gradients are not ready all at once.
#
# **Predict.** Which parameter of the GPT gets its gradient first, which last: `"embedding"` or
# `"head"`?

# %%
### BEGIN SOLUTION
guess_first = "head"
guess_last = "embedding"
### END SOLUTION

# %%
watched, became_ready = tiny_gpt(seed=0), []
for name, parameter in watched.named_parameters():
    parameter.register_post_accumulate_grad_hook(lambda _, name=name: became_ready.append(name))
watched.loss(*next(batches(1, 4))).backward()
print("first:", *became_ready[:4], sep="\n  ")
print("last:", *became_ready[-3:], sep="\n  ")
print("your guesses:", guessed(guess_first, guess_last))

# %% [markdown]
# Backward goes from the loss to the input. So the head's gradients can travel while the blocks
# still compute theirs. One all-reduce per parameter would pay a latency each; one for all of them
# leaves last. In between are **buckets**, filled from the last parameter to the first.
#
# Here is what you will build, by the course's own code. Eight equal layers of 1 MB on two ranks:
# the run writes down when each pass of a layer begins and when each all-reduce is issued and waited
# for. The order is that of the real run. How long things take on your laptop is of no interest, so
# the replay gives each forward 1 ms and each backward 2 ms, about as on a GPU, and the all-reduces
# the time that they need on eight machines with 25 Gbit/s Ethernet.
#
# **Predict.** The 24 ms of computation are the same in both. One all-reduce of all 8 MB after
# backward takes 5.4 ms, one of a layer's 1 MB takes 1.3 ms, and there are eight of these. How many
# ms does a step take each way?

# %%
### BEGIN SOLUTION
guess_after_backward = 29.4
guess_in_buckets = 25.3
### END SOLUTION

# %%
from course_lib.simulate.data_parallel import on_machines
from course_lib.train.overlap_experiment import (
    LAYER_BYTES,
    LAYERS,
    WIDTH,
    all_after_backward,
    buckets_of_the_course,
    one_step,
)
from course_lib.views.overlap import overlap

FORWARD, BACKWARD = 1e-3, 2e-3


def on_a_cluster(run, machines, link):
    """The recorded step, as it would be on so many machines with one GPU each."""
    seconds = {"F": FORWARD, "B": BACKWARD}
    return on_machines(run.trace, run[0], seconds, LAYER_BYTES, machines, link)


after = run_ranks(one_step, 2, all_after_backward, 0)
model_answer = run_ranks(one_step, 2, buckets_of_the_course, LAYER_BYTES)
print("your guesses:", guessed(guess_after_backward, guess_in_buckets))
overlap(
    {
        "All after backward": on_a_cluster(after, 8, "25 GbE"),
        "A bucket for each layer": on_a_cluster(model_answer, 8, "25 GbE"),
    }
)

# %% [markdown]
# **Explain.** All but the last bucket are hidden. The last one cannot be: it holds the first layer,
# whose gradient is the last thing that backward computes. (Li et al. measured what overlap is worth
# on GPUs with NCCL: a speed-up of 38.0 % for ResNet and 35.2 % for BERT.)
#
# One more thing must be agreed. If ranks send buckets in different orders, they add the head's
# gradient to the embedding's, or wait for ever. The orders may well differ: where only some ranks
# use a layer, the others never get a gradient for it. So buckets leave **in a fixed order**, each
# when it is complete and all before it have left; what is incomplete when backward ends is sent by
# `synchronize`, with zeros for what is missing.
#
# ### Exercise 4: `average_in_buckets` (●●● 35 minutes)
#
# Called once on every rank, on a model that is equal already, the function
#
# 1. puts the trainable parameters into buckets, from the last to the first: neighbours share a
#    bucket while they fit into `bucket_bytes`, a larger parameter has a bucket of its own;
# 2. hangs a hook on each parameter, which starts an *asynchronous* all-reduce of the next bucket in
#    line whenever that is complete;
# 3. returns `synchronize()`, to be called after each backward: it sends the rest, waits, leaves the
#    **average** in every `.grad`, and is ready for the next step.
#
# Before each backward every `.grad` is `None`. After `synchronize()` a frozen parameter still has
# none, and one that no rank used may have `None` or zeros.
#
# (`p.register_post_accumulate_grad_hook(hook)` calls `hook(p)` as soon as `p.grad` is complete,
# with the *parameter*. `dist.all_reduce(x, async_op=True)` returns a handle at once; the sum is
# there after its `wait()`.)


# %% exercise="average_in_buckets"
def average_in_buckets(model: nn.Module, bucket_bytes: int):
    """All-reduce gradients in buckets during backward; returns `synchronize`."""
    ### BEGIN SOLUTION
    buckets, room = [], 0
    for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    missing = [len(bucket) for bucket in buckets]
    under_way = []

    def send_complete():
        while len(under_way) < len(buckets) and missing[len(under_way)] == 0:
            bucket = buckets[len(under_way)]
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            buffer = torch.cat([grad.flatten() for grad in grads])
            under_way.append((dist.all_reduce(buffer, async_op=True), buffer))

    def hook_of(number):
        def hook(_):
            missing[number] -= 1
            send_complete()

        return hook

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook_of(number))

    def synchronize():
        missing[:] = [0] * len(buckets)
        send_complete()
        for bucket, (work, buffer) in zip(buckets, under_way, strict=True):
            work.wait()
            buffer /= dist.get_world_size()
            for parameter, part in zip(
                bucket, buffer.split([p.numel() for p in bucket]), strict=True
            ):
                parameter.grad = part.view_as(parameter)
        under_way.clear()
        missing[:] = [len(bucket) for bucket in buckets]

    return synchronize
    ### END SOLUTION


# %% check="average_in_buckets"
check(average_in_buckets)

# %% [markdown]
# ### Yours, on the timeline

# %%
my_buckets = yours_or(average_in_buckets, buckets_of_the_course)
layer_counts = (1, 2, 4, 8)
runs = {k: run_ranks(one_step, 2, my_buckets, k * LAYER_BYTES) for k in layer_counts}
overlap(
    {
        f"By {whose(my_buckets)} function, a bucket for each layer": on_a_cluster(
            runs[1], 8, "25 GbE"
        )
    }
)

# %% [markdown]
# The same as above: while layer 6 computes its gradient, that of layer 7 is on its way.
#
# ### How large should a bucket be?
#
# **Predict.** For 8 machines and for 64: are buckets of 1, 2, 4 or 8 layers best?

# %%
### BEGIN SOLUTION
guess_8 = 1
guess_64 = 4
### END SOLUTION

# %%
shown_rows = [["ms per step", *(f"{k} layer{'s' * (k > 1)}" for k in layer_counts)]]
for machines in (8, 64):
    for link in ("10 GbE", "25 GbE", "100 GbE"):
        steps = [on_a_cluster(runs[k], machines, link).makespan * 1e3 for k in layer_counts]
        shown_rows.append([f"{machines} machines, {link}", *(f"{step:.1f}" for step in steps)])
print(table(shown_rows))
print("your guesses:", guessed(guess_8, guess_64))

# %%
overlap(
    {
        f"Buckets of {k} layer{'s' * (k > 1)}": on_a_cluster(runs[k], 64, "25 GbE")
        for k in layer_counts
    },
    title="64 machines, 25 Gbit/s Ethernet",
)

# %% [markdown]
# **Explain.** Small buckets leave early and make the unhidden last one small; each costs $2(n-1)$
# latencies. On 8 machines that is 0.7 ms and small buckets win. On 64 it is 6.3 ms, more than a
# layer's whole backward, and few large ones win. But a single one of all 8 layers loses again: it
# leaves when backward has ended, and nothing of it is hidden. DDP's 25 MiB (`bucket_cap_mb`) are a
# compromise for real models. By default its first bucket holds only 1 MiB, so that the network
# begins early.
#
# The same question for a real model: ResNet‑101 with 64 images per GPU on 64 GPUs, whose step is
# 0.5&nbsp;s of computation.

# %%
from course_lib.simulate.convnets import inception_v3, layers, resnet101, vgg16
from course_lib.simulate.data_parallel import Layer, bucket_layers, data_parallel_step
from course_lib.views.cost_curves import cost_curves

RESNET = layers(resnet101(), 64 / 129)


def step_of_resnet(bucket_bytes, gigabits):
    def all_reduce(nbytes):
        return costs.ring_all_reduce(64, nbytes, 50e-6, 8e-9 / gigabits)

    return data_parallel_step(RESNET, bucket_layers(RESNET, bucket_bytes), all_reduce).makespan


by_network = {f"{g} Gbit/s": lambda size, g=g: step_of_resnet(size, g) for g in (5, 10, 25)}
computing = sum(layer.forward + layer.backward for layer in RESNET)
cost_curves(
    {**by_network, "computation alone": lambda size: computing},
    title="A step of ResNet-101 on 64 GPUs, 50 µs per message",
    label="size of a bucket",
    sizes=(3e5, 3e8),
)

# %% [markdown]
# **Explain.** With small buckets latencies add up; with large ones the last bucket leaves late. The
# slower the network, the larger the best bucket. At 25 Gbit/s anything up to 10 MB will do: the
# step takes hardly longer than its computation. (Here a block of the network is never cut, and most
# blocks have 4.5 MB of gradients. So up to twice that most have a bucket of their own, and the
# curves are flat. Then two share one, and the number of all-reduces falls at once. The jags after
# it are blocks that just fit, or just do not.)
#
# ## 6. Several microbatches, one synchronisation
#
# When the batch does not fit into memory, it is cut into microbatches whose gradients add up in
# `.grad`: **gradient accumulation**. The ranks need to talk only after the last. DDP has a switch
# for that: inside `with ddp.no_sync():` gradients stay on the rank, and the next backward outside
# sends the sum. It is the *forward* pass that reads the switch, so both passes belong inside.
#
# Then **clipping**. `clip_grad_norm_` scales the gradient so that its norm is at most `max_norm`.
# The norm of an average is not the average of norms, so when to clip matters.
#
# **Predict.** Two ranks have gradients of norm 1 and 10, in the same direction, and `max_norm` is
# 2. The norm of the step, if clipped after the average, and if each rank clips its own before?

# %%
### BEGIN SOLUTION
guess_after = 2.0
guess_before = 1.5
### END SOLUTION

# %%
norms = torch.tensor([1.0, 10.0])
print("clipped after the average:", norms.mean().clamp(max=2).item())
print("each rank clips its own:  ", norms.clamp(max=2).mean().item())
print("your guesses:", guessed(guess_after, guess_before))

# %% [markdown]
# If their directions differ, clipping before the average also turns the step: the rank with the
# large gradient loses its say.
#
# ### Exercise 5: `accumulate` (●● 10 minutes)
#
# `ddp` is a `DistributedDataParallel`, `microbatches` a list of `(inputs, targets)` of equal size.
# Hold the activations of one microbatch at a time: one forward, its backward, then the next. Leave
# the clipped gradient of the mean loss over everything in `.grad`, which is `None` everywhere when
# the function is called. Return the norm that it had before clipping.


# %% exercise="accumulate"
def accumulate(ddp, loss, microbatches, max_norm):
    """One gradient from several microbatches, sent once, then clipped. Returns its norm."""
    ### BEGIN SOLUTION
    *first, (inputs, targets) = microbatches
    with ddp.no_sync():
        for x, y in first:
            (loss(ddp(x), y) / len(microbatches)).backward()
    (loss(ddp(inputs), targets) / len(microbatches)).backward()
    return nn.utils.clip_grad_norm_(ddp.parameters(), max_norm)
    ### END SOLUTION


# %% check="accumulate"
check(accumulate)

# %% [markdown]
# The check used a stand-in for DDP, which knows `ddp(x)` and `no_sync()` and loads faster. Here is
# the original, with three microbatches, and what a rank all-reduces in one step.

# %%
from torch.nn.parallel import DistributedDataParallel


def three_microbatches(with_no_sync):
    ddp = DistributedDataParallel(tiny_gpt(seed=0))
    rank, n = dist.get_rank(), dist.get_world_size()
    tokens, targets = next(batches(1, 12))
    mine = list(zip(tokens[rank::n].split(2), targets[rank::n].split(2), strict=True))
    with torch.profiler.record_function("step"):
        if with_no_sync:
            return float(accumulate(ddp, token_loss, mine, max_norm=1.0))
        for x, y in mine:
            (token_loss(ddp(x), y) / 3).backward()
        return float(nn.utils.clip_grad_norm_(ddp.parameters(), 1.0))


for with_no_sync in (True, False) if solved(accumulate) else (False,):
    run = run_ranks(three_microbatches, 2, with_no_sync, timeout=45)
    sent = sum(e.nbytes for e in run.trace.of(0) if e.op == "all_reduce" and "step" in e.spans)
    how = "with" if with_no_sync else "without"
    print(f"{how:7} no_sync: norm {run[0]:.4f}, {sent:,} bytes all-reduced")

# %% [markdown]
# The same norm. Without `no_sync` every one of the three microbatches sends all gradients.
#
# ## 7. PyTorch's own, side by side
#
# Your buckets, the course's `DataParallel` and DDP train the GPT on two ranks: same weights, same
# rows. The model has 408 kB of gradients. Your buckets hold 128 kB; those of the other two hold 25
# MiB, the first one 1 MiB.
#
# **Predict.** In how many buckets does a rank all-reduce them in a step: your function's, and those
# of DDP?

# %%
### BEGIN SOLUTION
guess_my_buckets = 5
guess_ddp_buckets = 1
### END SOLUTION


# %%
from course_lib.techniques.data_parallel import DataParallel


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def train_with(wrap):
    rank, n = dist.get_rank(), dist.get_world_size()
    model = tiny_gpt(seed=0)
    forward, synchronize = wrap(model)
    optimizer = sgd(model.parameters())
    losses = []
    for tokens, targets in batches(STEPS, ROWS):
        optimizer.zero_grad()
        loss = token_loss(forward(tokens[rank::n]), targets[rank::n])
        with torch.profiler.record_function("backward"):
            loss.backward()
            synchronize()
        optimizer.step()
        losses.append(loss.item())
    return losses


def nothing_more():
    """DDP and the course's class have waited when backward ends."""


ways = {
    "DataParallel": lambda model: (DataParallel(model), nothing_more),
    "DDP": lambda model: (DistributedDataParallel(model), nothing_more),
}
if my_buckets is average_in_buckets:
    ways = {"your buckets of 128 kB": lambda model: (model, my_buckets(model, 128_000)), **ways}
whole_batch = train(tiny_gpt(seed=0), batches(STEPS, ROWS), sgd).losses
shown_rows = [["", "bytes per step", "buckets", "losses as of one process"]]
for name, wrap in ways.items():
    run = run_ranks(train_with, 2, wrap, timeout=45)
    together = [sum(losses) / 2 for losses in zip(*run, strict=True)]
    apart = max(abs(a - b) for a, b in zip(whole_batch, together, strict=True))
    sent = [e for e in run.trace.of(0) if e.op == "all_reduce" and "backward" in e.spans]
    nbytes = sum(e.nbytes for e in sent) // STEPS
    shown_rows.append([name, f"{nbytes:,}", len(sent) // STEPS, "yes" if apart < 1e-5 else "no"])
print(table(shown_rows))
print("your guesses:", guessed(guess_my_buckets, guess_ddp_buckets))

# %% [markdown]
# **Explain.** The same losses and the same bytes: each gradient is sent once, however they are
# packed. A parameter is never cut, so buckets of 128 kB are five and not four. The buckets of the
# others have room for the whole of so small a model. And the time? Measured here, on a larger GPT,
# in turns, so that both meet the same disturbances. (The times differ from run to run.)


# %% tags=["nbval-ignore-output"]
def time_both(steps=12):
    tokens, targets = next(batches(1, 32))
    ours, theirs = (
        wrap(tiny_gpt(layers=4, hidden=128, seed=0))
        for wrap in (DataParallel, DistributedDataParallel)
    )
    seconds = {ours: [], theirs: []}
    for step in range(steps):
        for model in (ours, theirs) if step % 2 else (theirs, ours):
            start = time.perf_counter()
            model.zero_grad()
            token_loss(model(tokens), targets).backward()
            seconds[model].append(time.perf_counter() - start)
    return min(seconds[ours]), min(seconds[theirs])


ours, theirs = run_ranks(time_both, 2, observe=False, timeout=45)[0]
print(f"DataParallel {ours * 1e3:.1f} ms, DDP {theirs * 1e3:.1f} ms")

# %% [markdown]
# Where the two differ, in either direction, the reasons are small: DDP's hooks are written in C++,
# ours in Python, and by default DDP copies the averages back from its buckets into `.grad`, while
# ours (and DDP's with `gradient_as_bucket_view=True`) leaves `.grad` a view of the bucket.

# %% [markdown]
# ## 8. Explore
#
# The step of ResNet‑101 again, with buckets, links and GPUs to choose.

# %%
from functools import partial

from course_lib.views.widgets import Control, explore
from course_lib.views.overlap import overlap_step

explore(
    partial(overlap_step, RESNET),
    bucket_MB=Control([1, 5, 25, 64, 200], "buckets", "MB"),
    ranks=[2, 8, 64, 512],
    gigabits=Control([5, 10, 25, 100], "bandwidth", "Gbit/s"),
    latency_us=Control([5, 14, 50], "latency", "µs"),
)

# %% [markdown]
# **Explore.** At 10 Gbit/s, which bucket size gives the shortest step on 64 ranks? On 512? At which
# speed does nothing stick out but the last bucket? Why does the first bucket leave the moment that
# backward begins?
#
# <details><summary>Answers</summary>
#
# With the latency of 14 &micro;s: about 5&nbsp;MB on 64 ranks and 64&nbsp;MB on 512, where every
# bucket pays for a ring of 1022 steps. On 64 ranks from 10&nbsp;Gbit/s on with buckets of 5 or
# 25&nbsp;MB, from 25&nbsp;Gbit/s on with any. Up to 25&nbsp;MB the first bucket holds the last
# layer alone, 8&nbsp;MB of gradients and hardly any computation.
#
# </details>

# %% [markdown]
# ## 9. At scale
#
# **Scaling efficiency** is the speed of $N$ GPUs over $N$ times the speed of one. Each GPU keeps
# its own rows, so a step computes as long as before; what is lost is the part of the communication
# that sticks out.
#
# ### Exercise 6: `scaling_efficiency` (● 10 minutes)
#
# A step computes for `forward + backward`. Bucket $i$ is complete at `ready[i]`, counted from the
# beginning of backward, and its all-reduce takes `seconds(sizes[i])`. The network carries one
# bucket at a time, in order.


# %% exercise="scaling_efficiency"
def scaling_efficiency(forward, backward, ready, sizes, seconds):
    """The computation's share of a step, 1.0 if all communication is hidden."""
    ### BEGIN SOLUTION
    free = 0.0
    for moment, size in zip(ready, sizes, strict=True):
        free = max(free, moment) + seconds(size)
    return (forward + backward) / (forward + max(backward, free))
    ### END SOLUTION


# %% check="scaling_efficiency"
check(scaling_efficiency)

# %% [markdown]
# Now three networks of 2017. TensorFlow's authors measured how fast one P100 is: 142 images per
# second for Inception V3, 154 for VGG-16, with 64 images at a time. For ResNet-101 we interpolate
# between ResNet-50 (219) and ResNet-152 (91.8) by their operations: 129. Parameters and operations
# of every layer follow from the papers (Inception's are spread evenly here). Buffers hold 64 MB, as
# Horovod's did then; the ring has links of 25 Gbit/s. Its latency is not published: 14 µs is what
# NCCL assumes where network cards write into each other's memory (RDMA), and 50 µs is usual for
# TCP.
#
# (You need not read the next two cells of code. Their table says what your function says, and what
# Horovod's authors measured.)
#
# **Predict.** The efficiency of VGG-16 and of ResNet-101 on 512 GPUs, in per cent?

# %%
### BEGIN SOLUTION
guess_vgg = 70
guess_resnet = 90
### END SOLUTION

# %%
networks = {
    "Inception V3": layers(inception_v3(), 64 / 142),
    "ResNet-101": layers(resnet101(), 64 / 129),
    "VGG-16": layers(vgg16(), 64 / 154),
}
published = {
    "Inception V3": {128: 0.90, 512: 0.90},
    "ResNet-101": {128: 0.90, 512: 0.90},
    "VGG-16": {128: 0.79, 512: 0.68},
}


def efficiency_simulated(forward, backward, ready, sizes, seconds):
    """As scaling_efficiency, by playing the step: each bucket as one layer."""
    passes = [now - before for now, before in zip(ready, [0, *ready], strict=False)]
    played = [
        Layer(f"{i}", forward if i == 0 else 0, computing, size)
        for i, (computing, size) in enumerate(zip(passes, sizes, strict=True))
    ][::-1]
    alone = [[i] for i in reversed(range(len(played)))]
    step = data_parallel_step(played, alone, seconds)
    return step.busy[0] / step.makespan


my_efficiency = yours_or(scaling_efficiency, efficiency_simulated)


def efficiency(network, gpus, gigabits=25, latency=14e-6, bucket_bytes=64e6):
    """By your function, from the layers of a network."""
    buckets = bucket_layers(network, bucket_bytes)
    return my_efficiency(
        sum(layer.forward for layer in network),
        sum(layer.backward for layer in network),
        [sum(layer.backward for layer in network[min(bucket) :]) for bucket in buckets],
        [sum(network[i].nbytes for i in bucket) for bucket in buckets],
        lambda nbytes: costs.ring_all_reduce(gpus, nbytes, latency, 8e-9 / gigabits),
    )


shown_rows = [["efficiency in %", "GPUs", "14 µs", "50 µs", "measured"]]
for name, network in networks.items():
    for gpus, known in published[name].items():
        by_formula = [100 * efficiency(network, gpus, latency=a) for a in (14e-6, 50e-6)]
        shown_rows.append([name, gpus, *(f"{n:.0f}" for n in by_formula), f"{100 * known:.0f}"])
print(table(shown_rows))
print("your guesses for 512:", guessed(guess_vgg, guess_resnet))

# %%
from course_lib.views.scaling_curves import scaling_curves

scaling_curves(
    {name: partial(efficiency, network) for name, network in networks.items()},
    devices=(8, 16, 32, 64, 128, 256, 512),
    title="Scaling efficiency at 25 Gbit/s and 14 µs",
    label="efficiency",
    text="{:.0%}".format,
    log=False,
    best=None,
    count="GPUs",
    lowest=0.5,
    measured=published,
)

# %% [markdown]
# **Explain.** Horovod's authors measured 90, 90 and 68 % on 512 Pascal GPUs. Their network was
# RoCE, that is RDMA, so compare with 14 µs: our formula promises 93, 96 and 76, three to eight
# points too much, and on 128 GPUs three to eight again. It leaves out stragglers, the input
# pipeline and other traffic. (At 50 µs it would promise less than was measured on 512 GPUs.) VGG‑16
# suffers from its three fully connected layers: 124 of its 138 million parameters, but a hundredth
# of its operations, so they give little time to hide behind.
#
# The same by the simulator, which also shows what each GPU is doing:

# %%
played = {
    name: data_parallel_step(
        network,
        bucket_layers(network, 64e6),
        lambda nbytes: costs.ring_all_reduce(512, nbytes, 14e-6, 8 / 25e9),
    )
    for name, network in networks.items()
}
for name, step in played.items():
    share = step.busy[0] / step.makespan
    same = abs(share - efficiency(networks[name], 512)) < 1e-9
    print(
        f"{name:13} {share:.1%}, {'as' if same else 'not as'} {whose(my_efficiency)} function says"
    )
overlap(played, title="512 GPUs, buckets of 64 MB, 25 Gbit/s, 14 µs")

# %% [markdown]
# In VGG‑16 the fully connected layers have the network to themselves as long as backward lasts,
# most of all fc6. The convolutions' gradients wait, and none of them is hidden.
#
# The abstract of DDP's paper promises "near-linear scalability using 256 GPUs". Ask such a sentence
# for three things: how many per cent, for which model and batch, on which network.

# %% [markdown]
# ## 10. The learning rate of a large batch
#
# $N$ GPUs take $N$ times as many rows per step, so an epoch has $N$ times fewer steps. If each step
# is as long as before, training covers less ground.
#
# The **linear scaling rule** (Goyal et al. 2017): batch $k$ times as large, learning rate $k$ times
# as large. The reason: $k$ small steps with nearly the same weights add up $k$ gradients of nearly
# the same function; one step with their mean and $k$ times the rate goes as far. "Nearly the same
# weights" is false at the start, where weights change quickly. So they **warm up**: from the known
# rate to the large one, by equal amounts, over five epochs.
#
# ### Exercise 7: `learning_rate` (● 5 minutes)
#
# `base_rate` is right for `base_batch`. Return the rate of step 0, 1, 2, ... for `batch`: a
# straight line from `base_rate` at step 0 to the full rate at step `warmup_steps`, constant after
# that. `warmup_steps` may be 0: then the full rate holds from the beginning.


# %% exercise="learning_rate"
def learning_rate(step, base_rate, base_batch, batch, warmup_steps):
    """Linear scaling with gradual warm-up."""
    ### BEGIN SOLUTION
    full = base_rate * batch / base_batch
    if step >= warmup_steps:
        return full
    return base_rate + (full - base_rate) * step / warmup_steps
    ### END SOLUTION


# %% check="learning_rate"
check(learning_rate)

# %% [markdown]
# ## 11. Two claims put to the test
#
# ### "DDP averages the gradients, so the learning rate need not change"
#
# It does average: the *gradient* of a large batch has about the norm of that of a small one. A
# small network learns a function of twenty numbers, ten epochs each time, with the batch of 1, 4,
# 8, 16 and 32 workers of 16 rows. (One process computes each big batch. Sections 3 and 7 showed
# that ranks would compute the same.)
#
# **Predict.** One worker ends with a loss of 0.05. Where do eight workers end with the
# rate unchanged, and where with the rate times eight?

# %%
### BEGIN SOLUTION
guess_unchanged = 1.4
guess_scaled = 0.06
### END SOLUTION


# %%
def teacher():
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, inner, outer = numbers(4096, 20), numbers(20, 8) / 20**0.5, numbers(8, 1)
    return x, torch.tanh(2 * x @ inner) @ outer + 0.1 * numbers(4096, 1)


def by_pytorchs_sampler(samples, rank, world_size, epoch, seed):
    sampler = DistributedSampler(range(samples), world_size, rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def without_warm_up(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate * batch / base_batch


X, Y = teacher()
indices = yours_or(shard_indices, by_pytorchs_sampler)
my_rate = yours_or(learning_rate, without_warm_up)


def losses_by_epoch(batch, rate_of, epochs=10):
    """Over all data, after every epoch."""
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    losses, step = [], 0
    for epoch in range(epochs):
        for rows in torch.tensor(indices(len(X), 0, 1, epoch, seed=0)).split(batch):
            student.zero_grad()
            nn.functional.mse_loss(student(X[rows]), Y[rows]).backward()
            with torch.no_grad():
                for parameter in student.parameters():
                    parameter -= rate_of(step) * parameter.grad
            step += 1
        losses.append(nn.functional.mse_loss(student(X), Y).item())
    return losses


def last(losses):
    return f"{losses[-1]:.2f}" if losses[-1] < 10 else "diverges"


BASE, PER_WORKER = 0.02, 16
shown_rows = [["workers", "batch", "steps", "rate unchanged", "rate scaled"]]
unchanged, scaled = {}, {}
for workers in (1, 4, 8, 16, 32):
    large = workers * PER_WORKER
    an_epoch = len(X) // large
    rule = partial(
        my_rate, base_rate=BASE, base_batch=PER_WORKER, batch=large, warmup_steps=an_epoch
    )
    unchanged[workers] = losses_by_epoch(large, lambda step: BASE)
    scaled[workers] = losses_by_epoch(large, rule)
    ends = last(unchanged[workers]), last(scaled[workers])
    shown_rows.append([workers, large, 10 * an_epoch, *ends])
print(table(shown_rows, left=0))
print("your guesses for 8 workers:", guessed(guess_unchanged, guess_scaled))

# %%
from course_lib.views.loss_curves import loss_curves

loss_curves(
    {
        name: (range(1, len(losses) + 1), losses)
        for name, losses in {
            "1 worker": unchanged[1],
            "8, rate unchanged": unchanged[8],
            "8, rate scaled": scaled[8],
            "16, rate scaled": scaled[16],
        }.items()
    },
    "epochs",
    "The same data for all: 10 epochs",
)

# %% [markdown]
# False. With the rate unchanged, eight workers do an eighth of the steps, and end at 1.42 where one
# worker ends at 0.05. With the rate scaled they arrive nearly where one worker did, **up to a
# point**: a step that is too long for the curvature of the loss makes it grow. The rule holds as
# long as the rate is small compared with that limit. For ResNet‑50, Goyal et al. found the same
# error from a batch of 256 up to 8192 (rate 3.2, with warm-up), and a rising one above. More GPUs
# then only help if each gets fewer rows, and that is another kind of scaling: the computation
# shrinks and the communication does not.
#
# (For Adam, $\sqrt{k}$ times the rate is often used. And all of this is about the *total* batch,
# whether it comes from more ranks or from accumulation.)
#
# ### "N GPUs give N times the speed"
#
# Your recorded step of section 5 once more, 24 ms of computation and 8 MB of gradients in buckets
# of 2&nbsp;MB, on clusters of several sizes and speeds.
#
# **Predict.** The speed-up of 64 machines at 10 Gbit/s, and at 100?

# %%
### BEGIN SOLUTION
guess_10 = 30
guess_100 = 40
### END SOLUTION

# %%
from course_lib.simulate import Link

one_gpu_step = LAYERS * (FORWARD + BACKWARD)
links = {name: LINKS[name] for name in ("10 GbE", "25 GbE", "100 GbE", "InfiniBand NDR")}
links = {"1 GbE": Link("1 GbE", 50e-6, 125e6), **links}


def speed_up(link, gpus):
    return gpus * one_gpu_step / on_a_cluster(runs[2], gpus, link).makespan


shown_rows = [["speed-up", *(f"{gpus} GPUs" for gpus in (2, 8, 64, 256))]]
for name, link in links.items():
    shown_rows.append([name, *(f"{speed_up(link, gpus):.1f}" for gpus in (2, 8, 64, 256))])
print(table(shown_rows))
print("your guesses for 64:", guessed(guess_10, guess_100))

# %%
shown = ("1 GbE", "10 GbE", "100 GbE", "InfiniBand NDR")
scaling_curves(
    {"N times": lambda gpus: gpus, **{name: partial(speed_up, links[name]) for name in shown}},
    devices=(2, 4, 8, 16, 32, 64, 128, 256),
    title="Speed-up of the recorded step",
    label="speed-up",
    text="{:.3g}".format,
    best=None,
    count="GPUs",
)

# %% [markdown]
# The network decides how near you come to N times the speed. Two GPUs on 1 Gbit/s are *slower* than
# one. Ten times the bandwidth, from 10 to 100 Gbit/s, makes 64 machines a third faster and 256 a
# tenth, since these buckets are small and pay the latency of a long ring: InfiniBand wins by its
# 14&nbsp;µs, not by its 400&nbsp;Gbit/s. And the number means nothing without its model and batch:
# with twice the rows per GPU the computation doubles, the communication stays, and every entry
# rises.

# %% [markdown]
# ## 12. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. Eight ranks have 32 rows each, but in the last step of an epoch one of them has 4. DDP averages
#    the means. How much more does one of these 4 rows count than one of the others?
#
#    <details><summary>Answer</summary>
#    1/8 · 1/4 against 1/8 · 1/32: eight times as much.
#    </details>
#
# 2. A model of 1.5 billion parameters, gradients in float32, 16 GPUs. How many bytes does each send
#    per step, and how long does that take at 25 Gbit/s? With four microbatches, under `no_sync` and
#    without?
#
#    <details><summary>Answer</summary>
#    2 · 15/16 · 6 GB = 11.25 GB, 3.6 s. Four times that, 14.4 s, without no_sync; 3.6 s with it.
#    </details>
#
# 3. Backward takes 200 ms, the network needs 300 ms for all buckets together. How much can overlap
#    hide at most, and what is the efficiency then, if forward takes 100 ms?
#
#    <details><summary>Answer</summary>
#    At most 200 ms, all of backward. 100 ms stick out: 300/400 = 75 %. In practice it is a little
#    less, since the first bucket is ready only some time after backward has begun.
#    </details>
#
# 4. ResNet-101 has 178 MB of gradients. Into how many buckets does DDP put it by default, about?
#
#    <details><summary>Answer</summary>
#    25 MiB are 26.2&nbsp;MB: seven or eight, with the small first one. No parameter is larger than
#    9.4&nbsp;MB. (The picture of section 8 has nine: it never cuts a block, and 25 MB are less than
#    25 MiB.)
#    </details>
#
# 5. Goyal et al. used a rate of 0.1 for 256 images. You have 12 GPUs with 64 images each. Which
#    rate, and over how many steps do you warm up in five epochs?
#
#    <details><summary>Answer</summary>
#    768 images: 0.3. An epoch has 1,281,167 / 768 = 1668.2 steps, so 8341.
#    </details>
#
# 6. What does data parallelism do about the 16 bytes per parameter that training takes
#    ([lesson 00](00_ranks.ipynb))?
#
#    <details><summary>Answer</summary>
#    Nothing: every rank holds all of them. [Lesson 06](06_zero.ipynb) changes that.
#    </details>
#
# ## 13. Assignment: `buckets_by_ready_time` (●● 15 minutes)
#
# The last parameter first is a guess. A model may register its layers in another order than it uses
# them. DDP therefore watches the first backward pass and then fills its buckets anew. Here is a
# model that was written from the end to the beginning. Two ranks record when its gradients are
# ready.


# %%
class WrittenBackwards(nn.Module):
    """Layers are registered from the last to the first."""

    def __init__(self):
        super().__init__()
        for i in reversed(range(LAYERS)):
            self.add_module(f"layer{i}", nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x):
        for i in range(LAYERS):
            x = getattr(self, f"layer{i}")(x)
        return x


def ready_times():
    model, started = WrittenBackwards(), time.perf_counter()
    ready = [None] * LAYERS
    for i, parameter in enumerate(model.parameters()):

        def note(_, i=i):
            ready[i] = time.perf_counter() - started

        parameter.register_post_accumulate_grad_hook(note)
    model(torch.ones(2, WIDTH)).sum().backward()
    return ready


recorded = run_ranks(ready_times, 2)
names = [name.split(".")[0] for name, _ in WrittenBackwards().named_parameters()]
by_time = sorted(range(LAYERS), key=lambda i: max(ready[i] for ready in recorded))
print("registered:", *names)
print("ready:     ", *(names[i] for i in by_time))

# %% [markdown]
# Write the function that makes better buckets from such a recording. `ready[i]` is the time at
# which *this* rank had gradient $i$, or `None` if it never came. Each rank has times of its own,
# and all must return the same buckets, in whatever way they come to agree: one all-reduce of the
# times is enough. An all-reduce begins when its last rank has come; a parameter whose gradient some
# rank never got goes last; several of those in any order, the same on all ranks. Fill the buckets
# as before.


# %% exercise="buckets_by_ready_time"
def buckets_by_ready_time(ready, sizes, bucket_bytes):
    """Indices of parameters in buckets, in order of departure, the same on all ranks."""
    ### BEGIN SOLUTION
    times = torch.tensor([float("inf") if t is None else t for t in ready], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    latest = times.tolist()
    buckets, room = [], 0
    for index in sorted(range(len(sizes)), key=latest.__getitem__):
        if not buckets or sizes[index] > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(index)
        room -= sizes[index]
    return buckets
    ### END SOLUTION


# %% check="buckets_by_ready_time"
check(buckets_by_ready_time)

# %% [markdown]
# **Predict** the step on eight machines at 25 Gbit/s, in ms, with buckets of one layer: from the
# reverse of the list, and by ready time. (24 ms are computation, and an all-reduce takes 1.3 ms.)

# %%
### BEGIN SOLUTION
guess_from_the_list = 34
guess_by_ready_time = 25
### END SOLUTION


# %%
def with_my_function():
    times = recorded[dist.get_rank()]
    return buckets_by_ready_time(times, [LAYER_BYTES] * LAYERS, LAYER_BYTES)


equal_layers = [Layer(f"{i}", FORWARD, BACKWARD, LAYER_BYTES) for i in range(LAYERS)]


def simulated(buckets):
    """Place i in the list of parameters is layer LAYERS - 1 - i of the model."""
    link = LINKS["25 GbE"]
    return data_parallel_step(
        equal_layers,
        [[LAYERS - 1 - i for i in bucket] for bucket in buckets],
        lambda nbytes: costs.ring_all_reduce(8, nbytes, link.alpha, link.beta),
    )


shown = {"Reverse of the list": simulated([[i] for i in reversed(range(LAYERS))])}
if solved(buckets_by_ready_time):
    shown["By ready time"] = simulated(run_ranks(with_my_function, 2)[0])
print("your guesses:", guessed(guess_from_the_list, guess_by_ready_time))
overlap(shown)

# %% [markdown]
# **Explain.** In the reverse order of the list, the first bucket in line holds layer 0, whose
# gradient comes last. The others are complete long before, and wait behind it, so nothing is
# hidden. By ready time all but the last are.
#
# ## 14. What to read
#
# - Li et al. 2020, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*
#   ([arXiv 2006.15704](https://arxiv.org/abs/2006.15704)): buckets, overlap, unused parameters,
#   with measurements of each.
# - Goyal et al. 2017, *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*
#   ([arXiv 1706.02677](https://arxiv.org/abs/1706.02677)): section 2 on the rate, section 3 on how
#   to get the loss right.
# - Sergeev & Del Balso 2018, *Horovod* ([arXiv 1802.05799](https://arxiv.org/abs/1802.05799)).
# - Shallue et al. 2019, *Measuring the Effects of Data Parallelism on Neural Network Training*
#   ([arXiv 1811.03600](https://arxiv.org/abs/1811.03600)): how far batches can grow, for many
#   models.
# - `course_lib/techniques/data_parallel`: what you wrote, with `no_sync`, parameters that are used
#   on some ranks only, and gradients that live in their buckets; `uneven_inputs.py` for ranks that
#   run out of samples at different times, `clipping.py` and `sampler.py`.
#
# **Next**: [lesson 04](04_tensor_parallel.ipynb) cuts the layers themselves.
