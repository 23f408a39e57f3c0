"""How to make a model fit: the ways there are, and what the simulator says of each.

    job = JOBS["13B, eight A100s"]
    min(ways(job), key=lambda way: seconds(job, way))   -> the fastest, whether it fits or not

A job is a model of equal layers, and devices that each train it on sequences of their own. A way
is a stage of ZeRO, whether the optimizer is on the host, and what is recomputed. A step is played
on three lanes, of the device, its network and its bus to the host:

    device    F1   F2   F3   B3------ B2------ B1------          update
    network   g1 g2   g3        r3       r2       r1
    bus                            d3       d2       d1                 up

g is the gather of a layer's parameters, r the reduction of its gradients, d their way down to the
host. Stages 1 and 2 gather what the step before has updated, each layer once; stage 3 gathers it in
backward too, and no more than one layer ahead, so that it holds two.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from .engine import NOTHING, Lane, run
from .hardware import LINKS
from .memory_formulas import MIXED_ADAM, Recompute, layer_activation_bytes
from .transformer import Transformer

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
_UPDATED = (
    28  # bytes that Adam moves in memory per parameter: 12 read and written, 2 + 2 for 16 bits
)


class Way(NamedTuple):
    """A stage of ZeRO, whether gradients and optimizer go to the host, and what is recomputed."""

    zero: int
    offload: bool
    recompute: Recompute


@dataclass(frozen=True)
class Job:
    """A model on devices, in bytes and seconds.

    memory      of a device
    parameters  of a layer, a number
    activations that a layer keeps of a device's sequences, by what is recomputed
    forward     of a layer; a backward takes twice as long
    redone      of a layer, on top of its backward, by what is recomputed
    one_pass    in which a layer goes once through a device's network, in 16 bits
    bus         in which a layer's 16-bit gradients cross the bus to the host
    updated     in which a device updates a layer
    on_host     in which a host updates a layer, for all devices that it has
    """

    devices: int
    layers: int
    memory: float
    parameters: float
    activations: dict[Recompute, float]
    forward: float
    redone: dict[Recompute, float]
    one_pass: float
    bus: float
    updated: float
    on_host: float


@dataclass(frozen=True)
class Machine:
    """What a job runs on: rates per second of a device, and of the host that it shares."""

    memory: float
    speed: float  # operations that training reaches
    memory_bandwidth: float
    network: float
    bus: float
    host_bandwidth: float  # of the host's memory
    devices_per_host: int = 1


def transformer_job(model: Transformer, machine: Machine, devices: int, sequences: int) -> Job:
    """`model` on so many devices, each with so many sequences of its own.

    Activations as in Korthikanti et al. 2022, Table 2. Selective recomputation repeats the two
    products of attention.
    """
    tokens = sequences * model.seq
    attention = 4 * tokens * model.seq * model.hidden / machine.speed
    forward = 2 * tokens * model.passed / machine.speed + attention
    parameters = model.dense_parameters
    half = MIXED_ADAM.gradient * parameters
    on_host = min(devices, machine.devices_per_host) / devices
    return Job(
        devices=devices,
        layers=model.layers,
        memory=machine.memory,
        parameters=parameters,
        activations={
            way: layer_activation_bytes(model, sequences, recompute=way) for way in RECOMPUTE
        },
        forward=forward,
        redone={"none": 0.0, "selective": attention, "full": forward},
        one_pass=half * (devices - 1) / devices / machine.network,
        bus=half / machine.bus,
        updated=_UPDATED * parameters / machine.memory_bandwidth,
        on_host=on_host * _UPDATED * parameters / machine.host_bandwidth,
    )


_PCIE = LINKS["PCIe 4 x16"].bandwidth
_CARD = Machine(24e9, 50e12, 600e9, LINKS["10 GbE"].bandwidth, _PCIE, 100e9)
_A100 = Machine(80e9, 150e12, 2039e9, LINKS["NVLink 3"].bandwidth, _PCIE, 200e9, 8)
_ALONE = Machine(80e9, 150e12, 2039e9, LINKS["InfiniBand HDR"].bandwidth, _PCIE, 200e9)
_GPT_2 = Transformer(48, 1600, 25, seq=1024, vocab=50257)
_7B = Transformer(32, 4096, 32, seq=2048, vocab=51200)
_13B = Transformer(40, 5120, 40, seq=2048, vocab=51200)

JOBS = {
    "1.5B, one card": transformer_job(_GPT_2, _CARD, 1, 4),
    "7B, eight cards, Ethernet": transformer_job(_7B, _CARD, 8, 1),
    "7B, 64 A100s": transformer_job(_7B, _A100, 64, 2),
    "13B, eight A100s": transformer_job(_13B, _A100, 8, 2),
    "13B, eight A100s, 40 GB": transformer_job(_13B, replace(_A100, memory=40e9), 8, 2),
    "13B, four A100s, a host each": transformer_job(_13B, _ALONE, 4, 4),
}


def ways(job: Job) -> list[Way]:
    """All that there are, whether they fit into memory or not.

    What goes to the host is a device's own share, so that offloading is for stages 2 and 3.
    """
    return [
        Way(zero, offload, recompute)
        for zero in (0, 1, 2, 3)
        for offload in (False, True)
        for recompute in RECOMPUTE
        if not offload or zero >= 2
    ]


def seconds(job: Job, way: Way) -> float:
    """Of one step, as simulated."""
    step = _Step(job, way)
    ends = step.play()
    if way.offload:
        return max(ends) + job.layers * (job.on_host + job.bus / job.devices)
    return max(ends) + job.layers * job.updated / (job.devices if way.zero else 1)


class _Step:
    """The tasks of one step, before the update."""

    def __init__(self, job: Job, way: Way) -> None:
        self.job, self.way = job, way
        self.device, self.network, self.bus = Lane(), Lane(), Lane()
        self.passes: list[int] = []  # the layers' forwards and backwards, in order
        self.tasks = 0

    def play(self) -> list[float]:
        """When each task ends."""
        job, way = self.job, self.way
        backward = 2 * job.forward + job.redone[way.recompute]
        reduced = job.one_pass * (1 if way.zero else 2)
        for _ in range(job.layers):
            self._compute(job.forward, gathers=way.zero > 0)
        to_reduce = NOTHING
        for _ in range(job.layers):
            self._compute(backward, gathers=way.zero == 3)
            if to_reduce != NOTHING:  # after the gather for the layer that is at work meanwhile
                self._reduce(to_reduce, reduced)
            to_reduce = self.passes[-1]
        self._reduce(to_reduce, reduced)
        return run([self.device, self.network, self.bus], self.tasks).ends

    def _compute(self, duration: float, gathers: bool) -> None:
        gathered = NOTHING
        if gathers:
            two_ago = self.passes[-2] if self.way.zero == 3 and len(self.passes) > 1 else NOTHING
            gathered = self._add(self.network, self.job.one_pass, two_ago)
        self.passes.append(self._add(self.device, duration, gathered))

    def _reduce(self, computed: int, duration: float) -> None:
        reduced = self._add(self.network, duration, computed)
        if self.way.offload:
            self._add(self.bus, self.job.bus / self.job.devices, reduced)

    def _add(self, lane: Lane, duration: float, need: int) -> int:
        lane.add(self.tasks, duration, need)
        self.tasks += 1
        return self.tasks - 1
