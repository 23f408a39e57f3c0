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
# # 06 · ZeRO: nobody holds everything
#
# **After this lesson you can**
#
# - say how many bytes a parameter costs while it is trained, and measure them;
# - shard the optimizer, the gradients and the parameters over the ranks, with the losses of one
#   process;
# - say what each stage of ZeRO saves on N ranks, and what it sends for that.
#
# If you go on with the optional part, you can also
#
# - train with sharded parameters, each layer fetched before it is needed;
# - clip a gradient of which every rank has a different part.
#
# **You need** reduce-scatter and all-gather from [lesson 02](02_ring_all_reduce.ipynb), hooks from
# [lesson 03](03_data_parallel.ipynb). **It takes** 90 minutes to the end of section 6, without
# exercise 5. All else is optional: 35 minutes for that exercise, 20 for the assignment; sections 7
# and 8 are there to run and read. The machine needs a minute. Each exercise says how hard it is (●
# a few lines, ●● two ideas together, ●●● the hard one) and how long it takes.

# %%
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib import check, guessed, hint, run_ranks, solved, text, yours_or
from course_lib.models import reference
from course_lib.models.sorting_task import batches
from course_lib.models.tiny_gpt import tiny_gpt, token_loss
from course_lib.observe.step_timing import in_turns
from course_lib.simulate import model_state_bytes, step_traffic_elements
from course_lib.techniques.mixed_precision import MixedPrecision
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3
from course_lib.views.memory_bars import memory_bars
from course_lib.views.memory_curves import memory_curves
from course_lib.views.stacked_bars import stacked_bars
from course_lib.views.step_times import step_times
from course_lib.views.zero_explorer import zero_explorer
from course_lib.views.zero_step import zero_step, zero_step_explorer

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
# A model of 7.5 billion parameters takes 15 GB in 16-bit numbers. A GPU with 80 GB has room for
# five of them. *Training* it is another matter. The usual recipe computes in 16 bits and keeps an
# fp32 copy of every parameter, in which small updates add up ([lesson 07](07_less_memory.ipynb)
# shows why). Adam adds two running averages per parameter, in fp32 as well.

# %%
billions = 7.5
parts = {
    "parameters, 16 bit": 2,
    "gradients, 16 bit": 2,
    "fp32 copy of the parameters": 4,
    "Adam's two averages, fp32": 8,
}
parts["all of it"] = sum(parts.values())
rows = [["", "bytes per parameter", "GB"]]
rows += [[name, nbytes, f"{nbytes * billions:.0f}"] for name, nbytes in parts.items()]
print(text.table(rows))
print(f"on 64 GPUs, each with its own copy: {64 * 16 * billions / 1000:.2f} TB for one model")
weights = billions * 2e9  # bytes
memory_bars(
    {
        "to use it": {"parameters": weights},
        "to train it": {
            "parameters": weights,
            "gradients": weights,
            "optimizer": billions * 12e9,
        },
    },
    capacity=80e9,
    title=f"A model of {billions} billion parameters on one GPU",
)

# %% [markdown]
# (The fp32 copy and the averages are the optimizer's.) Data parallel training
# ([lesson 03](03_data_parallel.ipynb)) keeps 64 equal copies. Together, 64
# GPUs of 80 GB have 5.12 TB. The model and everything it needs take 0.12 TB. It fails to fit only
# because everybody holds everything.
#
# **Who solved it, and when.** Rajbhandari, Rasley, Ruwase and He: *ZeRO: Memory Optimizations
# Toward Training Trillion Parameter Models* (SC 2020,
# [arXiv 1910.02054](https://arxiv.org/abs/1910.02054)), in DeepSpeed. Each rank owns a part of the
# state and asks the others for the rest when it needs it. FairScale brought this to PyTorch users,
# and PyTorch's own FSDP followed (Zhao et al., VLDB 2023,
# [arXiv 2304.11277](https://arxiv.org/abs/2304.11277)).

# %% [markdown]
# ## 2. Sixteen bytes per parameter, measured
#
# Where are these bytes? A tensor is a view of a *storage*, and the storage is the memory. Several
# tensors can share one. A quarter of a tensor keeps all of it alive:

# %%
whole = torch.zeros(1000)
quarter = whole.chunk(4)[1]
print("elements of the quarter: ", quarter.numel() * quarter.element_size(), "bytes")
print("memory that it keeps:    ", quarter.untyped_storage().nbytes(), "bytes")
print("the same storage:        ", quarter.untyped_storage().data_ptr() == whole.data_ptr())

