"""A sum that decides how a model is trained.

tokens_to_hide(volume, devices, flops, bandwidth) -> tokens a device has to process in a step
    so that computing takes as long as sending. `volume` is 2 for plain data parallelism and ZeRO-1
    and -2, 3 for ZeRO-3: how often the parameters are sent, in bfloat16, by a ring. `flops` are
    operations per second, `bandwidth` bytes per second of one device. Training takes 6 operations
    for each parameter and token.
"""

import math
import random

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import number

from ._sizing import compare, on_rank


def _token_cases(rng: random.Random) -> list[Case]:
    cases = [_tokens(3, 8, 150e12, 300e9), _tokens(3, 1024, 150e12, 25e9)]
    drawn = [(rng.randint(2, 512), rng.randint(50, 900), rng.randint(1, 900)) for _ in range(3)]
    for volume, (devices, tera, giga) in zip((2, 5, 3), drawn, strict=True):
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
        "this is upside down, operations for bytes": 1 / want,
        "`bandwidth` is in bytes per second, not in bits": want * 8,
        "T is what one device has: it is not divided by the devices": want / n,
        "`volume` is how often the parameters travel in a step: it is left out here": want / volume,
        "`volume` is what is passed: this takes 2 for it, whatever it is": want / volume * 2,
        "this is for all devices together: one device is expected": want * n,
        "this is 1/n of it: every device sends (n-1)/n, not 1/n": want / ring / n,
    }
    if number(observation.values[0]) == math.ceil(want):
        return None  # a token is a whole one
    hint = "write down seconds to compute T tokens and seconds to send, and solve for T"
    return compare(case, observation, want, lookalikes, hint, "tokens")


EXERCISE = Exercise(
    module=__name__,
    signature="(volume, devices, flops, bandwidth)",
    cases=_token_cases,
    on_rank=on_rank,
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
    contract=Contract(allowed=frozenset()),
)
