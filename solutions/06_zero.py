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
# # 06 · ZeRO, and other ways to need less memory
#
# **After this notebook you can**
#
# - say what a parameter costs in memory while it is trained, and measure it to the byte;
# - shard optimizer, gradients and parameters over the ranks, with the numbers of one process;
# - say what each stage saves at a given number of ranks, and what it sends for that;
# - train in bfloat16 without losing small updates, and in fp16 without losing small gradients;
# - offload to the host, recompute activations, and say what that costs in time;
# - decide when a model should go from data parallel to ZeRO-3.
#
# **You need** reduce-scatter and all-gather from notebook 02. **It takes** 90 minutes of your time
# and under a minute of the machine's.

# %%
import bisect
import math
import statistics
import time
import weakref
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib import check, run_ranks
from course_lib.models import reference
from course_lib.models.sorting import batches
from course_lib.models.tiny_gpt import tiny_gpt, token_loss

# %% [markdown]
# What you have passed so far, by your notebooks as they were last saved:

# %% tags=["nbval-ignore-output"]
from course_lib.classroom import status_view

status_view()

# %% [markdown]
# ## 1. The problem, as a number
#
# A model of 7.5 billion parameters is 15 GB in 16-bit numbers. It fits an 80 GB GPU five times. To
# *train* it is another matter.

# %%
parameters = 7.5e9
print(f"parameters in 16 bit   {2 * parameters / 1e9:5.0f} GB")
print(f"gradients in 16 bit    {2 * parameters / 1e9:5.0f} GB")
print(f"Adam's state in 32 bit {12 * parameters / 1e9:5.0f} GB")
print(f"all of it              {16 * parameters / 1e9:5.0f} GB on each of 64 GPUs")
print(f"                       {64 * 16 * parameters / 1e12:5.1f} TB together, for one model")

# %% [markdown]
# Data parallel training (notebook 03) keeps 64 equal copies. 64 GPUs with 80 GB have 5.1 TB between
# them, and the model with all it needs takes 0.12. It does not fit only because everyone holds
# everything.
#
# **Who solved it, and when.** Rajbhandari, Rasley, Ruwase and He: *ZeRO: Memory Optimizations
# Toward Training Trillion Parameter Models* (2019, SC 2020, arXiv 1910.02054), in DeepSpeed. Each
# rank owns a part of the state, and asks the others for the rest when it needs it. FairScale, and
# then PyTorch's FSDP (Zhao et al., VLDB 2023), made it a part of PyTorch.

# %% [markdown]
# ## 2. Sixteen bytes a parameter, measured
#
# Where do the bytes lie? A tensor is a view of a *storage*, and the storage is the memory. Several
# tensors may share one. A quarter of a tensor keeps all of it alive.

# %%
whole = torch.zeros(1000)
quarter = whole.chunk(4)[1]
print("elements of the quarter: ", quarter.numel() * quarter.element_size(), "bytes")
print("memory that it keeps:    ", quarter.untyped_storage().nbytes(), "bytes")
print("the same storage:        ", quarter.untyped_storage().data_ptr() == whole.data_ptr())

# %% [markdown]
# This is the first thing that goes wrong in a home-made ZeRO: every rank takes its n-th of a large
# tensor, frees the rest, and nothing is freed. So you need a meter that cannot be fooled.
#
# ### Exercise 1: `held_bytes`
#
# Count the memory behind some tensors: each storage once, all of it. `None` stands for a gradient
# that is not there.


# %% exercise="held_bytes"
def held_bytes(tensors) -> int:
    """Bytes of the storages behind the tensors, each counted once."""
    ### BEGIN SOLUTION
    storages = [t.untyped_storage() for t in tensors if t is not None]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
    ### END SOLUTION


# %% check="held_bytes"
check(held_bytes)

# %% [markdown]
# Stuck, here or later? `from course_lib import hint`, then `hint(held_bytes)` for a nudge, and with
# `, 3` for almost the answer.
#
# **Predict.** A small GPT in fp32, trained with Adam. Of the bytes of one parameter, how many are
# the parameter, its gradient, and the optimizer's?

# %%
### BEGIN SOLUTION
guess_fp32 = (4, 4, 8)
### END SOLUTION


# %%
def hold(model, optimizers):
    """What is held for the model: bytes as parameter, as gradient, and for the optimizer."""
    own = list(model.parameters())
    known = {id(p) for p in own}
    stepped = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    copies = [p for p in stepped if id(p) not in known]
    states = [t for o in optimizers for state in o.state.values() for t in state.values()]
    moments = [t for t in states if t.dim()]  # Adam's step counter, a single number, is left out
    return {
        "parameters": held_bytes(own),
        "gradients": held_bytes(p.grad for p in own + copies),
        "optimizer": held_bytes(copies + moments),
    }


def per_parameter(held):
    parts = [nbytes / count for nbytes in held.values()]
    return " + ".join(f"{part:g}" for part in parts) + f" = {sum(parts):g} bytes a parameter"


model = tiny_gpt(seed=0)
count = sum(p.numel() for p in model.parameters())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens, targets = next(batches(1, 16))
model.loss(tokens, targets).backward()
optimizer.step()
print(f"{count:,} parameters; {per_parameter(hold(model, [optimizer]))}")
print("your guess:", guess_fp32)

# %% [markdown]
# **Explain.** Adam keeps two running averages of every gradient, as large as the model each. Half
# of the memory belongs to the optimizer.

# %% [markdown]
# ## 3. Two precisions: where the twelve come from
#
# GPUs multiply 16-bit numbers many times faster. bfloat16 has the range of fp32, with 8 bits of
# precision in place of 24. Is that enough?
#
# **Predict.** A bfloat16 parameter is 1. A thousand times 0.001 is added. What is it then?

# %%
### BEGIN SOLUTION
guess_sum = 1
### END SOLUTION

# %%
for dtype in (torch.float32, torch.bfloat16):
    parameter = torch.ones(1, dtype=dtype)
    for _ in range(1000):
        parameter += 0.001
    print(f"{dtype!s:15} {parameter.item():.4f}")
print("next number after 1 in bfloat16:", 1 + torch.finfo(torch.bfloat16).eps)
print("your guess:", guess_sum)

# %% [markdown]
# **Explain.** Next to 1 comes 1.0078. Adding 0.001 is rounded back to 1, every time. Late in
# training nearly all updates are of that kind. The way out (Micikevicius et al. 2017, *Mixed
# Precision Training*): the model computes in 16 bits, and the optimizer has fp32 copies of the
# parameters, the **master weights**, in which small updates add up.
#
# ### Exercise 2: `master_weights`
#
# `model` is bfloat16. `make_optimizer(parameters)` makes the optimizer: give it fp32 copies. Return
# a function `step`, to be called after each backward. It takes the gradients over as fp32, steps,
# and rounds the result into the model. Frozen parameters need no copy. After the step the fp32
# gradients are waste: drop them.


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

# %%
half = tiny_gpt(seed=0).bfloat16()
made = []


def make_adam(parameters):
    made.append(torch.optim.Adam(parameters, lr=1e-3))
    return made[-1]


step = master_weights(half, make_adam)
half.loss(tokens, targets).backward()
step()
print(per_parameter(hold(half, made)))

# %% [markdown]
# 2 + 2 + 12, and the twelve are 4 for the copy and 8 for Adam. It is 16 again! Mixed precision
# saves time, and it saves activations. Of the model's state it saves nothing.
#
# Other programs count 18 (Megatron-LM in bfloat16, which adds gradients up in fp32) or 20 (with an
# fp32 gradient *and* a 16-bit one). When two people disagree on whether a model fits, ask which of
# the three they mean.
#
# ### fp16, and loss scaling
#
# Mixed precision began with the other 16 bits, fp16. It has 10 bits of precision stored where
# bfloat16 has 7, and pays for them with its range. What is above 65504 is infinite, what is below
# 3e-8 is zero.
#
# Gradients are small numbers, and the larger the batch, the less a single prediction adds. The 32
# rows below are 160 predictions. A batch of GPT-3, as Megatron trained it, has 1536 sequences of
# 2048 tokens: 3 million. So give our rows about the weight that they would have in there, and
# multiply their loss by $2^{-14}$.
#
# **Predict.** Of the entries of the gradient, how many per cent become zero in fp16?

