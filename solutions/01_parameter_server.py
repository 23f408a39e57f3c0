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
# # 01 · Parameter servers
#
# **After this lesson you can**
#
# - train one model on many machines with a server that holds its parameters, and get the result of
#   one machine with the whole batch;
# - spread parameters over several servers, evenly by bytes, so that one more server moves little;
# - explain why most training today does without servers, by the bytes on the busiest link.
#
# If you go on with the optional part, you can also
#
# - say what asynchronous training gains in waiting and loses in staleness, in numbers;
# - bound the staleness, and choose the bound.
#
# **You need** `send` and `recv` from [lesson 00](00_ranks.ipynb). **It takes** 90 minutes to the
# end of section 4. All else is optional: 40 minutes for sections 5 to 7, 10 for the assignment;
# sections 8 to 12 are there to run and read. The machine needs a minute. Each exercise says how
# hard it is (● a few lines, ●● two ideas together, ●●● the hard one) and how long it takes.

# %%
import functools
import math
import random
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn

from course_lib import check, guessed, hint, run_ranks, solved

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
# In 2014 a large web company trained a model that predicts which advertisement a person will click.
# It had learnt from 170 billion examples, 636 TB of them, with 65 billion different features; and
# each feature has a weight.

# %%
features, machines = 65e9, 1000
print(f"the weights: {4 * features / 1e9:.0f} GB in float32; a machine has 192 GB")
print(f"the examples: {636e12 / machines / 1e9:.0f} GB for each of {machines} machines")

# %% [markdown]
# The weights do not fit on one machine, and all the examples even less. But one example has only a
# few of all those features, so a machine that reads examples needs few of the weights at a time.
# Hence two roles:
#
# - **servers** keep the parameters, each a part of them;
# - **workers** keep the examples. They *pull* the parameters that they need, compute a gradient and
#   *push* it back. Workers never talk to each other.

# %%
from course_lib.views.server_and_ring import server_and_ring

server_and_ring(workers=4)

# %% [markdown]
# On the left this lesson's way. On the right the same workers without a server, in a *ring*: each
# keeps a copy of all parameters and sends to its neighbour. Section 3 compares the two.
#
# The second problem is time. A thousand machines are never equally fast: one has a bad disk, one
# runs somebody else's job too. If all wait for the slowest at every step, most wait most of the
# time.
#
# **Who solved it, and when.** Dean et al. trained the first very large networks in this way
# (*DistBelief*, NIPS 2012). Ho et al. bounded how far workers may run apart (*SSP*, NIPS 2013). Li
# et al. made it one general system and described what it is made of (*Parameter Server*, OSDI
# 2014); the job above is theirs, on 800 workers and 200 servers. This notebook follows their paper
# and its words.

# %% [markdown]
# ## 2. One step
#
# Rank 0 is the server, all others are workers. A worker has computed the gradient of its mean loss
# over its own samples. What is the gradient of the mean over *all* samples? Worker $w$ has $n_w$ of
# all $B$ samples, so
#
# $$g = \sum_w \frac{n_w}{B}\, g_w$$
#
# The factor $n_w / B$ is the worker's *share*.
#
# ### Exercise 1: `push_and_pull` (●● 10 minutes)
#
# The server holds `values`. Every worker has its `gradient` and its `share`. One step: all push,
# the server subtracts `lr` times the gradient of the whole batch, all pull. Every rank returns the
# new values.
#
# The rules of the game: only `send` and `recv` (or `isend` and `irecv`), no collectives. A worker
# sends one tensor as large as its gradient and nothing else; the server sends the new values to
# each worker. The server has no samples, so its own `gradient` (nan) and `share` (0) do not count.


