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
# # 08 · 3D parallelism, and off the laptop
#
# **After this lesson you can**
#
# - say of any rank which layers, which part of them and which part of the batch it has;
# - lay out data, tensor and pipeline parallelism so that most bytes stay inside a node;
# - compute loss and gradient norm right where no rank has all of the model;
# - size a run: the bytes on a device, and the tokens that hide the traffic;
# - start the same program by `torchrun` on several nodes, kill a rank, and lose little.
#
# If you go on with the optional part, you can also
#
# - rank plans for a cluster that you do not have, by a planner of your own;
# - choose a mesh by a rule, for a given model and given machines.
#
# **You need** lessons 03 to 07, or the library's versions of what they build. **It takes** 80
# minutes to the end of section 8. All else is optional: 60 minutes for your own planner in section
# 7, 25 for the assignment, and the questions of section 9. The machine needs a minute. Each
# exercise says how hard it is (● a few lines, ●● two ideas together, ●●● the hard one) and how long
# it takes.

# %%
import os
import re
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace

import psutil
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from course_lib import check, guessed, hint, run_ranks, solved, yours_or
from course_lib.models import batches, tiny_gpt, train
from course_lib.simulate import DEVICES, MODELS, dgx_a100, model_state_bytes, plan
from course_lib.simulate.accuracy import error_table
from course_lib.simulate.planner_contest import leaderboard
from course_lib.simulate.planner_scores import TABLE_2
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.mesh import bytes_by_link as bytes_by_link_of_the_course
from course_lib.techniques.schedules import one_f_one_b
from course_lib.techniques.three_d import ThreeD
from course_lib.text import table
from course_lib.views.mesh_links import mesh_explorer
from course_lib.views.plan_explorer import plan_explorer

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
# GPT-3 once more: 175 billion parameters, 16 bytes each. You have 1024 A100s with 80 GB. Every
# technique so far helps. But with only one of them, the model does not fit, or the devices wait.

# %%
states = 16 * 175e9
print(f"model states           {states / 1e9:6.0f} GB; a device has 80")
print(f"tensor parallel, 8     {states / 8 / 1e9:6.0f} GB: all of a node, and it does not fit")
print(f"pipeline, 96 stages    {states / 96 / 1e9:6.0f} GB: fits, but 96 stages stand idle a lot")
print(f"ZeRO-3 over 1024       {states / 1024 / 1e9:6.1f} GB: fits, gathers 350 GB twice per step")

# %% [markdown]
# So they are combined. Megatron-LM (Narayanan et al., SC 2021) trained a trillion parameters on
# 3072 A100s: 8-way tensor parallel inside each node, 64 pipeline stages across nodes, 6 replicas.
# How to combine them, and in which proportion, is the subject of this lesson.
#
# ## 2. Coordinates
#
# A mesh has three axes. With the sizes pipeline 2, data 2, tensor 2 it has eight ranks, the corners
# of a cube:

# %%
from course_lib.views.mesh_cube import mesh_cube

mesh_cube(Mesh(pipeline=2, data=2, tensor=2), per_node=8)

# %% [markdown]
# The last axis moves fastest, like the seconds of a clock: 0 and 1 are one tensor group, and share
# every matrix of their layers. The next one is data: 0 and 2 have the same weights, and different
# samples. Pipeline is the slowest: rank 4 goes on with the layers where rank 0 ends.
#
# **Predict.** On a mesh of pipeline 4, data 8, tensor 8, on which stage is rank 200, and in which
# replica?

# %%
### BEGIN SOLUTION
guess_stage_of_200 = 3
guess_replica_of_200 = 1
### END SOLUTION

# %% [markdown]
# ### Exercise 1: `coordinates_of_rank` (● 5 minutes)
#
# A rank has a coordinate on every axis. Return them as a dict with the axes of `sizes`: on the mesh
# above, rank 3 has pipeline 0, data 1 and tensor 1.


# %% exercise="coordinates_of_rank"
def coordinates_of_rank(rank: int, sizes: dict[str, int]) -> dict[str, int]:
    """The coordinate of a rank on every axis; `sizes` has the outermost axis first."""
    ### BEGIN SOLUTION
    coordinates = {}
    for axis in reversed(sizes):
        rank, coordinates[axis] = divmod(rank, sizes[axis])
    return {axis: coordinates[axis] for axis in sizes}
    ### END SOLUTION


# %% check="coordinates_of_rank"
check(coordinates_of_rank)


# %%
def coordinates_by_the_library(rank, sizes):
    return Mesh(**sizes, order=tuple(sizes)).coordinates(rank)


coordinates = yours_or(coordinates_of_rank, coordinates_by_the_library)
two_hundred = coordinates(200, {"pipeline": 4, "data": 8, "tensor": 8})
print("rank 200:", ", ".join(f"{axis} {at}" for axis, at in two_hundred.items()))
print("your guesses:", guessed(guess_stage_of_200, guess_replica_of_200))

