"""The memory wall: bytes to hold a model, bytes to train it, and the fewest devices for that.

memory_wall(parameters, device_bytes) -> (hold, train, devices)
    hold: bytes of the float32 weights, 4 per parameter. train: bytes of weights, gradients and
    optimizer state with Adam in mixed precision, 2 + 2 + 12 per parameter (Rajbhandari et al. 2020,
    arXiv 1910.02054, section 3.1). devices: the fewest whose memories together hold `train`.
"""

import math
import random
from collections.abc import Callable

from course_lib.checks.call_answer import kind_of, plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import numbers

_GB = 10**9


def _cases(rng: random.Random) -> list[Case]:
    some = [(rng.randrange(10**8, 10**12), rng.choice((16, 24, 32, 141)) * _GB) for _ in range(4)]
    full = rng.randrange(2, 40)
    return [
        _models("GPT-3 on devices of 80 GB", [(175 * _GB, 80 * _GB)]),
        _models("GPT-2 on devices of 32 GB", [(1_500_000_000, 32 * _GB)]),
        _models("models that fill their devices to the last byte", [(full * 5 * _GB, 80 * _GB)]),
        _models("one parameter more than that", [(full * 5 * _GB + 1, 80 * _GB)]),
        _models("devices that end within a parameter", [(1_000, 1_001)]),
        _models("other models and devices", some),
    ]


def _models(label: str, models: list[tuple[int, int]]) -> Case:
    return Case(1, label, {"models": models})


def _on_rank(answer: Callable, case: Case) -> list:
    return [plain(answer(*model)) for model in case.data["models"]]


def _judge(case: Case, observation: Observation) -> Finding | None:
    for (parameters, device_bytes), answered in zip(
        case.data["models"], observation.values[0], strict=True
    ):
        if finding := _wrong(parameters, device_bytes, answered):
            return finding
    return None


def _wrong(parameters: int, device_bytes: int, answered: object) -> Finding | None:
    arguments = f"parameters = {parameters:,}, device_bytes = {device_bytes:,}"
    if not isinstance(answered, tuple | list) or len(answered) != 3:
        kind = kind_of(answered)
        if isinstance(answered, tuple | list):
            kind = f"{len(answered)} values"
        likely = f"three numbers are expected, (hold, train, devices), and you returned {kind}"
        return Finding(likely, input=arguments)
    got = numbers(answered, 3)
    if got is None:
        return Finding("three plain numbers are expected", input=arguments, got=shown(answered))
    want = _needs(parameters, device_bytes)
    for name, have, must in zip(("hold", "train", "devices"), got, want, strict=True):
        if have != must:
            return Finding(
                _CAUSES[name](have, parameters, device_bytes),
                input=arguments,
                expected=f"{name} = {must:,}",
                got=f"{name} = {int(have) if have == int(have) else have:,}",
            )
    return None


def _needs(parameters: int, device_bytes: int) -> tuple[int, int, int]:
    train = parameters * (2 + 2 + 12)
    fewest = train // device_bytes + (train % device_bytes > 0)
    return parameters * 4, train, fewest


def _hold_cause(got: float, parameters: int, _: int) -> str:
    if got == 16 * parameters:
        return "this is `train`: hold comes first, the bytes of the weights in float32"
    if got == 2 * parameters:
        return "a float32 has 4 bytes; 2 is what bfloat16 and float16 have"
    return _unit(got, 4 * parameters) or "hold is 4 bytes for each parameter, and nothing else"


def _train_cause(got: float, parameters: int, _: int) -> str:
    per_parameter = got / parameters
    missing = {
        2: "these are only the 16-bit weights: gradients and optimizer state must be held too",
        4: "these are only weights, or weights and gradients: the optimizer's state is missing",
        12: "these are only the optimizer's 12 bytes: weights and gradients have 2 each",
        14: "2 bytes are missing: weights have 2, gradients have 2, the optimizer's state has 12",
        8: "Adam keeps three float32 values for each parameter: the weight itself in full "
        "precision, and two averages",
    }
    for known, likely in missing.items():
        if per_parameter == known:
            return likely
    if per_parameter == 18:
        return (
            "18 bytes are a different recipe, which keeps gradients in float32: here they have 2 "
            "bytes"
        )
    if per_parameter == 20:
        return (
            "20 bytes are hold and train added up, or weights of 4 bytes, gradients of 4 and the "
            "optimizer's 12: train is 2 + 2 + 12, with the float32 weights among the 12"
        )
    return _unit(got, 16 * parameters) or (
        "train is 2 bytes (weights) + 2 (gradients) + 12 (optimizer) for each parameter"
    )


def _devices_cause(got: float, parameters: int, device_bytes: int) -> str:
    hold, train, fewest = _needs(parameters, device_bytes)
    if got != int(got):
        return "devices come whole: round up, for example with math.ceil"
    if got == fewest - 1:
        return f"{got:.0f} devices hold less than `train`: round up, not down"
    if got == train // device_bytes + 1:
        return "the last device has nothing to hold: what divides exactly needs no extra device"
    if got == -(-(hold + train) // device_bytes):
        return "hold and train are added up here: train has the weights in it already"
    if got == -(-parameters // max(1, device_bytes // 16)):
        return "bytes are shared out, and not whole parameters: a device may end within one"
    if got == -(-hold // device_bytes):
        return "these devices only hold the weights: it is `train` that must fit"
    for unit, other in ((2**30, 10**9), (10**9, 2**30)):
        if got == math.ceil(train / unit / (device_bytes / other)):
            return (
                "one is in GB here, and the other in GiB: both are bytes, divide them as they are"
            )
    return "the fewest devices whose memories together have room for `train` bytes"


def _unit(got: float, want: int) -> str:
    for size, name in ((10**9, "GB"), (2**30, "GiB"), (10**12, "TB"), (2**40, "TiB")):
        if abs(got - want / size) <= 1e-6 * want / size:
            return f"this is the number of {name}, and bytes are expected"
    return ""


_CAUSES = {"hold": _hold_cause, "train": _train_cause, "devices": _devices_cause}


EXERCISE = Exercise(
    module=__name__,
    signature="(parameters, device_bytes)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Bytes are parameters times the bytes of each. The table above has the bytes. How many boxes
        of 80 do you need for 81?
        """,
        """
        hold takes 4 bytes per parameter, train takes 16. Dividing train by device_bytes gives
        devices with a fraction; a fraction of a device takes a whole one. Try it with a model that
        fits exactly: 5e9 parameters need one device of 80e9 bytes, not two.
        """,
        """
        Three lines: hold is 4 times the parameters, train is 16 times, devices is math.ceil of
        train / device_bytes. Return the three as a tuple, in this order.
        """,
    ),
    passed="4 bytes per parameter to hold, 16 to train, and no device too few or too many",
    contract=Contract(
        allowed=frozenset(),
    ),
)
