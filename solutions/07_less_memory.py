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
# # 07 · Less memory on every device
#
# **After this lesson you can**
#
# - train in bfloat16 without losing small updates;
# - move the optimizer to the host, and say what has to cross the bus;
# - recompute activations instead of keeping them, and say what that costs;
# - choose between these and the stages of ZeRO, for a given model and given machines, by what each
#   saves and what it costs.
#
# **You need** the 16 bytes per parameter of [lesson 06](06_zero.ipynb). **It takes** 90 minutes;
# the part on fp16 (20 of them) is optional. The machine needs half a minute. Each exercise says how
# hard it is (● a few lines, ●● two ideas together, ●●● the hard one) and how long it takes.

# %%
import math
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from course_lib import check, guessed, hint, run_ranks, solved, yours_or
from course_lib.models.sorting_task import batches
from course_lib.models.tiny_gpt import tiny_gpt, token_loss
from course_lib.observe.step_timing import in_turns
from course_lib.simulate import (
    DEVICES,
    LINKS,
    Link,
    StateBytes,
    dgx_a100,
    model_state_bytes,
    offload_optimizer,
    replay,
)
from course_lib.techniques.activation_checkpointing import checkpoint_every
from course_lib.techniques.mixed_precision import LossScaler, MixedPrecision
from course_lib.text import table
from course_lib.views.gantt_chart import gantt_chart
from course_lib.views.grouped_bars import grouped_bars
from course_lib.views.loss_curves import loss_curves
from course_lib.views.memory_bars import memory_bars
from course_lib.views.number_range import fp16_range, loss_scales
from course_lib.views.ratio_curves import ratio_curves
from course_lib.views.stacked_bars import stacked_bars
from course_lib.views.step_times import step_times

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
# ZeRO divides the states of a model by the number of ranks. What if you have few ranks, or if the
# states are not what fills the device? Take GPT-2 with 1.5 billion parameters: 48 layers of width
# 1600, with a batch of 32 sequences of 1024 tokens on one GPU. While a layer runs forward, autograd
# keeps what its backward pass will need, in a GPT some 12 numbers per token and unit of width (the
# ZeRO paper's count).

# %%
v100 = DEVICES["V100 SXM2 32 GB"]
per_layer = 12 * 1600 * 32 * 1024  # numbers
gpt2 = {
    "parameters": 2 * 1.5e9,
    "gradients": 2 * 1.5e9,
    "optimizer": 12 * 1.5e9,
    "activations": 2 * 48 * per_layer,
}
memory_bars({"GPT-2": gpt2}, v100.memory, "to train GPT-2 on one V100: 16 bits, batch of 32")

# %% [markdown]
# The activations alone take nearly twice what the GPU has. ZeRO is no help here: on one GPU there
# is nobody to share the states with, and activations are not what it divides.
#
# This lesson has three remedies, each older than ZeRO or independent of it: fewer bits
# (Micikevicius et al. 2017), another place (ZeRO-Offload, Ren et al. 2021), and computing twice
# (Chen et al. 2016). Each pays with something else. At the end you will choose.
#
# ## 2. Fewer bits: small updates
#
# GPUs multiply 16-bit numbers many times faster than 32-bit ones. bfloat16 has the range of fp32,
# with 7 bits of precision stored instead of 23. Is that enough?
#
# **Predict.** A bfloat16 parameter is 1. A thousand times 0.001 is added. What is it then?

# %%
### BEGIN SOLUTION
guess_sum = 1
### END SOLUTION

# %%
for dtype in (torch.float32, torch.bfloat16):
    one = torch.ones(1, dtype=dtype)
    for _ in range(1000):
        one += 0.001
    print(f"{dtype!s:15} {one.item():.4f}")
print("next number after 1 in bfloat16:", 1 + torch.finfo(torch.bfloat16).eps)
print("your guess:", guessed(guess_sum))

# %% [markdown]
# **Explain.** The next number after 1 is 1.0078. Adding 0.001 is rounded back to 1, every time.
# Late in training nearly all updates are of that kind. The way out (Micikevicius et al., *Mixed
# Precision Training*, [arXiv 1710.03740](https://arxiv.org/abs/1710.03740)): the model computes in
# 16 bits, and the optimizer has fp32 copies of the parameters, the **master weights**, in which
# small updates add up.
#
# **Predict.** Adam in fp32 takes 4 + 4 + 8 bytes per parameter: the parameter, its gradient, two
# averages. With master weights, what percentage of these 16 bytes is saved?

# %%
### BEGIN SOLUTION
guess_saved = 0
### END SOLUTION

# %% [markdown]
# ### Exercise 1: `master_weights` (●● 15 minutes)
#
# `model` is bfloat16. `make_optimizer(parameters)` makes the optimizer: give it fp32 copies, as
# `nn.Parameter`s. Return a function `step`, to be called after each backward. It takes the
# gradients over as fp32, steps, and rounds the result into the model's parameters, which stay the
# same tensors (`p.copy_(...)` converts). Frozen parameters need no copy. After the step the fp32
# gradients are waste: drop them, and keep nothing else of that size.


