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
# # 00 · Ranks
#
# **After this lesson you can**
#
# - work out how many bytes it takes to train a model, and the fewest devices that hold them;
# - run plain `torch.distributed` code on real processes, from a cell;
# - send tensors between them without a deadlock, and build broadcast, all-gather and scatter from
#   such messages;
# - say before a run how many bytes each process will send;
# - read the report of a run that hangs, and name the process and the line that are wrong.
#
# **You need** to have trained a network on one device with PyTorch. **It takes** 90 minutes to the
# end of section 6, where the guided exercises are done, and 20 for the rest. The machine needs half
# a minute. Each exercise says how hard it is (● a few lines, ●● two ideas together, ●●● the hard
# one) and how long it takes.
#
# Cells marked **Predict** ask for a guess before you run what follows. Write it down even if you
# are not sure. A guess that turns out wrong is what you will remember.

# %%
import os

import torch
import torch.distributed as dist

from course_lib import RankTimeout, check, guessed, hint, run_ranks, solved, whose, yours_or

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
# GPT-3 has 175 billion parameters (Brown et al. 2020,
# [arXiv 2005.14165](https://arxiv.org/abs/2005.14165)). In float32 each of them takes 4 bytes.
# NVIDIA's A100, a GPU of the same year, has 80 GB of memory in its larger version.

# %%
from course_lib.views.devices_needed import devices_needed

weights = 175e9 * 4
print(f"GPT-3's weights: {weights / 1e9:.0f} GB = {weights / 80e9:.2f} A100s")
devices_needed({"GPT-3's weights": {"parameters": weights}}, 80e9)

# %% [markdown]
# So not even the weights fit on one device, nor on a machine with eight of them. This is the
# **memory wall**. And are the weights all that you have to hold?
#
# **Predict.** You train a small network in float32 with AdamW. How many bytes are in memory for
# each parameter after a step? Count all that belongs to a parameter, not the activations.

# %%
### BEGIN SOLUTION
guess_bytes = 16
### END SOLUTION

# %%
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 256)).square().mean().backward()
optimizer.step()

parameters = list(model.parameters())
count = sum(p.numel() for p in parameters)
held = {
    "weights": sum(p.nbytes for p in parameters),
    "gradients": sum(p.grad.nbytes for p in parameters),
    "optimizer": sum(t.nbytes for state in optimizer.state.values() for t in state.values()),
}
for what, nbytes in held.items():
    print(f"{what:10} {nbytes / count:5.2f} bytes per parameter")
print(f"{'all':10} {sum(held.values()) / count:5.2f}    your guess: {guessed(guess_bytes)}")

# %% [markdown]
# **Explain.** A gradient for each weight, and two running averages in Adam: four float32 numbers
# instead of one. Large models are trained in *mixed precision*: they compute with 16-bit numbers,
# and the optimizer keeps a float32 copy of the weights. That is much faster and halves the
# activations, but these bytes add up to the same:
#
# | bytes for each parameter | float32 | mixed precision |
# | :-- | --: | --: |
# | weights to compute with | 4 | 2 |
# | gradients | 4 | 2 |
# | optimizer: weights in float32 | – | 4 |
# | optimizer: average of the gradients | 4 | 4 |
# | optimizer: average of their squares | 4 | 4 |
# | **all** | **16** | **16** |
#
# The right-hand column is from Rajbhandari et al. 2020 (*ZeRO*,
# [arXiv 1910.02054](https://arxiv.org/abs/1910.02054), section 3.1). For GPT-3 that makes 175e9 ·
# 16 = 2.8 TB, or 35 A100s, before a single activation is stored.

# %%
in_training = {"parameters": 2 * 175e9, "gradients": 2 * 175e9, "optimizer": 12 * 175e9}
devices_needed({"GPT-3 in training, in mixed precision": in_training}, 80e9)

# %% [markdown]
# Five machines, and three quarters of their memory is the optimizer's. (There are other recipes.
# Megatron-LM keeps gradients in float32 as well and needs 18 bytes with bf16. The wall stays where
# it is.)
#
# That is not all the memory. The course has a recorder that can follow every tensor and say what it
# is for. Here are two steps of the same network, with a small batch and with a large one.
# (`run_ranks` runs the function in a process of its own, where it is watched. Section 2 is about
# that.)
#
# **Predict.** Which of these grows with the batch: `"parameters"`, `"gradients"`, `"optimizer"` or
# `"activations"`? (If several do, write them with commas.)

# %%
### BEGIN SOLUTION
guess_growing = "activations"
### END SOLUTION


# %%
def two_steps(rows):
    layers = torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(rows, 256)).square().mean().backward()
        optimizer.step()


watched = {
    f"batch of {rows}": run_ranks(two_steps, 1, rows, observe="memory").trace.memory()
    for rows in (8, 2048)
}
print("at most, in bytes per parameter")
for name, memory in watched.items():
    most = {kind: nbytes / count for kind, nbytes in memory.highest[0].items()}
    states = most["parameters"] + most["gradients"] + most["optimizer"]
    print(f"{name:13}  states {states:5.2f}   activations {most['activations']:5.2f}")
print("your guess:", guessed(guess_growing))

# %% tags=["nbval-ignore-output"]
from course_lib.views.memory_curves import memory_curves

memory_curves(watched, title="Two training steps")

