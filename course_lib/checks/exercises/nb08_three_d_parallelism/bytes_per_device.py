"""A sum that decides how a model is trained.

bytes_per_device(parameters, sizes, zero) -> bytes of model states on one device
    Mixed precision with Adam: 2 bytes of weights, 2 of gradients, 12 of optimizer state per
    parameter. Tensor and pipeline axis divide the parameters; ZeRO divides along the data axis.
"""

import random

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._axes import Sizes, named
from ._sizing import compare, on_rank


def _memory_cases(rng: random.Random) -> list[Case]:
    gpt3 = {"pipeline": 8, "data": 16, "tensor": 8}
    cases = [_memory(175e9, gpt3, zero) for zero in (0, 1, 2, 3)]
    for zero in (0, 1, 2, 3):
        sizes = {axis: rng.randint(2, 9) for axis in rng.sample(list(gpt3), 3)}
        cases.append(_memory(rng.randint(10, 900) * 1e8, sizes, zero))
    return cases


def _memory(parameters: float, sizes: Sizes, zero: int) -> Case:
    label = f"{parameters / 1e9:g}B parameters, {named(sizes)}, ZeRO-{zero}"
    return Case(1, label, {"arguments": (parameters, sizes, zero)})


def _states(parameters: float, data: int, zero: int, optimizer: float = 12) -> float:
    """Bytes, of so many parameters that `data` devices share (ZeRO, SC 2020, section 5)."""
    weights, gradients = 2.0, 2.0
    weights /= data if zero >= 3 else 1
    gradients /= data if zero >= 2 else 1
    optimizer /= data if zero >= 1 else 1
    return parameters * (weights + gradients + optimizer)


def _only(parameters: float, data: int, zero: int) -> float:
    """As if a stage sharded only what is new in it."""
    parts = {1: 12.0, 2: 2.0, 3: 2.0}
    return parameters * sum(n / (data if stage == zero else 1) for stage, n in parts.items())


def _judge_memory(case: Case, observation: Observation) -> Finding | None:
    parameters, sizes, zero = case.data["arguments"]
    data, model = sizes["data"], sizes["tensor"] * sizes["pipeline"]
    world = data * model
    want = _states(parameters / model, data, zero)
    pipeline, by_place, tensor = sizes.values()
    floors = sum(
        each // data if zero >= stage else each for each, stage in ((12, 1), (2, 2), (2, 3))
    )
    lookalikes = {
        "the axes of `sizes` come in any order: take them by name, not by place": _states(
            parameters / (pipeline * tensor), by_place, zero
        ),
        "// leaves out what does not divide: / is the division that keeps it": (
            parameters / model * floors
        ),
        "Adam's two moments are 8 bytes, and mixed precision keeps an fp32 copy: 4 more": _states(
            parameters / model, data, zero, optimizer=8
        ),
        "this is for all replicas together: one device is expected": want * data,
        "bytes are expected, not GB": want / 1e9,
        "the tensor and pipeline axes divide the parameters as well": _states(
            parameters, data, zero
        ),
        "the pipeline axis divides the parameters too, as each stage has its own layers": _states(
            parameters / sizes["tensor"], data, zero
        ),
        "the tensor axis divides the parameters too, as each rank has a part of each matrix": (
            _states(parameters / sizes["pipeline"], data, zero)
        ),
        "ZeRO divides along the data axis, not over all devices": _states(
            parameters / model, world, zero
        ),
        "the data axis divides only what ZeRO shards: without it, each replica has everything": (
            _states(parameters, world, 3)
        ),
        f"ZeRO-{zero} shards one thing less than this does": _states(
            parameters / model, data, zero + 1
        ),
        f"ZeRO-{zero} shards one thing more than this does": _states(
            parameters / model, data, zero - 1
        ),
        f"ZeRO-{zero} shards what the stages before it do as well: ask zero >= 1, not zero == 1": (
            _only(parameters / model, data, zero)
        ),
        "this is 4 bytes per parameter: gradients and optimizer state have to be held as well": (
            4 * parameters / model
        ),
    }
    return compare(case, observation, want, lookalikes, "count 2 + 2 + 12 bytes per parameter", "B")


EXERCISE = Exercise(
    module=__name__,
    signature="(parameters, sizes, zero)",
    cases=_memory_cases,
    on_rank=on_rank,
    judge=_judge_memory,
    hints=(
        """
        How many parameters does one device work with, before ZeRO? Which axes divide them, and
        which one only makes copies?
        """,
        """
        parameters / (tensor * pipeline) are on a device. Of their 2 + 2 + 12 bytes, ZeRO-1 divides
        the 12 by the data axis, ZeRO-2 also the gradients' 2, ZeRO-3 everything.
        """,
        """
        own = parameters / (sizes["tensor"] * sizes["pipeline"]); d = sizes["data"]. Then own * (2 /
        (d if zero >= 3 else 1) + 2 / (d if zero >= 2 else 1) + 12 / (d if zero >= 1 else 1)).
        """,
    ),
    passed="GPT-3 and 4 other models, with every stage of ZeRO",
    contract=Contract(takes="`sizes` with its axes in any order", allowed=frozenset()),
)