# %% [markdown]
# Stuck, here or later? `hint(coordinates_of_rank)` gives a nudge, `hint(coordinates_of_rank, 2)`
# more, and `hint(coordinates_of_rank, 3)` almost the answer.
#
# ### Exercise 2: `groups_along` (●● 10 minutes)
#
# A collective runs in a **process group**: the ranks that differ on one axis and agree on all
# others. Data parallel gradients of rank 0 meet those of rank 2, not of rank 1, which has other
# parts of the matrices.


# %% exercise="groups_along"
def groups_along(axis: str, sizes: dict[str, int]) -> list[list[int]]:
    """All groups along an axis; in each, ranks stand in the order of that axis."""
    ### BEGIN SOLUTION
    world_size = 1
    for size in sizes.values():
        world_size *= size
    groups = {}
    for rank in range(world_size):
        coordinates = coordinates_of_rank(rank, sizes)
        others = tuple(at for other, at in coordinates.items() if other != axis)
        groups.setdefault(others, []).append(rank)
    return list(groups.values())
    ### END SOLUTION


# %% check="groups_along"
check(groups_along)

# %% [markdown]
# **The same by PyTorch itself.** `init_device_mesh` makes all these groups in one call. Do they
# agree with yours?

# %%
CUBE = {"pipeline": 2, "data": 2, "tensor": 2}


def groups_of_torch():
    mesh = init_device_mesh("cpu", tuple(CUBE.values()), mesh_dim_names=tuple(CUBE))
    return {axis: dist.get_process_group_ranks(mesh.get_group(axis)) for axis in CUBE}


theirs = run_ranks(groups_of_torch, 8)
lines = [("axis", "groups of PyTorch's mesh", "yours")]
for axis in CUBE:
    found = sorted({tuple(groups[axis]) for groups in theirs})
    mine = sorted(map(tuple, groups_along(axis, CUBE))) if solved(groups_along) else None
    agree = "-" if mine is None else "the same" if mine == found else "others"
    lines.append((axis, "   ".join(" ".join(map(str, group)) for group in found), agree))
print(table(lines, left=2))

# %% [markdown]
# **Explore.** The same eight ranks on two nodes of four, with the groups of one rank in colours.
# Which of its groups leaves the node? Then let pipeline be the innermost axis: which one leaves it
# now, and what does it send? (Cutting sequences, "context", is
# [lesson 09](09_long_context.ipynb), and experts are [lesson 10](10_experts.ipynb).)

# %%
mesh_explorer(tensor=2, per_node=4)

# %% [markdown]
# <details><summary>Answers</summary>
#
# Only the pipeline group of rank 0 leaves the node: rank 4 is on the other. With pipeline innermost
# it stays inside, and the data group goes out instead: it sends gradients, once per step. (Section
# 4 lets the *tensor* axis leave the node, which costs more.)
#
# </details>

# %% [markdown]
# ## 3. A GPT on eight ranks
#
# `ThreeD` puts together what lessons 03 to 07 built, each in the groups of its axis: a tensor
# parallel GPT, cut into stages, with its gradients averaged over replicas. Open
# `course_lib/techniques/three_d/training.py`: there is little in it that you have not seen.
#
# Each run below trains the same GPT for four steps on the same batches, in float64.

# %%
STEPS, BATCH = 4, 16


def small_gpt():
    return tiny_gpt(layers=4, hidden=32, heads=4, seed=0).double()


def adam(groups):
    return torch.optim.AdamW(groups, lr=1e-2)


def train_on(mesh, zero=0):
    training = ThreeD(small_gpt(), mesh, one_f_one_b(mesh.pipeline, 4), adam, zero=zero)
    return [training.train_step(*batch).item() for batch in batches(STEPS, BATCH)]


alone = train(small_gpt(), batches(STEPS, BATCH), adam).losses
lines = [("loss", *(f"step {step + 1}" for step in range(STEPS)))]
lines.append(("one process", *(f"{loss:.6f}" for loss in alone)))
for mesh, zero in (
    (Mesh(pipeline=2, data=2, tensor=2), 0),
    (Mesh(pipeline=2, data=2, tensor=2), 1),
    (Mesh(pipeline=1, data=4, tensor=2), 2),
):
    losses = run_ranks(train_on, 8, mesh, zero, observe=False, timeout=60)[0]
    kind = f"ZeRO-{zero}" if zero else "no ZeRO"
    lines.append((f"{mesh}, {kind}", *(f"{loss:.6f}" for loss in losses)))
print(table(lines))

# %% [markdown]
# Eight processes, three kinds of parallelism, without ZeRO and with its stages 1 and 2: the losses
# of one process.
#
# ### Exercise 3: `loss_everywhere` (●● 10 minutes)
#
# Which rank knows the loss? Only a rank of the last stage computes one, and it is the mean over the
# samples of its own replica. For a log, or a decision that all ranks have to take alike, every rank
# needs the loss of the whole batch.
#
# `loss` is a float64 tensor of no dimensions, a single number; it is `None` on all stages but the
# last. Return the mean in the same form on every rank. `groups` has this rank's process group along
# each axis: `groups["pipeline"]`, `groups["data"]` and `groups["tensor"]`.