# %% [markdown]
# This is the first thing that goes wrong in a home-made ZeRO: every rank takes its n-th of a large
# tensor, drops the rest, and nothing is freed. So you need a meter that cannot be fooled.
#
# ### Exercise 1: `held_bytes` (● 5 minutes)
#
# Count the memory behind some tensors: each storage once, and all of it. The list may contain
# `None`, for a gradient that is not there. Two storages are the same if they start at the same
# address.


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
# Stuck? `hint(held_bytes)` gives a nudge, `hint(held_bytes, 2)` more, and
# `hint(held_bytes, 3)` almost the answer.
#
# **Predict.** A small GPT in fp32 is trained with Adam. Of the bytes per parameter, how many are
# the parameter, its gradient, and the optimizer's?

# %%
### BEGIN SOLUTION
guess_parameter = 4
guess_gradient = 4
guess_optimizer = 8
### END SOLUTION


# %%
def plain_bytes(tensors):
    """Stands in for held_bytes: right as long as no two tensors share memory."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


count_bytes = held_bytes if solved(held_bytes) else plain_bytes


def hold(model, optimizers):
    """What is held for the model: bytes as parameter, as gradient, and for the optimizer."""
    own = list(model.parameters())
    known = {id(p) for p in own}
    stepped = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    copies = [p for p in stepped if id(p) not in known]
    states = [t for o in optimizers for state in o.state.values() for t in state.values()]
    moments = [t for t in states if t.dim()]  # Adam's step counter, a single number, is left out
    return {
        "parameters": count_bytes(own),
        "gradients": count_bytes(p.grad for p in own + copies),
        "optimizer": count_bytes(copies + moments),
    }


def per_parameter(held):
    parts = [nbytes / GPT_SIZE for nbytes in held.values()]
    return " + ".join(f"{part:g}" for part in parts) + f" = {sum(parts):g} bytes per parameter"


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


gpt = tiny_gpt(seed=0)
GPT_SIZE = sum(p.numel() for p in gpt.parameters())
some_tokens, some_targets = next(batches(1, 16))
optimizer = adam(gpt.parameters())
gpt.loss(some_tokens, some_targets).backward()
optimizer.step()
print(f"{GPT_SIZE:,} parameters")
print("fp32: ", per_parameter(hold(gpt, [optimizer])))

half = tiny_gpt(seed=0)
mixed = MixedPrecision(half, adam, torch.bfloat16)
mixed.backward(half.loss(some_tokens, some_targets))
mixed.step()
print("mixed:", per_parameter(hold(half, [mixed.optimizer])))
print("your guesses for fp32:", guessed(guess_parameter, guess_gradient, guess_optimizer))

# %% [markdown]
# **Explain.** Adam's two averages are each as large as the model, so in fp32 half of the memory
# belongs to the optimizer. Mixed precision halves parameter and gradient and adds an fp32 copy: 16
# bytes again, and now the optimizer has 12 of them. Below, the models compute in fp32, so that
# their losses can be compared with those of one process; the formulas of section 6 are for mixed
# precision.
#
# (Other programs count 18 bytes, as Megatron-LM does in bfloat16, where gradients are added up in
# fp32, or 20, with a 16-bit gradient beside the fp32 one. When two people disagree on whether a
# model fits, ask which of the three they mean.)
#
# ## 3. ZeRO-1: share the optimizer
#
# On N ranks there are N equal copies of the **optimizer state**, updated in the same way with the
# same gradient. One is enough.
#
# An all-reduce is a reduce-scatter followed by an all-gather
# ([lesson 02](02_ring_all_reduce.ipynb)). Between the two, every rank holds the finished sum of
# *its* part of the gradient:
#
# $$\text{gradients} \xrightarrow{\text{reduce-scatter}} \text{my part}
# \xrightarrow{\text{optimizer}} \text{my new parameters}
# \xrightarrow{\text{all-gather}} \text{all parameters}$$
#
# Put the optimizer there, and it needs state for its part only.
#
# The picture has the bytes of a model of four layers on every rank. Each layer is cut into as many
# shards as there are ranks, in the colours of their owners. What is empty is not there. ▶ goes
# through a step: compare DDP and ZeRO-1. (ZeRO-2 and ZeRO-3 follow in sections 4 and 5.)

# %%
zero_step_explorer()

# %% [markdown]
# To cut a model into equal parts, lay it out flat. Two helpers for that:


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
# The chunks are views of the row, so `dist.all_gather(list(row.chunk(n)), part)` fills the row
# itself.
#
# The two calls, in case you have not met them: `dist.reduce_scatter(mine, parts)` adds up
# `parts[r]` of all ranks and leaves the sum in rank r's `mine`; `dist.all_gather(parts, mine)`
# writes rank r's `mine` into everybody's `parts[r]`. Both return when the result is there. With
# `async_op=True` they return a handle at once, whose `wait()` returns when the result is there.
#
# ### Exercise 2: `zero1` (●● 20 minutes)
#
# - First make the ranks equal: rank 0's parameters count, the frozen ones too.
# - Lay all that is trainable in one row. The shard is a *clone* of this rank's chunk of it, made an
#   `nn.Parameter`. `make_optimizer([shard])` makes its optimizer.
# - `step()` is called after each backward: reduce-scatter the gradients, update, all-gather. A
#   reduce-scatter adds up, and an average is wanted. Before it returns, `step` drops the
#   gradient of the shard.
# - One reduce-scatter and one all-gather are all that a step needs. (What a step sends is counted.
#   With which of the calls below, and how the ranks become equal, is up to you.)


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
# **Predict.** Call it one *pass* when the whole model goes once through every rank's network card,
# as in a reduce-scatter or an all-gather. Plain data parallelism and your `zero1` take 2. How many
# does a `careless` one take that all-reduces the gradients and then gathers? (You need not read the
# cell that measures it; run it.)

# %%
### BEGIN SOLUTION
guess_careless = 3
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
    """Your zero1, with an all-reduce wherever it calls a reduce-scatter of dist."""

    def all_reduce_and_cut(mine, parts, op=dist.ReduceOp.SUM, **_):
        everything = parts if isinstance(parts, torch.Tensor) else torch.cat(parts)
        everything = everything.clone()
        dist.all_reduce(everything, op)
        mine.copy_(everything.chunk(dist.get_world_size())[dist.get_rank()].view_as(mine))
        return SimpleNamespace(wait=lambda: None)  # for those who ask for a handle

    # In this rank, which ends with the run. (The last name is what torch before 2.13 has.)
    for name in ("reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor"):
        setattr(dist, name, all_reduce_and_cut)
    return zero1(model, make_optimizer)


STEPS = 3


def train(method):
    """Train a small GPT. Returns the losses, and what is held between backward and step."""
    n, rank, made, losses = dist.get_world_size(), dist.get_rank(), [], []
    model = tiny_gpt(seed=0)

    def make_optimizer(parameters):
        made.append(adam(parameters))
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


def passes(run):
    """How often the model passed through rank 0 in a step; a pass is (n-1)/n of it."""
    n = run.trace.world_size
    moved = run.trace.within("training").traffic().sent[0]
    return moved / STEPS / (4 * GPT_SIZE * (n - 1) / n)


def mean_losses(run):
    """Over the ranks, by step."""
    return torch.tensor([losses for losses, _ in run]).mean(0)


def report(name, run):
    losses = " ".join(f"{loss:.3f}" for loss in mean_losses(run))
    print(f"{name:13} losses {losses}  passes {passes(run):.2f}  {per_parameter(run[0][1])}")


methods = [data_parallel, zero1, careless] if solved(zero1) else [data_parallel]
runs = {
    method.__name__: run_ranks(train, 4, method, observe="memory", timeout=50) for method in methods
}
for name, run in runs.items():
    report(name, run)
print("your guess:", guessed(guess_careless))

# %% [markdown]
# **Explain.** The optimizer went from 8 bytes to (4 + 8)/4 = 3: an fp32 shard and its two averages,
# a quarter of each. (This model computes in fp32, so the shard is a copy that data parallelism does
# not need. In mixed precision it is the fp32 copy that everyone needs.) It cost nothing: 2 passes,
# as before.
#
# The careless version is no invention. DeepSpeed's first ZeRO-1 all-reduced and then gathered; in
# March 2020 its authors wrote that the new one sends a third less.
#
# ## 4. ZeRO-2: share the gradients
#
# After the reduce-scatter a rank needs its own part of the gradient and no other. But in `zero1`
# the whole gradient is there when backward ends, 4 bytes per parameter. To never hold all of it,
# send each gradient as soon as it exists, inside backward, and free it at once.

# %%
zero_step("ZeRO-2")

# %% [markdown]
# ▶ shows it: in backward, the gradient of one layer at a time is whole. Of the layers behind it
# each rank has kept its own shard.
#
# ### Exercise 3: `zero2` (●● 15 minutes)
#
# - Now every parameter is cut by itself: its shard is a clone of this rank's chunk of `flatten([p],
#   n)`.
# - `p.register_post_accumulate_grad_hook(hook)` calls `hook(p)` in backward, as soon as `p.grad` is
#   complete. In the hook: reduce-scatter, keep this rank's part of the average in the shard's
#   `.grad`, set `p.grad` to `None`.
# - What is under way is memory too. Wait for each reduce-scatter before the next one starts, or let
#   it be one ahead at most.
# - `step()` updates, gathers, and drops the shards' gradients. The ranks start equal.
#
# (If you define hooks in a loop, remember that Python looks a name up when the hook *runs*. Take
# what a hook needs from its argument.)


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
if solved(zero2):
    runs["zero2"] = run_ranks(train, 4, zero2, observe="memory", timeout=50)
    report("zero2", runs["zero2"])

# %% [markdown]
# The gradient takes 4/4 = 1 byte, and the traffic is what it was. But one message per parameter is
# slow on a real network. DeepSpeed and the course's own `Zero2` collect *buckets* of some
# megabytes, and send one while backward fills the next.
#
# ## 5. ZeRO-3: share the parameters
#
# What is left are the parameters. A rank needs all of them, but not at the same time: a layer is
# needed while it runs forward, and once more while it runs backward. So fetch it just before, and
# free it just after.

# %%
zero_step("ZeRO-3")

# %% [markdown]
# At rest a rank has a quarter of everything. ▶ shows what comes on top: one layer, wherever the
# step is.
#
# Freeing has a catch. Autograd has saved the layer's weights for the backward pass, and if you give
# the parameter *other* memory, the old one stays. The trick is to take the memory away from under
# the tensor, and to put it back later. Whoever looks into this storage, the graph included, then
# sees what the next gather has written.

# %%
long_row = torch.ones(1000)
memory_below = long_row.untyped_storage()
view = long_row[:10]
memory_below.resize_(0)
print("freed:", memory_below.nbytes(), "bytes; the view keeps its shape", tuple(view.shape))
memory_below.resize_(4 * 1000)
long_row.fill_(7)
print("back: ", memory_below.nbytes(), "bytes; the view sees", view[0].item())

# %% [markdown]
# ### Exercise 4: `shard_layer` (●● 20 minutes)
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
# Lay the layer's parameters in one row with `flatten`, keep a clone of this rank's chunk, and let
# the parameters lie in the row. (`resize_` takes *bytes*: elements times `element_size()`.) Return
# three things:
#
# - `shard`: a parameter with this rank's chunk. It has memory of its own, so it survives when the
#   layer's is taken away.
# - `gather()`: gets the memory back, starts the all-gather into it and returns the handle
#   (`async_op=True`). It does not wait.
# - `release()`: takes the memory away.
#
# When `shard_layer` returns, the layer is released.


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
# ### Exercise 5: `zero3_step` (●●● 35 minutes)
#
# (Optional.) Now a whole step: forward and backward through a list of `units`. Each has
#
# - `unit.module`, the layer;
# - `unit.gather()` and `unit.release()`, as you wrote them;
# - `unit.reduce()`, which reduce-scatters the layer's gradients into the shard's `.grad` and frees
#   them, as in ZeRO-2.
#
# A gather takes time. So **prefetch**: before unit `i` runs, start the gather of the unit that
# comes next, and wait for it only when it is needed. Two layers are in memory at most, and none at
# the end. (The last unit may stay gathered between forward and backward, or be gathered again.)
#
# The backward pass must stop at each layer, so cut the graph between layers:
#
# ```python
# h = output.detach().requires_grad_()  # the next layer's input: the start of a new graph
# output.backward(h.grad)  # once the backward pass of what follows has filled h.grad
# ```
#
# The very first input, `x`, may be integers (tokens), and needs no gradient. `loss(h, y)` takes the
# last output. Return its value as a tensor, detached.
#
# Write it without prefetching first, then move the gathers forward. In the backward pass, release a
# layer before you reduce its gradients, so that its parameters and the row of its gradients need
# not lie in memory together. (The check takes either order.)


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
# With both, train the same GPT. Every method should have the losses of one process with the whole
# batch.
#
# **Predict.** On four ranks, in fp32: how many bytes per parameter are held as parameters, as
# gradients and for the optimizer? And how many passes does a step take?

# %%
### BEGIN SOLUTION
guess_zero3_parameters = 1
guess_zero3_gradients = 1
guess_zero3_optimizer = 2
guess_zero3_passes = 3
### END SOLUTION


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
    optimizer = adam(shards)
    with record_function("training"):
        for tokens, targets in batches(STEPS, 8 * n):
            x, y = tokens.chunk(n)[rank], targets.chunk(n)[rank]
            losses.append(float(zero3_step(units, x, y, token_loss)))
            held = hold(model, [optimizer])
            held["parameters"] += count_bytes(shards)  # they are the parameters, not a copy
            held["optimizer"] -= count_bytes(shards)
            optimizer.step()
            optimizer.zero_grad()
    return losses, held


if solved(held_bytes, shard_layer, zero3_step):
    runs["zero3"] = run_ranks(train_zero3, 4, observe="memory", timeout=50)
in_one_process = reference.train(tiny_gpt(seed=0), batches(STEPS, 8 * 4), adam)
one_process = torch.tensor(in_one_process.losses)
for name, run in runs.items():
    report(name, run)
    assert torch.allclose(mean_losses(run), one_process, atol=1e-4), name
print(f"{'one process':13} losses", " ".join(f"{loss:.3f}" for loss in one_process))
parts_guessed = guessed(guess_zero3_parameters, guess_zero3_gradients, guess_zero3_optimizer)
print(f"your guesses for zero3: {parts_guessed}; passes:", guessed(guess_zero3_passes))


def per_element(nbytes):
    return {kind: number / GPT_SIZE for kind, number in nbytes.items()}


stacked_bars(
    {name: per_element(run[0][1]) for name, run in runs.items() if name != "careless"},
    "bytes per parameter, held by rank 0 when backward has ended",
    "A small GPT in fp32 on four ranks",
)

# %% [markdown]
# **Explain.** Sixteen bytes on one GPU are four on four GPUs. The traffic is 3 passes: the
# parameters are gathered for forward and again for backward, and the gradients are
# reduce-scattered. No gather is needed after the optimizer's step, since the next forward pass
# fetches the parameters anyway. (If slightly less is printed for yours: the last unit stays
# gathered between its forward and its backward, so it is gathered only once.)
#
# (`course_lib.techniques.zero3` does the same with hooks, for any model. That is how FSDP does it.)
#
# ## 6. Formula and measurement
#
# ### Exercise 6: `zero_costs` (● 5 minutes)
#
# The accounts for mixed precision, 2 + 2 + 12 bytes. What does a rank hold per parameter of the
# model under stage 0 (data parallel), 1, 2 and 3? And how many elements does it send in a step, per
# parameter? In one pass a rank sends (n-1)/n of the model.


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
# **What was published.** Figure 1 of the ZeRO paper has 7.5 billion parameters on 64 GPUs:


# %%
def costs_by_the_library(stage, n):
    return model_state_bytes(1, n, stage), step_traffic_elements(1, stage) * (n - 1) / n


costs = yours_or(zero_costs, costs_by_the_library)
published = {0: 120, 1: 31.4, 2: 16.6, 3: 1.9}
rows = [["", "GB by your formula", "published"]]
for stage, gigabytes in published.items():
    rows.append([f"stage {stage}", f"{7.5 * costs(stage, 64)[0]:.2f}", gigabytes])
print(text.table(rows))

# %% [markdown]
# Your own runs computed in fp32, where the parts are 4 + 4 + 8. What they should hold, against what
# they held, to the byte and on every rank:

# %%
in_fp32 = {
    "data_parallel": (4, 4, 8),
    "zero1": (4, 4, 12 / 4),
    "zero2": (4, 4 / 4, 12 / 4),
    "zero3": (4 / 4, 4 / 4, 8 / 4),
}
rows = [["", "bytes by formula", "held, on every rank"]]
for name, formula in in_fp32.items():
    if name in runs:
        by_formula = [int(nbytes * GPT_SIZE) for nbytes in formula]
        equal = all(list(held.values()) == by_formula for _, held in runs[name])
        rows.append([name, f"{sum(by_formula):,}", "the same" if equal else "not the same"])
print(text.table(rows))

# %% [markdown]
# That is what is held when backward has ended. Within a step there is more: activations, layers
# that ZeRO-3 has gathered, messages on their way. With `observe="memory"` the recorder follows
# every storage. Here are the course's implementations, in bfloat16 with fp32 copies, 2 + 2 + 12, on
# four ranks.

# %% tags=["nbval-ignore-output"]
DEEP = 4  # layers
BIG_SIZE = sum(p.numel() for p in tiny_gpt(seed=0, layers=DEEP).parameters())
stages = {"Zero1": Zero1, "Zero2": partial(Zero2, bucket_bytes=50_000), "Zero3": Zero3}


def two_steps(stage):
    """The second one is typical: Adam's averages exist from the first on."""
    n, rank = dist.get_world_size(), dist.get_rank()
    model = tiny_gpt(seed=0, layers=DEEP).bfloat16()
    zero = stage(model, adam, master_dtype=torch.float32)
    for number, (tokens, targets) in enumerate(batches(2, 2 * n)):
        with record_function(f"step {number}"):
            zero.zero_grad()
            with record_function("forward"):
                loss = token_loss(model(tokens.chunk(n)[rank]), targets.chunk(n)[rank])
            with record_function("backward"):
                loss.backward()
            with record_function("update"):
                zero.step()


