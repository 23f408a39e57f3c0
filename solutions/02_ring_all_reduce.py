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
# # 02 · Ring all-reduce
#
# **After this lesson you can**
#
# - write all-reduce from `send` and `recv`, in two ways, for any tensor and any number of ranks;
# - say before a run how many bytes each rank will send, and check it against what it did send;
# - read the report of a ring that hangs, and name the line that is wrong.
#
# If you go on with the optional part, you can also
#
# - predict how long an all-reduce takes from two measured numbers, and choose the algorithm by
#   them;
# - average the gradients of a real model while its backward pass is still running, as Horovod does;
# - write a third all-reduce, with fewer messages.
#
# **You need** `send`, `recv` and `isend` from [lesson 00](00_ranks.ipynb). **It takes** 80 minutes
# to the end of section 4. All else is optional: 30 minutes for section 5, 40 for sections 6 and 7,
# 30 for the assignment; sections 8 and 9 are there to run and read. (The hooks of section 7 come
# again in lesson 03, which explains them anew.) The machine needs a minute. Each exercise says how
# hard it is (● a few lines, ●● two ideas together, ●●● the hard one) and how long it takes.

# %%
import math
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib import check, guessed, hint, run_ranks, solved, whose, yours_or
from course_lib.simulate import costs
from course_lib.text import counted, listed, table

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
# Data parallel training gives every worker the whole model and its own part of the batch. After
# each backward pass every worker holds a gradient of its own, and all of them need the *sum*. That
# operation is **all-reduce**.
#
# VGG-16 has 138,357,544 parameters. In float32 its gradient is 553 MB, every step, on every worker.
# Suppose each worker has a 25 Gbit/s network card, as in the benchmark that made Horovod known.
#
# The obvious plan: one worker collects all gradients, adds them up and sends the sum back. How long
# does its network card work for one step?

# %%
from course_lib.views.grouped_bars import grouped_bars

gradient = 4 * 138_357_544  # S, bytes
network = 25e9 / 8  # bytes per second, each way

rows, busy = [("workers", "through one worker, GB each way", "the least possible, GB")], {}
for workers in (2, 8, 64, 512):
    all_others = (workers - 1) * gradient
    least = 2 * all_others / workers
    rows.append((workers, f"{all_others / 1e9:.2f}", f"{least / 1e9:.2f}"))
    busy[f"{workers} workers"] = {
        "through one worker": 2 * all_others / network,
        "the least possible": least / network,
    }
print(table(rows))
grouped_bars(
    busy, "How long the busiest network card works for one step", "seconds", "{:.2f}".format
)

# %% [markdown]
# With 512 workers the obvious plan takes three minutes per step: 283 GB come in, and as many go
# out. The other bar is the least that any algorithm can reach: each rank sends $2\frac{n-1}{n}S$
# bytes. That is 1.1 GB for VGG-16, however many workers there are, and 0.35 s.
#
# **Who solved it, and when.** Pitch Patarasuk and Xin Yuan proved that bound in 2009 and gave a
# ring of ranks that reaches it (*Bandwidth optimal all-reduce algorithms for clusters of
# workstations*, JPDC 69(2)). In 2017 Andrew Gibiansky and colleagues at Baidu brought the ring to
# deep learning. In the same year Alexander Sergeev and Mike Del Balso at Uber made it a library
# that needs a few extra lines in a training script: Horovod
# ([arXiv 1802.05799](https://arxiv.org/abs/1802.05799)). You will build all of it here.

# %% [markdown]
# ## 2. Everything through rank 0
#
# First, what all-reduce does. Rank $r$ brings the number $10^r$, so ranks 0 to 3 bring 1, 10, 100
# and 1000.


# %%
def sum_of_everyones_number():
    x = torch.tensor([10 ** dist.get_rank()])
    dist.all_reduce(x)
    return x.item()


run_ranks(sum_of_everyones_number, 4)

# %% [markdown]
# Every rank ends with 1111. The digits say where a sum comes from: in 1101 the part of rank 1 is
# missing, 2111 has that of rank 3 twice, 277.75 is a mean. The checks in this lesson use the same
# trick, so their messages can tell you which rank was left out.
#
# The obvious plan in these words: every rank sends its tensor to rank 0, which adds them up and
# sends the sum back to each.
#
# **Predict.** Four ranks all-reduce 1000 float32 values: 4000 bytes. How many bytes does rank 0
# send? And rank 3?

# %%
### BEGIN SOLUTION
guess_rank_0 = 12_000
guess_rank_3 = 4_000
### END SOLUTION

# %% [markdown]
# ### Exercise 1: `gather_broadcast_all_reduce` (● 5 minutes)
#
# Write that plan with `dist.send` and `dist.recv`. Work in place, as `dist.all_reduce` does, and
# return the tensor as well.


# %% exercise="gather_broadcast_all_reduce"
def gather_broadcast_all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    """Sum `tensor` over all ranks, in place, by way of rank 0. Returns `tensor`."""
    ### BEGIN SOLUTION
    others = range(1, dist.get_world_size())
    if dist.get_rank() == 0:
        arriving = torch.empty_like(tensor)
        for rank in others:
            dist.recv(arriving, src=rank)
            tensor += arriving
        for rank in others:
            dist.send(tensor, dst=rank)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
    return tensor
    ### END SOLUTION


# %% check="gather_broadcast_all_reduce"
check(gather_broadcast_all_reduce)

# %% [markdown]
# Stuck, here or later? `hint(gather_broadcast_all_reduce)` gives a nudge,
# `hint(gather_broadcast_all_reduce, 2)` more, and `hint(gather_broadcast_all_reduce, 3)` almost the
# answer.


# %%
def sum_1000_values(all_reduce):
    x = torch.full((1000,), 10.0 ** dist.get_rank())
    return all_reduce(x)[0].item()


if solved(gather_broadcast_all_reduce):
    sent = run_ranks(sum_1000_values, 4, gather_broadcast_all_reduce).trace.traffic().sent
    ranks_and_bytes = [(f"rank {rank_of_row}", f"{n:,}") for rank_of_row, n in enumerate(sent)]
    print(table([("", "bytes sent"), *ranks_and_bytes]))
print("your guesses for rank 0 and 3:", guessed(guess_rank_0, guess_rank_3))

# %% [markdown]
# The same with one number on each rank, message by message. ▶ plays it.


# %%
from course_lib.observe import arrivals
from course_lib.views.moving_values import moving_values


def reduce_and_broadcast(tensor):
    dist.reduce(tensor, dst=0)
    dist.broadcast(tensor, src=0)
    return tensor


def on_their_way(all_reduce, numel):
    x = 10.0 ** dist.get_rank() * torch.arange(1.0, numel + 1)
    before = x.tolist()
    with arrivals() as arrived:
        x = all_reduce(x)
    return before, arrived, x.tolist()


small = run_ranks(on_their_way, 4, yours_or(gather_broadcast_all_reduce, reduce_and_broadcast), 1)
moving_values(small.trace, *zip(*small, strict=True), title="through rank 0")

# %% [markdown]
# **Explain.** Rank 0 sends $(n-1)S$ and receives as much; everyone else moves $S$ each way. Double
# the workers and the load of rank 0 doubles, while the cards of all others idle more. The total is
# not the trouble. The place where it gathers is.

# %% [markdown]
# ## 3. The ring: reduce-scatter
#
# Three ideas turn this into an algorithm whose busiest rank is no busier than the others.
#
# 1. **Cut** the tensor into $n$ chunks, so that $n$ things can happen at once.
# 2. **Ring**: rank $r$ sends to rank $r+1$ only, and receives from rank $r-1$ only. In every step
#    every card sends and receives one chunk.
# 3. **Two halves**: first chunks travel and collect sums until every rank has *one* complete chunk
#    (reduce-scatter). Then the complete chunks travel once more round the ring (all-gather).
#
# Here is one step of such a ring, solved. Read it closely; the exercises below repeat it.


