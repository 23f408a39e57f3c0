"""Two sums that decide how a model is trained.

bytes_per_device(parameters, sizes, zero) -> bytes of model states on one device
    Mixed precision with Adam: 2 bytes of weights, 2 of gradients, 12 of optimizer state a
    parameter. Tensor and pipeline axis divide the parameters; ZeRO divides along the data axis.

tokens_to_hide(volume, devices, flops, bandwidth) -> tokens a device has to process in a step
    so that computing takes as long as sending. `volume` is 2 for plain data parallelism and ZeRO-1
    and -2, 3 for ZeRO-3: how often the parameters are sent, in bfloat16, by a ring. `flops` are
    operations a second, `bandwidth` bytes a second of one device. Training takes 6 operations for
    each parameter and token.
"""

import random
from collections.abc import Callable
from typing import Any

from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.numbers import close, number

from .axes import Sizes, named

_EXACT = 1e-9
_NOTEBOOK = "07_three_d_parallelism"


def _memory_cases(rng: random.Random) -> list[Case]:
    gpt3 = {"pipeline": 8, "data": 16, "tensor": 8}
    cases = [_memory(175e9, gpt3, zero) for zero in (0, 1, 2, 3)]
    for zero in (0, 1, 2, 3):
        sizes = {axis: rng.randint(2, 9) for axis in gpt3}
        cases.append(_memory(rng.randint(10, 900) * 1e8, sizes, zero))
    return cases


def _memory(parameters: float, sizes: Sizes, zero: int) -> Case:
    label = f"{parameters / 1e9:g}B parameters, {named(sizes)}, ZeRO-{zero}"
    return Case(1, label, {"arguments": (parameters, sizes, zero)})


def _on_rank(answer: Callable, case: Case) -> Any:
    arguments = (dict(a) if isinstance(a, dict) else a for a in case.data["arguments"])
    return plain(answer(*arguments))


def _states(parameters: float, data: int, zero: int) -> float:
    """Bytes, of so many parameters that `data` devices share (ZeRO, SC 2020, section 5)."""
    weights, gradients, optimizer = 2.0, 2.0, 12.0
    weights /= data if zero >= 3 else 1
    gradients /= data if zero >= 2 else 1
    optimizer /= data if zero >= 1 else 1
    return parameters * (weights + gradients + optimizer)


def _judge_memory(case: Case, observation: Observation) -> Finding | None:
    parameters, sizes, zero = case.data["arguments"]
    data, model = sizes["data"], sizes["tensor"] * sizes["pipeline"]
    world = data * model
    want = _states(parameters / model, data, zero)
    lookalikes = {
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
        "this is 4 bytes a parameter: gradients and optimizer state have to be held as well": (
            4 * parameters / model
        ),
    }
    return _compare(case, observation, want, lookalikes, "count 2 + 2 + 12 bytes a parameter", "B")


# ---------------------------------------------------------------------------------------------


def _token_cases(rng: random.Random) -> list[Case]:
    cases = [_tokens(3, 8, 150e12, 300e9), _tokens(3, 1024, 150e12, 25e9)]
    drawn = [(rng.randint(2, 512), rng.randint(50, 900), rng.randint(1, 900)) for _ in range(3)]
    for volume, (devices, tera, giga) in zip((2, 3, 2), drawn, strict=True):
        cases += [_tokens(volume, devices, tera * 1e12, giga * 1e9)]
    return cases


def _tokens(volume: int, devices: int, flops: float, bandwidth: float) -> Case:
    label = (
        f"{volume} times the parameters, {devices} devices of {flops / 1e12:g} TFLOP/s and "
        f"{bandwidth / 1e9:g} GB/s"
    )
    return Case(1, label, {"arguments": (volume, devices, flops, bandwidth)})


def _judge_tokens(case: Case, observation: Observation) -> Finding | None:
    volume, n, flops, bandwidth = case.data["arguments"]
    ring = (n - 1) / n
    want = volume * ring * 2 / bandwidth * flops / 6
    lookalikes = {
        "a parameter is 2 bytes in bfloat16: this counts one": want / 2,
        "a parameter is 2 bytes in bfloat16: this counts four": want * 2,
        "a ring sends (n-1)/n of it, not all of it": want / ring,
        "forward is 2 operations for each parameter and token, and backward 4: 6 in all": want * 3,
        "2 operations for the forward pass come to the 4 of backward: 6 in all": want * 1.5,
        "this is upside down: the faster the network, the fewer tokens are needed": (
            bandwidth / flops / volume
        ),
        "`volume` is how often the parameters travel in a step: it is left out here": want / volume,
        "this is for all devices together: one device is asked": want * n,
        "this is a 1/n of it: every device sends (n-1)/n, not 1/n": want / ring / n,
    }
    hint = "write down seconds to compute T tokens and seconds to send, and solve for T"
    return _compare(case, observation, want, lookalikes, hint, "tokens")


def _compare(
    case: Case,
    observation: Observation,
    want: float,
    lookalikes: dict[str, float],
    otherwise: str,
    unit: str,
) -> Finding | None:
    got = number(observation.values[0])
    if got is not None and close(got, want, _EXACT):
        return None
    if got is None:
        return Finding("one number is asked", got=kind_of(observation.values[0]))
    causes = (cause for cause, value in lookalikes.items() if close(got, value, _EXACT))
    return Finding(
        next(causes, otherwise),
        input=case.label,
        expected=f"{want:.6g} {unit}",
        got=f"{got:.6g} {unit}",
    )


BYTES_PER_DEVICE = Exercise(
    name="bytes_per_device",
    signature="(parameters, sizes, zero)",
    notebook=_NOTEBOOK,
    cases=_memory_cases,
    on_rank=_on_rank,
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
    allowed=frozenset(),
)

TOKENS_TO_HIDE = Exercise(
    name="tokens_to_hide",
    signature="(volume, devices, flops, bandwidth)",
    notebook=_NOTEBOOK,
    cases=_token_cases,
    on_rank=_on_rank,
    judge=_judge_tokens,
    hints=(
        """
        Let the model have P parameters, and a device T tokens in a step. How many seconds does it
        compute? How many does it send? P will drop out.
        """,
        """
        Computing: 6 * P * T / flops. Sending: volume * (n-1)/n * 2 * P bytes, over bandwidth. Set
        them equal.
        """,
        """
        T = volume * (n-1)/n * 2 / bandwidth * flops / 6.
        """,
    ),
    passed="computing then takes as long as sending, whatever the size of the model",
    allowed=frozenset(),
)