# %% [markdown]
# **Explain.** The 16 bytes are the same for both. **Activations** are what the backward pass will
# need: they pile up forward, are given back on the way back, and grow with the batch. With 2048
# rows they are more than the 16 bytes. The optimizer's averages come into being in the first
# `step()` and stay. So with 2048 rows the second step needs more than the first, and a run that
# survives one step may run out of memory in the next.
#
# (The picture goes from one allocation or release to the next, not by the clock. Grey, "other", is
# what an operator needs for a while: in the backward pass the gradients of the activations, so with
# 2048 rows it is large too.)
#
# **Who solved it, and when.** No single idea did. Each of these spreads something else over the
# devices, and each has a lesson here:
#
# | what is spread | who | lesson |
# | --- | --- | --- |
# | batch over workers, parameters over servers | Dean et al. 2012, Li et al. 2014 | 01 |
# | batch, and the gradients summed in a ring | Sergeev & Del Balso 2018 (*Horovod*) | 02, 03 |
# | each matrix | Shoeybi et al. 2019 (*Megatron-LM*) | 04 |
# | the layers | Huang et al. 2019 (*GPipe*) | 05 |
# | weights, gradients and optimizer state | Rajbhandari et al. 2020 (*ZeRO*) | 06, 07 |
# | all of it at once | Narayanan et al. 2021 (*Megatron-LM*) | 08 |
# | a long sequence | Liu et al. 2023 (*Ring Attention*) | 09 |
# | the experts of a layer, a few for each token | Lepikhin et al. 2020 (*GShard*) | 10 |
#
# All of them are made of one thing: processes that send tensors to each other. That is what this
# lesson is about.
#
# ### Exercise 1: `memory_wall` (● 5 minutes)
#
# No ranks yet. Put the arithmetic above into a function, for any model and device. (What is always
# enforced, below, holds for all exercises of the course. Some of its words have their turn later.)

# %% exercise="memory_wall"
import math


def memory_wall(parameters: int, device_bytes: int) -> tuple[int, int, int]:
    """Returns (hold, train, devices).

    hold: bytes of the weights in float32. train: bytes of weights, gradients and optimizer state
    with Adam in mixed precision. devices: the fewest whose memories together hold `train`.
    """
    ### BEGIN SOLUTION
    hold = 4 * parameters
    train = 16 * parameters
    return hold, train, math.ceil(train / device_bytes)
    ### END SOLUTION


# %% check="memory_wall"
check(memory_wall)

# %% [markdown]
# `check` runs your function on inputs that you do not see and says whether it is right. If you are
# stuck, ask for a hint. Level 1 is a nudge, level 3 almost the answer.

# %%
hint(memory_wall)

# %% [markdown]
# ## 2. One program, many ranks
#
# Distributed training starts the *same* program several times. Each copy is called a **rank** and
# has a number, from 0 up. How many there are is the **world size**. On a cluster each rank has a
# GPU, and PyTorch hands its messages to a library called NCCL. Here each rank is a process on your
# CPU, and the library is gloo; the code is the same.
#
# The next cell starts four of them. `%%ranks 4` runs the cell on four ranks and shows what each
# printed, and the value of its last line.

# %%
# %load_ext course_lib

# %%
# %%ranks 4
rank, world_size = dist.get_rank(), dist.get_world_size()
print(f"I am rank {rank} of {world_size}")
10**rank

# %% [markdown]
# The lines are in the order of the ranks, not of time. The ranks ran side by side, and which of
# them printed first says nothing about which is faster.
#
# They are real processes. `run_ranks` does the same for a function, and gives back what each rank
# returned:

# %%
process_ids = run_ranks(os.getpid, 4)
print(len({os.getpid(), *process_ids}), "different processes: four ranks and this notebook")

# %% [markdown]
# **Predict.** Each of four ranks appends its number to `log`. How many entries has the notebook's
# `log` afterwards?

# %%
### BEGIN SOLUTION
guess_entries = 0
### END SOLUTION

# %%
log = []


def remember():
    log.append(dist.get_rank())
    return log


logs = run_ranks(remember, 4)
print(logs)
print("in the notebook:", len(log), "entries; your guess:", guessed(guess_entries))

# %% [markdown]
# **Explain.** Each rank got a *copy* of the function and of `log`, and changed its copy. Ranks
# share no memory, neither with each other nor with the notebook. Whatever one of them needs to know
# of another must be sent. (Only what your function returns comes back to the notebook.)
#
# ### Exercise 2: `rank_tensor` (● 5 minutes)
#
# The same line of code, another result on each rank: that is how all distributed code begins. First
# look at what the check says to an answer that is wrong.


# %% tags=["raises-exception"]
def rank_tensor(size):
    return torch.zeros(size)


check(rank_tensor)


# %% exercise="rank_tensor"
def rank_tensor(size: int) -> torch.Tensor:
    """A float32 tensor of `size` elements, all equal to the number of this rank."""
    ### BEGIN SOLUTION
    return torch.full((size,), dist.get_rank(), dtype=torch.float32)
    ### END SOLUTION


# %% check="rank_tensor"
check(rank_tensor)

# %% [markdown]
# ## 3. One message
#
# `dist.send(tensor, dst=...)` and `dist.recv(tensor, src=...)` are the two ends of a message.


# %%
def one_message():
    if dist.get_rank() == 0:
        x = torch.tensor([1.0, 2.0, 3.0])
        dist.send(x, dst=1)
    else:
        x = torch.empty(3)  # a place for what will arrive
        dist.recv(x, src=0)
    return x