# %%
### BEGIN SOLUTION
guess_lost = 99
### END SOLUTION

# %%
from matplotlib.figure import Figure

from course_lib.views.palette import LINES
from course_lib.views.view import View

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


print("              becomes zero  infinite")
for exponent in (0, 4, 8, 16, 24, 32, 36, 40):
    zero, infinite = lost(small_gradient(torch.float16, 2.0**exponent))
    print(f"fp16, 2^{exponent:<4} {zero:12.0f} % {infinite:7.0f} %")
zero, infinite = lost(small_gradient(torch.bfloat16))
print(f"bfloat16, 1   {zero:11.0f} % {infinite:7.0f} %")
print("your guess for fp16 as it is:", guess_lost)

# %%
SCALE = 24


def against_the_range():
    """How large the gradient's entries are, and what fp16 can tell apart."""
    figure = Figure(figsize=(7, 2.8))
    ax = figure.subplots()
    exponents = exact[exact != 0].abs().log2()
    ax.axvspan(-14, 16, color="#dddddd", label="fp16: full precision")
    ax.axvspan(-25, -14, color="#eeeeee", hatch="//", label="fp16: ever less of it, then zero")
    for shift, name, (color, dashes) in ((0, "as it is", LINES[1]), (SCALE, "scaled", LINES[0])):
        heights = torch.histc(exponents + shift, bins=60, min=-40, max=20)
        edges = torch.arange(-40.0, 21.0)
        ax.stairs(heights / 1e3, edges, color=color, linestyle=dashes, lw=1.8, label=name)
    ax.set(xlabel="size of the entry, as a power of 2", ylabel="thousand entries", xlim=(-40, 20))
    ax.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    figure.tight_layout()
    below = 100 * (exponents < -25).float().mean().item()
    return View(figure, f"{below:.0f} % of the entries are below 2^-25, and would round to zero")


against_the_range()

# %% [markdown]
# **Explain.** By their own size, a quarter of the entries would be zero. It is nearly all, since
# backward is a chain. The gradient of a *weight* is a sum over all rows; that of an *activation* is
# not, and is smaller. Behind the head of this GPT it has become zero, and from there on backward
# has nothing to pass on. What is left is the head.
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
# `LossScaler` in `course_lib/techniques/mixed_precision.py` does that, and PyTorch's
# `torch.amp.GradScaler`.
#
# **Predict.** 24 steps, from a scale of $2^{34}$, doubled after 4 good steps. How many steps are
# left out?

# %%
### BEGIN SOLUTION
guess_left_out = 6
### END SOLUTION

# %%
from course_lib.techniques.mixed_precision import LossScaler, MixedPrecision


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
    print(f"{name:13} loss {losses[0]:.2f} -> {losses[-1]:.2f}, {left_out} steps left out")
print("your guess:", guess_left_out)


def scale_by_step(scales):
    figure = Figure(figsize=(7, 2.4))
    ax = figure.subplots()
    exponents = [exponent for exponent, _ in scales]
    out = [step for step, (_, made) in enumerate(scales) if not made]
    ax.step(range(len(scales)), exponents, where="mid", color=LINES[0][0])
    at_out = [exponents[step] for step in out]
    ax.plot(out, at_out, "x", color=LINES[1][0], ms=8, mew=2, label="left out")
    ax.set(xlabel="step", ylabel="scale, as a power of 2")
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    figure.tight_layout()
    row = " ".join(f"{e:.0f}" if made else f"({e:.0f})" for e, made in scales)
    return View(figure, f"scale by step, as a power of 2, (left out): {row}")


scale_by_step(trained["fp16, scaled"][1])

# %% [markdown]
# **Explain.** fp16 alone trains little but its head. With a scale it learns as the
# others do, less the steps that it left out. Here they are many, since the scale tries the next
# power of two every 4 steps. `GradScaler` begins at $2^{16}$ and tries once in 2000.
#
# On several ranks all must leave out the same step, or the copies of the model differ from then on.
# Under ZeRO a rank sees only its own part of the gradient, so "is it finite?" has to be asked with
# an all-reduce. bfloat16 needs none of all that: no scale, no step left out, no question. This is
# why large models are trained in it since there are GPUs that have it, with 3 bits less.

# %% [markdown]
# ## 4. ZeRO-1: share the optimizer
#
# Of 16 bytes, 12 are the optimizer's. On N ranks there are N equal copies of them, updated in the
# same way with the same gradient. One is enough.
#
# You know from notebook 02 that an all-reduce is a reduce-scatter and then an all-gather. Between
# the two, every rank holds the finished sum of *its* part of the gradient:
#
# ```
# gradients --reduce-scatter--> my part --optimizer--> my new parameters --all-gather--> all
# ```
#
# Put the optimizer there. It needs state for its part only.
#
# To cut a model into equal parts, lay it out flat. Here is the helper for that, and its inverse:


# %%
def flatten(tensors, n):
    """All elements in one row, and zeros at the end, up to a multiple of n."""
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    return nn.functional.pad(flat, (0, -flat.numel() % n))


def unflatten(flat, tensors):
    """Copy the elements of `flat` into the tensors, one after the other."""
    start = 0
    with torch.no_grad():
        for t in tensors:
            t.copy_(flat[start : start + t.numel()].view_as(t))
            start += t.numel()


row = flatten([torch.ones(2, 2), torch.full((3,), 2.0)], 4)
print(row)
print("rank 1 of 4 owns", row.chunk(4)[1])

# %% [markdown]
# The chunks are views of the row. So `dist.all_gather(list(row.chunk(n)), part)` fills the row
# itself.
#
# ### Exercise 3: `zero1`
#
# - First make the ranks equal: rank 0's parameters count, frozen ones too.
# - The shard is a parameter of its own, a *clone* of this rank's chunk of all trainable parameters.
#   `make_optimizer([shard])` makes its optimizer.
# - `step()`, called after each backward: reduce-scatter the gradients, update, all-gather. Use
#   `dist.reduce_scatter(mine, list(row.chunk(n)))`. It adds up; an average is wanted. At the end
#   drop the gradient of the shard.


