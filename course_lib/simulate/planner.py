"""How to train a model on a cluster: every mesh tried, what fits ranked by the time of a step.

    plan(Transformer(96, 12288, 96, 2048, 51200), dgx_a100.with_nodes(128), global_batch=1536)

Tried are all data x tensor x pipeline meshes of exactly the cluster's devices, 1F1B and interleaved
schedules, ZeRO stages, what can be recomputed, and sizes of microbatches; for a `Mixture` all ways
to spread its experts; and, where `contexts` asks for it, sequences that are cut over ranks. For
each mesh, schedule, stage and recomputation the best size and number of chunks is kept. Formulas,
not measurements: `planner_assumptions.py` says what is assumed, `published.py` how far the result
is from published runs.

A device of 80 GB counts 80 x 10^9 bytes; that it has 80 x 2^30 leaves 6 GB for the context, the
buffers of communication and fragmentation, of which the formulas know nothing.
"""

from collections.abc import Callable, Sequence

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .frameworks import MODERN
from .memory_formulas import MEGATRON_BF16, Recompute, StateBytes
from .mesh_search import Search
from .plan_remedies import remedies
from .planner_assumptions import Software
from .plans import Plan, Plans, Refused
from .transformer import Transformer

ZERO_STAGES = (0, 1, 2, 3)


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
    contexts: Sequence[int] | None = (1,),
) -> Plans:
    """All ways to train `model` with `global_batch` sequences a step on all devices of `cluster`.

    states       bytes per parameter
    zero         stages to try
    recompute    what to try; left out, all that `software` can do
    allow        meshes to try, such as `lambda mesh: mesh.tensor == 8`
    micro_batch  sequences in a microbatch; left out, whatever divides is tried
    chunks       stages on each pipeline rank (1: no interleaving); left out, whatever divides
    contexts     over how many ranks to cut a sequence; None: whatever divides

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
    if contexts is not None and (not contexts or min(contexts) < 1):
        raise ValueError(f"contexts = {tuple(contexts)}, some sizes of at least 1")
    search = Search(
        model,
        cluster,
        global_batch,
        software,
        states,
        tuple(zero),
        recompute,
        micro_batch,
        chunks,
        None if contexts is None else tuple(contexts),
    )
    ranked: list[Plan] = []
    refused: list[Refused] = []
    for mesh in search.meshes():
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
    refused.sort(key=_least_memory)
    needed = () if ranked else tuple(remedies(search, refused, allow))
    return Plans(model, cluster, global_batch, software, tuple(ranked), tuple(refused), needed)


def _least_memory(refusal: Refused) -> tuple[bool, float, int, int]:
    """Meshes that lack memory come first, those that lack least before the others."""
    return refusal.need == 0, refusal.need, refusal.mesh.data, refusal.mesh.tensor
