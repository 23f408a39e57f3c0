"""Gradients averaged while backward still runs: the core of Horovod's DistributedOptimizer.

average_gradients_by_hooks(model) -> synchronize
    Called once on every rank, before training. It makes the ranks equal (rank 0's parameters
    and buffers), and hangs a hook on every trainable parameter that starts an asynchronous
    all-reduce of its gradient as soon as that is ready. synchronize(), called after each
    backward, waits for them and leaves the average over the ranks in every .grad. Frozen
    parameters are left alone, one that got no gradient keeps None, a shared one is reduced once.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD, ready
from course_lib.checks.rank_inputs import along, by_rank

from ._big_batch import (
    BATCH,
    BUFFER,
    FROZEN,
    STEPS,
    TIED,
    UNUSED,
    Net,
    big_batch_gradients,
    descend,
    drawn_state,
    fill,
    tensors_of,
)


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, [], equal_start=True),
        _case(rng, 3, [BUFFER]),
        _case(
            rng,
            2,
            [FROZEN, UNUSED],
            clue=Clue(
                "a frozen parameter cannot have a hook, and an unused one ends with .grad = None",
                "register a hook",
                "NoneType",
            ),
        ),
        _case(rng, 2, [TIED]),
        _case(rng, 1, [FROZEN]),
        _case(rng, 4, [FROZEN, UNUSED, TIED, BUFFER]),
    ]


def _case(
    rng: random.Random,
    world_size: int,
    options: list[str],
    *,
    equal_start: bool = False,
    clue: str = "",
) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    states = [drawn_state(options, generator) for _ in range(world_size)]
    if equal_start:
        states = states[:1] * world_size
    data = {
        "options": options,
        "states": states,
        "x": torch.randn(STEPS, world_size, BATCH, 4, generator=generator),
        "y": torch.randn(STEPS, world_size, BATCH, 2, generator=generator),
    }
    start = "that start equal" if equal_start else "that start unequal"
    ranks = f"{world_size} ranks {start}" if world_size > 1 else "1 rank"
    traits = {FROZEN: "a frozen parameter", UNUSED: "an unused layer"}
    traits |= {TIED: "a weight shared by two layers", BUFFER: "buffers"}
    having = f", with {', '.join(traits[option] for option in options)}" if options else ""
    return Case(world_size, f"{STEPS} steps of a small network on {ranks}{having}", data, clue)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    model = Net(data["options"])
    fill(model, data["states"][rank])
    places = itertools.count()
    for parameter in model.parameters():  # before the answer's own hooks, so each comes first
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p: ready(next(places), p.nbytes))
    synchronize = answer(model)
    if not callable(synchronize):
        return {"synchronize": plain(synchronize)}
    started = plain(tensors_of(model))
    gradients: list[dict[str, Any]] = []
    changed: list[str] = []
    for x, y in zip(data["x"], data["y"], strict=True):
        loss = nn.functional.mse_loss(model(x[rank]), y[rank])
        before = plain(tensors_of(model))
        with record_function(BACKWARD):
            loss.backward()
        synchronize()
        now = tensors_of(model)
        changed += [name for name in now if not torch.equal(now[name], before[name])]
        gradients.append({name: plain(p.grad) for name, p in model.named_parameters()})
        descend(model)
        model.zero_grad()
    return {"started": started, "gradients": gradients, "changed": changed}


def _judge(case: Case, observation: Observation) -> Finding | None:
    return (
        _form(case, observation)
        or _start(case, observation)
        or _parameters(observation)
        or _gradients(case, observation)
        or _once(case, observation)
    )


def _form(case: Case, observation: Observation) -> Finding | None:
    for rank, seen in enumerate(observation.values):
        if "synchronize" in seen:
            kind = kind_of(seen["synchronize"])
            return Finding(
                f"your function returned {kind}: return the function synchronize itself, without "
                "calling it",
                rank,
                expected="a function",
                got=kind,
            )
    return None


def _start(case: Case, observation: Observation) -> Finding | None:
    """All ranks begin with rank 0's parameters and buffers."""
    parameters = dict(Net(case.data["options"]).named_parameters())
    for rank, seen in enumerate(observation.values):
        for name, tensor in case.data["states"][0].items():
            kind = "parameter" if name in parameters else "buffer"
            finding = compare_tensors.mismatch(
                seen["started"][name],
                reference.moved(tensor),
                rank,
                {f"the rank's own {kind}": case.data["states"][rank][name]},
            )
            if finding:
                return replace(
                    finding,
                    likely=f"before the first step {kind} {name!r} is not rank 0's "
                    f"({finding.likely}): broadcast parameters and buffers from rank 0",
                )
    return None