results = run_ranks(one_message, 2)
print(results)
print(results.trace.traffic())

# %% [markdown]
# Three things to notice.
#
# - `recv` returns no tensor. It *fills* the one that you give it, so you must know the shape and
#   dtype of what arrives.
# - Both ends name each other: `dst=1` on rank 0, `src=0` on rank 1. A `send` without its `recv`
#   goes nowhere.
# - Both calls **block**: each comes back only when the other rank has taken part and the message
#   has been handed over.
#
# The table is what a recorder saw. It watches your plain `torch.distributed` calls from outside: 3
# float32 values are 12 bytes. The checks use it too. They know what your ranks sent, not only what
# they returned.
#
# ### Exercise 3: `ping_pong` (●● 10 minutes)
#
# Ranks 0 and 1 play, rank 0 begins. Whoever has the ball adds 1 to it and sends it to the other. A
# round is one hit each. If there are more ranks, they watch.


# %% exercise="ping_pong"
def ping_pong(ball: torch.Tensor, rounds: int) -> list[int]:
    """Play `rounds` rounds. A player returns the numbers it received, a spectator [].

    ball: one int64. On rank 0 it holds the start; elsewhere it is only a place to receive into.
    Starting from 0, two rounds give [2, 4] on rank 0, [1, 3] on rank 1, [] on every other.
    """
    ### BEGIN SOLUTION
    seen = []
    if dist.get_rank() == 0:
        for _ in range(rounds):
            ball += 1
            dist.send(ball, dst=1)
            dist.recv(ball, src=1)
            seen.append(ball.item())
    elif dist.get_rank() == 1:
        for _ in range(rounds):
            dist.recv(ball, src=0)
            seen.append(ball.item())
            ball += 1
            dist.send(ball, dst=0)
    return seen
    ### END SOLUTION


# %% check="ping_pong"
check(ping_pong)

# %% [markdown]
# Your game on three ranks, as recorded. A block is a ball that has arrived, time goes from left to
# right, and ▶ plays it. (A round of the picture is one hit.)


# %%
from IPython.display import display

from course_lib.observe import arrivals
from course_lib.views.moving_values import moving_values


def three_rounds():
    ball = torch.zeros(1, dtype=torch.int64)
    with arrivals() as arrived:
        seen = ping_pong(ball, 3)
    return [0], arrived, seen


if solved(ping_pong):
    game = run_ranks(three_rounds, 3)
    display(moving_values(game.trace, *zip(*game, strict=True), title="ping-pong"))

# %% [markdown]
# ## 4. When it hangs
#
# A program on one device crashes and shows its line. A distributed one often just stops: a rank
# waits for something that never comes. PyTorch's default patience is 30 minutes with gloo
# (`dist.default_pg_timeout`) and 10 with NCCL, and what a rank says then is about that rank only.
# Here a hang ends after about two seconds, with a report on all of them. Break things on purpose
# now, while it is cheap.
#
# ### Both send first
#
# **Predict.** Two ranks want to swap tensors. Both send, then both receive. What happens:
# `"works"`, `"hangs in send"` or `"hangs in recv"`?

# %%
### BEGIN SOLUTION
guess_swap = "hangs in send"
### END SOLUTION


# %% tags=["raises-exception"]
def swap():
    other = 1 - dist.get_rank()
    mine, theirs = torch.full((3,), float(dist.get_rank())), torch.empty(3)
    dist.send(mine, dst=other)
    dist.recv(theirs, src=other)
    return theirs


print("your guess:", guessed(guess_swap))
run_ranks(swap, 2)

# %% [markdown]
# Read it from the top. One row for each rank: what it waits for, and the line in which it waits.
# Then why that cannot end, and what to try. Both ranks stand in the *first* of the two lines. A
# `send` comes back when the other side receives, and nobody gets as far as receiving.
#
# Two repairs. One rank receives first, as in your ping-pong. Or the send only *begins*, with
# `isend`, and is waited for later:


# %%
def swap_with_isend():
    other = 1 - dist.get_rank()
    mine, theirs = torch.full((3,), float(dist.get_rank())), torch.empty(3)
    sending = dist.isend(mine, dst=other)  # begins, and comes back at once
    dist.recv(theirs, src=other)
    sending.wait()  # only now is `mine` free again
    return theirs


run_ranks(swap_with_isend, 2)

# %% [markdown]
# ### The two ends do not fit
#
# A message is only bytes. It does not carry its shape or its dtype.
#
# **Predict.** Rank 0 sends `torch.ones(2)`, which is float32. Rank 1 receives into an *int32*
# tensor of the same size. What does rank 1 get: `"an error"`, `"[1, 1]"` or `"something else"`?

# %%
### BEGIN SOLUTION
guess_int = "something else"
### END SOLUTION


# %%
def floats_into_ints():
    if dist.get_rank() == 0:
        dist.send(torch.ones(2), dst=1)
        return None
    x = torch.zeros(2, dtype=torch.int32)
    dist.recv(x, src=0)
    return x


print(run_ranks(floats_into_ints, 2))
print("your guess:", guessed(guess_int))

# %% [markdown]
# 1065353216 is hexadecimal 3F800000: the four bytes of the float 1.0, read as an integer. Torch
# says nothing, and the number is wrong. The warning above is the course's: it has seen both ends.
# If too *few* bytes arrive, torch is just as silent, and the rest of the receiver's tensor stays as
# it was. It refuses only too *many* bytes:


