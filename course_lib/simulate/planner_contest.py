"""Planners against each other: whose ranking is right, and what does its first choice cost?

A planner is a function `price(model, cluster, way) -> (bytes, seconds)` of three plain dicts:

    model     "parameters", "layers", "hidden", "heads", "seq", "vocab"
    cluster   "devices", "per_node", "memory" in bytes
              "flops"    operations per second that matrix products reach on a device
              "inside"   bytes per second of a ring inside a node
              "between"  bytes per second of one adapter; each device has its own
              "rings"    how many adapters of a node a ring over whole nodes uses at most
    way       "data", "tensor", "pipeline", "zero", "recompute" (True or False),
              "micro_batch" in sequences, "microbatches" of a replica in a step

and says what the device that holds most holds, and how long a step takes. It is compared with this
library's planner on all ways to train a model, and with the twelve rows of Megatron-LM's Table 2
(`planner_scores.py`), and with rules of thumb (`rules_of_thumb.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.text import table

from .cluster import Cluster, dgx_a100
from .frameworks import MODERN
from .hardware import GB
from .memory_formulas import MIXED_ADAM
from .models import MODELS
from .planner import plan
from .planner_assumptions import Software
from .planner_scores import TABLE_2, compare, compare_published
from .plans import Plan
from .published import Run
from .rules_of_thumb import all_data_parallel, all_zero_3, megatrons_rule
from .transformer import Transformer

Price = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], tuple[float, float]]
_SIZES = (1, 2, 4)  # microbatches that are tried
_STAGES = (0, 1, 3)


@dataclass(frozen=True)
class Request:
    """A model by name to be trained on so many nodes, with so many sequences in a step."""

    model: str
    nodes: int
    batch: int

    @property
    def cluster(self) -> Cluster:
        return dgx_a100.with_nodes(self.nodes)

    def __str__(self) -> str:
        return f"{self.model} on {self.cluster.size} A100s, {self.batch} sequences a step"


REQUESTS = (
    Request("7.5B", 4, 512),
    Request("39.1B", 16, 512),
    Request("GPT-3 175B", 128, 1536),
    Request("MT-NLG 530B", 140, 1120),
)


# ------------------------------------------------------------------------------------------------
# What a planner is asked
# ------------------------------------------------------------------------------------------------


def ways(request: Request) -> list[Plan]:
    """All ways without interleaving, whether they fit or not, as this library prices them."""
    roomy = replace(request.cluster, device=replace(request.cluster.device, memory=10**6 * GB))
    found: list[Plan] = []
    for size in _SIZES:
        answer = plan(
            MODELS[request.model],
            roomy,
            request.batch,
            MODERN,
            MIXED_ADAM,
            _STAGES,
            allow=lambda mesh: mesh.tensor <= roomy.devices_per_node,
            micro_batch=size,
            chunks=1,
        )
        found += answer.ranked
    return found


def asked(plan: Plan, cluster: Cluster, software: Software) -> tuple[dict, dict, dict]:
    """The three arguments of a planner."""
    return _model(plan.model), _cluster(cluster, software), _way(plan)


def asked_of(run: Run) -> tuple[dict, dict, dict]:
    """The three arguments for a run that was published."""
    return asked(run.as_run(), run.cluster, run.software)


def _model(model: Transformer) -> dict[str, Any]:
    names = ("parameters", "layers", "hidden", "heads", "seq", "vocab")
    return {name: getattr(model, name) for name in names}


def _cluster(cluster: Cluster, software: Software) -> dict[str, Any]:
    return {
        "devices": cluster.size,
        "per_node": cluster.devices_per_node,
        "memory": cluster.device.memory,
        "flops": software.matrix * cluster.device.matmul_flops,
        "inside": cluster.inside.ring_bandwidth,
        "between": cluster.between.bandwidth,
        "rings": software.rings,
    }


def _way(plan: Plan) -> dict[str, Any]:
    return {
        "data": plan.mesh.data,
        "tensor": plan.mesh.tensor,
        "pipeline": plan.mesh.pipeline,
        "zero": plan.zero,
        "recompute": plan.recompute == "full",
        "micro_batch": plan.micro_batch,
        "microbatches": plan.microbatches,
    }


# ------------------------------------------------------------------------------------------------
# The leaderboard
# ------------------------------------------------------------------------------------------------


def leaderboard(price: Price, name: str = "yours", requests: Sequence[Request] = REQUESTS) -> str:
    """`price` beside this library's planner and three rules of thumb, the best of them first."""
    entries = {
        name: price,
        "all data parallel": all_data_parallel,
        "all ZeRO-3": all_zero_3,
        "Megatron-LM's rule": megatrons_rule,
    }
    rows = [_row(who, entry, requests) for who, entry in entries.items()]
    rows.sort(key=lambda row: row[0])
    judge = ("against", "library's planner", "", "published runs", "")
    scores = ("rank correlation", "first choice")
    return table([judge, ("planner", *scores, *scores), *(row[1] for row in rows)])


def _row(who: str, price: Price, requests: Sequence[Request]) -> tuple[Any, tuple[str, ...]]:
    scores = []
    for request in requests:
        plans = ways(request)
        priced = [price(*asked(plan, request.cluster, MODERN)) for plan in plans]
        scores.append(compare(plans, priced, request.cluster.device.memory))
    published = compare_published([price(*asked_of(run))[1] for run in TABLE_2])
    order = sum(score.correlation for score in scores) / len(scores)
    regrets = [score.regret for score in scores]
    worst = None if None in regrets else max(r for r in regrets if r is not None)
    cells = (
        who,
        f"{order:.2f}",
        _cost(worst),
        f"{published.correlation:.2f}",
        _cost(published.regret),
    )
    return (worst is None, worst, -order), cells


def _cost(regret: float | None) -> str:
    """Of a first choice; None where it has no room."""
    if regret is None:
        return "does not fit"
    return f"{regret:.0%} slower" if regret >= 0.005 else "the fastest"
