"""How to run one job as a pipeline: the ways there are, and what the simulator says of each.

    job = JOBS["39B, InfiniBand"]
    min(ways(job), key=lambda way: seconds(job, way))   -> the fastest, whether it fits or not

A job is a model, a batch and some machines. p machines hold one copy of the model, cut into p v
stages of equally many layers; other machines hold further copies and share the batch. Each copy's
part of the batch goes through its pipeline in m microbatches. What the copies tell each other is
left out: it hides behind the backward passes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.techniques.schedules import Schedule, gpipe, interleaved, one_f_one_b

from .pipeline import simulate

_TABLES: dict[str, Callable[[int, int, int], Schedule]] = {
    "gpipe": lambda p, m, v: gpipe(p, m),
    "1f1b": lambda p, m, v: one_f_one_b(p, m),
    "interleaved": interleaved,
}
_TOKENS = 2048  # of a sequence
_SPEED = 8 * 150e12  # operations per second: eight A100s, as in Narayanan et al., SC 2021, Table 1


class Way(NamedTuple):
    """A schedule ("gpipe", "1f1b", "interleaved") with its sizes; v is 1 where not interleaved."""

    schedule: str
    p: int
    m: int
    v: int


@dataclass(frozen=True)
class Job:
    """A model on machines, in bytes and seconds.

    batch       sequences in a step, of all copies together
    memory      of a machine
    states      of a layer: 16 bytes per parameter
    activations of a layer and one sequence
    forward     of a layer and one sequence; a backward takes twice as long
    launch      of a layer, on top of that, however small the microbatch is
    message     of what one sequence sends over one cut
    latency     of each message, on top of that
    """

    machines: int
    layers: int
    batch: int
    memory: float
    states: float
    activations: float
    forward: float
    launch: float
    message: float
    latency: float


def transformer_job(
    layers: int, hidden: int, *, machines: int, memory: float, bandwidth: float, batch: int = 64
) -> Job:
    """A GPT on machines of eight A100s, tensor parallel inside; `bandwidth` in bytes per second.

    A layer has 12 hidden^2 parameters, and keeps 34 bytes per token and hidden unit where attention
    is recomputed (Korthikanti et al. 2022, section 4).
    """
    operations = _TOKENS * (24 * hidden**2 + 4 * _TOKENS * hidden)
    return Job(
        machines=machines,
        layers=layers,
        batch=batch,
        memory=memory,
        states=16 * 12 * hidden**2,
        activations=34 * _TOKENS * hidden,
        forward=operations / _SPEED,
        launch=3e-4,
        message=2 * _TOKENS * hidden / bandwidth,
        latency=2e-5,
    )


JOBS = {
    "39B, InfiniBand": transformer_job(48, 8192, machines=8, memory=256e9, bandwidth=25e9),
    "20B, Ethernet": transformer_job(24, 8192, machines=8, memory=320e9, bandwidth=1.25e9),
    "GPT-3, Ethernet": transformer_job(96, 12288, machines=16, memory=280e9, bandwidth=1.25e9),
    "7B, InfiniBand": transformer_job(32, 4096, machines=4, memory=640e9, bandwidth=25e9),
}


def ways(job: Job) -> list[Way]:
    """All that divide evenly, whether they fit into memory or not."""
    return [
        Way(schedule, p, m, v)
        for p in _divisors(job.machines)
        if job.layers % p == 0
        for m in _divisors(job.batch * p // job.machines)
        for v in _divisors(job.layers // p)
        for schedule in _TABLES
        if (schedule == "interleaved") == (v > 1) and (v == 1 or m % p == 0)
    ]


def seconds(job: Job, way: Way) -> float:
    """Of one step, as simulated: computing, bubble and messages."""
    sequences = job.batch * way.p // job.machines // way.m
    forward = job.layers // (way.p * way.v) * (job.launch + sequences * job.forward)
    send = job.latency + sequences * job.message
    table = _TABLES[way.schedule](way.p, way.m, way.v)
    return simulate(table, forward, 2 * forward, send=send).makespan


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
