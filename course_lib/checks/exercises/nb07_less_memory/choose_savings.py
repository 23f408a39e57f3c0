"""A decision: which savings for which machines.

choose_savings(job, seconds) -> (zero, offload, recompute)
    job: plain numbers, "devices", "layers", "parameters" of a layer, "memory" of a device in bytes,
    and "activations", a dict of what a layer keeps in bytes by what is recomputed. `seconds(zero,
    offload, recompute)` is what the simulator says of a step
    (`course_lib.simulate.memory_choices`).
    The answer fits into memory, and is at most 2 % slower than the fastest way that does.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from course_lib.checks.call_answer import kind_of, plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.decisions import Decision
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.simulate import memory_choices
from course_lib.simulate.memory_choices import RECOMPUTE, Job, Way

_ASKED = ("devices", "layers", "memory", "parameters", "activations")
# Ways that are the fastest by more than is let pass, as long as they fit: with memory for just
# them, and with a little less, whatever is counted wrongly shows.
_TIGHT: tuple[tuple[str, Way, float], ...] = (
    ("1.5B, one card", Way(0, False, "full"), 1),
    ("1.5B, one card", Way(2, True, "selective"), 1),
    ("7B, eight cards, Ethernet", Way(2, True, "full"), 1),
    ("7B, eight cards, Ethernet", Way(2, False, "full"), 10),  # hosts that are so many times slower
    ("13B, eight A100s", Way(3, False, "full"), 1),
    ("13B, four A100s, a host each", Way(3, True, "selective"), 1),
)
_NARROW = 1e-3  # of the memory


def _cases(rng: random.Random) -> list[Case]:
    jobs = memory_choices.JOBS
    cases = [_case(name, job) for name, job in jobs.items()]
    for name, way, slower in _TIGHT:
        job = replace(jobs[name], on_host=slower * jobs[name].on_host)
        need = sum(_held(_plain(job), way))
        cases += [
            _case(f"{name}, {what}", replace(job, memory=need * share))
            for what, share in (("just enough", 1 + _NARROW), ("a little less", 1 - _NARROW))
        ]
    name = rng.choice(list(jobs))
    drawn = _case(f"{name}, more memory", replace(jobs[name], memory=rng.uniform(1.1, 1.9) * 80e9))
    return _DECISION.in_turn([*cases, drawn])


def _case(name: str, job: Job) -> Case:
    label = f"{name}: {job.devices} x {job.memory / 1e9:.5g} GB"
    times = {tuple(way): memory_choices.seconds(job, way) for way in memory_choices.ways(job)}
    return Case(1, label, {"job": _plain(job), "seconds": times})


def _plain(job: Job) -> dict[str, Any]:
    """What the answer gets of it."""
    return {key: getattr(job, key) for key in _ASKED}


def _on_rank(answer: Callable, case: Case) -> Any:
    job, times = case.data["job"], case.data["seconds"]

    def seconds(zero: int, offload: bool, recompute: str) -> float:
        way = zero, offload, recompute
        if wrong := _impossible(*way):
            raise ValueError(wrong)
        return times[way]

    return plain(answer({**job, "activations": dict(job["activations"])}, seconds))


def _impossible(zero: Any, offload: Any, recompute: Any) -> str:
    """Why there is no such way; empty if there is."""
    if zero not in (0, 1, 2, 3):
        return f"zero = {zero!r} must be 0 (all on every device), 1, 2 or 3"
    if offload not in (True, False):
        return f"offload = {offload!r} must be True or False"
    if recompute not in RECOMPUTE:
        return f"recompute = {recompute!r} must be one of {', '.join(map(repr, RECOMPUTE))}"
    if offload and zero < 2:
        return f"offload is for zero = 2 and 3, which share the gradients out; zero = {zero}"
    return ""


# ------------------------------------------------------------------------------------------------
# What fits, and what would with a mistake
# ------------------------------------------------------------------------------------------------

_MISTAKES = {
    "memory": "the fastest way of all is not enough: it must also fit into memory",
    "states": "the states are left out: 16 bytes per parameter, in parts",
    "activations": "the activations are left out",
    "divided": "only stage 3 divides all 16 bytes by the devices: see the table of section 5",
    "device": "`activations` is for one device's own sequences: it is not divided",
    "back": "the layer whose backward runs has all its activations, whatever the others keep",
    "gradients": "at stages 2 and 3 two layers' gradients are whole, 4 bytes per parameter",
    "gathered": "at stage 3 two layers' parameters are whole, 4 bytes per parameter",
    "offloaded": "offload takes away gradients and optimizer, and the parameters stay: 2 bytes "
    "per parameter, divided only at stage 3",
}


def _held(job: dict, way: tuple, wrong: str = "") -> tuple[float, float]:
    """Bytes of states and of activations on a device at the worst moment."""
    zero, offload, recompute = way
    if wrong == "memory":
        return 0, 0
    states = 0 if wrong == "states" else _states(job, zero, offload, wrong)
    kept = job["activations"]
    back = kept[recompute if wrong == "back" else "none"]
    activations = (job["layers"] - 1) * kept[recompute] + back
    if wrong == "device":
        activations /= job["devices"]
    return states, 0 if wrong == "activations" else activations


def _states(job: dict, zero: int, offload: bool, wrong: str) -> float:
    """Bytes of parameters, gradients and optimizer, with the layers that are whole at the time."""
    n, layer = job["devices"], job["parameters"]
    shared = [zero >= stage or (wrong == "divided" and zero > 0) for stage in (3, 2, 1)]
    if wrong == "offloaded" and offload:
        shared[0] = True
    parts = [nbytes / (n if by else 1) for nbytes, by in zip((2, 2, 12), shared, strict=True)]
    held = job["layers"] * layer * (parts[0] if offload else sum(parts))
    if zero >= 2 and wrong != "gradients":
        held += 2 * 2 * layer
    if zero == 3 and wrong != "gathered":
        held += 2 * 2 * layer
    return held


# ------------------------------------------------------------------------------------------------


def _judge(case: Case, observation: Observation) -> Finding | None:
    way = observation.values[0]
    if not isinstance(way, tuple | list) or len(way) != 3:
        return Finding(
            "the answer is a stage of ZeRO, whether to offload, and what to recompute",
            input=case.label,
            expected='such as (2, False, "selective")',
            got=shown(way) if way is not None else kind_of(way),
        )
    if wrong := _impossible(*way):
        return Finding(wrong, input=case.label, got=shown(way))
    return _DECISION.judge(case, tuple(way))


def _parts(way: tuple, best: tuple) -> list[str]:
    return [
        f"it is the best with zero = {way[0]}, and another stage is faster here",
        f"it is the best with offload = {way[1]}, and faster ways have {best[1]}",
        f"it is the best with recompute = {way[2]!r}, and faster ways have {best[2]!r}",
    ]


def _shown(way: tuple) -> str:
    zero, offload, recompute = way
    return f"zero = {zero}, offload = {bool(offload)}, recompute = {recompute!r}"


_DECISION = Decision(_held, _MISTAKES, _parts, _shown, device="device", digits=2)

EXERCISE = Exercise(
    module=__name__,
    signature="(job, seconds)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        There are only 18 ways, so try them all. What does each hold on a device, at the worst
        moment? Which fit, and which of those is the fastest?
        """,
        """
        Three loops: zero, offload (True only where zero is 2 or 3) and recompute. For each, the
        states of all layers; two layers that are whole, at the stages where something is; and the
        activations, of which one layer always has all. Skip what does not fit, and keep the
        smallest seconds(zero, offload, recompute).
        """,
        """
        Per parameter a device holds 2 (divided by devices if zero is 3), and without offload 2
        more (divided if zero >= 2) and 12 (divided if zero >= 1). Times layers * parameters. Plus 4
        * parameters if zero >= 2, and once more if zero is 3. Plus (layers - 1) *
        activations[recompute] + activations["none"]. Collect the ways that fit, and return
        min(ways, key=lambda way: seconds(*way)).
        """,
    ),
    passed="memory says what is possible, and the simulator which of it is the fastest",
    contract=Contract(
        gives="offload goes only with zero 2 and 3; what is returned fits, and is at most 2 % "
        "slower than the fastest way that fits",
        allowed=frozenset(),
    ),
)