# %% tags=["raises-exception"]
def three_into_two():
    if dist.get_rank() == 0:
        dist.send(torch.ones(3), dst=1)
    else:
        dist.recv(torch.empty(2), src=0)


run_ranks(three_into_two, 2)

# %% [markdown]
# ### A rank leaves early
#
# A number should be handed down from rank 3 to rank 0. One rank has a `return` too early.
#
# **Predict.** Read the cell first. Which ranks wait for ever, and which one has to be mended?

# %%
### BEGIN SOLUTION
guess_waiting = [0, 1, 2]
guess_to_mend = 3
### END SOLUTION


# %%
def hand_down():
    rank, x = dist.get_rank(), torch.tensor([42.0])
    if rank == 3:
        return "done"
    dist.recv(x, src=rank + 1)
    if rank > 0:
        dist.send(x, dst=rank - 1)
    return x.item()


try:
    run_ranks(hand_down, 4)
except RankTimeout as error:
    stuck = error
print(stuck.report)
print("your guesses:", guessed(guess_waiting, guess_to_mend))

# %% [markdown]
# Three ranks hang, and all three are innocent. Rank 0 waits for rank 1, which waits for rank 2,
# which waits for rank 3. To find the culprit, draw an arrow from each waiting rank to the one that
# it waits for, and follow the arrows. The picture is called the **wait-for graph**:

# %%
from course_lib.views.hang import hang

hang(stuck.trace, {})

# %% [markdown]
# There are only two ways to end. At a rank that waits for nobody: it has returned, raised an error
# or is still computing. Or in a circle, as in `swap`: $0 \to 1 \to 0$. A circle is a **deadlock**
# (Coffman, Elphick & Shoshani, *System Deadlocks*, ACM Computing Surveys 1971).
#
# ### Exercise 4: `blame` (●● 20 minutes)
#
# Write the function that does it: arrows in, culprits out. No ranks are needed here, it is plain
# Python.


# %% exercise="blame"
def blame(waits: dict[int, int | None]) -> list[int]:
    """The ranks where the arrows end, sorted.

    waits[rank]: the rank that this one waits for; None if it waits for nobody.
    {0: 1, 1: 2, 2: None} gives [2], {0: 1, 1: 2, 2: 1} gives [1, 2]. A rank that waits for nobody
    and that nobody waits for is innocent. There can be several troubles at once.
    """
    ### BEGIN SOLUTION
    guilty = set()
    for rank in waits:
        path = []
        while waits[rank] is not None and rank not in path:
            path.append(rank)
            rank = waits[rank]
        if rank in path:  # a circle: from the first visit to this rank on
            guilty.update(path[path.index(rank) :])
        elif path:  # somebody waits for it
            guilty.add(rank)
    return sorted(guilty)
    ### END SOLUTION


# %% check="blame"
check(blame)

# %% [markdown]
# Now the hang above, which really happened. The recorder knows what each rank waits in. Your
# function names the one to look at:

# %%
waits = {}
for rank in range(4):
    event = stuck.trace.waiting(rank)
    waits[rank] = event.peer if event else None
print(waits)
if solved(blame):
    print("to blame:", blame(waits))

# %% [markdown]
# ## 5. From messages to collectives
#
# So far two ranks talked to each other. What training needs are **collectives**: operations that
# all ranks call together. They are made of messages, and you can make them yourself. For reference,
# the calls of this lesson:
#
# | call | returns | comes back when |
# | --- | --- | --- |
# | `dist.send(x, dst=...)` | nothing | the receiver has taken it |
# | `dist.recv(x, src=...)` | the sender's rank, *not* the tensor | `x` is filled |
# | `dist.isend(...)`, `dist.irecv(...)` | a `Work` | at once; `work.wait()` when it is done |
# | `dist.broadcast(x, src=...)` | nothing | `x` is filled (on the root: handed over) |
# | `dist.all_gather(tensors, x)` | nothing | all in the list `tensors` are filled |
# | `dist.barrier()` | nothing | every rank has called it |
#
# ### Exercise 5: `broadcast_by_sends` (● 5 minutes)
#
# Training begins with it: rank 0 has the weights, and every rank needs the same ones. Afterwards
# `tensor` holds on *every* rank what it held on the root. Write it with `send` and `recv` (or
# `isend` and `irecv`). Which way the tensor travels is up to you, but the check counts: every rank
# other than the root must receive it exactly once. The tensor can have any shape, even none: a
# single number is a tensor of no dimensions.


# %% exercise="broadcast_by_sends"
def broadcast_by_sends(tensor: torch.Tensor, root: int) -> None:
    """Copy rank `root`'s tensor into everyone's `tensor`, in place, as dist.broadcast does."""
    ### BEGIN SOLUTION
    if dist.get_rank() == root:
        for other in range(dist.get_world_size()):
            if other != root:
                dist.send(tensor, dst=other)
    else:
        dist.recv(tensor, src=root)
    ### END SOLUTION


# %% check="broadcast_by_sends"
check(broadcast_by_sends)

# %% [markdown]
# ### Exercise 6: `all_gather_by_sends` (●● 10 minutes)
#
# Every rank has a tensor, and every rank needs all of them. You have a function for "one to all",
# so one way is short. The check counts again: each rank sends its tensor to the $n-1$ others and
# receives $n-1$. Sending everything through rank 0 gives the right result and fails. Leave `tensor`
# as it is, and give every entry of the list memory of its own, this rank's entry too.