def _parameters(observation: Observation) -> Finding | None:
    """Nobody but the optimizer writes into them."""
    for rank, seen in enumerate(observation.values):
        for name in seen["changed"]:
            return Finding(
                f"{name!r} itself has changed before the optimizer's step, not only its "
                "gradient: what a hook gets is the parameter p, and its gradient is p.grad",
                rank,
            )
    return None


def _gradients(case: Case, observation: Observation) -> Finding | None:
    """Every gradient of every step is that of the whole batch in one process."""
    for step, expected in enumerate(big_batch_gradients(case)):
        for rank, seen in enumerate(observation.values):
            got = seen["gradients"][step]
            for name, want in expected.items():
                if finding := _gradient(got[name], want, rank):
                    title = f"step {step}, gradient of {name!r}"
                    return replace(finding, likely=f"{title}: {finding.likely}")
    held = [seen["gradients"] for seen in observation.values]
    for step in range(STEPS):
        for name, tensor in held[0][step].items():
            if tensor is not None and (
                finding := compare_tensors.ranks_differ(
                    {r: held[r][step][name] for r in range(len(held))}
                )
            ):
                return finding
    return None


def _gradient(got: Any, want: reference.Reference | None, rank: int) -> Finding | None:
    if want is None:
        likely = "this parameter takes no part in the loss, so its .grad should stay None"
        return None if got is None else Finding(likely, rank)
    if got is None:
        return Finding("it is gone: synchronize must leave the average in .grad", rank, got="None")
    n, finding = len(want.parts), compare_tensors.mismatch(got, want, rank)
    if finding and ((got.double() - want.parts[rank]).abs() <= want.tolerance).all():
        return replace(finding, likely="this is the rank's own gradient, which nobody averaged")
    if finding and ((got.double() * n - want.parts[rank]).abs() <= n * want.tolerance).all():
        return replace(
            finding,
            likely=f"this is the rank's own gradient divided by {n}: what was all-reduced is not "
            "what is in .grad. A clone() has to be written back, and what a tensor's own hook "
            "(register_hook) is given is not .grad",
        )
    return finding


def _once(case: Case, observation: Observation) -> Finding | None:
    """Each gradient went out once in a step, in an all-reduce of its own."""
    if case.world_size == 1:
        return None
    expected = [want for want in big_batch_gradients(case)[0].values() if want is not None]
    once = STEPS * sum(want.value.numel() * want.dtype.itemsize for want in expected)
    for rank in range(case.world_size):
        reduced = [event for event in observation.trace.of(rank) if event.op == "all_reduce"]
        nbytes = sum(event.nbytes for event in reduced)
        if nbytes != once:
            return Finding(
                "the gradients are right, but not every gradient was reduced exactly once",
                rank,
                expected=f"{once} bytes all-reduced in {STEPS} steps",
                got=f"{nbytes} bytes",
            )
        if len(reduced) < STEPS * len(expected):
            return Finding(
                "the gradients are right, but several went out together, so the first of them "
                "waited for the last: here every gradient starts as soon as it is ready (fusing "
                "comes next)",
                rank,
                expected=f"{STEPS * len(expected)} all-reduces in {STEPS} steps",
                got=f"{len(reduced)}",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(model)",
    cases=_cases,
    on_rank=_on_rank,
    own={"states": by_rank, "x": along(1), "y": along(1)},
    judge=_judge,
    hints=(
        """
        Three parts: broadcast what the ranks must share at the start; register a hook on each
        trainable parameter; define synchronize inside the function, so that it sees the handles
        which the hooks put into a list, and return it.
        """,
        """
        p.register_post_accumulate_grad_hook(hook) calls hook(p) when p.grad is ready: its
        argument is the parameter, not the gradient. With async_op=True, dist.all_reduce returns
        a handle at once. Only a parameter with requires_grad can have a hook;
        model.parameters() lists a shared one only once.
        """,
        """
        The hook appends (handle, p) to a list. synchronize waits for each handle, then divides
        p.grad by the world size, and clears the list for the next step. Before all that,
        broadcast every one of model.parameters() and model.buffers() from rank 0, by its .data.
        """,
    ),
    passed="gradients as in one big batch, each on its way before backward has ended",
    contract=Contract(
        changes=("model",),
        takes="any model: parameters frozen, shared or unused, buffers of any dtype",
        allowed=frozenset({"broadcast", "all_reduce"}),
        sends="each gradient travels once, in an all-reduce of its own",
        waits=(Waits(op="all_reduce", begins="backward", promptly=True, outlasts="backward"),),
        may=frozenset({"hooks"}),
    ),
    points=2,
)
