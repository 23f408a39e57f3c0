"""What the layers of this notebook share: a pass through one on a rank, and verdicts on it.

A case holds what one process would have, in float64. Each rank gets its parts of it, and what it
computes is compared with the one process: the output, then the gradient of every leaf.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.profiler import record_function

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import plain
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.exercises._operations import Operations
from course_lib.checks.profiler_labels import BACKWARD, FORWARD
from course_lib.observe import CommEvent

ALL_REDUCE = frozenset({"all_reduce"})

Tensors = dict[str, torch.Tensor]


@dataclass
class Exact:
    """What one process computes.

    outputs: by rank. gradients: by rank and name.
    looks: what an output may be instead, by rank: {"this rank's own summand": tensor}.
    gradient_looks: the same for gradients, by rank and name.
    missing: why there may be no gradient at all, by name.
    """

    outputs: list[torch.Tensor]
    gradients: list[Tensors]
    looks: list[Tensors] = field(default_factory=list)
    gradient_looks: list[dict[str, Tensors]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def parts(tensor: torch.Tensor, ranks: int, dim: int) -> list[torch.Tensor]:
    return [part.contiguous() for part in tensor.chunk(ranks, dim)]


def layer_pass(
    layer: Callable[[Tensors], Any],
    tensors: Mapping[str, torch.Tensor],
    weights: torch.Tensor,
    residual: str = "",
    *,
    longer: tuple[str, ...] = ("x",),
    gradients: bool = True,
) -> dict[str, Any]:
    """Forward and backward on this rank, every tensor a leaf.

    Between the two the layer is called once more, on other numbers and with the tensors of `longer`
    twice as long, as the next microbatch or the next layer is: what backward needs belongs to one
    call.

    The loss weighs each element of the output with `weights`. residual: a leaf that is added to the
    output, so that both are handed the same gradient. gradients: whether any are expected.
    """
    leaves = _leaves(tensors, gradients)
    with record_function(FORWARD), Operations() as work:
        output = layer(leaves)
    seen = {"output": plain(output), "gradients": {}, "work": work.products, "made": work.shapes}
    seen["changed"] = [n for n, t in tensors.items() if not torch.equal(leaves[n].detach(), t)]
    if not isinstance(output, torch.Tensor) or output.shape != weights.shape:
        return seen
    # Its result is told, so that its messages make a difference to something.
    others = {n: t / -2 if t.is_floating_point() else t for n, t in tensors.items()}
    others |= {n: torch.cat([torch.atleast_1d(others[n])] * 2) for n in longer}
    seen["another"] = plain(layer(_leaves(others, gradients)))
    whole = leaves[residual] + output if residual else output
    if gradients and whole.requires_grad:
        with record_function(BACKWARD):
            (whole * weights).sum().backward()
    seen["gradients"] = {n: plain(t.grad) for n, t in leaves.items() if t.requires_grad}
    return seen


def _leaves(tensors: Mapping[str, torch.Tensor], gradients: bool) -> Tensors:
    return {
        name: t.clone().requires_grad_(gradients and t.is_floating_point())
        for name, t in tensors.items()
    }


# ---------------------------------------------------------------------------------------------


def wrong_values(case: Case, observation: Observation, exact: Exact) -> Finding | None:
    """The outputs of all ranks, then the gradients of all leaves, against one process."""
    for rank, seen in enumerate(observation.values):
        looks = exact.looks[rank] if exact.looks else {}
        if finding := compare_tensors.computed(seen["output"], exact.outputs[rank], rank, looks):
            return finding
        if seen["changed"]:
            return Finding(
                f"the result is right, but {seen['changed'][0]} was written to: others may still "
                "need it. Work on a copy",
                rank,
            )
    for rank, seen in enumerate(observation.values):
        for name, wanted in exact.gradients[rank].items():
            looks = exact.gradient_looks[rank].get(name, {}) if exact.gradient_looks else {}
            got = seen["gradients"].get(name)
            why = exact.missing.get(name, "")
            if finding := _wrong_gradient(name, got, wanted, rank, looks, case.world_size, why):
                return finding
    return None


def _wrong_gradient(
    name: str, got: Any, wanted: torch.Tensor, rank: int, looks: Tensors, ranks: int, why: str
) -> Finding | None:
    title = f"the output is right, the gradient of {name} is not"
    if got is None:
        likely = why or (
            f"is the output cut off from {name}, as what a plain dist collective returns is, or "
            "does a backward return nothing?"
        )
        return Finding(f"{title}: there is none, {likely}", rank, got="None")
    finding = compare_tensors.computed(got, wanted, rank, looks)
    if finding is None:
        return None
    if (
        ranks > 1
        and compare_tensors.alike(got, wanted * ranks)
        and not finding.likely.startswith("this is")
    ):
        likely = (
            f"{title}: exactly t = {ranks} times the reference. It is the same on all ranks, and "
            "was added up over them"
        )
        return replace(finding, likely=likely)
    return replace(finding, likely=f"{title}: {finding.likely}")


# ---------------------------------------------------------------------------------------------


def collectives(observation: Observation, rank: int, phase: str) -> list[CommEvent]:
    """What `rank` ran in FORWARD or in BACKWARD, in order."""
    return [event for event in observation.trace.of(rank) if phase in event.spans]


def messages_of(
    observation: Observation,
    ranks: int,
    phase: str,
    wanted: Sequence[tuple[str, int]],
    rule: str,
) -> Finding | None:
    """Each rank runs these (operation, bytes) in this phase, in any order, and nothing else."""
    for rank in range(ranks):
        found = [(e.op, e.nbytes) for e in collectives(observation, rank, phase)]
        if ranks > 1 and sorted(found) != sorted(wanted):
            direction = "forward" if phase == FORWARD else "backward"
            return Finding(
                f"the numbers are right, but not what travels {direction}: {rule}",
                rank,
                expected=_told(wanted),
                got=_told(found),
            )
    return None


def _told(messages: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{op} of {nbytes} bytes" for op, nbytes in messages) or "no communication"


def work(observation: Observation, most: int, rule: str) -> Finding | None:
    """Multiplications and additions of matrix products forward, on every rank: at most `most`."""
    for rank, seen in enumerate(observation.values):
        if seen["work"] > most:
            return Finding(
                f"the numbers are right, but this rank computed too much: {rule}",
                rank,
                expected=f"{most} multiplications and additions at most in matrix products",
                got=f"{seen['work']}",
            )
    return None


def one_each_way(observation: Observation, ranks: int, nbytes: int) -> Finding | None:
    """One all-reduce of `nbytes` forward and one backward, and nothing else."""
    return messages_of(
        observation, ranks, FORWARD, [("all_reduce", nbytes)], "one all-reduce of the output (g)"
    ) or messages_of(
        observation,
        ranks,
        BACKWARD,
        [("all_reduce", nbytes)],
        "one all-reduce of the input's gradient (f)",
    )