# %%
def pass_right(x):
    """Give `x` to the right neighbour, return what the left neighbour gave."""
    n, rank = dist.get_world_size(), dist.get_rank()
    arriving = torch.empty_like(x)
    sending = dist.isend(x, dst=(rank + 1) % n)  # begins, and returns at once
    dist.recv(arriving, src=(rank - 1) % n)  # comes back with the message
    sending.wait()  # until then x must not change
    return arriving


def once_round(step):
    return int(step(torch.tensor([10.0 ** dist.get_rank()])))


run_ranks(once_round, 4, pass_right)

# %% [markdown]
# ### Break it, on purpose
#
# Half of distributed programming is reading what went wrong. Three broken versions of `pass_right`
# follow: in the first everyone sends first and then receives; the second receives from `rank + 1`
# where `rank - 1` should be; the third writes into the buffer before it waits.
#
# **Predict.** For each of them: does it hang, give a wrong number, or work?

# %%
### BEGIN SOLUTION
guess_send_first = "hangs"
guess_wrong_neighbour = "hangs"
guess_early_write = "a wrong number"
### END SOLUTION

# %% [markdown]
# The first: everyone sends first, then receives.


# %% tags=["raises-exception"]
def all_send_first(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    arriving = torch.empty_like(x)
    dist.send(x, dst=(rank + 1) % n)
    dist.recv(arriving, src=(rank - 1) % n)
    return arriving


print("your guess:", guessed(guess_send_first))
run_ranks(once_round, 4, all_send_first)

# %% [markdown]
# It hangs. A blocking `send` comes back when the receiver has taken the message. All four ranks
# wait in the same line, each for a neighbour that waits too. The size of the message does not
# matter here: it is one number. (Many MPI libraries do buffer small messages, so the same code can
# pass a test with small tensors and hang with large ones. Never rely on it.)
#
# The second: one wrong neighbour, `rank + 1` where `rank - 1` should be.


# %% tags=["raises-exception"]
def receive_from_the_right(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    arriving = torch.empty_like(x)
    sending = dist.isend(x, dst=(rank + 1) % n)
    dist.recv(arriving, src=(rank + 1) % n)
    sending.wait()
    return arriving


print("your guess:", guessed(guess_wrong_neighbour))
run_ranks(once_round, 4, receive_from_the_right)

# %% [markdown]
# It hangs too. Compare the two reports. In the first all ranks stand in `send`: the neighbours are
# the right ones, but nobody receives. In the second all stand in `recv`, and the numbers tell the
# rest: rank 0 waits for rank 1, but rank 1 sends to rank 2.
#
# The third: it does wait, but it uses the buffer again before that. (The barrier only makes the
# receiver come late, so that what happens is the same every time.)


# %%
def reuse_before_wait(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    arriving = torch.empty_like(x)
    sending = dist.isend(x, dst=(rank + 1) % n)
    x.zero_()  # the buffer seems free for something else
    dist.barrier()
    dist.recv(arriving, src=(rank - 1) % n)
    sending.wait()
    return arriving


print("your guess:", guessed(guess_early_write))
run_ranks(once_round, 4, reuse_before_wait)

# %% [markdown]
# This is the worst of the three, a **race**: no error, wrong numbers. `isend` only *begins*. It
# reads the tensor at some time before `wait()` returns, and here it read it after `zero_()`. The
# warning comes from the recorder that watches every run; on a cluster nobody would tell you.
#
# And if you forget `wait()` altogether? Take `sending =` and the line with `wait` out of
# `pass_right` and run it a few times. gloo drops a message that nobody holds a handle for, unless
# the receiver was there already: it works, or it hangs, depending on who is faster.
#
# ### The chunks on their way
#
# Now the whole first half. In step $s = 0, 1, \dots, n-2$ rank $r$
#
# - sends chunk $r - 1 - s$ to the right,
# - receives chunk $r - 2 - s$ from the left and **adds** it to its own,
#
# all modulo $n$. Try it on paper with $n = 4$: write down which chunk rank 2 sends, and which it
# receives, in each of the three steps.
#
# **Predict.** After these three steps, which chunk is complete on rank 2? And how many of its 4000
# bytes has each rank sent?

# %%
### BEGIN SOLUTION
guess_chunk = 2
guess_sent = 3_000
### END SOLUTION

# %%
from course_lib.views.widgets import Control, explore
from course_lib.views.ring_steps import ring_steps

print("your guesses:", guessed(guess_chunk, guess_sent))
explore(ring_steps, ranks=[2, 3, 4, 5])

# %% [markdown]
# Go from step to step, and follow one chunk. Chunk 2 starts on rank 3, goes to 0, to 1, to 2, and
# collects one value at each stop: 1000, 1001, 1011, 1111. So rank $r$ ends with chunk $r$, and has
# sent $\frac{n-1}{n}S$: three chunks of 1000 bytes. The steps called all-gather are for exercise 3.
# (On paper, or where no scripts run, all steps stand side by side.)
#
# ### Exercise 2: `ring_reduce_scatter` (●●● 25 minutes)
#
# `tensor` may have any shape; think of it as flat. Its size is a multiple of $n$ here. Leave it as
# it was, and return chunk $r$ of the sum as a new 1-D tensor.
#
# `group` is a **process group**, a part of the ranks (`None` means all), which you will need in
# later lessons. Hand it to every call: `dist.get_world_size(group)`, `dist.get_rank(group)`,
# `dist.isend(x, group=group, group_dst=...)`, `dist.recv(x, group=group, group_src=...)`.
# `group_dst` and `group_src` stand where `dst` and `src` stood, and count the ranks inside the
# group.


# %% exercise="ring_reduce_scatter"
def ring_reduce_scatter(tensor: torch.Tensor, group=None) -> torch.Tensor:
    """Rank r returns chunk r of the sum over the group: 1-D, numel / n elements."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    chunks = tensor.flatten().clone().view(n, -1)  # (n, numel / n)
    arriving = torch.empty_like(chunks[0])
    for step in range(n - 1):
        outgoing = chunks[(rank - 1 - step) % n]
        sending = dist.isend(outgoing, group=group, group_dst=(rank + 1) % n)
        dist.recv(arriving, group=group, group_src=(rank - 1) % n)
        sending.wait()
        chunks[(rank - 2 - step) % n] += arriving
    return chunks[rank].clone()
    ### END SOLUTION


# %% check="ring_reduce_scatter"
check(ring_reduce_scatter)

# %% [markdown]
# ## 4. The ring: all-gather, and the whole
#
# ### Exercise 3: `ring_all_gather` (● 10 minutes)
#
# Rank $r$ brings one chunk and needs all $n$ of them, in rank order. The same ring: in step $s$
# rank $r$ sends chunk $r - s$ and receives chunk $r - 1 - s$. Nothing is added now; what arrives is
# complete and is only put in its place.


# %% exercise="ring_all_gather"
def ring_all_gather(chunk: torch.Tensor, group=None) -> torch.Tensor:
    """Every rank returns the chunks of all ranks in order: 1-D, n * chunk.numel() elements."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    chunks = chunk.new_empty(n, chunk.numel())
    chunks[rank] = chunk.flatten()
    for step in range(n - 1):
        outgoing = chunks[(rank - step) % n]
        sending = dist.isend(outgoing, group=group, group_dst=(rank + 1) % n)
        dist.recv(chunks[(rank - 1 - step) % n], group=group, group_src=(rank - 1) % n)
        sending.wait()
    return chunks.flatten()
    ### END SOLUTION


# %% check="ring_all_gather"
check(ring_all_gather)

# %% [markdown]
# ### Exercise 4: `ring_all_reduce` (●● 10 minutes)
#
# Put the halves together, in place and for *any* tensor: one element, fewer elements than ranks, a
# size that $n$ does not divide, integers, bfloat16. Zeros at the end do no harm to a sum, so pad to
# the next multiple of $n$ (`F.pad`), reduce-scatter, all-gather, and copy back without the padding.
#
# The check counts. A rank that sends more than $2\frac{n-1}{n}$ of the padded tensor fails, even if
# every number is right.


# %% exercise="ring_all_reduce"
def ring_all_reduce(tensor: torch.Tensor, group=None) -> torch.Tensor:
    """Sum `tensor` over the group, in place, round the ring. Returns `tensor`."""
    ### BEGIN SOLUTION
    n = dist.get_world_size(group)
    padded = F.pad(tensor.flatten(), (0, -tensor.numel() % n))
    total = ring_all_gather(ring_reduce_scatter(padded, group), group)
    tensor.copy_(total[: tensor.numel()].view_as(tensor))
    return tensor
    ### END SOLUTION


# %% check="ring_all_reduce"
check(ring_all_reduce)

# %% [markdown]
# ### Formula, run and PyTorch's own, side by side
#
# **Predict.** 1000 float32 values on four ranks once more. How many bytes does each rank send now?
# And all four together: more than through rank 0, fewer, or as many?

# %%
### BEGIN SOLUTION
guess_ring = 6_000
guess_together = "as many"
### END SOLUTION

# %%
from course_lib.techniques import collectives


def with_pytorch(tensor):
    dist.all_reduce(tensor)
    return tensor


my_ring = yours_or(ring_all_reduce, collectives.ring_all_reduce)
RING = f"{whose(my_ring)} ring"
ways = {RING: my_ring, "dist.all_reduce": with_pytorch}
if solved(gather_broadcast_all_reduce):
    ways = {"through rank 0": gather_broadcast_all_reduce, **ways}
runs = {name: run_ranks(sum_1000_values, 4, way) for name, way in ways.items()}
rows = [("bytes sent by", *(f"rank {rank_of_row}" for rank_of_row in range(4)), "together", "sum")]
for name, run in runs.items():
    sent = run.trace.traffic().sent
    sums = listed(dict.fromkeys(f"{total:g}" for total in run))
    rows.append((name, *(f"{nbytes:,}" for nbytes in (*sent, sum(sent))), sums))
print(table(rows))
print(f"formula: 2 (n-1)/n S = {2 * 3 / 4 * 4000:,.0f} bytes by every rank")
print("your guesses:", guessed(guess_ring, guess_together))

# %% [markdown]
# The same total, 24,000 bytes, and no longer a rank that carries half of it. One honest remark:
# your messages were counted one by one as they went out. What `dist.all_reduce` does inside cannot
# be seen from Python, so the recorder books the ring's bytes for it.
#
# ### See it
#
# Every message is recorded with both its ends. Who sends to whom?

# %%
from course_lib.views.traffic_matrix import traffic_matrix

traffic_matrix({name: run.trace for name, run in runs.items() if name != "dist.all_reduce"})

# %% [markdown]
# A row is a sender. On the left all goes through one row and one column, on the right every rank
# sends only to its right neighbour: that is the ring.
#
# And what is in the messages? Your ring once more, with four values on each of four ranks.
#
# **Predict.** How many messages does each rank receive? After how many of them does it add?

# %%
### BEGIN SOLUTION
guess_messages = 6
guess_additions = 3
### END SOLUTION

# %%
small = run_ranks(on_their_way, 4, my_ring, 4)
print("your guesses:", guessed(guess_messages, guess_additions))
moving_values(small.trace, *zip(*small, strict=True), title=RING)

# %% [markdown]
# Each rank receives six messages. The sums grow from block to block for three rounds, then they are
# passed on as they are.
#
# The recording has times as well. Here is your ring with a tensor of 8 MB. Each rank is drawn as a
# device of its own: its processor time as boxes, its messages as bars below, with an arrow from
# each send to its receive. The picture will be a mess; in the next one you can count.

# %% tags=["nbval-ignore-output"]
from torch.profiler import record_function

from course_lib.views.gantt_chart import gantt_chart


def second_call(all_reduce, numel):
    x = torch.full((numel,), 10.0 ** dist.get_rank())
    all_reduce(x)  # the first call also gets memory from the system
    dist.barrier()
    with record_function("add"):
        all_reduce(x)


ring_trace = run_ranks(second_call, 4, my_ring, 2_000_000).trace.within("add")
received = [event for event in ring_trace.of(0) if event.op == "recv"]
print(f"rank 0 received {len(received)} messages of {received[0].nbytes:,} bytes")
gantt_chart(ring_trace.timeline(), f"{RING}, as it ran here", unit="s")

# %% [markdown]
# **Explain.** The six messages cannot be counted in this picture. Padding, copying and starting a
# message are processor time as well, so there are more boxes than additions, and these ranks share
# a few cores: who gets none is late. So **replay** it. A replay keeps from the recording what each
# rank did in which order and how long it computed. It gives each rank a device and each pair of
# ranks a wire, of the kind that you choose. Then no message is late because its rank has no core,
# and you can count messages. (How long a rank computed is as recorded, so ranks may still wait for
# a slower one. And do not count boxes: a replay cuts computing into more pieces.)

# %% tags=["nbval-ignore-output"]
from course_lib.views.replay_explorer import replay_explorer

replay_explorer(ring_trace)

# %% [markdown]
# **Explore.** The link inside a node is 10 GbE, on which messages take long enough to be seen:
# count them. Then devices 100 times as fast, which is more like a GPU: what is the ring's time made
# of now? With two devices per node, which two ranks receive over the link between nodes? And who
# waits for these two?
#
# <details><summary>Answers</summary>
#
# Six messages arrive at each rank. With fast devices nearly all of the time is messages. With two
# devices per node, rank 2 receives from rank 1 and rank 0 from rank 3 over the slow link, and
# everybody waits for them: in a ring each step needs the one before.
#
# </details>
#
# And the time on this machine? Measure it, but do not expect the ring to win here. It spreads the
# load over $n$ network cards, and these ranks have none: they share the cores and the memory of one
# machine, so only the total counts. And in each of its six steps every rank waits for another one,
# which must first get a core. With 4 kB that is all there is to it, and the ring may take ten times
# as long as the way through rank 0, or more. That is no fault of yours: PyTorch's own
# all-reduce may be as slow. (Outputs of measuring cells differ from run to run and are not
# compared.)

# %% tags=["nbval-ignore-output"]
import time


def time_of(all_reduce, numel, repeats=15):
    x = torch.ones(numel)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        all_reduce(x)
        seconds.append(time.perf_counter() - start)
    return min(seconds)  # the repeat that other programs disturbed least


rows = [("ms on 4 ranks", *ways)]
for numel in (1_000, 1_000_000):
    slowest = (
        max(run_ranks(time_of, 4, way, numel, observe=False, timeout=45)) for way in ways.values()
    )
    rows.append((f"{4 * numel:,} bytes", *(f"{seconds * 1e3:.2f}" for seconds in slowest)))
print(table(rows))

# %% [markdown]
# ## 5. How long: two numbers
#
# A message of $S$ bytes takes about
#
# $$T(S) = \alpha + \beta S$$
#
# $\alpha$ is the **latency**: what even an empty message costs. $\beta$ is the time of one more
# byte, the inverse of the **bandwidth**. For a 25 Gbit/s network with $\alpha$ = 50 µs, a message
# of 4 bytes takes 50 µs, one of 4 MB 50 + 1280 µs. The first is all latency, the second all
# bandwidth.
#
# Measure it here. Two ranks swap tensors; both directions at once, since that is what a ring does.


# %% tags=["nbval-ignore-output"]
def time_exchange(sizes, repeats=40):
    other = 1 - dist.get_rank()
    times = []
    for size in sizes:
        outgoing, arriving = torch.zeros(2, size, dtype=torch.uint8)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            sending = dist.isend(outgoing, dst=other)
            dist.recv(arriving, src=other)
            sending.wait()
            seconds.append(time.perf_counter() - start)
        times.append(min(seconds))
    return times


sizes = [4**k for k in range(3, 13)]  # 64 bytes to 16 MB
times = run_ranks(time_exchange, 2, sizes, observe=False, timeout=45)[0]
rows = [(f"{size:,}", f"{seconds * 1e6:.1f}") for size, seconds in zip(sizes, times, strict=True)]
print(table([("bytes", "µs"), *rows], left=0))

# %% [markdown]
# ### Exercise 5: `fit_alpha_beta` (● 10 minutes)
#
# Find the $\alpha$ and $\beta$ that fit such a table best. There is a trap. Ordinary least squares
# minimises the error in *seconds*, so the one largest message decides everything, and $\alpha$
# comes out as noise, even negative. Noise in times is relative: 10&nbsp;% of 30&nbsp;µs, 10&nbsp;%
# of 10&nbsp;ms. So minimise the *relative* errors,
#
# $$\sum_i \left(\frac{\alpha + \beta S_i - T_i}{T_i}\right)^2$$
#
# This is still linear least squares: divide each equation $\alpha + \beta S_i = T_i$ by $T_i$. With
# $a_i = 1/T_i$ and $b_i = S_i/T_i$ it reads $\alpha a_i + \beta b_i = 1$, and the best two numbers
# solve the two equations below. (Python's floats are precise enough; float32 is not.)
#
# $$\alpha \sum a_i^2 + \beta \sum a_i b_i = \sum a_i \qquad \alpha \sum a_i b_i + \beta \sum b_i^2
# = \sum b_i$$


# %% exercise="fit_alpha_beta"
def fit_alpha_beta(sizes: list[float], times: list[float]) -> tuple[float, float]:
    """Seconds per message and seconds per byte that fit the times with least relative error."""
    ### BEGIN SOLUTION
    a = [1 / t for t in times]
    b = [size / t for size, t in zip(sizes, times, strict=True)]
    aa = sum(x * x for x in a)
    ab = sum(x * y for x, y in zip(a, b, strict=True))
    bb = sum(y * y for y in b)
    determinant = aa * bb - ab * ab
    alpha = (sum(a) * bb - sum(b) * ab) / determinant
    beta = (sum(b) * aa - sum(a) * ab) / determinant
    return alpha, beta
    ### END SOLUTION


# %% check="fit_alpha_beta"
check(fit_alpha_beta)

# %% tags=["nbval-ignore-output"]
from course_lib.simulate import fit_link
from course_lib.views.cost_curves import cost_curves


def fit_by_the_library(sizes, times):
    link = fit_link("this machine", sizes, times)
    return link.alpha, link.beta


alpha_here, beta_here = yours_or(fit_alpha_beta, fit_by_the_library)(sizes, times)
print(f"alpha = {alpha_here * 1e6:.1f} µs, bandwidth = {1 / beta_here / 1e9:.2f} GB/s each way")
cost_curves(
    {"alpha + beta S": lambda size: costs.message(size, alpha_here, beta_here)},
    points={"measured": (sizes, times)},
    title="One exchange between two ranks on this machine",
)

# %% [markdown]
# **Explain.** On the left the curve is flat: there only $\alpha$ counts. On the right the time
# grows in proportion to the size: there only $\beta$ counts. Points lie off the curve where a
# machine is not that simple, for example where a tensor no longer fits into a cache.
#
# ### What the ring pays
#
# The ring takes $2(n-1)$ steps, each with one message of $S/n$ bytes:
#
# $$T_\text{ring} = 2(n-1)\,\alpha + 2\tfrac{n-1}{n}S\,\beta$$
#
# The second term is the best there is. Look at the first. On 512 ranks it is 1022 messages, one
# after the other, even for a single number.
#
# A **binomial tree** needs fewer steps. To reduce, half of the ranks send to the other half, then a
# quarter to a quarter, until rank 0 has the sum: $\lceil\log_2 n\rceil$ messages. The same way back
# to broadcast. But each message is the whole tensor:
#
# $$T_\text{tree} = 2\lceil\log_2 n\rceil\,(\alpha + S\beta)$$
#
# **Predict.** 32 ranks, $\alpha$ = 50 µs, 25 Gbit/s. Which is faster for 4 kB, and by what factor?
# Which for 100 MB? Write the winner's name.

# %%
### BEGIN SOLUTION
guess_4_kB = "tree"
guess_100_MB = "ring"
### END SOLUTION

# %%
from course_lib.views.units import size_text

ALPHA, BETA = 50e-6, 8 / 25e9  # seconds per message, seconds per byte at 25 Gbit/s

rows = [("32 ranks", "ring, ms", "tree, ms")]
for size in (4e3, 4e5, 4e6, 1e8):
    both = (by(32, size, ALPHA, BETA) for by in (costs.ring_all_reduce, costs.tree_all_reduce))
    rows.append((size_text(size), *(f"{seconds * 1e3:.2f}" for seconds in both)))
print(table(rows))
print("your guesses:", guessed(guess_4_kB, guess_100_MB))

# %% [markdown]
# **Explain.** 4 kB: 62 latencies against 10, the tree wins six to one. 100 MB: the ring sends 1.94
# tensors, the tree ten, the ring wins five to one. In between they cross.
#
# ### Exercise 6: `crossover_bytes` (●● 10 minutes)
#
# At which size do ring and tree take the same time? Above it the ring is faster. Return 0.0 where
# the ring never loses. (That happens for $n \le 3$: count the messages.)


# %% exercise="crossover_bytes"
def crossover_bytes(n: int, alpha: float, beta: float) -> float:
    """The tensor size in bytes at which ring and binomial tree take the same time on n ranks."""
    ### BEGIN SOLUTION
    levels = math.ceil(math.log2(n))
    more_messages = 2 * (n - 1) - 2 * levels  # of the ring
    if more_messages == 0:
        return 0.0
    fewer_tensors = 2 * levels - 2 * (n - 1) / n  # of the ring
    return more_messages * alpha / (fewer_tensors * beta)
    ### END SOLUTION


# %% check="crossover_bytes"
check(crossover_bytes)


# %%
def crossover_by_the_library(n, alpha, beta):
    return costs.crossover(costs.tree_all_reduce, costs.ring_all_reduce, n, alpha, beta)


ring_wins_above = yours_or(crossover_bytes, crossover_by_the_library)
rows = [("ranks", "the ring is faster above, MB")]
for ranks in (4, 8, 32, 128, 512):
    rows.append((ranks, f"{ring_wins_above(ranks, ALPHA, BETA) / 1e6:.3f}"))
print(table(rows))

# %% [markdown]
# ### Can one have both?
#
# Yes, nearly. **Recursive halving-doubling** (Rabenseifner) sends the same $2\frac{n-1}{n}S$ bytes
# in $2\log_2 n$ messages. In step one you swap *half* of the tensor with a rank far away, then a
# quarter with a nearer one, and so on. You write it in the assignment at the end.

# %%
ALGORITHMS = {
    "through rank 0": costs.gather_broadcast_all_reduce,
    "tree": costs.tree_all_reduce,
    "ring": costs.ring_all_reduce,
    "halving-doubling": costs.halving_doubling_all_reduce,
}


def all_reduce_times(ranks=32, latency_us=50, gigabits=25):
    def time_by(cost):
        return lambda size: cost(ranks, size, latency_us * 1e-6, 8e-9 / gigabits)

    return cost_curves(
        {name: time_by(cost) for name, cost in ALGORITHMS.items()},
        title=f"All-reduce on {ranks} ranks, {latency_us} µs, {gigabits} Gbit/s",
        label="size of the tensor",
    )


explore(
    all_reduce_times,
    ranks=[2, 3, 4, 8, 16, 32, 33, 64, 512],
    latency_us=Control([1, 5, 20, 50, 200], "latency", "µs"),
    gigabits=Control([1, 10, 25, 100, 400], "bandwidth", "Gbit/s"),
)

# %% [markdown]
# **Explore.** Where do ring and tree cross with 4 ranks? With 32 ranks and 5 µs, as inside one
# machine? What happens to halving-doubling from 32 ranks to 33, which is not a power of two?
#
# <details><summary>Answers</summary>
#
# At 0.125 MB. At 0.1 MB, a tenth of where they cross with 50 µs: the crossing is proportional to
# &alpha;. With 33 ranks, halving-doubling takes twice as long for large tensors: the rank beyond
# the power of two must first hand its whole tensor to a neighbour, and get the whole result back in
# the end.
#
# </details>
#
# By this formula halving-doubling never loses at a power of two. Then why does anyone use a ring?
# Because the formula has one $\beta$ for all pairs of ranks. In a ring, neighbours talk, and the
# middle of the network is crossed by one message each way. In halving-doubling all $n$ ranks reach
# across the middle in the same step, with half of the tensor each. (One can begin with the near
# partners. Then the messages across the middle are the small ones of the last step, but there are
# still $n$ of them.) Patarasuk & Yuan make this point against "butterfly" algorithms. Libraries
# carry several algorithms and choose by size, ranks and topology; NCCL has rings and trees.

# %% [markdown]
# ## 6. Many small tensors: fusion
#
# A model does not have one gradient but one per parameter tensor, many of them tiny. ResNet-50 has
# 161, and 107 of these are vectors of at most 2048 numbers, 8 kB.
#
# **Predict.** All-reduce 107 vectors of 8 kB on 32 ranks, one by one. How many times as long does
# that take as one all-reduce of all of them in one tensor?

# %%
### BEGIN SOLUTION
guess_times_as_long = 90
### END SOLUTION

# %%
from course_lib.views.stacked_bars import stacked_bars

vector, ranks = 8_192, 32
each_latency = costs.ring_all_reduce(ranks, 0, ALPHA, BETA) * 1e3  # ms
all_bytes = costs.ring_all_reduce(ranks, 107 * vector, 0, BETA) * 1e3
one_by_one = {"latency": 107 * each_latency, "bytes": all_bytes}
packed = {"latency": each_latency, "bytes": all_bytes}
times_as_long = sum(one_by_one.values()) / sum(packed.values())
print(f"one by one takes {times_as_long:.0f} times as long as all in one tensor")
print("your guess:", guessed(guess_times_as_long))
stacked_bars(
    {"one by one": one_by_one, "in one tensor": packed},
    "ms",
    f"107 vectors of 8 kB on {ranks} ranks",
    "{:.1f}".format,
)

# %% [markdown]
# **Explain.** The bytes are the same. But the latency is paid once instead of 107 times, and so
# short a message costs hardly anything else. Horovod calls it **tensor fusion**: copy small tensors
# into one buffer, all-reduce the buffer, copy the results back. Its buffer was 64 MB by default,
# and it looked for ready tensors every 5 ms, until version 0.21 (November 2020); since then 128 MB
# and 1 ms.
#
# ### Exercise 7: `fused_all_reduce` (●● 15 minutes)
#
# Go through the list in order. Pack neighbours of the same dtype while they fit into
# `buffer_bytes`, all-reduce the buffer with `dist.all_reduce`, copy the parts back. A tensor larger
# than the buffer gets a buffer of its own. The ring is proven; from here on you may use PyTorch's.


# %% exercise="fused_all_reduce"
def fused_all_reduce(tensors: list[torch.Tensor], buffer_bytes: int) -> list[torch.Tensor]:
    """Sum every tensor over all ranks, in place, with few calls. Returns `tensors`."""
    ### BEGIN SOLUTION
    packs: list[list[torch.Tensor]] = []
    room = 0
    for tensor in tensors:
        if not packs or tensor.nbytes > room or tensor.dtype != packs[-1][0].dtype:
            packs.append([])
            room = buffer_bytes
        packs[-1].append(tensor)
        room -= tensor.nbytes

    for pack in packs:
        buffer = torch.cat([tensor.flatten() for tensor in pack])
        dist.all_reduce(buffer)
        parts = buffer.split([tensor.numel() for tensor in pack])
        for tensor, part in zip(pack, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))
    return tensors
    ### END SOLUTION


# %% check="fused_all_reduce"
check(fused_all_reduce)

# %% [markdown]
# ## 7. Horovod's DistributedOptimizer
#
# Horovod changed a training script by a few lines: broadcast the parameters from rank 0 once, and
# wrap the optimizer. Three things make it work.
#
# - **Broadcast at the start.** Ranks that begin with different weights would average gradients of
#   different models, and never notice.
# - **Hooks.** Backward computes the gradients of the last layer first. Its all-reduce can travel
#   while the earlier layers still compute. So it is started by a hook in the moment a gradient is
#   ready, and waited for just before the optimizer step.
# - **Fused buffers**, as above.
#
# ### Exercise 8: `average_gradients_by_hooks` (●● 15 minutes)
#
# Write the first two. Called once on every rank before training, the function
#
# 1. broadcasts rank 0's parameters and buffers;
# 2. hangs a hook on every trainable parameter that starts `dist.all_reduce(..., async_op=True)` on
#    its gradient;
# 3. returns a function `synchronize()`. Called after backward, it waits for all of these, leaves
#    the **average** in every `.grad`, and is ready for the next step.
#
# `parameter.register_post_accumulate_grad_hook(hook)` calls `hook(parameter)` when the gradient is
# complete. It passes the *parameter*; the gradient is `parameter.grad`. A sum divided by $n$ is an
# average on every backend. (`op=dist.ReduceOp.AVG` does both at once with NCCL, but not every
# version of PyTorch has it for gloo. At least one published training library took the argument for
# the gradient: its weights were averaged, its gradients not.)


# %% exercise="average_gradients_by_hooks"
def average_gradients_by_hooks(model: torch.nn.Module) -> Callable[[], None]:
    """Make the ranks equal, all-reduce gradients during backward; returns `synchronize`."""
    ### BEGIN SOLUTION
    n = dist.get_world_size()
    under_way = []

    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)

    def start(parameter):
        under_way.append((parameter, dist.all_reduce(parameter.grad, async_op=True)))

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(start)

    def synchronize():
        for parameter, work in under_way:
            work.wait()
            parameter.grad /= n
        under_way.clear()

    return synchronize
    ### END SOLUTION


# %% check="average_gradients_by_hooks"
check(average_gradients_by_hooks)

# %% [markdown]
# ### Train a real model with it
#
# A small GPT learns to sort five digits. First one process, with the whole batch of 16 rows. Then
# four ranks with four rows of it each. They begin with different random weights on purpose, so that
# a missing broadcast shows.
#
# **Predict.** How far apart are the two losses after 12 steps: exactly 0, about 1e-6, about 1e-2?

# %%
### BEGIN SOLUTION
guess_apart = 1e-6
### END SOLUTION

# %%
from course_lib.models import batches, tiny_gpt, train
from course_lib.techniques.collectives import broadcast_state
from course_lib.techniques.data_parallel import DistributedOptimizer

STEPS, ROWS = 12, 16


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def train_on_my_part(prepare):
    """`prepare` makes the ranks work together; it returns the model to call and the step."""
    rank, n = dist.get_rank(), dist.get_world_size()
    model = tiny_gpt(seed=rank)
    forward, step = prepare(model, adamw(model.parameters()))
    losses = []
    for tokens, targets in batches(STEPS, ROWS):
        logits = forward(tokens[rank::n])
        loss = F.cross_entropy(logits.flatten(0, 1), targets[rank::n].flatten())
        model.zero_grad()
        loss.backward()
        step()
        losses.append(loss.item())
    return losses


def your_hooks(model, optimizer):
    synchronize = average_gradients_by_hooks(model)

    def step():
        synchronize()
        optimizer.step()

    return model, step


def like_horovod(model, optimizer):
    broadcast_state(model)
    return model, DistributedOptimizer(optimizer, model, buffer_bytes=128_000).step


def never_talk(model, optimizer):
    return model, optimizer.step


def on_four_ranks(prepare):
    """The run, and the loss of each whole batch: the mean over ranks, whose parts are equal."""
    run = run_ranks(train_on_my_part, 4, prepare, timeout=45)
    return run, [sum(parts) / 4 for parts in zip(*run, strict=True)]


# %%
from course_lib.views.loss_curves import loss_curves

alone = train(tiny_gpt(seed=0), batches(STEPS, ROWS), adamw).losses
hooked = solved(average_gradients_by_hooks)
hooks_run, together = on_four_ranks(your_hooks if hooked else like_horovod)
_, apart = on_four_ranks(never_talk)

largest = max(abs(a - b) for a, b in zip(alone, together, strict=True))
print("four ranks are within 1e-5 of one process:", "yes" if largest < 1e-5 else "no")
print("your guess:", guessed(guess_apart))
curves = {"one process": alone, "four ranks": together, "four ranks that never talk": apart}
loss_curves(
    {name: (range(1, STEPS + 1), losses) for name, losses in curves.items()},
    "step",
    "Loss of the whole batch",
)

# %% [markdown]
# The same curve, to five digits and more. It is not exactly the same, because sums are added in
# another order; section 9 looks into that. The last curve is the control: without the
# all-reduce each rank learns only from its own four rows, and the curve is a different one.
#
# ### And with fused buffers
#
# The library's `DistributedOptimizer` has all three parts. PyTorch's `DistributedDataParallel`
# (DDP) has the same three, and calls the buffers buckets. Here are both in your training loop.
#
# **Predict.** The model has 37 parameter tensors, 408 kB in all. How many all-reduces per step with
# your hooks, and how many at least with buffers of 128 kB?

# %%
### BEGIN SOLUTION
guess_yours = 37
guess_fused = 4
### END SOLUTION

# %%
from torch.nn.parallel import DistributedDataParallel


def with_ddp(model, optimizer):
    return DistributedDataParallel(model), optimizer.step


def row_of(name, run, losses):
    reduced = [event for event in run.trace.of(0) if event.op == "all_reduce"]
    calls, nbytes = len(reduced) / STEPS, sum(event.nbytes for event in reduced) / STEPS
    return name, f"{losses[-1]:.3f}", f"{calls:.0f}", f"{nbytes:,.0f}"


rows = [("", "loss", "all-reduces per step", "bytes per step")]
if hooked:
    rows.append(row_of("your hooks", hooks_run, together))
rows.append(row_of("DistributedOptimizer", *on_four_ranks(like_horovod)))
rows.append(row_of("DDP", *on_four_ranks(with_ddp)))
print(table(rows))
print("your guesses:", guessed(guess_yours, guess_fused))

# %% [markdown]
# **Explain.** Three ways to the same loss. 408 kB / 128 kB is 3.2, so four buffers at least; it
# takes five, because a tensor is not cut. (The library's buffers also carry one number per
# parameter: how many ranks had a gradient for it.) DDP took a single bucket, since its buckets hold
# 25 MiB, the first 1 MiB, and the model is smaller than either. One bucket is the fewest messages,
# and no overlap at all: it can only leave when the last gradient is ready. Real models have
# hundreds of megabytes, and there the size of the buffers is a trade between the two.
# [Lesson 03](03_data_parallel.ipynb) measures it.

# %% [markdown]
# ## 8. At scale
#
# **What was measured.** Horovod's authors published *scaling efficiency*: the throughput on $N$
# GPUs divided by $N$ times that of one.
#
# | | Inception V3 | ResNet-101 | VGG-16 | network |
# | --- | --- | --- | --- | --- |
# | 128 GPUs (32 machines of 4) | 90 % | 90 % | 79 % | 25 Gbit/s RoCE |
# | 512 Pascal GPUs (128 machines of 4) | 90 % | 90 % | 68 % | 25 Gbit/s RoCE |
#
# (RoCE: network cards write into each other's memory, over Ethernet.)
#
# Both rows are from Horovod's README, the first from an earlier version of it. They are often mixed
# up: 68 % belongs to 512 GPUs.
#
# 68 % of 512 GPUs is the work of 348. Why VGG-16 and not ResNet-101? Compare the bytes.

# %%
rows = [("on 512 ranks, 25 Gbit/s", "gradient, MB", "bandwidth term, s")]
for name, parameters in (("ResNet-101", 44_549_160), ("VGG-16", 138_357_544)):
    seconds = costs.ring_all_reduce(512, 4 * parameters, 0.0, BETA)
    rows.append((name, f"{4 * parameters / 1e6:.0f}", f"{seconds:.2f}"))
print(table(rows))

# %% [markdown]
# VGG-16 has three times the bytes to move, most of them in one fully connected layer. What can hide
# behind backward was hidden; the rest shows. (Four GPUs shared one network card there. A ring that
# visits the GPUs machine by machine crosses each card only once each way.)
#
# **Halving-doubling at Facebook.** Goyal et al. 2017 (*Accurate, Large Minibatch SGD*, section 4)
# trained ResNet-50 in an hour on 256 GPUs. Their all-reduce between machines was halving-doubling:
# $2\log_2 p$ steps against $2(p-1)$ for the same bytes. They report it much better up to a million
# elements, and three times as fast as their ring on 32 servers.
#
# **Reading a benchmark.** `nccl-tests` prints two bandwidths. `algbw` is $S/t$. `busbw` multiplies
# it by $2\frac{n-1}{n}$ for all-reduce, by $\frac{n-1}{n}$ for reduce-scatter and all-gather: the
# bytes that a link had to carry. Only `busbw` can be held against the data sheet, and only it stays
# the same when $n$ grows. Other tools print $2S/t$ as "throughput". Look before you compare.
#
# Suppose `all_reduce_perf` shows 7.0 ms for 1 GB on 8 GPUs:

# %%
a_gigabyte, gpus, took = 1e9, 8, 7.0e-3
print(f"algbw {a_gigabyte / took / 1e9:.0f} GB/s")
print(f"busbw {costs.bus_bandwidth('all_reduce', gpus, a_gigabyte, took) / 1e9:.0f} GB/s")

# %% [markdown]
# ### From 8 to 1024 GPUs
#
# 1024 ranks do not fit on this machine. Your recording and the formula do the rest, if they agree
# where both exist. The cluster is made of DGX A100s. Such a machine, a *node* of the cluster, has
# eight GPUs, which NVLink joins (3.4 µs, 300 GB/s each way). Between nodes there is InfiniBand (14
# µs, 25 GB/s each way, with a network card, or *adapter*, for every GPU). Ranks fill node after
# node.
#
# The formulas need one more thought: which messages leave a node? In a ring some do in every step,
# and all wait for those. So the network sets the pace, however fast the other links are. In a tree
# the lowest levels stay inside the nodes. In halving-doubling the first steps cross the network,
# and what is left for the inside is small.
#
# Here they are.

# %%
from dataclasses import replace

from course_lib.simulate import LINKS, dgx_a100, hierarchical_all_reduce, replay

inside, between = LINKS["NVLink 3"], LINKS["InfiniBand HDR"]


def ring_seconds(nodes, per_node, size):
    link = between if nodes > 1 else inside
    return costs.ring_all_reduce(nodes * per_node, size, link.alpha, link.beta)


def tree_seconds(nodes, per_node, size):
    low = costs.tree_all_reduce(per_node, size, inside.alpha, inside.beta)
    return low + costs.tree_all_reduce(nodes, size, between.alpha, between.beta)


def halving_doubling_seconds(nodes, per_node, size):
    far = costs.halving_doubling_all_reduce(nodes, size, between.alpha, between.beta)
    part = size / nodes  # what is left when all partners are near
    return far + costs.halving_doubling_all_reduce(per_node, part, inside.alpha, inside.beta)


# %% [markdown]
# The next cell replays recordings on several layouts, without the time of the additions, and prints
# what the formulas say beside it. (You need not read its code; look whether the two agree.)

# %%
recorded = {
    RING: (my_ring, ring_seconds),
    "tree": (collectives.tree_all_reduce, tree_seconds),
    "halving-doubling": (collectives.halving_doubling_all_reduce, halving_doubling_seconds),
}
columns = [["400 kB: replay / formula, µs"]]
for name, (all_reduce, seconds) in recorded.items():
    columns.append([name])
    for ranks, layouts in {2: [(1, 2)], 4: [(1, 4)], 8: [(1, 8), (8, 1), (2, 4)]}.items():
        trace = run_ranks(second_call, ranks, all_reduce, 100_000).trace.within("add")
        for nodes, per_node in layouts:
            machine = replace(dgx_a100, nodes=nodes, devices_per_node=per_node)
            played = replay(trace, machine, compute=[]).makespan
            said = seconds(nodes, per_node, 400_000)
            columns[-1].append(f"{played * 1e6:.1f} / {said * 1e6:.1f}")
            if name == RING:
                columns[0].append(f"{counted(nodes, 'node')} of {per_node}")
print(table(zip(*columns, strict=True)))

# %% [markdown]
# Equal everywhere, so from here on the formulas do without the replay.
#
# In one node of eight GPUs, ring and tree take the same time at 1.9 MB.
#
# **Predict.** And on 128 such nodes, 1024 GPUs? At which size, in MB, do ring and tree take the
# same time there? (It will be the last line of the second column.)

# %%
### BEGIN SOLUTION
guess_megabytes = 57
### END SOLUTION


# %%
def hierarchical_seconds(nodes, per_node, size):
    machine = replace(dgx_a100, nodes=nodes, devices_per_node=per_node)
    return hierarchical_all_reduce(machine, range(nodes * per_node), size)


def equal_at(one, other, nodes, per_node):
    """The size at which two algorithms take the same time: two straight lines that meet."""
    apart = [one(nodes, per_node, size) - other(nodes, per_node, size) for size in (0, 1e9)]
    return 1e9 * apart[0] / (apart[0] - apart[1])


rows = [("GPUs", "one per node", "eight per node", "hierarchical ring, eight per node")]
for gpus in (8, 16, 32, 64, 128, 256, 512, 1024):
    flat = ring_wins_above(gpus, between.alpha, between.beta)
    ring = equal_at(ring_seconds, tree_seconds, gpus // 8, 8)
    rings = equal_at(hierarchical_seconds, tree_seconds, gpus // 8, 8)
    rows.append((gpus, *(f"{size / 1e6:.2f}" for size in (flat, ring, rings))))
print("the ring is faster than the tree above so many MB:")
print(table(rows))
print("your guess:", guessed(guess_megabytes), "MB")

# %% [markdown]
# **Explain.** The first column is your `crossover_bytes`. Each doubling of $n$ raises it by a
# factor of about 1.8: the ring takes $2(n-1)$ steps, the tree $2\log_2 n$.
#
# In the second column nodes help the tree: its lower levels are nearly free. On two nodes it sends
# the tensor over the network once each way. The ring sends 15/16 of that and takes 30 steps. Its
# bytes hardly make up for its latencies, so it needs a large tensor to win: 14.86 MB. On four nodes
# the tree crosses the network twice each way, the ring sends still less than two tensors, and wins
# from 7.72 MB on. After that the latencies of the ring double with every line, the tree only
# sends one tensor more each way, and the size rises to the 56.85 MB that were asked for.
#
# The last column is a ring that knows of nodes: reduce-scatter inside each node, all-reduce of the
# eighths across nodes, all-gather inside. On 1024 GPUs it takes 254 steps on the network, where the
# flat ring takes 2046. This is why libraries look at the topology first.

# %%
from course_lib.views.scaling_curves import scaling_curves

SCALED = {  # in this order, each has the colour that it had above
    "hierarchical ring": hierarchical_seconds,
    "tree": tree_seconds,
    "ring": ring_seconds,
    "halving-doubling": halving_doubling_seconds,
}


def on_more_devices(megabytes=100, gpus_per_node=8):
    def time_by(seconds):
        return lambda n: seconds(n // gpus_per_node, gpus_per_node, megabytes * 1e6)

    return scaling_curves(
        {name: time_by(seconds) for name, seconds in SCALED.items()},
        title=f"all-reduce of {megabytes} MB, nodes of {gpus_per_node}",
    )


explore(
    on_more_devices,
    megabytes=Control([0.01, 0.1, 1, 10, 100, 1000], "tensor", "MB"),
    gpus_per_node=Control([1, 8], "GPUs per node"),
)

# %% [markdown]
# **Explore.** Which algorithm suffers most from more devices at 1 MB, and which at 1000 MB? What
# becomes of the hierarchical ring with one GPU per node?
#
# <details><summary>Answers</summary>
#
# At 1 MB the ring, which takes 2(n-1) steps, one after the other. At 1000 MB the tree, which sends
# the whole tensor once more for every doubling. With one GPU per node the hierarchical ring *is*
# the ring.
#
# </details>
#
# Halving-doubling never loses to the tree: they take the same number of steps, and the tree sends
# more. The model leaves out the same as in section 5: here, too, every pair of nodes has wires of
# its own.

# %% [markdown]
# ## 9. Two claims put to the test
#
# ### "The time of a ring all-reduce does not depend on the number of workers"
#
# The Baidu article of 2017 says that the cost "is constant and independent of the number of GPUs",
# and then adds: if bandwidth is the only factor. Lessons often keep the first half. Here are both
# terms.
#
# **Predict.** 1 MB, with $\alpha$ = 50 µs and 25 Gbit/s as before. On how many ranks do the
# latencies take longer than the bytes: on 8 already, on 64, on 512, or never?

# %%
### BEGIN SOLUTION
guess_latency_longer = 8
### END SOLUTION

# %%
from course_lib.views.ratio_curves import ratio_curves

rows = [("ranks", "messages", "latency, ms", "bytes of 1 MB, ms", "bytes of 553 MB, ms")]
many = [2**power for power in range(1, 13)]
terms = {
    "latency": [costs.ring_all_reduce(ranks, 0, ALPHA, BETA) * 1e3 for ranks in many],
    "bytes of 1 MB": [costs.ring_all_reduce(ranks, 1e6, 0.0, BETA) * 1e3 for ranks in many],
    "bytes of 553 MB": [costs.ring_all_reduce(ranks, gradient, 0.0, BETA) * 1e3 for ranks in many],
}
for ranks, *times in zip(many, *terms.values(), strict=True):
    if ranks in (2, 8, 64, 512, 4096):
        rows.append((ranks, f"{2 * (ranks - 1):,}", *(f"{ms:.2f}" for ms in times)))
print(table(rows))
print("your guess:", guessed(guess_latency_longer))
ratio_curves(many, terms, "ranks", "ms", "What the two terms of a ring all-reduce cost", log_y=True)

# %% [markdown]
# **Explain.** The bandwidth term doubles from 2 ranks to many and then stands still: true. The
# latency term grows with every rank. It overtakes the other at $n = S\beta/\alpha$: between 6
# and 7 ranks for 1 MB, near 3,500 for VGG‑16. So the claim is right for large tensors on moderate
# clusters, and wrong for small tensors anywhere. That is why fusion exists, why trees exist, and
# why hierarchical all-reduce exists.
#
# The messages are not only a formula. Count them:

# %%
rows = [("", "messages of rank 0", "bytes")]
for ranks in (2, 3, 4):
    trace = run_ranks(sum_1000_values, ranks, my_ring).trace
    sends = sum(event.op == "send" for event in trace.of(0))
    rows.append((f"{ranks} ranks", sends, f"{trace.traffic().sent[0]:,}"))
print(table(rows))

# %% [markdown]
# ### "All-reduce gives the same bits as adding the tensors up one after the other"
#
# 1003 float32 values between 0.001 and 1000 on each of four ranks. Floating-point addition is not
# associative: $(a + b) + c$ and $a + (b + c)$ may differ in the last bit. The ring adds every chunk
# in another order, beginning with another rank.
#
# **Predict.** How many of the 1003 sums differ from the serial sum `0 + 1 + 2 + 3`? Do the *ranks*
# differ from each other?

# %%
### BEGIN SOLUTION
guess_different = 250
guess_ranks_agree = True
### END SOLUTION


# %%
def values_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return 10 ** (6 * torch.rand(1003, generator=generator) - 3)


def ring_sum():
    return collectives.ring_all_reduce(values_of(dist.get_rank()))


sums = run_ranks(ring_sum, 4)
serial = values_of(0) + values_of(1) + values_of(2) + values_of(3)
exact = sum(values_of(rank).double() for rank in range(4))

different = int((sums[0] != serial).sum())
print(f"{different} of 1003 sums differ from the serial sum")
errors = {
    name: ((x - exact) / exact).abs().max() for name, x in (("ring", sums[0]), ("serial", serial))
}
for name, error in errors.items():
    print(f"largest relative error, {name}: {error:.1e}")
same_bits = all(torch.equal(sums[0], other) for other in sums)
print("all ranks have the same bits:", "yes" if same_bits else "no")
print("your guesses:", guessed(guess_different, guess_ranks_agree))

# %% [markdown]
# The claim is false, and it does no harm: neither order is nearer the truth. What matters is that
# all *ranks* hold the same bits. Otherwise their weights drift apart, step by step. The ring
# guarantees it: each chunk is summed on one rank, and the others receive copies. So compare ranks
# with each other bit by bit, and with a reference by a tolerance. The checks here do both.
#
# ## 10. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. You double $n$ from 8 to 16. By what factor does the ring's traffic per rank grow?
#
#    <details><summary>Answer</summary>
#    From 2·7/8 = 1.75 to 2·15/16 = 1.875 tensors: by 7 %.
#    </details>
#
# 2. A model has 300 gradient tensors, $\alpha$ = 20 µs, 64 ranks. What does latency cost per step
#    without fusion? With everything in three buffers?
#
#    <details><summary>Answer</summary>
#    2·63·20 µs = 2.52 ms for one all-reduce. 300 of them: 756 ms. Three: 7.6 ms.
#    </details>
#
# 3. One rank of 64 has a network card at half speed. How fast is the ring?
#
#    <details><summary>Answer</summary>
#    Half as fast, everywhere. Every card sends one chunk in every step, and nobody can take the
#    next step before the chunk of the last one is there. So the slowest sets the pace.
#    </details>
#
# 4. Goyal et al. saw a factor of 3 between ring and halving-doubling on 32 servers. At which size
#    does the formula give 3?
#
#    <details><summary>Answer</summary>
#    Both share the bandwidth term x. (62α + x) / (10α + x) = 3 gives x = 16α. With α = 50 µs that
#    is 0.8 ms, or 1.3 MB at 25 Gbit/s.
#    </details>
#
# 5. Gradients in bfloat16 take half the bytes. What gets twice as fast, and what does not?
#
#    <details><summary>Answer</summary>
#    The bandwidth term halves. The latency term stays. For VGG-16 on 512 ranks with the α and β
#    above: from 51 + 353 ms to 51 + 177 ms.
#    </details>
#
# ## 11. Assignment: `halving_doubling_all_reduce` (●●● 25 minutes)
#
# $n$ is a power of two. Pad as in the ring, so that the tensor has $n$ equal chunks. Call the $d$
# neighbouring chunks that begin at `rank // d * d` the *block* of a rank at distance $d$.
#
# - **Halving**, $d = n/2, n/4, \dots, 1$: the partner is `rank ^ d`. Send it the partner's block at
#   distance $d$, receive your own and add. After the last step your block is one complete chunk.
# - **Doubling**, $d = 1, 2, \dots, n/2$: the same partners. Send your block, receive the partner's.
#
# **Predict.** 8 ranks: how many messages does each rank send, and how many bytes of a 4000-byte
# tensor?

# %%
### BEGIN SOLUTION
guess_halving_messages = 6
guess_halving_bytes = 7_000
### END SOLUTION

# %% [markdown]
# The check wants exactly so many.


# %% exercise="halving_doubling_all_reduce"
def halving_doubling_all_reduce(tensor: torch.Tensor, group=None) -> torch.Tensor:
    """Sum `tensor` over a group of 2^k ranks, in place, in 2k messages. Returns `tensor`."""
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    chunks = F.pad(tensor.flatten(), (0, -tensor.numel() % n)).view(n, -1)
    distances = [2**k for k in range((n - 1).bit_length())]  # 1, 2, ..., n/2

    def block(of, d):
        return chunks[of // d * d : of // d * d + d]

    def swap(outgoing, arriving, partner):
        sending = dist.isend(outgoing, group=group, group_dst=partner)
        dist.recv(arriving, group=group, group_src=partner)
        sending.wait()

    for d in reversed(distances):
        mine = block(rank, d)
        arriving = torch.empty_like(mine)
        swap(block(rank ^ d, d), arriving, rank ^ d)
        mine += arriving
    for d in distances:
        swap(block(rank, d), block(rank ^ d, d), rank ^ d)

    tensor.copy_(chunks.flatten()[: tensor.numel()].view_as(tensor))
    return tensor
    ### END SOLUTION


# %% check="halving_doubling_all_reduce"
check(halving_doubling_all_reduce)

# %%
if solved(halving_doubling_all_reduce):
    trace = run_ranks(sum_1000_values, 8, halving_doubling_all_reduce).trace
    sends = sum(event.op == "send" for event in trace.of(0))
    print(f"rank 0 of 8 sent {sends} messages, {trace.traffic().sent[0]:,} bytes")
print("your guesses:", guessed(guess_halving_messages, guess_halving_bytes))

# %% [markdown]
# ## 12. What to read
#
# - Patarasuk & Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of workstations*:
#   the lower bound, and the ring that meets it.
# - Gibiansky 2017, *Bringing HPC Techniques to Deep Learning*: the article that brought the ring to
#   deep learning, with pictures of every step.
# - Sergeev & Del Balso 2018, *Horovod: fast and easy distributed deep learning in TensorFlow*
#   ([arXiv 1802.05799](https://arxiv.org/abs/1802.05799)). You have written most of what it
#   describes.
# - Thakur, Rabenseifner & Gropp 2005, *Optimization of Collective Communication Operations in
#   MPICH*: how a real library chooses, and where the formulas in `course_lib.simulate.costs` are
#   from.
# - Goyal et al. 2017, *Accurate, Large Minibatch SGD*
#   ([arXiv 1706.02677](https://arxiv.org/abs/1706.02677)): section 4.
# - `course_lib/techniques/collectives/`: the same algorithms as you wrote, tuned to be as fast as
#   gloo's own.
#
# **Next**: [lesson 03](03_data_parallel.ipynb) makes the hooks into full data parallel training:
# buckets, overlap, and what PyTorch's DistributedDataParallel does with both.
