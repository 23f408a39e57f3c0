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
# # 05 · Pipeline parallelism
#
# **After this lesson you can**
#
# - cut a model between ranks and train it, with the gradients of one process;
# - write GPipe and 1F1B as tables, and run them on real ranks;
# - say before a run how long a pipeline stands idle and how many microbatches it must hold;
# - say when a pipeline hangs with sends that wait, and why.
#
# If you go on with the optional part, you can also
#
# - find the ranks that are stuck, from what each of them does;
# - say what interleaving and zero-bubble schedules gain, and what they pay for it;
# - choose stages, microbatches and a schedule for a given job and given machines.
#
# **You need** `send`, `recv` and `isend` from [lesson 00](00_ranks.ipynb). **It takes** 90 minutes
# to the end of section 7, without exercises 4 and 7. All else is optional, a second sitting: 10
# minutes for each of these two, 20 for section 8, 25 for the decision in section 9, 25 for the
# assignment; sections 10 to 13 are there to run and read. The machine needs a minute. Each exercise
# says how hard it is (● a few lines, ●● two ideas together, ●●● the hard one) and how long it
# takes.

# %%
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

from course_lib import check, guessed, hint, run_ranks, solved, text, whose, yours_or
from course_lib.models.sleeping_stage import SleepingStage
from course_lib.simulate import simulate
from course_lib.techniques import schedules
from course_lib.techniques.pipeline import Pipeline, stages_of
from course_lib.techniques.schedules import Op, validate
from course_lib.views.bubble_curves import bubble_curves
from course_lib.views.gantt_chart import gantt_chart
from course_lib.views.grouped_bars import grouped_bars
from course_lib.views.schedule_explorer import schedule_explorer
from course_lib.views.units import size_text

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
# GPT-3 has 175 billion parameters in 96 layers. Training it takes 16 bytes per parameter: 2.8 TB of
# weights, gradients and optimizer state, the memory of 35 GPUs with 80 GB each. One machine has
# eight. Tensor parallelism ([lesson 04](04_tensor_parallel.ipynb)) splits each layer over these
# eight, and that is as far as it should go: it sends several messages in *every* layer, too much
# for the network between machines.
#
# The other way to cut is between layers. What has to cross such a cut?

# %%
SEQUENCE, WIDTH = 2048, 12288  # GPT-3
activation = 2 * SEQUENCE * WIDTH  # bytes of one sequence in bfloat16
inside_one_layer = 4 * 2 * (8 - 1) / 8 * activation  # four all-reduces on 8 ranks
print(f"across one cut: {size_text(activation)} forward for each sequence, and as much back")
grouped_bars(
    {
        "across one cut, there and back": {"sent": 2 * activation},
        "tensor parallel, in one layer": {"sent": inside_one_layer},
        "in twelve layers between two cuts": {"sent": 12 * inside_one_layer},
    },
    "bytes that a rank sends for one sequence of GPT-3",
    "bytes",
    size_text,
)

# %% [markdown]
# 50 MB each way against 4.2 GB. Cutting between layers is cheap: about forty times fewer bytes
# here. So large models are cut both ways: tensor parallel inside a machine, *pipeline parallel*
# between machines.
#
# It has a price of its own. The second machine has nothing to do until the first is finished. How
# much of eight machines stands idle, and what can be done about it, is the subject of this lesson.
#
# **Who solved it, and when.** Huang et al. cut the batch into *microbatches* that follow each other
# through the stages (GPipe, 2018, NeurIPS 2019, [arXiv
# 1811.06965](https://arxiv.org/abs/1811.06965)). Narayanan et al. let backward passes begin early
# (PipeDream, SOSP 2019; 1F1B with a *flush*, that is, with an empty pipeline at each update, ICML
# 2021) and gave each rank several small stages (*interleaving*, Megatron-LM, SC 2021). Qi et al.
# split the backward pass to fill what was left (Zero Bubble, ICLR 2024). You will build all of it
# here.

# %% [markdown]
# ## 2. Two stages by hand
#
# Autograd ends at the border of a process. So how does a gradient cross? Here is the trick in one
# process. The graph is cut with `detach()`, and each half runs backward by itself.

# %%
first, second = nn.Linear(4, 4), nn.Linear(4, 4)
some_x, some_y = torch.randn(2, 3, 4)

left = first(some_x)  # stage 0
arrived = left.detach().requires_grad_()  # what stage 1 receives: the start of a new graph
nn.functional.mse_loss(second(arrived), some_y).backward()  # ends at `arrived`
left.backward(arrived.grad)  # stage 0 goes on from there

whole = nn.functional.mse_loss(second(first(some_x)), some_y)
expected = torch.autograd.grad(whole, first.weight)[0]
print("the same gradient as in one piece:", torch.equal(first.weight.grad, expected))

# %% [markdown]
# Two tensors cross: `arrived` forward, `arrived.grad` back.
#
# ### Exercise 1: `two_stage_step` (●● 10 minutes)
#
# Now on two ranks. Rank 0 has the first half of the layers as `module` and reads `inputs`. Rank 1
# has the second half and reads `targets`. (Both ranks are passed both; what a rank must not read is
# filled with nan.) What crosses has the shape and dtype of `inputs`. `loss(output, targets)` is
# some mean over samples; call the one that is passed in. Run the module once. Gradients go to
# `.grad`; the parameters stay, since the step is the optimizer's.


