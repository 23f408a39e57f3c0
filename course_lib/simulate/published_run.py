"""A published training run as data: what was run, on what, and how fast it was said to be."""

from dataclasses import dataclass, replace

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .hardware import GB
from .memory_formulas import Recompute, StateBytes
from .planner import plan
from .planner_assumptions import Software
from .plans import Plan, Plans
from .transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that was reported. What is None was not published, or left to choose.

    flops_per_second   of one device; `recompute_counts` says that it includes the recomputation,
                       as Megatron-LM counted in 2021
    fitted             it had a part in fitting its software's two numbers
    chosen             its authors took this mesh for the best, rather than to compare it
    """

    name: str
    model: Transformer
    cluster: Cluster
    mesh: Mesh | None
    global_batch: int
    flops_per_second: float
    software: Software
    states: StateBytes
    zero: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    source: str
    micro_batch: int | None = None
    chunks: int | None = None
    recompute_counts: bool = False
    fitted: bool = False
    chosen: bool = True

    def plans(self) -> Plans:
        """The planner on the run's machine, free to choose mesh, microbatch and schedule."""
        return plan(
            self.model,
            self.cluster,
            self.global_batch,
            self.software,
            self.states,
            self.zero,
            self.recompute,
            contexts=None if self.mesh and self.mesh.context > 1 else (1,),
        )

    def as_run(self) -> Plan:
        """The planner on what was run, its free choices only where nothing was published.

        It counts 34 sbh bytes per layer, of which some programs keep less: where that is more than
        the device has, the run shows that there was room.
        """
        try:
            return self._as_run(self.cluster).best
        except ValueError:
            roomy = replace(self.cluster.device, memory=10**6 * GB)
            return self._as_run(replace(self.cluster, device=roomy)).best

    def said_of(self, plan: Plan) -> float:
        """The rate of a device under `plan`, counted as the run was."""
        return plan.hardware_flops_per_second if self.recompute_counts else plan.flops_per_second

    def _as_run(self, cluster: Cluster) -> Plans:
        return plan(
            self.model,
            cluster,
            self.global_batch,
            self.software,
            self.states,
            self.zero,
            self.recompute,
            lambda mesh: self.mesh in (None, mesh),
            self.micro_batch,
            self.chunks,
            (self.mesh.context if self.mesh else 1,),
        )
