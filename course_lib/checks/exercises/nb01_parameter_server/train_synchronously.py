"""Training with a synchronous parameter server, equal to one process with the whole batch.

train_synchronously(model, batches, loss, lr) -> None; every rank's model ends with the result
    Rank 0 is the server: its parameters are what training starts from, and its `batches` hold None.
    A worker gets for every step (inputs, targets, share). Ranks start unequal. Each step workers
    send their gradients to the server once and get the new parameters once.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank, by_worker, each
from course_lib.text import counted

from ._nets import (
    FROZEN,
    TIED,
    UNUSED,
    draw,
    loss_of,
    net_of,
    one_process,
)

STEPS = 10


_SLACK = 1e-10


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, [], [2, 2], 1),
        _case(rng, [], [1, 4], STEPS),
        _case(
            rng,
            [FROZEN, UNUSED],
            [2, 1, 3],
            4,
            Clue(
                "a parameter that is frozen, or that the loss does not depend on, has .grad None",
                "NoneType",
            ),
        ),
        _case(rng, [TIED], [3], 3),
        _case(rng, [TIED, FROZEN], [1, 2, 5], 5),
    ]


def _case(
    rng: random.Random, options: list[str], samples: list[int], steps: int, clue: str = ""
) -> Case:
    n = len(samples)
    what = f", a model with {' and '.join(options)} parameters" if options else ""
    label = (
        f"{counted(n, 'worker')} with {' + '.join(map(str, samples))} samples, "
        f"{counted(steps, 'step')}{what}"
    )
    data = {
        **draw(rng, options, samples, steps),
        "samples": samples,
        "lr": rng.uniform(0.1, 0.3),
    }
    return Case(1 + n, label, data, clue)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    model, total = net_of(data, rank), sum(data["samples"])
    batches: list[Any] = [None] * len(data["batches"])
    if rank > 0:
        batches = [
            (x.clone(), y.clone(), len(x) / total)
            for x, y in (parts[rank - 1] for parts in data["batches"])
        ]
    answer(model, batches, loss_of, data["lr"])
    return {name: plain(p) for name, p in model.named_parameters()}


def _judge(case: Case, observation: Observation) -> Finding | None:
    want = one_process(case.data, case.data["lr"])
    if finding := _frozen_kept(case, observation):
        return finding
    for rank, got in enumerate(observation.values):
        for name, exact in want.items():
            finding = compare_tensors.mismatch(got[name], reference.computed(exact, _SLACK), rank)
            if finding:
                likely = _cause(case, observation, rank, name) or finding.likely
                return replace(finding, likely=f"parameter {name!r}: {likely}")
    return _traffic(case, observation)


def _frozen_kept(case: Case, observation: Observation) -> Finding | None:
    """A worker that trains, but with other frozen parameters than the server: all goes wrong."""
    model = net_of(case.data, 0)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    for rank in range(1, case.world_size):
        for name in frozen:
            got = observation.values[rank][name]
            if torch.equal(got, case.data["states"][rank][name]):
                return Finding(
                    f"parameter {name!r}: this worker has kept its own frozen values: the ranks "
                    "start unequal, and what is not trained has to be made equal once as well",
                    rank,
                )
    return None


def _cause(case: Case, observation: Observation, rank: int, name: str) -> str:
    got, data, lr = observation.values[rank][name], case.data, case.data["lr"]

    def is_(other: torch.Tensor) -> bool:
        return got.shape == other.shape and bool(((got - other).abs() < _SLACK).all())

    own = data["states"][rank]
    server = observation.values[0][name]
    if is_(one_process(data, lr, mean_of_means=True)[name]):
        return "this is what a mean of means gives: weight each gradient by its share"
    if is_(one_process(data, lr, keeps_gradients=True)[name]):
        return (
            "the gradients of earlier steps are still in it: backward adds to .grad, so begin each "
            "step with model.zero_grad()"
        )
    if is_(one_process(data, lr, own_start=True)[name]):
        return (
            "the first gradients are those of the workers' own starting values: pull once before "
            "the first step"
        )
    if is_(own[name]):
        return "it has not moved at all: is the result written into the model's parameters?"
    short = {**data, "batches": data["batches"][:-1]}
    if rank > 0 and data["batches"] and is_(one_process(short, lr)[name]):
        return "this lacks the last step: after the last push there is one more pull"
    if is_(one_process(data, lr * (case.world_size - 1))[name]):
        return (
            f"the steps are {case.world_size - 1} times too large: you summed, and did not weight"
        )
    if rank > 0 and not is_(server):
        return "this worker does not hold what the server holds: pull after every step"
    return ""


def _traffic(case: Case, observation: Observation) -> Finding | None:
    """Gradients once per worker and step; parameters once, and frozen ones at least once."""
    model, n = net_of(case.data, 0), case.world_size - 1
    steps = len(case.data["batches"])
    all_ = sum(p.nbytes for p in model.parameters())
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    used = sum(p.nbytes for name, p in model.named_parameters() if name != "spare")
    least = trained - (all_ - used)  # an unused parameter's zeros need not be sent
    for rank in range(case.world_size):
        peers = {0} if rank else set(range(1, n + 1))
        if finding := traffic_limits.peers(
            observation, rank, peers, "workers talk only to the server"
        ):
            return finding
        if rank:
            rule = f"{steps} steps with one push of {trained} bytes each"
            finding = traffic_limits.sent(
                observation,
                rank,
                steps * least,
                steps * trained,
                rule,
                "Parameters need not be pushed, nor the gradient of what is frozen",
            )
        else:
            rule = (
                f"{n} workers times the parameters ({all_} bytes) at the start and after each of "
                f"{steps} steps"
            )
            finding = traffic_limits.sent(
                observation,
                0,
                n * (all_ + steps * least),
                n * (steps + 1) * all_,
                rule,
                "One copy per step is enough for a worker",
            )
        if finding:
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(model, batches, loss, lr)",
    cases=_cases,
    on_rank=_on_rank,
    own={"states": by_rank, "batches": each(by_worker)},
    judge=_judge,
    hints=(
        """
        push_and_pull in a loop, for a list of tensors. Before the first step every worker pulls,
        frozen parameters too: the ranks start with different ones. model.parameters() names a tied
        parameter once, so it is sent once.
        """,
        """
        Server: send all parameters to all workers; for every step add up what the workers send for
        each trainable parameter, subtract lr times the sum, send the new parameters. Worker:
        receive all; for every step zero_grad, backward, send share * gradient (zeros where .grad is
        None), receive. Both go through the parameters in the same order.
        """,
        """
        With torch.no_grad() around what changes parameters: trainable = [p for p in
        model.parameters() if p.requires_grad]. Worker, each step: model.zero_grad();
        loss(model(x), y).backward(); for p in trainable: g = p.grad if p.grad is not None else
        torch.zeros_like(p); dist.send(share * g, 0); then dist.recv(p.data, 0) for p in trainable.
        Server: total = sum of what arrives, worker by worker; p -= lr * total; send p.detach().
        """,
    ),
    passed="ten steps of the whole batch, to 1e-10, whatever the ranks started with",
    contract=Contract(
        runs=lambda arguments: len(arguments["batches"]),
        changes=("model",),
        moves=("model",),
        takes="rank 0's `batches` is a list of None; ranks start unequal; parameters frozen, "
        "shared or unused",
        allowed=POINT_TO_POINT,
        sends="before the first step rank 0 sends each worker every parameter once; per step each "
        "worker sends every gradient to rank 0 once, zeros where it is None, and gets every "
        "trained parameter once",
    ),
    points=2,
)