memory, labels = {}, {}
for name, stage in stages.items():
    trace = run_ranks(two_steps, 4, stage, observe="memory", timeout=50).trace
    memory[name] = trace.within("step 1").memory()
    passes_of_a_step = ("forward", "backward", "update")
    labels[name] = [label for label in trace.labels if label.name in passes_of_a_step]
kinds = ("parameters", "gradients", "optimizer")
print("rank 0, the most of each kind in the second step, in bytes per parameter")
rows = [["", *kinds]]
for name, held in memory.items():
    rows.append([name, *(f"{held.highest[0][kind] / BIG_SIZE:.1f}" for kind in kinds)])
print(text.table(rows))
memory_curves(memory, "one step of rank 0", labels=labels)

# %% [markdown]
# The activations rise in forward and fall in backward. The hill is as high in all three: ZeRO does
# nothing about it; [lesson 07](07_less_memory.ipynb) does. What differs is the ground that the hill
# stands on, and in `Zero3` the ground moves.
#
# - `Zero1` holds the whole gradient, and has its peak where the optimizer steps.
# - In `Zero2` backward makes the gradient piece by piece, and the pieces leave in buckets
#   ("communication").
# - In `Zero3` the parameters look like teeth: a layer comes, runs and goes, once forward and once
#   backward. In so small a model, the messages under way weigh more than they would in a large one.
#
# If you compare with 2 + 2 + 12: the recorder counts what an optimizer steps, here the shard's fp32
# copy, as parameters. So they are 2 + 4/4 = 3 under `Zero1`, and 8/4 = 2 are left for the
# optimizer. During the optimizer's step the shard also has a gradient in fp32, 4/4 = 1 more. (Under
# `Zero2` and `Zero3` the table has this 1 only: their 16-bit shard, 2/4, came out of a
# reduce-scatter, so it counts as communication.) Under `Zero3` the parameters are 2/4 + 4/4 = 1.5,
# and two whole layers in 16 bits come on top.
#
# **Explore.** The states by stage, against the memory of a device. "yours" is the GPT of the last
# cell; choose it together with 4 devices, and its measured states stand below what the formula
# says.
#
# - What is the first stage with which 7.5B fits on 16 V100s (32 GB)?
# - On how many of them does stage 1 fit?
# - How many A100s with 80 GB does GPT-3 need under stage 3, before any activation?
# - Is there a number of GPUs at which stage 1 is enough for GPT-3?

