"""A decision: which pipeline for which machines.

choose_schedule(job, seconds) -> (schedule, p, m, v)
    job: plain numbers, "machines", "layers", "batch" (sequences per step), and in bytes "memory" of
    a machine, "states" of a layer, "activations" of a layer and one sequence. `seconds(schedule, p,
    m, v)` is what the simulator says of a step (`course_lib.simulate.pipeline_choices`). The answer
    fits into memory, and is at most 2 % slower than the fastest way that does.
"""

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from course_lib.checks.call_answer import kind_of, plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.decisions import Decision
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.simulate import pipeline_choices
from course_lib.simulate.pipeline_choices import Job
from course_lib.text import counted

_DRAWN = 1
_ASKED = ("machines", "layers", "batch", "memory", "states", "activations")
# Eight machines, and a number of layers that eight does not divide.
_UNEVEN = pipeline_choices.transformer_job(36, 6144, machines=8, memory=160e9, bandwidth=25e9)
# Room for the two chunks of interleaving that are the fastest, and for no stage in flight more.
_CLOSE_FIT = replace(pipeline_choices.JOBS["GPT-3, Ethernet"], memory=296e9)
SCHEDULES = ("gpipe", "1f1b", "interleaved")


def _cases(rng: random.Random) -> list[Case]:
    cases = [_case(name, job) for name, job in pipeline_choices.JOBS.items()]
    cases += [_case("16B, InfiniBand", _UNEVEN), _case("GPT-3, Ethernet, more memory", _CLOSE_FIT)]
    while len(cases) < len(pipeline_choices.JOBS) + 2 + _DRAWN:
        name, job = rng.choice(list(pipeline_choices.JOBS.items())[:3])
        job = replace(job, memory=job.memory * rng.choice((1.25, 1.5)), batch=96)
        case = _case(f"{name}, another memory and batch", job)
        if _DECISION.fitting(case):
            cases.append(case)
    return _DECISION.in_turn(cases)


def _case(name: str, job: Job) -> Case:
    label = (
        f"{name}: {job.layers} layers on {job.machines} machines of {job.memory / 1e9:g} GB, "
        f"{job.batch} sequences per step"
    )
    plain_job = {key: getattr(job, key) for key in _ASKED}
    return Case(1, label, {"job": plain_job, "seconds": _times(replace(job, memory=0.0))})


@functools.cache
def _times(job: Job) -> dict[tuple, float]:
    """What a step takes in each way, which no memory changes: cases are drawn again and again."""
    return {tuple(way): pipeline_choices.seconds(job, way) for way in pipeline_choices.ways(job)}


def _on_rank(answer: Callable, case: Case) -> Any:
    job, times = case.data["job"], case.data["seconds"]

    def seconds(schedule: str, p: int, m: int, v: int = 1) -> float:
        if (schedule, p, m, v) not in times:
            raise ValueError(_impossible(job, schedule, p, m, v))
        return times[schedule, p, m, v]

    return plain(answer(dict(job), seconds))