# %% exercise="zero1"
def zero1(model, make_optimizer):
    """Data parallel training in which a rank holds an n-th of the optimizer. Returns step()."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    own = [p for p in model.parameters() if p.requires_grad]
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])

    def step():
        row = flatten([p.grad for p in own], n)
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter(shard.grad, list(row.chunk(n)))
        shard.grad /= n
        optimizer.step()
        shard.grad = None
        dist.all_gather(list(row.chunk(n)), shard.detach())
        unflatten(row, own)

    return step
    ### END SOLUTION


# %% check="zero1"
check(zero1)

# %% [markdown]
# **Predict.** How often does the whole model pass through a rank in a step, counting a
# reduce-scatter or an all-gather as one? For plain data parallel, for your `zero1`, and for a
# `careless` one that all-reduces the gradients and then gathers?

# %%
### BEGIN SOLUTION
guess_passes = {"data parallel": 2, "zero1": 2, "careless": 3}
### END SOLUTION


# %%
def data_parallel(model, make_optimizer):
    optimizer = make_optimizer(model.parameters())

    def step():
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()

    return step


def careless(model, make_optimizer):
    """Your zero1, with an all-reduce wherever it calls dist.reduce_scatter."""

    def all_reduce_and_cut(mine, parts):
        everything = torch.cat(parts)
        dist.all_reduce(everything)
        mine.copy_(everything.chunk(len(parts))[dist.get_rank()])

    dist.reduce_scatter = all_reduce_and_cut  # in this rank, which ends with the run
    return zero1(model, make_optimizer)


STEPS = 3


def train(method):
    """Train a small GPT. Returns the losses, and what is held between backward and step."""
    n, rank, made, losses = dist.get_world_size(), dist.get_rank(), [], []
    model = tiny_gpt(seed=0)

    def make_optimizer(parameters):
        made.append(torch.optim.Adam(parameters, lr=1e-3))
        return made[-1]

    step = method(model, make_optimizer)
    with record_function("training"):
        for tokens, targets in batches(STEPS, 8 * n):
            loss = model.loss(tokens.chunk(n)[rank], targets.chunk(n)[rank])
            loss.backward()
            held = hold(model, made)
            step()
            model.zero_grad()
            losses.append(loss.item())
    return losses, held


def passes(run, label="training"):
    """How often the model passed through rank 0 in a step; a pass is (n-1)/n of it."""
    n = run.trace.world_size
    moved = run.trace.within(label).traffic().sent[0]
    return moved / STEPS / (4 * count * (n - 1) / n)


def mean_losses(run):
    """Over the ranks, by step."""
    return torch.tensor([losses for losses, _ in run]).mean(0)


runs = {
    method.__name__: run_ranks(train, 4, method, observe="memory", timeout=50)
    for method in (data_parallel, zero1, careless)
}
for name, run in runs.items():
    losses = " ".join(f"{loss:.3f}" for loss in mean_losses(run))
    print(f"{name:13} losses {losses}  passes {passes(run):.2f}  {per_parameter(run[0][1])}")
print("your guess:", guess_passes)

# %% [markdown]
# **Explain.** The optimizer went from 8 bytes to (4 + 8)/4 = 3: an fp32 shard and its two moments,
# a quarter of each. (This model computes in fp32, so that the shard is a copy which data parallel
# does not need. In mixed precision it is the master weights, which everyone needs.) And it cost
# nothing: 2 passes, as before.
#
# The careless version is no invention. DeepSpeed's first ZeRO-1 all-reduced and then gathered, and
# its authors wrote in March 2020 that the new one sends a third less.

# %% [markdown]
# ## 5. ZeRO-2: share the gradients
#
# After the reduce-scatter a rank needs its own part of the gradient, and no other. But in `zero1`
# the whole gradient is there when backward ends, 4 bytes a parameter. To never hold it all, send
# each gradient as soon as it exists, inside backward, and free it at once.
#
# ### Exercise 4: `zero2`
#
# - Now every parameter is cut by itself: a shard for each, as `flatten([p], n)` has it.
# - In a hook on the parameter (`p.register_post_accumulate_grad_hook(hook)` calls `hook(p)`):
#   reduce-scatter, keep this rank's part of the average in the shard's `.grad`, set `p.grad` to
#   `None`.
# - What is under way is memory too. Wait for each reduce-scatter before the next one starts, or
#   let it be one ahead at most.
# - `step()` updates and gathers, and drops the shards' gradients. The ranks start equal.


# %% exercise="zero2"
def zero2(model, make_optimizer):
    """As zero1, with an n-th of the gradients as well. Returns step()."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def hook(p):
        row, shard = flatten([p.grad], n), shards[p]
        p.grad = None
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter(shard.grad, list(row.chunk(n)))
        shard.grad /= n

    for p in own:
        p.register_post_accumulate_grad_hook(hook)

    def step():
        optimizer.step()
        optimizer.zero_grad()
        for p, shard in shards.items():
            row = flatten([p], n)
            dist.all_gather(list(row.chunk(n)), shard.detach())
            unflatten(row, [p])

    return step
    ### END SOLUTION


# %% check="zero2"
check(zero2)

# %%
runs["zero2"] = run_ranks(train, 4, zero2, observe="memory", timeout=50)
print(f"passes {passes(runs['zero2']):.2f}  {per_parameter(runs['zero2'][0][1])}")

# %% [markdown]
# The gradient takes 4/4 = 1 byte, and the traffic is what it was. One message for each parameter is
# slow on a real network. DeepSpeed and `course_lib/techniques/zero` collect *buckets* of some
# megabytes, and send one while backward fills the next.

# %% [markdown]
# ## 6. ZeRO-3: share the parameters
#
# What is left are the parameters. A rank needs all of them, but not at the same time: a layer is
# needed while it runs forward, and once more while it runs backward. So fetch it just before, and
# free it just after.
#
# Freeing has a catch. Autograd has saved the layer's weights for the backward pass. If you give the
# parameter *other* memory, the old one stays. This does the trick: take the memory away from under
# the tensor, and put it back later. Whoever looks into this storage, the graph included, then sees
# what the next gather has written.

# %%
full = torch.ones(1000)
view = full[:10]
full.untyped_storage().resize_(0)
print("freed:", held_bytes([full, view]), "bytes, the shape is still", tuple(view.shape))
full.untyped_storage().resize_(4 * 1000)
full.fill_(7)
print("back: ", held_bytes([full, view]), "bytes, the view sees", view[0].item())

# %% [markdown]
# ### Exercise 5: `shard_layer`
#
# `point_into(full, parameters)` makes the parameters of a layer views of one flat tensor:


# %%
def point_into(full, parameters):
    """Let each parameter lie in `full`, one after the other."""
    start = 0
    for p in parameters:
        p.data = full[start : start + p.numel()].view_as(p)
        start += p.numel()


# %% [markdown]
# Return three things. `shard`: a parameter with this rank's chunk. `gather()`: gets the memory,
# starts the all-gather into it and returns the handle (`async_op=True`). `release()`: takes the
# memory away. When `shard_layer` returns, the layer is released.


