"""Settings of the process, and the states of the random generators, are as before."""

import os
import random
import sys
from typing import Any

import torch

from ._law import Call, Law, Watch


def watch(call: Call) -> Watch:
    random_too = "random" not in call.contract.may
    before = _settings(random_too)
    yield
    now = _settings(random_too)
    changed = [name for name in before if before[name] != now[name]]
    if changed:
        return (
            f"after the call {changed[0]} is not as it was before, and what comes next in the "
            "program gets it: put it back"
        )
    return None


def _settings(random_too: bool) -> dict[str, Any]:
    found = {
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's number of threads": torch.get_num_threads(),
        "the working directory": os.getcwd(),
        # Torch notes there where it keeps what it compiles.
        "os.environ": {k: v for k, v in os.environ.items() if not k.startswith("TORCH")},
        "sys.getrecursionlimit()": sys.getrecursionlimit(),
        "torch.is_anomaly_enabled()": torch.is_anomaly_enabled(),
        "torch.are_deterministic_algorithms_enabled()": (
            torch.are_deterministic_algorithms_enabled()
        ),
    }
    if random_too:
        found["the state of torch's random generator"] = torch.get_rng_state().tolist()
        found["the state of Python's random generator"] = random.getstate()
        if "numpy" in sys.modules:
            _, words, position, *_ = sys.modules["numpy"].random.get_state()
            found["the state of numpy's random generator"] = (words.tolist(), position)
    return found


LAW = Law(watch)