# %%
zero_explorer(own=memory, own_parameters=BIG_SIZE)

# %% [markdown]
# <details><summary>Answers</summary>
#
# - Stage 2: 2 + 14/16 = 2.9 bytes per parameter are 21.6 GB. Stage 1 has 4 + 12/16, which is 35.6
#   GB.
# - 4 + 12/N bytes for each of 7.5 billion are at most 32 GB from N = 45 on; of the slider's values,
#   64 is the first.
# - 16 bytes for each of 175 billion are 2800 GB, so 35 GPUs; of the slider's values, 64.
# - No. Parameters and gradients are never divided, and their 4 bytes come to 700 GB.
#
# </details>
#
# ## 7. Claims put to the test
#
# ### Four, eight and 64 times less memory
#
# "ZeRO-3 needs 64 times less memory on 8 GPUs" is in circulation, and so is "ZeRO-1 saves 4x,
# ZeRO-2 8x". Each has a source. The 64 is from the paper's figure, the 4 and the 8 from its list of
# the stages.
#
# **Predict.** What are the three factors at N = 8?

# %%
### BEGIN SOLUTION
guess_factor_1 = 2.91
guess_factor_2 = 4.27
guess_factor_3 = 8
### END SOLUTION

# %%
rows = [["times less memory", "stage 1", "stage 2", "stage 3"]]
for ranks in (2, 4, 8, 64, 1024):
    factors = [f"{16 / costs(stage, ranks)[0]:.2f}" for stage in (1, 2, 3)]
    rows.append([f"N = {ranks}", *factors])
