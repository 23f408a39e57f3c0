"""A model on two ranks, by hand: activation forward, gradient back.

two_stage_step(module, inputs, targets, loss) -> the loss on rank 1, None on rank 0
    Rank 0 holds the first half of the layers and reads `inputs`; rank 1 holds the second and reads
    `targets`. What crosses has the shape of `inputs`. Both end with the gradients of one process
    in .grad. Rank 0 sends one activation, rank 1 one gradient, and nothing else travels.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank, only

from ._networks import (
    FROZEN,
    loss_of,
    moved,
    network_data,
    one_process,
    other_losses,
    stage_module,
    wrong_gradient,
    wrong_loss,
    wrong_parameters,
)


def _cases(rng: random.Random) -> list[Case]:
    return [
        Case(2, "2 samples through 2 ranks", network_data(rng, 2, 2)),
        Case(
            2,
            "5 sequences in float64 through 2 ranks",
            network_data(rng, 2, 5, (rng.randint(2, 4),), torch.float64),
        ),
        Case(
            2,
            "3 samples, a frozen parameter on each rank",
            {**network_data(rng, 2, 3), FROZEN: (0, 1)},
        ),
    ]


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    module = stage_module(case, rank)
    # What the rank has no business with is there, in the right shape, and useless.
    x = data["x"].clone() if rank == 0 else torch.full_like(data["x"], torch.nan)
    y = data["y"].clone() if rank == 1 else torch.full_like(data["y"], torch.nan)
    returned = answer(module, x, y, loss_of)
    return {
        "returned": plain(returned),
        "gradients": {name: plain(p.grad) for name, p in module.named_parameters()},
        "passes": module.passes,
        "moved": moved(case, rank, module),
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    loss, gradients = one_process(case)
    mistakes = other_losses(case)
    for rank in (1, 0):
        for name in gradients[rank]:
            got = observation.values[rank]["gradients"][name]
            if finding := wrong_gradient(got, gradients, rank, name, mistakes):
                return finding
    if finding := wrong_parameters(observation.values):
        return finding
    returned = [seen["returned"] for seen in observation.values]
    if returned[0] is not None:
        return Finding(
            "rank 0 never sees the loss: it returns None",
            0,
            expected="None",
            got=kind_of(returned[0]),
        )
    if finding := wrong_loss(returned[1], loss, 1, "rank 1 returns the loss of the batch"):
        return finding
    for rank, seen in enumerate(observation.values):
        if seen["passes"] != ["F0", "B0"]:
            forwards = sum(name.startswith("F") for name in seen["passes"])
            return Finding(
                "the numbers are right, but the module ran more than once forward and once "
                "backward: keep its output until the gradient comes",
                rank,
                expected="1 forward and 1 backward",
                got=f"{forwards} forward and {len(seen['passes']) - forwards} backward",
            )
    x = case.data["x"]
    return _once(observation, 0, x, "its activation") or _once(
        observation, 1, x, "the gradient of that activation"
    )


def _once(observation: Observation, rank: int, x: torch.Tensor, what: str) -> Finding | None:
    dtype = str(x.dtype).removeprefix("torch.")
    sent = [event for event in observation.trace.of(rank) if event.op == "send"]
    if others := {event.dtype.removeprefix("torch.") for event in sent} - {dtype}:
        return Finding(
            f"what crosses is {min(others)}, and the inputs are {dtype}: torch.empty_like(inputs) "
            "has their dtype",
            rank,
        )
    size = x.nbytes
    rule = f"rank {rank} sends {what}, once, and nothing else"
    return traffic_limits.sent(observation, rank, size, size, rule) or traffic_limits.messages(
        observation, rank, 1, rule
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(module, inputs, targets, loss)",
    cases=_cases,
    on_rank=_on_rank,
    own={"states": by_rank, "x": only(lambda case: 0), "y": only(lambda case: 1)},
    judge=_judge,
    hints=(
        """
        Autograd knows nothing of the other rank. On rank 1 the activation that arrives is the
        beginning of the graph; on rank 0 the gradient that arrives is where backward starts.
        """,
        """
        Rank 1 receives into torch.empty_like(inputs) and calls requires_grad_() on it, so that
        after loss.backward() its .grad is what rank 0 waits for. Rank 0 keeps its output until
        then: output.backward(gradient) goes on where rank 1 stopped.
        """,
        """
        Rank 0: h = module(inputs); dist.send(h.detach(), 1); recv the gradient into
        torch.empty_like(h); h.backward(that). Rank 1: recv h, h.requires_grad_(), value =
        loss(module(h), targets), value.backward(), dist.send(h.grad, 0), return value.detach().
        """,
    ),
    passed="one activation forward, one gradient back, the gradients of one process",
    contract=Contract(
        runs=lambda arguments: 1,
        changes=("module",),
        takes="inputs and targets of any shape and float dtype, (samples, ..., width), and what "
        "crosses is like the inputs; frozen parameters, too; as `loss(output, targets)` any mean "
        "over samples",
        gives="gradients go to .grad, and the parameters stay",
        allowed=POINT_TO_POINT,
        sends="there is one message each way",
        holds="each rank runs its module once",
    ),
)