# %% exercise="all_gather_by_sends"
def all_gather_by_sends(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of all ranks, in rank order, on every rank; each in memory of its own."""
    ### BEGIN SOLUTION
    pieces = []
    for root in range(dist.get_world_size()):
        piece = tensor.clone() if dist.get_rank() == root else torch.empty_like(tensor)
        broadcast_by_sends(piece, root)
        pieces.append(piece)
    return pieces
    ### END SOLUTION


# %% check="all_gather_by_sends"
check(all_gather_by_sends)

# %% [markdown]
# ## 6. The same by PyTorch, side by side
#
# **Predict.** 1000 float32 values on four ranks: 4000 bytes each. In *your* broadcast from rank 0,
# how many bytes does rank 0 send? In your all-gather, how many does each rank send?

# %%
### BEGIN SOLUTION
guess_broadcast = 12_000
guess_all_gather = 12_000
### END SOLUTION


# %%
def all_gather_by_pytorch(tensor):
    pieces = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, tensor)
    return pieces


def spread_from_0(broadcast):
    x = torch.full((1000,), dist.get_rank() + 1.0)
    broadcast(x, 0)
    return x[0].item()


def collect_all(all_gather):
    x = torch.full((1000,), dist.get_rank() + 1.0)
    return [piece[0].item() for piece in all_gather(x)]


my_broadcast = yours_or(broadcast_by_sends, dist.broadcast)
my_all_gather = yours_or(all_gather_by_sends, all_gather_by_pytorch)
BROADCAST, ALL_GATHER = f"{whose(my_broadcast)} broadcast", f"{whose(my_all_gather)} all-gather"
runs = {
    BROADCAST: run_ranks(spread_from_0, 4, my_broadcast),
    "dist.broadcast": run_ranks(spread_from_0, 4, dist.broadcast),
    ALL_GATHER: run_ranks(collect_all, 4, my_all_gather),
    "dist.all_gather": run_ranks(collect_all, 4, all_gather_by_pytorch),
}
for name, run in runs.items():
    print(f"{name:15}  rank 2 has {run[2]!s:20}  sent {run.trace.traffic().sent}")
print("your guesses:", guessed(guess_broadcast, guess_all_gather))

# %%
from course_lib.views.traffic_matrix import traffic_matrix

traffic_matrix({name: run.trace for name, run in runs.items() if "broadcast" in name})

# %%
traffic_matrix({name: run.trace for name, run in runs.items() if "gather" in name})

# %% [markdown]
# **Explain.** Read a row as "this rank sends to ...". The values are the same, and so are the
# totals: 12,000 bytes for the broadcast, 48,000 for the all-gather. No algorithm gets by with
# fewer, since every rank must receive what it does not have. What differs is *who* carries it. A
# root that sends to each rank in turn, as in the solution, carries all of it, while in a chain
# every rank takes one tensor in and hands one on, but for the two at its ends.
# [Lesson 02](02_ring_all_reduce.ipynb) is about this difference.
#
# One honest remark. Your messages were counted one by one as they went out. What `dist.broadcast`
# does inside cannot be seen from Python, so the recorder has to share out its bytes by a standard
# algorithm. It takes a chain for broadcast and a ring for all-gather.
#
# ### See it: the values on their way
#
# One number per rank now, so that you can follow each. In the picture time goes from left to right.
# A block has the colour of the rank that it comes from, and ▶ lets them fly. A click on a block
# shows the line of yours that received it.

# %%
from course_lib.observe.collective_calls import PYTORCHS, call_each, what_moved
from course_lib.views.moving_values import moving_explorer


def broadcast(x):
    my_broadcast(x, 0)
    return x


# Each with the count of numbers that every rank puts in.
collectives = {ALL_GATHER: (my_all_gather, 1), BROADCAST: (broadcast, 1), **PYTORCHS}
called = run_ranks(call_each, 4, collectives)
moving_explorer(what_moved(called.trace, called))

# %% [markdown]
# In how many rounds is your all-gather done? A round with few blocks is one in which most ranks
# wait.
#
# <details><summary>Answer</summary>
#
# Four broadcasts in turn, as in the solution, take 11 rounds, and in all but one of them a single
# block travels. (`dist.all_gather` is drawn as one round, since nobody sees inside.)
#
# </details>

# %% [markdown]
# The last three collectives are for later lessons. `all_reduce` leaves the sum on every rank. For
# `reduce_scatter` and `all_to_all_single` each rank puts in a number for every rank: the first adds
# up what is meant for a rank, the second hands it over.
#
# ### See it: who waits
#
# Bytes are not time. Here is your broadcast again, recorded on eight ranks and **replayed**: each
# rank keeps the order of its calls, and each message takes one unit of time. As soon as a rank has
# the tensor and nothing left to send, it trains for one unit. Below it is a *tree* of sends, as
# libraries do it where time counts: every rank that has the tensor hands it on, so that their
# number doubles in each unit. (You need not read the next cell of code; run it.)
#
# **Predict.** After how many units does the last rank begin to train, if the root sends to each
# rank in turn, and in the tree?

# %%
### BEGIN SOLUTION
guess_one_by_one = 7
guess_tree = 3
### END SOLUTION

# %%
from dataclasses import replace
from types import SimpleNamespace

from course_lib.simulate import Link, dgx_a100, replay
from course_lib.techniques.collectives import tree_broadcast
from course_lib.views.gantt_chart import gantt_chart

one_unit = replace(dgx_a100, inside=Link("one unit for 4000 bytes", 0, 4000))


def then_train(trace):
    """The replay of a run, and one unit of training behind it."""
    later = max(event.done for event in trace.events) + 1
    training = [
        SimpleNamespace(rank=rank, name="train", start=later, seconds=1)
        for rank in range(trace.world_size)
    ]
    return replay(trace, one_unit, compute=training)


def in_a_tree(x, root):
    tree_broadcast(x)  # from rank 0, which is the root here


replayed = {
    BROADCAST: then_train(run_ranks(spread_from_0, 8, my_broadcast).trace),
    "a tree of sends": then_train(run_ranks(spread_from_0, 8, in_a_tree).trace),
}
print("your guesses:", guessed(guess_one_by_one, guess_tree))
gantt_chart(replayed)

# %% [markdown]
# **Explain.** The large boxes are training, the narrow bars below them messages, and where a rank
# has neither it waits. A root that sends to each rank in turn is busy for seven units, and the last
# rank gets its tensor in the seventh. In the tree one rank sends in the first unit, two in the
# second and four in the third, and all have it. Both send seven messages.
#
# In training, ranks are never equally fast. In the next cell rank 0 has two units of work to do,
# rank 1 four, rank 2 six and rank 3 eight. Then all of them call the all-gather. (Again, just run
# the cell.)
#
# **Predict.** Which rank do the others wait for? And whose all-gather is done sooner, `"mine"`,
# `"PyTorch's"` or `"neither"`?

# %%
### BEGIN SOLUTION
guess_waited_for = 3
guess_sooner = "PyTorch's"
### END SOLUTION


# %%
def work_before(trace):
    """The replay of a run, with 2, 4, 6, 8 units of work before it."""
    earlier = min(event.issued for event in trace.events) - 1
    work = [
        SimpleNamespace(rank=rank, name="work", start=earlier, seconds=2 * (rank + 1))
        for rank in range(trace.world_size)
    ]
    return replay(trace, one_unit, compute=work)


print("your guesses:", guessed(guess_waited_for, guess_sooner))
gantt_chart({name: work_before(runs[name].trace) for name in runs if "gather" in name})

# %% [markdown]
# **Explain.** All wait for rank 3, in both: it works for eight units, and nobody can have its
# tensor before. No algorithm can help with that. A collective is as late as its last rank. What
# differs is how much is left to do then. With four broadcasts in turn, as in the solution, rank 0
# hands its tensor to rank 1, then to rank 2, and then stands before rank 3, which still works: the
# first of the four broadcasts is not over before that, and nine units of messages follow.
# PyTorch's is drawn as bars, since nobody sees inside. They are as long as a ring takes, in which
# all ranks send at the same time: three units.
#
# ### Everyone must call it
#
# A collective is a promise: *all* ranks call it, in the same order. Here somebody wants rank 0 to
# write a log, and puts the all-gather under the same `if`.
#
# **Predict.** What happens: `"prints"`, `"rank 0 hangs"` or `"all three hang"`?

# %%
### BEGIN SOLUTION
guess_under_if = "rank 0 hangs"
### END SOLUTION


# %% tags=["raises-exception"]
def losses_for_the_log():
    loss = torch.tensor([1.0 / (dist.get_rank() + 1)])
    losses = [torch.empty(1) for _ in range(dist.get_world_size())]
    if dist.get_rank() == 0:
        dist.all_gather(losses, loss)
        print("losses:", [loss.item() for loss in losses])


print("your guess:", guessed(guess_under_if))
run_ranks(losses_for_the_log, 3)

# %% [markdown]
# **Explain.** Rank 0 waits for ranks 1 and 2, which never call it: they have returned. Move the one
# line that must move, so that all ranks call the all-gather and only rank 0 prints, and run the
# cell again.
#
# **Explore.** The all-gather, run again for every world size that you choose. (Without a running
# kernel you see four ranks.) How do row sums grow with the number of ranks $n$? And the whole
# matrix?
#
# <details><summary>Answer</summary>
#
# Row sums grow as $n-1$, the sum of all entries as $n(n-1)$. Lesson 02 is about sums over all
# ranks, for which far fewer bytes are enough.
#
# </details>

# %%
from course_lib.views.widgets import explore


def all_gather_on(ranks=4):
    return traffic_matrix(run_ranks(collect_all, ranks, my_all_gather).trace)


explore(all_gather_on, ranks=[2, 3, 4, 5, 8])

# %% [markdown]
# ## 7. Without the notebook
#
# Nothing in your functions belongs to this course. On a cluster, `torchrun` starts the ranks, and
# the script calls `dist.init_process_group` itself. Here are your two functions in such a script,
# unchanged. (If they use helpers from other cells, put those into the script too: it sees nothing
# of this notebook. `GLOO_SOCKET_IFNAME` is the network interface: within one machine, the
# loopback.)

# %%
import inspect
import pathlib
import subprocess
import sys
import tempfile


def under_torchrun(script, ranks):
    """What the script prints, or the first error that it raises."""
    loopback = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "gather.py"
        file.write_text(script)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*torchrun, "--nproc-per-node", str(ranks), str(file)],
            env={**os.environ, **loopback},
            capture_output=True,
            text=True,
        )
    errors = [line for line in done.stderr.splitlines() if "Error: " in line]
    return done.stdout.strip() or (errors[0] if errors else done.stderr)


if solved(broadcast_by_sends, all_gather_by_sends):
    script = f"""
import torch
import torch.distributed as dist

{inspect.getsource(broadcast_by_sends)}

{inspect.getsource(all_gather_by_sends)}

dist.init_process_group("gloo")
pieces = all_gather_by_sends(torch.tensor([10.0 ** dist.get_rank()]))
if dist.get_rank() == 0:
    print(dist.get_world_size(), "ranks under torchrun:", [piece.item() for piece in pieces])
dist.destroy_process_group()
"""
    print(under_torchrun(script, 2))

# %% [markdown]
# ## 8. At scale
#
# **Two walls.** Your `memory_wall` says how many devices are *needed*. The papers say how many were
# *used*.

# %%
from course_lib.simulate import costs, hardware, model_state_bytes


def wall_by_the_library(parameters, device_bytes):
    train = round(model_state_bytes(parameters, 1, 0))
    return 4 * parameters, train, -(-train // device_bytes)


wall = yours_or(memory_wall, wall_by_the_library)
models = {
    "GPT-2": (1_500_000_000, "cannot be trained on one GPU of 32 GB"),
    "LLaMA-65B": (65_000_000_000, "2,048 A100s of 80 GB"),
    "GPT-3": (175_000_000_000, "V100s, their number not stated"),
    "Llama 3 405B": (405_000_000_000, "up to 16,384 H100s of 80 GB"),
}
print(f"{'':13}{'weights':>9}{'training':>10}{'80 GB devices':>15}   in the paper")
for name, (size, used) in models.items():
    hold, train, devices = wall(size, 80 * 10**9)
    print(f"{name:13}{hold / 1e9:>6.0f} GB{train / 1e9:>7.0f} GB{devices:>15}   {used}")

# %% [markdown]
# (Sources: ZeRO, section 3; LLaMA, [arXiv 2302.13971](https://arxiv.org/abs/2302.13971),
# section 2.4; GPT-3, section 2.3; Llama 3, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783),
# section 3.3.)
#
# GPT-2's 24 GB would fit into 32. What does not are its activations: about 60 GB for a batch of 32
# sequences of 1,000 tokens, says the ZeRO paper in section 3.2.
#
# Why 2,048 devices when 13 would hold LLaMA-65B? The second wall is time. The run took 21 days on
# 2,048 A100s, says its paper. Even if it scaled perfectly, 13 of them would have needed $21 \cdot
# 2048 / 13$ days: 9 years.
#
# **Broadcast at scale.** GPT-3's weights, from one rank to all the others, over a link of 200
# Gbit/s each (InfiniBand, a network for clusters): from the root to each in turn, and in the tree
# of section 6.

# %%
from course_lib.views.scaling_curves import scaling_curves

link = hardware.LINKS["InfiniBand HDR"]


def one_by_one(ranks):
    return (ranks - 1) * link.seconds(weights) / 60


def in_tree(ranks):
    return costs.binomial_broadcast(ranks, weights, link.alpha, link.beta) / 60


scaling_curves(
    {"root to each in turn": one_by_one, "tree": in_tree},
    (4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "GPT-3's weights to all ranks, at 200 Gbit/s",
    "minutes",
    "{:.3g}".format,
    count="ranks",
)

# %% [markdown]
# The same bytes in total, and on 1024 ranks 8 hours or 5 minutes: with twice the ranks the root
# takes twice as long, the tree one round more. At this scale *who sends* decides.
#
# **Hangs at scale.** Meta trained Llama 3 405B on 16,384 GPUs. In 54 days the job was interrupted
# 466 times, 419 times unexpectedly: about every three hours. 78 % of the unexpected ones were
# hardware, confirmed or suspected (section 3.3.4 of the paper). All ranks wait for the one that
# failed, so the same question comes up each time: which one is it? They answered it with PyTorch's
# *flight recorder*, which keeps the latest collectives of every rank with their stack traces. It is
# what you did above, with more ranks.
#
# ## 9. Two claims put to the test
#
# ### "A small message leaves at once. Only a large one waits for its receiver."
#
# This is often said of programs that work in a test and hang in a real run. You have tested it: in
# section 4 both ranks sent 12 bytes first, and both waited.
#
# So with gloo, which PyTorch uses between CPUs, the claim is false. Many MPI libraries do copy
# small messages into a buffer of their own, so there it is true. The MPI standard leaves that to
# the library (section 3.4) and calls a program *safe* if it needs no such buffer (section 3.5).
# Between GPUs, with NCCL, Python gets on as soon as the send is queued, and it is the GPU that
# waits. One program, three behaviours: write code that needs no buffer.
#
# ### "When `isend` has returned, the message has left."
#
# Rank 0 sends 1, 2 and 3, all from the same tensor. (The barrier lets rank 1 receive only
# afterwards, so that the result is the same each time.)
#
# **Predict.** What does rank 1 receive?

# %%
### BEGIN SOLUTION
guess_received = [3, 3, 3]
### END SOLUTION


# %%
def three_isends():
    x = torch.empty(1)
    if dist.get_rank() == 0:
        sending = []
        for number in (1, 2, 3):
            x.fill_(number)
            sending.append(dist.isend(x, dst=1))
        dist.barrier()
        for work in sending:
            work.wait()
        return None
    dist.barrier()
    received = []
    for _ in range(3):
        dist.recv(x, src=0)
        received.append(int(x))
    return received


print(run_ranks(three_isends, 2))
print("your guess:", guessed(guess_received))

# %% [markdown]
# False, and dangerous: no error, three times the last number. `isend` only *begins*. It reads the
# tensor at some moment before `wait()` returns. Until then the tensor is not yours. What arrives
# depends on who is faster: that is a **race**. The warning comes from the recorder; on a cluster
# nobody tells you. Large codes have had this bug: the finite-element library deal.II reused a
# buffer under its sends, and nobody noticed, since the MPI libraries in use happened to copy it
# (dealii pull request 13206, 2022).
#
# And the question of section 1, whether the *weights* are all that has to be held? You measured it:
# they are 4 bytes of 16.
#
# ## 10. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. How many GPUs of 24 GB does it take at least to train a model of 7 billion parameters?
#
#    <details><summary>Answer</summary>
#    7e9 · 16 = 112 GB, so 5. With float32 gradients as well (18 bytes): 126 GB, so 6. And that
#    leaves no room for activations.
#    </details>
#
# 2. What is the largest model whose 16 bytes per parameter fit on one GPU of 80 GB?
#
#    <details><summary>Answer</summary>
#    80e9 / 16 = 5 billion parameters.
#    </details>
#
# 3. 256 ranks need 400 MB of weights from rank 0, over 25 Gbit/s each. How long does your broadcast
#    take? How long a tree?
#
#    <details><summary>Answer</summary>
#    400 MB / 3.125 GB/s = 0.128 s per message. One by one 255 · 0.128 = 33 s; a tree has log2(256)
#    = 8 rounds: 1.0 s.
#    </details>
#
# 4. How many messages does your all-gather send on 8 ranks? On 1024? Can another algorithm do with
#    fewer *bytes* for each rank?
#
#    <details><summary>Answer</summary>
#    n(n-1): 56, and 1,047,552. Fewer bytes: no, each rank must receive the n-1 tensors that it does
#    not have.
#    </details>
#
# 5. 419 unexpected interruptions in 54 days on 16,384 GPUs. If GPUs fail independently of each
#    other, how often would a run on 1,024 of them be interrupted?
#
#    <details><summary>Answer</summary>
#    54 · 24 h / 419 = 3.09 h. With a sixteenth of the GPUs 16 times as long: every 49 hours.
#    </details>
#
# ## 11. Assignment: `scatter_by_sends` (● 5 minutes)
#
# The third basic collective. The root has a list of $n$ tensors, one for each rank, and every rank
# needs its own. Each piece travels once, from the root to its owner; nothing else is sent. The
# arguments are those of `dist.scatter`. A piece can have any shape, even none; then `output[:] =
# piece` fails, and `output.copy_(piece)` works.
#
# **Predict** for pieces of 4000 bytes on four ranks: how many bytes does the root send? How many
# would all ranks together have to send, if the whole list were broadcast?

# %%
### BEGIN SOLUTION
guess_scatter = 12_000
guess_list = 48_000
### END SOLUTION


# %% exercise="scatter_by_sends"
def scatter_by_sends(output: torch.Tensor, pieces: list[torch.Tensor] | None, root: int) -> None:
    """Afterwards `output` holds pieces[r] on rank r. `pieces` is None on all ranks but the root."""
    ### BEGIN SOLUTION
    if dist.get_rank() == root:
        for rank, piece in enumerate(pieces):
            if rank == root:
                output.copy_(piece)
            else:
                dist.send(piece, dst=rank)
    else:
        dist.recv(output, src=root)
    ### END SOLUTION


# %% check="scatter_by_sends"
check(scatter_by_sends)


# %%
def hand_out():
    root = dist.get_rank() == 0
    pieces = [torch.full((1000,), float(rank)) for rank in range(4)] if root else None
    mine = torch.empty(1000)
    scatter_by_sends(mine, pieces, 0)
    return mine[0].item()


def hand_out_the_list():
    dist.broadcast(torch.zeros(4, 1000), 0)


scattered = {"the whole list, broadcast": run_ranks(hand_out_the_list, 4).trace}
if solved(scatter_by_sends):
    handed_out = run_ranks(hand_out, 4)
    print("each rank's piece begins with", list(handed_out))
    scattered = {"your scatter": handed_out.trace} | scattered
print("your guesses, in bytes:", guessed(guess_scatter, guess_list))
traffic_matrix(scattered)

# %% [markdown]
# A broadcast of the list brings every other rank three pieces that it has no use for: four times
# the bytes.

# %% [markdown]
# ## 12. What to read
#
# - Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*
#   ([arXiv 1910.02054](https://arxiv.org/abs/1910.02054)). Section 3 is the memory wall, taken
#   apart.
# - The documentation of `torch.distributed`: the calls of this lesson and their conditions.
# - *MPI: A Message-Passing Interface Standard*, chapter on point-to-point communication. Thirty
#   years of experience with `send` and `recv`; section 3.5 is about what you may rely on.
# - Coffman, Elphick & Shoshani 1971, *System Deadlocks*. Why a circle of waiting is one.
# - Llama Team 2024, *The Llama 3 Herd of Models*
#   ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783)), section 3.3.4: what goes wrong on 16,384
#   GPUs, and how one finds out.
#
# **Next**: [lesson 01](01_parameter_server.ipynb) spreads the parameters over servers;
# [lesson 02](02_ring_all_reduce.ipynb) makes the collective that all of training rests on,
# all-reduce, as fast as a link allows.