# %% exercise="loss_everywhere"
def loss_everywhere(
    loss: torch.Tensor | None, groups: dict[str, dist.ProcessGroup]
) -> torch.Tensor:
    """The mean over the whole batch, on every rank; `loss` is None except on the last stage."""
    ### BEGIN SOLUTION
    total = torch.zeros((), dtype=torch.float64)
    if loss is not None:
        total += loss
    dist.all_reduce(total, group=groups["pipeline"])
    dist.all_reduce(total, group=groups["data"])
    return total / dist.get_world_size(groups["data"])
    ### END SOLUTION


# %% check="loss_everywhere"
check(loss_everywhere)

# %% [markdown]
# To clip gradients one needs the norm of all of them, and here no rank has all. They have already
# been averaged over the data axis, so replicas are equal by now.
#
# **Predict.** A 2 x 2 x 2 mesh, and somebody adds up the squares of all ranks. The model is all
# matrices, split. By which factor is the norm too large?

# %%
### BEGIN SOLUTION
guess_factor = 2**0.5
### END SOLUTION

# %% [markdown]
# ### Exercise 4: `norm_on_a_mesh` (●● 15 minutes)
#
# Return the norm of the whole model's gradient, on every rank. `groups` is as in exercise 3. Ask of
# each axis: do its ranks have different elements of the gradient, or the same ones?
#
# One complication. A tensor group shares matrices, but not everything: a layer norm's weights are
# on each of its ranks. `split[i]` says whether `gradients[i]` is a part or a copy. Add up in
# float64.


# %% exercise="norm_on_a_mesh"
def norm_on_a_mesh(
    gradients: list[torch.Tensor], split: list[bool], groups: dict[str, dist.ProcessGroup]
) -> torch.Tensor:
    """The norm of the whole model's gradient, on every rank."""
    ### BEGIN SOLUTION
    parts = torch.zeros((), dtype=torch.float64)
    copies = torch.zeros((), dtype=torch.float64)
    for gradient, is_part in zip(gradients, split, strict=True):
        if is_part:
            parts += gradient.square().sum()
        else:
            copies += gradient.square().sum()
    dist.all_reduce(parts, group=groups["tensor"])
    total = parts + copies
    dist.all_reduce(total, group=groups["pipeline"])
    return total.sqrt()
    ### END SOLUTION


# %% check="norm_on_a_mesh"
check(norm_on_a_mesh)

# %%
print(f"each square is there for both replicas: sqrt(2) = {2**0.5:.6f}")
print("your guess:", guessed(guess_factor))

# %% [markdown]
# ## 4. Which axis goes where?
#
# Now the eight ranks stand on two nodes of four. Inside a node, A100s talk at 300 GB/s each way;
# between nodes, each has some 25 GB/s. So it matters who is neighbour to whom.
#
# ### Exercise 5: `bytes_by_link` (● 5 minutes)
#
# `matrix[a][b]` says how many bytes rank a sent to rank b, and the ranks fill the nodes in order.
# How many bytes stayed inside the nodes, and how many went between them?


# %% exercise="bytes_by_link"
def bytes_by_link(matrix: list[list[int]], ranks_per_node: int) -> tuple[int, int]:
    """(bytes inside nodes, bytes between nodes) of matrix[source][destination]."""
    ### BEGIN SOLUTION
    inside = between = 0
    for source, row in enumerate(matrix):
        for destination, sent in enumerate(row):
            if source // ranks_per_node == destination // ranks_per_node:
                inside += sent
            else:
                between += sent
    return inside, between
    ### END SOLUTION


# %% check="bytes_by_link"
check(bytes_by_link)

# %% [markdown]
# The recorder knows every byte of a training step. Two orders of the same axes:
#
# - tensor innermost: `pipeline, data, tensor`, as above, so that a tensor group is inside a node;
# - tensor outermost: `tensor, data, pipeline`, so that each tensor group has a rank on both nodes.

# %%
mesh_cube(Mesh(pipeline=2, data=2, tensor=2), per_node=4)

# %%
mesh_cube(Mesh(pipeline=2, data=2, tensor=2, order=("tensor", "data", "pipeline")), per_node=4)

# %% [markdown]
# The same cube, cut in two: between its stages, or through every layer.
#
# **Predict.** How many times as many bytes go between the nodes in the second order?

# %%
### BEGIN SOLUTION
guess_times_more_between = 8
### END SOLUTION


# %%
def one_step(mesh):
    training = ThreeD(small_gpt(), mesh, one_f_one_b(mesh.pipeline, 4), adam)
    with torch.profiler.record_function("the step"):
        training.train_step(*next(batches(1, BATCH)))


def trace_of_step(mesh):
    return run_ranks(one_step, 8, mesh, timeout=60).trace.within("the step")


by_link = yours_or(bytes_by_link, bytes_by_link_of_the_course)
crossing, traces = [], {}
lines = [("bytes of a step", "inside nodes", "between nodes")]
for name, order in (
    ("tensor innermost", ("pipeline", "data", "tensor")),
    ("tensor outermost", ("tensor", "data", "pipeline")),
):
    traces[name] = trace_of_step(Mesh(pipeline=2, data=2, tensor=2, order=order))
    inside, between = by_link(traces[name].traffic().matrix, 4)
    crossing.append(between)
    lines.append((name, f"{inside / 1e3:.0f} kB", f"{between / 1e3:.0f} kB"))
