"""What the planner answers: ways to train that fit, in order of time, and why others do not."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course_lib.techniques.mesh import Mesh
from course_lib.text import counted, table

from .cluster import Cluster
from .memory_formulas import Recompute
from .plan_memory import Footprint
from .plan_time import StepTime
from .planner_assumptions import Software
from .transformer import Transformer

GB = 10**9
_CHOICES = ("schedule", "ZeRO", "recompute", "microbatch", "GB", "step, s", "TFLOP/s")


@dataclass(frozen=True)
class Plan:
    """One way to train that fits: its mesh and its choices, bytes per device, seconds per step."""

    model: Transformer
    mesh: Mesh
    chunks: int  # stages on each pipeline rank; more than one: interleaved
    micro_batch: int  # sequences
    microbatches: int  # of a rank in a step
    zero: int
    recompute: Recompute
    memory: Footprint
    step: StepTime

    @property
    def schedule(self) -> str:
        """The pipeline's schedule by name; "none" without a pipeline."""
        if self.mesh.pipeline == 1:
            return "none"
        return "1F1B" if self.chunks == 1 else f"interleaved, {self.chunks}"

    @property
    def global_batch(self) -> int:
        """Sequences in a step."""
        return self.mesh.data * self.micro_batch * self.microbatches

    @property
    def flops_per_second(self) -> float:
        """Of one device: operations that the model needs, over the time of a step."""
        return self.model.flops(self.global_batch) / self.step.total / self.mesh.world_size

    @property
    def hardware_flops_per_second(self) -> float:
        """As Megatron-LM's papers of 2021 count: with a full recomputation, where there is one."""
        done = self.model.flops(self.global_batch, recompute=self.recompute == "full")
        return done / self.step.total / self.mesh.world_size

    def days(self, tokens: float) -> float:
        """To train on so many tokens, without a stop."""
        steps = tokens / (self.global_batch * self.model.seq)
        return steps * self.step.total / 86400

    def choices(self) -> tuple[str, ...]:
        """What else was chosen and what it costs: a row of `Plans.text`, beside its mesh."""
        return (
            self.schedule,
            str(self.zero),
            self.recompute,
            str(self.micro_batch),
            f"{self.memory.total / GB:.1f}",
            f"{self.step.total:.3g}",
            f"{self.flops_per_second / 1e12:.0f}",
        )


@dataclass(frozen=True)
class Refused:
    """A mesh on which nothing fits. `need`: bytes per device where memory is the reason, else 0."""

    mesh: Mesh
    why: str
    need: float = 0.0


@dataclass(frozen=True)
class Plans:
    """The planner's answer. `ranked` begins with the fastest; `remedies` where it is empty."""

    model: Transformer
    cluster: Cluster
    global_batch: int
    software: Software
    ranked: tuple[Plan, ...]
    refused: tuple[Refused, ...]
    remedies: tuple[str, ...] = ()

    @property
    def best(self) -> Plan:
        """The fastest; a ValueError that says what would help where nothing fits."""
        if not self.ranked:
            raise ValueError(self._nothing())
        return self.ranked[0]

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """Meshes on which something fits, in the order of their fastest plans."""
        return tuple(dict.fromkeys(plan.mesh for plan in self.ranked))

    def of(self, mesh: Mesh) -> Plan:
        """The fastest plan on a mesh; a ValueError that says why where there is none."""
        for plan in self.ranked:
            if plan.mesh == mesh:
                return plan
        for refused in self.refused:
            if refused.mesh == mesh:
                raise ValueError(f"{mesh}: {refused.why}")
        raise ValueError(
            f"{mesh} is {mesh.world_size} devices; {self.cluster.name} has {self._devices}"
        )

    def text(self, rows: int = 10, refusals: int = 5) -> str:
        """The first plans as a table, and `refusals` reasons for which other meshes do not work."""
        lines = [
            f"{self.model.parameters / 1e9:.4g}B parameters, {self.global_batch} sequences of"
            f" {self.model.seq} per step, on {self._devices} x {self.cluster.device.name};"
            f" {self.software.name}"
        ]
        if self.ranked:
            lines += ["", *self._tables([self.of(mesh) for mesh in self.meshes[:rows]])]
        else:
            lines.append(self._nothing())
        if self.refused and refusals:
            lines += ["", "not possible:", *self._reasons(refusals)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _tables(self, shown: Sequence[Plan]) -> Iterator[str]:
        """Two that fit a page; axes that few models need have columns only where they are used."""
        extra = [axis for axis in ("context", "expert") if any(_size(p, axis) > 1 for p in shown)]
        axes = ("pipeline", "data", "tensor", *extra)
        parts = ("compute", "bubble", "tensor", *extra, "pipeline", "data", "update")
        meshes = [tuple(str(_size(plan, axis)) for axis in axes) for plan in shown]
        choices = [(*mesh, *plan.choices()) for mesh, plan in zip(meshes, shown, strict=True)]
        yield table([(*axes, *_CHOICES), *choices], left=0)
        yield "(the fastest plan of each mesh)"
        yield ""
        yield "shares of a step (of messages, only what nothing hides):"
        shares = [
            (" x ".join(mesh), *(f"{getattr(plan.step, p) / plan.step.total:.0%}" for p in parts))
            for mesh, plan in zip(meshes, shown, strict=True)
        ]
        yield table([(" x ".join(axes), *parts), *shares])

    def _reasons(self, most: int) -> Iterator[str]:
        """A mesh for each kind of reason: those that differ only in their numbers are counted."""
        kinds: dict[str, list[Refused]] = {}
        for refused in self.refused:
            kinds.setdefault(re.sub(r"[\d.]+", "", refused.why), []).append(refused)
        for first, *others in list(kinds.values())[:most]:
            also = f", and {len(others)} more" if others else ""
            yield f"  {first.mesh}{also}:"
            yield f"    {first.why}"
        if left := sum(map(len, list(kinds.values())[most:])):
            yield f"  and {counted(left, 'more mesh')}"

    @property
    def _devices(self) -> int:
        return self.cluster.size

    def _nothing(self) -> str:
        return "no plan fits. " + " ".join(self.remedies)


def _size(plan: Plan, axis: str) -> int:
    size: int = getattr(plan.mesh, axis)
    return size
