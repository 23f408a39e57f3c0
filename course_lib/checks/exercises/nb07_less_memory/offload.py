"""Two precisions, and two places: fp32 masters of bfloat16 parameters on the host.

offload(model, make_optimizer, to_host, to_device) -> step
    As master_weights, with masters, state and update on the host. to_host(t) and to_device(t) copy
    a tensor over the bus, which carries as few bytes as can be.
"""

from collections.abc import Callable
from typing import Any

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._training import (
    Net,
    trainable,
)

from ._precision import (
    STEPS,
    Bus,
    cases,
    train,
    values,
    wrong_memory,
)


def _offload_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    bus = Bus()
    return train(case, lambda model, make: answer(model, make, bus.to_host, bus.to_device), bus)


def _judge_offload(case: Case, observation: Observation) -> Finding | None:
    seen = observation.values[0]
    return values(case, seen) or wrong_memory(case, seen) or _bus(case, seen)


def _bus(case: Case, seen: dict[str, Any]) -> Finding | None:
    count = sum(p.numel() for p in trainable(Net(case.data["options"])))
    want = 2 * count
    for got, way, what in zip(
        [total // STEPS for total in seen["bus"]],
        ("to the host", "to the device"),
        ("gradients", "parameters"),
        strict=True,
    ):
        if got == want:
            continue
        likely = f"the parameters are right, but the bus does not carry the {what} once"
        if got == 0:
            likely = (
                f"nothing was copied {way}: the {what} of a real device are not in the memory of "
                "the host"
            )
        elif got == 2 * want:
            likely = f"the {what} cross the bus in fp32, twice the bytes: " + (
                "convert after the copy" if way == "to the host" else "round before the copy"
            )
        elif got > want:
            likely += ": only what learns has to cross, in bfloat16"
        return Finding(
            likely,
            expected=f"{want} bytes {way} in a step, 2 per parameter",
            got=f"{got} bytes",
        )
    if seen["left"]:
        return Finding(
            "the parameters are right, but the gradients stay on the device: it is to hold 2 bytes "
            "a parameter between steps, so set .grad to None once it is on the host",
            expected="0 bytes in .grad",
            got=f"{seen['left']} bytes",
        )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(model, make_optimizer, to_host, to_device)",
    cases=cases,
    on_rank=_offload_on_rank,
    judge=_judge_offload,
    hints=(
        """
        master_weights, with a bus in the middle. What crosses it downwards, and what upwards? In
        which dtype is each of them shorter?
        """,
        """
        Down: to_host(p.grad), then .float() on the host. Up: the copy rounded to bfloat16 on the
        host, then to_device. The copies themselves begin as to_host(p).float(), once.
        """,
        """
        In step: copy.grad = to_host(p.grad).float(); p.grad = None. optimizer.step(). Then under
        torch.no_grad(): p.copy_(to_device(copy.detach().bfloat16())); copy.grad = None.
        """,
    ),
    passed="4 bytes per parameter cross the bus, and the device holds 2",
    contract=Contract(changes=("model",), allowed=frozenset()),
)