# %% exercise="shard_layer"
def shard_layer(layer):
    """Keep this rank's part of a layer. Returns (shard, gather, release)."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    full = flatten(parameters, n)
    shard = nn.Parameter(full.chunk(n)[rank].clone())
    point_into(full, parameters)
    size = full.untyped_storage().nbytes()

    def gather():
        full.untyped_storage().resize_(size)
        return dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True)

    def release():
        full.untyped_storage().resize_(0)

    release()
    return shard, gather, release
    ### END SOLUTION


# %% check="shard_layer"
check(shard_layer)

# %% [markdown]
# ### Exercise 6: `zero3_step`
#
# Now a whole step: forward and backward through a list of `units`. Each has
#
# - `unit.module`, the layer;
# - `unit.gather()` and `unit.release()`, as you wrote them;
# - `unit.reduce()`, which reduce-scatters the layer's gradients into the shard's `.grad` and frees
#   them, as in ZeRO-2.
#
# A gather takes time. So **prefetch**: before unit `i` runs, start the gather of the unit that
# comes next, and wait for it only when it is needed. Two layers are in memory at most.
#
# The backward pass must stop at each layer, so cut the graph between layers as in notebook 05:
# `h = output.detach().requires_grad_()`, and `h.grad` is what goes to the layer before. The very
# first input, `x`, may be integers (tokens), and needs no gradient.
#
# Write it without prefetching first, then move the gathers forward.


# %% exercise="zero3_step"
def zero3_step(units, x, y, loss):
    """Forward and backward, a layer at a time. Returns the loss; gradients are in the shards."""
    ### BEGIN SOLUTION
    kept, h = [], x
    coming = units[0].gather()
    for i, unit in enumerate(units):
        coming.wait()
        if i + 1 < len(units):
            coming = units[i + 1].gather()
        h = h.detach().requires_grad_(i > 0)
        output = unit.module(h)
        kept.append((h, output))
        h = output
        unit.release()
    h = h.detach().requires_grad_()
    value = loss(h, y)
    value.backward()
    coming = units[-1].gather()
    for i in reversed(range(len(units))):
        coming.wait()
        if i > 0:
            coming = units[i - 1].gather()
        gradient = h.grad
        h, output = kept.pop()
        output.backward(gradient)
        units[i].release()
        units[i].reduce()
    return value.detach()
    ### END SOLUTION


# %% check="zero3_step"
check(zero3_step)


# %% [markdown]
# With both, train the same GPT. All methods should have the losses of one process with the whole
# batch:


# %%
class Unit:
    """A layer, with what your shard_layer made of it."""

    def __init__(self, module):
        self.module, self.parameters = module, list(module.parameters())
        self.shard, self.gather, self.release = shard_layer(module)

    def reduce(self):
        n = dist.get_world_size()
        row = flatten([p.grad for p in self.parameters], n)
        for p in self.parameters:
            p.grad = None
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter(self.shard.grad, list(row.chunk(n)))
        self.shard.grad /= n


def train_zero3():
    n, rank, losses = dist.get_world_size(), dist.get_rank(), []
    model = tiny_gpt(seed=0)
    units = [Unit(module) for module in (model.embedding, *model.blocks, model.head)]
    shards = [unit.shard for unit in units]
    optimizer = torch.optim.Adam(shards, lr=1e-3)
    with record_function("training"):
        for tokens, targets in batches(STEPS, 8 * n):
            x, y = tokens.chunk(n)[rank], targets.chunk(n)[rank]
            losses.append(zero3_step(units, x, y, token_loss).item())
            held = hold(model, [optimizer])
            held["parameters"] += held_bytes(shards)  # they are the parameters, not a copy
            held["optimizer"] -= held_bytes(shards)
            optimizer.step()
            optimizer.zero_grad()
    return losses, held


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


runs["zero3"] = run_ranks(train_zero3, 4, observe="memory", timeout=50)
in_one_process = reference.train(tiny_gpt(seed=0), batches(STEPS, 8 * 4), adam)
one_process = torch.tensor(in_one_process.losses)
for name, run in runs.items():
    same = torch.allclose(mean_losses(run), one_process, atol=1e-4)
    line = per_parameter(run[0][1])
    print(f"{name:13} passes {passes(run):.2f}  same losses {same}  {line}")

# %% [markdown]
# 16 bytes on one GPU are 4 on four GPUs. The traffic is 3: parameters gathered for forward and
# again for backward, gradients reduce-scattered. No gather is needed after the optimizer's step,
# since the next forward pass fetches the parameters anyway.
#
# (`zero3.py` in `course_lib/techniques/zero` does the same with hooks, for any model, which is how
# FSDP does it.)

# %% [markdown]
# ## 7. Formula, run, and memory over time
#
# ### Exercise 7: `zero_costs`
#
# The accounts for mixed precision, 2 + 2 + 12 bytes: what does a rank hold for each parameter of
# the model under stage 0 (data parallel), 1, 2, 3, and how many elements does it send in a step for
# each? A rank sends (n-1)/n of the model in one pass.


# %% exercise="zero_costs"
def zero_costs(stage: int, n: int) -> tuple[float, float]:
    """Bytes held and elements sent, both for each parameter of the model."""
    ### BEGIN SOLUTION
    optimizer = 12 / n if stage >= 1 else 12
    gradient = 2 / n if stage >= 2 else 2
    parameter = 2 / n if stage >= 3 else 2
    return parameter + gradient + optimizer, (3 if stage == 3 else 2) * (n - 1) / n
    ### END SOLUTION


# %% check="zero_costs"
check(zero_costs)

# %% [markdown]
# And what your fp32 runs should hold, against what they held, to the byte and on all ranks:

# %%
n = 4
formulas = {
    "data_parallel": (4, 4, 8),
    "zero1": (4, 4, 12 / n),
    "zero2": (4, 4 / n, 12 / n),
    "zero3": (4 / n, 4 / n, 8 / n),
}
for name, formula in formulas.items():
    wanted = [int(nbytes * count) for nbytes in formula]
    equal = all(list(held.values()) == wanted for _, held in runs[name])
    print(f"{name:14} {sum(wanted):9,} bytes by formula; equal on every rank: {equal}")

# %% [markdown]
# That is what is held when backward has ended. Within a step there is more: activations, layers
# that ZeRO-3 has gathered, messages on their way. With `observe="memory"` the recorder follows
# every storage. Here are the course's implementations, in bfloat16 with fp32 master weights, 2 + 2
# + 12.

# %% tags=["nbval-ignore-output"]
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3

DEEP = 4  # layers
big = sum(p.numel() for p in tiny_gpt(seed=0, layers=DEEP).parameters())
stages = {"Zero1": Zero1, "Zero2": partial(Zero2, bucket_bytes=50_000), "Zero3": Zero3}


def two_steps(stage):
    n, rank = dist.get_world_size(), dist.get_rank()
    model = tiny_gpt(seed=0, layers=DEEP).bfloat16()
    zero = stage(model, adam, master_dtype=torch.float32)
    for tokens, targets in batches(2, 2 * n):
        began = time.monotonic()
        zero.zero_grad()
        loss = token_loss(model(tokens.chunk(n)[rank]), targets.chunk(n)[rank])
        loss.backward()
        zero.step()
    return began


def second_step(run):
    """What rank 0 held, {kind: bytes, change by change}, from the begin of its second step on."""
    curve = run.trace.memory().curves[0]
    first = bisect.bisect(curve.times, run[0])
    return {kind: nbytes[first:] for kind, nbytes in curve.nbytes.items()}


kinds = ("parameters", "gradients", "optimizer")
memory = {}
for name, stage in stages.items():
    run = run_ranks(two_steps, 4, stage, observe="memory", timeout=50)
    memory[name] = second_step(run)
print("rank 0, the most of each kind in the second step, in bytes a parameter")
for name, nbytes in memory.items():
    print(name, "".join(f"   {kind} {max(nbytes[kind]) / big:.1f}" for kind in kinds))

# %% tags=["nbval-ignore-output"]
from course_lib.views.palette import MEMORY


def over_time(memory):
    figure = Figure(figsize=(9, 2.8))
    axes = figure.subplots(1, len(memory), sharey=True)
    said = []
    for ax, (name, held) in zip(axes, memory.items(), strict=True):
        shown = [kind for kind in MEMORY if any(held[kind])]
        peak = max(map(sum, zip(*held.values(), strict=True)))
        said.append(f"{name}: peak {peak / 1e3:.0f} kB")
        ax.stackplot(
            range(len(held["other"])),
            [[nbytes / 1e3 for nbytes in held[kind]] for kind in shown],
            colors=[MEMORY[kind].color for kind in shown],
            labels=shown,
        )
        ax.set_title(said[-1], fontsize=9)
        ax.set_xticks([])
    axes[0].set_ylabel("kB on rank 0")
    figure.legend(*axes[-1].get_legend_handles_labels(), fontsize=8, ncols=6, loc="lower center")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    return View(figure, "memory of rank 0 in a step, from left to right. " + ", ".join(said))


over_time(memory)

# %% [markdown]
# One step, from left to right: forward, backward, optimizer. In Zero1 the whole gradient takes
# memory. In Zero2 backward makes it piece by piece, and the pieces leave in buckets
# ("communication"). In Zero3 the blue is made of teeth: a layer comes, runs and goes, once forward
# and once backward. The activations are the same hill in all three. ZeRO does nothing about them;
# section 11 does. And in so small a model the messages under way weigh more than they would in a
# large one.
#
# If you compare with 2 + 2 + 12: the recorder books what an optimizer steps, the fp32 master
# weights, as parameters (2 + 4/4 = 3), so that 8/4 = 2 are left for the optimizer; and for the time
# of the step the shard has a gradient in fp32, 4/4 = 1 more.

# %% [markdown]
# ## 8. The same by PyTorch itself
#
# PyTorch has both ends: `ZeroRedundancyOptimizer` is a stage 1 for `DistributedDataParallel`, and
# `fully_shard` (FSDP2) is stage 3. `reshard_after_forward=False` lets FSDP keep the gathered
# parameters from forward to backward.
#
# **Predict.** How many passes for each of the three?

# %%
### BEGIN SOLUTION
guess_zero_redundancy = 3
guess_fsdp = 3
guess_fsdp_kept = 2
### END SOLUTION


# %%
def train_zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    n, rank, losses = dist.get_world_size(), dist.get_rank(), []
    model = tiny_gpt(seed=0)
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    with record_function("training"):
        for tokens, targets in batches(STEPS, 8 * n):
            loss = token_loss(parallel(tokens.chunk(n)[rank]), targets.chunk(n)[rank])
            loss.backward()
            held = hold(model, [optimizer.optim])
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, held


def fsdp(model, reshard):
    from torch.distributed.fsdp import fully_shard

    for module in (model.embedding, *model.blocks, model.head, model):
        fully_shard(module, reshard_after_forward=reshard)
    return model


def train_fsdp(reshard):
    n, rank, losses = dist.get_world_size(), dist.get_rank(), []
    model = fsdp(tiny_gpt(seed=0), reshard)
    optimizer = adam(model.parameters())
    with record_function("training"):
        for tokens, targets in batches(STEPS, 8 * n):
            loss = token_loss(model(tokens.chunk(n)[rank]), targets.chunk(n)[rank])
            loss.backward()
            optimizer.step()
            own = list(model.parameters())
            states = [t for s in optimizer.state.values() for t in s.values() if t.dim()]
            held = {
                "parameters": held_bytes(p.to_local() for p in own),
                "gradients": held_bytes(p.grad.to_local() for p in own),
                "optimizer": held_bytes(t.to_local() for t in states),
            }
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, held


both = {
    "your data_parallel": runs["data_parallel"],
    "your zero1": runs["zero1"],
    "ZeroRedundancyOptimizer": run_ranks(train_zero_redundancy, 4, observe="memory", timeout=50),
    "your zero3": runs["zero3"],
    "FSDP2": run_ranks(train_fsdp, 4, True, observe="memory", timeout=50),
    "FSDP2, kept": run_ranks(train_fsdp, 4, False, observe="memory", timeout=50),
}
print(f"{'':24} losses{'':13} sent in a step  passes   held, bytes a parameter, by rank")
for name, run in both.items():
    losses = " ".join(f"{loss:.3f}" for loss in mean_losses(run))
    sent = run.trace.within("training").traffic().sent[0] // STEPS
    held = " ".join(f"{sum(held.values()) / count:5.2f}" for _, held in run)
    print(f"{name:24} {losses}  {sent:9,} bytes   {passes(run):.2f}   {held}")
print("your guesses:", guess_zero_redundancy, guess_fsdp, guess_fsdp_kept)

# %% [markdown]
# **Explain.** All of them train the same model.
#
# - **FSDP2** is your stage 3: 3 passes, 4 bytes. The 4.02 is padding. FSDP2 cuts every parameter by
#   its rows, and the 9 rows of a position embedding give 3 + 3 + 3 + 0 on four ranks.
# - **FSDP2, kept** sends 2. But from a layer's forward to its backward the layer is whole, so at
#   the end of the forward pass a rank holds all parameters, as in stage 2.
# - **ZeroRedundancyOptimizer** is the careless kind: `DistributedDataParallel` all-reduces the
#   gradients, and then every rank broadcasts the parameters that it has updated. It deals out whole
#   parameters, which comes out even here. (It holds 8/4 = 2 for the optimizer and you 3, since it
#   needs no copy in fp32.)
#
# **The peak.** What is held is not what a device must have room for. All of the runs above were
# watched with `observe="memory"`, so ask for the most that rank 0 held at any time in training:


# %% tags=["nbval-ignore-output"]
def peak(run):
    """The most bytes that rank 0 held in training, and what they were for."""
    curve = run.trace.memory().curves[0]
    labels = run.trace.labels
    training = next(each for each in labels if (each.rank, each.name) == (0, "training"))
    first, last = (bisect.bisect(curve.times, t) for t in (training.start, training.end))
    top = max(range(first, last), key=curve.total.__getitem__)
    return {kind: nbytes[top] for kind, nbytes in curve.nbytes.items()}


print("bytes a parameter, on rank 0 at its peak")
for name, run in both.items():
    parts = {kind: nbytes / count for kind, nbytes in peak(run).items()}
    states = sum(parts[kind] for kind in ("parameters", "gradients", "optimizer"))
    rest = sum(parts.values()) - states
    print(
        f"{name:24} {sum(parts.values()):5.1f} = {states:4.1f} model states"
        f" + {rest:4.1f} activations, messages and copies"
    )

# %% [markdown]
# Model and batch are small here: of the peak, 6 bytes a parameter are activations. The rest tells
# the methods apart.
#
# - Your **zero3** and **FSDP2** peak alike, at 4 bytes held and two layers of this model, the one
#   that runs and the one on its way. It has only two blocks, so that is nearly all of it, and
#   *kept* takes hardly more. With 48 blocks it would be two of 48.
# - Your **zero1** lays all gradients in a row before it sends them, 4 bytes more, and saves
#   little at the peak. `DistributedDataParallel` has them twice as well, in `.grad` and in its
#   buckets, and builds its buckets anew after the first step. With `gradient_as_bucket_view=True`
#   a gradient is a view of the bucket, as in `course_lib/techniques/zero/zero1.py`.
#
# **The time.** Two ranks, one to a core; a larger GPT; all methods in turns, so that all meet the
# same disturbances. What do you expect? (Times are your machine's, and no test compares them. A bar
# is the quickest round, and the black line goes on to the median: if it is long, your machine is
# busy with other things.)


# %%
def my_rows():
    """This rank's part of a batch."""
    n, rank = dist.get_world_size(), dist.get_rank()
    tokens, targets = next(batches(1, 16 * n))
    return tokens.chunk(n)[rank], targets.chunk(n)[rank]