print(table(lines))
print(f"{crossing[1] / crossing[0]:.1f} times as much between the nodes")
print("your guess:", guessed(guess_times_more_between))

# %%
from course_lib.views.traffic_matrix import traffic_matrix

traffic_matrix(traces, per_node=4)

# %% [markdown]
# What lies in the upper right and the lower left quarter goes between the nodes. The heavy squares
# belong in the other two.
#
# **Explain.** In the first order only the pipeline's messages cross between the nodes, in the
# second only the tensor axis' all-reduces, and the factor is the ratio of the two. Count in
# activations of one microbatch. A stage has two blocks with four all-reduces each, and of an
# all-reduce on two ranks each rank sends $2\frac{t-1}{t} = 1$ activation: 8 for each rank. A
# pipeline cut is crossed once forward, by the ranks of stage 0, and once back, by those of stage 1:
# 1 for each rank. That makes 8; the all-reduces of the embedding and the head make it 9.
#
# This is the whole of the rule "tensor parallel inside a node, pipeline between nodes". A block
# sends four all-reduces of its activations along the tensor axis, in *every* layer; a pipeline
# sends them once per stage; the data axis sends gradients once per step. The model here is tiny. At
# GPT-3's size, one microbatch of one sequence, in bfloat16:

# %%
activation = 2 * 2048 * 12288  # bytes of one sequence
tensor_bytes = 4 * 2 * (8 - 1) / 8 * activation * 96 / 8  # 8 ranks, 96 layers in 8 stages
pipeline_bytes = 2 * activation
data_bytes = 2 * (16 - 1) / 16 * 2 * 175e9 / (8 * 8)  # 16 replicas
lines = [
    ("axis", "each rank sends", "how often"),
    ("tensor", f"{tensor_bytes / 1e9:5.2f} GB", "per microbatch"),
    ("pipeline", f"{pipeline_bytes / 1e9:5.2f} GB", "per microbatch, forward and back"),
    ("data", f"{data_bytes / 1e9:5.2f} GB", "per step, however many microbatches there are"),
]
print(table(lines, left=3))

# %% [markdown]
# ## 5. How large is it?
#
# ### Exercise 6: `bytes_per_device` (● 5 minutes)
#
# Weights and gradients in bfloat16, Adam in fp32: 2 + 2 + 12 bytes per parameter. Two axes divide
# the parameters. The third one makes copies, unless ZeRO shares them out.


# %% exercise="bytes_per_device"
def bytes_per_device(parameters: float, sizes: dict[str, int], zero: int) -> float:
    """Model states on one device: weights, gradients and Adam's state, in bytes."""
    ### BEGIN SOLUTION
    own = parameters / (sizes["tensor"] * sizes["pipeline"])
    weights = 2 / (sizes["data"] if zero >= 3 else 1)
    gradients = 2 / (sizes["data"] if zero >= 2 else 1)
    optimizer = 12 / (sizes["data"] if zero >= 1 else 1)
    return own * (weights + gradients + optimizer)
    ### END SOLUTION


# %% check="bytes_per_device"
check(bytes_per_device)


# %%
def bytes_by_the_library(parameters, sizes, zero):
    own = parameters / (sizes["tensor"] * sizes["pipeline"])
    return model_state_bytes(own, sizes["data"], zero)


on_a_device = yours_or(bytes_per_device, bytes_by_the_library)
MESHES = (
    {"pipeline": 8, "data": 16, "tensor": 8},
    {"pipeline": 2, "data": 64, "tensor": 8},
    {"pipeline": 1, "data": 1024, "tensor": 1},
)
lines = [("pipeline", "data", "tensor", "no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3")]
for sizes in MESHES:
    held = [on_a_device(175e9, sizes, zero) / 1e9 for zero in range(4)]
    lines.append((*sizes.values(), *(f"{gb:.1f}" for gb in held)))
print("GB of model states on each of 1024 devices")
print(table(lines, left=0))

# %%
from course_lib.simulate.memory_formulas import MIXED_ADAM
from course_lib.views.memory_bars import memory_bars


def states_by_purpose(sizes, zero):
    own = 175e9 / (sizes["tensor"] * sizes["pipeline"])
    alone = {
        "parameters": replace(MIXED_ADAM, gradient=0, optimizer=0),
        "gradients": replace(MIXED_ADAM, parameter=0, optimizer=0),
        "optimizer": replace(MIXED_ADAM, parameter=0, gradient=0),
    }
    return {
        purpose: model_state_bytes(own, sizes["data"], zero, part)
        for purpose, part in alone.items()
    }


memory_bars(
    {
        f"{' x '.join(map(str, sizes.values()))}, {f'ZeRO-{zero}' if zero else 'no ZeRO'}": (
            states_by_purpose(sizes, zero)
        )
        for sizes in MESHES
        for zero in range(4)
    },
    80e9,
    "GPT-3's states on a device, by pipeline x data x tensor and ZeRO",
)

