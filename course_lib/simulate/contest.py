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
library's planner on all ways to train a model, and with the twelve rows of Megatron-LM's Table 2.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.text import table

from .accuracy import root_mean_square
from .cluster import Cluster, dgx_a100
from .hardware import GB
from .memory import MIXED_ADAM
from .models import MODELS
from .planner import plan
from .plans import Plan
from .published import RUNS, Run
from .software import Software
from .training_programs import MODERN
from .transformer import Transformer

Price = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], tuple[float, float]]
_SIZES = (1, 2, 4)  # microbatches that are tried
_STAGES = (0, 1, 3)
_SPARE = 1.05  # rules of thumb leave a twentieth of the memory free


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
TABLE_2 = tuple(run for run in RUNS if run.source.endswith("SC 2021, Table 2"))


@dataclass(frozen=True)
class Score:
    """What came of a comparison: 1 is the same order, and 0 none in common.

    correlation   of the two orders of all ways that fit (Spearman's)
    regret        how much slower the first choice is than the best one, less 1; None where it does
                  not fit
    """

    correlation: float
    regret: float | None


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
# What its answers are worth
# ------------------------------------------------------------------------------------------------


def compare(plans: Sequence[Plan], priced: Sequence[tuple[float, float]], room: float) -> Score:
    """A planner's prices of the same ways beside this library's; room: bytes of a device."""
    fitting = [n for n, plan in enumerate(plans) if plan.memory.total <= room]
    ours = [plans[n].step.total for n in fitting]
    theirs = [priced[n][1] for n in fitting]
    chosen = [n for n, (nbytes, _) in enumerate(priced) if nbytes <= room]
    regret = None
    if chosen:
        first = plans[min(chosen, key=lambda n: priced[n][1])]
        if first.memory.total <= room:
            regret = first.step.total / min(ours) - 1
    return Score(rank_correlation(ours, theirs), regret)


def compare_published(seconds: Sequence[float], runs: Sequence[Run] = TABLE_2) -> Score:
    """A planner's seconds of a step of published runs beside what was measured.

    Compared are rates of a device. Where a model was trained on as many devices in several ways,
    the planner chooses one: the regret is the largest of them.
    """
    rates = [_rate(run, time) for run, time in zip(runs, seconds, strict=True)]
    measured = [run.flops_per_second for run in runs]
    regret = 0.0
    for _, group in _same_request(runs):
        first = max(group, key=lambda n: rates[n])
        regret = max(regret, max(measured[n] for n in group) / measured[first] - 1)
    return Score(rank_correlation(measured, rates), regret)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of the places, where equals share the mean of theirs."""
    x, y = _places(first), _places(second)
    middle = (len(x) - 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(x, y, strict=True))
    spread = [root_mean_square([place - middle for place in places]) for places in (x, y)]
    return both / (len(x) * spread[0] * spread[1]) if min(spread) > 0 else 0.0


def _places(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda n: values[n])
    places = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for n in order[start:end]:
            places[n] = (start + end - 1) / 2
        start = end
    return places


def _rate(run: Run, seconds: float) -> float:
    again = run.recompute_counts and run.recompute == ("full",)
    return run.model.flops(run.global_batch, again) / seconds / run.cluster.size


def _same_request(runs: Sequence[Run]) -> Iterator[tuple[Any, list[int]]]:
    groups: dict[Any, list[int]] = {}
    for n, run in enumerate(runs):
        groups.setdefault((run.model, run.cluster.size, run.global_batch), []).append(n)
    yield from groups.items()


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
    head = ("", "same order", "first choice slower by", "published: order", "slower by")
    return table([head, *(row[1] for row in rows)])


def all_data_parallel(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """As many copies as fit, and no ZeRO."""
    return _SPARE * held(model, way), 1 / way["data"] + way["zero"]


def all_zero_3(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """ZeRO-3 over all devices."""
    return _SPARE * held(model, way), 1 / way["data"] + 3 - way["zero"]


def megatrons_rule(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """The fewest devices a replica that fit, tensor axis first (SC 2021, takeaways 1 and 2)."""
    replica = way["tensor"] * way["pipeline"]
    return _SPARE * held(model, way), replica + 1 / way["tensor"] + (way["zero"] == 3) * 10**6


def held(model: dict, way: dict) -> float:
    """Bytes on a device: model states, activations in flight, a layer at work, and the logits."""
    own = model["parameters"] / way["tensor"] / way["pipeline"]
    shares = [way["data"] if way["zero"] >= stage else 1 for stage in (3, 2, 1)]
    states = own * sum(nbytes / share for nbytes, share in zip((2, 2, 12), shares, strict=True))
    tokens = way["micro_batch"] * model["seq"]
    whole = 34 * tokens * model["hidden"] / way["tensor"]
    kept = 2 * tokens * model["hidden"] if way["recompute"] else whole
    flying = min(way["pipeline"], way["microbatches"])
    logits = 4 * tokens * (model["hidden"] + model["vocab"]) / way["tensor"]
    at_work = whole if way["recompute"] else 0
    return states + kept * model["layers"] / way["pipeline"] * flying + at_work + logits


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
        "does not fit" if worst is None else f"{worst:.0%}",
        f"{published.correlation:.2f}",
        f"{published.regret:.0%}",
    )
    return (worst is None, worst, -order), cells