def a_step(run, update):
    """A function that makes one step with the model `run` and what `update` does."""
    x, y = my_rows()

    def step():
        token_loss(run(x), y).backward()
        update()

    return step


def by_hand(method, run=nn.Module.__call__):
    """A step of data_parallel, zero1 or zero2."""
    model = wide_gpt()
    step = method(model, adam)

    def update():
        step()
        model.zero_grad()

    return a_step(partial(run, model), update)


def by_layers():
    """A step of zero3."""
    model, (x, y) = wide_gpt(), my_rows()
    units = [Unit(module) for module in (model.embedding, *model.blocks, model.head)]
    optimizer = adam([unit.shard for unit in units])

    def step():
        zero3_step(units, x, y, token_loss)
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_library(run, optimizer):
    """A step of a wrapped model, and an optimizer or what stands for it."""

    def update():
        optimizer.step()
        optimizer.zero_grad()

    return a_step(run, update)


def wide_gpt():
    return tiny_gpt(layers=4, hidden=128, seed=0)


def in_turns(steps, rounds=10, ready=lambda: None):
    """Seconds of every step in every round, {name: [one a round]}, after two steps to warm up."""
    seconds = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            ready()
            began = time.perf_counter()
            step()
            if number >= 2:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def time_both():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model1, model3 = wide_gpt(), wide_gpt()
    ddp, ddp1 = (nn.parallel.DistributedDataParallel(wide_gpt()) for _ in range(2))
    zero_redundancy = ZeroRedundancyOptimizer(ddp1.parameters(), torch.optim.Adam, lr=1e-3)
    fsdp2, kept = fsdp(wide_gpt(), True), fsdp(wide_gpt(), False)
    steps = {
        "DistributedDataParallel": by_library(ddp, adam(ddp.parameters())),
        "your zero1": by_hand(zero1),
        "the course's Zero1": by_library(model1, Zero1(model1, adam)),
        "ZeroRedundancyOptimizer": by_library(ddp1, zero_redundancy),
        "your zero3": by_layers(),
        "the course's Zero3": by_library(model3, Zero3(model3, adam)),
        "FSDP2": by_library(fsdp2, adam(fsdp2.parameters())),
        "FSDP2, kept": by_library(kept, adam(kept.parameters())),
    }
    return in_turns(steps, ready=dist.barrier)