print(text.table(rows))
print("your guesses for N = 8:", guessed(guess_factor_1, guess_factor_2, guess_factor_3))

# %%
if "zero3" in runs:
    on_8 = run_ranks(train_zero3, 8, timeout=50)
    factor = sum(runs["data_parallel"][0][1].values()) / sum(on_8[0][1].values())
    print(f"measured, your zero3 on 8 ranks against data parallel: {factor:.2f} times less")

# %% [markdown]
# **Explain.** Stage 3 divides everything by N: 8 times less on 8 GPUs, and 64 times less on 64,
# which is the number of GPUs in the paper's figure. 4x and 8x are limits for infinitely many GPUs.
# At N = 8 they are 2.91x and 4.27x, since 4 bytes (stage 1) or 2 bytes (stage 2) are never divided.
#
# ### "ZeRO has no extra communication"
#
# You have measured it. It is true of stages 1 and 2 (2 passes, like data parallel), and false of
# stage 3 (3 passes, 1.5 times as much) and of a careless stage 1.
#
# ## 8. The same by PyTorch itself
#
# PyTorch has both ends: `ZeroRedundancyOptimizer` is a stage 1 for `DistributedDataParallel`, and
# `fully_shard` (FSDP2) is stage 3. With `reshard_after_forward=False` FSDP keeps the gathered
# parameters from forward to backward.
#
# **Predict.** How many passes does each of the three take?

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
                "parameters": count_bytes(p.to_local() for p in own),
                "gradients": count_bytes(p.grad.to_local() for p in own),
                "optimizer": count_bytes(t.to_local() for t in states),
            }
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, held