# %% [markdown]
# And activations come on top ([lesson 07](07_less_memory.ipynb)). With 80 GB, GPT-3 fits on 8 x 16
# x 8 without any ZeRO, or with ZeRO-3 and without any tensor or pipeline parallelism. Which is
# faster?
#
# ## 6. A claim put to the test: "just use ZeRO-3"
#
# ZeRO-3 needs no change to the model. Its price is traffic: the parameters travel three times per
# step, in plain data parallelism twice. Does that matter? Only if it takes longer than the
# computation that it can hide behind.
#
# ### Exercise 7: `tokens_to_hide` (● 10 minutes)
#
# Let a device process $T$ tokens per step with $P$ parameters. It computes $6PT$ operations (2 for
# each parameter and token forward, 4 backward). It sends `volume` times the parameters, 2 bytes
# each, by a ring. From which $T$ on is computing at least as long as sending?


# %% exercise="tokens_to_hide"
def tokens_to_hide(volume: int, devices: int, flops: float, bandwidth: float) -> float:
    """Tokens per device and step, so that computing takes as long as sending."""
    ### BEGIN SOLUTION
    bytes_for_each_parameter = volume * (devices - 1) / devices * 2
    return bytes_for_each_parameter / bandwidth * flops / 6
    ### END SOLUTION


# %% check="tokens_to_hide"
check(tokens_to_hide)

# %% [markdown]
# $P$ has dropped out: a larger model computes more and sends more. What is left is the machine.
#
# **Predict.** On A100s at half of their peak, 25 GB/s each between nodes: how many tokens of GPT-3
# does ZeRO-3 need on each device, to hide all of its traffic? A sequence has 2048.

# %%
### BEGIN SOLUTION
guess_tokens = 6000
### END SOLUTION

# %%
half_of_peak = DEVICES["A100 SXM 80 GB"].half_flops / 2
if solved(tokens_to_hide):
    lines = [("tokens per device", "data parallel, ZeRO-1, -2", "ZeRO-3")]
    for name, rate in (("NVLink", 300), ("InfiniBand", 25), ("10 GbE", 1.25)):
        two, three = (tokens_to_hide(v, 1024, half_of_peak, rate * 1e9) for v in (2, 3))
        lines.append((f"{name}, {rate} GB/s", f"{two:,.0f}", f"{three:,.0f}"))
    print(table(lines))
print("your guess over 25 GB/s:", guessed(guess_tokens))

# %% [markdown]
# **Explain.** Over InfiniBand some 6200 tokens per device hide ZeRO-3, about three sequences. So a
# batch of 3072 sequences on 1024 A100s, 6144 tokens on each, just about hides it, and a batch of
# 512 cannot even give every device one sequence. **When to go from DDP to ZeRO-3?** When the model
# does not fit without it *and* the batch gives each device enough tokens, about `flops /
# bandwidth`. With fewer, tensor and pipeline parallelism let several devices work on one sequence.
#
# ## 7. A plan for a cluster that you do not have
#
# `plan` tries all meshes, schedules, stages of ZeRO and recomputations, with the formulas of this
# course, and ranks what fits. GPT-3, 1024 A100s, 1536 sequences per step:

# %%
plans = plan(MODELS["GPT-3 175B"], dgx_a100.with_nodes(128), global_batch=1536)
print(plans.text(rows=5, refusals=3))

# %% [markdown]
# "A program of today" has fused attention and sequence parallelism, and hides the traffic of data
# parallelism behind backward. It adds up gradients in fp32, 4 bytes instead of 2: in all 18 bytes
# per parameter, not 16. "Interleaved, 12" is 1F1B with 12 chunks of layers on each stage instead of
# one, which makes the bubble smaller (the optional part of [lesson
# 05](05_pipeline_parallel.ipynb)).
#
# The first rows follow the rule of section 4: tensor parallel inside a node, pipelines between
# nodes, replicas for the rest, with ZeRO-1, which adds no traffic. In the first one the tensor
# axis is 4 rather than 8, since a doubling sends more in every layer, and 4 fits. But only just:
# nobody would dare to start a run that leaves a fifth of a GB free, and the next rows cost little.
#
# How far to trust it? It knows nothing of jitter and of failures. Its two free numbers, how fast
# matrix products are and how often the rest passes over memory, were fitted to the ten models of
# Megatron-LM's Table 1. The last two lines below say how far off it is on these ten, and on 89
# published runs that set neither number. Twelve of those are shown, all of Table 2: GPT-3 and a
# model of 530 billion parameters, each by pipelines, tensor parallelism and replicas (PTD-P) and by
# ZeRO-3. The last column is about the mesh that the authors chose: its place in the planner's order
# of all meshes, and how much longer than with the first one a step takes, as planned.

# %%
print(error_table(rows=TABLE_2))

# %% [markdown]
# Look at ZeRO-3 on GPT-3. From 768 to 1536 GPUs the rate of each one halves, so twice as many are
# no faster at all. One ring of 25 GB/s carries all parameters three times per step (four times
# where all activations are recomputed), however many devices share the work.
#
# Take its ranking as advice, its seconds as a guess.
#
# **Explore.** Guess before you move the sliders. What happens to the tensor axis of the best mesh
# as the batch falls from 1536 to 128? As the nodes grow to 1024?