def _impossible(job: dict, schedule: Any, p: int, m: int, v: int) -> str:
    """Why there is no such way."""
    if schedule not in SCHEDULES:
        return f"there is no schedule {schedule!r}: they are {', '.join(SCHEDULES)}"
    if not all(isinstance(size, int) and size > 0 for size in (p, m, v)):
        return f"p = {p}, m = {m}, v = {v}: sizes are whole numbers of at least 1 (divide with //)"
    if job["machines"] % p or job["layers"] % p:
        return f"p = {p} must divide {job['machines']} machines and {job['layers']} layers"
    sequences = job["batch"] * p // job["machines"]
    if sequences % m:
        copies = counted(job["machines"] // p, "copy", "copies")
        return (
            f"m = {m} does not divide the {counted(sequences, 'sequence')} of a copy (with p = "
            f"{p} there are {copies} of the model, which share {job['batch']})"
        )
    if (schedule == "interleaved") != (v > 1):
        return f"{schedule} with v = {v}: interleaved has v of 2 and more, and the others have 1"
    if job["layers"] % (p * v):
        return f"p v = {p * v} stages cannot share {job['layers']} layers evenly"
    return f"interleaving needs m to be a multiple of p: m = {m}, p = {p}"


# ------------------------------------------------------------------------------------------------
# What fits, and what would with a mistake
# ------------------------------------------------------------------------------------------------

_MISTAKES = {
    "memory": "the fastest way of all is not enough: it must also fit into memory",
    "states": "the states are left out: a machine holds those of layers / p layers",
    "activations": "the activations are left out",
    "1f1b": "GPipe has all m microbatches in flight, not min(m, p)",
    "one": "this counts the activations of one microbatch, and several are in flight",
    "sequence": "a microbatch has batch p / (machines m) sequences, not one",
    "plain": "interleaving has more in flight than 1F1B: min(m v, (v-1) p + 2(p-1) + 1) stages",
    "large": "an interleaved stage has layers / (p v) layers, not layers / p",
    "gpipe": "1F1B and interleaving do not hold all microbatches: see exercises 4 and 8",
}


def _held(job: dict, way: tuple, wrong: str = "") -> tuple[float, float]:
    """Bytes of states and activations on the first rank, which holds most."""
    schedule, p, m, v = way
    sequences = 1 if wrong == "sequence" else job["batch"] * p // job["machines"] // m
    states = job["states"] * job["layers"] / p
    per_stage = sequences * job["activations"] * job["layers"] / (p * v)
    if wrong == "large":
        per_stage *= v
    ignored = wrong in ("memory", "activations")
    return (
        0 if wrong in ("memory", "states") else states,
        0 if ignored else per_stage * _in_flight(schedule, p, m, v, wrong),
    )


def _in_flight(schedule: str, p: int, m: int, v: int, wrong: str = "") -> int:
    """Activations of stages that the first rank holds at the worst moment."""
    if wrong == "one":
        return v
    if wrong == "gpipe" or (schedule == "gpipe" and wrong != "1f1b"):
        return m * v
    if schedule == "interleaved" and wrong != "plain":
        return min(m * v, (v - 1) * p + 2 * (p - 1) + 1)
    return min(m, p)


# ------------------------------------------------------------------------------------------------


def _judge(case: Case, observation: Observation) -> Finding | None:
    job, times = case.data["job"], case.data["seconds"]
    way = observation.values[0]
    if not isinstance(way, tuple | list) or len(way) != 4:
        return Finding(
            "the answer is a schedule and three sizes",
            input=case.label,
            expected='such as ("1f1b", 4, 8, 1)',
            got=shown(way) if way is not None else kind_of(way),
        )
    way = tuple(way)
    if way not in times:
        return Finding(_impossible(job, *way), input=case.label, got=_shown(way))
    return _DECISION.judge(case, way)


def _parts(way: tuple, best: tuple) -> list[str]:
    schedule, p, m, v = way
    return [
        f"it is the best of {schedule}, and another schedule is faster here",
        f"it is the best for p = {p}: try every p that divides the machines and the layers",
        f"it is the best for m = {m}: try every m that divides a copy's sequences",
        f"it is the best for v = {v}: try every v for which p v divides the layers",
    ]


def _shown(way: tuple) -> str:
    schedule, p, m, v = way
    sizes = f"m = {m}, v = {v}" if v > 1 else f"m = {m}"
    return f"{schedule}, p = {p}, {sizes}" if p > 1 else f"no pipeline (p = 1), {sizes}"


_DECISION = Decision(_held, _MISTAKES, _parts, _shown, device="machine", digits=0)

EXERCISE = Exercise(
    module=__name__,
    signature="(job, seconds)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        There are only some hundred ways, so try them all. Which of them are possible, which of the
        possible ones fit, and which of those is the fastest?
        """,
        """
        Four loops: p over the divisors of the machines, m over those of a copy's sequences, v over
        those of layers / p, and the schedules. For each, states plus activations: what one stage
        keeps of one microbatch, times how many the first rank has in flight. Skip what does not
        fit, and keep the smallest seconds(schedule, p, m, v).
        """,
        """
        sequences = batch * p // machines // m; states * layers / p + in_flight * sequences *
        activations * layers / (p * v) <= memory, where in_flight is m for gpipe, min(m, p) for
        1f1b, and min(m * v, (v - 1) * p + 2 * (p - 1) + 1) for interleaved. Collect the ways that
        fit, and return min(ways, key=lambda way: seconds(*way)).
        """,
    ),
    passed="memory says what is possible, and the simulator which of it is the fastest",
    contract=Contract(
        gives="p divides the machines and the layers, m the sequences of a copy, p v the layers; "
        'v is 1 unless the schedule is "interleaved", where v is 2 or more and m a multiple of p; '
        "what is returned fits, and is at most 2 % slower than the fastest way that fits",
        allowed=frozenset(),
    ),
)