both = {"data_parallel": runs["data_parallel"]}
both |= {f"your {name}": runs[name] for name in ("zero1", "zero3") if name in runs}
both |= {
    "ZeroRedundancyOptimizer": run_ranks(train_zero_redundancy, 4, observe="memory", timeout=50),
    "FSDP2": run_ranks(train_fsdp, 4, True, observe="memory", timeout=50),
    "FSDP2, kept": run_ranks(train_fsdp, 4, False, observe="memory", timeout=50),
}
rows = [["", "losses", "bytes sent per step", "passes", "bytes per parameter, by rank"]]
for name, run in both.items():
    losses = " ".join(f"{loss:.3f}" for loss in mean_losses(run))
    sent = run.trace.within("training").traffic().sent[0] // STEPS
    held = " ".join(f"{sum(held.values()) / GPT_SIZE:5.2f}" for _, held in run)
    rows.append([name, losses, f"{sent:,}", f"{passes(run):.2f}", held])
print(text.table(rows, left=2))
print("your guesses:", guessed(guess_zero_redundancy, guess_fsdp, guess_fsdp_kept))

# %% [markdown]
# **Explain.** All of them train the same model.
#
# - **FSDP2** is your stage 3: 3 passes, 4 bytes. The 4.02 is padding. FSDP2 cuts every parameter by
#   its rows, and the 9 rows of a position embedding give 3, 3, 3 and 0 on four ranks.
# - **FSDP2, kept** sends 2. But from a layer's forward to its backward the layer is whole, so at
#   the end of the forward pass a rank holds all parameters, as in stage 2. Llama 3 was trained like
#   that ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783), section 3.3): optimizer and
#   gradients sharded, parameters kept after the forward pass.
# - **ZeroRedundancyOptimizer** is the careless kind: `DistributedDataParallel` all-reduces the
#   gradients, and then every rank broadcasts the parameters that it has updated. It deals out whole
#   parameters, which comes out even here. (It holds 8/4 = 2 for the optimizer and you 3, since it
#   needs no copy in fp32.)
#
# **The peak.** What is held between backward and step is not what a device must have room for. All
# of these runs were watched with `observe="memory"`, so ask for the most that rank 0 held at any
# time in training:

