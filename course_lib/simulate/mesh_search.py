"""The search: every mesh of a cluster, and on each the best way to train for each kind of way.

A way is a schedule, a stage of ZeRO, what is recomputed, and a size of microbatches. Ways of one
kind differ in size and number of chunks only, and the fastest that fits stands for them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .memory_formulas import Recompute, StateBytes
from .mixture_of_experts import Mixture
from .plan_memory import Footprint, footprint, saved_by_stage
from .plan_stages import Held, stage_layers, stage_parameters
from .plan_time import LayerSeconds, StageTimes, layer_seconds
from .planner_assumptions import Software
from .plans import GB, Plan, Refused
from .transformer import Transformer

OVER = "cannot be split evenly over"


@dataclass(frozen=True)
class _States:
    """What is the same for all ways on a mesh, whatever their microbatches.

    most    held by the stage that holds most
    empty   (stage, stage of ZeRO) -> bytes before there are activations
    states  the same in all, by stage of ZeRO and stage
    rings   seconds of its rings, as they become known
    """

    most: Held
    empty: dict[tuple[int, int], Footprint]
    states: dict[int, dict[int, float]]
    rings: dict[float, float]

    def largest(self, zero: int, saved: Mapping[int, float]) -> tuple[float, int]:
        """(bytes, stage) of the one that holds most, each with so many bytes of activations."""
        states, most, where = self.states[zero], -1.0, -1
        for stage, nbytes in saved.items():
            if (held := states[stage] + nbytes) > most:
                most, where = held, stage
        return most, where


class _Way(NamedTuple):
    """A way to train on a mesh, as numbers only: few of those that are tried become plans.

    total is what the stage that holds most has in bytes, `saved` of them activations; seconds are
    those of a step.
    """

    times: StageTimes
    size: int
    microbatches: int
    chunks: int
    zero: int
    recompute: Recompute
    stage: int
    saved: float
    total: float
    seconds: float


@dataclass(frozen=True)
class Search:
    """The request, and the plans on one mesh."""

    model: Transformer
    cluster: Cluster
    batch: int
    software: Software
    states: StateBytes
    zero: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    micro_batch: int | None = None
    chunks: int | None = None
    contexts: tuple[int, ...] | None = (1,)
    _known: dict[tuple, LayerSeconds] = field(init=False, default_factory=dict, compare=False)

    def least(self, cluster: Cluster) -> "Search":
        """On `cluster`, what takes the least memory: enough to know whether anything fits."""
        return replace(
            self,
            cluster=cluster,
            zero=(max(self.zero),),
            recompute=(self.recompute[-1],),
            micro_batch=self.micro_batch or 1,
            chunks=self.chunks or 1,
        )

    def meshes(self) -> Iterator[Mesh]:
        """All of the cluster's devices, for each way to spread experts. An axis is one factor."""
        size = self.cluster.size
        contexts = divisors(size) if self.contexts is None else self.contexts
        for context in contexts:
            if size % context:
                continue
            for tensor, pipeline, data in splits(size // context, 3):
                for expert in self._experts(data):
                    yield Mesh(
                        data=data,
                        tensor=tensor,
                        pipeline=pipeline,
                        context=context,
                        expert=expert,
                    )

    def on(self, mesh: Mesh) -> list[Plan] | Refused:
        """The best plan for each schedule, stage and recomputation, or why there is none."""
        layers = stage_layers(self.model.layers, mesh.pipeline, self.software.uneven_stages)
        if layers is None:
            return Refused(mesh, f"{self.model.layers} layers {OVER} {mesh.pipeline} stages")
        uneven = self._uneven(mesh)
        if uneven:
            return Refused(mesh, uneven)
        share = self.batch // mesh.data
        best: dict[tuple[bool, int, Recompute], _Way] = {}
        least: _Way | None = None
        states = self._states(mesh, layers)
        for size in [self.micro_batch] if self.micro_batch else divisors(share):
            fits = False
            for way in self._ways(mesh, layers, states, size, share // size):
                kind = way.chunks > 1, way.zero, way.recompute
                if way.total <= self.cluster.device.memory:
                    fits = True
                    if kind not in best or way.seconds < best[kind].seconds:
                        best[kind] = way
                elif least is None or way.total < least.total:
                    least = way
            if not fits:
                break  # a larger microbatch holds no less
        if best:
            return [self._plan(mesh, states, way) for way in best.values()]
        if least is None:
            return Refused(mesh, f"no schedule with {self.chunks} chunks a rank")
        return self._too_much(self._plan(mesh, states, least))

    def _experts(self, data: int) -> list[int]:
        """Over how many ranks of the data axis a set of experts can be spread."""
        if not isinstance(self.model, Mixture):
            return [1]
        return divisors(math.gcd(self.model.experts, data))

    def _uneven(self, mesh: Mesh) -> str:
        """What of the model or the batch does not divide over an axis, if anything."""
        model = self.model
        if model.heads % mesh.tensor:
            return f"{model.heads} heads {OVER} {mesh.tensor} ranks"
        if mesh.context > 1 and model.seq % (2 * mesh.context):
            return f"{model.seq} tokens {OVER} 2 x {mesh.context} pieces"
        if self.batch % mesh.data:
            return f"{self.batch} sequences {OVER} {mesh.data} replicas"
        share = self.batch // mesh.data
        if self.micro_batch and share % self.micro_batch:
            return f"{share} sequences a replica {OVER} microbatches of {self.micro_batch}"
        return ""

    def _states(self, mesh: Mesh, layers: Sequence[int]) -> "_States":
        held = stage_parameters(self.model, layers, mesh)
        layer = self.model.dense_parameters + self.model.expert_parameters / mesh.expert
        one = layer / mesh.tensor / self.software.messages
        empty = {
            (stage, zero): footprint(each, mesh, zero, self.states, one)
            for stage, each in enumerate(held)
            if stage in (0, 1, mesh.pipeline - 1)
            for zero in self.zero
        }
        totals: dict[int, dict[int, float]] = {zero: {} for zero in self.zero}
        for (stage, zero), each in empty.items():
            totals[zero][stage] = each.states
        return _States(max(held, key=lambda each: each.total), empty, totals, {})

    def _ways(
        self, mesh: Mesh, layers: Sequence[int], states: "_States", size: int, count: int
    ) -> Iterator[_Way]:
        """What is worth a look on a mesh with microbatches of `size` sequences."""
        model, memory = self.model, self.cluster.device.memory
        # Interleaving goes round in groups of p microbatches.
        cuts = [v for v in self._cuts(mesh, max(layers)) if v == 1 or not count % mesh.pipeline]
        for recompute in self.recompute:
            times = StageTimes(
                model,
                self.cluster,
                self.software,
                mesh,
                layers,
                states.most,
                size,
                recompute,
                states.rings,
                self._layer_seconds(mesh, size, recompute),
            )
            saved = {
                v: saved_by_stage(model, self.software, mesh, layers, size, count, v, recompute)
                for v in cuts
            }
            seconds = {v: times.stages_seconds(count, v) for v in cuts}
            for zero in self.zero:
                most = {v: states.largest(zero, each) for v, each in saved.items()}
                fits = [v for v, (total, _) in most.items() if total <= memory]
                rest = times.zero_seconds(count, zero, self.states) if fits else math.inf
                for v in _worth_a_look(fits, seconds) or _least(most):
                    total, stage = most[v]
                    yield _Way(
                        *(times, size, count, v, zero, recompute),
                        *(stage, saved[v][stage], total, seconds[v] + rest),
                    )

    def _layer_seconds(self, mesh: Mesh, size: int, recompute: Recompute) -> LayerSeconds:
        """`layer_seconds`, each computed once: many meshes have them in common."""
        key = mesh.tensor, mesh.context, mesh.expert, size, recompute
        if key not in self._known:
            self._known[key] = layer_seconds(
                self.model, self.cluster, self.software, mesh, size, recompute
            )
        return self._known[key]

    def _plan(self, mesh: Mesh, states: "_States", way: _Way) -> Plan:
        """What a way stands for, with all parts of its memory and its time."""
        memory = states.empty[way.stage, way.zero].with_activations(way.saved)
        step = way.times.step(way.microbatches, way.chunks, way.zero, self.states)
        return Plan(
            *(self.model, mesh, way.chunks, way.size, way.microbatches),
            *(way.zero, way.recompute, memory, step),
        )

    def _cuts(self, mesh: Mesh, layers: int) -> list[int]:
        """Numbers of chunks to try for a stage of so many layers."""
        possible = mesh.pipeline >= max(2, self.software.interleaves_from)
        if self.chunks:
            fits = layers % self.chunks == 0 and (possible or self.chunks == 1)
            return [self.chunks] if fits else []
        return divisors(layers) if possible else [1]

    def _too_much(self, plan: Plan) -> Refused:
        memory = plan.memory
        return Refused(
            plan.mesh,
            f"needs {memory.total / GB:.1f} GB of {self.cluster.device.memory / GB:.0f}"
            f" (states {memory.states / GB:.1f}, activations {memory.activations / GB:.1f}) even"
            f" with ZeRO {plan.zero}, recompute {plan.recompute}, microbatch {plan.micro_batch}",
            memory.total,
        )


def _worth_a_look(fits: Sequence[int], seconds: Mapping[int, float]) -> list[int]:
    """Of numbers of chunks that fit: 1, and the fastest of the others."""
    if len(fits) <= 1:
        return list(fits)
    fastest = min((v for v in fits if v > 1), key=seconds.__getitem__)
    return [v for v in fits if v in (1, fastest)]


def _least(needed: Mapping[int, tuple[float, int]]) -> list[int]:
    """The number of chunks that needs the least memory, if there are any."""
    return [min(needed, key=needed.__getitem__)] if needed else []


def splits(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of so many factors, in order."""
    if parts == 1:
        yield (number,)
        return
    for first in divisors(number):
        for rest in splits(number // first, parts - 1):
            yield first, *rest


def divisors(number: int) -> list[int]:
    """From 1 up."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return small + [number // k for k in reversed(small) if k * k != number]