# %% exercise="two_stage_step"
def two_stage_step(module, inputs, targets, loss):
    """Forward and backward over two ranks. Returns the loss on rank 1, None on rank 0."""
    ### BEGIN SOLUTION
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        dist.send(output.detach(), dst=1)
        dist.recv(crossing, src=1)
        output.backward(crossing)
        return None
    dist.recv(crossing, src=0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    value.backward()
    dist.send(crossing.grad, dst=0)
    return value.detach()
    ### END SOLUTION


# %% check="two_stage_step"
check(two_stage_step)

# %% [markdown]
# Stuck, here or later? `hint(two_stage_step)` gives a nudge, `hint(two_stage_step, 2)` more, and
# `hint(two_stage_step, 3)` almost the answer.

# %% [markdown]
# ## 3. The bubble
#
# Look at when each rank works. With four stages and one batch:

# %%
NAIVE = [[Op("F", s, 0), Op("B", s, 0)] for s in range(4)]
gantt_chart(simulate(NAIVE, forward=1, backward=2), "naive, 4 stages")

# %% [markdown]
# You have just read a **schedule**. It is a table: for each rank the operations that it runs, in
# order. `Op("F", 2, 0)` is the forward pass of stage 2 on microbatch 0 (here that is the whole
# batch), `Op("B", 2, 0)` its backward. In messages they are called F2.0 and B2.0, and in the row of
# a rank that has one stage just F0 and B0. *When* an operation runs is not in the table. It
# follows: F of stage 2 waits for F of stage 1, B of stage 2 waits for B of stage 3. The simulator
# plays this through; here a forward takes one unit of time and a backward two, about as on a GPU.
#
# Four GPUs, and at any moment one works: three quarters of the time is idle. The field calls the
# idle time the **bubble**, and measures it in two ways that are easily mixed up:
#
# - as a share of *all the time* (GPipe, Zero Bubble);
# - as a multiple of the *working time* (Megatron-LM).
#
# **Microbatches** make it smaller. Cut the batch into $m$ parts and send them through one after the
# other. Stage 1 can work on part 0 while stage 0 works on part 1.
#
# ### Exercise 2: `bubble_fractions` (● 5 minutes)
#
# With $p$ equal stages and $m$ microbatches, take as one unit of time what the forward and the
# backward of one microbatch take in one stage. A stage works for $m$ units. For how many does it
# stand idle, waiting for the first microbatch to arrive and for the last one to come back? Return
# the bubble in both conventions. Draw $p = 2$, $m = 3$ on paper first.


# %% exercise="bubble_fractions"
def bubble_fractions(p: int, m: int) -> tuple[float, float]:
    """The bubble as a share of all the time, and as a multiple of the working time."""
    ### BEGIN SOLUTION
    return (p - 1) / (m + p - 1), (p - 1) / m
    ### END SOLUTION


# %% check="bubble_fractions"
check(bubble_fractions)

# %% [markdown]
# **Predict.** Eight stages. How many microbatches does it take until less than 10 % of all the time
# is idle?

# %%
### BEGIN SOLUTION
guess_m = 64
### END SOLUTION

# %%
counts_bubbles = solved(bubble_fractions)
if counts_bubbles:
    rows = [["m for less than", "10 % of all the time", "10 % of the working time"]]
    for stages in (2, 4, 8, 64):
        least = [
            next(m for m in range(1, 1000) if bubble_fractions(stages, m)[which] < 0.1)
            for which in (0, 1)
        ]
        rows.append([f"p = {stages}", *least])
    print(text.table(rows))
print("your guess for p = 8:", guessed(guess_m))
bubble_curves(lambda p, m: bubble_fractions(p, m)[0]) if counts_bubbles else None

# %% [markdown]
# **Explain.** $\frac{p-1}{m+p-1} < \frac{1}{10}$ means $m > 9(p-1)$. By the other convention it is
# $m > 10(p-1)$. So a lesson that says "below 10 %" should say of what. Only the ratio of $m$ to
# $p-1$ counts, so all curves have one shape: "microbatches bring the bubble below 10 %" is true of
# any pipeline, for a batch that is large enough. With 64 stages that is 568 microbatches, and the
# batch size is not free to choose: it decides how well the model learns.

# %% [markdown]
# ## 4. GPipe as a table
#
# GPipe's schedule is the simplest that there is: on every stage all forwards, then all backwards.
#
# ### Exercise 3: `gpipe_schedule` (● 5 minutes)
#
# Return one row for each of the $p$ ranks, a list of `Op`s. Stage $s$ is on rank $s$.


# %% exercise="gpipe_schedule"
def gpipe_schedule(p: int, m: int) -> list[list[Op]]:
    """All forwards, then all backwards: a row of operations for every rank."""
    ### BEGIN SOLUTION
    return [[Op("F", s, i) for i in range(m)] + [Op("B", s, i) for i in range(m)] for s in range(p)]
    ### END SOLUTION


# %% check="gpipe_schedule"
check(gpipe_schedule)


# %%
def rows_of(make, *sizes):
    return [[Op(*op) for op in row] for row in make(*sizes)]


make_gpipe = yours_or(gpipe_schedule, schedules.gpipe)
my_gpipe = partial(rows_of, make_gpipe)
gpipe = simulate(my_gpipe(4, 8))
gantt_chart(gpipe, "GPipe")

# %% [markdown]
# The picture is drawn from your table, and section 6 runs the same table on real ranks. That is why
# schedules are data here. A schedule that is written twice, once as a loop that runs and once as a
# picture, will sooner or later be two schedules.
#
# A table can be wrong in many ways, and a pipeline with a wrong table hangs. So it is checked
# before anything starts. Here B1 of rank 1 stands before F1. (Positions count from 0, as ranks
# and microbatches do.)

# %%
broken = my_gpipe(3, 2)
broken[1] = [Op("F", 1, 0), Op("B", 1, 1), Op("F", 1, 1), Op("B", 1, 0)]
try:
    validate(broken)
except ValueError as refused:
    print("refused:", refused)

# %% [markdown]
# ## 5. What it holds: GPipe against 1F1B
#
# Between F and B of a microbatch a stage must keep its activations. They, not the weights, often
# fill the memory. A microbatch in that state is **in flight**.
#
# ### Exercise 4: `peak_in_flight` (●● 10 minutes)
#
# (Optional.) How many are in flight at the worst moment of a row? A rank may have several stages;
# each holds its own activations, so count them all.
#
# One thing to be ready for: a backward can be computed in two halves. **I** makes the gradient of
# the stage's *input*, for which the stage before waits. **W** makes the gradient of its *weights*,
# for which nobody waits. A row has either B or I and W for a microbatch. W still needs the
# activations, so with halves the microbatch is in flight until W, and I frees nothing. (The
# optional section 15 makes use of halves. Here only count them.)


# %% exercise="peak_in_flight"
def peak_in_flight(row: list[Op]) -> int:
    """The most microbatches (of any stage of this rank) between their F and their B or W."""
    ### BEGIN SOLUTION
    held = most = 0
    for op in row:
        if op.kind == "F":
            held += 1
        elif op.kind in ("B", "W"):
            held -= 1
        most = max(most, held)
    return most
    ### END SOLUTION


# %% check="peak_in_flight"
check(peak_in_flight)


# %%
def in_flight(table):
    """By rank. The simulator counts as well, and stands in for you where it must."""
    if counted_by_me:
        return [peak_in_flight(row) for row in table]
    return list(simulate(table).peak_in_flight)


counted_by_me = solved(peak_in_flight)
print("GPipe, p = 4, m = 8, by rank:", text.listed(in_flight(my_gpipe(4, 8))))

# %% [markdown]
# All eight, on every rank. So GPipe has a conflict: more microbatches make the bubble small, and
# more microbatches fill the memory. (GPipe's way out is *re-materialization*: keep only the input
# of the stage and run the forward again before the backward, for a third more computation.)
#
# But look at rank 3 in the picture. It could run B0 right after F0: there is nothing to wait for.
# Then rank 2 could run its B0 early as well, and so on. **1F1B** (one forward, one backward) does
# that: a backward as soon as there is one.
#
# **Predict.** Four stages, eight microbatches. How much shorter is 1F1B than GPipe, in units of
# time? And how many microbatches does rank 0 hold?

# %%
### BEGIN SOLUTION
guess_shorter = 0
guess_held = 4
### END SOLUTION

# %% [markdown]
# ### Exercise 5: `one_f_one_b_schedule` (●● 15 minutes)
#
# Each row has three parts.
#
# - *Warm-up*: some forwards, so that the stages behind have something to do. The last stage needs
#   none, the one before it needs one, ...
# - *Steady state*: one forward, one backward, in turn.
# - *Cool-down*: the backwards that are left.
#
# There may be fewer microbatches than stages.


# %% exercise="one_f_one_b_schedule"
def one_f_one_b_schedule(p: int, m: int) -> list[list[Op]]:
    """1F1B: every stage runs a backward as soon as there is one."""
    ### BEGIN SOLUTION
    table = []
    for s in range(p):
        warm_up = min(p - s - 1, m)
        row = [Op("F", s, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += [Op("F", s, warm_up + i), Op("B", s, i)]
        row += [Op("B", s, i) for i in range(m - warm_up, m)]
        table.append(row)
    return table
    ### END SOLUTION


# %% check="one_f_one_b_schedule"
check(one_f_one_b_schedule)

# %%
make_1f1b = yours_or(one_f_one_b_schedule, schedules.one_f_one_b)
my_1f1b = partial(rows_of, make_1f1b)
one_f_one_b = simulate(my_1f1b(4, 8))
print("your guesses:", guessed(guess_shorter, guess_held))
GPIPE, ONE_F_ONE_B = f"{whose(make_gpipe)} GPipe", f"{whose(make_1f1b)} 1F1B"
my_schedules = {GPIPE: my_gpipe, ONE_F_ONE_B: my_1f1b}
schedule_explorer(my_schedules, kind=GPIPE, beside=ONE_F_ONE_B)

# %% [markdown]
# (Both are drawn from your tables, with a backward of two time units. ▶ plays them side by side,
# and a click on a box tells what it is. Any other schedule can stand beside yours.)
#
# **Explain.** 1F1B is not faster at all. The first microbatch still has to reach the last stage and
# come back, and the idle time of a stage is the same, only in other places. What changes is memory:
# stage $s$ holds $\min(m, p - s)$ microbatches, no matter how large $m$ is. That is worth a lot:
# now $m$ can grow until the bubble is small.

# %% [markdown]
# ## 6. The executor
#
# ### Exercise 6: `run_schedule` (●●● 35 minutes)
#
# One function that runs such a table on real ranks, whichever it is. Each rank gets its row and
# goes through it. Neighbours have their microbatches in the same order, as in both tables above: a
# rank receives in the order in which its neighbour sends, so messages need no labels. For each F it
# needs its microbatch of the inputs or what the rank before sends, and sends its output on. For
# each B it needs the gradient from the rank behind, and sends one to the rank before.
#
# - Cut `inputs` and `targets` into $m$ microbatches with `chunk`; $m$ is the number of F in the
#   row.
# - Start sends with `dist.isend`. Keep the handle *and the tensor* until the end, then wait for
#   all. (Why not `dist.send`? Section 7.)
# - `loss(output, targets)` is a mean over samples. The mean over the whole batch is the mean of the
#   $m$ means, so each microbatch's loss is divided by $m$ before its backward.
# - After its backward a microbatch is done with. Backward frees what autograd kept; its input and
#   output are yours to let go of.


# %% exercise="run_schedule"
def run_schedule(row, module, inputs, targets, loss):
    """Run this rank's row. Gradients go to .grad; the last rank returns the mean loss, others None.

    row: operations F and B of stage = rank. module: this stage. What crosses a boundary has the
    shape of a microbatch of `inputs`. Rank 0 reads `inputs`, the last rank `targets`.
    """
    ### BEGIN SOLUTION
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    m = sum(op.kind == "F" for op in row)
    xs, ys = inputs.chunk(m), targets.chunk(m)
    kept, sending, total = {}, [], 0.0

    def receive(source):
        tensor = torch.empty_like(xs[0])
        dist.recv(tensor, src=source)
        return tensor

    def send(tensor, target):
        sending.append((dist.isend(tensor, dst=target), tensor))

    for kind, _, i in row:
        if kind == "F":
            x = xs[i] if rank == 0 else receive(rank - 1).requires_grad_()
            output = module(x)
            if rank == last:
                output = loss(output, ys[i]) / m
                total += output.detach()
            else:
                send(output.detach(), rank + 1)
            kept[i] = x, output
        else:
            x, output = kept.pop(i)
            if rank == last:
                output.backward()
            else:
                output.backward(receive(rank + 1))
            if rank > 0:
                send(x.grad, rank - 1)
    for work, _ in sending:
        work.wait()
    return total if rank == last else None
    ### END SOLUTION


# %% check="run_schedule"
check(run_schedule)

# %% [markdown]
# ### The same table, simulated and run
#
# Four ranks share the cores of your machine, so their times say little about four GPUs. Unless
# their work is to sleep: any number of processes can do that at the same time. A `SleepingStage`
# sleeps 20 ms in a forward and 40 ms in a backward, and writes down when.

# %%
FORWARD, BACKWARD = 0.020, 0.040  # seconds


def with_mine(table, stage, x):
    run_schedule(table[dist.get_rank()], stage, x, x, nn.functional.mse_loss)


def with_the_course(table, stage, x):
    Pipeline({dist.get_rank(): stage}, table, nn.functional.mse_loss).train_step(x, x)


executor = with_mine if solved(run_schedule) else with_the_course


def run_sleeping(table, execute, width=8):
    warm_up = torch.ones(1, requires_grad=True)
    warm_up.clone().backward(torch.ones(1))  # the first one in a process loads modules
    stage, x = SleepingStage(FORWARD, BACKWARD), torch.ones(8, width)
    dist.barrier()
    execute(table, stage, x)
    return stage.log


# %%
from course_lib.simulate import COMPUTE, Timeline, Track


def measured(logs, table):
    """The ranks' logs as a timeline, in units of one forward."""
    zero = min(log[0].start for log in logs)
    tracks = []
    for rank, (log, row) in enumerate(zip(logs, table, strict=True)):
        starts = [(slept.start - zero) / FORWARD for slept in log]
        ends = [(slept.end - zero) / FORWARD for slept in log]
        tracks.append(Track(rank, COMPUTE, starts, ends, row))
    return Timeline(len(table), tracks)


tables = {"GPipe": my_gpipe(4, 8), "1F1B": my_1f1b(4, 8)}
runs = {name: run_ranks(run_sleeping, 4, table, executor) for name, table in tables.items()}
for name, run in runs.items():
    ran = [[slept.kind for slept in log] for log in run]
    asked = [[op.kind for op in row] for row in tables[name]]
    print(f"{name}: every rank ran its row in order: {ran == asked}")

# %% tags=["nbval-ignore-output"]
gantt_chart(
    {
        "1F1B, simulated": one_f_one_b,
        "1F1B, as it ran": measured(runs["1F1B"], tables["1F1B"]),
        "GPipe, as it ran": measured(runs["GPipe"], tables["GPipe"]),
    }
)

# %% [markdown]
# **Explain.** The measured boxes stand in the order of the simulated ones, and later: messages and
# waking up take time that the simulator leaves out, and on a busy machine much of it. Both
# schedules take about equally long; which of them is ahead is chance.
#
# ### The memory, measured
#
# Autograd lets you watch what it saves: `saved_tensors_hooks` calls a function for every tensor
# that is kept for backward. Here every such tensor becomes a `Saved` that knows when it is gone.
#
# **Predict.** In units of what one microbatch takes, what is the peak on each of three ranks with
# five microbatches, for GPipe and for 1F1B?

# %%
### BEGIN SOLUTION
guess_gpipe = [5, 5, 5]
guess_1f1b = [3, 2, 1]
### END SOLUTION


# %%
class Saved:
    now = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Saved.now += tensor.nbytes
        Saved.most = max(Saved.most, Saved.now)

    def __del__(self):
        Saved.now -= self.tensor.nbytes


def peak_of_saved_bytes(table, execute):
    stage, x = nn.Sequential(nn.Tanh(), nn.Softplus(), nn.Tanh()), torch.ones(8, 64)
    stage.append(SleepingStage(0, 0))  # it has a parameter
    m = sum(op.kind == "F" for op in table[dist.get_rank()])
    with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
        execute(table, stage, x[:m])  # one sample in each microbatch
    return Saved.most


one = run_ranks(peak_of_saved_bytes, 3, my_gpipe(3, 1), executor)
rows = [["by rank", "measured", "by counting"]]
for name, make in (("GPipe", my_gpipe), ("1F1B", my_1f1b)):
    table = make(3, 5)
    most = run_ranks(peak_of_saved_bytes, 3, table, executor)
    units = [round(a / b) for a, b in zip(most, one, strict=True)]
    rows.append([name, text.listed(units), text.listed(in_flight(table))])
print(text.table(rows))
print("your guesses:", guessed(guess_gpipe, guess_1f1b))

# %% [markdown]
# ## 7. What if sends wait?
#
# The same executor, but with `dist.send`, which comes back when the receiver has taken the message.


# %%
def run_with_blocking_sends(table):
    """Rows run as before; only messages matter here."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    message = torch.zeros(1)
    for kind, _, _ in table[rank]:
        source, target = (rank - 1, rank + 1) if kind == "F" else (rank + 1, rank - 1)
        if 0 <= source <= last:
            dist.recv(message, src=source)
        if 0 <= target <= last:
            dist.send(message, dst=target)
    return "finished"


run_ranks(run_with_blocking_sends, 3, my_gpipe(3, 4))

# %% [markdown]
# **Predict.** And 1F1B? Does it finish?

# %%
### BEGIN SOLUTION
guess_1f1b_blocking = "it hangs"
### END SOLUTION

# %% tags=["raises-exception"]
print("your guess:", guessed(guess_1f1b_blocking))
run_ranks(run_with_blocking_sends, 3, my_1f1b(3, 4))

# %% [markdown]
# In GPipe all messages go forward, then all go back. In the steady state of 1F1B stage $s$ sends an
# activation on *while* stage $s+1$ sends a gradient back. Both wait in `send`, and nobody receives.
#
# The table itself is not to blame: its order is fine, as `validate` says. So a checker must know
# how messages travel. The simulator has a mode for that.

# %%
from course_lib.simulate import simulate_blocking

validate(my_1f1b(3, 4))  # no complaint
try:
    simulate_blocking(my_1f1b(3, 4))
except ValueError as hang:
    print(hang)

# %% [markdown]
# ### Exercise 7: `stuck_ranks` (●● 10 minutes)
#
# (Optional.) Write the heart of it. `programs[r]` lists what rank $r$ does: `("send", peer)`,
# `("recv", peer)` or `("run", name)`. A send and a recv are over when both ranks have come to them,
# each naming the other. Return the ranks that never get to their end, each once.


# %% exercise="stuck_ranks"
def stuck_ranks(programs: list[list[tuple]]) -> list[int]:
    """The ranks that wait for ever, if a send lasts until it is received."""
    ### BEGIN SOLUTION
    ranks = range(len(programs))
    place = [0] * len(programs)

    def step(rank):
        return programs[rank][place[rank]] if place[rank] < len(programs[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in ranks:
            if step(rank) is None:
                continue
            what, peer = step(rank)
            if what == "run":
                place[rank] += 1
                moved = True
            elif what == "send" and step(peer) == ("recv", rank):
                place[rank] += 1
                place[peer] += 1
                moved = True
    return [rank for rank in ranks if step(rank) is not None]
    ### END SOLUTION


# %% check="stuck_ranks"
check(stuck_ranks)

# %% [markdown]
# Two cures are in use. You have written one of them: sends that do not wait, with buffers that stay
# alive. The other groups the send to a neighbour with the receive from it in one call
# (Megatron-LM's `send_forward_recv_backward`, `dist.batch_isend_irecv`), so that neither can come
# first.

# %% [markdown]
# ## 8. Interleaving: smaller stages, more of them
#
# The bubble is $p-1$ times the forward and backward of *one stage*. Smaller stages, smaller bubble.
# But the number of ranks is fixed. So give each rank $v$ small stages that are far apart: rank $r$
# holds the stages $r$, $r + p$, $r + 2p$, ... Megatron-LM calls them *model chunks*. A microbatch
# now goes round the ranks $v$ times.
#
# $$\text{bubble} = \frac{1}{v}\cdot\frac{p-1}{m} \text{ of the working time}$$
#
# **Predict.** Four ranks, eight microbatches, $v = 2$. The bubble of 1F1B was 9 of 33 units, 27 %
# of all the time. Now? And how many times as many messages are sent?

# %%
### BEGIN SOLUTION
guess_bubble = 0.16
guess_messages = 2
### END SOLUTION

# %% [markdown]
# ### Exercise 8: `interleaved_schedule` (●●● 15 minutes)
#
# $m$ is a multiple of $p$. Write the forwards of rank $r$ as one list: microbatches go in groups of
# $p$, a group through the first stage of the rank, then through its second, and so on; then the
# next group. The list of backwards is the same with the stages from last to first. Then 1F1B again,
# with a warm-up of $2(p-r-1) + (v-1)p$ forwards (at most all of them): a group has to go through
# all stages of a rank but the last before a backward can come, and each rank further from the end
# has two more on their way.


# %% exercise="interleaved_schedule"
def interleaved_schedule(p: int, m: int, v: int) -> list[list[Op]]:
    """1F1B with stages r, r + p, ..., r + (v-1) p on rank r."""
    ### BEGIN SOLUTION
    table = []
    for r in range(p):

        def passes(kind, chunks, r=r):
            return [
                Op(kind, r + c * p, i)
                for start in range(0, m, p)
                for c in chunks
                for i in range(start, start + p)
            ]

        forwards, backwards = passes("F", range(v)), passes("B", range(v)[::-1])
        warm_up = min(2 * (p - r - 1) + (v - 1) * p, m * v)
        row = forwards[:warm_up]
        for f, b in zip(forwards[warm_up:], backwards, strict=False):
            row += [f, b]
        table.append(row + backwards[m * v - warm_up :])
    return table
    ### END SOLUTION


# %% check="interleaved_schedule"
check(interleaved_schedule)

# %%
make_interleaved = yours_or(interleaved_schedule, schedules.interleaved)
my_interleaved = partial(rows_of, make_interleaved)
interleaved = simulate(my_interleaved(4, 8, 2), forward=1 / 2, backward=2 / 2)
ideal = 3 / 8 / 2  # the bubble, of the working time
print(f"by the formula: {ideal / (1 + ideal):.1%} of all the time")
print("your guess:", guessed(guess_bubble))
gantt_chart({"1F1B": one_f_one_b, "interleaved, v = 2": interleaved})

# %% [markdown]
# Filling and draining go by half a stage at a time, so the bubble is about half of what it was.
# (Each rank has two stages now, and the boxes of the second have colours of their own. The number
# is the microbatch, as before.) Is that free? Count the messages, on real ranks. This is the
# course's own executor, which runs tables with several stages per rank; yours could be taught to.


# %%
def one_step(table):
    torch.manual_seed(0)
    modules = {stage: nn.Linear(16, 16) for stage in stages_of(table, dist.get_rank())}
    pipeline = Pipeline(modules, table, nn.functional.mse_loss)
    x = torch.ones(8, 16)
    pipeline.train_step(x, x)  # in the first step the ranks also tell each other the shapes
    pipeline.train_step(x, x)


def messages_of_one_step(table):
    trace = run_ranks(one_step, 4, table).trace
    sends = [event for event in trace.events if event.op == "send"]
    return sum(len(event.shapes[0]) == 2 for event in sends) // 2  # not the headers with shapes


plain = messages_of_one_step(my_1f1b(4, 8))
twice = messages_of_one_step(my_interleaved(4, 8, 2))
print(f"messages in a step: 1F1B {plain}, interleaved {twice}, {twice / plain:.2f} times as many")
print("your guess:", guessed(guess_messages))

# %% [markdown]
# 1F1B crosses $p - 1$ boundaries, interleaving $vp - 1$: a bit more than $v$ times as many. It also
# holds more: on rank 0 the activations of 11 small stages, worth 5.5 microbatches of the whole
# rank, against 4. Megatron-LM reports 10 % and more throughput from it, where the network allows.

# %% [markdown]
# ## 9. Decide: which pipeline for these machines?
#
# Now choose. A job is a model, a batch and some machines; inside each machine the layers are split
# over its GPUs, so that here a machine is one rank. $p$ machines hold one copy of the model. If
# there are more, they hold further copies, and the copies share the batch.
#
# - A larger $p$ means fewer layers on each machine, and a longer bubble.
# - A larger $m$ means a shorter bubble and smaller microbatches. But each message and each layer
#   costs some time, however small the microbatch is.
# - A larger $v$ means a shorter bubble and more messages.
# - GPipe holds all $m$ microbatches. 1F1B holds $p$ of them, but in its steady state a stage sends
#   an activation and waits for the gradient that comes back for it, again and again.
#
# Four jobs:

# %%
from course_lib.simulate import pipeline_choices

for name, job in pipeline_choices.JOBS.items():
    network = f"a message of one sequence takes {1e3 * job.message:.1f} ms"
    print(f"{name:16} {job.layers} layers on {job.machines} machines, ", end="")
    print(f"{job.memory / 1e9:.0f} GB each; {network}")

# %% [markdown]
# **Predict.** Which schedule is the fastest that fits, for the first three? And how many machines
# should hold one copy in the fourth, whose model is small?

# %%
### BEGIN SOLUTION
guess_39b = "interleaved"
guess_20b = "gpipe"
guess_gpt3 = "1f1b"
guess_machines_7b = 1
### END SOLUTION

# %% [markdown]
# ### Exercise 9: `choose_schedule` (●● 20 minutes)
#
# `job` is a dict: `machines`, `layers`, `batch` (the sequences of one step, of all copies
# together), and in bytes the `memory` of a machine, the `states` of one layer and the `activations`
# that one layer keeps of one sequence. `seconds(schedule, p, m, v)` asks the simulator how long a
# step takes, with bubble and messages; for sizes that are impossible it raises a `ValueError`.
#
# Return `(schedule, p, m, v)`: the fastest way that fits. Schedules are `"gpipe"`, `"1f1b"` (both
# with $v = 1$) and `"interleaved"`. What must fit is the first rank, which holds most: the states
# of its layers, and what its stages keep of the microbatches in flight. A copy's microbatch has
# $\mathrm{batch} \cdot p / (\mathrm{machines} \cdot m)$ sequences. In flight are $m$ for GPipe,
# $\min(m, p)$ for 1F1B, and $\min(mv, (v-1)p + 2(p-1) + 1)$ of the small stages when interleaved.


# %% exercise="choose_schedule"
def choose_schedule(job, seconds):
    """The fastest (schedule, p, m, v) that fits into memory."""
    ### BEGIN SOLUTION
    found = []

    def divisors(number):
        return [n for n in range(1, number + 1) if number % n == 0]

    def try_out(schedule, p, m, v, in_flight):
        sequences = job["batch"] * p // job["machines"] // m
        layers = job["layers"] / p
        kept = in_flight * sequences * job["activations"] * layers / v
        if job["states"] * layers + kept <= job["memory"]:
            found.append((seconds(schedule, p, m, v), (schedule, p, m, v)))

    for p in divisors(job["machines"]):
        if job["layers"] % p:
            continue
        for m in divisors(job["batch"] * p // job["machines"]):
            try_out("gpipe", p, m, 1, m)
            try_out("1f1b", p, m, 1, min(m, p))
            for v in divisors(job["layers"] // p)[1:]:
                if m % p == 0:
                    in_flight = min(m * v, (v - 1) * p + 2 * (p - 1) + 1)
                    try_out("interleaved", p, m, v, in_flight)
    # Of equally fast ways, the one with the fewest stages per rank.
    return min(found, key=lambda way: (round(way[0], 9), way[1][3]))[1]
    ### END SOLUTION


# %% check="choose_schedule"
check(choose_schedule)

# %%
ASKED = ("machines", "layers", "batch", "memory", "states", "activations")
SCHEDULES = ("gpipe", "1f1b", "interleaved")


def decide(job, among=SCHEDULES):
    """What you choose if only the schedules in `among` are any good, and the seconds of a step."""
    asked = {key: getattr(job, key) for key in ASKED}

    def seconds(*way):
        took = pipeline_choices.seconds(job, pipeline_choices.Way(*way))
        return took if way[0] in among else 1e6 * took

    way = choose_schedule(asked, seconds)
    return way, seconds(*way) if way[0] in among else None


compared = {}
if solved(choose_schedule):
    rows = [["", "the fastest", "p", "m", "v", "a step"]]
    for name, job in pipeline_choices.JOBS.items():
        (schedule, p, m, v), fastest = decide(job)
        chosen = schedule if p > 1 else "no pipeline"
        rows.append([name, chosen, p, m, v, f"{fastest:.2f} s"])
        took = {only: decide(job, [only])[1] for only in SCHEDULES}
        compared[name] = {only: each and each / fastest for only, each in took.items()}
    print(text.table(rows, left=2))
print("your guesses:", guessed(guess_39b, guess_20b, guess_gpt3, guess_machines_7b))
label = "time of a step, over that of the fastest"
grouped_bars(
    compared, "the best step of each schedule", label, "{:.2f}".format, "does not fit"
) if compared else None

# %% [markdown]
# **Explain.** Each way is best somewhere.
#
# - Over InfiniBand a message is short beside the work of a stage, so interleaving buys a small
#   bubble for little. The best 1F1B takes 1.10 times as long, and no GPipe fits at all.
# - Over Ethernet a message is as long as the work of several layers. 1F1B waits for one again and
#   again, GPipe only while the pipeline fills and drains, and here there is room for all its
#   microbatches.
# - GPT-3 fits on 16 machines only if each holds few microbatches. So it takes 1F1B and pays with
#   waiting. Interleaving, with $v$ times as many messages to wait for, takes 1.65 times as long.
# - The 7B model fits on one machine. The best pipeline is none: four copies, no bubble. (With p = 1
#   all three schedules are the same.)

# %% [markdown]
# ## 10. A real model, and PyTorch's own
#
# `torch.distributed.pipelining` is PyTorch's implementation: `ScheduleGPipe`, `Schedule1F1B`,
# `ScheduleInterleaved1F1B`, and zero-bubble schedules. Below both train the tiny GPT on two ranks,
# from the same weights, on the same batch.
#
# A model is cut by cost, not by number of layers, since the slowest stage sets the pace. The costs
# of this one, in floating-point operations of a forward pass:

# %%
from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.techniques.pipeline.partition import cut, layer_costs, split_by_cost


def gpt_layers():
    model = tiny_gpt(layers=6, hidden=32, seed=0)
    return nn.Sequential(model.embedding, *model.blocks, model.head)


def named(part):
    """The layers of a stage, and their share of the work."""
    ends = list(dict.fromkeys([LAYERS[part[0]], LAYERS[part[-1]]]))
    return f"{' to '.join(ends)} ({sum(costs[i] for i in part) / sum(costs):.0%})"


LAYERS = ["embedding", *(f"block {k}" for k in range(6)), "head"]
tokens, targets = next(batches(1, 16))
costs = layer_costs(gpt_layers(), tokens)
print("millions of operations")
print(text.table([LAYERS, [f"{cost / 1e6:.2f}" for cost in costs]], left=0), end="\n\n")
for stages in (2, 3, 4):
    print(f"{stages} stages:", ", ".join(map(named, split_by_cost(costs, stages))))

# %% [markdown]
# The embedding is only a look-up and costs nothing here; in a model with a large vocabulary the
# head is as heavy as several blocks.

# %%
tables_for_two = {
    "ScheduleGPipe": schedules.gpipe(2, 4),
    "Schedule1F1B": schedules.one_f_one_b(2, 4),
    "ScheduleInterleaved1F1B": schedules.interleaved(2, 4, 2),
    "ScheduleInterleavedZeroBubble": schedules.zb_h1(2, 4),
}


def my_parts(stages):
    """This rank's stages out of so many on two ranks."""
    parts = cut(gpt_layers(), split_by_cost(costs, stages))
    return {stage: parts[stage] for stage in range(dist.get_rank(), stages, 2)}


def gradients(parts):
    return {name: w.grad for part in parts.values() for name, w in part.named_parameters()}


def by_the_course():
    found = {}
    for name, table in tables_for_two.items():
        parts = my_parts(schedules.num_stages(table))
        loss = Pipeline(parts, table, token_loss).train_step(tokens, targets)
        found[name] = loss, gradients(parts)
    return found


def by_pytorch():
    from torch.distributed import pipelining

    found = {}
    for name in tables_for_two:
        several = "Interleaved" in name  # stages on a rank
        parts, cpu = my_parts(4 if several else 2), torch.device("cpu")
        stages = [
            pipelining.PipelineStage(part, stage, 2 * len(parts), cpu)
            for stage, part in parts.items()
        ]
        make = getattr(pipelining, name)
        schedule = make(stages if several else stages[0], n_microbatches=4, loss_fn=token_loss)
        losses = []
        if dist.get_rank() == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=targets, losses=losses)
        found[name] = sum(losses) / 4, gradients(parts)
    return found


ours = run_ranks(by_the_course, 2, observe=False)
theirs = run_ranks(by_pytorch, 2, timeout=50, observe=False)
for name in tables_for_two:
    loss, pytorch_loss = ours[1][name][0], theirs[1][name][0]
    mine, pytorchs = ({**run[0][name][1], **run[1][name][1]} for run in (ours, theirs))
    apart = max((mine[n] - pytorchs[n]).abs().max().item() for n in mine)
    print(f"{name:30} loss {loss:.4f}, PyTorch's {pytorch_loss:.4f}; ", end="")
    print("gradients within 1e-6:", apart < 1e-6)

# %% [markdown]
# Interleaved and zero bubble have two stages per rank in PyTorch; the losses are the same, because
# every schedule computes the same gradient. Only *when* differs.

# %% [markdown]
# ## 11. Explore
#
# All schedules, and your own three beside any of them. ZB-H1 is the subject of the assignment: an
# orange box is I, the half of a backward that the stage before waits for, a yellow one W, the half
# that nobody waits for.

# %%
label = f"{whose(make_interleaved)} interleaved, v = 2"
my_schedules[label] = lambda p, m: my_interleaved(p, m, 2)
schedule_explorer(my_schedules, kind="ZB-H1", beside=ONE_F_ONE_B)

# %% [markdown]
# **Explore.** Let a message take 0.5 in 1F1B: where does new idle time appear? Then set GPipe: why
# does it suffer less? Which of interleaved and ZB-H1 wins at $p = 4$, $m = 8$, $v = 2$, and which
# at $v = 4$? What do both pay?
#
# <details><summary>Answers</summary>
#
# In the steady state of 1F1B every pair of F and B waits for a message to the next stage and one
# back. GPipe waits for messages only while the pipeline fills and while it drains. At v = 2 ZB-H1
# takes 27 units and interleaving 28.5; at v = 4 interleaving takes 26.25. Interleaving pays with v
# times as many messages and more memory on the first ranks. ZB-H1 pays with activations that are
# held until W, so that every rank holds as many as 1F1B's first.
#
# </details>

# %% [markdown]
# ## 12. At scale
#
# **Your run on other networks.** The run of section 6 once more, with messages of 4 MB, replayed on
# modelled clusters: computing keeps its 20 and 40 ms, messages take the time of the link. Four
# ranks inside one DGX A100; four machines with one GPU each, over 10 Gbit/s and over 1 Gbit/s
# Ethernet. Your executor, and the course's, which posts each receive one message ahead: there a
# message travels while the rank computes.
#
# **Predict.** As simulated, 33 units of 20 ms, either schedule takes 660 ms. A 4 MB message takes 3
# ms at 10 Gbit/s and 32 ms at 1 Gbit/s. How many ms does a step of the course's executor take at 1
# Gbit/s, with GPipe and with 1F1B?

# %%
### BEGIN SOLUTION
guess_gpipe_ms = 900
guess_1f1b_ms = 1200
### END SOLUTION

# %%
from dataclasses import replace

from course_lib.simulate import LINKS, Link, dgx_a100, replay


def computed(logs, table):
    """What each rank computed, with the seconds that it was meant to take."""
    seconds = {"F": FORWARD, "B": BACKWARD}
    return [
        SimpleNamespace(rank=rank, name=str(op), start=slept.start, seconds=seconds[op.kind])
        for rank, (log, row) in enumerate(zip(logs, table, strict=True))
        for slept, op in zip(log, row, strict=True)
    ]


one_gpu_each = replace(dgx_a100, name="4 machines", devices_per_node=1, adapters=1, nodes=4)
clusters = {
    "one DGX A100, NVLink": dgx_a100,
    "4 machines, 10 Gbit/s": one_gpu_each.with_links(between=LINKS["10 GbE"]),
    "4 machines, 1 Gbit/s": one_gpu_each.with_links(between=Link("1 GbE", 50e-6, 125e6)),
}


steps = {name: {} for name in clusters}
executors = {"your executor": executor} if executor is with_mine else {}
executors["the course's"] = with_the_course
for label, execute in executors.items():
    for schedule, table in tables.items():
        run = run_ranks(run_sleeping, 4, table, execute, 1_000_000)
        compute = computed(run, table)
        for name, cluster in clusters.items():
            step = replay(run.trace, cluster, compute=compute)
            steps[name][f"{label}, {schedule}"] = 1e3 * step.makespan
print("your guesses:", guessed(guess_gpipe_ms, guess_1f1b_ms))
grouped_bars(
    steps, "a step of GPipe and of 1F1B on three networks", "time of a step", "{:.0f} ms".format
)

# %% [markdown]
# **Explain.** With NVLink a step takes 660 ms: 24 units of work and 9 of bubble. On slower links
# two things show.
#
# - *When a message travels.* A message moves once both sides are there. An executor that calls
#   `recv` only when it needs the tensor stands idle while the message travels, in GPipe as in 1F1B.
#   In the course's executor the receive is there before the message.
# - *Who waits for a round trip.* Where messages travel ahead, GPipe pays for the way to the last
#   stage once, and for the way back once. In the steady state of 1F1B a stage waits again and again
#   for a gradient that depends on the activation it has just sent. So 1F1B suffers more. A longer
#   warm-up would hide that, at the price of memory.

# %% [markdown]
# **What was measured: GPipe.** Table 2 of the paper gives the throughput of a Transformer with 48
# layers on $K$ TPUs with $M = 32$ microbatches, relative to two TPUs and one microbatch. The model
# of this lesson says $\frac{KM}{M+K-1}$.


# %%
def bubbles_simulated(p, m):
    timeline = simulate(schedules.gpipe(p, m))
    return timeline.bubble_fraction, timeline.bubble_over_ideal


bubbles = yours_or(bubble_fractions, bubbles_simulated)
published = {2: 1.8, 4: 3.4, 8: 6.3}
for devices, measured_speed in published.items():
    idle, _ = bubbles(devices, 32)
    speed = devices * (1 - idle)
    print(f"K = {devices}: model {speed:.2f}, published {measured_speed},", end=" ")
    print(f"{measured_speed / speed:.0%} of it")

# %% [markdown]
# Within 8 %. (Its row $M = 4$ is *better* than the model, since the batch size was changed along
# with $M$, and since recomputation can begin before the gradient arrives.)
#
# **Megatron-LM** trained a model of a trillion parameters on 3072 A100s: 64 pipeline stages, 8-way
# tensor parallel, 6 replicas, a batch of 3072 sequences. If a microbatch is one sequence:

# %%
for chunks in (1, 2):
    ideal = bubbles(64, 3072 // 6)[1] / chunks
    print(f"v = {chunks}: bubble {ideal:.1%} of the working time,", end=" ")
    print(f"{ideal / (1 + ideal):.1%} of all the time")

# %% [markdown]
# **Zero Bubble** publishes the measured times of each pass (Table 9), and the bubble rates that the
# authors calculate from them (Table 5). Put the times of the 1.5B model into our simulator:

# %%
for name, table, rate in (
    ("1F1B", schedules.one_f_one_b(8, 24), 0.2431),
    ("ZB-H1", schedules.zb_h1(8, 24), 0.1585),
):
    # In ms, on 8 GPUs with 24 microbatches: F 18.522, I 18.086, W 9.337, a message 0.601.
    timeline = simulate(table, forward=18.522, backward=18.086 + 9.337, weight=9.337, send=0.601)
    print(f"{name:6} simulated {timeline.bubble_fraction:.4f}, published {rate:.4f}")

# %% [markdown]
# Our simulator agrees with theirs, in all four digits. No step was measured for this table: section
# 5.3 of the paper says that its rates are calculated. (Mind the letters: what the paper calls B is
# only the input's part of the backward, our I.)

# %% [markdown]
# ## 13. Three claims put to the test
#
# ### "1F1B has a smaller bubble than GPipe"
#
# With four stages and eight microbatches they were equally long. At other sizes too, and if a
# backward takes as long as a forward, or three times as long?

# %%
equal = [
    simulate(my_gpipe(p, m), 1, backward).makespan == simulate(my_1f1b(p, m), 1, backward).makespan
    for p in (2, 4, 8)
    for m in (1, 4, 8, 32)
    for backward in (1, 2, 3)
]
print(f"equally long: {sum(equal)} of {len(equal)}")
for name, make in (("GPipe", my_gpipe), ("1F1B", my_1f1b)):
    held = simulate(make(8, 32)).peak_in_flight
    print(f"{name:5} with p = 8, m = 32: {held[0]:2} in flight on the first stage")

# %% [markdown]
# False: the bubble is the same in all of them. What is smaller is the memory: on the first
# stage a quarter of GPipe's. The claim comes from an indirect effect: with the memory that 1F1B
# saves you can afford more microbatches.
#
# ### "The bubble is negligible with four times as many microbatches as stages"
#
# The GPipe paper found it so for $M \ge 4K$ (section 2.3).
#
# **Predict.** Eight stages, 32 microbatches: what percentage of all the time is idle?

# %%
### BEGIN SOLUTION
guess_idle = 18
### END SOLUTION

# %%
for stages in (2, 4, 8, 64):
    total, ideal = bubbles(stages, 4 * stages)
    print(f"K = {stages:2}, M = {4 * stages:3}: {total:.1%} of all the time,", end=" ")
    print(f"{ideal:.1%} of the working time")
print("your guess for K = 8:", guessed(guess_idle))

# %% [markdown]
# A fifth of the hardware is not negligible at today's prices. The paper gives a reason for its
# finding that the formula leaves out: recomputation in the backward pass can be scheduled early,
# without waiting for the gradient.
#
# ### "PipeDream has no bubble at all"
#
# True of the first PipeDream (SOSP 2019). It never drains the pipeline: every minibatch has an
# update of its own, right after its backward. But then the weights change between the forward and
# the backward of a minibatch. A backward with other weights than its forward is the gradient of
# nothing. So each stage keeps the **version** that each minibatch in flight began with: *weight
# stashing*.
#
# **Predict.** Four stages. How many versions of its weights does each rank hold?

# %%
### BEGIN SOLUTION
guess_versions = [4, 3, 2, 1]
### END SOLUTION

# %%
from course_lib.techniques.pipeline.weight_stashing import PipeDream


def train_without_flush():
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(dist.get_world_size())]
    x, goal = torch.randn(64 * 16, 8), torch.randn(8, 8) / 3
    pipeline = PipeDream(stages[dist.get_rank()], 64, nn.functional.mse_loss, 1.0, stash=True)
    losses = pipeline.train(x, torch.tanh(x @ goal))
    return losses, pipeline.stage.most_versions


run = run_ranks(train_without_flush, 4)
losses = run[3][0]
print("versions held by each rank:", text.listed(versions for _, versions in run))
print(f"loss: first minibatch {losses[0]:.2f}, mean of the last 16 {sum(losses[-16:]) / 16:.2f}")
print("your guess:", guessed(guess_versions))

# %% [markdown]
# **Explain.** No bubble, and it learns. But it holds up to $p$ copies of the weights, and every
# gradient but the last stage's is some updates late. (Without the copies a small network like this
# one learns too; but then what it follows is the gradient of no function, and nothing that is known
# about gradient descent applies.) PipeDream-2BW (ICML 2021) gets by with two versions. Most
# training today flushes instead: one version, the result of one process, and the bubble.

# %% [markdown]
# ## 14. Reflection, with numbers
#
# Work each out before you open the answer.
#
# 1. $p = 16$, $m = 64$. What share of all the time is idle? With interleaving, $v = 4$?
#
#    <details><summary>Answer</summary>
#    15/79 = 19 %. With v = 4 it is 15/256 = 5.9 % of the working time, so 5.5 % of all the time.
#    </details>
#
# 2. GPT-3, eight stages of twelve layers, 8-way tensor parallel: one microbatch of one sequence
#    leaves 7.0 GB of activations on a GPU of the first stage. What does it hold with $m = 64$,
#    under GPipe and under 1F1B?
#
#    <details><summary>Answer</summary>
#    GPipe: 64 · 7.0 = 445 GB, more than five times what the GPU has. 1F1B: 8 · 7.0 = 56 GB.
#    (Korthikanti et al. 2022: sbh(10 + 24/t + 5as/(ht)) bytes per layer, with s = 2048, h = 12288,
#    a = 96, t = 8.)
#    </details>
#
# 3. One of four equal stages becomes 20 % slower. How much slower is a step with many microbatches?
#
#    <details><summary>Answer</summary>
#    20 %. In the steady state every stage waits for the slowest one, so three of four stand idle a
#    sixth of the time. This is why models are cut by cost.
#    </details>
#
# 4. $p = 8$. How many messages forward does a microbatch take without interleaving, and with $v =
#    4$?
#
#    <details><summary>Answer</summary>
#    7 and 31: 4.4 times as many, of the same size.
#    </details>
#
# 5. $p = 8$, $m = 24$, and F, I and W take one unit of time each. How many units does 1F1B take,
#    how many ZB-H1?
#
#    <details><summary>Answer</summary>
#    1F1B: 24 · 3 + 7 · 3 = 93. ZB-H1: 24 · 3 + 7 · (1 + 1 - 1) = 79, so it is 15 % shorter. The
#    bubble is a third of what it was, 7 units instead of 21.
#    </details>
#
# ## 15. Assignment: `zero_bubble_schedule` (●●● 20 minutes)
#
# The backward of a linear layer $y = xW^T$ is two products:
#
# $$dx = dy\,W \qquad\qquad dW = dy^T x$$
#
# The stage before waits for the first, I. Nobody waits for the second, W, until the optimizer step.
# Each takes about as long as the forward. So I goes as early as B did, and W fills the bubble. $dW$
# needs $x$, so the activations stay until W. (To really split a backward pass, see
# `split_backward.py` in `course_lib/techniques/pipeline`.)
#
# **Predict.** For $p = 6$, $m = 8$ and F = I = W = 1: how many units is ZB-H1 shorter than 1F1B?

# %%
### BEGIN SOLUTION
guess_zero_bubble = 10
### END SOLUTION

# %% [markdown]
# ZB-H1 needs on no rank more memory than 1F1B needs on its first. Begin with 1F1B and write I for
# B. Then put in the W's, of microbatches $0, 1, 2, \dots$ in turn. After each I, stage $s$ counts
# the W's that wait, with that of this I; if there are more than $s$, it runs one. The rest comes at
# the end.


# %% exercise="zero_bubble_schedule"
def zero_bubble_schedule(p: int, m: int) -> list[list[Op]]:
    """ZB-H1: 1F1B with the backward in halves, I and W."""
    ### BEGIN SOLUTION
    table = []
    for s in range(p):
        row = [Op("F", s, i) for i in range(min(p - s - 1, m))]
        weights = 0
        for i in range(m):
            forward = min(p - s - 1, m) + i
            if forward < m:
                row.append(Op("F", s, forward))
            row.append(Op("I", s, i))
            if i + 1 - weights > s:
                row.append(Op("W", s, weights))
                weights += 1
        table.append(row + [Op("W", s, i) for i in range(weights, m)])
    return table
    ### END SOLUTION


# %% check="zero_bubble_schedule"
check(zero_bubble_schedule)

# %%
my_zero_bubble = partial(rows_of, yours_or(zero_bubble_schedule, schedules.zb_h1))
whole_backward = simulate(my_1f1b(6, 8))
zero_bubble = simulate(my_zero_bubble(6, 8), weight=1)
print(f"{whole_backward.makespan - zero_bubble.makespan:g} units shorter")
print("in flight, by stage: 1F1B ", *whole_backward.peak_in_flight)
print("                     ZB-H1", *zero_bubble.peak_in_flight)
print("your guess:", guessed(guess_zero_bubble))
gantt_chart({"1F1B": whole_backward, "ZB-H1": zero_bubble})

# %% [markdown]
# **Explain.** 39 units become 29. ZB-H1 holds on every rank what 1F1B holds on the first: the W's
# that are put off keep their activations.

# %% [markdown]
# ## 16. What to read
#
# - Huang et al. 2019, *GPipe* ([arXiv 1811.06965](https://arxiv.org/abs/1811.06965)): section 2,
#   and Table 2 with the numbers used here.
# - Narayanan et al. 2019, *PipeDream* (SOSP): 1F1B and weight stashing. Narayanan et al. 2021,
#   *Memory-Efficient Pipeline-Parallel DNN Training*
#   ([arXiv 2006.09503](https://arxiv.org/abs/2006.09503)): 1F1B with a flush, and 2BW.
# - Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on GPU Clusters*
#   ([arXiv 2104.04473](https://arxiv.org/abs/2104.04473)): interleaving, and how pipeline, tensor
#   and data parallelism fit together.
# - Qi et al. 2024, *Zero Bubble Pipeline Parallelism*
#   ([arXiv 2401.10241](https://arxiv.org/abs/2401.10241)): ZB-H1, ZB-H2, and a search for
#   schedules.
# - `course_lib/techniques/schedules` and `pipeline`: the tables as you wrote them, and an executor
#   that also does interleaving, split backwards, recomputation, tied embeddings and data parallel
#   pipelines.
#
# **Next**: [lesson 06](06_zero.ipynb) attacks the 16 bytes per parameter themselves: ZeRO.