# %% tags=["nbval-ignore-output"]
stacked_bars(
    {
        name: per_element(run.trace.within("training").memory().at_peak[0])
        for name, run in both.items()
    },
    "bytes per parameter, held by rank 0 at its peak",
    "The peak: the same runs",
    "{:.1f}".format,
)

# %% [markdown]
# Most peaks are inside backward. There some 6 bytes per parameter are activations, since model and
# batch are small, and hardly any gradients exist yet. The rest tells the methods apart.
#
# - **zero3**, as the course's solution has it, and **FSDP2** peak alike, at 4 bytes held and two
#   layers, the one that runs and the one on its way. If you reduce a layer's gradients before you
#   release it, yours peaks a little higher. This model has only two blocks, so two layers are
#   nearly all of it, and *kept* takes hardly more. With 48 blocks it would be two of 48.
# - **Your zero1** has its peak in `step()`, when the activations are gone: `flatten` lays all
#   gradients in a row, 4 bytes, and copies the row to pad it, 4 more. So it saves little at the
#   peak.
# - **ZeroRedundancyOptimizer** has its peak in the very first backward pass. Adam's averages, 2 of
#   its 10 bytes, are made by the first `step()`. What weighs there are the buffers of
#   `DistributedDataParallel`, 8 bytes: they are there in full before most gradients exist. (When
#   backward has ended, a gradient lies in `.grad` and in a bucket. With
#   `gradient_as_bucket_view=True` it is a view of the bucket, as in the course's `Zero1`.)
#
# **The time** (optional). Two ranks, one to a core, and a larger GPT; all methods take turns, so
# that they meet the same disturbances. What do you expect? Times are your machine's, and no test
# compares them.


# %%
def wide_gpt():
    return tiny_gpt(layers=4, hidden=128, seed=0)


def one_step(run, step, zero_grad):
    """A function that makes one training step with the model `run`."""
    n, rank = dist.get_world_size(), dist.get_rank()
    tokens, targets = next(batches(1, 16 * n))
    x, y = tokens.chunk(n)[rank], targets.chunk(n)[rank]

    def forward_backward_update():
        token_loss(run(x), y).backward()
        step()
        zero_grad()

    return forward_backward_update