# %% tags=["nbval-ignore-output"]
def times(seconds, counted=None):
    """Bars: the quickest round of each step over that of the first; lines: on to the median.

    counted: operations of each, over the first one's.
    """
    base = min(next(iter(seconds.values())))
    least = [min(own) / base for own in seconds.values()]
    middle = [statistics.median(own) / base for own in seconds.values()]
    figure = Figure(figsize=(7.5, 0.34 * len(seconds) + 0.9))
    ax = figure.subplots()
    places = range(len(seconds))
    ax.barh(places, least, color=LINES[4][0], height=0.6)
    for place, low, high in zip(places, least, middle, strict=True):
        ax.plot([low, high], [place, place], color="black", lw=1.5)
        ax.annotate(f"{low:.2f}", (high, place), (6, 0), textcoords="offset points", va="center")
    if counted:
        ax.plot(list(counted.values()), places, "D", color=LINES[1][0], label="operations, counted")
        ax.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    ax.axvline(1, color="black", lw=0.8, ls="--")
    ax.set_yticks(places, list(seconds))
    furthest = max([*middle, *(counted or {}).values()])
    ax.set(xlim=(0, 1.15 * furthest), xlabel=f"time of a step over that of {next(iter(seconds))}")
    ax.invert_yaxis()
    figure.tight_layout()
    rows = [
        f"{name:24} {low:.2f} (median {high:.2f})"
        for name, low, high in zip(seconds, least, middle, strict=True)
    ]
    title = f"time of a step, the quickest round; the first: {1e3 * base:.1f} ms"
    return View(figure, "\n".join([title, *rows]))


times(run_ranks(time_both, 2, observe=False, timeout=60)[0])

# %% [markdown]
# **Explain.** The computation is the same in all of them, and on these cores a message is a copy
# between two processes. What differs is how many messages there are and who makes them. Your zero1
# sends two in a step. Stage 3 sends three for each layer, half as many bytes again, and the cores
# that compute have to move them too. (FSDP2 was made for GPUs, where a network card carries the
# messages while the GPU computes.)

# %% [markdown]
# ## 9. Explore
#
# Model states by stage, against the memory of a device. "yours" is the GPT of section 7; choose it
# together with 4 devices, and its measured states stand below what the formula says.

# %%
from course_lib.views.zero_explorer import zero_explorer

measured = {
    name: SimpleNamespace(highest=[{kind: max(nbytes) for kind, nbytes in held.items()}])
    for name, held in memory.items()
}
zero_explorer(own=measured, own_parameters=big)

# %% [markdown]
# **Explore.** What is the first stage that fits 7.5B on 16 V100s? On how many of them does stage 2
# fit, and stage 1? How many A100s with 80 GB does GPT-3 need under stage 3, before any activation?
# Is there a number of GPUs at which stage 1 is enough for GPT-3? Why not?

# %% [markdown]
# ## 10. Offload: the host has memory too
#
# A node with eight GPUs has a terabyte of host memory or more. *ZeRO-Offload* (Ren et al. 2021)
# moves what is touched once a step: master weights, Adam's state, and the update itself, which is
# little work for a CPU. On the GPU stay the 16-bit parameters, 2 bytes of 16.
#
# The price is the bus. It is some fifty times slower than the GPU's own memory, so bytes count.
#
# **Predict.** How many bytes must cross the bus in a step, for each parameter?

# %%
### BEGIN SOLUTION
guess_bus = 4
### END SOLUTION

# %% [markdown]
# ### Exercise 8: `offload`
#
# `master_weights` once more, with a bus in the middle. `to_host(t)` and `to_device(t)` copy a
# tensor over it, in the dtype that it has. (On a GPU they would be `t.to("cpu")` and
# `t.to("cuda")`; here both ends are your laptop, and the check counts the bytes.) A gradient that
# has left is freed.


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
from course_lib.simulate import DEVICES, LINKS, offload_optimizer

gpt2 = 1.5e9
without, with_offload = 16 * gpt2, offload_optimizer(gpt2)
print(
    f"GPT-2 1.5B on the GPU: {without / 1e9:.0f} GB, offloaded {with_offload.device / 1e9:.0f} GB"
)
print(f"across the bus {with_offload.bus / gpt2:.0f} bytes a parameter (your guess {guess_bus})")
for bus in ("PCIe 3 x16", "PCIe 5 x16"):
    print(f"{bus}: {with_offload.bus_seconds(LINKS[bus].bandwidth):.2f} s a step")
v100 = DEVICES["V100 SXM2 32 GB"]
for batch in (1, 32):
    compute = 6 * gpt2 * 1024 * batch / (v100.half_flops * 0.4)
    print(f"computing {batch:2} sequences of 1024 tokens at 40 % of the peak: {compute:.2f} s")

# %% [markdown]
# **Explain.** Gradients go down in 16 bits, parameters come up in 16 bits: 2 + 2. Any cut between
# GPU and CPU that leaves the forward and backward passes on the GPU sends at least that much. With
# a small batch the bus takes longer than the computation. With a large one it can hide behind it:
# gradients travel while backward runs. So offloading is for few GPUs and large batches.

# %% [markdown]
# ## 11. Activation checkpointing
#
# What ZeRO leaves are the activations: what autograd keeps from forward for backward. GPT-2 with 48
# layers of width 1600 and a batch of 32 sequences of 1024 tokens:

# %%
elements = 12 * 1600 * 32 * 1024 * 48  # the ZeRO paper's count, 12 x hidden a token and layer
inputs = 1600 * 32 * 1024 * 48  # the input of each layer
print(f"all of them:               {2 * elements / 1e9:.0f} GB")
print(f"the layers' inputs alone:  {2 * inputs / 1e9:.0f} GB")

# %% [markdown]
# Chen et al. (2016, arXiv 1604.06174) keep only every k-th activation. When the backward pass comes
# to a segment of k layers, it runs the segment forward once more from the activation before it, and
# then has them all. PyTorch has it as `torch.utils.checkpoint.checkpoint(function, x,
# use_reentrant=False)`: it runs `function(x)`, keeps `x` alone, and runs it again in backward.
#
# ### Exercise 9: `checkpointed`
#
# Run the layers in segments of `k`; the last one may be shorter.


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

# %% [markdown]
# **Predict.** 36 layers. For which k is the least in memory at the worst moment, and how many
# activations are that, of 36?

# %%
### BEGIN SOLUTION
guess_k = 6
guess_activations = 12
### END SOLUTION


# %%
class Counting(nn.Module):
    """A layer whose outputs are counted for as long as anybody keeps them."""

    alive, most, runs = [], 0, 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        output = torch.tanh(self.linear(x))
        Counting.alive.append(weakref.ref(output.untyped_storage()))
        Counting.alive = [storage for storage in Counting.alive if storage() is not None]
        Counting.most = max(Counting.most, len(Counting.alive))
        Counting.runs += 1
        return output


layers = [Counting() for _ in range(36)]
print("  k  activations   n/k + k   runs of a layer")
for k in (1, 2, 3, 4, 6, 9, 12, 18, 36):
    Counting.alive, Counting.most, Counting.runs = [], 0, 0
    checkpointed(layers, torch.ones(2, 8, requires_grad=True), k).sum().backward()
    print(f"{k:3}  {Counting.most:11}   {36 // k + k:7}   {Counting.runs:3}")
print("your guess:", guess_k, guess_activations)

# %% [markdown]
# **Explain.** n/k are kept, and k more come to life while a segment is run again. (Two of them are
# counted twice in n/k + k: the output of the last layer, and that of the segment.) The sum is least
# at $k = \sqrt n$: $2 \sqrt n$ in place of $n$. For a GPT one usually takes $k = 1$ block, since a
# block has a dozen activations inside and a single one between.
#
# **The price.** The forward pass is run twice. Let PyTorch count the operations:

# %%
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode


def flops(run_blocks):
    model = tiny_gpt(seed=0, layers=4)
    with FlopCounterMode(display=False) as counter:
        h = run_blocks(model.blocks, model.embedding(tokens))
        token_loss(model.head(h), targets).backward()
    return counter.get_total_flops()


