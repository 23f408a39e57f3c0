"""Two precisions, and two places: fp32 masters of bfloat16 parameters on the host.

offload(model, make_optimizer, to_host, to_device) -> step
    As master_weights, with masters, state and update on the host. to_host(t) and to_device(t) copy
    a tensor over the bus, which carries as few bytes as possible.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._precision import (
    STEPS,
    Bus,
    cases,
    count_of,
    held,
    is_near,
    train,
    values,
    wanted,
    wrong_memory,
)

_SCALES = (16, 4)  # what a bus that changes what it carries does to it, down and up


def _cases(rng: random.Random) -> list[Case]:
    drawn = cases(rng)
    label = "{}, over a bus that makes all {} times as large going down and {} going up"
    changing = replace(
        drawn[0],
        label=label.format(drawn[0].label, *_SCALES),
        data={**drawn[0].data, "scales": _SCALES},
    )
    return [*drawn[:2], changing, drawn[2]]


def _offload_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    bus = Bus(case.data.get("scales", (1, 1)))
    return train(case, lambda model, make: answer(model, make, bus.to_host, bus.to_device), bus)


def _judge_offload(case: Case, observation: Observation) -> Finding | None:
    seen = observation.values[0]
    if "scales" in case.data and "after" in seen:
        return _carried(case, seen)
    return values(case, seen) or wrong_memory(case, seen) or _bus(case, seen)


def _carried(case: Case, seen: dict[str, Any]) -> Finding | None:
    """What is used on one end of the bus is what was copied there, not the other end's."""
    down, up = case.data["scales"]
    if _fits(case, seen, (down, down, up)):
        return None
    parts = (
        "the fp32 copies begin as the device's own parameters, not as what to_host returned",
        "the optimizer steps with the device's own gradients, not with what to_host returned",
        "the model gets the host's own numbers, not what to_device returned",
    )
    several = itertools.product((down, 1), (down, 1), (up, 1))
    for scales in several:
        if _fits(case, seen, scales):
            said = [part for part, scale in zip(parts, scales, strict=True) if scale == 1]
            return Finding(
                f"{'; '.join(said)}: on a machine with two memories that does not work, or leaves "
                "on the device what should be on the host"
            )
    return Finding(
        "the cases before were right. Here the bus changes what it carries, so that it shows which "
        "numbers were copied over it: does all that goes down come from to_host, and all that "
        "comes up from to_device?"
    )


def _fits(case: Case, seen: dict[str, Any], scales: tuple[float, ...]) -> bool:
    results = wanted(case, *scales)
    return all(bool(is_near(seen["after"][name], want).all()) for name, want in results.items())


def _bus(case: Case, seen: dict[str, Any]) -> Finding | None:
    want = 2 * count_of(case)
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
            "the parameters are right, but the gradients stay on the device: it should hold 2 "
            "bytes per parameter between steps, so set .grad to None once it is on the host",
            expected="0 bytes in .grad",
            got=f"{seen['left']} bytes",
        )
    if seen["began"] < want:
        return Finding(
            "the parameters are right, but the fp32 copies begin without to_host: they, and the "
            "optimizer's state with them, would lie on the device",
            expected=f"{want} bytes to the host before the first step",
            got=f"{seen['began']} bytes",
        )
    if seen["began"] > want:
        return Finding(
            "the parameters are right, but the fp32 copies begin with more bytes over the bus than "
            "needed: copy what learns once, in bfloat16, and convert on the host, "
            "to_host(p.detach()).float()",
            expected=f"{want} bytes to the host before the first step",
            got=f"{seen['began']} bytes",
        )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(model, make_optimizer, to_host, to_device)",
    cases=_cases,
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
    contract=Contract(
        changes=("model",),
        takes="a bfloat16 model, with frozen and shared parameters",
        holds="the parameters that learn cross the bus once at the start, 2 bytes each, and in a "
        "step 2 bytes each way for each of them; each side uses only what was copied there; "
        "between steps there are, beside the model, an fp32 copy of what learns and the "
        "optimizer's state",
        held=lambda case, rank: held(case, gradients=False),
        allowed=frozenset(),
    ),
)
