"""Published training runs, and how far the planner is from each: `print(error_table())`.

The ten rows of Megatron-LM's table are what `software.MEGATRON_2021` was fitted to. The others were
not, and run other software on other machines: they show what the planner is worth elsewhere.
"""

from dataclasses import dataclass, replace

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster, dgx_a100, dgx_h100
from .memory import MEGATRON_BF16, MEGATRON_FP16, Recompute, StateBytes
from .planner import plan
from .plans import Plan, Plans
from .software import MEGATRON_2021, MODERN, Software
from .transformer import Transformer


@dataclass(frozen=True)
class Run:
    """A run that was reported. `mesh` is None where it was not published.

    flops_per_second is what was reported of one device; `recompute_counts` says that it includes
    the recomputation, as Megatron-LM counted in 2021.
    """

    name: str
    model: Transformer
    cluster: Cluster
    mesh: Mesh | None
    global_batch: int
    flops_per_second: float
    recompute_counts: bool
    software: Software
    states: StateBytes
    zero: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    source: str

    def plans(self, meshes: bool = True) -> Plans:
        """The planner on the run's machine; without `meshes`, on the run's own mesh alone."""
        return plan(
            self.model,
            self.cluster,
            self.global_batch,
            self.software,
            self.states,
            self.zero,
            self.recompute,
            allow=lambda mesh: meshes or self.mesh in (None, mesh),
        )

    def said_of(self, plan: Plan) -> float:
        """The rate of a device under `plan`, counted as the run was."""
        return plan.hardware_flops_per_second if self.recompute_counts else plan.flops_per_second


_MEGATRON = (  # billions, heads, hidden, layers, tensor, pipeline, devices, batch, TFLOP/s
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    (3.6, 32, 3072, 30, 2, 1, 64, 512, 138),
    (7.5, 32, 4096, 36, 4, 1, 128, 512, 142),
    (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135),
    (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138),
    (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140),
    (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148),
    (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155),
    (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163),
    (1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163),
)
MEGATRON_TABLE_1 = tuple(
    Run(
        name=f"Megatron-LM {billions:g}B",
        model=Transformer(layers, hidden, heads, seq=2048, vocab=51200),
        cluster=dgx_a100.with_nodes(devices // 8),
        mesh=Mesh(data=devices // tensor // pipeline, tensor=tensor, pipeline=pipeline),
        global_batch=batch,
        flops_per_second=tera * 1e12,
        recompute_counts=True,
        software=MEGATRON_2021,
        states=MEGATRON_FP16,
        zero=(0,),
        recompute=("full",),
        source="Narayanan et al., SC 2021, Table 1",
    )
    for billions, heads, hidden, layers, tensor, pipeline, devices, batch, tera in _MEGATRON
)
_LLAMA_65B = Transformer(80, 8192, 64, seq=2048, vocab=32000)
LLAMA_65B = Run(
    name="LLaMA 65B",
    model=_LLAMA_65B,
    cluster=dgx_a100.with_nodes(256),
    mesh=None,
    global_batch=2048,  # 4 million tokens
    flops_per_second=380 * _LLAMA_65B.flops(1) / 2048,  # 380 tokens a second and device
    recompute_counts=False,
    software=MODERN,
    states=MEGATRON_BF16,
    zero=(0, 1, 2, 3),
    recompute=("none", "full"),
    source="Touvron et al. 2023, section 2.4",
)
LLAMA_3_405B = Run(
    name="Llama 3 405B",
    model=Transformer(126, 16384, 128, seq=8192, vocab=128256),
    cluster=dgx_h100.with_nodes(1024),
    mesh=Mesh(data=64, tensor=8, pipeline=16),
    global_batch=64 * 32,  # 16 million tokens
    flops_per_second=430e12,
    recompute_counts=False,
    software=MODERN,
    states=MEGATRON_BF16,
    zero=(2,),  # "sharding optimizer states and gradients", not parameters
    recompute=("none", "full"),
    source="Llama Team 2024, Table 4, first row",
)
RUNS = (*MEGATRON_TABLE_1, LLAMA_65B, LLAMA_3_405B)


def error_table(runs: tuple[Run, ...] = RUNS) -> str:
    """Row by row: the rate published and the planner's, and where it ranks the published mesh."""
    lines = [
        f"{'TFLOP/s a device':<20} published planner  error   published mesh: its place, and how"
        " much slower than the first it is"
    ]
    for run in runs:
        answer = run.plans()
        chosen = answer.best if run.mesh is None else answer.of(run.mesh)
        ours = run.said_of(chosen)
        place = "not published; the planner's first" if run.mesh is None else _place(answer, chosen)
        lines.append(
            f"{run.name:<20} {run.flops_per_second / 1e12:>9.0f} {ours / 1e12:>7.0f}"
            f" {ours / run.flops_per_second - 1:>+6.1%}   {place}"
        )
    return "\n".join(lines)


def _place(answer: Plans, chosen: Plan) -> str:
    place = answer.meshes.index(chosen.mesh) + 1
    slower = chosen.step.total / answer.best.step.total - 1
    return f"{chosen.mesh}: {place} of {len(answer.meshes)}, {slower:+.0%}"


def fit(start: tuple[float, float] = (0.5, 1.0), tolerance: float = 1e-3) -> tuple[float, float]:
    """(matrix, passes) of `Software` with the least squares of the table's relative errors.

    A search of the neighbours on a grid, whose mesh is halved where none of them is better.
    """

    def misses(point: tuple[float, float]) -> float:
        software = replace(MEGATRON_2021, matrix=point[0], passes=point[1])
        total = 0.0
        for run in MEGATRON_TABLE_1:
            best = replace(run, software=software).plans(meshes=False).best
            total += (run.said_of(best) / run.flops_per_second - 1) ** 2
        return total

    here, least, step = start, misses(start), 0.1
    while step > tolerance:
        around = [
            (here[0] + a * step, here[1] + 10 * b * step)
            for a in (-1, 0, 1)
            for b in (-1, 0, 1)
            if 0 < here[0] + a * step <= 1 and here[1] + 10 * b * step >= 0
        ]
        nearest = min(around, key=misses)
        if misses(nearest) < least:
            here, least = nearest, misses(nearest)
        else:
            step /= 2
    return here