plain = flops(lambda blocks, h: nn.Sequential(*blocks)(h))
for k in (1, 2, 4):
    more = flops(lambda blocks, h, k=k: checkpointed(list(blocks), h, k)) / plain - 1
    with set_checkpoint_early_stop(False):
        all_of_it = flops(lambda blocks, h, k=k: checkpointed(list(blocks), h, k)) / plain - 1
    print(f"k = {k}: {more:+.1%} operations; the whole segment run again: {all_of_it:+.1%}")

# %% [markdown]
# **Explain.** Forward is one third of the operations, backward two. To run forward once more makes
# four thirds: +33 %. PyTorch is a little cleverer. When it runs a segment again it stops as soon as
# all that backward needs is there, and the very last product of a block (a third of its operations)
# is not needed. The longer the segment, the less that helps.
#
# And the time? Measured here on one device, beside the operations that PyTorch counted (diamonds):


# %% tags=["nbval-ignore-output"]
def forward_and_backward(k=None):
    model = tiny_gpt(seed=0, layers=4, hidden=128)
    x, y = next(batches(1, 64))

    def step():
        h = model.embedding(x)
        h = checkpointed(list(model.blocks), h, k) if k else nn.Sequential(*model.blocks)(h)
        token_loss(model.head(h), y).backward()

    return step


segments = {"everything kept": None, "k = 1": 1, "k = 2": 2, "k = 4": 4}
steps = {name: forward_and_backward(k) for name, k in segments.items()}
counted = {}
for name, step in steps.items():
    with FlopCounterMode(display=False) as counter:
        step()
    counted[name] = counter.get_total_flops()
operations = {name: number / counted["everything kept"] for name, number in counted.items()}
times(in_turns(steps), operations)

# %% [markdown]
# **Explain.** The time follows the operations, but it is not the same. Operators that cost no
# multiplications (norms, GeLU, additions) are run again as well, and starting one more operator
# takes time in a model as small as this.
#
# Papers report about the same: 36 to 39 % more time for large models with everything recomputed
# (Korthikanti et al. 2022). They also show that recomputing only the attention matrices, which are
# large and cheap, costs 2 to 7 %.

# %% [markdown]
# ## 12. And the time? All of it, side by side
#
# You know what each method saves and what it sends. What does a step take? Your own code, on two
# ranks: stages 0 to 3; stage 0 with the optimizer offloaded (one more copy of every gradient and
# parameter, since here the bus is your laptop's memory); stage 0 with every block checkpointed.
#
# **Predict.** Which of them takes longest here, and how many times as long as stage 0?

# %%
### BEGIN SOLUTION
guess_slowest = "stage 2"
guess_times = 2.5
### END SOLUTION


# %%
def offloaded(model, make_optimizer):
    step = offload(model, make_optimizer, torch.clone, torch.clone)

    def average_and_step():
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        step()

    return average_and_step


def through_checkpoints(model, x):
    return model.head(checkpointed(list(model.blocks), model.embedding(x), 1))


def time_all():
    steps = {
        "stage 0": by_hand(data_parallel),
        "stage 1": by_hand(zero1),
        "stage 2": by_hand(zero2),
        "stage 3": by_layers(),
        "stage 0, offloaded": by_hand(offloaded),
        "stage 0, checkpointed": by_hand(data_parallel, through_checkpoints),
    }
    return in_turns(steps, ready=dist.barrier)


# %% tags=["nbval-ignore-output"]
print("your guess:", guess_slowest, guess_times)
times(run_ranks(time_all, 2, observe=False, timeout=60)[0])

# %% [markdown]
# **Explain.** On our two cores stage 2 was the slowest each time, at 1.5 to 2.6 times stage 0. If
# you guessed checkpointing, you have counted operations. It runs the blocks again, but in these
# steps computation is the smaller part. What decides is the *number* of messages. They hold only
# some 3 MB in a step, but each costs a start. Your data_parallel sends one for each parameter, and
# zero2 two, with a copy before and after each. zero3 sends a few for each layer, and zero1 two in
# all: it takes less than half of stage 0's time. Buckets (notebook 03) are the remedy. What
# offloading and checkpointing add is lost in the spread (the black lines) from run to run; the bus
# was left out besides, and section 10 has its price.
#
# On a cluster, computation is far quicker, and messages are not quicker in the same measure. There
# the passes can count: 2, 2, 2 and 3. Next, such a step is replayed on networks of any speed.

# %% [markdown]
# ## 13. At scale
#
# **What was published.** Figure 1 of the ZeRO paper: 7.5 billion parameters on 64 GPUs. Your
# formula:

# %%
published = {0: 120, 1: 31.4, 2: 16.6, 3: 1.9}
for stage, gigabytes in published.items():
    print(f"stage {stage}: {zero_costs(stage, 64)[0] * 7.5:6.2f} GB, published {gigabytes}")

# %% [markdown]
# **When to go from data parallel to ZeRO-3?** Stage 3 sends half as much again. That costs nothing
# as long as it hides behind the computation. So all depends on one ratio: how long the rank
# computes in a step, against how long an all-reduce of the gradients takes on its network.
#
# To find out, let real ranks play the messages of one step in their order, each method once, and
# replay the recordings on networks of any speed. The arithmetic is left out: where a layer would
# run, the rank makes a note, and in the replay a forward pass takes one unit of time there and a
# backward pass two.

# %%
from dataclasses import replace

from course_lib.simulate import Link, dgx_a100, replay

LAYERS, SIZE, RANKS = 8, 4096, 4  # elements of a layer
METHODS = ("data parallel", "ZeRO-3", "ZeRO-3, kept")  # kept from forward to backward