# %% exercise="master_weights"
def master_weights(model, make_optimizer):
    """Train a bfloat16 model with an fp32 optimizer. Returns step()."""
    ### BEGIN SOLUTION
    own = [p for p in model.parameters() if p.requires_grad]
    copies = [nn.Parameter(p.detach().float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = p.grad.float()
        optimizer.step()
        with torch.no_grad():
            for p, copy in zip(own, copies, strict=True):
                p.copy_(copy)
                copy.grad = None

    return step
    ### END SOLUTION


# %% check="master_weights"
check(master_weights)

# %% [markdown]
# Stuck, here or later? `hint(master_weights)` gives a nudge, `hint(master_weights, 2)` more, and
# `hint(master_weights, 3)` almost the answer.
#
# Back to your prediction. One step with Adam, and all tensors counted:

# %%
made = []


def make_adam(parameters):
    made.append(torch.optim.Adam(parameters, lr=1e-3))
    return made[-1]


def by_the_course(model, make_optimizer):
    return MixedPrecision(model, make_optimizer, torch.bfloat16).step


half = tiny_gpt(seed=0).bfloat16()
some_tokens, some_targets = next(batches(1, 16))
take_step = yours_or(master_weights, by_the_course)(half, make_adam)
half.loss(some_tokens, some_targets).backward()
gradients = [p.grad for p in half.parameters()]  # as backward has made them
take_step()
masters = [p for group in made[0].param_groups for p in group["params"]]
averages = [t for state in made[0].state.values() for t in state.values() if t.dim()]
counted = {
    "parameters": half.parameters(),
    "gradients": gradients,
    "optimizer": [*masters, *averages],
}
numbers = sum(p.numel() for p in half.parameters())
mixed = {
    name: sum(t.numel() * t.element_size() for t in tensors) / numbers
    for name, tensors in counted.items()
}
print(f"your guess: {guessed(guess_saved)} % saved")
stacked_bars(
    {"fp32": {"parameters": 4, "gradients": 4, "optimizer": 8}, "master weights": mixed},
    "bytes per parameter",
    "Adam in fp32, and with master weights as counted: 16 bytes per parameter both times",
    "{:.0f}".format,
)

# %% [markdown]
# **Explain.** Parameter and gradient are half as long, and the optimizer has one more copy: 16
# bytes again! Mixed precision saves time, and it saves activations. Of the model's states it saves
# nothing.
#
# ### Optional: fp16, and loss scaling
#
# Mixed precision began with another 16-bit format, fp16. It stores 10 bits of precision where
# bfloat16 has 7, and pays for them with its range. What is above 65504 is infinite, and what is
# below 3e-8 is zero.
#
# Gradients are small numbers, and the larger the batch, the less a single prediction adds. The 32
# rows below are 160 predictions. A batch of GPT-3, as Narayanan et al. trained it (SC 2021), has
# 1536 sequences of 2048 tokens: 3 million. So give our rows about the weight that they would have
# in there, and multiply their loss by $2^{-14}$.
#
# **Predict.** Of the entries of the gradient, how many per cent become zero in fp16?

# %%
### BEGIN SOLUTION
guess_lost = 99
### END SOLUTION

# %%
WEIGHT = 2.0**-14


def small_gradient(dtype, scale=1.0):
    """All gradients of the GPT, computed in `dtype` from a scaled loss, in one row."""
    model = tiny_gpt(seed=0).to(dtype)
    tokens, targets = next(batches(1, 32, seed=1))
    loss = token_loss(model(tokens).float(), targets) * WEIGHT
    (loss * scale).backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


exact = small_gradient(torch.float32)


def lost(gradient):
    """The shares of entries that became zero, and that are no longer finite, in per cent."""
    zero = (gradient == 0) & (exact != 0)
    return tuple(100 * bad.float().mean().item() for bad in (zero, ~gradient.isfinite()))


scaled = {"bfloat16, as it is": small_gradient(torch.bfloat16)}
scaled["fp16, as it is"] = small_gradient(torch.float16)
for exponent in (4, 8, 16, 24, 32, 36, 40):
    scaled[f"fp16, times 2^{exponent}"] = small_gradient(torch.float16, 2.0**exponent)
shares = [[name, *(f"{share:.0f} %" for share in lost(g))] for name, g in scaled.items()]
print(table([["", "become zero", "become infinite"], *shares]))
print(f"your guess for fp16 as it is: {guessed(guess_lost)} %")

# %%
fp16_range({"as it is": exact.tolist(), "times 2²⁴": (exact * 2.0**24).tolist()})

# %% [markdown]
# **Explain.** By their own size, a quarter of the entries would be zero (the part of the picture
# that lies left of fp16's range). It is nearly all of them, since backward is a chain. The gradient
# of a *weight* is a sum over all rows; that of an *activation* is not, and is smaller. Behind the
# head of this GPT it has become zero, and from there on backward has nothing to pass on. What is
# left is the head.
#
# bfloat16 has the exponents of fp32, so the hill in the picture lies inside its range wherever it
# is. fp16 has room for the hill too, but not at that place. So move it. A loss that is $2^{24}$
# times as large has gradients that are $2^{24}$ times as large, by the chain rule, those of the
# activations too. After backward they are divided by that again, *as fp32*: in fp16 they would be
# lost at that moment. This is **loss scaling**.
#
# Which scale is right? It changes during training. If it is too large, some entry is infinite, and
# that is easy to see. So let the scale look for its place:
#
# - a step with a gradient that is not finite is left out, and the scale is halved;
# - after some good steps in a row it is doubled.
#
# The course's `LossScaler` does that, and PyTorch's `torch.amp.GradScaler`.
#
# **Predict.** 24 steps, from a scale of $2^{34}$, doubled after 4 good steps. How many steps are
# left out?

# %%
### BEGIN SOLUTION
guess_left_out = 6
### END SOLUTION


# %%
def train_in(dtype, scaler=None):
    """Losses, and for each step the scale and whether the step was made."""
    model = tiny_gpt(seed=0)
    mixed = MixedPrecision(
        model,
        # Adam adds eps to the size of a gradient, so that it has to shrink with the gradients.
        lambda groups: torch.optim.Adam(groups, lr=1e-3, eps=1e-8 * WEIGHT),
        dtype,
        scaler=scaler,
    )
    losses, scales = [], []
    for tokens, targets in batches(24, 32, seed=1):
        mixed.zero_grad()
        loss = token_loss(model(tokens).float(), targets)
        scale = scaler.scale if scaler else 1.0
        mixed.backward(loss * WEIGHT)
        scales.append((math.log2(scale), mixed.step()))
        losses.append(loss.item())
    return losses, scales


trained = {
    "fp32": train_in(torch.float32),
    "bfloat16": train_in(torch.bfloat16),
    "fp16": train_in(torch.float16),
    "fp16, scaled": train_in(torch.float16, LossScaler(2.0**34, patience=4)),
}
for name, (losses, scales) in trained.items():
    left_out = sum(not made for _, made in scales)
    print(f"{name:13} loss {losses[0]:.2f} -> {losses[-1]:.2f}, steps left out: {left_out}")
print("your guess:", guessed(guess_left_out))
loss_curves(
    {name: (list(range(24)), losses) for name, (losses, _) in trained.items()},
    "step",
    "the same 24 steps in four formats",
)

# %%
loss_scales(trained["fp16, scaled"][1])

# %% [markdown]
# **Explain.** The lines of fp32 and bfloat16 lie on one another. Plain fp16 trains hardly more than
# its head. With a scale it learns as the others do, less the steps that it left out. Here they are
# many, since the scale tries the next power of two every 4 steps. `GradScaler` begins at $2^{16}$
# and tries once in 2000.
#
# On several ranks all must leave out the same step, or the copies of the model differ from then on.
# Under ZeRO a rank sees only its own part of the gradient, so "is it finite?" has to be asked with
# an all-reduce. bfloat16 needs none of this: no scale, no step left out, no question. It has three
# bits of precision less, and yet large models are trained in it wherever the GPUs have it.
#
# ## 3. Another place: offload to the host
#
# A node with eight GPUs has a terabyte of host memory or more. *ZeRO-Offload* (Ren et al. 2021,
# [arXiv 2101.06840](https://arxiv.org/abs/2101.06840)) moves there what is touched once per step:
# master weights, Adam's averages, and the update itself, which is little work for a CPU. On the GPU
# stay the 16-bit parameters, 2 bytes of 16.
#
# The price is the bus. It is some fifty times slower than the GPU's own memory, so bytes count.
#
# **Predict.** How many bytes per parameter must cross the bus in a step?

# %%
### BEGIN SOLUTION
guess_bus = 4
### END SOLUTION

# %% [markdown]
# ### Exercise 2: `offload` (●● 10 minutes)
#
# `master_weights` once more, with a bus in the middle. `to_host(t)` and `to_device(t)` copy a
# tensor over it, in the dtype that it has. (On a GPU they would be `t.to("cpu")` and
# `t.to("cuda")`; here both ends are your laptop, and the check counts the bytes.) Gradients go
# down, parameters come up, each in as few bytes as possible; the first copy of the parameters goes
# down in as few, too. A gradient that has left the device is freed there. What the host computes
# with has come through `to_host`, and what the device gets back has come through `to_device`.


# %% exercise="offload"
def offload(model, make_optimizer, to_host, to_device):
    """Master weights, optimizer state and update on the host. Returns step()."""
    ### BEGIN SOLUTION
    own = [p for p in model.parameters() if p.requires_grad]
    copies = [nn.Parameter(to_host(p.detach()).float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = to_host(p.grad).float()
            p.grad = None
        optimizer.step()
        with torch.no_grad():
            for p, copy in zip(own, copies, strict=True):
                p.copy_(to_device(copy.bfloat16()))
                copy.grad = None

    return step
    ### END SOLUTION


# %% check="offload"
check(offload)

# %%
offloaded = offload_optimizer(1.5e9)
print(f"states of GPT-2 on the GPU: 24 GB, offloaded {offloaded.device / 1e9:.0f} GB")
print(f"across the bus: {offloaded.bus / 1.5e9:.0f} bytes per parameter and step")
print("your guess:", guessed(guess_bus))
took = {
    f"the bus, {bus}": offloaded.bus_seconds(LINKS[bus].bandwidth)
    for bus in ("PCIe 3 x16", "PCIe 5 x16")
}
for sequences in (1, 4, 32):
    took[f"computing, batch of {sequences}"] = (
        6 * 1.5e9 * 1024 * sequences / (v100.half_flops * 0.4)
    )
grouped_bars(
    {name: {"seconds": seconds} for name, seconds in took.items()},
    "a step of GPT-2, offloaded: what crosses the bus, and a V100 at 40 % of its peak",
    "seconds",
    "{:.2g} s".format,
)

# %% [markdown]
# **Explain.** Gradients go down in 16 bits, parameters come up in 16 bits: 2 + 2. Any cut between
# GPU and CPU that leaves the forward and backward passes on the GPU sends at least that much. With
# a small batch the bus takes longer than the computation. With a large one it can hide behind it:
# gradients travel while backward runs. So offloading is for few GPUs and large batches.
#
# ## 4. Computing twice: activation checkpointing
#
# What is left are the activations, 60 GB in the example of section 1. Of a layer's 12 numbers per
# token and unit of width, its input is one. Suppose we keep only these inputs:

# %%
layer_input = 1600 * 32 * 1024
inputs_only = 2 * (48 * layer_input + per_layer)  # and the inside of the layer that is at work
memory_bars(
    {
        "all on the GPU": gpt2,
        "offloaded": gpt2 | {"gradients": 0, "optimizer": 0},
        "and only inputs kept": {"parameters": 2 * 1.5e9, "activations": inputs_only},
    },
    v100.memory,
    "GPT-2 once more: offloaded it does not fit yet, with only the layers' inputs it does",
)

# %% [markdown]
# Chen et al. (2016, [arXiv 1604.06174](https://arxiv.org/abs/1604.06174)) keep only every k-th
# activation. When the backward pass comes to a segment of k layers, it runs the segment forward
# once more from the activation before it, and then has them all. PyTorch has it as
# `torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)`: it runs `function(x)`,
# keeps only `x`, and runs it again in backward.
#
# **Predict.** 36 layers. For which k is the least in memory at the worst moment, and how many
# activations is that, of 36?

# %%
### BEGIN SOLUTION
guess_k = 6
guess_activations = 12
### END SOLUTION

# %% [markdown]
# ### Exercise 3: `checkpointed` (● 10 minutes)
#
# Run the layers in segments of k; the last one may be shorter. (Take care with functions made in a
# loop: they look names up when they run, and here they run again in backward.
# `nn.Sequential(*some_layers)` is bound to its layers.) `x` may be a batch that needs no gradient,
# and the layers may have dropout, which has to draw the same again: `checkpoint` as called above
# handles both.


# %% exercise="checkpointed"
def checkpointed(layers, x, k):
    """Run `layers` on x, keeping one activation for each segment of k layers."""
    ### BEGIN SOLUTION
    from torch.utils.checkpoint import checkpoint

    for start in range(0, len(layers), k):
        x = checkpoint(nn.Sequential(*layers[start : start + k]), x, use_reentrant=False)
    return x
    ### END SOLUTION


# %% check="checkpointed"
check(checkpointed)


# %%
class Counting(nn.Module):
    """A layer whose outputs are counted for as long as anybody keeps them."""

    alive, most, runs = [], 0, 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        Counting.runs += 1
        output = torch.tanh(self.linear(x))
        Counting.alive.append(weakref.ref(output.untyped_storage()))
        Counting.alive = [storage for storage in Counting.alive if storage() is not None]
        Counting.most = max(Counting.most, len(Counting.alive))
        return output


def checkpointed_by_the_course(layers, x, k):
    return nn.Sequential(*checkpoint_every(k, layers))(x)


recompute = yours_or(checkpointed, checkpointed_by_the_course)
counting = [Counting() for _ in range(36)]
most, runs = {}, set()
for length in (1, 2, 3, 4, 6, 9, 12, 18, 36):
    Counting.alive, Counting.most, Counting.runs = [], 0, 0
    recompute(counting, torch.ones(2, 8, requires_grad=True), length).sum().backward()
    most[f"k = {length}"] = {"counted": Counting.most, "n/k + k": 36 // length + length}
    runs.add(Counting.runs)
print("runs of a layer in a step, whatever k is:", *sorted(runs))
print("your guesses:", guessed(guess_k, guess_activations))
grouped_bars(most, "36 layers in segments of k: activations at the worst moment", "activations")

# %% [markdown]
# **Explain.** n/k are kept, and k more come to life while a segment is run again. (In n/k + k one
# or two of them are counted twice: the output of the last layer, and that of the segment.) The sum
# is least at $k = \sqrt n$, with $2 \sqrt n$ instead of $n$ activations. For a GPT one usually
# takes $k = 1$ block, since a block has a dozen activations inside and a single one between.
#
# The price is the same for every k: 72 runs instead of 36, since each layer runs forward twice.
#
# **Predict.** By how many per cent do the operations of a training step grow, if every block is run
# forward twice?

# %%
### BEGIN SOLUTION
guess_more = 33
### END SOLUTION


# %%
def flops(run_blocks):
    model = tiny_gpt(seed=0, layers=4)
    with FlopCounterMode(display=False) as counter:
        h = run_blocks(model.blocks, model.embedding(some_tokens))
        token_loss(model.head(h), some_targets).backward()
    return counter.get_total_flops()


everything_kept = flops(lambda blocks, h: nn.Sequential(*blocks)(h))
grown = {}
for length in (1, 2, 4):

    def run_twice(blocks, h, k=length):
        return recompute(list(blocks), h, k)

    own = grown[f"k = {length}"] = {}
    with set_checkpoint_early_stop(False):
        own["the whole segment run again"] = 100 * (flops(run_twice) / everything_kept - 1)
    own["as PyTorch does it"] = 100 * (flops(run_twice) / everything_kept - 1)
print(f"your guess: {guessed(guess_more)} %")
grouped_bars(
    grown,
    "operations on top of those without checkpointing",
    "% more operations",
    "{:.3g} %".format,
)

# %% [markdown]
# **Explain.** Forward is one third of the operations, backward two thirds. To run forward once more
# makes four thirds: 33 % more. PyTorch is a little cleverer. When it runs a segment again, it stops
# as soon as it has all that backward needs, and the very last product of a block (a third of its
# operations) is not needed. The longer the segment, the less that helps.
#
# And the time? Measured on one device, beside the operations that PyTorch counted (dots):


# %% tags=["nbval-ignore-output"]
def forward_and_backward(k=None):
    model = tiny_gpt(seed=0, layers=4, hidden=128)
    x, y = next(batches(1, 64))

    def step():
        h = model.embedding(x)
        h = recompute(list(model.blocks), h, k) if k else nn.Sequential(*model.blocks)(h)
        token_loss(model.head(h), y).backward()

    return step


segments = {"everything kept": None, "k = 1": 1, "k = 2": 2, "k = 4": 4}
steps = {name: forward_and_backward(k) for name, k in segments.items()}
operations = {}
for name, step in steps.items():
    with FlopCounterMode(display=False) as counter:
        step()
    operations[name] = counter.get_total_flops()
base = operations["everything kept"]
step_times(in_turns(steps), {name: number / base for name, number in operations.items()})

# %% [markdown]
# **Explain.** The time follows the operations, but it is not the same. Operators without
# multiplications (norms, GeLU, additions) run again as well, and starting one more operator takes
# time in a model as small as this.
#
# Papers report about the same: 36 to 39 % more time for large models with everything recomputed
# (Korthikanti et al. 2022, [arXiv 2205.05198](https://arxiv.org/abs/2205.05198)). They also show
# that recomputing only the attention matrices, which are large and cheap, costs 2 to 7 %.
#
# ## 5. When to use which
#
# What each of them leaves on a GPU, and what it costs. The example is a model of 7.5 billion
# parameters on 8 GPUs; "sent" counts passes of the model per step, as in
# [lesson 06](06_zero.ipynb).


# %%
PARTS = {
    "parameters": StateBytes(2, 0, 0),
    "gradients": StateBytes(0, 2, 0),
    "optimizer": StateBytes(0, 0, 12),
}


def states(stage):
    return {name: model_state_bytes(7.5e9, 8, stage, part) for name, part in PARTS.items()}


bars = {
    "data parallel": states(0),
    "ZeRO-1": states(1),
    "ZeRO-2": states(2),
    "ZeRO-3": states(3),
    "ZeRO-2, offloaded": {"parameters": offload_optimizer(7.5e9).device},
}
over_bus = offload_optimizer(7.5).bus / 8
print(
    table(
        [
            ("", "sent", "costs besides"),
            ("data parallel", "2", "nothing"),
            ("ZeRO-1", "2", "nothing"),
            ("ZeRO-2", "2", "a reduction per microbatch, when accumulating"),
            ("ZeRO-3", "3", "waiting, where a gather is late"),
            ("ZeRO-2, offloaded", "2", f"{over_bus:.2f} GB over each bus, and the host's update"),
            ("activation checkpointing", "2", "up to a third more operations"),
        ],
        left=3,
    )
)
memory_bars(bars, dgx_a100.device.memory, "states of 7.5 billion parameters on each of 8 A100s")

# %% [markdown]
# The table begins with what costs least. ZeRO-1 and ZeRO-2 send no more than data parallelism.
# Checkpointing leaves the states as they are: use it when activations are what fills the device,
# and recompute only the attention if that is enough.
#
# ZeRO-3 sends half as much again. That costs nothing as long as it hides behind the computation. So
# everything depends on one ratio: how long a rank computes in a step, against how long an
# all-reduce of the gradients takes on its network.
#
# To find out, let real ranks play the messages of one step in their order, each method once, and
# replay the recordings on networks of any speed. The arithmetic is left out: where a layer would
# run, the rank makes a note, and in the replay a forward pass takes one unit of time there and a
# backward pass two.
#
# **Predict.** From which ratio of computation to all-reduce on is ZeRO-3 about as fast as data
# parallelism?

# %%
### BEGIN SOLUTION
guess_ratio = 1.5
### END SOLUTION

# %%
LAYERS, ELEMENTS, RANKS = 8, 4096, 4  # elements of a layer
METHODS = ("data parallel", "ZeRO-3", "ZeRO-3, kept for backward")


def play(method):
    """What a rank sends in a step. Returns when which layer would run, and for how long."""
    n, log, under_way = dist.get_world_size(), [], []

    def run_layer(name, seconds):
        log.append((name, time.monotonic(), seconds))

    def fetch():
        parts = list(torch.zeros(ELEMENTS).chunk(n))
        return dist.all_gather(parts, torch.zeros(ELEMENTS // n), async_op=True)

    def send_gradients():
        row = torch.zeros(ELEMENTS)
        if method == "data parallel":
            return dist.all_reduce(row, async_op=True), row
        part = torch.zeros(ELEMENTS // n)
        return dist.reduce_scatter(part, list(row.chunk(n)), async_op=True), row

    for name, seconds in (("forward", 1), ("backward", 2)):
        fetching = method == "ZeRO-3" or (
            method == "ZeRO-3, kept for backward" and name == "forward"
        )
        ahead = [fetch()] if fetching else []
        for layer in range(LAYERS):
            if fetching:
                ahead.pop().wait()
                if layer < LAYERS - 1:
                    ahead.append(fetch())
            run_layer(name, seconds)
            if name == "backward":
                under_way.append(send_gradients())
    for work, _ in under_way:
        work.wait()
    return log


recorded = {}
for method in METHODS:
    run = run_ranks(play, RANKS, method)
    compute = [
        SimpleNamespace(rank=rank, name=name, start=start, seconds=seconds)
        for rank, log in enumerate(run)
        for name, start, seconds in log
    ]
    recorded[method] = run.trace, compute


COMPUTING = 3 * LAYERS  # units of time


def replayed(method, ratio):
    """A step on a network where an all-reduce takes 1/ratio of the computation."""
    nbytes = 4 * LAYERS * ELEMENTS
    bandwidth = 2 * (RANKS - 1) / RANKS * nbytes / (COMPUTING / ratio)
    cluster = replace(dgx_a100, inside=Link("a network", 0, bandwidth))
    trace, compute = recorded[method]
    return replay(trace, cluster, compute=compute)


print("your guess:", guessed(guess_ratio))
RATIOS = [0.5, 1, 1.5, 2, 3, 4, 8, 16]
ratio_curves(
    RATIOS,
    {
        method: [replayed(method, ratio).makespan / COMPUTING for ratio in RATIOS]
        for method in METHODS
    },
    xlabel="computation / all-reduce",
    ylabel="step / computation",
    title="a step over its computation alone: at a height of 1, all messages hide",
    highest=3.2,
)

# %% [markdown]
# The same replays at a ratio of 1.6, with what is sent (green; in ZeRO-3's backward pass a gather
# and a reduce-scatter by turns) below what is computed:

# %%
gantt_chart({method: replayed(method, 1.6) for method in METHODS})

# %% [markdown]
# **Explain.** From a ratio of 1.5 on both methods are close to 1.00. Data parallelism has one
# all-reduce to hide, and two thirds of the computation (backward) to hide it behind. ZeRO-3 has
# half an all-reduce (a gather) to hide behind the forward third, and a whole one (a gather and a
# reduce-scatter) behind the backward two thirds: the same ratio in both. What is left above 1.00
# are messages while nothing runs: the last gradients, and in ZeRO-3 the first gather of each pass.
#
# Below 1.5 the network decides, and ZeRO-3 takes longer: towards 1.5 times as long on ever slower
# networks. Kept from forward to backward it is even a little faster than data parallelism: its
# gathers run behind the *forward* pass.
#
# So: **if data parallelism hides its all-reduce, ZeRO-3 costs little, and divides the states by
# N.** The ratio grows with the tokens that a rank computes in a step: the computation is 6
# operations per token and parameter, while the all-reduce sends 4 bytes per parameter, however
# large the batch is.

# %%
device, link = dgx_a100.device, dgx_a100.between
for per_step in (1_000, 4_000, 5_000, 16_000, 64_000):
    compute = 6 * per_step / (0.4 * device.half_flops)  # seconds per parameter
    all_reduce = 2 * 2 / link.bandwidth
    print(f"{per_step:6,} tokens per rank and step: ratio {compute / all_reduce:5.2f}")

# %% [markdown]
# A100s at 40 % of their peak over one 200 Gbit/s adapter each: from some 5,000 tokens per rank on,
# ZeRO-3 is nearly free.
#
# ### Which one, for this model and these machines?
#
# Time to choose. Here are six jobs, of which none fits as it is. The first table says in GB what a
# device has, what the states need without ZeRO, and what the activations of its own sequences need
# if none of them are recomputed, the attention matrices (selective), or all (full). The second
# table has seconds of a step: a device's computation, one pass of the model through its network,
# and, if it is offloaded, the update on a host for all devices that the host has. (Activations are
# counted as in Korthikanti et al. 2022: 34 bytes per token and unit of width in a layer, with
# dropout masks, and the attention matrices besides. Section 1's count, 12 numbers or 24 bytes, is
# rougher.)

# %%
from course_lib.simulate import memory_choices

in_gb = [["GB", "a device", "states", "none", "selective", "full"]]
in_seconds = [["seconds", "computing", "one pass", "update on the host"]]
as_they_are = {}
for number, (name, job) in enumerate(memory_choices.JOBS.items(), 1):
    title = f"{number}: {name}"
    activations = [job.layers * job.activations[way] for way in ("none", "selective", "full")]
    needed = [job.memory, 16 * job.layers * job.parameters, *activations]
    in_gb.append([title, *(f"{n / 1e9:.0f}" for n in needed)])
    took = [3 * job.forward, job.one_pass, job.on_host]
    in_seconds.append([title, *(f"{job.layers * seconds:.2f}" for seconds in took)])
    parameters = job.layers * job.parameters / job.memory
    as_they_are[title] = {
        "parameters": 2 * parameters,
        "gradients": 2 * parameters,
        "optimizer": 12 * parameters,
        "activations": activations[0] / job.memory,
    }
print(table(in_gb), table(in_seconds), sep="\n\n")
stacked_bars(
    as_they_are,
    "times the memory of a device",
    "six jobs without ZeRO, nothing offloaded, nothing recomputed: what fits is at most 1",
    "{:.2g}".format,
)

# %% [markdown]
# **Predict.** For which of the six (1 to 6) is it best to offload? For which to recompute
# everything? And for which is it best to recompute nothing?

# %%
### BEGIN SOLUTION
guess_offload = [1, 2, 6]
guess_everything = [5]
guess_nothing = [3]
### END SOLUTION

# %% [markdown]
# ### Exercise 4: `choose_savings` (●● 25 minutes)
#
# `job` is a dict: `devices`, `layers`, the `parameters` of one layer, the `memory` of a device in
# bytes, and `activations`, a dict: the bytes that one layer keeps of a device's own sequences, if
# `"none"` of them are recomputed, if the attention matrices are (`"selective"`), or if all are
# (`"full"`), so that only the layer's input is kept. `seconds(zero, offload, recompute)` asks the
# simulator how long a step takes; for what is impossible it raises a `ValueError`.
#
# Return `(zero, offload, recompute)`, such as `(2, False, "selective")`: the fastest way that fits.
# `zero` is the stage, 0 to 3. `offload` is for stages 2 and 3, where a device has its own share of
# the gradients to send down (a single device, all of them). What must fit is a device at its worst
# moment:
#
# - the states of all layers: 2 + 2 + 12 bytes per parameter, of which stage 1 divides the 12 by the
#   number of devices, stage 2 the gradients too, stage 3 all three. With `offload` only the
#   parameters are on the device;
# - at stages 2 and 3 the gradients of two layers, whole, on top of the states: of the one in
#   backward and the one on its way (to other devices or to the host; count both on a single device,
#   too). At stage 3 also the parameters of two layers. Both have 2 bytes per parameter;
# - the activations: all layers but one keep what `recompute` leaves. The one whose backward runs
#   has all of them back, as with `"none"`.


# %% exercise="choose_savings"
def choose_savings(job, seconds):
    """The fastest (zero, offload, recompute) that fits into memory."""
    ### BEGIN SOLUTION
    n, layer, kept = job["devices"], job["parameters"], job["activations"]
    found = []
    for zero in (0, 1, 2, 3):
        for offload in (False, True) if zero >= 2 else (False,):
            each = 2 / (n if zero == 3 else 1)
            if not offload:
                each += 2 / (n if zero >= 2 else 1) + 12 / (n if zero >= 1 else 1)
            whole = {0: 0, 1: 0, 2: 4, 3: 8}[zero]
            states = layer * (job["layers"] * each + whole)
            for recompute in kept:
                activations = (job["layers"] - 1) * kept[recompute] + kept["none"]
                if states + activations <= job["memory"]:
                    found.append((zero, offload, recompute))
    return min(found, key=lambda way: seconds(*way))
    ### END SOLUTION


# %% check="choose_savings"
check(choose_savings)

# %%
ASKED = ("devices", "layers", "memory", "parameters", "activations")


def decisions(choose):
    """What it chooses for each job, and what a step then takes."""
    chosen = [["", "stage", "optimizer", "recompute", "a step"]]
    for number, (name, job) in enumerate(memory_choices.JOBS.items(), 1):
        asked = {key: getattr(job, key) for key in ASKED}

        def seconds(*way, job=job):
            return memory_choices.seconds(job, memory_choices.Way(*way))

        zero, offload, recompute = choose(asked, seconds)
        where = "on the host" if offload else "on the device"
        took = f"{seconds(zero, offload, recompute):.2f} s"
        chosen.append([f"{number}: {name}", f"ZeRO-{zero}", where, recompute, took])
    print(table(chosen, left=4))


if solved(choose_savings):
    decisions(choose_savings)
print("your guesses: to offload", guessed(guess_offload))
print("              to recompute everything", guessed(guess_everything))
print("              to recompute nothing", guessed(guess_nothing))

# %% [markdown]
# **Explain.** Six jobs, six reasons.
#
# 1. One card has nobody to share with. The states fill it, so they go to the host. Selective
#    recomputation then makes room, at the price of only the attention products.
# 2. On this network a step is nothing but passes, so two passes beat the three of ZeRO-3, though
#    that would fit without the host. ZeRO-2 fits only with offload, and the bus is fast beside such
#    a network.
# 3. With 64 devices ZeRO-2 leaves so little of the states on each that all activations may stay.
#    ZeRO-3 takes the same time: its gathers hide.
# 4. On 8 devices the activations no longer fit whole. Recomputing the attention matrices is the
#    cheapest way out.
# 5. The same in half the memory: even ZeRO-3 leaves no room for that. Offload would make room, but
#    one host updates the parameters for eight devices, which takes longer than recomputing
#    everything.
# 6. Four devices with a host each. The hosts share that work, so here offload with selective
#    recomputation beats recomputing everything.
#
# So there is no order that is right everywhere. Count the bytes, then let a simulator, or a short
# run, say what is the fastest of all that fits.
#
# ## 6. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. A model with 96 layers is checkpointed with k = 1. Operations, and activations between layers?
#
#    <details><summary>Answer</summary>
#    A third more operations (with PyTorch, which stops early, some 22 %). 96 kept, and one layer's
#    inside at a time.
#    </details>
#
# 2. Offload on 8 GPUs with ZeRO-2: how much crosses the bus of one GPU in a step for 10B
#    parameters? How long does that take on PCIe 4, at 31.5 GB/s?
#
#    <details><summary>Answer</summary>
#    4 bytes &middot; 10e9 / 8 = 5 GB, 0.16 s: each GPU brings down its part of the gradients, and
#    takes up its part of the parameters; the rest comes from the other GPUs.
#    </details>
#
# 3. You have one GPU with 24 GB and want to train 1.5B parameters with batches of 8 sequences. The
#    states are 24 GB. What do you do first?
#
#    <details><summary>Answer</summary>
#    There is nobody to share with, so ZeRO does not help. Offload leaves 3 GB of states on the
#    device. A quarter of section 1's activations are 15 GB, which fits; with checkpointing the
#    batch can grow, and a larger batch hides the bus.
#    </details>
#
# ## 7. What to read
#
# - Micikevicius et al. 2017, *Mixed Precision Training*
#   ([arXiv 1710.03740](https://arxiv.org/abs/1710.03740)): section 3.1 on the fp32 copy of the
#   weights.
# - Ren et al. 2021, *ZeRO-Offload* ([arXiv 2101.06840](https://arxiv.org/abs/2101.06840)): why the
#   cut between GPU and CPU is where it is.
# - Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*
#   ([arXiv 1604.06174](https://arxiv.org/abs/1604.06174)).
# - Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*
#   ([arXiv 2205.05198](https://arxiv.org/abs/2205.05198)): what of the activations to keep.
# - `course_lib/techniques/mixed_precision.py`, `offload.py` and `activation_checkpointing.py`: what
#   you wrote, with streams, parameter groups and random state.
#
# **Next**: [lesson 08](08_three_d_parallelism.ipynb) combines data, tensor and pipeline
# parallelism.
