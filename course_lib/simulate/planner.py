"""How to train a model on a cluster: every mesh tried, what fits ranked by the time of a step.

    plan(Transformer(96, 12288, 96, 2048, 51200), dgx_a100.with_nodes(128), global_batch=1536)

Tried are all data x tensor x pipeline meshes of exactly the cluster's devices, 1F1B and interleaved
schedules, ZeRO stages, what can be recomputed, and sizes of microbatches. For each mesh, schedule,
stage and recomputation the best size and number of chunks is kept. Formulas, not measurements:
`software.py` says what is assumed, `published.py` how far the result is from published runs.

A device of 80 GB counts 80 x 10^9 bytes; that it has 80 x 2^30 leaves 6 GB for the context, the
buffers of communication and fragmentation, of which the formulas know nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .hardware import DEVICES
from .memory import MEGATRON_BF16, Recompute, StateBytes
from .mesh_memory import footprint, saved_by_stage
from .mesh_stages import stage_layers, stage_parameters
from .mesh_time import StageTimes
from .plans import GB, Plan, Plans, Refused
from .software import MODERN, Software
from .transformer import Transformer

ZERO_STAGES = (0, 1, 2, 3)
_MORE_NODES = tuple(2**k for k in range(1, 13))
_OVER = "do not divide over"


def plan(
    model: Transformer,
    cluster: Cluster,
    global_batch: int,
    software: Software = MODERN,
    states: StateBytes = MEGATRON_BF16,
    zero: Sequence[int] = ZERO_STAGES,
    recompute: Sequence[Recompute] | None = None,
    allow: Callable[[Mesh], bool] = lambda mesh: True,
    micro_batch: int | None = None,
    chunks: int | None = None,
) -> Plans:
    """All ways to train `model` with `global_batch` sequences a step on all devices of `cluster`.

    states       bytes per parameter
    zero         stages to try
    recompute    what to try; left out, all that `software` can do
    allow        meshes to try, such as `lambda mesh: mesh.tensor == 8`
    micro_batch  sequences in a microbatch; left out, whatever divides is tried
    chunks       stages on each pipeline rank (1: no interleaving); left out, whatever divides

    Where nothing fits, the answer's `remedies` say what would. Raises a ValueError for numbers that
    make no sense.
    """
    if global_batch < 1:
        raise ValueError(f"global_batch = {global_batch} sequences, at least 1")
    if not zero or set(zero) - set(ZERO_STAGES):
        raise ValueError(f"zero = {tuple(zero)} must be some of the stages 0, 1, 2, 3")
    recompute = software.recomputations if recompute is None else tuple(recompute)
    for way in recompute:
        if way not in software.recomputations:
            raise ValueError(
                f"{software.name} can recompute {', '.join(software.recomputations)}, not {way!r}"
            )
    for name, value in (("micro_batch", micro_batch), ("chunks", chunks)):
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}, at least 1")
    search = _Search(
        model,
        cluster,
        global_batch,
        software,
        states,
        tuple(zero),
        recompute,
        micro_batch,
        chunks,
    )
    ranked: list[Plan] = []
    refused: list[Refused] = []
    for mesh in _meshes(cluster.size):
        if not allow(mesh):
            continue
        found = search.on(mesh)
        if isinstance(found, Refused):
            refused.append(found)
        else:
            ranked += found
    if not ranked and not refused:
        raise ValueError(f"no mesh of {cluster.size} devices is allowed")
    ranked.sort(key=lambda plan: plan.step.total)
    refused.sort(
        key=lambda refusal: (
            refusal.need == 0,
            refusal.need,
            refusal.mesh.data,
            refusal.mesh.tensor,
        )
    )
    remedies = () if ranked else tuple(_remedies(search, refused, allow))
    return Plans(model, cluster, global_batch, software, tuple(ranked), tuple(refused), remedies)


# ------------------------------------------------------------------------------------------------
# The search
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
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

    def least(self, cluster: Cluster) -> "_Search":
        """On `cluster`, what takes the least memory: enough to know whether anything fits."""
        zero, recompute = (max(self.zero),), (self.recompute[-1],)
        micro_batch = self.micro_batch or 1
        return replace(
            self,
            cluster=cluster,
            zero=zero,
            recompute=recompute,
            micro_batch=micro_batch,
            chunks=self.chunks or 1,
        )

    def on(self, mesh: Mesh) -> list[Plan] | Refused:
        """The best plan for each schedule, stage and recomputation, or why there is none."""
        model = self.model
        layers = stage_layers(model.layers, mesh.pipeline)
        if model.heads % mesh.tensor:
            return Refused(mesh, f"{model.heads} heads do not divide over {mesh.tensor} ranks")
        if layers is None:
            return Refused(mesh, f"{model.layers} layers do not divide over {mesh.pipeline} stages")
        if self.batch % mesh.data:
            return Refused(mesh, f"{self.batch} sequences {_OVER} {mesh.data} replicas")
        share = self.batch // mesh.data
        if self.micro_batch and share % self.micro_batch:
            return Refused(
                mesh, f"{share} sequences a replica {_OVER} microbatches of {self.micro_batch}"
            )
        best: dict[tuple[bool, int, Recompute], Plan] = {}
        least: Plan | None = None
        for size in [self.micro_batch] if self.micro_batch else divisors(share):
            fits = False
            for way in self._ways(mesh, layers, size, share // size):
                kind = way.chunks > 1, way.zero, way.recompute
                if way.memory.total <= self.cluster.device.memory:
                    fits = True
                    if kind not in best or way.step.total < best[kind].step.total:
                        best[kind] = way
                elif least is None or way.memory.total < least.memory.total:
                    least = way
            if not fits:
                break  # a larger microbatch holds no less
        if best:
            return list(best.values())
        if least is None:
            return Refused(mesh, f"no schedule with {self.chunks} chunks a rank")
        return self._too_much(least)

    def _ways(self, mesh: Mesh, layers: Sequence[int], size: int, count: int) -> Iterator[Plan]:
        """Every choice on a mesh with microbatches of `size` sequences, whether it fits or not."""
        model = self.model
        held = stage_parameters(model, layers, mesh.tensor)
        one = 12 * model.hidden**2 / mesh.tensor / self.software.messages
        empty = {
            (stage, zero): footprint(parameters, mesh, zero, self.states, one)
            for stage, parameters in enumerate(held)
            if stage in (0, 1, mesh.pipeline - 1)
            for zero in self.zero
        }
        for recompute in self.recompute:
            stages = StageTimes(
                model, self.cluster, self.software, mesh, layers, max(held), size, recompute
            )
            for chunks in self._cuts(mesh, max(layers)):
                if chunks > 1 and count % mesh.pipeline:
                    break  # interleaving goes round in groups of p microbatches
                saved = saved_by_stage(
                    model, self.software, mesh, layers, size, count, chunks, recompute
                )
                for zero in self.zero:
                    memory = max(
                        (empty[s, zero].with_activations(saved[s]) for s in saved),
                        key=lambda footprint: footprint.total,
                    )
                    step = stages.step(count, chunks, zero, self.states)
                    yield Plan(model, mesh, chunks, size, count, zero, recompute, memory, step)

    def _cuts(self, mesh: Mesh, layers: int) -> list[int]:
        """Numbers of chunks to try for a stage of so many layers."""
        if self.chunks:
            fits = layers % self.chunks == 0 and (mesh.pipeline > 1 or self.chunks == 1)
            return [self.chunks] if fits else []
        return [1] if mesh.pipeline == 1 else divisors(layers)

    def _too_much(self, plan: Plan) -> Refused:
        memory = plan.memory
        return Refused(
            plan.mesh,
            f"needs {memory.total / GB:.1f} GB of {self.cluster.device.memory / GB:.0f}"
            f" (states {memory.states / GB:.1f}, activations {memory.activations / GB:.1f}) even"
            f" with ZeRO {plan.zero}, recompute {plan.recompute}, microbatch {plan.micro_batch}",
            memory.total,
        )


def _meshes(devices: int) -> Iterator[Mesh]:
    """All of so many devices. A further axis is one factor more."""
    for tensor, pipeline, data in splits(devices, 3):
        yield Mesh(data=data, tensor=tensor, pipeline=pipeline)


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


# ------------------------------------------------------------------------------------------------
# Where nothing fits
# ------------------------------------------------------------------------------------------------


def _remedies(
    search: _Search, refused: Sequence[Refused], allow: Callable[[Mesh], bool]
) -> Iterator[str]:
    """What would make the request possible, one sentence each."""
    cluster, batch = search.cluster, search.batch
    full = [refusal for refusal in refused if refusal.need]
    if full:
        yield (
            f"Least memory: {full[0].mesh}, {full[0].need / GB:.1f} GB on a device of"
            f" {cluster.device.memory / GB:.0f}."
        )
        larger = [
            device
            for device in sorted(DEVICES.values(), key=lambda device: device.memory)
            if device.memory >= full[0].need and device.memory > cluster.device.memory
        ]
        if larger:
            yield f"{larger[0].name} would do."
    for factor in _MORE_NODES:
        more = search.least(cluster.with_nodes(cluster.nodes * factor))
        found = (more.on(mesh) for mesh in _meshes(more.cluster.size) if allow(mesh))
        if any(not isinstance(plans, Refused) for plans in found):
            yield f"{more.cluster.nodes} nodes, {more.cluster.size} devices, would do."
            break
    if max(search.zero) < 3 or search.recompute[-1] != "full":
        yield "Allow ZeRO 3 and full recomputation, which take the least memory."
    replicas = [r.mesh.data for r in refused if f"sequences {_OVER}" in r.why]
    if replicas:
        fewest = min(replicas)
        near = max(1, round(batch / fewest)) * fewest
        yield f"A batch of {near} sequences divides over {fewest} replicas, {batch} does not."