def play(method):
    """What a rank sends in a step. Returns when which layer would run, and for how long."""
    n, log, under_way = dist.get_world_size(), [], []

    def run_layer(name, seconds):
        log.append((name, time.monotonic(), seconds))

    def fetch():
        parts = list(torch.zeros(SIZE).chunk(n))
        return dist.all_gather(parts, torch.zeros(SIZE // n), async_op=True)

    def send_gradients():
        row = torch.zeros(SIZE)
        if method == "data parallel":
            return dist.all_reduce(row, async_op=True), row
        part = torch.zeros(SIZE // n)
        return dist.reduce_scatter(part, list(row.chunk(n)), async_op=True), row

    for name, seconds in (("forward", 1), ("backward", 2)):
        fetching = method == "ZeRO-3" or (method == "ZeRO-3, kept" and name == "forward")
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


# %%
def step_time(name, ratio):
    """A step, in units of pure computation, where an all-reduce takes 1/ratio of that."""
    computing = 3 * LAYERS
    nbytes = 4 * LAYERS * SIZE
    bandwidth = 2 * (RANKS - 1) / RANKS * nbytes / (computing / ratio)
    cluster = replace(dgx_a100, inside=Link("a network", 0, bandwidth))
    trace, compute = recorded[name]
    return replay(trace, cluster, compute=compute).makespan / computing


def crossover(ratios):
    """Step times over the ratio: a curve for each method, and the same as a table."""
    curves = [[step_time(method, ratio) for ratio in ratios] for method in METHODS]
    figure = Figure(figsize=(6.5, 3.2))
    ax = figure.subplots()
    for name, curve, (color, dashes) in zip(METHODS, curves, LINES, strict=False):
        ax.plot(ratios, curve, color=color, linestyle=dashes, label=name)
    ax.set(xscale="log", ylim=(0.9, 3.2), ylabel="step / computation")
    ax.set(xlabel="computation / all-reduce", xticks=ratios, xticklabels=ratios)
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend()
    figure.tight_layout()
    rows = [f"{'ratio':>6}" + "".join(f"{name:>15}" for name in METHODS)]
    for ratio, *times in zip(ratios, *curves, strict=True):
        rows.append(f"{ratio:6}" + "".join(f"{step:15.2f}" for step in times))
    return View(figure, "\n".join(rows))


crossover([0.25, 0.5, 1, 1.5, 2, 3, 4, 8, 16])

# %% [markdown]
# **Explain.** 1.00 is a step in which all messages hide behind computation. From a ratio of 1.5 on
# both methods are close to it. Data parallel has one all-reduce to hide, and two thirds of the
# computation (backward) to hide it behind. ZeRO-3 has half an all-reduce (a gather) to hide behind
# the forward third, and a whole one (a gather and a reduce-scatter) behind the backward two thirds:
# the same ratio in both. What is left above 1.00 are the messages at the two ends, while nothing
# runs.
#
# Below 1.5 the network decides, and ZeRO-3 takes up to 1.5 times as long. Kept from forward to
# backward it is even a little faster than data parallel: its gathers run behind the *forward* pass.
#
# So: **if data parallel hides its all-reduce, ZeRO-3 costs little, and saves N-fold.** The ratio
# grows with the tokens that a rank computes in a step: the computation is 6 operations a token and
# parameter, the all-reduce 4 bytes a parameter, however large the batch is.

# %%
device, link = dgx_a100.device, dgx_a100.between
for tokens in (1_000, 4_000, 16_000, 64_000):
    compute = 6 * tokens / (0.4 * device.half_flops)  # seconds for each parameter
    all_reduce = 2 * 2 / link.bandwidth
    print(f"{tokens:6,} tokens a rank and step: ratio {compute / all_reduce:5.2f}")

# %% [markdown]
# A100s at 40 % of their peak over one 200 Gbit/s adapter each: with some 5,000 tokens on a rank,
# ZeRO-3 is nearly free.

# %% [markdown]
# ## 14. Claims put to the test
#
# ### "ZeRO-3 needs 64 times less memory on 8 GPUs", and "ZeRO-1 saves 4x, ZeRO-2 8x"
#
# Both are in circulation, and each has a source: the 64 is from the paper's figure, the 4 and the 8
# from its list of the stages.
#
# **Predict.** What are the three factors at N = 8?

# %%
### BEGIN SOLUTION
guess_factors = (2.91, 4.27, 8)
### END SOLUTION

# %%
for n in (2, 4, 8, 64, 1024):
    factors = "  ".join(f"{16 / zero_costs(stage, n)[0]:7.2f}" for stage in (1, 2, 3))
    print(f"N = {n:4}: {factors}")
print("your guess for N = 8:", guess_factors)

# %%
at_8 = run_ranks(train_zero3, 8, timeout=50)
data_parallel_bytes = sum(runs["data_parallel"][0][1].values())
factor = data_parallel_bytes / sum(at_8[0][1].values())
print(f"measured, your zero3 on 8 ranks against data parallel: {factor:.2f} times less")

# %% [markdown]
# Stage 3 divides everything by N: 8 times less on 8 GPUs, and 64 times less on 64, which is the
# number of GPUs in the paper's figure. 4x and 8x are limits for infinitely many GPUs: at N = 8
# they are 2.91x and 4.27x. With 4 bytes (stage 1) or 2 bytes (stage 2) that are never divided, it
# cannot be more. And both suppose 2 + 2 + 12.
#
# ### "ZeRO has no extra communication"
#
# You have measured it: true of stages 1 and 2 (2 passes, like data parallel), and false of stage 3
# (3 passes, 1.5 times as much) and of a careless stage 1. Stage 3 that keeps the parameters from
# forward to backward sends 2 as well, but then it holds all parameters in between. Llama 3 was
# trained like that: gradients and optimizer sharded, parameters kept after the forward pass.

# %% [markdown]
# ## 15. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. A 13B model, mixed precision, GPUs with 80 GB, of which 30 are left for activations. How many
#    GPUs does each stage need?
#
# <details><summary>Answer</summary>
# 50 GB are 3.85 bytes a parameter. Stage 1: 4 + 12/N, never. Stage 2: 2 + 14/N &le; 3.85, so N = 8.
# Stage 3: 16/N &le; 3.85, so N = 5.
# </details>
#
# 2. GPT-3 has 175 billion parameters. What does a rank send in a step under stage 3 on 1024 GPUs,
#    in 16 bits? How long does it take at 25 GB/s?
#
# <details><summary>Answer</summary>
# 3 passes of 350 GB, 1.05 TB: 42 seconds. It is not less with more GPUs! This is why ZeRO-3 alone
# wants large batches, and why very large models use tensor and pipeline parallelism as well.
# </details>
#
# 3. A model with 96 layers is checkpointed with k = 1. Operations, and activations between layers?
#
# <details><summary>Answer</summary>
# A third more operations. 96 kept, and one layer's inside at a time.
# </details>
#
# 4. Adam on 5 ranks, a model of 3 trainable elements, stage 1. Who holds what?
#
# <details><summary>Answer</summary>
# The row is padded to 5 elements. Ranks 3 and 4 own one element of padding each: they update a zero
# with a gradient of zero. Your zero1 was checked on this very case.
# </details>
#
# 5. Offload on 8 GPUs with ZeRO-2: how much crosses the bus of one GPU in a step for 10B
#    parameters? With PCIe 4 at 31.5 GB/s?
#
# <details><summary>Answer</summary>
# 4 bytes · 10e9 / 8 = 5 GB, 0.16 s: each GPU brings down its part of the gradients, and takes up
# its part of the parameters; the rest comes from the other GPUs.
# </details>
#
# ## 16. Assignment: `clip_across_shards`
#
# Large models are trained with *gradient clipping*: if the norm of the whole gradient is above
# `max_norm`, all of it is scaled down to it. The norm is the root of the sum of the squares of
# *all* elements. Now nobody has all elements.
#
# - `shards`: parameters of which every rank has another part, perhaps an empty one.
# - `replicated`: parameters that all ranks have whole, with equal gradients (a bias that was not
#   worth cutting).
#
# Return the norm before clipping, and scale the gradients in place if it is above `max_norm`. Some
# `.grad` may be `None`. One number is enough to be sent. What goes wrong in real libraries: each
# rank clips by its own norm, so that the parts of one model are scaled differently; replicated
# gradients count N times; a rank with nothing leaves, and the others wait.


# %% exercise="clip_across_shards"
def clip_across_shards(shards, replicated, max_norm):
    """Scale all gradients by max_norm / norm if that is below 1. Returns the norm."""
    ### BEGIN SOLUTION
    square = torch.zeros((), dtype=torch.float64)
    for p in shards:
        if p.grad is not None:
            square += p.grad.double().square().sum()
    dist.all_reduce(square)
    for p in replicated:
        if p.grad is not None:
            square += p.grad.double().square().sum()
    norm = square.sqrt().item()
    if norm > max_norm:
        for p in [*shards, *replicated]:
            if p.grad is not None:
                p.grad *= max_norm / norm
    return norm
    ### END SOLUTION


# %% check="clip_across_shards"
check(clip_across_shards)

# %% [markdown]
# ## 17. What to read
#
# - Rajbhandari et al. 2020, *ZeRO* (arXiv 1910.02054): section 3 for the bytes, section 5 for the
#   stages, section 7 for the traffic. Table 1 has the memory of three models on 1 to 1024 GPUs.
# - Zhao et al. 2023, *PyTorch FSDP* (VLDB): how prefetching, flat parameters and freeing memory
#   look in a real library.
# - Ren et al. 2021, *ZeRO-Offload* (USENIX ATC): why the cut between GPU and CPU is where it is.
# - Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost* (arXiv 1604.06174).
# - Micikevicius et al. 2017, *Mixed Precision Training* (arXiv 1710.03740): section 3.1 on the
#   fp32 copy of the weights.
# - `course_lib/techniques/zero`: what you wrote, with buckets, overlap, parameter groups and tied
#   parameters; checkpoints are in `course_lib/techniques/checkpoints`.
#
# **Next**: notebook 07 combines data, tensor and pipeline parallelism.