# %%
plan_explorer()

# %% [markdown]
# <details><summary>Answer</summary>
#
# Both leave fewer sequences per device, so replicas run out of work and more devices share a
# sequence: the tensor axis grows to 16, across two nodes, and a fifth of the step is its traffic.
#
# </details>
#
# ### Exercise 8: `price_plan` (●●● 60 minutes)
#
# (Optional.) Your own planner. You have counted all that it takes: states in exercise 6,
# activations in lesson 07, bubbles in lesson 05, all-reduces in lesson 04, rings in lesson 02,
# ZeRO's traffic in lesson 06. Given a model, a cluster and a way to train, say how many bytes the
# fullest device holds and how many seconds a step takes.
#
# - `model`: "parameters", "layers", "hidden", "heads", "seq", "vocab".
# - `cluster`: "devices", "per_node", "memory"; "flops", operations per second that matrix products
#   reach; "inside", bytes per second of a ring inside a node; "between", bytes per second of one
#   adapter to the network; "rings", the most adapters of a node that a ring can use at once.
# - `way`: "data", "tensor", "pipeline", "zero", "recompute", "micro_batch" in sequences,
#   "microbatches" of a replica in a step.
#
# What is to be counted:
#
# - The schedule is 1F1B. Parameters and gradients have 2 bytes, Adam 12. A layer keeps $34sbh/t$
#   bytes (with sequence parallelism, so the tensor axis divides all of it), or its input only,
#   $2sbh$, with recomputation.
# - The tensor axis is innermost, then comes data. So a data parallel group is inside a node if
#   `data * tensor` is at most "per_node". A larger one has `per_node // tensor` of its ranks on
#   each node (at least 1), and its ring uses as many adapters, but never more than "rings".
# - Tensor parallelism's all-reduces hide behind nothing.
# - Up to ZeRO-2 gradients are reduced once per step; with ZeRO-3 once per *microbatch*. Neither
#   hides behind anything. ZeRO-3 also gathers its parameters twice per microbatch. These two
#   gathers together hide behind the computation of that microbatch; only what is longer costs time.
# - Parameters are spread evenly over stages, embeddings too, so "vocab" is not needed. Leave out
#   what stages send to each other.
#
# Seconds need not be right. Their order has to be: over hundreds of ways to train a model, a rank
# correlation of 0.9 with the library's planner, and a first choice that costs at most 15 % more
# than the best. The same is asked of the twelve runs in Megatron-LM's Table 2, beside what was
# measured: 0.9 with the measured TFLOP/s of a device, and a first choice within 15 %.