# %% exercise="push_and_pull"
def push_and_pull(values, gradient, share, lr):
    """One step of gradient descent; returns the new values on every rank.

    values: on rank 0, the server; nan elsewhere. gradient, share: of a worker.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() > 0:
        dist.send(share * gradient, dst=0)
        dist.recv(values, src=0)
        return values
    workers = range(1, dist.get_world_size())
    total, pushed = torch.zeros_like(values), torch.empty_like(values)
    for worker in workers:
        dist.recv(pushed, src=worker)
        total += pushed
    values = values - lr * total
    for worker in workers:
        dist.send(values, dst=worker)
    return values
    ### END SOLUTION


# %% check="push_and_pull"
check(push_and_pull)

# %% [markdown]
# Stuck, here or later? `hint(push_and_pull)` gives a nudge, `hint(push_and_pull, 2)` more, and
# `hint(push_and_pull, 3)` almost the answer.
#
# **A warm-up.** The next exercise trains a real model, and real models have parameters of three
# awkward kinds. Look at how torch shows them:


# %%
class Awkward(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.shared = nn.Linear(2, 2, bias=False)
        self.again = self.shared  # one parameter in two places

    def forward(self, x):
        return self.again(self.shared(x * self.frozen))


awkward = Awkward()
awkward(torch.ones(1, 2)).sum().backward()
for name, parameter in awkward.named_parameters():
    print(
        f"{name:14} requires_grad {parameter.requires_grad!s:5}  grad {parameter.grad is not None}"
    )

# %% [markdown]
# A frozen parameter has no gradient, but every rank needs its value once. One that the loss does
# not depend on keeps `None` as its `.grad`, on every rank or on some. One that is in two places is
# listed once, so it travels once.
#
# ### Exercise 2: `train_synchronously` (●●● 30 minutes)
#
# Now a whole training, with workers that have different numbers of samples, ranks that start with
# different parameters (the server's are the ones that count), and parameters of all three kinds.
# After ten steps *every* rank's model should be what one process with the whole batch would have.
#
# On a worker `batches` is a list of `(inputs, targets, share)`; on the server it is as long, and
# each entry is `None`. Workers pull once before the first step, the frozen parameters too. Then in
# each step a worker sends its gradients once and pulls the new parameters once. (Where `.grad` is
# `None` it sends zeros, since the server cannot know.) A step is plain gradient descent: parameter
# minus `lr` times gradient. (Write it for a model without awkward parameters first.)


# %% exercise="train_synchronously"
def train_synchronously(model, batches, loss, lr):
    """Plain gradient descent, a step for each batch; changes the model in place on every rank."""
    ### BEGIN SOLUTION
    server, workers = dist.get_rank() == 0, range(1, dist.get_world_size())
    trained = [p for p in model.parameters() if p.requires_grad]

    def pull(parameters):
        for p in parameters:
            if server:
                for worker in workers:
                    dist.send(p.detach(), dst=worker)
            else:
                dist.recv(p.detach(), src=0)

    pull(model.parameters())  # the frozen ones once
    for batch in batches:
        if server:
            for p in trained:
                total, pushed = torch.zeros_like(p), torch.empty_like(p)
                for worker in workers:
                    dist.recv(pushed, src=worker)
                    total += pushed
                p.detach().sub_(lr * total)
        else:
            x, y, share = batch
            model.zero_grad()
            loss(model(x), y).backward()
            for p in trained:
                gradient = torch.zeros_like(p) if p.grad is None else p.grad
                dist.send(share * gradient, dst=0)
        pull(trained)
    ### END SOLUTION


# %% check="train_synchronously"
check(train_synchronously)

# %% [markdown]
# So a *synchronous* parameter server changes nothing about what is learnt. It is a way to compute
# the same step with more machines.

# %% [markdown]
# ## 3. What the server's link carries
#
# Without a server, workers can add up their gradients in a *ring*, where each sends pieces to its
# neighbour ([lesson 02](02_ring_all_reduce.ipynb) builds it). Each of $n$ workers then sends
# $2\frac{n-1}{n}$ times the gradient.
#
# **Predict.** Four workers, a model of $S$ bytes. In one step, how many times $S$ leave the server?
# How many leave a worker? And how many leave each of the four in a ring?

# %%
### BEGIN SOLUTION
guess_server = 4
guess_worker = 1
guess_ring = 1.5
### END SOLUTION

# %%
from course_lib.techniques.collectives import ring_all_reduce
from course_lib.views.traffic_bars import traffic_bars

NUMEL = 12_000


def one_step_by_server():
    push_and_pull(torch.zeros(NUMEL), torch.ones(NUMEL), 1 / 4, 0.1)


def one_step_by_ring():
    if dist.get_rank() > 0:
        # All ranks but the server; lesson 02 says what such a group is.
        workers = dist.new_group([1, 2, 3, 4], use_local_synchronization=True)
        ring_all_reduce(torch.ones(NUMEL), workers)


steps = {"ring of the workers": run_ranks(one_step_by_ring, 5).trace}
if solved(push_and_pull):
    steps = {"parameter server": run_ranks(one_step_by_server, 5).trace} | steps
print("your guesses, in models:", guessed(guess_server, guess_worker, guess_ring))
traffic_bars(
    {name: trace.traffic() for name, trace in steps.items()},
    per_tensor=4 * NUMEL,
    unit="models",
    ranks={0: "the server"} | {rank: f"worker {rank}" for rank in range(1, 5)},
)

# %% [markdown]
# **Explain.** The server sends four models, and each worker one. (They receive as much; that is not
# in the picture.) So the server's link is the bottleneck: it carries $nS$ in and $nS$ out, more
# with each worker. In the ring everyone carries $2\frac{n-1}{n}S$, which never exceeds $2S$.
#
# The same two steps over time. Both runs are *replayed* on five machines, each with one link to the
# network, over which a quarter of the model takes one unit of time. Play them: follow the messages,
# and count who waits.

# %%
from dataclasses import replace

from course_lib.simulate import Link, dgx_a100, replay
from course_lib.views.gantt_chart import gantt_chart

one_unit = Link("one unit for a quarter of the model", 0, NUMEL)
five_machines = replace(dgx_a100, devices_per_node=1, nodes=5, between=one_unit)
gantt_chart({name: replay(trace, five_machines, compute=()) for name, trace in steps.items()})

# %% [markdown]
# **Explain.** While the server takes in one gradient, three workers wait for their turn, and again
# while it hands out the values. With twice the workers it would take twice as long. In the ring
# every link carries a quarter of the model in every unit, and nobody queues.
#
# More servers help: with $m$ of them each has $S/m$ bytes of the parameters.
#
# ### Exercise 3: `bytes_sent` (● 5 minutes)
#
# What leaves one server, one worker, one rank of a ring in one step?


# %% exercise="bytes_sent"
def bytes_sent(workers: int, size: int, servers: int) -> tuple[float, float, float]:
    """Bytes that leave (a server, a worker, a rank of a ring of the workers) in one step.

    size: bytes of the gradient, and of the parameters; spread evenly over the servers.
    """
    ### BEGIN SOLUTION
    return workers * size / servers, size, 2 * (workers - 1) / workers * size
    ### END SOLUTION


# %% check="bytes_sent"
check(bytes_sent)

# %%
from IPython.display import display

from course_lib.views.scaling_curves import scaling_curves


def busiest_link(workers, size, servers):
    """Bytes that leave the busiest link of a parameter server, and of a ring."""
    server, worker, ring = bytes_sent(workers, size, servers)
    return max(server, worker), ring


if solved(bytes_sent):
    display(
        scaling_curves(
            {
                "servers and workers": lambda servers: busiest_link(16, 1, servers)[0],
                "ring of the workers": lambda servers: busiest_link(16, 1, servers)[1],
            },
            (1, 2, 4, 8, 16, 32),
            "16 workers: what the busiest link sends in a step",
            "models",
            "{:.3g}".format,
            count="servers",
        )
    )

# %% [markdown]
# The servers stop being the bottleneck once there are as many of them as workers. From there on the
# busiest link is a worker's own, which sends one model and receives one. A ring sends nearly two
# and receives nearly two, but needs no other machines. Let each of $n$ machines be a worker *and* a
# server, and its link carries what it does in the ring: a push is then a reduce-scatter and a pull
# an all-gather, the two halves of a ring's work.

# %% [markdown]
# ## 4. Many servers: who has what?
#
# All parameters, end to end, make one long line. The position in it is the **key**, and servers own
# **ranges** of keys. Ranges make short messages ("keys 4000 to 7000").
#
# It is the bytes that must be even. That is not so easy with whole tensors: a language model's
# embedding may be larger than everything else.
#
# ### Exercise 4: `place_by_bytes` (●● 20 minutes)
#
# Give each server its pieces `(tensor, start, stop)`, elements `start` to `stop - 1` of that
# tensor, so that the loads differ by one element at most. Go along the line: the first server has
# the first keys. All tensors have the same dtype. Empty pieces are allowed, and not needed.


# %% exercise="place_by_bytes"
def place_by_bytes(sizes: list[int], servers: int) -> list[list[tuple[int, int, int]]]:
    """For each server its pieces (tensor, start, stop), in order. sizes: elements by tensor."""
    ### BEGIN SOLUTION
    total = sum(sizes)
    placed = []
    for server in range(servers):
        low, high = total * server // servers, total * (server + 1) // servers
        pieces, offset = [], 0
        for tensor, size in enumerate(sizes):
            start, stop = max(low, offset) - offset, min(high, offset + size) - offset
            if start < stop:
                pieces.append((tensor, start, stop))
            offset += size
        placed.append(pieces)
    return placed
    ### END SOLUTION


# %% check="place_by_bytes"
check(place_by_bytes)

# %%
sizes = [50_000 * 64, 64 * 192, 64 * 64, 64 * 256, 256 * 64, 64]  # a huge embedding first
largest_share = max(sizes) / sum(sizes)
print(f"whole tensors on 4 servers: one of them has {largest_share:.1%} of all bytes, or more")
if solved(place_by_bytes):
    for server, pieces in enumerate(place_by_bytes(sizes, 4)):
        load = sum(stop - start for _, start, stop in pieces)
        print(f"server {server}: {load / sum(sizes):.1%}, pieces: {len(pieces)}")

# %% [markdown]
# ### One server more
#
# At night somebody adds a fifth server. Which keys have to move?
#
# **Predict.** All servers get equal ranges again. How many per cent of all keys change their owner,
# from four servers to five? And how few could it be at best?

# %%
### BEGIN SOLUTION
guess_moved = 50
guess_best = 20
### END SOLUTION

# %% [markdown]
# **Consistent hashing** moves few. Servers and keys get pseudo-random places on a ring, and a key
# belongs to the next server up the ring. A new server takes over what lies just below it, and
# nothing else moves. With one place for each server the arcs between them would be very uneven. So
# each server has many: *virtual servers*.
#
# ### Exercise 5: `ring_owners` (●● 10 minutes)
#
# `place(text)` says where on the ring a text lies. The rules are in the docstring; above the
# highest point the ring starts again.


# %% exercise="ring_owners"
def ring_owners(keys: list[str], servers: int, points: int, place) -> list[int]:
    """The server that owns each key.

    place(text): a whole number from 0 to 2^64 - 1. Server s stands at place(f"{s}/{i}") for i in
    range(points). A key at place(key) belongs to the first point that is not below it; above the
    highest point the ring starts again.
    """
    ### BEGIN SOLUTION
    from bisect import bisect_left

    ring = sorted((place(f"{s}/{i}"), s) for s in range(servers) for i in range(points))
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) % len(ring)][1] for key in keys]
    ### END SOLUTION


# %% check="ring_owners"
check(ring_owners)

# %%
import hashlib

from course_lib.text import counted


def hashed(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def range_owners(count, servers):
    return [key * servers // count for key in range(count)]


def moved(before, after):
    return sum(a != b for a, b in zip(before, after, strict=True)) / len(before)


blocks = [f"block {number}" for number in range(20_000)]
blocks.sort(key=hashed)  # in the order in which they lie on the ring
placements = {"equal ranges": (range_owners(20_000, 4), range_owners(20_000, 5))}
print(f"equal ranges: {moved(*placements['equal ranges']):.0%} of keys move")
for points in (1, 16, 256) if solved(ring_owners) else ():
    four, five = (ring_owners(blocks, servers, points, hashed) for servers in (4, 5))
    placements[f"ring, {counted(points, 'point')} per server"] = four, five
    share = Counter(five)
    print(
        f"ring, {counted(points, 'point')} per server: {moved(four, five):.0%} of keys move; "
        f"the new server has {share[4] / len(blocks):.0%} of all keys, "
        f"the fullest {max(share.values()) / len(blocks):.0%}"
    )
print("your guesses, in %:", guessed(guess_moved, guess_best))

# %%
from course_lib.views.key_owners import key_owners

key_owners({name: owners for name, owners in placements.items() if "256" not in name})

# %% [markdown]
# **Explain.** All keys are laid out from left to right, along the line or up the ring, and colours
# are servers. On a ring exactly those keys move that the new server gets. For an even load that is
# a fifth of all keys. With one point each the arcs are uneven: the new server gets only a tenth,
# and the fullest of the others keeps most of the rest. With many points every server's part is
# nearly even, and the new one takes a little from each of the others. Equal ranges shift along the
# whole line, so half of all keys move. (A *hash modulo the number of servers* is worse still: four
# fifths move.)

# %% [markdown]
# ## 5. Nobody waits: asynchronous workers
#
# In section 2 the server waited for all gradients. Now it takes a step with each gradient as it
# comes and answers at once. No worker ever waits for another. The paper calls this **eventual**
# consistency.
#
# But while a worker computes, others push, and the parameters move on under it. Its gradient then
# belongs to values that are no longer there. The **staleness** of a push is the number of steps
# that the server took between that worker's pull and its push.
#
# ### Exercise 6: `asynchronous_server` (●● 10 minutes)
#
# Write the server. `dist.recv(buffer)` without a source takes a message from anyone and returns the
# sender's rank. A push is answered with the new values, which is that worker's next pull.


# %% exercise="asynchronous_server"
def asynchronous_server(values, pushes, lr):
    """Take `pushes` gradients as they come, step with each, answer its worker.

    values: changed in place; all workers start with the same. Returns the staleness of each push.
    """
    ### BEGIN SOLUTION
    gradient, has, staleness = torch.empty_like(values), {}, []
    for version in range(pushes):
        worker = dist.recv(gradient)
        staleness.append(version - has.get(worker, 0))
        values -= lr * gradient
        dist.send(values, dst=worker)
        has[worker] = version + 1
    return staleness
    ### END SOLUTION


# %% check="asynchronous_server"
check(asynchronous_server)

# %% [markdown]
# Yours, on real ranks: four workers push ten times each, and rank 1 sleeps between its pushes. (It
# comes last, so in the end it is alone, and none of its pushes is late any more.) Who comes when is
# up to your machine, so this output is not compared with ours.


# %% tags=["nbval-ignore-output"]
def in_order_of_arrival():
    import time

    values = torch.zeros(8)
    if dist.get_rank() == 0:
        return asynchronous_server(values, 40, 0.1)
    for _ in range(10):
        time.sleep(0.02 if dist.get_rank() == 1 else 0.002)
        dist.send(values - 1, dst=0)
        dist.recv(values, src=0)
    return None


def histogram(staleness):
    """Such as "3 late: 12x", for every staleness that occurred."""
    counts = sorted(Counter(staleness).items())
    return ", ".join(f"{number} late: {pushes}x" for number, pushes in counts)


if solved(asynchronous_server):
    print("steps late, and how many pushes were:")
    print(histogram(run_ranks(in_order_of_arrival, 5)[0]))

# %% [markdown]
# ### A straggler that is the same every time
#
# To compare runs we need them to be repeatable. The course's server can take messages by **logical
# time**: each task of a worker costs as much as we say, and the server takes messages in the order
# of these times, whenever they arrive. Everything else is real: ranks, messages, gradients.
#
# `train_with_server` runs one such job: eight workers and a server learn a small network's 256
# samples, until the time is up or the loss is low enough. (Its source is
# `course_lib/train/parameter_server_experiment.py`, for later.)

# %%
from course_lib.techniques.parameter_server import EVENTUAL
from course_lib.train.parameter_server_experiment import WORKERS, train_with_server


def equal(rank):
    return 10


def one_slow(rank):
    return 40 if rank == 0 else 10


# %% [markdown]
# **Predict.** Eight workers, all equally fast, nobody waits. How stale is a typical push? And with
# one worker that takes four times as long, how stale are *its* pushes?

# %%
### BEGIN SOLUTION
guess_typical = 7
guess_slow = 28
### END SOLUTION

# %%
reports = {}
for name, cost in (("all equal", equal), ("worker 0 four times slower", one_slow)):
    run = run_ranks(train_with_server, WORKERS + 1, EVENTUAL, cost, 0.5, 200, observe=False)
    _, report = run[WORKERS]
    reports[name] = report, cost
    pushes = report.steps[WORKERS:]  # the first round starts from fresh values
    print(f"{name}: {len(pushes)} pushes")
    for who, workers in (("worker 0", {0}), ("the others", set(range(1, WORKERS)))):
        print(f"  {who:10}", histogram(push.staleness for push in pushes if push.worker in workers))
print("your guesses:", guessed(guess_typical, guess_slow))

# %%
from course_lib.views.parameter_server_timelines import parameter_server_timelines

parameter_server_timelines(reports, says="staleness", until=20)

# %% [markdown]
# **Explain.** Between two pushes of a worker every other worker pushes once: staleness $n - 1$. It
# is not an exception but the rule. The slow one sees four rounds of the seven others go by. In most
# of their rounds it does not push, and then six of the others do: `6 late`.

# %% [markdown]
# ## 6. What staleness costs
#
# Two runs with the same workers and the same data: sequential, which is the synchronous server
# of section 2, and eventual. For the comparison to be fair, both have to go equally far. So each of
# the eight workers sends an eighth of its gradient. The sequential server adds up eight of these
# and takes one step; the eventual one takes a small step with each as it comes, eight in a round.
#
# **Predict.** All workers are equally fast, so nobody would have to wait anyway. Of two learning
# rates, 2 and 4, take the one with which the sequential run is faster. How many times as many
# gradients does the asynchronous run need there to reach the same loss?

# %%
### BEGIN SOLUTION
guess_times = 3.1
### END SOLUTION


# %%
TARGET = 0.022  # the loss to reach


@functools.cache
def reached(bound, cost, learning_rate):
    """When the loss is low enough, in tasks of a fast worker; gradients so far; idle; all of it."""
    arguments = (train_with_server, WORKERS + 1, bound, cost, learning_rate, 600, TARGET)
    run = run_ranks(*arguments, observe=False, timeout=60)
    log, report = run[WORKERS]
    idle = sum(start.waited for start in report.starts) / sum(list(run)[:WORKERS])
    never = math.inf, math.inf, math.inf
    when, gradients, _ = next((entry for entry in log if entry[-1] < TARGET), never)
    return when / 10, gradients, idle, (log, report)


print("rate  way            time   gradients")
for rate in (2.0, 4.0):
    counts = {}
    for name, bound in (("sequential", 0), ("eventual", EVENTUAL)):
        when, counts[name], _, _ = reached(bound, equal, rate)
        print(f"{rate}   {name:12} {when:5.0f} {counts[name]:10}")
    print(f"      {counts['eventual'] / counts['sequential']:.1f} times as many gradients")
print("your guess:", guessed(guess_times))

# %%
from course_lib.views.loss_curves import loss_curves


def loss_by_time(bound, cost, rate):
    """Moments, in tasks of a fast worker, and the loss at each of them, until it is low enough."""
    log, _ = reached(bound, cost, rate)[3]
    until = next((n for n, entry in enumerate(log) if entry[-1] < TARGET), len(log) - 1)
    last = {time / 10: loss for time, _, loss in log[: until + 1]}
    return list(last), list(last.values())


loss_curves(
    {
        name: loss_by_time(bound, equal, 4.0)
        for name, bound in (("sequential", 0), ("eventual", EVENTUAL))
    },
    "time, in tasks of a worker; all are equally fast",
    "learning rate 4: stale gradients overshoot",
    target=TARGET,
)

# %% [markdown]
# **Explain.** At rate 2 the parameters move little in $n - 1$ steps, and stale gradients are as
# good as fresh ones. At rate 4, where the
# sequential run is faster, they point the wrong way: the server overshoots and corrects itself,
# again and again. A stale gradient needs a smaller step. How much smaller depends on the model and
# on the number of workers, so this price is easily overlooked.

# %% [markdown]
# ## 7. Bounded delay
#
# Between waiting for all (sequential, as in section 2) and waiting for nobody (eventual) lies a
# rule with one number: a worker may start a task if it leads the *slowest* worker by at most
# $\tau$ tasks. $\tau = 0$ is sequential, $\tau = \infty$ eventual. Ho et al. call it *stale
# synchronous parallel*.
#
# ### Exercise 7: `released` (● 5 minutes)
#
# `finished[w]` counts the tasks that worker $w$ has finished. Those in `waiting` ask for their next
# one. Who may go?


# %% exercise="released"
def released(finished: list[int], waiting: list[int], bound: float) -> list[int]:
    """Those of `waiting` that may start now; the other workers are computing."""
    ### BEGIN SOLUTION
    slowest = min(finished)
    return [worker for worker in waiting if finished[worker] - slowest <= bound]
    ### END SOLUTION


# %% check="released"
check(released)

# %% [markdown]
# Your rule, in a simulation of eight workers whose tasks take *randomly* long, one in ten six times
# as long as the others. No one is slow for ever, but at any time somebody is.

# %%
from course_lib.views.stacked_bars import stacked_bars


def named(bound):
    return "no bound" if bound == math.inf else f"bound {bound}"


def waiting_share(bound, workers=8, until=3000):
    """Share of all time that the workers wait, with your rule."""
    draw = random.Random(0)
    finished, running = [0] * workers, []
    since = dict.fromkeys(range(workers), 0)  # who waits since when
    waited = now = 0
    while now < until:
        for worker in released(list(finished), sorted(since), bound):
            waited += now - since.pop(worker)
            running.append((now + (6 if draw.random() < 0.1 else 1), worker))
        running.sort()
        now, worker = running.pop(0)
        finished[worker] += 1
        since[worker] = now
    return waited / (workers * now)


if solved(released):
    waiting = {bound: 100 * waiting_share(bound) for bound in (0, 1, 2, 4, 8, 16, math.inf)}
    display(
        stacked_bars(
            {named(bound): {"waiting": share} for bound, share in waiting.items()},
            "% of the workers' time that is spent waiting",
            "unlucky by turns: with a bound of a few tasks most of the waiting is gone",
            "{:.3g}".format,
        )
    )

# %% [markdown]
# A bound of a few tasks lets workers smooth out each other's bad moments. It does not help against
# one that is *always* slow: sooner or later all others are $\tau$ ahead and wait.
#
# ### The best bound
#
# The paper's finding, for its job of section 1: with $\tau = 0$ workers stood idle for half of the
# time, with $\tau = 16$ for 1.7 % of it. But the time spent *computing* grew about linearly with
# $\tau$, because stale gradients are worth less. The best was $\tau = 8$. Is that so here? One
# worker is four times slower, and the learning rate is the one that was best for the sequential
# run.
#
# **Predict.** Which of the bounds 0, 2, 8, 16 and infinity reaches the target first?

# %%
### BEGIN SOLUTION
guess_bound = 8
### END SOLUTION

# %%
print("bound  time to target  gradients  idle   staleness at most")
reports, split = {}, {}
for bound in (0, 2, 8, 16, EVENTUAL):
    when, gradients, idle, (_, report) = reached(bound, one_slow, 4.0)
    reports[f"bound {bound}"] = report, one_slow
    split[named(bound)] = {"computing": (1 - idle) * when, "waiting": idle * when}
    stale = max(step.staleness for step in report.steps)
    lead = max(start.lead for start in report.starts)
    assert lead <= bound
    print(f"{bound:>5} {when:15.0f} {gradients:10} {idle:6.0%} {stale:8}")
print("your guess:", guessed(guess_bound))

# %%
stacked_bars(
    split,
    "time to the target, in tasks of a fast worker",
    "waiting falls with the bound, from 2 on computing grows: the shortest time is in between",
    "{:.3g}".format,
)

# %% [markdown]
# **Explain.** Waiting falls with the bound, and from bound 2 on computing grows: the staler the
# gradients, the more of them are needed. So the time has its minimum in between, here at the same
# bound as in the paper. (A bound of 0 needs more gradients than one of 2, because it makes one step
# of eight of them.)
#
# Where the waiting comes from, as the first 16 units of these runs went (the percentages are of
# these units, not of the whole run as in the table):

# %%
few = {name: reports[name] for name in ("bound 0", "bound 2", "bound 8")}
parameter_server_timelines(few, says="lead", until=16)

# %% [markdown]
# At bound 0 nobody runs ahead, and seven of eight wait. At bound 2 the fast ones are two tasks
# ahead after a moment, and then go at the pace of the slow one. A bound of 8 only puts that off.
# What staleness does meanwhile:

# %%
loss_curves(
    {
        name: loss_by_time(bound, one_slow, 4.0)
        for name, bound in (
            ("bound 0 (sequential)", 0),
            ("bound 8", 8),
            ("no bound (eventual)", EVENTUAL),
        )
    },
    "time, in tasks of a fast worker; worker 0 is four times slower",
    "between waiting and staleness: the loss by time",
    target=TARGET,
)

# %% [markdown]
# With bound 0 the loss falls smoothly, but each step takes as long as the slow worker's task.
# Without a bound it falls at once and then goes up and down, as in section 6. With bound 8 it is
# the same run at first, since nobody is eight tasks ahead yet. Then the fast ones wait, and it
# settles.

# %% [markdown]
# ## 8. A server dies
#
# A worker that dies is no great loss: the others go on without it. A server has the only copy of
# its keys. So each range is kept twice, by **chain replication**: the server takes a push, hands it
# on to its replica, and acknowledges it only when that has it too. What was acknowledged is then in
# two places.

# %%
from course_lib.views.chain_replication import chain_replication

chain_replication()

# %% [markdown]
# When the server dies, the worker gets no answer, asks the replica, and sends again what was not
# acknowledged. It may have arrived already: the copy was made and then the server died. So the
# replica keeps a **vector clock**: for each range of keys and each worker, the newest task whose
# push has arrived. A push that is in already is not added again.
#
# **Predict.** A server dies in the middle of a run, once before and once after it has made its
# copy. By how much do the final parameters differ from those of a run where nobody dies?

# %%
### BEGIN SOLUTION
guess_difference = 0.0
### END SOLUTION

# %%
from course_lib.train.parameter_server_experiment import with_a_replica

calm = run_ranks(with_a_replica, 4, None, observe=False)
for moment in ("before the copy", "after the copy"):
    struck = run_ranks(with_a_replica, 4, moment, observe=False)
    difference = (struck[0] - calm[0]).abs().max().item()
    print(f"{moment}: the server, rank 2, {struck[2]}; rank 3, its replica, noticed", end="; ")
    print(f"largest difference {difference}")
    assert list(struck[3]) == [2]
print("your guess:", guessed(guess_difference))

# %% [markdown]
# **Explain.** Exactly none. The replica has taken the same pushes in the same order, so it has the
# same bits, the state of the server's optimizer included. Nothing that was acknowledged is lost and
# nothing is added twice. The price: a push is sent twice. (The paper copies only the sum of all
# workers' pushes, which is cheaper.)

# %% [markdown]
# ## 9. A real model, and PyTorch's own
#
# PyTorch has what it takes to build a parameter server (`torch.distributed.rpc`), but what people
# train with today is `DistributedDataParallel`: no server, an all-reduce among the workers. A
# sequential parameter server must give the same losses. Two workers train the tiny GPT, with the
# course's own parameter server and with DDP. (Both programs are in
# `course_lib/train/server_and_ddp.py`.)
#
# **Predict.** In one step, how many models does the server send, how many each of the two workers,
# and how many a rank of DDP, which all-reduces by a ring?

# %%
### BEGIN SOLUTION
guess_by_server = 2
guess_by_worker = 1
guess_by_ddp = 1
### END SOLUTION

# %%
from types import SimpleNamespace

from course_lib.train import server_and_ddp

ways = {
    "parameter server": (server_and_ddp.train_with_server, 3),
    "DDP": (server_and_ddp.train_with_ddp, 2),
}
losses, sent = {}, {}
for name, (train, ranks) in ways.items():
    three, four = (run_ranks(train, ranks, steps, timeout=45) for steps in (3, 4))
    losses[name] = [sum(pair) / 2 for pair in zip(four[0], four[1], strict=True)]
    fewer, more = (run.trace.traffic().sent for run in (three, four))
    step = [b - a for a, b in zip(fewer, more, strict=True)]
    sent[name] = SimpleNamespace(sent=[*step, 0][:3])  # in DDP's run there is no server
    print(f"{name:17} losses of four steps: {', '.join(f'{loss:.4f}' for loss in losses[name])}")
apart = max(abs(ours - theirs) for ours, theirs in zip(*losses.values(), strict=True))
print(f"largest difference: {apart:.5f}")
print("your guesses, in models:", guessed(guess_by_server, guess_by_worker, guess_by_ddp))
traffic_bars(
    sent,
    per_tensor=server_and_ddp.model_bytes(),
    unit="models",
    ranks={0: "worker 0", 1: "worker 1", 2: "the server"},
)

# %% [markdown]
# The same losses. (They go up and down, since every step has a different batch.) And the same bytes
# for a worker, ranks 0 and 1, as for a rank of DDP, since with two ranks $2\frac{n-1}{n} = 1$; the
# link of the server, rank 2, comes on top.

# %% [markdown]
# ## 10. Explore
#
# Choose how many workers there are, how many times slower worker 0 is than the others, by how much
# longer, at most, a task may by chance take, and the bound.

# %%
from course_lib.views.staleness import staleness_explorer

staleness_explorer()

# %% [markdown]
# **Explore.** Make four workers equal, with tasks that take longer by up to 300 %: which bound is
# enough to bring waiting below 5 %? Now worker 0 slower by 8, and nothing left to chance: why does
# no bound below infinity help for long? And with no bound: how do the two humps of the histogram
# come about?
#
# <details><summary>Answers</summary>
#
# A bound of 1 brings it to 2.4 %: no worker is unlucky for long. With a worker that is *always*
# eight times slower, the others are at the bound after a few tasks, and from then on go at its
# pace. The hump at small staleness is made of the pushes of the fast workers, who rarely meet a
# push of the slow one; the hump far out of those of the slow worker, during whose task the fast
# ones push again and again.
#
# </details>

# %% [markdown]
# ## 11. At scale
#
# ResNet-50 has 25.6 million parameters, in float32 102 MB. Suppose machines have 10 Gbit/s links,
# and nothing is sent while a GPU computes.

# %%
resnet_bytes, ten_gigabits = 4 * 25.6e6, 10e9 / 8


def seconds_by_servers(servers):
    """Workers -> seconds that the busiest link sends; None: as many servers as workers."""
    return lambda workers: busiest_link(workers, resnet_bytes, servers or workers)[0] / ten_gigabits


def seconds_by_ring(workers):
    return busiest_link(workers, resnet_bytes, 1)[1] / ten_gigabits


if solved(bytes_sent):
    display(
        scaling_curves(
            {
                "as many servers as workers": seconds_by_servers(None),
                "ring": seconds_by_ring,
                "8 servers": seconds_by_servers(8),
                "1 server": seconds_by_servers(1),
            },
            (4, 8, 16, 32, 64, 128, 256, 512),
            "ResNet-50 at 10 Gbit/s: sending in one step, on the busiest link",
            count="workers",
        )
    )

# %% [markdown]
# Say that a GPU computes a step in a tenth of a second. With one server and 64 workers, 5 s of
# sending follow. With as many servers as workers, or a ring, it is 0.1 to 0.2 s for any number.
# This is why Horovod (2017, [lesson 02](02_ring_all_reduce.ipynb)) replaced servers by a ring, and
# why lessons 03 and later know only workers.
#
# Where do servers remain? Where a worker needs *few* of the parameters at a time, as in section 1.
# Then $S$ above is not the model but the part that was used. Some recommendation systems, with
# embeddings of terabytes, still work like this.
#
# | OSDI 2014, section 5.1 | published |
# | :-- | :-- |
# | workers + servers | 800 + 200, 16 cores and 192 GB each, 10 Gbit/s |
# | time that workers stood idle, in two older systems | 32 % and 53 % |
# | the same, with the parameter server | under 2 % |
# | a list of keys sent once, and after that only its hash | about half of the traffic saved |
# | a filter for features whose weight would stay zero | over 93 % need not be sent |
#
# DistBelief (NIPS 2012) trained with up to 200 asynchronous replicas, with Adagrad, whose steps
# shrink where gradients are large: one answer to section 6.

# %% [markdown]
# ## 12. A claim put to the test
#
# ### "Asynchronous training is always faster, since nobody waits"
#
# **Predict.** With workers that are equally fast, and with one that is four times slower: does the
# asynchronous run reach the target before the sequential one does, each with the better of the two
# learning rates for it?

# %%
### BEGIN SOLUTION
guess_equal = False
guess_one_slow = True
### END SOLUTION

# %%
print("time to the target, in tasks of a fast worker, with the better rate for each")
for name, cost in (("all equal", equal), ("one four times slower", one_slow)):
    print(f"  {name:22}", end="")
    for way, bound in (("sequential", 0), ("asynchronous", EVENTUAL)):
        when, rate = min((reached(bound, cost, rate)[0], rate) for rate in (2.0, 4.0))
        print(f"  {way} {when:2.0f} (rate {rate:g})", end="")
    print()
print("your guesses, is the asynchronous one first:", guessed(guess_equal, guess_one_slow))

# %% [markdown]
# False. It is always *busier*. Asynchronous training trades waiting for staleness. It wins where
# there is much waiting to save, and loses where machines are alike, as GPUs in a data centre are.
# The number of steps per second says nothing: what counts is the time to a loss.

# %% [markdown]
# ## 13. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. A model of 1 GB, 32 workers, 4 servers, links of 12.5 GB/s. How long does the busiest link send
#    in one step? And in a ring?
#
#    <details><summary>Answer</summary>
#    32 · 1 / 4 = 8 GB leave a server: 0.64 s. The ring: 2 · 31/32 = 1.94 GB, 0.155 s.
#    </details>
#
# 2. How many servers until they are not the bottleneck?
#
#    <details><summary>Answer</summary>
#    32: then a server sends 1 GB, as a worker does.
#    </details>
#
# 3. Ten equally fast workers, eventual consistency. Staleness of a push? And of a worker that is
#    three times slower than the other nine?
#
#    <details><summary>Answer</summary>
#    9. The slow one: 3 · 9 = 27.
#    </details>
#
# 4. $\tau = 3$, and one worker is always twice as slow. What share of their time do the others wait
#    in a long run?
#
#    <details><summary>Answer</summary>
#    Half. At first they run ahead, three tasks; then they go at the pace of the slow one, whatever
#    the bound.
#    </details>
#
# 5. Nine servers on a ring, with many points each. One dies. What share of the keys moves, and
#    where to?
#
#    <details><summary>Answer</summary>
#    A ninth, spread over the other eight.
#    </details>
#
# ## 14. Assignment: `significant_changes` (●● 10 minutes)
#
# Most entries of a gradient are tiny. The **significantly-modified filter** sends an entry only
# when it has changed by more than a threshold since it was last sent. What is not sent is not
# thrown away: it is kept and added to the next change, until the sum is large enough. The indices
# may come in any order.
#
# (Why not simply leave small entries out? The answer is at the end of the section.)


# %% exercise="significant_changes"
def significant_changes(unsent, change, threshold):
    """The (indices, values) to send now; what is left stays in `unsent`, which changes in place.

    unsent, change: 1-D tensors of the same length; `change` is not to be written to.
    """
    ### BEGIN SOLUTION
    unsent += change
    indices = (unsent.abs() > threshold).nonzero().reshape(-1)
    values = unsent[indices]  # a copy
    unsent[indices] = 0
    return indices, values
    ### END SOLUTION


# %% check="significant_changes"
check(significant_changes)

# %% [markdown]
# What it saves, with the course's filter on real ranks: the values and the bytes that a worker
# sends, and the loss that is reached after the same number of tasks. A value is 8 bytes here, and
# what is sent must say where it belongs: each range of keys costs 16 bytes, for its ends.

# %%
from course_lib.techniques.parameter_server import SignificantlyModified

ROUNDS = 10
pushed = {}
for threshold in (0.0, 0.001, 0.003):

    def keep(layout, threshold=threshold):
        return SignificantlyModified(layout.total, threshold, layout.dtype)

    arguments = (train_with_server, WORKERS + 1, 0, equal, 2.0, 10 * ROUNDS)
    run = run_ranks(*arguments, make_filter=keep, timeout=60)
    sends = [event for event in run.trace.of(1) if event.op == "send"]
    values = sum(event.nbytes for event in sends if event.dtype == "float64")
    pushed[threshold] = values, sum(event.nbytes for event in sends)
    shares = [now / all_ for now, all_ in zip(pushed[threshold], pushed[0.0], strict=True)]
    log, _ = run[WORKERS]
    print(
        f"threshold {threshold:5}: sent are {shares[0]:4.0%} of the values, "
        f"{shares[1]:4.0%} of the bytes; loss {log[-1][-1]:.3f}"
    )

# %% [markdown]
# With the first threshold two thirds of the values are saved, and training hardly suffers. But only
# 28 % of the bytes are: what is left lies scattered, fewer than two values to a range, and a range
# costs as many bytes as two values.
# (This is why the paper saves on keys as well, by the list of keys in section 11.) Leaving small
# entries out for good would save as much, but a weight whose gradients are always small would then
# never move.

# %% [markdown]
# ## 15. What to read
#
# - Li et al. 2014, *Scaling Distributed Machine Learning with the Parameter Server* (OSDI):
#   sections 3 and 4, and the bound in section 5.1.
# - Ho et al. 2013, *More Effective Distributed ML via a Stale Synchronous Parallel Parameter
#   Server* (NIPS).
# - Dean et al. 2012, *Large Scale Distributed Deep Networks* (NIPS): DistBelief and Downpour SGD.
# - Niu et al. 2011, *Hogwild!* ([arXiv 1106.5730](https://arxiv.org/abs/1106.5730)): the same idea
#   without locks, in one machine's memory, where updates are sparse.
# - `course_lib/techniques/parameter_server/`: all of this lesson as one system, to be read in the
#   order that its first page gives.
#
# **Next**: [lesson 02](02_ring_all_reduce.ipynb) does away with the server: the ring all-reduce.