def time_all(with_mine):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model0, model1, model3 = wide_gpt(), wide_gpt(), wide_gpt()
    ddp, ddp1 = (nn.parallel.DistributedDataParallel(wide_gpt()) for _ in range(2))
    ddp_adam = adam(ddp.parameters())
    redundancy = ZeroRedundancyOptimizer(ddp1.parameters(), torch.optim.Adam, lr=1e-3)
    course1, course3 = Zero1(model1, adam), Zero3(model3, adam)
    fsdp2 = fsdp(wide_gpt(), True)
    fsdp_adam = adam(fsdp2.parameters())
    steps = {"DistributedDataParallel": one_step(ddp, ddp_adam.step, ddp_adam.zero_grad)}
    if with_mine:
        steps["your zero1"] = one_step(model0, zero1(model0, adam), model0.zero_grad)
    steps |= {
        "the course's Zero1": one_step(model1, course1.step, course1.zero_grad),
        "ZeroRedundancyOptimizer": one_step(ddp1, redundancy.step, redundancy.zero_grad),
        "the course's Zero3": one_step(model3, course3.step, course3.zero_grad),
        "FSDP2": one_step(fsdp2, fsdp_adam.step, fsdp_adam.zero_grad),
    }
    return in_turns(steps, ready=dist.barrier)


# %% tags=["nbval-ignore-output"]
step_times(run_ranks(time_all, 2, "zero1" in runs, observe=False, timeout=60)[0])

# %% [markdown]
# **Explain.** The computation is the same in all of them, and on these cores a message is a copy
# between two processes. What differs is how many messages there are, and what else is copied.
#
# - **Your zero1** sends two messages in a step, the fewest of all. But it copies the gradients into
#   a row and the new parameters out of one. In the course's `Zero1` the parameters lie in the row.
# - **ZeroRedundancyOptimizer** all-reduces the gradients and then sends a broadcast for every
#   parameter.
# - **Stage 3** sends three messages per layer, and half as many bytes again, and the cores that
#   compute have to move them too. FSDP2 was made for GPUs, where a network card carries the
#   messages while the GPU computes.
#
# ## 9. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. A 13B model, mixed precision, GPUs with 80 GB, of which 30 are left for activations. How many
#    GPUs does each stage need?
#
#    <details><summary>Answer</summary>
#    50 GB are 3.85 bytes per parameter. Stage 1: 4 + 12/N, never. Stage 2: 2 + 14/N &le; 3.85, so N
#    = 8. Stage 3: 16/N &le; 3.85, so N = 5.
#    </details>
#
# 2. GPT-3 has 175 billion parameters. What does a rank send in a step under stage 3 on 1024 GPUs,
#    in 16 bits? How long does that take at 25 GB/s?
#
#    <details><summary>Answer</summary>
#    3 passes of 350 GB, 1.05 TB: 42 seconds. More GPUs do not make it less. This is why ZeRO-3
#    wants large batches, and why very large models use tensor and pipeline parallelism as well.
#    </details>
#
# 3. Adam on 5 ranks, a model of 3 trainable elements, stage 1. Who holds what?
#
#    <details><summary>Answer</summary>
#    The row is padded to 5 elements. Ranks 3 and 4 own one element of padding each: they update a
#    zero with a gradient of zero. Your zero1 was checked on this very case.
#    </details>
#
# ## 10. Assignment: `clip_across_shards` (●● 20 minutes)
#
# Large models are trained with *gradient clipping*: if the norm of the whole gradient is above
# `max_norm`, all of it is scaled down to that norm. The norm is the root of the sum of the squares
# of *all* elements, and now nobody has all elements.
#
# - `shards`: parameters of which every rank has a different part, perhaps an empty one.
# - `replicated`: parameters that all ranks have whole, with equal gradients (a bias that was not
#   worth cutting).
#
# Return the norm before clipping, and scale the gradients in place if it is above `max_norm`. Some
# `.grad` may be `None`, and some are float16, where the square of 256 is already infinite: square
# in a longer dtype. One number is enough to be sent. What goes wrong in real libraries: each
# rank clips by its own norm, so the parts of one model are scaled differently; replicated gradients
# count N times; a rank with nothing to add leaves early, and the others wait for ever.


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
# ## 11. What to read
#
# - Rajbhandari et al. 2020, *ZeRO* ([arXiv 1910.02054](https://arxiv.org/abs/1910.02054)): section
#   3 for the bytes, section 5 for the stages, section 7 for the traffic. Table 1 has the memory of
#   three models on 1 to 1024 GPUs.
# - Zhao et al. 2023, *PyTorch FSDP* ([arXiv 2304.11277](https://arxiv.org/abs/2304.11277)): how
#   prefetching, flat parameters and freeing memory look in a real library.
# - The course's `Zero1`, `Zero2` and `Zero3`: what you wrote, with buckets, overlap, parameter
#   groups, tied parameters and checkpoints. `import inspect`, then
#   `print(inspect.getsource(Zero1))` shows one here.
#
# **Next**: [lesson 07](07_less_memory.ipynb) shows where the 16 bits come from, and attacks what
# ZeRO leaves, the activations.