# %% exercise="price_plan"
def price_plan(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """(bytes on the device that holds most, seconds of a step)."""
    ### BEGIN SOLUTION
    t, p, d, m = (way[name] for name in ("tensor", "pipeline", "data", "microbatches"))
    zero, again = way["zero"], way["recompute"]
    tokens, hidden = way["micro_batch"] * model["seq"], model["hidden"]
    own, layers = model["parameters"] / (t * p), model["layers"] / p

    states = model_state_bytes(own, d, zero)
    kept = tokens * hidden * (2 if again else 34 / t)
    held = states + kept * layers * min(p, m)

    compute = (8 if again else 6) * own * tokens / cluster["flops"]
    all_reduce = 2 * (t - 1) / t * 2 * tokens * hidden / cluster["inside"]
    talk = (6 if again else 4) * layers * all_reduce

    bandwidth = cluster["inside"]
    if d * t > cluster["per_node"]:
        adapters = min(cluster["rings"], max(1, cluster["per_node"] // t))
        bandwidth = adapters * cluster["between"]
    ring = (d - 1) / d * 2 * own / bandwidth
    data = 2 * ring
    if zero == 3:
        data = m * (ring + max(0, 2 * ring - compute))
    return held, (m + p - 1) * (compute + talk) + data
    ### END SOLUTION


# %% check="price_plan"
check(price_plan)

# %% [markdown]
# Now your planner competes with three rules of thumb, on four models from 7.5 to 530 billion
# parameters, and on the published runs. A rank correlation of 1 means that both order all ways
# alike. "First choice" says how much longer than the best one it takes, in the worst case. (Among
# the published runs, a planner chooses between PTD-P and ZeRO-3 where both were run on as many
# GPUs.)

# %%
if solved(price_plan):
    print(leaderboard(price_plan))

# %% [markdown]
# ## 8. Off the laptop
#
# Everything so far ran under `run_ranks`. The same techniques run under `torchrun`, PyTorch's own
# launcher, with no line changed. `course_lib.train` is such a program. On one node with eight GPUs:
#
# ```
# torchrun --nproc-per-node 8 -m course_lib.train \
#     --pipeline 2 --tensor 2 --zero 1
# ```
#
# On four nodes, the same line on each, with the first one's name as the meeting point:
#
# ```
# torchrun --nnodes 4 --nproc-per-node 8 \
#     --rdzv-backend c10d --rdzv-endpoint node0:29500 \
#     -m course_lib.train --pipeline 4 --tensor 8 \
#     --checkpoint /shared/run --save-every 100
# ```
#
# Under Slurm, `srun torchrun ...` does that on every node of the job. (`python -m course_lib.train
# --help` lists all options.)
#
# With thousands of devices, one of them fails every few hours. So a run saves itself, and
# `torchrun` can start all ranks again when one is lost (`--max-restarts`). How much is lost with
# it?
#
# Try it here: two agents on this machine play two nodes, with one rank each. At step 30 one of the
# ranks is killed, with the signal that no program can catch.
# (`TORCH_DISABLE_SHARE_RDZV_TCP_STORE` matters on several nodes: without it, ranks that start again
# may look for each other at the addresses of the attempt before, since each agent counts restarts
# by itself; PyTorch's issue 135712.)

# %%
TRAIN = [
    *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
    *("--max-restarts=2", "--rdzv-backend=c10d", "--rdzv-id=lesson", "--local-addr=127.0.0.1"),
]
OPTIONS = [
    *("-m", "course_lib.train", "--pipeline=2", "--microbatches=2", "--layers=1", "--hidden=16"),
    *("--batch=32", "--lr=1e-2", "--steps=120", "--save-every=20", "--log-every=1"),
]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def train_on_two_nodes(kill_at):
    """Start both agents, kill a rank of the second once; returns all that was printed."""
    read, write = os.pipe()
    environ = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        line = [*TRAIN, f"--rdzv-endpoint=127.0.0.1:{free_port()}", *OPTIONS]
        line += [f"--checkpoint={folder}/saved"]
        agents = [subprocess.Popen(line, env=environ, stdout=write, stderr=write) for _ in "ab"]
        os.close(write)
        try:
            printed, killed = [], False
            with open(read, encoding="utf-8") as output:
                for text in output:
                    printed.append(text.rstrip())
                    if text.startswith(f"step {kill_at:4}") and not killed:
                        psutil.Process(agents[1].pid).children()[0].kill()
                        killed = True
        finally:  # even if you interrupt the cell
            for agent in agents:
                agent.terminate()
                agent.wait()
    return printed


printed = train_on_two_nodes(kill_at=30)
said = "\n".join(printed)
resumed = int(re.search(r"resumed after step (\d+)", said)[1])
print("the run was started again, from a checkpoint:", resumed in range(20, 120, 20))

# %% [markdown]
# For comparison, one process that nobody disturbs:

# %% tags=["nbval-ignore-output"]
from course_lib.views.loss_curves import loss_curves

model = tiny_gpt(layers=1, hidden=16, heads=4, seed=0)
undisturbed = train(model, batches(120, 32), lambda p: torch.optim.AdamW(p, lr=1e-2)).losses


def losses_of(attempt):
    """The steps that an attempt has printed, and the loss at each."""
    found = re.findall(r"step +(\d+)  loss (\S+)", attempt)
    return [int(step) for step, _ in found], [float(loss) for _, loss in found]


first, second = map(losses_of, said.split("resumed after step", 1))
computed = first[0][-1]  # steps, some of them in vain
print(f"first attempt:  steps 1 to {computed}, then a rank is killed")
print(f"second attempt: steps {second[0][0]} to {second[0][-1]}")
print(f"lost: {computed - resumed} of {computed + len(second[0])} steps")
loss_curves(
    {
        "one process, undisturbed": (list(range(1, 121)), undisturbed),
        "two nodes, until a rank is killed": first,
        "two nodes, started again": ([computed + 1 + k for k in range(len(second[0]))], second[1]),
    },
    "steps computed",
    "loss of a run that is killed and started again",
    events={"a rank is killed": computed},
)

# %% [markdown]
# All ranks stop, since no rank can go on without its neighbours. They read the last checkpoint and
# repeat the steps since then. So the loss jumps back to where it was, and from there on the run is
# the undisturbed one, a few steps late. Does it end where it would have ended?

# %%
print("the same loss as one process:", abs(second[1][-1] - undisturbed[-1]) < 2e-3)

# %% [markdown]
# The checkpoint knows nothing of the mesh: it has whole tensors by their names in one process. So a
# run that loses a node for good can go on with the ranks that are left, on another mesh. Try it in
# a terminal. The second command goes on where the first one stopped, on half as many ranks:
#
# ```
# torchrun --nproc-per-node 4 -m course_lib.train \
#     --pipeline 2 --tensor 2 --steps 40 --save-every 20 --checkpoint run
# torchrun --nproc-per-node 2 -m course_lib.train \
#     --zero 3 --steps 80 --checkpoint run
# ```
#
# ## 9. Reflection, with numbers
#
# Three questions that the lessons so far have led up to, and a fourth. Answer each with numbers
# before you open its answer.
#
# 1. When do you go from DDP to ZeRO-3?
#
#    <details><summary>Answer</summary>
#    When 16 bytes per parameter and the activations do not fit: on 80 GB from about 4 billion
#    parameters on. ZeRO-1 and -2 come first, as they send no more than DDP: with many replicas they
#    hold 4 and 2 bytes per parameter. ZeRO-3 sends 1.5 times as much, which hides behind the
#    computation from about flops / bandwidth tokens per device on: 6200 for A100s over 25 GB/s, 520
#    inside a node.
#    </details>
#
# 2. Why pipeline between nodes, and tensor parallel inside one?
#
#    <details><summary>Answer</summary>
#    Tensor parallelism sends 8(t-1)/t times the activations in every layer: 4.2 GB per microbatch
#    for twelve layers of GPT-3, against 0.1 GB for a pipeline stage. Inside a node that takes 14 ms
#    at 300 GB/s; between nodes, at 25 GB/s, 170 ms, where the computation it belongs to takes 215
#    ms at half of an A100's peak. Most of it cannot hide, since the next layer waits for it.
#    </details>
#
# 3. What does activation checkpointing trade?
#
#    <details><summary>Answer</summary>
#    A second forward pass, a third more operations (4 instead of 3; 36 to 39 % were measured), for
#    activations of 2sbh bytes per layer instead of sbh(34 + 5as/h): for GPT-3 57 times less.
#    Selective recomputation costs 2.7 % and saves 70 %.
#    </details>
#
# 4. A run on 1024 devices has a failure every eight hours, and saving takes a minute. How often
#    should it save?
#
#    <details><summary>Answer</summary>
#    Saving every x minutes costs 1/x of the time, and a failure loses x/2 minutes of every 480. The
#    sum is smallest at x = sqrt(2 * 480 * 1) = 31 minutes, where both cost 3 %.
#    </details>
#
# ## 10. Assignment: `choose_mesh` (●● 25 minutes)
#
# Megatron-LM's rule, as its authors put it in takeaways 1 and 2: tensor parallelism up to the size
# of a node, pipeline parallelism from there on, only as much of both as is needed for the model to
# fit, and data parallelism for the rest. Make a function of it.
#
# - `model` has "parameters", "layers" and "heads"; `cluster` has "devices", "per_node", "memory".
# - With ZeRO-1 a device holds 4 + 12/d bytes for each of its parameters. They may fill 60 % of its
#   memory; the rest is for activations.
# - All devices are used. The tensor axis divides the heads, and it divides "per_node", so that
#   every tensor group is inside one node; the pipeline axis divides the layers.
# - In all that the check asks, at least one mesh fits.
# - Of all meshes that fit, the one with the fewest devices per replica; of several, the one with
#   the largest tensor axis.


# %% exercise="choose_mesh"
def choose_mesh(model: dict, cluster: dict) -> dict[str, int]:
    """{"pipeline": ..., "data": ..., "tensor": ...} by Megatron-LM's rule."""
    ### BEGIN SOLUTION
    fitting = []
    for tensor in range(1, cluster["per_node"] + 1):
        for pipeline in range(1, model["layers"] + 1):
            replica = tensor * pipeline
            data = cluster["devices"] // replica
            if cluster["devices"] % replica or cluster["per_node"] % tensor:
                continue
            if model["heads"] % tensor or model["layers"] % pipeline:
                continue
            need = model["parameters"] / replica * (4 + 12 / data)
            if need <= 0.6 * cluster["memory"]:
                mesh = {"pipeline": pipeline, "data": data, "tensor": tensor}
                fitting.append(((replica, -tensor), list(mesh.items())))
    return dict(min(fitting)[1])
    ### END SOLUTION


# %% check="choose_mesh"
check(choose_mesh)

# %% [markdown]
# The published meshes, from table 1 of the paper. The authors had other limits, and no ZeRO-1. So
# yours need fewer devices per replica:

# %%
lines = [("model", "devices", "published: pipeline", "tensor", "yours: pipeline", "tensor")]
for name, parameters, layers, heads, devices, published in (
    ("18.4B", 18.4e9, 40, 48, 256, (1, 8)),
    ("145.6B", 145.6e9, 80, 96, 1536, (8, 8)),
    ("1008B", 1008e9, 128, 160, 3072, (64, 8)),
):
    mine = ("-", "-")
    if solved(choose_mesh):
        model = {"parameters": parameters, "layers": layers, "heads": heads}
        found = choose_mesh(model, {"devices": devices, "per_node": 8, "memory": 80e9})
        mine = found["pipeline"], found["tensor"]
    lines.append((name, devices, *published, *mine))
print(table(lines))

# %% [markdown]
# ## 11. What to read
#
# - Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on GPU Clusters Using
#   Megatron-LM* ([arXiv 2104.04473](https://arxiv.org/abs/2104.04473)): sections 3 and 5, and the
#   takeaways.
# - Rajbhandari et al. 2020, *ZeRO* ([arXiv 1910.02054](https://arxiv.org/abs/1910.02054)), section
#   7: the traffic of each stage.
# - Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*
#   ([arXiv 2205.05198](https://arxiv.org/abs/2205.05198)): what of the activations to keep.
# - *The Llama 3 Herd of Models* ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783)), section
#   3.3: a mesh with four axes, and what fails in 54 days on 16,384 GPUs.
# - `course_lib/techniques/three_d`, `checkpoints` and `course_lib/train`: the run of section 8,
#   from the mesh to the checkpoint.
#
# You have built every part of a training system for clusters. What is left is to run it on one.
#
# **Next**: [lesson 09](09_long_context.ipynb) cuts what no axis has cut so far, the sequence.
